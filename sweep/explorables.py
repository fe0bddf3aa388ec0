"""What the explorer's page is told: the names of a store, one point of it, a worked explanation, and, for a page without a
server, its arrays.
"""

import base64
import shlex

import numpy as np

from . import blocks, expressions, marks, palettes, selections, views
from ._kernels import quantities
from .designs import LINK, Designs
from .errors import SweepError
from .worksheets import Line, Table, number

LARGEST = 16_000_000  # bytes of arrays in a page without a server: some 22 MB of text, which phones still open
TOPICS = {  # what a quantity's explanation is about, where it is not the training step
    "serving": ("decode_", "prefill_", "kv_", "first_token_", "serving_"),
    "capacity": ("wait_", "usable_utilisation", "usd_per_busy"),
    "stragglers": ("straggler_", "port_down", "goodput"),
    "money": ("fabric_usd", "usd_per_million", "watts_", "joules_"),
}
PORTS_OF = (25, 3200)  # Gb/s: the ends of the port's slider


def opened(store):
    """A Dataset of a path, a name or an open store; its labels and columns are read, its outputs are not."""
    if not hasattr(store, "variables"):
        from .store import open_store

        store = open_store(store)
    if not views.drawable(store):
        raise SweepError("the store has no output to draw.")
    for name in store.coords:
        store[name].load()
    return store


def about(ds, view, designs=None, why_not=""):
    """Names, labels and units of ``ds``, the first ``view``, and the colours; ``why_not``: why the kernels cannot be asked."""
    notes = [why_not] if why_not else []
    if designs is not None and not designs.same_model:
        notes.append("The store was computed by another version of the model than the one that answers between its labels and at a click.")
    axes = [{**_named(ds, dim), "values": ds[dim].values if dim in ds.coords else np.arange(ds.sizes[dim])} for dim in views.axes_of(ds)]
    return {
        "title": ds.attrs.get("title") or str(ds.encoding.get("source") or "A sweep"),
        "points": int(np.prod([float(n) for n in ds.sizes.values()])),
        "sha256": ds.attrs.get("spec_sha256", "")[:12],
        "notes": notes,
        "axes": axes,
        "outputs": [{**_named(ds, name), "dims": list(ds[name].dims), "words": _words(ds, name)} for name in [*views.drawable(ds), *_status(ds)]],
        "columns": [_named(ds, name) for name, coord in ds.coords.items() if _is_column(ds, coord)],
        "names": sorted(blocks.Blocks(ds).names),
        "reasons": [word for word in quantities.REASONS[1:] if word not in (selections.spec_of(ds).get("allow") or ())],
        "allowed": list(selections.spec_of(ds).get("allow") or ()),
        "view": view.words(),
        "picks": views.positions(ds, {name: label for name, label in view.at.items() if name in ds.dims and name != LINK}),
        "live": designs is not None,
        "moves": designs is not None and not designs.over,
        "port": designs.port if designs is not None else None,
        "span": PORTS_OF,
        "marks": _marks(ds),
        "palette": {"bands": palettes.BANDS, "sets": palettes.SETS, "ports": palettes.PORTS, "ink": palettes.INK, "muted": palettes.MUTED},
    }


def outputs_at(ds, picks):
    """Every output at a position on every axis: rows of name, words, unit and value (a word for a category)."""
    rows = []
    for name in [*views.drawable(ds), *_status(ds)]:
        value = ds.variables[name].isel({dim: index for dim, index in picks.items() if dim in ds[name].dims}).values
        words = _words(ds, name)
        row = _named(ds, name)
        rows.append(row | {"value": words.get(int(value), "-") if words else float(value)})
    return rows


def topic_of(color):
    """``step``, or the topic of TOPICS that an output belongs to."""
    return next((topic for topic, starts in TOPICS.items() if color.removeprefix("best_").startswith(starts)), "step")


def worked(worksheet):
    """A worksheet in its order: sections of lines, tables and remarks, numbers as people read them."""
    return {"title": worksheet.title, "sections": [
        {"title": section.title, "equation": section.equation, "items": [_item(item) for item in section.items]}
        for section in worksheet.sections
    ]}  # fmt: skip


def typed(words, topic="step"):
    """The command that explains a point in a terminal."""
    said = (f"{name}={_short(value)}" for name, value in words.items())
    return "sweep explain " + ("" if topic == "step" else f"--about {topic} ") + " ".join(shlex.quote(text) for text in said)


# -- a page without a server -----------------------------------------------------------------------------------------------


def slice_of(ds, at=None, outputs=None, where="", link_labels=29):
    """The part of ``ds`` that goes into a page: at labels, with some outputs, with ``where`` in its status, over ports."""
    names = list(outputs or views.drawable(ds))
    for name in names:
        selections.variable(ds, name, "columns")
    ds = selections.select(_over_ports(ds, at, names, link_labels)[[*names, *_status(ds)]], at)
    size = sum(4 * array.size for array in ds.data_vars.values())
    if size > LARGEST:
        view = views.View.of(ds, {})
        rest = sorted((dim for dim in ds.dims if dim not in (view.x, view.y)), key=lambda dim: -ds.sizes[dim])
        shown = " ".join(f"--at {dim}={_short(ds[dim].values[0])}" for dim in rest[:3])
        raise SweepError(f"the slice has {size / 1e6:.0f} MB of arrays, a page takes {LARGEST / 1e6:.0f}. Fix axes, such as {shown}, or name fewer --columns.")
    return _narrowed(ds.load(), where) if where else ds.load()


def common(ds, at=None):
    """The words that all points of the slice share, as one types them; None where the store does not tell them."""
    try:
        designs = Designs(ds)
    except SweepError:
        return None
    fixed = {name: label for name, label in (at or {}).items() if name in ds.dims and not isinstance(label, (list, tuple))}
    picks = views.positions(ds, fixed)
    ends = [designs.words({dim: index if dim in fixed else end for dim, index in picks.items()}) for end in (0, -1)]
    free = {dim for dim in ds.dims if dim not in fixed} | {LINK}
    return {name: value for name, value in ends[0].items() if name not in free and ends[1].get(name) == value}


def _over_ports(ds, at, names, link_labels):
    """``ds``, with an axis of ports from the kernels where it has none and an output depends on it."""
    if LINK in ds.dims or LINK in (at or {}) or link_labels < 2 or not set(names) <= set(quantities.OUTPUTS):
        return ds
    try:
        designs = Designs(ds)
    except SweepError:
        return ds
    if not any(LINK in array.dims for array in designs.over_ports(PORTS_OF, names).data_vars.values()):
        return ds
    steps = [float(f"{port:.4g}") for port in np.geomspace(*PORTS_OF, link_labels)]
    return designs.over_ports(np.unique([*steps, *([designs.port] if designs.port else [])]), names)


def _narrowed(ds, where):
    """``ds`` with the points that a condition leaves out marked in its status."""
    whole = blocks.Blocks(ds, whole=tuple(ds.dims))
    block = next(iter(whole))
    kept = np.asarray(block.evaluate(expressions.compile(where, whole.names, "where", whole.categories)), bool)
    status = block["status"] if "status" in ds.data_vars else np.zeros((1,) * kept.ndim, "u1")
    narrowed = np.where(block.full(kept), block.full(status), quantities.EXCLUDED).astype("u1")
    words = list(quantities.REASONS) + ["excluded"]
    about = {"long_name": "status", "flag_values": [*range(len(quantities.REASONS)), quantities.EXCLUDED], "flag_meanings": " ".join(words)}
    return ds.assign(status=(whole.dims, narrowed, ds["status"].attrs if "status" in ds.data_vars else about))


def arrays(ds):
    """Every output as base64 of little-endian float32, and the valid points: what the page computes its slices from."""
    codes = selections.allowed(ds)
    found = {}
    for name in ds.data_vars:
        found[str(name)] = {"dims": list(ds[name].dims), "data": _packed(ds[name].values, "<f4")}
    for name, coord in ds.coords.items():
        if _is_column(ds, coord):
            found[str(name)] = {"dims": list(coord.dims), "data": _packed(coord.values, "<f4")}
    return {"variables": found, "counts": None if codes is None else [int(code) for code in codes]}


def _packed(values, dtype):
    return base64.b64encode(np.ascontiguousarray(values, dtype).tobytes()).decode()


def _named(ds, name):
    attrs = ds[name].attrs
    return {"name": str(name), "label": attrs.get("long_name") or str(name).replace("_", " "), "unit": "" if attrs.get("units") in (None, "1") else attrs["units"]}


def _marks(ds):
    """The generations, for the headline map where the store has it."""
    if not set(marks.HEADLINE) <= set(ds.variables):
        return None
    found = [mark._asdict() for mark in marks.generations()]
    return {"x": marks.HEADLINE[0], "y": marks.HEADLINE[1], "points": found, "note": f"{marks.GENERATIONS_NOTE}filled with the port they ship with"}


def _is_column(ds, coord):
    """Whether a coordinate is numbers that move along an axis that is shown."""
    return coord.ndim == 1 and coord.name not in ds.dims and coord.dtype.kind in "fiu" and coord.dims[0] in views.axes_of(ds)


def _words(ds, name):
    return {int(code): word for code, word in selections.words(ds, name).items()} if "flag_meanings" in ds[name].attrs else None


def _status(ds):
    return ["status"] if "status" in ds.data_vars else []


def _item(item):
    if isinstance(item, Line):
        return {"kind": "line", "words": item.words, "formula": item.formula, "numbers": item.numbers, "shown": item.shown, "note": item.note, "equation": item.equation}
    if isinstance(item, Table):
        return {"kind": "table", "columns": item.columns, "rows": [[number(c) if isinstance(c, float) else c for c in row] for row in item.rows]}
    return {"kind": "remark", "text": item}


def _short(value):
    return f"{value:.10g}" if isinstance(value, (int, float, np.number)) and not isinstance(value, bool) else str(value)
