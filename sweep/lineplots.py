"""Lines: utilisation against bandwidth with its knee, efficiency against cluster size, all strategies with the best of them,
bus bandwidth against message size.

Each draws from any labelled Dataset by names alone.  Axes that are neither drawn nor fixed (``at``) may be searched
(``over``): then each point of a line is the best over them.
"""

import matplotlib
import numpy as np
import xarray as xr

from . import drawings, intervals, selections
from .crossings import first_crossing
from .drawings import INK, LINES, Drawing
from .errors import SweepError

MOST = len(LINES)  # lines in one figure: more cannot be told apart
SHARE = 0.95  # of the best, reached at the knee


def draw_lines(
    ds,
    x,
    y,
    lines=None,
    at=None,
    path=None,
    *,
    over=(),
    band=None,
    interval=None,
    knee=True,
    allow=None,
    width="column",
    caption="below",
):
    """``y`` against the axis ``x``, one line for each label of ``lines``; returns the Drawing.

    ``over``: axes searched for the best; ``band``: an axis drawn as a band from least to largest around the median, or
    ``interval``: a band that so many per cent of measured runs lie in (80: see intervals.py).  ``knee`` marks where a line
    first has 95 % of its best.
    """
    view = selections.select(ds, at)
    if band and interval:
        raise SweepError("band and interval: one figure has one kind of band. Leave one out.")
    keys, values, spread = _values(view, x, y, lines, over, band, allow)
    said = f"Markers: {100 * SHARE:g} % of a line's best. " if knee else ""
    if interval:
        said += f"Bands: {intervals.about(view, y, interval)}. "
        factor = intervals.factors(view, (lines, x) if lines else (x,), interval)
        spread = values / factor, values * factor
    return _drawing(
        view, "lines", x, y, lines, keys, values, spread, at, path, knee=SHARE if knee else None, width=width, caption=caption,
        over=over, said=said,
    )  # fmt: skip


def draw_scaling(
    ds,
    x="gpus",
    y="tokens_per_s_per_gpu",
    lines=None,
    at=None,
    path=None,
    *,
    over=(),
    allow=None,
    width="column",
    caption="below",
):
    """Efficiency against cluster size: ``y`` relative to its value at the smallest ``x`` that runs."""
    view = selections.select(ds, at)
    keys, values, _ = _values(view, x, y, lines, over, None, allow)
    first = np.argmax(np.isfinite(values), axis=1)
    values = values / np.take_along_axis(values, first[:, None], 1)
    return _drawing(
        view, "scaling", x, y, lines, keys, values, None, at, path, knee=None, width=width, caption=caption, over=over,
        label="efficiency (relative to the smallest)", said="Relative to the smallest cluster that runs. ",
    )  # fmt: skip


def draw_distribution(ds, x, y, at=None, path=None, *, allow=None, width="column", caption="below"):
    """All strategies at each label of ``x``: the range, the middle half and the median of ``y``, and the envelope of the best."""
    from .winners import direction

    view = selections.select(ds, at)
    _, sign = direction(y, "y")
    others = [dim for dim in view[selections.variable(view, y, "y").name].dims if dim != x]
    values = selections.plane(view, y, (x, *others), "y", allow).reshape(view.sizes[x], -1)
    values = np.where(np.isfinite(values), values, np.nan)
    if np.isnan(values).all():
        raise SweepError(f"y: {y} has no valid value in this slice.")
    kept = ~np.isnan(values).all(axis=1)
    low, q1, middle, q3, high = np.nanquantile(values[kept], (0, 0.25, 0.5, 0.75, 1), axis=1)
    numeric = view[x].dtype.kind in "fiu"
    places = view[x].values.astype(float) if numeric else np.arange(view.sizes[x])
    places = places[kept]
    text = f"{_name(view, y, True)} of {int(np.isfinite(values).sum()):,} strategies over {_name(view, x)}: range, middle half, median, best. "
    text += _context(view, at)
    with matplotlib.rc_context(drawings.STYLE):
        figure = drawings.new_figure(width, drawings.height_of(width, 0.68), text if caption == "below" else "")
        axes = figure.subplots()
        axes.fill_between(places, low, high, facecolor="#dfe7ef", edgecolor="#a9c1d9", linewidth=0.4, label="all")
        axes.fill_between(places, q1, q3, color="#a9c1d9", linewidth=0, label="middle half")
        axes.plot(places, middle, "--", color="#34618c", label="median", linewidth=0.9)
        axes.plot(places, low if sign > 0 else high, "o-", color=INK, ms=2.6, label="best")
        drawings.set_axis(axes, "x", view, x, view[x].values if numeric else view[x].values.astype(str).astype(object))
        _vertical(axes, view, y, np.concatenate([low, high]))
        axes.legend(loc="best")
    data = {f"{y}_{word}": ((x,), np.where(kept, 1.0, np.nan)) for word in ("min", "q25", "median", "q75", "max")}
    for (name, (_, column)), row in zip(data.items(), (low, q1, middle, q3, high)):
        column[kept] = row
    return _finish(figure, text, view, "distribution", at, path, data, x=x, y=y)


def draw_busbw(
    ds,
    at=None,
    path=None,
    *,
    size="size_bytes",
    y="busbw_gbytes_per_s",
    lines=None,
    measured=None,
    said="",
    width="column",
    caption="below",
):
    """Bus bandwidth against message size, one line for each label of ``lines``; ``measured`` names a second variable, drawn as points."""
    view = selections.select(ds, at)
    keys, values, _ = _values(view, size, y, lines, (), None, None)
    text = f"Bus bandwidth as nccl-tests counts it: what a ring would carry on each link. {said}"
    text += "Points: measured. " if measured else ""
    with matplotlib.rc_context(drawings.STYLE):
        figure = drawings.new_figure(width, drawings.height_of(width, 0.68), text if caption == "below" else "")
        axes = figure.subplots()
        points = _values(view, size, measured, lines, (), None, None)[1] if measured else None
        for index, (key, row) in enumerate(zip(keys, values)):
            color, dash, marker = LINES[index]
            axes.plot(view[size].values, row, linestyle=dash, color=color, label=key)
            if points is not None:
                axes.plot(view[size].values, points[index], marker, color=color, ms=2.8, linestyle="none")
        drawings.set_axis(axes, "x", view, size, view[size].values)
        _vertical(axes, view, y, values)
        if len(keys) > 1:
            axes.legend(loc="best")
    dims = (lines, size) if lines else (size,)
    data = {y: (dims, values if lines else values[0])}
    if points is not None:
        data[measured] = dims, points if lines else points[0]
    return _finish(figure, text, view, "busbw", at, path, data, x=size, y=y)


def _values(view, x, y, lines, over, band, allow):
    """Labels of the lines, values over (line, x), and the (least, largest) of the band or None; x ascending as the axis is."""
    for what, name in (("x", x), ("lines", lines), ("band", band)):
        if name is not None and name not in view.dims:
            raise SweepError(
                f"{what}: {name!r} is not an axis of this slice. Axes are {', '.join(map(str, view.dims))}."
            )
    if view[x].dtype.kind not in "fiu":
        raise SweepError(f"x: {x} has words; a line needs numbers.")
    dims = tuple(dim for dim in (lines, x, band) if dim)
    values = selections.plane(view, y, dims, "y", allow, over)
    values = values if lines else values[None]
    if len(values) > MOST:
        raise SweepError(
            f"lines: {len(values)} labels of {lines} cannot be told apart. Choose {MOST} with at, such as {lines}=A,B,C."
        )
    spread = None
    if band:
        with np.errstate(all="ignore"):
            finite = np.where(np.isfinite(values), values, np.nan)
            spread = np.fmin.reduce(finite, axis=-1), np.fmax.reduce(finite, axis=-1)
            values = np.array(
                [
                    [np.median(cell[~np.isnan(cell)]) if (~np.isnan(cell)).any() else np.nan for cell in row]
                    for row in finite
                ]
            )
    keys = [selections._show(label) for label in view[lines].values] if lines else [""]
    return keys, values, spread


def _drawing(view, kind, x, y, lines, keys, values, spread, at, path, knee, width, caption, over, said, label=None):
    if not np.isfinite(values).any():
        raise SweepError(f"y: {y} has no valid finite value in this slice.")
    text = f"{_name(view, y, True)} against {_name(view, x)}"
    text += f", best over {', '.join(over)}. " if over else ". "
    text += said + _context(view, at)
    places = view[x].values.astype(float)
    with matplotlib.rc_context(drawings.STYLE):
        figure = drawings.new_figure(width, drawings.height_of(width, 0.68), text if caption == "below" else "")
        axes = figure.subplots()
        for index, (key, row) in enumerate(zip(keys, values)):
            color, dash, marker = LINES[index]
            row = np.where(np.isfinite(row), row, np.nan)
            axes.plot(places, row, linestyle=dash, color=color, label=key, zorder=3)
            if spread is not None:
                axes.fill_between(places, spread[0][index], spread[1][index], color=color, alpha=0.15, linewidth=0)
            if knee is not None:
                _mark_knee(axes, places, row, color, marker, view, y, knee)
        drawings.set_axis(axes, "x", view, x, places)
        _vertical(axes, view, y, values if spread is None else np.concatenate([values, *spread]))
        if label:
            axes.set_ylabel(label)
        if lines:
            axes.legend(loc="best", title=lines.replace("_", " ") if not _is_table(view, lines) else None)
    dims = (lines, x) if lines else (x,)
    shown = {y: values, **({f"{y}_min": spread[0], f"{y}_max": spread[1]} if spread is not None else {})}
    data = {name: (dims, rows if lines else rows[0]) for name, rows in shown.items()}
    return _finish(figure, text, view, kind, at, path, data, x=x, y=y, lines=lines)


def _mark_knee(axes, x, row, color, marker, view, y, share):
    """A marker where the line first reaches ``share`` of its best (its least over ``share``, if less is better)."""
    from .winners import direction

    try:
        sign = direction(y)[1]
    except SweepError:
        return
    if not np.isfinite(row).any() or np.nanmin(row) == np.nanmax(row):
        return
    log = drawings.scale_of(x) == "log"
    level = np.nanmax(row) * share if sign < 0 else np.nanmin(row) / share
    place, kind = first_crossing(np.log(x) if log else x, (row - level)[None])
    if kind[0] in (1, 2):
        axes.plot(
            [np.exp(place[0]) if log else place[0]],
            [level],
            marker,
            color=color,
            ms=4.2,
            mec="white",
            mew=0.5,
            zorder=4,
        )


def _vertical(axes, view, y, values):
    finite = values[np.isfinite(values)]
    axes.set_ylabel(selections.label_of(view, y))
    if len(finite) and finite.min() > 0 and finite.max() > 30 * finite.min():
        axes.set_yscale("log")
        ticks = drawings._log_ticks(view, y, finite, finite.min(), finite.max())
        axes.yaxis.set_ticks(ticks, [drawings.short(tick) for tick in ticks])
        axes.yaxis.set_ticks([], minor=True)
    elif len(finite) and finite.min() >= 0:
        axes.set_ylim(0, 1.06 * finite.max() or None)
    axes.grid(axis="y", color="#e4e4e4", linewidth=0.5)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.tick_params(colors=INK, labelcolor=INK)
    axes.yaxis.label.set_color(INK)


def _finish(figure, text, view, kind, at, path, data, **about):
    """The Drawing, written to ``path`` if one is given; ``data`` is what was drawn, name -> (dims, values)."""
    dims = dict.fromkeys(dim for axes, _ in data.values() for dim in axes)
    labels = {dim: view[dim].values for dim in dims if dim in view.coords}
    numbers = xr.Dataset({name: (axes, np.asarray(values)) for name, (axes, values) in data.items()}, labels)
    drawing = Drawing(figure, text, drawings.key_of(view, kind, at, **about), numbers)
    if path is not None:
        drawing.save(path)
    return drawing


def _context(view, at):
    model, where = drawings.reference(view), drawings.slice_words(view, at)
    words = "; ".join(part for part in (model, where) if part)
    return (f"For {words}. " if words else "") + drawings.conventions(view)


def _name(view, name, first=False):
    text = view[name].attrs.get("long_name") or name.replace("_", " ")
    return text[:1].upper() + text[1:] if first else text


def _is_table(view, name):
    return view[name].dtype.kind in "OUST"
