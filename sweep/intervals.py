"""How sure a step time is: the interval in which measured runs of its kind lie, from the residuals of ``sweep validate``.

One interval for each family of runs (generation of the accelerator, dense or MoE, bound by the host or not): the half-width
is a quantile of |log(measured / predicted)| over the published runs of that family, so the interval is symmetric on a
logarithmic scale, and the same for everything in proportion to the step time or to its inverse.  A family too small to have
a width of its own takes that of all runs, and says so.  It says nothing about a requirement: no one has measured those.
"""

import math
from functools import cache
from typing import NamedTuple

import numpy as np

from . import presets, scores, selections, validation
from ._kernels import quantities
from .errors import SweepError, listed
from .runs import Run

SCALED = ("step_time_s", "tokens_per_s_per_gpu", "mfu", "hfu", "usd_per_million_tokens", "joules_per_token")
"""Outputs in proportion to the step time or to its inverse: what an interval can stand beside."""
DECIDING = ("accelerator", "params", "hidden", "experts", "micro_batch", "seq_len", "tp")
"""What a family is decided by."""
ALL = "all"


class Band(NamedTuple):
    """An interval's width: ``factor`` (low = value / factor, high = value * factor), the family it is of, the number of published
    runs whose residuals it rests on, and the share of unseen runs of the family inside the 80 % interval (NaN: none unseen)."""

    level: int
    family: str
    rows: int
    factor: float
    coverage: float

    def words(self):
        """For a reader: the family used, how many runs stand behind it, and how it has held."""
        kind = "all families (this one is too small)" if self.family == ALL else self.family
        held = (
            f"; {100 * self.coverage:.0f} % of unseen runs lay in the 80 % interval"
            if math.isfinite(self.coverage)
            else ""
        )
        return f"{self.level} % interval of {kind}, from {self.rows} published runs{held}"


def interval(values, family, level=80):
    """(low, high) about a step time, or any quantity of ``SCALED``, as arrays or numbers: see ``family_of`` and ``band``."""
    factor = band(family, level).factor
    return values / factor, values * factor


def family_of(given):
    """The family of a design: ``given`` maps the names of ``DECIDING`` to one value each (missing ones: their defaults).

    ``all`` where no accelerator is named, or its kind has too few published runs.
    """
    if not given.get("accelerator"):
        return ALL
    hidden = given.get("hidden")
    if hidden is None and given.get("params"):
        hidden = 128.0 * (given["params"] / (12.0 * 128.0**2)) ** (1 / 3)  # P = 12 L h^2 with h = 128 L
    kind = "MoE" if given.get("experts") else "dense"
    accelerator = str(given["accelerator"])
    accelerator = next(
        (one.name for one in presets.read_table("accelerator").values() if accelerator in one.aliases), accelerator
    )
    inputs = {name: given.get(name) or quantities.INPUTS[name].default for name in ("micro_batch", "seq_len", "tp")}
    like = Run("", "", f"{accelerator} {kind}", "", accelerator, "", "", "", {"hidden": hidden, **inputs}, math.nan)
    found = scores.family(like)
    return found if found in _kept()["half_width"] else ALL


def given(point):
    """What decides the family of a ``points.Point``."""
    x = point.x
    return {"accelerator": point.spec.fixed.get("accelerator")} | {name: getattr(x, name) for name in DECIDING[1:]}


def band(family, level=80):
    """The :class:`Band` of a family at ``level`` per cent.  SweepError where that level or any figure is not kept."""
    figures = _kept()
    widths = figures["levels"].get(f"{level:g}" if isinstance(level, (int, float)) else str(level))
    if widths is None:
        raise SweepError(f"interval: {level} per cent is not kept. Write {listed(sorted(figures['levels'], key=int))}.")
    name = family if family in widths else ALL
    coverage = figures["families"].get(name, {}).get("coverage", math.nan) if name != ALL else figures["coverage"]
    return Band(int(level), name, figures["residuals"][name], math.exp(widths[name]), coverage)


def dataset(ds, level=80, names=SCALED):
    """``ds``'s own outputs among ``names`` with ``_low`` and ``_high`` behind each name: a Dataset; ``family`` names the kinds.

    The bands stand on the axes of the outputs and of what decides the family; their ``long_name`` says which are used.
    """
    import xarray as xr

    given = {name: array for name in DECIDING if (array := _array(ds, name)) is not None}
    parts = xr.broadcast(*given.values()) if given else ()
    columns = {name: np.asarray(part.values).ravel() for name, part in zip(given, parts)}
    family = families(columns, count=parts[0].size if parts else 1)
    shape, dims = (parts[0].shape, parts[0].dims) if parts else ((), ())
    factor = xr.DataArray(_factors(family, level).reshape(shape), dims=dims)
    found = {"family": xr.DataArray(np.asarray(family, object).reshape(shape), dims=dims)}
    words = "; ".join(band(name, level).words() for name in dict.fromkeys(family))
    for name in names:
        if name in ds.data_vars:
            for side, array in (("low", ds[name] / factor), ("high", ds[name] * factor)):
                array.attrs = {"units": ds[name].attrs.get("units", ""), "long_name": f"{side} end, {words}"}
                found[f"{name}_{side}"] = array
    return xr.Dataset(found)


def about(ds, name, level=80):
    """In words, the intervals that stand beside ``name`` in ``ds``; SweepError where it can have none."""
    if name not in SCALED:
        raise SweepError(f"interval: {name} has none. Draw {listed(SCALED)}.")
    family = dataset(ds, level, ())["family"].values.ravel().tolist()
    return "; ".join(band(one, level).words() for one in dict.fromkeys(family))


def factors(ds, dims, level=80):
    """Half-widths as factors over ``dims`` of ``ds``, a float64 array; where families differ along other axes, the widest counts."""
    import xarray as xr

    family = dataset(ds, level, ())["family"]
    factor = xr.DataArray(_factors(family.values.ravel().tolist(), level).reshape(family.shape), dims=family.dims)
    factor = factor.max([dim for dim in family.dims if dim not in dims])
    shape = tuple(ds.sizes[dim] if dim in factor.dims else 1 for dim in dims)
    return factor.transpose(*(dim for dim in dims if dim in factor.dims)).values.reshape(shape)


def families(columns, count):
    """The family of each of ``count`` designs: ``columns`` maps names of ``DECIDING`` to arrays of that length."""
    known, found = {}, []
    for row in zip(*columns.values()) if columns else ((),) * count:
        if row not in known:
            known[row] = family_of(
                {n: None if isinstance(v, float) and math.isnan(v) else v for n, v in zip(columns, row)}
            )
        found.append(known[row])
    return found


def deciding(names, shown=()):
    """What a table needs beside the columns ``shown`` so that ``beside`` can tell its families, of the ``names`` there are."""
    return [name for name in DECIDING if name in names and name not in shown]


def beside(frame, level=80):
    """A query's table with ``NAME_low`` and ``NAME_high`` behind each column of ``SCALED``; its notes name the families used.

    The last columns may be those of ``deciding``: they are taken off.
    """
    given = frame[[name for name in DECIDING if name in frame.columns]].astype(object)
    given = given.where(given.notna(), None)
    family = families({name: given[name] for name in given.columns}, len(frame))
    while len(frame.columns) and frame.columns[-1] in DECIDING:
        frame = frame.drop(columns=frame.columns[-1])
    shown = [name for name in SCALED if name in frame.columns]
    if not shown:
        raise SweepError(f"interval: none of the columns has one. Show {listed(SCALED)}.")
    factor = _factors(family, level)
    units = frame.attrs.setdefault("units", {})
    for name in shown:
        place = frame.columns.get_loc(name) + 1
        for side, values in (("low", frame[name] / factor), ("high", frame[name] * factor)):
            frame.insert(place + (side == "high"), f"{name}_{side}", values)
            units[f"{name}_{side}"] = units.get(name, "")
    frame["interval_family"], units["interval_family"] = np.array(family, object), ""
    frame.attrs.setdefault("notes", []).extend(band(name, level).words() for name in dict.fromkeys(family))
    return frame


def _factors(family, level):
    factor = {name: band(name, level).factor for name in dict.fromkeys(family)}
    return np.array([factor[name] for name in family], float)


@cache
def _kept():
    figures = validation.stored().get("interval")
    if not figures:
        raise SweepError("interval: no residuals are kept. Type: sweep calibrate --stacks.")
    return figures


def _array(ds, name):
    import xarray as xr

    if name in ds.variables:
        return ds[name].astype(str) if ds[name].dtype.kind in "OUST" else ds[name]
    value = {**selections.presets_of(ds), **selections.settings(ds)}.get(name)
    return None if value is None else xr.DataArray(value)
