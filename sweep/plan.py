"""The plan of a sweep: what will be computed, in which blocks, and what it costs, before it is spent.

A block is a box of points that one task evaluates and writes.  Every array of the store is cut by the same lengths, so the
chunk of an output has the index of its block on the axes that the output depends on.  An output that lacks an axis has one
chunk for all blocks along it: its *owner* is the first of them that ``where`` leaves in, and only the owner writes it.

Blocks hold about 2^20 points: 4 MB of a full-rank output, large enough to keep the per-block work small.  The axis that
least depends on (usually the link) is kept whole, the others are cut near-cube, so that any slice reads few chunks.

Everything here is arithmetic on shapes; the axes of each output come from an abstract trace of the model.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from . import expressions
from .cuts import cut, first_along
from .stages import Stages, dtype_of

BLOCK_POINTS = 2**20
IN_FLIGHT = 5  # blocks being evaluated, fetched or written at one time
# Of a process with jax, xarray and zarr loaded; and what compiling takes at its peak for each equation of the model's trace (measured: 0.03 to
# 0.055 MiB over the configs that come along).
BASE_BYTES, COMPILE_BYTES = 320 * 2**20, 60 * 2**10
# For the estimate of time alone, on 2 cores of 2024: points evaluated and bytes written each second, and seconds to compile one equation of
# the model's trace (0.9 to 1.5 ms over the configs that come along; which features occur sets how many equations there are).
POINTS_PER_S, BYTES_PER_S, COMPILE_S = 8e6, 250e6, 1.1e-3


class Chunk(NamedTuple):
    """A block: its index in the grid, the index of its first point, and its shape, cut at the ends of the axes."""

    index: tuple
    start: tuple
    shape: tuple

    @property
    def points(self):
        return math.prod(self.shape)


class Variable(NamedTuple):
    """An array that blocks write.

    ``dims`` are the axes it has; along those in ``counted`` it has one element for each block rather than each point (the
    partial results of a reduction).  ``extra`` are further dimensions (name, length), never cut.
    """

    name: str
    dims: tuple
    dtype: np.dtype
    fill: object
    counted: tuple = ()
    extra: tuple = ()


@dataclass(frozen=True, eq=False)
class Plan:
    """What a sweep will do.  ``Plan.of(spec)`` makes it; ``print(plan)`` says it."""

    spec: object
    mesh: object
    block: tuple  # points of a block along each axis
    variables: tuple
    reduction: object = None
    order: tuple = ()  # for each axis the place of each of its labels in the spec, where a store holds another order

    @classmethod
    def of(cls, spec, mesh=None, block=None, order=(), dims=None):
        """The plan of a spec.  A store that is continued gives its own ``mesh`` (labels in its order), ``block`` and ``dims`` (the axes of
        each output), so that jax is not needed to plan it.
        """
        mesh = mesh or spec.mesh
        reduction = None
        if spec.reduce:
            from .reductions import Reduction

            reduction = Reduction(spec.reduce, mesh, spec.allow)
        names = reduction.outputs if reduction else tuple(dict.fromkeys((*spec.outputs, "status")))
        leaves = None
        if block is None or (dims is None and not reduction):
            leaves = _leaves(spec, mesh, names)
        if block is None:
            block = cut(mesh, leaves, _block_points(spec))
            block = reduction.block(mesh, block) if reduction else block
        if reduction:
            variables = reduction.partials(mesh.dims)
        else:
            dims = dims or _dims(spec, mesh, leaves)
            variables = tuple(Variable(name, tuple(dims[name]), *dtype_of(name)) for name in names)
        plan = cls(spec, mesh, tuple(block), variables, reduction, order)
        if leaves:
            plan.__dict__["leaves"] = leaves
        return plan

    @cached_property
    def leaves(self):
        """What the stages hand on, see Stages.leaves."""
        names = self.reduction.outputs if self.reduction else tuple(v.name for v in self.variables)
        return _leaves(self.spec, self.mesh, names)

    @cached_property
    def tile(self):
        """Points that are evaluated at one time: the block, or a part of it in a reduction."""
        return tuple(map(min, cut(self.mesh, self.leaves, _block_points(self.spec)), self.block)) if self.reduction else self.block

    # -- shape ----------------------------------------------------------------------------------------------------------

    @property
    def dims(self):
        return self.mesh.dims

    @property
    def shape(self):
        return self.mesh.shape

    @property
    def points(self):
        return self.mesh.size

    @property
    def grid(self):
        """The number of blocks along each axis."""
        return tuple(-(-n // b) for n, b in zip(self.shape, self.block))

    def chunk(self, index):
        """The Chunk of a block index (a tuple, or its place in C order)."""
        if not isinstance(index, tuple):
            index = tuple(int(i) for i in np.unravel_index(index, self.grid)) if self.grid else ()
        start = tuple(i * b for i, b in zip(index, self.block))
        return Chunk(index, start, tuple(min(b, n - s) for b, n, s in zip(self.block, self.shape, start)))

    def chunks(self):
        """The blocks that have something to write, one by one."""
        return (self.chunk(int(i)) for i in np.flatnonzero(self.pending({})))

    def extent(self, variable):
        """The shape of a variable's array."""
        lengths = {d: g if d in variable.counted else n for d, g, n in zip(self.dims, self.grid, self.shape)}
        return tuple(lengths[dim] for dim in variable.dims) + tuple(size for _, size in variable.extra)

    def chunk_shape(self, variable):
        """The shape of its chunks."""
        lengths = {d: 1 if d in variable.counted else b for d, b in zip(self.dims, self.block)}
        return tuple(lengths[dim] for dim in variable.dims) + tuple(size for _, size in variable.extra)

    def chunk_index(self, variable, index):
        """The index of a variable's chunk that block ``index`` lies in."""
        return tuple(i for dim, i in zip(self.dims, index) if dim in variable.dims) + (0,) * len(variable.extra)

    def zone_grid(self, variable):
        """The number of a variable's chunks along each of its dims."""
        return tuple(g for dim, g in zip(self.dims, self.grid) if dim in variable.dims)

    def cut_shape(self, variable, chunk):
        """The shape of that chunk, cut at the ends of the axes."""
        lengths = {d: 1 if d in variable.counted else n for d, n in zip(self.dims, chunk.shape)}
        return tuple(lengths[dim] for dim in variable.dims) + tuple(size for _, size in variable.extra)

    # -- what `where` leaves in -------------------------------------------------------------------------------------------

    @cached_property
    def where(self):
        """The compiled ``where``, or None."""
        return _where(self.spec, self.mesh)

    @cached_property
    def where_dims(self):
        return _where_dims(self.spec, self.mesh)

    def mask(self, start, shape):
        """True at the points of a box that ``where`` leaves in, size 1 on the axes it does not read; None without one."""
        if self.where is None:
            return None
        shape = tuple(n if dim in self.where_dims else 1 for dim, n in zip(self.dims, shape))
        found = self.where.evaluate(self.mesh.environment(tuple(start), shape))
        return np.broadcast_to(np.asarray(found, bool), shape)

    @cached_property
    def _included(self):
        """True for the blocks in which ``where`` leaves any point, size 1 on the axes it does not read; and how many."""
        grid = tuple(g if dim in self.where_dims else 1 for dim, g in zip(self.dims, self.grid))
        if self.where is None:
            return np.ones(grid, bool), self.points
        included, kept = np.zeros(grid, bool), 0
        for index in np.ndindex(grid):
            chunk = self.chunk(index)
            mask = self.mask(chunk.start, chunk.shape)
            included[index] = mask.any()
            kept += int(mask.sum())
        return included, kept * math.prod(n for dim, n in zip(self.dims, self.shape) if dim not in self.where_dims)

    @property
    def included(self):
        return self._included[0]

    @property
    def points_left(self):
        """The points that ``where`` leaves in."""
        return self._included[1]

    def owned(self, variable):
        """True for the blocks that write their chunk of ``variable``; open mesh over the grid."""
        missing = [k for k, dim in enumerate(self.dims) if dim not in variable.dims]
        if variable.name == "status" and self.reduction is None:
            owned = np.ones((1,) * len(self.dims), bool)
        else:
            owned = first_along(self.included, missing)
        for k in missing:
            if owned.shape[k] == 1:
                first = np.arange(self.grid[k]).reshape([-1 if a == k else 1 for a in range(len(self.dims))]) == 0
                owned = owned & first
        return owned

    def pending(self, done):
        """True for blocks with something left to write, flat; ``done`` maps names to flat arrays of what is written."""
        pending = np.zeros(self.grid, bool)
        for variable in self.variables:
            left = self.owned(variable)
            if variable.name in done:
                left = left & ~done[variable.name].reshape(self.grid)
            pending |= left
        return pending.reshape(-1)

    def owners(self, index):
        """The variables whose chunk block ``index`` writes."""
        return tuple(v for v in self.variables if self._owned[v.name][self._clamped(v, index)])

    @cached_property
    def _owned(self):
        return {v.name: self.owned(v) for v in self.variables}

    def _clamped(self, variable, index):
        return tuple(min(i, n - 1) for i, n in zip(index, self._owned[variable.name].shape))

    def is_included(self, index):
        """True where ``where`` leaves a point in block ``index``."""
        return bool(self.included[tuple(min(i, n - 1) for i, n in zip(index, self.included.shape))])

    # -- cost -----------------------------------------------------------------------------------------------------------

    @cached_property
    def blocks(self):
        """The number of blocks that are evaluated."""
        return int((self.pending({}).reshape(self.grid) & self.included).sum())

    @cached_property
    def files(self):
        """Files of the finished store: chunks, metadata, labels, zone maps, journal.  A chunk that turns out to be all fill leaves none."""
        products = self.reduction.products() if self.reduction else []
        coordinates = len(self.reduction.coordinates()) if self.reduction else 0
        labels = sum(1 + len(axis.columns) for axis in self.mesh.axes) + coordinates
        arrays = len(self.variables) + len(products)
        zones = 0 if self.reduction else len(self.variables)
        groups = 3 + any("/" in v.name for v in self.variables)  # the root, _sweep, its zones; and partial
        chunks = sum(self._chunks_of(v) for v in self.variables) + sum(math.prod(self._grid_of(v)) for v, _ in products)
        return chunks + arrays + 2 * (labels + zones) + groups + 3  # done and its chunk, the journal

    @cached_property
    def bytes(self):
        """Bytes of the arrays before compression, an upper bound of what the disk has to hold."""
        total = 0
        for v in self.variables:
            every = math.prod(self._grid_of(v))
            total += v.dtype.itemsize * math.prod(self.extent(v)) * self._chunks_of(v) / every
        return int(total)

    @cached_property
    def peak_bytes(self):
        """Bytes of memory at the peak: the stages' values of one block, the outputs of those in flight, and the process."""
        lengths = dict(zip(self.dims, self.tile))

        def size(leaves):
            return sum(leaf.itemsize * math.prod(lengths[dim] for dim in leaf.dims) for leaf in leaves)

        report = size(self.leaves["report"].values())
        stages = size(self.leaves["inputs"]) + size(self.leaves["prepare"]) + size(self.leaves["combine"])
        largest = max([leaf.itemsize * math.prod(lengths[d] for d in leaf.dims) for leaf in self.leaves["combine"]] or [0])
        base = BASE_BYTES + self.leaves["equations"] * COMPILE_BYTES
        if self.reduction is not None:
            products = sum(v.dtype.itemsize * math.prod(self.chunk_shape(v)) for v in self.variables)
            return int(base + IN_FLIGHT * (stages + report) + 3 * products)
        return int(base + IN_FLIGHT * (report + stages) + 4 * largest)

    @property
    def seconds(self):
        """A rough estimate of the time on two cores, compiling aside."""
        return self.points_left / POINTS_PER_S + self.bytes / BYTES_PER_S

    @property
    def compile_seconds(self):
        """A rough estimate of the time that compiling takes, once for each process."""
        return self.leaves["equations"] * COMPILE_S

    def describe(self):
        """The plan as plain values: what ``sweep plan --format json`` prints."""
        return {
            "title": self.spec.title,
            "axes": dict(zip(self.dims, self.shape)),
            "points": self.points,
            "points_left_by_where": self.points_left,
            "block": dict(zip(self.dims, self.block)),
            "blocks": self.blocks,
            "outputs": {v.name: list(v.dims) + [name for name, _ in v.extra] for v in self.variables},
            "bytes": self.bytes,
            "files": self.files,
            "peak_memory_bytes": self.peak_bytes,
            "seconds_estimated": self.seconds + self.compile_seconds,
            "seconds_compiling": self.compile_seconds,
        }

    def __str__(self):
        axes = " x ".join(f"{name} {n}" for name, n in zip(self.dims, self.shape)) or "one point"
        block = " x ".join(map(str, self.block)) or "1"
        lines = [
            f"points   {self.points:,}  ({axes})",
            f"blocks   {self.blocks:,} of {block}, {self.files:,} files",
            f"disk     {si(self.bytes)} before compression",
            f"memory   {si(self.peak_bytes)} at the peak",
            f"time     about {self.seconds + self.compile_seconds:.0f} s on 2 cores: {self.compile_seconds:.0f} compiling, {self.seconds:.0f} evaluating",
        ]
        if self.where is not None:
            lines.insert(1, f"where    leaves {self.points_left:,} points" + ("" if self.points_left else ": nothing to compute"))
        for v in self.variables:
            dims = ", ".join((*v.dims, *(name for name, _ in v.extra))) or "one value"
            lines.append(f"  {v.name} {v.dtype.str[1:]}  ({dims})")
        return "\n".join(lines)

    def _grid_of(self, variable):
        return tuple(-(-n // c) for n, c in zip(self.extent(variable), self.chunk_shape(variable)))

    def _chunks_of(self, variable):
        owned = self.owned(variable)
        return int(owned.sum()) * math.prod(g for g, n in zip(self.grid, owned.shape) if n == 1)


def si(number, unit="B"):
    """A number of bytes with a decimal prefix: 4.2 GB."""
    for prefix in ("", "k", "M", "G", "T"):
        if abs(number) < 1000:
            break
        number /= 1000
    else:
        prefix = "P"
    return f"{number:.3g} {prefix}{unit}"


def _leaves(spec, mesh, names):
    return Stages(mesh, names, mesh.shape, spec.precision).leaves


def _dims(spec, mesh, leaves):
    """The axes of each output; status has those that ``where`` reads, too."""
    dims = {name: leaf.dims for name, leaf in leaves["report"].items()}
    where = _where_dims(spec, mesh)
    dims["status"] = tuple(dim for dim in mesh.dims if dim in where or dim in dims["status"])
    return dims


def _block_points(spec):
    return int((spec.store or {}).get("block_points", BLOCK_POINTS))


def _where(spec, mesh):
    if not spec.where:
        return None
    names = mesh.environment((0,) * len(mesh.axes), (1,) * len(mesh.axes))
    return expressions.compile(spec.where, names, f"{spec.source or 'config'}, where", mesh.categories)


def _where_dims(spec, mesh):
    """The axes that ``where`` reads."""
    expression = _where(spec, mesh)
    if expression is None:
        return ()
    pair = mesh.environment((0,) * len(mesh.axes), (2,) * len(mesh.axes))
    shapes = [np.shape(pair[name]) for name in expression.names]
    return tuple(dim for k, dim in enumerate(mesh.dims) if any(shape and shape[k] > 1 for shape in shapes))
