"""A step in time, for one point: streams as rows, passes, buckets, gathers and scatters as bars, from the model's own numbers.

The whole step shows every stage's passes; beside it the last backward of the stage that the reduction waits for, block by
block and bucket by bucket.  The row ``step`` is the kernels' sum (pipeline, what is exposed, update) and ends at
``step_time_s``; everything above it is laid out event by event with the same durations.
"""

from typing import NamedTuple

from ._kernels import overlap, reduction, schedule, times
from .errors import SpecError
from .passes import MOST_PASSES, Pass, passes


class Bar(NamedTuple):
    """Something that occupies a row: ``kind`` decides its colour."""

    row: str
    kind: str
    start: float
    stop: float
    label: str = ""


class Timeline(NamedTuple):
    """Bars of the whole step and of the detail, with their rows from top to bottom; seconds from the start of the step."""

    rows: tuple
    bars: tuple
    detail_rows: tuple
    detail: tuple
    end: float
    remarks: tuple


def timeline(point):
    """The :class:`Timeline` of a :class:`~sweep.points.Point`.  Raises SpecError where no such run exists."""
    if point.impossible:
        raise SpecError(
            f"no timeline: such a run cannot exist ({', '.join(point.reasons)}). Type: sweep explain with the same words."
        )
    plan = _Plan(point)
    whole = plan.whole()
    rows, detail = plan.detail()
    end = point.out["step_time_s"]
    return Timeline(plan.rows, tuple([*whole, *_sum(point)]), rows, tuple(detail), end, tuple(plan.remarks))


def _sum(p):
    """The row ``step``: what the kernels add up."""
    out, at, bars = p.out, 0.0, []
    pipeline = out["step_time_s"] - out["exposed_dp_s"] - out["optimizer_time_s"]
    parts = (("pipeline", pipeline), ("exposed", out["exposed_dp_s"]), ("update", out["optimizer_time_s"]))
    for kind, seconds in parts:
        bars.append(Bar("step", kind, at, at + seconds, kind))
        at += seconds
    return [bar for bar in bars if bar.stop > bar.start]


class _Plan:
    """The passes of a point, and its last backward in detail."""

    def __init__(self, p):
        x = p.x
        self.p, self.x, self.remarks = p, x, []
        self.stages, self.chunks, self.micro_batches = int(x.pp), int(x.vpp), int(x.micro_batches)
        self.seconds = times.stages_at(p.parts, p.u)
        self.hop = float(p.parts.hop.seconds(p.u)) if x.pp > 1 else 0.0
        self.sharded = p.code == reduction.SHARDED
        self.late = [float(p.binding(term, p.u)[1]) for term in p.way.terms] if self.sharded else [0.0, 0.0]
        self.rows = ("compute", "step")
        self.passes = self._passes()
        laid_out = max((one.stop for one in self.passes), default=0.0)
        self.pipeline_s = laid_out or p.out["step_time_s"] - p.out["exposed_dp_s"] - p.out["optimizer_time_s"]

    # -- the whole step -----------------------------------------------------------------------------------------------

    def _passes(self):
        count = 2 * self.stages * self.chunks * self.micro_batches
        if count > MOST_PASSES or self.x.schedule == schedule.DUALPIPE:
            self.remarks.append("The pipeline is drawn as one bar.")
            return []
        weight = self._weight if self.x.schedule == schedule.ZB_H1 else None
        return passes(self.stages, self.micro_batches, self.chunks, self._forward, self._backward, self.hop, weight)

    def _forward(self, stage, chunk):
        s = self.seconds
        return (
            float(s.forward / self.chunks + self._end(stage, chunk, s.first_forward, s.last_forward))
            + self.late[0] / self.chunks
        )

    def _backward(self, stage, chunk):
        s = self.seconds
        whole = (
            float(s.backward / self.chunks + self._end(stage, chunk, s.first_backward, s.last_backward))
            + self.late[1] / self.chunks
        )
        return whole - (self._weight(stage, chunk) if self.x.schedule == schedule.ZB_H1 else 0.0)

    def _weight(self, stage, chunk):
        s = self.seconds
        return float(s.weight + self._end(stage, chunk, 0.0, s.last_backward / 2.0))

    def _end(self, stage, chunk, first, last):
        """What the ends of the model add to a pass of this stage and chunk."""
        at_first, at_last = (stage, chunk) == (0, 0), (stage, chunk) == (self.stages - 1, self.chunks - 1)
        return (first if at_first else 0.0) + (last if at_last else 0.0)

    def whole(self):
        """Bars of every stage's passes (one bar where they are too many), and of the communication below them."""
        if not self.passes:
            return [
                Bar(
                    "compute",
                    "pipeline",
                    0.0,
                    self.pipeline_s,
                    f"{self.micro_batches} micro-batches on {self.stages} stages",
                )
            ]
        names = {"F": "forward", "B": "backward", "W": "weight"}
        stage = (lambda k: f"stage {k}") if self.stages > 1 else (lambda k: "compute")
        self.rows = (*(stage(k) for k in range(self.stages)), "step")
        labels = self.micro_batches > 1 and len(self.passes) <= 160
        return [
            Bar(stage(one.stage), names[one.kind], one.start, one.stop, str(one.k + 1) if labels else "")
            for one in self.passes
        ]

    # -- the last backward in detail ------------------------------------------------------------------------------------

    def detail(self):
        """Rows and bars of the last micro-batch where its gradients are reduced."""
        if self.p.code == reduction.RARE:
            self.remarks.append("DiLoCo's fragments are spread over many steps and not drawn.")
            return (), []
        return self._blocks() if self.sharded else self._reduction()

    def _last(self, stage, chunk):
        """The pass that produces the gradients of a stage's chunk: its last backward, or the last weight gradient."""
        kind = "W" if self.x.schedule == schedule.ZB_H1 else "B"
        found = [one for one in self.passes if (one.kind, one.stage, one.chunk) == (kind, stage, chunk)]
        if found:
            return found[-1]
        seconds = (self._weight if kind == "W" else self._backward)(stage, chunk)
        return Pass(kind, stage, chunk, self.micro_batches - 1, self.pipeline_s - seconds, self.pipeline_s)

    def _curve(self, stage, chunk):
        """Production of gradients in a chunk's last backward."""
        x, work, compute = self.x, self.p.parts.work, self.p.parts.compute
        end = (stage, chunk) == (self.stages - 1, self.chunks - 1)
        begin = (stage, chunk) == (0, 0)
        block = x.grad_bytes * (work.block_params + work.block_expert_params)
        blocks = x.layers / (x.pp * x.vpp)
        split = x.schedule != schedule.ONE_F_ONE_B
        head_s = compute.head_backward_s / 2.0 if split else compute.head_backward_s
        return overlap.Curve(
            x.grad_bytes * work.head_params * end, head_s * end, blocks, block, x.grad_bytes * work.block_expert_params,
            float(self.p.times.block_window_s), x.grad_bytes * work.embedding_params * begin, compute.embedding_backward_s * begin,
        )  # fmt: skip

    def _cost(self, nbytes, routed):
        """Seconds of a bucket of so many bytes, ``routed`` of them of experts."""
        parts = max((cost.parts for name, cost in self.p.way.costs.items() if "." in name), key=len)
        sizes = (nbytes - routed, routed) if len(parts) > 1 else (nbytes,)
        return float(overlap.Cost(tuple((lines, size) for (lines, _), size in zip(parts, sizes))).seconds(self.p.u))

    def _reduction(self):
        """Backward above, buckets below, on the stage whose reduction ends last."""
        best = None
        for stage in {0, self.stages - 1}:
            bars, end = self._stage_reduction(stage)
            if best is None or end > best[1]:
                best = bars, end
        if not any(bar.kind == "bucket" for bar in best[0]):
            return (), []
        if self.x.overlap_slowdown or self.x.comm_slowdown:
            self.remarks.append("Contention is in the step's sum and not in the bars.")
        return ("backward", "buckets"), best[0]

    def _stage_reduction(self, stage):
        bars, free = [], 0.0
        for chunk in reversed(range(self.chunks)):
            one, curve = self._last(stage, chunk), self._curve(stage, chunk)
            whole = float(curve.seconds)
            start = one.stop - whole
            at = start
            for kind, seconds in (
                ("head", curve.head_s),
                ("block", curve.blocks * curve.block_s),
                ("embedding", curve.embedding_s),
            ):
                if seconds > 0:
                    bars += _slices("backward", kind, at, float(seconds), float(curve.blocks) if kind == "block" else 1)
                    at += float(seconds)
            for ready, service in self._buckets(curve, stage, chunk, whole):
                free = max(free, start + ready)
                bars += _marked("buckets", free, free + service, self.pipeline_s)
                free += service
        return bars, free

    def _buckets(self, curve, stage, chunk, whole):
        """(ready, service) of each bucket in order, seconds from the start of the window."""
        everything = float(curve.bytes)
        alone = self.x.bucketing == 1 and (stage, chunk) != (0, 0)
        size = everything if alone else float(self.x.bucket_bytes)
        filled = min(everything if alone else float(self.x.first_bucket_bytes), everything)
        before, found = 0.0, []
        if self.p.parts.shares.dense.n <= 1 and not self.p.parts.shares.moe:
            return []
        while before < everything * (1 - 1e-12):
            routed = float(curve.experts(filled) - curve.experts(before)) if self.p.parts.shares.moe else 0.0
            found.append((whole if alone else float(curve.ready(filled)), self._cost(filled - before, routed)))
            before, filled = filled, min(filled + size, everything)
        return found

    def _blocks(self):
        """FSDP: compute, gathers and scatters of one micro-batch on one stage, block by block."""
        x, compute = self.x, self.p.parts.compute
        costs = self.p.seconds(self.p.u)
        values = {name: float(costs.get(name, 0.0)) for name in ("a", "a.root", "r", "r.root", "s", "s.root")}
        blocks = int(x.layers / x.pp)
        embedding = float(compute.embedding_forward_s)
        forward, at = _fsdp_forward(blocks, float(self.p.times.block_forward_s), values, embedding)
        kept = bool(x.reshard_after_forward)
        backward, _ = _fsdp_backward(blocks, float(self.p.times.block_window_s), values, int(x.prefetch) if kept else None,
                                     kept and bool(x.reshard_last_block), at, float(compute.embedding_backward_s))  # fmt: skip
        rows = ("compute", "gathers", "scatters") + (("shards",) if values["s"] else ())
        bars = [*forward, *backward]
        return rows, bars + _waits(bars)


def _marked(row, start, stop, end):
    """A bucket, the part of it after the pipeline's end marked as exposed."""
    parts = [Bar(row, "bucket", start, min(stop, end)), Bar(row, "exposed", max(start, end), stop)]
    return [bar for bar in parts if bar.stop > bar.start]


def _waits(bars):
    """The gaps of the compute row, and what follows it: time that waits for a gather or a scatter."""
    busy = sorted((bar for bar in bars if bar.row == "compute"), key=lambda bar: bar.start)
    edges = [(0.0, 0.0), *((bar.start, bar.stop) for bar in busy), (max(bar.stop for bar in bars),) * 2]
    gaps = [(before[1], after[0]) for before, after in zip(edges, edges[1:])]
    return [Bar("compute", "exposed", start, stop) for start, stop in gaps if stop - start > 1e-9 * edges[-1][0]]


def _slices(row, kind, start, seconds, count):
    """A run of equal bars, at most so many that they can be told apart."""
    whole = int(count) if 1 <= count <= 200 and count == int(count) else 1
    return [Bar(row, kind, start + k * seconds / whole, start + (k + 1) * seconds / whole) for k in range(whole)]


def _fsdp_forward(blocks, forward_s, cost, embedding_s):
    """Bars of a forward: the root's gather, then each block's one ahead of its compute."""
    bars = [Bar("gathers", "gather", 0.0, cost["a.root"])]
    free = started = cost["a.root"]
    computed = free + embedding_s
    if embedding_s > 0:
        bars.append(Bar("compute", "embedding", free, computed))
    for _ in range(blocks):
        begin = max(free, started)
        free = begin + cost["a"]
        bars.append(Bar("gathers", "gather", begin, free))
        started = max(free, computed)
        computed = started + forward_s
        bars.append(Bar("compute", "forward", started, computed))
    return bars, computed


def _fsdp_backward(blocks, backward_s, cost, depth, reshard_last, at, embedding_s):
    """Bars of a backward from ``at``: gathers ``depth`` ahead (None: parameters are kept) and scatters on one stream."""
    bars, free, computed, shards = [], at, at, at
    ready = [at] * blocks
    waiting = [] if depth is None else list(range(0 if reshard_last else 1, blocks))

    def gather(index):
        nonlocal free
        begin = free
        free = begin + cost["a"]
        ready[index] = free
        bars.append(Bar("gathers", "gather", begin, free))

    if reshard_last and waiting:
        gather(waiting.pop(0))
        computed = free
    for _ in range(min(depth or 0, len(waiting))):
        gather(waiting.pop(0))
    for index in range(blocks):
        start = max(computed, ready[index])
        computed = start + backward_s
        bars.append(Bar("compute", "backward", start, computed))
        begin = max(free, computed)
        free = begin + cost["r"]
        bars.append(Bar("scatters", "scatter", begin, free))
        if cost["s"]:
            shards = max(shards, free) + cost["s"]
            bars.append(Bar("shards", "shard", shards - cost["s"], shards))
        if waiting:
            gather(waiting.pop(0))
    if embedding_s > 0:
        bars.append(Bar("compute", "embedding", computed, computed + embedding_s))
    begin = max(free, computed + embedding_s)
    bars.append(Bar("scatters", "scatter", begin, begin + cost["r.root"]))
    end = begin + cost["r.root"]
    if cost["s.root"]:
        bars.append(Bar("shards", "shard", max(shards, end), max(shards, end) + cost["s.root"]))
    return bars, max(bar.stop for bar in bars)


def draw_timeline(point):
    """The timeline as a Drawing (matplotlib is imported here and not before)."""
    from . import timelineplots

    return timelineplots.draw(point, timeline(point))
