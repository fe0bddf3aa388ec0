"""What ``sweep calibrate`` does: read, fit, write a preset, and say how good it is."""

import os
from pathlib import Path

import numpy as np

from . import calibration, curves, nccl_logs, predictions, presets, runs, scores
from .coefficients import STACKS
from .errors import SweepError


def from_logs(paths, name, accelerator=None, link_gbps=None, collective=None, ranks=None, say=print):
    """Fit a fabric preset ``name`` to logs of nccl-tests; returns what was found as text."""
    found, lines = [], []
    for path in paths:
        log = nccl_logs.read_log(path, collective, ranks)
        ignored = ", ".join(f"{count} {why}" for why, count in sorted(log.ignored.items()))
        say(
            f"{path}: {log.rows} rows in {len(log.curves)} tables of {log.lines} lines{'; ignored: ' + ignored if ignored else ''}"
        )
        for curve in log.curves:
            if not curve.ranks:
                raise SweepError(f"{path}: the log does not say how many ranks ran. Give --ranks.")
            found.append(curve._replace(nodes=curve.nodes or 1))
    if not found:
        raise SweepError(
            f"{', '.join(map(str, paths))}: no row of nccl-tests. Give the output of all_reduce_perf and its kin."
        )
    source = "sweep calibrate " + " ".join(os.path.basename(str(path)) for path in paths)
    entry = calibration.fabric_entry(found, accelerator, link_gbps, source)
    path = presets.write_presets("fabric", {name: calibration._plain(entry)})
    scored = curves.score_sizes(found)
    for kind, k in (("from 1 MiB up", 1), ("below", 2)):
        errors = np.concatenate([row[k] for row in scored]) if scored else np.zeros(0)
        if len(errors):
            lines.append(f"held-out sizes {kind}: median error {100 * np.median(errors):.1f} % of {len(errors)} points")
    numbers = ", ".join(f"{key} {value:g}" for key, value in entry.items() if isinstance(value, float | int))
    return "\n".join([f"fabric {name}: {numbers}", *lines, f"written: {path}"])


def from_runs(path, name, say=print):
    """Fit a stack preset ``name`` to a CSV of own runs (rows with split = test are kept for the score); returns text."""
    everything = runs.read_runs(path)
    for run in everything:
        if not run.usable:
            say(f"{path}: {run.id} not used: {run.reason}")
    mine = [run._replace(stack=name, fabric="") for run in runs.usable(everything)]
    rows = [run for run in mine if run.split != "test"]
    table = STACKS[name][1] if name in STACKS else STACKS["megatron-core-2024"][1]
    fit = calibration.fit_stack(name, rows, table)
    where = presets.write_presets("stack", {name: calibration._plain(calibration.entry(fit))})
    lines = [
        f"stack {name}: " + ", ".join(f"{k} {v:g}" for k, v in fit.values.items()),
        _errors("rows fitted", fit.errors),
    ]
    test = [run for run in mine if run.split == "test"]
    if test:
        lines.append(_errors("rows kept for the test", scores.errors(test, predictions.predict(test))))
    return "\n".join([*lines, f"written: {where}"])


def published_fabrics(say=print):
    """Refit the fabrics of the published runs and score the law on held-out sizes and curves; returns text."""
    where = calibration.write_networks()
    published = curves.read_curves()
    lines = []
    for name, rows in (
        ("sizes", curves.score_sizes(published)),
        ("curves of a known fabric", curves.score_curves(published)),
    ):
        for kind, k in (("from 1 MiB up", 1), ("below", 2)):
            errors = np.concatenate([row[k] for row in rows])
            lines.append(
                f"held-out {name} {kind}: median error {100 * np.median(errors):.1f} % of {len(errors)} points"
            )
    alone = sorted({c.fabric for c in published} - {row[0].fabric for row in curves.score_curves(published)})
    return "\n".join(
        [*lines, f"fabrics with one curve of a kind, listed and not scored: {', '.join(alone)}", f"written: {where}"]
    )


def published_stacks(say=print, folder="configs"):
    """Refit every stack, leave one source out, write presets and configs/validation.json; returns text."""
    from . import validation

    everything = runs.read_runs()
    fits, lines = {}, []
    for name in STACKS:
        if any(run.stack == name and run.split == "fit" and run.usable for run in everything):
            fits |= calibration.fit_stacks(everything, [name])
            lines.append(f"{name}: {_errors(f'{fits[name].rows} rows', fits[name].errors)}")
            say(lines[-1])
    for name, like in LIKE.items():
        fits[name] = fits[like]._replace(stack=name)
    calibration.write_stacks(fits, folder)
    say("leaving one source out ...")
    rows = [run for run in runs.usable(everything) if run.split == "fit"]
    held = calibration.leave_one_source_out(everything)
    left_out = {}
    for source in sorted({run.source for run in rows}):
        mine = [run for run in rows if run.source == source and run.id in held]
        if mine:
            left_out[source] = scores.summary(scores.errors(mine, [held[run.id] for run in mine]))
    report = validation.validate()
    figures = validation.kept(report) | {
        "left_out": left_out,
        "correlation": {name: _correlation(name, fit) for name, fit in fits.items() if name not in LIKE},
    }
    path = Path(folder) / "validation.json"
    calibration.write_json(path, figures)
    return "\n".join([*lines, f"written: {path}"])


LIKE = {"megatron-bridge-nvfp4": "megatron-bridge-mxfp8"}
"""Stacks without a row to fit on take another's coefficients."""


def _correlation(name, fit):
    """Pairs of coefficients that the rows cannot tell apart (correlation beyond 0.7)."""
    names = list(fit.values)
    return {
        f"{a} ~ {b}": float(fit.correlation[i, j])
        for i, a in enumerate(names)
        for j, b in enumerate(names)
        if j > i and abs(fit.correlation[i, j]) > 0.7
    }


def _errors(what, errors):
    size = np.abs(errors)
    return f"{what}: median error {100 * np.median(size):.1f} %, mean {100 * np.mean(size):.1f} %, largest {100 * np.max(size):.0f} %"
