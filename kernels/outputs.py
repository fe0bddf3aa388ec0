"""Outputs of a point from its parts and core, one expression each."""

from . import capacity, quantities, serving, stragglers
from .collectives import fastest
from .inputs import link_u
from .ops import choose, maximum, minimum, positive, ratio, where
from .overlap import exposed, without_latency
from .reduction import BUCKETS, RARE, SHARDED, way_codes
from .schedule import pipeline_s
from .times import per_block, stages_at, stages_of
from .traffic import tokens
from .work import FULL, SELECTIVE

PER_BLOCK = ("tp", "cp", "ep")
FURTHER = {name: kernel.report for kernel, names in (
    (serving, serving.Serving._fields), (capacity, capacity.OUTPUTS), (stragglers, stragglers.OUTPUTS)) for name in names}
"""Outputs that are not of a training step, and the function that gives them."""


class Book:
    """Outputs in SI by name, each worked out once and only when asked for."""

    def __init__(self, parts, core):
        self.parts, self.core, self.x = parts, core, parts.x
        self._known = dict(parts.asked)

    def __getitem__(self, name):
        if name not in self._known:
            if name in FURTHER:
                self._known |= FURTHER[name](self.x)
            elif name.startswith("exposed_") and name[8:-2] in PER_BLOCK:
                self._known[name] = self._masked(self._exposed_block(name[8:-2]))
            else:
                self._known[name] = getattr(self, name)()
        return self._known[name]

    def _masked(self, value):
        never = self.parts.impossible
        return value if never is False else value * where(never, float("nan"), 1.0)  # a factor: gradients are NaN there too

    # times of the step

    def step_time_s(self):
        return self._masked(self.core.step_time_s)

    def compute_time_s(self):
        stages = stages_of(self.x, self.parts.compute, self.parts.compute.block_forward_s, self.parts.compute.block_backward_s)
        return self._masked(self.x.micro_batches * stages.slowest(self.x.pp, self.x.schedule))

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
        stages = stages_at(self.parts, link_u(self.x))
        return self._masked(positive(pipeline_s(self.x, stages) - self.x.micro_batches * stages.slowest(self.x.pp, self.x.schedule)))

    def optimizer_time_s(self):
        return self.parts.optimizer_s

    def exposed_dp_s(self):
        return self._masked(self.core.exposed_dp_s)

    def exposed_pp_s(self):
        return self._masked(exposed(self.parts.hop_terms, {"hop": self.parts.hop.seconds(link_u(self.x))}))

    def _exposed_block(self, name):
        forward, backward = per_block(self.parts.traffic[name], link_u(self.x))
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
        return self["required_link_gbps_dp"]

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
        return where(both | (largest == 0.0), 1.0, ratio(where(both, 1.0, largest), where(both, 1.0, second), float("inf")))

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
            return exposed(self.parts.hop_terms, without_latency({"hop": self.parts.hop}, u))
        one = self.parts.traffic[name]
        values = without_latency(one.costs, u)
        return self.x.micro_batches * self.x.layers / self.x.pp * (exposed(one.forward, values) + exposed(one.backward, values))

    def dp_algorithm(self):
        """Algorithm of a full dense bucket (of a gather, for FSDP; of a fragment, for DiLoCo) at this link."""
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
        return self.parts.cost.fabric_usd_per_gpu

    def usd_per_million_tokens(self):
        return 1e6 * self.parts.cost.usd_per_second_per_gpu / self["tokens_per_s_per_gpu"]

    def joules_per_token(self):
        return self["watts_per_gpu"] / self["tokens_per_s_per_gpu"]

    def watts_per_gpu(self):
        return self.parts.cost.watts_per_gpu
