"""The designs behind a stored sweep: what the kernels need to answer at, beside and between its points.

A store carries its spec resolved to numbers.  ``Designs`` thaws it once; from then on a slice is re-evaluated at another port in
NumPy, and a point opened up, without a config or a preset being read again.
"""

from dataclasses import replace

import numpy as np

from . import evaluations, expressions, presets, provenance, selections, values
from ._kernels import quantities
from .cuts import rearranged
from .errors import SweepError
from .mesh import Axis, Input, Mesh
from .points import Point
from .spec import Spec

LINK = "link_gbps"


class Designs:
    """The inputs of every point of ``ds``, an open store.  Raises SweepError where the store does not tell them.

    ``same_model``: whether its numbers are of the model that would answer here.
    """

    def __init__(self, ds):
        content = selections.spec_of(ds)
        if not content.get("axes"):
            raise SweepError("the dataset carries no spec of a sweep, so the model cannot be asked here.")
        if not set(content["axes"]) <= set(ds.dims):
            raise SweepError("the dataset lacks axes of its spec, so the model cannot be asked here.")
        self.ds = ds
        self.same_model = ds.attrs.get("model_sha256") == provenance.model_sha256()
        self.spec = provenance.thaw(ds.attrs, [(name, ds[name].values, _columns(ds, name)) for name in content["axes"]])
        self.mesh = rearranged(self.spec.mesh, {axis.name: _order(axis, ds[axis.name].values) for axis in self.spec.mesh.axes})

    @property
    def port(self):
        """The port that all points share, None where it varies (Gb/s)."""
        entry = self.mesh.inputs.get(LINK)
        return float(entry.values) if entry is not None and not entry.dims else None

    @property
    def over(self):
        """The axes that a reduction searched: a point of the store is a winner there."""
        return tuple((self.spec.reduce or {}).get("over", ()))

    def winner(self, picks, color):
        """``picks`` with the winner's position on the axes searched, that of the quantity which ``color`` is of."""
        bests = [name for name, _ in (self.spec.reduce or {}).get("best", ())]
        name = next((best for best in bests if best in color), bests[0] if bests else None)
        found = {}
        for dim in self.over:
            place = self.ds.get(f"best_{name}_{dim}")
            found[dim] = -1 if place is None else int(place.isel({d: k for d, k in picks.items() if d in place.dims}).values)
            if found[dim] < 0:
                raise SweepError("no candidate wins here, so there is no design to open up.")
        return {**picks, **found}

    def slice(self, picks, outputs, link=None):
        """``outputs`` on the axes not in ``picks`` (axis -> position), as a Dataset like the store's, at the port ``link`` (Gb/s)."""
        mesh = self._cut(picks, link)
        spec = replace(self.spec, outputs=tuple(dict.fromkeys([*(name for name in outputs if self._is_output(name)), "status"])))
        spec.__dict__["mesh"] = mesh
        found = evaluations.evaluate_spec(spec)
        mask = self._left_in(picks)
        if mask is not None:
            status = found["status"]
            found["status"] = (mesh.dims, np.where(mask, _stretched(status, mesh), np.uint8(quantities.EXCLUDED)), status.attrs)
        fixed = {name: coord.values[()] for name, coord in self.ds.isel(picks).coords.items() if coord.ndim == 0}
        if link is not None and LINK not in mesh.dims:
            fixed[LINK] = float(link)
        found = found.assign_coords({name: value for name, value in fixed.items() if name not in found.coords})
        found.attrs = dict(self.ds.attrs)
        return found

    def over_ports(self, ports, outputs):
        """``outputs`` on all axes and on one more, of ``ports`` (Gb/s)."""
        quantity = quantities.INPUTS[LINK]
        axes = tuple(replace(axis, columns={k: c for k, c in axis.columns.items() if k != LINK}) for axis in self.mesh.axes)
        axis = Axis(LINK, np.asarray(ports, float), quantity.unit, quantity.long_name)
        mesh = Mesh((*axes, axis), {**self.mesh.inputs, LINK: Input(np.asarray(ports, float), (LINK,))})
        spec = replace(self.spec, outputs=(*(name for name in outputs if self._is_output(name)), "status"))
        spec.__dict__["mesh"] = mesh
        found = evaluations.evaluate_spec(spec)
        mask = self._left_in({})
        if mask is not None:
            status = found["status"]
            full = np.where(mask[..., None], _stretched(status, mesh), np.uint8(quantities.EXCLUDED))[..., 0]
            found["status"] = (mesh.dims[:-1], full, status.attrs)
        found.attrs = dict(self.ds.attrs)
        return found

    def point(self, picks, link=None):
        """The :class:`~sweep.points.Point` at a position on every axis."""
        mesh = self._cut(picks, link)
        spec = Spec(title=self.spec.title, fixed=self.words(picks, link))
        spec.__dict__["mesh"] = mesh
        return Point(spec)

    def words(self, picks, link=None):
        """The point as one would type it: presets by name, labels, and whatever differs from both and from the defaults."""
        said = dict(self.spec.fixed)
        for axis in self.mesh.axes:
            named = {axis.name: axis.labels, **{name: column for name, column in axis.columns.items() if name in presets.TABLES}}
            said |= {name: column[picks[axis.name]] for name, column in named.items() if name in presets.TABLES or name in quantities.INPUTS}
        known = {}
        for table in presets.TABLES:
            if table in said:
                try:
                    known |= presets.find(table, said[table]).numbers
                except SweepError:  # a preset of another machine: its numbers are said one by one
                    said.pop(table)
        for name, entry in self._cut(picks, link).inputs.items():
            quantity = quantities.INPUTS[name]
            value = values.readable(quantity, entry.values)
            usual = known.get(name, quantity.default)
            if name not in said and not isinstance(usual, dict) and value != usual:
                said[name] = value
        if link is not None:
            said[LINK] = float(link)
        return {name: values.plain(value) for name, value in said.items()}

    def _is_output(self, name):
        return name in quantities.OUTPUTS and name not in self.ds.coords

    def _cut(self, picks, link):
        axes = tuple(axis for axis in self.mesh.axes if axis.name not in picks)
        inputs = {}
        for name, entry in self.mesh.inputs.items():
            kept = tuple(dim for dim in entry.dims if dim not in picks)
            index = tuple(picks[dim] if dim in picks else slice(None) for dim in entry.dims)
            taken = entry.values[index] if entry.dims else entry.values
            inputs[name] = Input(taken if kept else values.plain(taken), kept)
        if link is not None:
            inputs[LINK] = Input(float(link))
            axes = tuple(replace(axis, columns={k: c for k, c in axis.columns.items() if k != LINK}) for axis in axes)
        return Mesh(axes, inputs)

    def _left_in(self, picks):
        """True where the sweep's own ``where`` leaves points in, over the axes not in ``picks``; None without one."""
        if not self.spec.where:
            return None
        start = tuple(picks.get(dim, 0) for dim in self.mesh.dims)
        shape = tuple(1 if dim in picks else n for dim, n in zip(self.mesh.dims, self.mesh.shape))
        env = self.mesh.environment(start, shape)
        mask = expressions.compile(self.spec.where, env, "where", self.mesh.categories).evaluate(env)
        mask = np.broadcast_to(mask, shape)
        return mask.reshape([n for dim, n in zip(self.mesh.dims, shape) if dim not in picks])


def _stretched(array, mesh):
    """Values of an output over every axis of a mesh."""
    shape = [n if dim in array.dims else 1 for dim, n in zip(mesh.dims, mesh.shape)]
    return np.broadcast_to(array.values.reshape(shape), mesh.shape)


def _columns(ds, dim):
    return {str(name): coord.values for name, coord in ds.coords.items() if coord.dims == (dim,) and name != dim}


def _order(axis: Axis, labels):
    place = {label: k for k, label in enumerate(axis.labels.tolist())}
    return np.array([place[values.plain(label)] for label in labels], int)
