"""Logs of nccl-tests in the shapes they come in, curve fits, and the promise that a fit reads no test row."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweep import curves, nccl_logs

HEADER = """# nThread 1 nGpus 1 minBytes 1024 maxBytes 1073741824 step: 4(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0
#
# Using devices
#  Rank  0 Group  0 Pid  21 on     node-1 device  0 [0x07] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid  22 on     node-1 device  1 [0x0a] NVIDIA H100 80GB HBM3
#  Rank  2 Group  0 Pid  23 on     node-2 device  0 [0x07] NVIDIA H100 80GB HBM3
#  Rank  3 Group  0 Pid  24 on     node-2 device  1 [0x0a] NVIDIA H100 80GB HBM3
NCCL version 2.22.3+cuda12.5
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
"""
FOOTER = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 70.1\n#\n"


def table(
    collective="all_reduce",
    ranks=4,
    sizes=tuple(1024 * 4**k for k in range(11)),
    redop="sum",
    root="-1",
    columns=2,
    latency=2e-5,
    rate=150e9,
    wrong="0",
):
    """Rows as nccl-tests prints them for a plain latency and bandwidth; one row without its header."""
    rows = []
    for size in sizes:
        us = (latency + size * nccl_logs.bus_factor(collective, ranks) / rate) * 1e6
        text = f"{us:.2f}" if us < 1e4 else f"{us:.0f}"
        algbw = size / us / 1e3
        figures = f"{text:>8} {algbw:7.2f} {algbw * nccl_logs.bus_factor(collective, ranks):7.2f} {wrong:>6}"
        middle = " ".join(word for word in (redop, root) if word)
        rows.append(
            f"{size:12d} {size // 4:13d}     float {middle:>14} {figures * 1}" + (f" {figures}" if columns == 2 else "")
        )
    return "\n".join(rows) + "\n"


def accounted(log):
    return log.rows + sum(log.ignored.values()) == log.lines


def test_a_whole_log():
    log = nccl_logs.parse_log("mpirun all_reduce_perf -b 1K -e 1G\n" + HEADER + table() + FOOTER)
    (curve,) = log.curves
    assert (curve.collective, curve.ranks, curve.nodes, curve.version) == ("all_reduce", 4, 2, "2.22.3")
    assert curve.accelerator == "NVIDIA H100 80GB HBM3"
    assert len(curve.sizes) == log.rows == 11 and accounted(log)
    assert np.all(np.isfinite(curve.in_place_seconds))


@pytest.mark.parametrize(
    "redop, root, columns, collective",
    [
        ("sum", "-1", 2, "all_reduce"),
        ("sum", "", 2, "all_reduce"),
        ("none", "-1", 2, "all_gather"),
        ("", "", 2, "all_gather"),
        ("sum", "-1", 1, "reduce_scatter"),
        ("sum", "0", 2, "reduce"),
        ("none", "0", 2, "broadcast"),
        ("none", "-1", 1, "sendrecv"),
    ],
)
def test_columns_of_every_collective(redop, root, columns, collective):
    log = nccl_logs.parse_log(table(collective, 8, redop=redop, root=root, columns=columns))
    (curve,) = log.curves
    assert len(curve.sizes) == 11
    assert curve.collective == collective
    if collective in ("all_reduce", "all_gather", "reduce_scatter"):
        assert curve.ranks == 8


def test_old_and_new_error_columns():
    for wrong in ("0", "N/A", "0e+00", "1e-07"):
        assert nccl_logs.parse_log(table(wrong=wrong)).rows == 11


def test_several_tables_and_names():
    text = (
        "all_gather_perf\n"
        + HEADER
        + table("all_gather", redop="none")
        + FOOTER
        + "# Collective test starting: alltoall_perf\n"
        + HEADER
        + table("alltoall", redop="none")
    )
    log = nccl_logs.parse_log(text, "night")
    assert [c.collective for c in log.curves] == ["all_gather", "alltoall"]
    assert [c.name for c in log.curves] == ["night#1", "night#2"]
    assert nccl_logs.parse_log(table("alltoall", redop="none"), "alltoall_2n").curves[0].collective == "alltoall"


def test_prefixes_interleaving_and_truncation():
    rows = table().splitlines()
    noise = "node-1:21:44 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"
    text = (
        HEADER
        + "\n".join(f"[1,0]<stdout>:{row}\n{noise}" for row in rows[:6])
        + "\n"
        + "2024-11-05T10:11:12.123Z "
        + rows[6]
        + "\n"
        + rows[7][:60]
        + noise
        + "\n"
        + rows[8]
        + "\n"
        + rows[9][:75]
    )
    log = nccl_logs.parse_log(text)
    assert accounted(log)
    assert log.rows == 8
    assert (
        log.ignored["NCCL_DEBUG output"] == 7
        and sum(log.ignored.get(why, 0) for why in ("torn row", "not a row", "figures disagree")) == 1
    )


def test_figures_that_disagree_are_no_row():
    row = table(sizes=(4096,)).replace("4096", "409600", 1)
    log = nccl_logs.parse_log(row)
    assert log.rows == 0 and log.ignored == {"figures disagree": 1}


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_fuzzed_logs(data):
    """Whatever happens to the characters: no traceback, and every line is a row or counted."""
    text = HEADER + table(columns=data.draw(st.sampled_from((1, 2)))) + FOOTER
    for _ in range(data.draw(st.integers(0, 6))):
        at, end = sorted((data.draw(st.integers(0, len(text))), data.draw(st.integers(0, len(text)))))
        kind = data.draw(st.sampled_from(("cut", "insert", "repeat")))
        if kind == "cut":
            text = text[:at] + text[min(end, at + 90) :]
        elif kind == "insert":
            text = text[:at] + data.draw(st.text(max_size=30)) + text[at:]
        else:
            text = text[:end] + text[at:]
            text = text[:20000]
    log = nccl_logs.parse_log(text)
    assert accounted(log)
    for curve in log.curves:
        assert len(curve.sizes) == len(curve.seconds) > 0


@given(st.text(max_size=400))
@settings(max_examples=200, deadline=None)
def test_any_text(text):
    assert accounted(nccl_logs.parse_log(text))


def test_a_curve_gives_back_its_law():
    law = curves.Law(3e-5, 0.0, 40e9, 16.0, 2.7)
    sizes = np.array([2.0**k for k in range(10, 33)])
    curve = nccl_logs.Curve("all_reduce", 16, 2, sizes, curves.seconds(law, "all_reduce", sizes, 16, 8), sizes * np.nan)
    found = curves.fit([curve])
    assert np.max(np.abs(curves.seconds(found, "all_reduce", sizes, 16, 8) / curve.seconds - 1)) < 0.01
    assert found.rate == pytest.approx(law.rate, rel=0.01)


def test_latency_grows_with_domains_and_is_found():
    law = curves.Law(2e-5, 1e-5, 40e9)
    sizes = np.array([2.0**k for k in range(10, 33, 2)])
    seen = [
        nccl_logs.Curve(
            "all_gather", 8 * n, n, sizes, curves.seconds(law, "all_gather", sizes, 8 * n, 8), sizes * np.nan
        )
        for n in (2, 8, 64)
    ]
    found = curves.fit(seen)
    assert curves.seconds(found, "all_gather", 1e3, 8 * 256, 8) == pytest.approx(
        curves.seconds(law, "all_gather", 1e3, 8 * 256, 8), rel=0.03
    )


def test_published_curves_are_read():
    published = curves.read_curves()
    assert len(published) == 88
    assert {curve.version for curve in published} >= {"2.18", "2.21", "2.22", "2.29"}
    for curve in published:
        assert np.all(curve.seconds > 0) and curve.ranks > 1


def test_held_out_sizes_and_curves():
    published = [c for c in curves.read_curves() if c.fabric in ("sophia", "h100-ndr", "dgx-b200")]
    rows = curves.score_sizes(published)
    assert np.median(np.concatenate([r[1] for r in rows])) < 0.06
    rows = curves.score_curves([c for c in published if c.fabric == "sophia"])
    assert np.median(np.concatenate([r[1] for r in rows])) < 0.06
