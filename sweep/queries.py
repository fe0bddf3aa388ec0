"""Asking a saved sweep: points, counts, winners, fronts, crossings and sensitivities, in one pass over its blocks.

    query(ds, where="tp * pp <= 16", best="step_time_s", over=["tp", "pp"])

The answer is a pandas DataFrame whose ``attrs`` hold ``units`` by column and ``notes``: what was read and what was left
out.  Points whose status is not ok are left out unless their reason is allowed.
"""

import numpy as np
import pandas as pd

from . import crossings, intervals, selections, sensitivities
from ._kernels import quantities
from .blocks import Blocks, work_ahead
from .errors import SweepError
from .winners import Front, Groups, Top, direction

LIMIT = 100  # rows, unless asked for more


def query(
    ds, where=None, at=None, best=None, top=1, over=None, pareto=None, crossover=None, along=None, sensitivity=None,
    group_by=None, count=False, columns=None, limit=LIMIT, allow=None, interval=None,
):  # fmt: skip
    """Ask ``ds``, any Dataset with axes, outputs and ``status``; returns a DataFrame.

    where        a condition on points, such as ``tp * pp <= 16 and accelerator == 'h100'``
    at           labels: name -> label, list of labels or (low, high)
    best, top    the ``top`` best points by a quantity: NAME (its better side), ``min:NAME`` or ``max:NAME``; ``over`` names the
                 axes searched (all), so that one list is given for each combination of the others, or ``group_by`` the groups
    pareto       the points that none beats in all of several quantities, for each group of ``group_by``
    crossover    ``NAME=VALUE`` (a number, a quantity or arithmetic) with ``along``: where it is crossed on that axis, or
                 on the scale of a quantity that varies along one axis only
    sensitivity  how much each axis moves a quantity
    group_by     names whose values make groups; alone, or with ``columns``: counts, least, mean and largest
    count        how many points match
    columns      names to show; ``limit`` rows at most (None: all)
    allow        reasons of status that do not disqualify, beside those that the sweep itself allows
    interval     per cent (such as 80): beside step times and what follows from them, ends that so many measured runs lie between
    """
    asked = [name for name, value in (("best", best), ("pareto", pareto), ("crossover", crossover), ("sensitivity", sensitivity), ("count", count)) if value]
    if len(asked) > 1:
        raise SweepError(f"{' and '.join(asked)} are different questions: ask one at a time.")
    if over is not None and not best:
        raise SweepError("over: belongs to best, such as best=step_time_s with over=tp,pp.")
    if (along is None) != (crossover is None):
        raise SweepError("crossover and along belong together, such as crossover exposed_fraction=0.02 along link_gbps.")
    if top < 1:
        raise SweepError(f"top: {top} is not a number of points. Write 1 or more.")
    group_by, over, pareto, columns = _listed(group_by), _listed(over), _listed(pareto), _listed(columns)
    blocks = Blocks(ds, at, where, _listed(allow), whole=selections.variable(ds, along, "along").dims if along else ())
    for what, names in (("group_by", group_by), ("over", over), ("columns", columns)):
        for name in names or ():
            blocks.check(name, what)
    if interval is not None:
        if crossover or sensitivity or count or (group_by and not (best or pareto)):
            raise SweepError("interval: stands beside points: all of them, the best or a front.")
        columns = columns or ([] if best or pareto else default_columns(blocks))
        columns = [*columns, *intervals.deciding(blocks.names, columns)]  # shown for now: intervals.beside takes them off again
    rows = None
    if best:
        frame = _best(blocks, best, top, over, group_by, columns)
    elif pareto:
        frame = _pareto(blocks, pareto, group_by, columns)
    elif crossover:
        frame = crossings.table(blocks, crossover, along)
    elif sensitivity:
        frame = sensitivities.table(blocks, sensitivity)
    elif group_by or count:
        frame = _groups(blocks, group_by or [], [] if count else columns or [])
    else:
        frame, rows = _points(blocks, columns, limit)
    frame = _finished(blocks, frame.iloc[:limit] if limit else frame, rows or len(frame))
    return frame if interval is None else intervals.beside(frame, interval)


def _frame(block, columns):
    """The points of a block that count, indexed by their place in the C order of the slice."""
    flat = np.flatnonzero(block.full(block.mask()).ravel())
    table = {name: _column(block.blocks, name, block.full(block[name]).ravel()[flat]) for name in columns} if len(flat) else {}
    return pd.DataFrame(table, index=block.index(flat))


def default_columns(blocks):
    """Axes that vary, then outputs as the dataset has them."""
    status = () if blocks.codes is None or len(blocks.codes) > 1 else ("status",)  # all ok: says nothing
    outputs = [str(name) for name in blocks.ds.data_vars if name in blocks.names and name not in status]
    return [*_varying(blocks), *(name for name in outputs if not name.startswith(("best_", "count_")))]


def _points(blocks, columns, limit):
    """The points that count in the C order of the slice, however it is cut; with a ``limit`` the first of them, read no further than needed."""
    columns = columns or default_columns(blocks)
    frames, rows = [pd.DataFrame({name: [] for name in columns})], 0
    for block in blocks:
        if limit and len(frames[0]) > limit and frames[0].index[limit] < block.index(0):  # what follows comes later
            blocks.read -= 1
            break
        found = _frame(block, columns)
        if len(found):
            rows += len(found)
            frames = [*frames, found] if rows > len(found) else [found]
            if limit:
                frames = [pd.concat(frames).sort_index()[: limit + 1]]
    return pd.concat(frames).sort_index()[: limit or None].reset_index(drop=True), rows


def _best(blocks, best, top, over, group_by, columns):
    blocks.check(best.rpartition(":")[2], "best")
    name, sign = direction(best)
    if over is not None and group_by is not None:
        raise SweepError("over and group_by say the same from two sides: give one of them.")
    for dim in over or ():
        if dim not in blocks.dims:
            raise SweepError(f"over: {dim} is not an axis. Axes are {', '.join(blocks.dims)}.")
    if group_by is None:
        over = over if over is not None else list(blocks.dims)
        group_by = [dim for dim in blocks.dims if dim not in over]
    over = [dim for dim in (over or blocks.dims) if dim not in group_by]
    shown = [*group_by, *(dim for dim in blocks.dims if dim not in group_by and dim in _varying(blocks))]
    if not blocks.size:  # the condition leaves an axis without labels
        return pd.DataFrame({column: [] for column in [*shown, name, *(columns or [])]})
    winners = Top(blocks, name, sign, group_by, over, top)
    for candidates in work_ahead(winners.worth_reading(), winners.look):
        winners.feed(*candidates)
    return _winning(blocks, winners, group_by, [*shown, name, *(columns or [])], top > 1)


def _pareto(blocks, names, group_by, columns):
    for name in names:
        blocks.check(name.rpartition(":")[2], "pareto")
    goals = [direction(name, "pareto") for name in names]
    if len(goals) < 2:
        raise SweepError("pareto: name two quantities or more, such as step_time_s,memory_bytes.")
    front = Front(blocks, goals, group_by or [])
    for block in blocks:
        front.feed(block)
    shown = [*(group_by or ()), *_varying(blocks), *(name for name, _ in goals), *(columns or [])]
    return _winning(blocks, front, group_by or [], shown, False)


def _winning(blocks, finder, group_by, columns, ranked):
    """The table of winners: group, rank, labels and columns of each, gathered point by point."""
    rows = finder.rows()
    table = {"rank": rows.rank + 1} if ranked else {}
    for name in dict.fromkeys(columns):
        if name in group_by:
            values = rows.keys[group_by.index(name)]
            table[name] = blocks.labels(name)[values.astype(int)] if name in blocks.dims else _column(blocks, name, values)
            continue
        values = rows.known[name] if name in rows.known else gather(blocks, name, rows.places)
        table[name] = _blank(_column(blocks, name, values), ~rows.has)
    return pd.DataFrame(table)


def _blank(values, missing):
    """A column without a value where there is no winner: NaN, and a whole number stays one."""
    if not missing.any():
        return values
    if values.dtype.kind in "iu":
        return pd.arrays.IntegerArray(values.astype("i8"), missing)
    return np.where(missing, np.asarray(np.nan, values.dtype), values)


def gather(blocks, name, places):
    """The values of a name at single points: positions within the slice, one array for each dim."""
    picks = {dim: blocks.picked[dim][index] for dim, index in places.items()}
    count = len(next(iter(places.values()))) if places else 1
    if name not in blocks.ds.variables:
        return np.full(count, 0 if isinstance(blocks.constants[name], str) else blocks.constants[name])
    array = blocks.ds.variables[name]
    if array.ndim == 0 or not count:
        return np.full(count, array.values[()]) if count else np.empty(0, array.dtype)
    import xarray as xr

    taken = array.isel({dim: xr.Variable("point", picks[dim]) for dim in array.dims})
    return np.asarray(blocks._plain(name, np.asarray(taken.values)))


def _groups(blocks, names, columns):
    """Counts by group, and least, mean and largest of columns.  Groups of ``status`` count every point."""
    groups = Groups(blocks, names, blocks.dims)
    for name in columns:
        if name in blocks.categories:
            raise SweepError(f"columns: {name} has words; group by it instead.")
    totals = {name: [np.empty(0)] * 4 for name in columns}  # least, largest, sum, count
    counts = np.empty(0, np.int64)
    for block in blocks:
        mask = block.full(block.mask(every="status" in names)).ravel()
        number = block.full(groups.numbers(block)).ravel()[mask]
        size = len(groups)
        counts = np.r_[counts, np.zeros(size - len(counts), np.int64)] + np.bincount(number, minlength=size)
        for name in columns:
            least, largest, total, seen = (np.r_[a, np.full(size - len(a), fill)] for a, fill in zip(totals[name], (np.inf, -np.inf, 0.0, 0.0)))
            values = block.full(block[name]).ravel()[mask].astype(float)
            real = ~np.isnan(values)
            np.minimum.at(least, number[real], values[real])
            np.maximum.at(largest, number[real], values[real])
            totals[name] = [least, largest, total + np.bincount(number[real], values[real], size), seen + np.bincount(number[real], minlength=size)]
    numbers, keys = groups.sorted()
    if not len(counts):  # no block was read
        counts, totals = np.zeros(len(groups), np.int64), {name: [np.zeros(len(groups))] * 4 for name in columns}
    shown = counts[numbers] > 0 if names else np.ones(len(numbers), bool)
    numbers, keys = numbers[shown], [key[shown] for key in keys]
    table = {}
    for name, values in zip(names, keys):
        table[name] = blocks.labels(name)[values.astype(int)] if name in blocks.dims else _column(blocks, name, values)
    table["count"] = counts[numbers]
    if not names:
        table["points"] = np.array([blocks.size])
    for name in columns:
        least, largest, total, seen = (part[numbers] for part in totals[name])
        with np.errstate(invalid="ignore", divide="ignore"):
            table |= {f"{name}_min": np.where(seen == 0, np.nan, least), f"{name}_mean": total / seen, f"{name}_max": np.where(seen == 0, np.nan, largest)}
    return pd.DataFrame(table)


def _column(blocks, name, values):
    """Codes as words, labels as text, numbers as they are."""
    if name not in blocks.categories:
        return values
    known = blocks.categories[name]
    fallback = {254: "excluded", 255: ""}
    words = np.array([*known, *(fallback.get(code, str(code)) for code in range(len(known), 256))], object)
    return words[np.nan_to_num(np.asarray(values, float), nan=255).astype(int)]


def _varying(blocks):
    return [dim for dim, length in zip(blocks.dims, blocks.shape) if length > 1] or list(blocks.dims[:1])


def _listed(names):
    if names is None or names == "":
        return None
    return [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)


def _finished(blocks, frame, rows):
    units = {}
    for name, column in frame.items():
        kind = column.dtype.kind
        if kind not in "biufO":
            frame[name] = column.astype(object)  # words, also where there are no rows
        elif kind == "f" and name in blocks.dims and quantities.INPUTS.get(name, quantities.OUTPUTS["mfu"]).kind == "int":
            values = column.to_numpy()
            missing = np.isnan(values)
            if not np.any(values[~missing] % 1):  # a store keeps all labels as f8
                whole = np.where(missing, 0, values).astype("i8")
                frame[name] = pd.arrays.IntegerArray(whole, missing) if missing.any() else whole
        base = name if name in blocks.ds.variables else name.removesuffix("_min").removesuffix("_mean").removesuffix("_max")
        units[name] = blocks.ds.variables[base].attrs.get("units", "") if base in blocks.ds.variables else ""
    notes = [f"read {blocks.read} block{'s' * (blocks.read != 1)}" + (f", skipped {blocks.skipped}" if blocks.skipped else "")]
    if rows > len(frame):
        notes.append(f"the first {len(frame)} rows; ask for more with --limit (limit=)")
    frame.attrs.update(units=units, notes=notes, blocks_read=blocks.read, blocks_skipped=blocks.skipped)
    return frame
