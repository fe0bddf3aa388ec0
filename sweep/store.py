"""The store: a zarr group that plain xarray opens, laid out by templates.py, its chunks written by chunks.py.

    NAME.zarr/  zarr.json   the root: attributes, and the metadata of every array (consolidated)
                <axis>  <column of a table axis>  <output>  status
                _sweep/     journal (the truth), lock, and what the closing process makes of it: done, zones

The root's zarr.json is the commit point of every change of structure: it is replaced last and atomically, by ``commit``, so
that a reader sees the old structure or the new one.  A template is built beside and renamed into place.
"""

import json
import re
from functools import partial
from pathlib import Path

import numpy as np

from . import disk, provenance, swaps, templates
from ._kernels import quantities
from .chunks import DEFAULT_CODEC, chunk_shape, read_chunk, read_part, write_chunk
from .cuts import rearranged
from .errors import StoreError
from .plan import Plan
from .reductions import PARTIAL


# -- reading -----------------------------------------------------------------------------------------------------------


def open_store(path):
    """The store as a lazy xarray.Dataset: labelled, with units; numeric axes in ascending order.

    ``path`` is a path, a name in outputs/, or any URL that fsspec reads (http, zip, memory; s3 and others with their package).
    """
    import xarray as xr

    place = find(path)
    if not _is_url(place):
        lost = [name for name in root(place)["consolidated_metadata"]["metadata"] if not (Path(place) / name / "zarr.json").exists()]
        if lost:
            raise StoreError(f"{place}: {', '.join(lost)} lost from the store. Type: sweep check {place}.")
    try:
        ds = xr.open_dataset(place, engine="zarr", chunks=None, consolidated=True, cache=False)
    except Exception as error:  # zarr raises many kinds for a damaged file
        raise _unopened(place, error) from error
    words = {name: array.astype(object) for name, array in ds.coords.items() if array.dtype.kind not in "fiub"}
    ds = ds.assign_coords({name: (array.dims, array.values, array.attrs) for name, array in words.items()})
    unsorted = [n for n in ds.dims if n in ds.coords and ds[n].dtype.kind in "fi" and np.any(np.diff(ds[n].values) < 0)]
    orders = {name: np.argsort(ds[name].values, kind="stable") for name in unsorted}
    ds = ds.isel(orders)
    for name, positions in ds.data_vars.items():  # a winner's position, on an axis that has just been sorted
        if positions.attrs.get("position_on") in orders:
            places = np.append(np.argsort(orders[positions.attrs["position_on"]]), -1).astype("i4")
            ds[name] = positions.copy(data=places[positions.values])
    ds.encoding["source"] = str(place)
    if not unsorted:  # zone maps and chunks are as they lie in the store: of use while the labels are these
        ds.encoding |= {"zones": partial(zone_maps, place), "labels": {dim: ds[dim].values for dim in ds.dims}}
        if not _is_url(place):
            content = root(place)
            arrays = content["consolidated_metadata"]["metadata"]
            ds.encoding["read_part"] = partial(read_part, place, arrays, _codec(content["attributes"]))
    return ds


def find(path):
    """The place of a store: a path or URL as it is, else a name in outputs/."""
    text = str(path)
    if _is_url(text) or Path(text).exists():
        return text
    for name in (text, f"{text}.zarr"):
        if (Path("outputs") / name).exists():
            return str(Path("outputs") / name)
    swaps.finish_swap(text)
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
        return np.asarray(zarr.open_group(str(path), mode="r", use_consolidated=True)[name][...])
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
    dims = {name: arrays[name].get("dimension_names") or () for name in (*spec.outputs, "status") if name in arrays}
    return Plan.of(spec, mesh, tuple(attrs["block_shape"]), tuple(orders[dim] for dim in mesh.dims), dims or None)


def zone_maps(path):
    """Least and largest value of each chunk: output -> (dims, chunk lengths, least, largest), NaN where nothing is stored.

    Taken from the arrays that the closing process wrote: a store that is not complete has none.  They cover all points, valid or not.
    """
    if _is_url(path):
        return _remote_zone_maps(path)
    content = root(path)
    arrays, found = content["consolidated_metadata"]["metadata"], {}
    for name, entry in arrays.items() if content["attributes"].get("complete") else ():
        if name.startswith("_sweep/zones/") and entry["node_type"] == "array":
            output = arrays[name.removeprefix("_sweep/zones/")]
            try:
                zones = read_chunk(path, name, (0,) * len(entry["shape"]), entry["shape"], np.dtype("f8"), None)
            except ValueError:
                continue  # a map that is damaged spares no block, and loses nothing
            least, largest = np.full(entry["shape"], np.nan) if zones is None else zones
            found[name.removeprefix("_sweep/zones/")] = tuple(output.get("dimension_names") or ()), chunk_shape(output), least, largest
    return found


def _remote_zone_maps(path):
    import zarr

    group = zarr.open_group(str(path), mode="r", use_consolidated=True)
    if not group.attrs.get("complete") or "zones" not in group["_sweep"]:
        return {}
    found = {}
    for name, zones in group["_sweep/zones"].arrays():
        output, (least, largest) = group[name], zones[...]
        found[name] = tuple(output.metadata.dimension_names or ()), output.chunks, least, largest
    return found


def _unopened(place, error):
    """Why a store does not open, in a sentence that says what to type."""
    if not _is_url(place):
        return StoreError(f"{place}: does not open as a store ({error}). Type: sweep check {place}.")
    if isinstance(error, ImportError):
        named = re.search(r"[Ii]nstall (\w+)", str(error))  # fsspec names the package of each protocol: s3fs, gcsfs, adlfs, ...
        package = "'overlap-sweep[remote]'" if place.startswith("http") or not named else f"'overlap-sweep[remote]' {named[1]}"
        return StoreError(f"{place}: a package that reads {place.partition('://')[0]} is missing. Type: pip install {package}.")
    said = " ".join(str(error).split()) or type(error).__name__
    return StoreError(f"{place}: does not open as a store ({said}). Look at the address, or copy the store here.")


def _codec(attrs):
    return json.loads(attrs.get("store_options", "{}")).get("codec", DEFAULT_CODEC)


# -- structure ---------------------------------------------------------------------------------------------------------


def create(plan, path, device=""):
    """Build the template of a store beside ``path`` and rename it into place; False where another was faster."""
    path = Path(path)
    beside = swaps.template(path)
    disk.remove(beside)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with templates.empty_chunks_left_out():
            templates.build(plan, beside, device)
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
    path = Path(path)
    old = root(path)["consolidated_metadata"]["metadata"]
    changed = {}
    with templates.empty_chunks_left_out():
        scratch = path / "_sweep" / "growth"
        disk.remove(scratch)
        templates.build(plan, scratch, device, chunks={name: chunk_shape(entry) for name, entry in old.items() if "shape" in entry})
        for name, entry in templates.metadata(scratch).items():
            if old.get(name) == entry:
                continue
            if entry["node_type"] == "array":
                own = path / name
                is_label = name in plan.dims or any(name in axis.columns for axis in plan.mesh.axes)
                if name not in old:
                    disk.remove(own)
                if is_label:
                    _replace_chunks(scratch / name / "c", own / "c")
                if name.startswith(("_sweep/zones/", "_sweep/done")):
                    disk.remove(own / "c")
            disk.write(path / name / "zarr.json", json.dumps(entry, indent=1).encode())
            changed[name] = entry
    attrs = provenance.attributes(plan.spec, plan.block, device)
    disk.remove(scratch)
    disk.sync_tree(path / "_sweep")
    disk.sync(str(path / name / "zarr.json") for name in changed)
    commit(path, {key: attrs[key] for key in ("title", "spec", "spec_sha256", "complete")}, changed)


def _replace_chunks(source, target):
    """Put the chunk files of ``source`` in ``target``, each whole: a reader of the old structure sees the labels that it knows in them."""
    files = [file for file in source.rglob("*") if file.is_file()]
    for file in files:
        disk.write(target / file.relative_to(source), file.read_bytes())
    disk.sync(str(target / file.relative_to(source)) for file in files)


def close(path, plan, state):
    """Make ``done`` and the zone maps from the journal, combine a reduction's parts, and say that the store is complete."""
    files = _combine(path, plan) if plan.reduction is not None else []
    done = np.ones(plan.grid, bool)
    for variable in plan.variables:
        done &= state.done[variable.name].reshape(plan.grid) | ~plan.owned(variable)
    files.append(write_chunk(path, "_sweep/done", (0,) * done.ndim, done.astype("u1"), done.shape, 0, None))
    for name, zones in state.zones.items():
        if plan.reduction is None:
            files.append(write_chunk(path, f"_sweep/zones/{name}", (0,) * zones.ndim, zones, zones.shape, np.nan, None))
    disk.sync(file for file in files if file)
    disk.remove_partial(path)
    commit(path, {"complete": 1})


# -- helpers -----------------------------------------------------------------------------------------------------------


def _combine(path, plan):
    """Merge the partial arrays of a reduction's tasks into its products; the files written."""
    reduction = plan.reduction
    codec = _codec(root(path)["attributes"])
    partials = {v.name.removeprefix(PARTIAL): v for v in plan.variables}
    grids = [tuple(g if (dim in reduction.over) == searched else 1 for dim, g in zip(plan.dims, plan.grid)) for searched in (False, True)]
    files = []
    for kept in np.ndindex(grids[0]):
        for name in reduction.names:
            chunk = plan.chunk(kept)
            found = reduction.empty(name, tuple(1 if dim in reduction.over else n for dim, n in zip(plan.dims, chunk.shape)))
            for searched in np.ndindex(grids[1]):
                index = tuple(k + s for k, s in zip(kept, searched))
                arrays = {array: _partial(path, partials[array], plan, index, codec) for array, *_ in reduction.arrays(name)}
                if arrays[f"count_{name}"] is not None:
                    found = reduction.merge(found, reduction.put_together(name, arrays, plan))
            values = reduction.take_apart(name, found, plan)
            if f"histogram_{name}" in values:
                values[f"quantile_{name}"] = reduction.quantile(values[f"histogram_{name}"])
            for variable, owner in reduction.products():
                if owner == name:
                    array = values[variable.name].reshape(plan.cut_shape(variable, chunk)).astype(variable.dtype)
                    place = plan.chunk_index(variable, kept)
                    files.append(write_chunk(path, variable.name, place, array, plan.chunk_shape(variable), variable.fill, codec))
    return files


def _partial(path, variable, plan, index, codec):
    """One task's chunk of a partial array, cut; fill where it left no file, None where the task wrote nothing (``where``)."""
    chunk = plan.chunk(index)
    try:
        values = read_chunk(path, variable.name, plan.chunk_index(variable, index), plan.chunk_shape(variable), variable.dtype, codec)
    except ValueError as error:
        raise StoreError(f"{path}: {variable.name} of block {index} is damaged ({error}). Type: sweep check {path} --repair.") from None
    shape = plan.cut_shape(variable, chunk)
    if values is None:
        return None if "count_" in variable.name else np.full(shape, variable.fill, variable.dtype)
    return values[tuple(slice(n) for n in shape)]


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


def _is_url(path):
    return "://" in str(path)
