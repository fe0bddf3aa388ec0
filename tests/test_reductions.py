"""Reductions: the same winners, counts and histograms as a plain search of all points, however the work is cut."""

import math

import numpy as np
import pytest
import toy
import xarray as xr

import sweep
from sweep import _kernels, evaluations, reductions, store
from sweep.errors import SpecError
from sweep.plan import Plan

AXES = {
    "link_gbps": [100, 200, 400],
    "tp": [1, 2, 8, 4, 1024],
    "micro_batch": [1, 2, 3, 4, 5],
    "seq_len": [1024, 2048, 4096, 8192, 16384, 32768],
}
RULE = {"minimize": "step_time_s", "over": ["tp", "seq_len"], "histogram": ["mfu", "step_time_s"], "quantiles": [0.1, 0.5, 0.9]}


@pytest.fixture(autouse=True)
def _toy(monkeypatch):
    monkeypatch.setattr(_kernels, "model", toy, raising=False)


def spec(rule=RULE, axes=AXES, points=24, **more):
    return toy.spec(axes, (), store={"block_points": points}, reduce=rule, **more)


def searched(made, name, way, allow=()):
    """Every point in plain NumPy: values as stored, NaN where there is no candidate; axes in the order of the config."""
    ds = evaluations.dataset(made, evaluations._in_numpy(made.mesh, (name, "status")))
    lengths = xr.DataArray(np.zeros(made.mesh.shape), dims=made.mesh.dims)
    values, status, _ = xr.broadcast(ds[name], ds.status, lengths)
    values, status = values.transpose(*made.mesh.dims).values.astype("f4"), status.transpose(*made.mesh.dims).values
    valid = np.isin(status, [0, *(_kernels.quantities.REASONS.index(word) for word in allow)])
    mask = Plan.of(made).mask((0,) * values.ndim, values.shape)
    if mask is not None:
        valid &= mask
    return np.where(valid, values, np.nan)


def ranking(values, way, over):
    """For each cell of the axes kept: (value, position on each axis in ``over``) of all candidates, best first."""
    kept = [k for k in range(values.ndim) if k not in over]
    turned = values.transpose(kept + list(over))
    flat = turned.reshape(math.prod(turned.shape[: len(kept)]), -1)
    for row in flat:
        keys = np.where(np.isinf(row), np.inf, -row if way == "max" else row)
        order = [k for k in np.argsort(keys, kind="stable") if not np.isnan(row[k])]
        yield [(row[k], np.unravel_index(k, turned.shape[len(kept) :])) for k in order]


def check(ds, made, name, way, allow=()):
    values = searched(made, name, way, allow)
    over = [made.mesh.dims.index(dim) for dim in made.reduce["over"]]
    keep = [dim for dim in made.mesh.dims if dim not in made.reduce["over"]]
    top = made.reduce["top"]
    best = ds[f"best_{name}"].transpose(*keep, ...).values.reshape(-1, top)
    where = [ds[f"best_{name}_{axis}"].transpose(*keep, ...).values.reshape(-1, top) for axis in made.reduce["over"]]
    count = ds[f"count_{name}"].transpose(*keep).values.reshape(-1)
    labels = {axis: np.asarray(ds[axis].values) for axis in made.reduce["over"]}
    for cell, candidates in enumerate(ranking(values, way, over)):
        assert count[cell] == len(candidates)
        for k in range(top):
            if k < len(candidates):
                value, positions = candidates[k]
                np.testing.assert_allclose(best[cell, k], value, rtol=2e-7)
                for axis, found, position in zip(made.reduce["over"], where, positions):
                    assert labels[axis][found[cell, k]] == made.mesh.axes[made.mesh.dims.index(axis)].labels[position]
            else:
                assert np.isnan(best[cell, k]) and all(found[cell, k] == -1 for found in where)


@pytest.mark.parametrize("points", [7, 60, 2**20])
@pytest.mark.parametrize("rule", [{"minimize": "step_time_s"}, {"maximize": "mfu", "top": 3}, {"maximize": "required_link_gbps", "top": 4}])
def test_winners_are_those_of_a_plain_search(tmp_path, rule, points, monkeypatch):
    monkeypatch.setattr(reductions, "TASK_POINTS", 200)
    made = spec({**rule, "over": ["tp", "seq_len"]}, points=points, where="tp * seq_len < 60000 or link_gbps > 300", allow=["memory"])
    assert sweep.run(made, tmp_path / "a.zarr").complete
    (way, name), *_ = rule.items()
    check(store.open_store(tmp_path / "a.zarr"), made, name, way[:3], ["memory"])


def test_no_candidate_is_nan_and_minus_one(tmp_path):
    made = spec({"minimize": "step_time_s", "keep": ["tp"]})
    assert sweep.run(made, tmp_path / "a.zarr").complete
    ds = store.open_store(tmp_path / "a.zarr")
    assert np.isnan(ds.best_step_time_s.sel(tp=1024)) and ds.best_step_time_s_seq_len.sel(tp=1024) == -1
    assert ds.count_step_time_s.sel(tp=1024) == 0
    check(ds, made, "step_time_s", "min")


def test_ties_go_to_the_first_label_of_the_config_in_extensions_too(tmp_path):
    rule = {"minimize": "required_link_gbps", "keep": ["tp"]}
    made = spec(rule, allow=["memory"])
    sweep.run(spec(rule, {**AXES, "link_gbps": [400], "seq_len": [16384, 32768]}, allow=["memory"]), tmp_path / "a.zarr")
    assert sweep.run(made, tmp_path / "a.zarr", extend=True).complete
    sweep.run(made, tmp_path / "b.zarr")
    grown, once = store.open_store(tmp_path / "a.zarr"), store.open_store(tmp_path / "b.zarr")
    for ds in (grown, once):
        check(ds, made, "required_link_gbps", "min", ["memory"])
    np.testing.assert_array_equal(grown.best_required_link_gbps, once.best_required_link_gbps)


def test_histogram_and_quantiles(tmp_path):
    made = spec()
    sweep.run(made, tmp_path / "a.zarr")
    ds = store.open_store(tmp_path / "a.zarr")
    for name in ("step_time_s", "mfu"):
        values = searched(made, name, "min").transpose(0, 2, 1, 3).reshape(15, -1)
        counts = ds[f"histogram_{name}"].values.reshape(15, -1)
        quantiles = ds[f"quantile_{name}"].values.reshape(15, -1)
        for row, bins, found in zip(values, counts, quantiles):
            row = np.sort(row[~np.isnan(row)])
            np.testing.assert_array_equal(bins, np.bincount(reductions.bins_of(row), minlength=reductions.BINS))
            if not len(row):
                assert np.isnan(found).all()
                continue
            for fraction, value in zip((0.1, 0.5, 0.9), found):
                exact = row[max(1, math.ceil(fraction * len(row))) - 1]
                assert abs(value / exact - 1) <= reductions.QUANTILE_ERROR * 1.001
    assert ds.quantile_mfu.attrs["relative_error_bound"] == reductions.QUANTILE_ERROR
    assert ds.bin.values[reductions.bins_of(np.array([1.0], "f4"))[0]] == 1.0


def test_bins_hold_what_their_edges_say():
    values = np.abs(np.random.default_rng(1).standard_cauchy(2000)).astype("f4") * np.float32(10) ** np.arange(-10, 10, 0.01, dtype="f4")
    codes, edges = reductions.bins_of(values), reductions.edges()
    assert np.all(edges[codes] <= values) and np.all(values < edges[codes + 1])
    assert list(reductions.bins_of(np.array([0, -1, 1e-30, np.inf, 3e38], "f4"))) == [0, 0, 0, reductions.BINS - 1, reductions.BINS - 1]


def test_infinity_wins_only_if_nothing_finite_does(monkeypatch):
    made = spec({"maximize": "mfu", "over": ["tp"]})
    reduction = Plan.of(made).reduction
    assert list(reductions._values(np.array([-3, np.inf], "f4"), -1.0)) == [3, np.inf]
    one = reductions.Found(np.array([[np.inf]], "f4"), np.array([[5]]), np.array([[1]]))
    other = reductions.Found(np.array([[-3]], "f4"), np.array([[9]]), np.array([[1]]))
    assert reduction.merge(one, other).keys[0, 0] == -3 and reduction.merge(other, one).places[0, 0] == 9


def test_parts_and_resume_give_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(reductions, "TASK_POINTS", 30)
    made = spec({"minimize": "step_time_s", "over": ["micro_batch", "seq_len", "tp"]})
    for i in (1, 2, 3):
        sweep.run(made, tmp_path / "a.zarr", part=(i, 3))
    assert Plan.of(made).blocks > 6
    check(store.open_store(tmp_path / "a.zarr"), made, "step_time_s", "min")
    assert sweep.run(made, tmp_path / "a.zarr").blocks == 0


@pytest.mark.parametrize("real", [False, True])
def test_a_reduction_is_what_reducing_the_stored_sweep_gives(tmp_path, monkeypatch, real):
    """Best, top, count and histogram to the last bit, quantiles within their bound."""
    over, axes, common = ["tp", "seq_len"], AXES, {"where": "tp * seq_len < 300000", "allow": ["memory"], "store": {"block_points": 60}}
    if real:
        monkeypatch.undo()
        axes = {"link_gbps": [50, 100, 400], "tp": [1, 2, 4, 8], "seq_len": [2048, 4096, 8192], "dp": [16, 64, 256]}
        common["fixed"] = {"model": "llama-3-8b", "accelerator": "h100", "efficiency": 0.4}
    make = sweep.Spec.from_dict if real else lambda content: toy.spec(content.pop("axes"), content.pop("outputs", ()), **content)
    sweep.run(make({"axes": axes, "outputs": ["step_time_s", "mfu"], **common}), tmp_path / "a.zarr")
    rule = {"minimize": "step_time_s", "over": over, "top": 3, "count": "mfu", "histogram": "step_time_s", "quantiles": [0.25, 0.5, 0.9]}
    sweep.run(make({"axes": axes, "reduce": rule, **common}), tmp_path / "b.zarr")
    stored, reduced = sweep.open_store(tmp_path / "a.zarr").load(), sweep.open_store(tmp_path / "b.zarr").load()
    keep = [dim for dim in axes if dim not in over]
    answer = sweep.query(stored, best="min:step_time_s", over=over, top=3, limit=None)
    for row in answer.dropna(subset="step_time_s").itertuples():
        cell = reduced.sel({dim: getattr(row, dim) for dim in keep} | {"rank": row.rank})
        assert np.float32(row.step_time_s) == cell.best_step_time_s
        for dim in over:
            assert stored[dim].values[int(cell[f"best_step_time_s_{dim}"])] == getattr(row, dim)
    assert int((~np.isnan(reduced.best_step_time_s)).sum()) == answer.step_time_s.notna().sum() > 9
    reasons = [0, _kernels.quantities.REASONS.index("memory")]
    valid = xr.broadcast(stored.step_time_s.where(stored.status.isin(reasons)), stored.mfu)[0].transpose(*keep, *over).values
    rows = valid.reshape(-1, math.prod(valid.shape[len(keep) :]))
    for values, count, bins, quantiles in zip(
        rows, reduced.count_mfu.transpose(*keep).values.ravel(), reduced.histogram_step_time_s.transpose(*keep, "bin").values.reshape(len(rows), -1),
        reduced.quantile_step_time_s.transpose(*keep, "quantile").values.reshape(len(rows), -1),
    ):  # fmt: skip
        values = np.sort(values[~np.isnan(values)])
        assert count == len(values)
        np.testing.assert_array_equal(bins, np.bincount(reductions.bins_of(values), minlength=reductions.BINS))
        for fraction, found in zip((0.25, 0.5, 0.9), quantiles):
            assert abs(found / values[math.ceil(fraction * len(values)) - 1] - 1) <= reductions.QUANTILE_ERROR * 1.001


@pytest.mark.parametrize(
    "rule, hint",
    [
        ({"minimise": "mfu", "over": ["tp"]}, "no key of reduce"),
        ({"minimize": "mfuu", "over": ["tp"]}, "Did you mean 'mfu'"),
        ({"minimize": "bottleneck", "over": ["tp"]}, "has words"),
        ({"minimize": "mfu"}, "either over"),
        ({"minimize": "mfu", "over": ["tp"], "top": 0}, "from 1 to 100"),
        ({"over": ["tp"]}, "names no output"),
        ({"minimize": "mfu", "keep": list(AXES)}, "no axis is left"),
        ({"minimize": "mfu", "over": ["tp"], "quantiles": [5]}, "not a fraction"),
    ],
)
def test_bad_rules_are_refused(rule, hint):
    with pytest.raises(SpecError, match=hint):
        spec(rule)
