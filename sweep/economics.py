"""More or less port?  The port speed at which a token costs least, and what the next Gb/s is worth.

Any Dataset with ``usd_per_million_tokens`` and ``tokens_per_s_per_gpu`` over ``link_gbps`` will do: a saved sweep or
the result of ``sweep.evaluate``.  For every combination of the other axes:

    cost_optimal_link_gbps   the port with the fewest dollars per token
    flat_low, flat_high      the slowest and the fastest port within 1 % of that: in between it does not matter
    worth                    what one more Gb/s on every port is worth, in dollars per accelerator over its life
    price                    what it costs, switches, optics, NICs and their energy

Worth is the share of time that one more Gb/s saves, times all that an accelerator costs over its life; price is the
growth of that cost.  Both are slopes from one port to the next one that is sold, so they sit between ports; where
worth passes below price, the optimum is.  Prices are inputs: an axis of prices shows what the answer owes to them.
"""

import numpy as np
import xarray as xr

from . import selections
from .errors import SweepError

LINK = "link_gbps"
FLAT = 0.01  # share of the least cost within which ports count as equally good
SECONDS_PER_YEAR = 365.25 * 86400.0


def best_ports(ds, flat=FLAT, at=None, allow=None):
    """The optimum of every combination of axes other than the port, as a Dataset on those axes."""
    costs, view = _costs(ds, at, allow)
    links = costs[LINK].values
    values = costs.values
    known = np.isfinite(values)
    filled = np.where(known, values, np.inf)
    place = filled.argmin(-1)
    least = filled.min(-1)
    any_ = known.any(-1)
    good = filled <= least[..., None] * (1.0 + flat)
    low, high = good.argmax(-1), good.shape[-1] - 1 - good[..., ::-1].argmax(-1)
    dims = costs.dims[:-1]

    def variable(array, units, long_name):
        return dims, np.where(any_, array, np.nan), {"units": units, "long_name": long_name}

    found = {
        "cost_optimal_link_gbps": variable(links[place], "Gb/s", "port at which a token costs least"),
        "flat_low_link_gbps": variable(links[low], "Gb/s", f"slowest port within {flat:.0%} of the least cost"),
        "flat_high_link_gbps": variable(links[high], "Gb/s", f"fastest port within {flat:.0%} of the least cost"),
        "usd_per_million_tokens": variable(least, "USD", "least cost of a million tokens"),
    }
    more = {
        name: view[name] for name in view.data_vars if LINK not in view[name].dims and set(view[name].dims) <= set(dims)
    }
    coords = {name: coord for name, coord in costs.coords.items() if LINK not in coord.dims}
    return xr.Dataset(more | found, coords, dict(ds.attrs))


def relative(ds, at=None, allow=None):
    """The cost of a token at every port over the least of its combination: ``relative_cost``, for figures."""
    costs, _view = _costs(ds, at, allow)
    shown = (costs / costs.min(LINK)).assign_attrs(units="1", long_name="cost of a token over the least")
    return xr.Dataset({"relative_cost": shown}, attrs=dict(ds.attrs))


def next_gbps(ds, at=None, allow=None):
    """Worth and price of one more Gb/s, per accelerator over its life, from every port to the next one of the axis.

    ``link_gbps`` of the result is the slower of the two ports, ``next_link_gbps`` the faster.
    """
    costs, view = _costs(ds, at, allow)
    rate = selections.variable(view, "tokens_per_s_per_gpu", "economics")
    life = _fixed(view, "amortisation_years", 4.0) * SECONDS_PER_YEAR
    owned = costs * rate * (1e-6 * life)  # USD per accelerator over its life: capital and energy
    owned = owned.transpose(*costs.dims)
    rate = rate.broadcast_like(costs).transpose(*costs.dims)
    links = costs[LINK].values
    steps = np.diff(links)
    # saved time is spent at the mean of the two costs; the log makes worth and price meet where the cost per token is flat
    worth = np.diff(np.log(rate.values), axis=-1) * (owned.values[..., 1:] + owned.values[..., :-1]) / 2.0 / steps
    price = np.diff(owned.values, axis=-1) / steps
    coords = {name: coord for name, coord in costs.coords.items() if LINK not in coord.dims}
    coords[LINK] = (LINK, links[:-1], dict(costs[LINK].attrs))
    coords["next_link_gbps"] = (LINK, links[1:], {"units": "Gb/s", "long_name": "the next port"})
    found = {
        "worth_usd_per_gbps": (
            costs.dims,
            worth,
            {"units": "USD", "long_name": "worth of one more Gb/s per accelerator"},
        ),
        "price_usd_per_gbps": (
            costs.dims,
            price,
            {"units": "USD", "long_name": "price of one more Gb/s per accelerator"},
        ),
    }
    return xr.Dataset(found, coords, dict(ds.attrs))


def table(ds, flat=FLAT, at=None, allow=None):
    """One row per combination: its labels, the optimum, the flat region, and worth and price of the next Gb/s at the
    optimum.
    """
    best = best_ports(ds, flat, at, allow)
    more = next_gbps(ds, at, allow)
    dims = list(best.cost_optimal_link_gbps.dims)
    found = ["cost_optimal_link_gbps", "flat_low_link_gbps", "flat_high_link_gbps", "usd_per_million_tokens"]
    plain = best[found].drop_vars([name for name in best.coords if name not in dims])
    frame = plain.to_dataframe(dim_order=dims) if dims else plain.expand_dims(_=[0]).to_dataframe()
    slower = more[LINK].values
    place = np.searchsorted(slower, np.asarray(best.cost_optimal_link_gbps.values, float).ravel())
    place = np.clip(place, 0, len(slower) - 1)
    for name in ("worth_usd_per_gbps", "price_usd_per_gbps"):
        values = more[name].transpose(*dims, LINK).values.reshape(-1, len(slower))
        frame[name] = values[np.arange(len(place)), place]
    frame = frame.reset_index()[[*dims, *found, "worth_usd_per_gbps", "price_usd_per_gbps"]]
    return frame[frame.cost_optimal_link_gbps.notna()].reset_index(drop=True)


def words(ds, at=None, allow=None):
    """The answer of one combination in a few sentences."""
    costs, _ = _costs(ds, at, allow)
    if costs.ndim != 1:
        left = [dim for dim in costs.dims[:-1]]
        raise SweepError(
            f"economics: {', '.join(left)} still vary: fix them, such as {left[0]}={selections._show(costs[left[0]].values[0])}."
        )
    row = table(ds, at=at, allow=allow).iloc[0]
    links, values = costs[LINK].values, costs.values
    best = int(np.nanargmin(values))
    text = [
        f"A million tokens cost least, {values[best]:.3g} USD, with a port of {links[best]:.4g} Gb/s per accelerator."
    ]
    if row.flat_low_link_gbps < row.flat_high_link_gbps:
        text.append(
            f"From {row.flat_low_link_gbps:.4g} to {row.flat_high_link_gbps:.4g} Gb/s they cost within 1 % of that."
        )
    else:
        text.append("No other port on the list comes within 1 % of that.")
    for other, name in ((best - 1, "less"), (best + 1, "more")):
        if 0 <= other < len(links):
            text.append(f"One step {name}, {links[other]:.4g} Gb/s, costs {values[other] / values[best] - 1:+.1%}.")
    if best + 1 < len(links):
        text.append(
            f"Beyond it one more Gb/s is worth {row.worth_usd_per_gbps:.3g} USD per accelerator over its life and costs {row.price_usd_per_gbps:.3g}."
        )
    return " ".join(text)


def _costs(ds, at, allow):
    """(cost per token of valid points, the port last, NaN elsewhere; the slice)."""
    view = selections.select(ds, at)
    costs = selections.variable(view, "usd_per_million_tokens", "economics").astype(float)
    if LINK not in costs.dims:
        raise SweepError(
            "economics: link_gbps does not vary here. Give it as an axis of ports, such as [100, 200, 400, 800]."
        )
    costs = costs.sortby(LINK).load()
    codes = selections.allowed(view, allow)
    if codes is not None:
        costs = costs.where(view["status"].isin(codes))
    return costs.transpose(..., LINK), view.sortby(LINK)


def _fixed(ds, name, default):
    if name in ds.variables and ds[name].ndim <= 1:
        return ds[name]
    value = selections.settings(ds).get(name, default)
    return float(value) if isinstance(value, (int, float)) else default
