"""Designs that are no product: points spread over ranges, along one axis called ``sample``.

    sample:
      method: sobol            # or latin-hypercube
      size: 4096
      seed: 1                  # default 0: the same config gives the same points
      of:
        link_gbps: {geomspace: [25, 3200]}     # evenly in the logarithm
        micro_batch: {linspace: [1, 8]}        # evenly; whole numbers where the quantity counts something
        tp: [1, 2, 4, 8]                       # each as likely
        accelerator: [h100, b200]

The columns move together, so this is an axis like any other table, beside other axes or alone.  A Sobol design of more points
begins with the points of the smaller one: such a store can be extended.
"""

import numpy as np

from . import presets, values
from ._kernels import quantities
from .errors import SpecError, did_you_mean, listed

METHODS = ("sobol", "latin-hypercube")
KEYS = ("method", "size", "seed", "of")
MOST = 100_000  # points: the values of all columns stand in the store's attributes (3 MB, 2 s to make and read); beyond, a product with axes
AXIS = "sample"


def check(rule, at):
    """The design as a group of columns for ``axes`` (labels 0, 1, ..), from what a config says below ``sample:``."""
    place = at("sample", "")
    if not isinstance(rule, dict):
        raise SpecError(f"{place}: is not a design. Write {{method: sobol, size: 1024, of: {{link_gbps: {{geomspace: [25, 3200]}}}}}}.")
    for key in rule:
        if key not in KEYS:
            raise SpecError(f"{at('sample', key)}: {key!r} is no key of sample. {did_you_mean(key, KEYS)}")
    method, size, seed, ranges = rule.get("method", METHODS[0]), rule.get("size"), rule.get("seed", 0), rule.get("of")
    if method not in METHODS:
        raise SpecError(f"{at('sample', 'method')}: {method!r} is no method. Write {listed(METHODS)}.")
    for key, number, least in (("size", size, 1), ("seed", seed, 0)):
        if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= (MOST if key == "size" else 2**32):
            more = " For more points put axes beside the sample." if key == "size" and isinstance(number, int) and number > MOST else ""
            raise SpecError(f"{at('sample', key)}: {number!r} is not a whole number from {least} to {MOST if key == 'size' else 2**32}.{more}")
    if not isinstance(ranges, dict) or not ranges:
        raise SpecError(f"{at('sample', 'of')}: names no quantity. Write such as link_gbps: {{geomspace: [25, 3200]}} below of:.")
    design = unit_points(method, len(ranges), size, seed)
    columns = {name: _spread(name, entry, design[:, k], at("sample", f"of.{name}")) for k, (name, entry) in enumerate(ranges.items())}
    return {"labels": list(range(size)), **columns}


def unit_points(method, dimensions, size, seed):
    """A design over the unit cube, (size, dimensions): scrambled Sobol points or a Latin hypercube."""
    import warnings

    from scipy.stats import qmc

    if method == "latin-hypercube":
        return qmc.LatinHypercube(dimensions, rng=np.random.default_rng(seed)).random(size)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that balance asks for a power of two: said in the docs, not a fault
        return qmc.Sobol(dimensions, scramble=True, rng=np.random.default_rng(seed)).random(size)


def _spread(name, entry, unit, place):
    """The values of one quantity at points of the unit interval."""
    quantity = quantities.INPUTS.get(name)
    if quantity is None and name not in presets.TABLES:
        raise SpecError(f"{place}: {name!r} is no quantity. {did_you_mean(name, [*presets.TABLES, *quantities.INPUTS])}")
    if isinstance(entry, dict) and set(entry) <= {"linspace", "geomspace"} and len(entry) == 1 and quantity is not None:
        ((rule, ends),) = entry.items()
        ends = values.plain(ends)
        if not isinstance(ends, (list, tuple)) or len(ends) != 2:
            raise SpecError(f"{place}.{rule}: write the two ends, such as {{{rule}: [25, 3200]}}.")
        low, high = (float(values.scalar(quantity, end, place)) for end in ends)
        if rule == "geomspace" and low <= 0 or not low < high:
            raise SpecError(f"{place}.{rule}: [{low:g}, {high:g}] is no range. Write the smaller end first{', above 0' * (rule == 'geomspace')}.")
        spread = low + (high - low) * unit if rule == "linspace" else low * (high / low) ** unit
        return [float(round(v)) for v in spread] if quantity.kind == "int" else values.rounded(spread)
    if isinstance(entry, dict) and len(entry) == 1 and quantity is not None:
        choices = values.labels(quantity, entry, place)[0].tolist()
    else:
        choices = values.sequence(entry, place, quantity)
    return [choices[int(k)] for k in np.minimum(unit * len(choices), len(choices) - 1)]
