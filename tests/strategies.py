"""Random valid inputs: one seeded batch of whole designs for the simulator, and hypothesis strategies for single laws.

A batch is a dictionary name -> array along one sample axis, so that the kernels evaluate it in one call.
"""

import random

import numpy as np
from hypothesis import strategies as st

from kernels.quantities import INPUTS

MIB = 2.0**20


def code(name, word):
    """The code of a category's word."""
    return INPUTS[name].choices.index(word)


def designs(seed, count, calibrated=False, kind=None):
    """``count`` random designs with small graphs (a few hundred events) that can run, as arrays by input name.

    ``calibrated``: compute by the calibrated law instead of one efficiency. ``kind``: one of KINDS for all, else by turns.
    """
    rng = random.Random(f"{seed} {calibrated} {kind}")
    rows = [_design(rng, KINDS[k % len(KINDS)] if kind is None else kind, calibrated) for k in range(count)]
    return {name: np.array([row[name] for row in rows], dtype=float) for name in rows[0]}


KINDS = ("plain", "pipeline", "interleaved", "experts", "sharded", "zero", "contention", "rare", "zb-h1", "dualpipe", "hsdp",
         "context", "sharded-pipeline", "contended-chunks")
"""What a design puts its weight on; other features are drawn freely where they may occur together."""


def _log(rng, low, high):
    return low * (high / low) ** rng.random()


def _design(rng, kind, calibrated):
    pick = rng.choice
    row = dict(
        hidden=pick([1024, 2048, 4096, 8192]), heads=pick([16, 32, 64]), gated_mlp=pick([0, 1]), tied_embeddings=pick([0, 1]),
        vocab=pick([0, 32000, 128256]), seq_len=pick([2048, 4096, 8192]), micro_batch=pick([1, 2, 4]), head_dim=128,
        tp=pick([1, 1, 2, 4, 8]), cp=pick([1, 1, 2, 4]) if kind in ("context", "plain") else 1, pp=1, vpp=1, ep=1,
        experts=0, top_k=0, shared_experts=0, expert_ffn=0, dense_layers=0, dispatch_bytes=2, combine_bytes=2, node_limit=0,
        ep_overlap_chunks=1, tp_overlap_chunks=pick([1, 1, 4]), cp_method=pick([0, 0, 1]), sequence_parallel=1,
        zero_stage=0, schedule=0, recompute=pick([0, 0, 1, 2]), dtype=0, attention=pick([0, 1]), param_gather=pick([0, 1, 2]),
        grad_bytes=pick([2, 4]), param_bytes=2, bucketing=pick([0, 0, 1]), prefetch=pick([0, 1, 1, 2, 3]),
        reshard_after_forward=pick([1, 1, 0]), reshard_last_block=pick([0, 1]), overlap_slowdown=0.0, comm_slowdown=0.0, sync_every=1,
        sync_fragments=1, peak_tflops=pick([125, 312, 989, 2250]), hbm_gb=pick([40, 80, 192, 400]), hbm_gbytes_per_s=pick([900, 3350, 8000]),
        scaleup_domain=pick([1, 4, 8, 8, 72]), scaleup_gbytes_per_s=pick([150, 450, 900]), scaleup_latency_us=pick([0, 1, 3]),
        link_gbps=_log(rng, 10, 3200), link_latency_us=pick([0, 5, 20, 50]), link_efficiency=pick([1.0, 0.8]), link_half_bytes=pick([0, 0, 1e6]),
        rails=pick([0, 0, 0, 1]), algorithm=pick([0, 0, 1, 2, 3, 4]), pipeline_chunks=pick([1, 1, 4]), tree_factor=pick([1.0, 1.1]),
        ll_bandwidth_ratio=1.0, simple_latency_ratio=1.0, oversubscription=1.0, pod_gpus=0, channels=pick([0, 0, 0, 4]), tolerance=0.02,
    )
    if rng.random() < 0.2:
        row.update(ll_bandwidth_ratio=16.0, simple_latency_ratio=2.7)
    if rng.random() < 0.2:
        row.update(oversubscription=pick([2.0, 4.0]), pod_gpus=row["scaleup_domain"] * pick([2, 4, 16]))
    if calibrated:
        row.update(gemm_efficiency=pick([0.72, 0.82]), gemm_half_flop=pick([0, 1.9e10]), attention_efficiency=pick([0.3, 0.5]),
                   memory_bytes_factor=pick([1, 2.5, 5]), hbm_efficiency=0.85)
    else:
        row["efficiency"] = pick([0.3, 0.4, 0.55, 1.0])
    row["ffn"] = row["hidden"] * pick([3, 4])
    row["kv_heads"] = pick([8, row["heads"]])
    blocks = rng.randint(1, 4)
    m = rng.randint(1, 6)
    if kind in ("pipeline", "zb-h1", "contention") or kind in ("zero", "experts") and rng.random() < 0.5:
        row["pp"] = rng.randint(1 if kind == "contention" else 2, 5)
        m = rng.randint(1, 10)
        row["schedule"] = code("schedule", "zb-h1") if kind == "zb-h1" else 0
    if kind == "dualpipe":
        row.update(pp=pick([2, 4, 6]), schedule=code("schedule", "dualpipe"))
        m = 2 * rng.randint(row["pp"], row["pp"] + 4)
    if kind == "interleaved":
        row.update(pp=rng.randint(2, 4), vpp=rng.randint(2, 3))
        m = row["pp"] * rng.randint(1, 3)
    if kind == "contended-chunks":
        row.update(pp=rng.randint(2, 4), overlap_slowdown=rng.random() / 2, comm_slowdown=pick([0.0, rng.random() / 2]))
        row["vpp"], row["schedule"] = pick([(2, 0), (3, 0), (1, code("schedule", "zb-h1"))])
        m = row["pp"] * rng.randint(1, 3)
    if kind == "sharded-pipeline":
        row.update(pp=rng.randint(2, 4), schedule=pick([0, 0, code("schedule", "zb-h1")]))
        row["vpp"] = pick([1, 2]) if row["schedule"] == 0 else 1
        m = row["pp"] * rng.randint(1, 3) if row["vpp"] > 1 else rng.randint(1, 8)
    row["layers"] = row["pp"] * row["vpp"] * blocks
    row["micro_batches"] = m
    row["dp"] = pick([1, 2, 4, 16, 64, 96, 256])
    if kind == "zero":
        row["zero_stage"] = 1 if row["pp"] > 1 else pick([1, 2])
    elif kind in ("sharded", "hsdp", "sharded-pipeline"):
        row["zero_stage"] = 3
    elif kind in ("pipeline", "interleaved", "experts", "zb-h1", "dualpipe", "contended-chunks"):
        row["zero_stage"] = pick([0, 1])
    if kind in ("hsdp", "experts"):
        row["dp"] = pick([16, 64, 256])
    row["shard_group"] = pick([2, 8]) if kind == "hsdp" else row["dp"] * row["cp"]
    if kind == "experts":
        row.update(experts=pick([8, 64]), top_k=pick([1, 2, 8]), shared_experts=pick([0, 1]), expert_ffn=pick([1024, 4096]),
                   dense_layers=pick([0, 0, 1]), ep=pick([1, 2, 8]), ep_overlap_chunks=pick([1, 1, 4]), node_limit=pick([0, 0, 1, 4]),
                   dispatch_bytes=pick([1, 2]))
    slow = rng.random()
    if kind == "context" and slow < 0.6:  # designs in which the port of cp, ep or pp is the bottleneck
        row.update(cp=pick([4, 8]), tp=1, scaleup_domain=pick([1, 2]), link_gbps=_log(rng, 5, 50), seq_len=2048, dp=pick([1, 2]))
    elif kind == "experts" and slow < 0.5:
        row.update(ep=8, scaleup_domain=pick([1, 2]), link_gbps=_log(rng, 20, 200), tp=1, top_k=8, micro_batch=4, dp=8, expert_ffn=1024)
    elif kind == "pipeline" and slow < 0.3:
        row.update(tp=1, link_gbps=_log(rng, 5, 25), micro_batch=4, scaleup_domain=1, dp=1, layers=row["pp"])
        blocks = 1
    elif kind == "plain" and slow < 0.3:  # ... or the update
        row.update(seq_len=128, micro_batch=1, micro_batches=1, dp=1, cp=1, tp=1, hbm_gbytes_per_s=300, peak_tflops=2250, vocab=0)
        m = 1
    if kind != "hsdp":
        row["shard_group"] = pick([1, 1, 4]) if kind == "sharded-pipeline" and row["dp"] % 4 == 0 else 1
        row["shard_group"] = row["dp"] * row["cp"] / row["shard_group"]
    if kind == "contention":
        row.update(overlap_slowdown=rng.random(), comm_slowdown=pick([0.0, rng.random()]), zero_stage=pick([0, 1] if row["pp"] > 1 else [0, 1, 2]))
    if kind == "rare":
        row.update(sync_every=pick([2, 10, 100]), sync_fragments=rng.randint(1, 8))
    gradient = row["grad_bytes"] * (12 * row["hidden"] ** 2 * blocks / row["tp"] + row["vocab"] * row["hidden"] / row["tp"])
    if row["experts"]:
        gradient += row["grad_bytes"] * blocks * row["experts"] / row["ep"] * 3 * row["hidden"] * row["expert_ffn"]
    row["bucket_bytes"] = max(gradient / rng.uniform(0.5, 20), MIB)
    row["first_bucket_bytes"] = pick([row["bucket_bytes"], MIB, row["bucket_bytes"] / 3])
    return row


def floats(low, high):
    """Positive numbers spread over their orders of magnitude."""
    return st.floats(0, 1).map(lambda x: low * (high / low) ** x)


def broken(seed, count):
    """Designs of which most cannot run, each for a reason drawn at random (others may follow from it); ``gpus`` in place of ``dp``."""
    rng = random.Random(f"broken {seed}")
    rows = [_design(rng, KINDS[k % len(KINDS)], False) for k in range(count)]
    for k, row in enumerate(rows):
        row["gpus"] = row.pop("dp") * row["tp"] * row["cp"] * row["pp"]
        _break(rng, row, ("ok", "gpus", "heads", "layers", "batch", "experts", "schedule", "shard_group", "contention", "memory")[k % 10])
    return {name: np.array([row[name] for row in rows], dtype=float) for name in rows[0]}


def _break(rng, row, reason):
    if reason == "gpus":
        row["gpus"] += 1 if row["gpus"] > 1 else 0.5
    elif reason == "heads":
        row["tp"] = rng.choice([3, 7])
        row["gpus"] *= row["tp"]
    elif reason == "layers":
        row.update(pp=2, layers=2 * rng.randint(0, 2) + 1, gpus=2 * row["gpus"])
    elif reason == "batch":
        row["micro_batches"] = rng.choice([0.5, 1.5, 2.25])
    elif reason == "experts":
        row.update(rng.choice([dict(ep=3), dict(experts=4, top_k=8), dict(ep=2, experts=0, top_k=0)]))
    elif reason == "schedule":
        row.update(rng.choice([dict(pp=2, vpp=2, layers=4, micro_batches=3), dict(schedule=2, pp=3, layers=3), dict(pp=1, vpp=2, layers=2)]))
        row["gpus"] *= row["pp"]
    elif reason == "shard_group":
        row["shard_group"] = row["shard_group"] * 2 + 1
    elif reason == "contention":
        row.update(overlap_slowdown=1.5, comm_slowdown=rng.choice([0.7, 1.0]))
    elif reason == "memory":
        row["hbm_gb"] = 1
