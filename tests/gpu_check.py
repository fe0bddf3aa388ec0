"""One script for a machine with a GPU: is it right, how fast is it, and what limits it.  Under four minutes.

    python tests/gpu_check.py [--points 3e7] [--only-numbers]

It needs jax with CUDA (which brings NumPy and SciPy) and PyYAML; with zarr, xarray and google-crc32c there too, sweeps are stored as well.
To a machine without a network carry them as wheels:

    pip download --only-binary :all: -d wheels PyYAML zarr xarray google-crc32c        # where there is one
    pip install --no-index --find-links wheels PyYAML zarr xarray google-crc32c        # there

Without a GPU it runs on the CPU, so that it is known to work before a GPU is at hand.  The numbers come first and decide the exit status:
0 where every one agrees.  What is left of the timings after 150 seconds is passed over, and said to be.

1. the device's numbers against the CPU's and plain NumPy's over random designs, float64; float32's error beside it
2. points/s of evaluation (float64, float32), of a reduction and of a stored sweep
3. bytes/s of each stage against a plain copy on the device, and where the time of a block goes
"""

import argparse
import contextlib
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

ENOUGH_S = 150  # after so long no further timing is begun: each takes half a minute at most, most of it compiling
OUTPUTS = (
    "step_time_s", "exposed_dp_s", "exposed_fraction", "dp_comm_time_s", "mfu", "tokens_per_s_per_gpu", "required_link_gbps",
    "link_gbps_at_tolerance", "compute_time_s", "memory_bytes", "binding_dimension", "status",
)  # fmt: skip
DESIGNS = {
    "link_gbps": {"geomspace": [25, 3200]}, "seq_len": {"geomspace": [512, 65536]}, "micro_batch": [1, 2, 4, 8], "tp": [1, 2, 4, 8],
    "pp": [1, 2, 4, 8], "dp": [8, 32, 128, 512], "zero_stage": [0, 1, 2], "grad_bytes": [2, 4], "link_latency_us": {"linspace": [0, 20]},
    "bucket_bytes": {"geomspace": [1e6, 1e9]}, "recompute": ["none", "selective", "full"], "accelerator": ["a100", "h100", "b200", "gb200"],
}  # fmt: skip


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--points", type=float, default=3e7, help="of the sweeps that are timed")
    options.add_argument("--designs", type=int, default=4096, help="random designs whose numbers are compared")
    options.add_argument("--only-numbers", action="store_true", help="no timings")
    asked = options.parse_args()
    import jax

    device = jax.devices()[0]
    print(f"device   {device.platform} {device.device_kind}, jax {jax.__version__}, {os.cpu_count()} cores")
    began = time.perf_counter()
    agree = numbers(asked.designs)
    if not asked.only_numbers:
        speed(asked.points, began + ENOUGH_S)
    print(f"{'all numbers agree' if agree else 'NUMBERS DIFFER'}, {time.perf_counter() - began:.0f} s in all")
    return 0 if agree else 1


def numbers(count):
    """True where the device agrees with the CPU and with NumPy over ``count`` random designs."""
    import jax

    from sweep._kernels import model
    from sweep.spec import Spec
    from sweep.stages import Stages, double_precision

    content = {"sample": {"method": "sobol", "size": count, "seed": 11, "of": DESIGNS}, "fixed": {"model": "llama-3-70b"}, "outputs": list(OUTPUTS)}
    mesh = Spec.from_dict(content).mesh
    plain = model.evaluate(mesh.block(), OUTPUTS)

    def evaluated(on, precision="float64"):
        with jax.default_device(on), double_precision():
            outputs = Stages(mesh, OUTPUTS, mesh.shape, precision, "float64")((0,))
            return {name: np.asarray(value) for name, value in outputs.items()}

    here, cpu = evaluated(jax.devices()[0]), evaluated(jax.devices("cpu")[0])
    single = evaluated(jax.devices()[0], "float32")
    print(f"\n{'largest relative difference of':<28}{'device-CPU':>12}{'device-NumPy':>14}{'float32':>12}   over {count} designs")
    agree = True
    for name in OUTPUTS:
        far = [distance(name, here[name], other) for other in (cpu[name], np.asarray(plain[name]), single[name])]
        agree &= far[0] <= 1e-9 and far[1] <= 1e-9
        print(f"{name:<28}{far[0]:>12.1e}{far[1]:>14.1e}{far[2]:>12.1e}")
    return agree


def distance(name, one, other):
    """Largest relative difference where both are finite; infinite where one is NaN or infinite and the other not.  For a category the
    share of designs with another word.
    """
    from sweep._kernels import quantities

    one, other = np.broadcast_arrays(np.asarray(one, float), np.asarray(other, float))
    if quantities.OUTPUTS[name].kind == "category":
        return float(np.mean(one != np.where(np.isnan(other), 255, other)))
    both = np.isfinite(one) & np.isfinite(other)
    if np.any(np.isnan(one) != np.isnan(other)) or np.any(np.isposinf(one) != np.isposinf(other)):
        return np.inf
    scale = np.maximum(np.abs(one), np.abs(other))[both]
    floor = 1e-12 * (np.max(scale, initial=0.0) or 1.0)  # a difference of two nearly equal times is compared with those times
    return float(np.max(np.abs(one[both] - other[both]) / np.maximum(scale, floor), initial=0.0)) if both.any() else 0.0


def speed(points, until):
    """Points/s in each mode, and where a block's time goes; what would begin after ``until`` is passed over."""
    from tests.benchmarks.sweeps import spec

    def late(what):
        if time.perf_counter() > until:
            print(f"{what}: passed over, the time is up")
        return time.perf_counter() > until

    profile(spec(points, store={"block_points": 2**22}))
    print(f"\n{'evaluate, all outputs':<44}{'points/s':>12}")
    for precision in ("float64", "float32"):
        for block in (2**20, 2**22):
            if late(f"  {precision}, {block}"):
                continue
            made = spec(points, store={"block_points": block}, precision=precision)
            print(f"  {precision}, blocks of 2^{block.bit_length() - 1:<26}{evaluation_rate(made):>14.3g}")
    reduced = {"minimize": "step_time_s", "over": ["micro_batch", "tp", "pp", "dp", "grad_bytes", "seq_len", "link_gbps"]}
    if not late("reduce"):
        print(f"{'reduce, minimum over all seven axes':<44}{reduction_rate(spec(points, outputs=['step_time_s'], reduce=reduced, store={'block_points': 2**22})):>12.3g}")
    try:
        import xarray  # noqa: F401
        import zarr  # noqa: F401
    except ImportError:
        print("zarr or xarray is not here: no sweep is stored")
    else:
        if not late("store"):
            print(f"{'store, ten outputs':<44}{storing_rate(spec(points)):>12.3g}")


def evaluation_rate(made):
    from sweep.plan import Plan
    from sweep.stages import Stages

    plan = Plan.of(made)
    stages = Stages(plan.mesh, [v.name for v in plan.variables], plan.block, made.precision)
    wait(stages((0,) * len(plan.dims)))
    began, waiting = time.perf_counter(), []
    for chunk in plan.chunks():
        waiting.append(stages(chunk.start))
        if len(waiting) > 2:
            wait(waiting.pop(0))
    wait(waiting)
    return plan.points / (time.perf_counter() - began)


def reduction_rate(made):
    from concurrent.futures import ThreadPoolExecutor

    from sweep.execute import WRITERS
    from sweep.plan import Plan
    from sweep.reductions import Task
    from sweep.stages import Stages

    plan = Plan.of(made)
    task = Task(plan, Stages(plan.mesh, plan.reduction.outputs, plan.tile))
    chunks = list(plan.chunks())
    task.run(chunks[0].index)
    began = time.perf_counter()
    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(lambda chunk: task.run(chunk.index), chunks))
    return plan.points / (time.perf_counter() - began)


def storing_rate(made):
    from sweep import execute, journal, store
    from sweep.plan import Plan

    with tempfile.TemporaryDirectory() as folder:
        plan, path = Plan.of(made), Path(folder) / "a.zarr"
        store.create(plan, path)
        runner = execute.Runner(path, plan)
        wait(runner.stages((0,) * len(plan.dims)))
        blocks = np.flatnonzero(plan.pending({}))
        began = time.perf_counter()
        with journal.Journal(path) as book:
            execute._pipeline(runner, blocks, book, execute._Count(len(blocks), plan.points, None))
        return plan.points / (time.perf_counter() - began)


def profile(made):
    """Each stage alone: milliseconds, bytes it hands on, and bytes/s against a copy on the device."""
    import jax
    import jax.numpy as jnp

    from sweep.plan import Plan
    from sweep.stages import Stages, double_precision

    plan = Plan.of(made)
    stages = Stages(plan.mesh, [v.name for v in plan.variables], plan.block)
    start = (0,) * len(plan.dims)
    wait(stages(start))
    with double_precision():
        large = jnp.zeros(2**25, jnp.float32)
        copy = jax.jit(lambda x: x + 1)
        wait(copy(large))
        rate = 2 * large.nbytes / best(lambda: wait(copy(large)))
        prepare, combine, report = stages._compiled(3)
        arrays = jax.device_put(stages.arrays(start))
        parts = prepare(arrays)
        core = combine(arrays, parts)
        steps = {
            "arrays on the host": (lambda: stages.arrays(start), arrays),
            "prepare": (lambda: wait(prepare(arrays)), parts),
            "combine": (lambda: wait(combine(arrays, parts)), core),
            "report": (lambda: wait(report(arrays, parts, core)), report(arrays, parts, core)),
        }
        print(f"\na block of {plan.block}, copy on the device {rate / 1e9:.0f} GB/s\n{'':<24}{'ms':>9}{'MB':>9}{'GB/s':>9}{'of a copy':>11}")
        for name, (work, made_of) in steps.items():
            size, took = sum(x.nbytes for x in jax.tree.leaves(made_of)), best(work)
            print(f"{name:<24}{took * 1e3:>9.2f}{size / 1e6:>9.1f}{size / took / 1e9:>9.1f}{size / took / rate:>11.0%}")
        outputs = report(arrays, parts, core)

        def fetch():
            fresh = report(arrays, parts, core)
            wait(fresh)
            began = time.perf_counter()
            for value in fresh.values():
                value.copy_to_host_async()
            [np.asarray(value) for value in fresh.values()]
            return time.perf_counter() - began

        took, size = min(fetch() for _ in range(5)), sum(v.nbytes for v in outputs.values())
        print(f"{'fetch to the host':<24}{took * 1e3:>9.2f}{size / 1e6:>9.1f}{size / max(took, 1e-9) / 1e9:>9.1f}")
        spent = {name: best(work) for name, (work, _) in steps.items()} | {"fetch to the host": took}
        slowest = max(spent, key=spent.get)
        print(f"a block is limited by: {slowest}, {spent[slowest] / sum(spent.values()):.0%} of the time of its parts one after the other")
        for name, stage in zip(("prepare", "combine", "report"), (prepare, combine, report)):
            with contextlib.suppress(Exception):  # not every backend tells
                cost = stage.cost_analysis()
                print(f"{name:<24}{cost.get('flops', 0) / 1e6:>9.0f} MFLOP, {cost.get('bytes accessed', 0) / 1e6:.0f} MB moved as XLA counts")


def wait(tree):
    import jax

    return jax.block_until_ready(tree)


def best(work, rounds=7):
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


if __name__ == "__main__":
    sys.exit(main())
