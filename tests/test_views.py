"""What the explorer looks at: slices against the store, live ports against the kernels, other layouts against evaluate."""

import itertools

import numpy as np
import pytest
from explored import stored

import sweep
from sweep import alternatives, designs, explorables, explorer, views
from sweep._kernels import quantities
from sweep.errors import SweepError
from sweep.spec import Spec


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return stored(tmp_path_factory.getbasetemp())


@pytest.fixture(scope="module")
def ds(path):
    return sweep.open_store(path)


@pytest.fixture(scope="module")
def known(ds):
    return designs.Designs(ds)


# -- slices ------------------------------------------------------------------------------------------------------------------


def seen(ds, known=None, **words):
    return views.plane(ds, views.View.of(ds, {name.replace("at_", "at."): word for name, word in words.items()}), known)


def test_a_slice_is_what_the_store_holds(ds):
    plane = seen(ds, x="link_gbps", y="tp", color="step_time_s", at_model="llama-3-8b", at_accelerator="a100", at_micro_batch="2")
    here = ds.step_time_s.sel(model="llama-3-8b", accelerator="a100", micro_batch=2).transpose("tp", "link_gbps")
    np.testing.assert_array_equal(plane.values, here.values)
    assert plane.y.values.tolist() == [1, 2, 8] and plane.counted.all() and plane.link is None


def test_an_output_of_few_axes_is_stretched(ds):
    plane = seen(ds, x="link_gbps", y="model", color="required_link_gbps", at_tp="1")
    assert plane.values.shape == (2, 4) and (plane.values == plane.values[:, :1]).all()


def test_a_curve_has_one_row(ds):
    plane = seen(ds, x="link_gbps", y="", color="mfu", at_tp="8")
    assert plane.values.shape == (1, 4) and plane.y.dim == ""
    assert (np.diff(plane.values[0]) >= 0).all()


def test_a_quantity_stands_on_the_axis_that_moves_it(ds):
    plane = seen(ds, x="tokens_per_domain", y="link_gbps", color="mfu", at_tp="8", at_micro_batch="1")
    assert plane.x.dim in ("micro_batch", "tp") and (np.diff(plane.x.values) != 0).all()
    with pytest.raises(SweepError, match="^y: bottleneck is not monotone along any axis"):
        seen(ds, x="micro_batch", y="bottleneck", color="mfu")


def test_constraints_and_status_decide_what_counts(ds):
    plane = seen(ds, x="micro_batch", y="tp", color="mfu", where="exposed_fraction < 0.2 and model == 'llama-3-70b'", at_link_gbps="200")
    here = ds.sel(model="llama-3-70b", accelerator="h100", link_gbps=200).transpose("tp", "micro_batch", ...)
    wanted = (here.exposed_fraction < 0.2) & here.status.isin([0, 9])
    np.testing.assert_array_equal(plane.counted, wanted.transpose("tp", "micro_batch").values)
    assert plane.status[0, 2] == 254 and not plane.counted[0, 2]


def test_every_view_survives_its_address(ds):
    view = views.View.of(ds, {"x": "tp", "y": "", "color": "mfu", "at.model": "llama-3-8b", "where": "tp > 1", "allow": "memory"})
    assert views.View.of(ds, view.words()) == view


def test_a_slice_reads_its_chunks_alone(path, monkeypatch):
    from zarr.storage import LocalStore

    reads, plain = [], LocalStore.get

    async def counted(self, key, *args, **kwargs):
        reads.append(key)
        return await plain(self, key, *args, **kwargs)

    ds = sweep.open_store(path)
    monkeypatch.setattr(LocalStore, "get", counted)
    seen(ds, x="link_gbps", y="micro_batch", color="step_time_s", at_model="llama-3-8b", at_tp="2")
    chunks = [key for key in reads if "/c/" in key]
    everything = len(list(path.glob("step_time_s/c/**/*")))
    assert {key.split("/")[0] for key in chunks} == {"step_time_s", "status"}
    assert 0 < len([key for key in chunks if key.startswith("step_time_s")]) < everything / 2


# -- kernels -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("color", ["step_time_s", "exposed_fraction", "bottleneck", "tokens_per_domain"])
def test_the_kernels_agree_with_the_store_at_its_labels(ds, known, color):
    words = {"x": "micro_batch", "y": "tp", "color": color, "at_model": "llama-3-70b", "where": "tp > 1 and exposed_fraction < 0.4"}
    stored = seen(ds, known, **words, at_link_gbps="400")
    live = seen(ds, known, **words, at_link_gbps="400.1")
    assert stored.link is None and live.link == 400.1 and known.same_model
    np.testing.assert_array_equal(live.counted, stored.counted)
    np.testing.assert_array_equal(live.status, stored.status)
    np.testing.assert_allclose(live.values, stored.values, rtol=1e-3)
    exact = known.slice(stored.picks, [color], 400.0)[color]
    held = ds[color].isel({dim: k for dim, k in stored.picks.items() if dim in ds[color].dims})
    np.testing.assert_allclose(exact.transpose(*held.dims), held, rtol=1e-6)


def test_a_port_between_the_labels_waits_while_the_port_is_an_axis(ds, known):
    plane = seen(ds, known, x="link_gbps", y="tp", color="mfu", at_link_gbps="333")
    assert plane.link is None and plane.x.values.tolist() == [100, 200, 400, 800]


@pytest.mark.parametrize("color", [*quantities.STEP_OUTPUTS, "decode_time_s", "kv_bytes_per_token", "wait_hours", "goodput", "joules_per_token"])
def test_every_output_has_its_explanation(color):
    topic = explorables.topic_of(color)
    assert topic == "step" if color in quantities.STEP_OUTPUTS[:-3] else topic in ("money", "serving", "capacity", "stragglers")


def test_a_faster_port_is_never_slower(ds, known):
    steps = [seen(ds, known, x="tp", y="micro_batch", color="step_time_s", at_link_gbps=str(port)).values for port in (110, 333, 777)]
    assert all((b <= a)[np.isfinite(a)].all() for a, b in itertools.pairwise(steps))


def test_a_point_is_the_stores_point(ds, known):
    picks = {"model": 1, "accelerator": 0, "tp": 2, "micro_batch": 1, "link_gbps": 3}
    point = known.point(picks)
    assert point.out["step_time_s"] == pytest.approx(float(ds.step_time_s.isel(picks)), rel=1e-6)
    words = known.words(picks)
    assert words == {"model": "llama-3-70b", "accelerator": "h100", "tp": 8, "micro_batch": 2.0, "link_gbps": 800.0, "dp": 64.0}
    typed = explorables.typed(words)
    assert typed == "sweep explain model=llama-3-70b accelerator=h100 tp=8 micro_batch=2 link_gbps=800 dp=64"
    again = sweep.explain(**words)
    assert again.outputs["step_time_s"] == pytest.approx(point.out["step_time_s"], rel=1e-9)


def test_alternatives_keep_the_work(known):
    point = known.point({"model": 1, "accelerator": 0, "tp": 2, "micro_batch": 1, "link_gbps": 2})
    rows = alternatives.alternatives(point)
    assert [row["here"] for row in rows].count(True) == 1
    here = next(row for row in rows if row["here"])
    assert (here["tp"], here["pp"], here["zero_stage"], here["dp"]) == (8, 1, 0, 64)
    assert here["step_time_s"] == pytest.approx(point.out["step_time_s"], rel=1e-9)
    gpus = float(point.x.gpus)
    for row in rows:
        assert row["tp"] * row["pp"] * row["dp"] == gpus
        again = sweep.evaluate(model="llama-3-70b", accelerator="h100", link_gbps=400, micro_batch=2, gpus=gpus, global_batch=128,
                               tp=row["tp"], pp=row["pp"], zero_stage=row["zero_stage"])  # fmt: skip
        assert row["step_time_s"] == pytest.approx(float(again.step_time_s), rel=1e-9)
    fit = [row["step_time_s"] for row in rows if row["status"] == "ok"]
    assert fit == sorted(fit)


def test_a_store_without_its_spec_is_still_drawn(ds):
    bare = ds.copy()
    bare.attrs = {}
    with pytest.raises(SweepError, match="carries no spec"):
        designs.Designs(bare)
    found = explorer.Explorer(bare)
    assert found.slice({"x": "tp", "y": "link_gbps", "color": "mfu"})["x"]["values"] == [1, 2, 8]
    with pytest.raises(SweepError, match="has no 333. The nearest are 200 and 400"):
        found.slice({"x": "tp", "y": "model", "color": "mfu", "at.link_gbps": "333"})
    assert '"live": false' in found.page()


def test_winners_are_opened_up(tmp_path):
    spec = Spec.from_dict({
        "axes": {"model": ["llama-3-8b", "llama-3-70b"], "tp": [1, 2, 4, 8], "pp": [1, 2, 4], "link_gbps": [100, 200, 400]},
        "fixed": {"accelerator": "h100", "gpus": 512, "global_batch": 1024},
        "reduce": {"best": "step_time_s", "over": ["tp", "pp"]},
    })  # fmt: skip
    sweep.run(spec, str(tmp_path / "winners.zarr"))
    found = explorer.Explorer(tmp_path / "winners.zarr")
    about = explorables.about(found.ds, found.view({}), found.designs)
    assert [axis["name"] for axis in about["axes"]] == ["model", "link_gbps"] and about["live"] and not about["moves"]
    words = {"x": "link_gbps", "y": "model", "color": "best_step_time_s", "pick": "1,1"}
    picks, link = found._picked(words)
    point = found.designs.point(picks, link)
    assert point.out["step_time_s"] == pytest.approx(float(found.ds.best_step_time_s.sel(model="llama-3-70b", link_gbps=200)), rel=1e-6)
    assert f"tp={picks_of(found.ds, 'tp'):g}" in found.point(words)["typed"]
    with pytest.raises(SweepError, match="has no 333. The nearest are 200 and 400"):
        found.slice({"x": "model", "y": "", "color": "best_step_time_s", "at.link_gbps": "333"})


def picks_of(ds, dim):
    place = ds[f"best_step_time_s_{dim}"].sel(model="llama-3-70b", link_gbps=200)
    return float(ds[dim][int(place)])
