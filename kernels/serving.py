"""Serving: what a decoded token and a prompt ask of the network.

Decoding reads all weights a GPU holds and the keys and values of every sequence, for one token each: it is bound by memory, its
messages are small, and tensor parallelism pays two all-reduces of a few hundred kilobytes per block, which is latency.  Experts
add a dispatch and a combine per block; keys and values move once per request where prefill and decode run on different machines.

    token bytes on the port per block   batch top_k' h (s_d + s_c)              top_k' the experts that leave the domain
    layer                               t = read or compute, c = exchange;      m (t + c), or m max(t, c) with m = 2 micro-batches
    time per output token               layers x layer + head + pipeline hops
    first token                         prefill (compute-bound, a forward pass) + keys and values over the port
    keys and values                     2 k d s_kv per token and block; MLA (r_kv + d_r) s_kv

Requirements ask which rate on the port keeps each exchange within its window: experts under the other micro-batch's compute (or
within ``tolerance`` of the time per token), keys and values within the prefill that makes them.

``decode_batch`` counts the sequences of one tensor-parallel group (a data-parallel rank) in each micro-batch.  SI throughout;
elementwise, for NumPy and jax arrays.  A group of ``tp`` sits in the scale-up domain first, as in training; experts spread over
``ep`` ranks.  Left out: queues of requests (capacity.py), speculative decoding (divide by tokens accepted), host time.
"""

from typing import NamedTuple

from . import collectives as c
from . import compute as computing
from . import work as working
from .ops import clip, exp, is_concrete, log2, maximum, minimum, positive, where

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
    required_link_gbps_decode_tp: object
    required_link_gbps_decode_ep: object
    required_link_gbps_prefill_ep: object
    required_link_gbps_kv: object


# -- plain numbers ----------------------------------------------------------------------------------------------------------


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
    """Seconds of one all-reduce of a decoded token's activations: ring, 2 (tp - 1) steps unless ``steps`` says otherwise."""
    steps = 2 * (tp - 1) if steps is None else steps
    return steps * latency_s + 2 * (tp - 1) / tp * batch * hidden * ACTIVATION_BYTES / bytes_per_s


# -- the model ----------------------------------------------------------------------------------------------------------------


def serve(x):
    """``Serving`` of completed SI inputs ``x`` (inputs.complete)."""
    held = working.work(x)
    net = c.tiers(x)
    u = 1.0 / (x.link_gbps * x.link_efficiency)
    prompt = computing.compute(x, held)
    rows = x.decode_batch

    block = _block_decode_s(x, held)
    head = _head_decode_s(x, held)
    tp_group, tp_lines = _tensor_lines(x, net)
    tp_decode = _tensor_s(x, tp_group, tp_lines, rows, u)
    ep_decode, ep_slope = _expert_s(x, held, net, rows, u)
    alternate = x.decode_micro_batches > 1
    together = x.decode_micro_batches
    # two micro-batches: one computes (with its all-reduces) while the other exchanges with the experts
    busy = block + tp_decode
    layer = together * where(alternate, maximum(busy, ep_decode), busy + ep_decode)
    hops = positive(x.pp - 1.0) * (net.latency_s + rows * x.hidden * ACTIVATION_BYTES / x.tp * u)
    decode = x.layers * layer + together * head + hops

    tokens = x.micro_batch * x.seq_len
    tp_prompt = _tensor_s(x, tp_group, tp_lines, tokens / x.cp, u)
    ep_prompt, ep_prompt_slope = _expert_s(x, held, net, tokens / x.cp, u)
    prefill = x.layers * (prompt.block_forward_s + tp_prompt + ep_prompt) + prompt.head_forward_s
    kv = kv_bytes_per_token(x)
    kv_share = tokens * kv / (x.cp * x.pp * _kv_ranks(x))
    transfer = net.latency_s + kv_share * u

    spare = where(alternate, busy, x.tolerance / (1.0 - x.tolerance) * busy)
    fixed = ep_decode - ep_slope * u
    rest = ep_prompt - ep_prompt_slope * u
    compute_only = x.layers * (prompt.block_forward_s + tp_prompt) + prompt.head_forward_s
    return Serving(
        decode_time_s=decode,
        decode_compute_s=together * (x.layers * block + head),
        decode_tp_s=together * x.layers * tp_decode,
        decode_ep_s=together * x.layers * ep_decode,
        decode_tokens_per_s_per_gpu=rows * together / (decode * x.tp * x.pp),
        prefill_time_s=prefill,
        kv_transfer_s=transfer,
        first_token_time_s=prefill + transfer,
        kv_bytes_per_token=kv,
        required_link_gbps_decode_tp=_tensor_requirement(x, tp_group, tp_lines, rows, block),
        required_link_gbps_decode_ep=_rate(ep_slope, spare - fixed),
        required_link_gbps_prefill_ep=_rate(ep_prompt_slope, x.tolerance * compute_only / x.layers - rest),
        required_link_gbps_kv=kv_share / positive_or_tiny(compute_only),
    )


def kv_bytes_per_token(x):
    """Bytes of keys and values (MLA: of the latent) of one token over all layers."""
    plain = x.kv_heads * (x.head_dim + x.v_head_dim)
    latent = x.kv_lora_rank + x.qk_rope_head_dim
    return x.layers * where(x.kv_lora_rank > 0, latent, plain) * x.kv_bytes


def positive_or_tiny(value):
    """``value`` kept above zero, for a denominator."""
    return maximum(value, 1e-30)


def _kv_ranks(x):
    """Tensor-parallel ranks over which keys and values are divided: at most the kv heads, MLA's latent not at all."""
    return where(x.kv_lora_rank > 0, 1.0, minimum(x.tp, x.kv_heads))


def _element(x):
    """Bytes of a weight as it is read."""
    return x.param_bytes


def _flop_rate(x):
    """FLOP/s that small multiplications reach at best."""
    best = x.gemm_efficiency if x.gemm_efficiency is not None else x.efficiency
    return x.peak_tflops * best


def _hbm_rate(x):
    return x.hbm_gbytes_per_s * x.hbm_efficiency


def _block_decode_s(x, held):
    """Seconds of an average block for one token of ``decode_batch`` sequences: weights and experts met, keys and values."""
    rows, memory = x.decode_batch, _hbm_rate(x)
    dense = maximum(held.block_params * _element(x) / memory, 2.0 * rows * held.block_params / _flop_rate(x))
    experts = 0.0
    if not (is_concrete(x.experts) and x.experts == 0):
        some = maximum(x.experts, 1.0)
        meeting = rows * x.ep / x.tp  # sequences whose tokens meet on the experts of this group
        missed = exp(meeting * LN2 * log2(1.0 - minimum(x.top_k, some - 0.5) / some))
        read = held.block_expert_params * (1.0 - missed) * _element(x) / memory
        flop = 2.0 * (rows / x.tp) * x.top_k * held.block_expert_params / (some / x.ep)
        experts = maximum(read, flop / _flop_rate(x))
    context = rows * x.seq_len / x.cp
    cache = kv_bytes_per_token(x) / x.layers / _kv_ranks(x) * context / memory
    width = where(x.kv_lora_rank > 0, 2.0 * x.kv_lora_rank + x.qk_rope_head_dim, x.head_dim + x.v_head_dim)
    core = 2.0 * context * x.heads / x.tp * width / (x.peak_tflops * x.attention_efficiency)
    return dense + experts + maximum(cache, core)


def _head_decode_s(x, held):
    weights = x.vocab * x.hidden / x.tp
    return maximum(weights * _element(x) / _hbm_rate(x), 2.0 * x.decode_batch * weights / _flop_rate(x))


def _tensor_lines(x, net):
    group = c.place(x.tp, x.scaleup_domain)
    return group, c.selected(c.all_reduce(group, net), x.algorithm, net)


def _tensor_s(x, group, lines, rows, u):
    """Seconds of a block's two all-reduces of ``rows`` tokens."""
    if is_concrete(x.tp) and x.tp == 1:
        return 0.0
    each = c.seconds(lines, rows * x.hidden * ACTIVATION_BYTES, where(group.n_out > 1, u, 0.0))
    return where(x.tp > 1, 2.0 * each, 0.0)


def _tensor_requirement(x, group, lines, rows, block):
    """Rate at which the all-reduces of a block stay within ``tolerance`` of it; inf where their latency alone is more."""
    if is_concrete(x.tp) and x.tp == 1:
        return 0.0
    budget = x.tolerance / (1.0 - x.tolerance) * block / 2.0
    nbytes = rows * x.hidden * ACTIVATION_BYTES
    rates = []
    for line in lines:
        serial = line.a + nbytes * line.p * line.g
        wire = line.b + nbytes * line.h
        hidden = line.a + nbytes * line.g
        rates.append(where(hidden <= budget, _rate(wire, budget - serial), float("inf")))
    return where(group.n_out > 1, minimum(*rates), 0.0)


def _expert_s(x, held, net, rows, u):
    """Seconds of a block's dispatch and combine of ``rows`` tokens, and its slope in u; the average block of the model.

    Experts of another domain are reached over the port; ``node_limit`` caps the copies that leave it.  A block that has no
    experts sends nothing, so the average block counts with the share of MoE blocks.
    """
    if is_concrete(x.ep) and x.ep == 1:
        return 0.0, 0.0
    sends = rows / x.tp * x.hidden * held.moe_share
    group = c.place(x.ep, x.scaleup_domain / x.tp if is_concrete(x.tp) and x.tp > 1 else x.scaleup_domain)
    outside = (group.n - group.n_in) / group.n
    copies = x.top_k * outside
    copies = where(x.node_limit > 0, minimum(copies, x.node_limit), copies)
    both = x.dispatch_bytes + x.combine_bytes
    inner = sends * x.top_k * (group.n_in - 1.0) / group.n * both * net.inner_s_per_byte
    slope = sends * copies * both
    crosses = group.n_out > 1
    latency = 2.0 * held.moe_share * where(crosses, net.latency_s, where(x.ep > 1, net.inner_latency_s, 0.0))
    return latency + maximum(inner, slope * u), slope


def _rate(nbytes, seconds):
    """bytes/s that move ``nbytes`` in ``seconds``: 0 for none, inf where there is no time."""
    late = seconds <= 0.0
    found = where(late, float("inf"), nbytes / where(late, 1.0, seconds))
    return where(nbytes > 0.0, found, 0.0 * clip(seconds, 0.0, 0.0) if not is_concrete(seconds) else 0.0)
