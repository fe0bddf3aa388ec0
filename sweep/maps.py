"""Maps: two axes against each other, a third quantity as filled contours.

The headline map is one call: tokens per scale-up domain against achieved FLOP/s, contours of the required port speed at
the ports that are sold, the first-order law dashed, the generations as points filled with the port they ship with.  A
point lighter than its surroundings is short of port, darker has some to spare.
"""

from typing import NamedTuple

import matplotlib
import numpy as np
import xarray as xr
from matplotlib import patheffects
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.patches import Patch

from . import drawings, intervals, selections
from .drawings import BANDS, INK, MUTED, PORTS, Drawing
from .errors import SweepError, did_you_mean
from .marks import GENERATIONS_NOTE, Mark, generations  # noqa: F401  Mark is for callers
from .palettes import SETS

HALO = [patheffects.withStroke(linewidth=1.6, foreground="white")]


def draw_map(ds, x, y, color, at=None, path=None, *, dashed="auto", marks="auto", levels=None, facet=None, interval=None, allow=None, width="column", caption="below"):
    """Draw ``color`` over ``x`` and ``y`` and return the Drawing; write it where ``path`` says.

    ``x`` and ``y``: an axis, or a quantity that varies along one axis only and is monotone there.  ``at``: labels of the
    other axes.  ``dashed``: a second quantity as dashed contours at the same levels (``auto``: the first-order law
    under a required port).  ``marks``: points (``Mark``; ``auto``: ``generations()`` on the map of ports over tokens and
    achieved FLOP/s).  ``levels``: contour levels (ports for Gb/s).  ``facet``: an
    axis drawn as panels side by side.  ``interval``: per cent of measured runs; dotted, where the ends of that interval
    about a step time or its like reach the same levels.  Points whose status is not ok or in ``allow`` are hatched.  ``width``:
    ``column``, ``page`` or inches.  ``caption``: ``below`` draws it, ``none`` leaves it to the text around.
    """
    view = selections.select(ds, at)
    array = selections.variable(view, color, "color")
    if facet is not None and facet not in view.dims:
        raise SweepError(f"facet: {facet!r} is not an axis here. {did_you_mean(facet, view.dims)}")
    panels = [(None, view)] if facet is None else [(label, view.isel({facet: i})) for i, label in enumerate(view[facet].values)]
    grids = [_grid(panel, x, y, color, allow) for _, panel in panels]
    if dashed == "auto":
        dashed = "first_order_link_gbps" if color == "required_link_gbps" and "first_order_link_gbps" in view else None
    note = ""
    if isinstance(marks, str):
        drawn = marks == "generations" or (x, y) == ("tokens_per_domain", "achieved_tflops")
        marks, note = (generations(), GENERATIONS_NOTE) if drawn else ((), "")
    paint = _Paint(view, color, levels, [grid.values for grid in grids])

    text = _caption(view, x, y, color, dashed, at, marks, facet, any(grid.invalid.any() for grid in grids), note, any(np.isinf(g.values).any() for g in grids if g.values.dtype.kind == "f"))
    if interval is not None:
        text += f" Dotted: where an end of the interval reaches the same level ({intervals.about(view, color, interval)})."
    with matplotlib.rc_context(drawings.STYLE):
        columns = min(len(panels), 3 if width == "page" else 2)
        rows = -(-len(panels) // columns)
        height = rows * (drawings.height_of(width, 0.78, columns) + (0.2 if facet else 0.0))
        figure = drawings.new_figure(width, height, text if caption == "below" else "")
        if columns > 1:
            figure.get_layout_engine().set(wspace=0.07)  # the last tick of a panel beside the first of the next
        axes = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
        for spare in axes.flat[len(panels) :]:
            spare.set_visible(False)
        contours = []
        for (label, panel), grid, area in zip(panels, grids, axes.flat):
            second = None if dashed is None else _grid(panel, x, y, dashed, allow)
            contours.append(_draw_panel(area, panel, grid, x, y, paint, second))
            if interval is not None and contours[-1] is not None:
                _draw_interval(area, panel, x, y, color, allow, paint, interval)
            if facet is not None:
                area.set_title(f"{facet.replace('_', ' ')} {selections._show(label)}", pad=3)
        for area in axes[:-1].flat:
            area.set_xlabel("")
        for area in axes[:, 1:].flat:
            area.set_ylabel("")
        paint.legend(figure, [area for area in axes.flat if area.get_visible()], view, color)
        figure.draw_without_rendering()  # settles the layout, on which the places of labels depend
        for lines, area in zip(contours, axes.flat):
            taken = _draw_marks(area, marks, paint)
            if lines is not None:
                _label_lines(area, lines, paint, taken)
    data = _data(view, x, y, color, dashed, array)
    drawing = Drawing(figure, text, drawings.key_of(ds, "map", at, x=x, y=y, color=color, dashed=dashed, facet=facet), data)
    if path is not None:
        drawing.save(path)
    return drawing


class _Grid(NamedTuple):
    """One panel: x and y values (or words), ``values`` and ``invalid`` over (y, x)."""

    x: np.ndarray
    y: np.ndarray
    values: np.ndarray
    invalid: np.ndarray
    dims: tuple


def _grid(view, x, y, color, allow):
    (x_dim, x_values), (y_dim, y_values) = selections.along(view, x, "x"), selections.along(view, y, "y")
    if x_dim == y_dim:
        raise SweepError(f"x and y: {x} and {y} both vary along {x_dim}; a map needs two axes.")
    array = view[color]
    valid = selections.allowed(view, allow)
    for dim in (*array.dims, *(view["status"].dims if valid is not None else ())):
        if dim not in (x_dim, y_dim) and view.sizes[dim] > 1:
            labels = [selections._show(label) for label in view[dim].values[:6]] if dim in view.coords else ["0"]
            raise SweepError(f"{color} varies along {dim} too: fix it, such as {dim}={labels[0]} (of {', '.join(labels)}, ...).")

    def plane(array):
        array = array.isel({dim: 0 for dim in array.dims if dim not in (x_dim, y_dim)})
        template = xr.DataArray(np.ones((len(y_values), len(x_values)), bool), dims=(y_dim, x_dim))
        return np.asarray(xr.broadcast(array.drop_vars(list(array.coords)), template)[0].transpose(y_dim, x_dim).values)

    values = plane(array)
    invalid = np.zeros(values.shape, bool) if valid is None else ~np.isin(plane(view["status"]), valid)
    for axis, labels in ((1, x_values), (0, y_values)):
        if labels.dtype.kind == "f":
            order = np.argsort(labels)
            values, invalid = np.take(values, order, axis), np.take(invalid, order, axis)
    x_values = np.sort(x_values) if x_values.dtype.kind == "f" else x_values
    y_values = np.sort(y_values) if y_values.dtype.kind == "f" else y_values
    return _Grid(x_values, y_values, values, invalid, (x_dim, y_dim))


class _Paint:
    """How a quantity becomes colour: bands between levels, contoured on the quantity's own scale; or one colour per word."""

    def __init__(self, view, name, levels, grids):
        self.words = selections.words(view, name)
        self.levels = None
        if self.words is not None:
            present = np.unique(np.concatenate([grid.ravel() for grid in grids]))
            self.words = {code: word for code, word in self.words.items() if code in present}
            self.colors = {code: SETS[i % len(SETS)] for i, code in enumerate(self.words)}
            return
        finite = np.concatenate([grid.ravel().astype(float) for grid in grids])
        finite = finite[np.isfinite(finite)]
        if not len(finite):
            raise SweepError(f"color: {name} has no finite value in this slice.")
        ports = view[name].attrs.get("units") == "Gb/s"
        positive = finite[finite > 0]
        self.log = ports or (len(positive) == len(finite) and finite.max() > 30 * finite.min())
        if levels is not None:
            self.levels = np.asarray(sorted(levels), float)
        elif ports:
            self.levels = np.asarray(PORTS, float)
        elif self.log:
            low = max(positive.min(), positive.max() / 1e6)  # what is smaller is as good as none
            self.levels = drawings.round_levels(low, positive.max(), len(BANDS) - 1)
        else:
            spread = matplotlib.ticker.MaxNLocator(7).tick_values(finite.min(), finite.max())
            self.levels = np.asarray([level for level in spread if finite.min() < level < finite.max()]) if finite.max() > finite.min() else finite[:1]
            self.levels = self.levels if len(self.levels) else np.array([finite.mean()])
        count = len(self.levels) + 1
        ramp = matplotlib.colors.LinearSegmentedColormap.from_list("bands", BANDS)
        self.bands = BANDS if count == len(BANDS) else [matplotlib.colors.to_hex(ramp(i / (count - 1))) for i in range(count)]

    def height(self, values):
        """Values on the scale in which contours are straight: log2, with 0 far below and inf far above all levels."""
        values = values.astype(float)
        if not self.log:
            return np.where(np.isinf(values), np.sign(values) * 1e3 * max(1.0, np.abs(self.levels).max()), values)
        with np.errstate(divide="ignore", invalid="ignore"):
            result = np.log2(values)
        low, high = np.log2(self.levels[[0, -1]])
        return np.clip(result, low - 8, high + 8)

    def value(self, height):
        """The level at a height."""
        return float(f"{2.0**height:.10g}") if self.log else float(height)

    def color(self, value):
        """The colour of the band that ``value`` closes: a port of 400 has the band from 200 to 400."""
        return self.bands[int(np.searchsorted(self.levels, value * (1 - 1e-9)))]

    def legend(self, figure, areas, view, name):
        if self.words is not None:
            patches = [Patch(facecolor=self.colors[code], edgecolor=INK, linewidth=0.4, label=word) for code, word in self.words.items()]
            figure.legend(handles=patches, loc="outside right upper", title=name.replace("_", " "), handlelength=1.0)
            return
        norm = BoundaryNorm(np.arange(len(self.bands) + 1), len(self.bands))
        bar = figure.colorbar(ScalarMappable(norm, ListedColormap(self.bands)), ax=areas, pad=0.02, aspect=24, shrink=0.98)
        bar.set_ticks(np.arange(1, len(self.bands)), labels=[drawings.short(level) for level in self.levels])
        bar.ax.tick_params(length=2, pad=2)
        bar.outline.set_linewidth(0.5)
        bar.set_label(selections.label_of(view, name), labelpad=3)


def _draw_panel(axes, view, grid, x, y, paint, dashed):
    """One panel without its labels; returns the contour lines, None where there are cells."""
    words = any(labels.dtype.kind == "O" for labels in (grid.x, grid.y)) or paint.words is not None
    drawings.set_axis(axes, "x", view, x, grid.x)
    drawings.set_axis(axes, "y", view, y, grid.y)
    if words or min(grid.values.shape) < 2:
        _cells(axes, grid, paint)
        return None
    infinite = np.isinf(grid.values)
    height = np.ma.masked_array(paint.height(grid.values), mask=np.isnan(grid.values) | infinite)
    if infinite.any():  # no port is enough: darkest, and no contour is made up on the way there
        axes.set_facecolor(paint.bands[-1])
        axes.contourf(grid.x, grid.y, np.isnan(grid.values).astype(float), [0.5, 1.5], colors="white")
    low, high = height.min() - 1, height.max() + 1
    levels = np.log2(paint.levels) if paint.log else paint.levels
    bounds = [min(low, levels[0] - 1), *levels, max(high, levels[-1] + 1)]
    axes.contourf(grid.x, grid.y, height, bounds, colors=paint.bands)
    lines = _contour(axes, grid, height, levels, colors=INK, linewidths=0.6, linestyles="solid")
    if dashed is not None:
        second = np.ma.masked_invalid(paint.height(dashed.values))
        _contour(axes, grid, second, levels, colors="#8c1c13", linewidths=0.8, linestyles=[(0, (4, 2))])
    if grid.invalid.any():
        axes.contourf(grid.x, grid.y, grid.invalid.astype(float), [0.5, 1.5], colors="none", hatches=["/////"])
        axes.contour(grid.x, grid.y, grid.invalid.astype(float), [0.5], colors=INK, linewidths=0.5)
    return lines


def _contour(axes, grid, height, levels, **style):
    """Contour lines at those levels that the data reach; None where it reaches none."""
    levels = [level for level in levels if height.min() < level < height.max()]
    return axes.contour(grid.x, grid.y, height, levels, **style) if len(levels) else None


def _draw_interval(axes, panel, x, y, color, allow, paint, interval):
    """Dotted contours of both ends of the interval about ``color``, at the levels of the map."""
    ends = intervals.dataset(panel, interval, [color])
    for side in ("low", "high"):
        grid = _grid(panel.assign({color: ends[f"{color}_{side}"].reset_coords(drop=True)}), x, y, color, allow)
        height = np.ma.masked_invalid(paint.height(grid.values))
        _contour(axes, grid, height, np.log2(paint.levels) if paint.log else paint.levels, colors=INK, linewidths=0.5, linestyles=[(0, (1, 1.6))])


def _cells(axes, grid, paint):
    """Cells rather than contours, where an axis or the quantity itself has words."""
    if paint.words is not None:
        colors = np.array([[matplotlib.colors.to_rgb(paint.colors.get(int(v), "#ffffff")) for v in row] for row in grid.values])
    else:
        bands = np.searchsorted(paint.levels, np.nan_to_num(grid.values.astype(float), nan=0.0))
        colors = np.array([[matplotlib.colors.to_rgb(paint.bands[band]) for band in row] for row in bands])
        colors[np.isnan(grid.values.astype(float))] = 1.0
    edges_x, edges_y = _edges(axes, grid.x, "x"), _edges(axes, grid.y, "y")
    axes.pcolormesh(edges_x, edges_y, colors, linewidth=0)
    rows, columns = np.nonzero(grid.invalid)
    for row, column in zip(rows, columns):
        corners = edges_x[[column, column + 1, column + 1, column]], edges_y[[row, row, row + 1, row + 1]]
        axes.fill(*corners, facecolor="white", edgecolor=MUTED, hatch="/////", linewidth=0.0)
    axes.set_xlim(edges_x[0], edges_x[-1])
    axes.set_ylim(edges_y[0], edges_y[-1])


def _edges(axes, labels, which):
    if labels.dtype.kind == "O":
        return np.arange(len(labels) + 1) - 0.5
    log = (axes.get_xscale() if which == "x" else axes.get_yscale()) == "log"
    values = np.log(labels) if log else labels
    if len(values) == 1:
        inner, first, last = np.array([]), values[0] - 0.5, values[0] + 0.5
    else:
        inner = (values[1:] + values[:-1]) / 2
        first, last = 2 * values[0] - inner[0], 2 * values[-1] - inner[-1]
    edges = np.concatenate([[first], inner, [last]])
    return np.exp(edges) if log else edges


def _draw_marks(axes, marks, paint):
    """The marks, those at one place sharing a point; returns the boxes taken, as points in fractions of the axes."""
    taken, groups = [], {}
    for mark in marks:
        groups.setdefault((f"{mark.x:.3g}", f"{mark.y:.3g}"), []).append(mark)
    groups = dict(sorted(groups.items(), key=lambda item: -item[1][0].x))  # the rightmost have least room: they choose first
    to_axes = axes.transAxes.inverted()
    places = [to_axes.transform(axes.transData.transform((group[0].x, group[0].y))) for group in groups.values()]
    for place, group in zip(places, groups.values()):
        first, last = group[0], group[-1]
        if not (-0.01 <= place[0] <= 1.01 and -0.01 <= place[1] <= 1.01):
            continue
        fills = ["white" if mark.port is None or paint.words is not None else paint.color(mark.port) for mark in (first, last)]
        style = dict(fillstyle="left", markerfacecoloralt=fills[1]) if fills[0] != fills[1] else {}
        axes.plot([first.x], [first.y], "o", ms=7.4, mfc="white", mec=INK, mew=0.7, zorder=5, clip_on=False)
        axes.plot([first.x], [first.y], "o", ms=5.0, mfc=fills[0], mew=0, zorder=6, clip_on=False, **style)
        taken += _place_label(axes, group, [other for other in places if other is not place], taken)
    return taken + [place for place in places]


def _place_label(axes, group, others, taken):
    """The label beside, above or below its point: the first place where it is inside and touches nothing."""
    text = "\n".join(m.label if m.port is None else f"{m.label} ({m.port:g})" for m in group)
    options = ((7, 0, "left", "center_baseline"), (-7, 0, "right", "center_baseline"), (0, 7, "center", "bottom"), (0, -7, "center", "top"),
               (-5, 5, "right", "bottom"), (5, -5, "left", "top"), (-5, -5, "right", "top"), (5, 5, "left", "bottom"))
    renderer = axes.figure.canvas.get_renderer()
    best = None
    for dx, dy, ha, va in options:
        note = axes.annotate(
            text, (group[0].x, group[0].y), (dx, dy), textcoords="offset points", ha=ha, va=va,
            fontsize=7, color=INK, zorder=7, path_effects=HALO, linespacing=0.95,
        )
        note.set_in_layout(False)
        box = note.get_window_extent(renderer).transformed(axes.transAxes.inverted())
        trouble = sum(box.padded(0.012).contains(*place) for place in (*others, *taken))
        trouble += 100 * ((box.x0 < 0) + (box.x1 > 1) + (box.y0 < 0) + (box.y1 > 1))
        if best is None or trouble < best[0]:
            if best is not None:
                best[1].remove()
            best = trouble, note, box
        else:
            note.remove()
    box = best[2]
    return [np.array([box.x0 + step * box.width, box.y0 + rise * box.height]) for step in np.linspace(0, 1, 9) for rise in (0, 0.5, 1)]


def _label_lines(axes, lines, paint, taken):
    """Each contour's value written on it, where it is farthest from marks, other labels and the frame."""
    taken = [np.asarray(place) for place in taken]
    to_axes = axes.transData + axes.transAxes.inverted()
    for index, path in enumerate(lines.get_paths()):
        if not len(path.vertices):
            continue
        places = to_axes.transform(path.vertices)
        inside = np.all((places > 0.07) & (places < 0.93), axis=1)
        if not inside.any():
            continue
        places, vertices = places[inside], path.vertices[inside]
        room = np.full(len(places), 1.0)
        for other in taken:
            room = np.minimum(room, np.hypot(*(places - other).T))
        room = np.minimum(room, 2.0 * np.minimum(places, 1 - places).min(axis=1))
        best = int(np.argmax(room))
        taken.append(places[best])
        axes.clabel(
            lines, [lines.levels[index]], manual=[tuple(vertices[best])], fmt=lambda level: drawings.short(paint.value(level)),
            fontsize=6.8, inline_spacing=2, colors=INK,
        )
    for text in axes.texts:
        text.set_path_effects(HALO)


def _caption(view, x, y, color, dashed, at, marks, facet, hatched, note, infinite):
    name = lambda key: view[key].attrs.get("long_name") or key.replace("_", " ")  # noqa: E731
    text = f"{name(color)[:1].upper()}{name(color)[1:]}, by {name(x)} and {name(y)}"
    model = drawings.reference(view)
    text += f"; {model}" if model else ""
    where = drawings.slice_words(view, at)
    text += f" ({where}). " if where else ". "
    if dashed:
        text += f"Dashed: {name(dashed)}. "
    if any(mark.port for mark in marks):
        text += f"Points: {note}filled with the port they ship with (in brackets); lighter than the ground is short of port. "
    if infinite:
        text += "Darkest, without a line around it: infinite. "
    if hatched:
        text += "Hatched: cannot run or does not fit. "
    return text + drawings.conventions(view)


def _data(view, x, y, color, dashed, array):
    """The numbers behind the figure, a small Dataset."""
    names = [name for name in dict.fromkeys((x, y, color, dashed, "status")) if name and name in view.variables]
    data = view[names].reset_coords([name for name in names if name not in view.dims and name in view.coords])
    return data.drop_vars([name for name in data.coords if name not in data.dims])
