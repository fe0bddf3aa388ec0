"""How good predictions of measured runs are: errors, order, growth, the choice they lead to, yardsticks and intervals.

All functions take runs (``runs.Run``) and arrays of seconds beside them.  Errors are predicted / measured - 1.
"""

from collections import defaultdict

import numpy as np

from .coefficients import generation
from .runs import flop_per_token

PEAKS = {
    "v100": 125,
    "ampere": 312,
    "hopper": 989,
    "blackwell": 2250,
    "tpu": 459,
}  # 16-bit TFLOP/s, for the yardsticks only


def errors(runs, predicted):
    """Relative errors of the step time."""
    measured = np.array([run.step_s for run in runs])
    return np.asarray(predicted) / measured - 1


def summary(error):
    """Rows, bias (median), median, mean and largest absolute error."""
    size = np.abs(error)
    return {
        "rows": len(error),
        "bias": float(np.median(error)),
        "median": float(np.median(size)),
        "mean": float(np.mean(size)),
        "worst": float(np.max(size)),
    }


def ordered(runs, predicted, apart=0.10, within=None):
    """Share of pairs more than ``apart`` different in measured step time that the prediction orders right, and the number of pairs.

    ``within``: a function of a run; only pairs of one value are compared (None: all).
    """
    right = pairs = 0
    groups = defaultdict(list)
    for k, run in enumerate(runs):
        groups[within(run) if within else None].append(k)
    measured = np.array([run.step_s for run in runs])
    predicted = np.asarray(predicted)
    for members in groups.values():
        index = np.array(members)
        ratio = np.log(measured[index][:, None] / measured[index][None, :])
        guess = np.log(predicted[index][:, None] / predicted[index][None, :])
        upper = np.triu(np.ones_like(ratio, dtype=bool), 1) & (np.abs(ratio) > np.log1p(apart))
        pairs += int(upper.sum())
        right += int((np.sign(ratio) == np.sign(guess))[upper].sum())
    return (right / pairs if pairs else float("nan")), pairs


def task(run):
    """What two runs must share to be alternatives: model, sequence, machine, size and batch."""
    i = run.inputs
    return (
        run.source,
        run.accelerator,
        i["layers"],
        i["hidden"],
        i["seq_len"],
        i["gpus"],
        i["global_batch"],
        run.recipe,
    )


def choice(runs, predicted):
    """Cost of the configuration that the prediction would choose over the best measured, for each task of several runs: a list."""
    groups = defaultdict(list)
    for run, seconds in zip(runs, predicted):
        groups[task(run)].append((seconds, run.step_s))
    return [min(group)[1] / min(m for _, m in group) - 1 for group in groups.values() if len(group) > 1]


def growth(runs, predicted):
    """Weak scaling: (name, from, to, measured growth, predicted growth) of runs that differ in accelerators and batch alone."""
    groups = defaultdict(list)
    for run, seconds in zip(runs, predicted):
        i = run.inputs
        same = {
            k: v for k, v in i.items() if k not in ("gpus", "global_batch", "bucket_bytes", "shard_group", "node_limit")
        }
        groups[
            (
                run.source,
                run.accelerator,
                run.recipe,
                run.variant,
                i["global_batch"] / i["gpus"],
                tuple(sorted(same.items())),
            )
        ].append((i["gpus"], run, seconds))
    found = []
    for group in groups.values():
        sizes = sorted({gpus for gpus, *_ in group})
        if len(sizes) < 2:
            continue
        group.sort(key=lambda item: item[0])
        (few, first, low), (many, last, high) = group[0], group[-1]
        found.append((first.id, last.id, few, many, last.step_s / first.step_s - 1, high / low - 1))
    return found


# -- yardsticks ---------------------------------------------------------------------------------------------------------------


def model_seconds(run):
    """Seconds of a run's model FLOP at the 16-bit peak of its generation (any constant would do: yardsticks scale it)."""
    i = run.inputs
    peak = PEAKS.get(generation(run.accelerator), 989) * 1e12
    return (
        i["global_batch"]
        * i["seq_len"]
        * flop_per_token(i)
        * (4 / 3 if i["recompute"] == "full" else 1)
        / i["gpus"]
        / peak
    )


def constant_fraction(fit, runs):
    """Predicted seconds at one fraction of peak, the median of the fit rows of the same source, accelerator and precision.

    Where a source has no fit row: of its family and precision, else of its family, else of all.
    """
    shares = defaultdict(list)
    for run in fit:
        share = model_seconds(run) / run.step_s
        for key in _levels(run):
            shares[key].append(share)
    pick = lambda run: next(np.median(shares[key]) for key in _levels(run) if shares.get(key))
    return np.array([model_seconds(run) / pick(run) for run in runs])


def _levels(run):
    return (run.source, run.family, run.recipe), (run.family, run.recipe), run.family, None


def nearest(fit, runs):
    """Predicted seconds at the fraction of peak of the nearest fit row of the same accelerator (logarithms of shape and layout)."""

    def features(run):
        i = run.inputs
        names = ("hidden", "layers", "seq_len", "gpus", "tp", "pp", "micro_batch", "global_batch")
        return np.log([i[name] for name in names]), run.recipe

    known = [(run, *features(run)) for run in fit]
    out = []
    for run in runs:
        here, recipe = features(run)
        close = [
            (np.abs(here - there).sum() + 3 * (recipe != other) + 5 * (run.accelerator != row.accelerator), row)
            for row, there, other in known
            if generation(row.accelerator) == generation(run.accelerator)
        ]
        if not close:
            out.append(float("nan"))
            continue
        row = min(close, key=lambda item: item[0])[1]
        out.append(model_seconds(run) * row.step_s / model_seconds(row))
    return np.array(out)


# -- intervals ----------------------------------------------------------------------------------------------------------------


LEAST = 8  # residuals of a family that has a width of its own


def family(run):
    """Family of an interval: generation, dense or MoE, and host-bound (few tokens of a small model) or not."""
    i = run.inputs
    small = i["hidden"] * i["micro_batch"] * i["seq_len"] / i.get("tp", 1) < 6e6
    return f"{generation(run.accelerator)} {run.family.split()[-1]}{' host-bound' if small else ''}"


def spread(runs, error, level=0.8, leverage=None):
    """family -> half-width (in log) that holds ``level`` of its errors; "all" for families too small to have their own.

    ``error`` are those of rows that the fit saw; ``leverage`` (leverages.py) turns each into what the row would have shown had it
    been left out.  The quantile is that of split conformal prediction, the ceil((n + 1) level)-th of n, so that the next row is held too.
    """
    groups = defaultdict(list)
    left = np.zeros(len(runs)) if leverage is None else leverage
    for run, e, h in zip(runs, error, left):
        size = abs(np.log1p(e)) / (1 - h)
        groups[family(run)].append(size)
        groups["all"].append(size)
    half = {}
    for name, values in groups.items():
        if len(values) >= LEAST:
            half[name] = float(np.sort(values)[min(len(values), int(np.ceil((len(values) + 1) * level))) - 1])
    return half


def inside(runs, predicted, half):
    """Whether each measured time lies in the interval about its prediction."""
    width = np.array([half.get(family(run), half["all"]) for run in runs])
    measured = np.array([run.step_s for run in runs])
    return np.abs(np.log(measured / np.asarray(predicted))) <= width, width
