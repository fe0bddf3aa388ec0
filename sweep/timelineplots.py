"""The drawing of a step's timeline: every stage's passes, and below them the last backward with its communication."""

import matplotlib
import xarray as xr

from . import drawings
from ._kernels import quantities
from .drawings import INK, MUTED
from .worksheets import amount

STYLES = {  # kind: colour, words of the legend
    "forward": ("#9ecae1", "forward"),
    "backward": ("#3b6ea5", "backward"),
    "weight": ("#7fb8a4", "weight gradient"),
    "block": ("#3b6ea5", "backward"),
    "head": ("#1f3f66", "head, embedding"),
    "embedding": ("#1f3f66", "head, embedding"),
    "bucket": ("#f2c879", "bucket, hidden"),
    "exposed": ("#D55E00", "exposed"),
    "gather": ("#f2c879", "gather"),
    "scatter": ("#c9a0dc", "scatter"),
    "shard": ("#8c6bb1", "all-reduce of shards"),
    "pipeline": ("#d9d9d9", "pipeline"),
    "update": ("#6b6b6b", "update"),
}
ROW = 0.17  # inches


def draw(point, line, width="page"):
    """A Drawing of ``line`` (timelines.Timeline) of a point."""
    text = _caption(point, line)
    panels = [(line.rows, line.bars)] + ([(line.detail_rows, line.detail)] if line.detail else [])
    heights = [ROW * len(rows) + 0.12 for rows, _ in panels]
    with matplotlib.rc_context(drawings.STYLE):
        figure = drawings.new_figure(width, sum(heights) + 0.42 * len(panels) + 0.3, text)
        found = figure.subplots(len(panels), squeeze=False, height_ratios=heights)[:, 0]
        kinds = {}
        for axes, (rows, bars) in zip(found, panels):
            _panel(axes, rows, bars)
            kinds |= {bar.kind: None for bar in bars}
        if len(panels) > 1:
            _mark(found[0], line)
            detail = (
                "one micro-batch, block by block"
                if "gathers" in line.detail_rows
                else "the last backward and its reduction"
            )
            found[1].set_title(detail, loc="left", fontsize=7.5)
        found[0].set_title(f"the step, {amount(line.end, 's')}", loc="left", fontsize=7.5)
        legend = {STYLES[kind][1]: STYLES[kind][0] for kind in STYLES if kind in kinds}
        handles = [matplotlib.patches.Patch(facecolor=colour, label=words) for words, colour in legend.items()]
        figure.legend(handles=handles, loc="outside upper center", ncols=min(len(handles), 8), fontsize=6.5,
                      handlelength=1.0, columnspacing=1.0, borderaxespad=0.1)  # fmt: skip
    key = {"figure": "timeline", "store": "", "inputs": {str(k): v for k, v in point.spec.fixed.items()}}
    return drawings.Drawing(figure, text, key, _data(line))


def _data(line):
    """The bars as a Dataset: where each starts and stops, in seconds."""
    bars = [*line.bars, *line.detail]
    columns = {name: ("bar", [getattr(bar, name) for bar in bars]) for name in ("row", "kind", "start", "stop", "label")}
    panel = ["step"] * len(line.bars) + ["detail"] * len(line.detail)
    return xr.Dataset({"panel": ("bar", panel), **columns}, {"bar": range(len(bars))})


def _panel(axes, rows, bars):
    end = max(bar.stop for bar in bars)
    start = min(bar.start for bar in bars)
    scale, unit = next((s, u) for s, u in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")) if end - start >= s or u == "us")
    for bar in bars:
        colour = STYLES[bar.kind][0]
        thin = (bar.stop - bar.start) < (end - start) / 300
        axes.barh(rows.index(bar.row), (bar.stop - bar.start) / scale, left=(bar.start - start) / scale, height=0.78, color=colour,
                  edgecolor=colour if thin else "white", linewidth=0.0 if thin else 0.3)  # fmt: skip
        if bar.label and (bar.stop - bar.start) > (end - start) * 0.012 * max(len(bar.label), 2):
            dark = bar.kind in ("backward", "head", "block", "update", "exposed")
            axes.text((bar.start + bar.stop - 2 * start) / 2 / scale, rows.index(bar.row), bar.label, ha="center", va="center",
                      fontsize=5.5, color="white" if dark else INK)  # fmt: skip
    axes.set_yticks(range(len(rows)), rows)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(0, (end - start) / scale)
    axes.set_xlabel(unit, labelpad=1)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right"]].set_visible(False)


def _mark(axes, line):
    """Where in the step the detail lies."""
    if "buckets" not in line.detail_rows:
        return
    scale = next(s for s in (1.0, 1e-3, 1e-6) if line.end >= s or s == 1e-6)
    start = min(bar.start for bar in line.detail)
    axes.axvline(start / scale, color=MUTED, linewidth=0.6, linestyle=":")


def _caption(point, line):
    fixed = point.spec.fixed
    named = " on ".join(str(fixed[name]) for name in ("model", "accelerator") if name in fixed)
    rest = ", ".join(f"{name} {value:g}" if isinstance(value, (int, float)) else f"{name} {value}"
                     for name, value in fixed.items() if name not in ("model", "accelerator"))  # fmt: skip
    out = point.out
    port = amount(point.x.link_gbps / quantities.GBPS, "Gb/s")
    text = f"One training step of {named or 'one design'} ({rest}) with a port of {port}: {amount(out['step_time_s'], 's')}, of which "
    text += f"{amount(out['exposed_dp_s'], 's')} are exposed data parallelism; {amount(out['required_link_gbps'], 'Gb/s')} would keep up "
    text += f"with the backward pass (first order {amount(out['first_order_link_gbps'], 'Gb/s')}). "
    return text + " ".join(line.remarks)
