"""What somebody new tripped over: each ends in one line that says what to do, and loses nothing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sweep.errors import SpecError, StoreError
from sweep.execute import run
from sweep.spec import Spec

CONFIG = {"axes": {"tp": [1, 2, 4], "link_gbps": [100, 400]}, "fixed": {"model": "llama-3-8b", "accelerator": "h100", "dp": 64},
          "outputs": ["step_time_s", "required_link_gbps"]}


def sweep(*arguments, folder):
    """The command line in ``folder``: exit code, standard output, standard error."""
    done = subprocess.run([sys.executable, "-m", "sweep.cli", *arguments], cwd=folder, capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])})
    return done.returncode, done.stdout, done.stderr


def test_overwriting_never_takes_what_is_no_sweep(tmp_path):
    foreign = tmp_path / "foreign"
    (foreign / "sub").mkdir(parents=True)
    (foreign / "sub" / "thesis.txt").write_text("x")
    with pytest.raises(StoreError, match="is not a store"):
        run(Spec.from_dict(CONFIG), foreign, overwrite=True)
    assert (foreign / "sub" / "thesis.txt").read_text() == "x"
    store = tmp_path / "own.zarr"
    run(Spec.from_dict(CONFIG), store)
    (store / "notes").mkdir()
    (store / "notes" / "thesis.txt").write_text("x")
    with pytest.raises(StoreError, match="notes"):
        run(Spec.from_dict(CONFIG), store, overwrite=True)
    assert (store / "notes" / "thesis.txt").exists()
    (store / "notes" / "thesis.txt").unlink()
    (store / "notes").rmdir()
    assert run(Spec.from_dict(CONFIG), store, overwrite=True).complete


def test_a_port_must_be_one(tmp_path):
    for port in ("-4", "0", "nan", "inf"):
        code, out, error = sweep("fabric", "--gpus", "1024", "--link-gbps", port, folder=tmp_path)
        assert code == 2 and not out and error.count("\n") == 1, (port, error)


def test_a_gang_has_accelerators(tmp_path):
    code, out, error = sweep("capacity", "--gpus", "1024", "--gangs", "8,-4", folder=tmp_path)
    assert code == 2 and not out and "-4" in error


def test_counts_are_exact():
    with pytest.raises(SpecError, match="2\\^53"):
        Spec.from_dict({**CONFIG, "fixed": {**CONFIG["fixed"], "dp": 10**27}}).mesh  # noqa: B018
    with pytest.raises(SpecError, match="name of a preset"):
        Spec.from_dict({**CONFIG, "fixed": {**CONFIG["fixed"], "model": ["a"]}}).mesh  # noqa: B018


def test_check_says_what_is_left(tmp_path):
    run(Spec.from_dict(CONFIG), tmp_path / "s.zarr", part=(1, 2))
    run(Spec.from_dict(CONFIG), tmp_path / "s.zarr", part=(2, 2))
    assert sweep("check", "s.zarr", folder=tmp_path)[2] == ""
    chunk = next(one for one in sorted((tmp_path / "s.zarr" / "step_time_s" / "c").rglob("*")) if one.is_file())
    content = bytearray(chunk.read_bytes())
    content[len(content) // 2] ^= 1
    chunk.write_bytes(content)
    code, out, error = sweep("check", "s.zarr", "--repair", folder=tmp_path)
    assert code == 0 and "step_time_s" in out and "1 block still to be computed" in error


def test_a_query_of_half_a_sweep_says_so(tmp_path):
    config = {**CONFIG, "axes": {"tp": [1, 2, 4], "link_gbps": [100, 400]}, "store": {"block_points": 2}}
    run(Spec.from_dict(config), tmp_path / "s.zarr", part=(1, 3))
    code, out, error = sweep("query", "s.zarr", "--count", folder=tmp_path)
    assert code == 0 and "s.zarr: 1 of 3 blocks stored: the rest is missing" in error
    assert sweep("query", "s.zarr", "--count", "--quiet", folder=tmp_path)[2] == ""
    assert sweep("query", "s.zarr", "--where", "link_gbps > 1e6", "--best", "step_time_s", folder=tmp_path)[::2] == (
        0, error.replace("read 3", "read 0") + "no point matches\n",
    )  # fmt: skip
    code, _, error = sweep("query", "s.zarr", "--where", "tp > 100", "--sensitivity", "step_time_s", folder=tmp_path)
    assert code == 2 and "Widen it" in error
    for part in (2, 3):
        run(Spec.from_dict(config), tmp_path / "s.zarr", part=(part, 3))
    assert "missing" not in sweep("query", "s.zarr", "--count", folder=tmp_path)[2]


def test_nothing_to_compute_is_refused(tmp_path):
    (tmp_path / "none.yaml").write_text(json.dumps({**CONFIG, "where": "tp > 100"}))
    code, out, error = sweep("run", "none.yaml", folder=tmp_path)
    assert code == 2 and not out and error.count("\n") == 1 and "where leaves none of 6 points" in error
    assert [one.name for one in tmp_path.iterdir()] == ["none.yaml"]


def test_validation_is_strict_json(tmp_path):
    code, out, _ = sweep("validate", "--format", "json", folder=tmp_path)
    assert code == 0
    json.loads(out, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))


def test_a_lost_array_is_named(tmp_path):
    import shutil

    run(Spec.from_dict(CONFIG), tmp_path / "s.zarr")
    shutil.rmtree(tmp_path / "s.zarr" / "step_time_s")
    code, out, error = sweep("query", "s.zarr", "--best", "step_time_s", folder=tmp_path)
    assert code == 2 and not out and "step_time_s lost" in error


def test_what_cannot_run_says_so_first(tmp_path):
    code, out, _ = sweep("explain", "model=llama-3-70b", "accelerator=h100", "tp=128", "dp=4", folder=tmp_path)
    assert code == 0 and "No such run exists (heads)" in out.splitlines()[5]


def test_an_infinite_port_has_a_step_and_no_warning(tmp_path):
    code, out, error = sweep("explain", "model=llama-3-8b", "accelerator=h100", "dp=64", "link_gbps=inf", folder=tmp_path)
    assert code == 0 and out and not error


def test_a_block_that_is_missing_is_not_counted_by_its_status(tmp_path):
    """A status on fewer axes is there with the first block that has it."""
    config = {**CONFIG, "axes": {"link_gbps": [100, 200, 400], "tp": [4, 8]}, "store": {"block_points": 2}}
    run(Spec.from_dict(config), tmp_path / "s.zarr", part=(1, 3))
    for words in (("--count",), ("--where", "not (step_time_s < 0)", "--count")):
        out = sweep("query", "s.zarr", *words, "--allow", "memory", folder=tmp_path)[1]
        assert out.split()[2:] == ["2", "6"], words
    assert len(sweep("query", "s.zarr", "--allow", "memory", folder=tmp_path)[1].splitlines()) == 3


def test_a_run_writes_no_address(tmp_path):
    (tmp_path / "c.yaml").write_text(json.dumps(CONFIG))
    code, out, error = sweep("run", "c.yaml", "-o", "http://127.0.0.1:9/c.zarr", folder=tmp_path)
    assert code == 2 and not out and "file system" in error and [one.name for one in tmp_path.iterdir()] == ["c.yaml"]


def test_a_search_too_long_is_refused_before_it_takes_memory(tmp_path):
    point = ("model=llama-3-70b", "accelerator=h100", "tp=8", "dp=128", "link_gbps=400", "--allow", "memory")
    code, out, error = sweep("solve", "micro_batch", *point, "--upto", str(10**14), folder=tmp_path)
    assert code == 2 and not out and "too many at once" in error
    code, out, error = sweep("solve", "micro_batch", *point, "--upto", "64", "--find", "largest", folder=tmp_path)
    assert code == 0 and "more than 64 was not tried" in error


def test_a_list_of_one_insists_at_one_point(tmp_path):
    point = ("model=llama-3-8b", "accelerator=h100", "tp=8", "dp=64", "peak_tflops=[1979]")
    for words in (("--section", "answer"), ("--about", "money")):
        code, out, error = sweep("explain", *point, *words, folder=tmp_path)
        assert code == 0 and out and not error, error
    told = json.loads(sweep("explain", *point, "--format", "json", folder=tmp_path)[1])
    assert {"name": "peak_tflops", "value": 1979, "source": "given", "unit": "TFLOP/s"} in told["inputs"]
    assert sweep("explain", *point[:-1], "peak_tflops=[989, 1979]", folder=tmp_path)[0] == 2


def test_a_log_is_of_a_version_and_of_nodes(tmp_path):
    (tmp_path / "a.log").write_text("# all_reduce_perf\n 67108864 16777216 float sum -1 2900.0 23.14 43.2 0 2900.0 23.14 43.2 0\n")
    asked = ("diagnose", "a.log", "--fabric", "infiniband", "--accelerator", "h100", "--ranks", "16")
    assert sweep(*asked, "--nodes", "2", "--nccl", "2.21", folder=tmp_path)[0] == 0
    for words in (("--nccl", "newest"), ("--nodes", "0"), ("--ranks", "-1")):
        code, out, error = sweep(*asked, *words, folder=tmp_path)
        assert code == 2 and not out and words[1] in error, words


def test_a_home_of_somebody_else_is_passed_over(tmp_path, monkeypatch):
    from sweep import presets

    plain = Path.stat

    def stat(self, **words):
        if self.is_relative_to(tmp_path):
            raise PermissionError(13, "Permission denied", str(self))
        return plain(self, **words)

    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(Path, "stat", stat)
    assert "h100" in presets.read_table("accelerator") and presets.find_config("quickstart").is_file()
