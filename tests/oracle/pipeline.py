"""Pipelines, event by event: every micro-batch's forward, backward and weight gradient on every stage, every hop between stages.

A schedule is the order of passes on each stage, as the frameworks write it: ``(kind, chunk, micro_batch)`` with kind ``F``, ``B`` (backward,
or its input gradient alone), ``W`` (weight gradient) and ``+`` (a forward and a backward run together, DualPipe). A hop is a delay.
"""

from typing import NamedTuple

from .engine import Graph
from .reduction import add_reduction

# -- orders of passes --------------------------------------------------------------------------------------------------


def order_1f1b(stage, stages, micro_batches):
    """Warm-up forwards, then one forward and one backward by turns (PipeDream-Flush, Megatron's non-interleaved schedule)."""
    ahead = min(stages - 1 - stage, micro_batches)
    forwards = [("F", 0, k) for k in range(micro_batches)]
    backwards = [("B", 0, k) for k in range(micro_batches)]
    return _alternate(forwards, backwards, ahead)


def order_interleaved(stage, stages, micro_batches, chunks):
    """Megatron's interleaved schedule: ``chunks`` model chunks a stage, micro-batches in groups of ``stages``."""
    total = micro_batches * chunks
    ahead = min((stages - 1 - stage) * 2 + (chunks - 1) * stages, total)

    def pass_of(k, kind):
        group, inside = divmod(k, stages * chunks)
        chunk, micro_batch = divmod(inside, stages)
        return kind, chunk if kind == "F" else chunks - 1 - chunk, group * stages + micro_batch

    return _alternate([pass_of(k, "F") for k in range(total)], [pass_of(k, "B") for k in range(total)], ahead)


def _alternate(forwards, backwards, ahead):
    order, done = forwards[:ahead], 0
    for forward in forwards[ahead:]:
        order += [forward, backwards[done]]
        done += 1
    return order + backwards[done:]


def order_zb_h1(stage, stages, micro_batches):
    """Zero-bubble H1 (Qi et al. 2023): 1F1B with the weight gradient split off and run ``stage`` backwards late, so that it fills the drain."""
    order = []
    for kind, chunk, k in order_1f1b(stage, stages, micro_batches):
        order.append((kind, chunk, k))
        if kind == "B" and k >= stage:
            order.append(("W", 0, k - stage))
    return order + [("W", 0, k) for k in range(max(0, micro_batches - stage), micro_batches)]


def order_dualpipe(rank, ranks, micro_batches):
    """DualPipe (DeepSeek-V3): half of the micro-batches enter at each end, rank r hosts stages r and ranks-1-r.

    Passes carry the direction (0: entering at rank 0) in place of the chunk. ``B`` is a whole backward, ``b`` its input gradient alone with
    the weight gradient ``W`` later, and ``("+", (direction, micro_batch), (direction, micro_batch))`` a forward and a backward run together.
    """
    half, order = min(rank, ranks - 1 - rank), []
    done = {(kind, phase): 0 for kind in "FB" for phase in (0, 1)}
    held = []  # weight gradients put off, first in first out
    middle, flip = half == ranks // 2 - 1, int(rank >= ranks // 2)

    def take(kind, phase):
        number = done[kind, phase]
        done[kind, phase] += 1
        return phase ^ flip, number

    def forward(phase):
        order.append(("F", *take("F", phase)))

    def backward(phase, split=False):
        key = take("B", phase)
        order.append(("b" if split else "B", *key))
        if split:
            held.append(key)

    def both(phase_forward, phase_backward):
        order.append(("+", take("F", phase_forward), take("B", phase_backward)))

    def weight():
        order.append(("W", *held.pop(0)))

    for _ in range(2 * (ranks // 2 - half - 1)):
        forward(0)
    for _ in range(half + 1):
        forward(0)
        forward(1)
    for _ in range(ranks // 2 - half - 1):
        backward(1, split=True)
        weight()
        forward(1)
    for k in range(micro_batches // 2 - ranks + half + 1):
        if k == 0 and middle:
            forward(0)
            backward(1)
        else:
            both(0, 1)
        both(1, 0)
    for _ in range(ranks // 2 - half - 1):
        backward(1)
        both(1, 0)
    split = False
    for k in range(half + 1):
        split = split or (k == (half + 1) // 2 and half % 2 == 1)
        backward(1, split)
        split = split or (k == (half + 1) // 2 and half % 2 == 0)
        backward(0, split)
    for _ in range(ranks // 2 - half - 1):
        weight()
        backward(0, split=True)
    for _ in range(half + 1):
        weight()
    return order


# -- the graph ---------------------------------------------------------------------------------------------------------


class Pipeline(NamedTuple):
    """A graph with the (first, last) task of each pass: ``forward[stage, chunk, micro_batch]`` and so on; ``buckets[stage]`` in order."""

    graph: Graph
    forward: dict
    backward: dict
    weight: dict
    buckets: dict


class Gather(NamedTuple):
    """Parameters gathered under a stage's (or chunk's) first forward: (gather, forward, other traffic on the port) seconds of each unit in
    order, embedding, blocks, head; ``at_once`` when the gathers are issued at time 0, else when the forward reaches the stage."""

    units: list
    at_once: bool


def pipeline(forward, backward, micro_batches, hop=0.0, schedule="1f1b", weight=None, last=None, service=None, gather=None):
    """The graph of one step's pipeline.

    ``forward``, ``backward``: seconds by stage and chunk, ``forward[stage][chunk]`` (for ZB-H1 the input gradient, with ``weight`` beside it).
    ``last``: slices of the pass that makes the last micro-batch's gradients, ``last[stage][chunk]``, ``service``: seconds of a bucket of so
    many bytes. ``gather[stage][chunk]``: what the first micro-batch's forward waits for.
    """
    graph, stages, chunks = Graph(), len(forward), len(forward[0])
    final = "W" if schedule == "zb-h1" else "B"
    seconds = {"F": forward, "B": backward, "W": weight}
    passes, buckets = {"F": {}, "B": {}, "W": {}}, {}
    for stage in range(stages):
        gpu, comm = ("gpu", stage), ("comm", stage)
        buckets[stage] = []
        for kind, chunk, k in _order(schedule, stage, stages, micro_batches, chunks):
            name = f"{kind} stage {stage} chunk {chunk} micro-batch {k}"
            if kind == final and k == micro_batches - 1 and last is not None:
                first = len(graph.seconds)
                end, sent = add_reduction(graph, last[stage][chunk], service, gpu, comm, name=name)
                passes[kind][stage, chunk, k] = first, end
                buckets[stage] += sent
            elif kind == "F" and k == 0 and gather is not None and gather[stage][chunk] is not None:
                passes[kind][stage, chunk, k] = _gathered(graph, gather[stage][chunk], gpu, ("gather", stage), name)
            else:
                task = graph.task(seconds[kind][stage][chunk], gpu, name=name)
                passes[kind][stage, chunk, k] = task, task
    _connect(graph, passes, stages, chunks, hop)
    return Pipeline(graph, passes["F"], passes["B"], passes["W"], buckets)


def _order(schedule, stage, stages, micro_batches, chunks):
    if schedule == "zb-h1":
        return order_zb_h1(stage, stages, micro_batches)
    return order_interleaved(stage, stages, micro_batches, chunks) if chunks > 1 else order_1f1b(stage, stages, micro_batches)


def _gathered(graph, gather, gpu, comm, name):
    arrived = task = graph.task(0.0, gpu, name=name)
    for seconds, forward, port in gather.units:
        needed = graph.task(seconds, comm, [] if gather.at_once else [arrived], "gather")
        task = graph.task(forward, gpu, [needed], name)
        if port:
            task = graph.task(0.0, gpu, [graph.task(port, ("port", gpu[1]), [task])], name)
    return arrived, task


def _connect(graph, passes, stages, chunks, hop):
    forward, backward = passes["F"], passes["B"]
    for (stage, chunk, k), (first, _) in forward.items():
        before = (stage - 1, chunk) if stage > 0 else (stages - 1, chunk - 1)
        if before[1] >= 0:
            _hop(graph, forward[*before, k][1], first, hop, stages)
    for (stage, chunk, k), (first, _) in backward.items():
        before = (stage + 1, chunk) if stage < stages - 1 else (0, chunk + 1)
        if before[1] < chunks:
            _hop(graph, backward[*before, k][1], first, hop, stages)
        else:
            graph.wait(first, forward[stage, chunk, k][1])
    for key, (first, _) in passes["W"].items():
        graph.wait(first, backward[key][1])


def _hop(graph, source, target, hop, stages):
    if hop and stages > 1:
        source = graph.task(hop, None, [source], "hop")
    graph.wait(target, source)


def dualpipe(forward, input_gradient, weight_gradient, micro_batches, hop=0.0, together=None, gather=None):
    """The graph of a DualPipe step: seconds of the three passes by stage, and of a forward of one stage and a backward of another run
    together, ``together(stage, other)`` (None: their sum). ``gather[stage]``: what a rank's first forward of that stage waits for."""
    graph, f, b, w, ranks, arrived = Graph(), {}, {}, {}, len(forward), {}
    whole = [d + g for d, g in zip(input_gradient, weight_gradient)]
    seconds = {"F": forward, "B": whole, "b": input_gradient, "W": weight_gradient}
    for rank in range(ranks):
        stage = (rank, ranks - 1 - rank)  # by direction
        for kind, *keys in order_dualpipe(rank, ranks, micro_batches):
            if kind == "+":
                (one, _), (two, _) = keys
                both = forward[stage[one]] + whole[stage[two]] if together is None else together(stage[one], stage[two])
                task = graph.task(both, ("gpu", rank), name=f"+ rank {rank} {keys}")
                f[rank, *keys[0]] = b[rank, *keys[1]] = w[rank, *keys[1]] = task
            elif kind == "F" and keys[1] == 0 and gather is not None:
                arrived[rank, *keys], f[rank, *keys] = _gathered(graph, gather[stage[keys[0]]], ("gpu", rank), ("gather", rank), "F")
            else:
                task = graph.task(seconds[kind][stage[keys[0]]], ("gpu", rank), name=f"{kind} rank {rank} {keys}")
                {"F": f, "B": b, "b": b, "W": w}[kind][rank, *keys] = task
                if kind == "B":
                    w[rank, *keys] = task
    for (rank, direction, k), task in f.items():
        before = rank - 1 if direction == 0 else rank + 1
        if 0 <= before < ranks:
            _hop(graph, f[before, direction, k], arrived.get((rank, direction, k), task), hop, ranks)
    for (rank, direction, k), task in b.items():
        before = rank + 1 if direction == 0 else rank - 1
        if 0 <= before < ranks:
            _hop(graph, b[before, direction, k], task, hop, ranks)
        else:
            graph.wait(task, f[rank, direction, k])
    return Pipeline(graph, f, b, w, {})


def pipeline_seconds(*args, **kwargs):
    """Seconds of the pipeline alone."""
    return max(pipeline(*args, **kwargs).graph.run())
