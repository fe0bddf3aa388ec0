"""Elasticities of the required port: per cent more of it for one per cent more of an input, everything else as it is.

    elasticity_x = d log(required_link_gbps) / d log(x)

In NumPy they are central differences of the requirement; under jax forward derivatives, a hair below and above the point and
their mean, which agrees to 1e-6 and better.  So at a kink both give the mean of its sides: FSDP without recomputation sits on one,
where forward gathers and backward scatters ask for the same port, and which of the two is the larger is decided by rounding.
NaN where the requirement is 0 or infinite and where the input is not given; 0 where it is 0.  A count has none: halve or double it
instead.
"""

import numpy as np

from .ops import is_zero, maximum, where
from .quantities import INPUTS

PREFIX = "elasticity_"
RELATIVE_STEP = 1e-6  # the hair: itself times a kink's turn, and rounding over it, are both below 1e-6
OFF_BOUND = 1e-7  # an input at a lower bound that is not 0 is moved up by twice this: beyond the bound there is another law


def elasticities(inputs, names, required):
    """``names`` (elasticity_x) -> value; ``required`` is the port as a function of :class:`Inputs`."""
    entries = {name: getattr(inputs, name.removeprefix(PREFIX)) for name in names}
    moving = {name: value for name, value in entries.items() if value is not None and not is_zero(value)}
    plain = all(value is None or isinstance(value, (int, float, np.ndarray, np.generic)) for value in inputs[:-1])
    base, slopes = (_differences if plain else _derivatives)(inputs, moving, required)
    fine = (base > 0.0) & (base < float("inf"))
    return {name: float("nan") if value is None else where(fine, slopes.get(name, 0.0), float("nan")) for name, value in entries.items()}


def _differences(inputs, moving, required):
    """The requirement, and name -> slope of its logarithm, in NumPy."""
    base, slopes = required(inputs), {}
    with np.errstate(divide="ignore", invalid="ignore"):
        for name, value in moving.items():
            ends, step = _ends(name, value)
            down, up = (required(_moved(inputs, {name: end})) for end in ends)
            slopes[name] = (np.log(up) - np.log(down)) / (np.log1p(step) - np.log1p(-step))
    return base, slopes


def _derivatives(inputs, moving, required):
    """The same by jax, in a program that is being traced: one copy of the requirement, with all displacements stacked in front."""
    import jax
    import jax.numpy as jnp

    points = {name: [] for name in moving}
    along = {name: [] for name in moving}
    for moved in moving:
        for end in _ends(moved, moving[moved])[0]:
            for name, value in moving.items():
                points[name].append(jnp.asarray(end if name == moved else value, float))
                along[name].append(points[name][-1] if name == moved else jnp.zeros_like(points[name][-1]))

    def slope(point, tangent):
        port, change = jax.jvp(lambda numbers: jnp.asarray(required(_moved(inputs, numbers)), float), (point,), (tangent,))
        fine = (port > 0.0) & (port < jnp.inf)
        return jnp.where(fine, change, jnp.nan) / jnp.where(fine, port, 1.0)

    base = jnp.asarray(required(inputs), float)
    if not moving:
        return base, {}
    stacked = ({name: jnp.stack(column) for name, column in columns.items()} for columns in (points, along))
    slopes = jax.vmap(slope)(*stacked)
    return base, {name: (slopes[2 * k] + slopes[2 * k + 1]) / 2.0 for k, name in enumerate(moving)}


def _ends(name, value):
    """An input a hair below and above its value, and the hair."""
    row = INPUTS[name.removeprefix(PREFIX)]
    step = RELATIVE_STEP
    if row.kind == "float" and row.low > 0.0:
        step, value = OFF_BOUND, maximum(value, row.low * (1.0 + 2.0 * OFF_BOUND))
    return (value * (1.0 - step), value * (1.0 + step)), step


def _moved(inputs, numbers):
    """``inputs`` with those of elasticities ``numbers`` in place of their own."""
    return inputs._replace(**{name.removeprefix(PREFIX): value for name, value in numbers.items()})
