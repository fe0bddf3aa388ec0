"""How far a fit bends towards each of its own rows: the leverage that makes seen residuals speak for unseen rows.

A least-squares fit leaves at row i the residual e_i; fitted without the row it would leave e_i / (1 - h_i), h_i the diagonal of
J (J' W J + P)^-1 J' W, J the derivatives of the logarithm of the step time by those of the coefficients, W the weights of the
rows and P the priors.  Eight rows that fix six coefficients have leverages near 3/4: their residuals say little of the next row.
Only rows of fits are asked, and no fit is repeated.
"""

import math
from collections import Counter

import numpy as np

from . import predictions, presets
from .coefficients import STACKS, by_dtype

HIGHEST = 0.8  # a row that alone fixes a coefficient leaves no residual to go by
STEP = 1e-3  # of a logarithm


def leverages(runs, prior=0.03):
    """The leverage of each of ``runs`` in the fit of its stack, an array; 0 where the stack is not a fitted one."""
    out = np.zeros(len(runs))
    for name in sorted({run.stack for run in runs} & set(STACKS)):
        index = np.array([k for k, run in enumerate(runs) if run.stack == name])
        out[index] = _of_stack(name, [runs[k] for k in index], prior)
    return out


def _of_stack(name, rows, prior):
    numbers = presets.find("stack", name).numbers
    free = [c for c in STACKS[name][1] if c.quantity in numbers and c.low * 1.01 < _number(numbers, c.quantity) < c.high / 1.01]
    if not free:
        return np.zeros(len(rows))
    at = {c.quantity: _number(numbers, c.quantity) for c in free}
    base = np.log(predictions.predict(rows))
    moved = [at | {c.quantity: at[c.quantity] * math.exp(STEP)} for c in free]
    shifted = [{("stack", name): numbers | {q: by_dtype(q, v) for q, v in one.items()}} for one in moved]
    derivatives = np.array([(np.log(predictions.predict(rows, one)) - base) / STEP for one in shifted]).T
    counts = Counter(run.source for run in rows)
    weight = np.array([1 / counts[run.source] for run in rows])
    weight *= len(rows) / weight.sum()
    priors = np.diag([(prior / c.spread) ** 2 for c in free])
    inverse = np.linalg.pinv(derivatives.T @ (weight[:, None] * derivatives) + priors)
    hat = np.einsum("ij,jk,ik->i", derivatives, inverse, derivatives) * weight
    return np.clip(hat, 0.0, HIGHEST)


def _number(numbers, quantity):
    value = numbers[quantity]
    return value["bf16"] if isinstance(value, dict) else value
