"""Seconds that one GPU computes: an average block, the ends of the model, the optimizer's update.

Two laws.  With ``efficiency`` (eta) given, all FLOP of forward and backward run at eta F and nothing else takes time: backward
is exactly twice forward plus what is recomputed.  Without it, the calibrated law (T = b s/cp tokens of a micro-batch):

    GEMM        max( (FLOP + F_half) / (F e_0),  16-bit bytes of matrix, input and output / (B_hbm e_m) )
                = FLOP / (F e), e = e_0 x/(x + F_half), x the FLOP of this multiplication on this GPU; backward is two of them
    core        attention FLOP / (F e_a), with at most UNALIGNED for e_a where head_dim is no multiple of 8
    the rest    m_f (22 T h' + (4 + 2 gated) T f/tp) / (B_hbm e_m), h' = h/tp with sequence parallelism, backward 6 + 4 gated
                norms, dropout and residuals, activation; experts add 8 T top_k h/tp for their permutations
    head        its GEMM, b_V/2 bytes per logit for the loss (each way, without m_f) and the final norm's 4 T h m_f
    embedding   4 T h m_f bytes forward, 10 T h m_f backward
    host        a block and micro-batch take at least t_host: forward and backward grow by max(1, t_host / (f + beta))

The update reads and writes fp32 parameter and moments (24 bytes), reads the gradient and writes the low-precision parameter,
under both laws: it has no FLOP to be efficient at.
"""

from typing import NamedTuple

from .memory import shards
from .ops import choose, clip, floor, maximum, minimum, positive, where
from .schedule import held
from .work import FULL, NONE, SELECTIVE, sequence_ranks

TF32 = 3
"""Code of ``dtype`` whose activations have 32 bits; with fp8 and fp4 they stay in 16."""
UNALIGNED = 0.032
"""Most of peak that an attention core reaches without tensor cores (head_dim no multiple of 8): BigScience's A100 runs of one
13,824-wide model with 96 heads of 144 and with 128 of 108 (rows r0896, r0897: 118 and 157 s), the difference put on the core."""


class Compute(NamedTuple):
    """Seconds per micro-batch of one GPU (the update: per step)."""

    block_forward_s: object
    block_backward_s: object  # dgrad + wgrad
    block_dgrad_s: object  # with what is recomputed
    block_wgrad_s: object
    head_forward_s: object
    head_backward_s: object
    embedding_forward_s: object
    embedding_backward_s: object
    optimizer_first_s: object
    optimizer_middle_s: object
    optimizer_last_s: object
    core_forward_s: object  # the attention core's part of block_forward_s
    gemm_forward_s: object  # the matrix multiplications' part of block_forward_s
    block_hbm_s: object  # part of forward + backward that memory bandwidth adds to the FLOP's time
    head_hbm_s: object
    stage_host_s: object  # to add to a stage's micro-batch: half in its forward, half in its backward


def compute(x, work):
    """The :class:`Compute` of inputs ``x`` and their :class:`~kernels.work.Work`."""
    tokens = x.micro_batch * x.seq_len / x.cp
    law = _first_order if x.efficiency is not None else _calibrated
    first, middle, last = optimizer_seconds(x, work)
    parts = law(x, work, tokens)
    return Compute(**parts, optimizer_first_s=first, optimizer_middle_s=middle, optimizer_last_s=last)


def optimizer_seconds(x, work):
    """Seconds of the update on the first, a middle and the last stage (one stage: all of it, three times).

    ZeRO-1 and above update only the shard of this rank, as model states are sharded in memory.py; DualPipe's ranks update two
    stages, those at the ends embedding and head.
    """
    touched = 24 + x.grad_bytes + where(x.param_bytes < 4, x.param_bytes, 0.0)
    rate = 0.0 if x.hbm_gbytes_per_s is None else touched / (x.hbm_gbytes_per_s * x.hbm_efficiency)
    dense, experts = shards(x, 1)
    blocks = held(x) * x.layers / x.pp * (work.block_params / dense + work.block_expert_params / experts)
    apart = (x.pp > 1) & (held(x) == 1)
    first, last = work.embedding_params / dense, work.head_params / dense
    return (
        rate * (blocks + where(apart, first, first + last)),
        rate * where(x.pp > 1, blocks, blocks + first + last),
        rate * (blocks + where(apart, last, first + last)),
    )


def _first_order(x, work, tokens):
    """Every FLOP at one fraction of peak, nothing else."""
    per_flop = tokens / (x.tp * x.efficiency * x.peak_tflops)
    forward = work.block_flop * per_flop
    core = work.attention_flop * per_flop
    again = work.recompute_flop * per_flop
    head = work.head_flop * per_flop
    return dict(
        block_forward_s=forward,
        block_backward_s=2 * forward + again,
        block_dgrad_s=forward + core + again,
        block_wgrad_s=forward - core,
        head_forward_s=head,
        head_backward_s=2 * head,
        embedding_forward_s=0.0,
        embedding_backward_s=0.0,
        core_forward_s=core,
        gemm_forward_s=forward - core,
        block_hbm_s=0.0,
        head_hbm_s=0.0,
        stage_host_s=0.0,
    )


def _calibrated(x, work, tokens):
    """The calibrated law of the module's docstring."""
    per_byte = 1 / (x.hbm_gbytes_per_s * x.hbm_efficiency)
    element = where(x.dtype == TF32, 4.0, 2.0)

    def gemm(one):
        """Seconds of a multiplication, and of its FLOP alone."""
        flop_s = (one.flop * tokens + x.gemm_half_flop) / (x.peak_tflops * x.gemm_efficiency)
        bytes_s = (one.weight + one.width * tokens) * (element * per_byte)
        return one.share * maximum(flop_s, bytes_s), one.share * flop_s

    timed = [gemm(one) for one in work.gemms]
    gemms, gemms_flop = sum(t for t, _ in timed), sum(t for _, t in timed)
    core = work.attention_flop * tokens / (x.tp * x.peak_tflops * _core_efficiency(x))
    moved = x.memory_bytes_factor * tokens * (element / 2 * per_byte)
    rest, rest_backward = (moved * count for count in block_bytes(x, work))
    forward = gemms + core + rest
    again = choose(x.recompute, {NONE: lambda: 0.0, SELECTIVE: lambda: core, FULL: lambda: forward})
    backward = 2 * gemms + 2 * core + rest_backward + again
    slower = gemms - gemms_flop
    slower_again = choose(x.recompute, {NONE: lambda: 0.0, SELECTIVE: lambda: 0.0, FULL: lambda: slower + rest})
    stretch = where(x.host_time_ms > 0, maximum(1.0, x.host_time_ms / (forward + backward)), 1.0)

    head, head_flop = gemm(work.head_gemm)
    rows = x.memory_bytes_factor * minimum(x.vocab, 1) * tokens * x.hidden * (element * per_byte)
    loss = x.logit_bytes / 2 * x.vocab / x.tp * tokens * per_byte + 2 * rows
    return dict(
        block_forward_s=forward * stretch,
        block_backward_s=backward * stretch,
        block_dgrad_s=(backward - gemms) * stretch,
        block_wgrad_s=gemms * stretch,
        head_forward_s=head + loss,
        head_backward_s=2 * head + loss,
        embedding_forward_s=2 * rows,
        embedding_backward_s=5 * rows,
        core_forward_s=core * stretch,
        gemm_forward_s=gemms * stretch,
        block_hbm_s=3 * slower + rest + rest_backward + slower_again,
        head_hbm_s=3 * (head - head_flop) + 2 * loss,
        stage_host_s=x.host_micro_batch_ms,
    )


def block_bytes(x, work):
    """Least bytes per token that the memory-bound operations of a block move forward and backward, with 16-bit elements.

    Forward: two norms (4 each), two dropouts with their residuals (7 each), the activation (4 f; 6 f with a gate); backward: 6
    and 5 each, 6 f (10 f).  Experts: tokens are permuted before and after (4 each).
    """
    moe = work.moe_share
    width = ((1 - moe) * x.ffn + moe * x.expert_ffn * (x.top_k + x.shared_experts)) / x.tp
    rest = 22 * x.hidden / sequence_ranks(x) + 8 * moe * x.top_k * x.hidden / x.tp
    return rest + (4 + 2 * x.gated_mlp) * width, rest + (6 + 4 * x.gated_mlp) * width


def _core_efficiency(x):
    """Fraction of peak of the attention core: at most UNALIGNED without tensor cores."""
    eighths = x.head_dim / 8
    unaligned = clip(8 * (eighths - floor(eighths)), 0, 1)
    return x.attention_efficiency - unaligned * positive(x.attention_efficiency - UNALIGNED)
