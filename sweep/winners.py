"""The best points of a sweep, in one pass over its blocks.

Candidates are points that count (status ok or allowed, condition true) and whose value is not NaN.  An infinite value wins
only if nothing finite does; values are compared as they are stored; ties go to the smallest index, in C order of the axes
searched as they are written.  Blocks combine as (value, index), so how a sweep is cut cannot change a winner.
"""

import math
import threading
from typing import NamedTuple

import numpy as np

from ._kernels import quantities
from .errors import SweepError

SLAB = 2**16  # values


def direction(text, what="best"):
    """``(name, sign)`` of ``min:NAME``, ``max:NAME`` or NAME with the better side that the dictionary knows; sign 1: low."""
    way, colon, name = str(text).rpartition(":")
    if colon:
        if way not in ("min", "max"):
            raise SweepError(f"{what}: {way!r} is neither min nor max. Write min:{name} or max:{name}.")
        return name, 1 if way == "min" else -1
    quantity = quantities.OUTPUTS.get(name) or quantities.INPUTS.get(name)
    better = quantity.better if quantity else "none"
    if better == "none":
        raise SweepError(f"{what}: {name} is neither better low nor high. Write min:{name} or max:{name}.")
    return name, 1 if better == "low" else -1


class Groups:
    """Numbers for groups of points: the values of ``by`` (axes, or any other name) that points share.

    Axes alone are numbered in their C order; with other names, groups are numbered as they appear.  Also the index of points
    in the C order of ``order``.
    """

    def __init__(self, blocks, by, over):
        self.blocks, self.by = blocks, by
        self.order = (*over, *(dim for dim in blocks.dims if dim not in over))
        self.sizes = dict(zip(blocks.dims, blocks.shape))
        self.dense = all(name in self.sizes for name in by)
        self.shape = tuple(self.sizes[name] for name in by) if self.dense else ()
        self._lock = threading.Lock()
        self.found = {}  # values of ``by`` -> number of the group, unless dense

    def __len__(self):
        return int(np.prod(self.shape)) if self.dense else len(self.found)

    def numbers(self, block):
        """The number of each point's group, an open mesh; new groups are added."""
        code, uniques = np.zeros((1,) * len(block.shape), np.int64), []
        if self.dense:
            for name in self.by:
                code = code * self.sizes[name] + block.positions(name)
            return code
        for name in self.by:
            part = block.positions(name) if name in self.sizes else np.asarray(block[name], float)
            unique, inverse = np.unique(part, return_inverse=True)
            code = code * len(unique) + inverse.reshape(part.shape)
            uniques.append(unique)
        codes, inverse = np.unique(code, return_inverse=True)
        places = np.unravel_index(codes, [len(unique) for unique in uniques])
        rows = zip(*(unique[place].tolist() for unique, place in zip(uniques, places)))
        with self._lock:
            numbers = np.array([self.found.setdefault(row, len(self.found)) for row in rows])
        return numbers[inverse.ravel()].reshape(code.shape)

    def sorted(self):
        """``(numbers, values of by as columns)`` of all groups in the order of their values."""
        if self.dense:
            numbers = np.arange(len(self))
            return numbers, [np.asarray(column) for column in np.unravel_index(numbers, self.shape)] if self.by else []
        keys = sorted(self.found, key=lambda key: tuple((np.isnan(value), value) for value in key))
        return np.array([self.found[key] for key in keys], int), [np.array(column) for column in zip(*keys)] or [np.empty(0)] * len(self.by)

    def index(self, block, flat):
        """The index in the whole slice of points of a block, C order of ``order``."""
        local = dict(zip(self.blocks.dims, np.unravel_index(flat, block.shape)))
        starts = dict(zip(self.blocks.dims, block.start))
        index = np.zeros(len(flat), np.int64)
        for dim in self.order:
            index = index * self.sizes[dim] + local[dim] + starts[dim]
        return index

    def places(self, index):
        """Positions on each axis of such indices."""
        return dict(zip(self.order, np.unravel_index(index, tuple(self.sizes[dim] for dim in self.order))))


class Rows(NamedTuple):
    """Answers in the order of their groups: columns of group values, rank from 0, positions by axis, where there is one, and the
    columns that are known already.
    """

    keys: list
    rank: np.ndarray
    places: dict
    has: np.ndarray
    known: dict = {}


class Top:
    """The best ``k`` points of each group, fed block by block; ties go to the first in C order of ``over``."""

    def __init__(self, blocks, name, sign, by, over, k=1):
        self.name, self.sign, self.k = name, sign, k
        self.groups = Groups(blocks, by, over)
        self.value = np.empty((0, k))  # signed, ascending; +inf where there is none, or an infinite candidate
        self.place = np.empty((0, k), np.int64)  # index of the point; -1 where there is none
        self._kept = [blocks.dims.index(name) for name in by if name in blocks.dims]
        self._searched = [blocks.dims.index(dim) for dim in self.groups.order if dim not in by]
        self._grow()

    def look(self, block):
        """The candidates of a block that may enter a list: groups, values (signed) and indices, for ``feed``.

        Changes nothing here, and so may run in a thread; lists that get better meanwhile make some of them superfluous.
        """
        found = self._champions(block) if self.k == 1 and self.groups.dense else self._candidates(block)
        block.forget()
        return found

    def feed(self, group, value, place):
        """Take in candidates."""
        self._grow()
        if self.k == 1:
            held, holder = self.value[group, 0], self.place[group, 0]
            better = (holder < 0) | (value < held) | ((value == held) & (place < holder))
            group, value, place = group[better], value[better], place[better]
        touched = np.unique(group)
        held = self.place[touched].ravel() >= 0
        group = np.r_[np.repeat(touched, self.k)[held], group]
        value = np.r_[self.value[touched].ravel()[held], value]
        place = np.r_[self.place[touched].ravel()[held], place]
        order = np.lexsort((place, value, group))
        group, value, place = group[order], value[order], place[order]
        first = np.flatnonzero(np.r_[True, group[1:] != group[:-1]])
        rank = np.arange(len(group)) - np.repeat(first, np.diff(np.r_[first, len(group)]))
        keep = rank < self.k
        self.value[group[keep], rank[keep]] = value[keep]
        self.place[group[keep], rank[keep]] = place[keep]

    def _candidates(self, block):
        value = np.asarray(block[self.name], float)
        flat = np.flatnonzero(block.full(block.mask() & ~np.isnan(value)))
        group = block.full(self.groups.numbers(block)).ravel()[flat]
        value = block.full(value).ravel()[flat]
        value = np.where(np.isfinite(value), self.sign * value, np.inf)
        near = value <= self._worst(group)  # what cannot enter the list need not be sorted
        return group[near], value[near], self.groups.index(block, flat[near])

    def _champions(self, block):
        """One winner for each combination of axes: the block is reduced along the others, and only its own winners are candidates."""
        value, mask = np.asarray(block[self.name]), block.mask()
        value = block.full(value if value.dtype.kind == "f" else value.astype(float))
        kind, best = value.dtype.type, np.fmin if self.sign > 0 else np.fmax
        void = None if mask.all() else np.where(mask, kind(0), kind(np.nan))  # added to values: NaN where a point does not count
        lows = self._reduced(best, value, void)
        if np.isinf(lows).any():  # an infinite value must not win while there is a finite one
            value = np.where(np.isinf(value), kind(self.sign * np.inf), value)
            lows = self._reduced(best, value, void)
        kept, searched, dims = self._kept, self._searched, self.groups.blocks.dims
        lows = lows.transpose(kept + searched).ravel()
        signed = np.where(np.isinf(lows), np.inf, self.sign * lows.astype(float))
        group = np.broadcast_to(self.groups.numbers(block), [n if k in kept else 1 for k, n in enumerate(block.shape)])
        group = group.transpose(kept + searched).ravel()
        near = np.flatnonzero(signed <= self._worst(group))
        if not len(near):
            return near, signed[near], near
        local = np.unravel_index(near, [block.shape[k] for k in kept]) if kept else ()
        pick = local if kept else None
        rows = value.transpose(kept + searched)[pick]
        rows = rows if void is None else rows + block.full(void).transpose(kept + searched)[pick]
        rows = rows.reshape(len(near), math.prod(block.shape[k] for k in searched))
        first = (rows == lows[near, None]).argmax(axis=1)
        local = (*local, *np.unravel_index(first, [block.shape[k] for k in searched])) if searched else local
        flat = np.ravel_multi_index([local[(kept + searched).index(k)] for k in range(len(dims))], block.shape)
        return group[near], signed[near], self.groups.index(block, flat)

    def _worst(self, group):
        """The value at the end of each group's list; infinite for a group that is new."""
        last = np.append(self.value[:, -1], np.inf)
        return last[np.minimum(group, len(last) - 1)]

    def _reduced(self, best, value, void):
        """The best of ``value + void`` along the axes searched: outermost first, one at a time, so that each runs along contiguous memory,
        and the sum only of slabs that stay in a cache.
        """
        if not self._searched:
            return value if void is None else value + void
        first, *rest = sorted(self._searched)
        step = value.shape[first] if void is None else max(1, value.shape[first] * SLAB // value.size)
        lows = None
        for start in range(0, value.shape[first], step):
            slab = (slice(None),) * first + (slice(start, start + step),)
            part = value[slab] if void is None else value[slab] + (void[slab] if void.shape[first] > 1 else void)
            part = best.reduce(part, axis=first, keepdims=True) if part.shape[first] > 1 else part
            lows = part if lows is None else best(lows, part, out=lows)
        for k in rest:
            lows = best.reduce(lows, axis=k, keepdims=True)
        return lows

    def may_improve(self, block):
        """False if the zone maps show that no point of the block can enter a list: all of those it has a part in are full of better ones."""
        if not self.groups.dense:
            return True
        if block.all_valid() is False:
            return False
        zone = block.zone(self.name)
        if zone is None:
            return True
        if np.isnan(zone[0]):
            return False
        best = zone[0] if self.sign > 0 else -zone[1]
        box = tuple(slice(block.start[k], block.start[k] + block.shape[k]) for k in self._kept)
        worst = self.value[:, -1].reshape(self.groups.shape)[box].max()
        return bool(best <= worst or not np.isfinite(worst))

    def worth_reading(self):
        """The blocks that may hold a winner, those of which the zone maps promise most first: so more of the rest stays unread."""
        def promise(block):
            zone = block.zone(self.name)
            best = -np.inf if zone is None else zone[0] if self.sign > 0 else -zone[1]
            return np.inf if np.isnan(best) else best

        blocks = self.groups.blocks
        for block in sorted(blocks, key=promise) if self.groups.dense else blocks:
            if self.may_improve(block):
                yield block
            else:
                blocks.read, blocks.skipped = blocks.read - 1, blocks.skipped + 1

    def rows(self):
        """The winners; a group without a candidate has one row that says so."""
        numbers, keys = self.groups.sorted()
        place = self.place[numbers]
        shown = place >= 0
        shown[:, 0] = True
        group, rank = np.nonzero(shown)
        place, value = place[group, rank], self.value[numbers][group, rank]
        stored, has = self.groups.blocks.ds.variables.get(self.name), place >= 0
        known = {}
        if stored is not None and stored.dtype.kind == "f" and np.isfinite(value[has]).all():  # an infinite one may have either sign
            known[self.name] = np.where(has, self.sign * value, np.nan).astype(stored.dtype)
        return Rows([column[group] for column in keys], rank, self.groups.places(np.maximum(place, 0)), has, known)

    def _grow(self):
        new = len(self.groups) - len(self.value)
        if new > 0:
            self.value = np.concatenate([self.value, np.full((new, self.k), np.inf)])
            self.place = np.concatenate([self.place, np.full((new, self.k), -1)])


class Front:
    """Points that no other beats in every quantity: kept while blocks are fed, for each group by itself.

    Of points equal in all quantities the one of the smallest index stays.
    """

    def __init__(self, blocks, goals, by):
        self.goals, self.groups, self.fronts = goals, Groups(blocks, by, blocks.dims), {}

    def feed(self, block):
        values = [sign * np.asarray(block[name], float) for name, sign in self.goals]
        mask = block.mask()
        for value in values:
            mask = mask & np.isfinite(value)
        flat = np.flatnonzero(block.full(mask))
        group = block.full(self.groups.numbers(block)).ravel()[flat]
        table = np.stack([block.full(value).ravel()[flat] for value in values], axis=1)
        for number in np.unique(group):
            chosen = np.flatnonzero(group == number)
            points, places = table[chosen], None
            if number in self.fronts:
                front, places = self.fronts[number]
                chosen = chosen[may_stay(points, front)]
                points = np.concatenate([front, table[chosen]])
            index = self.groups.index(block, flat[chosen])
            places = index if places is None else np.r_[places, index]
            keep = undominated(points, places)
            self.fronts[number] = points[keep], places[keep]

    def rows(self):
        """The fronts, each from its least first quantity on."""
        numbers, keys = self.groups.sorted()
        parts = [(row, self.fronts[number][1]) for row, number in enumerate(numbers) if number in self.fronts]
        group = np.concatenate([np.full(len(places), row) for row, places in parts]) if parts else np.empty(0, int)
        place = np.concatenate([places for _, places in parts]) if parts else np.empty(0, int)
        rank = np.concatenate([np.arange(len(places)) for _, places in parts]) if parts else np.empty(0, int)
        return Rows([column[group] for column in keys], rank, self.groups.places(place), np.ones(len(place), bool))


def may_stay(points, front):
    """Which points are beaten by none of a few of the front: a cheap first look."""
    stay = np.ones(len(points), bool)
    for best in front[:: -(-len(front) // 16)]:
        left = np.flatnonzero(stay)
        stay[left] = (points[left] < best).any(axis=1) | (points[left] == best).all(axis=1)
    return stay


def undominated(points, indices):
    """Positions of the points (rows, smaller is better) that no other dominates, sorted by the first column."""
    order = np.lexsort((indices, *points.T[::-1]))
    points = points[order]
    if points.shape[1] == 2:
        least = np.minimum.accumulate(points[:, 1])
        keep = np.r_[True, points[1:, 1] < least[:-1]]
        return order[keep]
    kept, left = [], np.arange(len(points))
    while len(left):
        best = points[left[0]]
        kept.append(left[0])
        left = left[(points[left] < best).any(axis=1)]
    return order[kept]
