"""A stored spec written back as a config that runs anywhere and gives the same hash.

The spec in a store has every preset resolved to numbers.  Written back, the numbers of a table axis go into preset files
beside the config (``configs/presets/``, which are looked up first), so that labels stay names and no later edit of the
packaged presets can change what the config means.
"""

import json
from pathlib import Path

from . import presets, rules
from ._kernels import quantities
from .errors import SweepError


def write(spec, folder, store_options=None):
    """Write ``configs/sweep.yaml`` and its presets into ``folder``; ``spec`` is the canonical mapping.  Returns the config's path."""
    folder = Path(folder) / "configs"
    content, entries = config(spec, store_options)
    (folder / "presets").mkdir(parents=True, exist_ok=True)
    for table in entries:
        (folder / "presets" / f"{presets.TABLES[table]}.yaml").unlink(missing_ok=True)
        presets.write_presets(table, entries[table], folder)
    path = folder / "sweep.yaml"
    path.write_text(_yaml(content), encoding="utf-8")
    return path


def config(spec, store_options=None):
    """``(config, {table: {name: preset}})`` of a canonical spec."""
    axes, entries = {}, {}
    columns = {name: dict(axis["inputs"]) for name, axis in spec["axes"].items()}
    by_dtype = {}
    for quantity, table in spec.get("tables", {}).items():
        owner, dtype = table["dims"][0], table["dims"][-1]
        if len(table["dims"]) != 2 or owner not in presets.TABLES or dtype != "dtype":
            raise SweepError(f"{quantity} stands on {', '.join(table['dims'])} together, which no config writes back. Keep the one you ran.")
        words = spec["axes"]["dtype"]["labels"]
        by_dtype.setdefault(owner, {})[quantity] = [dict(zip(words, row)) for row in table["values"]]
    for name, axis in spec["axes"].items():
        labels, inputs = axis["labels"], columns[name]
        if name in presets.TABLES:
            axes[name] = labels
            for position, label in enumerate(labels):
                numbers = {key: values[position] for key, values in {**inputs, **by_dtype.get(name, {})}.items()}
                entries.setdefault(name, {})[label] = _entry(name, label, numbers)
        elif set(inputs) <= {name} and name in quantities.INPUTS:
            axes[name] = labels
        else:
            axes[name] = {"labels": labels, **inputs}
    fixed = dict(spec["fixed"])
    for table, name in spec.get("presets", {}).items():
        fixed[table] = name
        numbers = {key: spec["fixed"][key] for key in _numbers(table, name) if key in spec["fixed"]}
        entries.setdefault(table, {})[name] = _entry(table, name, numbers)
    reduce = spec.get("reduce")
    content = {
        "title": spec.get("title"),
        "axes": axes,
        "fixed": fixed,
        "where": spec.get("where"),
        "allow": spec.get("allow"),
        "outputs": [name for name in spec["outputs"] if name != "status"],
        "reduce": rules.written(reduce) if reduce else None,
        "store": store_options,
        "precision": spec.get("precision"),
    }
    return {key: value for key, value in content.items() if value}, entries


def inputs_at(spec, positions):
    """Every input of one point as a number or word: ``positions`` is the place on each axis."""
    inputs = dict(spec["fixed"]) | dict(spec.get("presets", {}))
    for axis, position in positions.items():
        inputs |= {name: column[position] for name, column in spec["axes"][axis]["inputs"].items()}
        if axis in presets.TABLES:
            inputs[axis] = spec["axes"][axis]["labels"][position]
    for name, table in spec.get("tables", {}).items():
        value = table["values"]
        for axis in table["dims"]:
            value = value[positions[axis]]
        inputs[name] = value
    for table in presets.TABLES:  # what the preset says itself need not be said again
        for name, value in _numbers(table, inputs.get(table)).items() if table in inputs else ():
            value = value.get(inputs.get("dtype", quantities.INPUTS["dtype"].default)) if isinstance(value, dict) else value
            if inputs.get(name) == value:
                inputs.pop(name, None)
    return {name: _number(value) for name, value in inputs.items() if value is not None}


def sources(spec):
    """(table, name, source) of every preset that the spec names and that is still known here."""
    named = [(table, name) for table, name in spec.get("presets", {}).items()]
    named += [(table, label) for table in presets.TABLES if table in spec.get("axes", {}) for label in spec["axes"][table]["labels"]]
    found = []
    for table, name in named:
        try:
            found.append((table, name, presets.find(table, name).source))
        except SweepError:
            found.append((table, name, ""))
    return found


def _numbers(table, name):
    try:
        return presets.find(table, name).numbers
    except SweepError:
        return {}


def _entry(table, name, numbers):
    try:
        source = presets.find(table, name).source
    except SweepError:
        source = ""
    words = {key: value for key, value in numbers.items() if value is not None}
    return {**{key: _number(value) for key, value in words.items()}, "source": source or "the sweep that this config was written from"}


def _number(value):
    """JSON has the word inf for infinity."""
    if isinstance(value, dict):
        return {key: _number(item) for key, item in value.items()}
    return float("inf") if value == "inf" else value


def _yaml(content):
    """YAML of two levels, each value in flow style (JSON is YAML 1.2; infinity is .inf there)."""
    lines = []
    for key, value in content.items():
        if isinstance(value, dict) and key in ("axes", "fixed"):
            lines.append(f"{key}:")
            lines += [f"  {name}: {_flow(item)}" for name, item in value.items()]
        else:
            lines.append(f"{key}: {_flow(value)}")
        lines.append("")
    return "\n".join(lines)


def _flow(value):
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_flow(item) for item in value) + "]"
    if value == "inf" or value == float("inf"):
        return ".inf"
    return json.dumps(value, ensure_ascii=False)
