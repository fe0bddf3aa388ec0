"""Find the slow rank, node or pair of a job by measuring halves: the plan of the next measurement, from the results so far.

A measurement is a set of hosts and how fast the collective ran on it, as a fraction of what is expected.  A set is slow below
``THRESHOLD``.  Slow sets are halved until one host remains; where both halves of a slow set are fast, the fault lies between them, and
mixed halves (half of each) are measured until one pair remains.  At most about 2 log2(n) + 4 measurements name the culprit.
"""

from typing import NamedTuple

THRESHOLD = 0.8


class Step(NamedTuple):
    """What to do next: measure ``hosts`` (``done`` False), or stop with the culprits in ``hosts`` (``done`` True)."""

    hosts: tuple
    why: str
    done: bool = False


def next_measurement(hosts, results, threshold=THRESHOLD):
    """The next ``Step`` for a job on ``hosts``; ``results``: {frozenset of hosts: fraction of the expected speed}."""
    hosts = tuple(hosts)
    speed = {frozenset(k): v for k, v in results.items()}

    def known(group):
        return speed.get(frozenset(group))

    def slow(group):
        return known(group) < threshold

    if len(hosts) < 2:
        return Step(hosts, "one host: measure inside it (one GPU less each time)", True)
    if known(hosts) is None:
        return Step(hosts, "the collective alone, on the whole job")
    if not slow(hosts):
        return Step((), "the whole job is fast: the collective is not the cause, look at compute and input", True)
    group = hosts
    while True:
        if len(group) == 2:
            return _pair(group, hosts, speed, threshold)
        first, second = group[: len(group) // 2], group[len(group) // 2 :]
        for half in (first, second):
            if len(half) > 1 and known(half) is None:
                return Step(half, f"a half of {len(group)} hosts")
        bad = [half for half in (first, second) if len(half) > 1 and slow(half)]
        if bad:
            group = bad[0]
            continue
        return _between(first, second, speed, threshold)


def _between(first, second, speed, threshold):
    """Both halves are fast apart and slow together: narrow each side in turn against the whole of the other."""
    sides = [first, second]
    while len(sides[0]) > 1 or len(sides[1]) > 1:
        turn = 0 if len(sides[0]) >= len(sides[1]) else 1
        mine = sides[turn]
        low, high = mine[: len(mine) // 2], mine[len(mine) // 2 :]
        for part in (low, high):
            joined = frozenset((*part, *sides[1 - turn]))
            if joined not in speed:
                return Step(
                    tuple(sorted(joined)),
                    "half of one side with the other side: the fault lies between two fast halves",
                )
        pair = [part for part in (low, high) if speed[frozenset((*part, *sides[1 - turn]))] < threshold]
        if not pair:
            return Step(
                (*first, *second),
                "slow only as a whole: oversubscription or congestion above these hosts, not one link",
                True,
            )
        sides[turn] = pair[0]
    return Step(
        (sides[0][0], sides[1][0]), "the path between these two hosts: cable, port, switch; then their placement", True
    )


def _pair(group, hosts, speed, threshold):
    """One of two hosts, or the path between them: measure each with a host known to be fast."""
    fast = [h for h in hosts if h not in group and any(h in s and v >= threshold for s, v in speed.items())]
    if not fast:
        return Step(group, "these two hosts or the path between them (no fast host is left to tell which)", True)
    for host in group:
        if frozenset((host, fast[0])) not in speed:
            return Step((host, fast[0]), f"{host} with a host known to be fast")
    bad = tuple(host for host in group if speed[frozenset((host, fast[0]))] < threshold)
    return Step(
        bad or group, "the host: its NIC, its PCIe link, its GPUs" if bad else "the path between these two hosts", True
    )
