"""Reductions: the best over some axes, and which point it was, without storing the points.

A candidate is a point with status ok (or allowed) that ``where`` leaves in and whose value is not NaN.  Values are compared as they
would be stored (f4); infinity wins only if nothing finite does; a tie goes to the first in C order of ``over`` as the config lists
the labels.  Winners combine as (value, place), so neither blocks, workers nor extensions can change them.

Each task writes what it found over its box of points as *partial* arrays, which have one element for each task along the axes in
``over``; the closing process merges them into the products.  So a reduction is a sweep like any other: blocks, journal, resume,
extension.  On the device the objective is stored as an array before it is reduced: the same bits in every pass, and faster.

Histograms take the bins from the float itself (its exponent and first five bits of mantissa): exact, monotone, free of a range,
each bin at most 1/32 wide relative to its values, so that a quantile read off the middle of one is within 1/64.
"""

import math
from collections import deque
from typing import NamedTuple

import numpy as np

from ._kernels import quantities
from .stages import double_precision

BITS = 5  # of mantissa: 32 bins for each factor of two
LOWEST, HIGHEST = -64, 64  # exponents covered: 5e-20 to 2e19 in the quantity's own unit; beyond are two more bins
BINS = ((HIGHEST - LOWEST) << BITS) + 2
QUANTILE_ERROR = 2.0 ** -(BITS + 1)  # relative, the bound of a quantile
TASK_POINTS = 2**25  # of a task, at least a block: about a second of work
PARTIAL = "_sweep/partial/"  # where tasks write
NOWHERE = np.iinfo(np.int64).max  # the place of a winner that does not exist
TILES_AHEAD = 3


class Found(NamedTuple):
    """What is known over some points: all arrays have the mesh's axes, size 1 on those in ``over``, and a last one.

    ``keys`` (.., top) are objectives to be minimised, NaN beyond the candidates; ``places`` the winners' places in C order;
    ``count`` (.., 1); ``bins`` (.., BINS) or None.
    """

    keys: np.ndarray
    places: np.ndarray
    count: np.ndarray
    bins: np.ndarray = None


class Reduction:
    """A checked rule over a mesh.  ``over`` are the axes searched, ``keep`` the others, ``names`` the outputs reduced."""

    def __init__(self, rule, mesh, allow):
        self.over, self.top = tuple(rule["over"]), rule["top"]
        self.keep = tuple(dim for dim in mesh.dims if dim not in self.over)
        self.signs = {name: -1.0 if way == "max" else 1.0 for name, way in rule["best"]}
        self.histogram, self.quantiles, self.names = rule["histogram"], rule["quantiles"], rule["count"]
        self.valid = (0, *(quantities.REASONS.index(word) for word in allow))
        self.outputs = (*self.names, "status")

    def block(self, mesh, tile):
        """The lengths of a task: whole tiles along the axes searched first, up to some 2^25 points."""
        sizes, lengths = dict(zip(mesh.dims, mesh.shape)), dict(zip(mesh.dims, tile))
        for dim in (*self.over[::-1], *self.keep[::-1]):
            room = TASK_POINTS // max(1, math.prod(lengths.values()))
            lengths[dim] = min(sizes[dim], lengths[dim] * max(1, room))
        return tuple(lengths[dim] for dim in mesh.dims)

    def arrays(self, name):
        """What is written of one output: (array, dtype, fill, extra dims)."""
        rank = (("rank", self.top),) if self.top > 1 else ()
        if name in self.signs:
            yield f"best_{name}", np.dtype("f4"), np.nan, rank
            for axis in self.over:
                yield f"best_{name}_{axis}", np.dtype("i4"), -1, rank
        yield f"count_{name}", np.dtype("i8"), -1, ()
        if name in self.histogram:
            yield f"histogram_{name}", np.dtype("i8"), -1, (("bin", BINS),)

    def partials(self, dims):
        """The Variables that tasks write."""
        from .plan import Variable

        return tuple(
            Variable(f"{PARTIAL}{array}", dims, dtype, fill, self.over, extra)
            for name in self.names
            for array, dtype, fill, extra in self.arrays(name)
        )

    def products(self):
        """The Variables that the closing process makes of them, with the output each one belongs to: [(Variable, name)]."""
        from .plan import Variable

        made = []
        for name in self.names:
            made += [(Variable(array, self.keep, dtype, fill, (), extra), name) for array, dtype, fill, extra in self.arrays(name)]
            if name in self.histogram and self.quantiles:
                extra = (("quantile", len(self.quantiles)),)
                made.append((Variable(f"quantile_{name}", self.keep, np.dtype("f4"), np.nan, (), extra), name))
        return made

    def coordinates(self):
        """Labels of the dimensions that are no axes: name -> (labels, attributes)."""
        made = {}
        if self.top > 1:
            made["rank"] = np.arange(1, self.top + 1), {"units": "1", "long_name": "place among the best"}
        if self.histogram:
            made["bin"] = edges(), {"units": "1", "long_name": "lower edge of a bin, in the unit of the quantity counted"}
        if self.quantiles:
            made["quantile"] = np.array(self.quantiles), {"units": "1", "long_name": "fraction of the candidates"}
        return made

    def take_apart(self, name, found, plan):
        """The written arrays of one output from what was Found: array name -> values with the mesh's axes, then extra."""
        cut = (lambda a: a) if self.top > 1 else (lambda a: a[..., 0])
        arrays = {}
        if name in self.signs:
            arrays[f"best_{name}"] = cut(_values(found.keys, self.signs[name]))
            for axis, position in zip(self.over, self._positions(found.places, plan)):
                arrays[f"best_{name}_{axis}"] = cut(position)
        arrays[f"count_{name}"] = found.count[..., 0]
        if name in self.histogram:
            arrays[f"histogram_{name}"] = found.bins
        return arrays

    def put_together(self, name, arrays, plan):
        """The inverse of ``take_apart``."""
        grow = (lambda a: a) if self.top > 1 else (lambda a: a[..., None])
        count = arrays[f"count_{name}"][..., None]
        shape = (*count.shape[:-1], self.top)
        keys, places = np.full(shape, np.nan, "f4"), np.full(shape, NOWHERE)
        if name in self.signs:
            best = grow(arrays[f"best_{name}"])
            keys = np.where(np.isinf(best), best, best * np.float32(self.signs[name]))
            positions = [grow(arrays[f"best_{name}_{axis}"]) for axis in self.over]
            places = self._places(positions, plan)
        return Found(keys, places, count, arrays.get(f"histogram_{name}"))

    def merge(self, one, other):
        """What is known over the points of both (shapes may broadcast where ``one`` is wider)."""
        bins = None if one.bins is None else one.bins + other.bins
        if self.top == 1:
            better = (other.keys < one.keys) | ((other.keys == one.keys) & (other.places < one.places)) | (np.isnan(one.keys) & ~np.isnan(other.keys))
            keys, places = np.where(better, other.keys, one.keys), np.where(better, other.places, one.places)
        else:
            keys, places = np.concatenate([one.keys, other.keys], -1), np.concatenate([one.places, other.places], -1)
            order = np.lexsort((places, keys), axis=-1)[..., : self.top]
            keys, places = np.take_along_axis(keys, order, -1), np.take_along_axis(places, order, -1)
        return Found(keys, places, one.count + other.count, bins)

    def empty(self, name, shape):
        """Nothing found, over a box of ``shape`` (size 1 on the axes searched)."""
        bins = np.zeros((*shape, BINS), "i8") if name in self.histogram else None
        return Found(np.full((*shape, self.top), np.nan, "f4"), np.full((*shape, self.top), NOWHERE), np.zeros((*shape, 1), "i8"), bins)

    def quantile(self, histogram):
        """Quantiles (.., quantile) from a histogram (.., bin): the middle of the bin in which the fraction is reached; NaN without
        candidates, 0 and inf in the bins below and above.
        """
        total = histogram.sum(-1, keepdims=True)
        reached = np.cumsum(histogram, -1)
        wanted = np.maximum(1, np.ceil(np.multiply.outer(total[..., 0], self.quantiles)))
        places = np.stack([(reached < wanted[..., k, None]).sum(-1) for k in range(len(self.quantiles))], -1)
        middle = edges() * (1 + QUANTILE_ERROR)
        middle[0], middle[-1] = 0.0, np.inf
        return np.where(total > 0, middle[np.minimum(places, BINS - 1)], np.nan).astype("f4")

    def _shape(self, plan):
        return tuple(n for dim, n in zip(plan.dims, plan.shape) if dim in self.over)

    def _positions(self, places, plan):
        """Places in C order of the config's labels -> for each axis searched the position in the store; -1 for none."""
        ranks = np.unravel_index(np.where(places == NOWHERE, 0, places), self._shape(plan))
        return [np.where(places == NOWHERE, -1, np.argsort(order)[rank]).astype("i4") for order, rank in zip(self._orders(plan), ranks)]

    def _places(self, positions, plan):
        none = positions[0] < 0
        ranks = [order[np.where(none, 0, position)] for order, position in zip(self._orders(plan), positions)]
        return np.where(none, NOWHERE, np.ravel_multi_index(ranks, self._shape(plan)))

    def _orders(self, plan):
        """For each axis searched, the place in the config of every label in its stored order."""
        lengths = dict(zip(plan.dims, plan.shape))
        orders = dict(zip(plan.dims, plan.order)) if plan.order else {}
        return [orders.get(axis, np.arange(lengths[axis])) for axis in self.over]


class Task:
    """Evaluates and reduces one box of points, tile by tile, a few tiles ahead of what has been merged."""

    def __init__(self, plan, stages):
        import jax

        self.plan, self.stages, self.reduction = plan, stages, plan.reduction
        self._over = tuple(k for k, dim in enumerate(plan.dims) if dim in self.reduction.over)
        self._shape = tuple(1 if k in self._over else n for k, n in enumerate(plan.tile))
        self._keys = jax.jit(self._keys_of)
        self._least = jax.jit(self._least_of, static_argnames="winners")

    def run(self, index):
        """name -> Found over the task's box, and the number of its candidates (of the first output)."""
        chunk = self.plan.chunk(index)
        shape = tuple(1 if k in self._over else n for k, n in enumerate(chunk.shape))
        found = {name: self.reduction.empty(name, shape) for name in self.reduction.names}
        waiting = deque()
        with double_precision():
            for offset in np.ndindex(*(-(-n // t) for n, t in zip(chunk.shape, self.plan.tile))):
                local = tuple(o * t for o, t in zip(offset, self.plan.tile))
                started = self._dispatch(tuple(s + o for s, o in zip(chunk.start, local)), local, chunk.shape)
                if started is not None:
                    waiting.append((local, started))
                if len(waiting) >= TILES_AHEAD:
                    self._merge(found, *waiting.popleft(), chunk)
            while waiting:
                self._merge(found, *waiting.popleft(), chunk)
        return found, int(found[self.reduction.names[0]].count.sum())

    def _dispatch(self, start, local, shape):
        """Start one tile; None where ``where`` leaves nothing of it."""
        sizes = tuple(min(t, n - o) for t, n, o in zip(self.plan.tile, shape, local))
        mask = self.plan.mask(start, self.plan.tile)
        if mask is not None and not mask.any():
            return None
        masks = [] if mask is None else [mask]
        if sizes != self.plan.tile:  # a ragged tile: the points beyond the ends are no candidates
            masks += [_open(np.arange(tile) < size, k, len(sizes)) for k, (size, tile) in enumerate(zip(sizes, self.plan.tile))]
        places = tuple(_open(rank, k, len(sizes)) for k, rank in zip(self._over, self._local_ranks(start)))
        keys = self._keys(*self.stages.prepared(start), tuple(masks))
        return {name: (key, *self._least(key, places, winners=name in self.reduction.signs)) for name, key in keys.items()}, start

    def _local_ranks(self, start):
        """For each axis searched: the order of the tile's labels in the config, as 0, 1, .. within the tile."""
        ranks = []
        for k, order in zip(self._over, self.reduction._orders(self.plan)):
            labels = order[np.minimum(np.arange(start[k], start[k] + self.plan.tile[k]), len(order) - 1)]
            ranks.append(np.argsort(np.argsort(labels, kind="stable"), kind="stable").astype("i4"))
        return ranks

    def _keys_of(self, arrays, parts, masks):
        """The objectives as arrays: f4, to be minimised, infinity last, NaN where there is no candidate."""
        import jax.numpy as jnp

        outputs = self.stages.traced(arrays, parts)
        valid = outputs["status"] == self.reduction.valid[0]
        for code in self.reduction.valid[1:]:
            valid = valid | (outputs["status"] == code)
        for mask in masks:
            valid = valid & mask
        keys = {}
        for name in self.reduction.names:
            key = outputs[name]
            if self.reduction.signs.get(name, 1.0) < 0:
                key = jnp.where(jnp.isinf(key), jnp.float32(jnp.inf), -key)
            keys[name] = jnp.broadcast_to(jnp.where(valid, key, jnp.float32(jnp.nan)), self.plan.tile)
        return keys

    def _least_of(self, key, places, winners):
        """Least key and its first place, ``top`` times, and the count; over the axes searched."""
        import jax.numpy as jnp

        exact = jnp.float32 if math.prod(self.plan.tile) < 2**24 else jnp.float64  # counting in floats is three times as fast here
        count = jnp.sum(jnp.where(jnp.isnan(key), exact(0), exact(1)), self._over, keepdims=True)
        if not winners:
            return None, None, count
        sizes = [self.plan.tile[k] for k in self._over]
        place = sum(p * math.prod(sizes[k + 1 :]) for k, p in enumerate(places))
        keys, firsts = [], []
        beyond = jnp.int32(np.iinfo(np.int32).max)
        for _ in range(self.reduction.top):
            if keys:
                key = jnp.where((key > keys[-1]) | ((key == keys[-1]) & (place > firsts[-1])), key, jnp.nan)
            least = jnp.min(jnp.where(jnp.isnan(key), jnp.inf, key), self._over, keepdims=True)
            first = jnp.min(jnp.where(key == least, place, beyond), self._over, keepdims=True)
            keys.append(least)
            firsts.append(first)
        return jnp.stack(keys, -1), jnp.stack(firsts, -1), count

    def _merge(self, found, local, started, chunk):
        """Wait for a tile and merge it into what was found over the task's box."""
        parts, start = started
        box = tuple(slice(0, 1) if k in self._over else slice(o, min(o + t, n)) for k, (o, t, n) in enumerate(zip(local, self.plan.tile, chunk.shape)))
        cut = tuple(slice(0, b.stop - b.start) for b in box)
        for name, (key, keys, firsts, count) in parts.items():
            shape = tuple(b.stop - b.start for b in box)
            tile = self.reduction.empty(name, shape)._replace(count=np.asarray(count)[cut][..., None].astype("i8"))
            if keys is not None:
                tile = tile._replace(**self._globally(np.asarray(keys)[cut], np.asarray(firsts)[cut], start))
            if tile.bins is not None:
                tile = tile._replace(bins=self._bins(np.asarray(key), self.reduction.signs.get(name, 1.0))[cut])
            whole = found[name]
            merged = self.reduction.merge(Found(*(None if a is None else a[box] for a in whole)), tile)
            for array, values in zip(whole, merged):
                if array is not None:
                    array[box] = values

    def _globally(self, keys, firsts, start):
        """Keys and places of a tile's winners, in terms of the whole axes."""
        none = firsts == np.iinfo(np.int32).max
        sizes = [self.plan.tile[k] for k in self._over]
        ranks = np.unravel_index(np.where(none, 0, firsts), sizes)
        every = []
        for k, rank, order, local in zip(self._over, ranks, self.reduction._orders(self.plan), self._local_ranks(start)):
            position = np.minimum(start[k] + np.argsort(local, kind="stable")[rank], len(order) - 1)
            every.append(order[position])
        places = np.ravel_multi_index(every, self.reduction._shape(self.plan))
        return {"keys": np.where(none, np.float32(np.nan), keys), "places": np.where(none, NOWHERE, places)}

    def _bins(self, key, sign):
        """Counts in each bin, over the axes searched."""
        cells = int(np.prod(self._shape))
        codes = bins_of(_values(key, sign))
        if cells > 1:
            codes += np.arange(cells).reshape(self._shape) * BINS
        codes = codes[~np.isnan(key)]
        return np.bincount(codes, minlength=cells * BINS).reshape(*self._shape, BINS)


def _values(keys, sign):
    """Objectives back from keys; an infinite one was infinite, whatever the direction (outputs are never minus infinity)."""
    return keys if sign > 0 else np.where(np.isinf(keys), keys, np.float32(0) - keys)


def bins_of(values):
    """The bin of each value (f4, no NaN): from the bits of the float."""
    bits = np.ascontiguousarray(values, "f4").view("i4")
    first = ((LOWEST + 127) << BITS) - 1
    return np.clip((bits >> (23 - BITS)) - first, 0, BINS - 1).astype("i8")


def edges():
    """The lower edge of each bin; the first holds everything from minus infinity."""
    exponents = np.arange(LOWEST, HIGHEST)
    inner = np.multiply.outer(2.0**exponents, 1 + np.arange(2**BITS) / 2**BITS).ravel()
    return np.concatenate([[0.0], inner, [2.0**HIGHEST]])


def _open(values, axis, ndim):
    return values.reshape([-1 if k == axis else 1 for k in range(ndim)])
