"""The store: plain xarray opens it, and nothing of what is known to go wrong does."""

import json
import os
import threading
import warnings

import numpy as np
import pytest
import toy
import xarray as xr
import zarr

import sweep
from sweep import _kernels, chunks, disk, execute, inspections, journal, provenance, store
from sweep.errors import StoreError
from sweep.locks import Lock
from sweep.plan import Plan

OUTPUTS = ("step_time_s", "required_link_gbps", "bottleneck")
AXES = {
    "link_gbps": [100, 200, 400, 800],
    "tp": [1, 2, 4, 8, 1024],
    "schedule": ["1f1b", "zb-h1"],
    "layout": {"seq_len": [1024, 2048, 4096], "micro_batch": [4, 2, 1]},
}


@pytest.fixture(autouse=True)
def _toy(monkeypatch):
    monkeypatch.setattr(_kernels, "model", toy, raising=False)


def spec(axes=AXES, outputs=OUTPUTS, store=None, **more):
    return toy.spec(axes, outputs, store=store or {"block_points": 24}, **more)


@pytest.fixture
def path(tmp_path):
    sweep.run(spec(), tmp_path / "a.zarr")
    return tmp_path / "a.zarr"


def test_plain_xarray_opens_it_without_a_warning(path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ds = xr.open_zarr(path)
        ds.load()
    assert ds.sel(link_gbps=400, tp=8, schedule="zb-h1").step_time_s.dims == ("layout",)
    assert list(ds.layout.values) == ["seq_len=1024 micro_batch=4", "seq_len=2048 micro_batch=2", "seq_len=4096 micro_batch=1"]
    for name in ds.variables:
        assert ds[name].attrs["units"] and ds[name].attrs["long_name"]
    assert ds.step_time_s.dtype == "f4" and ds.bottleneck.dtype == ds.status.dtype == "u1"
    assert set(ds.coords) == {*AXES, "seq_len", "micro_batch"}
    assert ds.attrs["complete"] == 1 and json.loads(ds.attrs["spec"])["axes"]["tp"]["labels"] == [1, 2, 4, 8, 1024]


def test_open_store_is_lazy_and_its_words_are_objects(path):
    ds = sweep.open_store(path)
    assert ds.schedule.dtype == object and list(ds.schedule.values) == ["1f1b", "zb-h1"]
    assert not ds.variables["step_time_s"]._in_memory
    assert ds.chunks == {}
    zones = ds.encoding["zones"]()
    dims, lengths, least, largest = zones["step_time_s"]
    assert dims == ds.step_time_s.dims and least.shape == largest.shape
    assert np.nanmin(least) == ds.step_time_s.min() and np.nanmax(largest) == ds.step_time_s.max()


def test_numeric_axes_are_sorted_on_opening(tmp_path):
    sweep.run(spec({**AXES, "link_gbps": [800, 100, 400]}), tmp_path / "a.zarr")
    ds = sweep.open_store(tmp_path / "a.zarr")
    assert list(ds.link_gbps.values) == [100, 400, 800] and "zones" not in ds.encoding
    plain = xr.open_zarr(tmp_path / "a.zarr")
    np.testing.assert_array_equal(ds.step_time_s, plain.sortby("link_gbps").step_time_s)


def test_fill_values_are_nan_or_255_whatever_zarr_prefers(path):
    for name, entry in store.root(path)["consolidated_metadata"]["metadata"].items():
        if entry["node_type"] == "array" and name in (*OUTPUTS, "status"):
            assert entry["fill_value"] in ("NaN", 255)
            assert [codec["name"] for codec in entry["codecs"]] == ["bytes", "blosc", "crc32c"]


def test_round_trip_keeps_dtypes(path, tmp_path):
    ds = sweep.open_store(path).load()
    again = xr.open_zarr(path).load()
    assert {n: v.dtype for n, v in ds.data_vars.items()} == {n: v.dtype for n, v in again.data_vars.items()}


def test_zarrs_own_pipeline_reads_what_was_written(path):
    plan = store.plan_of(path)
    for variable in plan.variables:
        whole = zarr.open_array(str(path), path=variable.name, mode="r")[...]
        for chunk in plan.chunks():
            if variable in plan.owners(chunk.index):
                place = plan.chunk_index(variable, chunk.index)
                if not (path / variable.name / "c" / "/".join(map(str, place))).exists():
                    assert np.all(whole[tuple(slice(i * c, (i + 1) * c) for i, c in zip(place, plan.chunk_shape(variable)))] != 0)
                    continue
                ours = chunks.read_chunk(path, variable.name, place, plan.chunk_shape(variable), variable.dtype, "lz4")
                box = tuple(slice(i * c, (i + 1) * c) for i, c in zip(place, plan.chunk_shape(variable)))
                np.testing.assert_array_equal(whole[box], ours[tuple(slice(n) for n in whole[box].shape)])


@pytest.mark.parametrize("codec", ["zstd", "none"])
def test_other_codecs(tmp_path, path, codec):
    made = spec(store={"block_points": 24, "codec": codec})
    sweep.run(made, tmp_path / "b.zarr")
    np.testing.assert_array_equal(xr.open_zarr(tmp_path / "b.zarr").step_time_s, xr.open_zarr(path).step_time_s)


def test_a_block_written_by_two_threads_at_once_is_refused(path, monkeypatch):
    writer = chunks.BlockWriter(path, store.plan_of(path), store.root(path)["attributes"])
    variable = writer.plan.variables[0]
    chunk = next(writer.plan.chunks())
    values = np.zeros(writer.plan.cut_shape(variable, chunk), "f4")
    inside, leave = threading.Event(), threading.Event()
    write = disk.write

    def slow(*arguments):
        inside.set()
        leave.wait(5)
        return write(*arguments)

    monkeypatch.setattr(disk, "write", slow)
    first = threading.Thread(target=writer.write, args=(chunk.index, {variable: values}))
    first.start()
    inside.wait(5)
    with pytest.raises(StoreError, match="another thread"):
        writer.write(chunk.index, {variable: values})
    leave.set()
    first.join()


def test_a_block_of_another_shape_is_refused(path):
    plan = store.plan_of(path)
    writer = chunks.BlockWriter(path, plan, store.root(path)["attributes"])
    with pytest.raises(StoreError, match="has shape"):
        writer.write((0,) * len(plan.grid), {plan.variables[0]: np.zeros((1, 1), "f4")})
    other = Plan.of(plan.spec, block=tuple(1 for _ in plan.block))
    with pytest.raises(StoreError, match="its blocks are"):
        chunks.BlockWriter(path, other, store.root(path)["attributes"])


def test_files_are_durable_before_the_journal_says_so(tmp_path, monkeypatch):
    order = []
    monkeypatch.setattr(disk, "_sync_one", lambda path: order.append(("sync", str(path))))
    append = disk.append
    monkeypatch.setattr(disk, "append", lambda path, data: (order.append(("line", data)), append(path, data)))
    sweep.run(spec(), tmp_path / "a.zarr")
    synced, held = set(), 0
    plan = store.plan_of(tmp_path / "a.zarr")
    for kind, what in order:
        if kind == "sync":
            synced.add(what)
        for line in what.splitlines() if kind == "line" else ():
            entry = journal._parsed(line)
            if "block" in entry:
                for v in plan.variables:
                    if v.name in entry["zones"] and entry["zones"][v.name]:
                        place = "/".join(map(str, plan.chunk_index(v, tuple(entry["block"]))))
                        assert str(tmp_path / "a.zarr" / v.name / "c" / place) in synced
                        held += 1
    assert held


def test_a_torn_or_damaged_journal_line_counts_as_not_written(path):
    file = journal.folder(path) / "all.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    damaged = lines[2].replace(b"block", b"blocc")
    file.write_bytes(b"".join(lines[:2]) + damaged + b"".join(lines[3:-1]) + lines[-1][:20])
    state = journal.read(path, store.plan_of(path))
    assert state.damaged == 2 and len(state.pending) == 2
    assert [f.output for f in inspections.check(path, repair=True)] == ["_sweep/journal", ""]
    assert sweep.run(spec(), path).blocks == 2
    assert len(journal.read(path, store.plan_of(path)).pending) == 0
    assert [f.output for f in inspections.check(path)] == ["_sweep/journal"]


def test_a_sweep_that_is_infeasible_everywhere_resumes_with_nothing_to_do(tmp_path):
    made = spec({**AXES, "tp": [1024, 2048]}, outputs=["step_time_s"])
    sweep.run(made, tmp_path / "a.zarr")
    assert not (tmp_path / "a.zarr" / "step_time_s" / "c").exists()
    assert sweep.run(made, tmp_path / "a.zarr").blocks == 0
    assert inspections.check(tmp_path / "a.zarr") == []


def test_check_names_the_block_and_output_of_a_flipped_byte_and_repair_mends_it(path):
    before = xr.open_zarr(path).load()
    file = next(p for p in sorted((path / "step_time_s" / "c").rglob("*")) if p.is_file())
    index = tuple(int(part) for part in file.relative_to(path / "step_time_s" / "c").parts)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(bytes(data))
    faults = inspections.check(path)
    assert [(f.block, f.output) for f in faults] == [((index[0], index[1], 0, index[2]), "step_time_s")] and "checksum" in faults[0].problem
    inspections.check(path, repair=True)
    assert sweep.run(spec(), path).blocks == 1
    assert inspections.check(path) == []
    xr.testing.assert_identical(xr.open_zarr(path).load(), before)


def test_check_finds_a_missing_file_and_a_stale_one(path):
    files = [p for p in sorted((path / "step_time_s" / "c").rglob("*")) if p.is_file()]
    files[0].unlink()
    files[1].write_bytes(files[-1].read_bytes())
    assert [f.problem for f in inspections.check(path)] == ["its file is missing", "its values are not those that were written"]
    inspections.check(path, repair=True)
    assert sweep.run(spec(), path).blocks == 2 and inspections.check(path) == []


def test_a_structure_change_that_stopped_half_way_leaves_the_old_store(path, monkeypatch):
    before = xr.open_zarr(path).load()
    with monkeypatch.context() as stopped, pytest.raises(KeyboardInterrupt):
        stopped.setattr(store, "commit", lambda *a, **k: (_ for _ in ()).throw(KeyboardInterrupt()))
        sweep.run(spec({**AXES, "link_gbps": [50, 100, 200, 400, 800]}, outputs=[*OUTPUTS, "mfu"]), path, extend=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        xr.testing.assert_identical(xr.open_zarr(path).load(), before)
    assert inspections.check(path, repair=True) != []
    assert inspections.check(path) == []


def test_an_added_output_is_visible_in_plain_xarray(path):
    sweep.run(spec(outputs=[*OUTPUTS, "mfu"]), path, extend=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "mfu" in xr.open_zarr(path)
        assert not bool(xr.open_zarr(path).mfu.isnull().all())


def test_a_second_writer_is_told_who_holds_the_store(path):
    with Lock(path), pytest.raises(StoreError, match=f"process {os.getpid()} on "):
        sweep.run(spec(outputs=[*OUTPUTS, "mfu"]), path, extend=True)
    with Lock(path, "1-of-2"), Lock(path, "2-of-2"), pytest.raises(StoreError, match="another run"):
        Lock(path).__enter__()


def test_a_lock_of_a_dead_process_is_taken_over(path):
    store.commit(path, {"complete": 0})
    held = {"host": __import__("socket").gethostname(), "pid": 2**22 + 1, "started": 1, "beat": 3, "token": "x"}
    (path / "_sweep" / "lock" / "all.json").write_text(json.dumps(held))
    assert sweep.run(spec(), path).blocks == 0
    (path / "_sweep" / "lock" / "all.json").write_text(json.dumps({**held, "pid": os.getpid(), "started": 5}))
    assert sweep.run(spec(), path).blocks == 0  # a process of that number runs, but it is another one


def test_a_lock_from_elsewhere_is_judged_by_its_beat(path, monkeypatch):
    monkeypatch.setattr("sweep.locks.PATIENCE", 0.6)
    monkeypatch.setattr("sweep.locks.BEAT", 0.2)
    lock = path / "_sweep" / "lock" / "all.json"
    held = {"host": "elsewhere", "pid": 1, "started": 1, "beat": 3, "token": "x"}
    lock.write_text(json.dumps(held))
    timer = threading.Timer(0.2, lambda: lock.write_text(json.dumps({**held, "beat": 4})))
    timer.start()
    with pytest.raises(StoreError, match="elsewhere"):
        Lock(path).__enter__()
    timer.join()
    with Lock(path):
        pass


def test_renames_are_tried_again_where_a_file_is_held_open(tmp_path, monkeypatch):
    replace, failures = os.replace, [PermissionError(5, "held"), PermissionError(5, "held")]

    def reluctant(*arguments):
        if failures:
            raise failures.pop()
        return replace(*arguments)

    monkeypatch.setattr(os, "replace", reluctant)
    disk.write(tmp_path / "x", b"1", b"2")
    assert (tmp_path / "x").read_bytes() == b"12"


def test_info(tmp_path):
    path = tmp_path / "a.zarr"
    sweep.run(spec(fixed={"params": 30e9}), path)
    found = inspections.info(path)
    assert found["complete"] and found["points"] == 120 and found["blocks_missing"] == 0
    assert found["outputs"]["step_time_s"] == ["link_gbps", "tp", "layout"]
    assert found["points_ok"] == 24 and found["bytes_on_disk"] > 1000
    json.dumps(found)


def test_thawed_specs_are_the_specs_they_were(path):
    attrs = store.root(path)["attributes"]
    again = store.plan_of(path).spec
    assert again.sha256 == attrs["spec_sha256"] == spec().sha256
    assert provenance.canonical_json(again) == provenance.canonical_json(spec())


@pytest.mark.parametrize("damage", ["", "{", '{"attributes": {}}'])
def test_a_damaged_root_is_one_sentence(path, damage):
    (path / "zarr.json").write_text(damage)
    for look in (sweep.open_store, lambda p: sweep.run(spec(), p)):
        with pytest.raises(StoreError, match="damaged"):
            look(path)


def test_what_is_no_store_is_left_alone(tmp_path):
    (tmp_path / "a.zarr").mkdir()
    (tmp_path / "a.zarr" / "thesis.tex").write_text("precious")
    with pytest.raises(StoreError, match="is not a store"):
        sweep.run(spec(), tmp_path / "a.zarr")
    with pytest.raises(StoreError, match="there is no such store"):
        sweep.open_store(tmp_path / "b.zarr")
    assert (tmp_path / "a.zarr" / "thesis.tex").read_text() == "precious"


def test_the_numbers_come_from_the_model_not_from_its_comments(tmp_path, monkeypatch):
    monkeypatch.setattr(_kernels, "folder", lambda: tmp_path)

    def hashed(text):
        (tmp_path / "model.py").write_text(text)
        provenance.model_sha256.cache_clear()
        return provenance.model_sha256()

    one = hashed('"""Doc."""\ndef f(x):\n    """More."""\n    return 2 * x\n')
    assert one == hashed("# a comment\ndef f( x ):\n    return 2*x\n")
    assert one != hashed("def f(x):\n    return 3 * x\n")
    provenance.model_sha256.cache_clear()


def test_runner_of_a_worker_is_kept(path):
    execute._runner.cache_clear()
    execute.run_block(path, 0)
    execute.run_block(path, 1)
    assert execute._runner.cache_info().misses == 1


def test_a_sliced_dataset_forgets_its_chunks(path):
    """Zone maps and chunks are of the axes as they lie in the store."""
    ds = sweep.open_store(path)
    turned = ds.isel(link_gbps=slice(None, None, -1), tp=slice(1, None))
    for part in (ds, turned, ds.sel(tp=[8, 1])):
        for name in ("step_time_s", "required_link_gbps"):
            fast = sweep.query(part, best=f"min:{name}", over="link_gbps,layout", allow=["memory"])
            plain = sweep.query(part.load().copy(), best=f"min:{name}", over="link_gbps,layout", allow=["memory"])
            assert fast[name].equals(plain[name])
        count = sweep.query(part, where="step_time_s > 5", count=True, allow=["memory"])
        assert count["count"].sum() == int(((part.step_time_s > 5) & (part.status != 1)).sum()) * 2
