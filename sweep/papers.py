"""A bundle for a paper, made of a stored sweep: ``sweep paper STORE -o FOLDER``.

    figures/NAME.pdf    drawn without captions          data/NAME.csv     the numbers of each figure
    captions.tex        \\captionMap, \\captionLines, ... numbers.tex       \\requiredLinkGbpsMax, ... (siunitx)
    methods.tex         a paragraph                     references.bib    what it cites
    numbers.json        the same numbers for programs   provenance.json   the question, hashes, versions
    configs/            the sweep as a config that gives the same hash, presets as numbers beside it
    Makefile            make check: runs the sweep again and compares every number; make paper.pdf: a sample document
    paper.tex           the sample: every figure with its caption

The same store gives the same bundle, byte for byte.
"""

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd

from . import galleries, latex, queries, recipes, selections, tables
from .blocks import Blocks
from .errors import StoreError, SweepError

CLOSE = 2e-6  # relative: one step of the stored float32 and of the printed digits
LABELS = 16  # a table axis longer than this gives no macro for each label
KEY = ("first_order_link_gbps", "required_link_gbps", "link_gbps_at_tolerance", "step_time_s", "mfu", "usd_per_million_tokens")
CITED = {
    "overlapsweep": "@software{overlapsweep,\n  title = {overlap-sweep: exact sweeps of communication under compute},\n  version = {VERSION},\n  year = {2026},\n}",
    "narayanan2021": "@inproceedings{narayanan2021,\n  title = {Efficient Large-Scale Language Model Training on {GPU} Clusters Using {Megatron-LM}},\n  author = {Narayanan, Deepak and others},\n  booktitle = {SC '21},\n  year = {2021},\n}",
    "korthikanti2023": "@inproceedings{korthikanti2023,\n  title = {Reducing Activation Recomputation in Large Transformer Models},\n  author = {Korthikanti, Vijay and others},\n  booktitle = {MLSys},\n  year = {2023},\n}",
    "rajbhandari2020": "@inproceedings{rajbhandari2020,\n  title = {{ZeRO}: Memory Optimizations Toward Training Trillion Parameter Models},\n  author = {Rajbhandari, Samyam and Rasley, Jeff and Ruwase, Olatunji and He, Yuxiong},\n  booktitle = {SC '20},\n  year = {2020},\n}",
    "thakur2005": "@article{thakur2005,\n  title = {Optimization of Collective Communication Operations in {MPICH}},\n  author = {Thakur, Rajeev and Rabenseifner, Rolf and Gropp, William},\n  journal = {International Journal of High Performance Computing Applications},\n  volume = {19},\n  number = {1},\n  pages = {49--66},\n  year = {2005},\n}",
    "li2020ddp": "@article{li2020ddp,\n  title = {{PyTorch} Distributed: Experiences on Accelerating Data Parallel Training},\n  author = {Li, Shen and others},\n  journal = {Proceedings of the VLDB Endowment},\n  volume = {13},\n  number = {12},\n  year = {2020},\n}",
}


def paper(ds, folder, at=None, allow=None):
    """Write the bundle of ``ds`` into ``folder``; returns ``(what, where or why not)`` of each part."""
    folder = Path(folder)
    try:
        for part in ("figures", "data"):
            (folder / part).mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise SweepError(f"{folder}: cannot be made ({problem.strerror}). Choose another folder.") from None
    results, captions, drawn = [], [], []
    for name, drawing in galleries.drawings_of(ds, at, allow, "none"):
        if isinstance(drawing, str):
            results.append((name, drawing))
            continue
        drawing.save(folder / "figures" / f"{name}.pdf")
        _data(drawing).to_csv(folder / "data" / f"{name}.csv", index=False, float_format="%.7g", lineterminator="\n")
        captions.append(f"\\newcommand{{\\caption{latex.macro(name).title()}}}{{{latex.escape(drawing.caption)}}}")
        drawn.append(name)
        results.append((name, str(folder / "figures" / f"{name}.pdf")))
    found = numbers(ds, at, allow)
    _write(folder / "captions.tex", "\n".join(captions))
    _write(folder / "numbers.tex", "\n".join(_macro(number) for number in found))
    _write(folder / "numbers.json", tables.render_json({number["name"]: number for number in found}))
    _write(folder / "methods.tex", methods(ds))
    _write(folder / "references.bib", "\n\n".join(CITED.values()).replace("VERSION", _version(ds)))
    _write(folder / "paper.tex", _document(drawn))
    rerun = _config(ds, folder, results)
    _write(folder / "Makefile", _makefile(drawn, rerun))
    _write(folder / "provenance.json", tables.render_json({"at": _assignments(at), "allow": list(allow or ()), "figures": drawn, **_origin(ds)}))
    return results + [("numbers", f"{len(found)} macros in {folder / 'numbers.tex'}")]


def numbers(ds, at=None, allow=None):
    """Numbers worth quoting, each {"name", "value", "unit", "what"}: counts, ranges of outputs, and key outputs by label of each table axis."""
    view = selections.select(ds, at)
    blocks = Blocks(view, allow=allow)
    outputs = [str(name) for name in view.data_vars if name not in blocks.categories and name in blocks.names]
    summary = queries.query(view, count=True, allow=allow).iloc[0]
    found = [_number("sweep_points", int(summary["points"]), "1", "points"), _number("sweep_points_valid", int(summary["count"]), "1", "points that count")]
    ranges = queries._groups(Blocks(view, allow=allow), [], outputs)
    for name in outputs:
        about, unit = view[name].attrs.get("long_name", name), view[name].attrs.get("units", "1")
        for end, word in (("min", "least"), ("max", "largest")):
            found.append(_number(f"{name}_{end}", float(ranges[f"{name}_{end}"][0]), unit, f"{word} {about}"))
    for axis in [str(dim) for dim in view.dims if dim in view.coords and view[dim].dtype.kind in "OUST" and view.sizes[dim] <= LABELS]:
        fixed = {str(dim): galleries.usual(view, dim) for dim in view.dims if dim != axis and dim in view.coords}
        where = ", ".join(f"{dim} {selections._show(label)}" for dim, label in fixed.items())
        part = selections.select(view, fixed)
        for name in (name for name in KEY if name in part and name not in blocks.categories):
            values = selections.plane(part, name, (axis,), name, allow)
            for label, value in zip(part[axis].values, values):
                what = f"{view[name].attrs.get('long_name', name)}, {axis} {label}" + (f", {where}" if where else "")
                found.append(_number(f"{name} {label}", float(value), view[name].attrs.get("units", "1"), what))
    return list({number["name"]: number for number in reversed(found)}.values())[::-1]  # of one name the first stays


def check(bundle, again):
    """Compare two bundles number by number; the differences as sentences, none where all is the same."""
    bundle, again = Path(bundle), Path(again)
    try:
        first, second = (json.loads((folder / "numbers.json").read_text(encoding="utf-8")) for folder in (bundle, again))
    except (OSError, ValueError):
        raise StoreError(f"{bundle}: is not a bundle (no readable numbers.json). Type: sweep paper STORE -o FOLDER.") from None
    found = []
    for name in sorted({*first, *second}):
        if name not in first or name not in second:
            found.append(f"numbers: {name} is in one of the two only")
        elif not _same(first[name]["value"], second[name]["value"]):
            found.append(f"numbers: {name} was {first[name]['value']}, is {second[name]['value']}")
    files = sorted({path.name for folder in (bundle, again) for path in (folder / "data").glob("*.csv")})
    for name in files:
        old, new = bundle / "data" / name, again / "data" / name
        if not old.is_file() or not new.is_file():
            found.append(f"data/{name}: is in one of the two only")
        else:
            found += [f"data/{name}: {text}" for text in _differences(pd.read_csv(old), pd.read_csv(new))]
    return found


def settings_of(bundle):
    """``at`` and ``allow`` that a bundle was made with."""
    try:
        content = json.loads((Path(bundle) / "provenance.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise StoreError(f"{bundle}: is not a bundle (no readable provenance.json). Type: sweep paper STORE -o FOLDER.") from None
    return selections.parse_at(content["at"]), content["allow"]


def methods(ds):
    """The paragraph on how the numbers came about, in LaTeX."""
    from . import drawings

    spec, attrs = selections.spec_of(ds), ds.attrs
    axes = [f"{latex.escape(str(dim).replace('_', ' '))} ({ds.sizes[dim]})" for dim in ds.dims]
    text = (
        f"Step times and required port speeds were computed with overlap-sweep {_version(ds)}~\\cite{{overlapsweep}}, an analytical model of "
        "communication under compute whose closed forms are held against an event simulation. "
        "Work and memory of a transformer follow \\cite{narayanan2021,korthikanti2023}, sharding \\cite{rajbhandari2020}, collectives an "
        "alpha-beta law over the tiers of the network \\cite{thakur2005}, and gradients are reduced in buckets in the order of their "
        "production \\cite{li2020ddp}: exposed time is the largest of ready times plus the services that follow. "
    )
    spanned = " $\\times$ ".join(axes)
    text += f"The sweep spans {spanned} points, evaluated in {attrs.get('precision', 'float64')}. "
    fixed = selections.settings(ds)
    if "efficiency" in fixed:
        text += f"The fraction of peak achieved while computing was set to {latex.number(float(fixed['efficiency']))}. "
    text += latex.escape(drawings.conventions(ds)) + " "
    named = [f"{latex.escape(name)} ({latex.escape(source)})" if source else latex.escape(name) for _, name, source in recipes.sources(spec)]
    if named:
        text += f"Models and machines: {'; '.join(named)}. "
    hashes = [f"{word} \\texttt{{{attrs[key][:12]}}}" for word, key in (("spec", "spec_sha256"), ("model", "model_sha256")) if attrs.get(key)]
    text += f"Content hashes: {', '.join(hashes)}; {latex.escape(attrs.get('versions', ''))}." if hashes else ""
    return "% needs \\usepackage{siunitx}\n" + text.strip()


def _assignments(at):
    """A slice as the command line writes it."""
    texts = []
    for name, label in (at or {}).items():
        text = f"{label[0]:g}..{label[1]:g}" if isinstance(label, tuple) else ",".join(map(str, label)) if isinstance(label, list) else str(label)
        texts.append(f"{name}={text}")
    return texts


def _data(drawing):
    """A figure's numbers as rows."""
    data = drawing.data
    if not data.dims:
        return pd.DataFrame([{str(name): array.item() for name, array in data.data_vars.items()}])
    frame = data.to_dataframe().reset_index()
    return frame[[*data.dims, *(name for name in frame.columns if name not in data.dims)]]


def _differences(old, new):
    if old.columns.tolist() != new.columns.tolist() or len(old) != len(new):
        return [f"{len(new)} rows of {', '.join(new.columns)} where there were {len(old)} of {', '.join(old.columns)}"]
    found = []
    for name in old.columns:
        if old[name].dtype.kind in "fiu" and new[name].dtype.kind in "fiu":
            apart = ~np.isclose(new[name].astype(float), old[name].astype(float), rtol=CLOSE, atol=0, equal_nan=True)
        else:
            apart = np.array([str(a) != str(b) for a, b in zip(old[name], new[name])])
        if apart.any():
            row = int(np.argmax(apart))
            found.append(f"{name} differs in {int(apart.sum())} rows, first in row {row + 1}: was {old[name][row]}, is {new[name][row]}")
    return found


def _same(a, b):
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return math.isclose(a, b, rel_tol=CLOSE)
    return a == b


def _number(name, value, unit, what):
    return {"name": latex.macro(name), "value": value, "unit": unit, "what": what}


def _macro(number):
    value, unit = number["value"], latex.UNITS.get(number["unit"], "")
    if isinstance(value, float) and not math.isfinite(value):
        shown = "--" if math.isnan(value) else "\\ensuremath{\\infty}"
    else:
        shown = f"\\qty{{{latex.number(value)}}}{{{unit}}}" if unit else f"\\num{{{latex.number(value)}}}"
    return f"\\newcommand{{\\{number['name']}}}{{{shown}}} % {number['what']}"


def _config(ds, folder, results):
    """Write the config; True if the sweep can be run again from it."""
    spec = selections.spec_of(ds)
    if "axes" not in spec or "outputs" not in spec:
        results.append(("configs", "the dataset does not carry its spec, so make check is left out"))
        return False
    try:
        path = recipes.write(spec, folder, json.loads(ds.attrs.get("store_options") or "{}"))
    except SweepError as reason:
        results.append(("configs", str(reason)))
        return False
    results.append(("configs", str(path)))
    return True


def _makefile(drawn, rerun):
    parts = ["SWEEP ?= sweep", "", ".PHONY: all check clean", "", "all: " + ("check" if rerun else "paper.pdf"), ""]
    if rerun:
        parts += [
            "# Runs the sweep again and compares every number and every figure's data with those here.",
            "check:",
            "\t$(SWEEP) run configs/sweep.yaml -o rerun.zarr",
            "\t$(SWEEP) paper rerun.zarr -o rerun --against .",
            "",
        ]
    figures = " ".join(f"figures/{name}.pdf" for name in drawn)
    parts += [
        f"paper.pdf: paper.tex captions.tex numbers.tex methods.tex references.bib {figures}",
        "\tpdflatex -interaction=nonstopmode -halt-on-error paper",
        "\tbibtex paper",
        "\tpdflatex -interaction=nonstopmode -halt-on-error paper",
        "\tpdflatex -interaction=nonstopmode -halt-on-error paper",
        "",
        "clean:",
        "\trm -rf rerun rerun.zarr paper.pdf paper.aux paper.log paper.bbl paper.blg",
    ]
    return "\n".join(parts)


def _document(drawn):
    figures = "\n".join(
        f"\\begin{{figure}}\n  \\centering\n  \\includegraphics[width=\\linewidth]{{figures/{name}.pdf}}\n"
        f"  \\caption{{\\caption{latex.macro(name).title()}}}\n\\end{{figure}}"
        for name in drawn
    )
    return (
        "\\documentclass[10pt,twocolumn]{article}\n\\usepackage[utf8]{inputenc}\n\\usepackage[T1]{fontenc}\n"
        "\\usepackage{graphicx,booktabs,siunitx}\n\\DeclareSIUnit\\flop{FLOP}\n\\input{captions}\n\\input{numbers}\n\\begin{document}\n"
        "\\section*{Methods}\n\\input{methods}\n\nOf \\sweepPoints{} points, \\sweepPointsValid{} count.\n\n"
        f"{figures}\n\n\\bibliographystyle{{plain}}\n\\bibliography{{references}}\n\\end{{document}}"
    )


def _origin(ds):
    from .exports import _origin

    content = _origin(ds)
    return {key: value for key, value in content.items() if key not in ("store", "created")}


def _version(ds):
    from . import __version__

    versions = dict(part.rpartition(" ")[::2] for part in str(ds.attrs.get("versions", "")).split(", "))
    return versions.get("overlap-sweep", __version__)


def _write(path, text):
    path.write_text(text.rstrip("\n") + "\n", encoding="utf-8")
