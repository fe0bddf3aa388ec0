"""Intervals about step times: the family's own width, the same everywhere it is shown, and named with what it rests on."""

import json
import math

import numpy as np
import pytest

import sweep
from sweep import cli, intervals, runs, scores, validation
from sweep.errors import SweepError

DESIGN = dict(model="llama-3-70b", accelerator="h100", tp=8, dp=16, micro_batches=4)


@pytest.fixture(scope="module")
def ds():
    names = ["step_time_s", "mfu", "required_link_gbps", "status"]
    axes = dict(model=["llama-3-8b", "mixtral-8x7b"], accelerator=["a100", "h100", "h200"], micro_batch=[0.0625, 1])
    return sweep.evaluate(names, **axes, dp=16, seq_len=2048)


def test_a_run_is_of_the_family_that_validation_scores_it_in():
    usable = runs.usable(runs.read_runs())
    kept = validation.stored()["interval"]["half_width"]
    for run in usable[::7]:
        wanted = scores.family(run)
        given = {name: run.inputs.get(name) for name in intervals.DECIDING} | {"accelerator": run.accelerator}
        given["experts"] = run.family.endswith("MoE")
        assert intervals.family_of(given) == (wanted if wanted in kept else "all")


def test_at_least_as_many_seen_runs_lie_between_the_ends_as_the_level_says():
    report = validation.validate()
    seen = [row for row in report.rows if row["split"] == "fit"]
    by_id = {run.id: run for run in runs.usable(runs.read_runs())}
    for level in (50, 80, 95):
        inside = []
        for row in seen:
            run = by_id[row["id"]]
            given = run.inputs | {"accelerator": run.accelerator, "experts": run.family.endswith("MoE")}
            low, high = intervals.interval(row["predicted_s"], intervals.family_of(given), level)
            inside.append(low <= row["measured_s"] <= high)
        assert level / 100 - 0.03 < np.mean(inside) < level / 100 + 0.15


def test_a_band_says_what_it_rests_on():
    rested = validation.stored()["interval"]["residuals"]
    band = intervals.band("hopper dense", 80)
    assert band.rows == rested["hopper dense"] and f"{band.rows} published runs" in band.words()
    assert band.factor == pytest.approx(math.exp(validation.stored()["interval"]["levels"]["80"]["hopper dense"]))
    small = intervals.band("volta dense", 80)
    assert small.family == "all" and small.rows == rested["all"] and "all families" in small.words()
    assert intervals.band("hopper dense", 50).factor < band.factor < intervals.band("hopper dense", 95).factor


def test_the_ends_stand_on_what_decides_the_family(ds):
    bands = intervals.dataset(ds, 80)
    assert "required_link_gbps_low" not in bands
    family = bands.family.sel(model="llama-3-8b", accelerator="a100")
    assert list(family.values) == ["ampere dense host-bound", "ampere dense"]
    assert set(bands.family.sel(accelerator="h200").values.ravel()) == {"all"}
    assert (
        "blackwell" not in str(bands.family.values)
        and bands.family.sel(model="mixtral-8x7b", accelerator="h100", micro_batch=1) == "hopper MoE"
    )
    ratio = bands.step_time_s_high / ds.step_time_s
    for place in np.ndindex(*bands.family.shape):
        where = dict(zip(bands.family.dims, place))
        assert ratio.isel(where).values == pytest.approx(intervals.band(str(bands.family.isel(where).values)).factor)
    assert np.allclose(bands.mfu_low * bands.mfu_high, ds.mfu**2)


@pytest.mark.parametrize(
    "asked",
    [{}, {"best": "step_time_s", "over": "micro_batch"}, {"pareto": "step_time_s,mfu"}, {"columns": "step_time_s"}],
)
def test_a_query_carries_the_ends(ds, asked):
    plain = sweep.query(ds, **asked, allow=["memory"])
    table = sweep.query(ds, **asked, interval=90, allow=["memory"])
    added = [name for name in table.columns if name not in plain.columns]
    shown = [name for name in plain.columns if name in intervals.SCALED]
    assert added == [f"{name}_{side}" for name in shown for side in ("low", "high")] + ["interval_family"]
    assert table[list(plain.columns)].equals(plain)
    place = list(table.columns).index("step_time_s")
    assert list(table.columns[place + 1 : place + 3]) == ["step_time_s_low", "step_time_s_high"]
    factor = [intervals.band(name, 90).factor for name in table.interval_family]
    assert np.allclose(table.step_time_s_high, table.step_time_s * factor) and np.allclose(
        table.step_time_s_low, table.step_time_s / factor
    )
    assert any("90 % interval of" in note and "published runs" in note for note in table.attrs["notes"])
    assert table.attrs["units"]["step_time_s_low"] == "s"


def test_a_fixed_accelerator_decides_too():
    ds = sweep.evaluate(["step_time_s"], **DESIGN | {"model": "llama-3-8b", "micro_batch": 2}, link_gbps=[200, 400])
    assert set(sweep.query(ds, interval=80).interval_family) == {"hopper dense"}
    peaks = dict(peak_tflops=989, hbm_gb=80, hbm_gbytes_per_s=3350, scaleup_domain=8, scaleup_gbytes_per_s=450)
    free = sweep.evaluate(["step_time_s"], params=1e9, dp=16, link_gbps=[200, 400], **peaks)
    assert set(sweep.query(free, interval=80).interval_family) == {"all"}


def test_explain_states_it():
    worked = sweep.explain(interval=80, **DESIGN)
    low, high = intervals.interval(worked.outputs["step_time_s"], "hopper dense", 80)
    text = worked.render("text", ["how sure"])
    assert worked.band.family == "hopper dense" and f"{worked.band.rows} published runs" in text
    content = json.loads(worked.render("json"))["interval"]
    assert content["ends"]["step_time_s"] == pytest.approx([low, high]) and content["rows"] == worked.band.rows
    assert "How sure" not in sweep.explain(**DESIGN).text()


@pytest.mark.parametrize(
    "words, said",
    [
        (["explain", "model=llama-3-8b", "accelerator=h100", "--interval", "77"], "77 per cent is not kept"),
        (
            ["explain", "--about", "money", "model=llama-3-8b", "accelerator=h100", "--interval", "80"],
            "--interval stands about",
        ),
        (["explain", "model=llama-3-8b", "accelerator=h100", "--interval", "many"], "not a valid integer"),
    ],
)
def test_bad_input_is_one_line(words, said, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(words)
    error = capsys.readouterr().err
    assert end.value.code == 2 and said in error and error.count("\n") == 1


def test_what_has_no_interval_says_so(ds):
    with pytest.raises(SweepError, match="none of the columns has one.*step_time_s"):
        sweep.query(ds, columns="required_link_gbps", interval=80)
    with pytest.raises(SweepError, match="stands beside points"):
        sweep.query(ds, count=True, interval=80)
