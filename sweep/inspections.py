"""Looking into a store: what it holds, and whether it holds what its journal says.

``check`` decodes every chunk that the journal calls done (each carries a crc32c), compares its least and largest value with those
written down, and the arrays' metadata with the root's.  ``repair`` takes the lines of bad blocks back, so that the next run of
the same command computes them again; nothing else is touched.
"""

import contextlib
import json
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

from . import journal, store
from .chunks import DEFAULT_CODEC, read_chunk, zone_of
from .errors import StoreError
from .locks import Lock


class Fault(NamedTuple):
    """Something wrong: in which block (None: the store as a whole) and output, and what."""

    block: tuple
    output: str
    problem: str


def info(path):
    """What a store is: title, axes, outputs, progress, provenance, bytes on disk."""
    place = _here(path, "info")
    content = store.root(place)
    attrs, arrays = content["attributes"], content["consolidated_metadata"]["metadata"]
    plan = store.plan_of(place)
    state = journal.read(place, plan)
    left = len(state.pending)
    shown = [name for name, entry in arrays.items() if entry["node_type"] == "array" and not name.startswith("_sweep/")]
    labels = {*plan.dims, *(name for axis in plan.mesh.axes for name in axis.columns)}
    files = [file for file in Path(place).rglob("*") if file.is_file()]
    return {
        "store": str(place),
        "title": attrs["title"],
        "axes": {axis.name: {"labels": len(axis), "from": _label(axis.labels[0]), "to": _label(axis.labels[-1])} for axis in plan.mesh.axes},
        "fixed": json.loads(attrs["spec"])["fixed"],
        "where": json.loads(attrs["spec"])["where"],
        "outputs": {name: arrays[name].get("dimension_names") or [] for name in shown if name not in labels},
        "points": plan.points,
        "points_left_by_where": plan.points_left,
        "points_ok": sum(state.ok.values()),
        "blocks": plan.blocks,
        "blocks_missing": left,
        "complete": bool(attrs["complete"]),
        "block_shape": list(plan.block),
        "bytes_on_disk": sum(file.stat().st_size for file in files),
        "files": len(files),
        "precision": attrs["precision"],
        "model": f"{attrs['model_version']} ({attrs['model_sha256'][:12]})",
        "spec_sha256": attrs["spec_sha256"],
        "versions": attrs["versions"],
        "device": attrs["device"],
        "created": attrs["created"],
        "sessions": len(state.sessions),
    }


def check(path, repair=False):
    """The faults of a store, a list of Fault; with ``repair`` its bad blocks are declared not done.  Raises StoreError where the root
    itself cannot be read, or, to repair, where another run is writing.
    """
    place = _here(path, "check")
    if repair and not os.access(place, os.W_OK):
        raise StoreError(f"{place}: cannot be written, so nothing can be repaired. Copy it where you may write, and repair the copy.")
    with Lock(place) if repair else contextlib.nullcontext():
        faults = [*_of_metadata(place, repair)]
        plan = store.plan_of(place)
        state = journal.read(place, plan)
        if state.damaged:
            faults.append(Fault(None, "_sweep/journal", f"{state.damaged} damaged lines, which count as not written"))
        bad = {}
        for fault in _of_blocks(place, plan, state):
            faults.append(fault)
            bad[fault.block] = True
        if len(state.pending) and store.root(place)["attributes"]["complete"]:
            faults.append(Fault(None, "", f"{len(state.pending)} blocks are missing in a store that says it is complete"))
        if repair and (bad or len(state.pending)):
            journal.void(place, bad)
            store.commit(place, {"complete": 0})
    return faults


def missing(path):
    """Number of blocks that are not done."""
    place = store.find(path)
    return len(journal.read(place, store.plan_of(place)).pending)


def unfinished(place):
    """One line about a store that is not complete: how much of it is there."""
    if "://" in place:
        return f"{place}: is not finished: what is not stored yet is left out"
    plan = store.plan_of(place)
    left = len(journal.read(place, plan).pending)
    every = int(plan.pending({}).sum())
    return f"{place}: {every - left:,} of {every:,} blocks stored: the rest is missing, and left out here"


def _here(path, verb):
    place = store.find(path)
    if "://" in place:
        raise StoreError(f"{place}: {verb} reads a store on a file system. Copy it here first.")
    return place


def _of_metadata(place, repair):
    """Arrays whose own metadata is not what the root says."""
    for name, entry in store.root(place)["consolidated_metadata"]["metadata"].items():
        try:
            same = json.loads((Path(place) / name / "zarr.json").read_bytes()) == entry
        except (OSError, ValueError):
            same = False
        if not same:
            yield Fault(None, name, "its zarr.json is not what the store's root says")
        elif entry["node_type"] == "array" and not name.startswith("_sweep/"):
            if len(entry["shape"]) == 1 and entry.get("dimension_names", [None])[0] == name:
                try:
                    store.array(place, name)
                except StoreError:
                    yield Fault(None, name, "its labels cannot be read")
    if repair:
        store.agree(place)


def _of_blocks(place, plan, state):
    """Chunks that are not what the journal says of them."""
    codec = json.loads(store.root(place)["attributes"].get("store_options", "{}")).get("codec", DEFAULT_CODEC)
    for variable in plan.variables:
        owned = np.broadcast_to(plan.owned(variable), plan.grid).reshape(-1)
        shape = plan.chunk_shape(variable)
        for flat in np.flatnonzero(owned & state.done[variable.name]):
            chunk = plan.chunk(int(flat))
            place_of = plan.chunk_index(variable, chunk.index)
            zone = state.zones[variable.name][(slice(None), *place_of[: len(variable.dims)])]
            problem = None
            try:
                values = read_chunk(place, variable.name, place_of, shape, variable.dtype, codec)
            except (ValueError, RuntimeError, OSError) as error:
                problem = str(error)
            else:
                if values is None:
                    problem = None if np.isnan(zone).all() else "its file is missing"
                else:
                    cut = values[tuple(slice(n) for n in plan.cut_shape(variable, chunk))]
                    found = zone_of(cut, variable.fill)
                    if not np.array_equal(zone, [np.nan] * 2 if found is None else found, equal_nan=True):
                        problem = "its values are not those that were written"
            if problem:
                yield Fault(chunk.index, variable.name, problem)


def _label(label):
    return label if isinstance(label, str) else float(label)
