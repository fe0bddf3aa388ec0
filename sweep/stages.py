"""The model as three compiled stages for blocks of one shape.

    prepare (low rank)  ->  combine (full rank)  ->  report (the outputs asked for, as they are stored)

Each is one jit, because those are the cuts at which a compiler's fusions must stop: in one jit XLA computes low-rank
values again in every output.  Numbers that are fixed in the sweep are closed over, never passed as 0-d arrays, so they
fold while tracing; what a stage hands on as a plain number stays one in the next.  Only the axes' values are traced.

``double_precision`` is the one place where float64 is switched on: jax keeps that switch per thread, the user's own
setting is never touched, and outside of it float64 falls to float32 without a word.
"""

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ._kernels import quantities

COMPILER_OPTIONS = {"xla_cpu_use_fusion_emitters": False}
"""XLA's older code for fusions on a CPU, where it has it: half the seconds of compiling, and blocks no slower."""


def double_precision():
    """The context in which blocks are traced, dispatched and fetched, in every thread that does so."""
    import jax

    return jax.enable_x64(True)


class Leaf(NamedTuple):
    """A value that a stage hands on: the axes it depends on and its bytes per element."""

    dims: tuple
    itemsize: int


class Stages:
    """The three stages over a mesh.

    ``outputs`` are the names asked for; ``shape`` is the block's shape, the only one that is ever compiled; ``precision``
    is that of the evaluation (float64 or float32), ``stored`` that of the outputs.  ``compilations`` counts traces.
    """

    def __init__(self, mesh, outputs, shape, precision="float64", stored="float32"):
        self.mesh, self.outputs, self.shape = mesh, tuple(outputs), tuple(shape)
        self.precision, self.stored = precision, stored
        self.compilations = 0
        first = mesh.block((0,) * len(shape), self.shape)._asdict()
        self._fixed = {name: value for name, value in first.items() if not isinstance(value, np.ndarray)}
        self._names = tuple(name for name in first if name not in self._fixed)
        self._executables, self._lock = (), threading.Lock()
        self._cut = {}  # stage -> how its plain numbers and traced arrays make its result again

    def __call__(self, start):
        """The outputs of the block that starts at ``start``: name -> array on the device, perhaps not yet computed."""
        with double_precision():
            arrays = self.arrays(start)
            prepare, combine, report = self._compiled(3)
            parts = prepare(arrays)
            core = combine(arrays, parts)
            return report(arrays, parts, core)

    def prepared(self, start):
        """The traced inputs and the parts of the block at ``start``, for a function of one's own that ends in ``traced``."""
        with double_precision():
            arrays = self.arrays(start)
            return arrays, self._compiled(1)[0](arrays)

    def traced(self, arrays, parts):
        """combine and report within a jit of one's own: name -> output.  Where few outputs are asked for, one fusion is enough."""
        from ._kernels import model

        inputs, parts = self._inputs(arrays), self._join("parts", parts)
        values = model.report(inputs, parts, model.combine(inputs, parts, self.outputs), self.outputs)
        return {name: self._as_stored(name, values[name]) for name in self.outputs}

    def arrays(self, start):
        """The traced inputs of the block at ``start``, as a tuple of open-mesh arrays."""
        inputs = self.mesh.block(tuple(start), self.shape)
        return tuple(self._cast(getattr(inputs, name)) for name in self._names)

    @cached_property
    def leaves(self):
        """Stage -> list of Leaf, from one abstract trace with every axis at length 2; ``report`` is a dict by name.  And ``equations``, how
        many operations the three stages have: what compiling them takes grows with that.
        """
        import jax

        two = Stages(self.mesh, self.outputs, (2,) * len(self.shape), self.precision, self.stored)
        dims = self.mesh.dims

        def leaf(value):
            return Leaf(tuple(dim for dim, size in zip(dims, value.shape) if size > 1), value.dtype.itemsize)

        with double_precision():
            arrays = two.arrays((0,) * len(self.shape))
            first, parts = jax.make_jaxpr(two._prepare, return_shape=True)(arrays)
            second, core = jax.make_jaxpr(two._combine, return_shape=True)(arrays, parts)
            third, report = jax.make_jaxpr(two._report, return_shape=True)(arrays, parts, core)
        return {
            "inputs": [leaf(value) for value in arrays],
            "prepare": [leaf(value) for value in parts],
            "combine": [leaf(value) for value in core],
            "report": {name: leaf(value) for name, value in report.items()},
            "equations": sum(_equations(stage.jaxpr) for stage in (first, second, third)),
        }

    def _compiled(self, count):
        """The first ``count`` stages, traced in order and compiled side by side, once."""
        with self._lock, double_precision():
            if len(self._executables) < count:
                import jax

                arrays = self.arrays((0,) * len(self.shape))
                lowered = [jax.jit(self._prepare).lower(arrays)]
                if count == 3:
                    lowered.append(jax.jit(self._combine).lower(arrays, lowered[0].out_info))
                    lowered.append(jax.jit(self._report).lower(arrays, lowered[0].out_info, lowered[1].out_info))
                with ThreadPoolExecutor(2) as pool:
                    self._executables = tuple(pool.map(_compile, lowered))
        return self._executables

    def _cast(self, values):
        if self.precision == "float32" and values.dtype == np.float64:
            return values.astype(np.float32)
        return values

    def _inputs(self, arrays):
        from ._kernels import model

        return model.Inputs(**self._fixed, **dict(zip(self._names, arrays)))

    def _prepare(self, arrays):
        from ._kernels import model

        self.compilations += 1
        return self._take_apart("parts", model.prepare(self._inputs(arrays), self.outputs))

    def _combine(self, arrays, parts):
        from ._kernels import model

        self.compilations += 1
        return self._take_apart("core", model.combine(self._inputs(arrays), self._join("parts", parts), self.outputs))

    def _report(self, arrays, parts, core):
        from ._kernels import model

        self.compilations += 1
        parts, core = self._join("parts", parts), self._join("core", core)
        values = model.report(self._inputs(arrays), parts, core, self.outputs)
        return {name: self._as_stored(name, values[name]) for name in self.outputs}

    def _take_apart(self, key, tree):
        """The traced leaves of a stage's result; its plain numbers are kept here, to stay plain numbers."""
        import jax

        leaves, structure = jax.tree.flatten(tree)
        traced = [isinstance(leaf, jax.core.Tracer) for leaf in leaves]
        self._cut[key] = structure, [None if t else leaf for t, leaf in zip(traced, leaves)], traced
        return [leaf for t, leaf in zip(traced, leaves) if t]

    def _join(self, key, arrays):
        import jax

        structure, plain, traced = self._cut[key]
        arrays = iter(arrays)
        return jax.tree.unflatten(structure, [next(arrays) if t else value for t, value in zip(traced, plain)])

    def _as_stored(self, name, value):
        """An output in the dtype of its array: u1 for categories (255: none), else ``stored``."""
        import jax.numpy as jnp

        value = jnp.asarray(value)
        if value.ndim == 0:
            value = value.reshape((1,) * len(self.shape))
        if quantities.OUTPUTS[name].kind == "category":
            if jnp.issubdtype(value.dtype, jnp.floating):
                value = jnp.where(jnp.isnan(value), quantities.MISSING, value)
            return value.astype(np.uint8)
        return value.astype(self.stored)


def _equations(jaxpr):
    """The operations of a trace, those within calls included."""
    inner = [value for equation in jaxpr.eqns for value in equation.params.values() if hasattr(value, "jaxpr")]
    return len(jaxpr.eqns) + sum(_equations(value.jaxpr) for value in inner)


def _compile(lowered):
    import jax

    if jax.default_backend() != "cpu":
        return lowered.compile()
    try:
        return lowered.compile(COMPILER_OPTIONS)
    except jax.errors.JaxRuntimeError:  # a jaxlib without this option
        return lowered.compile()


def dtype_of(name, stored="float32"):
    """The dtype in which an output is stored, and its fill value."""
    if quantities.OUTPUTS[name].kind == "category":
        return np.dtype("u1"), quantities.MISSING
    return np.dtype(stored), np.nan
