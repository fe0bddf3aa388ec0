"""How fast the explorer answers over HTTP on a store of 10^7 points: ``make bench`` prints the table (BENCH_STORE: one that is there).

Random pairs of axes, random labels on all others; the promise is 200 ms for a slice.
"""

import http.client
import os
import random
import threading
import time
from urllib.parse import urlencode

import pytest

import sweep
from sweep import explorer
from sweep.spec import Spec

pytestmark = [
    pytest.mark.skipif(not os.environ.get("BENCH"), reason="make bench"),
    pytest.mark.filterwarnings("ignore"),
]
DP = "dp=[16, 32, 64, 128, 256, 512, 1024, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768]"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    path = os.environ.get("BENCH_STORE")
    if not path:
        path = str(tmp_path_factory.mktemp("explored") / "ten-million.zarr")
        sweep.run(Spec.load("why-400g").with_set(DP), path)
    server = explorer.Server(path, 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def answers(server, count, more, question="slice"):
    """Seconds of each of ``count`` random questions."""
    ds, found, pick = server.explorer.ds, [], random.Random(5)
    connection = http.client.HTTPConnection(*server.server_address[:2])
    while len(found) < count:
        x, y = pick.sample([dim for dim in ds.dims if dim != "link_gbps"], 2)
        words = {"x": x, "y": y, "color": pick.choice([name for name in ds.data_vars if name != "status"]), "pick": "0,0"}
        words |= {f"at.{dim}": str(pick.choice(ds[dim].values)) for dim in ds.dims} | more(pick)
        began = time.perf_counter()
        connection.request("GET", f"/{question}?{urlencode(words)}")
        answer = connection.getresponse()
        answer.read()
        found.append(time.perf_counter() - began)
        assert answer.status == 200
    return sorted(found)


@pytest.mark.parametrize("what, more", [
    ("read from the store", lambda pick: {}),
    ("with a constraint", lambda pick: {"where": "exposed_fraction < 0.1 and tp * dp <= 1024"}),
    ("a port between the labels", lambda pick: {"at.link_gbps": str(pick.uniform(30, 3000))}),
])  # fmt: skip
def test_slices_answer_within_200_ms(server, what, more):
    found = answers(server, 60, more)
    median, late = found[len(found) // 2], found[int(0.95 * len(found))]
    print(f"\n{what:28} median {1e3 * median:4.0f} ms, 95 % {1e3 * late:4.0f} ms   ({os.cpu_count()} cores, load {os.getloadavg()[0]:.1f})")
    assert median < 0.2
