"""Bars and cells: the number of every layout, where a step's time and memory go, which dimension asks for the port."""

import matplotlib
import numpy as np
from matplotlib.patches import Patch

from . import drawings, selections
from .drawings import BANDS, INK, MUTED, PORTS
from .errors import SweepError
from .lineplots import _context, _finish, _name

PARTS = (  # of a step, in the order they are stacked: output, word, colour, hatch
    ("compute_time_s", "compute", "#2b4c7e", ""),
    ("bubble_time_s", "bubble", "#ffffff", "////"),
    ("exposed_tp_s", "tp", "#E69F00", ""),
    ("exposed_cp_s", "cp", "#F0E442", "...."),
    ("exposed_ep_s", "ep", "#CC79A7", "xxxx"),
    ("exposed_pp_s", "pp", "#56B4E9", "----"),
    ("exposed_dp_s", "dp", "#D55E00", "\\\\\\\\"),
    ("optimizer_time_s", "optimizer", "#9a9a9a", ""),
)
GROUPS = ("dp", "tp", "pp", "ep", "cp")
TIERS = {  # of the network: words, colour, hatch; tiers.TIERS has the same keys
    "link": ("scale-out port", "#2f8fbe", ""),
    "scaleup": ("scale-up", "#E69F00", "...."),
    "uplink": ("above the pod", "#cfe8b5", "xxxx"),
}
LONGEST = 24  # bars or rows in one figure


def draw_grid(ds, x, y, color, at=None, path=None, *, over=(), allow=None, width="column", caption="below"):
    """A heat map with the number in each cell; blank where the point cannot run or does not fit.  ``over``: the best along these axes."""
    view = selections.select(ds, at)
    for what, name in (("x", x), ("y", y)):
        if name not in view.dims:
            raise SweepError(
                f"{what}: {name!r} is not an axis of this slice. Axes are {', '.join(map(str, view.dims))}."
            )
    values = selections.plane(view, color, (y, x), "color", allow, over)
    finite = values[np.isfinite(values)]
    if not len(finite):
        raise SweepError(f"color: {color} has no valid value in this slice.")
    columns, rows = ([selections._show(label) for label in view[dim].values] for dim in (x, y))
    if max(len(columns), len(rows)) > LONGEST:
        raise SweepError(
            f"{max(len(columns), len(rows))} labels are too many for a grid of numbers (at most {LONGEST}). Draw a map."
        )
    text = f"{_name(view, color, True)} by {_name(view, x)} and {_name(view, y)}"
    text += f", best over {', '.join(over)}" if over else ""
    text += ". Blank: cannot run or does not fit. " + _context(view, at)
    log = finite.min() > 0 and finite.max() > 30 * finite.min()
    ramp = matplotlib.colors.LinearSegmentedColormap.from_list("bands", BANDS)
    scale = np.log(finite) if log else finite
    norm = matplotlib.colors.Normalize(scale.min(), scale.max() if scale.max() > scale.min() else scale.min() + 1)
    with matplotlib.rc_context(drawings.STYLE):
        inches = drawings.inches_of(width)
        figure = drawings.new_figure(
            width, min(0.35 + 0.19 * inches / 3.35 * len(rows) + 0.35, 1.2 * inches), text if caption == "below" else ""
        )
        axes = figure.subplots()
        for row in range(len(rows)):
            for column in range(len(columns)):
                value = values[row, column]
                if not np.isfinite(value):
                    if value == value:
                        axes.text(column, row, "$\\infty$", ha="center", va="center", fontsize=7, color=MUTED)
                    continue
                shade = ramp(norm(np.log(value) if log else value))
                dark = np.dot(shade[:3], (0.2126, 0.7152, 0.0722)) < 0.45
                axes.fill_between([column - 0.5, column + 0.5], row - 0.5, row + 0.5, color=shade, linewidth=0)
                axes.text(
                    column,
                    row,
                    _digits(value, finite),
                    ha="center",
                    va="center",
                    fontsize=6.8,
                    color="white" if dark else INK,
                )
        axes.set_xticks(range(len(columns)), columns)
        axes.set_yticks(range(len(rows)), rows)
        axes.set_xlim(-0.5, len(columns) - 0.5)
        axes.set_ylim(-0.5, len(rows) - 0.5)
        axes.set_xlabel(selections.label_of(view, x))
        axes.set_ylabel(selections.label_of(view, y))
        axes.tick_params(length=0)
    return _finish(figure, text, view, "grid", at, path, {color: ((y, x), values)}, x=x, y=y, color=color)


def draw_breakdown(ds, axis, at=None, path=None, *, allow=None, width="page", caption="below"):
    """A step's time stacked by what it is spent on, beside the memory it takes, one bar for each label of ``axis``."""
    view = selections.select(ds, at)
    labels = _labels(view, axis)
    have = [part for part in PARTS if part[0] in view.variables]
    if "compute_time_s" not in view.variables:
        raise SweepError(
            "a breakdown needs compute_time_s and exposed times. Add them to outputs: of the config, or draw from sweep.evaluate."
        )
    step = (
        selections.plane(view, "step_time_s", (axis,), "step_time_s", allow)
        if "step_time_s" in view.variables
        else None
    )
    parts = {word: selections.plane(view, name, (axis,), name, allow) for name, word, _, _ in have}
    valid = np.isfinite(step if step is not None else parts["compute"])
    memory = (
        selections.plane(view, "memory_bytes", (axis,), "memory_bytes", allow) / 1e9
        if "memory_bytes" in view.variables
        else None
    )
    text = f"Time of a step by {_name(view, axis)}, exposed communication by dimension"
    text += "; memory on the fullest stage (line: what there is). " if memory is not None else ". "
    text += _context(view, at)
    places = np.arange(len(labels))[::-1]
    with matplotlib.rc_context(drawings.STYLE):
        figure = drawings.new_figure(width, 0.5 + 0.21 * len(labels) + 0.35, text if caption == "below" else "")
        panels = figure.subplots(
            1,
            2 if memory is not None else 1,
            width_ratios=[2.6, 1] if memory is not None else [1],
            sharey=True,
            squeeze=False,
        )[0]
        left = np.zeros(len(labels))
        for name, word, color, hatch in have:
            length = np.where(valid & np.isfinite(parts[word]), parts[word], 0.0)
            if length.max() > 0.002 * (left + length).max():
                panels[0].barh(
                    places, length, 0.66, left, color=color, hatch=hatch, edgecolor=INK, linewidth=0.4, label=word
                )
            left = left + length
        if step is not None:
            rest = np.where(valid, np.maximum(step - left, 0.0), 0.0)
            if (rest > 0.005 * np.where(valid, step, 1)).any():
                panels[0].barh(places, rest, 0.66, left, color="#e9e9e9", edgecolor=INK, linewidth=0.4, label="other")
        for place, ok in zip(places, valid):
            if not ok:
                panels[0].text(0, place, " cannot run or does not fit", va="center", fontsize=6.5, color=MUTED)
        panels[0].set_yticks(places, labels)
        panels[0].set_xlabel("time of a step (s)")
        figure.legend(
            *panels[0].get_legend_handles_labels(),
            loc="outside upper left",
            ncols=len(PARTS),
            handlelength=1.2,
            columnspacing=1.0,
        )
        if memory is not None:
            panels[1].barh(places, np.nan_to_num(memory), 0.66, color="#8fa8c4", edgecolor=INK, linewidth=0.4)
            limit = _capacity(view, axis)
            if limit is not None:
                panels[1].vlines(limit, places - 0.42, places + 0.42, color=INK, linewidth=1.2)
            panels[1].set_xlabel("memory (GB)")
        for panel in panels:
            panel.tick_params(axis="y", length=0)
            for side in ("top", "right"):
                panel.spines[side].set_visible(False)
    data = {name: ((axis,), parts[word]) for name, word, _, _ in have}
    data |= {"step_time_s": ((axis,), step)} if step is not None else {}
    data |= {"memory_gb": ((axis,), memory)} if memory is not None else {}
    return _finish(figure, text, view, "breakdown", at, path, data, axis=axis)


def draw_requirements(ds, at=None, path=None, *, facet=None, allow=None, width="column", caption="below"):
    """How fast a network each parallelism dimension asks for: ranked bars, one panel for each label of ``facet``.

    ``required_link_gbps_dp`` and its like are of the port; ``required_scaleup_gbps_*`` and ``required_uplink_gbps_*``, where
    the dataset has them (``tiers.of_point``), of the links inside a domain and of the uplinks above a pod.
    """
    view = selections.select(ds, at)
    names = {
        (group, tier): f"required_{tier}_gbps_{group}"
        for group in GROUPS
        for tier in TIERS
        if f"required_{tier}_gbps_{group}" in view.variables
    }
    if not any(tier == "link" for _, tier in names):
        raise SweepError(
            "requirements need required_link_gbps_dp and its like. Add them to outputs: of the config, or draw from sweep.evaluate."
        )
    dims = (facet,) if facet else ()
    panels = _labels(view, facet) if facet else [""]
    table = np.array([selections.plane(view, name, dims, name, allow).reshape(-1) for name in names.values()])
    ranked = [_ranked(list(names), column) for column in table.T]
    several = {tier for rows in ranked for _, tier, _ in rows if tier} - {"link"}
    text = (
        "What each dimension asks of each tier, largest first"
        if several
        else "Scale-out port that each dimension asks for, largest first; none: the group has one member or stays in the domain"
    )
    text += (
        ". Scale-up: the rate at which, with any port, at most the tolerance of the step is exposed. "
        if "scaleup" in several
        else ". "
    )
    text += _context(view, at)
    finite = table[np.isfinite(table) & (table > 0)]
    low, high = (
        (min(PORTS[0], finite.min()) / 2, max(PORTS[-1], finite.max())) if len(finite) else (PORTS[0], PORTS[-1])
    )
    with matplotlib.rc_context(drawings.STYLE):
        figure = drawings.new_figure(
            width,
            0.4 + 0.16 * bool(several) + sum(0.16 + 0.16 * len(rows) for rows in ranked),
            text if caption == "below" else "",
        )
        areas = figure.subplots(
            len(panels), 1, squeeze=False, sharex=True, height_ratios=[len(rows) + 0.2 for rows in ranked]
        )[:, 0]
        for area, panel, rows in zip(areas, panels, ranked):
            for place, (_, tier, value) in enumerate(rows[::-1]):
                length = high if np.isinf(value) else value
                if length > 0:
                    area.barh(
                        place,
                        length - low,
                        0.7,
                        low,
                        color=TIERS[tier][1],
                        edgecolor=INK,
                        linewidth=0.4,
                        hatch="////" if np.isinf(value) else TIERS[tier][2],
                    )
                note = (
                    "invalid"
                    if np.isnan(value)
                    else "no rate can"
                    if np.isinf(value)
                    else "none"
                    if value <= 0
                    else drawings.short(float(f"{value:.3g}"))
                )
                area.text(
                    max(length, low) if length == length else low,
                    place,
                    f" {note}",
                    va="center",
                    fontsize=6.5,
                    color=INK if length > 0 else MUTED,
                )
            area.set_yticks(range(len(rows)), [group for group, _, _ in rows[::-1]])
            area.set_ylim(-0.6, len(rows) - 0.4)
            area.set_xscale("log")
            area.set_xlim(low, high * 2)
            ticks = [port for port in (25, *PORTS, *(6400 * 2**i for i in range(8))) if low <= port <= high * 2]
            ticks = ticks[:: -(-len(ticks) // (8 if width == "column" else 16))]
            area.set_xticks(ticks, [drawings.short(float(f"{tick:.2g}")) for tick in ticks])
            area.set_xticks([], minor=True)
            area.tick_params(axis="y", length=0)
            if panel:
                area.set_title(panel, loc="left", pad=2, fontsize=7.5)
            for side in ("top", "right"):
                area.spines[side].set_visible(False)
        areas[-1].set_xlabel(
            "required rate per accelerator and direction (Gb/s)" if several else "required port (Gb/s)"
        )
        if several:
            handles = [
                Patch(facecolor=color, edgecolor=INK, linewidth=0.4, hatch=hatch, label=word)
                for tier, (word, color, hatch) in TIERS.items()
                if tier in {*several, "link"}
            ]
            figure.legend(handles=handles, loc="outside upper left", ncols=3, handlelength=1.2, columnspacing=1.0)
    return _finish(
        figure,
        text,
        view,
        "requirements",
        at,
        path,
        {name: (dims, row if facet else row[0]) for name, row in zip(names.values(), table)},
        facet=facet,
    )


def _ranked(keys, column):
    """(dimension, tier, value), largest first; a dimension that asks nothing of any tier has one row, without a tier."""
    asks = {group for (group, _), value in zip(keys, column) if not value <= 0}
    rows = [(group, tier, value) for (group, tier), value in zip(keys, column) if not value <= 0]
    rows += [(group, "", 0.0) for group in dict.fromkeys(group for group, _ in keys) if group not in asks]
    return sorted(rows, key=lambda row: -np.nan_to_num(row[2], nan=-1.0))


def _labels(view, axis):
    if axis not in view.dims:
        raise SweepError(f"{axis!r} is not an axis of this slice. Axes are {', '.join(map(str, view.dims))}.")
    labels = [selections._show(label) for label in view[axis].values]
    if len(labels) > LONGEST:
        raise SweepError(
            f"{len(labels)} labels of {axis} are too many for bars (at most {LONGEST}). Choose some with at."
        )
    return labels


def _capacity(view, axis):
    """Memory of the accelerator in GB along the axis, None where the dataset does not say."""
    if "hbm_gb" in view.variables and set(view["hbm_gb"].dims) <= {axis}:
        return np.broadcast_to(view["hbm_gb"].values.astype(float), view.sizes[axis])
    fixed = selections.settings(view).get("hbm_gb")
    return np.full(view.sizes[axis], float(fixed)) if isinstance(fixed, (int, float)) else None


def _digits(value, among):
    """The fewest digits that tell cells apart: three significant, none beyond the point from 100 on."""
    if 0.01 < np.abs(among).max() < 1.5:
        return f"{value:.{3 if np.ptp(among) < 0.1 else 2}f}".lstrip("0") or "0"
    return drawings.short(float(f"{value:.3g}"))
