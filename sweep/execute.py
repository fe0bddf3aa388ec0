"""Running a plan: blocks are evaluated while the ones before are fetched, compressed and written.

    dispatch block k+1  ->  its outputs start for the host  ->  a pool fetches, cuts and writes block k  ->  journal

At most ``IN_FLIGHT`` blocks exist at one time, so memory is bounded by the plan and not by the sweep.  The engine practises
what it models.  Stopping at any moment loses no more than the blocks in flight; the same command goes on.
"""

import contextlib
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from . import disk, interrupts, journal, provenance, store, swaps
from ._kernels import quantities
from .chunks import BlockWriter
from .cuts import rearranged
from .errors import PlanError, StoreError
from .locks import Lock
from .plan import IN_FLIGHT, Plan, si
from .reductions import PARTIAL, Task
from .stages import Stages, double_precision

WRITERS = 3  # threads that fetch and write; compression runs outside of Python's lock, and a write waits for the disk now and then


class Progress(NamedTuple):
    """Where a run stands, from finished writes: blocks and points done of all, points per second, seconds left."""

    blocks: int
    all_blocks: int
    points: int
    all_points: int
    points_per_s: float
    seconds_left: float


class Result(NamedTuple):
    """What a run did: the store, whether it is complete, points and blocks evaluated now, seconds, the device, notes to be said."""

    path: str
    complete: bool
    points: int
    blocks: int
    seconds: float
    device: str
    notes: tuple = ()


def run(spec, path=None, *, part=None, extend=False, overwrite=False, dask=None, workers=None, progress=None):
    """Evaluate a sweep into the store at ``path`` (default: outputs/NAME.zarr), or finish one that was stopped.

    ``part`` is ``(i, n)``, i from 1: this process does every n-th block, others do the rest.  ``extend`` lets a store of fewer labels
    or outputs grow; ``overwrite`` builds a new store and swaps when it is complete.  ``dask`` is the address of a scheduler whose workers
    do the blocks, ``workers`` a number of processes to start here for that.  ``progress`` is called with a Progress after each block.
    Returns a Result; raises PlanError or StoreError, before anything is computed, where it cannot work; on Ctrl-C KeyboardInterrupt, once
    the blocks in flight are finished.
    """
    path = str(path or spec.store.get("path") or default_path(spec))
    if "://" in path:
        raise StoreError(f"{path}: a run writes on a file system. Write a path here with -o, and copy the store there once it is complete.")
    swaps.finish_swap(path)
    if overwrite:
        swaps.refuse_foreign(path)
    target = str(swaps.replacement(path)) if overwrite else path
    if finished(spec, target):
        attrs = store.root(target)["attributes"]
        if overwrite:
            swaps.swap(target, path)
        return Result(path, True, 0, 0, 0.0, attrs["device"], _notes(attrs))
    elsewhere = f"{workers} workers" if workers else dask and f"workers of {dask}"
    name = "all" if part is None else f"{part[0]}-of-{part[1]}"
    try:
        with interrupts.Held() as held:
            plan, notes = _prepare(spec, target, extend, elsewhere)
            with Lock(target, name):
                store.agree(target)
                result = _compute(plan, target, name, part, progress, notes, elsewhere, dask, workers, held)
            if overwrite and result.complete:
                swaps.swap(target, path)
                result = result._replace(path=path)
    except OSError as error:
        raise disk.explained(error, target) from error
    return result


def finished(spec, path):
    """True where the store at ``path`` is complete and of this spec and model."""
    if not (Path(path) / "zarr.json").exists():
        return False
    attrs = store.root(path)["attributes"]
    return bool(attrs["complete"]) and attrs["spec_sha256"] == spec.sha256 and attrs["model_sha256"] == provenance.model_sha256()


def run_block(path, index, outputs=None):
    """Evaluate and write block ``index`` (a tuple, or its place in C order) of the store at ``path``; its journal Record.

    Everything else is read from the store, and kept for the next block: this is what a worker elsewhere is asked to do.  ``outputs``
    names those to write (default: all).  The files are durable when it returns; the line in the journal is the caller's to write.
    """
    runner = _runner(str(path), os.stat(os.path.join(path, "zarr.json")).st_mtime_ns, outputs and tuple(outputs))
    if not isinstance(index, tuple):
        index = runner.plan.chunk(int(index)).index
    record, files = runner.finish(index, runner.dispatch(index))
    disk.sync(files)
    return record


def default_path(spec):
    """outputs/NAME.zarr, by the name of the config."""
    name = Path(spec.source).stem if spec.source else "sweep"
    return Path("outputs") / f"{name}.zarr"


def refuse(plan, path):
    """Raise PlanError where a plan has nothing to compute, or needs more disk or memory than there is, naming both numbers."""
    if not plan.points_left:
        raise PlanError(f"{plan.spec.source or path}: where leaves none of {plan.points:,} points, so nothing would be computed. Widen it or the axes.")
    free = disk.free_bytes(path)
    if plan.bytes > free:
        raise PlanError(
            f"{path}: the sweep may need {si(plan.bytes)} of disk and {si(free)} is free. Store fewer outputs, use reduce:, or choose another place with -o."
        )
    memory = disk.memory_bytes()
    if memory is not None and plan.peak_bytes > memory:
        raise PlanError(
            f"{path}: the sweep needs {si(plan.peak_bytes)} of memory and {si(memory)} is free. Write a smaller store.block_points (it is {int(np.prod(plan.tile, dtype=float))})."
        )


class Runner:
    """Evaluates and writes single blocks of a store: dispatch returns at once, finish waits and writes."""

    def __init__(self, path, plan, outputs=None):
        self.plan, self.writer = plan, BlockWriter(path, plan, store.root(path)["attributes"])
        self.variables = tuple(v for v in plan.variables if outputs is None or v.name in outputs)
        names = plan.reduction.outputs if plan.reduction else tuple(v.name for v in self.variables)
        self.stages = Stages(plan.mesh, names, plan.tile, plan.spec.precision)
        self.task = Task(plan, self.stages) if plan.reduction else None

    def dispatch(self, index):
        """Start the evaluation of a block: variable -> array on the device, on its way to the host; None if nothing is to be evaluated."""
        if self.task is not None or not self.plan.is_included(index):
            return None
        outputs = self.stages(self.plan.chunk(index).start)
        started = {variable: outputs[variable.name] for variable in self._owned(index)}
        for value in started.values():
            value.copy_to_host_async()
        return started

    def finish(self, index, started):
        """Wait for a block, write it: (Record, files to be made durable)."""
        chunk = self.plan.chunk(index)
        if self.task is not None:
            arrays, ok = self._reduced(index)
        elif started is None:
            arrays = {v: np.full(self.plan.cut_shape(v, chunk), quantities.EXCLUDED, "u1") for v in self._owned(index)}
            ok = 0
        else:
            with double_precision():
                arrays = {v: self._cut(v, np.asarray(value), chunk) for v, value in started.items()}
            ok = sum(self._count_ok(chunk, values) for v, values in arrays.items() if v.name == "status")
        files, zones = self.writer.write(index, arrays)
        return journal.Record(index, chunk.shape, zones, ok), files

    def _reduced(self, index):
        """The partial arrays of a reduction's task."""
        found, ok = self.task.run(index)
        values = {}
        for name, entry in found.items():
            values |= self.plan.reduction.take_apart(name, entry, self.plan)
        return {v: values[v.name.removeprefix(PARTIAL)] for v in self.variables}, ok

    def _owned(self, index):
        return [v for v in self.plan.owners(index) if v in self.variables]

    def _cut(self, variable, values, chunk):
        """An output's chunk without the padding and the axes it lacks; the points that ``where`` leaves out marked in status."""
        values = values[tuple(slice(n) for n in chunk.shape)]
        if variable.name == "status":
            mask = self.plan.mask(chunk.start, chunk.shape)
            if mask is not None:
                values = np.where(mask, values, np.uint8(quantities.EXCLUDED))
        return values.reshape(self.plan.cut_shape(variable, chunk))

    def _count_ok(self, chunk, status):
        """Points with status ok, each counted for the axes that status lacks (this block is their owner)."""
        lacking = [n for dim, n in zip(self.plan.dims, self.plan.shape) if dim not in _dims(self.plan, "status")]
        return int((status == 0).sum()) * int(np.prod(lacking, dtype=int))


def _prepare(spec, path, extend, device):
    """The plan of the store at ``path``, created or grown if need be; and what is to be said."""
    swaps.clear(path)
    if not (Path(path) / "zarr.json").exists():
        if Path(path).exists() and any(Path(path).iterdir()) if Path(path).is_dir() else Path(path).exists():
            raise StoreError(f"{path}: exists and is not a store. Choose another path with -o.")
        plan = Plan.of(spec)
        refuse(plan, path)
        with contextlib.suppress(OSError):  # absent, or another run has put its store there by now: create looks again
            Path(path).rmdir()
        if store.create(plan, path, device or device_name()):
            return plan, ()
    attrs = store.root(path)["attributes"]
    if attrs["spec_sha256"] == spec.sha256 and attrs["model_sha256"] == provenance.model_sha256():
        return store.plan_of(path), _notes(attrs)
    if not extend:
        found = "; ".join(provenance.differences(attrs, spec)) or "the specs differ"
        hint = "" if provenance.obstacles(attrs, spec) else "let it grow with --extend, "
        raise StoreError(f"{path}: holds another sweep: {found}. Choose another store with -o, {hint}or replace it with --overwrite.")
    found = provenance.obstacles(attrs, spec)
    if found:
        raise StoreError(f"{path}: cannot be extended to this config: {'; '.join(found)}. Choose another store with -o.")
    with Lock(path):
        store.agree(path)
        plan = _grown(path, spec)
        refuse(plan, path)
        store.extend(path, plan, device or device_name())
    return plan, _notes(attrs)


def _grown(path, spec):
    """The plan of ``spec`` over a store's labels in their order, followed by the new ones."""
    orders = {}
    for axis in spec.mesh.axes:
        place = {label: k for k, label in enumerate(axis.labels.tolist())}
        kept = [place[label] for label in store.labels(path, axis.name).tolist()]
        orders[axis.name] = np.array(kept + sorted(set(range(len(axis))) - set(kept)), int)
    mesh = rearranged(spec.mesh, orders)
    block = tuple(store.root(path)["attributes"]["block_shape"])
    return Plan.of(spec, mesh, block, tuple(orders[dim] for dim in mesh.dims))


def _notes(attrs):
    """What differs from the last run in ways that are said, not refused."""
    notes = []
    if attrs["versions"] != provenance.versions():
        notes.append(f"the store was begun with {attrs['versions']}; this is {provenance.versions()}")
    return tuple(notes)


def _compute(plan, path, name, part, progress, notes, elsewhere, dask, workers, held):
    """All blocks that are left for this part, then the closing where nothing is left for anyone."""
    began = time.monotonic()
    state = journal.read(path, plan)
    left = state.pending
    mine = left if part is None else left[left % part[1] == part[0] - 1]
    points = sum(plan.chunk(int(i)).points for i in mine)
    device = (elsewhere or device_name()) if len(mine) else store.root(path)["attributes"]["device"]
    if len(mine):
        count = _Count(len(mine), points, progress)
        missing = [v.name for v in plan.variables if (plan.owned(v) & ~state.done[v.name].reshape(plan.grid)).any()]
        with journal.Journal(path, name, provenance.session(device)) as book:
            if elsewhere:
                from . import distribution

                distribution.run(path, plan, mine, missing, lambda record, done: (book.add(record, []), count.add(done)), held, dask, workers)
            else:
                _pipeline(Runner(path, plan, missing), mine, book, count, held)
        state = journal.read(path, plan)
    complete = not len(state.pending)
    if complete and not store.root(path)["attributes"]["complete"]:
        store.close(path, plan, state)
    return Result(str(path), complete, points, len(mine), time.monotonic() - began, device, notes)


def _pipeline(runner, indices, book, count, held=interrupts.Held()):
    """Evaluate and write blocks, overlapped.  On Ctrl-C (``held``) or an error the blocks in flight are finished first."""
    slots, failures = threading.Semaphore(IN_FLIGHT), []

    def finish(index, started):
        try:
            record, files = runner.finish(index, started)
            book.add(record, files)
            count.add(runner.plan.chunk(index).points)
        except BaseException as error:
            failures.append(error)
        finally:
            slots.release()

    with ThreadPoolExecutor(WRITERS, thread_name_prefix="sweep-writer") as pool:
        for flat in indices:
            slots.acquire()
            if failures or held.asked:
                slots.release()
                break
            index = runner.plan.chunk(int(flat)).index
            started = runner.dispatch(index)
            count.start()
            pool.submit(finish, index, started)
    if failures:
        raise failures[0]


class _Count:
    """Points whose writes are finished, told to ``progress``."""

    def __init__(self, blocks, points, progress):
        self.blocks, self.points, self.progress = blocks, points, progress
        self.began, self.lock, self.done, self.written = None, threading.Lock(), 0, 0

    def start(self):
        """Begin to count time: the first block was started, so everything is compiled."""
        self.began = self.began or time.monotonic()

    def add(self, points):
        self.start()
        with self.lock:
            self.done += 1
            self.written += points
            rate = self.written / max(time.monotonic() - self.began, 1e-9)
            if self.progress:
                self.progress(Progress(self.done, self.blocks, self.written, self.points, rate, (self.points - self.written) / rate))


def device_name():
    """The device that jax chose, in words."""
    import jax

    first = jax.devices()[0]
    return f"{first.platform} ({first.device_kind})" if first.platform != "cpu" else f"cpu ({os.cpu_count()} cores)"


def _dims(plan, name):
    return next(v.dims for v in plan.variables if v.name == name)


@lru_cache(maxsize=2)
def _runner(path, _changed, outputs):
    """The Runner of a store, kept while its root does not change."""
    return Runner(path, store.plan_of(path), outputs)
