"""Pictures of more or less: where a token costs least, how wrong one may be, and what the next Gb/s is worth.

``draw_costs`` shows every line relative to its own least cost, up to twice that, with the least marked and the ports
within 1 % of it drawn thick.  ``draw_ports`` is the map of the cheapest port; over tokens per domain and achieved
FLOP/s it is the headline map once more, in dollars.  ``draw_ranges`` puts the flat region of every generation side by
side, for one to three further axes; ``draw_worth`` holds what one more Gb/s is worth against what it costs.
"""

import matplotlib
import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm, ListedColormap

from . import drawings, economics, lineplots, maps, marks, presets, selections
from .drawings import INK, LINES, MUTED, Drawing
from .errors import SweepError
from .palettes import BANDS, PORTS

MOST = 2.0  # times the least cost that a figure of costs shows
SOLD = (25, *PORTS, 6400)  # Gb/s
PANELS = 4  # panels of a figure of ranges
PRICES = "Prices and power: sweep presets inputs, partly assumptions."


def draw_costs(ds, lines="accelerator", at=None, path=None, *, allow=None, width="column", caption="below"):
    """Cost of a token over the least against the port, a line for each label of ``lines``; returns the Drawing."""
    view = economics.relative(ds, at, allow)
    keys, values, _ = lineplots._values(view, economics.LINK, "relative_cost", lines, (), None, None)
    links = view[economics.LINK].values
    text = "Cost of a trained token over the least of its line against the port of every accelerator. Dots: the least; thick: within 1 % of it. "
    text += f"{lineplots._context(view, at)} {PRICES}"
    with matplotlib.rc_context(drawings.STYLE):
        figure, axes = _plot(width, 0.72, text, caption)
        for (color, dash, marker), key, row in zip(LINES, keys, values):
            axes.plot(links, row, linestyle=dash, color=color, label=key, zorder=3)
            good = np.where(row <= 1.0 + economics.FLAT, row, np.nan)
            axes.plot(links, good, color=color, linewidth=3.2, alpha=0.5, solid_capstyle="round", zorder=2)
            best = int(np.nanargmin(row))
            axes.plot(links[best], row[best], marker, color=color, ms=4.6, mec="white", mew=0.5, zorder=4)
        drawings.set_axis(axes, "x", view, economics.LINK, links)
        axes.set_ylim(0.96, MOST)
        axes.set_ylabel("cost of a token over the least")
        figure.legend(loc="outside upper left", ncols=4, handlelength=2.4, columnspacing=1.2)
    return _finished(Drawing(figure, text, drawings.key_of(ds, "costs", at, lines=lines), view), path)


def draw_ports(ds, x=None, y=None, at=None, path=None, *, allow=None, width="column", caption="below"):
    """A map over two axes (or quantities of one axis each) of the sold port at which a token costs least, hatched where
    ports a factor of two or more apart cost within 1 %; returns the Drawing.

    Costs are interpolated between the points of the grid, so that borders are straight where the law is.
    """
    best = economics.best_ports(ds, at=at, allow=allow)
    if x is None and set(marks.HEADLINE) <= set(best.variables):
        x, y = marks.HEADLINE
    free = [name for name in best.cost_optimal_link_gbps.dims if best.sizes[name] > 1]
    x, y = x or (free[-1] if free else "gpus"), y or (free[0] if free else "gpus")
    grid = maps._grid(best, x, y, "cost_optimal_link_gbps", None)
    if any(labels.dtype.kind == "O" for labels in (grid.x, grid.y)) or min(grid.values.shape) < 2:
        return maps.draw_map(best, x, y, "cost_optimal_link_gbps", path=path, width=width, caption=caption)
    costs, _ = economics._costs(ds, at, allow)
    links = costs[economics.LINK].values.astype(float)
    fine_x, fine_y, fine = _finer(grid, np.log(costs.transpose(*reversed(grid.dims), economics.LINK).values))
    known = np.isfinite(fine).all(-1)
    fine = np.where(known[..., None], fine, np.inf)
    sold = np.flatnonzero([any(abs(link / port - 1) < 1e-6 for port in SOLD) for link in links])
    sold = sold if len(sold) > 1 else np.arange(len(links))
    cheapest = np.where(known, links[sold][fine[..., sold].argmin(-1)], np.nan)
    good = fine <= fine.min(-1, keepdims=True) + np.log1p(economics.FLAT)
    low, high = links[good.argmax(-1)], links[good.shape[-1] - 1 - good[..., ::-1].argmax(-1)]
    flat = known & (high >= low * (2.0 - 1e-6))
    paint = _Ports(links[sold], cheapest)
    shown = marks.generations() if (x, y) == marks.HEADLINE else ()
    text = f"Port, of those that are sold, at which a trained token costs least{_of(best)}. Hatched: ports a factor of two or more apart cost within 1 %. "
    if shown:
        text += f"Points: {marks.GENERATIONS_NOTE}filled with the port they ship with (in brackets). "
    text += f"{drawings.conventions(best)} {PRICES}"
    with matplotlib.rc_context(drawings.STYLE):
        figure = drawings.new_figure(width, 0.78 * drawings.inches_of(width), text if caption == "below" else "")
        axes = figure.subplots()
        drawings.set_axis(axes, "x", best, x, grid.x)
        drawings.set_axis(axes, "y", best, y, grid.y)
        steps = np.ma.masked_invalid(np.log2(cheapest))
        axes.contourf(fine_x, fine_y, steps, paint.bounds, colors=paint.bands)
        axes.contour(fine_x, fine_y, steps, paint.bounds[1:-1], colors=INK, linewidths=0.6)
        axes.contourf(fine_x, fine_y, flat.astype(float), [0.5, 1.5], colors="none", hatches=["//////"])
        shades = ScalarMappable(BoundaryNorm(range(len(paint.bands) + 1), len(paint.bands)), ListedColormap(paint.bands))
        bar = figure.colorbar(shades, ax=axes, pad=0.02, aspect=24)
        bar.set_ticks(np.arange(len(paint.ports)) + 0.5, labels=[f"{port:g}" for port in paint.ports])
        bar.ax.tick_params(length=0, pad=2)
        bar.set_label("cheapest port (Gb/s)", labelpad=3)
        figure.draw_without_rendering()
        maps._draw_marks(axes, shown, paint)
    names = ["cost_optimal_link_gbps", "flat_low_link_gbps", "flat_high_link_gbps"]
    data = maps._data(best, x, y, names[0], names[1], best[names[0]]).assign({names[2]: best[names[2]]})
    return _finished(Drawing(figure, text, drawings.key_of(ds, "ports", at, x=x, y=y), data), path)


def draw_ranges(ds, rows="accelerator", at=None, path=None, *, allow=None, width="page", caption="below"):
    """The cheapest port and every port within 1 % of it, a row for each label of ``rows``; returns the Drawing.

    Up to two further axes may vary: that of words (else the shorter) as strokes of a row, the other as panels.
    """
    best = economics.best_ports(ds, at=at, allow=allow)
    dims = best.cost_optimal_link_gbps.dims
    if rows not in dims:
        raise SweepError(f"economics: {rows} does not vary here. Name an axis of rows: --lines {dims[0] if dims else 'accelerator'}.")
    free = [dim for dim in dims if dim != rows and best.sizes[dim] > 1]
    if len(free) > 2:
        raise SweepError(f"economics: {', '.join(free)} still vary: a figure of ranges takes two of them. Fix one, such as --at {free[0]}={selections._show(best[free[0]].values[0])}.")
    stroke = min(free, key=lambda dim: (best[dim].dtype.kind not in "OUST", best.sizes[dim]), default=None)
    panel = next((dim for dim in free if dim != stroke), None)
    panels = best[panel].values[:PANELS] if panel else [None]
    strokes = best[stroke].values if stroke else [None]
    labels = [str(label) for label in best[rows].values]
    text = f"Cheapest port (marker) and all ports within 1 % of it (bar){_of(best)}{'; diamonds: the port that ships' if rows == 'accelerator' else ''}. "
    text += f"{_fixed_words(best, at)}{drawings.conventions(best)} {PRICES}"
    links = ds[economics.LINK].values.astype(float)
    with matplotlib.rc_context(drawings.STYLE):
        height = 0.45 + max(0.21, 0.1 * len(strokes)) * len(labels)
        figure = drawings.new_figure(width, height, text if caption == "below" else "")
        areas = figure.subplots(1, len(panels), sharey=True, sharex=True, squeeze=False)[0]
        for area, value in zip(areas, panels):
            here = best if panel is None else best.sel({panel: value})
            for k, (color, _, marker) in zip(range(len(strokes)), LINES):
                one = here if stroke is None else here.isel({stroke: k})
                offset = (k - (len(strokes) - 1) / 2) * 0.24
                for place in range(len(labels)):
                    low, middle, high = (float(one[f"{name}_link_gbps"].isel({rows: place})) for name in ("flat_low", "cost_optimal", "flat_high"))
                    area.plot([low, high], [place + offset] * 2, color=color, linewidth=3.0, alpha=0.45, solid_capstyle="round")
                    area.plot([middle], [place + offset], marker, color=color, ms=3.6, mec="white", mew=0.4, label=selections._show(strokes[k]) if stroke and place == 0 else None)
            for place, label in enumerate(labels):
                port = _shipped(rows, label)
                if port:
                    area.plot([port], [place], "D", ms=7.5, mfc="none", mec=MUTED, mew=0.7, zorder=0)
            drawings.set_axis(area, "x", ds, economics.LINK, links)
            area.set_xlim(links.min() / 1.3, links.max() * 1.3)
            if len(panels) > 3:  # room for every other port
                ticks = area.get_xticks()[::2]
                area.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            area.set_xlabel("port (Gb/s)")
            area.grid(axis="x", color="#e4e4e4", linewidth=0.5)
            area.set_axisbelow(True)
            if panel:
                area.set_title(f"{panel.replace('_', ' ')} {selections._show(value)}", pad=3)
        areas[0].set_yticks(range(len(labels)), labels)
        areas[0].set_ylim(-0.6, len(labels) - 0.4)
        if stroke:
            areas[-1].legend(loc="lower right", title=stroke.replace("_", " "), title_fontsize=7, handlelength=1.0)
    return _finished(Drawing(figure, text, drawings.key_of(ds, "ranges", at, rows=rows, panels=panel, strokes=stroke), best), path)


def draw_worth(ds, lines="accelerator", at=None, path=None, *, allow=None, width="column", caption="below"):
    """Worth and price of one more Gb/s per accelerator over its life against the port there is; returns the Drawing."""
    more = economics.next_gbps(ds, at, allow)
    keys, worth, _ = lineplots._values(more, economics.LINK, "worth_usd_per_gbps", lines, (), None, None)
    _, price, _ = lineplots._values(more, economics.LINK, "price_usd_per_gbps", lines, (), None, None)
    middle = np.sqrt(more[economics.LINK].values * more.next_link_gbps.values)
    text = "Worth of one more Gb/s on every port, per accelerator over its life (lines), and what it costs (grey: of all lines): it pays left of the crossing. "
    text += f"{lineplots._context(more, at)} {PRICES}"
    with matplotlib.rc_context(drawings.STYLE):
        figure, axes = _plot(width, 0.72, text, caption)
        axes.fill_between(middle, np.nanmin(price, 0), np.nanmax(price, 0), color="#c9c9c9", label="price", linewidth=0.8, edgecolor="#8a8a8a")
        for (color, dash, marker), key, row in zip(LINES, keys, worth):
            axes.plot(middle, np.where(row > 0, row, np.nan), linestyle=dash, marker=marker, ms=2.8, color=color, label=key, zorder=3)
        drawings.set_axis(axes, "x", more, economics.LINK, more[economics.LINK].values)
        axes.set_yscale("log")
        axes.set_ylim(max(np.nanmin(price) / 30, 1e-2), np.nanmax(worth) * 1.5)
        axes.set_ylabel("USD per Gb/s and accelerator")
        axes.legend(loc="upper right", ncols=2)
    return _finished(Drawing(figure, text, drawings.key_of(ds, "worth", at, lines=lines), more), path)


class _Ports:
    """Colours of ports that are sold: one each, from the slowest to the fastest that is cheapest somewhere."""

    words = None

    def __init__(self, links, found):
        found = found[np.isfinite(found)]
        if not len(found):
            raise SweepError("economics: no point of this slice can run. Allow a reason: --allow memory.")
        self.ports = [float(link) for link in sorted(links) if found.min() <= link <= found.max()]
        inner = [0.5 * np.log2(low * high) for low, high in zip(self.ports, self.ports[1:])]
        self.bounds = [np.log2(self.ports[0]) - 1, *inner, np.log2(self.ports[-1]) + 1]
        ramp = matplotlib.colors.LinearSegmentedColormap.from_list("bands", BANDS)
        self.bands = [matplotlib.colors.to_hex(ramp(i / max(len(self.ports) - 1, 1))) for i in range(len(self.ports))]

    def color(self, port):
        return self.bands[int(np.clip(np.searchsorted(self.bounds[1:-1], np.log2(port)), 0, len(self.bands) - 1))]


def _finer(grid, values, times=6):
    """x, y and ``values`` (y, x, ...) interpolated linearly to ``times`` as many places of each axis."""

    def places(labels):
        return np.interp(np.linspace(0, len(labels) - 1, times * (len(labels) - 1) + 1), np.arange(len(labels)), labels)

    def between(values, axis):
        place = np.linspace(0, values.shape[axis] - 1, times * (values.shape[axis] - 1) + 1)
        below = np.minimum(place.astype(int), values.shape[axis] - 2)
        share = np.expand_dims(place - below, [other for other in range(values.ndim) if other != axis])
        return np.take(values, below, axis) * (1 - share) + np.take(values, below + 1, axis) * share

    return np.exp(places(np.log(grid.x))), np.exp(places(np.log(grid.y))), between(between(values, 0), 1)


def _plot(width, ratio, text, caption):
    figure = drawings.new_figure(width, ratio * drawings.inches_of(width), text if caption == "below" else "")
    axes = figure.subplots()
    axes.grid(axis="y", color="#e4e4e4", linewidth=0.5)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.yaxis.label.set_color(INK)
    return figure, axes


def _of(best):
    named = drawings.reference(best)
    return f"; {named}" if named else ""


def _fixed_words(best, at):
    words = drawings.slice_words(best, at)
    return f"With {words}. " if words else ""


def _shipped(rows, label):
    """The port that a label of accelerators ships with; None for other rows."""
    return presets.find("accelerator", label).numbers.get("link_gbps") if rows == "accelerator" and label in presets.read_table("accelerator") else None


def _finished(drawing, path):
    if path is not None:
        drawing.save(path)
    return drawing
