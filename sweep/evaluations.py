"""The model at one point or a few, as a labelled Dataset.

NumPy below some 10^5 points, where starting jax would take longer than the answer; compiled blocks above.
"""

import itertools

import numpy as np

from . import provenance
from ._kernels import quantities
from .plan import BLOCK_POINTS
from .spec import Spec
from .stages import Stages, dtype_of, double_precision

NUMPY_POINTS = 100_000


def evaluate(outputs=None, **inputs):
    """All outputs (or those named) of a design, as an xarray.Dataset.

    Keywords are the words of a config: presets by name (``model="llama-3-70b"``, ``accelerator="h100"``), any quantity beside them,
    and a list or 1-D array in place of a value makes an axis of that name.  Each output stands only on the axes it depends on.
    Floats are float64; categories are codes with ``flag_meanings``.  Raises SpecError.

        sweep.evaluate(model="llama-3-70b", accelerator="h100", tp=8, dp=128, link_gbps=[200, 400, 800]).step_time_s
    """
    return evaluate_spec(Spec.from_inputs(outputs, **inputs))


def evaluate_spec(spec):
    """The outputs of a Spec as a Dataset; its ``where`` is not applied."""
    compute = _in_numpy if spec.mesh.size < NUMPY_POINTS else _in_blocks
    return dataset(spec, compute(spec.mesh, spec.outputs))


def dataset(spec, values):
    """Values (name -> (dims, array)) with the labels, units and words that a stored sweep has."""
    import xarray as xr

    describe = provenance.describe
    coords = {}
    for axis in spec.mesh.axes:
        coords[axis.name] = (axis.name, axis.labels, {"units": axis.units, "long_name": axis.long_name or axis.name})
        for name, column in axis.columns.items():
            row = quantities.INPUTS.get(name)
            coords[name] = (axis.name, column, {"units": row.unit, "long_name": row.long_name} if row else {"long_name": name})
    variables = {name: (dims, array, describe(name)) for name, (dims, array) in values.items()}
    attrs = {"title": spec.title, "spec": provenance.canonical_json(spec), "precision": spec.precision}
    return xr.Dataset(variables, coords, attrs)


def _in_numpy(mesh, outputs):
    """Name -> (dims, array).  Axes of one label are doubled and cut again: size 2 tells an axis that matters from one that does not."""
    from ._kernels import model

    values = model.evaluate(mesh.block((0,) * len(mesh.shape), tuple(max(2, n) for n in mesh.shape)), outputs)
    found = {}
    for name in outputs:
        array = np.asarray(values[name])
        if array.ndim == 0:
            array = array.reshape((1,) * len(mesh.shape))
        dims = tuple(dim for dim, n in zip(mesh.dims, array.shape) if n > 1)
        array = array[tuple(slice(n) for n in mesh.shape)]
        array = array.reshape([n for dim, n in zip(mesh.dims, mesh.shape) if dim in dims])
        dtype, fill = dtype_of(name, "float64")
        if dtype == np.uint8 and array.dtype.kind == "f":
            array = np.where(np.isnan(array), fill, array)
        found[name] = dims, array.astype(dtype)
    return found


def _in_blocks(mesh, outputs):
    """The same through the compiled stages, block by block along the first axes."""
    block, points = [], BLOCK_POINTS
    for n in reversed(mesh.shape):
        block.insert(0, min(n, points))
        points = max(1, points // n)
    stages = Stages(mesh, outputs, tuple(block), stored="float64")
    lengths = dict(zip(mesh.dims, mesh.shape))
    found = {}
    for name, leaf in stages.leaves["report"].items():
        dtype, fill = dtype_of(name, "float64")
        found[name] = leaf.dims, np.full([lengths[dim] for dim in leaf.dims], fill, dtype)
    starts = itertools.product(*(range(0, n, b) for n, b in zip(mesh.shape, block)))
    for start in starts:
        outputs_here = stages(start)
        with double_precision():
            for name, value in outputs_here.items():
                dims, array = found[name]
                cut = np.asarray(value)[tuple(slice(n - s) for n, s in zip(mesh.shape, start))]
                window = {dim: slice(s, min(s + b, n)) for dim, s, b, n in zip(mesh.dims, start, block, mesh.shape)}
                array[tuple(window[dim] for dim in dims)] = cut.reshape([window[d].stop - window[d].start for d in dims])
    return found
