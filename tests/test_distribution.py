"""Blocks on worker processes: the same store, each block once, and a worker or a scheduler that dies loses nothing."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest
import toy

import sweep
from sweep import _kernels, distribution, journal, store
from sweep.errors import StoreError
from sweep.plan import Plan

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")  # dask's, of processes killed here
HERE = str(Path(__file__).parent)
AXES = {"link_gbps": [100, 200, 400, 800], "tp": [8, 16, 32, 64], "micro_batch": [1, 2, 3], "seq_len": [1024, 2048, 4096, 8192]}


@pytest.fixture(autouse=True)
def _toy(monkeypatch):
    monkeypatch.setattr(_kernels, "model", toy, raising=False)


def spec(points=16):
    return toy.spec(AXES, ("step_time_s", "required_link_gbps", "bottleneck"), store={"block_points": points})


@pytest.fixture
def cluster(monkeypatch):
    """Two workers that know the toy model."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([HERE, str(Path(HERE).parent), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setattr(distribution, "PRELOAD", [*distribution.PRELOAD, "toy_worker"])
    return distribution._local_cluster


def test_workers_write_the_same_store(tmp_path, cluster, capfd):
    seen = []
    result = sweep.run(spec(), tmp_path / "a.zarr", workers=2, progress=seen.append)
    assert capfd.readouterr().err == ""  # what dask's workers tell of themselves is not the user's
    assert result.complete and result.device == "2 workers"
    assert [p.blocks for p in seen] == list(range(1, Plan.of(spec()).blocks + 1))
    sweep.run(spec(), tmp_path / "b.zarr")
    a, b = store.open_store(tmp_path / "a.zarr"), store.open_store(tmp_path / "b.zarr")
    for name in a.data_vars:
        np.testing.assert_array_equal(a[name], b[name])
    lines = (journal.folder(tmp_path / "a.zarr") / "all.jsonl").read_bytes().count(b'"block"')
    assert lines == result.blocks  # each block was asked for once


def test_a_worker_that_is_killed_costs_only_its_own_blocks(tmp_path, cluster):
    from distributed import Client

    with cluster(2) as made, Client(made, set_as_default=False) as client:
        client.wait_for_workers(2)
        pids = list(client.run(os.getpid).values())
        killed = []

        def kill(progress):
            if progress.blocks == 5 and not killed:
                killed.append(pids[0])
                os.kill(pids[0], 9)

        result = sweep.run(spec(), tmp_path / "a.zarr", dask=made.scheduler_address, progress=kill)
    assert killed and result.complete
    lines = (journal.folder(tmp_path / "a.zarr") / "all.jsonl").read_bytes().count(b'"block"')
    assert lines == result.blocks  # nothing that was finished is asked for again


def test_a_scheduler_that_is_gone_is_one_sentence_and_the_run_goes_on(tmp_path, cluster):
    import subprocess

    script = (
        "import sys\n"
        "from sweep import distribution\n"
        "if __name__ == '__main__':\n"
        "    distribution.PRELOAD.append('toy_worker')\n"
        "    with distribution._local_cluster(1) as made:\n"
        "        print(made.scheduler_address, flush=True)\n"
        "        sys.stdin.read()\n"
    )
    (tmp_path / "scheduler.py").write_text(script)
    with subprocess.Popen([sys.executable, str(tmp_path / "scheduler.py")], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True) as process:
        address = process.stdout.readline().strip()

        def stop(progress):
            if progress.blocks == 3:
                process.kill()

        with pytest.raises(StoreError, match="same command"):
            sweep.run(spec(), tmp_path / "a.zarr", dask=address, progress=stop)
    assert sweep.run(spec(), tmp_path / "a.zarr").complete


def test_no_scheduler_at_all(tmp_path, monkeypatch):
    monkeypatch.setattr(distribution, "PATIENCE", "1s")
    with pytest.raises(StoreError, match="no scheduler answers"):
        with distribution._client("tcp://127.0.0.1:9", None):
            pass


def test_each_worker_has_its_own_gpu_or_cores(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5")
    assert [distribution._environment(k, 2)["CUDA_VISIBLE_DEVICES"] for k in range(2)] == ["2", "5"]
    assert float(distribution._environment(0, 4)["XLA_PYTHON_CLIENT_MEM_FRACTION"]) < 0.5
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3}, raising=False)
    assert [distribution._environment(k, 2)["SWEEP_CORES"] for k in range(2)] == ["0,1", "2,3"]
