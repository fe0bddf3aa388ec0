"""Answers and whole sweeps written for other tools: CSV, parquet, NetCDF, LaTeX, each with its provenance beside.

    export(ds, "fast.parquet", where="exposed_fraction < 0.02")
    export(ds, "best.tex", best="step_time_s", over=["tp", "pp"])

Points stream block by block, in that order, a slab of rows at a time: ten million rows need no more memory than a few
blocks.  A file appears under its name when it is whole.  ``FILE.provenance.json`` says where the numbers come from: the question, the
columns with their units, the spec, the model's and the file's hash, versions.
"""

import hashlib
import json
import os
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from . import latex, queries, tables
from .blocks import Blocks
from .errors import SweepError

FORMATS = ("csv", "parquet", "nc", "tex")
SLAB = 2**16  # rows formatted at one time
KEPT = ("title", "spec_sha256", "model_version", "model_sha256", "precision", "versions", "device", "created", "complete")


def export(ds, path, where=None, at=None, columns=None, allow=None, **question):
    """Write points of ``ds``, or the answer to a question of ``query``, by the ending of ``path``; returns the path.

    ``where``, ``at``, ``columns`` and ``allow`` as in ``query``, as are the other questions (``best``, ``pareto``, ...).  NetCDF keeps
    the axes (``at`` cuts them), and sets what ``where`` or status leaves out to NaN.
    """
    path = Path(path)
    kind = path.suffix.lower().lstrip(".")
    if kind not in FORMATS:
        raise SweepError(f"{path}: an export ends in .{', .'.join(FORMATS)}.")
    asked = {key: value for key, value in question.items() if value is not None}
    about = {"where": where, "at": at, "columns": columns, "allow": allow, **asked}
    with _beside(path) as part:
        if kind == "nc":
            if asked:
                raise SweepError(f"{path}: NetCDF keeps whole axes. Answers of {', '.join(asked)} go to .csv, .parquet or .tex.")
            rows, units = _netcdf(ds, part, where, at, columns, allow)
        elif asked or kind == "tex":
            frame = queries.query(ds, where, at, columns=columns, allow=allow, **{"limit": None, **asked})
            rows, units = len(frame), frame.attrs["units"]
            if kind == "tex":
                part.write_text(latex.table(frame, labels(ds, frame.columns)), encoding="utf-8")
            else:
                _stream(part, kind, [frame], frame.columns, units, ds)
        else:
            blocks = Blocks(ds, at, where, allow)
            names = [blocks.check(name, "columns") for name in queries._listed(columns) or queries.default_columns(blocks)]
            units = {name: ds[name].attrs.get("units", "") if name in ds.variables else "" for name in names}
            rows = _stream(part, kind, slabs(blocks, names), names, units, ds)
    write_provenance(ds, path, about, rows, units)
    return path


def slabs(blocks, columns, rows=SLAB):
    """The points that count, as DataFrames of at most ``rows`` rows; words are categoricals, which cost a byte or two each."""
    import pandas as pd

    dtypes = {name: pd.CategoricalDtype(words) for name, words in _words(blocks, columns).items()}
    for block in blocks:
        flat = np.flatnonzero(block.full(block.mask()))
        for start in range(0, len(flat), rows):
            places = np.unravel_index(flat[start : start + rows], block.shape)
            table = {}
            for name in columns:
                mesh = block[name]
                values = mesh[tuple(place if length > 1 else 0 for place, length in zip(places, mesh.shape))]
                values = np.broadcast_to(values, places[0].shape)
                if name in dtypes:
                    codes = np.where(values < len(dtypes[name].categories), values, -1).astype(np.int16)
                    values = pd.Categorical.from_codes(codes, dtype=dtypes[name])
                table[name] = values
            yield pd.DataFrame(table, copy=False)


def _words(blocks, columns):
    """The categories of columns by code: codes that no word has get one of their own, so that codes stay positions."""
    found = {}
    for name in columns:
        if name in blocks.categories:
            known = blocks.categories[name]
            found[name] = [word or f"code {code}" for code, word in enumerate(known)]
    return found


def _stream(path, kind, frames, names, units, ds):
    """Frames one after the other into one file; returns the number of rows."""
    rows = 0
    if kind == "csv":
        with open(path, "w", encoding="utf-8", newline="") as file:
            file.write(",".join(names) + "\n")
            for frame in frames:
                frame.to_csv(file, header=False, index=False, lineterminator="\n")
                rows += len(frame)
        return rows
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise SweepError("parquet needs pyarrow. Type: pip install 'overlap-sweep[parquet]'.") from None
    writer = None
    try:
        for frame in frames:
            batch = pa.Table.from_pandas(frame, preserve_index=False)
            if writer is None:
                fields = [field.with_metadata({"units": units.get(field.name, "")}) for field in batch.schema]
                schema = pa.schema(fields, {"sweep": json.dumps(_origin(ds))})
                writer = pq.ParquetWriter(path, schema)
            writer.write_table(batch.cast(schema))
            rows += len(frame)
        if writer is None:
            empty = pa.table({name: pa.array([], pa.float32()) for name in names})
            pq.write_table(empty, path)
    finally:
        if writer is not None:
            writer.close()
    return rows


def _netcdf(ds, path, where, at, columns, allow):
    """The slice as a NetCDF 4 file, written block by block; returns the number of points that count, and units."""
    try:
        import h5netcdf
    except ImportError:
        raise SweepError("NetCDF needs h5netcdf. Type: pip install 'overlap-sweep[netcdf]'.") from None
    blocks = Blocks(ds, at, where, allow)
    names = queries._listed(columns) or [name for name in map(str, ds.data_vars) if name in blocks.names]
    names = [blocks.check(name, "columns") for name in names if name not in blocks.dims]
    rows = 0
    with h5netcdf.File(path, "w") as file:
        file.attrs.update(dict(_plain_attrs(ds.attrs)))
        for dim, length in zip(blocks.dims, blocks.shape):
            file.dimensions[dim] = length
        for dim in blocks.dims:
            _coordinate(file, blocks, dim, (dim,))
        for name in map(str, ds.coords):
            if name in blocks.names and name not in blocks.dims and set(ds[name].dims) <= set(blocks.dims):
                _coordinate(file, blocks, name, ds[name].dims)
        arrays = {}
        for name in names:
            source = ds.variables[name]
            dims = [dim for dim in blocks.dims if dim in source.dims]
            dtype = source.dtype if source.dtype.kind in "fiu" else np.dtype("f4")
            fill = dtype.type(np.nan) if dtype.kind == "f" else dtype.type(255)
            arrays[name] = file.create_variable(name, dims, dtype, fillvalue=fill if dims and dtype.kind == "f" else None)
            arrays[name].attrs.update(dict(_plain_attrs(source.attrs, skip=("_FillValue",))))
        for block in blocks:
            mask = block.mask()
            rows += int(np.count_nonzero(block.full(mask)))
            wide = {axis for axis, length in enumerate(mask.shape) if length > 1}
            for name, target in arrays.items():
                mesh = block[name]
                axes = [blocks.dims.index(dim) for dim in target.dimensions]
                if wide <= set(axes) and name != "status":
                    mesh = np.where(mask, mesh, np.nan if mesh.dtype.kind == "f" else 255).astype(mesh.dtype)
                box = tuple(slice(block.start[axis], block.start[axis] + block.shape[axis]) for axis in axes)
                values = np.broadcast_to(mesh, tuple(max(n, m) for n, m in zip(mesh.shape, _target(block, axes))))
                target[box if box else ...] = values.reshape([block.shape[axis] for axis in axes])
    units = {name: str(ds[name].attrs.get("units", "")) for name in names}
    return rows, units


def _target(block, axes):
    return tuple(length if axis in axes else 1 for axis, length in enumerate(block.shape))


def _coordinate(file, blocks, name, dims):
    values = np.asarray(blocks.ds[name].values)
    if dims:
        values = values[blocks.picked[dims[0]]]
    if values.dtype.kind in "OUST":
        import h5py

        variable = file.create_variable(name, dims, h5py.string_dtype())
        variable[...] = values.astype(str).astype(object) if dims else str(values)
    else:
        variable = file.create_variable(name, dims, values.dtype)
        variable[...] = values
    variable.attrs.update(dict(_plain_attrs(blocks.ds[name].attrs)))


def _plain_attrs(attrs, skip=()):
    """Attributes as HDF5 holds them: numbers, arrays of numbers, text; of 64 KB at most (the provenance has them all)."""
    for key, value in attrs.items():
        if key in skip or value is None:
            continue
        if isinstance(value, (list, tuple)) and value and all(isinstance(item, (int, float, np.number)) for item in value):
            value = np.asarray(value)
        elif not isinstance(value, (str, int, float, np.number, np.ndarray)):
            value = json.dumps(tables.plain(value), default=str)
        if not isinstance(value, str) or 0 < len(value.encode()) < 2**16 - 64:
            yield str(key), value


def labels(ds, names):
    """Long names of columns, for the heads of tables."""
    return {name: ds[name].attrs.get("long_name", "") if name in ds.variables else "" for name in names}


def write_provenance(ds, path, question, rows, units):
    """``PATH.provenance.json`` beside an exported file."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(2**20):
            digest.update(piece)
    content = {
        "file": path.name,
        "sha256": digest.hexdigest(),
        "rows": rows,
        "units": units,
        "question": {key: value for key, value in question.items() if value},
        **_origin(ds),
    }
    Path(f"{path}.provenance.json").write_text(json.dumps(tables.plain(content), indent=2, default=str) + "\n", encoding="utf-8")


def _origin(ds):
    spec = ds.attrs.get("spec")
    try:
        spec = json.loads(spec) if isinstance(spec, str) else spec
    except ValueError:
        pass
    return {"store": str(ds.encoding.get("source", "")), **{key: tables.plain(ds.attrs[key]) for key in KEPT if key in ds.attrs}, "spec": spec}


@contextmanager
def _beside(path):
    """A name to write to, that becomes ``path`` when all went well; nothing is left of it otherwise."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.touch()
    except OSError as problem:
        raise SweepError(f"{path}: cannot be written ({problem.strerror}). Choose a folder that exists and is writable.") from None
    try:
        yield part
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def write_frame(frame, format, stream):
    """A query's answer on a text stream: ``table``, ``csv``, ``json`` or ``parquet`` (binary)."""
    if format == "parquet":
        frame.to_parquet(getattr(stream, "buffer", stream), index=False)
        return
    rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
    if not rows and format == "table":
        print("no point matches", file=sys.stderr)
        return
    stream.write(tables.render(rows, format, list(frame.columns)) + "\n")
