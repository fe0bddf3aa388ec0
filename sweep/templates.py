"""The template of a store: every array, label and attribute in place, and nothing computed.

One of the two modules that know zarr; what a template says of an array (chunks, codecs, fill value) is all that later writers and readers
go by.
"""

import contextlib
import json
from pathlib import Path

import numpy as np

from . import disk, provenance
from ._kernels import quantities
from .chunks import CODECS, DEFAULT_CODEC


def build(plan, place, device, chunks=None):
    """A store with every array and label in place, and nothing computed."""
    import zarr

    attrs = provenance.attributes(plan.spec, plan.block, device)
    columns = [name for axis in plan.mesh.axes for name in axis.columns]
    group = zarr.create_group(str(place), zarr_format=3, attributes=attrs | ({"coordinates": " ".join(columns)} if columns else {}))
    group.create_group("_sweep").create_group("zones")
    chunks = chunks or {}
    for axis in plan.mesh.axes:
        about = {"units": axis.units, "long_name": axis.long_name or axis.name}
        _create_labels(group, axis.name, axis.labels, axis.name, about, chunks.get(axis.name))
        for name, column in axis.columns.items():
            row = quantities.INPUTS.get(name)
            about = {"units": row.unit, "long_name": row.long_name} if row else {"units": "1", "long_name": name}
            _create_labels(group, name, column, axis.name, about, chunks.get(name))
    codec = (plan.spec.store or {}).get("codec", DEFAULT_CODEC)
    for variable in plan.variables:
        if "/" in variable.name:
            group.require_group(variable.name.rpartition("/")[0])
        shape, chunk = plan.extent(variable), plan.chunk_shape(variable)
        names = [*variable.dims, *(name for name, _ in variable.extra)]
        _create(group, variable.name, shape, chunk, variable.dtype, variable.fill, names, provenance.describe(variable.name), codec)
        if plan.reduction is None:
            zones = (2, *plan.zone_grid(variable))
            _create(group, f"_sweep/zones/{variable.name}", zones, zones, np.dtype("f8"), np.nan, None, {}, None)
    if plan.reduction is not None:
        for variable, name in plan.reduction.products():
            names = [*variable.dims, *(extra for extra, _ in variable.extra)]
            about = provenance.describe_product(variable.name, name, plan)
            _create(group, variable.name, plan.extent(variable), plan.chunk_shape(variable), variable.dtype, variable.fill, names, about, codec)
        for name, (values, about) in plan.reduction.coordinates().items():
            _create_labels(group, name, values, name, about)
    _create(group, "_sweep/done", plan.grid, plan.grid, np.dtype("u1"), 0, None, {}, None)
    content = json.loads((Path(place) / "zarr.json").read_bytes())
    content["consolidated_metadata"] = {"kind": "inline", "must_understand": False, "metadata": metadata(place)}
    disk.write(Path(place) / "zarr.json", json.dumps(content, indent=1).encode())


def metadata(place):
    """Relative name -> metadata of every array and group below ``place``."""
    place = Path(place)
    files = sorted(place.glob("**/zarr.json"))
    return {file.parent.relative_to(place).as_posix(): json.loads(file.read_bytes()) for file in files if file.parent != place}


@contextlib.contextmanager
def empty_chunks_left_out():
    """Every array's empty chunks are left out, whatever the user's zarr settings."""
    import zarr

    with zarr.config.set({"array.write_empty_chunks": False}):
        yield


def _create(group, name, shape, chunk, dtype, fill, dims, attributes, codec=DEFAULT_CODEC):
    from zarr.codecs import BytesCodec, Crc32cCodec

    compressors = ([_zarr_codec(codec, dtype)] if codec and CODECS[codec] else []) + [Crc32cCodec()]
    group.create_array(
        name, shape=shape, chunks=tuple(max(1, n) for n in chunk), dtype=dtype, fill_value=fill, filters=None,
        serializer=BytesCodec() if dtype.itemsize > 1 else BytesCodec(endian=None), compressors=compressors,
        dimension_names=dims, attributes=attributes,
    )  # fmt: skip


def _zarr_codec(codec, dtype):
    from zarr.codecs import BloscCodec

    name, level = CODECS[codec]
    return BloscCodec(cname=name, clevel=level, shuffle="shuffle", typesize=dtype.itemsize, blocksize=0)


def _create_labels(group, name, labels, dim, attributes, chunk=None):
    """Labels as f8, or words: written from dtype object, which alone survives every version of the libraries."""
    words = labels.dtype == object
    made = group.create_array(
        name, shape=labels.shape, chunks=chunk or labels.shape, dtype=str if words else "f8",
        fill_value="" if words else np.nan, dimension_names=[dim], attributes=attributes,
    )  # fmt: skip
    made[...] = labels if words else labels.astype("f8")
