"""Faults of a fabric as changes of its law, and the ranking of suspects by how well each explains a measured curve.

A healthy curve follows the calibrated law (curves.py).  Each suspect changes the law in its own way, by an amount within the range
in which it occurs: half the rate but the old latency, the old rate but three times the latency, every other size slow.  The suspect
that explains the measured times best with the fewest liberties ranks first; if the healthy law explains them, nobody is named.
"""

from typing import NamedTuple

import numpy as np

from . import curves

NOISE = 0.06  # scatter (of the logarithm) that measured times have on a healthy fabric
GUESS = 0.2  # the same where the law is the model's and not fitted to this fabric
HEALTHY = 0.12  # within this of the healthy law at the sizes that matter, nobody is named
GAIN = 6.0  # a suspect must explain the times this much better (in units of log-likelihood) than the healthy law


class Suspect(NamedTuple):
    """``times``: (law, sizes, shape, amount) -> seconds; ``amounts`` the values it can take; ``variable`` governs it."""

    name: str
    times: object
    amounts: object
    where: str
    variable: str
    applies: object = lambda curve, inside: True
    scatter: float = NOISE


class Verdict(NamedTuple):
    """A suspect with its amount, the scatter that remains, and its score (smaller is better; the healthy law's is 0 or less)."""

    suspect: Suspect
    amount: float
    remains: float
    score: float


def _law(law, latency=1.0, rate=1.0):
    return law._replace(a0=law.a0 * latency, a1=law.a1 * latency, rate=law.rate * rate)


def _rate(law, shape, sizes, amount):
    return curves.seconds(_law(law, 1.0, amount), *_args(shape, sizes))


def _latency(law, shape, sizes, amount):
    return curves.seconds(_law(law, amount, 1.0), *_args(shape, sizes))


def _host_copy(law, shape, sizes, amount):
    return curves.seconds(_law(law, 1.6, amount), *_args(shape, sizes))


def _sockets(law, shape, sizes, amount):
    return curves.seconds(_law(law, 5.0, amount), *_args(shape, sizes))


def _only_ll(law, shape, sizes, amount):
    return curves.protocols(law, *_args(shape, sizes))[0]


def _only_simple(law, shape, sizes, amount):
    return curves.protocols(law, *_args(shape, sizes))[1]


def _args(shape, sizes):
    collective, ranks, inside = shape
    return collective, sizes, ranks, inside


def _across(curve, inside):
    return inside < curve.ranks


def _rails(curve, inside):
    return _across(curve, inside) and inside > 1


SUSPECTS = (
    Suspect(
        "one NIC carries what all rails should",
        _rate,
        "rails",
        "bandwidth, by the number of rails",
        "NCCL_IB_HCA, NCCL_CROSS_NIC, NCCL_TOPO_FILE",
        _rails,
    ),
    Suspect(
        "oversubscription or a downed uplink",
        _rate,
        np.array([0.5, 0.4, 1 / 3, 0.3, 0.25]),
        "bandwidth alone",
        "the fabric: uplinks per leaf, placement of the job",
        _across,
    ),
    Suspect(
        "GPUDirect RDMA is off",
        _host_copy,
        np.array([0.6, 0.5, 0.45, 0.4, 0.35]),
        "bandwidth and latency",
        "NCCL_NET_GDR_LEVEL, nvidia-peermem, ACS in the BIOS",
        _across,
    ),
    Suspect(
        "TCP sockets instead of RDMA",
        _sockets,
        np.array([0.15, 0.1, 0.07, 0.05, 0.03]),
        "bandwidth and latency, by far",
        "NCCL_NET, NCCL_IB_DISABLE, NCCL_IB_HCA",
        _across,
    ),
    Suspect("protocol LL forced at every size", _only_ll, np.array([1.0]), "large sizes only", "NCCL_PROTO"),
    Suspect(
        "protocol Simple forced at every size",
        _only_simple,
        np.array([1.0]),
        "small sizes only",
        "NCCL_PROTO, NCCL_BUFFSIZE",
    ),
    Suspect(
        "latency: slow hosts, far NUMA nodes, or ring where a tree is due",
        _latency,
        np.array([4.0, 5.0, 6.0, 8.0, 10.0, 14.0]),
        "small and middle sizes",
        "NCCL_ALGO, CPU power states, NUMA binding, NCCL_IB_ADAPTIVE_ROUTING",
    ),
    Suspect(
        "ECMP collisions or congestion",
        _rate,
        np.array([0.85, 0.75, 0.65, 0.55]),
        "bandwidth, differently at each size",
        "NCCL_IB_QPS_PER_CONNECTION, NCCL_IB_SPLIT_DATA_ON_QPS, adaptive routing",
        _across,
        0.25,
    ),
    Suspect(
        "one size alone is slow",
        None,
        np.array([1.0]),
        "one size only",
        "NCCL_BUFFSIZE, the tuner's switch of algorithm; repeat that size",
    ),
)


def suspects(curve, law, inside, measured=True):
    """``Verdict`` of every suspect that applies, best first; an empty list where the curve is healthy.

    ``law``: what is expected of this collective on this fabric; ``inside``: ranks per scale-up domain; ``measured``: whether the law was
    fitted to curves of this collective here, or comes from the model (then it is trusted to a quarter only).
    """
    noise = NOISE if measured else GUESS
    good = (curve.seconds > 0) & np.isfinite(curve.seconds)
    sizes, seconds = curve.sizes[good], curve.seconds[good]
    shape = (curve.collective, curve.ranks, inside)
    if not measured and len(sizes):
        law = _own_latency(law, shape, sizes, seconds)
    healthy = np.log(seconds / curves.seconds(law, curve.collective, sizes, curve.ranks, inside))
    if len(sizes) == 0 or _well(healthy, sizes, HEALTHY * noise / NOISE):
        return []
    base = _cost(healthy, noise, noise)
    found = []
    for suspect in SUSPECTS:
        if not suspect.applies(curve, inside):
            continue
        if suspect.scatter > NOISE and not (_short(healthy, sizes) and _scattered(healthy, sizes)):
            continue
        verdict = (
            _one_size(suspect, healthy, sizes, noise)
            if suspect.times is None
            else _best(suspect, law, shape, sizes, seconds, noise)
        )
        # one point of many weighs little in a likelihood with long tails: there the look of the curve decides
        if verdict is not None and base - verdict.score > (0.0 if suspect.times is None else GAIN):
            found.append(verdict)
    return sorted(found, key=lambda v: v.score)


def _own_latency(law, shape, sizes, seconds):
    """A guessed law with the latency that the smallest sizes show, where that is no slower than a third above the guess."""
    few = np.argsort(sizes)[: max(2, len(sizes) // 4)]
    expected = curves.seconds(law, shape[0], sizes[few], *shape[1:])
    scale = float(np.clip(np.median(seconds[few] / expected), 0.2, 1.3))
    return _law(law, latency=scale)


def _well(residual, sizes, limit):
    """Whether the healthy law explains a curve: small on average below and above 1 MiB, and nowhere slow by half."""
    slow = residual[residual > 0] if np.any(residual > 0) else np.zeros(1)
    parts = [residual[sizes >= curves.LARGE], residual[sizes < curves.LARGE]]
    return (
        all(len(part) == 0 or np.median(part) < limit for part in parts)
        and np.max(slow) < 0.33 + limit
        and np.mean(np.maximum(residual, 0)) < limit
    )


def _short(residual, sizes):
    """Whether large sizes fall short as a whole, not at a few of them."""
    large = residual[sizes >= curves.LARGE]
    return len(large) > 0 and np.median(large) > HEALTHY


def _scattered(residual, sizes):
    """Whether large sizes fall short by different amounts: collisions do, a narrower path does not."""
    large = residual[sizes >= curves.LARGE]
    return np.median(np.abs(large - np.median(large))) > 1.5 * NOISE


def _cost(residual, scatter, noise, liberties=0.0):
    """Minus log-likelihood of residuals with scatter (Student's t: a few outliers do not decide), with a price for each liberty taken."""
    z = residual / scatter
    return float(np.sum(2.5 * np.log1p(z**2 / 4)) + len(residual) * np.log(scatter / noise) + liberties)


def _best(suspect, law, shape, sizes, seconds, noise):
    amounts = suspect.amounts
    if isinstance(amounts, str):  # one of the rails
        rails = float(shape[2])
        amounts = np.array([1 / rails] if rails <= 2 else [1 / rails, 2 / rails])
    if noise > NOISE:
        amounts = np.outer(amounts, (0.75, 0.85, 1.0)).ravel()
    liberties = 0.5 * np.log(len(sizes)) * (len(amounts) > 1)
    best = None
    for amount in amounts:
        residual = np.log(seconds / suspect.times(law, shape, sizes, amount))
        cost = _cost(residual, max(suspect.scatter, noise), noise, liberties)
        if best is None or cost < best.score:
            best = Verdict(suspect, float(amount), float(np.median(np.abs(residual))), cost)
    return best


def _one_size(suspect, healthy, sizes, noise):
    """One size stands out above its neighbours, and no other does so by four fifths as much (a law that is a little off does at none)."""
    if len(healthy) < 4:
        return None
    order = np.argsort(sizes)
    at = healthy[order]
    beside = np.maximum(np.append(at[1:], -np.inf), np.append(-np.inf, at[:-1]))
    peak = at - beside
    worst = int(np.argmax(peak))
    if peak[worst] < 0.6 or np.max(np.delete(peak, worst)) > 0.8 * peak[worst]:
        return None
    rest = np.delete(at, worst)
    return Verdict(
        suspect,
        float(np.exp(peak[worst])),
        float(np.median(np.abs(rest))),
        _cost(rest, noise, noise, np.log(len(sizes)) + 1.0),
    )
