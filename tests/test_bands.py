"""Bands of measured runs on lines and maps, and bus bandwidth over message size from any point of a store."""

import numpy as np
import pytest

import sweep
from sweep import buses, galleries, intervals, lineplots
from sweep.errors import SweepError

POINT = {"model": "llama-3-8b", "accelerator": "h100", "tp": 8, "dp": 16, "efficiency": 0.4}


@pytest.fixture(scope="module")
def ds():
    return sweep.evaluate(
        ["step_time_s", "mfu"],
        **{**POINT, "tp": [4, 8], "accelerator": ["a100", "h100"]},
        link_gbps=[50, 100, 200, 400],
    )


def test_a_band_around_a_line_is_the_widest_interval_of_the_families_searched(ds):
    drawing = lineplots.draw_lines(ds, "link_gbps", "mfu", "accelerator", over=("tp",), interval=80)
    for accelerator in ("a100", "h100"):
        families = [intervals.family_of({"accelerator": accelerator, "hidden": 4096, "tp": tp}) for tp in (4, 8)]
        factor = max(intervals.band(family).factor for family in families)
        line = drawing.data.sel(accelerator=accelerator)
        assert factor > 1.01
        np.testing.assert_allclose(line.mfu_max / line.mfu, factor)
        np.testing.assert_allclose(line.mfu / line.mfu_min, factor)
        assert all(intervals.band(family).words() in drawing.caption for family in families)
    assert len(drawing.figure.axes[0].collections) == 2


def test_a_map_has_dotted_contours_where_the_ends_reach_its_levels(ds):
    at = {"accelerator": "h100"}
    plain = sweep.draw_map(ds, "link_gbps", "tp", "mfu", at)
    drawing = sweep.draw_map(ds, "link_gbps", "tp", "mfu", at, interval=80)
    assert (
        len(drawing.figure.axes[0].collections) > len(plain.figure.axes[0].collections) and "Dotted" in drawing.caption
    )
    assert "Dotted" not in plain.caption


def test_what_has_no_interval_says_so(ds):
    with pytest.raises(SweepError, match="interval: other has none. Draw 'step_time_s'"):
        lineplots.draw_lines(ds.assign(other=ds.mfu), "link_gbps", "other", "accelerator", {"tp": 8}, interval=80)
    with pytest.raises(SweepError, match="one kind of band"):
        lineplots.draw_lines(ds, "link_gbps", "mfu", band="tp", interval=80)


def test_bus_bandwidth_is_the_formula_of_the_ring_and_tends_to_the_port():
    found = buses.all_reduce(**POINT, link_gbps=400, scaleup_domain=8)
    ring = found.busbw_gbytes_per_s.sel(algorithm="ring")
    size = found.size_bytes.values
    n = found.attrs["ranks"]  # 16 ranks, one of each domain
    seconds = 2 * (n - 1) * 5e-6 + 2 * (n - 1) / n * size / 50e9
    assert n == 16 and np.allclose(ring, size / seconds * 2 * (n - 1) / n / 1e9)
    assert float(ring[-1]) == pytest.approx(50, rel=0.01)
    auto = found.busbw_gbytes_per_s.sel(algorithm="auto")
    assert bool((auto >= found.busbw_gbytes_per_s.sel(algorithm=["ring", "tree"]).max("algorithm") * (1 - 1e-12)).all())


def test_a_gallery_draws_them(ds):
    drawn = dict(galleries.drawings_of(ds, interval=80))
    assert (
        set(drawn["busbw"].data.algorithm.values) >= {"auto", "ring", "tree"}
        and "a port of 400 Gb/s" in drawn["busbw"].caption
    )
    assert "mfu_max" in drawn["lines"].data


def test_a_figure_over_two_columns_stays_low(ds):
    narrow, wide = (
        lineplots.draw_lines(ds, "link_gbps", "mfu", "accelerator", over=("tp",), width=width, caption="none").figure
        for width in ("column", "page")
    )
    assert tuple(wide.get_size_inches()) == (7.0, 3.1) and narrow.get_size_inches()[0] == 3.35
    drawn = dict(galleries.drawings_of(ds, width="page"))
    assert {figure.figure.get_size_inches()[0] for figure in drawn.values() if not isinstance(figure, str)} == {7.0}
