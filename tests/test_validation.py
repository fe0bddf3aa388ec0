"""Rows become inputs as each source means them; a fit reads no test row; the figures kept are those of this code."""

import json

import numpy as np
import pytest

from sweep import calibration, leverages, predictions, presets, runs, scores, targets, validation
from sweep.errors import SweepError


@pytest.fixture(scope="module")
def everything():
    return runs.read_runs()


@pytest.fixture(scope="module")
def by_id(everything):
    return {run.id: run for run in everything}


def test_every_row_is_usable_or_has_a_reason(everything):
    assert len(everything) == 1474
    assert all(run.reason or np.isfinite(run.step_s) for run in everything)
    assert len(runs.usable(everything)) > 1200


def test_split_is_respected_and_repeats_are_one_row(everything):
    distinct = runs.usable(everything)
    assert len({run.key for run in distinct}) == len(distinct)
    sides = {}
    for run in distinct:
        sides.setdefault(run.key, set()).add(run.split)
    assert all(len(side) == 1 for side in sides.values())


@pytest.mark.parametrize(
    "row, name, value",
    [
        ("r0982", "vpp", 12),  # dgxc Nemotron4: blank in the older table, printed in the newer
        ("r0954", "layers", 8),  # dgxc Llama-405B at 32 GPUs is cut
        ("r0130", "layers", 12),  # MPT-125m: joined by name
        ("r0797", "layers", 77),  # BigScience h 14400: (P - V h)/(12 h^2)
        ("r0797", "heads", 80),
        ("r0013", "reshard_after_forward", 0),  # SHARD_GRAD_OP
        ("r0704", "global_batch", 16),  # SimuMax: mbc is the number of micro-batches
        ("r0704", "micro_batch", 1),
        ("vt_m0001", "vocab", 51200),
        ("r0747", "sequence_parallel", 0),
        ("r0932", "sequence_parallel", 1),
        ("r0747", "grad_bytes", 2),
        ("r0704", "grad_bytes", 4),
    ],
)
def test_traps(by_id, row, name, value):
    assert by_id[row].usable, by_id[row].reason
    assert by_id[row].inputs[name] == value


def test_precisions_are_not_read_as_bf16(by_id):
    assert (by_id["r0477"].recipe, by_id["r0478"].recipe) == ("fp8", "mxfp8")  # two precisions in one cell of 25.09
    assert by_id["r0477"].inputs["dtype"] == by_id["r0478"].inputs["dtype"] == "fp8"
    assert by_id["r0076"].inputs["dtype"] == "fp8"  # amp_fp8


def test_what_cannot_be_used_says_why(by_id):
    assert "packed" in by_id["r0280"].reason and "packed" in by_id["r0516"].reason
    assert "micro-batch" in by_id["r0571"].reason
    assert "rowwise" in " ".join(run.reason for run in by_id.values())


def test_torchtitan_compile_is_read_before_the_semicolon(by_id):
    assert by_id["r0559"].stack == "llm-foundry-hopper"  # eager
    assert by_id["r0560"].stack == "torchtitan-compile"


def test_step_times(by_id):
    run = by_id["r0001"]  # 1007 tokens/s and GPU
    assert run.step_s == pytest.approx(4096 * 2048 / (512 * 1007))
    hardware = 96 * 512 * 2048 * 24 * 2304**2 * (1 + 2048 / (6 * 2304) + 51200 / (16 * 24 * 2304))
    assert by_id["r0747"].step_s == pytest.approx(hardware / (32 * 137e12), rel=1e-6)


def test_model_flop_agrees_with_what_sources_print(everything):
    """TFLOP/s times seconds is the FLOP the source counted: NVIDIA's and llm-foundry's full attention, to 2 %."""
    import csv

    printed = {}
    with runs.data_path("training_runs.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            if row["tflops_per_gpu"] and row["tokens_per_s_per_gpu"]:
                printed[row["id"]] = float(row["tflops_per_gpu"]) * 1e12 / float(row["tokens_per_s_per_gpu"])
    ours = {run.id: runs.flop_per_token(run.inputs) for run in everything if run.usable and run.id in printed}
    wanted = ("llm-foundry", "NeMo 24", "NeMo-Framework")
    mine = [run.id for run in everything if run.id in ours and run.source.startswith(wanted)]
    assert len(mine) > 100
    assert np.median([abs(ours[k] / printed[k] - 1) for k in mine]) < 0.02


# -- fits -------------------------------------------------------------------------------------------------------------


def test_fitting_never_reads_test_rows(everything):
    """Whatever the test rows say, the fit is the same; and a test row handed to a fit is refused."""
    name = "torchtitan-compile"
    spoiled = [run._replace(step_s=1e9) if run.split == "test" else run for run in everything]
    first, second = calibration.fit_stacks(everything, [name])[name], calibration.fit_stacks(spoiled, [name])[name]
    assert first.values == second.values and first.chunks == second.chunks
    with pytest.raises(ValueError, match="test row"):
        calibration.fit_stack(name, [run for run in everything if run.stack == name])


def test_a_fit_finds_what_made_the_rows(everything):
    rows = [run for run in runs.usable(everything) if run.stack == "llm-foundry-hopper" and run.split == "fit"]
    numbers = presets.find("stack", "llm-foundry-hopper").numbers
    made = predictions.predict(rows)
    rows = [run._replace(step_s=float(seconds)) for run, seconds in zip(rows, made, strict=True)]
    fit = calibration.fit_stack("llm-foundry-hopper", rows)
    assert np.max(np.abs(fit.errors)) < 0.02
    assert fit.values["attention_efficiency"] == pytest.approx(numbers["attention_efficiency"]["bf16"], rel=0.1)


def test_runs_unlike_their_like_do_not_bend_a_fit(everything):
    rows = [run for run in runs.usable(everything) if run.stack == "llm-foundry-hopper" and run.split == "fit"]
    made = [run._replace(step_s=float(s)) for run, s in zip(rows, predictions.predict(rows), strict=True)]
    spoiled = [run._replace(step_s=run.step_s * (1.5 if k % 6 == 0 else 1.0)) for k, run in enumerate(made)]
    fit = calibration.fit_stack("llm-foundry-hopper", spoiled)
    others = np.array([k % 6 != 0 for k in range(len(rows))])
    assert np.median(np.abs(fit.errors[others])) < 0.01 and np.all(fit.errors[~others] < -0.25)


def test_few_rows_have_large_leverages(everything):
    rows = [run for run in runs.usable(everything) if run.split == "fit" and run.stack in ("megatron-eager", "megatron-2021")]
    found = leverages.leverages(rows)
    few = np.array([run.stack == "megatron-2021" for run in rows])
    assert np.all((found >= 0) & (found <= leverages.HIGHEST)) and found[few].mean() > 0.3 > 0.05 > found[~few].mean()
    error = np.full(len(rows), 0.05)
    plain, held = scores.spread(rows, error), scores.spread(rows, error, leverage=found)
    assert all(held[name] >= plain[name] for name in plain) and held["all"] > plain["all"]


def test_coefficients_are_physical():
    for preset in presets.read_table("accelerator").values():
        best = preset.facts.get("max_matmul_tflops", {})
        for dtype, measured in best.items():
            share = preset.numbers.get("gemm_efficiency", {}).get(dtype, 0)
            assert share <= measured / preset.numbers["peak_tflops"][dtype] + 1e-9, (preset.name, dtype)


# -- scores and figures -----------------------------------------------------------------------------------------------


def test_the_figures_kept_are_those_of_this_code():
    """A change of the kernels, the presets or the conventions that moves a figure is seen here; refit or explain it."""
    kept = validation.stored()
    now = validation.kept(validation.validate())
    for old, new in zip(kept["targets"], now["targets"], strict=True):
        assert old["rows"] == new["rows"] and old["count"] == new["count"]
        if new["value"] is not None and np.isfinite(new["value"]):
            assert new["value"] <= old["value"] * 1.05 + 0.002, f"{new['rows']}: {old['value']} became {new['value']}"
    for name, old in kept["by_family"].items():
        assert now["by_family"][name]["median"] <= old["median"] * 1.1 + 0.003, name


def test_better_than_the_yardsticks():
    yardsticks = validation.stored()["yardsticks"]["all"]
    assert yardsticks["model"]["median"] < yardsticks["constant fraction of peak"]["median"]
    assert yardsticks["model"]["median"] < yardsticks["nearest fit row"]["median"]


def test_most_targets_are_reached():
    reached = [row["reached"] for row in validation.stored()["targets"] if row["reached"] is not None]
    assert np.mean(reached) >= 0.6
    assert len(reached) <= len(targets.TARGETS)


def test_order_and_choice():
    inputs = {"layers": 1, "hidden": 1, "seq_len": 1, "gpus": 1, "global_batch": 1}
    made = [
        runs.Run(str(k), "s", "f", "test", "h100", "", "", "bf16", inputs, s) for k, s in enumerate((1.0, 1.05, 2.0))
    ]
    assert scores.ordered(made, [1.0, 0.9, 3.0]) == (1.0, 2)
    assert scores.choice(made, [3.0, 1.0, 2.0]) == [pytest.approx(0.05)]


def test_own_runs_need_the_columns(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text("id,source\n1,mine\n")
    with pytest.raises(SweepError, match="no column"):
        runs.read_runs(path)


def test_kept_figures_are_plain():
    assert json.loads(json.dumps(validation.stored())) == validation.stored()
