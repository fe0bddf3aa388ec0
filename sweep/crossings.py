"""Where a quantity crosses a level along an axis: the smallest link at which the exposed share falls below 2 %.

Between two labels the quantity is taken as a straight line over the axis in its own scale (logarithmic where labels are
spaced by ratio), so an answer between labels is as good as the axis is fine.
"""

import numpy as np
import pandas as pd

from . import selections
from .errors import SweepError

WORDS = ("none", "rises", "falls", "above", "below")  # above, below: on one side everywhere; none: nothing valid there


def table(blocks, text, along):
    """``NAME=VALUE`` along an axis, for each combination of the other axes: the label of the first crossing, and which way.

    VALUE is a number, a quantity or arithmetic of them.  ``crossing`` says ``rises`` or ``falls`` (of NAME - VALUE), or that it
    stays ``above`` or ``below``, then the label is NaN; combinations without a valid point are left out.
    """
    left, equals, right = str(text).partition("=")
    if not equals or "=" in right:
        raise SweepError(f"crossover: {text!r} is not NAME=VALUE, such as exposed_fraction=0.02.")
    difference = blocks.number(f"({left}) - ({right})", "crossover")
    dim, labels = axis_of(blocks, along)
    axis, x = blocks.dims.index(dim), _scaled(labels.astype(float))
    others = [name for name, length in zip(blocks.dims, blocks.shape) if name != dim and length > 1]
    frames = []
    for block in blocks:
        y = np.asarray(block.evaluate(difference), float)
        y = block.full(np.where(block.mask(), y, np.nan))
        order = np.argsort(labels, kind="stable")
        place, kind = first_crossing(x[order], np.moveaxis(y, axis, -1)[..., order])
        place, kind = np.atleast_1d(place, kind)
        kept = np.nonzero(kind)
        dims = [name for name in blocks.dims if name != dim]
        starts = [start for name, start in zip(blocks.dims, block.start) if name != dim]
        columns = {}
        for name, index, start in zip(dims, kept, starts):
            if name in others:
                columns[name] = blocks.labels(name)[index + start]
        sizes = [length for name, length in zip(blocks.dims, blocks.shape) if name != dim]
        order = np.ravel_multi_index([index + start for index, start in zip(kept, starts)], sizes) if sizes else [0] * len(kept[0])
        columns[along] = _unscaled(place[kept], labels.astype(float))
        columns["crossing"] = np.array(WORDS, object)[kind[kept]]
        frames.append(pd.DataFrame(columns, index=order))
    if not frames:
        return pd.DataFrame({name: [] for name in (*others, along, "crossing")})
    return pd.concat(frames).sort_index().reset_index(drop=True)


def axis_of(blocks, along):
    """``(dim, labels)`` of an axis, or of a quantity that varies along one axis only (tokens_per_domain) and is monotone there."""
    if along in blocks.dims:
        dim, labels = along, blocks.labels(along)
    else:
        slices = {name: index for name, index in blocks.picked.items() if len(index) < blocks.ds.sizes[name]}
        dim, labels = selections.along(blocks.ds.isel(slices), along, "along")
    if labels.dtype.kind not in "fiu" or len(labels) < 2:
        raise SweepError(f"along: {along} needs two labels or more that are numbers.")
    return dim, labels


def first_crossing(x, y):
    """Where ``y`` (last axis along ``x``, ascending) first changes sign: ``(x there, index into WORDS)``.

    NaN interrupts: no crossing is seen between a point and one that is not valid.  A value of exactly 0 is a crossing.
    """
    sign = np.sign(y)
    change = (sign[..., :-1] * sign[..., 1:] < 0) | (sign[..., 1:] == 0) & (np.abs(sign[..., :-1]) == 1)
    change |= (sign[..., :-1] == 0) & (np.abs(sign[..., 1:]) == 1)
    step = np.argmax(change, axis=-1)[..., None]
    low, high = np.take_along_axis(y, step, -1), np.take_along_axis(y, step + 1, -1)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(np.isinf(low), np.where(np.isinf(high), 0.5, 1.0), np.where(np.isinf(high), 0.0, low / (low - high)))
    place = (x[step] + share * (x[step + 1] - x[step]))[..., 0]
    crosses = change.any(axis=-1)
    kind = np.where((high > low)[..., 0], 1, 2)
    some = np.fmax.reduce(sign, axis=-1)
    kind = np.where(crosses, kind, np.where(np.isnan(some), 0, np.where(some > 0, 3, 4)))
    return np.where(crosses, place, np.nan), kind


def _scaled(labels):
    return np.log(labels) if _log(labels) else labels


def _unscaled(places, labels):
    return np.exp(places) if _log(labels) else places


def _log(labels):
    """Spaced by ratio rather than by difference."""
    if len(labels) < 2 or labels.min() <= 0 or not np.isfinite(labels).all():
        return False
    values = np.sort(labels)
    if len(values) == 2:
        return bool(values[1] > 4 * values[0])
    steps, ratios = np.diff(values), np.diff(np.log(values))
    return bool(values[-1] > 30 * values[0] or ratios.std() / ratios.mean() < 0.5 * steps.std() / steps.mean())
