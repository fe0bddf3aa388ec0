"""Seconds of blocks and stages, and the windows that the gradient reduction is held against."""

from typing import NamedTuple

from .ops import where
from .overlap import exposed
from .schedule import ONE_F_ONE_B, Stages


class Times(NamedTuple):
    """Seconds that the reduction is held against, at infinite link speed.

    ``*_window_s`` produce gradients: backward with the exposed traffic of other links than the reduction's port (on the port
    it adds nothing), or the last weight-gradient pass alone where the schedule ends all stages together.
    """

    block_forward_s: object
    block_backward_s: object
    block_window_s: object
    head_window_s: object
    embedding_window_s: object
    chunk_backward_s: object
    stages: Stages
    step_s: object  # pipeline and update, without data parallelism


def per_block(one, u):
    """Exposed seconds of a block's forward and backward at ``u``."""
    values = {name: cost.seconds(u) for name, cost in one.costs.items()}
    return exposed(one.forward, values), exposed(one.backward, values)


def block_times(compute, flow, everything):
    """Forward and backward of a block with its exposed traffic; without ``everything``, that of other links than the port."""
    moving, late = flow
    forward, backward = compute.block_forward_s, compute.block_backward_s
    for name, one in moving.items():
        more_forward, more_backward = late[name]
        if not everything and one.crosses is not False:
            more_forward, more_backward = (where(one.crosses, 0.0, more) for more in (more_forward, more_backward))
        forward, backward = forward + more_forward, backward + more_backward
    return forward, backward


def stages_of(x, compute, forward, backward):
    """``Stages`` of blocks with these times; host time beside the blocks is half in forward, half in backward."""
    blocks, host = x.layers / x.pp, compute.stage_host_s / 2.0
    return Stages(blocks * forward + host, blocks * backward + host, blocks * compute.block_wgrad_s, compute.embedding_forward_s,
                  compute.embedding_backward_s, compute.head_forward_s, compute.head_backward_s)


def stages_at(parts, u):
    """``Stages`` at ``u``, with all exposed traffic of blocks."""
    late = {name: per_block(one, u) for name, one in parts.traffic.items()}
    return stages_of(parts.x, parts.compute, *block_times(parts.compute, (parts.traffic, late), everything=True))


def times_of(x, compute, flow, free_step):
    """``Times`` at infinite link speed; ``flow``: traffic and the exposed seconds of it, ``free_step`` the step without dp."""
    forward, backward = block_times(compute, flow, everything=False)
    stages = stages_of(x, compute, forward, backward)
    apart = x.schedule != ONE_F_ONE_B  # the window is the last weight-gradient pass alone
    window = where(apart, compute.block_wgrad_s, backward)
    head = where(apart, compute.head_backward_s / 2.0, compute.head_backward_s)
    return Times(forward, backward, window, head, compute.embedding_backward_s, stages.backward / x.vpp, stages, free_step)
