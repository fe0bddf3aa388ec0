"""Overlap itself, scored as differences: A/B rows, ablations, contention and slopes, predicted beside measured.

Step times hardly see overlap (leaving out the data-parallel term fits H100 rows as well), so what overlap gains is compared apart: two
runs that differ in one switch, or a published ablation, each as a ratio of step times.
"""

from typing import NamedTuple

import numpy as np

from . import predictions, presets, runs

AB_ROWS = (  # (what, row without, row with): the ratio of step times says what the switch gains
    ("expert-parallel overlap, HybridEP, Qwen3-30B on 16 H100", "r1236", "r1238"),
    ("expert-parallel overlap, alltoall dispatcher, Qwen3-30B on 16 H100", "r1239", "r1240"),
    ("async tensor parallelism, Llama-3 70B float8 on 256 H100 (2025)", "r0579", "r0580"),
    ("async tensor parallelism, Llama-3 8B bf16 on 64 H100", "r0583", "r0584"),
    ("async tensor parallelism, Llama-3 70B float8 on 256 H100 (2024)", "r0569", "r0570"),
    ("selective recomputation, Moonlight-16B on 8 H100 (mla_up_proj)", "r1247", "r1245"),
    ("sequence parallelism and selective instead of full recomputation, 22B", "r0781", "r0782"),
    ("sequence parallelism and selective instead of full recomputation, 175B", "r0783", "r0784"),
    ("sequence parallelism and selective instead of full recomputation, 530B", "r0785", "r0786"),
    ("sequence parallelism and selective instead of full recomputation, 1T", "r0787", "r0788"),
    ("micro-batch 1 to 4, 181B tp 8 pp 12 on 384 A100", "r0828", "r0830"),
    ("two replicas of tp 4 instead of one of tp 8, 39B on 512 A100 (pp 4)", "vt_m0063", "vt_m0042"),
)


class Contrast(NamedTuple):
    """``measured`` and ``predicted`` gains: step time without over with, minus 1."""

    what: str
    measured: float
    predicted: float
    source: str


def contrasts():
    """Every contrast that can be predicted."""
    found = ab_rows() + schedules() + buckets() + contention()
    return [c for c in found if np.isfinite(c.predicted)]


def ab_rows():
    """Pairs of rows of training_runs.csv."""
    by_id = {run.id: run for run in runs.read_runs() if run.usable}
    pairs = [(what, by_id[a], by_id[b]) for what, a, b in AB_ROWS if a in by_id and b in by_id]
    seconds = predictions.predict([run for _, a, b in pairs for run in (a, b)])
    return [
        Contrast(what, a.step_s / b.step_s - 1, seconds[2 * k] / seconds[2 * k + 1] - 1, a.source)
        for k, (what, a, b) in enumerate(pairs)
    ]


def _gain(off, on, outputs="step_time_s"):
    from .evaluations import evaluate

    return float(evaluate([outputs], **off)[outputs]) / float(evaluate([outputs], **on)[outputs]) - 1


def schedules():
    """Pipeline schedules, and MegaScale's ablation (175B on 256 A100: published as MFU, so gains are ratios of MFU)."""
    seven = {
        "model": "llama-2-7b",
        "accelerator": "mi300x",
        "pp": 8,
        "gpus": 8,
        "micro_batches": 16,
        "seq_len": 4096,
        "efficiency": 0.4,
    }
    mega = {
        "model": "gpt-3-175b",
        "accelerator": "a100",
        "fabric": "selene",
        "stack": "megatron-2021",
        "tp": 8,
        "pp": 8,
        "vpp": 6,
        "gpus": 256,
        "global_batch": 768,
        "seq_len": 2048,
    }
    primus = "github:AMD-AGI/Primus:docs_deprecated/tech_blogs/primus_pipeline/primus_pipeline.md"
    megascale = "arXiv:2402.15627 (MegaScale), table 3"
    apart = {"bucket_bytes": 1e15, "zero_stage": 1, "param_gather": "exposed"}
    together = {"bucket_bytes": 80e6, "zero_stage": 1, "bucketing": "first", "param_gather": "at_once"}
    return [
        Contrast("vpp 2 over 1F1B, Llama-2 7B pp 8, one MI300 node", 0.09, _gain(seven, seven | {"vpp": 2}), primus),
        Contrast(
            "ZB-H1 over 1F1B, Llama-2 7B pp 8, one MI300 node",
            0.13,
            _gain(seven, seven | {"schedule": "zb-h1"}),
            primus,
        ),
        Contrast(
            "tensor-parallel overlap, 175B on 256 GPUs",
            55.5 / 53.3 - 1,
            _gain(mega | {"tp_overlap_chunks": 1}, mega | {"tp_overlap_chunks": 4}),
            megascale,
        ),
        Contrast(
            "data-parallel overlap, 175B on 256 GPUs", 59.5 / 58.0 - 1, _gain(mega | apart, mega | together), megascale
        ),
    ]


def buckets():
    """DDP's buckets against one all-reduce after the backward pass: BERT-large in fp32 on four servers of 8 V100, one 100 Gb/s port each.

    The source does not state the batch: the largest gain of any is given, so that less than the measured one would refute the model.
    """
    bert = {"layers": 24, "hidden": 1024, "heads": 16, "ffn": 4096, "vocab": 30522, "tied_embeddings": 1, "seq_len": 512}
    v100 = {"peak_tflops": 15.7, "efficiency": 0.8, "hbm_gb": 32, "hbm_gbytes_per_s": 900, "scaleup_domain": 8}
    network = {"scaleup_gbytes_per_s": 150, "scaleup_efficiency": 0.8, "link_gbps": 100 / 8, "link_efficiency": 0.9}
    design = bert | v100 | network | {"gpus": 32, "grad_bytes": 4, "param_bytes": 4}
    mib = 2.0**20
    gain = max(
        _gain(design | {"micro_batch": b, "bucket_bytes": 1e15}, design | {"micro_batch": b, "bucket_bytes": 25 * mib, "first_bucket_bytes": mib})
        for b in (1, 2, 4, 8, 16, 32)
    )
    source = "arXiv:2006.15704 (PyTorch DDP), as quoted in overlap_facts.csv"
    return [Contrast("DDP buckets of 25 MiB over one all-reduce at the end, BERT on 32 V100 (batch not stated: the largest gain)", 0.352, gain, source)]


def contention():
    """Slow-down of compute under communication: the stacks' kappa against what was measured apart."""
    stacks = [
        p.numbers["overlap_slowdown"]
        for p in presets.read_table("stack").values()
        if p.numbers.get("overlap_slowdown", 0) > 0
    ]
    if not stacks:
        return []
    return [
        Contrast(
            "compute slowed by concurrent communication, mean of 4 GPUs of H100, A100, MI250, MI210",
            0.189,
            float(np.median(stacks)),
            "arXiv:2507.03114 (measured mean 18.9 %, at most 40 %)",
        )
    ]
