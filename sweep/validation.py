"""Hold the model against every measured run that can be predicted, and say how it did.

``validate`` predicts all usable rows with the presets as they are and returns a ``Report``: errors by source, accelerator and
family (fit and test apart), targets, worst rows by name, order of pairs, the cost of the choice it would make, growth with the
number of accelerators, intervals, yardsticks, and every row that cannot be used with its reason.
Leave-one-source-out needs fits, so it is made by ``sweep calibrate --stacks`` and read from configs/validation.json.
"""

import csv
import io
import json
from collections import Counter, defaultdict
from typing import NamedTuple

import numpy as np

from . import predictions, runs, scores, targets

NOT_USABLE = 0.10  # of a family; more is said


class Report(NamedTuple):
    """What ``validate`` found.  ``rows``: one dict a usable run; ``figures``: everything else, plain numbers and words."""

    rows: list
    figures: dict


def validate(path=None):
    """The ``Report`` of a CSV of runs (None: the project's own collection)."""
    everything = runs.read_runs(path)
    usable = runs.usable(everything)
    predicted = predictions.predict(usable)
    error = scores.errors(usable, predicted)
    fit = np.array([run.split == "fit" for run in usable])
    half = scores.spread([r for r, f in zip(usable, fit) if f], error[fit])
    covered, width = scores.inside(usable, predicted, half)
    rows = [{"id": run.id, "source": run.source, "family": run.family, "split": run.split, "stack": run.stack, "recipe": run.recipe,
             "gpus": run.inputs["gpus"], "measured_s": run.step_s, "predicted_s": float(p), "error": float(e),
             "interval_low_s": float(p * np.exp(-w)), "interval_high_s": float(p * np.exp(w)), "assumed": " ".join(run.assumed)}
            for run, p, e, w in zip(usable, predicted, error, width)]
    figures = {
        "rows": {"read": len(everything), "usable": sum(run.usable for run in everything), "distinct": len(usable)},
        "by_source": _by(usable, error, lambda run: (run.source, run.accelerator, run.split)),
        "by_family": _by(usable, error, lambda run: (run.family, run.split)),
        "targets": [dict(zip(("rows", "statistic", "limit", "count", "value", "reached", "others"), row)) for row in targets.judge(usable, predicted)],
        "worst": _worst(usable, error),
        "order": _order(usable, predicted),
        "choice": _choice(usable, predicted),
        "growth": [dict(zip(("first", "last", "from_gpus", "to_gpus", "measured", "predicted"), row)) for row in scores.growth(usable, predicted)],
        "yardsticks": _yardsticks(usable, predicted),
        "interval": _interval(usable, predicted, fit, half, covered),
        "not_usable": _not_usable(everything),
        "left_out": stored().get("left_out", {}),
    }
    return Report(rows, figures)


def stored():
    """The figures kept in the repository (configs/validation.json); an empty mapping where there are none."""
    try:
        path = runs.data_path("training_runs.csv").parent.parent / "validation.json"
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def kept(report):
    """The figures that the repository keeps and CI compares: targets, errors by source and family, order, growth, intervals, yardsticks."""
    return {name: report.figures[name] for name in ("rows", "targets", "by_source", "by_family", "order", "choice", "growth", "interval", "yardsticks", "not_usable")}


def half_width(run_like, level=0.8):
    """Half-width (of the logarithm of the step time) of an interval for a design like ``run_like``, from the figures kept."""
    half = stored().get("interval", {}).get("half_width", {})
    return half.get(scores.family(run_like), half.get("all", float("nan")))


def _by(usable, error, key):
    groups = defaultdict(list)
    for k, run in enumerate(usable):
        groups[" | ".join(key(run))].append(k)
    return {name: scores.summary(error[index]) for name, index in sorted(groups.items())}


def _worst(usable, error, count=15):
    order = np.argsort(-np.abs(error))
    return [{"id": usable[k].id, "split": usable[k].split, "error": float(error[k]), "source": usable[k].source} for k in order[:count]]


def _order(usable, predicted):
    found = {}
    for name in sorted({run.family for run in usable}):
        index = [k for k, run in enumerate(usable) if run.family == name and run.split == "test"]
        if len(index) < 10:
            continue
        mine, seconds = [usable[k] for k in index], predicted[index]
        share, pairs = scores.ordered(mine, seconds)
        strict, few = scores.ordered(mine, seconds, within=lambda run: (run.inputs["layers"], run.inputs["hidden"], run.inputs["seq_len"]))
        found[name] = {"rows": len(index), "pairs": pairs, "right": share, "pairs_of_one_model": few, "right_of_one_model": strict, "reached": bool(share >= targets.PAIRS)}
    return found


def _choice(usable, predicted):
    costs = scores.choice(usable, predicted)
    return {"tasks": len(costs), "best_chosen": float(np.mean([c == 0 for c in costs])), "mean_cost": float(np.mean(costs)), "worst_cost": float(np.max(costs))} if costs else {}


def _yardsticks(usable, predicted):
    """Median and mean absolute error of unseen rows: the model, a constant fraction of peak, the nearest fit row's efficiency."""
    fit = [run for run in usable if run.split == "fit"]
    index = [k for k, run in enumerate(usable) if run.split == "test"]
    test = [usable[k] for k in index]
    rivals = {"model": predicted[index], "constant fraction of peak": scores.constant_fraction(fit, test), "nearest fit row": scores.nearest(fit, test)}
    out = {}
    for source in ["all", *sorted({run.source for run in test})]:
        pick = np.array([source in ("all", run.source) for run in test])
        mine = [run for run, p in zip(test, pick) if p]
        line = {"rows": len(mine)}
        for name, seconds in rivals.items():
            size = np.abs(scores.errors(mine, seconds[pick]))
            size = size[np.isfinite(size)]
            line[name] = {"median": float(np.median(size)), "mean": float(np.mean(size))} if len(size) else {}
        out[source] = line
    return out


def _interval(usable, predicted, fit, half, covered):
    """Coverage of the 80 % interval on unseen rows by family, and its width beside that of a constant fraction of peak."""
    test = ~fit
    rows = [run for run, t in zip(usable, test) if t]
    seen = [run for run, f in zip(usable, fit) if f]
    flat = scores.spread(seen, scores.errors(seen, scores.constant_fraction(seen, seen)))
    out = {"half_width": half, "coverage": float(np.mean(covered[test])), "families": {}}
    widths = []
    for name in sorted({scores.family(run) for run in rows}):
        mine = np.array([scores.family(run) == name for run in rows])
        out["families"][name] = {"rows": int(mine.sum()), "coverage": float(np.mean(covered[test][mine])), "half_width": half.get(name, half["all"]),
                                 "constant_fraction_half_width": flat.get(name, flat["all"])}
        widths.append((int(mine.sum()), half.get(name, half["all"]), flat.get(name, flat["all"])))
    count = sum(n for n, *_ in widths)
    out["mean_half_width"] = sum(n * w for n, w, _ in widths) / count
    out["constant_fraction_mean_half_width"] = sum(n * w for n, _, w in widths) / count
    return out


def _not_usable(everything):
    total = Counter(run.family for run in everything)
    bad = defaultdict(Counter)
    for run in everything:
        if not run.usable:
            bad[run.family][run.reason] += 1
    return {name: {"rows": total[name], "not_usable": sum(why.values()), "share": sum(why.values()) / total[name], "reasons": dict(why.most_common()),
                   "above_limit": sum(why.values()) > NOT_USABLE * total[name]} for name, why in sorted(bad.items())}


# -- what is printed ----------------------------------------------------------------------------------------------------------


def to_csv(report):
    """The rows as CSV."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(report.rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in report.rows:
        writer.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()})
    return out.getvalue()


def to_markdown(report):
    """The figures as tables."""
    f = report.figures
    lines = ["# The model against measured runs", "", f"{f['rows']['read']} rows read, {f['rows']['usable']} usable, {f['rows']['distinct']} distinct configurations.", ""]
    lines += ["## Targets, on rows that no fit saw", ""]
    lines += _table(("rows", "count", "statistic", "target", "reached", "", "others"),
                    [(t["rows"], t["count"], t["statistic"], _percent(t["limit"]), _percent(t["value"]), {True: "yes", False: "no", None: "no unseen rows"}[t["reached"]], t["others"])
                     for t in f["targets"]])
    lines += ["", "## Step time by source", ""]
    lines += _table(("source", "accelerator", "split", "rows", "bias", "median", "mean", "worst"),
                    [(*name.split(" | "), s["rows"], _signed(s["bias"]), _percent(s["median"]), _percent(s["mean"]), _percent(s["worst"])) for name, s in f["by_source"].items()])
    lines += ["", "## By family", ""]
    lines += _table(("family", "split", "rows", "bias", "median", "mean", "worst"),
                    [(*name.split(" | "), s["rows"], _signed(s["bias"]), _percent(s["median"]), _percent(s["mean"]), _percent(s["worst"])) for name, s in f["by_family"].items()])
    lines += ["", "## Yardsticks, unseen rows, median (mean) absolute error", ""]
    lines += _table(("source", "rows", "model", "constant fraction of peak", "nearest fit row"),
                    [(name, s["rows"], *(f"{_percent(s[k].get('median'))} ({_percent(s[k].get('mean'))})" for k in ("model", "constant fraction of peak", "nearest fit row")))
                     for name, s in f["yardsticks"].items()])
    lines += ["", "## Pairs more than 10 % apart, ordered right (unseen rows; in brackets pairs of one model and sequence)", ""]
    lines += _table(("family", "rows", "pairs", "right", "of one model"),
                    [(name, s["rows"], s["pairs"], _percent(s["right"]), f"{_percent(s['right_of_one_model'])} of {s['pairs_of_one_model']}") for name, s in f["order"].items()])
    if f["choice"]:
        c = f["choice"]
        lines += ["", f"Choosing among the measured layouts of one task ({c['tasks']} tasks): the best is chosen in {_percent(c['best_chosen'])}, the choice costs "
                  f"{_percent(c['mean_cost'])} on average and {_percent(c['worst_cost'])} at worst."]
    lines += ["", "## Weak scaling", ""]
    lines += _table(("first", "last", "GPUs", "measured growth", "predicted growth"),
                    [(g["first"], g["last"], f"{g['from_gpus']} to {g['to_gpus']}", _signed(g["measured"]), _signed(g["predicted"])) for g in f["growth"]])
    i = f["interval"]
    lines += ["", "## Interval of 80 %", "", f"{_percent(i['coverage'])} of unseen rows inside; mean half-width {_percent(i['mean_half_width'])} "
              f"(a constant fraction of peak: {_percent(i['constant_fraction_mean_half_width'])}).", ""]
    lines += _table(("family", "rows", "inside", "half-width", "constant fraction of peak"),
                    [(name, s["rows"], _percent(s["coverage"]), _percent(s["half_width"]), _percent(s["constant_fraction_half_width"])) for name, s in i["families"].items()])
    if f["left_out"]:
        lines += ["", "## Leave one source out", ""]
        lines += _table(("source", "rows", "bias", "median", "mean", "worst"),
                        [(name, s["rows"], _signed(s["bias"]), _percent(s["median"]), _percent(s["mean"]), _percent(s["worst"])) for name, s in f["left_out"].items()])
    lines += ["", "## Worst rows", ""]
    lines += _table(("id", "split", "error", "source"), [(w["id"], w["split"], _signed(w["error"]), w["source"]) for w in f["worst"]])
    lines += ["", "## Rows not usable", ""]
    lines += _table(("family", "rows", "not usable", "reasons"),
                    [(name, s["rows"], f"{s['not_usable']} ({_percent(s['share'])})", "; ".join(f"{why} ({n})" for why, n in s["reasons"].items())) for name, s in f["not_usable"].items()])
    return "\n".join(lines) + "\n"


def _table(head, rows):
    return ["| " + " | ".join(str(c) for c in line) + " |" for line in (head, ["---"] * len(head), *rows)]


def _percent(value):
    return "" if value is None or not np.isfinite(value) else f"{100 * value:.1f} %"


def _signed(value):
    return f"{100 * value:+.1f} %"
