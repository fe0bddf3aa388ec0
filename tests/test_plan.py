"""The plan: who owns which chunk, what `where` leaves, what it costs."""

import itertools
import tracemalloc

import numpy as np
import pytest
import toy
from hypothesis import given, settings
from hypothesis import strategies as st

import sweep
from sweep import _kernels
from sweep.plan import Plan

OUTPUTS = ("step_time_s", "required_link_gbps", "compute_time_s", "tokens_per_domain", "bottleneck")


@pytest.fixture(autouse=True)
def _toy(monkeypatch):
    monkeypatch.setattr(_kernels, "model", toy, raising=False)


def small(where=None, block=None, lengths=(3, 4, 2, 3)):
    axes = {
        "link_gbps": [100 * (k + 1) for k in range(lengths[0])],
        "tp": [2**k for k in range(lengths[1])],
        "micro_batch": [k + 1 for k in range(lengths[2])],
        "seq_len": [1024 * (k + 1) for k in range(lengths[3])],
    }
    spec = toy.spec(axes, OUTPUTS, where=where)
    return Plan.of(spec, block=block)


def test_outputs_stand_on_the_axes_they_depend_on():
    dims = {v.name: v.dims for v in small().variables}
    assert dims["step_time_s"] == ("link_gbps", "tp", "micro_batch", "seq_len")
    assert dims["required_link_gbps"] == ("tp", "micro_batch", "seq_len")
    assert dims["tokens_per_domain"] == ("micro_batch", "seq_len")
    assert dims["status"] == ("tp",)


def test_status_stands_on_the_axes_that_where_reads_too():
    plan = small("seq_len <= 2048 or link_gbps > 100")
    assert {v.name: v.dims for v in plan.variables}["status"] == ("link_gbps", "tp", "seq_len")


WHERES = st.sampled_from(
    [None, "tp > 1", "seq_len > 1024", "tp * seq_len <= 4096", "link_gbps > 100 and tp > 1", "link_gbps * tp < 700", "tp > 100"]
)


@settings(max_examples=60, deadline=None)
@given(WHERES, st.tuples(*(st.integers(1, 4),) * 4), st.tuples(*(st.integers(1, 4),) * 4))
def test_every_chunk_has_exactly_one_owner(where, block, lengths):
    block = tuple(min(b, n) for b, n in zip(block, lengths))
    plan = small(where, block, lengths)
    indices = list(itertools.product(*map(range, plan.grid)))
    for variable in plan.variables:
        owned, wanted = [], set()
        for index in indices:
            place = plan.chunk_index(variable, index)
            if variable in plan.owners(index):
                owned.append(place)
            if plan.is_included(index) or variable.name == "status":
                wanted.add(place)
        assert len(owned) == len(set(owned))
        assert set(owned) == wanted
    busy = [chunk.index for chunk in plan.chunks()]
    assert busy == [index for index in indices if plan.owners(index)]
    assert plan.blocks == sum(plan.is_included(index) for index in busy)


@settings(max_examples=30, deadline=None)
@given(WHERES, st.tuples(*(st.integers(1, 4),) * 4))
def test_included_blocks_are_those_with_a_point_left(where, block):
    plan = small(where, tuple(map(min, block, (3, 4, 2, 3))))
    whole = plan.mask((0,) * 4, plan.shape)
    whole = np.broadcast_to(True if whole is None else whole, plan.shape)
    assert plan.points_left == whole.sum()
    for index in np.ndindex(*plan.grid):
        chunk = plan.chunk(index)
        box = whole[tuple(slice(s, s + n) for s, n in zip(chunk.start, chunk.shape))]
        assert plan.is_included(index) == box.any()


def test_blocks_hold_about_a_million_points_with_the_link_whole():
    axes = {"link_gbps": {"geomspace": [25, 3200, 43]}, "tp": [1, 2, 4, 8], "micro_batch": {"range": [1, 400, 1]}, "seq_len": {"range": [1024, 102400, 1024]}}
    plan = Plan.of(toy.spec(axes, OUTPUTS))
    assert plan.block[0] == 43
    assert 2**18 <= np.prod(plan.block) <= 2**20
    text = str(plan)
    for word in ("points   6,880,000", "blocks", "disk", "memory", "files"):
        assert word in text
    assert plan.describe()["points"] == 6_880_000


def test_the_time_counts_compiling_which_grows_with_what_the_sweep_is_about():
    few, more = (Plan.of(toy.spec({"link_gbps": [100, 200]}, outputs)) for outputs in (["compute_time_s"], OUTPUTS))
    assert 0 < few.compile_seconds < more.compile_seconds < 1
    assert f"{more.compile_seconds:.0f} compiling, {more.seconds:.0f} evaluating" in str(more)
    assert more.describe()["seconds_estimated"] == more.seconds + more.compile_seconds


def test_bytes_count_every_array_once():
    plan = small()
    assert plan.bytes == sum(np.prod(plan.extent(v)) * v.dtype.itemsize for v in plan.variables)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"where": "tp * seq_len <= 4096 and link_gbps > 100"},
        {"reduce": {"minimize": "step_time_s", "over": ["tp", "link_gbps"]}},
        {"reduce": {"maximize": "mfu", "keep": ["tp"], "top": 2, "histogram": ["step_time_s"], "quantiles": [0.5]}},
    ],
)
def test_files_are_as_many_as_the_store_has(tmp_path, more):
    axes = {"link_gbps": [100, 200, 400], "tp": [8, 16, 32], "schedule": ["1f1b", "zb-h1"], "layout": {"seq_len": [128, 256, 512], "micro_batch": [4, 2, 1]}}
    made = toy.spec(axes, () if "reduce" in more else OUTPUTS, store={"block_points": 8}, **more)
    sweep.run(made, tmp_path / "a.zarr")
    assert Plan.of(made).files == sum(file.is_file() for file in (tmp_path / "a.zarr").rglob("*"))


def test_a_sweep_without_axes_is_one_point():
    plan = Plan.of(toy.spec({}, OUTPUTS))
    assert (plan.points, plan.blocks, plan.grid) == (1, 1, ())


def test_a_plan_of_a_million_blocks_is_small():
    axes = {"link_gbps": {"range": [1, 1000, 1]}, "seq_len": {"range": [1, 1000, 1]}}
    plan = Plan.of(toy.spec(axes, OUTPUTS), block=(1, 1))
    tracemalloc.start()
    chunks = plan.chunks()
    first = [next(chunks) for _ in range(10)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert first[3].start == (0, 3)
    assert peak < 50e6
