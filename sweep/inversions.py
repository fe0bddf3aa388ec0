"""The question the other way round: the smallest micro-batch a port allows, the largest dp at a batch, the tokens that are enough.

    solve("micro_batch", model="llama-3-70b", accelerator="h100", tp=8, dp=128, link_gbps=400)

finds, for each design, the smallest (or largest) value of one input at which a condition holds, ``required_link_gbps <=
link_gbps`` unless another is written.  Whole numbers are all tried, in one vectorised call of the kernels: the answer is exact
whatever the shape of the law, and where the condition fails again beyond it that value is given too.  The laws that make it
monotone (kernels/README.md) are therefore tests here, not assumptions.  A real-valued input is tried on a fine grid, and the
boundary between the grid's last failure and first success is halved down to the last digits.

Values at which no run exists are passed over, as everywhere, and those that do not fit the memory too unless allowed.  NumPy
alone: one design takes a tenth of a second, and many designs are one more axis.
"""

import math
import re
from typing import NamedTuple

import numpy as np

from . import expressions
from ._kernels import quantities
from .axes import PAIRS
from .errors import SpecError, did_you_mean
from .mesh import Axis, Input, Mesh
from .spec import Spec

WHERE = "required_link_gbps <= link_gbps"
TOKENS, TOKENS_BY = "tokens_per_domain", "micro_batch"  # an output, solved through a real-valued input
WORDS = ("found", "always", "never", "memory", "impossible")
"""found: it holds from here and not a step further; always: for every value tried; never: for none; memory: only where the
memory does not fit; impossible: at no value a run exists."""
COUNTED = ("micro_batch", "global_batch")  # real-valued inputs of the kernels that people count in whole sequences
LARGEST = ("dp", "gpus", "cp", "pp", "grad_bytes", "param_bytes", "peak_tflops", "efficiency", "link_latency_us", "scaleup_latency_us",
           "oversubscription", "overlap_slowdown", "comm_slowdown")  # fmt: skip
"""Inputs of which more is harder on the port: the largest is asked for, of all others the smallest."""
UPTO = {"micro_batch": 4096, "seq_len": 2**20, "global_batch": 2**20, "gpus": 2**20}
MOST = 2**16  # largest whole number tried of any other
GRID, OCTAVES, HALVINGS = (
    1025,
    20,
    64,
)  # of a real-valued input: points over 2^+-OCTAVES about its value, then bisection
CHUNK, LIMIT = 2**17, 2**26  # points evaluated at once, and in all
LAW = re.compile(r"\b(required_link_gbps(_dp)?|link_gbps_at_tolerance)\b")


def solve(name, where=WHERE, find=None, upto=None, allow=(), **inputs):
    """The smallest (``find="largest"``: largest) ``name`` at which ``where`` holds, for each design: an xarray.Dataset.

    name     an input that is a number, or ``tokens_per_domain`` (through a real-valued micro-batch)
    where    a condition on inputs and outputs, such as ``exposed_fraction <= tolerance`` or ``link_gbps_at_tolerance <= 400``
    find     ``smallest`` or ``largest``; by default what a port limits: smallest batches, largest dp and gpus
    upto     the largest whole number tried
    allow    reasons of status that do not disqualify, such as ``["memory"]``

    Other keywords are those of ``sweep.evaluate``; lists make axes.  Variables: ``name`` (NaN: there is none), ``answer`` (a category,
    WORDS), ``first_order`` (the same by section 1's law), ``further`` (the next value, at which the condition fails), ``fails_again`` (the
    first on the other side, if any), ``but_for_memory``, and each output of the condition at the answer and, with ``_further``, beyond.

        sweep.solve("dp", model="llama-3-8b", accelerator=["h100", "b200"], global_batch=1024, link_gbps=400).dp
    """
    return search(name, where, find, upto, allow, **inputs).dataset()


class Solution(NamedTuple):
    """What ``search`` found: arrays over ``axes``; ``tried`` are the values of input ``varied``, ``columns`` the variables in order."""

    name: str
    varied: str
    where: str
    find: str
    axes: tuple
    tried: np.ndarray
    word: np.ndarray
    columns: dict

    @property
    def unit(self):
        """Unit of what was asked for."""
        return (quantities.INPUTS.get(self.name) or quantities.OUTPUTS[self.name]).unit

    def rows(self):
        """A list of mappings, one a design: labels, answer and columns."""
        found = []
        for place in np.ndindex(self.word.shape):
            labels = {axis.name: axis.labels[k] for axis, k in zip(self.axes, place)}
            values = {name: float(column[place]) for name, column in self.columns.items()}
            found.append(labels | {self.name: values.pop(self.name), "answer": WORDS[self.word[place]]} | values)
        return found

    def dataset(self):
        """The same as a labelled Dataset."""
        import xarray as xr

        dims = tuple(axis.name for axis in self.axes)
        coords = {axis.name: (axis.name, axis.labels, {"units": axis.units}) for axis in self.axes}
        variables = {name: (dims, column, {"units": self._unit_of(name)}) for name, column in self.columns.items()}
        flags = {"flag_values": list(range(len(WORDS))), "flag_meanings": " ".join(WORDS)}
        variables["answer"] = dims, self.word.astype(np.uint8), flags
        return xr.Dataset(variables, coords, {"title": f"the {self.find} {self.name} with {self.where}"})

    def _unit_of(self, name):
        row = quantities.OUTPUTS.get(name.removesuffix("_further"))
        return row.unit if row and name != self.name else self.unit

    def sentence(self):
        """One design's answer in words."""
        row, word = self.rows()[0], WORDS[int(self.word.ravel()[0])]
        value, span = (
            _said(row[self.name]),
            f"{self.varied} from {_said(self.tried.min())} to {_said(self.tried.max())}",
        )
        if word == "impossible":
            return f"No {span} makes a run that exists: see sweep explain for the reasons."
        if word == "never":
            return f"Never: at no {span} is {self.where}."
        if word == "memory":
            return f"Never within the memory: but for it, {self.where} from {self.name} {_said(row['but_for_memory'])} on (allow memory)."
        shown = [name for name in self.columns if f"{name}_further" in self.columns]
        here = ", ".join(f"{name} {_said(row[name])}" for name in shown)
        if word == "always":
            return f"Always: {self.where} at every {span} that can run; at the {self.find}, {value}: {here}."
        if row[self.name] == self.tried.max() and self.find == "largest" and self.name == self.varied:
            here += f"; more than {value} was not tried"
        there = ", ".join(f"{name} {_said(row[f'{name}_further'])}" for name in shown)
        again = f" It fails again at {_said(row['fails_again'])}." if row["fails_again"] == row["fails_again"] else ""
        law = (
            f" By the first-order law: {_said(row['first_order'])}." if row["first_order"] == row["first_order"] else ""
        )
        beyond = f"; at {_said(row['further'])}: {there}" if _said(row["further"]) not in (value, "-") else ""
        return f"The {self.find} {self.name} with {self.where} is {value}: {here}{beyond}.{again}{law}"


def search(name, where=WHERE, find=None, upto=None, allow=(), **inputs):
    """As ``solve``, without xarray: a :class:`Solution`."""
    if find not in (None, "smallest", "largest"):
        raise SpecError(f"find: {find!r} is neither. Write smallest or largest.")
    varied = TOKENS_BY if name == TOKENS else name
    row = quantities.INPUTS.get(varied)
    if row is None or row.kind in ("category", "flag"):
        known = [n for n, q in quantities.INPUTS.items() if q.kind not in ("category", "flag")]
        why = (
            "has words, not numbers: make it an axis instead"
            if row
            else f"is no input. {did_you_mean(name, [*known, TOKENS])}"
        )
        raise SpecError(f"solve: {name!r} {why}{'.' if row else ''}")
    for given in (
        varied,
        *(b if a == varied else a for a, b, _ in PAIRS if varied in (a, b)),
        *(["global_batch"] if name == TOKENS else []),
    ):
        if inputs.get(given) is not None:
            what = "is what is asked for" if given == name else f"and {name} decide each other here"
            raise SpecError(f"{given}: {given} {what}. Leave {given} out.")
    for reason in allow:
        if reason not in quantities.REASONS:
            raise SpecError(f"allow: {reason!r} is no reason of status. {did_you_mean(reason, quantities.REASONS[1:])}")
    find = find or ("largest" if name in LARGEST else "smallest")
    mesh = Spec.from_inputs(["status"], **inputs).mesh
    question = _Question(mesh, varied, where, allow)
    counted = name != TOKENS and (row.kind == "int" or varied in COUNTED)
    if upto is not None and not counted:
        raise SpecError(f"upto: {name} is not counted in whole numbers. Leave upto out.")
    tried = _whole(mesh, varied, upto) if counted else _grid(mesh, row)
    if mesh.size * len(tried) > LIMIT:
        raise SpecError(f"solve: {mesh.size} designs at {len(tried):,} values are too many at once. Give a smaller upto, or fewer designs.")
    tried = np.asarray(tried, float)
    ordered = tried if find == "smallest" else tried[::-1]
    found = _boundary(question, ordered, not counted)
    law = (
        _boundary(_Question(mesh, varied, LAW.sub("first_order_link_gbps", where), allow), ordered, not counted)
        if LAW.search(where)
        else None
    )
    lost = np.full(mesh.shape, np.nan)
    columns = {varied: found.value, "first_order": law.value if law else lost, "further": found.further, "fails_again": found.again,
               "but_for_memory": found.but_for_memory}  # fmt: skip
    shown = dict.fromkeys([*sorted(question.asked - {varied}), *([TOKENS] if varied in (TOKENS_BY, "seq_len") else [])])
    shown = [one for one in shown if quantities.OUTPUTS[one].kind != "category"]
    for key, at in (("", found.value), ("_further", found.further)):
        columns |= {f"{one}{key}": values for one, values in question.at(at, shown).items()}
    if name == TOKENS:
        columns = _in_tokens(question, columns)
    return Solution(name, varied, where, find, mesh.axes, tried, found.word, columns)


class _Question:
    """A condition over designs: ``asked`` are its outputs; ``holds`` and ``at`` evaluate it at values of one input."""

    def __init__(self, mesh, name, where, allow):
        self.mesh, self.name = mesh, name
        words = {n: q.choices for n, q in quantities.OUTPUTS.items() if q.kind == "category"}
        known = {name, *mesh.environment(None, (1,) * len(mesh.axes)), *quantities.OUTPUTS}
        self.condition = expressions.compile(where, known, "where", {**mesh.categories, **words})
        self.asked = self.condition.names & set(quantities.OUTPUTS)
        self.codes = [quantities.REASONS.index(reason) for reason in ("ok", *allow)]

    def holds(self, values):
        """(holds, status) over designs x ``values`` (one dimension: the same for all designs)."""
        mesh = Mesh(
            (*self.mesh.axes, Axis(self.name, values)), self.mesh.inputs | {self.name: Input(values, (self.name,))}
        )
        return self._evaluate(mesh)

    def holds_each(self, values):
        """The same at one value for each design."""
        return self._evaluate(self._each(values))[0]

    def at(self, values, names):
        """name -> output at one value for each design, NaN where that is NaN."""
        lost = np.isnan(values)
        mesh = self._each(np.where(lost, 1.0, values))
        found = _outputs(mesh, names) if names else {}
        return {name: np.where(lost, np.nan, np.broadcast_to(value, mesh.shape)) for name, value in found.items()}

    def _each(self, values):
        entry = Input(values, self.mesh.dims) if self.mesh.axes else Input(float(values))
        return Mesh(self.mesh.axes, self.mesh.inputs | {self.name: entry})

    def _evaluate(self, mesh):
        env = mesh.environment() | _outputs(mesh, [*self.asked, "status"])
        holds = np.asarray(self.condition.evaluate(env))
        return np.broadcast_to(holds, mesh.shape), np.broadcast_to(env["status"], mesh.shape)


def _outputs(mesh, names):
    from ._kernels import model

    with np.errstate(all="ignore"):
        return {name: np.asarray(value) for name, value in model.evaluate(mesh.block(), tuple(names)).items()}


class _Boundary(NamedTuple):
    value: np.ndarray
    further: np.ndarray
    again: np.ndarray
    but_for_memory: np.ndarray
    word: np.ndarray


def _boundary(question, values, real):
    """The first of ``values`` (in the order of preference) at which the condition holds, for each design; ``real``: between them too."""
    step = max(1, CHUNK // question.mesh.size)
    parts = [question.holds(values[k : k + step]) for k in range(0, len(values), step)]
    holds, status = (np.concatenate([part[k] for part in parts], axis=-1) for k in (0, 1))
    fits = np.isin(status, question.codes)
    memory = fits | (status == quantities.REASONS.index("memory"))
    good, bad = holds & fits, ~holds & fits
    index = np.arange(len(values))
    first = np.where(good, index, len(values)).min(-1)
    before = np.where(bad & (index < first[..., None]), index, -1).max(-1)
    after = np.where(bad & (index > first[..., None]), index, len(values)).min(-1)
    anyhow = np.where(holds & memory, index, len(values)).min(-1)
    some = first < len(values)
    word = np.select([some & ~bad.any(-1), some, anyhow < len(values), memory.any(-1)], [1, 0, 3, 2], 4)
    take = lambda which, known: np.where(known, values[np.clip(which, 0, len(values) - 1)], np.nan)
    value, further = take(first, some), take(before, some & (before >= 0))
    if real:
        value, further = _halved(question, value, further)
    return _Boundary(
        value, further, take(after, some & (after < len(values))), take(anyhow, ~some & (anyhow < len(values))), word
    )


def _halved(question, value, further):
    """The boundary between a value that holds and one that fails, to the last digits."""
    open_ = ~np.isnan(further)
    for _ in range(HALVINGS if open_.any() else 0):
        middle = np.where(value * further > 0, np.sqrt(np.abs(value * further)), (value + further) / 2)
        holds = question.holds_each(np.where(open_, middle, np.where(np.isnan(value), 1.0, value)))
        value, further = np.where(open_ & holds, middle, value), np.where(open_ & ~holds, middle, further)
    return value, further


def _whole(mesh, name, upto):
    """The whole numbers tried, ascending: as far as makes sense, in the steps at which runs exist."""
    number = lambda other, default=1.0: mesh.inputs[other].values if other in mesh.inputs else default
    ranks = [number(one) for one in ("tp", "cp", "pp")]
    least = int(max(1, quantities.INPUTS[name].low))
    step = {"gpus": ranks, "seq_len": ranks[1:2], "global_batch": [number("dp"), number("micro_batch")]}.get(name, [])
    step = math.prod(step) if all(np.ndim(one) == 0 for one in step) else 1
    step = int(step) if step == int(step) and step >= 1 else 1
    most = UPTO.get(name, MOST)
    if name in ("dp", "micro_batch") and "global_batch" in mesh.inputs:  # the batch divides among them
        other = number("micro_batch" if name == "dp" else "dp")
        most = min(MOST * 16, int(np.max(number("global_batch")) / np.min(other)))
    if upto is not None:
        if isinstance(upto, bool) or upto != int(upto) or upto < least:
            raise SpecError(f"upto: {upto} is not a whole number from {least} on. Write one.")
        most = int(upto)
    first = -(-least // step) * step
    return range(first, max(most, first) + 1, step)


def _grid(mesh, row):
    """The grid of a real-valued input: about its value, or default, as far as its bounds go."""
    values = np.asarray(mesh.inputs[row.name].values if row.name in mesh.inputs else row.default or 1.0, float)
    centre = values[(values > 0) & np.isfinite(values)]
    low, high = (centre.min(), centre.max()) if centre.size else (1.0, 1.0)
    low, high = max(low * 2.0**-OCTAVES, row.low), min(high * 2.0**OCTAVES, row.high)
    grid = np.geomspace(low, high, GRID)
    grid[0], grid[-1] = low, high
    return np.r_[0.0, grid] if row.low == 0 and not row.open_low else grid


def _in_tokens(question, columns):
    """Micro-batches as the tokens of a scale-up domain that they are."""
    per_sequence = question.at(np.ones(question.mesh.shape), [TOKENS])[TOKENS]
    tokens = {TOKENS: columns[TOKENS_BY] * per_sequence}
    tokens |= {key: columns[key] * per_sequence for key in ("first_order", "further", "fails_again", "but_for_memory")}
    return tokens | {key: value for key, value in columns.items() if key not in tokens and key != f"{TOKENS}_further"}


def _said(value):
    if not math.isfinite(value):
        return "infinite" if value > 0 else "-"
    return f"{value:,.0f}" if value == round(value) and abs(value) < 1e12 else f"{value:.6g}"
