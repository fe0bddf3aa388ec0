"""What the explorer looks at: a view, and the two-dimensional slice of a store that it needs.

A view is what the page's address holds: ``x``, ``y`` (or none: a curve), ``color``, a label for every other axis, a constraint,
reasons that do not disqualify.  Only the chunks that the slice lies in are read.  A port that no label of the store has is asked
of the kernels instead.
"""

from typing import NamedTuple

import numpy as np

from . import expressions, selections
from ._kernels import quantities
from .blocks import Blocks
from .designs import LINK
from .errors import SweepError, did_you_mean
from .marks import HEADLINE

FAVOURITES = {"model": "llama-3-70b", "accelerator": "h100", "tp": 8, LINK: 400, "seq_len": 8192, "micro_batch": 1}
SEVERAL = 8  # labels that make an axis worth a map


class View(NamedTuple):
    """One look at a store.  ``at``: a label for axes that are neither x nor y, and for ``link_gbps`` any port in Gb/s."""

    x: str
    y: str
    color: str
    at: dict
    where: str = ""
    allow: tuple = ()

    @classmethod
    def of(cls, ds, words):
        """The view of an address's words (``x``, ``y``, ``color``, ``where``, ``allow``, ``at.NAME``); what is missing is chosen."""
        at = {name[3:]: value for name, value in words.items() if name.startswith("at.") and value != ""}
        for name in at:
            if name not in ds.dims and name != LINK:
                raise SweepError(f"at: {name!r} is not an axis here. {did_you_mean(name, ds.dims)}")
        color = words.get("color") or _first_color(ds)
        selections.variable(ds, color, "color")
        x, y = words.get("x"), words.get("y")
        if not x or y is None:
            first = _first_axes(ds, color, at, x)
            x, y = x or first[0], first[1] if y is None else y
        allow = tuple(word for word in (words.get("allow") or "").split(",") if word)
        return cls(x, y, color, at, (words.get("where") or "").strip(), allow)

    def words(self):
        """The words of the address."""
        words = {"x": self.x, "y": self.y, "color": self.color, "where": self.where, "allow": ",".join(self.allow)}
        return {**{name: word for name, word in words.items() if word or name == "y"}, **{f"at.{name}": str(v) for name, v in self.at.items()}}


class Side(NamedTuple):
    """One side of a plane: the name shown, the axis it stands on, its values (float64, or words as object)."""

    name: str
    dim: str
    values: np.ndarray


class Plane(NamedTuple):
    """A slice.  ``values`` (float32) and ``counted`` are (y, x); a curve has one row.  ``picks``: position on the other axes.

    ``status``: codes (y, x), or None.  ``link``: the port that the kernels were asked at, None where the store was read.
    """

    x: Side
    y: Side
    values: np.ndarray
    counted: np.ndarray
    status: np.ndarray
    picks: dict
    link: float


def plane(ds, view, designs=None):
    """The :class:`Plane` of a view.  ``designs`` answers at ports between the labels; without it they are an error."""
    link = _port_between(ds, view, designs)
    at = {name: label for name, label in view.at.items() if name in ds.dims and not (name == LINK and (link is not None or LINK in (view.x, view.y)))}
    picks = positions(ds, at)
    x_dim, x_values = _side(ds, view.x, picks, (view.y,) if view.x not in ds.dims else (), "x")
    y_dim, y_values = _side(ds, view.y, picks, (x_dim,), "y") if view.y else ("", np.zeros(1))
    free = [dim for dim in (y_dim, x_dim) if dim]
    if LINK in free:
        link = None
    for dim in free:
        picks.pop(dim, None)
    if link is None:
        source, others = ds, {dim: ds[dim].values[index] if dim in ds.coords else index for dim, index in picks.items()}
    else:
        source, others = designs.slice(picks, _asked(ds, view, designs, picks), link), {}
    blocks = Blocks(source, others, allow=view.allow, whole=tuple(source.dims))
    block = next(iter(blocks))
    condition = view.where and expressions.compile(view.where, blocks.names, "constraint", blocks.categories)
    order = [blocks.dims.index(dim) for dim in free]
    shape = (len(y_values), len(x_values))

    def flat(mesh):
        """An open mesh over all axes as (y, x)."""
        full = np.asarray(mesh)
        rest = [k for k in range(full.ndim) if k not in order]
        full = full.transpose(*order, *rest).reshape([full.shape[k] for k in order])
        return np.broadcast_to(full if view.y else full[None, :], shape)

    counted = flat(block.valid())
    if condition:
        counted = counted & flat(np.asarray(block.evaluate(condition), bool))
    status = flat(block["status"]).astype("u1") if "status" in source.variables else None
    values = flat(block[view.color]).astype("f4")
    return Plane(Side(view.x, x_dim, x_values), Side(view.y, y_dim, y_values), values, counted, status, picks, link)


def positions(ds, at):
    """A position on every axis: of the label in ``at``, else of a favourite, else in the middle (words: the first)."""
    picks = {}
    for dim in ds.dims:
        if dim in at:
            found = selections.positions(ds, dim, at[dim])
        elif dim in ds.coords:
            labels = ds[dim].values
            try:
                found = selections.positions(ds, dim, FAVOURITES[dim])
            except (KeyError, SweepError):
                found = [0 if labels.dtype.kind in "OUST" else (len(labels) - 1) // 2]
        else:
            found = [0]
        picks[dim] = int(found[0])
    return picks


def axes_of(ds):
    """The axes that some output stands on: a reduction's own are searched, and not looked along."""
    return [dim for dim in ds.dims if any(dim in array.dims for array in ds.data_vars.values())]


def drawable(ds):
    """Names that can be coloured, in the store's order."""
    return [str(name) for name in ds.data_vars if name != "status"]


def _port_between(ds, view, designs):
    """The port of the view if only the kernels know it (Gb/s), else None."""
    if LINK not in view.at or LINK in (view.x, view.y):
        return None
    try:
        port = float(view.at[LINK])
    except ValueError:
        port = np.nan
    if not 0 < port < np.inf:
        raise SweepError(f"at: {view.at[LINK]!r} is no port speed. Write a number of Gb/s above 0, such as 400.")
    stored = ds[LINK].values.astype(float) if LINK in ds.dims else np.array([np.nan if designs is None else designs.port or np.nan])
    if np.isclose(stored, port, rtol=selections.CLOSE, atol=0).any():
        return None
    if designs is None or designs.over:
        if LINK in ds.dims:
            selections.positions(ds, LINK, port)  # names the nearest
        raise SweepError("at: the port cannot be moved here: the store does not tell its designs, or keeps winners alone.")
    return port


def _asked(ds, view, designs, picks):
    """The outputs that the kernels have to answer: those shown, and those the constraint names."""
    names = [view.color, view.x, view.y]
    if view.where:
        blocks = Blocks(ds, allow=view.allow)
        names += expressions.compile(view.where, blocks.names, "constraint", blocks.categories).names
    return [name for name in names if name in quantities.OUTPUTS]


def _side(ds, name, picks, taken, what):
    """``(axis, values)`` of x or y: an axis itself, or a quantity along the one axis on which it is monotone here."""
    array = selections.variable(ds, name, what)
    if name in ds.dims:
        if name in taken:
            raise SweepError(f"x and y: both stand on {name}; a map needs two axes.")
        return name, _values(array.values)
    found = []
    for dim in array.dims:
        if dim in taken or ds.sizes[dim] < 2:
            continue
        line = _values(array.isel({other: picks[other] for other in array.dims if other != dim}).values)
        if line.dtype.kind == "f" and (np.all(np.diff(line) > 0) or np.all(np.diff(line) < 0)):
            found.append((dim, line))
    if not found:
        raise SweepError(f"{what}: {name} is not monotone along any axis in this slice. Use an axis: {', '.join(map(str, axes_of(ds)))}.")
    return max(found, key=lambda pair: len(pair[1]))


def _values(values):
    return values.astype(str).astype(object) if values.dtype.kind in "OUST" else values.astype(float)


def _first_color(ds):
    names = drawable(ds)
    return next((name for name in ("required_link_gbps", "best_required_link_gbps") if name in names), names[0])


def _first_axes(ds, color, at, x):
    """x and y where none is named: the headline map's, else the two longest axes that the colour stands on."""
    if not x and all(name in ds.data_vars for name in HEADLINE):
        try:
            picks = positions(ds, {name: label for name, label in at.items() if name in ds.dims and name != LINK})
            first, _ = _side(ds, HEADLINE[0], picks, (), "x")
            _side(ds, HEADLINE[1], picks, (first,), "y")
            return HEADLINE
        except SweepError:
            pass
    shown = axes_of(ds)
    numeric = [dim for dim in shown if dim in ds.coords and ds[dim].dtype.kind in "fiu"]
    rest = [dim for dim in shown if dim not in numeric]
    dims = sorted(numeric, key=lambda dim: -min(ds.sizes[dim], SEVERAL)) + rest
    dims = [dim for dim in dims if dim in ds[color].dims] + [dim for dim in dims if dim not in ds[color].dims]
    dims = [dim for dim in dims if dim != x and ds.sizes[dim] > 1] or [dim for dim in dims if dim != x]
    return (x, dims[0] if dims else "") if x else (dims[0], dims[1] if len(dims) > 1 else "")
