"""The store: a zarr group that plain xarray opens, and the only module that knows zarr.

    NAME.zarr/  zarr.json   the root: attributes, and the metadata of every array (consolidated)
                <axis>  <column of a table axis>  <output>  status
                _sweep/     journal (the truth), lock, and what the closing process makes of it: done, zones

The root's zarr.json is the commit point of every change of structure: it is replaced last and atomically, by ``commit``, so
that a reader sees the old structure or the new one.  A template is built beside and renamed into place.

Blocks are written by index, never by slice: concurrent writes that are not aligned with chunks lose data without a word, and an
index cannot be misaligned.  A chunk is encoded here (blosc and crc32c as the metadata say; half the processor time of zarr's
own pipeline) and appears whole or not at all.
"""

import contextlib
import json
import os
import shutil
import threading
from functools import cache, partial
from pathlib import Path

import numpy as np

from . import disk, journal, provenance
from ._kernels import quantities
from .errors import StoreError
from .plan import Plan, rearranged

CODECS = {"lz4": ("lz4", 5), "zstd": ("zstd", 3), "none": None}
DEFAULT_CODEC = "lz4"


# -- reading -----------------------------------------------------------------------------------------------------------


def open_store(path):
    """The store as a lazy xarray.Dataset: labelled, with units; numeric axes in ascending order.

    ``path`` is a path, a name in outputs/, or any URL that fsspec reads.
    """
    import xarray as xr

    place = find(path)
    if not _is_url(place):
        root(place)
    try:
        ds = xr.open_dataset(place, engine="zarr", chunks=None, consolidated=True, cache=False)
    except Exception as error:  # zarr raises many kinds for a damaged file
        raise StoreError(f"{place}: does not open as a store ({error}). Type: sweep check {place}.") from error
    words = {name: array.astype(object) for name, array in ds.coords.items() if array.dtype.kind not in "fiub"}
    ds = ds.assign_coords({name: (array.dims, array.values, array.attrs) for name, array in words.items()})
    unsorted = [n for n in ds.dims if n in ds.coords and ds[n].dtype.kind in "fi" and np.any(np.diff(ds[n].values) < 0)]
    ds = ds.isel({name: np.argsort(ds[name].values, kind="stable") for name in unsorted})
    ds.encoding["source"] = str(place)
    if not unsorted:  # the zone maps are of chunks as they lie in the store
        ds.encoding["zones"] = partial(zone_maps, place)
    return ds


def find(path):
    """The place of a store: a path or URL as it is, else a name in outputs/."""
    text = str(path)
    if _is_url(text) or Path(text).exists():
        return text
    for name in (text, f"{text}.zarr"):
        if (Path("outputs") / name).exists():
            return str(Path("outputs") / name)
    finish_swap(text)
    if Path(text).exists():
        return text
    raise StoreError(f"{text}: there is no such store. Type: sweep run CONFIG -o {text}.")


def root(path):
    """The root's metadata, checked: {"attributes", "consolidated_metadata", ...}."""
    file = Path(path) / "zarr.json"
    try:
        content = json.loads(file.read_bytes())
        attrs = content["attributes"]
        content["consolidated_metadata"]["metadata"], attrs["spec"], attrs["block_shape"]
    except FileNotFoundError:
        raise StoreError(f"{path}: is not a store (it has no zarr.json). Choose another path.") from None
    except (ValueError, KeyError, TypeError):
        raise StoreError(f"{path}: zarr.json is damaged or not of a sweep. Type: sweep check {path}.") from None
    except OSError as error:
        raise StoreError(f"{path}: cannot be read ({error.strerror}).") from None
    if attrs.get("schema", 0) > provenance.SCHEMA:
        raise StoreError(f"{path}: was written by a newer sweep. Type: pip install --upgrade overlap-sweep.")
    return content


def array(path, name):
    """The values of one small array of a store: labels, a column, a zone map."""
    import zarr

    try:
        return np.asarray(zarr.open_array(str(path), path=name, mode="r")[...])
    except Exception as error:
        raise StoreError(f"{path}: {name} cannot be read ({error}). Type: sweep check {path}.") from None


def plan_of(path):
    """The Plan of a store as it lies there: its spec, its labels in their stored order, its block shape."""
    content = root(path)
    attrs, arrays = content["attributes"], content["consolidated_metadata"]["metadata"]
    names = json.loads(attrs["spec"])["axes"]
    axes = [(name, labels(path, name), {c: labels(path, c) for c in _columns(arrays, name)}) for name in names]
    spec = provenance.thaw(attrs, axes)
    orders = {name: _order(spec.mesh, name, labels, path) for name, labels, _ in axes}
    mesh = rearranged(spec.mesh, orders)
    return Plan.of(spec, mesh, tuple(attrs["block_shape"]), tuple(orders[dim] for dim in mesh.dims))


def zone_maps(path):
    """Least and largest value of each chunk: output -> (dims, chunk lengths, least, largest), NaN where nothing is stored.

    Taken from the arrays that the closing process wrote: a store that is not complete has none.  They cover all points, valid or not.
    """
    import zarr

    group = zarr.open_group(str(path), mode="r", use_consolidated=True)
    if not group.attrs.get("complete") or "zones" not in group["_sweep"]:
        return {}
    found = {}
    for name, zones in group["_sweep/zones"].arrays():
        output, (least, largest) = group[name], zones[...]
        found[name] = tuple(output.metadata.dimension_names or ()), output.chunks, least, largest
    return found


# -- structure ---------------------------------------------------------------------------------------------------------


def create(plan, path, device=""):
    """Build the template of a store beside ``path`` and rename it into place; False where another was faster."""
    path = Path(path)
    beside = path.with_name(f".{path.name}.{os.getpid()}.template")
    disk.remove(beside)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _whole():
            _build(plan, beside, device)
        disk.sync_tree(beside)
        if path.exists():
            return False
        disk.replace(beside, path)
        disk.sync([str(path)])
    except OSError as error:
        if path.exists() and (path / "zarr.json").exists():
            return False
        raise disk.explained(error, path) from error
    finally:
        disk.remove(beside)
    return True


def commit(path, attributes=None, arrays=()):
    """Change the structure of a store: replace the root's zarr.json, with new attributes and the metadata of ``arrays``
    (name -> metadata) in it.  Always last.
    """
    path = Path(path)
    content = root(path)
    content["attributes"].update(attributes or {})
    content["consolidated_metadata"]["metadata"].update(arrays)
    disk.write(path / "zarr.json", json.dumps(content, indent=1).encode())
    disk.sync([str(path / "zarr.json")])


def agree(path):
    """Make the arrays' own zarr.json say what the root says: a change that was stopped half way leaves them ahead."""
    for name, entry in root(path)["consolidated_metadata"]["metadata"].items():
        file = Path(path) / name / "zarr.json"
        try:
            same = json.loads(file.read_bytes()) == entry
        except (OSError, ValueError):
            same = False
        if not same:
            disk.write(file, json.dumps(entry, indent=1).encode())


def extend(path, plan, device=""):
    """Grow a store to ``plan``: longer arrays, new outputs.  Labels are only appended, so what is written stays where it is."""
    import zarr

    path = Path(path)
    old = root(path)["consolidated_metadata"]["metadata"]
    changed = {}
    with _whole():
        scratch = path / "_sweep" / "growth"
        disk.remove(scratch)
        _build(plan, scratch, device, chunks={name: _chunk_shape(entry) for name, entry in old.items() if "shape" in entry})
        for name, entry in _metadata(scratch).items():
            if old.get(name) == entry:
                continue
            if entry["node_type"] == "array":
                own = path / name
                is_label = name in plan.dims or any(name in axis.columns for axis in plan.mesh.axes)
                if name not in old:
                    disk.remove(own)
                if is_label:
                    shutil.copytree(scratch / name / "c", own / "c", dirs_exist_ok=True)
                if name.startswith("_sweep/"):
                    disk.remove(own / "c")
            disk.write(path / name / "zarr.json", json.dumps(entry, indent=1).encode())
            changed[name] = entry
    attrs = provenance.attributes(plan.spec, plan.block, device)
    disk.remove(scratch)
    disk.sync_tree(path / "_sweep")
    disk.sync(str(path / name / "zarr.json") for name in changed)
    commit(path, {key: attrs[key] for key in ("title", "spec", "spec_sha256", "complete")}, changed)
    zarr.open_group(str(path), mode="r")


def close(path, plan, state):
    """Make ``done`` and the zone maps from the journal, combine a reduction's parts, and say that the store is complete."""
    if plan.reduction is not None:
        plan.reduction.combine(plan, path)
    done = np.ones(plan.grid, bool)
    for variable in plan.variables:
        done &= state.done[variable.name].reshape(plan.grid) | ~plan.owned(variable)
    files = [write_chunk(path, "_sweep/done", (0,) * done.ndim, done.astype("u1"), done.shape, 0, None)]
    for name, zones in state.zones.items():
        if plan.reduction is None:
            files.append(write_chunk(path, f"_sweep/zones/{name}", (0,) * zones.ndim, zones, zones.shape, np.nan, None))
    disk.sync(file for file in files if file)
    commit(path, {"complete": 1})


def swap(new, path):
    """Put the complete store ``new`` in the place of the one at ``path``, which goes only then."""
    new, path = Path(new), Path(path)
    old = path.with_name(f".{path.name}.old")
    if path.exists():
        disk.remove(old)
        disk.replace(path, old)
    disk.replace(new, path)
    disk.remove(old)


def replacement(path):
    """Where the store that will replace ``path`` is being built."""
    path = Path(path)
    return path.with_name(f".{path.name}.new")


def finish_swap(path):
    """End a swap that was stopped between its two renames: nothing is at ``path``, the complete new store lies beside."""
    path, old = Path(path), Path(path).with_name(f".{Path(path).name}.old")
    if path.exists() or not old.exists():
        return
    disk.replace(replacement(path) if replacement(path).exists() else old, path)


# -- blocks ------------------------------------------------------------------------------------------------------------


class Store:
    """A store open for writing blocks of its plan."""

    def __init__(self, path, plan):
        attrs = root(path)["attributes"]
        if tuple(attrs["block_shape"]) != tuple(plan.block):
            raise StoreError(f"{path}: its blocks are {attrs['block_shape']}, not {list(plan.block)}.")
        self.path, self.plan = Path(path), plan
        self._codec = json.loads(attrs.get("store_options", "{}")).get("codec", DEFAULT_CODEC)
        self._shapes = {v.name: plan.chunk_shape(v) for v in plan.variables}
        self._writing, self._lock = set(), threading.Lock()

    def write(self, index, arrays):
        """Write the chunks of block ``index``: variable -> values of the chunk, cut at the ends of the axes.

        Returns the files to be made durable and the zone (least, largest; None: all fill) of each.  A block that is being
        written by another thread is refused.
        """
        index = tuple(index)
        with self._lock:
            if index in self._writing:
                raise StoreError(f"{self.path}: block {index} is being written by another thread.")
            self._writing.add(index)
        try:
            chunk = self.plan.chunk(index)
            files, zones = [], {}
            for variable, values in arrays.items():
                shape = self.plan.cut_shape(variable, chunk)
                if values.shape != shape:
                    raise StoreError(f"{self.path}: {variable.name} of block {index} has shape {values.shape}, not {shape}.")
                zone = zone_of(values, variable.fill)
                place = self.plan.chunk_index(variable, index)
                full = self._shapes[variable.name]
                values = np.asarray(values, variable.dtype)
                files.append(write_chunk(self.path, variable.name, place, values, full, variable.fill, self._codec, zone is None))
                zones[variable.name] = zone
            return [file for file in files if file], zones
        finally:
            with self._lock:
                self._writing.discard(index)


def write_chunk(path, name, index, values, shape, fill, codec, empty=False):
    """Encode one chunk and put it in its place; the file's path.  One that is all fill leaves no file, as zarr has it."""
    file = os.path.join(path, name, "c", *map(str, index))
    if empty:
        if os.path.exists(file):
            disk.remove(file)
        return None
    if values.shape != tuple(shape):
        padded = np.full(shape, fill, values.dtype)
        padded[tuple(slice(n) for n in values.shape)] = values
        values = padded
    data = encode(values, codec)
    disk.write(file, data, _crc32c(data))
    return file


def encode(values, codec=DEFAULT_CODEC):
    """The bytes of a chunk as the codecs of its metadata make them, without the checksum."""
    values = np.ascontiguousarray(values)
    compressor = _compressor(codec)
    return compressor.encode(values) if compressor else values.tobytes()


def read_chunk(path, name, index):
    """The values of one chunk, checksum verified, all of it (fill beyond the ends of the axes); None where no file is."""
    import zarr

    file = os.path.join(path, name, "c", *map(str, index))
    if not os.path.exists(file):
        return None
    whole = zarr.open_array(str(path), path=name, mode="r")
    selection = tuple(slice(i * c, (i + 1) * c) for i, c in zip(index, whole.chunks))
    return np.asarray(whole[selection])


def zone_of(values, fill):
    """(least, largest) of an array of numbers, NaN aside; None where it is all fill."""
    if values.size == 0:
        return None
    least, largest = values.min(), values.max()
    if least != least:
        least, largest = np.fmin.reduce(values, axis=None), np.fmax.reduce(values, axis=None)
        return None if least != least else (float(least), float(largest))
    return None if least == largest == fill else (float(least), float(largest))


# -- helpers -----------------------------------------------------------------------------------------------------------


def _build(plan, place, device, chunks=None):
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
    for variable in plan.variables:
        if "/" in variable.name:
            group.require_group(variable.name.rpartition("/")[0])
        shape, chunk = plan.extent(variable), plan.chunk_shape(variable)
        names = [*variable.dims, *(name for name, _ in variable.extra)]
        codec = (plan.spec.store or {}).get("codec", DEFAULT_CODEC)
        _create(group, variable.name, shape, chunk, variable.dtype, variable.fill, names, describe(variable.name), codec)
        if plan.reduction is None:
            zones = (2, *plan.zone_grid(variable))
            _create(group, f"_sweep/zones/{variable.name}", zones, zones, np.dtype("f8"), np.nan, None, {}, None)
    if plan.reduction is not None:
        plan.reduction.create(plan, group, _create)
    _create(group, "_sweep/done", plan.grid, plan.grid, np.dtype("u1"), 0, None, {}, None)
    content = json.loads((Path(place) / "zarr.json").read_bytes())
    content["consolidated_metadata"] = {"kind": "inline", "must_understand": False, "metadata": _metadata(place)}
    disk.write(Path(place) / "zarr.json", json.dumps(content, indent=1).encode())


def describe(name):
    """The attributes of an output's variable."""
    row = quantities.OUTPUTS.get(name)
    if row is None:
        return {}
    about = {"units": row.unit, "long_name": row.long_name}
    if row.symbol:
        about["symbol"] = row.symbol
    if name != "status":
        about["ancillary_variables"] = "status"
    if row.kind == "category":
        flags = dict(enumerate(row.choices))
        if name == "status":
            flags[quantities.EXCLUDED] = "excluded"
        about["flag_values"], about["flag_meanings"] = list(flags), " ".join(flags.values())
    return about


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


def _metadata(place):
    """Relative name -> metadata of every array and group below ``place``."""
    place = Path(place)
    files = sorted(place.glob("**/zarr.json"))
    return {file.parent.relative_to(place).as_posix(): json.loads(file.read_bytes()) for file in files if file.parent != place}


def _chunk_shape(entry):
    return tuple(entry["chunk_grid"]["configuration"]["chunk_shape"])


def _columns(arrays, axis):
    """The columns of a table axis: one-dimensional arrays on it that are no outputs."""
    return [
        name for name, entry in arrays.items()
        if entry.get("dimension_names") == [axis] and name != axis and name not in quantities.OUTPUTS and "/" not in name
        and "ancillary_variables" not in entry.get("attributes", {})
    ]  # fmt: skip


def labels(path, name):
    """The labels of an axis or a column as they lie in the store: f8, or words."""
    found = array(path, name)
    return found if found.dtype.kind == "f" else found.astype(object)


def _order(mesh, name, labels, path):
    """For each stored label its place in the spec."""
    axis = mesh.axes[mesh.dims.index(name)]
    place = {label: k for k, label in enumerate(axis.labels.tolist())}
    try:
        return np.array([place[label] for label in labels.tolist()], int)
    except KeyError as missing:
        raise StoreError(f"{path}: the label {missing} of axis {name} is not in the spec.") from None


@contextlib.contextmanager
def _whole():
    """Every array's empty chunks are left out, whatever the user's zarr settings."""
    import zarr

    with zarr.config.set({"array.write_empty_chunks": False}):
        yield


@cache
def _compressor(codec):
    if codec is None or CODECS[codec] is None:
        return None
    from numcodecs import Blosc

    name, level = CODECS[codec]
    return Blosc(name, clevel=level, shuffle=Blosc.SHUFFLE)


def _crc32c(data):
    import google_crc32c

    return google_crc32c.value(bytes(data) if not isinstance(data, (bytes, bytearray)) else data).to_bytes(4, "little")


def _is_url(path):
    return "://" in str(path)
