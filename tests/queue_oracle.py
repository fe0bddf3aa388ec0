"""A queue of jobs simulated event by event: arrivals, starts and departures, and no formula.

Jobs arrive at random gaps, ask for a gang of servers, hold all of them for a random time, and are served first come,
first served: the job at the head waits until its whole gang is free, and everybody behind it waits too.  ``backfill``
lets any waiting job that fits start (a scheduler without reservations).
"""

import heapq

import numpy as np


def draw(rng, mean, cv, count):
    """Positive random numbers of a mean and a coefficient of variation: gamma below 1 and at 1 (exponential),
    lognormal above.
    """
    if cv == 0:
        return np.full(count, mean)
    if cv <= 1:
        return rng.gamma(1 / cv**2, mean * cv**2, count)
    spread = np.log1p(cv**2)
    return rng.lognormal(np.log(mean) - spread / 2, np.sqrt(spread), count)


def simulate(
    servers,
    utilisation,
    service=1.0,
    arrival_cv=1.0,
    service_cv=1.0,
    gangs=(1,),
    weights=(1.0,),
    jobs=100000,
    seed=0,
    backfill=False,
):
    """Waiting times of ``jobs`` jobs in units of the mean service time, the first tenth left out, and the busy share
    of servers.
    """
    rng = np.random.default_rng(seed)
    gang = rng.choice(gangs, jobs, p=np.array(weights) / np.sum(weights))
    mean_gang = np.dot(gangs, weights) / np.sum(weights)
    gaps = draw(rng, service * mean_gang / (servers * utilisation), arrival_cv, jobs)
    arrive, hold = np.cumsum(gaps), draw(rng, service, service_cv, jobs)
    start = _backfilled(servers, arrive, hold, gang) if backfill else _in_order(servers, arrive, hold, gang)
    wait = (start - arrive)[jobs // 10 :]
    span = start[-1] - start[jobs // 10]
    busy = np.sum((hold * gang)[jobs // 10 :]) / (span * servers)
    return wait / service, busy


def _in_order(servers, arrive, hold, gang):
    """Start times under first come, first served."""
    free, running, now = servers, [], 0.0
    start = np.empty(len(arrive))
    for job in range(len(arrive)):
        now = max(now, arrive[job])
        while running and running[0][0] <= now:
            free += heapq.heappop(running)[1]
        while free < gang[job]:
            now, width = heapq.heappop(running)
            free += width
        start[job] = now
        free -= gang[job]
        heapq.heappush(running, (now + hold[job], gang[job]))
    return start


def _backfilled(servers, arrive, hold, gang):
    """Start times where every waiting job that fits starts, in order of arrival."""
    free, running, waiting, job = servers, [], [], 0
    start = np.empty(len(arrive))
    while job < len(arrive) or waiting:
        next_arrival = arrive[job] if job < len(arrive) else np.inf
        next_end = running[0][0] if running else np.inf
        now = min(next_arrival, next_end)
        if next_end <= next_arrival:
            free += heapq.heappop(running)[1]
        else:
            waiting.append(job)
            job += 1
        left = []
        for candidate in waiting:
            if gang[candidate] <= free:
                start[candidate] = now
                free -= gang[candidate]
                heapq.heappush(running, (now + hold[candidate], gang[candidate]))
            else:
                left.append(candidate)
        waiting = left
    return start
