"""A model of a few lines in place of the real one: same three functions, same names, compiled in a moment.

The engine knows the model only through Inputs, prepare, combine and report, so its tests need no more than this.
``install()`` puts it behind the door of the kernels, in a test or in a process that a test starts.
"""

from typing import NamedTuple

from sweep import _kernels
from sweep._kernels import quantities

_ops = _kernels.ops
Inputs = _kernels.inputs.Inputs
model_version = "toy"


class Parts(NamedTuple):
    """On few axes."""

    compute: object
    bytes: object
    status: object


def prepare(inputs, outputs=()):
    """Compute, gradient bytes and status, free of the link."""
    params = 1e9 if inputs.params is None else inputs.params
    compute = 6 * params * inputs.seq_len * inputs.micro_batch / inputs.tp / inputs.pp / 4e14
    impossible = inputs.tp * inputs.pp > 512
    memory = 16 * params / inputs.tp / inputs.pp > 80e9
    status = _ops.where(impossible, 1, _ops.where(memory, 9, 0))
    return Parts(compute, 2 * params / inputs.tp / inputs.pp * inputs.grad_bytes, status)


def combine(inputs, parts, outputs=()):
    """The exposed time, full rank."""
    return _ops.maximum(parts.bytes / (inputs.link_gbps * 1.25e8) - parts.compute * 2 / 3, 0.0)


def report(inputs, parts, core, outputs):
    """One expression for each output."""
    step = parts.compute + core
    nan = _ops.where(parts.status == 1, float("nan"), 0.0)
    values = {
        "step_time_s": lambda: step + nan,
        "exposed_dp_s": lambda: core + nan,
        "exposed_fraction": lambda: core / step + nan,
        "mfu": lambda: parts.compute / step * 0.4 + nan,
        "required_link_gbps": lambda: parts.bytes / parts.compute * 1.5 / 1.25e8,
        "compute_time_s": lambda: parts.compute,
        "dp_comm_time_s": lambda: parts.bytes / (inputs.link_gbps * 1.25e8),
        "bottleneck": lambda: _ops.where(parts.status == 1, 255, _ops.where(core > parts.compute, 3, 0)),
        "status": lambda: parts.status,
        "tokens_per_domain": lambda: inputs.seq_len * inputs.micro_batch * 8,
    }
    return {name: values[name]() for name in outputs}


def evaluate(inputs, outputs=None):
    """The three in a row."""
    parts = prepare(inputs)
    core = combine(inputs, parts)
    return report(inputs, parts, core, outputs or tuple(quantities.OUTPUTS))


def install():
    """Put this model behind the door."""
    import sys

    _kernels.model = sys.modules[__name__]


MACHINE = {
    "params": 70e9, "peak_tflops": 989, "hbm_gb": 80, "hbm_gbytes_per_s": 3350,
    "scaleup_domain": 8, "scaleup_gbytes_per_s": 450,
}  # fmt: skip


def spec(axes, outputs=("step_time_s", "required_link_gbps"), fixed=None, **more):
    """A Spec of those axes on a machine of round numbers."""
    from sweep.spec import Spec

    fixed = {**MACHINE, "link_gbps": 400, **(fixed or {})}
    fixed = {name: value for name, value in fixed.items() if name not in axes}
    content = {"axes": axes or None, "fixed": fixed, "outputs": list(outputs), **more}
    return Spec.from_dict(content)
