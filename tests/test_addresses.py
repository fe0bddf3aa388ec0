"""Stores elsewhere: any URL that fsspec reads opens as the store itself does, and what cannot be read is one sentence."""

import functools
import http.server
import importlib.util
import shutil
import threading

import numpy as np
import pytest
import toy

import sweep
from sweep import _kernels, inspections
from sweep.errors import StoreError

AXES = {"link_gbps": [100, 200, 400, 800], "tp": [1, 2, 4, 8, 1024], "schedule": ["1f1b", "zb-h1"]}
OUTPUTS = ("step_time_s", "required_link_gbps", "bottleneck")


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.setattr(_kernels, "model", toy, raising=False)
    sweep.run(toy.spec(AXES, OUTPUTS, store={"block_points": 12}), tmp_path / "a.zarr")
    return tmp_path / "a.zarr"


@pytest.fixture
def addresses(path, tmp_path):
    """The store at a file URL, in memory, in an archive, and behind a web server where the package for that is installed."""
    fsspec = pytest.importorskip("fsspec")
    fsspec.filesystem("memory").put(str(path), "/shelf/a.zarr", recursive=True)
    archive = shutil.make_archive(tmp_path / "a", "zip", path)
    found = {"file": f"file://{path}", "memory": "memory://shelf/a.zarr", "zip": f"zip://::file://{archive}"}

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=tmp_path))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    if importlib.util.find_spec("aiohttp"):
        found["http"] = f"http://127.0.0.1:{server.server_port}/a.zarr"
    yield found
    server.shutdown()
    server.server_close()


def test_a_store_is_read_from_any_url(path, addresses):
    here = sweep.open_store(path)
    question = dict(where="step_time_s > 0.2", columns="tp,step_time_s,bottleneck", allow=["memory"])
    for address in addresses.values():
        ds = sweep.open_store(address)
        np.testing.assert_array_equal(ds.step_time_s, here.step_time_s)
        assert list(ds.schedule.values) == list(here.schedule.values)
        assert ds.encoding["zones"]().keys() >= set(OUTPUTS)
        answer = sweep.query(ds, **question)
        assert answer.equals(sweep.query(here, **question)) and len(answer), address
        best = dict(best="step_time_s", over="link_gbps", allow=["memory"])
        assert sweep.query(ds, **best).equals(sweep.query(here, **best))


@pytest.mark.parametrize(
    "address, said",
    [
        ("s3://bucket/a.zarr", "a package that reads s3 is missing. Type: pip install 'overlap-sweep[remote]' s3fs"),
        ("memory://nowhere.zarr", "does not open as a store"),
        ("nosuch://a.zarr", "Protocol not known: nosuch"),
    ],
)
def test_an_address_that_cannot_be_read_is_one_sentence(address, said):
    if address.startswith("s3") and importlib.util.find_spec("s3fs"):
        pytest.skip("s3fs is installed here")
    with pytest.raises(StoreError) as error:
        sweep.open_store(address)
    assert said in str(error.value) and "\n" not in str(error.value)
    with pytest.raises(StoreError, match="Copy it here first"):
        inspections.check(address)
