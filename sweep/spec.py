"""A sweep as a person writes it: a config read, checked and made into a mesh.

    title, axes, sample, fixed, where, allow, outputs, reduce, store, precision

Everything is checked here, where it enters; what is left cannot fail for a reason of the config.  ``canonical`` is the
config with presets and calibrations resolved to numbers: what a store keeps, and what its hash is of.
"""

import hashlib
import json
import math
from dataclasses import dataclass, field, replace
from functools import cached_property

from . import axes as axes_module
from . import presets, rules, samples, values
from ._kernels import quantities
from .errors import SpecError, did_you_mean, listed
from .mesh import Input, Mesh

KEYS = ("title", "sample", "axes", "fixed", "where", "allow", "outputs", "reduce", "store", "precision")
PRECISIONS = ("float64", "float32")
STORE_KEYS = {"path": str, "block_points": int, "codec": str, "dtype": str}
DEFAULT_OUTPUTS = ("step_time_s", "exposed_fraction", "required_link_gbps", "binding_dimension", "bottleneck", "mfu", "memory_bytes")


@dataclass(frozen=True, eq=False)
class Spec:
    """A checked config.  ``axes`` and ``fixed`` are as written; ``mesh`` is what they mean.

    ``outputs`` always ends with ``status``.  ``reduce`` is None or a rule checked by rules.py.
    ``source`` is the file it came from, or "".
    """

    title: str = ""
    axes: dict = field(default_factory=dict)
    fixed: dict = field(default_factory=dict)
    where: str | None = None
    allow: tuple = ()
    outputs: tuple = DEFAULT_OUTPUTS
    reduce: dict | None = None
    store: dict = field(default_factory=dict)
    precision: str = "float64"
    source: str = ""

    @classmethod
    def load(cls, path_or_name):
        """Read a config by path, or by name from the config folders."""
        path = presets.find_config(path_or_name)
        content = presets.read_yaml(path)
        if not isinstance(content, dict):
            raise SpecError(f"{path}: is not a config. Write keys such as axes: and fixed:.")
        return cls.from_dict(content, str(path))

    @classmethod
    def from_dict(cls, content, source=""):
        """Check a config given as a mapping; ``source`` names it in errors."""
        at = _places(source)
        for key in content:
            if key not in KEYS:
                known = did_you_mean(key, KEYS)
                if key in quantities.INPUTS or key in presets.TABLES:
                    known = "Write it below fixed:, or below axes: to vary it."
                raise SpecError(f"{at(key, '')}: {key!r} is no key of a config. {known}")
        sections = {key: content.get(key) or {} for key in ("axes", "fixed", "store")}
        for key, section in sections.items():
            if not isinstance(section, dict):
                raise SpecError(f"{at(key, '')}: is not a mapping. Write names with their values below {key}:.")
        if "axes" in content and "sample" not in content and not sections["axes"] and content["axes"] is not None:
            raise SpecError(f"{at('axes', '')}: is empty. Write at least one, such as link_gbps: [200, 400].")
        if content.get("sample") is not None:
            if samples.AXIS in sections["axes"]:
                raise SpecError(f"{at('sample', '')}: there is an axis of that name too. Keep one of the two.")
            sections["axes"] = {samples.AXIS: samples.check(content["sample"], at), **sections["axes"]}
        mesh = axes_module.build(sections["axes"], sections["fixed"], at)
        spec = cls(
            title=str(content.get("title") or ""),
            axes=dict(sections["axes"]),
            fixed=dict(sections["fixed"]),
            where=_where(content.get("where"), mesh, at("where", "")),
            allow=_allow(content.get("allow"), at("allow", "")),
            reduce=rules.check(content.get("reduce"), mesh, at),
            outputs=_outputs(content, mesh, at("outputs", "")),
            store=_store(sections["store"], at),
            precision=_precision(content.get("precision"), at("precision", "")),
            source=source,
        )
        spec.__dict__["mesh"] = mesh
        return spec

    @classmethod
    def from_inputs(cls, outputs=None, **inputs):
        """The spec of keywords: a list, tuple or array is an axis, anything else a constant; None is left out."""
        axes, fixed = {}, {}
        for name, value in inputs.items():
            value = values.plain(value)
            if value is not None:
                (axes if isinstance(value, (list, tuple, dict)) else fixed)[name] = value
        content = {"axes": axes or None, "fixed": fixed, "outputs": list(outputs or quantities.EVERY_OUTPUT)}
        return cls.from_dict(content)

    def to_dict(self):
        """The config as a mapping that ``from_dict`` takes."""
        content = {"title": self.title, "axes": self.axes or None, "fixed": self.fixed, "where": self.where}
        content |= {"allow": list(self.allow), "outputs": [name for name in self.outputs if name != "status"]}
        content["reduce"] = self.reduce and rules.written(self.reduce)
        return {k: v for k, v in {**content, "store": self.store, "precision": self.precision}.items() if v}

    def with_set(self, assignment):
        """A new Spec with ``key=value`` set (the value in YAML): a scalar becomes a constant, a list or rule an axis."""
        name, equals, text = str(assignment).partition("=")
        name = name.strip()
        if not equals or not name:
            raise SpecError(f"--set {assignment}: there is no '='. Write --set link_gbps=400 or --set 'link_gbps=[200, 400]'.")
        value = presets.parse_yaml(text, f"--set {name}")
        content = self.to_dict()
        if name in KEYS and name not in ("axes", "fixed"):
            content[name] = value
            return Spec.from_dict(content, self.source)
        axes, fixed = dict(content.get("axes") or {}), dict(content.get("fixed") or {})
        if isinstance(value, (list, dict)):
            fixed.pop(name, None)
            axes[name] = value
        else:
            axes.pop(name, None)
            fixed[name] = value
        return Spec.from_dict({**content, "axes": axes or None, "fixed": fixed}, self.source)

    @cached_property
    def mesh(self):
        """The axes and inputs that the config means."""
        return axes_module.build(self.axes, self.fixed, _places(self.source))

    def single(self):
        """The same without axes where each has one label: in a question about one point, a list of one insists on its value."""
        if self.mesh.size != 1 or any(axis.name not in {**quantities.INPUTS, **presets.TABLES} for axis in self.mesh.axes):
            return self
        labels = {axis.name: axis.labels.tolist()[0] for axis in self.mesh.axes}
        inputs = {name: Input(entry.values.item() if entry.dims else entry.values) for name, entry in self.mesh.inputs.items()}
        spec = replace(self, axes={}, fixed=self.fixed | labels)
        spec.__dict__["mesh"] = Mesh((), inputs)
        return spec

    def canonical(self):
        """Plain JSON values: labels of every axis, what moves along it, every constant resolved to a number.

        {"title", "axes": {name: {"labels", "inputs": {quantity: [..]}}}, "fixed": {quantity: value},
        "tables": {quantity: {"dims", "values"}} (over several axes), "where", "allow", "outputs", "reduce", "precision",
        "presets": {table: name} (of those fixed, by name alone: the numbers are in fixed)}
        """
        mesh = self.mesh
        axes = {axis.name: {"labels": axis.labels.tolist(), "inputs": {}} for axis in mesh.axes}
        fixed, tables = {}, {}
        for name, entry in mesh.inputs.items():
            quantity = quantities.INPUTS[name]
            if not entry.dims:
                fixed[name] = _jsonable(values.readable(quantity, entry.values))
                continue
            numbers = _each(entry.values.tolist(), lambda number: _jsonable(values.readable(quantity, number)))
            if len(entry.dims) == 1:
                axes[entry.dims[0]]["inputs"][name] = numbers
            else:
                tables[name] = {"dims": list(entry.dims), "values": numbers}
        for axis in mesh.axes:
            axes[axis.name]["labels"] = [_jsonable(label) for label in axis.labels.tolist()]
        return {
            "title": self.title, "axes": axes, "fixed": fixed, "tables": tables, "where": self.where,
            "allow": list(self.allow), "outputs": list(self.outputs), "reduce": self.reduce, "precision": self.precision,
            "presets": {table: self.fixed[table] for table in presets.TABLES if table in self.fixed},
        }  # fmt: skip

    @cached_property
    def sha256(self):
        """Of all that decides the results: canonical JSON without the title and the presets' names."""
        content = {key: value for key, value in self.canonical().items() if key not in ("title", "presets")}
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()


def _places(source):
    """``at(section, name)``: 'configs/x.yaml, axes.link_gbps', or 'link_gbps' for keywords."""

    def at(section, name):
        if not source:
            return str(name or section)
        path = ".".join(str(part) for part in (section, name) if part != "")
        return f"{source}, {path}" if path else source

    return at


def _where(text, mesh, place):
    if text is None or str(text).strip() == "":
        return None
    from . import expressions

    names = set(mesh.environment(None, (1,) * len(mesh.axes)) if mesh.axes else mesh.environment())
    used = expressions.compile(str(text), names | set(quantities.OUTPUTS), place, mesh.categories).names - names
    if used:
        raise SpecError(f"{place}: {listed(sorted(used))} is an output, and where is decided before outputs are computed. Ask for it in a query.")
    return str(text).strip()


def _allow(words, place):
    words = [] if words is None else values.sequence(words, place)
    for word in words:
        if word not in quantities.REASONS[1:]:
            raise SpecError(f"{place}: {word!r} is no reason of status. Write some of {listed(quantities.REASONS[1:])}.")
    return tuple(dict.fromkeys(words))


def _outputs(content, mesh, place):
    names = content.get("outputs")
    if names is None:
        names = [] if content.get("reduce") else [n for n in DEFAULT_OUTPUTS]
    elif names == "all":
        names = list(quantities.STEP_OUTPUTS)
    elif not isinstance(names, list):
        raise SpecError(f"{place}: {names!r} is not a list. Write a list such as [step_time_s, required_link_gbps], or all.")
    for name in names:
        if name not in quantities.OUTPUTS:
            raise SpecError(f"{place}: {name!r} is no output. {did_you_mean(name, quantities.OUTPUTS)}")
    taken = {column for axis in mesh.axes for column in (axis.name, *axis.columns)}
    return tuple(dict.fromkeys(n for n in names if n != "status" and n not in taken)) + ("status",)


def _store(section, at):
    for key, value in section.items():
        if key not in STORE_KEYS:
            raise SpecError(f"{at('store', key)}: {key!r} is no key of store. {did_you_mean(key, STORE_KEYS)}")
        if not isinstance(value, STORE_KEYS[key]) or isinstance(value, bool) or (STORE_KEYS[key] is int and value < 1):
            wanted = "a text" if STORE_KEYS[key] is str else "a whole number above 0"
            raise SpecError(f"{at('store', key)}: {value!r} is not {wanted}. Write one.")
    return dict(section)


def _precision(word, place):
    if word is None:
        return PRECISIONS[0]
    if word not in PRECISIONS:
        raise SpecError(f"{place}: {word!r} is no precision. Write {listed(PRECISIONS)}.")
    return word


def _each(nested, function):
    return [_each(item, function) for item in nested] if isinstance(nested, list) else function(nested)


def _jsonable(value):
    """JSON has no infinity: the word stands for it."""
    return "inf" if isinstance(value, float) and math.isinf(value) else value
