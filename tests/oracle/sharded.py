"""FSDP and HSDP in a pipeline, event by event: every pass of every stage gathers its blocks and scatters their gradients.

A pass begins when its input has arrived; its gathers are issued then, in order, on the stage's communication stream. A pass that makes
weight gradients ends with all of its scatters (PyTorch waits in ``finalize_backward``), and what it hands on leaves at its end. The embedding
and the head are the root unit of their stage (one unit where there is one stage): gathered first, scattered last.
"""

from .engine import Graph, yielding
from .pipeline import _connect, _order


def sharded_end(d, moving):
    """Seconds until all passes of a :class:`~.step.Design` are over; without ``moving``, gathers and scatters take no time."""
    graph, passes = Graph(), {"F": {}, "B": {}, "W": {}}
    for stage in range(d.stages):
        one = _Stage(graph, d, stage, moving)
        build = {"F": one.forward, "B": one.backward, "W": one.weight}
        for kind, chunk, k in _order(d.schedule, stage, d.stages, d.micro_batches, d.chunks):
            ends = (stage == 0 and chunk == 0, stage == d.stages - 1 and chunk == d.chunks - 1)
            passes[kind][stage, chunk, k] = build[kind](*ends)
    _connect(graph, passes, d.stages, d.chunks, d.hop_s)
    return max(graph.run(_rates(d) if moving else None))


class _Stage:
    """Adds passes of one stage to the graph; each gives its (first, last) task."""

    def __init__(self, graph, d, stage, moving):
        self.graph, self.d, self.moving, self.split = graph, d, moving, d.schedule == "zb-h1"
        self.gpu, self.comm, self.across, self.port = ((name, stage) for name in ("gpu", "comm", "across", "port"))

    def send(self, seconds, after, stream=None):
        return self.graph.task(seconds if self.moving else 0.0, stream or self.comm, after)

    def block(self, seconds, port, needed):
        """A block's compute, then its other traffic on the port, which goes before gathers and scatters."""
        computed = self.graph.task(seconds - port, self.gpu, [needed])
        return self.graph.task(0.0, self.gpu, [self.graph.task(port, self.port, [computed])]) if port else computed

    def forward(self, embedding, head):
        d = self.d
        first = task = self.graph.task(0.0, self.gpu)
        if embedding or head:
            needed = self.send(d.root_gather_s, [first])
            task = self.graph.task(d.embedding_s[0] * embedding, self.gpu, [needed])
        for _ in range(d.blocks):
            task = self.block(d.forward_s, d.port_s[0], self.send(d.block_gather_s, [first]))
        return first, self.graph.task(d.head_s[0] * head, self.gpu)

    def backward(self, embedding, head):
        """The whole backward, or its input gradients alone where weight gradients come later."""
        d, scatters = self.d, not self.split
        first = self.graph.task(0.0, self.gpu)
        begin = self.graph.task(d.head_s[1] * head / (2 if self.split else 1), self.gpu)
        issued, gathered, task = 0, [None] * d.blocks, begin
        for number in range(d.blocks):
            while issued <= min(number + d.prefetch, d.blocks - 1):
                if d.reshard_after_forward and (issued > 0 or d.reshard_last_block):
                    gathered[issued] = self.send(d.block_gather_s, [begin])
                issued += 1
            task = self.block(d.backward_s - d.weight_s * self.split, d.port_s[1], gathered[number])
            if scatters:
                self.scatter(d.block_scatter_s, d.across_s, task)
        return first, self.finish(task, embedding, head) if scatters else task

    def weight(self, embedding, head):
        """Weight gradients alone, each block's scattered."""
        d = self.d
        first = self.graph.task(d.head_s[1] * head / 2, self.gpu)
        for _ in range(d.blocks):
            task = self.graph.task(d.weight_s, self.gpu)
            self.scatter(d.block_scatter_s, d.across_s, task)
        return first, self.finish(task, embedding, head)

    def scatter(self, inside, across, task):
        return self.send(across, [self.send(inside, [task])], self.across)

    def finish(self, task, embedding, head):
        """The embedding's backward, the root unit's gradients, and the wait for all of them."""
        d, root = self.d, embedding or head
        task = self.graph.task(d.embedding_s[1] * embedding, self.gpu)
        return self.graph.task(0.0, self.gpu, [self.scatter(d.root_scatter_s * root, d.root_across_s * root, task)])


def _rates(d):
    """Gathers, scatters and all-reduces slow the compute of their stage and are slowed by it; other traffic on the port goes first."""
    wait = yielding([((name, i), ("port", i)) for name in ("comm", "across") for i in range(d.stages)]) if any(d.port_s) else None
    if not d.slowdown and not d.comm_slowdown:
        return wait

    def rates(busy):
        computing = {i for name, i in busy if name == "gpu"}
        moving = {i for name, i in busy if name in ("comm", "across")}
        speed = [1 / (1 + d.slowdown) if name == "gpu" and i in moving
                 else 1 / (1 + d.comm_slowdown) if name in ("comm", "across") and i in computing else 1.0 for name, i in busy]
        return [min(pair) for pair in zip(speed, wait(busy))] if wait else speed

    return rates
