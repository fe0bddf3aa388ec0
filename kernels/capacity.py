"""How busy a cluster can be kept, and how many accelerators to order.

Jobs arrive at random, ask for a gang of accelerators, and hold all of it for a random time.  The busier the cluster,
the longer they wait; how much longer is a matter of variability and of how many jobs fit at once, hardly of anything
else.

    P(wait)  Erlang's C of m servers, m = usable accelerators / mean gang weighted by itself (what a busy accelerator
    sees) wait     P(wait) S (c_a^2 + c_w^2) / 2  mean gang / (usable (1 - rho))          Allen and Cunneen's G/G/m
    over work c_w^2    (1 + c_g^2)(1 + c_s^2) - 1                     a job's work is gang times duration, both random

where rho is demand over *usable* accelerators.  Served in order, the gang at the head waits for its last accelerator
while those that are free already stand idle.  On average that is half the mean weighted gang g_w = E[g^2]/E[g] (the
age of a renewal process), more where gangs are large parts of the pool:

    idle     (g_w - smallest gang)/2 / (1 - g_w/N)

Both forms are approximations.  Against an event simulation (tests/queue_oracle.py) the mean wait is within 35 %
wherever it is a twentieth of a job or more, for c_a and c_s up to 2, g_w up to a third of the pool and rho up to
0.93, and p99 within 50 %, on the mixes of test_capacity.py; long-tailed durations near the limit reach 56 %, c_s = 3 a
factor of two.  Waits below a twentieth of a job are not to be relied on: up to 15 times off (bursty arrivals wait longer,
regular ones less). For gangs of one and exponential times it is exact (M/M/m).  Whoever waits
is taken to wait an exponential time: p99 rests on it.  A serving fleet has gangs of one and many servers: from 16 to
2,048 places at 0.8 to 0.98, with one in twenty or more waiting and c_a, c_s from 0.5 to 2, its p99 is between 16 % below
and 71 % above the simulated one, too high where durations are long-tailed.

Times are in units of the mean job duration unless a name says otherwise; everything is elementwise, for NumPy and jax
arrays.
"""

from math import log, sqrt
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from . import fabric, ops

OUTPUTS = ("wait_hours", "wait_p99_hours", "usable_utilisation", "usd_per_busy_gpu_hour")
LN2 = log(2.0)
_NODES, _WEIGHTS = (values.tolist() for values in np.polynomial.legendre.leggauss(64))


class Waiting(NamedTuple):
    """Share of jobs that wait, mean wait of all jobs, wait that 99 % stay below: the last two in mean job durations."""

    probability: object
    mean: object
    p99: object


class Order(NamedTuple):
    """Accelerators to have and to buy, how busy they will be, and what the idle ones cost per month."""

    gpus: float
    to_order: float
    utilisation: float
    idle_usd_per_month: float


def erlang_c(servers, load):
    """Probability of waiting in M/M/c with ``load`` = arrival rate times service time, below ``servers`` (real
    numbers allowed).

    1/C = rho + (1 - rho) I with I = integral of exp(-t) (1 + t/load)^servers, the inverse of Erlang's loss: a smooth
    peak of width sqrt(servers) at servers - load, so 64 Gauss points suffice (relative error below 1e-9, tested to
    10^5 servers).
    """
    load = ops.maximum(load, 1e-12)
    peak = ops.maximum(servers - load, 0.0)
    width = ops.sqrt(servers)
    low = ops.maximum(peak - 10.0 * width, 0.0)
    half = (peak + 12.0 * width + 40.0 - low) / 2.0
    total = 0.0
    for node, weight in zip(_NODES, _WEIGHTS):
        t = low + half * (1.0 + node)
        total = total + weight * ops.exp(ops.minimum(servers * LN2 * ops.log2(1.0 + t / load) - t, 600.0))
    busy = ops.minimum(load / servers, 1.0)
    return 1.0 / (busy + (1.0 - busy) * half * total)


def usable_gpus(gpus, gang=1.0, gang_cv=0.0, smallest=None):
    """Accelerators that jobs served in order can keep busy at most: ``gpus`` less those idle while a gang assembles.

    ``gang`` is the mean number of accelerators of a job, ``gang_cv`` its coefficient of variation, ``smallest`` the
    smallest gang (the mean where all are equal, else 1).
    """
    weighted = gang * (1.0 + gang_cv * gang_cv)
    smallest = ops.where(gang_cv == 0, gang, 1.0) if smallest is None else smallest
    whole = ops.floor(gpus / smallest) * smallest
    drained = (weighted - smallest) / 2.0 / ops.maximum(1.0 - weighted / gpus, 1e-3)
    return ops.maximum(whole - drained, 0.0)


def waiting(gpus, utilisation, gang=1.0, gang_cv=0.0, arrival_cv=1.0, service_cv=1.0, smallest=None):
    """Waiting of jobs in a pool at a ``utilisation`` of all its accelerators; infinite beyond what the gangs allow."""
    usable = usable_gpus(gpus, gang, gang_cv, smallest)
    spread = gang_cv * gang_cv
    servers = ops.maximum(usable / (gang * (1.0 + spread)), 1.0)
    rho = gpus * utilisation / ops.maximum(usable, 1e-9)
    stable = rho < 1.0
    rho = ops.minimum(rho, 1.0 - 1e-12)
    some = erlang_c(servers, servers * rho)
    work_cv2 = (1.0 + spread) * (1.0 + service_cv * service_cv) - 1.0
    each = gang * (arrival_cv * arrival_cv + work_cv2) / 2.0 / (ops.maximum(usable, 1e-9) * (1.0 - rho))
    inf = float("inf")
    return Waiting(
        ops.where(stable, some, 1.0),
        ops.where(stable, some * each, inf),
        ops.where(stable, each * ops.maximum(LN2 * ops.log2(some / 0.01), 0.0), inf),
    )


def report(x):
    """Outputs of quantities.py from completed inputs ``x``; money is that of fabric.py per busy hour."""
    found = waiting(x.gpus, x.utilisation, x.job_gpus, x.job_gpus_cv, x.arrival_cv, x.duration_cv)
    return {
        "wait_hours": found.mean * x.job_hours,
        "wait_p99_hours": found.p99 * x.job_hours,
        "usable_utilisation": usable_gpus(x.gpus, x.job_gpus, x.job_gpus_cv) / x.gpus,
        "usd_per_busy_gpu_hour": fabric.cost(x).usd_per_second_per_gpu * 3600.0 / x.utilisation,
    }


def highest_utilisation(gpus, target, which="mean", **mix):
    """Utilisation up to which the wait (``mean`` or ``p99``, in job durations) stays within ``target``; by bisection."""
    low, high = 0.0 * (gpus + target), 1.0 + 0.0 * (gpus + target)
    for _ in range(40):
        middle = (low + high) / 2.0
        good = getattr(waiting(gpus, middle, **mix), which) <= target
        low, high = ops.where(good, middle, low), ops.where(good, high, middle)
    return low


def gpus_needed(demand, target, which="mean", node=8, **mix):
    """Accelerators, whole nodes, on which a demand of busy accelerators waits no longer than ``target`` job
    durations.
    """
    low = 0.0 * (demand + target) + demand
    high = 16.0 * (demand + mix.get("gang", 1.0) * (1.0 + mix.get("gang_cv", 0.0) ** 2) + node) + 0.0 * target
    for _ in range(50):
        middle = (low + high) / 2.0
        good = getattr(waiting(middle, demand / middle, **mix), which) <= target
        low, high = ops.where(good, low, middle), ops.where(good, middle, high)
    return node * ops.ceil(high / node - 1e-6)


def order(busy_gpus, growth, owned, target, forecast_cv=0.1, confidence=0.9, usd_per_gpu_hour=2.0, which="mean", **mix):
    """What to order for next quarter.

    ``busy_gpus`` is today's demand (accelerators busy on average), ``growth`` the expected change (0.3: thirty per
    cent more), ``forecast_cv`` the spread of that forecast, ``confidence`` how sure one wants to be that the target
    wait holds.  Idle accelerators are priced at the expected demand, not at the one planned for.
    """
    expected = busy_gpus * (1.0 + growth)
    planned = expected * (1.0 + NormalDist().inv_cdf(confidence) * forecast_cv)
    gpus = gpus_needed(planned, target, which, **mix)
    idle = gpus - expected
    return Order(gpus, ops.maximum(gpus - owned, 0.0), expected / gpus, idle * usd_per_gpu_hour * 24.0 * 365.25 / 12.0)


def pooled(demands, target, **mix):
    """(shared, dedicated) accelerators for the same target wait: one pool for all ``demands``, or one for each."""
    return gpus_needed(float(sum(demands)), target, **mix), sum(
        gpus_needed(float(demand), target, **mix) for demand in demands
    )


def fleet(
    peak_requests_per_s, seconds_per_request, concurrency, target_p99_s, headroom=0.0, arrival_cv=1.0, service_cv=1.0
):
    """Replicas of a serving fleet: the p99 of the time a request waits for a place stays within ``target_p99_s``.

    A replica serves ``concurrency`` requests at once, each for ``seconds_per_request``; ``headroom`` is demand above
    the peak (0.3: thirty per cent) for failures and forecast.
    """
    load = peak_requests_per_s * (1.0 + headroom) * seconds_per_request
    places = gpus_needed(
        load, target_p99_s / seconds_per_request, "p99", node=concurrency, arrival_cv=arrival_cv, service_cv=service_cv
    )
    return places / concurrency


def mix_of(gangs, weights):
    """(mean, coefficient of variation, smallest) of gang sizes with the share of jobs that ask for each."""
    share = [weight / sum(weights) for weight in weights]
    mean = sum(s * g for s, g in zip(share, gangs))
    square = sum(s * g * g for s, g in zip(share, gangs))
    return mean, sqrt(max(square / mean**2 - 1.0, 0.0)), float(min(gangs))
