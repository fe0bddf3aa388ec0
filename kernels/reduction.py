"""Data parallelism: the gradients' reduction and the parameters' gathers of a step, as terms of overlap.py.

Three ways, of which a sweep traces those that occur:

    BUCKETS   ZeRO-0 to 2: buckets under the last backward of each chunk, stage 0 and the last stage; ZeRO-1 and 2 gather the
              updated parameters
    SHARDED   ZeRO-3 (FSDP, HSDP): each block's parameters gathered before its forward and backward, its gradients scattered
    RARE      DiLoCo: a reduction every H steps, streamed in fragments

Dense parameters reduce over n = dp cp ranks, routed experts over their own N/(pp ep); a bucket holds both in the block's
proportion and issues one collective for each.
"""

from typing import NamedTuple

from . import collectives as c
from .ops import choose, is_concrete, is_zero, maximum, minimum, positive, where
from .overlap import Candidate, Cost, Curve, Term, buckets, compute_delay, contended, plus
from .placement import expert_shards, may_hold_two, shard_groups
from .schedule import DUALPIPE, ONE_F_ONE_B, ZB_H1, held, slack_s
from .sharding import backward_ends, chosen

BUCKETS, SHARDED, RARE = 0, 1, 2
NEVER = 1e36
"""Seconds early of a candidate that a point does not have: more than anything costs without a link (NO_LINK), and not infinite, for 0 times
infinity, and its gradient, are no numbers."""


class Way(NamedTuple):
    """One way of reducing: exposed terms, all that is served (counts of each stage), the sustained rate's terms, the costs."""

    terms: list
    served: list
    sustained: list
    costs: dict


def way_codes(x):
    """``code`` of the way at each point and the codes that can occur."""
    code = where(x.sync_every > 1, RARE, where(x.zero_stage >= 3, SHARDED, BUCKETS))
    if is_concrete(code):
        return int(code), {int(code)}
    zero, every = x.codes("zero_stage"), x.codes("sync_every")
    found = set()
    if every is None or max(every) > 1:
        found.add(RARE)
    if every is None or min(every) <= 1:
        found |= {SHARDED} if zero is None or max(zero) >= 3 else set()
        found |= {BUCKETS} if zero is None or min(zero) < 3 else set()
    return code, found


def ways(x, work, times, net, shares, hop):
    """``Way`` by code, for the codes that can occur.  ``times``: times.Times; ``hop``: Cost of a pipeline hop."""
    build = {BUCKETS: _buckets, SHARDED: _sharded, RARE: _rare}
    return {code: build[code](x, work, times, net, shares, hop) for code in sorted(way_codes(x)[1])}


def reduction_algorithms(x, net, group):
    """What reduces a gradient: an all-reduce, or the reduce-scatter of ZeRO-1 and 2."""
    whole, half = c.all_reduce(group, net), c.half_reduce(group, net)
    if is_concrete(x.zero_stage):
        chosen = half if x.zero_stage >= 1 else whole
    else:
        chosen = {code: c.Algorithm(code, *(_where(x.zero_stage >= 1, a, b) for a, b in zip(half[code][1:], whole[code][1:])))
                  for code in whole}
    return c.selected(chosen, x.algorithm, net, x.codes("algorithm"))


def _where(condition, yes, no):
    return yes if yes is no or (is_concrete(yes) and is_concrete(no) and yes == no) else where(condition, yes, no)


def _gather_algorithms(x, net, group):
    return c.selected(c.half_reduce(group, net), x.algorithm, net, x.codes("algorithm"))


def _pair(shares, dense, experts, dense_bytes, expert_bytes):
    """Cost of one collective over the dense group and one over the experts'."""
    parts = ((dense, dense_bytes),)
    if shares.moe and not is_zero(expert_bytes):
        parts += ((experts, expert_bytes),)
    return Cost(parts)


def _single(x):
    return where(x.pp > 1, 0.0, 1.0)


def _buckets(x, work, times, net, shares, hop):
    dense, experts = (reduction_algorithms(x, net, group) for group in (shares.dense, shares.experts))
    runs = _runs(x, work, times, lambda size, routed: _pair(shares, dense, experts, size - routed, routed), shares.moe)
    first, last, plain = runs
    gap = x.pp * times.chunk_backward_s  # from one chunk's last backward to the next chunk's
    middle = plain if x.at_most("vpp") > 1 else None
    stages = [_chunks(x, first, middle, None, gap, 0.0, 0.0, times.embedding_window_s)]
    costs = first.costs | {"hop": hop}
    pipelined = last is not None
    if pipelined:
        costs |= last.costs
        stages.append(_chunks(x, middle, middle, last, gap, slack_s(x, times.stages), where(x.schedule == ONE_F_ONE_B, x.pp - 1.0, 0.0)))
        if may_hold_two(x):
            stages[1] = (_with_other(x, stages[1][0], first), *stages[1][1:])
    if plain is not None:
        costs |= plain.costs
    ends = len(stages)
    if pipelined and may_hold_two(x):
        stages.append((_with_other(x, plain, plain), 0.0, 0.0, (x.schedule == DUALPIPE) & (x.pp > 2)))
    slow, comm_slow = x.overlap_slowdown, x.comm_slowdown
    candidates = [Candidate(0.0, {})]
    for run, slack, slack_hops, on in stages:
        for item in contended(run, slow, comm_slow):
            late = item._replace(offset=item.offset - slack, counts=_less_hops(item.counts, slack_hops))
            candidates.append(late if on is None else late._replace(offset=where(on, late.offset, -NEVER)))
    every = where((x.zero_stage == 2), x.micro_batches, 1.0)
    terms = [Term(candidates, every)]
    if not is_zero(slow) and x.at_most("pp") > 1:  # each stage's slow-down delays those below it, down to stage 0
        inner = _chunks(x, plain, middle, None, gap, 0.0, 0.0)[0]
        for run, many in ((inner, positive(x.pp - 2.0)), (stages[1][0], minimum(x.pp - 1.0, 1.0))):
            terms.append(Term(compute_delay(run, slow, comm_slow), many * every, least=True))
    served = [{name: count * every for name, count in run.counts.items() if name != "hop"} for run, *_ in stages[:ends]]
    if x.at_most("zero_stage") > 0:
        gather, more, gather_costs = _parameter_gather(x, work, times, net, shares)
        terms.append(gather)
        costs |= gather_costs
        served = [plus(counts, more) for counts in served]
    sustained = _sustained(x, runs, stages, times)
    return Way(terms, served, [Term(sustained)], costs)


def _less_hops(counts, hops):
    return counts if is_zero(hops) else plus(counts, {"hop": 1.0}, -1.0 * hops)


def _runs(x, work, times, cost, moe):
    """Bucket runs of stage 0's first chunk, of the last stage's last chunk and of a chunk without ends (None: cannot occur)."""
    blocks = x.layers / (x.pp * x.vpp)
    block = x.grad_bytes * (work.block_params + work.block_expert_params)
    routed = x.grad_bytes * work.block_expert_params if moe else 0.0
    head, embedding = x.grad_bytes * work.head_params, x.grad_bytes * work.embedding_params
    pipelined = x.at_most("pp") > 1
    single = _single(x)
    common = dict(blocks=blocks, block_bytes=block, expert_bytes=routed, block_s=times.block_window_s)
    first = Curve(head_bytes=head * single, head_s=times.head_window_s * single, embedding_bytes=embedding,
                  embedding_s=times.embedding_window_s, **common)
    last = Curve(head_bytes=head, head_s=times.head_window_s, embedding_bytes=0.0, embedding_s=0.0, **common)
    plain = Curve(head_bytes=0.0, head_s=0.0, embedding_bytes=0.0, embedding_s=0.0, **common)

    alike = "all" if is_concrete(x.bucketing) and x.bucketing == 0 else None

    def run(curve, name, whole):
        size = curve_size(whole, curve, x.bucket_bytes)
        return _Run(*buckets(curve, size, curve_size(whole, curve, x.first_bucket_bytes), cost, name, moe, alike), curve, size)

    slowed = not is_zero(x.overlap_slowdown)

    def curve_size(whole, curve, size):
        return where(x.bucketing == 1, curve.bytes, size) if whole else size

    return (run(first, "first", False), run(last, "last", True) if pipelined else None,
            run(plain, "plain", True) if x.at_most("vpp") > 1 or pipelined and (slowed or may_hold_two(x)) else None)


class _Run(NamedTuple):
    candidates: list
    counts: dict
    costs: dict
    curve: Curve
    size: object


def _chunks(x, lowest, middle, highest, gap, slack, slack_hops, late=0.0):
    """All buckets of a stage: chunks from the highest to the lowest, each served after those above it.

    Chunk c ends its last backward c gap (and c pp hops, and ``late`` seconds of embedding) before the stage does.  Inner
    chunks are alike, so that the latest finish starts in the lowest, in the first above it, or in the highest of them.
    Returns the run, slack, its hops, and a mask where the stage exists only for some points.
    """
    on = None
    if highest is not None:  # the last stage: head on the chunk of the highest index
        on = None if x.at_least("pp") > 1 else x.pp > 1
    if middle is None:
        run = lowest if highest is None else highest
        return run, slack, slack_hops, on
    if highest is None:
        several = where(x.vpp > 1, 1.0, 0.0)
        candidates = list(lowest.candidates)
        for index in (1.0, x.vpp - 1.0):
            for item in middle.candidates:
                counts = plus(plus(item.counts, middle.counts, index - 1.0), lowest.counts)
                candidates.append(_earlier(x, item, counts, index, gap, where(several > 0, -late, -NEVER)))
        return _Run(candidates, plus(lowest.counts, middle.counts, x.vpp - 1.0), lowest.costs, None, None), slack, slack_hops, on
    candidates = [_earlier(x, item, plus(item.counts, middle.counts, x.vpp - 1.0), x.vpp - 1.0, gap, 0.0)
                  for item in highest.candidates]
    for index in (0.0, positive(x.vpp - 2.0)):
        for item in middle.candidates:
            candidates.append(_earlier(x, item, plus(item.counts, middle.counts, index), index, gap,
                                       where(x.vpp > 1, 0.0, -NEVER)))
    return _Run(candidates, plus(highest.counts, middle.counts, x.vpp - 1.0), highest.costs, None, None), slack, slack_hops, on


def _with_other(x, last, first):
    """DualPipe's ranks hold two stages, those at the ends the last and the first: the one's last weight gradients are followed
    by the other's at once, when its slack is least, and one stream serves the buckets of both.
    """
    both = held(x) - 1.0
    never = where(x.schedule == DUALPIPE, 0.0, -NEVER)
    earlier = both * first.curve.seconds
    candidates = [Candidate(item.offset - earlier, plus(item.counts, first.counts, both)) for item in last.candidates]
    candidates += [item._replace(offset=item.offset + never) for item in first.candidates]
    return _Run(candidates, plus(last.counts, first.counts, both), last.costs, None, None)


def _earlier(x, item, counts, index, gap, absent):
    return Candidate(item.offset - index * gap + absent, plus(counts, {"hop": 1.0}, -index * x.pp))


def _sustained(x, runs, stages, times):
    """Candidates of: the stream keeps up with production to the end of the last block (remainders and embedding apart)."""
    first, last, plain = runs
    slow = 1.0 + x.comm_slowdown
    result = _keeps_up(first, slow, 0.0, 0.0)
    if last is not None:
        _, slack, slack_hops, on = stages[1]
        above = where(x.vpp > 1, x.vpp - 1.0, 0.0)
        gone = 0.0 if on is None else where(on, 0.0, -NEVER)
        room = slack + above * x.pp * times.chunk_backward_s + positive(-gone)
        behind = _keeps_up(last, slow, room, slack_hops + above * x.pp, x.bucketing)
        if may_hold_two(x):  # the first stage's blocks follow
            both, after = held(x) - 1.0, result[0]
            behind = [Candidate(item.offset + both * after.offset, plus(item.counts, after.counts, both)) for item in behind]
        result += behind
        if plain is not None and x.at_most("vpp") > 1:
            only = where(x.vpp > 1, 0.0, NEVER)
            result += _keeps_up(plain, slow, slack + only, slack_hops, x.bucketing)
    return result


def _keeps_up(run, slow, slack, slack_hops, bucketing=0):
    """Candidates of one run from each start y of a run of buckets; <= 0 where the stream keeps up."""
    curve = run.curve
    blocks = curve.blocks * curve.block_bytes
    full = {name.split(".")[1]: name for name in run.costs}
    dense, mixed = (full["dense"], full["mixed"]) if "mixed" in full else (full["regular"],) * 2
    end = curve.head_s + curve.blocks * curve.block_s
    window = where(bucketing == 1, 0.0, end) + slack  # one bucket after the backward has its slack alone
    in_blocks = where(bucketing == 1, 0.0, curve.blocks * curve.block_s) + slack
    heads = {dense: slow * curve.head_bytes / run.size}
    from_blocks = {mixed: slow * blocks / run.size}
    candidates = [Candidate(-in_blocks, _less_hops(from_blocks, slack_hops))]
    if not is_zero(curve.head_bytes):
        candidates.append(Candidate(-window, _less_hops(plus(heads, from_blocks), slack_hops)))
    return candidates


def _parameter_gather(x, work, times, net, shares):
    """ZeRO-1 and 2: the gather of the updated parameters under the next step's first forward, and what of it is exposed.

    Units in order, each gathered before its forward: the embedding (a_e, e), the L blocks of a chunk (a, f), the head (a_h).
    Issued as the forward reaches a chunk (Megatron), every chunk of the fill waits; issued at once, stage 0 waits in its first
    or last chunk, or the last stage for its head; with two stages on a rank (DualPipe) the second gathers after the first.
    """
    dense, experts = (_gather_algorithms(x, net, group) for group in (shares.dense, shares.experts))
    costs = {"gather": _pair(shares, dense, experts, x.param_bytes * work.block_params, x.param_bytes * work.block_expert_params),
             "gather.embedding": Cost(((dense, x.param_bytes * work.embedding_params),)),
             "gather.head": Cost(((dense, x.param_bytes * work.head_params),))}
    chunks = x.pp * x.vpp
    blocks, forward, first = x.layers / chunks, times.block_forward_s, times.stages.first_forward
    single, two = _single(x), held(x) - 1.0
    later = blocks - 1.0

    def after(offset, gathers, embedding=1.0, head=0.0, hops=0.0):
        counts = {"gather.embedding": embedding, "gather": gathers, "gather.head": head}
        return Candidate(-offset, _less_hops(counts, hops))

    def next_forward():
        found = []
        for many, hidden in ((1.0, 0.0), (blocks, later * forward)):  # gathers of a chunk that show, forward that hides them
            found.append(after(first + chunks * hidden, chunks * many))
            found.append(after(first + blocks * forward + (chunks - 1.0) * hidden, (chunks - 1.0) * many + blocks, head=1.0))
            if not is_zero(first):  # the embedding's forward hides all that its chunk gathers
                found.append(after((chunks - 1.0) * hidden, (chunks - 1.0) * many))
                behind = positive(chunks - 2.0)
                found.append(after(blocks * forward + behind * hidden + where(chunks > 1, 0.0, first),
                                   behind * many + blocks, head=1.0))
        return found

    def at_once():
        found = [after(0.0, 0.0)]
        for chunk in (0.0, x.vpp - 1.0) if x.at_most("vpp") > 1 else (0.0,):
            before, hops = first + chunk * x.pp * blocks * forward, chunk * x.pp
            found.append(after(before, chunk * blocks + 1.0, hops=hops))
            found.append(after(before + later * forward, (chunk + 1.0) * blocks, hops=hops))
        found.append(after(first + chunks * blocks * forward, (x.vpp + two) * blocks, maximum(single, two), 1.0, chunks - 1.0))
        if may_hold_two(x):  # the middle ranks have the least time until the forward from the other end arrives
            half, absent = x.pp / 2.0, where(two > 0, 0.0, NEVER)
            found.append(after(first + (chunks - 1.0) * blocks * forward + absent, blocks + 1.0, hops=chunks - 1.0))
            found.append(after(half * blocks * forward + absent, blocks + 1.0, 0.0, hops=half))
            found.append(after((half * blocks + later) * forward + absent, 2.0 * blocks, 0.0, hops=half))
        return found

    def exposed():
        everything = (x.vpp + two) * blocks
        ends = maximum(single, two)
        return [after(0.0, everything, head=ends), after(0.0, everything, ends, 1.0)]

    modes = {0: next_forward, 1: at_once, 2: exposed}
    code, codes = x.param_gather, x.codes("param_gather")
    if is_concrete(code):
        candidates = modes[int(code)]()
    else:
        built = {key: modes[key]() for key in (codes or modes)}
        longest = max(map(len, built.values()))
        built = {key: items + items[:1] * (longest - len(items)) for key, items in built.items()}
        candidates = [chosen(code, {key: items[index] for key, items in built.items()}) for index in range(longest)]
    present = where((x.zero_stage >= 1), 1.0, 0.0)
    ends = {"gather.embedding": present, "gather.head": present * maximum(single, two)}
    return Term(candidates, present), ends | {"gather": (x.vpp + two) * blocks * present}, costs


def _sharded(x, work, times, net, shares, hop):
    """FSDP: unit = block, gathers and scatters on one stream; the embedding (and a head beside it) is the root unit.

    HSDP (``shard_group``): gathers and scatters inside the shard group, then the shards' all-reduce across on a second stream.
    A backward pass ends with all of them (PyTorch waits in ``finalize_backward``), so every micro-batch pays, and so does the
    fill of a pipeline: m vpp + pp - 1 passes of a chunk, m + 1 (interleaved m + pp) of them with a root unit, which in a
    pipeline is the embedding or the head.  The last stage binds: nothing of it is hidden there.
    """
    dense, experts, across = shares.dense, shares.experts, None
    if x.shard_group is not None:
        dense, experts, across = shard_groups(x, shares)
    lines = [_gather_algorithms(x, net, group) for group in (dense, experts)]
    root = work.embedding_params + work.head_params * _single(x)

    def costs_of(size, names):
        return {names[0]: _pair(shares, *lines, size * work.block_params, size * work.block_expert_params),
                names[1]: Cost(((lines[0], size * root),))}

    costs = costs_of(x.param_bytes, ("a", "a.root")) | costs_of(x.grad_bytes, ("r", "r.root"))
    blocks, forward, backward = x.layers / (x.pp * x.vpp), times.block_forward_s, times.block_window_s
    begin, rest = times.stages.first_forward * _single(x), times.embedding_window_s * _single(x)
    every = x.micro_batches * x.vpp + x.pp - 1.0
    more = where(x.schedule == DUALPIPE, x.pp - 1.0, where(x.vpp > 1, x.pp, 1.0))
    rooted = where(x.pp > 1, x.micro_batches + more, x.micro_batches) / every
    gathers = [Candidate(-begin, {"a.root": rooted, "a": 1.0}),
               Candidate(-begin - (blocks - 1.0) * forward, {"a.root": rooted, "a": blocks})]
    if not is_zero(begin):  # the embedding's forward hides all gathers of blocks
        gathers.append(Candidate(0.0, {"a.root": rooted, "a": 0.0}))
    depth = minimum(x.prefetch, blocks - 1.0)
    resharding = where(x.reshard_after_forward > 0, 1.0, 0.0)
    again = blocks - where(x.reshard_last_block > 0, 0.0, 1.0)
    served = {"a": x.vpp * (blocks + resharding * again), "a.root": 1.0, "r": x.vpp * blocks, "r.root": 1.0}
    sustained = [Candidate(-forward, {"a": 1.0}), Candidate(-backward, {"a": resharding, "r": 1.0})]
    if across is not None:
        reduce_ = [c.selected(c.all_reduce(group, net), x.algorithm, net, x.codes("algorithm")) for group in across]
        costs["s"] = _pair(shares, *reduce_, x.grad_bytes * work.block_params / x.shard_group,
                           x.grad_bytes * work.block_expert_params / expert_shards(x))
        costs["s.root"] = Cost(((reduce_[0], x.grad_bytes * root / x.shard_group),))
        served |= {"s": x.vpp * blocks, "s.root": 1.0}
        sustained.append(Candidate(-backward, {"s": 1.0}))
    share = x.micro_batches * x.vpp / every
    scatters = backward_ends(x, times, blocks, depth, backward, rest, across is not None, share)
    roots = ("r.root",) if across is None else ("r.root", "s.root")
    scatters = [item._replace(counts=item.counts | {name: where(x.pp > 1, 1.0, item.counts.get(name, 0.0)) * rooted for name in roots})
                for item in scatters]
    if not is_zero(x.overlap_slowdown):
        # what is hidden slows the compute over it, E = W + kappa' C: exact where all but the first gather and the last scatter hide
        slow, inner = x.overlap_slowdown / (1.0 + x.overlap_slowdown), blocks - 1.0
        gathers.append(Candidate(-begin, {"a.root": rooted, "a": 1.0 + slow * inner}))
        hidden = {"r": slow * inner, "a": slow * resharding * inner, "r.root": rooted}
        scatters += [Candidate(0.0, hidden), Candidate(-rest, plus(hidden, {"r": where(x.schedule == ZB_H1, share, 1.0)}))]
    each = {name: count * x.micro_batches for name, count in served.items()}
    return Way([Term(gathers, every), Term(scatters, every)], [each], [Term(sustained)], costs)


def _rare(x, work, times, net, shares, hop):
    """DiLoCo: C every H steps in L fragments under a period of H steps: end max(T + C/L, C + T/L) (arXiv:2501.18512)."""
    dense, experts = (c.selected(c.all_reduce(group, net), x.algorithm, net, x.codes("algorithm"))
                      for group in (shares.dense, shares.experts))
    blocks, parts, every = held(x) * x.layers / x.pp, x.sync_fragments, x.sync_every
    ends = work.embedding_params + work.head_params * where(held(x) == 1, _single(x), 1.0)
    cost = _pair(shares, dense, experts, x.grad_bytes * (blocks * work.block_params + ends) / parts,
                 x.grad_bytes * blocks * work.block_expert_params / parts)
    step = times.step_s  # without this reduction, at infinite link speed
    term = Term([Candidate(0.0, {"fragment": 1.0 / every}), Candidate(-step * (1.0 - 1.0 / parts), {"fragment": parts / every})])
    return Way([term], [{"fragment": parts / every}], [Term([Candidate(-step, {"fragment": parts / every})])], {"fragment": cost})
