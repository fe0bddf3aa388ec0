"""Seconds of a block: the first-order law exactly, the calibrated law against its own definition and a measured block."""

import numpy as np
import pytest
from points import A100, DEEPSEEK_V3, GPT3, H100, LLAMA_8B, LLAMA_70B, point

from kernels.compute import UNALIGNED, block_bytes, compute
from kernels.memory import memory
from kernels.work import work

MODELS = pytest.mark.parametrize("shape", [LLAMA_8B, LLAMA_70B, GPT3, DEEPSEEK_V3], ids=["8b", "70b", "gpt3", "v3"])


def computed(**given):
    """Inputs, work and compute of a point on an H100."""
    x = point(**(H100 | given))
    of = work(x)
    return x, of, compute(x, of)


# -- every FLOP at one fraction of peak ---------------------------------------------------------------------------------


@MODELS
def test_first_order_law(shape):
    x, of, c = computed(**shape, efficiency=0.4, tp=2, cp=2, micro_batch=3.0)
    rate, tokens = 0.4 * 989e12 * 2, 3 * 8192 / 2
    assert c.block_forward_s == pytest.approx(of.block_flop * tokens / rate, rel=1e-14)
    assert c.block_backward_s == pytest.approx(2 * c.block_forward_s, rel=1e-14)
    assert c.block_dgrad_s + c.block_wgrad_s == pytest.approx(c.block_backward_s, rel=1e-14)
    assert c.head_backward_s == 2 * c.head_forward_s == pytest.approx(2 * of.head_flop * tokens / rate, rel=1e-14)
    assert c.embedding_forward_s == c.embedding_backward_s == c.block_hbm_s == c.head_hbm_s == 0
    step = x.layers * (c.block_forward_s + c.block_backward_s) + c.head_forward_s + c.head_backward_s
    assert of.model_flop * tokens / 2 / 989e12 / step == pytest.approx(0.4, rel=1e-13)  # MFU is the efficiency


def test_weight_gradients_are_the_matrices_alone():
    """The core has no weights: all of its backward, and what is recomputed, belongs to the data gradient."""
    _, of, c = computed(**LLAMA_8B, efficiency=0.4, recompute="full")
    assert c.block_wgrad_s / c.block_forward_s == pytest.approx(1 - of.attention_flop / of.block_flop, rel=1e-13)
    assert c.block_backward_s == pytest.approx(3 * c.block_forward_s, rel=1e-14)
    assert c.block_dgrad_s + c.block_wgrad_s == pytest.approx(c.block_backward_s, rel=1e-14)
    assert c.gemm_forward_s + c.core_forward_s == pytest.approx(c.block_forward_s, rel=1e-14)


@pytest.mark.parametrize("law", [dict(efficiency=0.4), {}], ids=["first-order", "calibrated"])
def test_recomputation(law):
    none, selective, full = (computed(**LLAMA_70B, **law, recompute=r)[2] for r in ("none", "selective", "full"))
    assert none.block_forward_s == selective.block_forward_s == full.block_forward_s
    assert none.block_wgrad_s == selective.block_wgrad_s == full.block_wgrad_s
    assert selective.block_backward_s - none.block_backward_s == pytest.approx(none.core_forward_s, rel=1e-10)
    assert full.block_backward_s - none.block_backward_s == pytest.approx(none.block_forward_s, rel=1e-12)
    assert none.block_hbm_s == selective.block_hbm_s <= full.block_hbm_s


@pytest.mark.parametrize("params", [1e9, 70e9, 1e12])
def test_eight_bits_per_flop_and_token(params):
    """Section 1 of the model: 386.3 Gb/s for 8,192 tokens at 40 % of an H100, whatever the model; the core adds window alone."""
    layers = (params / (12 * 128**2)) ** (1 / 3)
    hidden = 128 * layers
    shape = dict(params=params, layers=layers, hidden=hidden, ffn=4 * hidden, heads=layers, head_dim=128, vocab=0)
    x, of, c = computed(**shape, efficiency=0.4)
    window = c.block_backward_s - 2 * c.core_forward_s
    assert 8 * 2 * x.grad_bytes * of.block_params / window / 1e9 == pytest.approx(386.328, rel=1e-5)


# -- the calibrated law -------------------------------------------------------------------------------------------------


def test_multiplications_follow_the_law():
    """e = e_0 x/(x + F_half), x the FLOP of one multiplication on this GPU, where memory is no limit."""
    tp, tokens = 2, 8192
    x, of, c = computed(**LLAMA_8B, tp=tp, hbm_gbytes_per_s=1e9)
    seconds = 0.0
    for inputs, outputs in ((4096, 6144 / tp), (4096 / tp, 4096), (4096, 2 * 14336 / tp), (14336 / tp, 4096)):
        flop = 2 * inputs * outputs * tokens
        seconds += flop / (989e12 * 0.72 * flop / (flop + 1.9e10))
    assert c.gemm_forward_s == pytest.approx(seconds, rel=1e-12)
    assert c.core_forward_s == pytest.approx(of.attention_flop * tokens / (tp * 989e12 * 0.4), rel=1e-12)
    assert c.block_forward_s == pytest.approx(c.gemm_forward_s + c.core_forward_s, rel=1e-5)
    assert c.block_backward_s == pytest.approx(2 * c.block_forward_s, rel=1e-5)


def test_small_batches_read_their_weights():
    """A few tokens: each multiplication takes the time of its matrix, three times per step."""
    x, of, c = computed(**LLAMA_8B, seq_len=16, gemm_half_flop=0.0)
    weights = of.block_params - 2 * 4096
    moved = 2 * (weights + 16 * sum(gemm.width for gemm in of.gemms)) / (3.35e12 * 0.85)
    assert c.gemm_forward_s == pytest.approx(moved, rel=1e-12)
    assert c.block_hbm_s > 0.9 * (c.block_forward_s + c.block_backward_s)


def test_memory_bound_rest():
    x, of, c = computed(**GPT3, tp=8, seq_len=2048)
    rest = c.block_forward_s - c.gemm_forward_s - c.core_forward_s
    least = (22 * 12288 / 8 + 4 * 49152 / 8) * 2048 / (3.35e12 * 0.85)
    assert rest == pytest.approx(2.5 * least, rel=1e-9)
    x, of, without = computed(**GPT3, tp=8, seq_len=2048, sequence_parallel=0)
    whole = (22 * 12288 + 4 * 49152 / 8) * 2048 / (3.35e12 * 0.85)
    assert without.block_forward_s - without.gemm_forward_s - without.core_forward_s == pytest.approx(2.5 * whole, rel=1e-9)
    gated = point(**LLAMA_8B)
    assert block_bytes(gated, work(gated)) == (22 * 4096 + 6 * 14336, 22 * 4096 + 10 * 14336)


def test_bytes_of_experts():
    x = point(**DEEPSEEK_V3, tp=2)
    moe = 58 / 61
    width = ((1 - moe) * 18432 + moe * 2048 * 9) / 2
    rest = 22 * 7168 / 2 + moe * 8 * 8 * 7168 / 2
    assert block_bytes(x, work(x)) == pytest.approx((rest + 6 * width, rest + 10 * width), rel=1e-13)


def test_single_precision_moves_twice_the_bytes():
    half, single = (computed(**LLAMA_8B, seq_len=16, gemm_half_flop=0.0, dtype=dtype)[2] for dtype in ("bf16", "tf32"))
    assert single.gemm_forward_s == pytest.approx(2 * half.gemm_forward_s, rel=1e-12)
    assert single.embedding_backward_s == pytest.approx(2 * half.embedding_backward_s, rel=1e-12)
    for dtype in ("fp8", "fp4"):
        assert computed(**LLAMA_8B, dtype=dtype)[2] == computed(**LLAMA_8B)[2]  # activations stay in 16 bits


def test_the_loss_moves_its_logits():
    x, of, c = computed(**LLAMA_8B, tp=2, logit_bytes=60.0)
    matrix = (2 * 4096 * 128256 / 2 * 8192 + 1.9e10) / (989e12 * 0.72)
    loss = (30 * 128256 / 2 + 2.5 * 4 * 4096) * 8192 / (3.35e12 * 0.85)
    assert c.head_forward_s == pytest.approx(matrix + loss, rel=1e-12)
    assert c.head_backward_s == pytest.approx(2 * matrix + loss, rel=1e-12)
    assert c.head_hbm_s == pytest.approx(2 * loss, rel=1e-12)
    assert c.embedding_forward_s == pytest.approx(2.5 * 4 * 4096 * 8192 / (3.35e12 * 0.85), rel=1e-12)
    none = computed(**(LLAMA_8B | dict(vocab=0)))[2]
    assert none.head_forward_s == none.head_backward_s == none.embedding_forward_s == none.embedding_backward_s == 0


def test_a_block_that_was_measured():
    """arXiv:2205.05198 table 4: one block of the 22 B model, tp 8, four sequences, A100: forward 7.7 ms, backward 11.9 ms.

    Both contain two all-reduces of T h; at 235 GB/s of bus bandwidth (nccl-tests of a DGX A100) these are 0.75 ms each.
    """
    x = point(**A100, layers=48, hidden=6144, ffn=24576, heads=64, vocab=51200, tp=8, dp=1, micro_batch=4.0, seq_len=2048,
              attention="full", sequence_parallel=0)  # fmt: skip
    c = compute(x, work(x))
    reduce = 2 * 7 / 8 * 4 * 2048 * 6144 * 2 / 235e9
    assert c.block_forward_s + 2 * reduce == pytest.approx(7.7e-3, rel=0.05)
    assert c.block_backward_s + 2 * reduce == pytest.approx(11.9e-3, rel=0.05)


def test_odd_heads_lose_the_tensor_cores():
    for heads, efficiency in ((108, 0.4), (128, UNALIGNED)):  # heads of 128 and 108
        x, of, c = computed(**(GPT3 | dict(hidden=13824, ffn=4 * 13824, heads=heads)))
        assert c.core_forward_s == pytest.approx(of.attention_flop * 8192 / (989e12 * efficiency), rel=1e-12)
    _, of, slow = computed(**(GPT3 | dict(hidden=13824, heads=128)), attention_efficiency=0.01)
    assert slow.core_forward_s == pytest.approx(of.attention_flop * 8192 / (989e12 * 0.01), rel=1e-12)


def test_odd_heads_that_were_measured():
    """bigscience tr11-176B chronicles-prequel: h 13,824, L 78, tp 8, pp 6, dp 8, micro-batch 4, 384 A100, full recomputation.

    118.12 s with 96 heads, 156.84 s with 128; with tp 4, pp 12 110.31 and 153.90 s: the slots of 1F1B times the core's difference.
    """
    for tp, pp, extra in ((8, 6, 156.84 - 118.12), (4, 12, 153.90 - 110.31)):
        seconds = []
        for heads in (96, 128):
            x = point(**A100, layers=78, hidden=13824, ffn=4 * 13824, heads=heads, vocab=250000, tp=tp, pp=pp, dp=8,
                      micro_batch=4.0, seq_len=2048, attention="full", recompute="full", sequence_parallel=0)  # fmt: skip
            c = compute(x, work(x))
            seconds.append((64 + pp - 1) * 78 / pp * (c.block_forward_s + c.block_backward_s))
        assert seconds[1] - seconds[0] == pytest.approx(extra, rel=0.1)


def test_host_time_is_a_floor():
    _, _, free = computed(**LLAMA_8B, seq_len=256, recompute="full")
    gpu = free.block_forward_s + free.block_backward_s
    _, _, held = computed(**LLAMA_8B, seq_len=256, recompute="full", host_time_ms=3.5)
    assert gpu < 3.5e-3
    assert held.block_forward_s + held.block_backward_s == pytest.approx(3.5e-3, rel=1e-12)
    for name in ("block_forward_s", "block_dgrad_s", "block_wgrad_s", "core_forward_s", "gemm_forward_s"):
        assert getattr(held, name) / getattr(free, name) == pytest.approx(3.5e-3 / gpu, rel=1e-12)
    assert held.block_dgrad_s + held.block_wgrad_s == pytest.approx(held.block_backward_s, rel=1e-12)
    _, _, light = computed(**LLAMA_8B, seq_len=256, recompute="full", host_time_ms=0.5 * gpu * 1e3)
    assert light == free
    assert computed(**LLAMA_8B, host_micro_batch_ms=2.2)[2].stage_host_s == pytest.approx(2.2e-3)
    assert computed(**LLAMA_8B, host_micro_batch_ms=2.2, efficiency=0.4)[2].stage_host_s == 0


@MODELS
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_laws_of_nature(shape, recompute):
    """More of anything is never slower; the parts add up; bandwidth adds to the FLOP's time and never takes away."""
    base = dict(shape, recompute=recompute, tp=2)
    _, _, c = computed(**base)
    for faster in (dict(peak_tflops=2000.0), dict(hbm_gbytes_per_s=8000.0), dict(tp=4), dict(attention_efficiency=0.6)):
        _, _, better = computed(**(base | faster))
        for name in c._fields[:8]:
            assert getattr(better, name) <= getattr(c, name), (faster, name)
    assert c.block_dgrad_s + c.block_wgrad_s == pytest.approx(c.block_backward_s, rel=1e-12)
    assert c.gemm_forward_s + c.core_forward_s < c.block_forward_s < c.block_backward_s
    _, _, limitless = computed(**base, hbm_gbytes_per_s=1e12)
    spent = c.block_forward_s + c.block_backward_s
    assert spent - c.block_hbm_s == pytest.approx(limitless.block_forward_s + limitless.block_backward_s, rel=1e-6)
    head = c.head_forward_s + c.head_backward_s
    assert head - c.head_hbm_s == pytest.approx(limitless.head_forward_s + limitless.head_backward_s, rel=1e-6)


# -- the update ---------------------------------------------------------------------------------------------------------


def test_update_reads_and_writes_its_states():
    """30 bytes per parameter in bf16 with fp32 gradients: 12 read, 12 written, 4 of the gradient, 2 of the parameter."""
    for law in (dict(efficiency=0.4), {}):
        _, of, c = computed(**LLAMA_8B, **law, grad_bytes=4.0, pp=4, tp=2)
        block = 8 * of.block_params * 30 / (3.35e12 * 0.85)
        assert c.optimizer_middle_s == pytest.approx(block, rel=1e-12)
        assert c.optimizer_first_s == c.optimizer_last_s == pytest.approx(block + 128256 * 4096 / 2 * 30 / (3.35e12 * 0.85))
    assert computed(**LLAMA_8B, efficiency=0.4, hbm_gbytes_per_s=None)[2].optimizer_first_s == 0
    _, _, single = computed(**LLAMA_8B, efficiency=0.4, pp=4, tp=2, param_bytes=4.0)  # no second copy
    assert single.optimizer_middle_s == pytest.approx(8 * of.block_params * 26 / (3.35e12 * 0.85), rel=1e-12)
    _, _, one = computed(**LLAMA_8B, efficiency=0.4)
    assert one.optimizer_first_s == one.optimizer_middle_s == one.optimizer_last_s


def test_update_of_a_shard():
    whole = computed(**DEEPSEEK_V3, efficiency=0.4, dp=64, cp=2, ep=8)[2]
    shard = computed(**DEEPSEEK_V3, efficiency=0.4, dp=64, cp=2, ep=8, zero_stage=1)
    x, of, c = shard
    blocks = 61 * (of.block_params / 128 + of.block_expert_params / 16) + (of.embedding_params + of.head_params) / 128
    assert c.optimizer_first_s == pytest.approx(blocks * 28 / (3.35e12 * 0.85), rel=1e-12)
    assert c.optimizer_first_s < whole.optimizer_first_s / 15


# -- open mesh ----------------------------------------------------------------------------------------------------------


def test_open_mesh_equals_points_and_does_not_widen():
    tp, seq, link = np.array([1.0, 8]).reshape(2, 1, 1), np.array([2048.0, 8192]).reshape(1, 2, 1), np.ones((1, 1, 4))
    again = np.array([0, 1, 2, 2]).reshape(1, 1, 4)
    _, _, many = computed(**LLAMA_8B, tp=tp, seq_len=seq, recompute=again, oversubscription=link, dp=8, host_time_ms=3.0)
    for i, j, k in np.ndindex(2, 2, 4):
        _, _, one = computed(**LLAMA_8B, tp=tp[i, 0, 0], seq_len=seq[0, j, 0], recompute=int(again[0, 0, k]), dp=8,
                             host_time_ms=3.0)  # fmt: skip
        for name in one._fields:
            ours = np.broadcast_to(getattr(many, name), (2, 2, 4))[i, j, k]
            assert ours == pytest.approx(getattr(one, name), rel=1e-12), name
    assert many.head_forward_s.shape == (2, 2, 1) and many.optimizer_first_s.shape == (2, 1, 1)
    free = computed(**LLAMA_8B, tp=tp, seq_len=seq, recompute=again, oversubscription=link, dp=8)[2]
    assert free.block_forward_s.shape == (2, 2, 1) and free.block_backward_s.shape == (2, 2, 4)


def test_jit_gives_the_same_numbers_on_the_same_axes():
    jax = pytest.importorskip("jax")
    axes = dict(
        tp=np.array([1.0, 8]).reshape(2, 1, 1, 1),
        seq_len=np.array([2048.0, 8192]).reshape(1, 2, 1, 1),
        recompute=np.array([0, 1, 2]).reshape(1, 1, 3, 1),
        zero_stage=np.array([0, 3]).reshape(1, 1, 1, 2),
    )

    def all_of_it(arrays):
        x = point(**H100, **DEEPSEEK_V3, dp=8, ep=2, pp=4, host_time_ms=3.0, **arrays)
        of = work(x)
        return of, compute(x, of), memory(x, of, 4.0, 1.0)

    with jax.enable_x64(True):
        traced = jax.tree.leaves(jax.jit(all_of_it)(axes))
        assert "dot_general" not in str(jax.make_jaxpr(all_of_it)(axes))
    plain = jax.tree.leaves(all_of_it(axes))
    assert len(plain) == len(traced)
    for ours, theirs in zip(plain, traced, strict=True):
        assert np.shape(ours) == np.shape(theirs)
        np.testing.assert_allclose(theirs, ours, rtol=1e-14)
