"""Bus bandwidth over message size on the network of one point: what nccl-tests would print there, by the model.

The group is the one that reduces gradients, the network that of the point's accelerator, port and fabric; a line for each
algorithm, and ``auto`` for the fastest that NCCL could pick.  Measured curves stand beside it in ``sweep diagnose``.
"""

import numpy as np
import xarray as xr

from ._kernels import collectives, quantities
from .points import Point

SIZES = 2.0 ** np.arange(12, 34)  # bytes: 4 KiB to 8 GiB
LINES = ("auto", "ring", "tree", "hierarchical", "in-network")
LABELS = {
    "size_bytes": ("message size", "byte"),
    "busbw_gbytes_per_s": ("bus bandwidth", "GB/s"),
    "algorithm": ("all-reduce algorithm", ""),
}


def all_reduce(sizes=SIZES, algorithms=LINES, **inputs):
    """``busbw_gbytes_per_s`` over (algorithm, size_bytes) at a point, given as ``sweep.evaluate`` takes it."""
    point = Point.of(**inputs)
    net, group = collectives.tiers(point.x), point.parts.shares.dense
    ways = collectives.all_reduce(group, net)
    codes = quantities.INPUTS["algorithm"].choices
    rows = []
    if float(group.n_in) == 1:  # one rank in each domain: hierarchical is the ring
        algorithms = [word for word in algorithms if word != "hierarchical"]
    for word in algorithms:
        lines = collectives.selected(ways, codes.index(word), net)
        seconds = np.array([float(collectives.seconds(lines, nbytes, point.u)) for nbytes in sizes])
        rows.append(collectives.bus_bandwidth("all_reduce", np.asarray(sizes), float(group.n), seconds) / 1e9)
    labels = {"algorithm": np.array(algorithms, object), "size_bytes": np.asarray(sizes)}
    ds = xr.Dataset({"busbw_gbytes_per_s": (("algorithm", "size_bytes"), np.array(rows))}, labels)
    for name, (words, unit) in LABELS.items():
        ds[name].attrs.update(long_name=words, units=unit)
    ds.attrs["ranks"] = int(group.n)
    return ds
