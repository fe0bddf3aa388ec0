"""What a config may say below ``reduce:``, checked where it enters.

    reduce:
      minimize: step_time_s          # or maximize:, or best: (as the quantity is better low or high); a name or a list
      over: [tp, pp]                 # the axes searched; or keep: the axes that stay
      top: 5                         # the five best instead of one
      count: mfu                     # how many candidates (always there for the others)
      histogram: step_time_s         # a name or a list
      quantiles: [0.05, 0.5, 0.95]   # read off the histogram

A checked rule is a dict of tuples: best ((name, "min" | "max"), ..), count, histogram, quantiles, over; and the integer top.
"""

from . import values
from ._kernels import quantities
from .errors import SpecError, did_you_mean

KEYS = ("minimize", "maximize", "best", "over", "keep", "top", "count", "histogram", "quantiles")
MOST_WINNERS = 100  # of top: each takes one more pass over the points


def check(rule, mesh, at):
    """The checked rule; ``at(section, name)`` names a key's place in errors.  None stays None."""
    if rule is None:
        return None
    if not isinstance(rule, dict) or not rule:
        raise SpecError(f"{at('reduce', '')}: is not a rule. Write {{minimize: step_time_s, over: [tp, pp]}}.")
    for key in rule:
        if key not in KEYS:
            raise SpecError(f"{at('reduce', key)}: {key!r} is no key of reduce. {did_you_mean(key, KEYS)}")
    best = [(name, "min") for name in _outputs(rule, "minimize", at)]
    best += [(name, "max") for name in _outputs(rule, "maximize", at)]
    best += [_directed(text, at) for text in _list(rule, "best", at)]
    histogram = _outputs(rule, "histogram", at)
    quantiles = tuple(_fraction(value, at) for value in _list(rule, "quantiles", at))
    if quantiles and not histogram:
        histogram = tuple(dict.fromkeys(name for name, _ in best))
    count = tuple(dict.fromkeys([*_outputs(rule, "count", at), *(name for name, _ in best), *histogram]))
    if not count:
        raise SpecError(f"{at('reduce', '')}: names no output. Write minimize:, maximize:, count: or histogram: with one.")
    values.distinct([name for name, _ in best], at("reduce", "best"))
    top = rule.get("top", 1)
    if isinstance(top, bool) or not isinstance(top, int) or not 1 <= top <= MOST_WINNERS:
        raise SpecError(f"{at('reduce', 'top')}: {top!r} is not a whole number from 1 to {MOST_WINNERS}. Write one.")
    return {"best": tuple(best), "count": count, "histogram": histogram, "quantiles": quantiles, "top": top, "over": _over(rule, mesh, at)}


def written(rule):
    """A checked rule as a config says it."""
    best = [f"{way}:{name}" for name, way in rule["best"]]
    content = {"best": best, "count": list(rule["count"]), "histogram": list(rule["histogram"]), "quantiles": list(rule["quantiles"])}
    return {key: value for key, value in content.items() if value} | {"top": rule["top"], "over": list(rule["over"])}


def _list(rule, key, at):
    return () if rule.get(key) is None else tuple(values.sequence(rule[key], at("reduce", key)))


def _outputs(rule, key, at):
    names = _list(rule, key, at)
    for name in names:
        _known(name, at("reduce", key))
    return names


def _known(name, place):
    row = quantities.OUTPUTS.get(name)
    if row is None:
        raise SpecError(f"{place}: {name!r} is no output. {did_you_mean(name, quantities.OUTPUTS)}")
    if row.kind == "category":
        raise SpecError(f"{place}: {name} has words, not numbers. Name an output that is a number, such as step_time_s.")


def _directed(text, at):
    """'min:NAME', or NAME with the direction in which the quantity is better."""
    place = at("reduce", "best")
    way, colon, name = str(text).rpartition(":")
    _known(name, place)
    if colon and way not in ("min", "max"):
        raise SpecError(f"{place}: {way!r} is neither min nor max. Write min:{name} or max:{name}.")
    way = way or {"low": "min", "high": "max"}.get(quantities.OUTPUTS[name].better)
    if not way:
        raise SpecError(f"{place}: {name} is neither better low nor high. Write min:{name} or max:{name}.")
    return name, way


def _fraction(value, at):
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise SpecError(f"{at('reduce', 'quantiles')}: {value!r} is not a fraction. Write numbers from 0 to 1, such as [0.05, 0.5, 0.95].")
    return float(value)


def _over(rule, mesh, at):
    """The axes searched, in the order of the mesh."""
    if (rule.get("over") is None) == (rule.get("keep") is None):
        raise SpecError(f"{at('reduce', '')}: write either over: (the axes searched) or keep: (the axes that stay).")
    key = "over" if rule.get("over") is not None else "keep"
    names = () if rule[key] == [] else _list(rule, key, at)
    for name in names:
        if name not in mesh.dims:
            raise SpecError(f"{at('reduce', key)}: {name!r} is no axis. {did_you_mean(name, mesh.dims)}")
    values.distinct(names, at("reduce", key))
    over = tuple(dim for dim in mesh.dims if (dim in names) == (key == "over"))
    if not over:
        raise SpecError(f"{at('reduce', key)}: no axis is left to search. Name at least one below over:.")
    return over
