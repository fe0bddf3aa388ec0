"""Exports hold what the dataset holds, stream, and say where they come from."""

import hashlib
import json
import math
import shutil
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from sweep import latex
from sweep.errors import SweepError
from sweep.exports import export
from sweep.queries import query
from tests import datasets

NAMES = ["model", "tp", "link_gbps", "step_time_s", "mfu", "bottleneck", "memory_bytes"]


def read(path):
    return pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_rows_are_the_points_of_a_query(tmp_path, kind):
    ds = datasets.make(4, chunks=(2, 3, 2))
    path = export(ds, tmp_path / f"points.{kind}", where="mfu > 0.2", columns=NAMES, allow=["memory"])
    expected = query(ds, where="mfu > 0.2", columns=NAMES, allow=["memory"], limit=None)
    got = read(path).astype({"model": object, "bottleneck": object})
    order = ["model", "tp", "link_gbps"]  # rows come block by block
    got, expected = (frame.sort_values(order, ignore_index=True) for frame in (got, expected))
    pd.testing.assert_frame_equal(got, expected, check_dtype=False, rtol=1e-6)
    if kind == "parquet":
        assert got.mfu.dtype == np.float32 and got.tp.dtype == np.int64


def test_winners_and_empty_answers(tmp_path):
    ds = datasets.make(4)
    path = export(ds, tmp_path / "best.csv", best="step_time_s", over="tp,link_gbps")
    assert read(path).model.tolist() == list(ds.model.values)
    for kind in ("csv", "parquet"):
        assert len(read(export(ds, tmp_path / f"none.{kind}", where="mfu > 2"))) == 0


def test_netcdf_keeps_axes_and_marks_what_is_left_out(tmp_path):
    ds = datasets.make(4, chunks=(2, 3, 2))
    path = export(ds, tmp_path / "slice.nc", at={"model": ["llama-3-8b", "llama-3-70b"]})
    with xr.open_dataset(path, engine="h5netcdf") as got:
        assert got.sizes == {"model": 2, "tp": 4, "link_gbps": 5}
        assert got.model.values.tolist() == ["llama-3-8b", "llama-3-70b"]
        assert got.step_time_s.attrs["units"] == "s" and got.status.dtype == np.uint8
        expected = ds.isel(model=[0, 1])
        np.testing.assert_array_equal(got.mfu.values, expected.mfu.where(expected.status == 0).values)
        np.testing.assert_array_equal(got.memory_bytes.values, expected.memory_bytes.values)
        np.testing.assert_array_equal(got.layers.values, expected.layers.values)


def test_provenance_stands_beside(tmp_path):
    ds = datasets.make(4)
    path = export(ds, tmp_path / "points.csv", where="mfu > 0.2")
    content = json.loads((tmp_path / "points.csv.provenance.json").read_text())
    assert content["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert content["question"] == {"where": "mfu > 0.2"} and content["rows"] == len(read(path))
    assert content["units"]["link_gbps"] == "Gb/s" and content["spec"]["presets"] == {"accelerator": "h100"}


def test_latex_table(tmp_path):
    ds = datasets.make(4)
    text = export(ds, tmp_path / "best.tex", best="step_time_s", over="tp,link_gbps").read_text()
    assert r"\toprule" in text and r"\unit{\second}" in text and text.count(r"\\") == 1 + 3
    with pytest.raises(SweepError, match="too many for a LaTeX table"):
        export(datasets.make(1, shape=(4, 8, 16)), tmp_path / "all.tex")


def test_latex_words():
    assert latex.escape("a_b & 50%\\") == r"a\_b \& 50\%\textbackslash{}"
    assert [latex.number(v) for v in (400.0, 0.0125, 1.5e9, 386.33, 3)] == ["400", "0.0125", "1.500e9", "386.3", "3"]
    assert latex.number(math.inf) == r"{$\infty$}" and latex.number(math.nan) == "{--}"
    assert latex.macro("required_link_gbps h100 8192") == "requiredLinkGbpsHOneZeroZeroEightOneNineTwo"


@pytest.mark.skipif(not shutil.which("pdflatex"), reason="no TeX here")
def test_latex_table_compiles(tmp_path):
    export(datasets.make(4), tmp_path / "best.tex", best="step_time_s", over="tp,link_gbps")
    document = "\\documentclass{article}\\usepackage{booktabs,siunitx}\\begin{document}\\input{best.tex}\\end{document}"
    (tmp_path / "doc.tex").write_text(document)
    subprocess.run(["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "doc.tex"], cwd=tmp_path, check=True, capture_output=True)


def test_nothing_is_left_of_a_failed_export(tmp_path):
    for path, options, said in (
        (tmp_path / "x.xlsx", {}, ".parquet"),
        (tmp_path / "no" / "x.csv", {}, "cannot be written"),
        (tmp_path / "x.nc", {"best": "mfu"}, "NetCDF keeps whole axes"),
        (tmp_path / "x.csv", {"columns": "mfuu"}, "'mfu'"),
        (tmp_path / "x.csv", {"where": "mfu >"}, "does not read"),
    ):
        with pytest.raises(SweepError, match=said):
            export(datasets.make(0), path, **options)
    assert list(tmp_path.iterdir()) == []


MEMORY = """
import resource, sys, numpy as np, xarray as xr
from sweep.exports import export
n = int(sys.argv[2])
ds = xr.Dataset({"a": (("x", "y"), np.arange(n, dtype="f4").reshape(n // 1000, 1000)), "s": ("x", np.zeros(n // 1000, "u1"))},
                {"x": np.arange(n // 1000), "y": np.array([f"word{i}" for i in range(1000)], object)})
for name, array in ds.data_vars.items():
    array.encoding["chunks"] = (1000, 1000)[: array.ndim]
export(ds, sys.argv[1])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def peak(path, rows):
    done = subprocess.run([sys.executable, "-c", MEMORY, str(path), str(rows)], capture_output=True, text=True, check=True)
    return float(done.stdout)


def test_memory_does_not_grow_with_rows(tmp_path):
    small, large = peak(tmp_path / "a.parquet", 100_000), peak(tmp_path / "b.parquet", 3_000_000)
    assert large - small < 90  # MB: 12 of them are the numbers themselves, the rest is one block
