"""A bundle reruns its sweep, compares every number, and is the same again."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import sweep
from sweep import papers, recipes
from sweep.errors import SweepError
from tests import datasets

ROOT = Path(__file__).resolve().parent.parent / "configs"
SMALL = {
    "title": "Small",
    "axes": {"accelerator": ["a100", "a100-40gb"], "dtype": ["bf16", "tf32"], "layout": {"tp": [1, 8], "pp": [2, 1]}, "link_gbps": [100, 400, float("inf")]},
    "fixed": {"model": "llama-3-8b", "dp": 64, "efficiency": 0.4},
    "outputs": ["step_time_s", "required_link_gbps", "mfu"],
}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("stores") / "small.zarr"
    content = {**SMALL, "axes": {"accelerator": ["a100", "h100"], "tp": [1, 8], "link_gbps": [100, 200, 400, 800]}}
    sweep.run(sweep.Spec.from_dict(content), path)
    return path


def files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_the_bundle_of_a_store_is_whole_and_the_same_again(store, tmp_path):
    ds = sweep.open_store(store)
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        parts = dict(papers.paper(ds, folder, at={"tp": "8"}))
    assert files(first) == files(second) and papers.check(first, second) == []
    assert {"captions.tex", "numbers.tex", "methods.tex", "references.bib", "Makefile", "paper.tex", "provenance.json"} <= set(files(first))
    assert parts["lines"].endswith("lines.pdf") and (first / "data" / "lines.csv").is_file()
    assert papers.settings_of(first) == ({"tp": "8"}, [])
    methods = (first / "methods.tex").read_text()
    assert set(re.findall(r"\\cite\{([^}]*)\}", methods)) and all(
        f"{{{key}," in (first / "references.bib").read_text() for keys in re.findall(r"\\cite\{([^}]*)\}", methods) for key in keys.split(",")
    )
    numbers = json.loads((first / "numbers.json").read_text())
    value = float(ds.required_link_gbps.sel(accelerator="h100", tp=8))
    assert numbers["requiredLinkGbpsHOneZeroZero"]["value"] == pytest.approx(value, rel=1e-6)


def test_a_rerun_from_the_bundle_gives_every_number_again(store, tmp_path, monkeypatch):
    bundle = tmp_path / "bundle"
    papers.paper(sweep.open_store(store), bundle)
    monkeypatch.chdir(bundle)
    spec = sweep.Spec.load("configs/sweep.yaml")
    assert spec.sha256 == sweep.open_store(store).attrs["spec_sha256"]
    sweep.run(spec, "rerun.zarr")
    papers.paper(sweep.open_store("rerun.zarr"), "rerun")
    assert papers.check(".", "rerun") == []


def test_a_changed_number_is_found(store, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        papers.paper(sweep.open_store(store), folder)
    numbers = json.loads((second / "numbers.json").read_text())
    numbers["mfuMax"]["value"] *= 1.001
    (second / "numbers.json").write_text(json.dumps(numbers))
    lines = (second / "data" / "lines.csv").read_text().splitlines()
    (second / "data" / "lines.csv").write_text("\n".join([lines[0], lines[1][:-3] + "999", *lines[2:]]) + "\n")
    found = papers.check(first, second)
    assert len(found) == 2 and "mfuMax" in found[1 - ("lines" in found[1])] and any("mfu differs in 1 rows, first in row 1" in text for text in found)


@pytest.mark.parametrize("path", sorted(ROOT.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_config_writes_back_to_the_same_hash(path, tmp_path, monkeypatch):
    spec = sweep.Spec.load(path)
    recipes.write(json.loads(json.dumps(spec.canonical())), tmp_path)
    monkeypatch.chdir(tmp_path)
    assert sweep.Spec.load("configs/sweep.yaml").sha256 == spec.sha256


def test_tables_over_two_axes_and_groups_write_back(tmp_path, monkeypatch):
    spec = sweep.Spec.from_dict(SMALL)
    assert "peak_tflops" in spec.canonical()["tables"]
    recipes.write(json.loads(json.dumps(spec.canonical())), tmp_path)
    monkeypatch.chdir(tmp_path)
    assert sweep.Spec.load("configs/sweep.yaml").sha256 == spec.sha256


def test_a_point_is_given_back_without_what_its_presets_say():
    spec = sweep.Spec.load("quickstart").canonical()
    inputs = recipes.inputs_at(json.loads(json.dumps(spec)), {"model": 1, "accelerator": 1, "tp": 3, "link_gbps": 2})
    assert inputs == {"model": "llama-3-70b", "accelerator": "h100", "tp": 8, "link_gbps": 200, "dp": 128}


def test_a_dataset_without_a_spec_makes_a_bundle_without_a_rerun(tmp_path):
    parts = dict(papers.paper(datasets.make(2), tmp_path))
    assert "does not carry its spec" in parts["configs"]
    assert "check:" not in (tmp_path / "Makefile").read_text()


def test_what_is_not_a_bundle_is_said(tmp_path):
    for call in (lambda: papers.check(tmp_path, tmp_path), lambda: papers.settings_of(tmp_path)):
        with pytest.raises(SweepError, match="is not a bundle"):
            call()


@pytest.mark.skipif(not shutil.which("pdflatex") or not shutil.which("make"), reason="no TeX here")
def test_the_document_builds(store, tmp_path):
    papers.paper(sweep.open_store(store), tmp_path)
    subprocess.run(["make", "paper.pdf"], cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "paper.pdf").stat().st_size > 10_000


@pytest.mark.skipif(not shutil.which("make"), reason="no make here")
def test_make_check_passes_in_a_fresh_bundle_and_fails_when_a_number_is_altered(store, tmp_path):
    bundle = tmp_path / "bundle"
    papers.paper(sweep.open_store(store), bundle, at={"tp": "8"})
    check = ["make", "check", f"SWEEP={sys.executable} -m sweep.cli"]
    passed = subprocess.run(check, cwd=bundle, capture_output=True, text=True)
    assert passed.returncode == 0 and "every number and figure's data as in ." in passed.stderr, passed.stdout + passed.stderr
    table = bundle / "data" / "lines.csv"
    table.write_text(re.sub(r",0\.(\d)", ",0.9\\1", table.read_text(), count=1))
    failed = subprocess.run(check, cwd=bundle, capture_output=True, text=True)
    assert failed.returncode and "data/lines.csv: mfu differs in 1 rows" in failed.stdout, failed.stdout + failed.stderr
