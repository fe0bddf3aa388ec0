"""Figures of money against a cost that is known in closed form: where it is least, how flat it is, what the next Gb/s is worth."""

import numpy as np
import pytest
import xarray as xr

from sweep import costplots, economics
from sweep.errors import SweepError

LINKS = 25.0 * 2.0 ** (np.arange(33) / 4)
TOKENS, RATES = 2.0 ** np.linspace(9, 17, 33), 2.0 ** np.linspace(5, 11, 25)


def valley(slope=0.3):
    """Cost with its least where the port is 8 TFLOP/s over tokens (section 1's law), growing as ``slope`` per octave squared."""
    best = 8.0 * RATES[:, None] * 1e12 / TOKENS / 1e9
    octaves = np.log2(LINKS / np.clip(best, 30, 6000)[..., None])
    cost = np.exp(slope * octaves**2)
    dims = ("rate", "tokens", "link_gbps")
    data = {
        "usd_per_million_tokens": (dims, cost),
        "tokens_per_s_per_gpu": (("rate", "tokens", "link_gbps"), 1000.0 / cost),
        "tokens_per_domain": ("tokens", TOKENS, {"units": "1", "long_name": "tokens"}),
        "achieved_tflops": ("rate", RATES, {"units": "TFLOP/s", "long_name": "rate"}),
        "status": ((), np.uint8(0), {"flag_values": [0, 1], "flag_meanings": "ok gpus"}),
    }
    coords = {"rate": RATES, "tokens": TOKENS, "link_gbps": ("link_gbps", LINKS, {"units": "Gb/s"})}
    return xr.Dataset(data, coords)


def test_borders_of_the_map_are_where_neighbours_cost_the_same():
    """Between ports of 200 and 400 the border is at their geometric mean, 283 Gb/s: on x at 8 y/283, straight in logs."""
    drawing = costplots.draw_ports(valley())
    borders = next(one for one in drawing.figure.axes[0].collections if not one.filled)
    level = int(np.argmin(np.abs(np.asarray(borders.levels) - np.log2(np.sqrt(200 * 400)))))
    line = borders.get_paths()[level].vertices
    inside = (line[:, 0] > TOKENS[0] * 1.01) & (line[:, 0] < TOKENS[-1] * 0.99)
    port = 8000.0 * line[inside, 1] / line[inside, 0]
    assert len(port) > 20 and np.median(np.abs(np.log2(port / np.sqrt(200 * 400)))) < 0.03
    assert float(drawing.data.cost_optimal_link_gbps.max()) > 3200


@pytest.mark.parametrize("slope, flat", [(0.3, False), (0.001, True)])
def test_flat_regions_are_hatched(slope, flat):
    """exp(slope d^2) stays within 1 % over an octave where slope is below about 0.04."""
    best = economics.best_ports(valley(slope))
    assert bool((best.flat_high_link_gbps >= 2 * best.flat_low_link_gbps).any()) == flat
    drawn = [one for one in costplots.draw_ports(valley(slope)).figure.axes[0].collections if one.filled and any(one.hatches)]
    assert any(len(path.vertices) for one in drawn for path in one.get_paths()) == flat


def by_price():
    """Three accelerators, two prices, two sizes: the least moves with all of them."""
    best = np.array([50.0, 200.0, 800.0])[:, None, None] / np.array([1.0, 2.0])[:, None] / np.array([1.0, 4.0])
    octaves = np.log2(LINKS / best[..., None])
    cost = 1.0 + 0.05 * np.maximum(octaves, 0) + 0.5 * np.maximum(-octaves, 0)
    dims = ("accelerator", "network_price", "gpus", "link_gbps")
    return xr.Dataset(
        {"usd_per_million_tokens": (dims, cost), "tokens_per_s_per_gpu": (dims, 1000.0 / cost),
         "status": ((), np.uint8(0), {"flag_values": [0, 1], "flag_meanings": "ok gpus"})},
        {"accelerator": ["v100", "a100", "h100"], "network_price": ["once", "twice"], "gpus": [128.0, 1024.0],
         "link_gbps": ("link_gbps", LINKS, {"units": "Gb/s"})},
    )  # fmt: skip


def test_ranges_show_every_row_stroke_and_panel():
    drawing = costplots.draw_ranges(by_price())
    assert len(drawing.figure.axes) == 2 and drawing.key["panels"] == "gpus" and drawing.key["strokes"] == "network_price"
    markers = [line.get_xdata()[0] for line in drawing.figure.axes[0].lines if line.get_marker() in ("o", "s")]
    assert sorted(round(float(port)) for port in markers) == [25, 50, 100, 200, 400, 800]
    with pytest.raises(SweepError, match="still vary"):
        costplots.draw_ranges(by_price().expand_dims(tp=[1, 8]))
    with pytest.raises(SweepError, match="does not vary"):
        costplots.draw_ranges(by_price(), "model")


def test_worth_crosses_price_at_the_cheapest_port():
    at = {"network_price": "once", "gpus": 128.0, "accelerator": "a100"}
    view = economics.next_gbps(by_price(), at)
    pays = (view.worth_usd_per_gbps > view.price_usd_per_gbps).values
    assert float(view.next_link_gbps[np.flatnonzero(pays)[-1]]) == pytest.approx(200)
    drawing = costplots.draw_worth(by_price(), at={"network_price": "once", "gpus": 128.0})
    assert len(drawing.figure.axes[0].lines) == 3
