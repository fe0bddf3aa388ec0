"""Traffic on the critical path of every micro-batch: tensor, context and expert parallelism, and pipeline hops.

Each dimension gives the exposed time of one block's forward and backward as terms of overlap.py over the cost of one of its
messages, so that seconds, the port it requires and its part of the step come from the same lines.  A group that stays inside
the scale-up domain at every point of a sweep carries no link at all.
"""

from typing import NamedTuple

from . import collectives as c
from .ops import ceil, clip, is_concrete, is_zero, maximum, minimum, positive, ratio, where
from .overlap import Candidate, Cost, Term
from .placement import domains_of_pod
from .work import FULL, SELECTIVE

ACTIVATION_BYTES = 2.0
"""Bytes of an activation element between ranks (16-bit, Megatron-Core)."""


class Traffic(NamedTuple):
    """Exposed seconds of one block as terms; ``crosses``: whether it is on the port (may differ by point)."""

    forward: list
    backward: list
    costs: dict
    crosses: object


NOTHING = Traffic([], [], {}, False)


def traffic(x, work, compute, net):
    """``Traffic`` of tp, cp and ep by name."""
    return {"tp": _tensor(x, work, compute, net), "cp": _context(x, work, compute, net), "ep": _expert(x, work, compute, net)}


def hop_cost(x, net):
    """Cost of one hop between stages: T h activations, of which each tp rank sends its part (Megatron's scatter-gather).

    Some hops cross pods: the cost is the mean over hops, which their sum over the pipeline asks for.
    """
    nbytes = tokens(x) * x.hidden * ACTIVATION_BYTES / x.tp
    if x.at_most("gpus") <= x.at_least("scaleup_domain"):
        return Cost((([c.Algorithm(0, net.inner_latency_s, 0.0, net.inner_s_per_byte, 0.0, 1.0)], nbytes),))
    crosses = x.gpus > x.scaleup_domain
    share, slow = _above_pods(x, net)
    latency = net.latency_s if is_zero(share) else net.latency_s + share * (net.top_latency_s - net.latency_s)
    line = c.Algorithm(0, where(crosses, latency, net.inner_latency_s), where(crosses, net.half_bytes, 0.0),
                       where(crosses, 0.0, net.inner_s_per_byte), where(crosses, 1.0 + share * (slow - 1.0), 0.0), 1.0)
    return Cost((([line], nbytes),))


def _above_pods(x, net):
    """Share of the messages between stages that cross pods, and how many times longer their bytes take.

    Ranks lie stage after stage (pp outermost), so the ranks of one stage send across each pod's end, all at once: they share its
    uplinks, which are 1/oversubscription of its ports.
    """
    if is_concrete(net.oversubscription) and net.oversubscription == 1 and net.top_latency_s is net.latency_s:
        return 0.0, 1.0
    pod, stage = maximum(x.pod_gpus, x.scaleup_domain), x.gpus / x.pp
    pods = ceil(x.gpus / pod)
    last = minimum((x.gpus - (pods - 1.0) * pod) / stage, 1.0)
    share = clip(ratio(pods - 2.0 + last, x.pp - 1.0), 0.0, 1.0)
    return share, maximum(net.oversubscription * minimum(stage / pod, 1.0), 1.0)


def tokens(x):
    """Tokens of a micro-batch on one rank, T = b s/cp."""
    return x.micro_batch * x.seq_len / x.cp


def _inside(algorithms, inside):
    """Algorithms of a group that never leaves its domain carry no link."""
    return [item._replace(b=0.0, h=0.0) for item in algorithms] if inside else algorithms


def _repeated(x, forward, core=False):
    """A forward's traffic once more where it is recomputed: all of it under full recomputation, the ``core``'s under selective."""
    again = where(x.recompute >= (SELECTIVE if core else FULL), 1.0, 0.0)
    if is_concrete(again) and again == 0:
        return []
    return [term._replace(times=term.times * again) for term in forward]


def _chunked(times, name, chunks, gemm_s):
    """``times`` messages, each overlapped in k chunks with a GEMM of g: max(0, c-g) + min(c, g)/k = max(c/k, c - g(1-1/k))."""
    if is_concrete(chunks) and chunks == 1:
        return Term([Candidate(0.0, {name: 1.0})], times)
    return Term([Candidate(0.0, {name: 1.0 / chunks}), Candidate(-gemm_s * (1.0 - 1.0 / chunks), {name: 1.0})], times)


def _tensor(x, work, compute, net):
    """Two all-reduces (or gather and scatter pairs) of T h per block forward, two backward; none around routed experts.

    Megatron-LM (arXiv:1909.08053, 2205.05198).  Each overlaps half the block's GEMMs where ``tp_overlap_chunks`` > 1.
    """
    if x.at_most("tp") <= 1:
        return NOTHING
    group = c.place(x.tp, x.scaleup_domain, domains_of_pod(x))
    inside = x.at_most("tp") <= x.at_least("scaleup_domain")
    ring, hierarchical = (c.all_reduce(group, net)[code] for code in (c.RING, c.HIERARCHICAL))
    lines = c.protocols(_inside([ring, hierarchical], inside), net)
    cost = Cost(((lines, tokens(x) * x.hidden * ACTIVATION_BYTES),))
    count = 2.0 - work.moe_share * where(x.shared_experts > 0, 0.0, 1.0)
    forward = [_chunked(count, "tp", x.tp_overlap_chunks, compute.gemm_forward_s / 2.0)]
    return Traffic(forward, forward + _repeated(x, forward), {"tp": cost}, False if inside else group.n_out > 1)


def _context(x, work, compute, net):
    """Context parallelism: keys and values travel a ring of cp ranks, or are gathered (Llama 3, arXiv:2407.21783).

    Ring, block time t and service c of one exchange (dK, dV weigh the same and travel one hop more):
    forward (cp-1) max(0, c-t); backward max(t,c) + (cp-2) max(t,2c) + max(t,c) + c - cp t.  t is the attention core's time on
    one rank's keys, twice as long backward; projections, norms and the MLP come before or after the ring and hide nothing.  A
    recomputed core (selective or full) repeats the exchange of forward.  Tokens are dealt so that causal work is balanced.
    """
    if x.at_most("cp") <= 1:
        return NOTHING
    group = c.place(x.cp, x.scaleup_domain / x.tp, domains_of_pod(x))
    inside = x.at_most("tp") * x.at_most("cp") <= x.at_least("scaleup_domain")
    crosses = group.n_out > 1
    width = maximum(x.kv_heads, x.tp) / x.tp * (x.head_dim + x.v_head_dim)
    nbytes = tokens(x) * width * ACTIVATION_BYTES
    hop = c.Algorithm(0, where(crosses, net.latency_s, net.inner_latency_s), where(crosses, net.half_bytes, 0.0),
                      net.inner_s_per_byte, where(crosses, 1.0, 0.0), 0.0)
    halves = c.half_reduce(group, net)
    gathers = c.protocols(_inside([halves[c.RING], halves[c.HIERARCHICAL]], inside), net)
    costs = {"cp": Cost(((_inside([hop], inside), nbytes),)), "cp.gather": Cost(((gathers, nbytes * x.cp),))}
    several = where(x.cp > 1, 1.0, 0.0)
    ranks, more = x.cp - 1.0, positive(x.cp - 2.0)
    ahead = compute.core_forward_s / x.cp
    back = 2.0 * ahead
    ring_forward = [Candidate(0.0, {}), Candidate(-ranks * ahead, {"cp": ranks})]
    ring_backward = [Candidate(0.0, {"cp": 1.0}), Candidate(-more * back, {"cp": 1.0 + 2.0 * more}),
                     Candidate(-(more + 2.0) * back, {"cp": 3.0 + 2.0 * more})]
    ring = ([Term(ring_forward, several)], [Term(ring_backward, several)])
    gathered = ([Term([Candidate(0.0, {"cp.gather": 1.0})], several)], [Term([Candidate(0.0, {"cp.gather": 2.0})], several)])
    if is_concrete(x.cp_method):
        forward, backward = gathered if x.cp_method else ring
        costs = {name: cost for name, cost in costs.items() if (name == "cp.gather") == bool(x.cp_method)}
    else:
        by_ring = where(x.cp_method == 0, 1.0, 0.0)
        forward, backward = ([term._replace(times=term.times * by_ring) for term in ours]
                             + [term._replace(times=term.times * (1.0 - by_ring)) for term in theirs]
                             for ours, theirs in zip(ring, gathered))
    return Traffic(forward, backward + _repeated(x, forward, core=True), costs, False if inside else crosses)


def _expert(x, work, compute, net):
    """Expert parallelism: dispatch and combine, T top_k h/tp elements each, forward and backward, on MoE blocks.

    ``node_limit``: a token's copies for another domain cross once and spread inside it (DeepSeek-V3, arXiv:2412.19437).
    """
    if x.at_most("ep") <= 1:
        return NOTHING
    group = c.place(x.ep, x.scaleup_domain, domains_of_pod(x))
    inside = x.at_most("ep") <= x.at_least("scaleup_domain")
    crossing = None
    if not (is_concrete(x.node_limit) and x.node_limit == 0):
        away = (group.n - group.n_in) / group.n
        crossing = where(x.node_limit > 0, minimum(away, x.node_limit / maximum(x.top_k, 1.0)), away)
    lines = _inside([c.all_to_all(group, net, crossing)], inside)
    elements = tokens(x) * x.top_k * x.hidden / x.tp
    costs = {"ep.dispatch": Cost(((lines, elements * x.dispatch_bytes),)), "ep.combine": Cost(((lines, elements * x.combine_bytes),))}
    gemm = compute.gemm_forward_s * work.expert_flop / (work.block_flop - work.attention_flop) / 2.0
    share = work.moe_share

    def passes(seconds):
        return [_chunked(share, name, x.ep_overlap_chunks, seconds) for name in costs]

    forward = passes(gemm)
    return Traffic(forward, passes(2.0 * gemm) + _repeated(x, forward), costs, False if inside else group.n_out > 1)


def chunked_exposed_s(comm_s, gemm_s, chunks):
    """Exposed seconds of a collective cut into k chunks over a GEMM: max(0, c-g) + min(c,g)/k."""
    return maximum(0.0, comm_s - gemm_s) + minimum(comm_s, gemm_s) / chunks


def ring_chunked_exposed_s(comm_s, gemm_s, chunks):
    """The same in a ring whose first chunk is local: (k-1) max(0, c/(k-1) - g/k)."""
    return (chunks - 1) * maximum(0.0, comm_s / (chunks - 1) - gemm_s / chunks)


def ring_attention_exposed_s(cp, block_s, service_s, backward_block_s, gradient_service_s):
    """Exposed seconds of ring attention, forward and backward (model.md section 6)."""
    t, s, d = backward_block_s, service_s, gradient_service_s
    forward = (cp - 1) * maximum(0.0, s - block_s)
    return forward, maximum(t, s) + (cp - 2) * maximum(t, s + d) + maximum(t, d) + d - cp * t


