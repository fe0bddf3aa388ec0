"""What each parallelism dimension asks of each tier of the network: the scale-up links, the ports, the uplinks above the pod.

The port's requirements are the kernels' own.  The scale-up links are asked the same way, by bisection on the model: the least
rate at which, with an infinite port, a dimension's exposed time stays within the tolerance of the step.  An uplink carries what the
required port leaves of itself above the pod: the port over the oversubscription, for dimensions that cross pods.

All are Gb/s (1e9 bit/s) per accelerator and direction.  0: the dimension sends nothing there; inf: no rate is enough.
"""

import numpy as np

from ._kernels import quantities
from .evaluations import evaluate

DIMENSIONS = ("dp", "tp", "pp", "ep", "cp")
TIERS = {"scaleup": "scale-up", "link": "scale-out", "uplink": "above the pod"}
LEAST, MOST = 8.0, 8e7  # Gb/s that are searched
STEPS, PASSES = 65, 3


def name_of(dimension, tier):
    """The variable that holds a requirement: ``required_link_gbps_dp`` is the kernels' own, the others are its like."""
    return f"required_{tier}_gbps_{dimension}"


def of_point(**inputs):
    """``{name_of(dimension, tier): Gb/s}`` of one point, given as ``sweep.evaluate`` takes it."""
    found = {}
    port = [name_of(one, "link") for one in DIMENSIONS]
    asked = evaluate(port, **inputs)
    found |= {name: float(asked[name]) for name in port}
    over = float(inputs.get("oversubscription", 1) or 1)
    flat = evaluate(port, **inputs | {"oversubscription": 1}) if over > 1 else asked
    for one, name in zip(DIMENSIONS, port):
        crosses = found[name] > float(flat[name]) * (1 + 1e-9)
        found[name_of(one, "uplink")] = found[name] / over if crosses else 0.0
    return found | scaleup(**inputs)


def scaleup(**inputs):
    """The requirements of the scale-up links: ``{"required_scaleup_gbps_tp": Gb/s, ...}``."""
    free = inputs | {"link_gbps": float("inf")}
    exposed = [f"exposed_{one}_s" for one in DIMENSIONS]
    ideal = evaluate([*exposed, "step_time_s"], **free | {"scaleup_gbytes_per_s": float("inf")})
    share = inputs.get("tolerance", quantities.INPUTS["tolerance"].default)
    allowed = share / (1.0 - share) * float(ideal["step_time_s"])
    if allowed != allowed:  # such a run does not exist
        return {name_of(one, "scaleup"): allowed for one in DIMENSIONS}
    found = {}
    for one, name in zip(DIMENSIONS, exposed):
        low, high = LEAST, MOST
        for _ in range(PASSES):
            rates = np.geomspace(low, high, STEPS)
            late = evaluate([name], **free | {"scaleup_gbytes_per_s": rates / 8.0})[name]
            late = np.broadcast_to(late.values, rates.shape) > allowed
            if not late.any() or late.all():
                break
            last = int(np.flatnonzero(late)[-1])
            low, high = rates[last], rates[min(last + 1, STEPS - 1)]
        found[name_of(one, "scaleup")] = float("inf") if late.all() else float(high) if late.any() else 0.0
    return found
