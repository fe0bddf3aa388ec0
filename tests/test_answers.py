"""``sweep why``: the answer read back from a store, and what it says of a store that cannot give it."""

import csv
import io
import json
import shlex

import pytest

import sweep
from sweep import answers
from sweep._kernels import quantities

AXES = {
    "model": ["llama-3-8b", "llama-3-70b"],
    "accelerator": ["v100", "a100", "h100", "b200", "gb300"],
    "seq_len": [1024, 8192],
    "micro_batch": [1, 2],
    "tp": [1, 8],
    "dp": [128, 4096],
    "link_gbps": [100, 400],
}
OUTPUTS = [*answers.NEEDED, "step_time_s", "exposed_fraction", "binding_dimension"]


def dataset(**change):
    inputs = {**AXES, "fabric": "ideal", "efficiency": 0.4, "scaleup_gbytes_per_s": float("inf"), **change}
    return sweep.evaluate([*OUTPUTS, "status"], **inputs)


@pytest.fixture(scope="module")
def said():
    return answers.answer(dataset())


def test_first_order_numbers_of_the_generations(said):
    first = {row.accelerator: row.first_order_gbps for row in said.rows}
    expected = {"v100": 48.8, "a100": 121.9, "h100": 386.3, "b200": 878.9}
    assert first == pytest.approx(expected | {"gb300": first["gb300"]}, rel=1e-3)
    h100 = next(row for row in said.rows if row.accelerator == "h100")
    assert h100.tokens_first_order == pytest.approx(7912, rel=1e-3) and h100.ships_gbps == 400


def test_every_number_is_the_stores(said):
    ds = dataset()
    for row in said.rows:
        point = ds.sel(accelerator=row.accelerator, model="llama-3-70b", dp=4096, **row.at)
        assert float(point.tokens_per_domain) == 8192 and row.scale == 1
        assert row.required_gbps == float(point.required_link_gbps) and row.achieved_tflops == float(
            point.achieved_tflops
        )
        assert row.least_gbps <= row.required_gbps <= row.most_gbps
    assert next(row for row in said.rows if row.accelerator == "gb300").at == {
        "tp": 8,
        "seq_len": 1024,
        "micro_batch": 1,
    }


def test_another_window_is_rescaled_by_the_law_and_says_so():
    said = answers.answer(dataset(seq_len=[2048], micro_batch=[1], tp=[8]))
    h100 = next(row for row in said.rows if row.accelerator == "h100")
    assert h100.scale == 0.25 and h100.first_order_gbps == pytest.approx(386.2, rel=1e-3)
    assert "Rescaled by the law" in said.text() and "h100 2,048" in said.text()


def test_text_names_all(said):
    text = said.text()
    assert all(f"\n  {name}: 8 x " in text for name in AXES["accelerator"])
    assert "dp 4096" in text and "llama-3-70b" in text and text.count("\n  sweep ") == 3
    rows = list(csv.DictReader(io.StringIO(said.render("csv"))))
    assert [row["accelerator"] for row in rows] == AXES["accelerator"]
    assert json.loads(said.render("json"))[2]["ships_gbps"] == 400


def test_commands_can_be_typed(tmp_path, monkeypatch, capsys):
    from sweep.cli import main
    from sweep.execute import run

    monkeypatch.chdir(tmp_path)
    axes = AXES | {"seq_len": [4096, 8192], "accelerator": ["a100", "h100"], "dp": [128]}
    fixed = {"fabric": "ideal", "efficiency": 0.4}
    run(
        sweep.Spec.from_dict({"axes": axes, "fixed": fixed, "outputs": OUTPUTS, "allow": ["memory"]}),
        "outputs/small.zarr",
    )
    said = answers.answer("small")
    assert said.path.endswith("small.zarr")
    for command in said.commands():
        with pytest.raises(SystemExit) as end:
            main(shlex.split(command)[1:])
        assert end.value.code == 0, capsys.readouterr().err
    assert (tmp_path / "outputs" / "step.png").exists() and (tmp_path / "outputs" / "exposed.png").exists()


def test_a_store_that_lacks_what_is_needed():
    with pytest.raises(sweep.SweepError, match="has no tokens_per_domain.*sweep run why-400g"):
        answers.answer(dataset().drop_vars("tokens_per_domain"))
    with pytest.raises(sweep.SweepError, match="has no accelerator"):
        answers.answer(dataset(accelerator="h100"))
    with pytest.raises(sweep.SweepError, match="is not in this store"):
        answers.answer(dataset(), model="gpt-3-175b")
    with pytest.raises(sweep.SweepError, match="no window of v100 has a finite requirement"):
        answers.answer(dataset(dp=[1], tp=[8]))


def test_nothing_is_hard_coded():
    ds = dataset()
    ds["required_link_gbps"] = ds["required_link_gbps"] * 3
    ds["required_link_gbps"].attrs["units"] = quantities.OUTPUTS["required_link_gbps"].unit
    twice = {row.accelerator: row.required_gbps for row in answers.answer(ds).rows}
    once = {row.accelerator: row.required_gbps for row in answers.answer(dataset()).rows}
    assert twice == pytest.approx({name: 3 * value for name, value in once.items()})
