"""The calibrated law of a collective, and its fit to measured curves.

    t = min(a + r1 U/B,  r2 a + U/B),      U = V x bus factor,      a = a0 + a1 g(n)

the faster of a low-latency and a full-bandwidth protocol: U the bytes that each rank must move (2(n-1)/n V for an all-reduce,
(n-1)/n V for all-gather, reduce-scatter and all-to-all), B the rate, a the latency of a group with g = log2 n for an all-reduce
(NCCL has a tree) and n - 1 for the others (it has none).  Across domains n counts the domains, since the hops between them are
the slow ones, and an all-to-all moves what leaves the domain, (n - n_in)/n V.  r1 is what the low-latency protocol pays per byte (about 16)
and r2 what the full-bandwidth one pays in latency (about 2.7).  There is no message-size efficiency beside it: x/(x + x_half)
is a second latency, and a curve cannot tell two latencies apart.

One law holds one collective on one tier of one fabric; a curve inside a domain and one across domains have their own.
A fit minimises the logarithm of predicted over measured with a loss that hardly sees outliers (Cauchy, 2 %), because
measured curves jump where NCCL changes its algorithm.  ``r1`` and ``r2`` are drawn to their usual values with the weight of a
few points, so that short curves can be fitted too; ``a0`` and ``a1`` share what one group size cannot tell apart.
"""

import csv
from collections import defaultdict
from typing import NamedTuple

import numpy as np

from .nccl_logs import Curve, bus_factor
from .runs import data_path

LARGE = 2.0**20  # bytes: from here on a curve is scored as bandwidth, below as latency
USUAL = (16.0, 2.7)  # r1 and r2 of NCCL, all fabrics together
PARTIAL = ("sendrecv", "broadcast", "reduce", "gather", "scatter", "hypercube")


class Law(NamedTuple):
    """Coefficients of the law, SI: ``a0`` and ``a1`` in seconds, ``rate`` in bytes/s."""

    a0: float
    a1: float
    rate: float
    r1: float = USUAL[0]
    r2: float = USUAL[1]


def growth(collective, ranks):
    """g(n): how the latency grows with the group."""
    return (
        np.log2(ranks) if collective in ("all_reduce", "broadcast", "reduce") else np.asarray(ranks, dtype=float) - 1.0
    )


def shape(collective, ranks, inside=0):
    """(bytes each rank moves per byte of the buffer, g) of a group of which ``inside`` ranks share a domain (0: all of them)."""
    if not inside or inside >= ranks:
        return bus_factor(collective, ranks), growth(collective, ranks)
    factor = (ranks - inside) / ranks if collective == "alltoall" else bus_factor(collective, ranks)
    return factor, growth(collective, ranks / inside)


def seconds(law, collective, sizes, ranks, inside=0):
    """Predicted seconds for ``sizes`` in bytes (nccl-tests' size: the full buffer) on ``ranks`` ranks, ``inside`` of them per domain."""
    return np.minimum(*protocols(law, collective, sizes, ranks, inside))


def protocols(law, collective, sizes, ranks, inside=0):
    """Seconds of the low-latency and of the full-bandwidth protocol, apart."""
    factor, g = shape(collective, ranks, inside)
    moved = np.asarray(sizes, dtype=float) * factor / law.rate
    latency = law.a0 + law.a1 * g
    return latency + law.r1 * moved, law.r2 * latency + moved


def fit(curves, spread=0.05):
    """The ``Law`` of curves of one collective on one tier of one fabric.

    ``spread``: weight of the prior on r1 and r2 (log-normal, one unit wide) against one point.
    """
    from scipy.optimize import least_squares

    sizes, times, factors, growths = (np.concatenate(parts) for parts in zip(*(_points(c) for c in curves)))
    if len(sizes) == 0:
        raise ValueError("no points to fit")
    moved = sizes * factors
    span = max(float(np.max(growths)), 1.0)
    several = len(np.unique(growths)) > 1

    def predict(p):
        fixed, grows, rate, r1, r2 = np.exp(p)
        latency = fixed + grows * growths / span
        return np.minimum(latency + r1 * moved / rate, r2 * latency + moved / rate)

    def residuals(p):
        prior = [
            spread * (p[3] - np.log(USUAL[0])),
            spread * (p[4] - np.log(USUAL[1])),
            spread * (p[0] - p[1]) * (0.2 if several else 1.0),
        ]
        floor = [min(p[3], 0.0), min(p[4], 0.0)]  # both ratios are at least 1
        return np.concatenate((np.log(predict(p) / times), prior, floor))

    best = None
    fastest = float(np.max(moved / times))
    for r1 in (4.0, 16.0, 40.0):
        for r2 in (1.5, 4.0):
            start = np.log([0.4 * times.min(), 0.4 * times.min(), fastest, r1, r2])
            found = least_squares(residuals, start, loss="cauchy", f_scale=0.02, max_nfev=200)
            if best is None or found.cost < best.cost:
                best = found
    fixed, grows, rate, r1, r2 = np.exp(best.x)
    return Law(float(fixed), float(grows / span), float(rate), float(max(r1, 1.0)), float(max(r2, 1.0)))


def _points(curve):
    good = (curve.seconds > 0) & (curve.sizes > 0)
    factor, g = shape(curve.collective, curve.ranks, inside(curve))
    ones = np.ones(good.sum())
    return curve.sizes[good], curve.seconds[good], ones * factor, ones * g


def read_curves(path=None):
    """The published curves of ``configs/data/nccl_curves.csv`` as ``Curve``s; a time that is not printed follows from algbw or busbw."""
    rows = defaultdict(list)
    with (path or data_path("nccl_curves.csv")).open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            rows[row["curve_id"]].append(row)
    return [curve for name, points in rows.items() if (curve := _curve(name, points)) is not None]


def _curve(name, rows):
    first = rows[0]
    collective, ranks = first["collective"], int(first["gpus"])
    sizes = np.array([float(r["size_bytes"]) for r in rows])
    times = np.array([_seconds(r, bus_factor(collective, ranks)) for r in rows])
    good = np.isfinite(times)
    if not good.any():
        return None
    return Curve(
        collective,
        ranks,
        int(first["nodes"] or 0),
        sizes[good],
        times[good],
        np.full(good.sum(), np.nan),
        name,
        first["accelerator"],
        fabric_of(name),
        _version(name, first["notes"]),
    )


def _seconds(row, factor):
    if row["time_us"]:
        return float(row["time_us"]) * 1e-6
    for column, per in (("algbw_GBps", 1.0), ("busbw_GBps", factor)):
        if row[column] and float(row[column]) > 0:
            return float(row["size_bytes"]) * per / float(row[column]) / 1e9
    return float("nan")


FABRICS = {  # curve name prefix -> fabric: curves of one machine room, one NIC, one NVLink generation
    "aws_p4de": "aws-p4de",
    "aws_p5": "aws-p5",
    "keitaw_p5": "aws-p5",
    "cw_gb200": "coreweave-gb200",
    "dgxc_h100": "dgx-h100",
    "oci_h100": "oci-h100",
    "orcd_b200": "dgx-b200",
    "orcd_h200": "dgx-h200",
    "lambda_h100": "h100-ndr",
    "mghpcc_h100": "h100-ndr",
    "oci_gb300": "oci-gb300",
    "oci_gb200": "oci-gb200",
    "oci_b300": "oci-b300",
    "oci_mi355x": "oci-mi355x",
    "stas_a100": "dgx-a100",
    "stas_b200": "aws-p6-b200",
    "stas_unknown": "unknown",
    "aml_a100": "azure-ndmv4",
    "alcf_polaris": "polaris",
    "alcf_sirius": "polaris",
    "alcf_sophia": "sophia",
    "xxrjun": "xxrjun-h100",
}


def fabric_of(name):
    """The fabric that a published curve was measured on."""
    return next((fabric for prefix, fabric in FABRICS.items() if name.startswith(prefix)), name)


def _version(name, notes):
    for text in (name.replace("_", "."), notes):
        at = text.lower().find("nccl")
        words = text[at + 4 :].replace(",", " ").replace(";", " ").replace("nccl", " ").strip(". ").split()
        if at >= 0 and words and words[0][:1].isdigit():
            return ".".join(words[0].split(".")[:2])
    return ""


def inside(curve):
    """Ranks of a curve that share a scale-up domain: a node, or a rack of NVLink where the accelerator has one."""
    if curve.nodes <= 1:
        return curve.ranks
    domains = int(np.ceil(curve.ranks / 72)) if "NVL72" in curve.accelerator else curve.nodes
    return curve.ranks // max(domains, 1)


def tier(curve):
    """``in`` for a curve inside one scale-up domain, else ``out`` with the ranks per domain: a NIC per rank or one for all is another law."""
    return "in" if inside(curve) >= curve.ranks else f"out-{inside(curve)}"


def group(curves):
    """Curves by (fabric, tier, collective): each group has one law."""
    groups = defaultdict(list)
    for curve in curves:
        groups[curve.fabric, tier(curve), curve.collective].append(curve)
    return dict(groups)


def score_sizes(curves, least=6):
    """Errors of sizes that the fit did not see: every other point of each curve, both ways.  Returns rows (curve, large, small)."""
    rows = []
    for curve in curves:
        if len(curve.sizes) < least:
            continue
        errors = []
        for fold in (0, 1):
            seen = np.arange(len(curve.sizes)) % 2 == fold
            law = fit([curve._replace(sizes=curve.sizes[seen], seconds=curve.seconds[seen])])
            errors.append(
                (
                    curve.sizes[~seen],
                    seconds(law, curve.collective, curve.sizes[~seen], curve.ranks, inside(curve))
                    / curve.seconds[~seen]
                    - 1,
                )
            )
        rows.append((curve, *_split(errors)))
    return rows


def score_curves(curves):
    """Errors of whole curves that the fit did not see, each predicted from the other curves of its group.  Rows (curve, large, small)."""
    rows = []
    for members in group(curves).values():
        for held in members:
            others = [c for c in members if c is not held]
            if not others:
                continue
            law = fit(others)
            rows.append(
                (
                    held,
                    *_split(
                        [
                            (
                                held.sizes,
                                seconds(law, held.collective, held.sizes, held.ranks, inside(held)) / held.seconds - 1,
                            )
                        ]
                    ),
                )
            )
    return rows


def _split(errors):
    sizes, error = (np.concatenate(parts) for parts in zip(*errors))
    return np.abs(error[sizes >= LARGE]), np.abs(error[sizes < LARGE])
