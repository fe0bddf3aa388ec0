"""A small store with everything that the explorer meets: words and numbers as axes, one unsorted, a constraint, reasons."""

from functools import cache

import sweep
from sweep.spec import Spec

CONFIG = {
    "title": "Explored <b>&",
    "axes": {
        "model": ["llama-3-8b", "llama-3-70b"],
        "accelerator": ["h100", "a100"],
        "tp": [8, 1, 2],
        "micro_batch": [1, 2, 4],
        "link_gbps": [100, 200, 400, 800],
    },
    "fixed": {"dp": 64},
    "where": "not (tp == 1 and micro_batch == 4)",
    "allow": ["memory"],
    "outputs": ["step_time_s", "exposed_fraction", "required_link_gbps", "tokens_per_domain", "bottleneck", "mfu"],
}


@cache
def stored(folder):
    """The path of the store below ``folder``, written once for each process."""
    path = folder / "explored.zarr"
    sweep.run(Spec.from_dict({**CONFIG, "store": {"block_points": 32}}), str(path))
    return path
