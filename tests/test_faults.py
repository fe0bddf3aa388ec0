"""What goes wrong ends in the values of an undisturbed run, or in one clear line; nothing is lost."""

import _thread
import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import toy
import xarray as xr

import sweep
from sweep import _kernels, disk, execute, inspections, journal, locks, store
from sweep.errors import StoreError

HERE = Path(__file__).parent
AXES = {"link_gbps": [100, 200, 400], "tp": [8, 16, 32], "seq_len": [1024, 2048, 4096, 8192]}


@pytest.fixture(autouse=True)
def _toy(monkeypatch):
    monkeypatch.setattr(_kernels, "model", toy, raising=False)


def spec(axes=AXES, outputs=("step_time_s", "required_link_gbps", "bottleneck")):
    return toy.spec(axes, outputs, store={"block_points": 4})


@pytest.fixture
def undisturbed(tmp_path):
    sweep.run(spec(), tmp_path / "undisturbed.zarr")
    return xr.open_zarr(tmp_path / "undisturbed.zarr").load()


def same_values(path, undisturbed):
    found = xr.open_zarr(path).load()
    assert {n: v.dtype for n, v in found.variables.items()} == {n: v.dtype for n, v in undisturbed.variables.items()}
    xr.testing.assert_equal(found, undisturbed)
    assert not [fault for fault in inspections.check(path) if fault.block]


@pytest.mark.parametrize("how", [("changes",), ("calls", os.environ.get("SWEEP_KILL_STEP", "97")), ("moments", os.environ.get("SWEEP_KILLS", "5")), ("interrupts", os.environ.get("SWEEP_KILLS", "5"))])
def test_killed_runs_lose_nothing(tmp_path, how):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE.parent), str(HERE)])}
    done = subprocess.run([sys.executable, HERE / "kill_trials.py", tmp_path / "trials", *how], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "every one mended" in done.stdout


@pytest.mark.parametrize("code, hint", [(errno.ENOSPC, "the disk is full. Free some space"), (errno.EROFS, "cannot be written"), (errno.EIO, "same command goes on")])
@pytest.mark.parametrize("after", [0, 9, 25])
def test_a_disk_that_fails_is_one_sentence_and_the_run_goes_on(tmp_path, monkeypatch, undisturbed, code, hint, after):
    pieces, count = disk._write_pieces, iter(range(10**6))

    def failing(path, data):
        if next(count) >= after:
            raise OSError(code, os.strerror(code))
        return pieces(path, data)

    monkeypatch.setattr(disk, "_write_pieces", failing)
    with pytest.raises(StoreError, match=hint) as error:
        sweep.run(spec(), tmp_path / "a.zarr")
    assert "\n" not in str(error.value)
    monkeypatch.setattr(disk, "_write_pieces", pieces)
    assert sweep.run(spec(), tmp_path / "a.zarr").complete
    same_values(tmp_path / "a.zarr", undisturbed)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_full_disk(tmp_path, undisturbed):
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(small)], capture_output=True).returncode:
        pytest.skip("no small disk can be mounted here")
    try:
        with pytest.raises(StoreError, match="disk is full|is free"):
            sweep.run(spec(), small / "a.zarr")
        subprocess.run(["mount", "-o", "remount,size=20m", str(small)], check=True)
        assert sweep.run(spec(), small / "a.zarr").complete
        same_values(small / "a.zarr", undisturbed)
        subprocess.run(["mount", "-o", "remount,ro", str(small)], check=True)
        with pytest.raises(StoreError, match="cannot be written"):
            sweep.run(spec({**AXES, "tp": [8, 16, 32, 64]}), small / "a.zarr", extend=True)
        assert sweep.run(spec(), small / "a.zarr").complete  # nothing is left to do
        same = sweep.open_store(small / "a.zarr")
        np.testing.assert_array_equal(same.step_time_s, undisturbed.step_time_s)
    finally:
        subprocess.run(["umount", str(small)], check=True)


@pytest.fixture
def heeded():
    """Ctrl-C as in a terminal: a job in the background starts with it ignored, and so do the tests of that job."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeded")
def test_ctrl_c_finishes_the_blocks_in_flight(tmp_path, undisturbed, monkeypatch):
    finish = execute.Runner.finish
    monkeypatch.setattr(execute.Runner, "finish", lambda *a: (time.sleep(0.05), finish(*a))[1])

    def interrupt(progress):
        if progress.blocks == 2:
            _thread.interrupt_main()

    with pytest.raises(KeyboardInterrupt):
        sweep.run(spec(), tmp_path / "a.zarr", progress=interrupt)
    state = journal.read(tmp_path / "a.zarr", store.plan_of(tmp_path / "a.zarr"))
    assert 2 <= len(state.ok) and len(state.pending)
    assert not list((tmp_path / "a.zarr" / "_sweep" / "lock").iterdir())
    assert sweep.run(spec(), tmp_path / "a.zarr").complete
    same_values(tmp_path / "a.zarr", undisturbed)


def lose_an_interrupt():
    """Ctrl-C while a callback of the garbage collector runs: Python prints the exception and forgets it."""
    import weakref

    class Thing:
        pass

    def callback(_):
        os.kill(os.getpid(), signal.SIGINT)
        sum(range(10))  # here it is raised

    thing = Thing()
    held = weakref.ref(thing, callback)
    del thing
    return held


@pytest.mark.usefixtures("heeded")
def test_ctrl_c_in_a_callback_of_the_garbage_collector_counts_too(tmp_path, undisturbed, monkeypatch):
    dispatch = execute.Runner.dispatch
    monkeypatch.setattr(execute.Runner, "dispatch", lambda *a: (lose_an_interrupt(), dispatch(*a))[1])
    with pytest.raises(KeyboardInterrupt):
        sweep.run(spec(), tmp_path / "a.zarr")
    monkeypatch.setattr(execute.Runner, "dispatch", dispatch)
    assert sweep.run(spec(), tmp_path / "a.zarr").complete
    same_values(tmp_path / "a.zarr", undisturbed)


def test_every_verb_exits_with_130_on_ctrl_c_wherever_it_falls():
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); sys.path.insert(0, sys.argv.pop(1))\n"
        "import test_faults; from sweep import cli, listings\n"
        "rows = listings.rows\n"
        "listings.rows = lambda *a, **k: (test_faults.lose_an_interrupt(), rows(*a, **k))[1]\n"
        "cli.main()"
    )
    done = subprocess.run([sys.executable, "-c", code, str(HERE), "presets", "models"], capture_output=True, text=True, cwd=HERE.parent)
    assert (done.returncode, done.stderr) == (130, "error: interrupted.\n")


def test_two_runs_at_once_one_is_told(tmp_path, undisturbed):
    told = []

    def second(progress):
        if progress.blocks == 1:
            with pytest.raises(StoreError, match="another run is writing it"):
                sweep.run(spec(), tmp_path / "a.zarr")
            told.append(True)

    assert sweep.run(spec(), tmp_path / "a.zarr", progress=second).complete and told
    same_values(tmp_path / "a.zarr", undisturbed)


def test_a_clock_that_jumps_does_no_harm(tmp_path, undisturbed, monkeypatch):
    jumps = iter(range(10**9, 0, -3600))
    monkeypatch.setattr(time, "time", lambda: float(next(jumps)))
    monkeypatch.setattr(locks, "BEAT", 0.01)
    assert sweep.run(spec(), tmp_path / "a.zarr").complete
    same_values(tmp_path / "a.zarr", undisturbed)


def test_a_block_that_cannot_be_computed_stops_the_run_and_keeps_the_rest(tmp_path, undisturbed, monkeypatch):
    finish = execute.Runner.finish

    def broken(self, index, started):
        if max(index) == 2:
            raise RuntimeError("device lost")
        return finish(self, index, started)

    monkeypatch.setattr(execute.Runner, "finish", broken)
    with pytest.raises(RuntimeError, match="device lost"):
        sweep.run(spec(), tmp_path / "a.zarr")
    monkeypatch.setattr(execute.Runner, "finish", finish)
    result = sweep.run(spec(), tmp_path / "a.zarr")
    assert result.complete and result.blocks < 9 * 4
    same_values(tmp_path / "a.zarr", undisturbed)


def test_parts_race_for_the_template(tmp_path, undisturbed, monkeypatch):
    create, raced = store.create, []

    def slow(plan, path, device=""):
        if not raced:
            raced.append(True)
            assert sweep.run(spec(), path, part=(2, 2)).blocks  # the other part was faster
        return create(plan, path, device)

    monkeypatch.setattr(store, "create", slow)
    assert sweep.run(spec(), tmp_path / "a.zarr", part=(1, 2)).complete
    same_values(tmp_path / "a.zarr", undisturbed)


def test_parts_of_different_sweeps_do_not_mix(tmp_path):
    sweep.run(spec(), tmp_path / "a.zarr", part=(1, 2))
    with pytest.raises(StoreError, match="axis tp has 3 labels"):
        sweep.run(spec({**AXES, "tp": [8, 16]}), tmp_path / "a.zarr", part=(2, 2))
