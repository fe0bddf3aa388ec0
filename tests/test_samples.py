"""Samples and contours: designs along one axis, as good as any other."""

import numpy as np
import pytest
import toy

import sweep
from sweep import _kernels, evaluations, refinements, samples, store
from sweep.errors import SpecError, SweepError

OF = {"link_gbps": {"geomspace": [25, 3200]}, "tp": [8, 16, 32], "seq_len": {"linspace": [1024, 8192]}}


@pytest.fixture(autouse=True)
def _toy(monkeypatch):
    monkeypatch.setattr(_kernels, "model", toy, raising=False)


def spec(size=64, method="sobol", of=OF, axes=None, **more):
    fixed = {name: value for name, value in {**toy.MACHINE, "link_gbps": 400}.items() if name not in of}
    sample = {"method": method, "size": size, "seed": 3, "of": of}
    outputs = ["step_time_s", "required_link_gbps"]
    return sweep.Spec.from_dict({"sample": sample, "axes": axes or {}, "fixed": fixed, "outputs": outputs, "store": {"block_points": 20}, **more})


@pytest.mark.parametrize("method", samples.METHODS)
def test_designs_fill_their_ranges_evenly(method):
    columns = samples.check({"method": method, "size": 256, "of": OF}, lambda *parts: ".".join(parts))
    link, tp, seq = (np.array(columns[name]) for name in OF)
    counts = np.histogram(np.log(link), np.log(25 * 128 ** np.linspace(0, 1, 17)))[0]
    assert counts.min() == counts.max() == 16  # one sixteenth of the points in each sixteenth of the range
    assert set(np.unique(tp, return_counts=True)[1]) <= {85, 86} and np.all(seq == np.round(seq))
    again = samples.check({"method": method, "size": 256, "of": OF}, lambda *parts: ".".join(parts))
    assert again == columns


def test_a_sampled_sweep_holds_what_the_model_says(tmp_path):
    made = spec(axes={"grad_bytes": [2, 4]})
    assert made.mesh.dims == ("sample", "grad_bytes")
    assert sweep.run(made, tmp_path / "a.zarr").complete
    ds = store.open_store(tmp_path / "a.zarr")
    assert ds.link_gbps.dims == ds.tp.dims == ("sample",) and ds.step_time_s.dims == ("sample", "grad_bytes")
    plain = evaluations._in_numpy(made.mesh, ("step_time_s",))["step_time_s"][1]
    np.testing.assert_allclose(ds.step_time_s, plain, rtol=2e-7)


def test_a_sobol_store_grows(tmp_path):
    sweep.run(spec(64), tmp_path / "a.zarr")
    result = sweep.run(spec(128), tmp_path / "a.zarr", extend=True)
    assert result.complete and result.points < 128
    sweep.run(spec(128), tmp_path / "b.zarr")
    a, b = store.open_store(tmp_path / "a.zarr"), store.open_store(tmp_path / "b.zarr")
    np.testing.assert_array_equal(a.step_time_s, b.step_time_s)


@pytest.mark.parametrize(
    "change, hint",
    [
        ({"method": "random"}, "no method"),
        ({"size": 0}, "whole number"),
        ({"size": 10**9}, "whole number from 1 to 100000"),
        ({"of": {"link": [1]}}, "Did you mean 'link_gbps'"),
        ({"of": {"link_gbps": {"geomspace": [5, 1]}}}, "smaller end first"),
        ({"of": {}}, "names no quantity"),
        ({"n": 3}, "no key of sample"),
    ],
)
def test_bad_designs_are_refused(change, hint):
    with pytest.raises(SpecError, match=hint):
        samples.check({"method": "sobol", "size": 8, "of": OF, **change}, lambda *parts: ".".join(parts))


def test_a_contour_becomes_a_store_of_points_on_it(tmp_path):
    axes = {"link_gbps": {"geomspace": [25, 3200, 8]}, "tp": [8, 16, 32], "micro_batch": [1, 2, 4], "schedule": ["1f1b", "zb-h1"]}
    sweep.run(toy.spec(axes, ["required_link_gbps", "exposed_fraction"], allow=["memory"]), tmp_path / "a.zarr")
    result = refinements.refine(tmp_path / "a.zarr", "required_link_gbps = link_gbps", tmp_path / "b.zarr")
    assert result.complete
    ds = store.open_store(tmp_path / "b.zarr")
    assert ds.sizes["sample"] == 18  # every combination of the others crosses once
    np.testing.assert_allclose(ds.link_gbps, ds.required_link_gbps, rtol=1e-6)
    assert set(ds.schedule.values) == {"1f1b", "zb-h1"} and set(ds.tp.values) == {8, 16, 32}
    again = refinements.refine(tmp_path / "a.zarr", "exposed_fraction = 0.1", tmp_path / "c.zarr", along="link_gbps", outputs=["exposed_fraction"])
    assert again.complete
    np.testing.assert_allclose(store.open_store(tmp_path / "c.zarr").exposed_fraction, 0.1, rtol=1e-6)


def test_a_contour_that_is_met_nowhere(tmp_path):
    sweep.run(toy.spec({"link_gbps": [100, 200]}, ["required_link_gbps"], allow=["memory"]), tmp_path / "a.zarr")
    with pytest.raises(SweepError, match="holds nowhere"):
        refinements.refine(tmp_path / "a.zarr", "required_link_gbps = link_gbps * 1000", tmp_path / "b.zarr", along="link_gbps")
    with pytest.raises(SweepError, match="is not A = B"):
        refinements.refine(tmp_path / "a.zarr", "required_link_gbps", tmp_path / "b.zarr")
    with pytest.raises(SweepError, match="--along None"):
        refinements.refine(tmp_path / "a.zarr", "required_link_gbps = 7", tmp_path / "b.zarr")
