"""The random designs that the simulator checks are counted: every category, and every feature where it matters, in at least 1 %."""

from collections import Counter

import numpy as np
import pytest
from strategies import KINDS, code, designs
from test_model_oracle import COUNT, evaluated

from kernels import quantities
from kernels.quantities import INPUTS

LEAST = 0.01


@pytest.fixture(scope="module")
def drawn():
    """(inputs, outputs) of a batch of each kind and law of compute, one after the other."""
    columns, found = [], []
    for kind in KINDS:
        for calibrated in (False, True):
            values = designs(1, 100, calibrated, kind)
            outputs, _ = evaluated(values, ("bottleneck", "dp_algorithm", "status"))
            columns.append(values), found.append(outputs)
    names = set.intersection(*map(set, columns))
    joined = {name: np.concatenate([values[name] for values in columns]) for name in names}
    return joined, {name: np.concatenate([outputs[name] for outputs in found]) for name in found[0]}


def test_as_many_as_promised():
    assert COUNT // (2 * len(KINDS)) * 2 * len(KINDS) >= 2000


@pytest.mark.parametrize("name", ["bottleneck", "dp_algorithm"])
def test_every_category_occurs(drawn, name):
    values, outputs = drawn
    words = quantities.OUTPUTS[name].choices
    seen = Counter(words[int(code)] for code in outputs[name])
    expected = {"bottleneck": quantities.BOTTLENECKS, "dp_algorithm": quantities.ALGORITHMS}[name]
    rare = {word: seen[word] for word in expected if seen[word] < LEAST * len(outputs[name])}
    assert not rare, rare


@pytest.mark.parametrize("name", ["schedule", "recompute", "bucketing", "param_gather", "cp_method", "rails", "algorithm", "attention"])
def test_every_choice_occurs(drawn, name):
    values, _ = drawn
    seen = Counter(values[name].tolist())
    rare = {word: seen[number] for number, word in enumerate(INPUTS[name].choices) if seen[number] < LEAST * len(values[name])}
    assert not rare, rare


def _ranks(v):
    return v["dp"] * v["cp"]


def _out(v):
    return _ranks(v) * v["tp"] > v["scaleup_domain"]


FEATURES = {
    "tensor parallelism in chunks": lambda v: (v["tp"] > 1) & (v["tp_overlap_chunks"] > 1),
    "tensor parallelism over the port": lambda v: v["tp"] > v["scaleup_domain"],
    "ring attention": lambda v: (v["cp"] > 2) & (v["cp_method"] == code("cp_method", "ring")),
    "ring attention with a recomputed core": lambda v: (v["cp"] > 1) & (v["cp_method"] == 0) & (v["recompute"] == 1),
    "gathered keys and values": lambda v: (v["cp"] > 1) & (v["cp_method"] == 1),
    "context over the port": lambda v: v["cp"] * v["tp"] > v["scaleup_domain"],
    "experts exchanged in chunks": lambda v: (v["ep"] > 1) & (v["ep_overlap_chunks"] > 1),
    "experts over the port": lambda v: v["ep"] > v["scaleup_domain"],
    "node-limited routing that limits": lambda v: (v["node_limit"] > 0) & (v["ep"] > v["scaleup_domain"])
    & (v["node_limit"] / np.maximum(v["top_k"], 1) < 1 - v["scaleup_domain"] / v["ep"]),
    "dispatch in another type": lambda v: (v["ep"] > 1) & (v["dispatch_bytes"] == 1),
    "shared experts": lambda v: v["shared_experts"] > 0,
    "dense layers before experts": lambda v: v["dense_layers"] > 0,
    "switches reduce across (SHARP)": lambda v: (v["algorithm"] == code("algorithm", "in-network")) & (v["zero_stage"] == 0) & _out(v),
    "switches reduce inside (NVLS)": lambda v: (v["algorithm"] == code("algorithm", "in-network")) & (v["zero_stage"] == 0)
    & (_ranks(v) > 1) & (v["scaleup_domain"] >= 2 * v["tp"]),
    "one port a domain": lambda v: (v["rails"] == 1) & (v["scaleup_domain"] > v["tp"]) & _out(v),
    "an oversubscribed tier": lambda v: (v["oversubscription"] > 1) & (_ranks(v) * v["tp"] > v["pod_gpus"]),
    "low-latency protocols": lambda v: v["ll_bandwidth_ratio"] > 1,
    "channels that cap the port": lambda v: (v["channels"] > 0) & (8 * v["channels"] * 20 < v["link_gbps"]),
    "messages of half the rate": lambda v: v["link_half_bytes"] > 0,
    "pipelined tiers": lambda v: v["pipeline_chunks"] > 1,
    "tied embeddings": lambda v: (v["tied_embeddings"] == 1) & (v["vocab"] > 0),
    "a small first bucket": lambda v: v["first_bucket_bytes"] < v["bucket_bytes"],
    "gradients in fp32": lambda v: v["grad_bytes"] == 4,
    "ZeRO-1": lambda v: v["zero_stage"] == 1,
    "ZeRO-1 in a pipeline": lambda v: (v["zero_stage"] == 1) & (v["pp"] > 1),
    "ZeRO-1 with DualPipe": lambda v: (v["zero_stage"] == 1) & (v["schedule"] == code("schedule", "dualpipe")),
    "ZeRO-2": lambda v: v["zero_stage"] == 2,
    "FSDP without prefetch": lambda v: (v["zero_stage"] == 3) & (v["prefetch"] == 0),
    "FSDP two blocks ahead": lambda v: (v["zero_stage"] == 3) & (v["prefetch"] >= 2),
    "FSDP not resharded": lambda v: (v["zero_stage"] == 3) & (v["reshard_after_forward"] == 0),
    "FSDP with its last block resharded": lambda v: (v["zero_stage"] == 3) & (v["reshard_last_block"] == 1),
    "FSDP in a pipeline": lambda v: (v["zero_stage"] == 3) & (v["pp"] > 1) & (v["schedule"] == 0),
    "FSDP under interleaving": lambda v: (v["zero_stage"] == 3) & (v["vpp"] > 1),
    "FSDP with weight gradients apart": lambda v: (v["zero_stage"] == 3) & (v["schedule"] == code("schedule", "zb-h1")),
    "HSDP": lambda v: (v["zero_stage"] == 3) & (v["shard_group"] < _ranks(v)),
    "HSDP in a pipeline": lambda v: (v["zero_stage"] == 3) & (v["shard_group"] < _ranks(v)) & (v["pp"] > 1),
    "interleaving": lambda v: v["vpp"] > 1,
    "contention": lambda v: v["overlap_slowdown"] > 0,
    "contention of both sides": lambda v: v["comm_slowdown"] > 0,
    "contention in a pipeline": lambda v: (v["overlap_slowdown"] > 0) & (v["pp"] > 1),
    "contention of chunks": lambda v: (v["overlap_slowdown"] > 0) & (v["vpp"] > 1),
    "rare synchronisation in fragments": lambda v: (v["sync_every"] > 1) & (v["sync_fragments"] > 1),
}
"""Where each feature can be seen in a step."""


@pytest.mark.parametrize("name", FEATURES)
def test_every_feature_occurs(drawn, name):
    values, _ = drawn
    assert np.mean(FEATURES[name](values)) >= LEAST


def test_most_designs_can_run(drawn):
    """Status is drawn elsewhere (each reason in at least 1 %); here nearly every design is compared whole."""
    _, outputs = drawn
    words = Counter(quantities.REASONS[int(number)] for number in outputs["status"])
    assert words["ok"] + words["memory"] == sum(words.values())
