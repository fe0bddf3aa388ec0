"""The slowest of many ranks against simulation, and failures against published counts."""

import numpy as np
import pytest

from kernels import stragglers


@pytest.mark.parametrize("ranks", [1, 2, 8, 128, 1024])
@pytest.mark.parametrize("cv", [0.02, 0.3])
def test_the_slowest_of_many(ranks, cv):
    rng = np.random.default_rng(7)
    spread = np.sqrt(np.log1p(cv**2))
    drawn = rng.standard_normal((max(2000, 200000 // ranks), ranks))
    simulated = {
        stragglers.NORMAL: (1 + cv * drawn).max(1).mean(),
        stragglers.LOGNORMAL: np.exp(spread * drawn - spread**2 / 2).max(1).mean(),
        stragglers.EXPONENTIAL: (1 - cv + cv * rng.exponential(1, drawn.shape)).max(1).mean(),
    }
    for tail, expected in simulated.items():
        assert stragglers.slowdown(float(ranks), cv, tail) == pytest.approx(expected, rel=0.01)


def test_known_maxima():
    """Two normals 1/sqrt(pi); 1,000 of them 3.2414 (tables of order statistics); sums of 1/k."""
    assert stragglers.expected_maximum(2.0) == pytest.approx(np.pi**-0.5, rel=1e-9)
    assert stragglers.expected_maximum(1000.0) == pytest.approx(3.24144, rel=1e-5)
    assert stragglers.harmonic(100.0) == pytest.approx(sum(1 / k for k in range(1, 101)), rel=1e-9)


def test_asymptote():
    """sqrt(2 ln N) is an upper bound that is approached slowly."""
    ranks = np.array([100.0, 1e4, 1e6])
    ratio = stragglers.expected_maximum(ranks) / np.sqrt(2 * np.log(ranks))
    assert np.all(ratio < 1) and np.all(np.diff(ratio) > 0)


def test_more_ranks_and_wider_spreads_are_slower():
    ranks = 2.0 ** np.arange(0, 18)
    for tail in (stragglers.NORMAL, stragglers.LOGNORMAL, stragglers.EXPONENTIAL):
        factors = stragglers.slowdown(ranks[:, None], np.array([0.0, 0.01, 0.1]), tail)
        assert np.all(np.diff(factors, axis=0) >= -1e-3) and np.all(np.diff(factors, axis=1)[1:] > 0)
        assert factors[:, 0] == pytest.approx(1, abs=1e-6)


def test_llama_3_interruptions():
    """419 unexpected interruptions in 54 days on 16,384 GPUs, 35 of them network (arXiv 2407.21783, table 5)."""
    assert stragglers.failures_per_day(16384, 5.78) * 54 == pytest.approx(419, rel=0.01)
    assert stragglers.failures_per_day(16384, 69.2) * 54 == pytest.approx(35, rel=0.01)
    assert stragglers.goodput(16384, 1.0, 5.78, 0.5) == pytest.approx(1 / (1 + 419 / 54 / 24 * 0.5), rel=1e-3)


def test_a_lost_rail_slows_its_collective():
    assert stragglers.rail_loss(8) == pytest.approx(8 / 7) and stragglers.rail_loss(4, 2) == 2


def test_share_of_time_with_a_port_down():
    """Failures and repairs drawn one by one: exponential gaps over the cluster, each port down for the repair time."""
    gpus, years, hours = 8192.0, 69.0, 24.0
    rng = np.random.default_rng(11)
    start = np.cumsum(rng.exponential(years * stragglers.HOURS_PER_YEAR / gpus, 200000))
    covered = np.minimum(np.diff(start), hours).sum() / (start[-1] - start[0])
    assert stragglers.port_down(gpus, years, hours) == pytest.approx(covered, rel=0.01)


def test_a_lost_rail_is_a_query():
    """One of eight ports lost: the step is the one of 7/8 of the port, the port asked for is 8/7, its price the same."""
    import sweep

    case = {"model": "llama-3-70b", "accelerator": "h100", "tp": 8, "gpus": 1024, "efficiency": 0.4}
    names = ["step_time_s", "link_gbps_at_tolerance", "fabric_usd_per_gpu", "decode_ep_s"]
    whole, lost = (sweep.evaluate(**case, lost_rails=n, link_gbps=400, outputs=names) for n in (0, 1))
    slower = sweep.evaluate(**case, link_gbps=350, outputs=names)
    assert float(lost.step_time_s) == pytest.approx(float(slower.step_time_s), rel=1e-12) and float(lost.step_time_s) > float(whole.step_time_s)
    assert float(lost.link_gbps_at_tolerance) == pytest.approx(8 / 7 * float(whole.link_gbps_at_tolerance), rel=1e-9)
    assert float(lost.fabric_usd_per_gpu) == float(whole.fabric_usd_per_gpu)
