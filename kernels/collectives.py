"""Seconds of each collective over the tiers of the network.

A collective has one or more algorithms, and takes the time of the fastest.  The time of an algorithm for V bytes is

    a + b u + V [ p (g + h u) + (1 - p) max(g, h u) ],        u = 1 / scale-out rate

with a the latencies, b a message-size term on the port, g the seconds per byte inside the scale-up domain, h the bytes on
the port per byte of V, and p the share of the two tiers that runs one after the other: 1 serial, 0 fully pipelined (a ring
whose hops run side by side), 1/q pipelined over q chunks (model.md section 4: slowest + (sum - slowest)/q).  Everything but u
is free of the link speed, so requirements, which ask for u, never carry the link axis.

V is the full tensor: the buffer of an all-reduce, the gathered result of an all-gather, the input of a reduce-scatter.
Bytes count one direction; links are duplex.
"""

from typing import NamedTuple

from .ops import ceil, clip, floor, hair, is_concrete, log2, maximum, minimum, ratio, where
from .quantities import ALGORITHMS

RING, TREE, HIERARCHICAL, IN_NETWORK = (ALGORITHMS.index(name) for name in ("ring", "tree", "hierarchical", "in-network"))


class Algorithm(NamedTuple):
    """One way to run a collective: ``code`` of quantities.ALGORITHMS and the coefficients of the law above (SI)."""

    code: int
    a: object
    b: object
    g: object
    h: object
    p: object


class Group(NamedTuple):
    """Ranks of a collective over the tiers: ``n`` in all, ``n_in`` in a domain, ``n_mid`` domains in a pod, ``n_top`` pods."""

    n: object
    n_in: object
    n_mid: object
    n_top: object

    @property
    def n_out(self):
        """Domains that the group spans."""
        return self.n_mid * self.n_top


class Tiers(NamedTuple):
    """The network, SI: seconds per byte and per hop, from inside out.  ``rails_one``: a domain sends over one port only."""

    inner_s_per_byte: object
    inner_latency_s: object
    latency_s: object
    top_latency_s: object
    oversubscription: object
    rails_one: object
    half_bytes: object
    pipeline_chunks: object
    tree_factor: object
    ll_bandwidth_ratio: object
    simple_latency_ratio: object
    uplink_share: object  # rings of a domain over the pod's uplinks at full rate: above 1 a flat ring is slowed too


def tiers(x):
    """The network of inputs ``x`` (SI, model.complete)."""
    rate = x.scaleup_gbytes_per_s * x.scaleup_efficiency
    if not (is_concrete(x.channels) and x.channels == 0):
        rate = where(x.channels > 0, minimum(rate, maximum(x.channels, 1) * x.channel_gbytes_per_s), rate)
    pod = where(x.pod_gpus > 0, x.pod_gpus, x.scaleup_domain)
    return Tiers(1.0 / rate, x.scaleup_latency_us, x.link_latency_us, x.pod_latency_us, x.oversubscription, x.rails == 1,
                 x.link_half_bytes, x.pipeline_chunks, x.tree_factor, x.ll_bandwidth_ratio, x.simple_latency_ratio,
                 maximum(x.oversubscription * x.scaleup_domain / maximum(pod, x.scaleup_domain), 1.0))


def place(n, per_domain, domains_per_pod=None):
    """``Group`` of ``n`` ranks of which ``per_domain`` fit a scale-up domain (a real number below 1 counts as 1).

    Non-dividing sizes: the fewest domains that hold the group, each with an equal whole number of ranks (a domain of 72 with
    tp 8 holds 9 replicas; 128 of them are placed as 16 x 8).  ``domains_per_pod`` None: every domain is a pod of its own.
    """
    fit = clip(floor(per_domain), 1.0, n)
    n_in = maximum(floor(n / ceil(n / fit)), 1.0)
    n_out = n / n_in
    if domains_per_pod is None:
        return Group(n, n_in, 1.0, n_out)
    n_mid = clip(domains_per_pod, 1.0, n_out)
    return Group(n, n_in, n_mid, n_out / n_mid)


def _spread(group, net):
    """Ports' bytes per byte that a domain hands out, from the two scale-out tiers: (n-1)/n of a ring over each."""
    middle = (group.n_mid - 1.0) / group.n_mid
    top = (group.n_top - 1.0) / (group.n_top * group.n_mid)
    return (middle + net.oversubscription * top) * _rails(group, net)


def _rails(group, net):
    return where(net.rails_one, 1.0, 1.0 / group.n_in)


def _hops(group, net):
    """Latency of n_in - 1, n_mid - 1 and n_top - 1 hops."""
    return ((group.n_in - 1.0) * net.inner_latency_s + (group.n_mid - 1.0) * net.latency_s
            + (group.n_top - 1.0) * net.top_latency_s)


def _hierarchical(group, net, passes):
    """Reduce-scatter inside, across, all-gather inside: ``passes`` 2 for an all-reduce, 1 for one half of it."""
    inner = passes * (group.n_in - 1.0) / group.n_in * net.inner_s_per_byte
    crosses = group.n_out > 1
    return Algorithm(HIERARCHICAL, passes * _hops(group, net), where(crosses, net.half_bytes, 0.0), inner,
                     passes * _spread(group, net), 1.0 / net.pipeline_chunks)


def _ring(group, net, passes):
    """A flat ring, one channel per rail: every hop at once, so the slower tier sets the rate."""
    share = passes * (group.n - 1.0) / group.n
    crosses = group.n_out > 1
    hops = ((group.n - group.n_out) * net.inner_latency_s + (group.n_mid - 1.0) * group.n_top * net.latency_s
            + (group.n_top - 1.0) * net.top_latency_s)
    return Algorithm(RING, passes * hops, where(crosses, net.half_bytes, 0.0),
                     where(group.n_in > 1, share * net.inner_s_per_byte, 0.0),
                     where(crosses, share * _rails(group, net) * net.uplink_share, 0.0), 0.0)


def _tree(group, net):
    """NCCL's double binary tree: a chain inside the domain, a tree over domains; two domains send V once (2 (n-1)/n = 1)."""
    crosses = group.n_out > 1
    depth = log2(group.n_mid) * net.latency_s + log2(group.n_top) * net.top_latency_s
    return Algorithm(TREE, 2.0 * ((group.n_in - 1.0) * net.inner_latency_s + depth), where(crosses, net.half_bytes, 0.0),
                     where(group.n_in > 1, 2.0 * (group.n - 1.0) / group.n * net.inner_s_per_byte, 0.0),
                     2.0 * net.tree_factor * _spread(group, net), 0.0)


def _in_network(group, net):
    """Switches reduce (NVLS inside, SHARP across): V once up and once down, on duplex links; a hop up, a hop down."""
    crosses, inside = group.n_out > 1, group.n_in > 1
    return Algorithm(IN_NETWORK,
                     where(inside, 2.0 * net.inner_latency_s, 0.0) + where(crosses, 2.0 * net.latency_s, 0.0),
                     where(crosses, net.half_bytes, 0.0), where(inside, net.inner_s_per_byte, 0.0),
                     where(crosses, _rails(group, net) * net.uplink_share, 0.0), 1.0 / net.pipeline_chunks)


def all_reduce(group, net):
    """Algorithms of an all-reduce by code."""
    return {RING: _ring(group, net, 2.0), TREE: _tree(group, net), HIERARCHICAL: _hierarchical(group, net, 2.0),
            IN_NETWORK: _in_network(group, net)}


def half_reduce(group, net):
    """Algorithms of a reduce-scatter or an all-gather by code; NCCL has no tree for them and switches do not reduce them."""
    ring, hierarchical = _ring(group, net, 1.0), _hierarchical(group, net, 1.0)
    return {RING: ring, TREE: hierarchical, HIERARCHICAL: hierarchical, IN_NETWORK: hierarchical}


def all_to_all(group, net, crossing=None):
    """All-to-all of V bytes per rank: (n - 1) alpha + (n-1)/n V/B, split over tiers by where the peers sit.

    ``crossing``: share of V that leaves the domain; None: (n - n_in)/n, every peer alike.
    """
    out = (group.n - group.n_in) / group.n if crossing is None else crossing
    inside = (group.n_in - 1.0) / group.n
    hops = (group.n_in - 1.0) * net.inner_latency_s + (group.n - group.n_in) * net.latency_s
    away = (group.n - group.n_in) / group.n
    top_share = ratio((group.n_top - 1.0) / group.n_top, away)  # of what leaves the domain
    slow = 1.0 + (net.oversubscription - 1.0) * top_share
    rails = where(net.rails_one, group.n_in, 1.0)
    return Algorithm(0, hops, where(group.n_out > 1, net.half_bytes, 0.0), inside * net.inner_s_per_byte, out * slow * rails, 0.0)


def selected(algorithms, algorithm, net, present=None):
    """The list of algorithms that input ``algorithm`` (0 auto, else 1 + ...) leaves, each with its protocols.

    ``algorithms``: one dictionary by code.  An axis of algorithms is selected at low rank: the result is the same list with
    the fields chosen per point.
    """
    names = ("auto", "ring", "tree", "hierarchical", "in-network")
    codes = {int(algorithm)} if is_concrete(algorithm) else set(range(len(names))) if present is None else set(present)
    if codes == {0}:
        chosen = [algorithms[RING], algorithms[TREE], algorithms[HIERARCHICAL]]
    elif len(codes) == 1:
        chosen = [algorithms[codes.pop()]]
    else:
        slots = [RING, TREE, HIERARCHICAL] if 0 in codes else [RING]
        chosen = [_pick(algorithms, algorithm, codes, slot) for slot in slots]
    unique = []
    for item in chosen:
        if not any(item is other for other in unique):
            unique.append(item)
    return protocols(unique, net)


def protocols(items, net):
    """Each algorithm by NCCL's protocols: LL (its bytes cost r_1 as much) and Simple (its latency r_2 as much)."""
    if is_concrete(net.ll_bandwidth_ratio) and is_concrete(net.simple_latency_ratio) \
            and net.ll_bandwidth_ratio == 1 and net.simple_latency_ratio == 1:
        return items
    low = [item._replace(g=item.g * net.ll_bandwidth_ratio, h=item.h * net.ll_bandwidth_ratio,
                         b=item.b * net.ll_bandwidth_ratio) for item in items]
    return low + [item._replace(a=item.a * net.simple_latency_ratio) for item in items]


def _pick(algorithms, algorithm, codes, slot):
    result = algorithms[slot]
    for code in sorted(codes - {0}):
        other = algorithms[code]
        result = Algorithm(*(where(algorithm == code, mine, theirs) for mine, theirs in zip(other, result)))
    return result


def rate(item, u):
    """Seconds per byte of an algorithm at ``u``; an algorithm that never leaves the domain does not carry u's axis."""
    if is_concrete(item.h) and item.h == 0:
        return item.g
    if is_concrete(item.p) and item.p == 1:
        return item.g + item.h * u
    wire = item.h * u
    return item.p * (item.g + wire) + (1.0 - item.p) * maximum(item.g, wire)


def seconds_of(item, nbytes, u):
    """Seconds of one algorithm for ``nbytes`` at ``u``."""
    latency = item.a if is_concrete(item.b) and item.b == 0 else item.a + item.b * u
    return latency + nbytes * rate(item, u)


def seconds(algorithms, nbytes, u):
    """Seconds of the fastest of ``algorithms`` for ``nbytes`` at ``u`` = 1 / (scale-out bytes/s)."""
    return minimum(*(seconds_of(item, nbytes, u) for item in algorithms))


def slope_of(item, nbytes, u):
    """Right-hand derivative of ``seconds_of`` with respect to u."""
    if is_concrete(item.h) and item.h == 0:
        return item.b
    # at a kink (u = g/h) the port counts as the slower tier, however the product rounds
    wire = item.h * u
    step = where(wire * (1.0 + hair(wire)) >= item.g, 1.0, item.p) if not (is_concrete(item.p) and item.p == 1) else 1.0
    return item.b + nbytes * item.h * step


def fastest(algorithms, nbytes, u):
    """Seconds, right-hand slope in u, and code of the fastest of ``algorithms``."""
    best, slope, code = None, None, None
    for item in algorithms:
        value, incline = seconds_of(item, nbytes, u), slope_of(item, nbytes, u)
        if best is None:
            best, slope, code = value, incline, item.code
            continue
        # on a tie the flatter line is the minimum just above u
        better = (value < best) | ((value == best) & (incline < slope))
        best, slope, code = minimum(value, best), where(better, incline, slope), where(better, item.code, code)
    return best, slope, code


# -- plain numbers: any worked example is one call ----------------------------------------------------------------------------


def ring_all_reduce_s(nbytes, n, bytes_per_s, latency_s=0.0):
    """Seconds of a ring all-reduce of ``nbytes`` over ``n`` ranks: 2(n-1) alpha + 2(n-1)/n V/B."""
    return 2.0 * (n - 1) * latency_s + 2.0 * (n - 1) / n * nbytes / bytes_per_s


def ring_half_s(nbytes, n, bytes_per_s, latency_s=0.0):
    """Seconds of a ring reduce-scatter or all-gather of a full tensor of ``nbytes``: (n-1) alpha + (n-1)/n V/B."""
    return ring_all_reduce_s(nbytes, n, bytes_per_s, latency_s) / 2.0


def all_to_all_s(nbytes, n, bytes_per_s, latency_s=0.0):
    """Seconds of an all-to-all in which each of ``n`` ranks holds ``nbytes``: (n-1) alpha + (n-1)/n V/B."""
    return (n - 1) * latency_s + (n - 1) / n * nbytes / bytes_per_s


def tree_all_reduce_s(nbytes, n, bytes_per_s, latency_s=0.0, tree_factor=1.0):
    """Seconds of a double binary tree all-reduce: 2 log2(n) alpha + 2(n-1)/n V/B times the tree factor."""
    return 2.0 * log2(n) * latency_s + 2.0 * (n - 1) / n * tree_factor * nbytes / bytes_per_s


def in_network_all_reduce_s(nbytes, bytes_per_s, latency_s=0.0, hops=2):
    """Seconds of an all-reduce that the switches do: alpha hops + V/B."""
    return hops * latency_s + nbytes / bytes_per_s


def hierarchical_all_reduce_s(nbytes, n_in, n_out, inner_bytes_per_s, bytes_per_s, inner_latency_s=0.0, latency_s=0.0, chunks=1):
    """Seconds of reduce-scatter inside, all-reduce of V/n_in across, all-gather inside; pipelined over ``chunks``.

    slowest + (sum - slowest)/q, the two inner phases being one resource (an upper bound, within 20 %).
    """
    inner = 2.0 * ring_half_s(nbytes, n_in, inner_bytes_per_s, inner_latency_s)
    outer = ring_all_reduce_s(nbytes / n_in, n_out, bytes_per_s, latency_s)
    slowest = maximum(inner, outer)
    return slowest + (inner + outer - slowest) / chunks


def bus_bandwidth(collective, nbytes, n, seconds):
    """busbw of nccl-tests in bytes/s: algbw x 2(n-1)/n for all_reduce, (n-1)/n for the others."""
    factor = 2.0 * (n - 1) / n if collective == "all_reduce" else (n - 1) / n
    return nbytes / seconds * factor
