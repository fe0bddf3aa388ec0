"""Laws that a physicist would check, over random whole designs: what holds whatever the features in use."""

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from strategies import KINDS, designs, floats

from kernels import model, quantities

FEW = settings(max_examples=10, deadline=None, derandomize=True, phases=[Phase.generate])  # a design is no clearer for being shrunk
batches = st.tuples(st.integers(0, 10**6), st.sampled_from(KINDS), st.booleans())


def evaluate(values, *outputs):
    """Outputs of a batch as full arrays."""
    known = tuple((name, tuple(sorted(set(np.ravel(column).tolist())))) for name, column in values.items()
                  if quantities.INPUTS[name].kind != "float" and name not in ("dp", "gpus"))
    found = model.evaluate(model.Inputs(**values, known=known), outputs)
    count = max(np.size(column) for column in values.values())
    return [np.broadcast_to(found[name], (count,)).astype(float) for name in outputs]


def draw(batch, count=40):
    seed, kind, calibrated = batch
    return designs(seed, count, calibrated, kind)


# -- requirements ------------------------------------------------------------------------------------------------------


@FEW
@given(batches, floats(0.02, 50))
def test_requirement_does_not_depend_on_the_link_assumed(batch, factor):
    values = draw(batch)
    names = [name for name in quantities.OUTPUTS if name.startswith("required_link") or name == "link_gbps_at_tolerance"]
    for name, here, there in zip(names, evaluate(values, *names), evaluate(values | {"link_gbps": values["link_gbps"] * factor}, *names)):
        np.testing.assert_array_equal(here, there, name)


@FEW
@given(batches, floats(0.001, 0.5))
def test_setting_the_link_to_the_answer_meets_the_tolerance(batch, tolerance):
    """link_gbps_at_tolerance gives back exposed <= tol/(1-tol) (step - exposed), and a link 0.1 % slower does not where it binds."""
    values = draw(batch) | {"tolerance": np.array([tolerance])}
    (answer,) = evaluate(values, "link_gbps_at_tolerance")
    finite = np.isfinite(answer) & (answer > 0)
    if not finite.any():
        return
    at = values | {"link_gbps": np.where(finite, answer, 400.0)}
    step, exposed = evaluate(at, "step_time_s", "exposed_dp_s")
    allowed = tolerance / (1 - tolerance) * (step - exposed)
    assert np.all(exposed[finite] <= allowed[finite] * (1 + 1e-9) + 1e-12)
    # where nothing else changes with the link the answer is the slowest link that does
    alone = finite & (values["pp"] == 1) & (values["tp"] == 1) & (values["cp"] == 1) & (values["ep"] == 1) & (values["dp"] > 1)
    slower = at | {"link_gbps": at["link_gbps"] * 0.999}
    step, exposed = evaluate(slower, "step_time_s", "exposed_dp_s")
    allowed = tolerance / (1 - tolerance) * (step - exposed)
    assert np.all(exposed[alone] > allowed[alone] * (1 - 1e-12) - 1e-15)


@FEW
@given(batches)
def test_tolerance_never_asks_for_less_under_contention(batch):
    values = draw(batch)
    still = values | {"overlap_slowdown": np.array([0.0]), "comm_slowdown": np.array([0.0])}
    (free,) = evaluate(still, "link_gbps_at_tolerance")
    for slowdown, comm_slowdown in ((0.3, 0.0), (0.5, 0.5)):
        (slow,) = evaluate(still | {"overlap_slowdown": np.array([slowdown]), "comm_slowdown": np.array([comm_slowdown])},
                           "link_gbps_at_tolerance")
        assert np.all(slow >= free * (1 - 1e-9))


# -- monotone ----------------------------------------------------------------------------------------------------------


@FEW
@given(batches, floats(1.001, 30))
def test_more_bandwidth_is_never_slower(batch, factor):
    values = draw(batch)
    names = ("step_time_s", "exposed_dp_s", "exposed_tp_s", "exposed_cp_s", "exposed_ep_s", "exposed_pp_s")
    slow, fast = evaluate(values, *names), evaluate(values | {"link_gbps": values["link_gbps"] * factor}, *names)
    for name, here, there in zip(names, slow, fast):
        if name == "exposed_dp_s":  # a slower hop is slack for the last stage: held where there are no stages
            here, there = here[values["pp"] == 1], there[values["pp"] == 1]
        assert np.all((there <= here * (1 + 1e-12) + 1e-15) | np.isnan(here)), name


@FEW
@given(batches, st.sampled_from(["link_latency_us", "scaleup_latency_us"]), floats(0.1, 100))
def test_more_latency_is_never_faster(batch, name, more):
    values = draw(batch)
    here, there = (evaluate(v, "step_time_s")[0] for v in (values, values | {name: values[name] + more}))
    assert np.all((there >= here * (1 - 1e-12)) | np.isnan(here))


# -- bounds ------------------------------------------------------------------------------------------------------------


@FEW
@given(batches)
def test_step_lies_between_its_parts_and_their_sum(batch):
    values = draw(batch)
    step, compute, comm, exposed, update, bubble, *others = evaluate(
        values, "step_time_s", "compute_time_s", "dp_comm_time_s", "exposed_dp_s", "optimizer_time_s", "bubble_time_s",
        "exposed_tp_s", "exposed_cp_s", "exposed_ep_s", "exposed_pp_s")
    ok = ~np.isnan(step)
    assert np.all(step[ok] >= compute[ok] * (1 - 1e-12))
    assert np.all(step[ok] >= (compute + exposed + update)[ok] * (1 - 1e-12))
    # every stage of the fill waits for its own gathers where forwards reach it: more than one GPU's communication
    filled = (values["zero_stage"] >= 1) & ((values["param_gather"] == 0) | (values["zero_stage"] >= 3)) & (values["pp"] > 1)
    free = ok & (values["sync_every"] <= 1) & ~filled
    if not np.any(values["overlap_slowdown"]):
        repeated = np.where((values["zero_stage"] == 2), values["micro_batches"], 1.0) + 0 * comm
        assert np.all(exposed[free] <= (comm * repeated)[free] * (1 + 1e-9) + 1e-15)
    assert np.all(exposed[ok] >= 0) and np.all(bubble[ok] >= 0)
    for other in others:
        assert np.all(other[ok] >= -1e-15)


@FEW
@given(batches)
def test_hidden_and_exposed_make_the_communication(batch):
    values = draw(batch)
    comm, exposed, hidden = evaluate(values, "dp_comm_time_s", "exposed_dp_s", "hidden_fraction")
    ok = ~np.isnan(exposed) & (exposed <= comm)
    np.testing.assert_allclose((comm * hidden + exposed)[ok], comm[ok], rtol=1e-12, atol=1e-15)
    assert np.all(hidden[(comm == 0) & ~np.isnan(exposed)] == 1)


# -- features switched off ---------------------------------------------------------------------------------------------

OFF = (
    {"prefetch": 3, "reshard_after_forward": 0, "reshard_last_block": 1},  # nothing to gather below ZeRO-3
    {"param_gather": 0}, {"param_gather": 1}, {"param_gather": 2},  # nothing to gather at ZeRO-0
    {"cp_method": 0}, {"cp_method": 1},  # one context rank
    {"tp_overlap_chunks": 7, "sequence_parallel": 1},  # one tensor rank
    {"ep_overlap_chunks": 5, "node_limit": 4, "dispatch_bytes": 1},  # one expert rank
    {"sync_fragments": 5},  # synchronised every step
    {"comm_slowdown": 0.0, "overlap_slowdown": 0.0},
)


@pytest.mark.parametrize("other", OFF, ids=lambda other: "-".join(other))
@pytest.mark.parametrize("calibrated", [False, True])
def test_a_feature_that_is_off_changes_nothing(other, calibrated):
    values = designs(11, 120, calibrated, "plain") | {"tp": np.array([1.0]), "cp": np.array([1.0]), "zero_stage": np.array([0.0])}
    values["shard_group"] = values["dp"]
    names = ("step_time_s", "exposed_dp_s", "required_link_gbps", "link_gbps_at_tolerance")
    changed = values | {name: np.array([float(value)]) for name, value in other.items()}
    for name, here, there in zip(names, evaluate(values, *names), evaluate(changed, *names)):
        np.testing.assert_array_equal(here, there, name)


def test_branches_that_cannot_occur_change_nothing():
    """``known`` only shortens the program: without it, and one design at a time, the numbers are the same."""
    for kind in KINDS:
        values = designs(5, 24, kind == "plain", kind)
        (told,) = evaluate(values, "step_time_s")
        untold = np.broadcast_to(model.evaluate(model.Inputs(**values), ("step_time_s",))["step_time_s"], told.shape)
        np.testing.assert_allclose(untold, told, rtol=1e-12, err_msg=kind)
        for k in range(0, 24, 6):
            one = model.evaluate(model.Inputs(**{name: float(column[k]) for name, column in values.items()}), ("step_time_s",))
            np.testing.assert_allclose(float(one["step_time_s"]), told[k], rtol=1e-12, err_msg=f"{kind} {k}")


# -- the first-order law -----------------------------------------------------------------------------------------------

IDEAL = dict(hbm_gb=80, hbm_gbytes_per_s=3350, scaleup_domain=1, scaleup_gbytes_per_s=450, link_gbps=400, peak_tflops=989.0,
             efficiency=0.4, dp=4096, seq_len=8192)


def one(*outputs, **inputs):
    found = model.evaluate(model.Inputs(**inputs), outputs)
    return [float(found[name]) for name in outputs]


@pytest.mark.parametrize("peak, gbps", [(125, 48.8), (312, 121.9), (989, 386.3), (2250, 878.9), (1979, 773)])
def test_first_order_numbers(peak, gbps):
    (found,) = one("first_order_link_gbps", **IDEAL | {"peak_tflops": peak, "params": 70e9})
    assert found == pytest.approx(gbps, rel=1e-3)


@settings(max_examples=12, deadline=None, derandomize=True, phases=[Phase.generate])
@given(floats(1e8, 1e13), floats(1e8, 1e13), st.sampled_from([1, 2, 8]), st.sampled_from([1, 4]))
def test_model_size_is_not_in_it(small, large, tp, pp):
    """d log B / d log P = 0: without attention, latency and ends neither P nor tp nor pp sets the requirement at given tokens per domain."""
    ideal = IDEAL | dict(dp=2**24, seq_len=1, micro_batch=8192, link_latency_us=0.0, scaleup_domain=8, scaleup_latency_us=0.0,
                         scaleup_gbytes_per_s=1e12, bucket_bytes=1.0)  # tp inside the domain lengthens the window
    first = one("first_order_link_gbps", "required_link_gbps", **ideal | {"params": small})
    second = one("first_order_link_gbps", "required_link_gbps", **ideal | {"params": large, "tp": tp, "pp": pp, "micro_batch": 8192 * tp,
                                                                                 "micro_batches": 2 * pp})  # tokens of the domain count
    assert second[0] == pytest.approx(first[0], rel=1e-5)
    assert second[1] == pytest.approx(first[1], rel=1e-3)
    assert first[1] == pytest.approx(first[0], rel=1e-3)


def test_two_holders_of_a_stage():
    """DualPipe doubles bytes and the window that hides them, so that what is left of it is the larger group: 2(2n-1)/2n to 2(n-1)/n.

    By hand, one block of 12 x 1024^2 parameters a stage, two domains of one GPU, 16-bit gradients: each GPU reduces 2 x 25.2 MB
    over 4 domains, 75.5 MB on its port, where under 1F1B it sends 25.2 MB.
    """
    shape = dict(layers=2, hidden=1024, heads=8, vocab=0, pp=2, dp=2, micro_batches=8, seq_len=1024, algorithm=1)
    plain = IDEAL | shape | dict(link_latency_us=0.0, scaleup_latency_us=0.0, bucket_bytes=1e12)
    law, comm = one("first_order_link_gbps", "dp_comm_time_s", **plain)
    twice, all_of_it = one("first_order_link_gbps", "dp_comm_time_s", **plain | {"schedule": 2})
    assert twice == pytest.approx(1.5 * law, rel=1e-12)
    block = 2 * (12 * 1024**2 + 2 * 1024)
    assert comm == pytest.approx(block / 50e9, rel=1e-12)
    assert all_of_it == pytest.approx(2 * 1.5 * block / 50e9, rel=1e-12)


def test_what_moves_the_first_order_law():
    base, doubled, two, recompute = (one("first_order_link_gbps", **IDEAL | {"params": 70e9} | more)[0]
                                     for more in ({}, {"grad_bytes": 4}, {"dp": 2}, {"recompute": 2}))
    assert doubled == pytest.approx(2 * base)
    assert two == pytest.approx(base / 2, rel=1e-3)
    assert recompute == pytest.approx(base * 2 / 3)
