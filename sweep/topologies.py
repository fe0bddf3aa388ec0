"""The drawing of a network: nodes, leaves, spines and cores as rows, cables between them, counts and money beside.

Large networks are drawn by their ends: a row of more than ten switches shows four, dots, and four.  Every drawn pair
that cables join is joined; what the numbers mean stands at the right.
"""

import matplotlib
import xarray as xr
from matplotlib.patches import FancyBboxPatch

from . import drawings
from ._kernels import fabric, quantities
from .drawings import INK, MUTED, Drawing

RAILS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#999999", "#332288")
SHOWN = 10  # boxes of a row


def draw(design, path=None, width="page"):
    """Draw a ``fabrics.Design`` and return the Drawing; write it where ``path`` says (.svg, .png or .pdf)."""
    found, planes, speed, radix = design.network
    rate = speed / quantities.GBPS
    rows = [
        (f"{tier} switches", count)
        for tier, count in (("core", found.core), ("spine", found.spine), ("leaf", found.leaf))
        if count
    ]
    rows.append(("nodes", design.gpus / 8))
    cables = [count for count in (found.spine_core_cables, found.leaf_spine_cables, found.node_leaf_cables) if count]
    money = {(item.network, item.part): item for item in design.items}
    lines = ("spine-core", "leaf-spine", "node-leaf")[3 - len(cables) :]
    caption = design.words()
    with matplotlib.rc_context(drawings.STYLE):
        height = 0.75 * len(rows) + 0.1
        figure = drawings.new_figure(width, height, caption)
        area = figure.subplots()
        area.set_axis_off()
        area.set_xlim(0, 1.42)
        area.set_ylim(-0.35, len(rows) - 0.65)
        places = []
        for level, (name, count) in enumerate(rows):
            y = len(rows) - 1 - level
            shown = _shown(int(-(-count // 1)))
            places.append([(x, y, index, name, count) for x, index in shown])
            coloured = name.startswith("leaf") and int(design.x.fabric_design) != fabric.FAT_TREE
            for k, (x, index) in enumerate(shown):
                _box(
                    area,
                    x,
                    y,
                    RAILS[_rail(index, count, design) % len(RAILS)] if coloured else "#f2f2f2",
                    name == "nodes",
                )
            if len(shown) < count:
                area.text(0.5, y, "…", ha="center", va="center", fontsize=11, color=MUTED)
            item = money.get(("compute", name))
            more = f"{radix:g} × {rate:g} Gb/s, {item.usd / 1e6:.2f} M USD" if item else "8 accelerators each"
            area.text(1.04, y, f"{count:,.0f} {name}", va="center", color=INK)
            area.text(1.04, y - 0.2, more, va="center", fontsize=6.6, color=MUTED)
        for upper, lower, name, count in zip(places, places[1:], lines, cables):
            for a in upper:
                for b in lower:
                    if _joined(a, b, design, int(planes)):
                        area.plot((a[0], b[0]), (a[1] - 0.12, b[1] + 0.12), color=MUTED, linewidth=0.3, zorder=0)
            item = money[("compute", f"{name} cables with optics")]
            area.text(
                1.04,
                (upper[0][1] + lower[0][1]) / 2,
                f"{count:,.0f} cables, {item.usd / 1e6:.2f} M USD",
                va="center",
                fontsize=6.6,
                color=MUTED,
            )
    key = {
        "figure": "topology",
        "gpus": design.gpus,
        "link_gbps": float(design.x.link_gbps / quantities.GBPS),
        "planes": float(planes),
    }
    drawing = Drawing(figure, caption, key, xr.Dataset())
    if path is not None:
        drawing.save(path)
    return drawing


def _joined(upper, lower, design, planes):
    """Whether a cable joins two drawn boxes (x, y, index, name, count): same plane, same rail where rails are apart,
    own leaf.
    """
    kind = int(design.x.fabric_design)
    (*_, high, _, highs), (*_, low, name, lows) = upper, lower
    rails = int(design.x.fabric_rails) if kind != fabric.FAT_TREE else 1
    if name == "nodes":
        per_rail = max(highs / planes / rails, 1)  # leaves of a rail and plane
        return int(high % per_rail) == int(low * per_rail / lows)
    apart = rails if kind == fabric.RAIL_ONLY else 1
    place = (int(high * apart // highs), int(high * apart * planes // highs) % planes)
    leaf = int(low * apart // lows)
    per_rail = max(lows / rails, 1)
    plane = (
        int(low % per_rail * planes // per_rail)
        if name.startswith("leaf")
        else int(low * apart * planes // lows) % planes
    )
    return place == (leaf, plane)


def _shown(count):
    """(x, index) of the boxes that are drawn of ``count``, between 0 and 1."""
    if count <= SHOWN:
        return [((k + 0.5) / count, k) for k in range(count)]
    left = [((k + 0.5) / SHOWN, k) for k in range(4)]
    return left + [((k + 0.5) / SHOWN, count - SHOWN + k) for k in range(SHOWN - 4, SHOWN)]


def _rail(leaf, leaves, design):
    """Rail of a leaf: leaves of one rail stand side by side."""
    return int(leaf * design.x.fabric_rails // leaves)


def _box(area, x, y, color, node):
    wide, tall = (0.05, 0.16) if node else (0.07, 0.2)
    style = "square,pad=0" if node else "round,pad=0,rounding_size=0.015"
    patch = FancyBboxPatch(
        (x - wide / 2, y - tall / 2), wide, tall, boxstyle=style, facecolor=color, edgecolor=INK, linewidth=0.5
    )
    area.add_patch(patch)
