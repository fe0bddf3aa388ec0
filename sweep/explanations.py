"""``sweep explain``: the numbers of one point worked step by step, in words and formulas with units.

    given and assumed -> who shares what -> bytes -> window -> first-order law -> collectives -> what is exposed at this port
    -> the requirement -> from first order to full, term by term -> the step -> memory -> what would change it

Everything runs in NumPy, on the kernels' own intermediate numbers; jax is not imported.
"""

import math

from . import decompositions, derivations, exposures, intervals, inversions
from ._kernels import quantities
from .points import Point
from .worksheets import Line, Section, Table, Worksheet, amount, number

MOST_REPLICAS = 4096  # tried of dp
FORMATS = ("text", "markdown", "latex", "json")


def explain(interval=None, **inputs):
    """The worked answer of one point: an :class:`Explanation`.

    ``interval``: per cent (such as 80) of measured runs that the ends about the step time are to hold.  The other keywords are the words of a config: presets by name (``model="llama-3-70b"``, ``accelerator="h100"``) and any quantity
    beside them; what is not given is stated with its default.  Raises SpecError.

        print(sweep.explain(model="llama-3-70b", accelerator="h100", tp=8, dp=128))
    """
    return Explanation(Point.of(**inputs), interval)


class Explanation:
    """A worked point: ``text()``, ``markdown()``, ``latex()``, ``to_dict()``, ``draw(path)``.

    ``outputs``: name -> float; ``first_order_gbps`` and ``steps``: the decomposition; ``levers``: what would change it.
    """

    def __init__(self, point, interval=None):
        self.point = point
        self.band = None if interval is None else intervals.band(intervals.family_of(intervals.given(point)), interval)
        self.outputs = dict(point.out)
        self.first_order_gbps, self.steps = decompositions.decompose(point.inputs)
        self.levers, self.idle = decompositions.levers(point.inputs)
        before, after = exposures.sections(point)
        ordered = [
            _answer(self),
            _givens(point),
            *derivations.sections(point),
            *before,
            _decomposition(self),
            *after,
            *([_sure(self)] if self.band else []),
            _changes(self),
        ]
        numbered = [section._replace(title=f"{index}. {section.title}") for index, section in enumerate(ordered)]
        self.worksheet = Worksheet(_title(point), tuple(numbered))

    def text(self):
        """For a terminal."""
        return self.worksheet.text()

    def markdown(self):
        """For a page."""
        return self.worksheet.markdown()

    def latex(self):
        """For a paper."""
        return self.worksheet.latex()

    def to_dict(self):
        """Plain values: inputs with their source, outputs, decomposition, levers and every worked line."""
        from . import tables

        point, content = self.point, self.worksheet.to_dict()
        words = {name: point.word(name) for name in self.outputs if quantities.OUTPUTS[name].kind == "category"}
        return tables.plain({
            "title": content["title"],
            "inputs": [given._asdict() | {"unit": quantities.INPUTS[given.name].unit} for given in point.given],
            "outputs": self.outputs | words,
            "status": point.reasons or ["ok"],
            "first_order_link_gbps": self.first_order_gbps,
            "decomposition": [step._asdict() for step in self.steps],
            "levers": [lever._asdict() for lever in self.levers],
            "interval": self.band and self.band._asdict() | {"ends": _ends(self)},
            "sections": content["sections"],
        })  # fmt: skip

    def render(self, format, sections=()):
        """One of FORMATS as text; ``sections``: words of the titles wanted (all where empty; json holds all)."""
        from . import tables

        if format == "json":
            return tables.render_json(self.to_dict())
        return getattr(self.worksheet.only(sections), format)()

    def draw(self, path=None):
        """The step's timeline as a drawing, written to ``path`` (.png, .svg or .pdf) where one is given."""
        from . import timelines

        drawing = timelines.draw_timeline(self.point)
        if path is not None:
            drawing.save(path)
        return drawing

    def __str__(self):
        return self.text()

    def _repr_markdown_(self):
        return self.markdown()


def what_sets_it(explanation):
    """One sentence on what sets the requirement of a worked point."""
    p, out = explanation.point, explanation.outputs
    required = out["required_link_gbps"]
    if required == 0:
        return "Set by nothing: the gradients' group stays inside a scale-up domain."
    steps = explanation.steps[:-1]
    if math.isinf(required):
        words = next((step.words for step in steps if math.isinf(step.gbps)), "latency")
        return f"No port is enough. What makes it so: {words}."
    moved = max(steps, key=lambda step: abs(math.log(step.factor)) if step.factor > 0 else 0.0)
    sentence = (
        f"Set by {number(out['achieved_tflops'])} TFLOP/s achieved against {number(out['tokens_per_domain'])} tokens per "
        f"scale-up domain in the window; the full model asks for {required / out['first_order_link_gbps']:.3g} times the "
        "first-order port"
    )
    if abs(math.log(moved.factor)) > 5e-4:
        sentence += f", mostly for: {moved.words} (x {moved.factor:.3g})"
    others = p.word("binding_dimension")
    if others not in ("dp", "none"):
        sentence += (
            f". Of all groups {others} asks for more still, {amount(out[f'required_link_gbps_{others}'], 'Gb/s')}"
        )
    return sentence + "."


def _title(p):
    fixed = p.spec.fixed
    named = " on ".join(str(fixed[name]) for name in ("model", "accelerator") if name in fixed) or "One design"
    return f"{named}: which port hides the gradient reduction?"


def _answer(explanation):
    p, out = explanation.point, explanation.outputs
    tolerance = f"at most {100 * p.x.tolerance:g} % of the step exposed"
    never = (
        (f"No such run exists ({', '.join(p.reasons)}): only what belongs to its parts has a value.",)
        if p.impossible
        else ()
    )
    return Section("The answer", never + (
        Line("required port, first order", out["first_order_link_gbps"], "Gb/s", "1.5" if p.x.zero_stage >= 3 else "1.4"),
        Line("required port, full model", out["required_link_gbps"], "Gb/s", "7.1", note="the reduction keeps up with the backward pass"),
        Line("required port at the tolerance", out["link_gbps_at_tolerance"], "Gb/s", "7.2", note=tolerance),
        Line("the port of this point", p.x.link_gbps / quantities.GBPS, "Gb/s"),
        what_sets_it(explanation),
    ))  # fmt: skip


def _givens(p):
    groups = {}
    for given in p.given:
        if given.value is not None:
            groups.setdefault(given.source, []).append(f"{given.name} {_shown(given)}")
    last = ("derived", "default")
    order = ["given", *(source for source in groups if source not in ("given", *last)), *last]
    heads = {"given": "Given", "derived": "Follow from the rest", "default": "Assumed, for nothing was said (defaults)"}
    said = [
        f"{heads.get(source, f'From the preset {source}')}: {', '.join(groups[source])}."
        for source in order
        if source in groups
    ]
    return Section("What was given, and what was assumed", tuple(said))


def _shown(given):
    unit = quantities.INPUTS[given.name].unit
    if isinstance(given.value, str):
        return given.value
    return amount(given.value, "" if unit in ("1", "sequences", "accelerators") else unit)


def _decomposition(explanation):
    steps = explanation.steps
    rows, idle = [("", "first-order law", number(explanation.first_order_gbps), "")], []
    for step in steps:
        if step.name == "tail":
            rows.append(("", "= required_link_gbps", number(steps[-2].gbps), ""))
        if abs(step.factor - 1.0) < 5e-5:
            idle.append(step.name)
        else:
            rows.append(
                (
                    step.name,
                    step.words,
                    number(step.gbps),
                    "-" if step.factor != step.factor else f"x {step.factor:.4f}",
                )
            )
    rows.append(("", "= link_gbps_at_tolerance", number(steps[-1].gbps), ""))
    said = (
        "A factor is the requirement with the feature over that without it, features above it present, those below it "
        "absent. The factors multiply to the whole ratio."
    )
    items = [Table(("term", "what it adds", "Gb/s", "factor"), tuple(rows), "decomposition"), said]
    if idle:
        items.append(f"Without effect here: {', '.join(idle)}.")
    return Section("From first order to full", tuple(items), "7.5")


def _ends(explanation):
    """name -> (low, high) of the outputs that an interval can stand beside."""
    band, out = explanation.band, explanation.outputs
    return {name: intervals.interval(out[name], band.family, band.level) for name in intervals.SCALED if name in out}


def _sure(explanation):
    rows = []
    for name, ends in _ends(explanation).items():
        row = quantities.OUTPUTS[name]
        unit = "" if row.unit == "1" else row.unit
        rows.append((row.long_name, *(amount(value, unit) for value in (ends[0], explanation.outputs[name], ends[1]))))
    said = explanation.band.words() + ". Requirements have none: nobody has measured them."
    return Section("How sure the step is", (Table(("", "low", "predicted", "high"), tuple(rows), "interval"), said))


def _changes(explanation):
    p, rows = explanation.point, []
    for lever in explanation.levers:
        quantity = quantities.INPUTS[lever.name]
        known = lever.elasticity is not None and lever.elasticity == lever.elasticity
        large = quantity.unit == "byte" and lever.value > 1e4
        name = lever.name if large or quantity.unit == "1" else f"{lever.name} ({quantity.unit})"
        value = amount(lever.value, "byte") if large else number(lever.value)
        rows.append(
            (name, value, f"{lever.elasticity:+.3f}" if known else "-", number(lever.half), number(lever.twice))
        )
    items = []
    if rows:
        items.append(Table(("input", "value", "elasticity", "Gb/s at half", "Gb/s at twice"), tuple(rows), "levers"))
        items.append(
            "Elasticity: per cent of requirement for one per cent of the input. A dash: a count, or out of bounds."
        )
    if explanation.idle:
        items.append(f"Without effect on the requirement: {', '.join(explanation.idle)}.")
    others = decompositions.choices(p.inputs)
    if others:
        items.append(
            "Chosen otherwise: " + ", ".join(f"{words} {amount(gbps, 'Gb/s')}" for words, gbps in others) + "."
        )
    if explanation.outputs["required_link_gbps"] > 0:
        items.append(_enough(p))
    return Section("What would change the requirement", tuple(items or ["Nothing that was tried."]), "7.6")


def _enough(p):
    """The sentence on the micro-batch, tokens and replicas for which the point's own port is enough."""
    port = amount(p.x.link_gbps / quantities.GBPS, "Gb/s")
    said = p.spec.fixed | {"link_gbps": p.x.link_gbps / quantities.GBPS}
    said = {name: value if isinstance(value, str) else [value] for name, value in said.items()}  # a list insists: it is asked already
    rest = {name: value for name, value in said.items() if name != "micro_batch"}
    batch = inversions.search("micro_batch", allow=["memory"], **rest)
    least = batch.rows()[0]
    if least["answer"] == "impossible":
        return "No such run exists at any micro-batch, so none makes a port enough."
    if least["answer"] == "never":
        return f"No micro-batch up to {number(batch.tried.max())} sequences makes a port of {port} enough."
    always = least["answer"] == "always"
    kind = "for any micro-batch" if always else f"from a micro-batch of {number(least['micro_batch'])} sequences on"
    words = [f"A port of {port} is enough {kind}"]
    if not always and "global_batch" not in said:
        exact = inversions.search("tokens_per_domain", allow=["memory"], **rest).rows()[0]
        tokens = number(exact["tokens_per_domain"])
        words.append(f"as a real number from {number(exact['micro_batch'])}, that is {tokens} tokens per domain")
    spread = {name: value for name, value in said.items() if name not in ("dp", "gpus")}
    spread["micro_batch"] = p.x.micro_batch
    most = inversions.search("dp", allow=["memory"], upto=MOST_REPLICAS, **spread).rows()[0]
    if most["answer"] == "found":
        words.append(f"at this micro-batch up to dp {number(most['dp'])}")
    return "; ".join(words) + "."
