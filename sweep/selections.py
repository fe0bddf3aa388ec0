"""Reading a labelled Dataset: what its names mean, which points are valid, which slice was asked for.

Any xarray Dataset will do that has axes as dimensions with labels, outputs as variables with ``units`` and
``long_name``, categories as codes with ``flag_values``/``flag_meanings``, and optionally ``status``.  Each variable may lack
the axes it does not depend on.
"""

import json
from functools import lru_cache

import numpy as np

from .errors import SweepError, did_you_mean

CLOSE = 1e-6  # relative distance at which a number typed is the label meant


def variable(ds, name, where=""):
    """The axis, column or output of that name; SweepError with the nearest name where there is none."""
    if name in ds.variables:
        return ds[name]
    known = [*ds.dims, *ds.coords, *ds.data_vars]
    raise SweepError(f"{where + ': ' if where else ''}{name!r} is not in this dataset. {did_you_mean(name, dict.fromkeys(known))}")


def words(ds, name):
    """The words of a category by code, the labels of an axis of text, None for numbers."""
    array = ds.variables[name]
    if "flag_meanings" in array.attrs:
        meanings = array.attrs["flag_meanings"]
        meanings = meanings.split() if isinstance(meanings, str) else list(meanings)
        codes = np.atleast_1d(array.attrs.get("flag_values", np.arange(len(meanings)))).tolist()
        return {int(code): word for code, word in zip(codes, meanings)}
    if array.dtype.kind in "OUST" and array.ndim == 1:
        return dict(enumerate(dict.fromkeys(str(value) for value in array.values)))
    return None


def allowed(ds, allow=None):
    """Codes of ``status`` that count: ok, the reasons that the sweep's own config allows, and those of ``allow``.

    None if the dataset has no status.
    """
    if "status" not in ds.variables:
        return None
    codes = {word: code for code, word in (words(ds, "status") or {0: "ok"}).items()}
    for reason in allow or ():
        if reason not in codes:
            raise SweepError(f"allow: {reason!r} is not a reason of status. {did_you_mean(reason, codes)}")
    reasons = dict.fromkeys(["ok", *(spec_of(ds).get("allow") or ()), *(allow or ())])
    return np.array([codes[reason] for reason in reasons if reason in codes], int)


def select(ds, at=None):
    """The slice of ``ds`` at labels: name -> label, list of labels (keeps the axis) or ``(low, high)`` (a range).

    Names are axes, or columns and outputs that stand on one axis; numbers match within one part in a million.
    SweepError names the nearest labels.
    """
    for name, wanted in (at or {}).items():
        array = variable(ds, name, "at")
        if array.ndim == 0:
            _check_fixed(name, array, wanted)
            continue
        index = positions(ds, name, wanted)
        if len(index) == 1 and not isinstance(wanted, (list, tuple)):
            index = int(index[0])
        ds = ds.isel({array.dims[0]: index})
    return ds


def positions(ds, name, wanted):
    """Positions along the axis of ``name`` at a label, a list of labels or a ``(low, high)`` range."""
    array = variable(ds, name, "at")
    if array.ndim != 1:
        raise SweepError(f"at: {name} stands on {', '.join(map(str, array.dims))}; fix those axes instead.")
    labels = np.asarray(array.values)
    if isinstance(wanted, tuple):
        low, high = wanted
        index = np.flatnonzero((labels >= low - abs(low) * CLOSE) & (labels <= high + abs(high) * CLOSE))
        if not len(index):
            raise SweepError(f"at: {name} has no label from {low:g} to {high:g}. {_listed(labels)}")
        return index
    if isinstance(wanted, list):
        return np.concatenate([np.atleast_1d(_find(name, labels, item)) for item in wanted])
    return np.atleast_1d(_find(name, labels, wanted))


def _find(name, labels, wanted):
    """Positions of a label: one integer where labels are unique, an array for a column in which they repeat."""
    if labels.dtype.kind in "OUST":
        hits = np.flatnonzero(labels.astype(str) == str(wanted))
        if not len(hits):
            raise SweepError(f"at: {name} has no {str(wanted)!r}. {did_you_mean(wanted, labels)}")
    else:
        try:
            number = float(wanted)
        except (TypeError, ValueError):
            raise SweepError(f"at: {name} is a number, {wanted!r} is not. {_listed(labels)}") from None
        hits = np.flatnonzero(np.isclose(labels.astype(float), number, rtol=CLOSE, atol=0))
        if not len(hits):
            order = np.argsort(np.abs(labels.astype(float) - number), kind="stable")[:2]
            close = " and ".join(f"{labels[i]:g}" for i in sorted(order))
            raise SweepError(f"at: {name} has no {number:g}. The nearest are {close}.")
    return int(hits[0]) if len(hits) == 1 else hits


def _check_fixed(name, array, wanted):
    value = array.values[()]
    same = str(value) == str(wanted) if array.dtype.kind in "OUST" else np.isclose(float(value), float(wanted), rtol=CLOSE)
    if not same:
        raise SweepError(f"at: {name} is fixed at {value} here.")


def _listed(labels):
    shown = [f"{label:g}" if isinstance(label, (int, float, np.number)) else str(label) for label in labels[:12]]
    return f"Its labels are {', '.join(shown)}{', ...' if len(labels) > 12 else ''}."


def along(ds, name, where):
    """The one axis that a name varies on, with its values: ``(dim, values)``, float64 or text.

    An axis is itself; a column or output may stand on more axes as long as its values change along one, and must be
    strictly monotone there.
    """
    array = variable(ds, name, where)
    if name in ds.dims:
        return name, _plain(array.values)
    for dim in array.dims:
        if array.sizes[dim] == 1 or _constant(array.values, array.dims.index(dim)):
            array = array.isel({dim: 0})
    if array.ndim == 0:
        raise SweepError(f"{where}: {name} is the same everywhere in this slice.")
    if array.ndim > 1:
        dims = [str(dim) for dim in array.dims]
        first = dims[-1]
        raise SweepError(
            f"{where}: {name} varies along {' and '.join(dims)}; it can stand on one axis only. "
            f"Fix one, such as {first}={_show(ds[first].values[0]) if first in ds.coords else 0}."
        )
    values = _plain(array.values)
    if values.dtype.kind == "f":
        steps = np.diff(values)
        if not (np.all(steps > 0) or np.all(steps < 0)):
            raise SweepError(f"{where}: {name} is not monotone along {array.dims[0]}. Use {array.dims[0]} instead.")
    return array.dims[0], values


def _constant(values, axis):
    first = np.take(values, [0], axis)
    if values.dtype.kind in "OUST":
        return bool(np.all(values == first))
    with np.errstate(invalid="ignore"):
        return bool(np.all(np.isclose(values.astype(float), first.astype(float), rtol=CLOSE, atol=0, equal_nan=True)))


def _plain(values):
    return values.astype(str).astype(object) if values.dtype.kind in "OUST" else values.astype(float)


def _show(label):
    return f"{label:g}" if isinstance(label, (int, float, np.number)) else str(label)


def settings(ds):
    """What the dataset holds fixed: name -> value, from the spec in its attributes and its scalar coordinates."""
    fixed = dict(spec_of(ds).get("fixed") or {})
    for name, coord in ds.coords.items():
        if coord.ndim == 0:
            value = coord.values[()]
            fixed[str(name)] = value.item() if isinstance(value, np.generic) else value
    return fixed


def presets_of(ds):
    """The presets that the spec names for all points: ``{"model": "llama-3-70b"}``."""
    return dict(spec_of(ds).get("presets") or {})


def spec_of(ds):
    """The spec in the attributes, as plain values; empty where there is none."""
    text = ds.attrs.get("spec")
    return dict(_parsed(text)) if isinstance(text, str) else {}


@lru_cache(maxsize=8)
def _parsed(text):
    try:
        spec = json.loads(text)
    except (TypeError, ValueError):
        spec = {}
    return spec if isinstance(spec, dict) else {}


def label_of(ds, name):
    """The words of an axis label: long name and unit."""
    attrs = ds[name].attrs if name in ds.variables else {}
    text = attrs.get("long_name") or str(name).replace("_", " ")
    unit = attrs.get("units", "")
    return text if unit in ("", "1", "dimensionless") else f"{text} ({unit})"


def parse_at(assignments):
    """``name=label``, ``name=label,label`` or ``name=low..high`` of a command line, as ``select`` takes them."""
    at = {}
    for text in assignments:
        name, equals, wanted = str(text).partition("=")
        name, wanted = name.strip(), wanted.strip()
        if not (equals and name and wanted):
            raise SweepError(f"--at {text}: write NAME=VALUE, such as --at accelerator=h100.")
        if name in at:
            raise SweepError(f"--at {name} is given twice. Write its labels in one, such as --at {name}=A,B.")
        low, dots, high = wanted.partition("..")
        if dots:
            try:
                at[name] = float(low), float(high)
            except ValueError:
                raise SweepError(f"--at {text}: a range has a number on each side, such as 100..800.") from None
        else:
            at[name] = wanted.split(",") if "," in wanted else wanted
    return at


def plane(ds, name, dims, what, allow=None, over=()):
    """``name`` as a float64 array over ``dims``, NaN where a point does not count; ``over``: the best along these axes.

    Any other axis of more than one label must have been fixed before; SweepError says which.
    """
    array = variable(ds, name, what)
    if words(ds, name) is not None:
        raise SweepError(f"{what}: {name} has words; a number is drawn here.")
    codes = allowed(ds, allow)
    if codes is not None:
        array = array.where(ds["status"].isin(codes))
    sign = -1
    for dim in array.dims:
        if dim in dims or array.sizes[dim] == 1:
            continue
        if dim not in over:
            label = _show(ds[dim].values[0]) if dim in ds.coords else 0
            raise SweepError(f"{what}: {name} varies along {dim} too. Fix it, such as {dim}={label}, or take the best over it.")
    searched = [dim for dim in array.dims if dim in over and dim not in dims]
    if searched:
        from .winners import direction

        sign = direction(name, what)[1]
        array = (array.min if sign > 0 else array.max)(searched)
    array = array.isel({dim: 0 for dim in array.dims if dim not in dims})
    present = [dim for dim in dims if dim in array.dims]
    values = np.asarray(array.transpose(*present).values, float)
    shape = tuple(ds.sizes[dim] if dim in present else 1 for dim in dims)
    return np.broadcast_to(values.reshape(shape), tuple(ds.sizes[dim] for dim in dims))
