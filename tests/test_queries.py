"""Queries give what a plain search over all points gives, however the dataset is cut, and read no more than they need."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from sweep import crossings, sensitivities
from sweep.errors import SweepError
from sweep.queries import query
from tests import datasets

DIMS = ("model", "tp", "link_gbps")
cuts = st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 5))
seeds = st.integers(0, 10**6)


def plain_best(table, name, sign, by, over, k):
    """The winners by sorting everything: finite before infinite, then the value, then the order of ``over``."""
    table = table[table[name].notna()].copy()
    table["_inf"] = np.isinf(table[name])
    table["_value"] = sign * table[name].where(~table["_inf"], 0)
    for dim in over:
        table[f"_{dim}"] = pd.Categorical(table[dim], categories=list(dict.fromkeys(ORDER[dim])), ordered=True)
    table = table.sort_values(["_inf", "_value", *(f"_{dim}" for dim in over)], kind="stable")
    return table.groupby(by, observed=True).head(k) if by else table.head(k)


ORDER = {dim: datasets.make()[dim].values.tolist() for dim in DIMS}


@settings(max_examples=40, deadline=None)
@given(seeds, cuts, st.permutations(DIMS), st.integers(0, 3), st.integers(1, 3), st.sampled_from(["min", "max"]), st.booleans())
def test_best_is_the_plain_search(seed, chunks, order, searched, k, way, memory):
    ds, over = datasets.make(seed, chunks=chunks), list(order[:searched]) or list(order)
    by = [dim for dim in DIMS if dim not in over]
    allow = ("memory",) if memory else ()
    answer = query(ds, best=f"{way}:step_time_s", over=over, top=k, allow=allow, limit=None)
    answer = answer[answer.step_time_s.notna()]
    expected = plain_best(datasets.frame(ds, ("ok", *allow)), "step_time_s", 1 if way == "min" else -1, by, over, k)
    got = set(map(tuple, answer[[*DIMS, "step_time_s"]].itertuples(index=False)))
    assert got == set(map(tuple, expected[[*DIMS, "step_time_s"]].itertuples(index=False)))
    assert len(answer) == len(expected)


@settings(max_examples=15, deadline=None)
@given(seeds, cuts)
def test_how_it_is_cut_changes_nothing(seed, chunks):
    whole, cut = datasets.make(seed), datasets.make(seed, chunks=chunks)
    questions = (
        dict(best="step_time_s", over=["tp"], columns="bottleneck"),
        dict(best="mfu", group_by="bottleneck", top=2),
        dict(pareto="step_time_s,max:mfu,memory_bytes", group_by="model"),
        dict(crossover="step_time_s=0.4", along="link_gbps"),
        dict(group_by="bottleneck,model", columns="mfu,step_time_s"),
        dict(count=True, where="mfu > 0.5 and step_time_s < 0.5"),
        dict(where="required_link_gbps in [100, 300] or tp == 2", columns="model,tp,link_gbps,mfu"),
    )
    for question in questions:
        a, b = query(whole, limit=None, **question), query(cut, limit=None, **question)
        names = [name for name in a.columns if name != "rank"]
        pd.testing.assert_frame_equal(
            a.sort_values(names, ignore_index=True), b.sort_values(names, ignore_index=True), check_dtype=False, rtol=1e-12
        )


@settings(max_examples=15, deadline=None)
@given(seeds, cuts)
def test_pareto_is_what_nothing_beats(seed, chunks):
    ds = datasets.make(seed, chunks=chunks, spread=20)
    answer = query(ds, pareto="step_time_s,max:mfu", limit=None)
    table = datasets.frame(ds)
    table = table[np.isfinite(table.step_time_s)]
    points = table[["step_time_s", "mfu"]].to_numpy()
    beaten = [((points[:, 0] <= a) & (points[:, 1] >= b) & ((points[:, 0] < a) | (points[:, 1] > b))).any() for a, b in points]
    expected = {tuple(point) for point in points[~np.array(beaten, bool)]} if len(points) else set()
    assert set(map(tuple, answer[["step_time_s", "mfu"]].to_numpy())) - {(np.nan, np.nan)} == expected or not expected


def test_where_at_and_columns():
    ds = datasets.make(3, chunks=(1, 2, 2))
    answer = query(ds, where="tp * layers >= 64 and mfu > 0.3", at={"model": "llama-3-70b", "tp": (2, 8)}, columns=["tp", "mfu"])
    table = datasets.frame(ds)
    expected = table[(table.model == "llama-3-70b") & (table.tp >= 2) & (table.tp * 32 >= 64) & (table.mfu > 0.3)]
    assert answer.columns.tolist() == ["tp", "mfu"]
    assert answer.to_numpy().tolist() == expected[["tp", "mfu"]].to_numpy().tolist()
    assert answer.attrs["units"]["mfu"] == "1"


def test_names_that_no_variable_holds():
    ds = datasets.make(1)
    everything = query(ds, count=True)["count"][0]
    assert query(ds, count=True, where="seq_len == 8192 and accelerator == 'h100' and rails == 'all'")["count"][0] == everything
    assert query(ds, count=True, where="seq_len > 8192")["count"][0] == 0


def test_labels_are_matched_with_tolerance():
    ds = xr.Dataset({"mfu": ("x", np.arange(11.0))}, {"x": np.linspace(0, 1, 11)})
    assert query(ds, at={"x": 0.3}, columns="mfu").mfu.tolist() == [3.0]
    with pytest.raises(SweepError, match="0.3 and 0.4"):
        query(ds, at={"x": 0.34})


def test_zone_maps_and_labels_spare_blocks():
    ds = datasets.make(5, shape=(4, 4, 5), chunks=(1, 1, 5), spread=50)
    answer = query(ds, where="required_link_gbps > 700", limit=None)
    assert answer.attrs["blocks_skipped"] > 0
    assert len(answer) == (datasets.frame(ds).required_link_gbps > 700).sum()
    answer = query(ds, where="tp == 2 and model == 'gpt-3-175b'", count=True)
    assert answer.attrs["blocks_read"] == 1
    best = query(ds, best="step_time_s")
    assert best.attrs["blocks_read"] < 16 and best.step_time_s[0] == datasets.frame(ds).step_time_s.min()


def test_a_bound_between_float32_and_float64_keeps_its_block():
    ds = xr.Dataset({"mfu": ("x", np.array([0.1, 0.2], "f4"))}, {"x": [0, 1]})
    ds.mfu.encoding["chunks"] = (1,)
    ds.encoding["zones"] = datasets.zone_maps(ds)
    assert len(query(ds, where="mfu <= 0.1")) == 1  # 0.1 as f4 is above 0.1 as f8


def test_limit_stops_reading():
    ds = datasets.make(2, chunks=(1, 1, 5))
    answer = query(ds, limit=3)
    assert len(answer) == 3 and answer.attrs["blocks_read"] < 12
    assert "first 3 rows" in " ".join(answer.attrs["notes"])


@settings(max_examples=20, deadline=None)
@given(seeds, cuts, st.integers(1, 70))
def test_a_limit_keeps_the_first_rows_however_it_is_cut(seed, chunks, limit):
    question = dict(where="mfu > 0.2", columns="model,tp,link_gbps,mfu")
    whole, first = query(datasets.make(seed), limit=None, **question), query(datasets.make(seed, chunks=chunks), limit=limit, **question)
    pd.testing.assert_frame_equal(first, whole[:limit], check_dtype=False)


def test_status_is_counted_with_all_its_reasons():
    ds = datasets.make(7)
    counts = query(ds, group_by="status").set_index("status")["count"].to_dict()
    expected = {name: n for name, n in zip(*np.unique(ds.status.values, return_counts=True))}
    names = dict(zip(ds.status.attrs["flag_values"], ds.status.attrs["flag_meanings"].split()))
    assert counts == {names[code]: 5 * n for code, n in expected.items()}


def test_no_candidate_is_said():
    ds = datasets.make(7)
    ds["status"][:] = 9
    answer = query(ds, best="step_time_s", over="tp,link_gbps")
    assert answer.step_time_s.isna().all() and answer.tp.isna().all() and answer.model.tolist() == list(ds.model.values)


def test_a_real_store_answers_as_its_arrays_do(tmp_path):
    import sweep

    spec = sweep.Spec.from_dict(
        {
            "axes": {"accelerator": ["a100", "h100"], "tp": [1, 2, 8], "link_gbps": [50, 100, 200, 400, 800]},
            "fixed": {"model": "llama-3-8b", "dp": 64, "efficiency": 0.4},
            "outputs": ["step_time_s", "exposed_fraction", "bottleneck"],
            "store": {"block_points": 6},
        }
    )
    sweep.run(spec, tmp_path / "small.zarr")
    stored = sweep.open_store(tmp_path / "small.zarr")
    assert stored.encoding["zones"]()
    loaded = stored.load().copy()
    loaded.encoding.clear()
    for question in (
        dict(best="step_time_s", over="tp", columns="bottleneck"),
        dict(where="exposed_fraction > 0.3", columns="tp,link_gbps,exposed_fraction"),
        dict(count=True, where="bottleneck == 'dp' and peak_tflops > 500 and seq_len == 8192"),
        dict(crossover="exposed_fraction=0.1", along="link_gbps"),
    ):
        pd.testing.assert_frame_equal(query(stored, **question), query(loaded, **question))
    assert query(stored, where="exposed_fraction > 0.6").attrs["blocks_skipped"] > 0


# -- crossings ---------------------------------------------------------------------------------------------------------


def test_crossing_is_interpolated_in_the_axis_own_scale():
    link = np.geomspace(25, 3200, 8)
    ds = xr.Dataset({"exposed_fraction": (("tp", "link_gbps"), [1 - np.log2(link / 25) / 7, np.full(8, 0.5)])}, {"tp": [1, 2], "link_gbps": link})
    answer = query(ds, crossover="exposed_fraction=0.25", along="link_gbps")
    assert answer.crossing.tolist() == ["falls", "above"]
    assert answer.link_gbps[0] == pytest.approx(25 * 2 ** (0.75 * 7)) and np.isnan(answer.link_gbps[1])
    assert query(ds, crossover="exposed_fraction = exposed_fraction * 2 - 0.25", along="link_gbps").crossing[0] == "rises"


def test_crossing_of_a_single_line_and_in_order():
    ds = datasets.make(8, chunks=(2, 1, 5))
    answer = query(ds, crossover="mfu=0.5", along="link_gbps")
    places = [(list(ds.model.values).index(model), tp) for model, tp in zip(answer.model, answer.tp)]
    assert places == sorted(places)
    line = query(ds, crossover="mfu=0.5", along="link_gbps", at={"model": answer.model[0], "tp": answer.tp[0]})
    assert len(line) == 1 and line.crossing[0] == answer.crossing[0]


def test_first_crossing_by_cases():
    x = np.arange(4.0)
    nan, inf = np.nan, np.inf
    for y, place, word in (
        ([3, 1, -1, -3], 1.5, "falls"),
        ([-1, 0, 1, 2], 1.0, "rises"),
        ([0, 1, 2, 3], 0.0, "rises"),
        ([2, 1, 0, 0], 2.0, "falls"),
        ([1, nan, -1, -2], nan, "above"),
        ([nan, nan, 2, -2], 2.5, "falls"),
        ([inf, 1, -1, -1], 1.5, "falls"),
        ([inf, -1, -1, -1], 1.0, "falls"),
        ([-1, -1, -1, -1], nan, "below"),
        ([nan] * 4, nan, "none"),
    ):
        got, kind = crossings.first_crossing(x, np.array([y], float))
        assert crossings.WORDS[kind[0]] == word, y
        assert got[0] == pytest.approx(place, nan_ok=True), y


# -- sensitivities -----------------------------------------------------------------------------------------------------


def test_shares_of_a_sum_and_of_a_product():
    a, b = np.array([1.0, 2, 4, 9]), np.array([0.0, 3, 5])
    first, total = sensitivities.shares(1e6 + a[:, None] + b)
    assert first == pytest.approx([a.var() / (a.var() + b.var()), b.var() / (a.var() + b.var())])
    assert total == pytest.approx(first)
    a, b = a - a.mean(), b - b.mean()
    first, total = sensitivities.shares(a[:, None] * b)  # nothing but interaction
    assert first == pytest.approx([0, 0], abs=1e-12) and total == pytest.approx([1, 1])
    assert sensitivities.shares(np.full((3, 2), 7.3)) == ([0.0, 0.0], [0.0, 0.0])


def test_sensitivity_of_a_query():
    link, tp = np.array([100.0, 200, 400]), np.array([1.0, 2, 4, 8])
    ds = xr.Dataset({"step_time_s": (("tp", "link_gbps"), 5 / tp[:, None] ** 2 * link)}, {"tp": tp, "link_gbps": link})
    answer = query(ds, sensitivity="step_time_s").set_index("axis")
    assert answer.elasticity["tp"] == pytest.approx(-2) and answer.elasticity["link_gbps"] == pytest.approx(1)
    assert answer.total.sum() >= 1 >= answer.first_order.sum()
    with pytest.raises(SweepError, match="not valid or not finite"):
        query(datasets.make(0), sensitivity="step_time_s")


def test_sobol_indices_of_samples():
    pytest.importorskip("SALib")
    bounds = {"x": (0.0, 1.0), "y": (1.0, 100.0), "z": (0.0, 1.0)}
    columns = sensitivities.saltelli(bounds, 512)
    ds = xr.Dataset({"f": ("sample", 3 * np.array(columns["x"]) + np.log(columns["y"]))})
    answer = sensitivities.sobol(ds, "f", bounds).set_index("axis")
    variance = {"x": 9 / 12, "y": np.log(100) ** 2 / 12}
    for name, part in variance.items():
        assert answer.total[name] == pytest.approx(part / sum(variance.values()), abs=0.05)
    assert abs(answer.total["z"]) < 1e-6
    ds["f"][:] = 2.0
    assert (sensitivities.sobol(ds, "f", bounds)[["first_order", "total_conf"]] == 0).all(axis=None)
    ds["f"][3] = np.nan
    with pytest.raises(SweepError, match="1 of 2560 samples"):
        sensitivities.sobol(ds, "f", bounds)


# -- words of errors ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "asked, said",
    [
        (dict(best="step_time"), "step_time_s"),
        (dict(best="layers"), "Write min:"),
        (dict(best="least:mfu"), "min nor max"),
        (dict(where="mfo > 1"), "'mfu'"),
        (dict(where="model == 'llama-3-8'"), "'llama-3-8b'"),
        (dict(columns="mfuu"), "'mfu'"),
        (dict(best="mfu", over="tpp"), "'tp'"),
        (dict(best="mfu", over="mfu"), "not an axis"),
        (dict(best="mfu", count=True), "one at a time"),
        (dict(over="tp"), "belongs to best"),
        (dict(along="tp"), "belong together"),
        (dict(crossover="mfu", along="tp"), "NAME=VALUE"),
        (dict(crossover="mfu=1", along="model"), "numbers"),
        (dict(pareto="mfu"), "two quantities"),
        (dict(allow=["memoy"]), "'memory'"),
        (dict(at={"tp": 3}), "2 and 4"),
        (dict(at={"tp": "three"}), "is not"),
        (dict(at={"model": "llama-8b"}), "llama-3-8b"),
        (dict(at={"mfu": 3}), "fix those axes"),
        (dict(at={"tp": (100, 200)}), "no label from"),
        (dict(group_by="model", columns="bottleneck"), "group by it"),
        (dict(sensitivity="model"), "has words"),
        (dict(best="mfu", top=0), "1 or more"),
    ],
)
def test_errors_say_what_to_type(asked, said):
    with pytest.raises(SweepError) as caught:
        query(datasets.make(0), **asked)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_a_query_imports_neither_jax_nor_matplotlib():
    code = "import sys, tests.datasets as d; from sweep import queries; queries.query(d.make(), best='mfu'); print([m for m in ('jax', 'matplotlib', 'zarr') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
