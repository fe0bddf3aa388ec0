"""Seconds of a collective over the tiers of a network, summed phase by phase; plain numbers in SI.

``Group``: ranks in a domain, domains in a pod, pods. A phase of a ring over n ranks is n-1 hops, each a latency and 1/n of the bytes.
"""

from typing import NamedTuple


class Group(NamedTuple):
    """Ranks that one collective spans."""

    inside: int
    domains: int
    pods: int = 1

    @property
    def ranks(self):
        """All of them."""
        return self.inside * self.domains * self.pods

    @property
    def crosses(self):
        """Whether any byte leaves a domain."""
        return self.domains * self.pods > 1


class Network(NamedTuple):
    """Rates in bytes/s, latencies in seconds; ``low`` and ``simple``: NCCL's cost per byte of LL and latency of Simple."""

    inner_rate: float
    inner_latency: float
    rate: float
    latency: float
    pod_latency: float
    oversubscription: float = 1.0
    one_rail: bool = False
    half_bytes: float = 0.0
    chunks: int = 1
    tree_factor: float = 1.0
    low: float = 1.0
    simple: float = 1.0
    uplink_share: float = 1.0


def place(ranks, per_domain, pod_domains=None):
    """The group of so many ranks: the fewest domains that hold it, equally filled; ``per_domain`` below 1 counts as 1."""
    fit = int(min(max(per_domain, 1), ranks))
    needed = -(-ranks // fit)
    inside = max(ranks // needed, 1)
    domains = ranks / inside
    if pod_domains is None:
        return Group(inside, 1, domains)
    middle = min(max(pod_domains, 1), domains)
    return Group(inside, middle, domains / middle)


def _phases(group, net, size, passes):
    """(latency, seconds inside, seconds on the port) of ``passes`` ring passes: inside, over the domains of a pod, over pods."""
    inner = (group.inside - 1) / group.inside * size / net.inner_rate
    shard = size if net.one_rail else size / group.inside  # bytes that one port carries for its domain
    wire = (group.domains - 1) / group.domains * shard / net.rate
    shard /= group.domains
    wire += (group.pods - 1) / group.pods * shard * net.oversubscription / net.rate
    latency = (group.inside - 1) * net.inner_latency + (group.domains - 1) * net.latency + (group.pods - 1) * net.pod_latency
    return passes * latency, passes * inner, passes * wire


def _message(group, net):
    return net.half_bytes / net.rate if group.crosses else 0.0


def hierarchical(group, net, size, passes=2):
    """Inside, across, inside; in chunks the slowest of the two resources and one chunk of the other."""
    latency, inner, wire = _phases(group, net, size, passes)
    slow = max(inner, wire)
    return latency, _message(group, net) + slow + (inner + wire - slow) / net.chunks


def ring(group, net, size, passes=2):
    """One flat ring: all hops at once, the slowest sets the pace."""
    share = passes * (group.ranks - 1) / group.ranks * size
    pace = share / net.inner_rate if group.inside > 1 else 0.0
    if group.crosses:
        pace = max(pace, share / (1 if net.one_rail else group.inside) * net.uplink_share / net.rate)
    across = group.domains * group.pods
    hops = (group.ranks - across) * net.inner_latency + (group.domains - 1) * group.pods * net.latency + (group.pods - 1) * net.pod_latency
    return passes * hops, _message(group, net) + pace


def tree(group, net, size):
    """Double binary tree over the domains, a chain inside."""
    from math import log2

    _, _, wire = _phases(group, net, size, 2)
    pace = max(2 * (group.ranks - 1) / group.ranks * size / net.inner_rate if group.inside > 1 else 0.0, net.tree_factor * wire)
    deep = log2(group.domains) * net.latency + log2(group.pods) * net.pod_latency
    return 2 * ((group.inside - 1) * net.inner_latency + deep), _message(group, net) + pace


def in_network(group, net, size):
    """Switches reduce: every byte up once and down once."""
    inner = size / net.inner_rate if group.inside > 1 else 0.0
    wire = size / (1 if net.one_rail else group.inside) * net.uplink_share / net.rate if group.crosses else 0.0
    latency = (2 * net.inner_latency if group.inside > 1 else 0.0) + (2 * net.latency if group.crosses else 0.0)
    slow = max(inner, wire)
    return latency, _message(group, net) + slow + (inner + wire - slow) / net.chunks


def _fastest(net, choices):
    found = [latency + rest for latency, rest in choices]
    if net.low != 1.0 or net.simple != 1.0:
        found = [latency + rest * net.low for latency, rest in choices] + [latency * net.simple + rest for latency, rest in choices]
    return min(found)


def all_reduce(group, net, size, algorithm="auto"):
    """Seconds of an all-reduce of ``size`` bytes; ``auto``: the fastest without switches that reduce."""
    if size == 0.0:
        return 0.0
    known = {"ring": ring, "tree": tree, "hierarchical": hierarchical, "in-network": in_network}
    names = ("ring", "tree", "hierarchical") if algorithm == "auto" else (algorithm,)
    return _fastest(net, [known[name](group, net, size) for name in names])


def half_reduce(group, net, size, algorithm="auto"):
    """Seconds of a reduce-scatter or all-gather of a full tensor of ``size`` bytes: ring or hierarchical only."""
    if size == 0.0:
        return 0.0
    known = [ring(group, net, size, 1)] * (algorithm in ("auto", "ring")) + [hierarchical(group, net, size, 1)] * (algorithm != "ring")
    return _fastest(net, known)


def all_to_all(group, net, size, crossing=None):
    """Seconds of an all-to-all of ``size`` bytes per rank: one message to every peer, both tiers at once; ``crossing``: share that leaves the domain."""
    out = 1 - group.inside / group.ranks if crossing is None else crossing
    beyond = group.ranks - group.inside * group.domains  # peers of other pods, of all that are in other domains
    slow = 1 + (net.oversubscription - 1) * beyond / max(group.ranks - group.inside, 1)
    wire = out * size * slow * (group.inside if net.one_rail else 1) / net.rate
    hops = (group.inside - 1) * net.inner_latency + (group.ranks - group.inside) * net.latency
    return hops + _message(group, net) + max((group.inside - 1) / group.ranks * size / net.inner_rate, wire)


def message(net, size, crosses):
    """Seconds of one message between two GPUs."""
    if crosses:
        return net.latency + (net.half_bytes + size) / net.rate
    return net.inner_latency + size / net.inner_rate


def stage_hop(net, size, gpus, stages, domain, pod):
    """Mean seconds of a message between neighbouring stages, over all of them: ranks lie stage after stage, domain by domain, pod by pod.

    The ranks that send across a pod's end at one time share what leaves it.
    """
    if gpus <= domain or stages == 1:
        return message(net, size, gpus > domain)
    ranks, pod, total = gpus // stages, max(pod, domain), 0.0
    for sender in range(gpus - ranks):
        if sender // pod == (sender + ranks) // pod:
            total += message(net, size, True)
        else:
            slow = max(1.0, min(ranks, pod) * net.oversubscription / pod)
            total += net.pod_latency + (net.half_bytes + size * slow) / net.rate
    return total / (gpus - ranks)
