"""The time of a stored sweep by one and by two dask workers, each on its own core; compiling is done before.

    python tests/benchmarks/workers.py FOLDER      prints {"one": seconds, "two": seconds}
"""

import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))


def main(folder):
    from distributed import Client

    from sweep import distribution, execute, journal, store
    from sweep.plan import Plan
    from tests.benchmarks import sweeps

    plan = Plan.of(sweeps.spec(store={"block_points": 2**19}))
    blocks = [chunk.index for chunk in plan.chunks()]
    flat = list(range(len(blocks)))
    path = folder / "workers.zarr"
    if not path.exists():
        store.create(plan, path, "workers")
    took = {}
    with distribution._local_cluster(2) as cluster, Client(cluster, set_as_default=False) as client:
        client.wait_for_workers(2)
        names = list(client.nthreads())
        for name in names:  # each compiles its stages
            client.submit(execute.run_block, str(path), 0, workers=[name], pure=False).result()
        for label, crew in (("one", names[:1]), ("two", names), ("one", names[:1]), ("two", names)):
            began = time.perf_counter()
            waiting = [client.submit(execute.run_block, str(path), k, workers=[crew[k % len(crew)]], pure=False) for k in flat]
            with journal.Journal(path) as book:
                for future in waiting:
                    book.add(future.result(), [])
            took[label] = min(took.get(label, 1e9), time.perf_counter() - began)
    print(json.dumps(took))


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
