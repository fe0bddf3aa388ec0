"""The sweeps that ship: each loads, none has an axis that changes nothing, and the two of `make run` are what they say."""

from pathlib import Path

import numpy as np
import pytest

from sweep import evaluations
from sweep.spec import Spec

ROOT = Path(__file__).resolve().parent.parent
CONFIGS = sorted(path.stem for path in (ROOT / "configs").glob("*.yaml"))


def load(name):
    return Spec.load(ROOT / "configs" / f"{name}.yaml")


def computed(spec, outputs=None):
    return evaluations.dataset(spec, evaluations._in_numpy(spec.mesh, outputs or spec.outputs))


def along(spec, axis):
    """The outputs along one axis, through the first and through the last labels of all others."""
    for end in (0, -1):
        content = spec.to_dict()
        content["axes"] = {a.name: spec.axes[a.name] if a.name == axis or a.columns else a.labels[end] for a in spec.mesh.axes}
        for table in [a for a in spec.mesh.axes if a.columns and a.name != axis and not isinstance(spec.axes[a.name], dict)]:
            content["axes"][table.name] = [table.labels[end]]
        content.pop("where", None)
        yield computed(Spec.from_dict(content))


def moves(spec, axis):
    """The outputs that differ somewhere along an axis."""
    found = set()
    for ds in along(spec, axis):
        for name, array in ds.data_vars.items():
            if axis in array.dims:
                first = array.isel({axis: slice(0, 1)}).values
                found |= {name} if not np.array_equal(np.broadcast_to(first, array.shape), array.values, equal_nan=True) else set()
    return found


@pytest.mark.parametrize("name", CONFIGS)
def test_every_config_loads_and_has_a_title(name):
    spec = load(name)
    assert spec.title and spec.mesh.size > 1


@pytest.mark.parametrize("axis", [axis.name for axis in load("why-400g").mesh.axes])
def test_every_axis_of_the_big_sweep_changes_a_stored_output(axis):
    assert moves(load("why-400g"), axis) - {"status"}


def test_the_big_sweep_is_of_millions_of_points_over_what_people_run():
    spec = load("why-400g")
    assert spec.mesh.size >= 3_000_000
    labels = {axis.name: set(axis.labels) for axis in spec.mesh.axes}
    assert {"llama-3-8b", "gpt-3-175b", "llama-3-405b", "mixtral-8x7b", "deepseek-v3"} <= labels["model"]
    assert {"v100", "a100", "h100", "b200", "gb200", "b300", "gb300"} <= labels["accelerator"]
    assert 400.0 in labels["link_gbps"]


def test_the_big_sweep_holds_8192_tokens_per_domain_for_every_generation():
    spec = load("why-400g").with_set("model=llama-3-70b").with_set("link_gbps=400").with_set("micro_batch=1").with_set("tp=8")
    ds = computed(spec, ("tokens_per_domain", "first_order_link_gbps"))
    at = ds.sel(dp=4096, grad_bytes=2, recompute="none", drop=True)
    for accelerator, wanted in {"v100": 48.8, "a100": 121.9, "h100": 386.3, "b200": 878.9}.items():
        point = at.sel(accelerator=accelerator, seq_len=8192)
        assert point.tokens_per_domain == 8192 and float(point.first_order_link_gbps) == pytest.approx(wanted, rel=1e-3)
    for accelerator in ("gb200", "gb300"):
        assert 8192 in at.tokens_per_domain.sel(accelerator=accelerator).values


def test_the_headline_map_has_plain_axes():
    spec = load("iso-line")
    ds = computed(spec)
    tokens, flops = ds.tokens_per_domain, ds.achieved_tflops
    assert tokens.dims == ("micro_batch",) and np.all(np.diff(tokens) > 0) and 8192 in tokens.values
    assert flops.dims == ("peak_tflops",) and np.all(np.diff(flops) > 0) and flops[0] <= 50 and flops[-1] >= 1000
    law = 8 * flops * 1e12 / tokens / 1e9 * 4095 / 4096
    assert np.allclose(ds.first_order_link_gbps, law.transpose(*ds.first_order_link_gbps.dims), rtol=1e-12)
    middle = ds.sel(micro_batch=1).required_link_gbps / ds.sel(micro_batch=1).first_order_link_gbps
    assert np.all(abs(middle - 1) < 0.1), "attention, embeddings and tail"
