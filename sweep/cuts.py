"""How a mesh is cut into blocks, and put in another order: arithmetic on shapes and labels."""

import math
from dataclasses import replace

import numpy as np


def first_along(included, missing):
    """True where a block is the first included one along its ``missing`` axes, in C order."""
    missing = [k for k in missing if included.shape[k] > 1]
    if not missing:
        return included
    kept = [k for k in range(included.ndim) if k not in missing]
    turned = included.transpose(kept + missing)
    flat = turned.reshape(math.prod(included.shape[k] for k in kept), -1)
    first = np.zeros_like(flat)
    rows = np.arange(len(flat))
    first[rows, flat.argmax(axis=1)] = flat.any(axis=1)
    return first.reshape(turned.shape).transpose(np.argsort(kept + missing))


def cut(mesh, leaves, points):
    """The lengths of a block: about ``points`` points, the least used axis kept whole if it fits."""
    used = {dim: 0 for dim in mesh.dims}
    for stage in ("prepare", "combine"):
        for leaf in leaves[stage]:
            for dim in leaf.dims:
                used[dim] += 1
    sizes = dict(zip(mesh.dims, mesh.shape))
    lengths, left = dict(sizes), max(1, points)
    least = min([count for count in used.values() if count] or [0])
    keep = []
    for dim in mesh.dims:
        if used[dim] == least and sizes[dim] <= min(left, math.isqrt(points)):
            keep.append(dim)
            left //= sizes[dim]
    pieces = {dim: 1 for dim in mesh.dims if dim not in keep}
    while math.prod(lengths.values()) > points and pieces:
        longest = max(pieces, key=lambda dim: lengths[dim])
        if lengths[longest] == 1:
            break
        surplus = math.prod(lengths.values()) / points
        pieces[longest] = max(pieces[longest] + 1, int(pieces[longest] * min(surplus, 1.02)))
        lengths[longest] = -(-sizes[longest] // pieces[longest])
    return tuple(lengths[dim] for dim in mesh.dims)


def rearranged(mesh, orders):
    """The mesh with the labels of its axes in another order: axis name -> indices into the labels it has now."""
    axes = tuple(
        replace(axis, labels=axis.labels[order], columns={k: c[order] for k, c in axis.columns.items()})
        for axis in mesh.axes
        for order in [orders.get(axis.name, slice(None))]
    )
    inputs = {}
    for name, entry in mesh.inputs.items():
        values = entry.values
        for k, dim in enumerate(entry.dims):
            if dim in orders:
                values = np.take(values, orders[dim], axis=k)
        inputs[name] = replace(entry, values=values)
    return replace(mesh, axes=axes, inputs=inputs)
