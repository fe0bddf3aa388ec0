"""From what a config says to a mesh: axes, groups, presets and constants, each quantity decided once.

A quantity may be said in several places; the most particular wins:

    written out (an axis, a group's column, a constant)  >  stack  >  fabric  >  accelerator  >  model  >  default

A preset that lacks a quantity which its neighbours on the axis have takes the next place's value.  Written out twice is an
error, and so are both of a pair that determine each other (dp and gpus, micro_batches and global_batch).
"""

import re
from typing import NamedTuple

import numpy as np

from . import mistakes, presets, values
from ._kernels import quantities
from .errors import SpecError, did_you_mean
from .mesh import Axis, Input, Mesh

PAIRS = (("gpus", "dp", "gpus = dp tp cp pp"), ("global_batch", "micro_batches", "global_batch = dp micro_batch micro_batches"))
SHAPE = ("layers", "hidden", "heads")  # ffn, kv_heads, head_dim and vocab have defaults
MACHINE = ("peak_tflops", "hbm_gb", "hbm_gbytes_per_s", "scaleup_domain", "scaleup_gbytes_per_s", "link_gbps")
UNCALIBRATED = {"gemm_efficiency": 0.4, "gemm_half_flop": 0.0}
"""For an accelerator without calibrated coefficients beside one that has them: the default of `efficiency`."""


class Said(NamedTuple):
    """A value in one place: array over ``dims`` (NaN where a preset lacks it) or a Python number."""

    values: object
    dims: tuple
    place: str


def build(axes, fixed, at):
    """The Mesh of a config's ``axes`` and ``fixed``; ``at(section, name)`` names a key's place in errors."""
    written, tables, labels = {}, {}, {}
    for name, value in axes.items():
        _read_axis(str(name), value, at("axes", name), written, tables, labels)
    for name, value in fixed.items():
        _read_constant(str(name), value, at("fixed", name), axes, written, tables)
    _refuse_pairs(written)
    mistakes.refuse(written, tables)
    inputs = _decide(written, tables)
    _require(inputs, tables, at("", ""))
    return Mesh(tuple(_axis(name, labels[name], inputs, written, tables) for name in labels), inputs)


# -- reading -----------------------------------------------------------------------------------------------------------


def _read_axis(name, value, place, written, tables, labels):
    quantity = quantities.INPUTS.get(name)
    group = isinstance(value, dict) and not set(value) & set(values.RULES) and (quantity is None or name in value)
    if group:
        labels[name] = _read_group(name, value, place, written, tables)
    elif name in presets.TABLES:
        words = values.sequence(value, place)
        tables[name] = ([presets.find(name, word, place) for word in words], (name,), place)
        values.distinct([preset.name for preset in tables[name][0]], place)
        labels[name] = values.words_of(words)
    elif quantity is not None:
        labels[name], numbers = values.labels(quantity, value, place)
        _write(written, name, Said(numbers, (name,), place))
    else:
        hint = did_you_mean(name, [*presets.TABLES, *quantities.INPUTS])
        raise SpecError(f"{place}: {name!r} is no quantity. {hint}")


def _read_group(name, columns, place, written, tables):
    """A group: columns of one length that move together.  Its labels are the column of its own name, or made of all."""
    _usable_name(name, columns, place)
    lengths, parts = {}, []
    for column, items in columns.items():
        here = f"{place}.{column}"
        quantity = quantities.INPUTS.get(column)
        if column == "labels":
            items = values.sequence(items, here)
        elif column in presets.TABLES:
            items = values.sequence(items, here)
            _refuse_table(column, here, tables)
            tables[column] = ([presets.find(column, word, here) for word in items], (name,), here)
            parts.append([str(item) for item in items])
        elif quantity is None:
            raise SpecError(f"{here}: {column!r} is no quantity. {did_you_mean(column, [*presets.TABLES, *quantities.INPUTS])}")
        else:
            items = values.sequence(items, here, quantity)
            numbers = [values.scalar(quantity, item, here) for item in items]
            kind = np.int32 if quantity.kind in ("category", "flag") else np.float64
            _write(written, column, Said(np.array(numbers, dtype=kind), (name,), here))
            shown = [values.readable(quantity, number) for number in numbers]
            parts.append([str(s) if quantity.kind == "category" else f"{column}={s:g}" for s in shown])
        lengths[column] = len(items)
    if len(set(lengths.values())) != 1:
        said = ", ".join(f"{column} has {length}" for column, length in lengths.items())
        raise SpecError(f"{place}: the columns of a group move together and need one length, but {said}. Write equally long lists.")
    own = columns.get("labels", columns.get(name))
    if own is not None and name in quantities.INPUTS and quantities.INPUTS[name].kind != "category":
        return values.labels(quantities.INPUTS[name], own, place)[0]
    if own is not None and all(type(label) is int for label in own):
        values.distinct(own, place)
        return np.array(own)
    words = [str(word) for word in values.sequence(own, place)] if own is not None else [" ".join(row) for row in zip(*parts)]
    values.distinct(words, place)
    return values.words_of(words)


def _usable_name(name, columns, place):
    if not columns:
        raise SpecError(f"{place}: the group is empty. Write equally long lists, such as {{tp: [1, 8], pp: [4, 1]}}.")
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name) or name.startswith(("best_", "count_")) or name == "status":
        raise SpecError(f"{place}: {name!r} cannot name an axis. Write a word of letters, digits and _ such as layout.")
    if (name in quantities.OUTPUTS or name in quantities.INPUTS or name in presets.TABLES) and name not in columns:
        raise SpecError(f"{place}: {name!r} is a quantity, and the group has no column of that name. Call the group otherwise, such as layout.")


def _read_constant(name, value, place, axes, written, tables):
    if name in axes:
        raise SpecError(f"{place}: {name} is an axis too. Keep one of the two.")
    if name in presets.TABLES:
        if not isinstance(value, str):
            raise SpecError(f"{place}: {value!r} is no name of a preset. Type: sweep presets {presets.TABLES[name]}.")
        _refuse_table(name, place, tables)
        tables[name] = ([presets.find(name, value, place)], (), place)
        return
    quantity = quantities.INPUTS.get(name)
    if quantity is None:
        hint = did_you_mean(name, [*presets.TABLES, *quantities.INPUTS])
        if name in quantities.OUTPUTS:
            hint = "It is an output; it cannot be set."
        raise SpecError(f"{place}: {name!r} is no quantity. {hint}")
    _write(written, name, Said(values.scalar(quantity, value, place), (), place))


def _write(written, name, said):
    if name in written:
        raise SpecError(f"{said.place}: {name} stands in {_tail(written[name].place)} too. Keep one of the two.")
    written[name] = said


def _refuse_table(name, place, tables):
    if name in tables:
        raise SpecError(f"{place}: {name} stands in {_tail(tables[name][2])} too. Keep one of the two.")


def _refuse_pairs(written):
    for one, other, law in PAIRS:
        if one in written and other in written:
            raise SpecError(f"{written[other].place}: {one} and {other} are both given, and {law}. Keep one of the two.")
    shape = [name for name in SHAPE if name in written]
    if "params" in written and shape:
        raise SpecError(f"{written['params'].place}: params stands for a whole shape, but {shape[0]} is given too. Keep one of the two.")


# -- deciding ----------------------------------------------------------------------------------------------------------


def _decide(written, tables):
    """Every quantity that is set -> Input, in the dictionary's order."""
    inputs = {}
    dtype = written.get("dtype") or Said(quantities.encode(quantities.INPUTS["dtype"], "bf16"), (), "")
    for name, quantity in quantities.INPUTS.items():
        places = [_from_table(name, *tables[t], dtype) for t in presets.TABLES if t in tables]
        said = [s for s in [*places, written.get(name)] if s is not None]
        if not said:
            continue
        decided = said.pop()
        while _lacking(decided) and said:
            decided = _fill(decided, said.pop())
        if _lacking(decided):
            decided = _default(name, quantity, decided, tables, dtype)
        if quantity.kind in ("category", "flag") and decided.dims:
            decided = decided._replace(values=decided.values.astype(np.int32))
        inputs[name] = Input(decided.values, decided.dims)
    return inputs


def _from_table(name, entries, dims, place, dtype):
    """What a table says of a quantity, or None.  Without a value for a dtype, all but the peak take that of bf16."""
    if not any(name in preset.numbers for preset in entries):
        return None
    words = quantities.INPUTS["dtype"].choices
    by_dtype = any(isinstance(preset.numbers.get(name), dict) for preset in entries)
    codes = [int(code) for code in np.atleast_1d(dtype.values)]

    def value(preset, code):
        number = preset.numbers.get(name, np.nan)
        if isinstance(number, dict):
            return number.get(words[code], np.nan if name == "peak_tflops" else number.get("bf16", np.nan))
        return number

    if not by_dtype or not dtype.dims:
        table = np.array([value(preset, codes[0]) for preset in entries], dtype=np.float64)
        whole = quantities.INPUTS[name].kind in ("category", "flag") and not np.isnan(table).any()
        if dims:
            return Said(table, dims, place)
        return Said(int(table[0]) if whole else float(table[0]), dims, place)
    if dtype.dims == dims:  # one group names both: they move together
        return Said(np.array([value(preset, code) for preset, code in zip(entries, codes)]), dims, place)
    table = np.array([[value(preset, code) for code in codes] for preset in entries], dtype=np.float64)
    return Said(table if dims else table[0], dims + dtype.dims, place)


def _lacking(said):
    return bool(np.isnan(said.values).any())


def _fill(decided, below):
    """``decided`` with its gaps taken from ``below``, over the axes of both."""
    dims = decided.dims + tuple(dim for dim in below.dims if dim not in decided.dims)
    upper = np.reshape(decided.values, np.shape(decided.values) + (1,) * (len(dims) - len(decided.dims)))
    order = sorted(range(len(below.dims)), key=lambda k: dims.index(below.dims[k]))
    sizes = [below.values.shape[below.dims.index(dim)] if dim in below.dims else 1 for dim in dims]
    lower = np.reshape(np.transpose(below.values, order) if below.dims else below.values, sizes)
    return Said(np.where(np.isnan(upper), lower, upper), dims, decided.place)


def _default(name, quantity, decided, tables, dtype):
    default = UNCALIBRATED.get(name, quantity.default)
    if default is not None:
        number = quantities.encode(quantity, default) if quantity.kind == "category" else default
        filled = np.where(np.isnan(decided.values), number, decided.values)
        return decided._replace(values=filled if decided.dims else filled.item())
    for table, (entries, _, place) in tables.items():
        for preset in entries:
            number = preset.numbers.get(name)
            if number is None and table in ("model", "accelerator"):
                raise SpecError(f"{place}: {preset.name} has no {name}. State {name}, or leave {preset.name} out.")
            if isinstance(number, dict):
                words = [quantities.INPUTS["dtype"].choices[int(code)] for code in np.atleast_1d(dtype.values)]
                for word in words:
                    if word not in number:
                        known = ", ".join(number)
                        raise SpecError(
                            f"{place}: {preset.name} has no {name} at {word}, only at {known}. "
                            f"Leave the combination out (a group pairs accelerators with dtypes), or state {name}."
                        )
    raise SpecError(f"{decided.place}: {name} is known for some of the entries only. State {name}.")


def _require(inputs, tables, place):
    where = f"{place}: " if place else ""
    if "model" in tables and "params" in inputs:
        raise SpecError(f"{where}model and params are both given. Keep one of the two.")
    missing = [name for name in SHAPE if name not in inputs]
    if missing and "params" not in inputs:
        what = "there is no model" if len(missing) == len(SHAPE) else f"the model lacks {', '.join(missing)}"
        raise SpecError(f"{where}{what}. Write model: llama-3-70b (names: sweep presets models), or params: 70e9.")
    missing = [name for name in MACHINE if name not in inputs]
    if missing:
        what = "there is no accelerator" if len(missing) == len(MACHINE) else f"the accelerator lacks {', '.join(missing)}"
        raise SpecError(f"{where}{what}. Write accelerator: h100 (names: sweep presets accelerators), or state each of them.")


# -- axes --------------------------------------------------------------------------------------------------------------


def _axis(name, labels, inputs, written, tables):
    """The Axis with the columns that move along it alone."""
    columns = {}
    for table, (entries, dims, _) in tables.items():
        if dims == (name,) and table != name:
            columns[table] = values.words_of([preset.name for preset in entries])
    for key, entry in inputs.items():
        if entry.dims == (name,) and key != name:
            quantity = quantities.INPUTS[key]
            columns[key] = values.words_of([quantity.choices[c] for c in entry.values]) if quantity.kind == "category" else entry.values
    quantity = quantities.INPUTS.get(name)
    if quantity is not None:
        return Axis(name, labels, quantity.unit, quantity.long_name, columns)
    return Axis(name, labels, "1", name if name in presets.TABLES else f"group {name}", columns)


def _tail(place):
    return place.split(", ")[-1]
