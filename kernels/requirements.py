"""What the port must deliver: the rate that keeps up, the rate at a tolerance, and each group's own.

Windows, slack and the step are those at infinite link speed, so that no requirement depends on the link it is asked at.
"""

from .inputs import channel_u
from .ops import choose, inverse, is_concrete, where
from .overlap import solve
from .reduction import way_codes

BINDING = {"binding_dimension", "binding_margin"}


def required(x, shares, ways, traffic, hop, hop_terms, free_step_s, outputs):
    """Requirements among ``outputs`` by name, in bytes/s of the port; all groups' where the binding one is asked for."""
    wanted = set(outputs)
    groups = {"dp": lambda: _data(x, shares, ways), "pp": lambda: _hops(x, hop, hop_terms, free_step_s)}
    groups |= {name: (lambda one=one: _block(x, one, free_step_s)) for name, one in traffic.items()}
    prefix = "required_link_gbps_"
    result = {prefix + name: solved() for name, solved in groups.items()
              if prefix + name in wanted or wanted & BINDING or (name == "dp" and "required_link_gbps" in wanted)}
    if "link_gbps_at_tolerance" in wanted:
        result["link_gbps_at_tolerance"] = _at_tolerance(x, ways, free_step_s)
    return result


def _at_tolerance(x, ways, free_step_s):
    """Exposed data parallelism of at most tol/(1-tol) of the step without it."""
    allowed = x.tolerance / (1.0 - x.tolerance) * free_step_s
    return _by_way(x, ways, lambda way: solve(way.terms, _still(way.costs), allowed))


def _data(x, shares, ways):
    """The rate at which the stream keeps up with the production of gradients."""

    def keeps_up(way):
        used = {name for term in way.sustained for item in term.candidates for name in item.counts}
        return solve(way.sustained, {name: cost for name, cost in _still(way.costs).items() if name in used}, 0.0)

    crosses = shares.dense.n_out > 1
    if shares.moe:
        crosses = crosses | (shares.experts.n_out > 1)
    return where(crosses, _by_way(x, ways, keeps_up), 0.0)


def _hops(x, hop, hop_terms, free_step_s):
    if x.at_most("pp") <= 1 or x.at_most("gpus") <= x.at_least("scaleup_domain"):
        return 0.0
    rate = _port(x, solve(hop_terms, {"hop": hop}, x.tolerance * free_step_s))
    return where((x.pp > 1) & (x.gpus > x.scaleup_domain), rate, 0.0)


def _block(x, one, free_step_s):
    """Traffic of every block and micro-batch within the tolerance."""
    if one.crosses is False:
        return 0.0
    every = x.micro_batches * x.layers / x.pp
    terms = [term._replace(times=term.times * every) for term in one.forward + one.backward]
    return where(one.crosses, _port(x, solve(terms, one.costs, x.tolerance * free_step_s)), 0.0)


def _by_way(x, ways, solved):
    code, codes = way_codes(x)
    return choose(code, {key: (lambda way=way: _port(x, solved(way))) for key, way in ways.items()}, codes)


def _port(x, u):
    """Port bytes/s of a solution u: 0 where any link does, inf where none does or the channels cannot."""
    least = 0.0 if is_concrete(x.channels) and x.channels == 0 else channel_u(x)
    return inverse(u, x.link_efficiency, (u > 0.0) & (u >= least))


def _still(costs):
    """The costs with hops held at an infinite link: time lost waiting for a link is never window."""
    return costs | {"hop": _Fixed(costs["hop"].seconds(0.0))} if "hop" in costs else costs


class _Fixed:
    """A cost that does not move with the link."""

    def __init__(self, value):
        self.value = value

    def seconds(self, u):
        return self.value

    def tangent(self, u):
        return self.value, 0.0

    def pipelined(self):
        return []
