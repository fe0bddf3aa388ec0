"""Maps show the numbers where they are, name their slice, and read without colour."""

import json
import re
import subprocess
import sys

import matplotlib
import numpy as np
import pytest
import xarray as xr
from matplotlib.colors import to_rgb

from sweep import drawings, maps
from sweep.errors import SweepError
from sweep.maps import Mark, draw_map
from tests import datasets

HEADLINE = dict(x="tokens_per_domain", y="achieved_tflops", color="required_link_gbps")


def lines(drawing, style="solid"):
    """Contour lines by level: arrays of (x, y)."""
    found = {}
    for collection in drawing.figure.axes[0].collections:
        levels, paths = getattr(collection, "levels", None), collection.get_paths()
        dashed = collection.get_linestyles()[0][1] is not None if len(collection.get_linestyles()) else False
        if levels is not None and not collection.filled and dashed == (style == "dashed") and collection.get_linewidths()[0] > 0:
            found.update({round(2**level): path.vertices for level, path in zip(levels, paths) if len(path.vertices)})
    return found


def test_the_headline_map_draws_the_law(tmp_path):
    drawing = draw_map(datasets.iso(), **HEADLINE, path=tmp_path / "map.png")
    assert (tmp_path / "map.png").stat().st_size > 20_000
    solid, dashed = lines(drawing), lines(drawing, "dashed")
    assert set(solid) - {1} <= set(drawings.PORTS) and 400 in solid  # 1: the edge of what does not fit
    for found, factor in ((solid, 1.1), (dashed, 1.0)):
        x, y = found[400].T
        assert np.allclose(factor * 8e3 * y / x, 400, rtol=0.02)
    axes = drawing.figure.axes[0]
    assert axes.get_xscale() == axes.get_yscale() == "log"
    bar = drawing.figure.axes[1]
    assert [label.get_text() for label in bar.get_yticklabels()] == [str(port) for port in drawings.PORTS]
    texts = " ".join(text.get_text() for text in axes.texts)
    assert "H100 (400)" in texts and "V100 (50)" in texts
    assert any(hatch for c in axes.collections if (hatch := (getattr(c, "hatches", None) or [None])[0]))


def test_caption_states_model_window_rails_and_slice():
    caption = draw_map(datasets.iso(), **HEADLINE).caption
    for words in ("llama-3-70b", "first-order", "Window", "rails all", "per GPU and direction", "Hatched", "tp 8"):
        assert words in caption


@pytest.mark.parametrize("kind", drawings.FORMATS)
def test_a_file_holds_its_slice_and_is_the_same_again(tmp_path, kind):
    first, second = tmp_path / f"a.{kind}", tmp_path / f"b.{kind}"
    for path in (first, second):
        draw_map(datasets.iso(9), **HEADLINE, path=path)
    assert first.read_bytes() == second.read_bytes()
    if kind == "pdf":
        assert b"Keywords" in first.read_bytes() and b"abc" in first.read_bytes()
        return
    text = first.read_bytes().decode("latin-1")
    key = re.search(r'\{(?:"|&quot;)at.*?\}(?=[^{}"]*(<|.IDAT))|\{"at.*?abc.*?\}', text, re.S).group(0)
    assert "required_link_gbps" in key and "abc" in key


def test_key_and_data_of_a_drawing():
    drawing = draw_map(datasets.iso(), "micro_batch", "peak_tflops", "first_order_link_gbps")
    assert json.loads(json.dumps(drawing.key))["x"] == "micro_batch"
    assert set(drawing.data.data_vars) == {"first_order_link_gbps", "status"}


def test_words_facets_and_cells():
    ds = datasets.make(1)
    drawing = draw_map(ds, "link_gbps", "tp", "mfu", facet="model", width="page")
    assert [axes.get_title() for axes in drawing.figure.axes[:3]] == [f"model {name}" for name in ds.model.values]
    drawing = draw_map(ds, "link_gbps", "model", "step_time_s", at={"tp": 2})
    assert [label.get_text() for label in drawing.figure.axes[0].get_yticklabels()] == list(ds.model.values)
    drawing = draw_map(datasets.iso(), **{**HEADLINE, "color": "binding_dimension"})
    assert [text.get_text() for text in drawing.figure.legends[0].get_texts()] == ["none", "dp"]


def test_values_beyond_all_levels_are_drawn():
    ds = datasets.iso(9)
    ds["required_link_gbps"][:3] = np.inf
    ds["required_link_gbps"][-3:] = 0.0
    draw_map(ds, **HEADLINE)
    ds["required_link_gbps"][:] = 0.0
    draw_map(ds, **HEADLINE)
    ds["required_link_gbps"][:] = np.inf
    with pytest.raises(SweepError, match="no finite value"):
        draw_map(ds, **HEADLINE)


def test_marks_show_their_port():
    marks = [Mark("here", 8192, 400, 400), Mark("outside", 1, 1, 800)]
    axes = draw_map(datasets.iso(9), **HEADLINE, marks=marks).figure.axes[0]
    texts = [text.get_text() for text in axes.texts]
    assert "here (400)" in texts and not any("outside" in text for text in texts)


def test_generations_come_from_the_presets():
    found = {mark.label: mark for mark in maps.generations()}
    assert found["H100"].port == 400 and found["H100"].y == pytest.approx(0.4 * 989) and found["H100"].x == 8192
    assert any(mark.x == 9 * 8192 for mark in found.values())


@pytest.mark.parametrize(
    "asked, said",
    [
        (dict(x="tokens"), "tokens_per_domain"),
        (dict(y="required_link_gbps"), "varies along"),
        (dict(x="status"), "monotone"),
        (dict(x="micro_batch", y="tokens_per_domain"), "two axes"),
        (dict(color="mfu"), "not in this dataset"),
        (dict(facet="model"), "not an axis"),
        (dict(at={"micro_batch": 1}), "same everywhere"),
        (dict(width="wide"), "inches"),
        (dict(path="map.jpg"), ".pdf"),
    ],
)
def test_errors_say_what_to_type(asked, said):
    with pytest.raises(SweepError) as caught:
        draw_map(datasets.iso(9), **{**HEADLINE, **asked})
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_an_axis_left_over_must_be_fixed():
    with pytest.raises(SweepError, match="varies along model too: fix it, such as model=llama-3-8b"):
        draw_map(datasets.make(0), "link_gbps", "tp", "step_time_s")


def test_bands_read_in_grey_and_lines_without_colour():
    grey = [float(np.dot(to_rgb(color), (0.2126, 0.7152, 0.0722))) for color in drawings.BANDS]
    assert np.all(np.diff(grey) < -0.04)
    assert len({(str(dash), marker) for _, dash, marker in drawings.LINES}) == len(drawings.LINES)


def test_ticks():
    assert [drawings.short(n) for n in (50, 1600, 8192, 10_000, 300_000, 2**20, 0.5, 2_000_000)] == ["50", "1600", "8K", "10k", "300k", "1M", "0.5", "2M"]
    assert drawings.scale_of([1, 2, 4, 8]) == "log" and drawings.scale_of([1, 2, 3, 4]) == "linear" and drawings.scale_of([0, 1, 10]) == "linear"


def test_no_global_state():
    code = "import sys, tests.datasets as d; from sweep import maps; maps.draw_map(d.iso(5), 'micro_batch', 'peak_tflops', 'required_link_gbps'); print('matplotlib.pyplot' in sys.modules, 'jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False False"
    assert matplotlib.rcParams["font.family"] != ["STIXGeneral"]


def test_tiny_values_leave_levels_apart(tmp_path):
    """A wait that falls to 1e-20 hours: levels stay positive and distinct."""
    axes = {"gpus": ("gpus", [1.0, 2.0, 4.0]), "load": ("load", [0.3, 0.6, 0.9])}
    values = np.array([[1e-20, 1e-3, 1.0], [1e-18, 1e-2, 10.0], [1e-16, 0.1, 100.0]])
    ds = xr.Dataset({"wait": (("gpus", "load"), values, {"units": "h", "long_name": "wait"})}, axes)
    draw_map(ds, "gpus", "load", "wait", path=tmp_path / "wait.png")
    assert (tmp_path / "wait.png").stat().st_size > 0
