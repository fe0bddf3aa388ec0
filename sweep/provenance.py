"""What a store's numbers came from, and whether they may stand beside new ones.

Results are tied to content: the spec with presets and calibrations resolved to numbers, the source of the model (its syntax trees
without docstrings: a comment orphans no sweep), and the precision.  Other versions of packages, or another device, are written
down and said, not refused.
"""

import ast
import hashlib
import importlib.metadata
import json
import math
import platform
import socket
from datetime import datetime, timezone
from functools import cache

import numpy as np

from . import _kernels, values
from ._kernels import quantities
from .mesh import Axis, Input, Mesh
from .spec import Spec

SCHEMA = 1  # of the store's layout


def attributes(spec, block, device=""):
    """The attributes of a store that say where its numbers come from."""
    return {
        "schema": SCHEMA,
        "title": spec.title,
        "spec": canonical_json(spec),
        "spec_sha256": spec.sha256,
        "model_version": str(_kernels.model.model_version),
        "model_sha256": model_sha256(),
        "block_shape": list(block),
        "precision": spec.precision,
        "store_options": json.dumps(dict(spec.store or {}), sort_keys=True),
        "versions": versions(),
        "device": device,
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "complete": 0,
    }


def session(device):
    """Who writes, for the journal."""
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return {"host": socket.gethostname(), "device": device, "versions": versions(), "began": now}


def canonical_json(spec):
    """The spec as text; the axes in their order."""
    return json.dumps(spec.canonical(), separators=(",", ":"), allow_nan=False)


@cache
def versions():
    """The versions that a result may depend on, as one line."""
    found = [f"python {platform.python_version()}"]
    for name in ("overlap-sweep", "jax", "jaxlib", "numpy", "zarr", "xarray"):
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            pass
    return ", ".join(found)


@cache
def model_sha256():
    """A hash of the kernels' syntax trees without docstrings."""
    digest = hashlib.sha256()
    for path in sorted(_kernels.folder().glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            body = getattr(node, "body", None)
            if isinstance(body, list) and body and _is_text(body[0]):
                node.body = body[1:] or [ast.Pass()]
        digest.update(path.name.encode() + b"\0" + ast.unparse(tree).encode() + b"\0")
    return digest.hexdigest()


def describe(name):
    """The attributes of an output's variable."""
    row = quantities.OUTPUTS.get(name)
    if row is None:
        return {}
    about = {"units": row.unit, "long_name": row.long_name}
    if row.symbol:
        about["symbol"] = row.symbol
    if name != "status":
        about["ancillary_variables"] = "status"
    if row.kind == "category":
        flags = dict(enumerate(row.choices))
        if name == "status":
            flags[quantities.EXCLUDED] = "excluded"
        about["flag_values"], about["flag_meanings"] = list(flags), " ".join(flags.values())
    return about


def describe_product(variable, name, plan):
    """The attributes of a reduction's variable that was made of output ``name``."""
    row, reduction = quantities.OUTPUTS[name], plan.reduction
    over = ", ".join(reduction.over)
    if variable == f"best_{name}":
        way = "largest" if reduction.signs[name] < 0 else "smallest"
        return {"units": row.unit, "long_name": f"{way} {row.long_name} over {over}", "symbol": row.symbol}
    if variable.startswith("best_"):
        return {"units": "1", "long_name": f"position of the winner on {variable.removeprefix(f'best_{name}_')}", "position_on": variable.removeprefix(f"best_{name}_")}
    if variable.startswith("count_"):
        return {"units": "1", "long_name": f"candidates for {row.long_name} over {over}"}
    if variable.startswith("histogram_"):
        return {"units": "1", "long_name": f"candidates by {row.long_name}, in bins of {row.unit}"}
    return {"units": row.unit, "long_name": f"quantile of {row.long_name} over {over}", "relative_error_bound": 1 / 64}


def differences(attrs, spec):
    """How a stored sweep differs from a spec, one phrase each: by axis, constant, key, and version of the model."""
    return [*_spec_differences(json.loads(attrs["spec"]), json.loads(canonical_json(spec))), *model_differences(attrs)]


def model_differences(attrs):
    """How the model that a store was computed with differs from this one."""
    if attrs["model_sha256"] == model_sha256():
        return []
    ours, theirs = f"{_kernels.model.model_version} ({model_sha256()[:8]})", f"{attrs['model_version']} ({attrs['model_sha256'][:8]})"
    return [f"the model is {theirs} in the store, {ours} here"]


def obstacles(attrs, spec):
    """Why a store cannot be extended to a spec: the differences other than labels and outputs that are only new."""
    stored, wanted = json.loads(attrs["spec"]), json.loads(canonical_json(spec))
    found = [
        f"axis {name}: {_shown(sorted(map(str, gone)))} of the store is missing in the config"
        for name, axis in stored["axes"].items()
        if name in wanted["axes"]
        for gone in [set(axis["labels"]) - set(wanted["axes"][name]["labels"])]
        if gone
    ]
    found += [f"output {name} of the store is missing" for name in stored["outputs"] if name not in wanted["outputs"]]
    if not found:
        wanted = {**wanted, "outputs": stored["outputs"], **_narrowed(wanted, stored)}
        found = _spec_differences(stored, wanted)
    return found + model_differences(attrs)


def thaw(attrs, axes):
    """The Spec that a store was made from.  ``axes`` are its (name, labels, columns), in the order stored: the columns that are words
    live there alone.
    """
    content = json.loads(attrs["spec"])
    inputs = {}
    for name, quantity in quantities.INPUTS.items():
        if name in content["fixed"]:
            inputs[name] = Input(_number(quantity, content["fixed"][name]))
        elif name in content["tables"]:
            table = content["tables"][name]
            inputs[name] = Input(_numbers(quantity, table["values"]), tuple(table["dims"]))
        for axis, entry in content["axes"].items():
            if name in entry["inputs"]:
                inputs[name] = Input(_numbers(quantity, entry["inputs"][name]), (axis,))
    mesh_axes = []
    for name, labels, columns in axes:
        entry = content["axes"][name]
        place = {label: k for k, label in enumerate(labels.tolist())}
        order = np.array([place[_plain(label)] for label in entry["labels"]], int)
        quantity = quantities.INPUTS.get(name)
        units, long_name = (quantity.unit, quantity.long_name) if quantity else ("1", name)
        columns = {key: column[order] for key, column in columns.items()}
        own = [_plain(label) for label in entry["labels"]]
        own = np.array(own, dtype=object if any(isinstance(label, str) for label in own) else None)
        mesh_axes.append(Axis(name, own, units, long_name, columns))
    reduce = content["reduce"] and _tuples(content["reduce"])
    spec = Spec(
        content["title"], {}, dict(content.get("presets", {})), content["where"], tuple(content["allow"]), tuple(content["outputs"]), reduce,
        json.loads(attrs.get("store_options", "{}")), content["precision"],
    )  # fmt: skip
    spec.__dict__["mesh"] = Mesh(tuple(mesh_axes), inputs)
    return spec


def _spec_differences(stored, wanted):
    found = []
    for name in dict.fromkeys([*stored["axes"], *wanted["axes"]]):
        here, there = wanted["axes"].get(name), stored["axes"].get(name)
        if here is None or there is None:
            found.append(f"axis {name} is only in the {'store' if here is None else 'config'}")
        elif here["labels"] != there["labels"]:
            found.append(f"axis {name} has {_labels(there['labels'])} in the store, {_labels(here['labels'])} in the config")
        elif here != there:
            moved = [key for key in {**here["inputs"], **there["inputs"]} if here["inputs"].get(key) != there["inputs"].get(key)]
            found.append(f"along axis {name} the numbers of {', '.join(sorted(moved))} differ")
    for name in dict.fromkeys([*stored["fixed"], *wanted["fixed"]]):
        here, there = wanted["fixed"].get(name), stored["fixed"].get(name)
        if here != there and not any(name in axis["inputs"] for side in (stored, wanted) for axis in side["axes"].values()):
            found.append(f"{name} is {'not set' if there is None else there} in the store, {'not set' if here is None else here} in the config")
    for key in sorted({*stored, *wanted} - {"axes", "fixed", "title"}):
        here, there = wanted.get(key), stored.get(key)
        if here != there:
            found.append(f"{key}: {_shown(there)} in the store, {_shown(here)} in the config")
    if not found and list(stored["axes"]) != list(wanted["axes"]):
        found.append(f"the axes stand in another order: {', '.join(stored['axes'])} in the store")
    return found


def _narrowed(wanted, stored):
    """The axes and tables of ``wanted`` at the labels that ``stored`` has, in its order."""
    picks = {}
    for name, axis in wanted["axes"].items():
        labels = stored["axes"].get(name, axis)["labels"]
        picks[name] = [axis["labels"].index(label) for label in labels if label in axis["labels"]]
    axes = {
        name: {
            "labels": [axis["labels"][k] for k in picks[name]],
            "inputs": {key: [column[k] for k in picks[name]] for key, column in axis["inputs"].items()},
        }
        for name, axis in wanted["axes"].items()
    }
    tables = {}
    for name, table in wanted["tables"].items():
        numbers = np.array(table["values"], dtype=object)[np.ix_(*(picks[dim] for dim in table["dims"]))]
        tables[name] = {"dims": table["dims"], "values": numbers.tolist()}
    return {"axes": axes, "tables": tables}


def _labels(labels):
    shown = ", ".join(map(str, labels)) if len(labels) <= 4 else f"{labels[0]}, {labels[1]}, ... {labels[-1]}"
    return f"{len(labels)} labels ({shown})"


def _shown(value):
    text = json.dumps(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _plain(value):
    return math.inf if value == "inf" else value


def _number(quantity, value):
    return values.scalar(quantity, _plain(value), quantity.name)


def _numbers(quantity, entries):
    kind = np.int32 if quantity.kind in ("category", "flag") else np.float64
    flat = np.array(entries, dtype=object)
    return np.array([_number(quantity, value) for value in flat.ravel()], dtype=kind).reshape(flat.shape)


def _tuples(value):
    """JSON's lists as the tuples they were."""
    if isinstance(value, dict):
        return {key: _tuples(entry) for key, entry in value.items()}
    return tuple(_tuples(entry) for entry in value) if isinstance(value, list) else value


def _is_text(node):
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
