"""Pictures of more or less: the cost of a token over the port, and maps of the port at which it is least.

``draw_costs`` shows every line relative to its own least cost, up to twice that, with the least marked and the ports
within 1 % of it drawn thick: how wrong one may be.  ``draw_ports`` is the map; over tokens per domain and achieved
FLOP/s it is the headline map once more, in dollars.
"""

import matplotlib
import numpy as np

from . import drawings, economics, lineplots, maps
from .drawings import INK, LINES, Drawing

MOST = 2.0  # times the least cost that a figure of costs shows


def draw_costs(ds, lines="accelerator", at=None, path=None, *, allow=None, width="column", caption="below"):
    """Cost of a token over the least against the port, a line for each label of ``lines``; returns the Drawing."""
    view = economics.relative(ds, at, allow)
    keys, values, _ = lineplots._values(view, economics.LINK, "relative_cost", lines, (), None, None)
    links = view[economics.LINK].values
    text = "Cost of a trained token over the least of its line against the port of every accelerator. Dots: the least; thick: within 1 % of it. "
    text += lineplots._context(view, at) + " Prices and power: defaults of the inputs, partly assumptions."
    with matplotlib.rc_context(drawings.STYLE):
        figure = drawings.new_figure(width, 0.72 * drawings.inches_of(width), text if caption == "below" else "")
        axes = figure.subplots()
        for (color, dash, marker), key, row in zip(LINES, keys, values):
            axes.plot(links, row, linestyle=dash, color=color, label=key, zorder=3)
            good = np.where(row <= 1.0 + economics.FLAT, row, np.nan)
            axes.plot(links, good, color=color, linewidth=3.2, alpha=0.5, solid_capstyle="round", zorder=2)
            best = int(np.nanargmin(row))
            axes.plot(links[best], row[best], marker, color=color, ms=4.6, mec="white", mew=0.5, zorder=4)
        drawings.set_axis(axes, "x", view, economics.LINK, links)
        axes.set_ylim(0.96, MOST)
        axes.set_ylabel("cost of a token over the least")
        axes.grid(axis="y", color="#e4e4e4", linewidth=0.5)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        axes.yaxis.label.set_color(INK)
        axes.legend(loc="upper center", ncols=2)
    drawing = Drawing(figure, text, drawings.key_of(ds, "costs", at, lines=lines), view)
    if path is not None:
        drawing.save(path)
    return drawing


def draw_ports(ds, x=None, y=None, at=None, path=None, *, allow=None, **options):
    """A map of the cost-optimal port over two axes (or quantities of one axis each); returns the Drawing."""
    best = economics.best_ports(ds, at=at, allow=allow)
    if x is None and {"tokens_per_domain", "achieved_tflops"} <= set(best.variables):
        x, y = "tokens_per_domain", "achieved_tflops"
    free = [name for name in best.cost_optimal_link_gbps.dims if best.sizes[name] > 1]
    x, y = x or (free[-1] if free else "gpus"), y or (free[0] if free else "gpus")
    return maps.draw_map(best, x, y, "cost_optimal_link_gbps", path=path, **options)
