"""Numeric examples published by others, reproduced by calls of the kernels' public functions.

``data/worked_cases.json`` holds inputs, published answer and tolerance of each, with its source.  A case is computed here from
the same inputs; cases of networks in counts and of serving are held in test_fabric.py and test_serving.py.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from kernels import collectives, overlap, quantities, schedule, sharding
from kernels.model import Inputs, evaluate

CASES = {case["id"]: case for case in json.loads((Path(__file__).parent / "data" / "worked_cases.json").read_text())["cases"]}
ELSEWHERE = {name for name in CASES if name.startswith("superpod")} | {"ds-a2a-ib", "ds-tpot-ib", "ds-tpot-nvl72"}
GRID = np.logspace(-1, 3, 50)  # the grid of the two DiLoCo papers, Gb/s
LLAMA_70B = dict(layers=80, hidden=8192, ffn=28672, heads=64, kv_heads=8, head_dim=128, vocab=128256, gated_mlp=1)
H100 = dict(peak_tflops=989.0, hbm_gb=80.0, hbm_gbytes_per_s=3350.0, scaleup_domain=8, scaleup_gbytes_per_s=450.0, link_gbps=400.0)


def tokens(flop_per_s, bytes_per_s, **more):
    """Tokens of a window at bf16 gradients."""
    return overlap.window_tokens(2.0, flop_per_s, bytes_per_s, **more)


def on_grid(params, step_s, utilisation, end_s):
    """Smallest rate of the papers' grid at which a reduction of 16 bits there and back keeps the utilisation."""
    return [next(rate for rate in GRID if step_s / end_s(16.0 * params / (rate * 1e9)) >= wanted) for wanted in utilisation]


def bucketed(step_s, layers):
    return lambda comm: step_s + overlap.bucketed_exposed_s(layers, step_s / layers, comm / layers)


def days(flop, gpus, flop_per_s):
    return flop / (gpus * flop_per_s) / 86400


def zero3_sequences():
    """Sequences at which three gathers or scatters of 7B in bf16 cost 5 % of a step of 6 P tokens that hides nothing."""
    comm = 3 * (collectives.ring_half_s(2 * 7e9, float(10**9), 100e9) + 32 * 0.0)
    return comm / 0.05 / (6 * 7e9 * 2048 / 150e12)


def diloco(step_s, every, fragments):
    return lambda comm: overlap.diloco_end_s(every * step_s, comm, fragments) / every


def best_fsdp(chips, batch, ffn, links_fsdp, links_tp):
    """Degree X of FSDP over ``chips`` = X Y at which the traffic of a layer's weights and activations is least."""
    degrees = np.linspace(1, chips, 100_001)
    weights = 4 * ffn * degrees / chips / links_fsdp  # 2 matrices of D F/Y, gathered; D cancels
    activations = 4 * batch / degrees / links_tp
    return degrees[np.argmin(weights + activations)]


def efficiency_curve():
    """eps_inf / (1 + S_half/S), the law of ``link_half_bytes``, with its two numbers from the published points."""
    size = np.array(CASES["stas-eff-curve"]["inputs"]["payload_MiB"], float)
    seen = np.array(CASES["stas-eff-curve"]["published_answer"]["value"])
    errors = {(top, half): np.abs(top / (1 + half / size) - seen).max()
              for top in np.linspace(0.7, 0.8, 41) for half in np.linspace(40, 160, 121)}
    top, half = min(errors, key=errors.get)
    return top / (1 + half / size)


def volumes():
    """Elements a GPU sends per parameter under DP, ZeRO-1 and ZeRO-3, from the time of its traffic."""
    point = dict(H100, params=1e10, dp=2.0**20, scaleup_domain=1, link_latency_us=0.0, reshard_last_block=1, algorithm=1)
    seconds = [evaluate(Inputs(**point, zero_stage=stage), ("dp_comm_time_s",))["dp_comm_time_s"] for stage in (0, 1, 3)]
    return [float(one) * 50e9 / 2 / 1e10 for one in seconds]


def hierarchy(gpus, nodes):
    return collectives.hierarchical_all_reduce_s(4e9, gpus, nodes, 300e9, 50e9, 0.0, 5e-6)


OURS = {
    "sbg-dp-node": lambda: tokens(990e12, 450e9),
    "sbg-dp-fabric": lambda: tokens(990e12, 400e9),
    "sbg-dp-llama3": lambda: 16000 * tokens(990e12, 400e9),
    "sbg-dp-moe": lambda: tokens(990e12, 400e9, total_over_active=128 / 4),
    "sbg-dp-2node": lambda: tokens(990e12, 400e9, n=2),
    "sbg-dp-b200": lambda: tokens(2250e12, 400e9),
    "sbg-nvl72-egress": lambda: 72 * 400 * quantities.GBPS,
    "sbg-ag-q3": lambda: collectives.ring_half_s(4096 * 65536 * 2, 8, 450e9),
    "sbg-2node-ag": lambda: [450e9 * 8 / 7, 400e9 * 2],
    "sbg-pp8-relief": lambda: tokens(990e12, 8 * 400e9),
    "sbg-zero3-q2": lambda: 4e6 / 4096,
    "sbg-train-days": lambda: [days(6.3e24, 4096, 0.45 * 990e12) * 86400, days(6.3e24, 4096, 0.45 * 990e12)],
    "sbg-megatron-batches": lambda: [s * length / n for s, length, n in ([192, 4096, 192], [384, 4096, 768], [1536, 4096, 3072])],
    "sbt-dp-v5p": lambda: tokens(4.6e14, 2 * 9e10),
    "sba-days": lambda: days(6.3e24, 8960, 0.4 * 4.59e14),
    "sbs-latency": lambda: collectives.ring_half_s(0, 3, 1.0, 1e-6),  # two directions: 2 of the 3 hops of a ring of four
    "stas-idefics-comm": lambda: 3 * 2 * 80e9 / 42.5e9,
    "stas-idefics-sweep": lambda: [3 * 2 * 80e9 / 8.5e9, 3 * 2 * 80e9 / 212e9],
    "stas-2b-1node": lambda: [collectives.ring_all_reduce_s(8e9, 1e9, 300e9), collectives.ring_all_reduce_s(8e9, 1e9, 450e9)],
    "stas-2b-compute": lambda: [4 * 2 * 2e9 * 2048 * 2 / 1e12, 4 * 2 * 2e9 * 2048 * 2 / 156e12],
    "stas-80b-once": lambda: [80e9 * 4 / (rate * quantities.GBPS) for rate in (200, 1600)],
    "stas-busbw-to-wire": lambda: 377.34 * 3 / 31,
    "dt13-hier": lambda: collectives.hierarchical_all_reduce_s(1e8, 4, 4, 100e9, 100e9, 10e-6, 10e-6),
    "dt13-dp-time": lambda: collectives.ring_all_reduce_s(3.25e9, 8, 50e9, 5e-6),
    "dt14-bucket-tail": lambda: [0.08 + overlap.bucketed_exposed_s(100, 0.0008, 0.001),
                                 1 - overlap.bucketed_exposed_s(100, 0.0008, 0.001) / 0.1],
    "dt31-bucket": lambda: [0.05 + overlap.bucketed_exposed_s(5, 0.01, 0.006), 1 - overlap.bucketed_exposed_s(5, 0.01, 0.006) / 0.03],
    "sdiloco-dp-10B": lambda: on_grid(10e9, 0.8, [0.5, 0.8, 0.9, 0.95, 0.99], bucketed(0.8, 48)),
    "sdiloco-dp-100B": lambda: on_grid(100e9, 4.9, [0.5, 0.8, 0.9, 0.95, 0.99], bucketed(4.9, 108)),
    "sldiloco-405B": lambda: on_grid(405e9, 26, [0.5, 0.8, 0.9, 0.95, 0.99], bucketed(26, 126)),
    "meg-gpt3-days": lambda: days(8 * 3e11 * 175e9, 1024, 140e12),
    "meg-1t-days": lambda: days(8 * 4.5e11 * 1e12, 3072, 163e12),
    "sbt-xopt": lambda: best_fsdp(64, 48000, 32768, 2, 1),
    "sbt-mixed": lambda: 4 * 2550**2 / (2 * 32768),
    "sba-params": lambda: split_of_llama(),
    "sbx-attn-equal": lambda: attention_equals_projections(4096),
    "stas-hier-bytes": lambda: hierarchical_bytes(4.0, 8, 4),
    "stas-hier-times": lambda: hierarchical_times(),
    "dt13-8x8": lambda: [hierarchy(8, 8), hierarchy(4, 16), hierarchy(4, 16) / hierarchy(8, 8)],
    "dt20-zero3-batch": zero3_sequences,
    "sdiloco-overlap-100B": lambda: on_grid(100e9, 4.9, [0.5, 0.8, 0.9, 0.95, 0.99], diloco(4.9, 100, 108)),  # sent by layer
    "sdiloco-vanilla-10B": lambda: on_grid(10e9, 0.8, [0.5, 0.8, 0.9, 0.95, 0.99], diloco(0.8, 100, 1)),
    "sldiloco-671B": lambda: on_grid(671e9, 20, [0.5, 0.8, 0.9, 0.95], bucketed(20, 61)),
    "zero-dp": volumes,
}


def split_of_llama():
    from kernels.inputs import complete
    from kernels.work import work

    mine = work(complete(Inputs(**LLAMA_70B, **H100)))
    narrow = work(complete(Inputs(**(LLAMA_70B | {"ffn": 0}), **H100)))
    feed_forward = mine.params - narrow.params
    vocabulary = 2 * 8192 * 128256
    return {"ffw": feed_forward, "vocab": vocabulary, "attn": narrow.params - vocabulary, "total": mine.params}


def attention_equals_projections(hidden):
    """Length at which the attention core's FLOP (no causal mask) are those of the four projections."""
    from kernels.inputs import complete
    from kernels.work import work

    point = complete(Inputs(layers=1, hidden=hidden, heads=32, seq_len=1.0, attention=1, **H100))
    return 2 * 4 * hidden**2 / work(point).attention_flop


def hierarchical_bytes(gib, gpus, nodes):
    net = collectives.Tiers(1.0, 0.0, 0.0, 0.0, 1.0, False, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0)
    line = collectives.all_reduce(collectives.Group(gpus * nodes, gpus, nodes, 1.0), net)[collectives.HIERARCHICAL]
    return {"nvlink_GiB": gib * line.g, "nic_GiB": gib * line.h, "off_node_share": line.h / (line.g + line.h)}


def hierarchical_times():
    size, inner, port = 4 * 2**30, 740.64e9, 50e9
    chunks = [collectives.hierarchical_all_reduce_s(size, 8, 4, inner, port, chunks=q) * 1e3 for q in (1, 1e12)]
    published = CASES["stas-hier-times"]["published_answer"]["value"]
    assert chunks[1] < published["measured_ms"] < chunks[0], "the measurement lies between full overlap and none"
    return {"one_node_ms": collectives.ring_all_reduce_s(size, 8, inner) * 1e3, "naive_ms": size / port * 1e3,
            "flat_ring_multi_nic_ms": collectives.ring_all_reduce_s(size, 32, 8 * port) * 1e3,
            "hier_overlapped_ms": chunks[1], "hier_serial_ms": chunks[0]}


def numbers(value):
    """A published or computed answer as a flat list; words and bounds such as '>1000' left out."""
    if isinstance(value, dict):
        return [number for key in sorted(value) for number in numbers(value[key])]
    if isinstance(value, (list, tuple)):
        return [number for item in value for number in numbers(item)]
    return [] if isinstance(value, str) else [float(value)]


@pytest.mark.parametrize("name", sorted(OURS))
def test_worked_case(name):
    case, ours = CASES[name], OURS[name]()
    published, tolerance = case["published_answer"]["value"], case["tolerance"]
    if name == "zero-dp":
        published = [2, 2, 3]
    if isinstance(published, dict):
        published = {key: value for key, value in published.items() if key in ours}
    published, ours = np.array(numbers(published)), np.array(numbers(ours))
    assert len(published) == len(ours)
    if "grid_steps" in tolerance:
        steps = np.abs(np.log(ours / published) / np.log(GRID[1] / GRID[0]))
        allowed = np.full(len(ours), tolerance["grid_steps"] + 0.05)
        allowed[-1] = tolerance.get("grid_steps_at_99", tolerance["grid_steps"]) + 0.05
        assert (steps <= allowed).all(), (ours, published)
    else:
        bound = tolerance.get("abs", 0.0) + tolerance.get("rel", 0.0) * np.abs(published) + 1e-5 * np.abs(published)
        assert (np.abs(ours - published) <= bound).all(), (ours, published)


def test_671b_at_99_percent():
    """The paper prints '>1000' where ours is the last step of its grid, 1000: one step, the tolerance of the table."""
    assert on_grid(671e9, 20, [0.99], bucketed(20, 61)) == pytest.approx([1000.0])


def test_efficiency_by_size_is_no_smooth_curve():
    """Declared: the published points of stas-eff-curve admit no law within 0.02.

    The asked form eps_inf/(1 + S_half/S) makes the time S/eps linear in S, a choice of protocols makes it concave.  The printed
    points give slopes of 3.4, 0.9 and 1.9 (MiB per MiB) between 16, 32, 64 and 128 MiB: neither.  The best fit of the form is
    0.051 off at the worst size.
    """
    size = np.array(CASES["stas-eff-curve"]["inputs"]["payload_MiB"], float)
    seen = np.array(CASES["stas-eff-curve"]["published_answer"]["value"])
    slopes = np.diff(size / seen) / np.diff(size)
    assert slopes[0] > slopes[2] > slopes[1]
    error = np.abs(efficiency_curve() - seen).max()
    assert 0.02 < error < 0.055


def test_busbw_factors():
    """nccl-tests: busbw = algbw 2(n-1)/n for all_reduce, (n-1)/n for all_gather; the size is the whole buffer."""
    assert collectives.bus_bandwidth("all_reduce", 8.0, 4, 1.0) == 8.0 * 2 * 3 / 4
    assert collectives.bus_bandwidth("all_gather", 8.0, 4, 1.0) == 8.0 * 3 / 4
    seconds = collectives.ring_all_reduce_s(1e9, 32, 50e9)
    assert collectives.bus_bandwidth("all_reduce", 1e9, 32, seconds) == pytest.approx(50e9)


def test_prefetch_depth_one_hides_gathers():
    """dt31-prefetch: gathers of 2 ms under compute of 8 ms hide with one layer of prefetch: only the first is exposed."""
    forward = sharding.fsdp_forward_exposed_s(24, 0.008, 0.002)
    backward = sharding.fsdp_backward_s(24, 0.016, 0.002, 0.0, prefetch=1)
    assert forward == pytest.approx(0.002) and backward == pytest.approx(24 * 0.016)
    assert sharding.fsdp_backward_s(24, 0.016, 0.002, 0.0, prefetch=0) > backward
    assert CASES["dt31-prefetch"]["published_answer"]["value"] == 1


def test_ultra_scale_playbook_errata():
    """hf-dp prints num_params in a ratio from which it cancels, and no bytes per parameter; the others hold at one byte."""
    flops, rate, n, seq = 400e12, 50e9, 64, 4096

    def dp(params, size):
        return collectives.ring_half_s(size * params, n, rate) / (2 * params * seq / flops)

    assert dp(7e9, 2) == pytest.approx(dp(70e9, 2))
    assert dp(7e9, 1) == pytest.approx(1 / (2 * seq) * (n - 1) / n * flops / rate)  # hf-zero3: one byte a parameter
    assert dp(7e9, 2) == pytest.approx(2 * dp(7e9, 1))  # bf16: 1 / (seq mbs)
    hidden, tp = 8192, 8
    gather = collectives.ring_half_s(seq * hidden * 1.0, tp, rate)
    assert gather / (2 * seq * hidden**2 / tp / flops) == pytest.approx((tp - 1) / (2 * hidden) * flops / rate)  # hf-tp
    sizes = [evaluate(Inputs(**H100, params=p, dp=4096), ("first_order_link_gbps",))["first_order_link_gbps"] for p in (1e9, 1e11, 1e12)]
    assert sizes == pytest.approx([sizes[0]] * 3, rel=1e-9)


def test_llama_3_bookkeeping():
    """llama3-cfg: 16M tokens a step on 8,192 and 16,384 GPUs; llama3-fp32-rs: fp32 gradients double the port."""
    shape = dict(layers=126, hidden=16384, ffn=53248, heads=128, kv_heads=8, head_dim=128, vocab=128256, gated_mlp=1)
    for row, published in zip(CASES["llama3-cfg"]["inputs"]["rows"], CASES["llama3-cfg"]["published_answer"]["value"]):
        point = Inputs(**shape, **H100, gpus=row["gpus"], tp=row["tp"], pp=row["pp"], seq_len=row["seq"],
                       global_batch=row["batch_per_dp"] * row["dp"])
        ours = evaluate(point, ("dp", "micro_batches"))
        assert ours["dp"] == row["dp"] and ours["micro_batches"] == row["batch_per_dp"]
        assert ours["dp"] * ours["micro_batches"] * row["seq"] == pytest.approx(published["tokens"], rel=0.06)
        assert published["tflops"] / 989 == pytest.approx(published["mfu"], rel=0.06)
    plain = dict(shape, **H100, dp=128, tp=8)
    first = [evaluate(Inputs(**plain, grad_bytes=size), ("first_order_link_gbps",))["first_order_link_gbps"] for size in (2, 4)]
    assert first[1] == pytest.approx(2 * first[0])
    assert schedule.bubble_fraction(16, 16, 8) == 15 / (8 * 16)  # llama3-bubble


def test_hf_pipeline_ratio():
    """hf-pp: T h bytes to the next stage over the FLOP of its blocks, one byte an element and 16 h^2 parameters a block."""
    hidden, layers, seq, flops, rate = 4096, 4, 2048, 400e12, 50e9
    ours = seq * hidden / rate / (2 * 16 * hidden**2 * layers * seq / flops)
    assert ours == pytest.approx(flops / (32 * hidden * layers * rate))


def test_every_case_is_held_somewhere():
    """Each case is reproduced here, in the named tests above, or in another file."""
    named = {"stas-eff-curve", "nccl-busbw-allreduce", "nccl-busbw-allgather", "dt31-prefetch", "hf-dp", "hf-zero3", "hf-tp", "hf-pp", "llama3-cfg",
             "llama3-fp32-rs", "llama3-bubble"}
    measured = {"kor-megatron-22B", "kor-gpt3-175B", "h100-peaks"}  # test_validation.py and test_presets.py
    assert set(CASES) == set(OURS) | named | measured | ELSEWHERE
