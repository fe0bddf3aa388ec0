"""What a transformer asks of one GPU: parameters, and FLOP per token.

Every stage is taken to hold *average* blocks: ``L_d`` dense and ``L - L_d`` MoE blocks share one block in which dense parts
count ``1 - mu`` and MoE parts ``mu = (L - L_d)/L``.  The totals of the model are exact, the few dense blocks that an MoE model
has on its first stage are not seen there.

Symbols: h hidden, f ffn, a heads, k kv heads, d head_dim, d_v v_head_dim, V vocabulary, c = 2 MLP matrices (3 with a gate),
E experts of width f_e of which top_k are used, E_s shared ones, r_q r_kv d_r the ranks and the rotary part of MLA.

    attention    h a d + h k (d + d_v) + a d_v h                                                  (MHA, GQA, MQA)
                 h r_q + r_q a (d + d_r)  |  h a (d + d_r)  if r_q = 0                              (MLA: queries,
                 + h (r_kv + d_r) + r_kv a (d + d_v) + a d_v h                                    keys, values, output)
    MLP          c h f (1 - mu) + mu (c h f_e (E + E_s) + h E)
    norms        2 h, and r_q + r_kv
    ends         V h, twice unless tied, and a norm of h
    FLOP/token   2 (matrices a token meets) + 2 s a (d + d_r + d_v) (half if causal); head 2 h V

Left out: biases, position embeddings, norms of queries and keys, windows of local attention (all of them below 1 % of the
published counts but for learned positions of models under 1 B).  The shape that ``params`` stands for has no norms: its
blocks hold 12 h^2 and nothing else, so that the first-order law is exact.
"""

from typing import NamedTuple

from .ops import choose, is_zero, maximum, minimum, positive, where
from .schedule import held

NONE, SELECTIVE, FULL = 0, 1, 2
"""Codes of ``recompute``."""


class Gemm(NamedTuple):
    """One matrix multiplication of the average block (or the head), as one GPU sees it, per token of its micro-batch.

    ``share`` is how often it occurs in the average block (0 where the model has none), ``flop`` its forward FLOP per token,
    ``weight`` the elements of its matrix on this GPU, ``width`` the elements of input and output per token on this GPU.
    """

    share: object
    flop: object
    weight: object
    width: object


class Work(NamedTuple):
    """Parameters in elements, FLOP per token of one forward pass; ``block_*`` belong to the average block."""

    params: object  # of the model
    active_params: object  # met by a token: all but the routed experts it is not sent to
    moe_share: object  # mu
    block_params: object  # per GPU, without routed experts: matrices / tp; norms, router and MLA's down-projections whole
    block_expert_params: object  # per GPU: routed experts / ep (not divided by tp)
    embedding_params: object  # per GPU
    head_params: object  # per GPU; 0 where the head is the embedding on the same GPU
    block_flop: object  # whole model, core included
    attention_flop: object  # of the attention core, whole model
    expert_flop: object  # of the routed experts, whole model, part of block_flop
    head_flop: object  # whole model
    recompute_flop: object  # of the average block, repeated before its backward, whole model
    model_flop: object  # per token and step: 3 x forward, as MFU counts
    hardware_flop: object  # model_flop and what is recomputed, as HFU counts
    gemms: tuple  # of the average block, forward
    head_gemm: Gemm


def work(x):
    """The :class:`Work` of the inputs ``x`` (SI, derived entries filled)."""
    moe = moe_share(x)
    gated = 2 + x.gated_mlp
    attention, replicated = _attention_matrices(x)
    expert = gated * x.hidden * x.expert_ffn
    router = x.hidden * x.experts
    dense_mlp = (1 - moe) * gated * x.hidden * x.ffn
    shared = moe * expert * x.shared_experts
    norms = 0.0 if x.params is not None else 2 * x.hidden + x.q_lora_rank + x.kv_lora_rank

    matrices = attention + dense_mlp + shared
    block = matrices + replicated + norms + moe * router
    routed = moe * expert * x.experts
    used = moe * expert * x.top_k
    vocabulary = x.vocab * x.hidden
    ends = vocabulary * (2 - x.tied_embeddings) + minimum(x.vocab, 1) * x.hidden

    core = 2 * x.seq_len * x.heads * (qk_width(x) + x.v_head_dim) * (1 + x.attention) / 2
    block_flop = 2 * (matrices + replicated + moe * router + used) + core
    head_flop = 2 * vocabulary
    again = choose(x.recompute, {NONE: lambda: 0.0, SELECTIVE: lambda: core, FULL: lambda: block_flop})
    model_flop = 3 * (x.layers * block_flop + head_flop)
    # replicas of keys and values: with more ranks than kv heads each rank holds one whole head
    copies = (maximum(x.kv_heads, x.tp) - x.kv_heads) * x.hidden * (x.head_dim + x.v_head_dim)
    copies = where(x.kv_lora_rank > 0, 0.0, copies)
    return Work(
        params=x.layers * (block + routed) + ends,
        active_params=x.layers * (block + used) + ends,
        moe_share=moe,
        block_params=(matrices + copies) / x.tp + replicated + norms + moe * router,
        block_expert_params=routed / x.ep,
        embedding_params=vocabulary / x.tp,
        head_params=where((x.pp > 1) & (held(x) == 1), vocabulary, vocabulary * (1 - x.tied_embeddings)) / x.tp,
        block_flop=block_flop,
        attention_flop=core,
        expert_flop=2 * used,
        head_flop=head_flop,
        recompute_flop=again,
        model_flop=model_flop,
        hardware_flop=model_flop + x.layers * again,
        gemms=tuple(gemm for gemm in _gemms(x, moe, gated) if not is_zero(gemm.share)),
        head_gemm=_gemm(x, minimum(x.vocab, 1), x.hidden, x.vocab, across=1 / x.tp),
    )


def moe_share(x):
    """Share of MoE blocks, mu; 0 without experts."""
    return minimum(x.experts, 1) * positive(1 - x.dense_layers / x.layers)


def qk_width(x):
    """Width of a query and of a key head in the attention core (MLA: with its rotary part)."""
    return x.head_dim + where(x.kv_lora_rank > 0, x.qk_rope_head_dim, 0)


def sequence_ranks(x):
    """Ranks among which the activations outside of the matrices are divided: tp with sequence parallelism, else 1."""
    return 1 + x.sequence_parallel * (x.tp - 1)


def _attention_matrices(x):
    """Elements of the attention matrices that tp divides, and of those it does not (MLA's down-projections)."""
    h, heads, nope = x.hidden, x.heads, x.head_dim
    output = heads * x.v_head_dim * h
    plain = h * heads * nope + h * x.kv_heads * (nope + x.v_head_dim) + output
    queries = where(x.q_lora_rank > 0, x.q_lora_rank, h) * heads * (nope + x.qk_rope_head_dim)
    latent = queries + x.kv_lora_rank * heads * (nope + x.v_head_dim) + output
    down = h * (x.q_lora_rank + x.kv_lora_rank + x.qk_rope_head_dim)
    mla = x.kv_lora_rank > 0
    return where(mla, latent, plain), where(mla, down, 0.0)


def _gemm(x, share, inputs, outputs, along=1.0, across=1.0, rows=1.0, copies=1.0):
    """A matrix ``inputs`` x ``outputs`` of which this GPU holds ``along`` of the inputs and ``across`` of the outputs.

    ``rows`` are the rows it multiplies per token of the micro-batch, ``copies`` how many such matrices it holds.
    """
    wide, tall = outputs * across, inputs * along
    return Gemm(share, 2 * rows * tall * wide, copies * tall * wide, rows * (tall + wide))


def _gemms(x, moe, gated):
    """The matrix multiplications of the average block, in order.

    Column-parallel ones divide their outputs by tp, row-parallel ones their inputs, as Megatron does.  Router and MLA's
    down-projections are whole on every GPU and see the tokens of its sequence shard; routed experts run as one grouped
    multiplication over the E/ep experts of a GPU, with top_k/tp rows per token.
    """
    h, heads, tp = x.hidden, x.heads, x.tp
    part = 1 / tp
    mla = minimum(x.kv_lora_rank, 1)
    low_rank = mla * minimum(x.q_lora_rank, 1)
    query = heads * (x.head_dim + x.qk_rope_head_dim)
    up = gated - 1
    kv = maximum(x.kv_heads, tp) * (x.head_dim + x.v_head_dim)
    shared_ffn = x.expert_ffn * x.shared_experts
    has_shared = moe * minimum(x.shared_experts, 1)
    tokens, held = x.top_k / tp, x.experts / x.ep
    yield _gemm(x, 1 - mla, h, heads * x.head_dim + kv, across=part)
    yield _gemm(x, low_rank, h, x.q_lora_rank, rows=part)
    yield _gemm(x, low_rank, x.q_lora_rank, query, across=part)
    yield _gemm(x, mla - low_rank, h, query, across=part)
    yield _gemm(x, mla, h, x.kv_lora_rank + x.qk_rope_head_dim, rows=part)
    yield _gemm(x, mla, x.kv_lora_rank, heads * (x.head_dim + x.v_head_dim), across=part)
    yield _gemm(x, 1.0, heads * x.v_head_dim, h, along=part)
    yield _gemm(x, 1 - moe, h, up * x.ffn, across=part)
    yield _gemm(x, 1 - moe, x.ffn, h, along=part)
    yield _gemm(x, moe, h, x.experts, rows=part)
    yield _gemm(x, moe, h, up * x.expert_ffn, rows=tokens, copies=held)
    yield _gemm(x, moe, x.expert_ffn, h, rows=tokens, copies=held)
    yield _gemm(x, has_shared, h, up * shared_ffn, across=part)
    yield _gemm(x, has_shared, shared_ffn, h, along=part)
