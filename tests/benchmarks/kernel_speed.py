"""Speed of the kernels on one core: points per second under jit and in NumPy (the same text), and seconds of compiling.

    taskset -c 0 python tests/benchmarks/kernel_speed.py

Nine axes, 1.1 M points, float64, `auto` and three ZeRO stages, nothing stored.  Times are CPU seconds of this process (best of
several), so that other work on the machine does not count; ratios between lines of one run are what is to be compared.
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
CASES = {"all outputs": tuple(quantities.STEP_OUTPUTS), "the step alone": ("step_time_s",)}


def mesh():
    """The open mesh of the benchmark."""
    axes = tuple(Axis(name, np.array(values, float)) for name, values in AXES.items())
    inputs = {name: Input(value) for name, value in FIXED.items()}
    return Mesh(axes, inputs | {axis.name: Input(axis.labels, (axis.name,)) for axis in axes})


def seconds(call, times):
    """Least CPU seconds of a call."""
    best = float("inf")
    for _ in range(times):
        start = time.process_time()
        call()
        best = min(best, time.process_time() - start)
    return best


def main():
    """Print the table."""
    grid = mesh()
    print(f"{grid.size:,} points; compile s, M points/s under jit, the minimum leaving, NumPy, jit over NumPy")
    for name, outputs in CASES.items():
        stages = Stages(grid, outputs, grid.shape, stored="float64")
        origin = (0,) * len(grid.shape)
        start = time.process_time()
        jax.block_until_ready(stages(origin))
        compiled = time.process_time() - start
        with double_precision():
            least = jax.jit(lambda values: [value.min() for value in values])
            jitted = seconds(lambda: jax.block_until_ready(stages(origin)), 4)
            jax.block_until_ready(least(list(stages(origin).values())))
            smallest = seconds(lambda: jax.block_until_ready(least(list(stages(origin).values()))), 4)
        plain = seconds(lambda: evaluate(grid.block(), outputs), 2)
        rates = [grid.size / one / 1e6 for one in (jitted, smallest, plain)]
        print(f"{name:15} {compiled:6.1f} {rates[0]:8.1f} {rates[1]:8.1f} {rates[2]:8.2f} {rates[0] / rates[2]:8.1f}")
    point = Inputs(**FIXED, link_gbps=400.0)
    evaluate(point)
    print(f"one point in NumPy: {seconds(lambda: evaluate(point, tuple(quantities.STEP_OUTPUTS)), 20) * 1e3:.1f} ms")


if __name__ == "__main__":
    main()
