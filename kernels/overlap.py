"""What hides under compute, what stays exposed, and the exact inverse: the port speed that is needed.

A communication stream serves its buckets one after the other, each once it is ready:

    f_i = max(f_{i-1}, r_i) + c_i      =>      f_n = max_k ( r_k + sum_{j>=k} c_j )                 (model.md section 5)

so everything exposed is a sum of *terms*, each the largest of a few *candidates*, each ``offset + sum count * cost``: offsets
and counts know nothing of the link, and a cost is the time of one collective as a function of u = 1/(scale-out bytes/s),
concave and increasing between the kinks of its pipelined tiers (collectives.py).  The same candidates give

    forward   the exposed time at a link speed                                   exposed(terms, costs, u)
    inverse   the u at which the exposed time equals a target, Newton from       solve(terms, costs, target)
              the infinite link: each candidate is concave, so a step never passes the root and ends on it

Contention only changes offsets and counts (``contended``), pipelines and chunks only add to them.
"""

from typing import NamedTuple

from .collectives import fastest, seconds
from .ops import ceil, clip, hair, is_concrete, is_zero, largest, maximum, minimum, positive, ratio, repeat, smallest, where

NEWTON_STEPS = 4
NO_LINK = 1e20
"""Seconds per byte that stand for no link at all (infinity times a collective that never leaves its domain is not a number)."""


class Cost(NamedTuple):
    """The collectives that one bucket (or gather) issues: pairs of (algorithms, bytes), run one after the other.

    A part without bytes is not issued.
    """

    parts: tuple

    def seconds(self, u):
        """Seconds at ``u``, each part by its fastest algorithm."""
        return sum(_issued(nbytes, seconds(algorithms, nbytes, u)) for algorithms, nbytes in self.parts)

    def tangent(self, u):
        """Seconds at ``u`` and their right-hand slope."""
        value = slope = 0.0
        for algorithms, nbytes in self.parts:
            second, incline, _ = fastest(algorithms, nbytes, u)
            value, slope = value + _issued(nbytes, second), slope + _issued(nbytes, incline)
        return value, slope

    def without_latency(self):
        """The same collectives on a network without latency."""
        return Cost(tuple(([item._replace(a=0.0, b=0.0) for item in algorithms], nbytes) for algorithms, nbytes in self.parts))

    def pipelined(self):
        """The algorithms whose tiers take turns as the slower one, at a kink of the cost."""
        return [item for algorithms, _ in self.parts for item in algorithms if not (is_concrete(item.p) and item.p == 1)]


def _issued(nbytes, value):
    return where(nbytes > 0, value, 0.0)


class Term(NamedTuple):
    """``times`` the largest of ``candidates``, or the smallest where ``least``."""

    candidates: list
    times: object = 1.0
    least: bool = False

    def at(self, values):
        """Seconds, given those of each cost."""
        pick = minimum if self.least else maximum
        return self.times * pick(*(candidate.at(values) for candidate in self.candidates))


class Candidate(NamedTuple):
    """``offset`` seconds and, by cost name, how often each cost is served."""

    offset: object
    counts: dict

    def at(self, values):
        """Seconds, given those of each cost."""
        return total(self.counts, values, self.offset)


def total(counts, values, start=0.0):
    """``start + sum counts * values``."""
    for name, count in counts.items():
        start = start + count * values[name]
    return start


def plus(first, second, times=1.0):
    """Counts ``first + times * second``."""
    result = dict(first)
    for name, count in second.items():
        result[name] = result.get(name, 0.0) + times * count
    return result


def exposed(terms, values):
    """Sum of the terms at given costs."""
    return sum(term.at(values) for term in terms)


def solve(terms, costs, target):
    """The largest u at which ``exposed`` stays within ``target``; 0 where no link does it, inf where any does."""

    def at(u):
        return exposed(terms, {name: cost.seconds(u) for name, cost in costs.items()})

    lacking = at(0.0) - target
    attainable = lacking <= 0.0
    kinks = _kinks(costs.values())
    start = largest(lambda u: where(at(u) <= target, u, 0.0), kinks) if kinks else 0.0
    root = repeat(lambda u: minimum(u + _step(terms, costs, target, u), NO_LINK), where(attainable, start, 0.0), NEWTON_STEPS)
    return where(attainable, where(root >= NO_LINK, float("inf"), root), 0.0 * lacking)  # 0 whose gradient knows its causes


def _kinks(costs):
    """The u at which a tier of some algorithm becomes the slower one, each once, as tuples of one."""
    found = []
    for cost in costs:
        for item in cost.pipelined():
            if not any(item.g is g and item.h is h for g, h in found):
                found.append((item.g, item.h))
    return [(ratio(g, h),) for g, h in found]


def _step(terms, costs, target, u):
    """The smallest Newton step over all choices of one candidate per term (the active one where the term is a minimum)."""
    tangents = {name: cost.tangent(u) for name, cost in costs.items()}
    values = {name: pair[0] for name, pair in tangents.items()}
    slopes = {name: pair[1] for name, pair in tangents.items()}
    lines = []
    for term in terms:
        found = [(candidate.at(values), total(candidate.counts, slopes)) for candidate in term.candidates]
        lines.append([(term.times * value, term.times * slope) for value, slope in ([_lowest(found)] if term.least else found)])
    lines.sort(key=len)
    others = [(-target, 0.0)]
    for found in lines[:-1]:
        others = [(value + more, slope + incline) for value, slope in others for more, incline in found]

    def least(value, slope):
        """The smallest step where the other terms together are at ``value`` and rise by ``slope``."""
        return minimum(*(ratio(positive(-value - more), slope + incline, float("inf")) for more, incline in lines[-1]))

    return smallest(least, others)


def _lowest(lines):
    best, slope = lines[0]
    for value, incline in lines[1:]:
        better = (value < best) | ((value == best) & (incline < slope))
        best, slope = minimum(best, value), where(better, incline, slope)
    return best, slope


def without_latency(costs, u):
    """Seconds of each cost at ``u`` on a network without latency."""
    return {name: cost.without_latency().seconds(u) for name, cost in costs.items()}


# -- buckets under a backward pass ----------------------------------------------------------------------------------------------


class Curve(NamedTuple):
    """Production of gradients in one chunk's last backward: head, then ``blocks`` equal blocks, then the embedding.

    Bytes and seconds of each; experts' bytes are part of a block's and counted again in ``expert_bytes``.
    """

    head_bytes: object
    head_s: object
    blocks: object
    block_bytes: object
    expert_bytes: object
    block_s: object
    embedding_bytes: object
    embedding_s: object

    @property
    def bytes(self):
        """All bytes."""
        return self.head_bytes + self.blocks * self.block_bytes + self.embedding_bytes

    @property
    def seconds(self):
        """The window W."""
        return self.head_s + self.blocks * self.block_s + self.embedding_s

    def ready(self, y):
        """Second at which the first ``y`` > 0 bytes are produced."""
        in_blocks = self.blocks * self.block_bytes
        head = self.head_s * clip(ratio(y, self.head_bytes, 1.0), 0.0, 1.0)
        blocks = self.blocks * self.block_s * clip(ratio(y - self.head_bytes, in_blocks), 0.0, 1.0)
        end = self.embedding_s * clip(ratio(y - self.head_bytes - in_blocks, self.embedding_bytes), 0.0, 1.0)
        return head + blocks + end

    def experts(self, y):
        """Experts' bytes among the first ``y``."""
        share = ratio(self.expert_bytes, self.block_bytes)
        return share * clip(y - self.head_bytes, 0.0, self.blocks * self.block_bytes)


class Run(NamedTuple):
    """Buckets of one curve: ``candidates`` relative to the curve's end, ``counts`` of all of them, ``costs`` by name."""

    candidates: list
    counts: dict
    costs: dict


def buckets(curve, bucket_bytes, first_bytes, cost, name, experts=True, alike=None):
    """The :class:`Run` of a production curve cut into buckets.

    ``cost(bytes, expert_bytes)`` gives the :class:`Cost` of a bucket; ``name`` keeps the costs of several runs apart, but for
    those of full buckets, which runs with the same ``alike`` share.  The candidates are the first two and last two buckets
    and, at each kink, the bucket that completes there and its neighbours: inside a run of buckets that complete between two
    kinks r and c are linear.
    """
    size, everything = bucket_bytes, curve.bytes
    first = minimum(first_bytes, everything)
    count = 1.0 + ceil(_trim(positive(everything - first) / size))  # K
    last = count - 1.0
    regular = positive(count - 2.0)

    def filled(index):
        """Bytes up to and with bucket ``index``."""
        return minimum(first + index * size, everything)

    tail = everything - first - regular * size

    def bucket_cost(start, stop):
        return cost(stop - start, curve.experts(stop) - curve.experts(start) if experts else 0.0)

    costs = {"first": bucket_cost(0.0, first), "last": bucket_cost(everything - positive(tail), everything)}
    kinks = [curve.head_bytes, curve.head_bytes + curve.blocks * curve.block_bytes]
    kinks = [kink for kink, more in zip(kinks, (curve.head_bytes, curve.embedding_bytes)) if not is_zero(more)]
    at_kink = [clip(ceil(_trim((kink - first) / size)), 0.0, last) for kink in kinks]
    if experts:
        into = clip(ceil(_trim((curve.head_bytes - first) / size)), 0.0, last)
        out = clip(ceil(_trim((curve.head_bytes + curve.blocks * curve.block_bytes - first) / size)), 0.0, last)
        share = ratio(curve.expert_bytes, curve.block_bytes)
        costs |= {"dense": cost(size, 0.0), "mixed": cost(size, share * size),
                  "into": bucket_cost(filled(into - 1.0), filled(into)), "out": bucket_cost(filled(out - 1.0), filled(out))}
    else:
        costs["regular"] = cost(size, 0.0)

    def served(start):
        """Counts of the buckets ``start`` ... K-1 by cost; ``start`` >= 1 leaves out the first."""
        begin = maximum(start, 1.0)
        many = positive(last - begin)  # regular ones, begin ... K-2
        counts = {"last": where(count > 1.0, 1.0, 0.0)}
        if not experts:
            return counts | {"regular": many}
        within = lambda index: where((index >= begin) & (index <= last - 1.0), 1.0, 0.0)  # noqa: E731
        straddle_in, straddle_out = within(into), within(out) * where(out == into, 0.0, 1.0)
        mixed = positive(minimum(out - 1.0, last - 1.0) - maximum(begin, into + 1.0) + 1.0)
        return counts | {"into": straddle_in, "out": straddle_out, "mixed": mixed,
                         "dense": positive(many - straddle_in - straddle_out - mixed)}

    end = curve.seconds
    whole = served(1.0) | {"first": 1.0}
    candidates = [Candidate(curve.ready(filled(0.0)) - end, whole)]
    indices = [minimum(1.0, last), positive(last - 1.0), last]
    for index in at_kink:  # a bucket that straddles a kink costs its own time with experts: the run starts after it
        indices += [positive(index - 1.0), index] + ([minimum(index + 1.0, last)] if experts else [])
    for index in indices:
        counts = served(index) | {"first": where(index < 1.0, 1.0, 0.0)}
        candidates.append(Candidate(curve.ready(filled(index)) - end, counts))
    full = ("regular", "dense", "mixed")
    named = lambda counts: {f"{(alike or name) if key in full else name}.{key}": value  # noqa: E731
                            for key, value in counts.items()}
    return Run([item._replace(counts=named(item.counts)) for item in candidates], named(whole), named(costs))


def _trim(quotient):
    """A quotient that rounding left a hair above a whole number counts as that number."""
    return quotient - hair(quotient) * maximum(quotient, 1.0)


def contended(run, slowdown, comm_slowdown):
    """The candidates of a run under contention: the later of compute and communication ends ``candidate`` after W.

    While communication runs, compute advances at 1/(1 + kappa); while compute runs, communication at 1/(1 + kappa_c).  With
    f'_k the finish at the bucket k and C the services, T_k = [(1 - kappa kappa_c) f'_k + kappa_c ((1+kappa) W + kappa C')]
    / (1 + kappa_c), and compute alone ends at W + kappa/(1+kappa) C' (model.md section 5).
    """
    if is_zero(slowdown) and is_zero(comm_slowdown):
        return run.candidates
    both = slowdown * comm_slowdown
    later, share = (1.0 - both) / (1.0 + comm_slowdown), slowdown / (1.0 + slowdown)
    everything = (1.0 - both) * share + both
    result = []
    for item in run.candidates:
        # later * w_k + kappa_c (1 + kappa)/(1 + kappa_c) W - W, with w_k = W + offset
        counts = {key: value * (1.0 - both) / (1.0 + slowdown) for key, value in item.counts.items()}
        result.append(Candidate(later * item.offset, plus(counts, run.counts, everything)))
    alone = {key: value * share * (1.0 + comm_slowdown) for key, value in run.counts.items()}
    return result + [Candidate(0.0, alone)]


def compute_delay(run, slowdown, comm_slowdown):
    """Candidates whose *smallest* is E - W, by how much contention delays the end of this stage's compute."""
    share = slowdown / (1.0 + slowdown)
    result = [Candidate(0.0, {key: value * share * (1.0 + comm_slowdown) for key, value in run.counts.items()})]
    for item in run.candidates:  # kappa (W - w_k) + kappa (1+kappa_c)/(1+kappa) of the buckets before k
        before = plus(run.counts, item.counts, -1.0)
        result.append(Candidate(-slowdown * item.offset, {key: value * share * (1.0 + comm_slowdown) for key, value in before.items()}))
    return result


# -- plain numbers --------------------------------------------------------------------------------------------------------------


def bucketed_exposed_s(buckets_count, backward_s, service_s):
    """Exposed seconds of K equal buckets of backward b and service c each: max(c, K c - (K-1) b)."""
    return maximum(service_s, buckets_count * service_s - (buckets_count - 1) * backward_s)


def contended_exposed_s(ready_s, service_s, window_s, slowdown=0.0, comm_slowdown=0.0):
    """Seconds by which contention and communication end after ``window_s`` for any buckets: lists of ready and service times."""
    run = Run([Candidate(ready - window_s, {str(j): 1.0 for j in range(k, len(ready_s))}) for k, ready in enumerate(ready_s)],
              {str(j): 1.0 for j in range(len(ready_s))}, {})
    values = {str(j): service for j, service in enumerate(service_s)}
    return maximum(0.0, exposed([Term(contended(run, slowdown, comm_slowdown))], values))


def required_bytes_per_s(grad_bytes, flop_per_s, window_tokens, n=float("inf"), total_over_active=1.0, recompute=False):
    """Section 1's law: 2 (n-1)/n s_g eta F / (4 tau) P/P_a bytes/s (6 tau with full recompute); SI, ``flop_per_s`` = eta F."""
    return 2.0 * (1.0 - 1.0 / n) * grad_bytes * flop_per_s / ((6.0 if recompute else 4.0) * window_tokens) * total_over_active


def window_tokens(grad_bytes, flop_per_s, bytes_per_s, n=float("inf"), total_over_active=1.0, recompute=False):
    """The same law asked the other way: tokens tau that the window needs at a port of ``bytes_per_s``."""
    return required_bytes_per_s(grad_bytes, flop_per_s, 1.0, n, total_over_active, recompute) / bytes_per_s


def diloco_end_s(period_s, comm_s, fragments):
    """End of a period T whose communication C streams in L fragments under compute: max(T + C/L, C + T/L)."""
    return maximum(period_s + comm_s / fragments, comm_s + period_s / fragments)
