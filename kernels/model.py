"""The overlap model of a training step: prepare, combine, report, and their composition evaluate.

    parts   = prepare(inputs)                low rank: work, compute, lines of collectives, candidates, requirements, status
    core    = combine(inputs, parts)         full rank: exposed_dp, dp_comm_time, step; nothing else
    outputs = report(inputs, parts, core)    one expression each

All of the link's influence enters through u = 1/(port bytes/s), as services of collectives and in combine; whatever asks for a link (``required_*``) takes
windows and the step at u = 0 and so lacks the link axis.  A point that cannot run is NaN in what belongs to the step as a
whole; ``status`` says why.  README.md beside this file tells the equations.
"""

from typing import NamedTuple

from . import fabric, quantities
from .collectives import tiers
from .compute import compute as compute_of
from .elasticities import elasticities
from .inputs import Inputs, complete, impossible, link_u, status_of
from .memory import memory as memory_of
from .ops import choose, maximum
from .outputs import Book
from .overlap import Candidate, Term, exposed, total, without_latency
from .placement import groups
from .reduction import way_codes, ways
from .requirements import required
from .schedule import hops, in_flight, pipeline_s
from .times import block_times, per_block, stages_at, stages_of, times_of
from .traffic import hop_cost, traffic
from .work import work as work_of

__all__ = ["Core", "Inputs", "Parts", "combine", "evaluate", "model_version", "prepare", "report"]

model_version = "2"
"""Changes whenever the same inputs give other numbers."""

ALL = quantities.EVERY_OUTPUT
MONEY = {"fabric_usd_per_gpu", "usd_per_million_tokens", "watts_per_gpu", "joules_per_token"}
"""Outputs that need the network's bill."""


class Parts(NamedTuple):
    """What has a lower rank than the step: all that is free of the link, and the services of collectives at it."""

    x: Inputs
    work: object
    compute: object
    shares: object
    traffic: dict
    hop: object
    hop_terms: list
    ways: dict
    services: dict  # seconds of each cost of each way at the link: lower rank than the step, and cut off from it here
    free_step_s: object
    optimizer_s: object
    memory: object
    impossible: object
    status: object
    asked: dict  # requirements of quantities.OUTPUTS by name, in bytes/s of the port
    cost: object  # fabric.Cost


class Core(NamedTuple):
    """Full rank: seconds of data parallelism and of the step, unmasked; the last only where ``bottleneck`` is asked for."""

    exposed_dp_s: object
    dp_comm_time_s: object
    step_time_s: object
    exposed_dp_without_latency_s: object = None


def prepare(inputs, outputs=ALL):
    """The :class:`Parts` of ``inputs``: everything of lower rank than the step that ``outputs`` need."""
    x = complete(inputs)
    work = work_of(x)
    compute = compute_of(x, work)
    net = tiers(x)
    shares = groups(x)
    moving = traffic(x, work, compute, net)
    hop = hop_cost(x, net)
    flow = (moving, {name: per_block(one, 0.0) for name, one in moving.items()})
    stages = stages_of(x, compute, *block_times(compute, flow, everything=True))
    update = maximum(compute.optimizer_first_s, compute.optimizer_middle_s, compute.optimizer_last_s)
    hop_terms = [Term([Candidate(seconds, {"hop": count}) for seconds, count in term]) for term in hops(x, stages)]
    free = pipeline_s(x, stages) + exposed(hop_terms, {"hop": hop.seconds(0.0)}) + update
    times = times_of(x, compute, flow, free)
    first, last = in_flight(x)
    memory = memory_of(x, work, first, last).total
    reasons = impossible(x)
    status, never = status_of(reasons, memory > x.hbm_gb)
    every = ways(x, work, times, net, shares, hop)
    u = link_u(x)
    services = {key: {name: cost.seconds(u) for name, cost in way.costs.items()} for key, way in every.items()}
    asked = required(x, shares, every, moving, hop, hop_terms, free, outputs)
    if slopes := [name for name in outputs if name in quantities.ELASTICITIES]:
        asked |= elasticities(inputs, slopes, lambda moved: prepare(moved, ("required_link_gbps_dp",)).asked["required_link_gbps_dp"])
    cost = fabric.cost(x) if MONEY & set(outputs) else None
    return Parts(x, work, compute, shares, moving, hop, hop_terms, every, services, free, update, memory, never, status, asked, cost)


def combine(inputs, parts, outputs=ALL):
    """The :class:`Core`: what the link decides, at full rank, as far as ``outputs`` need it."""
    x, u = parts.x, link_u(parts.x)
    hop = {"hop": parts.hop.seconds(u)}
    stages = stages_at(parts, u)
    pipeline = pipeline_s(x, stages) + exposed(parts.hop_terms, hop) + parts.optimizer_s
    code, codes = way_codes(x)
    late, comm = {}, {}
    for key, way in parts.ways.items():
        values = parts.services[key]
        late[key] = lambda way=way, values=values: exposed(way.terms, values)
        comm[key] = lambda way=way, values=values: maximum(*(total(counts, values) for counts in way.served), 0.0)
    exposed_dp = choose(code, late, codes)
    bytes_alone = _reduction_without_latency(parts, u) if "bottleneck" in outputs else None
    return Core(exposed_dp, choose(code, comm, codes), pipeline + exposed_dp, bytes_alone)


def _reduction_without_latency(parts, u):
    code, codes = way_codes(parts.x)
    return choose(code, {key: (lambda way=way: exposed(way.terms, without_latency(way.costs, u)))
                         for key, way in parts.ways.items()}, codes)


def report(inputs, parts, core, outputs):
    """name -> array for each of ``outputs`` (names of quantities.OUTPUTS), in people's units, size 1 on axes it lacks."""
    book = Book(parts, core)
    return {name: book[name] / quantities.OUTPUTS[name].scale if quantities.OUTPUTS[name].scale != 1.0 else book[name]
            for name in outputs}


def evaluate(inputs, outputs=None):
    """All outputs (or those named) of ``inputs``, an :class:`Inputs` in people's units; NumPy in, NumPy out."""
    outputs = ALL if outputs is None else outputs
    parts = prepare(inputs, outputs)
    return report(inputs, parts, combine(inputs, parts, outputs), outputs)
