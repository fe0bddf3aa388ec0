"""The model's step time of measured runs, all rows in one call.

Rows lie on one sample axis: every input is an array of one value per run, and the kernels run once in NumPy.  Machine,
fabric and stack are presets; ``coefficients`` in their place let a fit try other numbers.

A measured run is never disqualified: layers that do not divide and models that should not fit are predicted all the same, so
the step is taken from the core of the model, before what cannot run is masked.
"""

import math
from collections import namedtuple

import numpy as np

from . import presets
from ._kernels import model, quantities

Prediction = namedtuple("Prediction", "step_s exposed_dp_s")
TABLES = ("accelerator", "fabric", "stack")


def predict(runs, coefficients=None):
    """Seconds of a step of each run, as an array.  ``coefficients``: {(table, name): {quantity: number}} in place of presets."""
    return predict_inputs(inputs(runs, coefficients))


def predict_inputs(given):
    """Seconds of a step of ``model.Inputs`` whose arrays lie on one sample axis."""
    parts = model.prepare(given)
    with np.errstate(all="ignore"):
        core = model.combine(given, parts)
    return np.asarray(core.step_time_s, dtype=float)


def inputs(runs, coefficients=None, **override):
    """``model.Inputs`` of the runs on one sample axis; ``override``: quantities set for all of them."""
    return model.Inputs(**columns(runs, coefficients, **override))


def columns(runs, coefficients=None, **override):
    """name -> array of one value per run, of every quantity that any run or preset gives."""
    rows = [settings(run, coefficients) | override for run in runs]
    names = {name for row in rows for name in row}
    table = {}
    for name in names:
        quantity = quantities.INPUTS[name]
        default = quantity.default
        if quantity.kind == "category":
            default = quantities.encode(quantity, default)
        values = [_number(quantity, row[name]) if name in row else _default(name, row, default) for row in rows]
        table[name] = np.array(values, dtype=float)
    return table


def settings(run, coefficients=None):
    """One run's quantities: presets of accelerator, fabric and stack, then what the run itself says."""
    coefficients = coefficients or {}
    dtype = run.inputs.get("dtype", "bf16")
    said = {}
    for table in TABLES:
        name = getattr(run, table)
        given = coefficients.get((table, name))
        preset = given if given is not None else presets.find(table, name).numbers if name else {}
        for quantity, value in preset.items():
            said[quantity] = _by_dtype(value, dtype)
    said = {name: value for name, value in said.items() if value is not None}
    said.update(run.inputs)
    return said


def _by_dtype(value, dtype):
    """The number at the dtype of a quantity that depends on it; the 16-bit one where the dtype is missing."""
    return value.get(dtype, value.get("bf16")) if isinstance(value, dict) else value


def _number(quantity, value):
    return quantities.encode(quantity, value) if isinstance(value, str) else value


def _default(name, row, default):
    """What stands in for an input that one run gives and another does not: inputs that the kernels would derive."""
    if name == "head_dim":
        return row["hidden"] / row["heads"]
    if name == "kv_heads":
        return row["heads"]
    if name == "shard_group":
        return row["gpus"] / (row["tp"] * row["pp"])
    if name == "ffn":
        return 4 * row["hidden"]
    if default is None:
        return math.nan
    return default
