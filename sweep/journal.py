"""The journal: what is done, and nothing else says so.

A line says that one block of some outputs is durable: its index, its shape, the outputs, and the least and largest value
of each chunk it wrote (the zone maps are made of these).  It is appended only after the chunks' files were put on the medium, for
all blocks of about a second together.  Files that exist prove nothing, and files that are missing disprove nothing: a chunk that
is all fill leaves none.

Each line carries a checksum; a torn or damaged one counts as not written.  A line whose shape is not the block's shape of today (the
axis has grown) no longer counts, and a line ``void`` takes back all lines of its block above it.  Each part writes its own file.
"""

import json
import threading
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

from . import disk

COMMIT_EVERY = 1.0  # seconds


class Record(NamedTuple):
    """One line: a block, the outputs it wrote, the zone (least, largest) or None of each chunk, and its points with status ok."""

    index: tuple
    shape: tuple
    zones: dict
    ok: int = 0

    def line(self):
        zones = {name: zone and [float(v) for v in zone] for name, zone in self.zones.items()}
        return _line({"block": list(self.index), "shape": list(self.shape), "zones": zones, "ok": self.ok})


class State:
    """The journal as arrays: ``done`` and ``zones`` by output, flat over the plan's grid; ``damaged`` lines; ``sessions``."""

    def __init__(self, plan):
        self.plan = plan
        self.done = {v.name: np.zeros(int(np.prod(plan.grid, dtype=int)), bool) for v in plan.variables}
        self.zones = {v.name: np.full((2, *plan.zone_grid(v)), np.nan) for v in plan.variables}
        self.ok = {}
        self.sessions, self.damaged = [], 0
        self._variables = {v.name: v for v in plan.variables}

    def apply(self, entry):
        if "session" in entry:
            self.sessions.append(entry["session"])
        elif "block" in entry:
            index = tuple(entry["block"])
            if len(index) == len(self.plan.grid) and all(i < g for i, g in zip(index, self.plan.grid)):
                self._block(index, entry)

    def _block(self, index, entry):
        chunk = self.plan.chunk(index)
        flat = int(np.ravel_multi_index(index, self.plan.grid)) if index else 0
        if tuple(entry["shape"]) == chunk.shape:
            for name, zone in entry["zones"].items():
                if name in self.done:
                    self.done[name][flat] = True
                    place = self.plan.chunk_index(self._variables[name], index)[: self.zones[name].ndim - 1]
                    self.zones[name][(slice(None), *place)] = zone or np.nan
            self.ok[flat] = max(entry.get("ok", 0), self.ok.get(flat, 0))

    @property
    def pending(self):
        """Flat indices of the blocks that have something left to write."""
        return np.flatnonzero(self.plan.pending(self.done))


def read(path, plan):
    """The State of the store at ``path``, from the journals of all parts."""
    state = State(plan)
    for file in sorted(folder(path).glob("*.jsonl")):
        lines = file.read_bytes().split(b"\n")
        last_void = {}
        for number, line in enumerate(lines):
            if b'"void"' in line and (entry := _parsed(line)):
                last_void[tuple(entry["block"])] = number
        for number, line in enumerate(lines):
            entry = _parsed(line)
            if entry is None:
                state.damaged += bool(line.strip())
            elif number > last_void.get(tuple(entry.get("block", ())), -1):
                state.apply(entry)
    return state


def folder(path):
    """Where the journals lie."""
    return Path(path) / "_sweep" / "journal"


class Journal:
    """The journal of one part, open for appending, with a thread that commits once a second.  A context manager."""

    def __init__(self, path, part="all", session=None):
        self.file = folder(path) / f"{part}.jsonl"
        self._session = session
        self._waiting, self._lock = [], threading.Lock()
        self._stop, self._thread, self._error = threading.Event(), None, None

    def __enter__(self):
        self.file.parent.mkdir(parents=True, exist_ok=True)
        if self._session:
            disk.append(self.file, _line({"session": self._session}))
        self._thread = threading.Thread(target=self._keep_committing, name="sweep-journal", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind, error, trace):
        self._stop.set()
        self._thread.join()
        if self._error is None:
            self.commit()
        elif kind is None:
            raise self._error

    def add(self, record, files):
        """Have ``record`` written once its ``files`` are durable."""
        if self._error is not None:
            raise self._error
        with self._lock:
            self._waiting.append((record, files))

    def commit(self):
        """Files first, then the lines that speak of them."""
        with self._lock:
            batch, self._waiting = self._waiting, []
        if batch:
            disk.sync(file for _, files in batch for file in files)
            disk.append(self.file, b"".join(record.line() for record, _ in batch))

    def _keep_committing(self):
        while not self._stop.wait(COMMIT_EVERY):
            try:
                self.commit()
            except OSError as error:
                self._error = error
                return


def void(path, indices):
    """Declare blocks not done: in every part's file, each of which is read for itself."""
    for file in sorted(folder(path).glob("*.jsonl")):
        disk.append(file, b"".join(_line({"block": list(index), "void": True}) for index in indices))


def _line(content):
    text = json.dumps(content, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _parsed(line):
    """The content of a line, or None where it is torn or damaged."""
    checksum, _, text = line.partition(b" ")
    try:
        return json.loads(text) if int(checksum, 16) == zlib.crc32(text) else None
    except ValueError:
        return None
