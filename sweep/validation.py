"""Hold the model against every measured run that can be predicted, and say how it did.

``validate`` predicts all usable rows with the presets as they are and returns a ``Report``: errors by source, accelerator and
family (fit and test apart), targets, worst rows by name, order of pairs, the cost of the choice it would make, growth with the
number of accelerators, intervals, yardsticks, and every row that cannot be used with its reason.
Leave-one-source-out needs fits, so it is made by ``sweep calibrate --stacks`` and read from configs/validation.json.
"""

import json
from collections import Counter, defaultdict
from typing import NamedTuple

import numpy as np

from . import differences, leverages, predictions, runs, scores, targets

LEVELS = (50, 80, 90, 95)  # of the intervals kept, in per cent
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
    seen = [run for run, f in zip(usable, fit) if f]
    held = leverages.leverages(seen)
    half = scores.spread(seen, error[fit], leverage=held)
    covered, width = scores.inside(usable, predicted, half)
    rows = [
        {
            "id": run.id,
            "source": run.source,
            "family": run.family,
            "split": run.split,
            "stack": run.stack,
            "recipe": run.recipe,
            "gpus": run.inputs["gpus"],
            "measured_s": run.step_s,
            "predicted_s": float(p),
            "error": float(e),
            "interval_low_s": float(p * np.exp(-w)),
            "interval_high_s": float(p * np.exp(w)),
            "assumed": " ".join(run.assumed),
        }
        for run, p, e, w in zip(usable, predicted, error, width)
    ]
    figures = {
        "rows": {"read": len(everything), "usable": sum(run.usable for run in everything), "distinct": len(usable)},
        "by_source": _by(usable, error, lambda run: (run.source, run.accelerator, run.split)),
        "by_family": _by(usable, error, lambda run: (run.family, run.split)),
        "targets": [
            dict(zip(("rows", "statistic", "limit", "count", "value", "reached", "others"), row))
            for row in targets.judge(usable, predicted)
        ],
        "worst": _worst(usable, error),
        "order": _order(usable, predicted),
        "choice": _choice(usable, predicted),
        "growth": [
            dict(zip(("first", "last", "from_gpus", "to_gpus", "measured", "predicted"), row))
            for row in scores.growth(usable, predicted)
        ],
        "yardsticks": _yardsticks(usable, predicted),
        "interval": _interval(usable, predicted, fit, half, covered, held),
        "not_usable": _not_usable(everything),
        "overlap": [c._asdict() for c in differences.contrasts()] if path is None else [],
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
    return {
        name: report.figures[name]
        for name in (
            "rows",
            "targets",
            "by_source",
            "by_family",
            "order",
            "choice",
            "growth",
            "interval",
            "yardsticks",
            "overlap",
            "not_usable",
        )
    }


def _by(usable, error, key):
    groups = defaultdict(list)
    for k, run in enumerate(usable):
        groups[" | ".join(key(run))].append(k)
    return {name: scores.summary(error[index]) for name, index in sorted(groups.items())}


def _worst(usable, error, count=15):
    order = np.argsort(-np.abs(error))
    return [
        {"id": usable[k].id, "split": usable[k].split, "error": float(error[k]), "source": usable[k].source}
        for k in order[:count]
    ]


def _order(usable, predicted):
    found = {}
    for name in sorted({run.family for run in usable}):
        index = [k for k, run in enumerate(usable) if run.family == name and run.split == "test"]
        if len(index) < 10:
            continue
        mine, seconds = [usable[k] for k in index], predicted[index]
        share, pairs = scores.ordered(mine, seconds)
        strict, few = scores.ordered(
            mine, seconds, within=lambda run: (run.inputs["layers"], run.inputs["hidden"], run.inputs["seq_len"])
        )
        found[name] = {
            "rows": len(index),
            "pairs": pairs,
            "right": share,
            "pairs_of_one_model": few,
            "right_of_one_model": strict,
            "reached": bool(share >= targets.PAIRS),
        }
    return found


def _choice(usable, predicted):
    costs = scores.choice(usable, predicted)
    return (
        {
            "tasks": len(costs),
            "best_chosen": float(np.mean([c == 0 for c in costs])),
            "mean_cost": float(np.mean(costs)),
            "worst_cost": float(np.max(costs)),
        }
        if costs
        else {}
    )


def _yardsticks(usable, predicted):
    """Median and mean absolute error of unseen rows: the model, a constant fraction of peak, the nearest fit row's efficiency."""
    fit = [run for run in usable if run.split == "fit"]
    index = [k for k, run in enumerate(usable) if run.split == "test"]
    test = [usable[k] for k in index]
    rivals = {
        "model": predicted[index],
        "constant fraction of peak": scores.constant_fraction(fit, test),
        "nearest fit row": scores.nearest(fit, test),
    }
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


def _interval(usable, predicted, fit, half, covered, held):
    """Coverage of the 80 % interval on unseen rows by family, and its width beside that of a constant fraction of peak."""
    test = ~fit
    rows = [run for run, t in zip(usable, test) if t]
    seen = [run for run, f in zip(usable, fit) if f]
    flat = scores.spread(seen, scores.errors(seen, scores.constant_fraction(seen, seen)))
    error = scores.errors(seen, predicted[fit])
    levels = {str(level): scores.spread(seen, error, level / 100, held) for level in LEVELS}
    rested = Counter(name for run in seen for name in (scores.family(run), "all"))
    residuals = {name: rested[name] for name in half}
    out = {"half_width": half, "levels": levels, "residuals": residuals, "coverage": float(np.mean(covered[test])), "families": {}}
    widths = []
    for name in sorted({scores.family(run) for run in rows}):
        mine = np.array([scores.family(run) == name for run in rows])
        out["families"][name] = {
            "rows": int(mine.sum()),
            "coverage": float(np.mean(covered[test][mine])),
            "half_width": half.get(name, half["all"]),
            "constant_fraction_half_width": flat.get(name, flat["all"]),
        }
        widths.append((int(mine.sum()), half.get(name, half["all"]), flat.get(name, flat["all"])))
    count = sum(n for n, *_ in widths)
    out["mean_half_width"] = sum(n * w for n, w, _ in widths) / count
    out["constant_fraction_mean_half_width"] = sum(n * w for n, _, w in widths) / count
    return out


def _share(total, why):
    """Share not usable of the rows whose architecture the model describes."""
    outside = sum(n for reason, n in why.items() if "outside the model" in reason)
    return (sum(why.values()) - outside) / (total - outside) if total > outside else 0.0


def _not_usable(everything):
    total = Counter(run.family for run in everything)
    bad = defaultdict(Counter)
    for run in everything:
        if not run.usable:
            bad[run.family][run.reason] += 1
    return {
        name: {
            "rows": total[name],
            "not_usable": sum(why.values()),
            "share": sum(why.values()) / total[name],
            "share_of_the_describable": _share(total[name], why),
            "reasons": dict(why.most_common()),
            "above_limit": sum(why.values()) > NOT_USABLE * total[name],
        }
        for name, why in sorted(bad.items())
    }
