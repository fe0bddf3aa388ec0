"""The drawing of a network: nodes, leaves, spines and cores as rows, cables between them, counts and money beside.

Large networks are drawn by their ends: a row of more than sixteen boxes shows seven, dots, and seven (of leaves in rails
the first and the last one of each).  Every drawn pair that cables join is joined; leaves carry the number of their rail;
counts, money and power stand at the right.
"""

import matplotlib
import xarray as xr
from matplotlib.patches import FancyBboxPatch

from . import drawings
from ._kernels import fabric, quantities
from .drawings import INK, MUTED, Drawing
from .fabrics import Item

RAILS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#999999", "#332288")
DARK = (0, 5, 7)  # colours of RAILS on which white is read
SHOWN = 16  # boxes of a row


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
    railed = int(design.x.fabric_design) != fabric.FAT_TREE
    money = {(item.network, item.part): item for item in design.items}
    lines = ("spine-core", "leaf-spine", "node-leaf")[3 - len(cables) :]
    caption = design.words()
    beside = [f"{name}: {_cost(_total(design, name))}" for name in dict.fromkeys(item.network for item in design.items) if name != "compute"]
    if beside:
        caption += f" Beside it, not drawn, with switches, cables and cards: {'; '.join(beside)}."
    with matplotlib.rc_context(drawings.STYLE):
        height = 0.75 * len(rows) + 0.1
        figure = drawings.new_figure(width, height, caption)
        area = figure.subplots()
        area.set_axis_off()
        area.set_xlim(0, 1.5)
        area.set_ylim(-0.35, len(rows) - 0.65)
        places = []
        for level, (name, count) in enumerate(rows):
            y = len(rows) - 1 - level
            coloured = railed and name.startswith("leaf")
            shown = _shown(int(-(-count // 1)), int(design.x.fabric_rails) if coloured else 0)
            places.append([(x, y, index, name, count) for x, index in shown])
            wide = min(0.07, 0.8 / max(len(shown), SHOWN if len(shown) < count else 1))
            for x, index in shown:
                rail = _rail(index, count, design) if coloured else None
                _box(area, x, y, wide, "#f2f2f2" if rail is None else RAILS[rail % len(RAILS)], name == "nodes")
                if rail is not None:
                    area.text(x, y, f"{rail + 1}", ha="center", va="center", fontsize=6.4, color="white" if rail % len(RAILS) in DARK else INK)
            if len(shown) < count:
                area.text(0.5, y, "…", ha="center", va="center", fontsize=11, color=MUTED)
            item = money.get(("compute", name))
            more = f"{radix:g} × {rate:g} Gb/s, {_cost(item)}" if item else "8 accelerators each"
            area.text(1.04, y, f"{count:,.0f} {name}", va="center", color=INK)
            area.text(1.04, y - 0.2, more, va="center", fontsize=6.6, color=MUTED)
        for upper, lower, name, count in zip(places, places[1:], lines, cables):
            for a in upper:
                for b in lower:
                    if _joined(a, b, design, int(planes)):
                        rail = railed and b[3] == "nodes"
                        color = RAILS[_rail(a[2], a[4], design) % len(RAILS)] if rail else MUTED
                        area.plot((a[0], b[0]), (a[1] - 0.12, b[1] + 0.12), color=color, linewidth=0.45 if rail else 0.25, zorder=0)
            item = money[("compute", f"{name} cables with optics")]
            area.text(
                1.04,
                (upper[0][1] + lower[0][1]) / 2,
                f"{count:,.0f} cables, {_cost(item)}",
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


def _total(design, network):
    """All items of a network as one."""
    items = [item for item in design.items if item.network == network]
    return Item(network, "all", 1.0, sum(item.usd for item in items), sum(item.watts for item in items))


def _cost(item):
    return f"{item.usd / 1e6:.2f} M USD, {item.watts / 1e3:,.0f} kW"


def _shown(count, rails=0):
    """(x, index) of the boxes that are drawn of ``count``, between 0 and 1; of many leaves in ``rails`` the first and the
    last of a rail rather than those of two rails.
    """
    if count <= SHOWN:
        return [((k + 0.5) / count, k) for k in range(count)]
    ends = (SHOWN - 2) // 2
    first, last = list(range(ends)), list(range(count - ends, count))
    if rails >= ends and count % rails == 0:
        per_rail = count // rails
        first, last = ([rail * per_rail + place for rail in chosen] for chosen, place in ((range(ends), 0), (range(rails - ends, rails), per_rail - 1)))
    return [((k + 0.5) / SHOWN, index) for k, index in zip([*range(ends), *range(SHOWN - ends, SHOWN)], first + last)]


def _rail(leaf, leaves, design):
    """Rail of a leaf: leaves of one rail stand side by side."""
    return int(leaf * design.x.fabric_rails // leaves)


def _box(area, x, y, wide, color, node):
    wide, tall = (0.7 * wide, 0.16) if node else (wide, 0.2)
    style = "square,pad=0" if node else "round,pad=0,rounding_size=0.015"
    patch = FancyBboxPatch(
        (x - wide / 2, y - tall / 2), wide, tall, boxstyle=style, facecolor=color, edgecolor=INK, linewidth=0.5
    )
    area.add_patch(patch)
