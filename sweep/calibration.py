"""Calibrate: stacks from training rows, fabrics from logs of nccl-tests; write both as presets with their residuals.

``fit_stacks`` sees rows with ``split = fit`` and no other.  All stacks of one accelerator generation are independent of each
other given the accelerator, so each is fitted on its own rows: residuals are log(predicted / measured) with a robust loss in two
steps (soft L1 from 3 % on, then from there Cauchy at the median residual, so that a run 30 % slower than its like with another
micro-batch does not bend the rest), sources weighted so that one of 400 rows does not outvote one of 5, bounds and priors of
coefficients.py.  The correlation matrix of the fit is kept: unbounded, the same error comes with half the memory bandwidth.
"""

import json
import math
from collections import Counter
from typing import NamedTuple

import numpy as np

from . import curves, predictions, presets, runs
from .coefficients import ATTENTION, CASTS, EXPOSED, NETWORKS, OVERLAPPING, RATES, STACKS, by_dtype, generation
from .errors import SweepError

LOSS_SCALE = 0.03  # residuals above 3 % count less and less
STEP = 1e-3  # of a logarithm, in derivatives
EFFORT = {"max_nfev": 40, "ftol": 1e-4, "xtol": 1e-4}  # coefficients are kept to three digits
POOLED = 25  # rows of one source in a pooled fit
PRIOR = 0.03  # a prior one spread away costs as much as a row of average weight 3 % off


class Fit(NamedTuple):
    """A fitted stack: its coefficients, ``chunks`` of tensor-parallel overlap (0: not overlapped), correlation, errors of its rows."""

    stack: str
    values: dict
    chunks: int
    correlation: np.ndarray
    errors: np.ndarray
    rows: int
    sources: tuple


def fit_stacks(everything, names=None):
    """Stack name -> ``Fit`` from the rows of ``everything`` (runs) whose split is fit."""
    rows = [run for run in runs.usable(everything) if run.split in ("fit", "own")]
    wanted = names or [name for name in STACKS if any(run.stack == name for run in rows)]
    return {name: fit_stack(name, [run for run in rows if run.stack == name]) for name in wanted}


def fit_stack(name, rows, coefficients=None):
    """The ``Fit`` of one stack to ``rows``; no row may be held back for testing."""
    if any(run.split == "test" for run in rows):
        raise ValueError("a test row reached a fit")
    if not rows:
        raise SweepError(f"stack {name}: no row to fit on. Give rows with split = fit, or use another stack's preset.")
    table = coefficients or STACKS[name][1]
    tensor_parallel = any(run.inputs.get("tp", 1) > 1 for run in rows)
    best = None
    for chunks in EXPOSED if name in OVERLAPPING and tensor_parallel else (0,):
        found = _least_squares(name, rows, table, chunks)
        if best is None or found[0] < best[0]:
            best = (*found, chunks)
    _cost, values, correlation, errors, chunks = best
    return Fit(name, values, chunks, correlation, errors, len(rows), tuple(sorted({run.source for run in rows})))


def _least_squares(name, rows, table, chunks):
    from scipy.optimize import least_squares

    start = np.array([c.start for c in table])
    spread = np.array([c.spread for c in table])
    given = predictions.columns(rows, {("stack", name): {c.quantity: c.start for c in table}})
    if chunks:
        given["tp_overlap_chunks"] = np.where(given["tp"] > 1, float(chunks), 1.0)
    measured = np.array([run.step_s for run in rows])
    counts = Counter(run.source for run in rows)
    weight = np.array([1 / math.sqrt(counts[run.source]) for run in rows])
    weight *= math.sqrt(len(rows)) / math.sqrt(np.sum(weight**2))
    dtype = given.get("dtype", np.zeros(len(rows)))
    share, casts, rates = (
        np.array([table_[name] for name in ("bf16", "fp8", "fp4", "tf32")])[dtype.astype(int)]
        for table_ in (ATTENTION, CASTS, RATES)
    )

    many = {copies: {k: np.tile(v, copies) for k, v in given.items()} for copies in (1, len(table) + 1)}

    def predict(points):
        """Seconds of every row at each of ``points`` (rows of logarithms of the coefficients), all in one call."""
        columns = dict(many[len(points)])
        for c, logs in zip(table, points.T):
            value = np.exp(logs)[:, None]
            if c.quantity == "attention_efficiency":
                value = value * share
            elif c.quantity == "memory_bytes_factor":
                value = value + casts
            elif c.quantity == "gemm_half_flop":
                value = value * rates
            columns[c.quantity] = np.broadcast_to(value, (len(points), len(rows))).ravel()
        return predictions.predict_inputs(predictions.model.Inputs(**columns)).reshape(len(points), len(rows))

    def residuals(logs):
        return np.concatenate(
            (weight * np.log(predict(logs[None])[0] / measured), PRIOR * (logs - np.log(start)) / spread)
        )

    def jacobian(logs):
        step = np.where(logs + STEP > bounds[1], -STEP, STEP)
        seconds = np.log(predict(np.vstack((logs, logs + np.diag(step)))))
        return np.vstack((((seconds[1:] - seconds[0]) / step[:, None] * weight).T, np.diag(PRIOR / spread)))

    def soft(z):  # soft L1 on rows, plain squares on the priors
        root = np.sqrt(1 + z)
        return with_priors(z, 2 * (root - 1), 1 / root, -0.5 / root**3)

    def redescending(z):  # Cauchy on rows at their own size, whatever they weigh
        own = z / weights
        return with_priors(z, weights * np.log1p(own), 1 / (1 + own), -1 / (1 + own) ** 2 / weights)

    def with_priors(z, *rho):
        rho = np.array(rho)
        rho[:, len(rows) :] = z[len(rows) :], np.ones(len(table)), np.zeros(len(table))
        return rho

    weights = np.concatenate((weight**2, np.ones(len(table))))
    bounds = (np.log([c.low for c in table]) - 1e-9, np.log([c.high for c in table]) + 1e-9)
    first = least_squares(residuals, np.log(start), jacobian, bounds=bounds, loss=soft, f_scale=LOSS_SCALE, **EFFORT)
    scale = max(LOSS_SCALE, float(np.median(np.abs(first.fun[: len(rows)] / weight))))
    found = least_squares(residuals, first.x, jacobian, bounds=bounds, loss=redescending, f_scale=scale, **EFFORT)
    curvature = found.jac.T @ found.jac
    covariance = np.linalg.pinv(curvature)
    deviation = np.sqrt(np.maximum(np.diag(covariance), 1e-300))
    values = {c.quantity: _round(v) for c, v in zip(table, np.exp(found.x))}
    return first.cost, values, covariance / np.outer(deviation, deviation), predict(found.x[None])[0] / measured - 1


def _round(value):
    """Three significant digits: more would be noise."""
    return float(f"{value:.3g}")


def entry(fit):
    """A ``Fit`` as an entry of stacks.yaml."""
    numbers = {quantity: by_dtype(quantity, value) for quantity, value in fit.values.items()}
    if fit.chunks:
        numbers["tp_overlap_chunks"] = fit.chunks
    size = np.abs(fit.errors)
    numbers["source"] = (
        f"fitted by `sweep calibrate --stacks` on {fit.rows} rows with split = fit of configs/data/training_runs.csv: "
        + "; ".join(fit.sources)
    )
    numbers["note"] = STACKS[fit.stack][0] if fit.stack in STACKS else "own runs"
    numbers["facts"] = {
        "rows": fit.rows,
        "median_error": _round(np.median(size)),
        "mean_error": _round(np.mean(size)),
        "largest_error": _round(np.max(size)),
    }
    return numbers


def write_stacks(fits, folder="configs"):
    """Write every fit as a preset of ``folder``/presets/stacks.yaml; returns the path."""
    return presets.write_presets("stack", {name: _plain(entry(fit)) for name, fit in fits.items()}, folder)


def write_networks(folder="configs"):
    """Write the fabrics of the published training runs; returns the path."""
    published = curves.read_curves()
    return presets.write_presets(
        "fabric", {name: _plain(network_entry(network, published)) for name, network in NETWORKS.items()}, folder
    )


def _plain(value):
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (np.floating, float)):
        return float(value)
    return int(value) if isinstance(value, np.integer) else value


def leave_one_source_out(everything):
    """Run id -> predicted seconds of each source from a stack fitted on the other sources of its generation and kind.

    The pooled stack has the coefficients of the source's own stack (bounds, starts) and rows of every other source that is dense or
    MoE as it is: what one would get for a framework nobody has published runs of.  Fit rows only, on both sides, and of each source
    at most ``POOLED`` of them, evenly taken.
    """
    rows = _thinned([run for run in runs.usable(everything) if run.split == "fit"])
    predicted = {}
    for source in sorted({run.source for run in rows}):
        held = [run for run in rows if run.source == source]
        for kind in sorted({(generation(run.accelerator), run.family.split()[-1]) for run in held}):
            mine = [run for run in held if (generation(run.accelerator), run.family.split()[-1]) == kind]
            others = [
                run._replace(stack="pooled")
                for run in rows
                if run.source != source and (generation(run.accelerator), run.family.split()[-1]) == kind
            ]
            if not others:
                continue
            table = [c for c in STACKS[mine[0].stack][1] if c.quantity not in ("gemm_half_flop", "scaleup_latency_us")]
            fit = fit_stack("pooled", others, table)
            numbers = {quantity: by_dtype(quantity, value) for quantity, value in fit.values.items()}
            mine = [run._replace(stack="pooled") for run in mine]
            predicted |= dict(zip([run.id for run in mine], predictions.predict(mine, {("stack", "pooled"): numbers})))
    return predicted


def _thinned(rows):
    """At most ``POOLED`` rows of each source, evenly taken."""
    sources = {}
    for run in rows:
        sources.setdefault(run.source, []).append(run)
    return [run for members in sources.values() for run in members[:: math.ceil(len(members) / POOLED)]]


# -- fabrics ------------------------------------------------------------------------------------------------------------------


def fit_fabric(found):
    """(collective, tier) -> ``curves.Law`` of curves of one fabric."""
    groups = {}
    for curve in found:
        groups.setdefault((curve.collective, curves.tier(curve)), []).append(curve)
    return {key: curves.fit(members) for key, members in groups.items()}


def fabric_entry(found, accelerator=None, link_gbps=None, source="", name=""):
    """Measured curves of one fabric as an entry of fabrics.yaml.

    The links are calibrated on collectives whose bytes on the wire are known: all-gather, reduce-scatter, else a ring all-reduce;
    an in-network all-reduce reads faster than the wire and is kept among the facts.
    """
    laws = fit_fabric(found)
    numbers, facts = {}, {}
    chip = presets.find("accelerator", accelerator).numbers if accelerator else {}
    port = link_gbps or chip.get("link_gbps")
    inner = _pick(laws, lambda tier: tier == "in")
    if inner:
        (collective, _), law, ranks = inner[0], inner[1], _ranks(found, inner[0])
        hops = 2.0 * (ranks - 1) if collective == "all_reduce" else ranks - 1.0
        numbers["scaleup_latency_us"] = _round(1e6 * (law.a0 + law.a1 * curves.growth(collective, ranks)) / hops)
        if chip:
            numbers["scaleup_efficiency"] = _round(min(1.0, law.rate / 1e9 / chip["scaleup_gbytes_per_s"]))
    outer = _pick(laws, lambda tier: tier != "in")
    if outer:
        (collective, tier), law = outer
        inside = int(tier.split("-")[1])
        domains = max(2.0, _ranks(found, outer[0]) / inside)
        a = law.a0 + law.a1 * curves.growth(collective, domains)
        within = numbers.get("scaleup_latency_us", 1.2) * 1e-6 * (inside - 1)
        hops = 2.0 * math.log2(domains) if collective == "all_reduce" else domains - 1.0
        numbers["link_latency_us"] = _round(max(1e6 * (a - within) / hops, 1.0))
        if port:
            if link_gbps:
                numbers["link_gbps"] = link_gbps
            per_port = law.rate / inside if inside > 1 else law.rate
            numbers["link_efficiency"] = _round(min(1.0, per_port * 8 / 1e9 / port))
    law = (outer or inner)[1]
    numbers["ll_bandwidth_ratio"], numbers["simple_latency_ratio"] = _round(law.r1), _round(law.r2)
    for (collective, tier), one in sorted(laws.items()):
        facts[f"{collective} {tier}"] = {
            "a0_us": _round(one.a0 * 1e6),
            "a1_us": _round(one.a1 * 1e6),
            "gbytes_per_s": _round(one.rate / 1e9),
            "r1": _round(one.r1),
            "r2": _round(one.r2),
        }
    numbers["source"] = source or "nccl-tests"
    numbers["facts"] = {"laws": facts, "curves": [curve.name for curve in found], **({"name": name} if name else {})}
    return numbers


def network_entry(network, published):
    """A fabric of published training runs as an entry of fabrics.yaml, from published curves of like hardware (coefficients.NETWORKS)."""
    chip = presets.find("accelerator", network.accelerator).numbers

    def law(where, outside):
        found = [c for c in published if (c.fabric, c.collective) == where and (curves.tier(c) != "in") == outside]
        return curves.fit(found), found[0]

    rate, _rated = law(network.inner_rate, False)
    latency, timed = law(network.inner_latency, False)
    outer, crossed = law(network.outer, True)
    like = presets.find("accelerator", _LIKE[network.inner_rate[0]]).numbers["scaleup_gbytes_per_s"]
    port = _PORTS[network.outer[0]]
    inside = curves.inside(crossed)
    hop = (
        1e6
        * (latency.a0 + latency.a1 * curves.growth(timed.collective, timed.ranks))
        / ((2 if timed.collective == "all_reduce" else 1) * (timed.ranks - 1))
    )
    more = {"link_gbps": network.link_gbps} if network.link_gbps and network.link_gbps != chip["link_gbps"] else {}
    return {
        "scaleup_latency_us": _round(hop),
        "scaleup_efficiency": _round(min(1.0, rate.rate / 1e9 / like)),
        "link_latency_us": _round(1e6 * outer.a1 if outer.a1 > 0 else 1e6 * outer.a0),
        "link_efficiency": _round(min(1.0, outer.rate / inside * 8e-9 / port)),
        **more,
        "ll_bandwidth_ratio": curves.USUAL[0],
        "simple_latency_ratio": curves.USUAL[1],
        "source": "fitted by `sweep calibrate --fabrics` on configs/data/nccl_curves.csv: rate inside "
        + " ".join(network.inner_rate)
        + ", latency inside "
        + " ".join(network.inner_latency)
        + ", across "
        + " ".join(network.outer),
        **({"note": network.note} if network.note else {}),
    }


_LIKE = {"azure-ndmv4": "a100", "dgx-h200": "h200", "dgx-b200": "b200", "oci-gb200": "gb200", "oci-gb300": "gb300"}
_PORTS = {"sophia": 200.0, "polaris": 100.0}  # Gb/s of the port per GPU where the curve was measured


def _pick(laws, on):
    """The law that links are calibrated on: all-gather, reduce-scatter, all-reduce, in this order, with the most ranks per domain."""
    for collective in ("all_gather", "reduce_scatter", "all_reduce", "alltoall"):
        keys = [key for key in laws if key[0] == collective and on(key[1])]
        if keys:
            key = max(keys, key=lambda k: int(k[1].split("-")[1]) if "-" in k[1] else 0)
            return key, laws[key]
    return None


def _ranks(found, key):
    return max(curve.ranks for curve in found if (curve.collective, curves.tier(curve)) == key)


def write_json(path, content):
    """Write figures with sorted keys and short numbers, so that a change shows as a small diff."""

    def short(value):
        if isinstance(value, dict):
            return {str(k): short(v) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return [short(v) for v in value]
        if isinstance(value, (float, np.floating)):
            return None if not math.isfinite(value) else float(f"{value:.4g}")
        return value

    path.write_text(json.dumps(short(content), indent=1, sort_keys=True) + "\n", encoding="utf-8")
