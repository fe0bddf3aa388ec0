"""Points along a contour: where two quantities meet, found to the last digit and stored as a sweep of their own.

    sweep refine why-400g --contour "required_link_gbps = link_gbps" -o outputs/contour.zarr

The stored sweep tells between which labels of an axis the two sides cross; the model is then bisected between them, all crossings at
once; and the points become an axis ``sample`` of a new store, which carries every label of the point as a column.
"""

import numpy as np

from . import crossings, evaluations, execute, expressions
from ._kernels import quantities
from .blocks import Blocks
from .errors import SweepError
from .mesh import Axis, Input, Mesh
from .samples import AXIS, MOST
from .spec import Spec
from .store import open_store, plan_of

STEPS = 60  # of bisection: each halves the bracket, so that these leave nothing of it in float64
CLOSE = 1e-9  # relative: a crossing that bisection does not bring the two sides this near to each other is a jump


def refine(store, contour, path, *, along=None, outputs=None, allow=(), progress=None):
    """Store the points at which ``contour`` ("A = B", names or arithmetic) holds, along the axis ``along``, at ``path``.

    ``along`` may be left out where a side of the contour is an axis.  ``outputs`` default to those of the store.  Returns the
    execute.Result; raises SweepError where nothing crosses.
    """
    ds = open_store(store)
    spec = plan_of(ds.encoding["source"]).spec
    left, equals, right = (part.strip() for part in str(contour).partition("="))
    if not equals or not left or not right or "=" in right:
        raise SweepError(f"--contour {contour!r}: is not A = B, such as 'required_link_gbps = link_gbps'.")
    along = along or next((name for name in (left, right) if name in spec.mesh.dims), None)
    if along not in spec.mesh.dims or along not in quantities.INPUTS or spec.mesh.axes[spec.mesh.dims.index(along)].labels.dtype.kind not in "if":
        axes = [axis.name for axis in spec.mesh.axes if axis.name in quantities.INPUTS and axis.labels.dtype.kind in "if"]
        raise SweepError(f"--along {along}: is no axis of numbers. Write --along with one of {', '.join(axes)}.")
    found = crossings.table(Blocks(ds, allow=allow or spec.allow), f"{left}={right}", along)
    found = found[np.isfinite(found[along].astype(float))]
    if not len(found):
        raise SweepError(f"{store}: {contour} holds nowhere along {along}. Widen that axis, or choose another contour.")
    if len(found) > MOST:
        raise SweepError(f"{store}: {contour} is met at {len(found):,} points, at most {MOST:,} can be stored. Fix an axis, or coarsen one.")
    mesh, low, high = _brackets(spec, found, along)
    difference = expressions.compile(f"({left}) - ({right})", {*quantities.INPUTS, *quantities.OUTPUTS}, "--contour", kind="number")
    mesh = _bisect(mesh, along, low, high, difference)
    names = tuple(outputs or spec.outputs)
    refined = Spec(f"{spec.title}: {contour}".strip(": "), {}, dict(spec.fixed), None, spec.allow, (*(n for n in names if n != "status"), "status"))
    refined.__dict__["mesh"] = mesh
    return execute.run(refined, path, progress=progress)


def _brackets(spec, found, along):
    """A mesh of one axis, a point for each crossing, and the two labels of ``along`` that it lies between."""
    places, columns = {}, {}
    for axis in spec.mesh.axes:
        labels = axis.labels
        if axis.name == along:
            order = np.sort(labels.astype(float))
            crossed = found[along].to_numpy(float)
            upper = np.clip(np.searchsorted(order, crossed), 1, len(order) - 1)
            low, high = order[upper - 1], order[upper]
            continue
        index = {label: k for k, label in enumerate(labels.tolist())}
        if axis.name in found:
            places[axis.name] = np.array([index[label] for label in found[axis.name].tolist()], int)
        else:
            places[axis.name] = np.zeros(len(found), int)
        columns[axis.name] = labels[places[axis.name]]
        columns |= {name: column[places[axis.name]] for name, column in axis.columns.items()}
    inputs = {}
    for name, entry in spec.mesh.inputs.items():
        if not entry.dims:
            inputs[name] = entry
        elif entry.dims != (along,):
            if along in entry.dims:
                raise SweepError(f"--along {along}: {name} comes from a table over it. Choose another axis.")
            inputs[name] = Input(entry.values[tuple(places[dim] for dim in entry.dims)], (AXIS,))
    columns = {name: column for name, column in columns.items() if name not in quantities.INPUTS}
    columns |= {name: _words(name, entry.values) for name, entry in inputs.items() if entry.dims}
    return Mesh((Axis(AXIS, np.arange(len(found)), "1", "point of the contour", columns),), inputs), low, high


def _bisect(mesh, along, low, high, difference):
    """The mesh with ``along`` where ``difference`` is 0; points at which it jumps instead are left out."""
    outputs = tuple(name for name in quantities.OUTPUTS if name in difference.names)

    def at(values):
        moved = _moved(mesh, along, values)
        found = evaluations._in_numpy(moved, outputs)
        env = {**moved.environment(), **{name: array if dims else np.full(len(values), array) for name, (dims, array) in found.items()}}
        return np.asarray(difference.evaluate(env), float) + np.zeros(len(values))

    sign = np.sign(at(low))
    for _ in range(STEPS):
        middle = np.where((low > 0) & (high / np.where(low > 0, low, 1) > 1.5), np.sqrt(np.abs(low * high)), (low + high) / 2)
        same = np.sign(at(middle)) == sign
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    left = np.abs(at(high) - at(low))
    scale = np.abs(high) if not outputs else np.maximum(np.abs(high), np.abs(left))
    keep = np.isfinite(left) & (left <= CLOSE * scale + CLOSE)
    if not keep.any():
        raise SweepError(f"--contour: both sides jump past each other everywhere along {along}; there is no point on it.")
    kept = _moved(mesh, along, high)
    axis = kept.axes[0]
    columns = {name: column[keep] for name, column in axis.columns.items()}
    inputs = {name: Input(entry.values[keep], entry.dims) if entry.dims else entry for name, entry in kept.inputs.items()}
    return Mesh((Axis(AXIS, np.arange(int(keep.sum())), axis.units, axis.long_name, columns),), inputs)


def _moved(mesh, along, values):
    axis = mesh.axes[0]
    columns = {**axis.columns, along: values}
    return Mesh((Axis(axis.name, axis.labels, axis.units, axis.long_name, columns),), {**mesh.inputs, along: Input(values, (AXIS,))})


def _words(name, numbers):
    quantity = quantities.INPUTS[name]
    if quantity.kind != "category":
        return numbers
    words = np.empty(len(numbers), object)
    words[:] = [quantity.choices[int(code)] for code in numbers]
    return words
