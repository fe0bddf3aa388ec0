"""Other ways to lay the same training out on the same accelerators, evaluated by the kernels and ranked by the step."""

import itertools

import numpy as np

from ._kernels import inputs as kernel_inputs
from ._kernels import model, quantities

SHOWN = ("step_time_s", "mfu", "exposed_fraction", "required_link_gbps", "memory_bytes")
LAYOUT = ("tp", "pp", "ep", "zero_stage")
WIDEST = {"tp": 64, "pp": 32, "ep": 256}
STAGES = (0, 1, 3)  # of ZeRO: 2 differs from 1 in what it costs, not in what it fits


def alternatives(point, most=12):
    """Layouts of a point's model, accelerators and global batch, as rows of plain values, the fastest first.

    tp, pp and ep in powers of two, ZeRO 0, 1 and 3; cp, micro-batch and all else as in the point, which is one of the rows
    (``here``).  Layouts that cannot run are left out; those that do not fit the memory come last.
    """
    x = kernel_inputs.complete(point.inputs)
    here = tuple(float(getattr(x, name)) for name in LAYOUT)
    grid = np.array(sorted({here, *_layouts(x)}))
    columns = dict(zip(LAYOUT, grid.T))
    changed = point.inputs._replace(**columns, gpus=float(x.gpus), dp=None, micro_batches=None, global_batch=float(x.global_batch))
    found = model.evaluate(changed, (*SHOWN, "status", "dp"))
    found = {name: np.broadcast_to(np.asarray(value, float), len(grid)) for name, value in found.items()}
    memory = quantities.REASONS.index("memory")
    runs = np.isin(found["status"], (0, memory)) & np.isfinite(found["step_time_s"])
    order = [int(i) for i in np.lexsort((found["step_time_s"], found["status"])) if runs[i]]
    same = next((i for i in order if tuple(grid[i]) == here), None)
    chosen = order[:most] if same is None or same in order[:most] else [*order[: most - 1], same]
    return [
        {
            **{name: int(value) for name, value in zip(LAYOUT, grid[i])},
            "dp": float(found["dp"][i]),
            **{name: float(found[name][i]) for name in SHOWN},
            "status": quantities.REASONS[int(found["status"][i])],
            "here": i == same,
        }
        for i in chosen
    ]


def _layouts(x):
    """(tp, pp, ep, zero stage) worth trying: what divides the accelerators, tp within a domain."""
    sizes = {
        "tp": _powers(min(WIDEST["tp"], x.scaleup_domain)),
        "pp": _powers(min(WIDEST["pp"], x.layers)),
        "ep": _powers(min(WIDEST["ep"], max(x.experts, 1))),
    }
    for tp, pp, ep, stage in itertools.product(*sizes.values(), STAGES):
        if x.gpus % (tp * pp * x.cp) == 0:
            yield float(tp), float(pp), float(ep), float(stage)


def _powers(most):
    found, size = [], 1
    while size <= most:
        found.append(size)
        size *= 2
    return found
