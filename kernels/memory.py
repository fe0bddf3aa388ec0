"""Bytes on one GPU: model states by ZeRO stage, activations in flight, the head's logits, a workspace.

Model states, per parameter held (Megatron-LM's and ZeRO's accounting):

    parameter   s_p
    gradient    s_g            the buffer has the type that goes over the wire
    optimizer   8 (+ 4)        two fp32 moments, and an fp32 master copy where s_p < 4

DualPipe holds two stages (DeepSeek-V3, arXiv:2412.19437, table 2): twice the parameters and gradients, both ends of the model
on the first and the last rank, and twice the ranks to shard over.

18 bytes for bf16 with fp32 gradients (Megatron), 16 with bf16 gradients (ZeRO, FSDP) or in fp32.  ZeRO-1 divides the optimizer
by the shard group, ZeRO-2 the gradients too, ZeRO-3 the parameters too; ZeRO-3 adds the gathered parameters of 1 + prefetch
blocks (of all where they are not resharded after forward) and one block's gradients.

Activations per token of a block (Korthikanti et al., arXiv:2205.05198, equations 2 and 4, with GQA, a gate and experts):

    divided by tp only with sequence parallelism    10 h     norms 4, inputs of QKV and MLP 4, dropout masks 2 (none with a gate)
    divided by tp       2 a d + 2 k (d + d_v) + 2 a d_v + 2 c f     Q, K and V, the core's output, the MLP
    full recompute      2 h of each block, and one whole block while it is recomputed
    head                4 V/tp + 4 h     fp32 logits, norm and input; b_V/5 V/tp up to 12 V/tp where the loss moves more than 20 bytes
                        per logit: eager code keeps 16 and 32-bit logits and the gradients of both

which is 10 + 24/t for a GPT (34/t with sequence parallelism).  The core is a fused (flash) kernel: its 5 a s/h is never kept,
so ``selective`` changes FLOP and not bytes; ``scores=True`` of :func:`block_activation_bytes` gives it back.

The workspace is WORKSPACE and the 16-bit weight gradients that autograd hands on: those of a block and of the head.  So counted,
SimuMax's 19 measured B200 peaks come within 1.7 %, except for MoE models cut to four layers in two stages: their average block
hides that the dense layers sit on the first stage (-19 %).
"""

from typing import NamedTuple

from .ops import choose, clip, maximum, minimum, where
from .schedule import held
from .work import FULL, NONE, SELECTIVE, sequence_ranks

WORKSPACE = 2.0 * 2**30
"""Bytes set aside for the CUDA context, NCCL's buffers, GEMM workspaces, fragmentation: an allowance, not a measurement."""


class Stage(NamedTuple):
    """Bytes of one GPU of a pipeline stage."""

    parameters: object
    gradients: object
    optimizer: object
    activations: object  # with the head's logits
    workspace: object

    @property
    def total(self):
        """Sum of the parts."""
        return self.parameters + self.gradients + self.optimizer + self.activations + self.workspace


class Memory(NamedTuple):
    """Bytes of the first and the last stage (equal where there is one), and ``total`` of the fuller one."""

    first: Stage
    last: Stage
    total: object


def memory(x, work, in_flight_first, in_flight_last):
    """The :class:`Memory` with so many micro-batches in flight, each of a whole stage, on the first and the last stage."""
    single = where((x.pp > 1) & (held(x) == 1), 0.0, 1.0)
    first = _stage(x, work, in_flight_first, 1.0, single)
    last = _stage(x, work, in_flight_last, single, 1.0)
    return Memory(first, last, maximum(first.total, last.total))


def state_bytes(x):
    """Bytes of optimizer state per parameter: two moments, and a master copy of parameters below fp32."""
    return where(x.param_bytes < 4, 12.0, 8.0)


def shards(x, stage):
    """Ranks over which ZeRO ``stage`` and above divide a dense and an expert parameter (1 below that stage).

    Experts of N/(pp ep) ranks are sharded over tp/ep as many ranks as the rest, at least one.  Both holders of a stage share.
    """
    divided = x.zero_stage >= stage
    group = x.dp * x.cp * held(x) if x.shard_group is None else x.shard_group
    return where(divided, group, 1.0), where(divided, maximum(1.0, group * x.tp / x.ep), 1.0)


def block_activation_bytes(x, moe, scores=False):
    """Bytes per token that a block keeps for its backward; ``scores`` adds those of an attention core that is not fused."""
    whole = sequence_ranks(x)
    mla = x.kv_lora_rank > 0
    rope = where(mla, x.qk_rope_head_dim, 0)
    keys = where(mla, x.heads, maximum(x.kv_heads, x.tp))
    attention = 2 * x.heads * (x.head_dim + rope + x.v_head_dim) + 2 * keys * (x.head_dim + rope + x.v_head_dim)
    latent = where(mla, 4 * (x.q_lora_rank + x.kv_lora_rank) + 2 * x.qk_rope_head_dim, 0)
    per_width = 2 * (2 + x.gated_mlp)
    mlp = per_width * ((1 - moe) * x.ffn + moe * x.expert_ffn * (x.top_k + x.shared_experts))
    routed = moe * (4 * x.top_k * x.hidden + 4 * x.experts)
    core = 5 * x.heads * x.seq_len / x.tp if scores else 0.0
    return ((10 - 2 * x.gated_mlp) * x.hidden + latent) / whole + (attention + mlp + routed) / x.tp + core


def _stage(x, work, in_flight, embedding, head):
    """One stage; ``embedding`` and ``head`` are 1 where it holds them."""
    tokens = x.micro_batch * x.seq_len / x.cp
    blocks = x.layers / x.pp
    dense = held(x) * blocks * work.block_params + embedding * work.embedding_params + head * work.head_params
    experts = held(x) * blocks * work.block_expert_params
    block = work.block_params + work.block_expert_params

    def sharded(stage):
        over, experts_over = shards(x, stage)
        return dense / over + experts / experts_over

    gathered = where(x.zero_stage >= 3, 1.0, 0.0)
    ahead = where(x.reshard_after_forward > 0, minimum(1 + x.prefetch, blocks) * block, dense + experts)
    whole = sequence_ranks(x)
    full = block_activation_bytes(x, work.moe_share) * tokens
    live = in_flight * blocks
    activations = choose(
        x.recompute,
        {NONE: lambda: live * full, SELECTIVE: lambda: live * full, FULL: lambda: live * 2 * x.hidden * tokens / whole + full},
    )
    logits = head * tokens * (clip(x.logit_bytes / 5, 4.0, 12.0) * x.vocab / x.tp + 4 * x.hidden / whole)
    return Stage(
        parameters=x.param_bytes * (sharded(3) + gathered * ahead),
        gradients=x.grad_bytes * (sharded(2) + gathered * block),
        optimizer=state_bytes(x) * sharded(1),
        activations=activations + logits,
        workspace=WORKSPACE + x.param_bytes * (work.block_params + head * work.head_params),
    )
