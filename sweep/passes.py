"""The passes of a pipeline in time: which micro-batch runs when on which stage, for drawings.

Orders are those of the frameworks (Megatron's 1F1B and interleaved 1F1B, ZB-H1); a pass starts when its stage is free and
its input has arrived.  The numbers of the answer do not come from here: they are the kernels' closed forms, and a test
holds the two together.
"""

from typing import NamedTuple

MOST_PASSES = 6000
"""More than these are drawn as one bar: nobody could tell them apart."""


class Pass(NamedTuple):
    """One pass: ``kind`` F, B or W of micro-batch ``k`` of ``chunk`` on ``stage``."""

    kind: str
    stage: int
    chunk: int
    k: int
    start: float
    stop: float


def passes(stages, micro_batches, chunks, forward, backward, hop, weight=None):
    """All passes of a step in the order of their starts.

    ``forward`` and ``backward`` give seconds of ``(stage, chunk)``; with ``weight`` (ZB-H1) the backward is without its
    weight gradient, which runs on its own.  ``hop``: seconds between stages.
    """
    orders = [_order(stage, stages, micro_batches, chunks, weight is not None) for stage in range(stages)]
    seconds = {"F": forward, "B": backward, "W": weight}
    done, free, at = {}, [0.0] * stages, [0] * stages
    found, moved = [], True
    while moved:
        moved = False
        for stage, order in enumerate(orders):
            while at[stage] < len(order):
                kind, chunk, k = order[at[stage]]
                before = _input(kind, stage, chunk, k, stages, chunks)
                if before is not None and before not in done:
                    break
                away = hop if before is not None and before[1] != stage else 0.0
                start = max(free[stage], done[before] + away if before is not None else 0.0)
                stop = start + seconds[kind](stage, chunk)
                done[kind, stage, chunk, k] = free[stage] = stop
                found.append(Pass(kind, stage, chunk, k, start, stop))
                at[stage] += 1
                moved = True
    return sorted(found, key=lambda one: one.start)


def _input(kind, stage, chunk, k, stages, chunks):
    """The pass that another waits for, None at the model's entrance."""
    if kind == "W":
        return "B", stage, chunk, k
    if kind == "F":
        if stage:
            return "F", stage - 1, chunk, k
        return ("F", stages - 1, chunk - 1, k) if chunk else None
    if stage < stages - 1:
        return "B", stage + 1, chunk, k
    return ("B", 0, chunk + 1, k) if chunk < chunks - 1 else ("F", stage, chunk, k)


def _order(stage, stages, micro_batches, chunks, split):
    total = micro_batches * chunks
    ahead = stages - 1 - stage if chunks == 1 else 2 * (stages - 1 - stage) + (chunks - 1) * stages

    def one(index, kind):
        group, inside = divmod(index, stages * chunks)
        chunk, k = divmod(inside, stages)
        return kind, chunk if kind == "F" else chunks - 1 - chunk, group * stages + k

    if chunks == 1:
        forwards, backwards = ([(kind, 0, k) for k in range(total)] for kind in "FB")
    else:
        forwards, backwards = ([one(index, kind) for index in range(total)] for kind in "FB")
    order = forwards[: min(ahead, total)]
    for forward, backward in zip(forwards[len(order) :], backwards):
        order += [forward, backward]
    order += backwards[total - min(ahead, total) :]
    return _split(order, stage, micro_batches) if split else order


def _split(order, stage, micro_batches):
    """ZB-H1: a weight gradient runs ``stage`` backwards after its own."""
    found = []
    for kind, chunk, k in order:
        found.append((kind, chunk, k))
        if kind == "B" and k >= stage:
            found.append(("W", chunk, k - stage))
    return found + [("W", 0, k) for k in range(max(0, micro_batches - stage), micro_batches)]
