"""Serving: what a decoded token and a prompt ask of the network.

Decoding reads all weights a GPU holds and the keys and values of every sequence, for one token each: it is bound by
memory, its messages are small, and tensor parallelism pays two all-reduces of a few hundred kilobytes per block,
which is latency.  Experts add a dispatch and a combine per block; keys and values move once per request where prefill
and decode run on different machines.

    token bytes on the port per block   batch top_k' h (s_d + s_c)              top_k' the experts that leave the
    domain layer                               t = read or compute, c = exchange;      m (t + c), or m max(t, c) with
    m = 2 micro-batches time per output token               layers x layer + head + pipeline hops first token
    prefill (compute-bound, a forward pass) + keys and values over the port keys and values                     2 k d
    s_kv per token and block; MLA (r_kv + d_r) s_kv

Requirements ask which rate on the port keeps each exchange within its window: experts under the other micro-batch's
compute, else within ``tolerance`` of the block, tensor parallelism always so, hops of a pipeline within that of the token,
keys and values within the prefill that makes them.

``decode_batch`` counts the sequences of one tensor-parallel group (a data-parallel rank) in each micro-batch; a
pipeline holds one such batch per stage.  SI throughout; elementwise, for NumPy and jax arrays.  A group of ``tp``
sits in the scale-up domain first, as in training; experts spread over ``ep`` ranks.  Left out: queues of requests
(capacity.py), speculative decoding (divide by tokens accepted), host time.
"""

from typing import NamedTuple

from . import collectives as c
from . import compute as computing
from . import work as working
from .ops import exp, is_concrete, log2, maximum, minimum, ratio, where
from .placement import domains_of_pod

ACTIVATION_BYTES = 2.0  # bytes of an activation between tensor-parallel ranks
LN2 = 0.6931471805599453


class Serving(NamedTuple):
    """Times in seconds, rates in bytes/s; one token is one decoding step of every sequence."""

    decode_time_s: object
    decode_compute_s: object
    decode_tp_s: object
    decode_ep_s: object
    decode_tokens_per_s_per_gpu: object
    prefill_time_s: object
    kv_transfer_s: object
    first_token_time_s: object
    kv_bytes_per_token: object
    decode_tp_link_gbps: object
    decode_ep_link_gbps: object
    decode_pp_link_gbps: object
    prefill_tp_link_gbps: object
    prefill_ep_link_gbps: object
    kv_link_gbps: object
    serving_memory_bytes: object


# -- plain numbers -----------------------------------------------------------------------------------------------------


def expert_exchange_s(tokens, experts, hidden, dispatch_bytes, combine_bytes, bytes_per_s, latency_s=0.0):
    """Seconds of the dispatch and the combine of ``tokens`` sent to ``experts`` each: every copy crosses the link."""
    return 2.0 * latency_s + tokens * experts * hidden * (dispatch_bytes + combine_bytes) / bytes_per_s


def decode_limit_s(layers, exchange_s, micro_batches=2):
    """Least time per output token when ``micro_batches`` share the link and compute hides completely under it."""
    return layers * micro_batches * exchange_s


def kv_transfer_s(prompt_tokens, bytes_per_token, bytes_per_s):
    """Seconds to move a prompt's keys and values from a prefill machine to a decode machine."""
    return prompt_tokens * bytes_per_token / bytes_per_s


def token_all_reduce_s(batch, hidden, tp, bytes_per_s, latency_s, steps=None):
    """Seconds of one all-reduce of a decoded token's activations: ring, 2 (tp - 1) steps unless ``steps`` says
    otherwise.
    """
    steps = 2 * (tp - 1) if steps is None else steps
    return steps * latency_s + 2 * (tp - 1) / tp * batch * hidden * ACTIVATION_BYTES / bytes_per_s


# -- the model ---------------------------------------------------------------------------------------------------------


def serve(x):
    """``Serving`` of completed SI inputs ``x`` (inputs.complete)."""
    held = working.work(x)
    net = c.tiers(x)
    u = 1.0 / (x.link_gbps * x.link_efficiency)
    window = x.tolerance / (1.0 - x.tolerance)

    block, head = _block_decode_s(x, held), _head_decode_s(x)
    tensor, experts = _tensor(x, net), _experts(x, net)
    rows, tokens = x.decode_batch, x.micro_batch * x.seq_len / x.cp
    tp_decode, ep_decode = tensor.seconds(rows, u), held.moe_share * experts.seconds(rows, u)
    busy = block + tp_decode
    together = x.serving_micro_batches
    alternate = together > 1
    layer = together * where(alternate, maximum(busy, ep_decode), busy + ep_decode)
    hop = _hop(x, net, rows)
    hops = maximum(x.pp - 1.0, 0.0) * hop.seconds(1.0, u)
    decode = x.layers * layer + together * head + hops

    prompt = computing.compute(x, held)
    prompt_block = prompt.block_forward_s + tensor.seconds(tokens, u)
    ep_prompt = held.moe_share * experts.seconds(tokens, u)
    prompt_layer = together * where(alternate, maximum(prompt_block, ep_prompt), prompt_block + ep_prompt)
    prefill = x.layers * prompt_layer + together * prompt.head_forward_s
    kv = kv_bytes_per_token(x)
    kv_share = tokens * kv / (x.pp * _kv_ranks(x))
    transfer = net.latency_s + kv_share * u

    # what the exchanges may take: the other micro-batch's time, else the tolerance; other links at infinite speed
    alone = prompt.block_forward_s + tensor.seconds(tokens, 0.0)
    spare = where(alternate, block + tensor.seconds(rows, 0.0), window * block)
    prompt_spare = where(alternate, alone, window * alone)
    moe = maximum(held.moe_share, 1e-9)
    weights = (
        x.layers / x.pp * (held.block_params + held.block_expert_params) + held.embedding_params + held.head_params
    )
    return Serving(
        decode_time_s=decode,
        decode_compute_s=together * (x.layers * block + head),
        decode_tp_s=together * x.layers * tp_decode,
        decode_ep_s=together * x.layers * ep_decode,
        decode_tokens_per_s_per_gpu=rows * together / (decode * x.tp),  # pp such batches in flight fill the pipeline
        prefill_time_s=prefill,
        kv_transfer_s=transfer,
        first_token_time_s=prefill + transfer,
        kv_bytes_per_token=kv,
        decode_tp_link_gbps=tensor.requirement(rows, window * block),
        decode_ep_link_gbps=experts.requirement(rows, spare / moe),
        decode_pp_link_gbps=where(
            x.pp > 1, hop.requirement(1.0, window * (x.layers * block + head) / maximum(x.pp - 1.0, 1.0)), 0.0
        ),
        prefill_tp_link_gbps=tensor.requirement(tokens, window * prompt.block_forward_s),
        prefill_ep_link_gbps=experts.requirement(tokens, prompt_spare / moe),
        kv_link_gbps=kv_share / (x.layers * alone + prompt.head_forward_s),
        serving_memory_bytes=weights * x.param_bytes + together * rows * x.seq_len / x.cp * kv / _kv_ranks(x),
    )


def report(x):
    """Outputs of quantities.py from completed inputs ``x``, in SI."""
    return serve(x)._asdict()


def kv_bytes_per_token(x):
    """Bytes of keys and values (MLA: of the latent) of one token over all layers."""
    plain = x.kv_heads * (x.head_dim + x.v_head_dim)
    latent = x.kv_lora_rank + x.qk_rope_head_dim
    return x.layers * where(x.kv_lora_rank > 0, latent, plain) * x.kv_bytes


class _Exchange(NamedTuple):
    """Collectives of a block: each of ``messages`` lists its algorithms and its bytes per token; none: nothing is
    sent.
    """

    messages: tuple
    crosses: object

    def seconds(self, tokens, u):
        """Seconds of all messages for ``tokens``, one after the other, at ``u`` = 1 / (bytes/s on the port)."""
        return sum(c.seconds(lines, tokens * each, where(self.crosses, u, 0.0)) for lines, each in self.messages)

    def requirement(self, tokens, budget):
        """bytes/s on the port at which every message keeps its share (by bytes) of ``budget``; inf where none does."""
        total = sum(each for _, each in self.messages)
        rates = [
            minimum(*(_rate(line, tokens * each, ratio(budget * each, total)) for line in lines))
            for lines, each in self.messages
        ]
        return where(self.crosses, maximum(*rates), 0.0) if rates else 0.0


def _rate(line, nbytes, budget):
    """bytes/s at which an algorithm's a + b u + V [p (g + h u) + (1 - p) max(g, h u)] stays within ``budget``; inf where
    latency or the inner tier alone takes more.
    """

    def over(wire, left):
        short = (left < 0.0) | ((left <= 0.0) & (wire > 0.0))
        return where(short, float("inf"), wire / where(left > 0.0, left, 1.0))

    fast_port = over(line.b + nbytes * line.p * line.h, budget - line.a - nbytes * line.g)
    slow_port = over(line.b + nbytes * line.h, budget - line.a - nbytes * line.p * line.g)
    return where(nbytes > 0.0, maximum(fast_port, slow_port), 0.0)


def _tensor(x, net):
    """Two all-reduces per block of the activations of every token."""
    if is_concrete(x.tp) and x.tp == 1:
        return _Exchange((), False)
    group = c.place(x.tp, x.scaleup_domain, domains_of_pod(x))
    lines = c.selected(c.all_reduce(group, net), x.algorithm, net)
    lines = [line._replace(a=where(x.tp > 1, line.a, 0.0)) for line in lines]
    return _Exchange(((lines, x.hidden * ACTIVATION_BYTES),) * 2, group.n_out > 1)


def _experts(x, net):
    """A dispatch and a combine per MoE block of top_k copies of every token, whose tp ranks send a part each.

    All peers are sent to at once, as DeepEP does: one latency, where a ring or NCCL pays one per peer.
    ``node_limit`` caps the copies that leave the domain.
    """
    if is_concrete(x.ep) and x.ep == 1:
        return _Exchange((), False)
    group = c.place(x.ep, x.scaleup_domain, domains_of_pod(x))
    away = (group.n - group.n_in) / group.n
    crossing = where(x.node_limit > 0, minimum(away, x.node_limit / maximum(x.top_k, 1.0)), away)
    crosses = group.n_out > 1
    once = where(crosses, net.latency_s, where(x.ep > 1, net.inner_latency_s, 0.0))
    line = c.all_to_all(group, net, crossing)
    both = line._replace(a=2.0 * once, b=2.0 * line.b)
    return _Exchange((([both], x.top_k * x.hidden / x.tp * (x.dispatch_bytes + x.combine_bytes)),), crosses)


def _hop(x, net, rows):
    """A stage's activations to the next one, of which each tp rank sends its part; on the port where both stages together
    are more than a domain.
    """
    crosses = x.pp * x.tp > x.scaleup_domain
    line = c.Algorithm(
        0, where(crosses, net.latency_s, net.inner_latency_s), 0.0, where(crosses, 0.0, net.inner_s_per_byte), where(crosses, 1.0, 0.0), 1.0
    )
    return _Exchange((([line], rows * x.hidden * ACTIVATION_BYTES / x.tp),), crosses)


def _kv_ranks(x):
    """Tensor-parallel ranks over which keys and values are divided: at most the kv heads, MLA's latent not at all."""
    return where(x.kv_lora_rank > 0, 1.0, minimum(x.tp, x.kv_heads))


def _flop_rate(x):
    """FLOP/s that small multiplications reach at best."""
    return x.peak_tflops * (x.efficiency if x.gemm_efficiency is None else x.gemm_efficiency)


def _hbm_rate(x):
    return x.hbm_gbytes_per_s * x.hbm_efficiency


def _block_decode_s(x, held):
    """Seconds of an average block for one token of ``decode_batch`` sequences: weights, experts met, keys and values."""
    rows, memory, flop = x.decode_batch, _hbm_rate(x), _flop_rate(x)
    dense = held.block_params * maximum(x.param_bytes / memory, 2.0 * rows / flop)
    experts = 0.0
    if not (is_concrete(x.experts) and x.experts == 0):
        some = maximum(x.experts, 1.0)
        share = minimum(x.top_k / some, 0.999)
        together = rows * x.ep / x.tp  # tokens of the whole group, each of which meets a share of its experts
        met = 1.0 - exp(together * LN2 * log2(1.0 - share))
        experts = held.block_expert_params * maximum(met * x.param_bytes / memory, 2.0 * together * share / flop)
    context = rows * x.seq_len / x.cp
    cache = kv_bytes_per_token(x) / x.layers / _kv_ranks(x) / memory
    # MLA decodes in the latent space: scores over r_kv + d_r, values over r_kv
    width = where(x.kv_lora_rank > 0, 2.0 * x.kv_lora_rank + x.qk_rope_head_dim, x.head_dim + x.v_head_dim)
    core = 2.0 * x.heads / x.tp * width / (x.peak_tflops * x.attention_efficiency)
    return dense + experts + context * maximum(cache, core)


def _head_decode_s(x):
    weights = x.vocab * x.hidden / x.tp
    return weights * maximum(x.param_bytes / _hbm_rate(x), 2.0 * x.decode_batch / _flop_rate(x))
