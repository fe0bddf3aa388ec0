"""Data parallelism on one GPU, event by event: bucketed reductions, parameter gathers, FSDP and HSDP units.

Gradients come out of a list of ``segments`` (bytes, seconds) or (bytes, seconds, experts' bytes among them) in the order of the backward
pass: head, blocks, embedding. Inside a segment bytes appear at a constant rate; the byte at position x exists from the earliest time at which
x bytes have been produced. Slices of a backward pass are (seconds, the bucket that is full at their end, or None); a bucket is
(bytes, experts' bytes).
"""

from typing import NamedTuple

from .engine import Graph, contention, shared_link


class Ends(NamedTuple):
    """Seconds: end of compute, end of communication, communication at full speed, and what compute does not hide."""

    compute: float
    comm: float
    busy: float
    exposed: float


# -- gradient buckets --------------------------------------------------------------------------------------------------


def cut_buckets(segments, bucket_bytes, first_bucket_bytes=None):
    """The backward pass in slices, buckets cut wherever they are full."""
    total = sum(segment[0] for segment in segments)
    first = bucket_bytes if first_bucket_bytes is None else first_bucket_bytes
    slices, begin, k = [], 0.0, 0  # begin: position at which the segment begins; k: buckets already full
    routed = 0.0  # experts' bytes of the bucket being filled, from segments before this one
    for size, seconds, *experts in segments:
        share = experts[0] / size if experts and size else 0.0
        at, filled = 0.0, begin  # seconds and bytes of this segment already in slices
        while size > 0.0:
            previous = 0.0 if k == 0 else first + (k - 1) * bucket_bytes
            boundary = min(first + k * bucket_bytes, total)
            if previous >= total or boundary > begin + size:
                break
            ready = seconds * ((boundary - begin) / size)
            slices.append((ready - at, (boundary - previous, routed + share * (boundary - filled))))
            at, filled, routed = ready, boundary, 0.0
            k += 1
        routed += share * (begin + size - filled)
        slices.append((seconds - at, None))
        begin += size
    return slices


def late_buckets(segments, bucket_bytes, first_bucket_bytes=None):
    """As ``cut_buckets``, but gradients count only when their whole segment (block) is done."""
    slices, full, ended = [], [], 0
    for _, bucket in cut_buckets(segments, bucket_bytes, first_bucket_bytes):
        if bucket is not None:
            full.append(bucket)
        else:  # a slice without a bucket ends a segment
            slices.append((segments[ended][1], None))
            slices += [(0.0, bucket) for bucket in full]
            full, ended = [], ended + 1
    return slices


def whole_buckets(tensors, bucket_bytes, first_bucket_bytes=None):
    """Buckets of whole tensors, closed at the first size >= the cap (DDP, Megatron). ``tensors``: (bytes, seconds) each, all at its end."""
    slices, size, cap = [], 0.0, bucket_bytes if first_bucket_bytes is None else first_bucket_bytes
    for number, (tensor, seconds) in enumerate(tensors):
        size += tensor
        last = not any(later for later, _ in tensors[number + 1:])
        if size >= cap or (last and size > 0.0):
            slices.append((seconds, (size, 0.0)))
            size, cap = 0.0, bucket_bytes
        else:
            slices.append((seconds, None))
    return slices


def one_bucket(segments):
    """Everything in one bucket, sent when the backward pass is over (Megatron's other stages and chunks)."""
    size = sum(segment[0] for segment in segments)
    routed = sum(segment[2] for segment in segments if len(segment) > 2)
    slices = [(segment[1], None) for segment in segments]
    return slices + [(0.0, (size, routed))] if size else slices


def add_reduction(graph, slices, service, compute="compute", comm="comm", after=(), name=""):
    """Put a backward pass and its buckets into a graph; return (last compute task, list of the buckets' tasks).

    A slice marked ``"port"`` is traffic that the next slice waits for and that has the port to itself.
    """
    task, buckets, port = None, [], None
    for seconds, bucket in slices:
        if bucket == "port":
            port = graph.task(seconds, ("port", *comm[1:]), [task], f"{name} other traffic")
            continue
        task, port = graph.task(seconds, compute, [port] if task is not None else after, f"{name} backward"), None
        if bucket is not None:
            buckets.append(graph.task(service(*bucket), comm, [task], f"{name} bucket {len(buckets)}"))
    if port is not None:
        task = graph.task(0.0, compute, [port], name)
    return task, buckets


def reduction(slices, service, slack=0.0, slowdown=0.0, comm_slowdown=0.0):
    """One GPU's backward pass and the reduction beneath it. ``service``: seconds of a bucket of so many bytes, and experts' bytes
    among them. Exposed counts from the end
    of the uncontended backward pass plus ``slack``, so a slow-down of compute is part of it."""
    graph = Graph()
    _, buckets = add_reduction(graph, slices, service)
    window = sum(seconds for seconds, _ in slices)
    ends = graph.run(contention(slowdown, comm_slowdown) if slowdown or comm_slowdown else None)
    compute = max((e for e, s in zip(ends, graph.stream) if s == "compute"), default=0.0)
    comm = ends[buckets[-1]] if buckets else 0.0
    busy = sum(graph.seconds[b] for b in buckets)
    return Ends(compute, comm, busy, max(0.0, max(compute, comm) - window - slack))


# -- FSDP and HSDP -----------------------------------------------------------------------------------------------------


def fsdp_forward(gathers, forwards, depth=None):
    """Seconds of a forward pass whose blocks are gathered ahead. ``depth``: blocks that may be gathered but not yet used (None: any)."""
    graph, computes = Graph(), []
    for number, (gather, forward) in enumerate(zip(gathers, forwards)):
        room = [computes[number - depth - 1]] if depth is not None and number - depth - 1 >= 0 else []
        needed = graph.task(gather, "comm", room)
        computes.append(graph.task(forward, "compute", [needed]))
    return max(graph.run())


def fsdp_backward(gathers, backwards, scatters, prefetch=1, keep_last=True, reshard=True, share=False):
    """Seconds of a backward pass of FSDP units, listed in the order of the backward pass, from its start to the last scatter.

    Before a unit's backward the gather of the unit ``prefetch`` further on is issued, after it its scatter (PyTorch's order). One stream
    carries both; with ``share`` they have a stream each and share the link fairly. ``reshard`` False: nothing to gather.
    """
    graph, count = Graph(), len(backwards)
    out, back = ("gather", "scatter") if share else ("comm", "comm")
    gathered = [None] * count

    def issue(number, after):
        if number < count and reshard and not (keep_last and number == 0):
            gathered[number] = graph.task(gathers[number], out, after, f"gather {number}")

    issued, task = 0, None
    for number in range(count):
        while issued <= min(number + prefetch, count - 1):
            # on its own stream a gather still leaves only when the unit that triggers it is next to run
            issue(issued, [task] if share and task is not None else [])
            issued += 1
        task = graph.task(backwards[number], "compute", [gathered[number]], f"backward {number}")
        graph.task(scatters[number], back, [task], f"scatter {number}")
    return max(graph.run(shared_link([out, back]) if share else None))


def hsdp_backward(backwards, inside, across):
    """Seconds of a backward pass whose units are scattered inside the shard group, then reduced across: two streams, one after the other."""
    graph = Graph()
    for backward, rho, sigma in zip(backwards, inside, across):
        task = graph.task(backward, "compute")
        scattered = graph.task(rho, "inside", [task])
        graph.task(sigma, "across", [scattered])
    return max(graph.run())
