"""Running: the same numbers as the plain model, one compilation, resume, extension."""

import threading

import jax
import numpy as np
import pytest
import toy
import xarray as xr

import sweep
from sweep import _kernels, evaluations, execute, journal, store
from sweep.errors import PlanError, StoreError
from sweep.plan import Plan
from sweep.stages import Stages

AXES = {
    "link_gbps": [100, 200, 400, 800],
    "tp": [1, 2, 4, 8, 1024],
    "micro_batch": [1, 2, 3],
    "seq_len": [1024, 2048, 4096, 8192, 16384],
}
OUTPUTS = ("step_time_s", "required_link_gbps", "compute_time_s", "tokens_per_domain", "bottleneck")
SMALL = {"block_points": 24}


@pytest.fixture(autouse=True)
def _toy(monkeypatch):
    monkeypatch.setattr(_kernels, "model", toy, raising=False)


def spec(axes=AXES, outputs=OUTPUTS, store=SMALL, **more):
    return toy.spec(axes, outputs, store=store, **more)


def expected(spec):
    """What the store must hold, from the plain model in NumPy."""
    return evaluations.dataset(spec, evaluations._in_numpy(spec.mesh, spec.outputs))


def same(stored, plain):
    for name in plain.data_vars:
        want = plain[name].transpose(*stored[name].dims)
        if want.dtype.kind == "f":
            np.testing.assert_allclose(stored[name].values, want.values.astype("f4"), rtol=2e-7, err_msg=name)
        else:
            np.testing.assert_array_equal(stored[name].values, want.values, err_msg=name)


def test_a_stored_sweep_holds_what_the_model_says(tmp_path):
    made = spec()
    result = sweep.run(made, tmp_path / "a.zarr")
    assert result.complete and result.blocks > 3
    same(store.open_store(tmp_path / "a.zarr"), expected(made))


def test_where_marks_points_and_leaves_out_blocks(tmp_path):
    made = spec(where="tp * seq_len <= 8192 and tp < 100")
    plan = Plan.of(made)
    assert plan.blocks < np.prod(plan.grid)
    assert sweep.run(made, tmp_path / "a.zarr").complete
    ds = store.open_store(tmp_path / "a.zarr")
    left = (ds.tp * ds.seq_len <= 8192) & (ds.tp < 100)
    assert bool(((ds.status == 254) == ~left).all())
    plain = expected(made)
    want = plain.step_time_s.where(left).transpose(*ds.step_time_s.dims)
    got = ds.step_time_s.where(ds.status != 254)
    np.testing.assert_allclose(got.values, want.values, rtol=2e-7)


def test_progress_counts_finished_points(tmp_path):
    seen = []
    result = sweep.run(spec(), tmp_path / "a.zarr", progress=seen.append)
    assert [p.blocks for p in seen] == list(range(1, result.blocks + 1))
    assert seen[-1].points == seen[-1].all_points == result.points
    assert seen[-1].seconds_left == 0 and seen[-1].points_per_s > 0


def test_each_stage_is_compiled_once_for_ragged_blocks(tmp_path):
    sweep.run(spec(), tmp_path / "a.zarr")
    plan = store.plan_of(tmp_path / "a.zarr")
    assert any(n % b for n, b in zip(plan.shape, plan.block))
    stages = Stages(plan.mesh, OUTPUTS, plan.block)
    for chunk in plan.chunks():
        stages(chunk.start)
    assert stages.compilations == 3


def test_a_finished_sweep_has_nothing_to_do(tmp_path):
    sweep.run(spec(), tmp_path / "a.zarr")
    result = sweep.run(spec(), tmp_path / "a.zarr")
    assert (result.blocks, result.points, result.complete) == (0, 0, True)


def test_resume_computes_only_what_is_missing(tmp_path, monkeypatch):
    path = tmp_path / "a.zarr"
    finish, calls = execute.Runner.finish, []

    def stop_after_five(self, index, started):
        calls.append(index)
        if len(calls) > 5:
            raise KeyboardInterrupt
        return finish(self, index, started)

    monkeypatch.setattr(execute.Runner, "finish", stop_after_five)
    with pytest.raises(KeyboardInterrupt):
        sweep.run(spec(), path)
    monkeypatch.setattr(execute.Runner, "finish", finish)
    assert not store.root(path)["attributes"]["complete"]
    total = Plan.of(spec()).blocks
    result = sweep.run(spec(), path)
    assert result.complete and result.blocks == total - 5
    same(store.open_store(path), expected(spec()))


@pytest.mark.parametrize("first", [{"tp": [2, 8]}, {"seq_len": [2048, 16384], "link_gbps": [200]}, {"micro_batch": [3]}])
def test_extending_axes_equals_one_run(tmp_path, first):
    where = "tp * seq_len <= 32768"
    sweep.run(spec({**AXES, **first}, where=where), tmp_path / "a.zarr")
    before = store.plan_of(tmp_path / "a.zarr")
    with pytest.raises(StoreError, match="--extend"):
        sweep.run(spec(where=where), tmp_path / "a.zarr")
    result = sweep.run(spec(where=where), tmp_path / "a.zarr", extend=True)
    assert result.complete and result.points < Plan.of(spec(where=where)).points
    assert before.block == store.plan_of(tmp_path / "a.zarr").block
    sweep.run(spec(where=where), tmp_path / "b.zarr")
    grown, whole = store.open_store(tmp_path / "a.zarr"), store.open_store(tmp_path / "b.zarr")
    xr.testing.assert_equal(grown.where(grown.status != 254), whole.where(whole.status != 254))
    np.testing.assert_array_equal(grown.status, whole.status)
    assert sweep.run(spec(where=where), tmp_path / "a.zarr").blocks == 0


def test_extending_outputs_computes_only_those(tmp_path):
    sweep.run(spec(outputs=["compute_time_s"]), tmp_path / "a.zarr")
    file = tmp_path / "a.zarr" / "compute_time_s" / "c" / "0" / "0" / "0"
    stamp = file.stat().st_mtime_ns
    assert sweep.run(spec(), tmp_path / "a.zarr", extend=True).complete
    assert file.stat().st_mtime_ns == stamp
    same(store.open_store(tmp_path / "a.zarr"), expected(spec()))


def test_another_spec_is_refused_with_what_differs(tmp_path):
    sweep.run(spec(), tmp_path / "a.zarr")
    other = spec({**AXES, "tp": [1, 2]}, fixed={"grad_bytes": 4})
    with pytest.raises(StoreError) as error:
        sweep.run(other, tmp_path / "a.zarr")
    assert "axis tp has 5 labels (1" in str(error.value) and "grad_bytes is not set in the store, 4.0" in str(error.value)
    with pytest.raises(StoreError, match="cannot be extended.*1024"):
        sweep.run(other, tmp_path / "a.zarr", extend=True)


def test_another_model_is_refused(tmp_path, monkeypatch):
    sweep.run(spec(), tmp_path / "a.zarr")
    monkeypatch.setattr(execute.provenance, "model_sha256", lambda: "f" * 64)
    with pytest.raises(StoreError, match="the model is toy .* in the store, toy .ffffffff. here"):
        sweep.run(spec(), tmp_path / "a.zarr")


def test_overwrite_swaps_when_complete(tmp_path):
    path = tmp_path / "a.zarr"
    sweep.run(spec(), path)
    other = spec({**AXES, "tp": [1, 2]})
    result = sweep.run(other, path, overwrite=True)
    assert result.path == str(path) and result.complete
    assert store.open_store(path).sizes["tp"] == 2
    assert [p.name for p in tmp_path.iterdir()] == ["a.zarr"]


def test_parts_make_one_store(tmp_path):
    path = tmp_path / "a.zarr"
    results = [sweep.run(spec(), path, part=(i, 3)) for i in (1, 2, 3)]
    assert [r.complete for r in results] == [False, False, True]
    assert sum(r.blocks for r in results) == Plan.of(spec()).blocks
    same(store.open_store(path), expected(spec()))


def test_run_block_needs_no_more_than_a_store_and_an_index(tmp_path):
    path = tmp_path / "a.zarr"
    plan = Plan.of(spec())
    store.create(plan, path)
    with journal.Journal(path) as book:
        for chunk in plan.chunks():
            book.add(execute.run_block(path, chunk.index), [])
            execute.run_block(path, chunk.index)  # a task may run twice
    result = sweep.run(spec(), path)
    assert result.blocks == 0 and result.complete
    same(store.open_store(path), expected(spec()))


def test_refusal_names_both_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr(execute.disk, "free_bytes", lambda path: 10)
    with pytest.raises(PlanError, match=r"may need .* of disk and 10 B is free"):
        sweep.run(spec(), tmp_path / "a.zarr")
    monkeypatch.setattr(execute.disk, "free_bytes", lambda path: 10**15)
    monkeypatch.setattr(execute.disk, "memory_bytes", lambda: 10**6)
    with pytest.raises(PlanError, match=r"needs .* of memory and 1 MB is free"):
        sweep.run(spec(), tmp_path / "a.zarr")
    assert not (tmp_path / "a.zarr").exists()


def test_a_where_that_leaves_nothing_creates_nothing(tmp_path):
    with pytest.raises(PlanError, match="where leaves none of 300 points") as error:
        sweep.run(spec(where="tp * seq_len < 5"), tmp_path / "a.zarr")
    assert "\n" not in str(error.value) and not list(tmp_path.iterdir())


def test_evaluate_in_numpy_and_in_blocks_agree(monkeypatch):
    inputs = dict(**toy.MACHINE, **AXES, outputs=list(OUTPUTS))
    plain = sweep.evaluate(**inputs)
    monkeypatch.setattr(evaluations, "NUMPY_POINTS", 0)
    monkeypatch.setattr(evaluations, "BLOCK_POINTS", 50)
    xr.testing.assert_allclose(sweep.evaluate(**inputs), plain, rtol=1e-12)
    assert plain.step_time_s.dtype == "f8" and plain.required_link_gbps.dims == ("tp", "micro_batch", "seq_len")


def test_float64_in_two_threads_and_the_users_switch_untouched():
    plan = Plan.of(spec())
    found = []

    def work():
        stages = Stages(plan.mesh, OUTPUTS, plan.block, stored="float64")
        found.append(stages((0,) * 4)["step_time_s"].dtype)

    threads = [threading.Thread(target=work) for _ in range(2)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert [str(d) for d in found] == ["float64"] * 2
    assert jax.config.jax_enable_x64 is False and jax.numpy.zeros(1).dtype == "float32"


def test_float32_differs_little():
    plan = Plan.of(spec())
    wide, narrow = (Stages(plan.mesh, ("step_time_s",), plan.shape, precision)((0,) * 4) for precision in ("float64", "float32"))
    np.testing.assert_allclose(narrow["step_time_s"], wide["step_time_s"], rtol=1e-5)


def test_a_sweep_without_axes(tmp_path):
    made = spec({})
    assert sweep.run(made, tmp_path / "a.zarr").complete
    same(store.open_store(tmp_path / "a.zarr"), expected(made))
    assert sweep.run(made, tmp_path / "a.zarr").blocks == 0


def test_a_finished_sweep_is_recognised_without_jax(tmp_path):
    import subprocess
    import sys

    sweep.run(spec(), tmp_path / "a.zarr")
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); import toy; toy.install(); import test_execute, sweep\n"
        "from sweep import inspections\n"
        "sys.modules.pop('jax'); del test_execute.jax\n"
        "assert sweep.run(test_execute.spec(), sys.argv[2]).blocks == 0\n"
        "assert inspections.info(sys.argv[2])['complete']\n"
        "assert 'jax' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script, str(__import__("pathlib").Path(__file__).parent), str(tmp_path / "a.zarr")], check=True)
