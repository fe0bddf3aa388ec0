"""A labelled Dataset read block by block, as open meshes: bounded memory for any size, and blocks skipped unread.

A block is a box of points.  Within it every name is an array with one dimension for each axis and size 1 on the axes that
it does not vary on, so expressions broadcast just as they do in the kernels.  Categories and labels are codes.

What a condition says about single names decides which blocks are read: labels outside its bounds are left out at once,
and where the dataset carries zone maps (least and largest value of each chunk), blocks that cannot match are skipped.
"""

import math
import threading
from collections import OrderedDict, deque
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property

import numpy as np

from . import expressions, selections
from ._kernels import quantities
from .errors import StoreError, SweepError, did_you_mean

POINTS = 2**20  # of a block, where the dataset does not say
CACHE_BYTES = 32 * 2**20  # of arrays kept for the next blocks
READERS = 2  # threads that decode and reduce blocks: both run outside of Python's lock
AHEAD = 3  # blocks read before their turn
ROUNDED = 1e-6  # values are stored as f4, bounds of an expression are f8: widen the latter


class Blocks:
    """The points of ``ds`` at labels ``at`` that satisfy ``where`` and whose status is ok or allowed.

    Iterating gives each Block that may hold one.  ``dims`` and ``shape`` are of the slice; ``picked`` maps a dim to the positions
    taken on the dataset's axis; ``whole`` names axes that no block cuts.  ``read`` and ``skipped`` count blocks so far.
    """

    def __init__(self, ds, at=None, where=None, allow=None, whole=(), points=POINTS):
        self.ds, self.whole, self.points = ds, tuple(whole), points
        self.dims = _dims(ds)
        self.codes = selections.allowed(ds, allow)
        self.picked = {dim: np.arange(ds.sizes[dim]) for dim in self.dims}
        self.condition = None
        for dim, index in _positions(ds, at).items():
            self.picked[dim] = index
        if where:
            self.condition = expressions.compile(where, self.names, "where", self.categories)
            for name, bounds in self.condition.bounds.items():
                self._leave_out(name, bounds)
        self.read = self.skipped = 0
        self._cache, self._cached_bytes, self._lock = OrderedDict(), 0, threading.Lock()

    @property
    def shape(self):
        return tuple(len(self.picked[dim]) for dim in self.dims)

    @property
    def size(self):
        return math.prod(self.shape)

    @cached_property
    def names(self):
        """Every name that an expression or a column may use."""
        names = [str(name) for name, array in self.ds.variables.items() if set(array.dims) <= set(self.dims)]
        return tuple(dict.fromkeys([*self.dims, *names, *self.constants]))

    @cached_property
    def constants(self):
        """Fixed numbers and words of the spec, else defaults: usable in expressions, though no variable holds them."""
        defaults = {name: q.default for name, q in quantities.INPUTS.items()} if selections.spec_of(self.ds) else {}
        fixed = defaults | selections.presets_of(self.ds) | selections.settings(self.ds)
        return {name: value for name, value in fixed.items() if isinstance(value, (int, float, str)) and name not in self.ds.variables}

    @cached_property
    def categories(self):
        """name -> words by code, of categories and of labels in words."""
        found = {}
        for name in self.ds.variables:
            known = selections.words(self.ds, name)
            if known is not None:
                found[str(name)] = tuple(known.get(code, "") for code in range(max(known) + 1)) if known else ()
        found.update({name: (value,) for name, value in self.constants.items() if isinstance(value, str)})
        return found

    @cached_property
    def witnesses(self):
        """Of a store that is not finished, numbers along the axes that the status lacks: NaN in a block that is missing, where it is not."""
        if self.ds.attrs.get("complete", 1) or self.codes is None:
            return ()
        numbers = [(name, array) for name, array in self.ds.data_vars.items() if array.dtype.kind == "f" and not name.startswith("elasticity_")]
        found, lacking = [], set(self.dims) - set(self.ds["status"].dims)
        for name, array in sorted(numbers, key=lambda entry: -entry[1].ndim):
            if lacking & set(array.dims):
                found, lacking = [*found, name], lacking - set(array.dims)
        return tuple(found)

    def number(self, text, what):
        """An expression of these names that is a number, for ``what`` in errors."""
        return expressions.compile(text, self.names, what, self.categories, "number")

    def check(self, name, what):
        if name not in self.names:
            raise SweepError(f"{what}: {name!r} is not in this dataset. {did_you_mean(name, self.names)}")
        return name

    def labels(self, dim):
        """The labels of an axis in the slice, text as object."""
        if dim not in self.ds.coords:
            return self.picked[dim]
        values = self.ds[dim].values[self.picked[dim]]
        return values.astype(str).astype(object) if values.dtype.kind in "OUST" else values

    def __iter__(self):
        lengths = self._lengths()
        starts = [range(0, self.ds.sizes[dim], lengths[dim]) for dim in self.dims]
        windows = []
        for dim, firsts in zip(self.dims, starts):
            picked, along = self.picked[dim], []
            for start in firsts:
                low, high = np.searchsorted(picked, [start, start + lengths[dim]])
                if high > low:
                    along.append((int(low), picked[low:high]))
            windows.append(along)
        for index in np.ndindex(*(len(along) for along in windows)):
            chosen = [along[i] for along, i in zip(windows, index)]
            block = Block(self, tuple(low for low, _ in chosen), tuple(picks for _, picks in chosen))
            if self.condition is not None and not all(block.may_lie(n, *b) for n, b in self.condition.bounds.items()):
                self.skipped += 1
                continue
            self.read += 1
            yield block

    @cached_property
    def _cut(self):
        """The axes that more than one block lies along: what varies on all of them is read for one block only."""
        lengths = self._lengths()
        return {dim for dim in self.dims if self.ds.sizes[dim] > lengths[dim]}

    def _lengths(self):
        """Points of a block along each axis: as the store is cut, else near 2^20 points, cutting first axes first."""
        lengths = _chunks(self.ds, self.dims)
        lengths.update({dim: self.ds.sizes[dim] for dim in self.whole})

        def points():
            size = 1
            for dim in self.dims:
                size *= min(lengths[dim], len(self.picked[dim])) or 1
            return size

        while points() > 2 * self.points:
            free = [dim for dim in self.dims if dim not in self.whole and lengths[dim] > 1]
            if not free:
                break
            lengths[free[0]] = -(-lengths[free[0]] // 2)
        return lengths

    def _leave_out(self, name, bounds):
        """Labels of an axis outside the bounds of the condition are not looked at."""
        array = self.ds.variables.get(name)
        if array is None or array.ndim != 1 or name not in self.ds.coords and name not in self.ds.dims:
            return
        dim = array.dims[0]
        values = self._plain(name, np.asarray(array.values))[self.picked[dim]]
        low, high = _widen(*bounds)
        self.picked[dim] = self.picked[dim][(values >= low) & (values <= high)]

    def _plain(self, name, values):
        if name in self.categories and values.dtype.kind in "OUST":
            index = {word: code for code, word in enumerate(self.categories[name])}
            return np.vectorize(lambda label: index[str(label)], otypes=[np.int64])(values)
        return values

    def fetch(self, name, picks):
        """The open mesh of ``name`` at ``picks`` (positions for each dim), from memory where the blocks before share it."""
        if name not in self.ds.variables:
            value = self.constants[name]
            return np.full((1,) * len(self.dims), 0 if isinstance(value, str) else value)
        array = self.ds.variables[name]
        key = (name, *(picks[self.dims.index(dim)].tobytes() for dim in array.dims))
        with self._lock:
            if key in self._cache:
                self._cache.move_to_end(key)
                return self._cache[key]
        values = self._read(name, array, {dim: _slice(picks[self.dims.index(dim)]) for dim in array.dims})
        order = sorted(range(array.ndim), key=lambda axis: self.dims.index(array.dims[axis]))
        shape = [1] * len(self.dims)
        for dim, length in zip(array.dims, values.shape):
            shape[self.dims.index(dim)] = length
        values = self._plain(name, values).transpose(order).reshape(shape)
        if self._cut <= set(array.dims):
            return values  # of this block alone
        with self._lock:
            if key not in self._cache:
                self._cache[key] = values
                self._cached_bytes += values.nbytes
            while self._cached_bytes > CACHE_BYTES and len(self._cache) > 1:
                self._cached_bytes -= self._cache.popitem(last=False)[1].nbytes
        return values

    def _read(self, name, array, indexers):
        """The values of a part of a variable; a chunk that cannot be decoded is named in one sentence."""
        try:
            part = self._as_stored and self.ds.encoding.get("read_part")
            values = part(name, list(indexers.values())) if part else None
            return np.asarray(array.isel(indexers).values) if values is None else values
        except (ValueError, RuntimeError, OSError) as error:
            lengths, source = self._lengths(), self.ds.encoding.get("source", "the dataset")
            first = [index.start if isinstance(index, slice) else int(np.min(index)) for index in indexers.values()]
            place = ", ".join(f"{dim} {start // lengths[dim]}" for dim, start in zip(indexers, first))
            said = str(error).split(".")[0]
            raise StoreError(f"{source}: {name} of block {place or 0} cannot be read ({said}). Type: sweep check {source}.") from error

    @cached_property
    def _as_stored(self):
        """False where the dataset was sliced or sorted since it was opened: what it remembers of its chunks is no longer true."""
        labels = self.ds.encoding.get("labels")
        return labels is None or all(
            dim in self.ds.dims and np.array_equal(self.ds.variables[dim].values, values) for dim, values in labels.items()
        )

    @cached_property
    def zones(self):
        """name -> (least, largest) on the variable's grid of chunks, where the dataset remembers them; else empty."""
        remembered = self.ds.encoding.get("zones") if self._as_stored else None
        return remembered() if callable(remembered) else remembered or {}


class Block:
    """One box of points: ``start`` within the slice, ``picks`` on the dataset's axes, ``shape``."""

    def __init__(self, blocks, start, picks):
        self.blocks, self.start, self.picks = blocks, start, picks
        self.shape = tuple(len(part) for part in picks)
        self._arrays = {}

    def __getitem__(self, name):
        """The open mesh of a name, kept as long as the block."""
        if name not in self._arrays:
            self._arrays[name] = self.blocks.fetch(name, self.picks)
        return self._arrays[name]

    def forget(self):
        """Give back the memory of what was read."""
        self._arrays.clear()

    def evaluate(self, expression):
        return expression.evaluate({name: self[name] for name in expression.names})

    def valid(self):
        """Points of status ok or allowed, an open mesh of booleans; read only where the zone map leaves it open."""
        codes, every = self.blocks.codes, self.all_valid()
        if every is not None:
            result = np.full((1,) * len(self.shape), every)
        else:
            status = self["status"]
            result = status == codes[0]
            for code in codes[1:]:
                result = result | (status == code)
        for name in self.blocks.witnesses:
            result = result & ~np.isnan(self[name])
        return result

    def all_valid(self):
        """True or False where the zone map of status says so of every point, None where status has to be read."""
        codes = self.blocks.codes
        if codes is None:
            return True
        zone = self.zone("status")
        if zone is None or np.isnan(zone[0]) or zone[0] != zone[1]:
            return False if zone is not None and not np.any((codes >= zone[0]) & (codes <= zone[1])) else None
        return bool(zone[0] in codes)

    def mask(self, every=False):
        """Points that count: valid (or ``every`` one), and the condition holds (open mesh)."""
        mask = np.ones((1,) * len(self.shape), bool) if every else self.valid()
        if self.blocks.condition is not None:
            mask = mask & np.asarray(self.evaluate(self.blocks.condition))
        return mask

    def full(self, values):
        """An open mesh stretched to the whole block."""
        return np.broadcast_to(values, self.shape)

    def index(self, flat):
        """Where points of the block (positions in its C order) stand in the C order of the whole slice."""
        places = np.unravel_index(flat, self.shape)
        return np.ravel_multi_index([place + start for place, start in zip(places, self.start)], self.blocks.shape)

    def positions(self, dim):
        """Positions along an axis of the slice, an open mesh."""
        axis = self.blocks.dims.index(dim)
        shape = [1] * len(self.shape)
        shape[axis] = self.shape[axis]
        return (self.start[axis] + np.arange(self.shape[axis])).reshape(shape)

    def may_lie(self, name, low, high):
        """False if the zone map says that no value of ``name`` in this block lies from low to high."""
        zone = self.zone(name)
        if zone is None:
            return True
        low, high = _widen(low, high)
        return bool(zone[1] >= low and zone[0] <= high)  # a chunk without values has NaN: false

    def zone(self, name):
        """(least, largest) of a name over the chunks that this block lies in; None where no zone map is known."""
        zones = self.blocks.zones.get(name)
        if zones is None:
            return None
        dims, lengths, least, largest = zones
        parts = []
        for dim, length in zip(dims, lengths):
            picks = self.picks[self.blocks.dims.index(dim)]
            parts.append(slice(int(picks[0]) // length, int(picks[-1]) // length + 1))
        least, largest = least[tuple(parts)], largest[tuple(parts)]
        if np.isnan(least).all():
            return np.nan, np.nan
        return float(np.nanmin(least)), float(np.nanmax(largest))


def work_ahead(items, work):
    """The results ``work(item)`` in order; a few of the next items are worked on by threads meanwhile.

    ``items`` may be a generator that looks at what was done with the results before: it is asked ``AHEAD`` items early.
    """
    with ThreadPoolExecutor(READERS, thread_name_prefix="sweep-reader") as pool:
        waiting = deque()
        try:
            for item in items:
                waiting.append(pool.submit(work, item))
                if len(waiting) > AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for result in waiting:
                result.cancel()


def _dims(ds):
    """The axes in the order of the spec, or of the variable that has most of them."""
    named = [dim for dim in (selections.spec_of(ds).get("axes") or {}) if dim in ds.dims]
    fullest = max(ds.variables.values(), key=lambda array: array.ndim).dims if ds.variables else ()
    return tuple(dict.fromkeys([*named, *fullest, *ds.dims]))


def _positions(ds, at):
    """Positions along each axis that ``at`` names, ascending."""
    found = {}
    for name, wanted in (at or {}).items():
        array = selections.variable(ds, name, "at")
        if array.ndim != 1:
            selections.select(ds, {name: wanted})  # says what is wrong, or that the value is the fixed one
            continue
        dim = array.dims[0]
        taken = selections.positions(ds, name, wanted)
        found[dim] = np.intersect1d(found[dim], taken) if dim in found else np.unique(taken)
    return found


def _chunks(ds, dims):
    """How the arrays are cut along each axis, as their encoding says; an axis of which nothing is known is whole."""
    lengths = {dim: ds.sizes[dim] for dim in dims}
    for array in ds.data_vars.values():
        chunks = array.encoding.get("preferred_chunks") or dict(zip(array.dims, array.encoding.get("chunks") or ()))
        for dim, length in chunks.items():
            if dim in lengths and isinstance(length, int) and length > 0:
                lengths[dim] = min(lengths[dim], length)
    return lengths


def _slice(picks):
    """A slice where positions are consecutive: then a lazy array reads one box."""
    if len(picks) and picks[-1] - picks[0] == len(picks) - 1:
        return slice(int(picks[0]), int(picks[-1]) + 1)
    return picks


def _widen(low, high):
    return low - abs(low) * ROUNDED if np.isfinite(low) else low, high + abs(high) * ROUNDED if np.isfinite(high) else high
