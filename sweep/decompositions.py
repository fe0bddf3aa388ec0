"""From the first-order law to the full requirement, one named term after the other, and what would move it.

The decomposition switches the model's features off one by one, from the full model down to the ideal one, and
evaluates the requirement after each.  The ratio of two neighbours is that feature's factor, and what is left between the
ideal model and the law of section 1 is the ends of the model; so the factors multiply to the whole ratio exactly,
whatever the features do to each other.  The order is part of the answer: a feature's factor is taken with those above
it in the table present and those below it absent.
"""

import math
from typing import NamedTuple

from ._kernels import model, quantities

FIRST_ORDER, REQUIRED, TOLERANCE = "first_order_link_gbps", "required_link_gbps", "link_gbps_at_tolerance"
IN_NETWORK = 4  # code of input algorithm
TINY = 1e-6


class Step(NamedTuple):
    """One term: the requirement with everything up to it (``gbps``), and its factor on the one before."""

    name: str
    words: str
    factor: float
    gbps: float


class Lever(NamedTuple):
    """What an input does to the requirement: d log required / d log input (None: a count), and Gb/s at half and twice."""

    name: str
    value: float
    elasticity: object
    half: float
    twice: float


def ask(inputs, *names):
    """Outputs of one point as Python floats: one for one name, else a list."""
    values = model.evaluate(inputs, names)
    found = [float(values[name]) for name in names]
    return found[0] if len(found) == 1 else found


# -- the decomposition -------------------------------------------------------------------------------------------------


def decompose(inputs):
    """The law's Gb/s, and the :class:`Step` s from it to ``link_gbps_at_tolerance`` (before it: ``required_link_gbps``)."""
    first, full, tolerant = ask(inputs, FIRST_ORDER, REQUIRED, TOLERANCE)
    chain = [full]
    for _, _, switch in reversed(FEATURES):
        inputs = inputs._replace(**switch(inputs))
        chain.append(ask(inputs, REQUIRED))
    chain.reverse()
    steps = [
        Step(
            "ends",
            "norms, embeddings and head: in the law bytes and FLOP alike, in the model bytes beside the blocks",
            _factor(first, chain[0]),
            chain[0],
        )
    ]
    for (name, words, _), before, after in zip(FEATURES, chain, chain[1:]):
        steps.append(Step(name, words, _factor(before, after), after))
    steps.append(
        Step(
            "tail",
            "tolerance form: the last bucket and the embedding have no window, the tolerance gives back",
            _factor(full, tolerant),
            tolerant,
        )
    )
    return first, steps


def _factor(before, after):
    if before == after:
        return 1.0
    return after / before if before and math.isfinite(before) else math.nan


def _attention(x):
    """The core's FLOP per token grow with the sequence: the same tokens in sequences of next to no length."""
    length = TINY * x.seq_len
    return {"seq_len": length, "micro_batch": x.micro_batch / TINY}


def _compute(x):
    if x.efficiency is not None:
        return {}
    return {"efficiency": min(1.0, ask(x, "achieved_tflops") / x.peak_tflops)}


def _sharding(x):
    return {"zero_stage": 0.0 if x.zero_stage < 3 else x.zero_stage, "shard_group": None, "reshard_after_forward": 1}


def _algorithm(x):
    return {} if x.algorithm == IN_NETWORK and x.zero_stage == 0 else {"algorithm": 0, "tree_factor": 1.0}


FEATURES = (
    ("attention", "attention FLOP: window without bytes", _attention),
    ("compute", "calibrated compute: memory-bound work, GEMM sizes, a backward that is not twice forward", _compute),
    (
        "schedule",
        "pipeline: a window that is the last weight gradient alone, interleaving",
        lambda x: {"schedule": 0, "vpp": 1.0},
    ),
    ("sharding", "ZeRO and HSDP: half the bytes in backward, groups of shards, gathers that stay", _sharding),
    (
        "synchronisation",
        "DiLoCo's rare reduction, and buckets on stage 0 only",
        lambda x: {"sync_every": 1.0, "sync_fragments": 1.0, "bucketing": 0},
    ),
    (
        "scale-up tier",
        "the scale-up network's own phases of the reduction, and its traffic that no chunk hides",
        lambda x: {"scaleup_gbytes_per_s": math.inf, "scaleup_efficiency": 1.0},
    ),
    (
        "traffic",
        "exposed tensor- and expert-parallel traffic inside the domain, which lengthens the window",
        lambda x: {"tp_overlap_chunks": math.inf, "ep_overlap_chunks": math.inf},
    ),
    ("algorithm", "the collective's algorithm where it sends more than the hierarchical one", _algorithm),
    ("oversubscription", "an oversubscribed tier", lambda x: {"oversubscription": 1.0}),
    (
        "port efficiency",
        "what the port and its channels deliver of their rate",
        lambda x: {"link_efficiency": 1.0, "channels": 0.0},
    ),
    (
        "latency",
        "latency, protocols and small messages, at this bucket size",
        lambda x: {
            "link_latency_us": 0.0,
            "pod_latency_us": 0.0,
            "scaleup_latency_us": 0.0,
            "link_half_bytes": 0.0,
            "ll_bandwidth_ratio": 1.0,
            "simple_latency_ratio": 1.0,
        },
    ),
    (
        "contention",
        "contention between compute and communication",
        lambda x: {"overlap_slowdown": 0.0, "comm_slowdown": 0.0},
    ),
)
"""Name, words, and what switches the feature off; from the most to the least idealised model."""


# -- what would change it ----------------------------------------------------------------------------------------------

COUNTED = ("tp", "cp", "pp", "ep", "dp", "gpus", "scaleup_domain")


def levers(inputs):
    """The :class:`Lever` of every input that moves the requirement, the strongest first, and the names of the others."""
    base = ask(inputs, REQUIRED)
    slopes = dict(zip(quantities.SMOOTH, ask(inputs, *quantities.ELASTICITIES)))
    found, idle = [], []
    for name in quantities.SMOOTH + COUNTED:
        value = getattr(inputs, name)
        if value is None or not value or not math.isfinite(value):
            continue
        half, twice = (_with(inputs, name, value * times) for times in (0.5, 2.0))
        slope = slopes.get(name)
        moved = any(math.isfinite(v) and not math.isclose(v, base, rel_tol=1e-9) for v in (half, twice)) or (
            slope and abs(slope) > 1e-6
        )
        (found.append(Lever(name, value, slope, half, twice)) if moved else idle.append(name))
    return sorted(found, key=lambda lever: -_strength(lever, base)), idle


def _strength(lever, base):
    changes = [abs(math.log(v / base)) for v in (lever.half, lever.twice) if 0 < v < math.inf and 0 < base < math.inf]
    return max(changes, default=math.inf)


def _with(inputs, name, value):
    quantity = quantities.INPUTS[name]
    if value > quantity.high or value < quantity.low or (quantity.kind == "int" and value < 1):
        return math.nan
    return ask(inputs._replace(**{name: value}), REQUIRED)


CHOICES = (
    ("gradients in fp32", {"grad_bytes": 4.0}),
    ("gradients in 8 bits", {"grad_bytes": 1.0}),
    ("full recomputation", {"recompute": 2}),
    ("ZeRO-1", {"zero_stage": 1.0}),
    ("FSDP (ZeRO-3)", {"zero_stage": 3.0}),
    ("reduction in the network", {"algorithm": IN_NETWORK}),
    ("one port per domain (rails one)", {"rails": 1}),
    ("a reduction every 10 steps (DiLoCo)", {"sync_every": 10.0}),
)


def choices(inputs):
    """Pairs (words, Gb/s) of other choices that people make, as far as they change the answer."""
    base, found = ask(inputs, REQUIRED), []
    for words, change in CHOICES:
        value = ask(inputs._replace(**change), REQUIRED)
        if not math.isclose(value, base, rel_tol=1e-9):
            found.append((words, value))
    return found
