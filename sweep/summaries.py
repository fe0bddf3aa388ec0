"""What a store holds, for `sweep info`: every axis, constant and variable with its unit, and where it all comes from."""

import json
import math

from . import recipes, tables
from ._kernels import quantities


def summary(ds):
    """A Dataset from ``open_store`` (or any with our attributes) as plain values."""
    spec = json.loads(ds.attrs.get("spec") or "{}")
    order = [name for name in spec.get("axes", {}) if name in ds.dims]
    moving = {name for axis in spec.get("axes", {}).values() for name in axis.get("inputs", ())} | set(spec.get("tables", {}))
    columns = {name: array for name, array in ds.coords.items() if name not in ds.dims}
    return {
        "title": ds.attrs.get("title", ""),
        "store": ds.encoding.get("source", ""),
        "complete": bool(ds.attrs.get("complete", True)),
        "points": math.prod(ds.sizes.values()),
        "axes": [_axis(ds[name], columns) for name in [*order, *(name for name in ds.dims if name not in order)]],
        "constants": [_constant(name, value, spec) for name, value in spec.get("fixed", {}).items()],
        "defaults": {name: q.default for name, q in quantities.INPUTS.items() if name not in {*spec.get("fixed", {}), *moving} and q.default is not None},
        "outputs": [_output(name, array) for name, array in ds.data_vars.items()],
        "sources": [{"preset": f"{table} {name}", "source": source or "not a preset here"} for table, name, source in _sources(spec)],
        "where": spec.get("where"),
        "allow": spec.get("allow", []),
        "precision": ds.attrs.get("precision", ""),
        "model_version": ds.attrs.get("model_version", ""),
        "model_sha256": ds.attrs.get("model_sha256", ""),
        "spec_sha256": ds.attrs.get("spec_sha256", ""),
        "versions": ds.attrs.get("versions", ""),
        "device": ds.attrs.get("device", ""),
        "created": ds.attrs.get("created", ""),
    }


def text(told):
    """A summary for reading; ``told["progress"]``, if there, is that of a store on a file system."""
    state = "complete" if told["complete"] else "not finished: the same `sweep run` goes on"
    head = [told["title"] or told["store"], f"{told['points']:,} points, {state}"]
    if "progress" in told:
        there = told["progress"]
        missing = f", {there['blocks_missing']:,} of them missing" if there["blocks_missing"] else ""
        head.append(f"{there['blocks']:,} blocks{missing}, {there['bytes_on_disk'] / 1e6:.1f} MB in {there['files']:,} files")
    head.append("")
    tail = ["defaults: " + ", ".join(f"{name} {tables.short(value)}" for name, value in told["defaults"].items()), ""]
    tail += [f"where {told['where']}"] if told["where"] else []
    tail += [f"allow {', '.join(told['allow'])}"] if told["allow"] else []
    tail += [f"model {told['model_version']} ({told['model_sha256'][:12]}), spec {told['spec_sha256'][:12]}, {told['precision']}"]
    tail += [f"created {told['created']} on {told['device']}", told["versions"]]
    parts = [tables.render(told[key]) for key in ("axes", "constants", "sources", "outputs") if told[key]]
    return "\n".join([*head, "\n\n".join(parts), "", *tail])


def _axis(labels, columns):
    values = labels.values.tolist()
    shown = [tables.short(value) for value in values]
    if len(shown) > 8:
        shown = [*shown[:3], "...", *shown[-2:]]
    moving = [name for name, array in columns.items() if array.dims == labels.dims]
    return {
        "axis": labels.name, "values": len(values), "labels": " ".join(shown), "unit": labels.attrs.get("units", ""),
        "what": labels.attrs.get("long_name", ""), "moves": ", ".join(moving),
    }  # fmt: skip


def _constant(name, value, spec):
    quantity = quantities.INPUTS.get(name)
    origin = [f"{table} {preset}" for table, preset in spec.get("presets", {}).items() if _gives(table, preset, name)]
    return {
        "constant": name, "value": value, "unit": quantity.unit if quantity else "",
        "what": quantity.long_name if quantity else "", "from": origin[-1] if origin else "the config",
    }  # fmt: skip


def _sources(spec):
    """Where the presets that a spec names have their numbers from; nothing for a dataset that carries no spec."""
    return recipes.sources(spec) if spec else []


def _gives(table, preset, name):
    from . import presets

    found = presets.read_table(table).get(preset)
    return found is not None and name in found.numbers


def _output(name, array):
    return {
        "output": name, "dims": ", ".join(map(str, array.dims)) or "one value", "type": array.dtype.str[1:],
        "unit": array.attrs.get("units", ""), "what": array.attrs.get("long_name", ""),
    }  # fmt: skip
