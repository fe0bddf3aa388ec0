"""Pipeline schedules: time of the pipeline, its hops, the slack of each stage, when each chunk's gradients are complete.

m micro-batches over pp stages of forward t_f and backward t_b (t = t_f + t_b) and vpp chunks, p one hop (a delay that blocks
nothing).  The ends of the pipeline carry the embedding (stage 0) and the head (the last stage).

    1F1B         sum t_i + (m-1) max t_i              hops 2p (pp-1) + max(0, 2p-g) floor((m-1)(pp-1)/pp), g the head
    interleaved  m t_last + (pp-1)/vpp t              hops 2p (pp vpp - 1)     (p <= t_f/vpp, m a multiple of pp)
    ZB-H1        m max t_i + (pp-1)(t_f + t_dgrad - t_wgrad)                    (Qi et al., arXiv:2401.10241)
    DualPipe     m max t_i + (pp/2-1)(t_f + 2 t_b - 3 t_wgrad)                  (DeepSeek-V3, arXiv:2412.19437, table 2)

1F1B and interleaved are exact for equal stages and where the last is the slowest, else an upper bound.  The last backward of
stage i ends i (t_b/vpp + p) before that of stage 0: its slack.  ZB-H1 and DualPipe end all stages together: no slack, and the
window of the reduction is the last weight-gradient pass alone.
"""

from typing import NamedTuple

from .ops import choose, floor, maximum, minimum, positive, where

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
    def middle(self):
        """Forward and backward of a stage without the ends of the model."""
        return self.forward + self.backward

    def slowest(self, pp):
        """Forward and backward of the slowest stage."""
        first, last = self.first_forward + self.first_backward, self.last_forward + self.last_backward
        return self.middle + where(pp > 1, maximum(first, last), first + last)


def pipeline_s(x, stages):
    """Seconds of the pipeline of one step, hops apart."""
    m, pp, vpp = x.micro_batches, x.pp, x.vpp
    slowest = stages.slowest(pp)
    ends = stages.first_forward + stages.first_backward + stages.last_forward + stages.last_backward

    def one_f_one_b():
        plain = pp * stages.middle + ends + (m - 1.0) * slowest
        last = where(pp > 1, stages.middle + stages.last_forward + stages.last_backward, slowest)
        return where(vpp > 1, m * last + (pp - 1.0) / vpp * stages.middle, plain)

    def zero_bubble():
        return m * slowest + (pp - 1.0) * positive(stages.middle - 2.0 * stages.weight)

    def dualpipe():
        return m * slowest + positive(pp / 2.0 - 1.0) * positive(stages.middle + stages.backward - 3.0 * stages.weight)

    return choose(x.schedule, {ONE_F_ONE_B: one_f_one_b, ZB_H1: zero_bubble, DUALPIPE: dualpipe}, x.codes("schedule"))


def hops(x, stages):
    """Candidates (seconds, hops) of what hops add to the pipeline: the larger one counts.

    A head of g seconds on the last stage hides the hops of the steady state: 2p(pp-1) + max(0, 2p-g) floor((m-1)(pp-1)/pp),
    which is model.md's form at g = 0.
    """
    m, pp, vpp = x.micro_batches, x.pp, x.vpp
    fill = where(vpp > 1, 2.0 * (pp * vpp - 1.0) * minimum(pp - 1.0, 1.0), 2.0 * (pp - 1.0))
    steady = where(vpp > 1, 0.0, floor((m - 1.0) * (pp - 1.0) / pp))
    head = stages.last_forward + stages.last_backward
    return [(0.0, fill), (-steady * head, fill + 2.0 * steady)]


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
