"""The best points of a sweep, in one pass over its blocks.

Candidates are points that count (status ok or allowed, condition true) and whose value is not NaN.  An infinite value wins
only if nothing finite does; values are compared as they are stored; ties go to the smallest index, in C order of the axes
searched as they are written.  Blocks combine as (value, index), so how a sweep is cut cannot change a winner.
"""

import numpy as np

from ._kernels import quantities
from .errors import SweepError


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


class Top:
    """The best ``k`` points of each group, fed block by block.

    ``by`` are the names whose values make a group (axes, or any other name), ``over`` the axes in whose C order ties resolve.
    """

    def __init__(self, blocks, name, sign, by, over, k=1):
        self.blocks, self.name, self.sign, self.by, self.over, self.k = blocks, name, sign, by, over, k
        self.order = (*over, *(dim for dim in blocks.dims if dim not in over))
        self.sizes = dict(zip(blocks.dims, blocks.shape))
        self.groups = {}  # values of ``by`` -> number of the group, in order of appearance
        self.value = np.empty((0, k))  # signed, ascending; +inf where there is none
        self.index = np.empty((0, k), np.int64)  # C order of ``order``; -1 where there is none
        self.candidates = np.empty(0, np.int64)

    def feed(self, block):
        value = np.asarray(block[self.name], float)
        mask = block.full(block.mask() & ~np.isnan(value))
        group = block.full(self._groups(block))
        if not mask.any():
            return
        flat = np.flatnonzero(mask.ravel())
        group = group.ravel()[flat]
        value = block.full(value).ravel()[flat]
        self.candidates += np.bincount(group, minlength=len(self.candidates))
        value = np.where(np.isfinite(value), self.sign * value, np.inf)
        near = value <= self.value[group, -1]  # what cannot enter the list need not be sorted
        if not near.any():
            return
        group, value = group[near], value[near]
        touched = np.unique(group)
        held = self.index[touched].ravel() >= 0
        group = np.r_[np.repeat(touched, self.k)[held], group]
        value = np.r_[self.value[touched].ravel()[held], value]
        index = np.r_[self.index[touched].ravel()[held], self._global(block, flat[near])]
        order = np.lexsort((index, value, group))
        group, value, index = group[order], value[order], index[order]
        first = np.flatnonzero(np.r_[True, group[1:] != group[:-1]])
        rank = np.arange(len(group)) - np.repeat(first, np.diff(np.r_[first, len(group)]))
        keep = rank < self.k
        self.value[group[keep], rank[keep]] = value[keep]
        self.index[group[keep], rank[keep]] = index[keep]

    def may_improve(self, block):
        """False if the zone map shows that no point of the block can enter a list that is already full."""
        zone = block.zone(self.name)
        if zone is None or not len(self.groups) or len(self.groups) < self._expected() or np.isnan(self.value).any():
            return True
        if np.isnan(zone[0]):
            return False
        best = zone[0] if self.sign > 0 else -zone[1]
        worst = self.value[:, -1].max()
        return bool(best <= worst or not np.isfinite(worst))

    def _expected(self):
        count = 1
        for name in self.by:
            if name not in self.sizes:
                return np.inf
            count *= self.sizes[name]
        return count

    def _groups(self, block):
        """The number of each point's group, an open mesh; new groups are added."""
        code, uniques = np.zeros((1,) * len(block.shape), np.int64), []
        for name in self.by:
            part = block.positions(name) if name in self.sizes else np.asarray(block[name], float)
            unique, inverse = np.unique(part, return_inverse=True)
            code = code * len(unique) + inverse.reshape(part.shape)
            uniques.append(unique)
        codes, inverse = np.unique(code, return_inverse=True)
        places = np.unravel_index(codes, [len(unique) for unique in uniques]) if uniques else ()
        rows = zip(*(unique[place].tolist() for unique, place in zip(uniques, places))) if uniques else [()]
        numbers = np.array([self.groups.setdefault(row, len(self.groups)) for row in rows])
        new = len(self.groups) - len(self.value)
        if new:
            self.value = np.concatenate([self.value, np.full((new, self.k), np.inf)])
            self.index = np.concatenate([self.index, np.full((new, self.k), -1)])
            self.candidates = np.concatenate([self.candidates, np.zeros(new, np.int64)])
        return numbers[inverse.ravel()].reshape(code.shape)

    def _global(self, block, flat):
        """The index of points in the whole slice, C order of ``order``."""
        local = dict(zip(self.blocks.dims, np.unravel_index(flat, block.shape)))
        starts = dict(zip(self.blocks.dims, block.start))
        index = np.zeros(len(flat), np.int64)
        for dim in self.order:
            index = index * self.sizes[dim] + local[dim] + starts[dim]
        return index

    def rows(self):
        """``(group values, rank, positions by dim or None, value, candidates)`` of every group in its order, best first."""
        keys = sorted(self.groups, key=lambda key: tuple((np.isnan(v), v) for v in key))
        for key in keys:
            number = self.groups[key]
            for rank in range(self.k):
                index = int(self.index[number, rank])
                if index < 0 and rank:
                    break
                positions = None
                if index >= 0:
                    places = np.unravel_index(index, tuple(self.sizes[dim] for dim in self.order))
                    positions = dict(zip(self.order, map(int, places)))
                yield key, rank, positions, int(self.candidates[number])


class Front:
    """Points that no other beats in every quantity: kept while blocks are fed, for each group by itself.

    Of points equal in all quantities the one of the smallest index stays.
    """

    def __init__(self, blocks, goals, by):
        self.blocks, self.goals = blocks, goals
        self.top = Top(blocks, goals[0][0], 1, by, blocks.dims)  # numbers groups and points alike
        self.fronts = {}

    def feed(self, block):
        values = [sign * np.asarray(block[name], float) for name, sign in self.goals]
        mask = block.mask()
        for value in values:
            mask = mask & np.isfinite(value)
        group = block.full(self.top._groups(block))
        mask = block.full(mask)
        if not mask.any():
            return
        flat = np.flatnonzero(mask.ravel())
        table = np.stack([block.full(value).ravel()[flat] for value in values], axis=1)
        group, index = group.ravel()[flat], self.top._global(block, flat)
        for number in np.unique(group):
            chosen = group == number
            old = self.fronts.get(number)
            points, indices = table[chosen], index[chosen]
            if old is not None:
                points, indices = np.concatenate([old[0], points]), np.concatenate([old[1], indices])
            keep = undominated(points, indices)
            self.fronts[number] = points[keep], indices[keep]

    def rows(self):
        keys = sorted(self.top.groups, key=lambda key: tuple((np.isnan(v), v) for v in key))
        sizes = tuple(self.top.sizes[dim] for dim in self.top.order)
        for key in keys:
            points, indices = self.fronts.get(self.top.groups[key], (None, ()))
            for rank, index in enumerate(indices):
                yield key, rank, dict(zip(self.top.order, map(int, np.unravel_index(int(index), sizes)))), len(indices)


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
