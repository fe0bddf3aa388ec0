"""The few array operations that the kernels use, for NumPy and jax alike.

One text of the model serves two runs: in NumPy (one point, ``explain``, ``validate``) and under ``jax.jit`` (sweeps).  Each
operation looks at its arguments: numbers and NumPy arrays stay in NumPy, anything else is taken for a jax array.  jax is not
imported here until such an array arrives, and then it has been imported already.

A condition that is a plain Python or NumPy scalar takes one branch, so that fixed choices cost nothing in a sweep.
"""

import math

import numpy as np

_PLAIN = (int, float, bool, np.ndarray, np.generic)


def _numpy_or_jax(*arguments):
    for argument in arguments:
        if not isinstance(argument, _PLAIN):
            import jax.numpy as jnp

            return jnp
    return np


def is_concrete(value):
    """True where ``value`` is one number known now (not an array, not traced)."""
    return isinstance(value, (int, float, bool, np.generic)) or (isinstance(value, np.ndarray) and value.ndim == 0)


def is_zero(value):
    """True where ``value`` is known now to be 0."""
    return is_concrete(value) and value == 0


def maximum(first, *others):
    """Elementwise largest of two or more."""
    for other in others:
        if isinstance(first, (int, float)) and isinstance(other, (int, float)):
            first = first if first >= other or first != first else other
        else:
            first = _numpy_or_jax(first, other).maximum(first, other)
    return first


def minimum(first, *others):
    """Elementwise smallest of two or more."""
    for other in others:
        if isinstance(first, (int, float)) and isinstance(other, (int, float)):
            first = first if first <= other or first != first else other
        else:
            first = _numpy_or_jax(first, other).minimum(first, other)
    return first


def where(condition, yes, no):
    """``yes`` where the condition holds, else ``no``; a concrete condition takes one of them as it is."""
    if is_concrete(condition):
        return yes if condition else no
    return _numpy_or_jax(condition, yes, no).where(condition, yes, no)


def clip(value, low, high):
    """``value`` kept between ``low`` and ``high``."""
    return minimum(maximum(value, low), high)


def positive(value):
    """``max(value, 0)``."""
    return maximum(value, 0.0)


def _elementwise(name):
    in_python = getattr(math, name, None)

    def operation(value):
        if in_python is not None and isinstance(value, (int, float)) and math.isfinite(value):
            return float(in_python(value))
        return getattr(_numpy_or_jax(value), name)(value)

    operation.__name__ = name
    operation.__doc__ = f"Elementwise {name}."
    return operation


ceil = _elementwise("ceil")
floor = _elementwise("floor")
sqrt = _elementwise("sqrt")
cbrt = _elementwise("cbrt")
exp = _elementwise("exp")


def log2(value):
    """Elementwise logarithm to base 2."""
    return math.log2(value) if isinstance(value, (int, float)) and value > 0 else _numpy_or_jax(value).log2(value)


def ratio(numerator, denominator, empty=0.0):
    """``numerator / denominator``, and ``empty`` where the denominator is 0; the division itself never sees a 0."""
    if is_concrete(denominator):
        return numerator / denominator if denominator else empty
    zero = denominator == 0
    return where(zero, empty, numerator / where(zero, 1.0, denominator))


def inverse(value, factor, valid):
    """``1 / (value * factor)`` where ``valid``, 0 where ``value`` is infinite, else infinity, whose gradient is not a number."""
    bounded = value < float("inf")
    if isinstance(value, _PLAIN) and isinstance(valid, _PLAIN):
        return where(valid, where(bounded, 1.0 / (where(valid & bounded, value, 1.0) * factor), 0.0), float("inf"))
    # the denominator is guarded, not the result: 1/0 of a 0 that depends on all that value does
    return where(bounded, 1.0 / (where(valid & bounded, value, where(bounded, 0.0 * value * value, 1.0)) * factor), 0.0)


def hair(*values):
    """What rounding may add to or take from a quotient or product of ``values``, relative: twelve digits, six in single precision."""
    return 1e-6 if any(getattr(value, "dtype", None) == np.float32 for value in values) else 1e-12


def present(code):
    """The codes a category may take here: one for a concrete code, else None (any)."""
    return {int(code)} if is_concrete(code) else None


def choose(code, branches, codes=None):
    """The branch that ``code`` selects.

    ``branches`` maps codes to functions without arguments; only those that can occur are called: the one of a concrete code,
    else those of ``codes`` (all, where None).  Codes without a branch take the last one.
    """
    if is_concrete(code):
        return branches.get(int(code), branches[max(branches)])()
    wanted = [key for key in branches if codes is None or key in codes]
    result = branches[wanted[-1]]()
    for key in reversed(wanted[:-1]):
        result = where(code == key, branches[key](), result)
    return result


def repeat(step, value, times):
    """``step`` applied ``times`` to ``value``: a loop in the program that jax compiles, not ``times`` copies of it.

    ``step`` must keep the shape of what it is given.
    """
    if isinstance(value, _PLAIN):
        for _ in range(times):
            value = step(value)
        return value
    import jax

    return jax.lax.fori_loop(0, times, lambda _, one: step(one), value)


def smallest(function, entries):
    """The smallest of ``function(*entry)`` over a list of tuples: in jax one copy of it, over the entries stacked in front."""
    return _picked(minimum, "min", function, entries)


def largest(function, entries):
    """The largest of ``function(*entry)`` over a list of tuples: in jax one copy of it, over the entries stacked in front."""
    return _picked(maximum, "max", function, entries)


def _picked(pick, reduction, function, entries):
    plain = all(isinstance(value, _PLAIN) for entry in entries for value in entry)
    if plain or len(entries) == 1:
        return pick(*(function(*entry) for entry in entries))
    import jax.numpy as jnp

    columns = (jnp.stack(jnp.broadcast_arrays(*column)) for column in zip(*entries))
    return getattr(jnp, reduction)(function(*columns), axis=0)


def divides(part, whole):
    """True where ``part`` divides ``whole``: both are whole numbers held as floats (exact below 2^53)."""
    return part * floor(whole / part) == whole
