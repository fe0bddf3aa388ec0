"""Overlap inside a block, event by event: tensor-parallel and expert chunks, ring attention, DiLoCo fragments, hierarchical collectives."""

from .engine import Graph


def chunk_overlap(compute, comm, chunks):
    """Seconds of a GEMM and its collective cut in chunks: chunk k travels when its part of the GEMM is done."""
    graph = Graph()
    for _ in range(chunks):
        part = graph.task(compute / chunks, "compute")
        graph.task(comm / chunks, "comm", [part])
    return max(graph.run())


def ring_chunk_overlap(compute, comm, chunks):
    """Seconds of a GEMM over chunks that arrive around a ring: the first is local, chunk k+1 travels while k is used."""
    graph, arrived = Graph(), None
    for k in range(chunks):
        graph.task(compute / chunks, "compute", [arrived])
        if k < chunks - 1:
            arrived = graph.task(comm / (chunks - 1), "comm")
    return max(graph.run())


def ring_attention_forward(ranks, block, service):
    """Seconds of one layer's ring attention: every rank works on the keys it holds while it passes them on (keys only, no barrier)."""
    graph = Graph()
    held = [None] * ranks
    work = [None] * ranks
    for step in range(ranks):
        work = [graph.task(block, ("gpu", r), [held[r]]) for r in range(ranks)]
        if step < ranks - 1:
            sent = [graph.task(service, ("link", r), [held[r]]) for r in range(ranks)]
            held = [sent[(r - 1) % ranks] for r in range(ranks)]
    del work
    return max(graph.run())


def ring_attention_backward(ranks, block, service, gradients):
    """Seconds of the backward pass: keys go round as in forward, their gradients follow one step later and one hop further, on one link.

    A rank adds its part to the gradients of the keys it has just worked on once these have arrived, then passes them on.
    """
    graph = Graph()
    keys, sums = [None] * ranks, [None] * ranks
    for step in range(ranks):
        work = [graph.task(block, ("gpu", r), [keys[r]]) for r in range(ranks)]
        if step < ranks - 1:
            sent = [graph.task(service, ("link", r), [keys[r]]) for r in range(ranks)]
        carried = [graph.task(gradients, ("link", r), [work[r], sums[r]]) for r in range(ranks)]
        sums = [carried[(r - 1) % ranks] for r in range(ranks)]
        if step < ranks - 1:
            keys = [sent[(r - 1) % ranks] for r in range(ranks)]
    return max(graph.run())


def fragments(period, comm, count):
    """Seconds until a DiLoCo synchronisation of ``count`` fragments is over: fragment k leaves when its part of the period has been computed."""
    graph = Graph()
    for _ in range(count):
        part = graph.task(period / count, "compute")
        graph.task(comm / count, "comm", [part])
    return max(graph.run())


# -- collectives -------------------------------------------------------------------------------------------------------


def ring_all_reduce(ranks, size, latency, rate):
    """(seconds, bytes each rank sent) of a ring all-reduce, hop by hop: ranks-1 steps of reduce-scatter, ranks-1 of all-gather."""
    graph, sent = Graph(), [0.0] * ranks
    held = [None] * ranks
    for _ in range(2 * (ranks - 1)):
        tasks = []
        for r in range(ranks):
            tasks.append(graph.task(latency + size / ranks / rate, ("link", r), [held[r]]))
            sent[r] += size / ranks
        held = [tasks[(r - 1) % ranks] for r in range(ranks)]
    return (max(graph.run()) if ranks > 1 else 0.0), sent


def hierarchical_all_reduce(scatter, across, gather, chunks):
    """Seconds of a hierarchical all-reduce in chunks: scatter inside, all-reduce across, gather inside; inner phases share one resource.

    A chunk's gather goes before the scatter of a later chunk once it is ready; the scatter of the next chunk fills the wait.
    """
    best = None
    for lead in range(chunks):  # scatters issued ahead of the first gather
        graph, crossed, issued, returned = Graph(), [None] * chunks, 0, 0

        def scatter_next(graph=graph, crossed=crossed):
            nonlocal issued
            inner = graph.task(scatter / chunks, "inside")
            crossed[issued] = graph.task(across / chunks, "across", [inner])
            issued += 1

        for _ in range(lead + 1):
            scatter_next()
        while returned < chunks:
            graph.task(gather / chunks, "inside", [crossed[returned]])
            returned += 1
            if issued < chunks:
                scatter_next()
        end = max(graph.run())
        best = end if best is None else min(best, end)
    return best
