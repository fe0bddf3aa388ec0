"""What is known to go wrong in the libraries below us cannot happen here: one test for each kind that no other file holds.

Numbers are rows of the project's list of pitfalls; the rest stand beside what they test: in test_store (1-3, 5, 7, 9-17, 20, 26), test_faults (8),
test_execute (31, 32, 41), test_plan (23), test_distribution (24, 25, 27-29, 37).
"""

import ast
import tomllib
import warnings
from pathlib import Path

import numpy as np
import pytest
import toy
import xarray as xr

import sweep
from sweep import _kernels, execute, store
from sweep.spec import Spec

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted([*(ROOT / "sweep").glob("*.py"), *(ROOT / "kernels").glob("*.py")])
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def calls(path):
    """The dotted names of all calls in a file, with their keywords."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), {keyword.arg for keyword in node.keywords}, [ast.unparse(a) for a in node.args]


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.setattr(_kernels, "model", toy, raising=False)
    axes = {"link_gbps": [100, 200], "tp": [8, 16, 32], "accelerator": ["h100", "b200"], "zero_stage": [0, 1]}
    fixed = {name: value for name, value in toy.MACHINE.items() if name == "params"}
    made = Spec.from_dict({"axes": axes, "fixed": fixed, "outputs": ["step_time_s", "bottleneck"], "store": {"block_points": 4}})
    sweep.run(made, tmp_path / "a.zarr")
    return tmp_path / "a.zarr"


def test_stores_are_never_written_through_dask_or_regions():
    """3, 4: aligned whole blocks alone."""
    for source in SOURCES:
        for name, keywords, _ in calls(source):
            assert name.split(".")[-1] not in ("to_zarr", "store_to_zarr"), source
            assert "region" not in keywords, source
            assert name not in ("da.store", "dask.array.store"), source


def test_nothing_is_forked_and_jax_is_not_distributed_by_itself():
    """30, 38."""
    for source in SOURCES:
        for name, _, arguments in calls(source):
            assert name != "os.fork" and "'fork'" not in arguments, source
            assert not name.startswith("jax.distributed"), source
            assert not name.startswith("jax.config"), source  # 41: the switch is the user's


def test_versions_are_new_enough():
    """6, 12: torn chunks before zarr 3.1.6; warnings are errors in the tests (21)."""
    wanted = {line.split(">=")[0].strip(): line for line in PROJECT["project"]["dependencies"]}
    assert ">=3.1.6" in wanted["zarr"].replace(" ", "")
    assert "error" in PROJECT["tool"]["pytest"]["ini_options"]["filterwarnings"]


@pytest.mark.parametrize("half", [0.5, np.float32(0.5), np.float64(0.5), np.array(0.5)])
def test_the_hash_is_of_values_not_of_their_types(half):
    """22."""
    whole = [8, np.int64(8), np.float32(8)]
    hashes = {toy.spec({"link_gbps": [np.float64(100), 200]}, fixed={"efficiency": half, "tp": tp}).sha256 for tp in whole}
    assert hashes == {toy.spec({"link_gbps": [100, 200.0]}, fixed={"efficiency": 0.5, "tp": 8}).sha256}


def test_two_trips_through_xarray_change_nothing(path, tmp_path):
    """16, 17, 18: counts, flags and words keep their dtypes."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first = sweep.open_store(path).load()
        for trip in ("b.zarr", "c.zarr"):
            for name in first.variables:
                first[name].encoding = {}
            first.to_zarr(tmp_path / trip, zarr_format=3, consolidated=False)
            again = xr.open_zarr(tmp_path / trip, consolidated=False).load()
            for name, values in first.variables.items():
                kind = values.dtype.kind
                assert again[name].dtype == values.dtype if kind in "fiu" else list(again[name].values) == list(values.values)
            first = again.assign_coords({n: c.astype(object) for n, c in again.coords.items() if c.dtype.kind not in "fiu"})


def test_a_block_may_be_written_twice(path):
    """26: the same bytes."""
    files = {file: file.read_bytes() for file in path.rglob("*") if file.is_file() and "/c/" in str(file) and "_sweep" not in str(file)}
    for chunk in store.plan_of(path).chunks():
        execute.run_block(path, chunk.index)
    assert {file: file.read_bytes() for file in files} == files


def test_the_task_of_a_worker_is_importable():
    """27: a function of __main__ would be compiled anew for every task."""
    assert (execute.run_block.__module__, execute.run_block.__qualname__) == ("sweep.execute", "run_block")


def test_nothing_shrinks(path):
    """11: a smaller array that grows again would show old values."""
    for name in dir(store):
        assert "shrink" not in name and "truncate" not in name and "resize" not in name


def test_the_copy_to_the_host_starts_before_it_is_waited_for(path, monkeypatch):
    """36."""
    events = []

    class Array:
        def copy_to_host_async(self):
            events.append("start")

    runner = execute.Runner(path, store.plan_of(path))
    runner.stages = lambda start: {v.name: Array() for v in runner.variables}
    runner.dispatch((0,) * 4)
    assert events == ["start"] * len(runner.plan.owners((0,) * 4))


def test_the_model_multiplies_no_matrices():
    """33: TF32 would enter by the back door."""
    import jax

    from sweep.stages import Stages, double_precision

    made = Spec.from_dict({"axes": {"link_gbps": [100, 400], "tp": [1, 8]}, "fixed": {"model": "llama-3-8b", "accelerator": "h100"}})
    stages = Stages(made.mesh, made.outputs, (2, 2))
    with double_precision():
        arrays = stages.arrays((0, 0))
        parts = jax.make_jaxpr(stages._prepare, return_shape=True)(arrays)
        rest = jax.make_jaxpr(stages.traced)(arrays, parts[1])
    for jaxpr in (parts[0], rest):
        assert "dot_general" not in str(jaxpr) and "conv_general" not in str(jaxpr)


def test_a_damaged_chunk_is_one_sentence_that_names_it(path):
    """10: when it is read, not only by check."""
    file = next(p for p in sorted((path / "step_time_s" / "c").rglob("*")) if p.is_file())
    file.write_bytes(file.read_bytes()[:-1] + b"!")
    with pytest.raises(sweep.SweepError, match=r"step_time_s.*block.*sweep check") as error:
        sweep.query(sweep.open_store(path), where="step_time_s > 0", allow=["memory"])
    assert "\n" not in str(error.value)
