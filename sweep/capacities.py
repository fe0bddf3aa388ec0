"""How full may a cluster run, how long do jobs wait, and how many accelerators to order?

Tables and sentences over kernels/capacity.py, in hours and dollars.  A mix of jobs is given by its gangs
(accelerators that a job holds) with the share of jobs that ask for each, a mean duration, and how variable durations
and arrivals are.
"""

from typing import NamedTuple

import numpy as np

from ._kernels import capacity
from .errors import SweepError

UTILISATIONS = (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)


class Mix(NamedTuple):
    """Jobs: gangs, the share of jobs that ask for each, mean duration in hours, coefficients of variation."""

    gangs: tuple = (8,)
    shares: tuple = (1.0,)
    job_hours: float = 24.0
    duration_cv: float = 1.0
    arrival_cv: float = 1.0

    def arguments(self):
        """What kernels/capacity.py takes."""
        if len(self.gangs) != len(self.shares) or not self.gangs:
            raise SweepError(
                f"gangs and shares need one length, but there are {len(self.gangs)} and {len(self.shares)}."
            )
        gang, gang_cv, smallest = capacity.mix_of(self.gangs, self.shares)
        return {
            "gang": gang,
            "gang_cv": gang_cv,
            "smallest": smallest,
            "arrival_cv": self.arrival_cv,
            "service_cv": self.duration_cv,
        }


USUAL = Mix()  # gangs of one node, a day each, arrivals and durations at random


def waits(gpus, mix=USUAL, utilisations=UTILISATIONS, usd_per_gpu_hour=2.0):
    """Rows: utilisation, waits in hours, and dollars per busy GPU hour, up to what the gangs allow."""
    _check(gpus, mix)
    rows = []
    for busy in utilisations:
        found = capacity.waiting(float(gpus), busy, **mix.arguments())
        rows.append(
            {
                "utilisation": busy,
                "share_waiting": _known(found.probability),
                "wait_hours": _known(found.mean * mix.job_hours),
                "wait_p99_hours": found.p99 * mix.job_hours,
                "idle_gpus": gpus * (1 - busy),
                "usd_per_busy_gpu_hour": usd_per_gpu_hour / busy,
            }
        )
    return rows


def limits(gpus, target_hours, mix=USUAL):
    """Highest utilisation at which the mean and the p99 wait stay within ``target_hours``, and where the queue never
    ends.
    """
    _check(gpus, mix)
    target, arguments = target_hours / mix.job_hours, mix.arguments()
    gang = {name: arguments[name] for name in ("gang", "gang_cv", "smallest")}
    return {
        "mean": float(capacity.highest_utilisation(float(gpus), target, "mean", **arguments)),
        "p99": float(capacity.highest_utilisation(float(gpus), target, "p99", **arguments)),
        "endless": float(capacity.usable_gpus(float(gpus), **gang)) / gpus,
    }


def order(
    busy_gpus,
    growth,
    owned,
    target_hours,
    mix=USUAL,
    forecast_cv=0.1,
    confidence=0.9,
    usd_per_gpu_hour=2.0,
    which="mean",
):
    """The ``capacity.Order`` for next quarter, for a target wait in hours."""
    return capacity.order(
        float(busy_gpus),
        growth,
        owned,
        target_hours / mix.job_hours,
        forecast_cv,
        confidence,
        usd_per_gpu_hour,
        which,
        **mix.arguments(),
    )


def pools(demands, target_hours, mix=USUAL):
    """(shared, dedicated) accelerators for several teams' demands of busy accelerators at the same target wait."""
    return capacity.pooled(demands, target_hours / mix.job_hours, **mix.arguments())


class Demand(NamedTuple):
    """Requests of a serving fleet: per second at the peak, seconds each, how many a replica serves at once, variability."""

    peak: float
    seconds: float
    concurrency: int = 1
    headroom: float = 0.0
    arrival_cv: float = 1.0
    service_cv: float = 1.0

    @property
    def in_flight(self):
        """Requests served at once at the peak, headroom included."""
        return self.peak * (1.0 + self.headroom) * self.seconds


def fleet(demand, target_s):
    """Replicas with which 99 % of requests wait less than ``target_s`` for a place."""
    return int(capacity.fleet(demand.peak, demand.seconds, demand.concurrency, target_s, demand.headroom, demand.arrival_cv, demand.service_cv))


def fleet_waits(demand, target_s, utilisations=(0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98)):
    """Rows: the fleets of whole replicas nearest to those utilisations, and the one for the target."""
    load, places = demand.in_flight, demand.concurrency
    sizes = {max(int(-(-load // (busy * places))), 1) for busy in utilisations} | {fleet(demand, target_s)}
    rows = []
    for replicas in sorted((size for size in sizes if size * places > load), reverse=True):
        busy = load / (replicas * places)
        found = capacity.waiting(float(replicas * places), busy, arrival_cv=demand.arrival_cv, service_cv=demand.service_cv)
        rows.append(
            {
                "replicas": replicas,
                "utilisation": busy,
                "share_waiting": _known(found.probability),
                "wait_ms": _known(found.mean * demand.seconds * 1e3),
                "wait_p99_ms": found.p99 * demand.seconds * 1e3,
                "meets": bool(found.p99 * demand.seconds <= target_s),
            }
        )
    return rows


def fleet_words(demand, target_s):
    """How many replicas, how busy they are, and what twice the demand would take."""
    replicas, twice = fleet(demand, target_s), fleet(demand._replace(peak=2 * demand.peak), target_s)
    busy = demand.in_flight / (replicas * demand.concurrency)
    usual = busy / (1.0 + demand.headroom)
    text = [
        f"{demand.peak:g} requests/s of {demand.seconds:g} s{f' and {demand.headroom:.0%} of headroom' if demand.headroom else ''}: {demand.in_flight:,.4g} in flight.",
        f"{replicas:,} {'replica' if replicas == 1 else 'replicas'} of {demand.concurrency:g} at once keep the wait of 99 % of requests within {target_s:g} s, {busy:.0%} busy"
        + (f" ({usual:.0%} at the peak itself)." if demand.headroom else "."),
        f"Twice the demand takes {twice:,}, {2 * replicas - twice:,} fewer than twice as many." if twice < 2 * replicas else f"Twice the demand takes {twice:,}.",
    ]
    return " ".join(text)


def pool_words(demands, target_hours, mix=USUAL):
    """One pool against one for each team, in a sentence."""
    _check(sum(demands), mix)
    shared, dedicated = pools(demands, target_hours, mix)
    return (
        f"Demands of {' + '.join(f'{demand:g}' for demand in demands)} busy accelerators: {shared:,.0f} in one pool wait {target_hours:g} h on average, "
        f"{dedicated:,.0f} in one for each; sharing saves {dedicated - shared:,.0f}."
    )


def words(gpus, target_hours, mix=USUAL):
    """The ceiling and what sets it, in a few sentences."""
    found = limits(gpus, target_hours, mix)
    gangs = " / ".join(f"{gang:g}" for gang in mix.gangs)
    text = [
        f"{gpus:,} accelerators, gangs of {gangs}, jobs of {mix.job_hours:g} h (variation {mix.duration_cv:g}), arrivals of variation {mix.arrival_cv:g}.",
        f"The mean wait stays within {target_hours:g} h up to a utilisation of {found['mean']:.0%}, and 99 % of jobs wait less than that up to {found['p99']:.0%}.",
    ]
    if found["endless"] < 0.995:
        text.append(
            f"Beyond {found['endless']:.0%} the queue never ends: served in order, a large gang at the head leaves the accelerators idle that "
            f"it has gathered so far. Letting small jobs pass (backfilling) lifts that."
        )
    double = limits(2 * gpus, target_hours, mix)["mean"]
    text.append(
        f"Twice as many accelerators with twice the jobs could run at {double:.0%}: a shared pool needs fewer than its parts."
    )
    return " ".join(text)


def _known(value):
    """Shares and waits below 1e-6 as none: the approximations do not reach so far."""
    return value if value >= 1e-6 else 0.0


def _check(gpus, mix):
    if max(mix.gangs) > gpus:
        raise SweepError(f"gangs: {max(mix.gangs):g} accelerators are more than the {gpus:g} there are.")


def dataset(gpus, utilisations, mix=USUAL):
    """Mean and p99 wait in hours over pool sizes and utilisations, for a figure."""
    import xarray as xr

    sizes, busy = np.asarray(gpus, float), np.asarray(utilisations, float)
    found = capacity.waiting(sizes[:, None], busy[None, :], **mix.arguments())
    hours = {"units": "h"}
    return xr.Dataset(
        {
            "wait_hours": (
                ("gpus", "utilisation"),
                found.mean * mix.job_hours,
                hours | {"long_name": "mean wait of a job"},
            ),
            "wait_p99_hours": (
                ("gpus", "utilisation"),
                found.p99 * mix.job_hours,
                hours | {"long_name": "wait that 99 % of jobs stay below"},
            ),
        },
        {
            "gpus": ("gpus", sizes, {"long_name": "accelerators", "units": "1"}),
            "utilisation": ("utilisation", busy, {"long_name": "utilisation", "units": "1"}),
        },
    )
