"""``sweep why``: the answer of a stored sweep to "why about 400 Gb/s", generation by generation, read back from the store.

Nothing is worked out again: requirements, tokens and FLOP rates are those of the store, only the ports that generations ship
with are presets'.  Of every axis that is not asked about, the answer takes the dictionary's default (of dp the largest,
where the law is at its limit) and says so.  Where no stored point has just the window asked for, the nearest is rescaled by
the law, in which the requirement is in proportion to 1/tokens.
"""

import math
import textwrap
from typing import NamedTuple

import numpy as np

from . import presets, selections, tables
from ._kernels import quantities
from .errors import StoreError, SweepError
from .worksheets import number

TOKENS = 8192.0
NEEDED = ("first_order_link_gbps", "required_link_gbps", "tokens_per_domain", "achieved_tflops")
WINDOW = ("tp", "cp", "seq_len", "micro_batch")  # axes among which the window of TOKENS is looked for
REFERENCE = "llama-3-70b"


class Row(NamedTuple):
    """One generation.  Gb/s at the window asked for; ``tokens_*``: what its own port asks for; ``at``: the stored point."""

    accelerator: str
    achieved_tflops: float
    first_order_gbps: float
    required_gbps: float
    least_gbps: float  # over the models of the store
    most_gbps: float
    ships_gbps: float
    tokens_first_order: float
    tokens_required: float
    scale: float  # stored tokens over those asked for; 1 where the store has the point
    at: dict
    binding: str


class Answer:
    """``rows`` by generation; ``text()``, ``render(format)``, ``commands()``.  ``fixed``: what the slice holds."""

    def __init__(self, path, rows, fixed, model, tokens, ds):
        self.path, self.rows, self.fixed, self.model, self.tokens = path, rows, fixed, model, tokens
        self.axes = tuple(str(name) for name in ds.dims)
        points = math.prod(ds.sizes.values())
        self.facts = f"{points:,} points, {len(ds.data_vars)} outputs over {', '.join(self.axes)}"

    def table(self):
        """Rows as mappings, for tables and programs."""
        return [row._asdict() | {"at": _labels(row.at)} for row in self.rows]

    def render(self, format="table"):
        """The answer as text, or its table as csv or json."""
        return self.text() if format == "table" else tables.render(self.table(), format)

    def text(self):
        """For people."""
        heads = (
            "generation",
            "TFLOP/s",
            "first order",
            "full model",
            "all models",
            "ships with",
            "its port asks for",
            "stored at",
        )
        cells = [
            (row.accelerator, number(row.achieved_tflops), number(row.first_order_gbps), number(row.required_gbps),
             f"{number(row.least_gbps)} to {number(row.most_gbps)}", number(row.ships_gbps),
             f"{number(round(row.tokens_first_order))} ({_whole(row.tokens_required)})", _labels(row.at))
            for row in self.rows
        ]  # fmt: skip
        return "\n".join([
            f"Required Gb/s per GPU at {number(self.tokens)} tokens per scale-up domain in the window",
            f"({self._slice()}).",
            "",
            tables.render([dict(zip(heads, row)) for row in cells]),
            "",
            "TFLOP/s: achieved while computing. Its port asks for: tokens per domain by the law, in brackets by the full model.",
            *self._remarks(),
            "",
            textwrap.fill(self._why(), 110),
            *[f"  {self._sentence(row)}" for row in self.rows],
            "",
            f"Stored in {self.path}: {self.facts}. Try next:",
            *[f"  {command}" for command in self.commands()],
        ])  # fmt: skip

    def commands(self):
        """Three commands that go on from here."""
        middle = next((row for row in self.rows if row.accelerator == "h100"), self.rows[len(self.rows) // 2])
        point = {"model": self.model, "accelerator": middle.accelerator, **self.fixed, **middle.at}
        words = " ".join(
            f"{name}={_short(value)}" for name, value in point.items() if name in _EXPLAINED and value not in (None, "")
        )
        labels = {name: value for name, value in point.items() if name in self.axes and name != "seq_len"}
        at = " ".join(f"--at {name}={_short(value)}" for name, value in labels.items())
        return (
            f"sweep explain {words} --draw outputs/step.png",
            f'sweep query {self.path} --where "required_link_gbps <= {middle.ships_gbps:g}" --group-by accelerator --count',
            f"sweep map {self.path} --x link_gbps --y seq_len --color exposed_fraction {at} -o outputs/exposed.png",
        )

    def _slice(self):
        return ", ".join(part for part in (self.model, _labels(self.fixed)) if part)

    def _why(self):
        first, last = self.rows[0], self.rows[-1]
        rate, port = last.achieved_tflops / first.achieved_tflops, last.ships_gbps / first.ships_gbps
        return (
            "What sets it: gradient bits over the seconds that the domain's tokens take to compute. Model size cancels. From "
            f"{first.accelerator} to {last.accelerator} the FLOP rate grew {rate:.3g} times and the port {port:.3g} times; tokens per "
            "domain make up for the rest. The full model's window is longer than the law's (attention FLOP, exposed scale-up "
            "traffic), its bytes more (embeddings, latency):"
        )

    def _sentence(self, row):
        bits = 4 * self.fixed.get("grad_bytes", quantities.INPUTS["grad_bytes"].default)
        change = row.required_gbps / row.first_order_gbps - 1 if row.first_order_gbps else math.nan
        full = f"the full model asks for {100 * abs(change):.0f} % {'less' if change < 0 else 'more'}"
        enough = row.ships_gbps / row.required_gbps
        port = f"its {row.ships_gbps:g} Gb/s are " + (
            f"{enough:.2f} times that" if enough >= 1 else f"{100 * enough:.0f} % of that"
        )
        other = f"; {row.binding} asks for more than the reduction" if row.binding not in ("", "dp", "none") else ""
        return f"{row.accelerator}: {bits:g} x {number(row.achieved_tflops)} TFLOP/s / {number(self.tokens)}; {full}; {port}{other}."

    def _remarks(self):
        scaled = [row for row in self.rows if abs(row.scale - 1) > 1e-6]
        if not scaled:
            return []
        said = ", ".join(f"{row.accelerator} {number(row.scale * self.tokens)}" for row in scaled)
        return [f"Rescaled by the law (in proportion to 1/tokens) from the nearest stored window: {said} tokens."]


_EXPLAINED = ("model", "accelerator", "tp", "dp", "seq_len", "micro_batch", "efficiency", "bucket_bytes", "grad_bytes")


def answer(store, tokens=TOKENS, model=None):
    """The :class:`Answer` of a store: a path, a name in outputs/, or an open Dataset.

    ``tokens``: of a scale-up domain in the window; ``model``: the reference (default: llama-3-70b where stored, else the first).
    Raises StoreError where the store lacks what the answer needs.
    """
    ds, path = _opened(store)
    lacking = [name for name in NEEDED if name not in ds.variables] + [
        name for name in ("accelerator",) if name not in ds.dims
    ]
    if lacking:
        raise StoreError(f"{path}: has no {', '.join(lacking)}, which the answer is made of. Type: sweep run why-400g.")
    model = _reference(ds, model)
    fixed = _fixed(ds)
    here = selections.select(ds[[name for name in (*NEEDED, "binding_dimension", "status") if name in ds]], fixed)
    if "link_gbps" in here.dims:
        here = here.isel(link_gbps=0)
    rows = [_row(here, str(name), model, tokens, path) for name in here["accelerator"].values]
    return Answer(path, rows, _said(ds, fixed), model, tokens, ds)


def _opened(store):
    if hasattr(store, "data_vars"):
        return store, str(store.encoding.get("source", "the dataset"))
    from .store import open_store

    ds = open_store(store)
    return ds, str(ds.encoding.get("source", store))


def _reference(ds, model):
    if "model" not in ds.dims:
        if model is not None:
            raise SweepError(f"model {model}: this store has no axis of models.")
        return str(selections.presets_of(ds).get("model", ""))
    names = [str(name) for name in ds["model"].values]
    if model is None:
        return REFERENCE if REFERENCE in names else names[0]
    if model not in names:
        raise SweepError(f"model {model}: is not in this store. It has {', '.join(names)}.")
    return model


def _fixed(ds):
    """The label that the answer takes of each axis it is not about: the default where stored, of dp the largest, else the first."""
    fixed = {}
    for name in ds.dims:
        if name in ("accelerator", "model", "link_gbps", *WINDOW):
            continue
        labels = list(ds[name].values)
        default = quantities.INPUTS[name].default if name in quantities.INPUTS else None
        fixed[name] = max(labels) if name == "dp" else default if default in labels else labels[0]
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in fixed.items()}


def _said(ds, fixed):
    """What the slice holds: labels taken of axes, and the sweep's own constants that decide the requirement."""
    constants = selections.settings(ds)
    return fixed | {
        name: constants[name]
        for name in ("efficiency", "bucket_bytes", "tp", "dp", "seq_len", "grad_bytes")
        if name in constants
    }


def _row(ds, accelerator, model, tokens, path):
    here = selections.select(ds, {"accelerator": accelerator})
    mine = selections.select(here, {"model": model}) if "model" in here.dims else here
    first, required, windows, rate, binding = (_dense(mine, name) for name in (*NEEDED, "binding_dimension"))
    place, at = _nearest(mine, windows, required, tokens, accelerator, path)
    scale = float(windows[place]) / tokens
    first, required = float(first[place]) * scale, float(required[place]) * scale
    over = _over_models(here, at, scale)
    ships = presets.find("accelerator", accelerator).numbers["link_gbps"]
    words = selections.words(mine, "binding_dimension") if "binding_dimension" in mine else {}
    return Row(
        accelerator, float(rate[place]), first, required, min(over, default=required), max(over, default=required), ships,
        tokens * first / ships, tokens * required / ships, scale, at, words.get(int(binding[place]), "") if words else "",
    )  # fmt: skip


def _dense(ds, name):
    """The values of an output over all axes of the window, in one order; NaN where it is not stored."""
    dims = [dim for dim in WINDOW if dim in ds.dims]
    if name not in ds:
        return np.full([ds.sizes[dim] for dim in dims], np.nan)
    array = ds[name]
    array = array.expand_dims({dim: ds[dim] for dim in dims if dim not in array.dims}).transpose(*dims)
    return np.asarray(array.values, dtype=float)


def _nearest(ds, windows, required, tokens, accelerator, path):
    """Index and labels of the stored window nearest to ``tokens``; of equals the largest tp, then the longest sequence."""
    dims = [dim for dim in WINDOW if dim in ds.dims]
    distance = np.where(
        np.isfinite(required) & (windows > 0) & (required > 0), np.abs(np.log(windows / tokens)), np.inf
    )
    if not np.isfinite(distance).any():
        raise StoreError(
            f"{path}: no window of {accelerator} has a finite requirement. Sweep more seq_len or micro_batch."
        )
    near = np.argwhere(distance <= distance.min() + 1e-9)
    labels = [[ds[dim].values[i] for dim, i in zip(dims, index)] for index in near]
    best = max(range(len(near)), key=lambda k: tuple(float(value) for value in labels[k]))
    at = {dim: value.item() if isinstance(value, np.generic) else value for dim, value in zip(dims, labels[best])}
    return tuple(near[best]), at


def _over_models(ds, at, scale):
    """Required Gb/s of every model at the stored point, those that cannot run left out (one that does not fit is cut further)."""
    if "model" not in ds.dims:
        return []
    point = selections.select(ds, at)
    required = np.asarray(point["required_link_gbps"].values, dtype=float).ravel() * scale
    codes = selections.allowed(ds, ["memory"])
    if codes is not None:
        status = point["status"]
        status = status.isel({dim: 0 for dim in status.dims if dim != "model"})
        valid = (
            np.isin(status.values, codes)
            if status.dims
            else np.full(required.shape, bool(np.isin(status.values, codes)))
        )
        required = required[valid]
    return [float(value) for value in required if math.isfinite(value)]


def _labels(labels):
    return ", ".join(f"{name} {_short(value)}" for name, value in labels.items())


def _short(value):
    """A label that can be typed again."""
    return f"{value:g}" if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)


def _whole(value):
    return "none is enough" if math.isinf(value) else number(round(value))
