"""What people write as a value, checked against the dictionary where it enters.

A number stays a Python float, a word of a category becomes its code, a flag 0 or 1.  A list of values, or a rule that
generates one, becomes the labels of an axis:

    [200, 400]   400   {linspace: [a, b, n]}   {geomspace: [a, b, n]}   {powers_of_two: [a, b]}   {range: [a, b, step]}

Bounds are values (not exponents) and included.  Generated labels are rounded to 12 significant digits: geomspace would
give 400.0000000000001, and nobody could select 400.
"""

import math
import numbers

import numpy as np

from ._kernels import quantities
from .errors import SpecError, did_you_mean, listed

RULES = ("linspace", "geomspace", "powers_of_two", "range")
MOST_LABELS = 1_000_000


def scalar(quantity, value, place, hint=None):
    """One value of a quantity as a Python number: float, or int for a category's code or a flag."""
    value = plain(value)
    if quantity.kind == "category":
        return _code(quantity, value, place)
    if quantity.kind == "flag" and isinstance(value, bool):
        return int(value)
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise SpecError(f"{place}: {_shown(value)} is not a number. {hint or _scalar_hint(quantity, value)}")
    value = float(value)
    if quantity.kind == "int" and abs(value) >= 2.0**53 and math.isfinite(value):
        raise SpecError(f"{place}: {value:g} is more than can be counted exactly. Write a number below 2^53.")
    if math.isnan(value):
        raise SpecError(f"{place}: NaN is not a value. Write a number in {_unit(quantity)}.")
    low, high = quantity.low, quantity.high
    if value < low or value > high or (quantity.open_low and value == low):
        raise SpecError(f"{place}: {value:g} is out of bounds. Write {_bounds(quantity)}.")
    if quantity.kind != "float" and value != math.floor(value):
        raise SpecError(f"{place}: {value:g} is not a whole number. Write one such as {math.ceil(value)}.")
    return int(value) if quantity.kind == "flag" else value


def labels(quantity, values, place):
    """The labels of an axis over a quantity and the numbers they stand for: two arrays of one length.

    Labels are f8, i8 where the quantity counts something, and words (dtype object) for a category.
    """
    generated = isinstance(values, dict)
    items = _generate(values, place) if generated else sequence(values, place, quantity)
    if len(items) > MOST_LABELS:
        raise SpecError(f"{place}: {len(items)} values are too many for one axis. Write at most {MOST_LABELS}.")
    codes = [scalar(quantity, item, place, _list_hint(quantity)) for item in items]
    if quantity.kind == "category":
        words = words_of(items)
        distinct(words, place)
        return words, np.array(codes, dtype=np.int32)
    distinct(codes, place)
    if quantity.kind == "flag":
        return np.array(codes, dtype=np.int64), np.array(codes, dtype=np.int32)
    values = np.array(codes, dtype=np.float64)
    return (values.astype(np.int64) if quantity.kind == "int" else values), values


def sequence(values, place, quantity=None):
    """A list of values; one value stands for a list of one."""
    values = plain(values)
    if values is None or (isinstance(values, (list, tuple)) and not values):
        raise SpecError(f"{place}: the axis is empty. Write a list such as {_example(quantity)}, or leave the axis out.")
    return list(values) if isinstance(values, (list, tuple)) else [values]


def words_of(items):
    """An array of strings with dtype object: fixed-width strings do not survive a zarr store."""
    words = np.empty(len(items), dtype=object)
    words[:] = [str(item) for item in items]
    return words


def distinct(items, place):
    """Refuse a label that stands twice."""
    seen = set()
    for item in items:
        if isinstance(item, (list, dict)):
            raise SpecError(f"{place}: a list or mapping stands where a single value belongs. Write values such as [a, b].")
        if item in seen:
            shown = f"{item:g}" if isinstance(item, numbers.Real) else repr(item)
            raise SpecError(f"{place}: {shown} stands twice. Remove one of the two.")
        seen.add(item)


def plain(value):
    """NumPy's scalars and arrays as Python's numbers and lists."""
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


def readable(quantity, number):
    """The value as a person writes it: the inverse of ``scalar``."""
    if quantity.kind == "category":
        return quantity.choices[int(number)]
    return int(number) if quantity.kind in ("int", "flag") and math.isfinite(number) else float(number)


def rounded(values):
    """Rounded to 12 significant digits."""
    return [float(f"{value:.12g}") for value in values]


def _generate(rule, place):
    if len(rule) != 1 or next(iter(rule)) not in RULES:
        word = next((key for key in rule if key not in RULES), "")
        raise SpecError(f"{place}: {word!r} is no rule for values. Write a list, or one of {listed(RULES)}.")
    (name, arguments), = rule.items()
    wanted = {"powers_of_two": "[first, last]", "range": "[first, last, step]"}.get(name, "[first, last, count]")
    arguments = plain(arguments)
    count = 2 if name == "powers_of_two" else 3
    if not isinstance(arguments, (list, tuple)) or len(arguments) != count or not all(map(_finite, arguments)):
        raise SpecError(f"{place}.{name}: {_shown(arguments)} are not {count} numbers. Write {{{name}: {wanted}}}.")
    return {"powers_of_two": _powers, "range": _range}.get(name, _spaced)(name, arguments, f"{place}.{name}")


def _spaced(name, arguments, place):
    first, last, count = arguments
    if count != int(count) or count < 1 or (count == 1 and first != last):
        raise SpecError(f"{place}: {count} is not a count of values. Write a whole number of at least 2.")
    if count > MOST_LABELS:
        raise SpecError(f"{place}: {count} values are too many for one axis. Write at most {MOST_LABELS}.")
    if name == "geomspace" and (first <= 0 or last <= 0):
        raise SpecError(f"{place}: geomspace needs bounds above 0. Write {{linspace: [{first}, {last}, {count}]}}.")
    return rounded(getattr(np, name)(float(first), float(last), int(count)))


def _powers(name, arguments, place):
    for bound in arguments:
        if bound <= 0 or math.frexp(bound)[0] != 0.5:
            raise SpecError(f"{place}: {bound} is not a power of two. Write bounds such as [1, 64].")
    first, last = (math.frexp(bound)[1] for bound in arguments)
    if last < first:
        raise SpecError(f"{place}: {arguments[0]} is above {arguments[1]}. Write the smaller bound first.")
    return [2.0 ** (exponent - 1) for exponent in range(first, last + 1)]


def _range(name, arguments, place):
    first, last, step = arguments
    steps = (last - first) / step if step else -1.0
    if steps < 0:
        raise SpecError(f"{place}: {step} does not lead from {first} to {last}. Write {{range: [first, last, step]}}.")
    if steps > MOST_LABELS:
        raise SpecError(f"{place}: {steps:.0f} values are too many for one axis. Write at most {MOST_LABELS}.")
    return rounded(first + step * i for i in range(int(math.floor(steps + 1e-9)) + 1))


def _finite(value):
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)


def _code(quantity, value, place):
    try:
        return quantities.encode(quantity, value)
    except KeyError:
        hint = did_you_mean(value, quantity.choices)
        hint = hint if hint.startswith("Did") else f"Write {listed(quantity.choices)}."
        raise SpecError(f"{place}: {_shown(value)} is not a {quantity.name}. {hint}") from None


def _shown(value):
    return "nothing" if value is None else repr(value)


def _unit(quantity):
    return {"1": "plain numbers", "byte": "bytes"}.get(quantity.unit, quantity.unit)


def _example(quantity):
    if quantity is not None and quantity.kind == "category":
        return f"[{', '.join(quantity.choices[:2])}]"
    return {"link_gbps": "[200, 400]"}.get(quantity.name, "[1, 2, 4]") if quantity else "[llama-3-70b]"


def _list_hint(quantity):
    rule = "{geomspace: [25, 3200, 43]}" if quantity.name == "link_gbps" else "{powers_of_two: [1, 64]}"
    return f"Write a list such as {_example(quantity)} or {rule}."


def _scalar_hint(quantity, value):
    if quantity.kind == "flag":
        return "Write true or false."
    if isinstance(value, (list, tuple, dict)):
        return "Write one number here; a list belongs under axes."
    default = quantity.default if isinstance(quantity.default, (int, float)) else None
    example = 400 if quantity.name == "link_gbps" else default
    return f"Write one in {_unit(quantity)}" + ("." if example is None else f" such as {example:g}.")


def _bounds(quantity):
    low = f"a number above {quantity.low:g}" if quantity.open_low else f"a number of at least {quantity.low:g}"
    high = "" if math.isinf(quantity.high) else f" and at most {quantity.high:g}"
    unit = "" if quantity.unit == "1" else f" ({quantity.unit})"
    return f"{low}{high}{unit}"
