"""The engine's figures, as ratios in one run: ``make bench`` prints the table (BENCH_POINTS sets the size, 10^7 by default).

Only what would be a plain regression fails here (half of a figure, four times a limit); the table says what was reached.
"""

import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import sweep
from sweep import chunks, disk, execute, journal, store
from sweep.plan import Plan
from sweep.reductions import Task
from sweep.stages import Stages, double_precision

from . import sweeps

ROWS = []
HERE = Path(__file__).parent
pytestmark = [
    pytest.mark.skipif(not os.environ.get("BENCH"), reason="make bench"),
    pytest.mark.filterwarnings("ignore"),
]


def row(figure, found, at_least=None, at_most=None, note=""):
    ROWS.append((figure, found, at_least, at_most, note))
    assert at_least is None or found >= at_least / 2, (figure, found)
    assert at_most is None or found <= at_most * 4, (figure, found)


@pytest.fixture(scope="module", autouse=True)
def table():
    yield
    print(f"\n\n{sweeps.POINTS:,} points, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    for figure, found, least, most, note in ROWS:
        wanted = f">= {least}" if least is not None else f"<= {most}" if most is not None else ""
        met = "" if not wanted else "ok" if (least is None or found >= least) and (most is None or found <= most) else "MISSED"
        print(f"{figure:<78} {found:7.3f}  {wanted:<8} {met:<7} {note}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("bench")


@pytest.fixture(scope="module")
def stored(folder):
    """A finished store, its plan, and a runner whose stages are compiled."""
    path = folder / "stored.zarr"
    sweep.run(sweeps.spec(), path)
    plan = store.plan_of(path)
    runner = execute.Runner(path, plan)
    runner.stages((0,) * len(plan.dims))
    return path, plan, runner


def evaluate_all(plan, stages):
    """Every block evaluated, two in flight, nothing kept."""
    waiting = []
    for chunk in plan.chunks():
        waiting.append(stages(chunk.start))
        if len(waiting) > 1:
            [value.block_until_ready() for value in waiting.pop(0).values()]
    [value.block_until_ready() for outputs in waiting for value in outputs.values()]


def test_storing(stored, folder):
    path, plan, runner = stored
    blocks = []
    for chunk in plan.chunks():
        with double_precision():
            started = runner.dispatch(chunk.index)
            blocks.append([(v, runner._cut(v, np.asarray(value), chunk), chunk.index) for v, value in started.items()])

    def raw_write(durable):
        def write(block):
            for variable, values, index in block:
                place = plan.chunk_index(variable, index)
                yield chunks.write_chunk(folder / "raw", variable.name, place, values, plan.chunk_shape(variable), variable.fill, "lz4")

        with ThreadPoolExecutor(execute.WRITERS) as pool:
            files = list(pool.map(lambda block: list(write(block)), blocks))
        if durable:
            disk.sync(file for group in files for file in group)

    def store_all():
        indices = np.flatnonzero(plan.pending({}))
        with journal.Journal(path) as book:
            execute._pipeline(runner, indices, book, execute._Count(len(indices), plan.points, None))

    ways = (lambda: evaluate_all(plan, runner.stages), lambda: raw_write(True), lambda: raw_write(False), store_all)
    evaluated, written, loose, whole = sweeps.best_of(4, *ways)
    note = f"evaluate {plan.points / evaluated / 1e6:.1f} M/s, write {plan.points / written / 1e6:.1f} M/s, stored {plan.points / whole / 1e6:.1f} M points/s"
    row("(evaluate + raw durable write of the same arrays) / stored sweep", (evaluated + written) / whole, 0.95, note=note)
    row("(evaluate + raw write that is not synced) / stored sweep", (evaluated + loose) / whole)


def test_reducing():
    import jax
    import jax.numpy as jnp

    from sweep._kernels import model

    made = sweeps.spec(outputs=["step_time_s"], reduce={"minimize": "step_time_s", "over": ["micro_batch", "tp", "pp", "dp", "grad_bytes", "seq_len", "link_gbps"]})
    plan = Plan.of(made)
    task = Task(plan, Stages(plan.mesh, plan.reduction.outputs, plan.tile))
    names = task.stages._names

    def bare(*arrays):
        inputs = model.Inputs(**task.stages._fixed, **dict(zip(names, arrays)))
        values = model.evaluate(inputs, ("step_time_s", "status"))
        return jnp.min(jnp.where(values["status"] == 0, values["step_time_s"], jnp.inf))

    with double_precision():
        compiled = jax.jit(bare).lower(*task.stages.arrays((0,) * len(plan.dims))).compile()

    tiles = [chunk.start for chunk in Plan.of(made, block=plan.tile).chunks()]

    def bare_all():
        with double_precision():
            waiting = []
            for start in tiles:
                waiting.append(compiled(*task.stages.arrays(start)))
                if len(waiting) > 1:
                    waiting.pop(0).block_until_ready()
            [value.block_until_ready() for value in waiting]

    def reduced():
        with ThreadPoolExecutor(execute.WRITERS) as pool:
            list(pool.map(lambda chunk: task.run(chunk.index), plan.chunks()))

    reduced()
    waited = sweeps.best_of(5, bare_all, reduced)
    plain, ours = sweeps.best_of(5, bare_all, reduced, clock=time.process_time)
    note = f"{plan.points / ours / 1e6:.1f} against {plan.points / plain / 1e6:.1f} M points per processor second; by the wall clock {waited[0] / waited[1]:.2f}"
    row("reduce mode / evaluate-and-minimum in one bare jit", plain / ours, 0.9, note=note)


def test_against_apply_ufunc(folder):
    import dask
    import xarray as xr

    from sweep._kernels import model

    made = sweeps.spec(min(sweeps.POINTS, 1e6))
    plan = Plan.of(made)
    path = folder / "ours.zarr"
    store.create(plan, path)
    runner = execute.Runner(path, plan)
    runner.stages((0,) * len(plan.dims))
    names = [name for name, entry in made.mesh.inputs.items() if entry.dims]
    fixed = {name: entry.values for name, entry in made.mesh.inputs.items() if not entry.dims}

    def function(*arrays, outputs):
        values = model.evaluate(model.Inputs(**fixed, **dict(zip(names, arrays)), known=made.mesh.known), outputs)
        full = np.broadcast_shapes(*(a.shape for a in arrays))
        results = tuple(np.broadcast_to(np.asarray(values[name], "f4"), full) for name in outputs)
        return results if len(results) > 1 else results[0]

    def theirs(only_own_axes):
        def work():
            variables = {}
            groups = {}
            for v in plan.variables:
                groups.setdefault(v.dims if only_own_axes else plan.dims, []).append(v.name)
            for dims, outputs in groups.items():
                inputs = []
                for name in names:
                    entry = made.mesh.inputs[name]
                    wanted = xr.DataArray(entry.values, dims=entry.dims)
                    inputs.append(wanted if set(entry.dims) <= set(dims) else wanted.isel({d: 0 for d in entry.dims}))
                grid = xr.broadcast(*inputs, *(xr.DataArray(np.zeros(n), dims=d) for d, n in zip(plan.dims, plan.shape) if d in dims))
                blocks = dict(zip(plan.dims, plan.block))
                grid = [a.transpose(*dims).chunk({d: blocks[d] for d in dims}) for a in grid[: len(names)]]
                results = xr.apply_ufunc(function, *grid, kwargs={"outputs": tuple(outputs)}, dask="parallelized", output_dtypes=["f4"] * len(outputs), output_core_dims=[[]] * len(outputs))
                variables.update(zip(outputs, results if isinstance(results, tuple) else (results,)))
            with dask.config.set(scheduler="threads", num_workers=2):
                xr.Dataset(variables).to_zarr(folder / "theirs.zarr", mode="w")

        return work

    def ours():
        indices = np.flatnonzero(plan.pending({}))
        with journal.Journal(path) as book:
            execute._pipeline(runner, indices, book, execute._Count(len(indices), plan.points, None))

    mine, equal, wide = sweeps.best_of(2, ours, theirs(True), theirs(False))
    row("apply_ufunc + dask + to_zarr of the same arrays / stored sweep", equal / mine, 2.5, note=f"{plan.points:,} points")
    row("apply_ufunc + dask + to_zarr as it would store them / stored sweep", wide / mine, 5.0)


def test_peak_memory(folder):
    script = (
        "import sys, sweep; from tests.benchmarks import sweeps; from sweep.plan import Plan\n"
        "made = sweeps.spec(); plan = Plan.of(made); sweep.run(made, sys.argv[1])\n"
        "peak = next(int(line.split()[1]) * 1024 for line in open('/proc/self/status') if line.startswith('VmHWM'))\n"
        "print(peak / plan.peak_bytes)\n"
    )
    said = subprocess.run([sys.executable, "-c", script, str(folder / "memory.zarr")], capture_output=True, text=True, check=True, cwd=HERE.parent.parent)
    found = float(said.stdout.split()[-1])
    row("measured peak memory / plan's projection", found, 0.5, 1.0)


def test_slices(stored):
    path, plan, _ = stored
    ds = store.open_store(path)
    variable = plan.variables[0]
    generator = np.random.default_rng(7)
    slowest = ours = raw = 0.0
    for _ in range(12):
        kept = sorted(generator.choice(len(plan.dims), 2, replace=False))
        at = {dim: int(generator.integers(n)) for k, (dim, n) in enumerate(zip(plan.dims, plan.shape)) if k not in kept}
        touched = [
            index for index in np.ndindex(*plan.grid)
            if all(k in kept or index[k] == at[dim] // b for k, (dim, b) in enumerate(zip(plan.dims, plan.block)))
        ]  # fmt: skip

        def read_raw(touched=touched):
            for index in touched:
                chunks.read_chunk(path, variable.name, index, plan.chunk_shape(variable), variable.dtype, "lz4")

        slice_s, raw_s = sweeps.best_of(5, lambda at=at: ds[variable.name].isel(at).values, read_raw)
        ours, raw, slowest = ours + slice_s, raw + raw_s, max(slowest, slice_s)
    row("2-D slice of a 7-D store / raw read of its chunks", ours / raw, at_most=3.0, note=f"mean {ours / 12 * 1e3:.1f} ms, slowest {slowest * 1e3:.1f} ms")


def test_best_over_three_axes(stored):
    path, plan, _ = stored
    ds = store.open_store(path)
    variable = plan.variables[0]

    def read_raw():
        for index in np.ndindex(*plan.grid):
            chunks.read_chunk(path, variable.name, index, plan.chunk_shape(variable), variable.dtype, "lz4")

    def best():
        return sweep.query(ds, best=variable.name, over="seq_len,dp,link_gbps")

    raw, ours = sweeps.best_of(9, read_raw, best)
    spent = sweeps.best_of(9, read_raw, best, clock=time.process_time)
    note = f"{ours * 1e3:.0f} against {raw * 1e3:.0f} ms; in processor seconds {spent[1] / spent[0]:.2f}"
    row("best over three axes of a stored variable / raw read of that variable", ours / raw, at_most=1.5, note=note)


def test_resume_of_a_finished_sweep(stored):
    path, _, _ = stored
    script = "import sweep, sys, time; t = time.time(); from tests.benchmarks import sweeps; r = sweep.run(sweeps.spec(), sys.argv[1]); assert r.blocks == 0; print(time.time() - t)"
    spoken = [
        float(subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True, cwd=HERE.parent.parent).stdout)
        for _ in range(3)
    ]
    row("seconds to resume a finished sweep, imports included", min(spoken), at_most=2.0)


def test_two_workers(folder):
    script = HERE / "workers.py"
    done = subprocess.run([sys.executable, str(script), str(folder)], capture_output=True, text=True, check=True, cwd=HERE.parent.parent)
    found = json.loads(done.stdout.splitlines()[-1])
    row("2 dask workers / 1 worker, each pinned to one core", found["one"] / found["two"], 1.6, note=f"{found['two']:.1f} s against {found['one']:.1f} s")
    assert threading.active_count() < 50


def test_disk_is_what_it_is(folder):
    data = os.urandom(2**24)
    took = sweeps.seconds(lambda: (disk.write(folder / "x", data), disk.sync([str(folder / "x")])))
    row("MB/s of one synced 16 MB file here", 2**24 / took / 1e6)
