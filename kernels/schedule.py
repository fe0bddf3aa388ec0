"""Pipeline schedules: time of the pipeline, its hops, the slack of each stage, when each chunk's gradients are complete.

m micro-batches over pp stages of forward t_f and backward t_b = t_d + t_w (t = t_f + t_b) and vpp chunks, p one hop (a delay
that blocks nothing).  The ends of the pipeline carry the embedding (e seconds, stage 0) and the head (g, the last stage);
q = floor((m-1)(pp-1)/pp), K = floor((m-1)/pp), x+ = max(0, x).  Hops apart:

    1F1B         sum t_i + (m-1) max t_i
    interleaved  m max t_i + (pp-1)/vpp t + pp e                                         (m a multiple of pp)
    ZB-H1        e_f + (pp-1)(t_f + t_d) + m (t_f' + t_d' + (e-g)+) + (m-pp)+ t_w' + t_w + e_b, primes with the head
    DualPipe     max(3h t_f + (2h+1) t_d, 2h t_f + 3h t_d) + 3 t_w + (m-h-2) t + m (e+g)/2, h = pp/2

(ZB-H1: Qi et al., arXiv:2401.10241, or its last stage where that ends later; DualPipe: DeepSeek-V3, arXiv:2412.19437.)

What hops add:

    1F1B         2p (pp-1) + max(0, (2p-g)+ q, K (e + (pp-1)(2p-g)) + (2p-g)+ (q - K(pp-1)))
    interleaved  2p (pp vpp - 1) - (pp-1) e + ((pp-1) e_f - pp p)+ + ((pp-1) e_b - pp p)+
                 + pp (vpp-1)(m/pp - 1)(p - min(t_f, t_b)/vpp)+ + N (p - t/(2 vpp))+
                 with N = 2 floor((pp-1) m/pp / 2), of one group (m = pp) 2 floor(pp/2) - 2
    ZB-H1        2p (pp-1) + (2p - g_f - g_d)+ min(q, pp-1) + (2p - g_f - g_d - t_w')+ (q - pp + 1)+
    DualPipe     p (max(1, 4(h-1)) + m (pp-1)/pp + 1/2), without the half at pp = 2

1F1B and interleaved are exact where the last stage is the slowest (interleaved: hops up to a chunk's pass; beyond, exact
for m <= 4 pp, at most 7 % low else), 1F1B an upper bound else.  ZB-H1 is exact where t_w is at most t_f and t_d; with a
head and hops an upper bound.  DualPipe, in the order of its published code, is exact without ends and hops, an upper bound
with them (hops: at most 5 p); the paper's table counts (h-1)(t_f + 2 t_d - t_w) of bubble, which is the same where t_f = t_d.

The last backward of stage i ends i (t_b/vpp + p) before that of stage 0: its slack.  ZB-H1 and DualPipe are taken to end
all stages together: no slack, and the window of the reduction is the last weight-gradient pass alone.
"""

from typing import NamedTuple

from .ops import choose, floor, is_concrete, is_zero, maximum, minimum, positive, where

ONE_F_ONE_B, ZB_H1, DUALPIPE = 0, 1, 2


class Stages(NamedTuple):
    """Seconds of one micro-batch on the stages: a middle one, and what the first and the last have on top."""

    forward: object
    backward: object
    weight: object  # weight-gradient part of backward
    first_forward: object
    first_backward: object
    last_forward: object
    last_backward: object

    @property
    def first(self):
        """Forward and backward of the embedding."""
        return self.first_forward + self.first_backward

    @property
    def last(self):
        """Forward and backward of the head."""
        return self.last_forward + self.last_backward

    @property
    def middle(self):
        """Forward and backward of a stage without the ends of the model."""
        return self.forward + self.backward

    def slowest(self, pp, schedule=0):
        """Forward and backward of the slowest stage; a rank of DualPipe that hosts both ends sees each half of the time."""
        ends = where(pp > 1, maximum(self.first, self.last), self.first + self.last)
        return self.middle + where(schedule == DUALPIPE, (self.first + self.last) / 2.0, ends)


def held(x):
    """Stages whose parameters a GPU holds: DualPipe's rank r has stages r and pp-1-r, so each stage lives on two ranks.

    Parameters, gradients and the bytes to reduce double, and so does the group that reduces (or shards) them: the published
    code adds the gradients of rank pp-1-r to those of rank r (deepseek-ai/DualPipe, example; as Chimera, arXiv:2107.06925).
    """
    return where(x.schedule == DUALPIPE, 2.0, 1.0)


def pipeline_s(x, stages):
    """Seconds of the pipeline of one step, hops apart."""
    m, pp, vpp = x.micro_batches, x.pp, x.vpp
    slowest, first, last = stages.slowest(pp), stages.first, stages.last

    def one_f_one_b():
        plain = pp * stages.middle + first + last + (m - 1.0) * slowest
        return where(vpp > 1, m * slowest + (pp - 1.0) / vpp * stages.middle + pp * first, plain)

    def zero_bubble():
        passes = stages.middle - stages.weight  # forward and input gradient
        weight = stages.weight + stages.last_backward / 2.0
        before = stages.first_forward + m * (passes + stages.last_forward + stages.last_backward / 2.0 + positive(first - last))
        stage_0 = (pp - 1.0) * passes + positive(m - pp) * weight + stages.weight + stages.first_backward
        return where(pp > 1, before + maximum(stage_0, (pp - 1.0) * stages.forward + m * weight), m * slowest)

    def dualpipe():
        half, dgrad = pp / 2.0, stages.backward - stages.weight
        fill = maximum(3.0 * half * stages.forward + (pp + 1.0) * dgrad, pp * stages.forward + 3.0 * half * dgrad)
        return fill + 3.0 * stages.weight + (m - half - 2.0) * stages.middle + m * (first + last) / 2.0

    return choose(x.schedule, {ONE_F_ONE_B: one_f_one_b, ZB_H1: zero_bubble, DUALPIPE: dualpipe}, x.codes("schedule"))


def hops(x, stages):
    """What hops add to the pipeline: terms to be summed, each a list of candidates (seconds, hops); the largest counts."""
    m, pp, vpp = x.micro_batches, x.pp, x.vpp
    several = minimum(pp - 1.0, 1.0)
    fill, steady = 2.0 * (pp - 1.0), floor((m - 1.0) * (pp - 1.0) / pp)

    def one_f_one_b():
        head, rounds = maximum(stages.first, stages.last), floor((m - 1.0) / pp) * several
        deep = rounds * (pp - 1.0)
        plain = [(0.0, fill), (-steady * head, fill + 2.0 * steady)]
        if not is_zero(stages.first):
            plain += [(rounds * stages.first - deep * head, fill + 2.0 * deep),
                      (rounds * stages.first - steady * head, fill + 2.0 * steady)]
        if x.at_most("vpp") <= 1:
            return plain
        whole = 2.0 * (pp * vpp - 1.0) * several
        forward, backward = (pp - 1.0) * stages.first_forward, (pp - 1.0) * stages.first_backward
        chunks = [(-forward - backward, whole), (-backward, whole - pp), (-forward, whole - pp), (0.0, whole - 2.0 * pp)]
        plain += plain[:1] * (len(chunks) - len(plain))
        return [tuple(where(vpp > 1, yes, no) for yes, no in zip(*pair)) for pair in zip(chunks, plain)]

    def zero_bubble():
        filling, full = minimum(steady, pp - 1.0), positive(steady - pp + 1.0)
        early = filling * (stages.last_forward + stages.last_backward / 2.0)
        late = full * (stages.last_forward + stages.last_backward + stages.weight)
        rounds = floor((m - 1.0) / pp) * several  # loops that hops make longest pass the embedding too
        once, each = minimum(rounds, 1.0) * stages.first, rounds * stages.first
        return [(0.0, fill), (once - early, fill + 2.0 * filling), (-late, fill + 2.0 * full),
                (each - early - late, fill + 2.0 * steady)]

    def dualpipe():
        return [(0.0, (maximum(1.0, 2.0 * pp - 4.0) + m * (pp - 1.0) / pp + 0.5 * minimum(pp - 2.0, 1.0)) * several)]

    terms = [_by_schedule(x, {ONE_F_ONE_B: one_f_one_b, ZB_H1: zero_bubble, DUALPIPE: dualpipe})]
    if x.at_most("vpp") > 1:
        groups, chunked = m / pp, where(vpp > 1, 1.0, 0.0)
        inner = chunked * pp * (vpp - 1.0) * positive(groups - 1.0)
        outer = chunked * 2.0 * where(groups > 1, floor((pp - 1.0) * groups / 2.0), floor(pp / 2.0) - 1.0)
        terms.append([(0.0, 0.0), (-inner * minimum(stages.forward, stages.backward) / vpp, inner)])
        terms.append([(0.0, 0.0), (-outer * stages.middle / (2.0 * vpp), outer)])
    return terms


def _by_schedule(x, candidates):
    """The candidates of the schedule of each point; shorter lists repeat their first."""
    if is_concrete(x.schedule):
        return candidates[int(x.schedule)]()
    codes = x.codes("schedule")
    built = {code: candidate() for code, candidate in candidates.items() if codes is None or code in codes}
    longest = max(map(len, built.values()))
    built = {code: items + items[:1] * (longest - len(items)) for code, items in built.items()}

    def entry(index, which):
        return choose(x.schedule, {code: (lambda items=items: items[index][which]) for code, items in built.items()}, codes)

    return [(entry(index, 0), entry(index, 1)) for index in range(longest)]


def slack_s(x, stages):
    """Seconds, without hops, by which the last stage's last backward ends before that of stage 0; 0 without bubbles to end in."""
    below = stages.backward * (x.pp - 1.0) / x.vpp + stages.first_backward * minimum(x.pp - 1.0, 1.0)
    return where(x.schedule == ONE_F_ONE_B, below, 0.0)


def in_flight(x):
    """Micro-batches, each of a whole stage, whose activations the first and the last stage hold at most."""
    m, pp, vpp = x.micro_batches, x.pp, x.vpp
    deep = minimum(m, pp)
    first = where(vpp > 1, minimum(m, pp + (pp - 1.0) / vpp), deep)
    last = where(vpp > 1, minimum(m, ((vpp - 1.0) * pp + 1.0) / vpp), 1.0)
    return (choose(x.schedule, {ONE_F_ONE_B: lambda: first, ZB_H1: lambda: deep, DUALPIPE: lambda: minimum(m, pp + 1.0)}),
            choose(x.schedule, {ONE_F_ONE_B: lambda: last, ZB_H1: lambda: deep, DUALPIPE: lambda: minimum(m, pp + 1.0)}))


# -- plain numbers --------------------------------------------------------------------------------------------------------------


def one_f_one_b_s(micro_batches, pp, stage_s, hop_s=0.0):
    """Seconds of 1F1B over equal stages of ``stage_s`` (forward and backward) with a hop of ``hop_s``."""
    return (micro_batches + pp - 1) * stage_s + 2.0 * hop_s * ((pp - 1) + floor((micro_batches - 1) * (pp - 1) / pp))


def interleaved_s(micro_batches, pp, vpp, stage_s, hop_s=0.0):
    """Seconds of interleaved 1F1B; ``stage_s`` of all chunks of a stage, m a multiple of pp, hop at most t_f/vpp."""
    return (micro_batches + (pp - 1) / vpp) * stage_s + 2.0 * hop_s * (pp * vpp - 1)


def bubble_fraction(micro_batches, pp, vpp=1):
    """Bubble over ideal time of (interleaved) 1F1B: (pp-1)/(vpp m)."""
    return (pp - 1) / (vpp * micro_batches)
