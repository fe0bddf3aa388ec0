"""How much each axis moves a quantity.

On a product grid the variance of the quantity, all labels counted alike, splits exactly: the first-order share of an axis
is the variance of the means along it, the total share adds every interaction it takes part in.  Elasticities are medians of
d log y / d log x between neighbouring labels: 1 means in proportion, 0 no effect.

On a table axis that holds random samples (columns move together, one point each) shares are estimated by Sobol's method
through SALib: ``saltelli`` makes the samples, ``sobol`` reads them.
"""

import numpy as np
import pandas as pd

from .crossings import _log
from .errors import SweepError

LARGEST = 2 * 10**8  # elements that the exact split may hold in memory


def table(blocks, text):
    """One row for each axis that varies: first-order and total share of the variance, elasticity, and the range of means."""
    quantity = blocks.number(text, "sensitivity")
    if blocks.size > LARGEST:
        raise SweepError(f"sensitivity: {blocks.size:,} points are too many for the exact split. Fix some axes with at.")
    if not blocks.size:
        raise SweepError("sensitivity: where leaves no labels of an axis. Widen it.")
    values, valid = np.full(blocks.shape, np.nan), 0
    for block in blocks:
        mask = block.full(block.mask())
        part = np.where(mask, np.asarray(block.evaluate(quantity), float), np.nan)
        values[tuple(slice(start, start + length) for start, length in zip(block.start, block.shape))] = part
        valid += int(np.isfinite(part).sum())
    if valid < blocks.size:
        raise SweepError(
            f"sensitivity: {blocks.size - valid:,} of {blocks.size:,} points are not valid or not finite, and shares need all of them. "
            "Fix axes with at, or allow a reason."
        )
    dims = [dim for dim, length in zip(blocks.dims, blocks.shape) if length > 1]
    first, total = shares(values)
    rows = []
    for dim in dims:
        axis = blocks.dims.index(dim)
        means = values.mean(axis=tuple(k for k in range(values.ndim) if k != axis))
        rows.append(
            {
                "axis": dim,
                "first_order": first[axis],
                "total": total[axis],
                "elasticity": elasticity(values, blocks.labels(dim), axis),
                "mean_min": means.min(),
                "mean_max": means.max(),
            }
        )
    frame = pd.DataFrame(rows, columns=["axis", "first_order", "total", "elasticity", "mean_min", "mean_max"])
    return frame.sort_values("total", ascending=False, kind="stable", ignore_index=True)


def shares(values):
    """``(first, total)`` shares of the variance for each axis of a complete grid; exactly 0 where nothing varies."""
    values = np.asarray(values, float)
    spread = values.max() - values.min()
    axes = range(values.ndim)
    if spread == 0:
        return [0.0] * values.ndim, [0.0] * values.ndim
    values = (values - values.mean()) / spread  # large offsets lose no digits
    variance = values.var()
    first, total = [], []
    for axis in axes:
        rest = tuple(k for k in axes if k != axis)
        first.append(float(values.mean(axis=rest).var() / variance))
        total.append(float(values.var(axis=axis).mean() / variance))
    return first, total


def elasticity(values, labels, axis):
    """The median of d log y / d log x between neighbours; NaN for words, or where signs forbid logarithms."""
    labels = np.asarray(labels)
    if labels.dtype.kind not in "fiu" or (labels.astype(float) <= 0).any():
        return float("nan")
    order = np.argsort(labels, kind="stable")
    x, y = np.log(labels[order].astype(float)), np.take(values, order, axis)
    if not (y > 0).all():
        return float("nan")
    shape = [1] * values.ndim
    shape[axis] = -1
    return float(np.median(np.diff(np.log(y), axis=axis) / np.diff(x).reshape(shape)))


def saltelli(bounds, samples, seed=0):
    """Columns of a table axis for ``sobol``: name -> list, ``samples`` * (names + 2) rows; ``bounds`` name -> (low, high).

    Bounds more than a factor 4 apart are sampled in proportion (log-uniform).
    """
    sample = _salib("sample.sobol")
    problem, logs = _problem(bounds)
    rows = sample.sample(problem, samples, calc_second_order=False, seed=seed)
    return {name: (np.exp(column) if log else column).tolist() for name, column, log in zip(bounds, rows.T, logs)}


def sobol(ds, name, bounds, seed=0):
    """Sobol indices of an output over the samples of ``saltelli``: a table of first-order and total shares with 95 % intervals."""
    analyze = _salib("analyze.sobol")
    values = np.asarray(ds[name].values, float).ravel()
    bad = int((~np.isfinite(values)).sum())
    if bad:
        raise SweepError(f"sobol: {bad} of {len(values)} samples of {name} are not finite. Narrow the bounds, or allow their reason.")
    if len(values) % (len(bounds) + 2):
        raise SweepError(f"sobol: {len(values)} samples are not a multiple of {len(bounds) + 2}, as saltelli makes them.")
    columns = ["axis", "first_order", "first_order_conf", "total", "total_conf"]
    if values.max() == values.min():
        return pd.DataFrame([[axis, 0.0, 0.0, 0.0, 0.0] for axis in bounds], columns=columns)
    problem, _ = _problem(bounds)
    found = analyze.analyze(problem, (values - values.mean()) / values.std(), calc_second_order=False, seed=seed)
    return pd.DataFrame(dict(zip(columns, (list(bounds), found["S1"], found["S1_conf"], found["ST"], found["ST_conf"]))))


def _problem(bounds):
    logs = [_log(np.array(pair, float)) for pair in bounds.values()]
    limits = [[float(np.log(value)) if log else float(value) for value in pair] for pair, log in zip(bounds.values(), logs)]
    return {"num_vars": len(bounds), "names": list(bounds), "bounds": limits}, logs


def _salib(part):
    import importlib

    try:
        return importlib.import_module(f"SALib.{part}")
    except ImportError:
        raise SweepError("Sobol indices need SALib. Type: pip install 'overlap-sweep[sensitivity]'.") from None
