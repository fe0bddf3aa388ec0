"""The whole training step: every stage, micro-batch, block, bucket, gather and hop, put together as the frameworks do.

A :class:`Design` is plain numbers, SI. What data parallelism exposes is not computed: the step is simulated with it and without it.
"""

from typing import Callable, NamedTuple

from .engine import Graph, contention, yielding
from .pipeline import Gather, dualpipe, pipeline
from .reduction import add_reduction, cut_buckets, one_bucket
from .sharded import sharded_end


class Design(NamedTuple):
    """One step. Seconds and bytes of one block on one GPU; ``embedding_s``, ``head_s``: (forward, backward)."""

    # the pipeline
    stages: int
    chunks: int  # model chunks a stage
    micro_batches: int
    schedule: str
    blocks: int  # of a chunk
    forward_s: float
    backward_s: float
    weight_s: float  # weight-gradient part of backward
    port_s: tuple  # parts of forward and backward in which other traffic has the port
    embedding_s: tuple
    head_s: tuple
    hop_s: float
    update_s: tuple  # first, middle, last stage
    # gradients and parameters on the wire
    zero_stage: int
    block_bytes: float
    expert_bytes: float
    embedding_bytes: float
    head_bytes: float
    bucket_bytes: float
    first_bucket_bytes: float
    first_only: bool  # bucketing: stage 0 and chunk 0 alone
    reduce: Callable  # seconds of a bucket of (bytes, experts' bytes)
    gather: str  # next_forward, at_once or exposed
    block_gather_s: float
    embedding_gather_s: float
    head_gather_s: float
    # FSDP and HSDP
    prefetch: int
    reshard_after_forward: bool
    reshard_last_block: bool
    block_scatter_s: float
    root_gather_s: float
    root_scatter_s: float
    across_s: float  # all-reduce of a block's shard across shard groups, 0: none
    root_across_s: float  # of the root unit's (embedding, and a head beside it)
    # contention, DiLoCo
    slowdown: float
    comm_slowdown: float
    sync_every: int
    fragments: int
    fragment_s: float


class Step(NamedTuple):
    """Seconds of the step, and of what data parallelism adds to it."""

    seconds: float
    exposed_dp_s: float


def step(design):
    """The :class:`Step` of a design."""
    if design.zero_stage >= 3 and design.sync_every == 1:
        update, quiet = _update(design), sharded_end(design, False)
        loud = sharded_end(design, True)
        return Step(loud + update, loud - quiet)
    return _rare(design) if design.sync_every > 1 else _bucketed(design)


def _update(d):
    """All stages wait for each other (the gradient norm) and update together."""
    first, middle, last = d.update_s
    return max([first] + [middle] * (d.stages > 2) + [last] * (d.stages > 1))


# -- buckets -----------------------------------------------------------------------------------------------------------


def _bucketed(d):
    update = _update(d)
    repeats = d.micro_batches if d.zero_stage == 2 and d.stages == 1 else 1
    quiet = _pipeline_end(d, False)
    if repeats == 1:
        return Step(_pipeline_end(d, True) + update, _pipeline_end(d, True) - quiet)
    # DeepSpeed's ZeRO-2 synchronises at the end of every backward pass: one micro-batch after the other, gathered once
    one = d._replace(micro_batches=1)
    later = _pipeline_end(one._replace(gather="none"), True)
    loud = _pipeline_end(one, True) + (repeats - 1) * later
    return Step(loud + update, loud - quiet)


def _pipeline_end(d, reducing):
    """Seconds until every stage has done its passes and, with ``reducing``, its reduction."""
    stages, chunks = d.stages, d.chunks

    def ends(stage, chunk):
        return stage == 0 and chunk == 0, stage == stages - 1 and chunk == chunks - 1

    def seconds(block, which):
        return [[d.blocks * block + ends(i, c)[0] * d.embedding_s[which] + ends(i, c)[1] * d.head_s[which] for c in range(chunks)]
                for i in range(stages)]

    forward, backward, weight = seconds(d.forward_s, 0), seconds(d.backward_s, 1), None
    if d.schedule == "zb-h1":
        weight = [[d.blocks * d.weight_s + ends(i, 0)[0] * d.embedding_s[1] + ends(i, 0)[1] * d.head_s[1] / 2] for i in range(stages)]
        backward = [[whole[0] - part[0]] for whole, part in zip(backward, weight)]
    if d.schedule == "dualpipe":
        return _dualpipe_end(d, reducing)
    last = [[_last_pass(d, i, c, *ends(i, c)) for c in range(chunks)] for i in range(stages)] if reducing else None
    gather = None
    if reducing and d.zero_stage >= 1 and d.gather in ("next_forward", "at_once"):
        gather = [[_gather(d, *ends(i, c)) for c in range(chunks)] for i in range(stages)]
    built = pipeline(forward, backward, d.micro_batches, d.hop_s, d.schedule, weight, last, d.reduce, gather)
    end = max(built.graph.run(_rates(d) if reducing else None))
    if reducing and d.zero_stage >= 1 and d.gather == "exposed":
        blocks = d.blocks * chunks * d.block_gather_s
        ends_s = (d.embedding_gather_s, d.head_gather_s)
        end += blocks + (sum(ends_s) if stages == 1 else max(ends_s))
    return end


def _rates(d):
    pairs = [(("gpu", i), ("comm", i)) for i in range(d.stages)]
    slow = contention(d.slowdown, d.comm_slowdown, pairs) if d.slowdown or d.comm_slowdown else None
    if not any(d.port_s):
        return slow
    wait = yielding([((name, i), ("port", i)) for name in ("comm", "gather") for i in range(d.stages)])
    return (lambda busy: [min(pair) for pair in zip(slow(busy), wait(busy))]) if slow else wait


def _last_pass(d, stage, chunk, embedding, head):
    """The pass that makes the last micro-batch's gradients, in slices; traffic that has the port stands between blocks."""
    split = d.schedule == "zb-h1"
    block_s = d.weight_s if split else d.backward_s - d.port_s[1]
    block = (d.block_bytes, block_s, d.expert_bytes)
    segments = [(d.head_bytes, d.head_s[1] / (2 if split else 1), 0.0)] * head + [block] * d.blocks
    segments += [(d.embedding_bytes, d.embedding_s[1], 0.0)] * embedding
    alone = d.first_only and (stage > 0 or chunk > 0)
    slices = one_bucket(segments) if alone else cut_buckets(segments, d.bucket_bytes, d.first_bucket_bytes)
    if not d.port_s[1] or split:  # weight gradients need no other traffic
        return slices
    result, passed = [], 0
    for seconds, bucket in slices:
        result.append((seconds, bucket))
        if bucket is None:  # a segment ends
            passed += 1
            if head < passed <= head + d.blocks:
                result.append((d.port_s[1], "port"))
    return result


def _gather(d, embedding, head):
    units = [(d.embedding_gather_s, d.embedding_s[0], 0.0)] * embedding
    units += [(d.block_gather_s, d.forward_s - d.port_s[0], d.port_s[0])] * d.blocks
    return Gather(units + [(d.head_gather_s, d.head_s[0], 0.0)] * head, d.gather == "at_once")


def _dualpipe_end(d, reducing):
    """Rank r hosts stages r and stages-1-r. Their buckets leave while their last weight gradients are made, over one stream."""
    forward = [d.blocks * d.forward_s] * d.stages
    weight = [d.blocks * d.weight_s] * d.stages
    inputs = [d.blocks * (d.backward_s - d.weight_s)] * d.stages
    for stage, (first, second) in ((0, d.embedding_s), (d.stages - 1, d.head_s)):
        forward[stage] += first
        weight[stage] += second / (1 if stage == 0 else 2)
        inputs[stage] += 0.0 if stage == 0 else second / 2
    gather = None
    if reducing and d.zero_stage >= 1 and d.gather in ("next_forward", "at_once"):
        gather = [_gather(d, stage == 0, stage == d.stages - 1) for stage in range(d.stages)]
    built = dualpipe(forward, inputs, weight, d.micro_batches, d.hop_s, None, gather)
    ends = built.graph.run(_rates(d) if reducing else None)
    late = [max(ends)]
    for rank in range(d.stages if reducing else 0):
        graph, passes = Graph(), []
        for direction, stage in enumerate((rank, d.stages - 1 - rank)):
            passes.append((ends[built.weight[rank, direction, d.micro_batches // 2 - 1]] - weight[stage], stage))
        for begin, stage in sorted(passes):
            slices = _last_pass(d._replace(schedule="zb-h1"), stage, 0, stage == 0, stage == d.stages - 1)
            _, sent = add_reduction(graph, slices, d.reduce, "gpu", "comm", [graph.task(begin)])
        late.append(max(graph.run()))
    end = max(late)
    if reducing and d.zero_stage >= 1 and d.gather == "exposed":
        end += 2 * d.blocks * d.block_gather_s + d.embedding_gather_s + d.head_gather_s
    return end


# -- DiLoCo ------------------------------------------------------------------------------------------------------------


def _rare(d):
    """``sync_every`` steps of compute; fragment k of the synchronisation leaves when the k-th part of the period is over."""
    quiet = _pipeline_end(d, False) + _update(d)
    graph = Graph()
    for _ in range(d.fragments):
        part = graph.task(d.sync_every * quiet / d.fragments, "gpu")
        graph.task(d.fragment_s, "comm", [part])
    late = max(graph.run()) / d.sync_every
    return Step(late, late - quiet)
