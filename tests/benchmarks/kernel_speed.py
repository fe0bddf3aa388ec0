"""Speed of the kernels on one core: points per second under jit and in NumPy (the same text), and seconds of compiling.

    taskset -c 0 python tests/benchmarks/kernel_speed.py

Nine axes, 1.1 M points, float64, `auto` and three ZeRO stages, nothing stored.  Times are CPU seconds of this process (best of
several), so that other work on the machine does not count; ratios between lines of one run are what is to be compared.

What bounds all outputs: about a third each goes to the inverse (its kinks side by side, then four Newton steps over all candidates, on
1/43 of the points: the link's axis is not in it), to the services, terms and step at full rank, and to writing the outputs (74 MB).
The step alone spends nearly all in combine: candidates' dot products with services.  A fifth of all outputs is the system handing out
pages anew (kept by mallopt: 8.9 M points/s for 7.2); stored sweeps, float32 and in threads, gain nothing from keeping them.

Found on an otherwise idle core of an AMD EPYC, Python 3.11, jax 0.10.2 (asked: 10 M points/s and 5 x NumPy for all outputs, 25 M and 15 x
for the minimum of one, 1.5 M for NumPy, 20 s to compile with `auto`, 10 s with one algorithm, 30 s interleaved, 4 ms for a point):

                                 compile s     jit          minimum of one           NumPy
    all outputs, auto                 12.1     8.5    3.1x                            2.74
    all outputs, one algorithm         9.6     9.3    3.4x                            2.72
    all outputs, interleaved          16.9     5.2    5.8x                            0.88
    the step alone                     3.9    47.6    5.9x            73.5    9.2x    8.02
    one point in NumPy: 1.4 ms
"""

import time

import jax
import numpy as np
from kernels import quantities
from kernels.model import Inputs, evaluate

from sweep.mesh import Axis, Input, Mesh
from sweep.stages import Stages, double_precision

LLAMA_70B = dict(layers=80, hidden=8192, ffn=28672, heads=64, kv_heads=8, head_dim=128, vocab=128256, gated_mlp=1)
H100 = dict(peak_tflops=989.0, hbm_gb=80.0, hbm_gbytes_per_s=3350.0, scaleup_domain=8, scaleup_gbytes_per_s=450.0)
FIXED = dict(LLAMA_70B, **H100, dp=64, micro_batches=8)
AXES = dict(micro_batch=[1, 2, 4], tp=[1, 2, 4, 8], pp=[1, 2, 4, 8], zero_stage=[0, 1, 3], grad_bytes=[2, 4], seq_len=[4096, 8192],
            efficiency=[0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6], bucket_bytes=[25e6, 5e7, 1e8, 2e8, 4e8],
            link_gbps=list(np.geomspace(25, 3200, 43)))
OUTPUTS = tuple(quantities.STEP_OUTPUTS)
CASES = {  # name -> outputs, other inputs
    "all outputs, auto": (OUTPUTS, {}),
    "all outputs, one algorithm": (OUTPUTS, dict(algorithm=1)),
    "all outputs, interleaved": (OUTPUTS, dict(vpp=[1, 2, 4], micro_batch=1)),
    "the step alone": (("step_time_s",), {}),
}


def mesh(changes):
    """The open mesh of the benchmark."""
    entries = FIXED | AXES | changes
    axes = tuple(Axis(name, np.array(values, float)) for name, values in entries.items() if isinstance(values, list))
    inputs = {name: Input(value) for name, value in entries.items() if not isinstance(value, list)}
    return Mesh(axes, inputs | {axis.name: Input(axis.labels, (axis.name,)) for axis in axes})


def seconds(call, times):
    """Least CPU seconds of a call."""
    best = float("inf")
    for _ in range(times):
        start = time.process_time()
        call()
        best = min(best, time.process_time() - start)
    return best


def measured(outputs, changes):
    """Seconds to compile, and million points each second: under jit, one output's minimum in one bare jit after prepare, in NumPy."""
    grid = mesh(changes)
    stages = Stages(grid, outputs, grid.shape, stored="float64")
    origin = (0,) * len(grid.shape)
    start = time.process_time()
    jax.block_until_ready(stages(origin))
    compiled = time.process_time() - start
    with double_precision():
        least = jax.jit(lambda arrays, parts: stages.traced(arrays, parts)[outputs[0]].min())
        jitted = seconds(lambda: jax.block_until_ready(stages(origin)), 5)
        smallest = float("inf")
        if len(outputs) == 1:
            jax.block_until_ready(least(*stages.prepared(origin)))
            smallest = seconds(lambda: jax.block_until_ready(least(*stages.prepared(origin))), 5)
    plain = seconds(lambda: evaluate(grid.block(), outputs), 2)
    return compiled, *(grid.size / one / 1e6 for one in (jitted, smallest, plain))


def main():
    """Print the table."""
    print(f"{mesh({}).size:,} points; M points/s, over NumPy")
    print(f"{'':28}{'compile s':>10}{'jit':>8}{'':>8}{'minimum of one':>16}{'':>8}{'NumPy':>8}")
    for name, (outputs, changes) in CASES.items():
        compiled, jitted, smallest, plain = measured(outputs, changes)
        one = f"{smallest:16.1f}{smallest / plain:7.1f}x" if len(outputs) == 1 else " " * 24
        print(f"{name:28}{compiled:10.1f}{jitted:8.1f}{jitted / plain:7.1f}x{one}{plain:8.2f}", flush=True)
    point = Inputs(**FIXED, link_gbps=400.0)
    evaluate(point)
    print(f"one point in NumPy: {seconds(lambda: evaluate(point, OUTPUTS), 20) * 1e3:.1f} ms")


if __name__ == "__main__":
    main()
