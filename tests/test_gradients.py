"""Gradients of the step and of the requirement: finite where both are, NaN where they are not, and those of differences."""

import numpy as np
import pytest
from kernels import quantities
from kernels.model import Inputs, evaluate

jax = pytest.importorskip("jax")

LLAMA_70B = dict(layers=80, hidden=8192, ffn=28672, heads=64, kv_heads=8, head_dim=128, vocab=128256, gated_mlp=1)
H100 = dict(peak_tflops=989.0, hbm_gb=80.0, hbm_gbytes_per_s=3350.0, scaleup_domain=8, scaleup_gbytes_per_s=450.0, link_gbps=400.0)
POINT = dict(LLAMA_70B, **H100, tp=8, dp=64, micro_batches=8, efficiency=0.4)
CONTINUOUS = [row.name for row in quantities.INPUTS.values() if row.kind == "float"]


def gradient(output, **changes):
    """The value, and the derivative by every continuous input that is given or has a default."""
    point = POINT | changes
    given = {name: point.get(name, quantities.INPUTS[name].default) for name in CONTINUOUS}
    given = {name: float(value) for name, value in given.items() if value is not None}

    def value(numbers):
        result = evaluate(Inputs(**(point | numbers)), (output,))[output]
        return jax.numpy.asarray(result, float).sum()

    with jax.enable_x64(True):
        found = jax.grad(value)(given)
        return float(value(given)), {name: float(slope) for name, slope in found.items()}


@pytest.mark.parametrize("output", ["step_time_s", "required_link_gbps"])
@pytest.mark.parametrize("changes", [
    dict(pp=4), dict(zero_stage=3), dict(efficiency=None, gemm_efficiency=0.7, gemm_half_flop=1e10),
    dict(overlap_slowdown=0.2, comm_slowdown=0.1), dict(sync_every=10, sync_fragments=4), dict(dp=1),
], ids=lambda changes: "-".join(changes))
def test_gradients_are_finite(output, changes):
    value, slopes = gradient(output, **changes)
    assert np.isfinite(value)
    assert {name for name, slope in slopes.items() if not np.isfinite(slope)} == set()


def test_gradients_are_those_of_differences():
    value, slopes = gradient("step_time_s", pp=4)
    for name in ("link_gbps", "micro_batch", "efficiency", "grad_bytes", "link_latency_us", "bucket_bytes"):
        at = float(POINT.get(name, quantities.INPUTS[name].default))
        shift = 1e-6 * at
        ends = [evaluate(Inputs(**(POINT | {"pp": 4, name: at + sign * shift})), ("step_time_s",))["step_time_s"] for sign in (-1, 1)]
        assert slopes[name] == pytest.approx((ends[1] - ends[0]) / (2 * shift), rel=1e-4, abs=1e-12 * value / at), name
    assert slopes["link_gbps"] < 0 < slopes["micro_batch"]


def test_gradients_of_an_impossible_point_are_nan():
    value, slopes = gradient("step_time_s", tp=3)
    assert np.isnan(value) and np.isnan(slopes["efficiency"]) and np.isnan(slopes["link_gbps"])


@pytest.mark.parametrize("output, changes", [
    ("required_link_gbps", {}), ("required_link_gbps", dict(zero_stage=3)),
    ("link_gbps_at_tolerance", {}), ("link_gbps_at_tolerance", dict(zero_stage=1, overlap_slowdown=0.2)),
], ids=str)
def test_gradients_of_an_infinite_requirement_are_nan(output, changes):
    """By every input that moves the requirement where it is finite; NumPy says infinity without a warning."""
    never = changes | dict(link_latency_us=1e6)
    (near, moving), (far, slopes) = gradient(output, **changes), gradient(output, **never)
    assert np.isfinite(near) and np.isinf(far)
    assert {name for name, slope in moving.items() if not np.isfinite(slope)} == set()
    moved = {name for name, slope in moving.items() if slope != 0}
    assert "efficiency" in moved and {name for name in moved if not np.isnan(slopes[name])} == set()
    assert evaluate(Inputs(**(POINT | never)), (output,))[output] == np.inf


def test_gradients_beside_an_infinite_requirement_stay_finite():
    """Of a whole batch under jit and vmap: NaN at the point without a port, the single point's slope at the others."""

    def value(latency, efficiency):
        return evaluate(Inputs(**(POINT | dict(link_latency_us=latency, efficiency=efficiency))), ("required_link_gbps",))["required_link_gbps"]

    with jax.enable_x64(True):
        slopes = jax.jit(jax.vmap(jax.grad(value, (0, 1))))(np.array([5.0, 1e6]), np.array([0.4, 0.4]))
    _, alone = gradient("required_link_gbps", link_latency_us=5.0)
    for found, name in zip(slopes, ("link_latency_us", "efficiency")):
        assert found[0] == pytest.approx(alone[name]) and np.isnan(found[1])
