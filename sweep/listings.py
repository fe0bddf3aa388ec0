"""What can be named, as rows of a table: presets with their numbers and sources, quantities with their defaults."""

from . import presets, values
from ._kernels import quantities
from .errors import SpecError, did_you_mean

TITLES = ("source", "source_of", "note", "aliases", "facts")
BRIEF = {
    "models": ("layers", "hidden", "heads", "experts", "vocab"),
    "accelerators": ("peak_tflops", "hbm_gb", "hbm_gbytes_per_s", "scaleup_domain", "scaleup_gbytes_per_s", "link_gbps"),
}


def rows(table=None, names=(), everything=False):
    """Rows of a listing; without a table, what listings there are.  With names, every number of those and its source."""
    singular = {plural: key for key, plural in presets.TABLES.items()}
    if table is None:
        found = [{"listing": plural, "entries": len(presets.read_table(key))} for key, plural in presets.TABLES.items()]
        found += [{"listing": "inputs", "entries": len(quantities.INPUTS)}, {"listing": "outputs", "entries": len(quantities.OUTPUTS)}]
        return found + [{"listing": "configs", "entries": len(configs())}]
    table = presets.TABLES.get(table, table if table.endswith("s") else f"{table}s")
    if table in singular:
        return _presets(table, singular[table], names, everything)
    if table in ("inputs", "outputs"):
        known = quantities.INPUTS if table == "inputs" else quantities.OUTPUTS
        return [_quantity(known, name, table) for name in names or known]
    if table == "configs":
        return configs()
    raise SpecError(f"sweep presets: {table!r} is no listing. {did_you_mean(table, [*singular, 'inputs', 'outputs', 'configs'])}")


def configs():
    """Every config that a name finds, with its title."""
    found = {}
    for folder in presets.config_folders():
        for path in sorted(folder.glob("*.yaml")):
            content = presets.read_yaml(path)
            title = content.get("title", "") if isinstance(content, dict) else ""
            found.setdefault(path.stem, {"name": path.stem, "title": title, "file": str(path)})
    return list(found.values())


def _presets(table, key, names, everything):
    if names:
        return [row for name in names for row in _numbers(presets.find(key, name))]
    entries = presets.read_table(key).values()
    every = dict.fromkeys(name for preset in entries for name in preset.numbers)
    columns = [c for c in BRIEF.get(table, every) if c in every] if not everything else list(every)
    found = []
    for preset in entries:
        row = {"name": preset.name, **{c: _shown(c, preset.numbers.get(c), everything) for c in columns}}
        row |= {"aliases": ", ".join(preset.aliases)} if not everything else {word: getattr(preset, word) for word in TITLES}
        found.append(row)
    return found


def _numbers(preset):
    for name, number in preset.numbers.items():
        source = preset.source_of.get(name, preset.source)
        unit = quantities.INPUTS[name].unit
        for dtype, value in number.items() if isinstance(number, dict) else [("", number)]:
            shown = values.readable(quantities.INPUTS[name], value)
            yield {"preset": preset.name, "quantity": name, "dtype": dtype, "value": shown, "unit": unit, "source": source}
    for name, fact in preset.facts.items():
        yield {"preset": preset.name, "quantity": f"({name})", "dtype": "", "value": str(fact), "unit": "", "source": preset.source}
    if preset.note:
        yield {"preset": preset.name, "quantity": "note", "dtype": "", "value": preset.note, "unit": "", "source": ""}


def _quantity(known, name, table):
    quantity = known.get(name)
    if quantity is None:
        raise SpecError(f"sweep presets {table}: {name!r} is not among them. {did_you_mean(name, known)}")
    row = {"name": name, "unit": quantity.unit}
    if table == "inputs":
        row["default"] = quantity.default if quantity.default is not None else "-"
        choices = ", ".join(quantity.choices)
        row["what"] = quantity.long_name + (f" ({choices})" if choices else "")
        return {**row, "note": quantity.note}
    return {**row, "better": quantity.better, "what": quantity.long_name, "words": ", ".join(quantity.choices)}


def _shown(name, number, everything):
    if number is None or isinstance(number, dict):
        return number if everything or number is None else " ".join(f"{k} {v:g}" for k, v in number.items())
    return values.readable(quantities.INPUTS[name], number)
