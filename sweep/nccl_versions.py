"""What a version of NCCL can choose: algorithms by the release that brought them.

The release notes of 2.18.1 were read (docs.nvidia.com/deeplearning/nccl/release-notes); the other three releases are as their
documentation is remembered, and want a look before much rests on them.

    2.4     double binary trees for all-reduce across nodes (2.4.2)
    2.17    NVLS, reduction in the NVLink switch, inside a node of Hopper and later (2.17.1)
    2.18    NVLS with a tree across nodes (2.18.1)
    2.23    PAT, log2 n steps for all-gather and reduce-scatter, one rank per node (2.23.4)

A version that is not known restricts nothing.
"""

import re
from typing import NamedTuple


class Algorithm(NamedTuple):
    """``since``: (major, minor); ``collectives`` it serves; ``across``: whether it goes beyond one node; ``alone``: one rank per node only."""

    name: str
    since: tuple
    collectives: tuple
    across: bool = True
    alone: bool = False


ALGORITHMS = (
    Algorithm("ring", (1, 0), ("all_reduce", "all_gather", "reduce_scatter")),
    Algorithm("tree", (2, 4), ("all_reduce",)),
    Algorithm("nvls", (2, 17), ("all_reduce", "all_gather", "reduce_scatter"), across=False),
    Algorithm("nvls-tree", (2, 18), ("all_reduce",)),
    Algorithm("pat", (2, 23), ("all_gather", "reduce_scatter"), alone=True),
)


def parse(version):
    """(major, minor) of a version as NCCL prints it, such as ``2.21.5+cuda12.4``; None where it is not one."""
    found = re.match(r"\s*(\d+)\.(\d+)", version or "")
    return (int(found[1]), int(found[2])) if found else None


def available(version, collective, nodes, ranks_per_node):
    """Names of the algorithms that this version has for a collective on ``nodes`` of ``ranks_per_node`` (version None: of any)."""
    known = parse(version)
    return tuple(
        one.name
        for one in ALGORITHMS
        if collective in one.collectives
        and (known is None or known >= one.since)
        and (one.across or nodes <= 1)
        and (not one.alone or (ranks_per_node == 1 and nodes > 1))
    )
