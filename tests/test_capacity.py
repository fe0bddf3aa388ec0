"""Waiting against the exact M/M/m, an event simulation, and what must hold whatever the numbers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from queue_oracle import simulate

from kernels import capacity


def erlang_by_recursion(servers, load):
    loss = 1.0
    for k in range(1, servers + 1):
        loss = load * loss / (k + load * loss)
    return loss / (1 - load / servers * (1 - loss))


@pytest.mark.parametrize("servers", [1, 2, 7, 64, 1000, 100000])
@pytest.mark.parametrize("busy", [0.3, 0.7, 0.9, 0.99, 0.9999])
def test_erlang_c(servers, busy):
    expected = erlang_by_recursion(servers, servers * busy)
    assert capacity.erlang_c(float(servers), servers * busy) == pytest.approx(expected, rel=1e-9, abs=1e-100)


def test_one_server_and_percentile_by_hand():
    """M/M/1 at 0.8: P 0.8, mean wait 4, and exp(-0.2 t) 0.8 = 0.01 at t = 21.9."""
    found = capacity.waiting(1.0, 0.8)
    assert found == pytest.approx((0.8, 4.0, np.log(80) / 0.2), rel=1e-9)


MIXES = [
    # servers, gangs, shares, arrival_cv, service_cv, utilisation
    (16, (1,), (1,), 1, 1, 0.85),
    (16, (1,), (1,), 2, 1, 0.85),
    (64, (8,), (1,), 1, 0, 0.85),
    (64, (8,), (1,), 1, 2, 0.85),
    (64, (1, 2, 4, 8, 16), (4, 2, 2, 1, 1), 1, 1, 0.85),
    (64, (1, 2, 4, 8, 16), (4, 2, 2, 1, 1), 1, 2, 0.7),
    (128, (1, 8, 32), (6, 3, 1), 2, 1, 0.7),
    (256, (8, 64, 128), (6, 3, 1), 1, 1, 0.7),
    (256, (8, 64, 128), (6, 3, 1), 1, 2, 0.5),
    (1024, (8, 64), (1, 1), 1, 1, 0.85),
]


@pytest.mark.parametrize("servers, gangs, shares, arrival_cv, service_cv, utilisation", MIXES)
def test_against_the_event_simulation(servers, gangs, shares, arrival_cv, service_cv, utilisation):
    gang, gang_cv, smallest = capacity.mix_of(gangs, shares)
    expected = capacity.waiting(float(servers), utilisation, gang, gang_cv, arrival_cv, service_cv, smallest)
    waits = np.concatenate(
        [
            simulate(servers, utilisation, 1.0, arrival_cv, service_cv, gangs, shares, 40000, seed)[0]
            for seed in range(5)
        ]
    )
    assert expected.mean == pytest.approx(waits.mean(), rel=0.35)
    assert expected.p99 == pytest.approx(np.quantile(waits, 0.99), rel=0.5)


def test_gangs_set_a_ceiling_and_backfilling_lifts_it():
    """Gangs of half the pool in order: beyond the usable share the queue only grows; letting small jobs pass keeps it
    short.
    """
    gangs, shares = (8, 64, 128), (6, 3, 1)
    gang, gang_cv, smallest = capacity.mix_of(gangs, shares)
    limit = capacity.usable_gpus(256.0, gang, gang_cv, smallest) / 256
    assert 0.79 < limit < 0.81
    assert capacity.waiting(256.0, limit, gang, gang_cv, smallest=smallest).mean == np.inf
    in_order, _ = simulate(256, 0.9, gangs=gangs, weights=shares, jobs=15000)
    passing, _ = simulate(256, 0.9, gangs=gangs, weights=shares, jobs=15000, backfill=True)
    assert in_order.mean() > 30 and passing.mean() < in_order.mean() / 5


def test_bigger_pools_run_busier():
    """The same wait of a quarter of a job's time: gangs of 8 on 64 accelerators allow 0.78, on 1,024 far more."""
    sizes = np.array([64.0, 256.0, 1024.0, 4096.0])
    found = capacity.highest_utilisation(sizes, 0.25, gang=8.0)
    assert np.all(np.diff(found) > 0) and 0.75 < found[0] < 0.8 and found[-1] > 0.97


def test_a_shared_pool_needs_fewer():
    shared, dedicated = capacity.pooled([100, 100, 100, 100], 0.25, gang=8.0)
    assert 400 < shared < dedicated
    assert capacity.waiting(shared, 400 / shared, gang=8.0).mean <= 0.25
    assert capacity.waiting(shared - 8, 400 / (shared - 8), gang=8.0).mean > 0.25


def test_order_for_next_quarter():
    found = capacity.order(600, 0.3, 800, 0.25, forecast_cv=0.1, confidence=0.9, gang=16.0)
    calm = capacity.order(600, 0.3, 800, 0.25, forecast_cv=0.0, confidence=0.9, gang=16.0)
    assert found.gpus > calm.gpus > 780 and found.to_order == found.gpus - 800
    assert found.utilisation == pytest.approx(780 / found.gpus)
    assert found.idle_usd_per_month == pytest.approx((found.gpus - 780) * 2 * 730.5)


def test_serving_fleet_against_the_simulation():
    """200 requests/s of 10 s, 64 at once: replicas whose simulated p99 of waiting is near half a second, not seconds."""
    replicas = capacity.fleet(200.0, 10.0, 64, 0.5)
    places = int(replicas * 64)
    waits, _ = simulate(places, 2000 / places, service=10.0, jobs=60000, seed=3)
    assert 32 <= replicas <= 34 and np.quantile(waits, 0.99) * 10 <= 1.0


@pytest.mark.parametrize("places, busy", [(16, 0.8), (64, 0.9), (256, 0.93)])
@pytest.mark.parametrize("arrival_cv, service_cv, low, high", [
    (1, 1, 0.9, 1.1), (1, 0.5, 0.85, 1.05), (1, 2, 0.95, 1.8), (2, 1, 0.95, 1.45), (0.5, 0.5, 0.95, 1.5),
])  # fmt: skip
def test_tail_of_a_fleet_against_the_simulation(places, busy, arrival_cv, service_cv, low, high):
    """p99 of waiting of M/M/c within a tenth, of G/G/m within the bounds that the docstring states."""
    waits = [simulate(places, busy, 1.0, arrival_cv, service_cv, jobs=200000, seed=100 * k + 7)[0] for k in range(6)]
    expected = capacity.waiting(float(places), busy, arrival_cv=arrival_cv, service_cv=service_cv)
    assert low < expected.p99 / np.quantile(np.concatenate(waits), 0.99) < high


def test_a_fleet_is_as_small_as_its_target_allows():
    """One replica fewer waits longer than the target; headroom is demand, and bursts and long tails want more."""
    peak, seconds, places, target = 200.0, 10.0, 64, 0.5
    replicas = capacity.fleet(peak, seconds, places, target)
    tails = [capacity.waiting(n * places, peak * seconds / (n * places)).p99 * seconds for n in (replicas - 1, replicas)]
    assert replicas == int(replicas) and tails[1] <= target < tails[0]
    assert capacity.fleet(peak, seconds, places, target, headroom=0.3) == capacity.fleet(1.3 * peak, seconds, places, target)
    assert capacity.fleet(peak, seconds, 1, target, arrival_cv=3.0, service_cv=2.0) > capacity.fleet(peak, seconds, 1, target)


mixes = st.fixed_dictionaries(
    {"gang": st.floats(1, 64), "gang_cv": st.floats(0, 2), "arrival_cv": st.floats(0, 2), "service_cv": st.floats(0, 3)}
)


@settings(max_examples=60, deadline=None)
@given(gpus=st.integers(64, 4096), mix=mixes)
def test_waits_grow_with_utilisation(gpus, mix):
    found = capacity.waiting(float(gpus), np.linspace(0.01, 0.999, 40), **mix)
    for values in found:
        assert np.all(values[1:] >= values[:-1] * (1 - 1e-9))


def test_arrays_and_numbers_agree():
    busy = np.array([0.3, 0.9, 0.99])
    together = capacity.waiting(np.array([[64.0], [512.0]]), busy, gang=8.0, gang_cv=0.5)
    for i, gpus in enumerate((64.0, 512.0)):
        for j, rho in enumerate(busy):
            alone = capacity.waiting(gpus, float(rho), gang=8.0, gang_cv=0.5)
            assert [np.broadcast_to(v, (2, 3))[i, j] for v in together] == pytest.approx(list(alone), rel=1e-12)
