"""The inputs of the model: one NamedTuple with the names of quantities.py, and its completion to SI.

An entry is a Python number (fixed: it folds while tracing), an array with size 1 on the axes on which it does not vary, or None:
not given.  ``known`` tells for axes the values that occur, so that only branches which can occur are traced; without it the
result is the same and the program longer.
"""

from collections import namedtuple

from . import quantities
from .ops import cbrt, clip, divides, is_concrete, maximum, ratio, where
from .quantities import INPUTS


def _default(row):
    return row.choices.index(row.default) if row.choices else row.default


class Inputs(namedtuple("Inputs", (*INPUTS, "known"), defaults=(*map(_default, INPUTS.values()), ()))):
    """Inputs in people's units as their names say (``complete`` turns them into SI); categories are codes.

    ``Inputs()`` holds the defaults.  ``known``: pairs (name, tuple of values that occur) of axes.
    """

    __slots__ = ()

    def codes(self, name):
        """The values that entry ``name`` can take, as a set; None: any."""
        value = getattr(self, name)
        if is_concrete(value):
            return {value}
        return dict(self.known).get(name)

    def at_most(self, name):
        """Largest value of entry ``name``, inf where unknown."""
        return max(self.codes(name) or {float("inf")})

    def at_least(self, name):
        """Smallest value of entry ``name``, 0 where unknown."""
        return min(self.codes(name) or {0.0})


def complete(inputs):
    """``inputs`` in SI, with what is not given filled as the notes of quantities.py say.

    Raises ValueError where the model or the machine is not described at all.
    """
    x = inputs
    if x.params is not None:
        # P = 12 L h^2 with h = 128 L and heads of 128
        layers = cbrt(x.params / (12.0 * 128.0**2))
        hidden = 128.0 * layers
        x = x._replace(layers=layers, hidden=hidden, ffn=4.0 * hidden, heads=layers, kv_heads=layers, head_dim=128.0, vocab=0)
    missing = [name for name in ("layers", "hidden", "heads", "peak_tflops", "hbm_gb", "hbm_gbytes_per_s", "scaleup_domain",
                                 "scaleup_gbytes_per_s", "link_gbps") if getattr(x, name) is None]
    if missing:
        raise ValueError(f"not given: {', '.join(missing)}. Name a model and an accelerator, or give these")
    head_dim = x.hidden / x.heads if x.head_dim is None else x.head_dim
    ranks = x.tp * x.cp * x.pp
    gpus = x.gpus if x.gpus is not None else 1024 if x.dp is None else x.dp * ranks
    dp = gpus / ranks if x.dp is None else x.dp
    if x.micro_batches is not None:
        batches = x.micro_batches
    else:
        batches = 1.0 if x.global_batch is None else x.global_batch / (dp * x.micro_batch)
    efficiency = 0.4 if x.efficiency is None and x.gemm_efficiency is None else x.efficiency
    x = x._replace(
        ffn=4.0 * x.hidden if x.ffn is None else x.ffn,
        kv_heads=x.heads if x.kv_heads is None else x.kv_heads,
        head_dim=head_dim,
        v_head_dim=where(x.v_head_dim > 0, x.v_head_dim, head_dim),
        vocab=0 if x.vocab is None else x.vocab,
        gpus=gpus,
        dp=dp,
        micro_batches=batches,
        global_batch=x.global_batch if x.global_batch is not None else batches * dp * x.micro_batch,
        first_bucket_bytes=x.bucket_bytes if x.first_bucket_bytes is None else x.first_bucket_bytes,
        pod_latency_us=x.link_latency_us if x.pod_latency_us is None else x.pod_latency_us,
        efficiency=efficiency,
        gemm_half_flop=0.0 if x.gemm_half_flop is None else x.gemm_half_flop,
        link_efficiency=x.link_efficiency * _ports_left(x),
    )
    return x._replace(**{name: getattr(x, name) * row.scale for name, row in INPUTS.items()
                         if row.scale != 1.0 and getattr(x, name) is not None})


def impossible(x):
    """Conditions of quantities.REASONS by name, those under which no such run exists (x: completed)."""
    free = x.params is not None
    ranks = x.tp * x.cp * x.pp
    heads = False if free else _not((divides(x.tp, x.heads)) & (divides(x.tp, x.kv_heads) | divides(x.kv_heads, x.tp))
                                    & divides(x.tp, x.ffn))
    whole = x.micro_batches == _round(x.micro_batches)
    interleaved = x.vpp > 1
    reasons = {
        "gpus": _not(divides(ranks, x.gpus)),
        "heads": heads,
        "layers": (x.pp * x.vpp > x.layers) | (False if free else _not(divides(x.pp * x.vpp, x.layers))),
        "batch": _not(whole & (x.micro_batches >= 1)) | _not(divides(x.cp, x.seq_len)),
        "experts": ((x.ep > 1) & _not((x.experts > 0) & divides(x.ep, maximum(x.experts, 1)) & divides(x.ep, x.dp * x.cp * x.tp)))
        | (x.top_k > x.experts),
        "schedule": (interleaved & _not((x.pp > 1) & divides(x.pp, x.micro_batches) & (x.schedule == 0)))
        | ((x.schedule == 2) & _not(divides(2.0, x.pp) & divides(2.0, x.micro_batches) & (x.micro_batches >= 2.0 * x.pp))),
        "shard_group": False if x.shard_group is None else _not(divides(x.shard_group, x.dp * x.cp)),
        "contention": x.overlap_slowdown * x.comm_slowdown > 1.0,
    }
    assert tuple(reasons) == quantities.REASONS[1:-1]
    return reasons


def _ports_left(x):
    """Share of a node's ports that work: the survivors carry the bytes of all, and every rank waits for that node."""
    if is_concrete(x.lost_rails) and x.lost_rails == 0:
        return 1.0
    return maximum(x.fabric_rails - x.lost_rails, 1e-9) / x.fabric_rails


def _not(condition):
    return not condition if isinstance(condition, bool) else condition == False  # noqa: E712 (elementwise)


def _round(value):
    return clip(value // 1.0, 0.0, float("inf")) if is_concrete(value) else value - value % 1.0


def status_of(reasons, too_large):
    """Code of the first reason that applies, and whether the point is impossible."""
    conditions = [*reasons.values(), too_large]
    code = 0
    for index in range(len(conditions), 0, -1):
        code = where(conditions[index - 1], index, code)
    never = False
    for condition in reasons.values():
        never = never | condition
    return code, never


def link_u(x):
    """Seconds per byte of the port, at least those of the channels that drive it (x: completed)."""
    u = 1.0 / (x.link_gbps * x.link_efficiency)
    if is_concrete(x.channels) and x.channels == 0:
        return u
    return maximum(u, channel_u(x))


def channel_u(x):
    """Least seconds per byte that ``channels`` allow (0: no bound)."""
    return ratio(1.0, x.channels * x.channel_gbytes_per_s)
