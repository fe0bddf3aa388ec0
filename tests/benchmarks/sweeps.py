"""The sweep that the benchmarks run, and how they measure.

Two ways of doing the same work are timed in turn, several times, and the ratio of their best times is what counts: single figures of
a shared machine move by a factor of two, ratios hold.  Where both ways keep the processor busy and nothing else, processor seconds are
compared: what others do on the machine moves them least.  Compilation is outside of all timings, as it does not grow with the sweep.
"""

import os
import time

from sweep.spec import Spec

OUTPUTS = [
    "step_time_s", "exposed_dp_s", "exposed_fraction", "dp_comm_time_s", "mfu", "tokens_per_s_per_gpu",
    "required_link_gbps", "compute_time_s", "memory_bytes",
]  # and status: ten  # fmt: skip
POINTS = int(float(os.environ.get("BENCH_POINTS", 1e7)))


def spec(points=None, **more):
    """Seven axes and ten outputs of llama-3-70b on H100s; the sequence length has as many labels as ``points`` ask for."""
    count = max(2, round((points or POINTS) / (43 * 4 * 4 * 5 * 8 * 2)))
    axes = {
        "seq_len": {"range": [1024, 1024 + 64 * (count - 1), 64]},
        "micro_batch": [1, 2, 4, 8],
        "tp": [1, 2, 4, 8],
        "pp": [1, 2, 4, 8, 16],
        "dp": {"powers_of_two": [8, 1024]},
        "grad_bytes": [2, 4],
        "link_gbps": {"geomspace": [25, 3200, 43]},
    }
    fixed = {"model": "llama-3-70b", "accelerator": "h100", "efficiency": 0.4}
    return Spec.from_dict({"axes": axes, "fixed": fixed, "outputs": OUTPUTS, **more})


def seconds(work, clock=time.perf_counter):
    """How long one call takes."""
    began = clock()
    work()
    return clock() - began


def best_of(rounds, *ways, clock=time.perf_counter):
    """The best time of each way, timed in turn, by a ``clock`` (time.process_time: processor seconds of all threads)."""
    times = [[seconds(way, clock) for way in ways] for _ in range(rounds)]
    return [min(column) for column in zip(*times)]
