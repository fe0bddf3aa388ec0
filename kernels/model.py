"""The overlap model of a training step: prepare, combine, report, and their composition evaluate.

    parts   = prepare(inputs)                low rank: work, compute, lines of collectives, candidates, requirements, status
    core    = combine(inputs, parts)         full rank: exposed_dp, dp_comm_time, step; nothing else
    outputs = report(inputs, parts, core)    one expression each

All of the link's influence enters through u = 1/(port bytes/s) in combine; whatever asks for a link (``required_*``) takes
windows and the step at u = 0 and so lacks the link axis.  A point that cannot run is NaN in what belongs to the step as a
whole; ``status`` says why.  README.md beside this file tells the equations.
"""

from typing import NamedTuple

from . import capacity, fabric, quantities, serving, stragglers
from .collectives import tiers
from .compute import compute as compute_of
from .inputs import Inputs, complete, impossible
from .memory import memory as memory_of
from .ops import choose, is_concrete, maximum, minimum, positive, ratio, where
from .overlap import Candidate, Term, exposed, solve, total
from .reduction import BUCKETS, RARE, SHARDED, groups, way_codes, ways
from .schedule import ONE_F_ONE_B, Stages, hops, in_flight, pipeline_s
from .traffic import hop_cost, tokens, traffic
from .work import FULL, SELECTIVE
from .work import work as work_of

__all__ = ["Core", "Inputs", "Parts", "combine", "evaluate", "model_version", "prepare", "report"]

model_version = "1"
"""Changes whenever the same inputs give other numbers."""

PER_BLOCK = ("tp", "cp", "ep")
FURTHER = {name: kernel.report for kernel, names in (
    (serving, serving.Serving._fields), (capacity, capacity.OUTPUTS), (stragglers, stragglers.OUTPUTS)) for name in names}
"""Outputs that are not of a training step, and the function that gives them."""


class Times(NamedTuple):
    """Seconds that the reduction is held against, at infinite link speed.

    ``*_window_s`` produce gradients: backward with the exposed traffic of other links than the reduction's port (on the port
    it adds nothing), or the last weight-gradient pass alone where the schedule ends all stages together.
    """

    block_forward_s: object
    block_window_s: object
    head_window_s: object
    embedding_window_s: object
    chunk_backward_s: object
    stages: Stages
    step_s: object  # pipeline and update, without data parallelism


class Parts(NamedTuple):
    """What does not depend on the link (see the module's docstring)."""

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


class Core(NamedTuple):
    """Full rank: seconds of data parallelism and of the step, unmasked; the last only where ``bottleneck`` is asked for."""

    exposed_dp_s: object
    dp_comm_time_s: object
    step_time_s: object
    exposed_dp_without_latency_s: object = None


def prepare(inputs):
    """The :class:`Parts` of ``inputs``: everything that does not depend on the link."""
    x = complete(inputs)
    work = work_of(x)
    compute = compute_of(x, work)
    net = tiers(x)
    shares = groups(x)
    moving = traffic(x, work, compute, net)
    hop = hop_cost(x, net)
    flow = (moving, {name: _per_block(one, 0.0) for name, one in moving.items()})
    stages = _stages(x, compute, *_block_times(compute, flow, everything=True))
    update = maximum(compute.optimizer_first_s, compute.optimizer_middle_s, compute.optimizer_last_s)
    hop_terms = [Term([Candidate(seconds, {"hop": count}) for seconds, count in hops(x, stages)])]
    free = pipeline_s(x, stages) + exposed(hop_terms, {"hop": hop.seconds(0.0)}) + update
    times = _times(x, compute, flow, free)
    first, last = in_flight(x)
    memory = memory_of(x, work, first, last).total
    reasons = impossible(x)
    status, never = _status(reasons, memory > x.hbm_gb)
    every = ways(x, work, times, net, shares, hop)
    u = link_u(x)
    services = {key: {name: cost.seconds(u) for name, cost in way.costs.items()} for key, way in every.items()}
    return Parts(x, work, compute, shares, moving, hop, hop_terms, every, services, free, update, memory, never, status)


def combine(inputs, parts, outputs=("bottleneck",)):
    """The :class:`Core`: what the link decides, at full rank, as far as ``outputs`` need it."""
    x, u = parts.x, link_u(parts.x)
    hop = {"hop": parts.hop.seconds(u)}
    stages = _stages_at(parts, u)
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
    return choose(code, {key: (lambda way=way: exposed(way.terms, _without_latency(way.costs, u)))
                         for key, way in parts.ways.items()}, codes)


def _without_latency(costs, u):
    return {name: cost.without_latency().seconds(u) for name, cost in costs.items()}


def report(inputs, parts, core, outputs):
    """name -> array for each of ``outputs`` (names of quantities.OUTPUTS), in people's units, size 1 on axes it lacks."""
    book = _Book(parts, core)
    return {name: book[name] / quantities.OUTPUTS[name].scale if quantities.OUTPUTS[name].scale != 1.0 else book[name]
            for name in outputs}


def evaluate(inputs, outputs=None):
    """All outputs (or those named) of ``inputs``, an :class:`Inputs` in people's units; NumPy in, NumPy out."""
    parts = prepare(inputs)
    outputs = tuple(quantities.OUTPUTS) if outputs is None else outputs
    return report(inputs, parts, combine(inputs, parts, outputs), outputs)


def link_u(x):
    """Seconds per byte of the port, at least those of the channels that drive it (x: completed)."""
    u = 1.0 / (x.link_gbps * x.link_efficiency)
    if is_concrete(x.channels) and x.channels == 0:
        return u
    return maximum(u, channel_u(x))


def channel_u(x):
    """Least seconds per byte that ``channels`` allow (0: no bound)."""
    return ratio(1.0, x.channels * x.channel_gbytes_per_s)


# -- time of blocks and stages ------------------------------------------------------------------------------------------------


def _per_block(one, u):
    """Exposed seconds of a block's forward and backward at ``u``."""
    values = {name: cost.seconds(u) for name, cost in one.costs.items()}
    return exposed(one.forward, values), exposed(one.backward, values)


def _block_times(compute, flow, everything):
    """Forward and backward of a block with its exposed traffic; without ``everything``, that of other links than the port."""
    moving, late = flow
    forward, backward = compute.block_forward_s, compute.block_backward_s
    for name, one in moving.items():
        more_forward, more_backward = late[name]
        if not everything and one.crosses is not False:
            more_forward, more_backward = (where(one.crosses, 0.0, more) for more in (more_forward, more_backward))
        forward, backward = forward + more_forward, backward + more_backward
    return forward, backward


def _stages(x, compute, forward, backward):
    blocks = x.layers / x.pp
    return Stages(blocks * forward, blocks * backward, blocks * compute.block_wgrad_s, compute.embedding_forward_s,
                  compute.embedding_backward_s, compute.head_forward_s, compute.head_backward_s)


def _stages_at(parts, u):
    late = {name: _per_block(one, u) for name, one in parts.traffic.items()}
    return _stages(parts.x, parts.compute, *_block_times(parts.compute, (parts.traffic, late), everything=True))


def _times(x, compute, flow, free_step):
    forward, backward = _block_times(compute, flow, everything=False)
    stages = _stages(x, compute, forward, backward)
    apart = x.schedule != ONE_F_ONE_B  # the window is the last weight-gradient pass alone
    window = where(apart, compute.block_wgrad_s, backward)
    head = where(apart, compute.head_backward_s / 2.0, compute.head_backward_s)
    return Times(forward, window, head, compute.embedding_backward_s, stages.backward / x.vpp, stages, free_step)


def _status(reasons, too_large):
    """Code of the first reason that applies, and whether the point is impossible."""
    conditions = [*reasons.values(), too_large]
    code = 0
    for index in range(len(conditions), 0, -1):
        code = where(conditions[index - 1], index, code)
    never = False
    for condition in reasons.values():
        never = never | condition
    return code, never


# -- outputs ------------------------------------------------------------------------------------------------------------------


class _Book:
    """Outputs in SI by name, each worked out once and only when asked for."""

    def __init__(self, parts, core):
        self.parts, self.core, self.x = parts, core, parts.x
        self._known = {}

    def __getitem__(self, name):
        if name not in self._known:
            group = name.removeprefix("required_link_gbps_")
            if name in FURTHER:
                self._known |= FURTHER[name](self.x)
            elif group != name:
                self._known[name] = self._required(group)
            elif name.startswith("exposed_") and name[8:-2] in PER_BLOCK:
                self._known[name] = self._masked(self._exposed_block(name[8:-2]))
            else:
                self._known[name] = getattr(self, name)()
        return self._known[name]

    def _masked(self, value):
        never = self.parts.impossible
        return value if never is False else where(never, float("nan"), value)

    # times of the step

    def step_time_s(self):
        return self._masked(self.core.step_time_s)

    def compute_time_s(self):
        stages = _stages(self.x, self.parts.compute, self.parts.compute.block_forward_s, self.parts.compute.block_backward_s)
        return self._masked(self.x.micro_batches * stages.slowest(self.x.pp))

    def forward_time_s(self):
        compute, x = self.parts.compute, self.x
        ends = where(x.pp > 1, maximum(compute.embedding_forward_s, compute.head_forward_s),
                     compute.embedding_forward_s + compute.head_forward_s)
        return x.layers / x.pp * compute.block_forward_s + ends

    def backward_time_s(self):
        compute, x = self.parts.compute, self.x
        ends = where(x.pp > 1, maximum(compute.embedding_backward_s, compute.head_backward_s),
                     compute.embedding_backward_s + compute.head_backward_s)
        return x.layers / x.pp * compute.block_backward_s + ends

    def bubble_time_s(self):
        stages = _stages_at(self.parts, link_u(self.x))
        return self._masked(positive(pipeline_s(self.x, stages) - self.x.micro_batches * stages.slowest(self.x.pp)))

    def optimizer_time_s(self):
        return self.parts.optimizer_s

    def exposed_dp_s(self):
        return self._masked(self.core.exposed_dp_s)

    def exposed_pp_s(self):
        return self._masked(exposed(self.parts.hop_terms, {"hop": self.parts.hop.seconds(link_u(self.x))}))

    def _exposed_block(self, name):
        forward, backward = _per_block(self.parts.traffic[name], link_u(self.x))
        return self.x.micro_batches * self.x.layers / self.x.pp * (forward + backward)

    def _exposed_all(self):
        return sum(self[f"exposed_{name}_s"] for name in ("dp", "tp", "cp", "ep", "pp"))

    def exposed_fraction(self):
        return self._exposed_all() / self.core.step_time_s

    def dp_comm_time_s(self):
        return self.core.dp_comm_time_s

    def hidden_fraction(self):
        return self._masked(positive(1.0 - ratio(self.core.exposed_dp_s, self.core.dp_comm_time_s)))

    # requirements

    def first_order_link_gbps(self):
        """Section 1's law: bytes on the port over the window of 2 P_a FLOP per token and pass, ends and norms counted."""
        x, work, shares = self.x, self.parts.work, self.parts.shares
        routed = x.layers * work.block_expert_params * x.ep if shares.moe else 0.0
        dense = (work.params - routed) / (x.tp * x.pp)
        in_network = (x.algorithm == 4) & (x.zero_stage == 0)

        def port_bytes(group, params, size):
            ring = 2.0 * (group.n_out - 1.0) / group.n_out
            crossing = where(in_network, where(group.n_out > 1, 1.0, 0.0), ring)
            return crossing * size * params / where(x.rails == 1, 1.0, group.n_in)

        def all_bytes(size):
            more = port_bytes(shares.experts, routed / (x.pp * x.ep), size) if shares.moe else 0.0
            return port_bytes(shares.dense, dense, size) + more

        per_pass = 2.0 * work.active_params * tokens(x) / (x.tp * x.pp * self.achieved_tflops())
        backward = choose(x.recompute, {0: lambda: 2.0, SELECTIVE: lambda: 2.0, FULL: lambda: 3.0}, x.codes("recompute"))
        plain = all_bytes(x.grad_bytes) / (backward * per_pass)
        if x.at_most("zero_stage") < 3:
            return plain
        gather = all_bytes(x.param_bytes) / 2.0
        return where(x.zero_stage >= 3, maximum(gather / per_pass, plain / 2.0 + gather / (backward * per_pass)), plain)

    def required_link_gbps(self):
        return self._required("dp")

    def link_gbps_at_tolerance(self):
        x, tolerance = self.x, self.x.tolerance
        allowed = tolerance / (1.0 - tolerance) * self.parts.free_step_s

        def port(way):
            still = way.costs | ({"hop": _Fixed(way.costs["hop"].seconds(0.0))} if "hop" in way.costs else {})
            return self._rate(solve(way.terms, still, allowed))

        code, codes = way_codes(x)
        return choose(code, {key: (lambda way=way: port(way)) for key, way in self.parts.ways.items()}, codes)

    def _required(self, group):
        x, parts = self.x, self.parts
        if group == "dp":
            def port(way):
                still = way.costs | ({"hop": _Fixed(way.costs["hop"].seconds(0.0))} if "hop" in way.costs else {})
                used = {name for term in way.sustained for item in term.candidates for name in item.counts}
                return self._rate(solve(way.sustained, {name: cost for name, cost in still.items() if name in used}, 0.0))

            code, codes = way_codes(x)
            rate = choose(code, {key: (lambda way=way: port(way)) for key, way in parts.ways.items()}, codes)
            spans = parts.shares.dense.n_out > 1
            return where(spans | (parts.shares.experts.n_out > 1) if parts.shares.moe else spans, rate, 0.0)
        if group == "pp":
            if x.at_most("pp") <= 1 or x.at_most("gpus") <= x.at_least("scaleup_domain"):
                return 0.0
            rate = self._rate(solve(parts.hop_terms, {"hop": parts.hop}, x.tolerance * parts.free_step_s))
            return where((x.pp > 1) & (x.gpus > x.scaleup_domain), rate, 0.0)
        one = parts.traffic[group]
        if one.crosses is False:
            return 0.0
        every = x.micro_batches * x.layers / x.pp
        terms = [term._replace(times=term.times * every) for term in one.forward + one.backward]
        return where(one.crosses, self._rate(solve(terms, one.costs, x.tolerance * parts.free_step_s)), 0.0)

    def _rate(self, u):
        """Port bytes/s of a solution u: 0 where any link does, inf where none does or the channels cannot."""
        x = self.x
        least = 0.0 if is_concrete(x.channels) and x.channels == 0 else channel_u(x)
        feasible = (u > 0.0) & (u >= least)
        return where(feasible, 1.0 / (where(feasible, u, 1.0) * x.link_efficiency), float("inf"))

    def _requirements(self):
        return [self[f"required_link_gbps_{name}"] for name in quantities.GROUPS[1:]]

    def binding_dimension(self):
        code, largest = 0, 0.0
        for index, value in enumerate(self._requirements(), start=1):
            code, largest = where(value > largest, index, code), maximum(largest, value)
        return code

    def binding_margin(self):
        values = self._requirements()
        largest, second = 0.0, 0.0
        for value in values:
            second = maximum(second, minimum(largest, value))
            largest = maximum(largest, value)
        both = (largest == float("inf")) & (second == float("inf"))
        return where(both | (largest == 0.0), 1.0, where(both, 1.0, largest) / where(both, 1.0, maximum(second, 1e-300)))

    # shares and causes

    def bottleneck(self):
        """Code of the largest term; ``memory`` for compute bound by HBM, ``latency`` for communication that waits for hops."""
        names = quantities.BOTTLENECKS
        terms = {"compute": self.compute_time_s(), "bubble": self.bubble_time_s(), "optimizer": self.parts.optimizer_s}
        terms |= {name: self[f"exposed_{name}_s"] for name in ("dp", "tp", "cp", "ep", "pp")}
        code, largest = 0, 0.0
        for name, value in terms.items():
            code, largest = where(value > largest, names.index(name), code), maximum(largest, value)
        latency = names.index("latency")
        for name in ("dp", "tp", "cp", "ep", "pp"):
            mine = (code == names.index(name)) & (self._bytes_alone(name) < 0.5 * self[f"exposed_{name}_s"])
            code = where(mine, latency, code)
        compute = self.parts.compute
        blocks = self.x.layers / self.x.pp
        hbm = self.x.micro_batches * (blocks * compute.block_hbm_s + compute.head_hbm_s)
        code = where((code == 0) & (hbm > 0.5 * terms["compute"]), names.index("memory"), code)
        return self._masked(code)

    def _bytes_alone(self, name):
        if name == "dp":
            return self.core.exposed_dp_without_latency_s
        u = link_u(self.x)
        if name == "pp":
            return exposed(self.parts.hop_terms, _without_latency({"hop": self.parts.hop}, u))
        one = self.parts.traffic[name]
        values = _without_latency(one.costs, u)
        return self.x.micro_batches * self.x.layers / self.x.pp * (exposed(one.forward, values) + exposed(one.backward, values))

    def dp_algorithm(self):
        """Algorithm of a full dense bucket (of a gather, for FSDP; of a fragment, for DiLoCo) at this link."""
        from .collectives import fastest

        u = link_u(self.x)
        ends = {BUCKETS: ("regular", "dense"), SHARDED: ("r",), RARE: ("fragment",)}

        def chosen(code, way):
            name = next(name for name in way.costs if name.split(".")[-1] in ends[code])
            algorithms, nbytes = way.costs[name].parts[0]
            return fastest(algorithms, nbytes, u)[2]

        code, codes = way_codes(self.x)
        picked = choose(code, {one: (lambda one=one, way=way: chosen(one, way)) for one, way in self.parts.ways.items()}, codes)
        return where(self.parts.shares.dense.n > 1, picked, 0)

    def mfu(self):
        return self._rate_of(self.parts.work.model_flop)

    def hfu(self):
        return self._rate_of(self.parts.work.hardware_flop)

    def _rate_of(self, flop_per_token):
        x = self.x
        return self._masked(flop_per_token * tokens(x) * x.micro_batches / (x.tp * x.pp * x.peak_tflops) / self.core.step_time_s)

    def tokens_per_s_per_gpu(self):
        x = self.x
        return self._masked(tokens(x) * x.micro_batches / (x.tp * x.pp) / self.core.step_time_s)

    def tokens_per_domain(self):
        return tokens(self.x) * self.parts.shares.dense.n_in

    def achieved_tflops(self):
        x, work, compute = self.x, self.parts.work, self.parts.compute
        if x.efficiency is not None:
            return x.efficiency * x.peak_tflops
        seconds = x.layers * (compute.block_forward_s + compute.block_backward_s) + compute.head_forward_s \
            + compute.head_backward_s + compute.embedding_forward_s + compute.embedding_backward_s
        return work.hardware_flop * tokens(x) / x.tp / seconds

    def dp(self):
        return self.x.dp

    def micro_batches(self):
        return self.x.micro_batches

    def memory_bytes(self):
        return self.parts.memory

    def status(self):
        return self.parts.status

    # money and power

    def fabric_usd_per_gpu(self):
        return fabric.cost(self.x).fabric_usd_per_gpu

    def usd_per_million_tokens(self):
        return 1e6 * fabric.cost(self.x).usd_per_second_per_gpu / self["tokens_per_s_per_gpu"]

    def joules_per_token(self):
        return self["watts_per_gpu"] / self["tokens_per_s_per_gpu"]

    def watts_per_gpu(self):
        return fabric.cost(self.x).watts_per_gpu


class _Fixed:
    """A cost held at its value on an infinite link: time lost waiting for a link is never window."""

    def __init__(self, value):
        self.value = value

    def seconds(self, u):
        return self.value

    def tangent(self, u):
        return self.value, 0.0

    def kinks(self):
        return []


