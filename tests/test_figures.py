"""Figures show the numbers of the dataset, search where they are told to, and refuse what cannot be drawn."""

import matplotlib
import numpy as np
import pytest
import xarray as xr

from sweep import barplots, drawings, galleries, lineplots, selections
from sweep.errors import SweepError
from tests import datasets


@pytest.fixture
def ds():
    return datasets.make(11)


def saturating():
    """mfu over a port: level / (1 + half / port), two accelerators, two layouts of which the second is better."""
    port, half, level = np.geomspace(25, 3200, 15), np.array([50.0, 400]), np.array([0.3, 0.4])
    mfu = level[None, :, None] / (1 + half[:, None, None] / port)
    ds = xr.Dataset(
        {"mfu": (("accelerator", "tp", "link_gbps"), mfu.astype("f4")), "status": (("tp",), np.zeros(2, "u1"))},
        {"accelerator": np.array(["a100", "b200"], object), "tp": [1, 8], "link_gbps": port},
    )
    for name in ("mfu", "tp", "link_gbps", "status"):
        ds[name].attrs.update(datasets.attributes(name))
    return ds


def test_lines_are_the_best_over_layouts_and_their_knee_is_at_95_percent():
    drawing = lineplots.draw_lines(saturating(), "link_gbps", "mfu", "accelerator", over=("tp",))
    axes = drawing.figure.axes[0]
    curves = [line for line in axes.lines if len(line.get_xdata()) == 15]
    assert [curve.get_label() for curve in curves] == ["a100", "b200"]
    assert np.allclose(curves[0].get_ydata(), saturating().mfu[0, 1].values)
    (knee,) = [line for line in axes.lines if len(line.get_xdata()) == 1 and line.get_color() == drawings.LINES[0][0]]
    best = 0.4 / (1 + 50 / 3200)
    assert knee.get_xdata()[0] == pytest.approx(50 / (0.4 / (0.95 * best) - 1), rel=0.03)
    assert axes.get_xscale() == "log" and [t.get_text() for t in axes.get_xticklabels()][:3] == ["25", "50", "100"]
    assert "best over tp" in drawing.caption


def test_a_band_spans_an_axis():
    axes = lineplots.draw_lines(saturating(), "link_gbps", "mfu", "accelerator", band="tp").figure.axes[0]
    assert len(axes.collections) == 2  # one band for each line


def test_scaling_starts_at_one():
    gpus = np.array([64, 128, 256, 512])
    rate = np.array([[np.nan, 100, 90, 80.0], [50, 50, 50, 25]])
    ds = xr.Dataset({"tokens_per_s_per_gpu": (("model", "gpus"), rate)}, {"model": np.array(["a", "b"], object), "gpus": gpus})
    axes = lineplots.draw_scaling(ds, lines="model").figure.axes[0]
    assert np.allclose(axes.lines[0].get_ydata()[1:], [1, 0.9, 0.8]) and np.allclose(axes.lines[1].get_ydata(), [1, 1, 1, 0.5])


def test_distribution_has_the_envelope_of_the_best(ds):
    axes = lineplots.draw_distribution(ds, "link_gbps", "mfu").figure.axes[0]
    best = next(line for line in axes.lines if line.get_label() == "best")
    expected = datasets.frame(ds).groupby("link_gbps").mfu.max()
    assert np.allclose(best.get_ydata(), expected) and np.allclose(best.get_xdata(), expected.index)


def test_grid_writes_each_number_and_leaves_what_cannot_run_blank(ds):
    drawing = barplots.draw_grid(ds, "tp", "model", "mfu", at={"link_gbps": 100})
    texts = {(text.get_position()): text.get_text() for text in drawing.figure.axes[0].texts}
    valid = ds.status.values == 0
    assert len(texts) == valid.sum()
    for (column, row), text in texts.items():
        assert valid[row, column] and float(text) == pytest.approx(ds.mfu.values[row, column, 1], abs=0.006)


def breakdown():
    ds = xr.Dataset(
        {
            "step_time_s": ("model", [1.0, 2.0, np.nan]),
            "compute_time_s": ("model", [0.7, 1.0, 1.0]),
            "exposed_dp_s": ("model", [0.2, 0.9, np.nan]),
            "memory_bytes": ("model", [60e9, 90e9, 10e9]),
            "status": ("model", np.array([0, 9, 1], "u1")),
        },
        {"model": np.array(["a", "b", "c"], object), "hbm_gb": 80.0},
    )
    ds.status.attrs.update(datasets.attributes("status"))
    return ds


def test_breakdown_stacks_to_the_step_beside_memory():
    figure = barplots.draw_breakdown(breakdown(), "model", allow=["memory"]).figure
    time, memory = figure.axes
    for place, total in ((2, 1.0), (1, 2.0)):
        bars = [bar for bar in time.patches if bar.get_y() < place < bar.get_y() + bar.get_height()]
        assert sum(bar.get_width() for bar in bars) == pytest.approx(total)
    assert any("cannot run" in text.get_text() for text in time.texts)
    assert [bar.get_width() for bar in memory.patches][:2] == [60, 90]


def test_requirements_are_ranked(ds):
    names = {"dp": 400.0, "tp": 0.0, "pp": 50.0, "ep": np.inf, "cp": 3.0}
    ds = xr.Dataset({f"required_link_gbps_{group}": ((), value) for group, value in names.items()})
    axes = barplots.draw_requirements(ds).figure.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()][::-1] == ["ep", "dp", "pp", "cp", "tp"]
    assert {text.get_text().strip() for text in axes.texts} == {"no rate can", "400", "50", "3", "none"}


def test_busbw_draws_points_beside_lines():
    size = 2.0 ** np.arange(10, 30)
    ds = xr.Dataset(
        {"busbw_gbytes_per_s": ("size_bytes", 40 / (1 + 1e6 / size)), "measured": ("size_bytes", 39 / (1 + 1e6 / size))}, {"size_bytes": size}
    )
    axes = lineplots.draw_busbw(ds, measured="measured").figure.axes[0]
    assert len(axes.lines) == 2 and axes.get_xscale() == "log"


def test_gallery_draws_what_it_can(tmp_path, ds):
    results = dict(galleries.gallery(ds, tmp_path / "figures"))
    drawn = {name for name, found in results.items() if found.endswith(".png")}
    assert {"map", "lines", "grid", "distribution"} <= drawn
    assert "compute_time_s" in results["breakdown"] and "gpus" in results["scaling"]
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {f"{n}.{k}" for n in drawn for k in ("png", "pdf")} | {"captions.txt"}


def test_usual_labels(ds):
    assert galleries.usual(ds, "link_gbps") == 400 and galleries.usual(ds, "model") == "llama-3-70b" and galleries.usual(ds, "tp") == 8
    assert galleries.usual(saturating(), "accelerator") == "b200"


@pytest.mark.parametrize(
    "draw, said",
    [
        (lambda ds: lineplots.draw_lines(ds, "model", "mfu"), "words"),
        (lambda ds: lineplots.draw_lines(ds, "link", "mfu"), "not an axis"),
        (lambda ds: lineplots.draw_lines(ds, "link_gbps", "mfu"), "varies along"),
        (lambda ds: lineplots.draw_lines(ds, "link_gbps", "bottleneck"), "has words"),
        (lambda ds: lineplots.draw_lines(ds, "link_gbps", "mfuu"), "'mfu'"),
        (lambda ds: barplots.draw_grid(ds, "tp", "pp", "mfu"), "not an axis"),
        (lambda ds: barplots.draw_breakdown(ds, "model"), "compute_time_s"),
        (lambda ds: barplots.draw_requirements(ds), "required_link_gbps_dp"),
    ],
)
def test_errors_say_what_to_type(ds, draw, said):
    with pytest.raises(SweepError) as caught:
        draw(ds)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_a_line_too_many():
    ds = xr.Dataset({"mfu": (("tp", "link_gbps"), np.ones((9, 3)))}, {"tp": range(1, 10), "link_gbps": [1.0, 2, 4]})
    with pytest.raises(SweepError, match="cannot be told apart"):
        lineplots.draw_lines(ds, "link_gbps", "mfu", "tp")


def test_at_of_a_command_line():
    assert selections.parse_at(["tp=8", "model=a,b", "link_gbps=100..800"]) == {"tp": "8", "model": ["a", "b"], "link_gbps": (100.0, 800.0)}
    for text, said in (("tp", "NAME=VALUE"), ("tp=a..b", "a number on each side"), ("=8", "NAME=VALUE")):
        with pytest.raises(SweepError, match=said):
            selections.parse_at([text])
    with pytest.raises(SweepError, match="twice"):
        selections.parse_at(["tp=1", "tp=2"])


def test_styles_do_not_leak():
    barplots.draw_breakdown(breakdown(), "model")
    assert matplotlib.rcParams["font.size"] == 10
