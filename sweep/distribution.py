"""Blocks on other processes and machines: dask.distributed as a queue of tasks, and nothing more of dask.

A task is ``execute.run_block(store, index)``: the worker reads everything else from the store, writes the block and answers with a
few numbers.  A few tasks are in flight for each worker and each future is released as soon as it is done: held ones would keep
memory on the scheduler, and make it compute finished blocks again when a worker dies.  A task may run twice; it writes the
same bytes.  The journal is written here, by one process.

Local workers are spawned, never forked (jax has threads), each with its own GPU or its own share of the cores, set before jax is
imported there.
"""

import contextlib
import logging
import os
from pathlib import Path

from .errors import StoreError

IN_FLIGHT = 2  # tasks for each worker: one running, one waiting
RETRIES = 3
PATIENCE = "15s"  # for a scheduler to answer
PRELOAD = ["sweep.distribution"]  # in each local worker, before anything else: see dask_setup


def run(path, plan, indices, outputs, done, held, address=None, workers=None):
    """Have workers evaluate the blocks ``indices`` of the store at ``path``; ``done(record, points)`` is called for each.  On Ctrl-C
    (``held``) no more are handed out, and those in flight are not waited for.

    ``address`` is that of a scheduler which runs already (or its scheduler file); ``workers`` starts so many here.
    """
    from distributed import CancelledError, as_completed
    from distributed.comm import CommClosedError

    from .execute import run_block

    held.at_once = True
    with _client(address, workers) as client:
        waiting, queue, points = iter(indices), as_completed(loop=client.loop), {}

        def submit(count):
            for _ in range(count):
                flat = next(waiting, None)
                if flat is not None:
                    future = client.submit(run_block, os.path.abspath(path), int(flat), outputs, pure=False, retries=RETRIES)
                    points[future.key] = plan.chunk(int(flat)).points
                    queue.add(future)

        try:
            submit(IN_FLIGHT * max(1, sum(client.nthreads().values())))
            for future in queue:
                record = future.result()
                done(record, points.pop(future.key))
                future.release()
                if held.asked:
                    break
                room = IN_FLIGHT * max(1, sum(client.nthreads().values())) - len(points)
                submit(max(1, min(room, 2 * IN_FLIGHT)))
        except (CancelledError, CommClosedError, OSError, TimeoutError) as error:
            raise StoreError(f"{path}: the cluster is gone ({error}). Every finished block is kept; type the same command to go on.") from error
        except KeyError as error:  # distributed's KilledWorker and friends name the task
            raise StoreError(f"{path}: a block was given up ({error}). Every finished block is kept; type the same command to go on.") from error


@contextlib.contextmanager
def _client(address, workers):
    """A client of the scheduler at ``address``, or of a cluster of local workers."""
    try:
        from distributed import Client
    except ImportError:
        raise StoreError("dask.distributed is not installed. Type: pip install 'distributed'.") from None
    if address is not None:
        target = {"scheduler_file": address} if Path(address).is_file() else {"address": address}
        try:
            client = Client(**target, timeout=PATIENCE, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            raise StoreError(f"--dask {address}: no scheduler answers ({error}). Start one with: dask scheduler.") from error
        with client:
            if not client.nthreads():
                client.wait_for_workers(1, timeout=60)
            yield client
        return
    with _local_cluster(workers) as cluster, Client(cluster, set_as_default=False) as client:
        client.wait_for_workers(workers)
        yield client


def _local_cluster(workers):
    """A scheduler and ``workers`` processes here, each told which GPU or cores are its own."""
    from distributed import Nanny, Scheduler, SpecCluster

    logging.getLogger("distributed.nanny").setLevel(logging.WARNING)  # that a worker closed at the end is no news

    def options(place):
        return {"nthreads": 1, "memory_limit": 0, "preload": PRELOAD, "env": _environment(place, workers), "silence_logs": logging.WARNING}

    scheduler = {"cls": Scheduler, "options": {"dashboard_address": "127.0.0.1:0", "host": "127.0.0.1"}}
    nannies = {place: {"cls": Nanny, "options": options(place)} for place in range(workers)}
    return SpecCluster(workers=nannies, scheduler=scheduler, name="sweep", silence_logs=40)


def _environment(place, workers):
    """The environment of one local worker: its GPU where there are any, else its cores."""
    gpus = _gpus()
    if gpus:
        return {"CUDA_VISIBLE_DEVICES": gpus[place % len(gpus)], "XLA_PYTHON_CLIENT_MEM_FRACTION": f"{0.75 / -(-workers // len(gpus)):.2f}"}
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
    each = max(1, len(cores) // workers)
    mine = [cores[(place * each + k) % len(cores)] for k in range(each)]
    return {"SWEEP_CORES": ",".join(map(str, mine))}


def _gpus():
    """The GPUs of this host as CUDA_VISIBLE_DEVICES names them, found without starting any."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name for name in visible.split(",") if name.strip() not in ("", "-1")]
    found = Path("/proc/driver/nvidia/gpus")
    return [str(k) for k in range(len(list(found.iterdir())))] if found.is_dir() else []


def dask_setup(worker):
    """Called by dask in each local worker as it starts, before jax is imported: XLA sizes its pool from the cores it may use."""
    cores = os.environ.get("SWEEP_CORES")
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {int(core) for core in cores.split(",")})
