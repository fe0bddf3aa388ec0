"""Pictures of capacity and serving: how full a pool may run, and which serving patterns need the training fabric.

``draw_ceiling`` takes a mix of jobs and draws, over the size of the pool, the utilisation up to which the mean wait
stays within a target.  ``draw_patterns`` takes the rows of servings.patterns and puts the port that each exchange of
each pattern requires beside the port that there is.
"""

import matplotlib
import numpy as np
import xarray as xr

from . import capacities, drawings
from ._kernels import capacity
from .drawings import INK, LINES, MUTED, Drawing

TARGETS = (0.5, 1.0, 4.0, 12.0, 24.0)  # hours
EXCHANGES = (  # column of a row of servings, words, colour, hatch
    ("decode_tp_gbps", "decoding: tensor parallelism", "#E69F00", ""),
    ("decode_ep_gbps", "decoding: experts", "#2f8fbe", ""),
    ("decode_pp_gbps", "decoding: pipeline hops", "#56B4E9", "----"),
    ("prefill_gbps", "prefill", "#cfe8b5", "xxxx"),
    ("kv_gbps", "keys and values", "#9a9a9a", "...."),
)
SLOWEST = 1.0  # Gb/s: the left end of a figure of ports


def draw_ceiling(mix=capacities.USUAL, path=None, *, gpus=None, targets=TARGETS, width="column", caption="below"):
    """Highest utilisation for target mean waits over the size of the pool; ``gpus`` marks one; returns the Drawing."""
    least = max(mix.gangs)
    sizes = np.unique(np.round(np.geomspace(least, max(16384, 4 * least), 97) / 8) * 8)
    sizes = sizes[sizes >= least]
    arguments = mix.arguments()
    gang = {name: arguments[name] for name in ("gang", "gang_cv", "smallest")}
    endless = capacity.usable_gpus(sizes, **gang) / sizes
    lines = [capacity.highest_utilisation(sizes, target / mix.job_hours, "mean", **arguments) for target in targets]
    gangs = " / ".join(f"{one:g}" for one in mix.gangs)
    shares = f" ({' : '.join(f'{share:g}' for share in mix.shares)})" if len(mix.gangs) > 1 else ""
    text = (
        f"Utilisation up to which jobs wait no longer than a target on average, served in order: gangs of {gangs}{shares} accelerators, "
        f"{mix.job_hours:g} h each (variation {mix.duration_cv:g}), arrivals of variation {mix.arrival_cv:g}. Grey: beyond it the queue never ends. "
        f"{'' if gpus is None else f'Upright line: {gpus:,} accelerators. '}"
        "G/G/m with gangs, within 35 % of a simulated mean wait where that is a twentieth of a job or more."
    )
    with matplotlib.rc_context(drawings.STYLE):
        figure = drawings.new_figure(width, 0.72 * drawings.inches_of(width), text if caption == "below" else "")
        axes = figure.subplots()
        axes.fill_between(sizes, endless, 1.0, color="#dedede", linewidth=0)
        for (color, dash, _), target, line in zip(LINES, targets, lines):
            axes.plot(sizes, line, linestyle=dash, color=color, label=f"{target:g} h")
        if gpus is not None:
            axes.axvline(gpus, color=MUTED, linewidth=0.6)
        data = xr.Dataset(
            {"utilisation": (("target_hours", "gpus"), np.array(lines)), "usable_utilisation": ("gpus", endless)},
            {"target_hours": list(targets), "gpus": ("gpus", sizes, {"units": "1", "long_name": "accelerators of the pool"})},
        )
        drawings.set_axis(axes, "x", data, "gpus", sizes)
        axes.set_ylim(0, 1)
        axes.set_ylabel("share of accelerators busy")
        axes.grid(axis="y", color="#e4e4e4", linewidth=0.5)
        axes.legend(title="mean wait", title_fontsize=7, loc="lower right")
    key = {"figure": "ceiling", "gangs": list(mix.gangs), "shares": list(mix.shares), "job_hours": mix.job_hours}
    return _finished(Drawing(figure, text, key, data), path)


def draw_patterns(groups, path=None, *, width="page", caption="below"):
    """The port that each exchange requires, a bar each, in one panel per group: (title, rows of servings, port of the machine).

    ``no port`` at the right end: none is fast enough, latency and the links inside the domain alone take more than the
    tolerance.  No bar: the exchange stays inside the domain.
    """
    text = (
        "Port per accelerator that each serving pattern requires: experts hidden under the other micro-batch or within the tolerance of a block, "
        "tensor parallelism and hops within the tolerance, keys and values moved while their prompt is computed. No port: none is fast enough, latency and the links inside the domain alone take more. "
        "No bar: nothing leaves the scale-up domain. Line: the training port. Grey names do not fit the memory."
    )
    with matplotlib.rc_context(drawings.STYLE):
        most = max(len(rows) for _, rows, _ in groups)
        figure = drawings.new_figure(width, 0.55 + 0.36 * most * len(groups), text if caption == "below" else "")
        areas = figure.subplots(len(groups), 1, sharex=True, squeeze=False)[:, 0]
        for area, (title, rows, port) in zip(areas, groups):
            shown = [one for one in EXCHANGES if any(row[one[0]] > 0 for row in rows)]
            tall = 0.8 / max(len(shown), 1)
            for place, row in enumerate(rows):
                for k, (name, words, color, hatch) in enumerate(shown):
                    y, value = place - 0.4 + (k + 0.5) * tall, row[name]
                    if value <= 0:
                        continue
                    end = min(value, 6400.0)
                    area.barh(y, end - SLOWEST, tall * 0.9, left=SLOWEST, color=color, hatch=hatch, edgecolor=INK, linewidth=0.3, label=words)
                    if value > 6400:
                        area.text(7000, y, "no port" if np.isinf(value) else f"{value:,.0f}", fontsize=6.5, va="center", color=INK)
            area.axvline(port, color="#8c1c13", linewidth=0.9)
            area.set_yticks(range(len(rows)), [row["pattern"] for row in rows])
            for label, row in zip(area.get_yticklabels(), rows):
                label.set_color(INK if row["fits"] else MUTED)
            area.set_ylim(len(rows) - 0.5, -0.5)
            area.set_title(title, pad=3)
            area.set_xscale("log")
            area.set_xlim(SLOWEST, 6400)
            ticks = [1, 3, 10, 25, 50, 100, 200, 400, 800, 1600, 3200]
            area.set_xticks(ticks, [str(tick) for tick in ticks])
            area.set_xticks([], minor=True)
            area.grid(axis="x", color="#e4e4e4", linewidth=0.5)
            area.set_axisbelow(True)
        areas[-1].set_xlabel("required port (Gb/s per accelerator)")
        handles = {words: handle for area in areas for handle, words in zip(*area.get_legend_handles_labels())}
        shown = [words for _, words, *_ in EXCHANGES if words in handles]
        figure.legend([handles[words] for words in shown], shown, loc="outside upper center", ncols=5, handlelength=1.2)
    names = [name for name, *_ in EXCHANGES]
    data = {name: ("pattern", [row[name] for _, rows, _ in groups for row in rows]) for name in names}
    labels = [f"{title}: {row['pattern']}" for title, rows, _ in groups for row in rows]
    return _finished(Drawing(figure, text, {"figure": "patterns", "groups": [title for title, *_ in groups]}, xr.Dataset(data, {"pattern": labels})), path)


def _finished(drawing, path):
    if path is not None:
        drawing.save(path)
    return drawing
