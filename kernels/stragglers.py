"""Stragglers and failures: what synchronous steps lose because every rank waits for the slowest, and the job for the
unlucky.

A step ends when its slowest rank does.  With N independent ranks of mean 1 and coefficient of variation c the
expected step is

    normal        1 + c E[max of N normals],  about 1 + c sqrt(2 ln N)
    lognormal     E[max exp(s Z - s^2/2)],    s^2 = ln(1 + c^2)
    exponential   1 + c (H_N - 1)             a fixed part 1 - c and an exponential tail of mean c

The first two are integrals over the density of the largest of N normals, N phi Phi^(N-1), by 160 Gauss points (1e-7
up to 10^6 ranks).  The same factor holds for one latency-bound collective in which all N ranks take part.  Slow for
good is another matter: a rank that is always 10 % slower slows every step by 10 %, whatever N (MegaScale found such
hosts, arXiv 2402.15627).

Failures come at a constant rate per accelerator; each costs a restart and the work since the last checkpoint.  Where a
job survives the loss of a port on its node's other rails, it runs at (r - lost)/r of the rate instead (input
``lost_rails``) until the port is repaired; with N accelerators a port is down somewhere for a share
1 - exp(-N repair/MTBF) of the time.
"""

from math import erfc, log, pi
from math import exp as exp_of
from math import sqrt as sqrt_of

import numpy as np

from . import ops

OUTPUTS = ("straggler_factor", "port_down_fraction", "goodput")
NORMAL, LOGNORMAL, EXPONENTIAL = 0, 1, 2  # codes of quantities.INPUTS["rank_tail"].choices
EULER = 0.5772156649015329
LN2 = log(2.0)
HOURS_PER_YEAR = 365.25 * 24.0


def _gauss(low, high, count):
    nodes, weights = np.polynomial.legendre.leggauss(count)
    return [
        ((low + high + (high - low) * node) / 2.0, (high - low) / 2.0 * weight) for node, weight in zip(nodes, weights)
    ]


_POINTS = [  # normal variate, weight times density, log of the distribution function
    (z, weight * exp_of(-z * z / 2.0) / sqrt_of(2.0 * pi), log(erfc(-z / sqrt_of(2.0)) / 2.0))
    for z, weight in _gauss(-6.0, 8.0, 160)
]


def expected_maximum(ranks):
    """Expected largest of ``ranks`` standard normals."""
    return _over_maximum(ranks, lambda z: z)


def slowdown(ranks, cv, tail=NORMAL):
    """Expected step of the slowest of ``ranks`` over the mean; ``tail`` is one of the codes above."""
    return ops.choose(
        tail,
        {
            NORMAL: lambda: 1.0 + cv * expected_maximum(ranks),
            LOGNORMAL: lambda: _lognormal(ranks, cv),
            EXPONENTIAL: lambda: 1.0 + cv * (harmonic(ranks) - 1.0),
        },
    )


def harmonic(ranks):
    """Expected largest of ``ranks`` exponentials of mean 1: 1 + 1/2 + ... + 1/ranks (asymptotic series, 1e-3 at 1,
    1e-6 at 3).
    """
    return LN2 * ops.log2(ranks) + EULER + 0.5 / ranks - 1.0 / (12.0 * ranks**2) + 1.0 / (120.0 * ranks**4)


def failures_per_day(gpus, mtbf_years):
    """Expected failures of a job on ``gpus`` accelerators."""
    return gpus / (mtbf_years * 365.25)


def goodput(gpus, factor, mtbf_years, restart_hours):
    """Share of time in which a job makes the progress of an undisturbed one: ``factor`` from :func:`slowdown`."""
    return 1.0 / (factor * (1.0 + gpus / (mtbf_years * HOURS_PER_YEAR) * restart_hours))


def rail_loss(rails, lost=1):
    """Time of a bandwidth-bound collective over that with all ports, when a node has lost ``lost`` of ``rails`` ports.

    The survivors carry the bytes of all: a synchronous collective is as slow as that node.
    """
    return rails / (rails - lost)


def port_down(gpus, network_mtbf_years, repair_hours):
    """Share of time in which at least one port of ``gpus`` accelerators is down and not yet repaired."""
    return 1.0 - ops.exp(-gpus * repair_hours / (network_mtbf_years * HOURS_PER_YEAR))


def report(x):
    """Outputs of quantities.py from completed inputs ``x``."""
    factor = slowdown(x.gpus, x.rank_cv, x.rank_tail)
    down = port_down(x.gpus, x.network_mtbf_years, x.repair_hours)
    return {"straggler_factor": factor, "port_down_fraction": down, "goodput": goodput(x.gpus, factor, x.mtbf_years, x.restart_hours)}


def _over_maximum(ranks, value):
    total = 0.0
    for z, density, log_below in _POINTS:
        total = total + value(z) * density * ranks * ops.exp(ops.maximum((ranks - 1.0) * log_below, -700.0))
    return total


def _lognormal(ranks, cv):
    spread = ops.sqrt(LN2 * ops.log2(1.0 + cv * cv))
    return _over_maximum(ranks, lambda z: ops.exp(z * spread - spread * spread / 2.0))
