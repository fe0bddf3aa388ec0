"""The timeline is laid out event by event and must end where the closed forms say."""

import pytest

import sweep
from sweep import timelines
from sweep._kernels import reduction
from sweep.passes import passes
from sweep.points import Point

PLAIN = dict(model="llama-3-8b", accelerator="h100", link_gbps=100)
PIPES = {
    "one stage": dict(PLAIN, dp=64),
    "several micro-batches": dict(PLAIN, dp=64, micro_batches=3, zero_stage=1),
    "1f1b": dict(
        model="gpt-3-175b", accelerator="a100", tp=8, pp=8, dp=16, micro_batches=12, efficiency=0.4, link_gbps=50
    ),
    "interleaved": dict(
        model="gpt-3-175b",
        accelerator="a100",
        tp=8,
        pp=4,
        vpp=3,
        dp=16,
        micro_batches=8,
        efficiency=0.4,
        fabric="ideal",
    ),
    "zero bubble": dict(
        model="gpt-3-175b", accelerator="a100", tp=8, pp=4, dp=16, micro_batches=8, efficiency=0.4, schedule="zb-h1"
    ),
    "experts": dict(model="mixtral-8x7b", accelerator="h100", ep=8, pp=4, dp=64, micro_batches=16, efficiency=0.4),
}
SHARDED = {
    "fsdp": dict(PLAIN, dp=64, zero_stage=3),
    "slow link": dict(PLAIN, dp=64, zero_stage=3, link_gbps=10, prefetch=2),
    "no prefetch": dict(PLAIN, dp=64, zero_stage=3, link_gbps=20, prefetch=0, efficiency=0.4),
    "kept": dict(PLAIN, dp=64, zero_stage=3, link_gbps=10, reshard_after_forward=0),
    "last resharded": dict(PLAIN, dp=64, zero_stage=3, link_gbps=20, reshard_last_block=1),
    "hsdp": dict(PLAIN, dp=64, zero_stage=3, shard_group=8, link_gbps=20),
}


@pytest.mark.parametrize("name", PIPES)
def test_buckets_end_where_the_closed_form_says(name):
    point = Point.of(**PIPES[name])
    line = timelines.timeline(point)
    pipeline = max(bar.stop for bar in line.bars if bar.row != "step")
    buckets = [bar for bar in line.detail if bar.row == "buckets"]
    ends = max(bar.stop for bar in buckets)
    late = point.binding(point.way.terms[0], point.u)[1]
    assert max(0.0, ends - pipeline) == pytest.approx(float(late), rel=1e-6, abs=1e-9 * line.end)
    assert sum(bar.stop - bar.start for bar in buckets if bar.kind == "exposed") == pytest.approx(
        float(late), rel=1e-6, abs=1e-9 * line.end
    )
    assert all(a.stop <= b.start + 1e-12 for a, b in zip(buckets, buckets[1:]))


@pytest.mark.parametrize("name", PIPES)
def test_passes_end_where_the_closed_form_says(name):
    point = Point.of(**PIPES[name])
    line = timelines.timeline(point)
    out = point.out
    closed = out["step_time_s"] - out["exposed_dp_s"] - out["optimizer_time_s"]
    drawn = max(bar.stop for bar in line.bars if bar.row != "step")
    assert drawn == pytest.approx(closed, rel=2e-3)  # an upper bound where a middle stage is not the slowest
    assert line.end == out["step_time_s"] == pytest.approx(max(bar.stop for bar in line.bars if bar.row == "step"))
    rows = [bar for bar in line.bars if bar.row != "step"]
    for row in {bar.row for bar in rows}:
        mine = sorted((bar for bar in rows if bar.row == row), key=lambda bar: bar.start)
        assert all(a.stop <= b.start + 1e-12 for a, b in zip(mine, mine[1:]))


@pytest.mark.parametrize("name", SHARDED)
def test_fsdp_waits_as_long_as_the_closed_form_says(name):
    point = Point.of(**SHARDED[name])
    assert point.code == reduction.SHARDED
    line = timelines.timeline(point)
    waits = sum(bar.stop - bar.start for bar in line.detail if bar.kind == "exposed")
    assert waits == pytest.approx(point.out["exposed_dp_s"], rel=1e-6)


def test_passes_of_a_small_pipeline():
    found = passes(2, 2, 1, lambda *_: 1.0, lambda *_: 2.0, 0.5)
    at = {(one.kind, one.stage, one.k): (one.start, one.stop) for one in found}
    assert at["F", 0, 0] == (0.0, 1.0) and at["F", 1, 0] == (1.5, 2.5) and at["B", 1, 0] == (2.5, 4.5)
    assert (
        at["B", 0, 0] == (5.0, 7.0)
        and at["F", 1, 1] == (4.5, 5.5)
        and at["B", 1, 1] == (5.5, 7.5)
        and at["B", 0, 1] == (8.0, 10.0)
    )


def test_what_is_not_drawn_is_said():
    many = timelines.timeline(Point.of(**PLAIN, dp=8, micro_batches=4000))
    assert "drawn as one bar" in " ".join(many.remarks) and len(many.bars) < 10
    rare = timelines.timeline(Point.of(**PLAIN, dp=64, sync_every=50))
    assert "not drawn" in " ".join(rare.remarks) and not rare.detail
    dual = timelines.timeline(
        Point.of(model="gpt-3-175b", accelerator="h100", tp=8, pp=4, dp=8, micro_batches=16, schedule="dualpipe")
    )
    assert "one bar" in " ".join(dual.remarks)
    with pytest.raises(sweep.SweepError, match="such a run cannot exist"):
        timelines.timeline(Point.of(**PLAIN, pp=5, dp=8))


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_drawing(tmp_path, kind):
    path = tmp_path / f"step.{kind}"
    drawing = sweep.explain(**PIPES["1f1b"]).draw(path)
    assert path.stat().st_size > 5000 and "One training step of gpt-3-175b on a100" in drawing.caption
    with pytest.raises(sweep.SweepError, match="a figure ends in"):
        drawing.save(tmp_path / "step.gif")
