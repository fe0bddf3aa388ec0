"""One design point, opened up: what was given and what was assumed, and the kernels' own intermediate numbers.

Nothing here computes the model a second time.  ``Point`` runs the kernels once in NumPy and keeps what they passed
through: work, compute, groups, the terms of what is exposed, the collectives with their algorithms.  Explanations and
timelines read it.
"""

from functools import cached_property
from typing import NamedTuple

from . import presets, values
from ._kernels import collectives, model, overlap, quantities, reduction, times
from ._kernels import inputs as kernel_inputs
from .errors import SpecError
from .spec import Spec

LAST = "tolerance"  # the last input of a training step in the dictionary; money, serving and the rest follow
NEVER_SHOWN = ("params",)


class Given(NamedTuple):
    """An input as the answer used it, and its ``source``: ``given``, a preset's name, ``default`` or ``derived``."""

    name: str
    value: object
    source: str


class Point:
    """One point of the model.  ``x``: completed inputs (SI); ``out``: outputs by name, in people's units, as floats."""

    def __init__(self, spec):
        spec = spec.single()
        if spec.mesh.axes:
            name = spec.mesh.dims[0]
            raise SpecError(
                f"{name}: one point takes one value for each input. Write one, or ask sweep.evaluate for several."
            )
        self.spec = spec
        self.inputs = spec.mesh.block()
        self.parts = model.prepare(self.inputs)
        self.x = self.parts.x
        core = model.combine(self.inputs, self.parts)
        self.out = {
            name: float(value)
            for name, value in model.report(self.inputs, self.parts, core, quantities.STEP_OUTPUTS).items()
        }

    @classmethod
    def of(cls, **inputs):
        """The point of keywords as ``sweep.evaluate`` takes them."""
        return cls(Spec.from_inputs(quantities.STEP_OUTPUTS, **inputs))

    @property
    def u(self):
        """Seconds per byte of the port, as the kernels use it."""
        return float(model.link_u(self.x))

    @property
    def tokens(self):
        """Tokens of a micro-batch on one rank, T."""
        return self.x.micro_batch * self.x.seq_len / self.x.cp

    @property
    def rate(self):
        """FLOP/s achieved while computing, eta F."""
        return self.out["achieved_tflops"] * quantities.OUTPUTS["achieved_tflops"].scale

    @cached_property
    def times(self):
        """Seconds of blocks that the reduction is held against, at infinite link speed (kernels' times.Times)."""
        late = {name: times.per_block(one, 0.0) for name, one in self.parts.traffic.items()}
        return times.times_of(self.x, self.parts.compute, (self.parts.traffic, late), self.parts.free_step_s)

    @property
    def impossible(self):
        """Whether no such run exists (a run that does not fit the memory does)."""
        return bool(self.parts.impossible)

    @property
    def allowed_s(self):
        """Seconds that may stay exposed at the tolerance."""
        return float(self.x.tolerance / (1.0 - self.x.tolerance) * self.parts.free_step_s)

    def u_of(self, gbps):
        """Seconds per byte of a port of so many Gb/s."""
        return 1.0 / (gbps * quantities.GBPS * self.x.link_efficiency)

    @property
    def code(self):
        """How gradients are reduced: reduction.BUCKETS, SHARDED or RARE."""
        return reduction.way_codes(self.x)[0]

    @property
    def way(self):
        """The terms, counts and costs of data parallelism."""
        return self.parts.ways[self.code]

    @cached_property
    def hop_s(self):
        """Seconds of a pipeline hop at infinite speed, as requirements see it: waiting for a link is never window."""
        return float(self.parts.hop.seconds(0.0))

    def word(self, name):
        """The word of a category output's code."""
        code = self.out[name]
        return "-" if code != code else quantities.OUTPUTS[name].choices[int(code)]

    @cached_property
    def reasons(self):
        """Every reason of ``status`` that applies, in the order of the codes."""
        found = [name for name, applies in kernel_inputs.impossible(self.x).items() if bool(applies)]
        return found + (["memory"] if self.out["memory_bytes"] > self.x.hbm_gb else [])

    # -- what is exposed -----------------------------------------------------------------------------------------------

    def seconds(self, u):
        """Seconds of each cost of ``way`` at ``u``, by name."""
        return {name: float(cost.seconds(u)) for name, cost in self.way.costs.items()}

    def binding(self, term, u, hop_s=None):
        """The candidate of a term that counts at ``u``: (Candidate, its seconds before the term's multiplicity)."""
        costs = self.seconds(u) | ({} if hop_s is None else {"hop": hop_s})
        pick = min if term.least else max
        return pick(((item, float(item.at(costs))) for item in term.candidates), key=lambda pair: pair[1])

    def line(self, counts, u):
        """The costs ``counts`` as a line in u around ``u``: (bytes on the port, seconds that no port shortens)."""
        slope = start = 0.0
        for name, count in counts.items():
            if name == "hop":
                start += float(count) * self.hop_s
            elif count:
                value, incline = self.way.costs[name].tangent(u)
                slope += float(count * incline)
                start += float(count * (value - incline * u))
        return slope, start

    def chosen(self, cost, u):
        """For each collective of a cost: (algorithm's word, bytes, latency seconds, whole seconds)."""
        found = []
        for algorithms, nbytes in cost.parts:
            if nbytes > 0:
                whole, _, code = collectives.fastest(algorithms, nbytes, u)
                bare = overlap.Cost(((algorithms, nbytes),)).without_latency().seconds(u)
                word = quantities.ALGORITHMS[int(code)] if int(code) else "direct"
                found.append((word, float(nbytes), float(whole - bare), float(whole)))
        return found

    # -- where the inputs came from ------------------------------------------------------------------------------------

    @cached_property
    def given(self):
        """Every input of a training step: :class:`Given`, in the dictionary's order."""
        spec, found = self.spec, []
        tables = {table: presets.find(table, spec.fixed[table]) for table in presets.TABLES if table in spec.fixed}
        for name, quantity in quantities.INPUTS.items():
            if name in NEVER_SHOWN and name not in spec.fixed:
                continue
            source = next((preset.name for preset in reversed(tables.values()) if name in preset.numbers), None)
            if name in spec.fixed:
                source = "given"
            elif source is None:
                source = "default" if quantity.default is not None else "derived"
            found.append(Given(name, self._readable(name, quantity), source))
            if name == LAST:
                break
        return found

    def _readable(self, name, quantity):
        value = getattr(self.x, name)
        if value is None:
            return None
        value = float(value) / quantity.scale
        whole = quantity.kind != "int" or value == round(value)
        return values.readable(quantity, value) if whole else value
