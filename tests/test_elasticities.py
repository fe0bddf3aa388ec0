"""Elasticities of the required port: the two ways of taking them agree, the law's are those of its formula, and asked for alone."""

import math

import numpy as np
import pytest
import strategies
from kernels import quantities
from kernels.model import ALL, Inputs, evaluate

import sweep
from sweep.spec import Spec
from sweep.stages import Stages, double_precision

NAMES = quantities.ELASTICITIES
IDEAL = dict(
    params=70e9, accelerator="h100", tp=8, dp=4096, efficiency=0.4, link_latency_us=0, scaleup_latency_us=0, algorithm="hierarchical",
    scaleup_gbytes_per_s=math.inf,
)  # fmt: skip


def in_blocks(spec):
    """name -> array over the whole mesh, by the compiled stages."""
    stages = Stages(spec.mesh, spec.outputs, spec.mesh.shape, stored="float64")
    found = stages((0,) * len(spec.mesh.shape))
    with double_precision():
        return {name: np.broadcast_to(np.asarray(value), spec.mesh.shape) for name, value in found.items()}


CASES = {
    "calibrated": dict(model="llama-3-70b", accelerator=["a100", "h100"], tp=8, dp=[2, 64, 96], zero_stage=[0, 1], link_latency_us=[0, 5]),
    "sharded": dict(model="llama-3-8b", accelerator="h100", dp=[16, 64], zero_stage=3, recompute=["none", "full"], efficiency=[0.3, 0.31, 0.45, 0.5]),
    "pipelined": dict(model="llama-3-70b", accelerator="h100", tp=8, dp=[16, 64], pp=[1, 4], schedule=["1f1b", "zb-h1", "dualpipe"]),
    "contended": dict(
        model="mixtral-8x7b", accelerator="h100", ep=8, pp=4, dp=[16, 32], micro_batches=8, overlap_slowdown=[0.1, 0.3], comm_slowdown=0.2,
        oversubscription=[1, 2], pod_gpus=64, algorithm="hierarchical",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_derivatives_and_differences_agree(case):
    spec = Spec.from_inputs([*NAMES, "required_link_gbps"], **CASES[case])
    compiled, plain = in_blocks(spec), evaluate(spec.mesh.block(), [*NAMES, "required_link_gbps"])
    finite = compiled["required_link_gbps"] > 0
    assert finite.any() and np.isfinite(compiled["required_link_gbps"][finite]).any()
    moved = set()
    for name in NAMES:
        there, here = compiled[name], np.broadcast_to(plain[name], spec.mesh.shape)
        assert (np.isnan(there) == np.isnan(here)).all(), name
        assert np.nanmax(np.abs(there - here), initial=0.0) < 1e-6, name
        if np.nanmax(np.abs(there), initial=0.0) > 1e-3:
            moved.add(name.removeprefix("elasticity_"))
    assert {"micro_batch", "grad_bytes", "link_efficiency", "bucket_bytes"} - (
        {"bucket_bytes", "grad_bytes"} if case == "sharded" else set()
    ) <= moved


def test_random_designs_agree_where_both_sides_do():
    """Against one-sided differences of the requirement itself, on both sides, where these agree (elsewhere there is a kink)."""
    batch = strategies.designs(3, 120)
    inputs = {name: column for name, column in batch.items()}
    h, checked = 2e-6, 0
    base = evaluate(Inputs(**inputs), ["required_link_gbps"])["required_link_gbps"]
    names = [
        "micro_batch",
        "peak_tflops",
        "grad_bytes",
        "bucket_bytes",
        "link_latency_us",
        "scaleup_gbytes_per_s",
        "oversubscription",
        "comm_slowdown",
    ]
    slopes = evaluate(Inputs(**inputs), [f"elasticity_{name}" for name in names])
    for name in names:
        sides = []
        for sign in (1, -1):
            moved = evaluate(Inputs(**inputs | {name: inputs[name] * (1 + sign * h)}), ["required_link_gbps"])[
                "required_link_gbps"
            ]
            with np.errstate(all="ignore"):
                sides.append(np.log(moved / base) / np.log1p(sign * h))
        smooth = np.isclose(*sides, rtol=1e-3, atol=1e-4) & (base > 0) & np.isfinite(base)
        checked += smooth.sum()
        assert np.allclose(slopes[f"elasticity_{name}"][smooth], sides[0][smooth], rtol=2e-3, atol=2e-4), name
    assert checked > 300
    none = (base == 0) | np.isinf(base)
    assert none.any() and all(np.isnan(np.broadcast_to(value, base.shape)[none]).all() for value in slopes.values())


def test_the_laws_own():
    """Section 1: proportional to FLOP rate and gradient bytes, inversely to tokens and what the port delivers; nothing else moves it."""
    out = sweep.evaluate([*NAMES], **IDEAL)
    wanted = {
        "micro_batch": -1,
        "efficiency": 1,
        "peak_tflops": 1,
        "grad_bytes": 1,
        "link_efficiency": -1,
        "oversubscription": 1,
    }
    for name in quantities.SMOOTH:
        value = float(out[f"elasticity_{name}"])
        if name == "seq_len":  # tokens, less the growing attention
            assert -1.5 < value < -1
        elif name == "gemm_efficiency" or name in wanted:
            assert (
                value == pytest.approx(wanted.get(name, 0), abs=1e-6) or math.isnan(value) and name == "gemm_efficiency"
            ), name
        else:
            assert value == pytest.approx(0, abs=1e-6), name


def test_where_there_is_nothing_to_move():
    inside = sweep.evaluate(
        ["elasticity_grad_bytes", "required_link_gbps"], model="llama-3-8b", accelerator="h100", dp=8
    )
    assert float(inside.required_link_gbps) == 0 and math.isnan(float(inside.elasticity_grad_bytes))
    never = sweep.evaluate(
        ["elasticity_grad_bytes", "required_link_gbps"],
        model="llama-3-8b",
        accelerator="h100",
        dp=64,
        link_latency_us=1e6,
    )
    assert math.isinf(float(never.required_link_gbps)) and math.isnan(float(never.elasticity_grad_bytes))
    given = sweep.evaluate(
        ["elasticity_efficiency", "elasticity_overlap_slowdown"], model="llama-3-8b", accelerator="h100", dp=64
    )
    assert math.isnan(float(given.elasticity_efficiency)) and float(given.elasticity_overlap_slowdown) == 0


def test_only_when_asked_for():
    assert not set(NAMES) & set(quantities.STEP_OUTPUTS) and not set(NAMES) & set(ALL)
    design = dict(model="llama-3-8b", accelerator="h100", dp=64)
    assert not set(NAMES) & set(sweep.evaluate(**design).data_vars)
    assert not set(NAMES) & set(Spec.from_dict({"fixed": design, "outputs": "all"}).outputs)


def test_explain_prints_the_same_and_a_store_keeps_them(tmp_path):
    worked = sweep.explain(model="llama-3-8b", accelerator="h100", dp=64)
    shown = {lever.name: lever.elasticity for lever in worked.levers if lever.elasticity is not None}
    asked = ["elasticity_grad_bytes", "elasticity_micro_batch"]
    axes = {"dp": [16, 64], "accelerator": ["h100", "b200"]}
    spec = Spec.from_dict(
        {
            "axes": axes,
            "fixed": {"model": "llama-3-8b"},
            "outputs": asked,
            "store": {"dtype": "float64"},
            "allow": ["memory"],
        }
    )
    sweep.run(spec, tmp_path / "slopes.zarr")
    row = sweep.query(sweep.open_store(tmp_path / "slopes.zarr"), at={"dp": 64, "accelerator": "h100"}).iloc[0]
    assert len(shown) > 6 and set(quantities.SMOOTH) > set(shown)
    for name in asked:
        assert row[name] == pytest.approx(shown[name.removeprefix("elasticity_")], abs=1e-6), name
