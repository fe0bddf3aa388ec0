"""`sweep calibrate` from logs and from own runs: presets are written where they are found again, with their residuals."""

import csv

import numpy as np
import pytest
from test_calibration import FOOTER, HEADER, table

from sweep import calibrating, curves, presets, runs
from sweep.errors import SweepError


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_logs_become_a_fabric(here):
    said = []
    gather, reduce_ = here / "gather.log", here / "reduce.log"
    gather.write_text(
        "all_gather_perf\n" + HEADER + table("all_gather", 4, redop="none", latency=4e-5, rate=45e9) + FOOTER
    )
    reduce_.write_text("all_reduce_perf\n" + HEADER + table("all_reduce", 4, latency=6e-5, rate=44e9) + FOOTER)
    text = calibrating.from_logs([gather, reduce_], "ours", "h100", say=said.append)
    assert "held-out sizes" in text and "configs/presets/fabrics.yaml" in text
    assert len(said) == 2 and "11 rows" in said[0] and "comment" in said[0]
    preset = presets.find("fabric", "ours")
    assert preset.numbers["link_efficiency"] == pytest.approx(45e9 / 2 * 8 / 400e9, rel=0.05)
    law = preset.facts["laws"]["all_gather out-2"]
    predicted = curves.seconds(
        curves.Law(law["a0_us"] * 1e-6, law["a1_us"] * 1e-6, law["gbytes_per_s"] * 1e9, law["r1"], law["r2"]),
        "all_gather",
        2.0**30,
        4,
        2,
    )
    assert predicted == pytest.approx(4e-5 + 0.75 * 2.0**30 / 45e9, rel=0.05)


def test_a_log_without_rows_says_so(here):
    path = here / "empty.log"
    path.write_text("nothing\n")
    with pytest.raises(SweepError, match="no row of nccl-tests"):
        calibrating.from_logs([path], "ours", say=lambda text: None)


def test_own_runs_become_a_stack(here):
    """Rows of a published source under another name: the columns alone must do."""
    wanted = {"r0019", "r0023", "r0034", "r0036", "r0044", "r0049", "r0056", "r0061"}
    with runs.data_path("training_runs.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["id"] in wanted]
    for row in rows:
        row["source"], row["split"] = "ours", "test" if row["id"] == "r0056" else ""
    with (here / "runs.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    text = calibrating.from_runs(here / "runs.csv", "our-stack", say=lambda text: None)
    assert "rows fitted" in text and "rows kept for the test" in text
    preset = presets.find("stack", "our-stack")
    assert 0.05 <= preset.numbers["attention_efficiency"]["bf16"] <= 0.8
    assert preset.facts["rows"] == len(wanted) - 1
    assert np.isfinite(preset.facts["median_error"])
