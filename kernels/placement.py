"""Who shares what: the ranks that hold the same parameters, and how they sit in scale-up domains and pods.

Megatron's order tp -> cp -> ep -> dp -> pp: dense parameters are held by dp cp ranks, a routed expert by dp cp tp/ep; DualPipe's
stages by twice as many (schedule.py: held).
"""

from typing import NamedTuple

from . import collectives as c
from .ops import is_zero, maximum, minimum, where
from .schedule import DUALPIPE, held


class Shares(NamedTuple):
    """The two groups that reduce, and the bytes of a gradient per element."""

    dense: c.Group
    experts: c.Group
    moe: bool


def groups(x):
    """Placement of the dense and the experts' data-parallel group, Megatron's order tp -> cp -> ep -> dp -> pp."""
    pods = domains_of_pod(x)
    dense = _both_holders(x, c.place(x.dp * x.cp, x.scaleup_domain / x.tp, pods))
    moe = x.at_most("experts") > 0
    if not moe:
        return Shares(dense, dense, moe)
    return Shares(dense, _both_holders(x, c.place(maximum(x.dp * x.cp * x.tp / x.ep, 1.0), x.scaleup_domain / x.ep, pods)), moe)


def _both_holders(x, group):
    """The group with the other rank that holds the same stage (DualPipe): pp is placed last, so it sits as far away as can be."""
    if not may_hold_two(x):
        return group
    two = held(x)
    domain = x.gpus <= x.scaleup_domain
    pod = (domain == False) & (x.gpus <= x.pod_gpus)  # noqa: E712 (elementwise)
    n_in, n_mid = group.n_in * where(domain, two, 1.0), group.n_mid * where(pod, two, 1.0)
    return c.Group(group.n * two, n_in, n_mid, group.n * two / (n_in * n_mid))


def may_hold_two(x):
    """Whether some point of the sweep is DualPipe's."""
    codes = x.codes("schedule")
    return codes is None or DUALPIPE in codes


def domains_of_pod(x):
    """Domains of a pod; None: every domain is a pod of its own."""
    if is_zero(x.pod_gpus):
        return None
    return where(x.pod_gpus > 0, maximum(x.pod_gpus // x.scaleup_domain, 1.0), 1.0)


def shard_groups(x, shares):
    """HSDP: the groups that shard dense and expert parameters, and the pair of groups across which shards are reduced."""
    fit, pods, routed = x.scaleup_domain / x.tp, domains_of_pod(x), expert_shards(x)
    own = maximum(x.dp * x.cp * x.tp / x.ep, 1.0)
    across = (_both_holders(x, c.place(x.dp * x.cp / x.shard_group, fit / x.shard_group, pods)),
              _both_holders(x, c.place(maximum(own / routed, 1.0), x.scaleup_domain / x.ep / routed, pods)))
    experts = c.place(minimum(routed, own), x.scaleup_domain / x.ep, pods) if shares.moe else shares.experts
    return c.place(x.shard_group, fit, pods), experts, across


def expert_shards(x):
    """Ranks among which a shard group divides an expert."""
    return maximum(x.shard_group * x.tp / x.ep, 1.0)
