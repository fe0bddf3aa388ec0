"""When the backward pass of sharded parameters (FSDP, HSDP) ends: candidates of overlap.py.

Blocks in the order of the backward pass; the gather of the block ``depth`` further on is issued before a block's backward, its
scatter after it, all on one stream, so that the end is the longest of a handful of paths (README.md, section 8):

    the compute of all blocks; the first gather and the rest; D gathers ahead; or the stream alone, x = max(beta, D a) +
    (L-1-D)(a + r) and what then remains

and, with shards reduced across on a second stream (HSDP), each of these and one all-reduce, or the stream of all-reduces from
the first scatter or from the last gather on.  The root unit (embedding, and a head beside it) scatters last.
"""

from .ops import choose, is_concrete, is_zero, maximum, minimum, where
from .overlap import Candidate, plus
from .schedule import ONE_F_ONE_B, ZB_H1


def backward_ends(x, times, blocks, depth, backward, rest, across, share):
    """How much later than its compute a sharded backward ends: candidates for each schedule and way of resharding that occurs.

    With weight gradients apart (ZB-H1) gathers are under the input gradients, scatters under the weight gradients, of which
    the fill has none: they count for the ``share`` of passes that are not fill.
    """
    late = rest if not is_zero(rest) else None
    last = x.reshard_last_block > 0
    input_s = times.block_backward_s - times.block_window_s

    def late_by(ends, window):
        return [item._replace(offset=item.offset - window) for item in ends]

    def kept():
        return late_by(fsdp_kept_ends(blocks, backward, late, across), blocks * backward + rest)

    def whole():
        return late_by(fsdp_ends(blocks, backward, depth, last, late, across), blocks * backward + rest)

    def scattered():
        return [Candidate(item.offset * share, {name: count * share for name, count in item.counts.items()}) for item in kept()]

    def apart():
        ends = [item._replace(counts={"a": item.counts["a"]}) for item in fsdp_backward(blocks, input_s, depth, last)]
        return [Candidate(one.offset + two.offset, plus(one.counts, two.counts))
                for one in late_by(ends, blocks * input_s) for two in scattered()]

    split = where(x.schedule == ZB_H1, 2, 0)
    code = split + where(x.reshard_after_forward > 0, 1, 0)
    ways = {0: kept, 1: whole, 2: scattered, 3: apart}
    if is_concrete(code):
        return ways[int(code)]()
    schedules, reshards = x.codes("schedule"), x.codes("reshard_after_forward")
    codes = {2 * (schedule == ZB_H1) + int(reshard > 0) for schedule in schedules or {ONE_F_ONE_B, ZB_H1} for reshard in reshards or {0, 1}}
    built = {key: ways[key]() for key in codes}
    longest = max(map(len, built.values()))
    built = {key: items + items[:1] * (longest - len(items)) for key, items in built.items()}
    return [chosen(code, {key: items[index] for key, items in built.items()}) for index in range(longest)]


def fsdp_backward(blocks, backward_s, depth, reshard_last):
    """Candidates of the end of an FSDP backward in costs ``a`` (gather of a block) and ``r`` (scatter of a block).

    ``depth`` = min(prefetch, L - 1).  Without prefetch a gather waits behind the scatter before it: L beta + (L-1)(a+r) + r.
    """
    rest = blocks - 1.0 - depth
    kept = where(depth < blocks - 1.0, 1.0, 0.0)  # x + beta + r stands only where D < L - 1
    several = where(blocks > 1.0, 1.0, 0.0)
    serial = where(depth < 1.0, 1.0, 0.0)
    list_ = [
        (blocks * backward_s, serial * (blocks - 1.0), 1.0 + serial * (blocks - 1.0)),
        ((blocks - 1.0) * backward_s, several, 1.0),
        ((blocks - depth) * backward_s, depth, 1.0),
        (backward_s, rest, rest + depth + 1.0),
        (0.0, depth + rest, rest + depth + 1.0),
        (backward_s + kept * backward_s, rest, rest + 1.0),
        (kept * backward_s, depth + rest, rest + 1.0),
    ]
    more = where(reshard_last, 1.0, 0.0)
    return [Candidate(offset, {"a": gathers + more, "r": scatters}) for offset, gathers, scatters in list_]


def fsdp_ends(blocks, backward_s, depth, reshard_last, late_s=None, across=False):
    """Candidates of the end of a sharded backward: blocks, then the root unit.

    Costs ``a`` and ``r`` as in :func:`fsdp_backward`, ``r.root``; with ``across`` the all-reduces of shards ``s`` and
    ``s.root`` on a second stream (HSDP).  ``late_s``: backward of the embedding, before the root's scatter (None: none).
    """
    ends = fsdp_backward(blocks, backward_s, depth, reshard_last)
    root = {"r.root": 1.0} | ({"s.root": 1.0} if across else {})
    found = [item._replace(counts=plus(item.counts, root)) for item in ends]
    if late_s is not None:  # the last block's compute, then the embedding's
        for index in (0, 1, 2, 5, 6):
            counts = plus(plus(ends[index].counts, {"r": 1.0}, -1.0), root)
            found.append(Candidate(ends[index].offset + late_s, counts))
    if across:
        rest, more = blocks - 1.0 - depth, where(reshard_last, 1.0, 0.0)
        found += [item._replace(counts=plus(item.counts, {"s": 1.0, "s.root": 1.0})) for item in ends]
        for offset, gathers, scatters, shards in ((backward_s, 0.0, 1.0, blocks), (0.0, depth, 1.0, blocks),
                                                  (backward_s, rest, rest + 1.0, depth + 1.0),
                                                  (0.0, depth + rest, rest + 1.0, depth + 1.0)):
            found.append(Candidate(offset, {"a": gathers + more, "r": scatters, "s": shards, "s.root": 1.0}))
    return found


def fsdp_kept_ends(blocks, backward_s, late_s=None, across=False):
    """The same without gathers: parameters are kept after forward."""
    root = {"r.root": 1.0} | ({"s.root": 1.0} if across else {})
    found = [Candidate(blocks * backward_s, {"a": 0.0, "r": 1.0} | root), Candidate(backward_s, {"a": 0.0, "r": blocks} | root)]
    if late_s is not None:
        found.append(Candidate(blocks * backward_s + late_s, {"a": 0.0, "r": 0.0} | root))
    if across:
        cases = (blocks * backward_s, 1.0, 1.0), (backward_s, 1.0, blocks), (backward_s, blocks, 1.0)
        found += [Candidate(offset, {"a": 0.0, "r": scatters, "s": shards, "s.root": 1.0}) for offset, scatters, shards in cases]
    return found


def chosen(code, items):
    """The candidate of the code of each point, of ``items`` by code."""
    names = sorted({name for item in items.values() for name in item.counts})
    offset = choose(code, {key: (lambda item=item: item.offset) for key, item in items.items()})
    return Candidate(offset, {name: choose(code, {key: (lambda item=item: item.counts.get(name, 0.0)) for key, item in items.items()})
                              for name in names})


# -- plain numbers --------------------------------------------------------------------------------------------------------------


def fsdp_forward_exposed_s(blocks, forward_s, gather_s):
    """Exposed forward of L blocks whose parameters are gathered one ahead: a + (L-1) max(0, a-f)."""
    return gather_s + (blocks - 1) * maximum(0.0, gather_s - forward_s)


def fsdp_backward_s(blocks, backward_s, gather_s, scatter_s, prefetch=1, reshard_last=False):
    """Seconds of a backward of L > 1 blocks with gathers ``prefetch`` ahead and scatters on one stream (model.md section 5)."""
    depth = minimum(prefetch, blocks - 1)
    return maximum(*(item.at({"a": gather_s, "r": scatter_s}) for item in fsdp_backward(blocks, backward_s, depth, reshard_last)))
