"""What every figure shares: a plain look, port rungs, captions, and files that say which slice they show.

A figure is drawn for print: one column (3.35 in) or two (7 in) of a systems paper, Times-like letters at the size of a
caption, thin lines, no title (the caption says it).  Colours run from light to dark and differ for colour-blind eyes;
lines differ in dash and marker too, so that nothing is lost in grey.

Objects of matplotlib alone are used, never pyplot: no window, no global state, safe in threads.
"""

import io
import json
import textwrap
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from . import selections
from ._kernels import quantities
from .errors import SweepError
from .palettes import BANDS, INK, MUTED, PORTS  # noqa: F401  for the drawing modules

WIDTHS = {"column": 3.35, "page": 7.0}  # inches
TALLEST = 3.1  # inches of a panel
FORMATS = ("pdf", "svg", "png")
COUNTED = ("", "1", "byte", "sequences")  # units of what comes in powers of two
SHAPE = ("tp", "cp", "pp", "ep", "zero_stage", "micro_batch", "seq_len")
STYLE = {
    "font.family": "STIXGeneral",
    "mathtext.fontset": "stix",
    "font.size": 8,
    "axes.labelsize": 8,
    "axes.titlesize": 8,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "legend.handlelength": 2.2,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.minor.width": 0.4,
    "ytick.minor.width": 0.4,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "xtick.minor.size": 1.5,
    "ytick.minor.size": 1.5,
    "lines.linewidth": 1.1,
    "hatch.linewidth": 0.4,
    "pdf.fonttype": 42,  # real text, which publishers ask for
    "svg.fonttype": "none",
    "svg.hashsalt": "overlap-sweep",  # the same drawing is the same file
    "savefig.dpi": 300,
}
# Okabe and Ito's colours, dark to light, with a dash and a marker each: any two differ without colour.
LINES = (
    ("#000000", "-", "o"),
    ("#0072B2", "--", "s"),
    ("#D55E00", "-.", "^"),
    ("#009E73", ":", "D"),
    ("#CC79A7", (0, (5, 1, 1, 1, 1, 1)), "v"),
    ("#56B4E9", (0, (1, 1)), "P"),
    ("#E69F00", (0, (7, 2)), "X"),
)


class Drawing:
    """A finished figure: ``figure`` (matplotlib), ``caption``, ``key`` (the slice it shows), ``data`` (a small Dataset)."""

    def __init__(self, figure, caption, key, data):
        self.figure, self.caption, self.key, self.data = figure, caption, key, data

    def save(self, path):
        """Write PDF, SVG or PNG by the name's ending, with caption and slice key in the file's metadata."""
        path = Path(path)
        kind = path.suffix.lower().lstrip(".")
        if kind not in FORMATS:
            raise SweepError(f"{path}: a figure ends in .{', .'.join(FORMATS)}.")
        data = self.bytes(kind)
        try:
            path.write_bytes(data)
        except OSError as problem:
            raise SweepError(f"{path}: cannot be written ({problem.strerror}).") from None
        return path

    def bytes(self, kind="png"):
        key = json.dumps(self.key, sort_keys=True, ensure_ascii=False, default=str)
        title = f"{self.key.get('figure', 'figure')} of {self.key.get('store') or 'a dataset'}"
        metadata = {
            "png": {"Title": title, "Description": self.caption, "Slice": key, "Software": "overlap-sweep"},
            "svg": {"Title": title, "Description": self.caption, "Source": key, "Creator": "overlap-sweep", "Date": None},
            "pdf": {"Title": title, "Subject": self.caption, "Keywords": key, "Creator": "overlap-sweep", "CreationDate": None},
        }[kind]
        sink = io.BytesIO()
        with matplotlib.rc_context(STYLE):
            self.figure.savefig(sink, format=kind, metadata=metadata)
        return sink.getvalue()

    def _repr_png_(self):
        return self.bytes("png")


def new_figure(width, height, caption=""):
    """A figure ``height`` inches high, with room below it for the caption's lines, drawn small."""
    inches = inches_of(width)
    lines = textwrap.wrap(caption, int(inches * 25.5), break_on_hyphens=False) if caption else []
    below = 0.06 + 0.108 * len(lines) if lines else 0.0
    figure = Figure(figsize=(inches, height + below), layout="constrained")
    FigureCanvasAgg(figure)
    share = below / (height + below)
    figure.get_layout_engine().set(rect=(0, share, 1, 1 - share), w_pad=0.02, h_pad=0.02, wspace=0.03, hspace=0.03)
    if lines:
        figure.text(0.012, share - 0.02, "\n".join(lines), va="top", ha="left", fontsize=6.3, color=INK, linespacing=1.08)
    return figure


def inches_of(width):
    """``column``, ``page`` or a number of inches, in inches."""
    inches = WIDTHS.get(width, width)
    if not isinstance(inches, (int, float)) or not 1 <= inches <= 40:
        raise SweepError(f"width: {width!r} is neither {' nor '.join(WIDTHS)} nor a number of inches.")
    return inches


def height_of(width, share, columns=1):
    """Inches of height of a panel that is ``share`` as high as wide, among ``columns`` of them; a wide figure stays low."""
    return min(share * inches_of(width) / columns, TALLEST)


def scale_of(values):
    """``log`` for positive numbers spaced evenly by ratio, or over more than a factor 30; else ``linear``."""
    values = np.asarray(values, float)
    values = np.sort(values[np.isfinite(values)])
    if len(values) < 2 or values[0] <= 0:
        return "linear"
    if values[-1] / values[0] > 30:
        return "log"
    if len(values) < 3:
        return "log" if values[-1] / values[0] > 4 else "linear"
    steps, ratios = np.diff(values), np.diff(np.log(values))
    return "log" if ratios.std() / ratios.mean() < 0.5 * steps.std() / steps.mean() else "linear"


def set_axis(axes, which, ds, name, values):
    """Scale, limits, ticks and label of one axis of a figure that shows ``name``."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    limits = axes.set_xlim if which == "x" else axes.set_ylim
    axis.set_label_text(selections.label_of(ds, name))
    values = np.asarray(values)
    if values.dtype.kind in "OUST":
        axis.set_ticks(range(len(values)), [str(value) for value in values])
        if which == "x" and sum(len(str(value)) for value in values) > 34:
            axis.set_tick_params(rotation=35)
            for label in axis.get_ticklabels():
                label.set_ha("right")
        return
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    if scale_of(values) == "log":
        (axes.set_xscale if which == "x" else axes.set_yscale)("log")
        ticks = _log_ticks(ds, name, values, low, high)
        axis.set_ticks(ticks, [short(tick) for tick in ticks])
        axis.set_ticks([], minor=True)
    if high > low:
        limits(low, high)


def round_levels(low, high, most):
    """At most ``most`` round numbers strictly between ``low`` and ``high``, evenly spaced by ratio."""
    decades = 10.0 ** np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
    for steps in ((1, 1.5, 2, 3, 4, 5, 7), (1, 2, 5), (1, 3), (1,)):
        levels = np.sort(np.outer(decades, steps).ravel())
        levels = levels[(levels > low) & (levels < high)]
        if len(levels) <= most:
            break
    else:
        levels = levels[:: -(-len(levels) // most)]
    return np.array([float(f"{level:.3g}") for level in levels]) if len(levels) else np.array([np.sqrt(low * high)])


def _log_ticks(ds, name, values, low, high):
    """Ports where the axis is a port, powers of two where labels are, else 1-3-10 or 1-2-5-10."""
    units = ds[name].attrs.get("units", "")
    inside = lambda ticks: [tick for tick in ticks if low * 0.999 <= tick <= high * 1.001]  # noqa: E731
    if units == "Gb/s":
        return inside((25, *PORTS, 6400))
    powers = 2.0 ** np.arange(-10, 60)
    twos = inside(powers) if units in COUNTED else []
    shared = sum(np.isclose(value, powers, rtol=1e-6).any() for value in values)
    if len(twos) >= 2 and shared >= max(2, len(values) // 4):
        return twos[:: -(-len(twos) // 8)]
    decades = 10.0 ** np.arange(-15, 19)
    for steps in ((1, 2, 5), (1, 3), (1,)):
        ticks = inside(np.sort(np.outer(decades, steps).ravel()))
        if len(ticks) <= 8:
            break
    return ticks


def short(number):
    """A tick: 400, 1600; 10k and 3M from ten thousand on; a power of two from 1024 on as 8K or 2M."""
    if number == 0 or not np.isfinite(number):
        return f"{number:g}"
    if number >= 1024 and np.log2(number) == int(np.log2(number)):
        power = int(np.log2(number))
        return f"{2 ** (power % 10)}{' KMGT'[power // 10]}"
    if number >= 1e4:
        power = min(int(np.log10(number) / 3 + 1e-9), 4)
        return f"{number / 1000**power:.3g}{' kMGT'[power]}"
    return f"{number:g}" if number >= 1e-4 else f"{number:.0e}"


def conventions(ds, names=()):
    """The sentence of a caption that states model, machine, window, rails and how speeds are counted."""
    fixed = selections.settings(ds)
    said = []
    shape = [f"{name} {_value(fixed[name])}" for name in SHAPE if name in fixed]
    if shape:
        said.append(", ".join(shape).replace("_", " "))
    if "gpus" in fixed or "dp" in fixed:
        said.append(f"{_value(fixed['gpus'])} GPUs" if "gpus" in fixed else f"dp {_value(fixed['dp'])}")
    if "scaleup_domain" in fixed:
        said.append(f"scale-up domains of {_value(fixed['scaleup_domain'])}")
    text = "; ".join(said)
    text = f"Run: {text}. " if text else ""
    if not {str(name) for name in ds.data_vars} & set(quantities.STEP_OUTPUTS) - {"status"}:  # no training step is shown
        return text.rstrip()
    moving = {str(name) for name in ds.coords}  # said by the axes themselves
    gradients = "" if "grad_bytes" in moving else f"Gradients of {_value(fixed.get('grad_bytes', 2))} bytes, "
    rails = "every GPU drives its own port (rails all)" if fixed.get("rails", "all") == "all" else "one port carries the domain's traffic (rails one)"
    rails = "ports per domain as the axis says (rails)" if "rails" in moving else rails
    text += f"Window: the last micro-batch's backward. {gradients}{rails if gradients else rails.capitalize()}. "
    return text + "Gb/s: 1e9 bit/s per GPU and direction."


def reference(ds):
    """Words for the model and accelerator that the slice holds fixed, empty where none is."""
    fixed = selections.presets_of(ds) | selections.settings(ds)
    names = ("model",) if "peak_tflops" in ds.dims else ("model", "accelerator")
    named = [str(fixed[name]) for name in names if isinstance(fixed.get(name), str)]
    return " on ".join(named)


def _value(value):
    return f"{value:g}" if isinstance(value, (int, float, np.number)) and not isinstance(value, bool) else str(value)


def key_of(ds, figure, at=None, **names):
    """What identifies a drawing: figure, store, hash of its spec, model version, names and slice."""
    attrs = ds.attrs
    key = {"figure": figure, "store": attrs.get("title", ""), "spec_sha256": attrs.get("spec_sha256", "")}
    key["model_sha256"] = attrs.get("model_sha256", "")
    key.update({name: value for name, value in names.items() if value})
    key["at"] = {str(name): value for name, value in (at or {}).items()}
    return key


def slice_words(ds, at):
    """The slice in words for a caption, but for what ``reference`` and ``conventions`` say: ``link gbps 400``."""
    named, said = reference(ds), (*SHAPE, "gpus", "dp", "scaleup_domain")
    at = {name: value for name, value in (at or {}).items() if not isinstance(value, (list, tuple)) and str(value) not in named and name not in said}
    return ", ".join(f"{name.replace('_', ' ')} {_value(value)}" for name, value in at.items())
