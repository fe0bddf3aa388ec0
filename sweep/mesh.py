"""The mesh: axes with labels, and every input on the axes that it varies on.

An open mesh, not a product: an input keeps length 1 on the axes it does not depend on, and broadcasting makes the product
inside the kernels.  Two kinds of axis:

- one quantity: ``link_gbps: [200, 400]``;
- a table whose columns move together: presets by name (``accelerator: [h100, b200]``), or any group of equally long lists
  under one name (``layout: {tp: [1, 8], pp: [4, 1]}``).

A quantity can depend on several tables (peak_tflops on the accelerator and the dtype): it then has several dims.
"""

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ._kernels import quantities


@dataclass(frozen=True, eq=False)
class Axis:
    """One axis: ``labels`` (f8, i8, or words as dtype object) and, for a table, the numbers that move along it.

    ``columns`` are coordinates to be stored beside the labels: name -> array of the axis' length (words for categories).
    ``units`` and ``long_name`` describe the labels.
    """

    name: str
    labels: np.ndarray
    units: str = "1"
    long_name: str = ""
    columns: dict = field(default_factory=dict)

    def __len__(self):
        return len(self.labels)


@dataclass(frozen=True, eq=False)
class Input:
    """The values of a quantity: a Python number where ``dims`` is empty, else an array with one dimension for each."""

    values: object
    dims: tuple = ()


@dataclass(frozen=True, eq=False)
class Mesh:
    """The axes in their order, and the inputs that are set: name of ``quantities.INPUTS`` -> Input."""

    axes: tuple
    inputs: dict

    @property
    def dims(self):
        """The names of the axes."""
        return tuple(axis.name for axis in self.axes)

    @property
    def shape(self):
        """The lengths of the axes."""
        return tuple(len(axis) for axis in self.axes)

    @property
    def size(self):
        """The number of points, as a Python integer (no overflow)."""
        return math.prod(self.shape)

    def block(self, start=None, shape=None):
        """``model.Inputs`` of the block at ``start`` (index of its first point) of ``shape``; without both, of everything.

        Each array has size 1 on the axes it does not vary on, and the block's length on the others.  Beyond the end of an
        axis its last value is repeated, so that ragged blocks have the one compiled shape.
        """
        from ._kernels import model

        window = self._window(start, shape)
        return model.Inputs(**{name: self._open(entry, window) for name, entry in self.inputs.items()}, known=self.known)

    @cached_property
    def known(self):
        """Pairs (name, values that occur) of the inputs that vary, for ``model.Inputs.known``."""
        return tuple((name, tuple(np.unique(entry.values).tolist())) for name, entry in self.inputs.items() if entry.dims)

    def environment(self, start=None, shape=None):
        """name -> number or open-mesh array of everything that a ``where`` can use, in codes (see ``categories``).

        That is: the inputs that are set, those with a default, the axes, and the columns of tables.
        """
        window = self._window(start, shape)
        env = {}
        for name, quantity in quantities.INPUTS.items():
            if quantity.kind == "category":
                env[name] = quantities.encode(quantity, quantity.default)
            elif quantity.default is not None:
                env[name] = quantity.default
        for k, axis in enumerate(self.axes):
            for name, column in {**axis.columns, axis.name: axis.labels}.items():
                codes = np.array([self.categories[name].index(w) for w in column]) if name in self.categories else column
                env[name] = _reshape(codes[window[k]], (k,), len(self.axes))
        env.update({name: self._open(entry, window) for name, entry in self.inputs.items()})
        return env

    @cached_property
    def categories(self):
        """name -> the words of its codes in ``environment``: categories by the dictionary, the labels of text axes."""
        words = {name: q.choices for name, q in quantities.INPUTS.items() if q.kind == "category"}
        for axis in self.axes:
            for name, column in {**axis.columns, axis.name: axis.labels}.items():
                if column.dtype == object and name not in words:
                    words[name] = tuple(dict.fromkeys(column))
        return words

    def _window(self, start, shape):
        start = start or (0,) * len(self.axes)
        shape = shape or self.shape
        return [np.minimum(np.arange(s, s + n), size - 1) for s, n, size in zip(start, shape, self.shape)]

    def _open(self, entry, window):
        if not entry.dims:
            return entry.values
        positions = [self.dims.index(dim) for dim in entry.dims]
        return _reshape(entry.values[np.ix_(*(window[k] for k in positions))], positions, len(self.axes))


def _reshape(values, positions, ndim):
    """``values`` with its dimensions at ``positions`` of ``ndim`` axes, size 1 on the others."""
    order = np.argsort(positions)
    shape = [1] * ndim
    for k in positions:
        shape[k] = values.shape[list(positions).index(k)]
    return np.ascontiguousarray(values.transpose(order).reshape(shape))
