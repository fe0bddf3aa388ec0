"""Which coefficients are calibrated, between which bounds, and on what: three separate sets.

    accelerator   GEMM efficiency e_0 and F_half by dtype: e_0 from the best published matmul, which it may not exceed; F_half from
                  12 us lost per multiplication, the small products of a published table (source in accelerators.yaml)
    fabric        latency and delivered share of each tier: from nccl-tests curves (curves.py), never from training runs
    stack         what belongs to kernels and framework: fitted on training rows with split = fit, within bounds that physics sets

A stack coefficient has a start, bounds and a spread: the fit pays ((log x - log start) / spread)^2 for leaving the start, as much
as that many rows a few per cent off, so that what the rows cannot tell stays where it was.
"""

from typing import NamedTuple


class Coefficient(NamedTuple):
    """One coefficient of a stack: start, bounds, and the spread (of its logarithm) of what one would believe without rows."""

    quantity: str
    start: float
    low: float
    high: float
    spread: float = 1.0


def _stack(attention, bytes_factor, host, logits, *more, kappa=0.25, host_high=8.0):
    return (
        Coefficient("attention_efficiency", attention, 0.05, 0.8, 0.7),  # of the 16-bit peak, see by_dtype
        Coefficient("memory_bytes_factor", bytes_factor, 1.0, 8.0, 0.7),  # 1: every operation fused as far as it goes
        Coefficient("host_time_ms", host, 0.05, host_high, 1.0),  # eager Python: a few ms a block
        Coefficient("host_micro_batch_ms", 1.0, 0.05, 6.0, 1.0),
        Coefficient("logit_bytes", logits, 8.0, 70.0, 0.7),  # a fused loss 8, eager fp32 loss about 60
        # contention, measured apart: 19 % on average, 80 -> 47 % of peak at worst; a stack that overlaps nothing cannot tell
        *([Coefficient("overlap_slowdown", kappa, 0.02, 0.7, 0.7)] if kappa else []),
        *more,
    )


def _gaps(peak_tflops, us=60.0, low=12.0, high=400.0):
    """Time lost per multiplication as FLOP at the 16-bit peak: the kernel's own 12 us and, in eager code, gaps between launches."""
    return Coefficient("gemm_half_flop", *(0.8e6 * peak_tflops * t for t in (us, low, high)), 0.7)


_SYNCHRONOUS = _gaps(312, 320, 160, 1600)  # synchronous launches: latency in every kernel
# cuBLAS of early 2021: 0.82 is what later releases reach on the same accelerator
_EARLY = Coefficient("gemm_efficiency", 0.78, 0.65, 0.82, 0.1)
# a collective inside a step waits for its launch and for the slowest rank, which nccl-tests' loop does not
_RANK_WAIT = Coefficient("scaleup_latency_us", 2.0, 1.0, 6.0, 0.7)
_NARROW = _gaps(2250)  # casts, maxima and transposes are kernels of their own before each narrow multiplication
# that node's own table of multiplications: 0.49 of peak where they are large, 0.65 at best (configs/system/b200_bf16_ceperm.json)
_SIMUMAX = Coefficient("gemm_efficiency", 0.49, 0.44, 0.65, 0.1)
EXPOSED = (1, 2, 4, 8)
"""Values of tp_overlap_chunks tried for a stack that overlaps tensor parallelism: 1/k of each collective stays exposed."""

STACKS = {
    "megatron-2020": ("Megatron-LM of 2020 (fp16, unfused attention)", _stack(0.15, 2.5, 2.0, 40, _gaps(312), kappa=0)),
    "megatron-2021": (
        "Megatron-LM of early 2021 on Selene: unfused attention, eager, nothing overlapped, the multiplications of that year",
        _stack(0.15, 2.5, 3.0, 50, _RANK_WAIT, _gaps(312), _EARLY, kappa=0),
    ),
    "megatron-2022": (
        "Megatron-LM of 2022 on many nodes: unfused attention, eager, nothing overlapped",
        _stack(0.15, 2.5, 3.0, 50, _RANK_WAIT, _gaps(312), kappa=0),
    ),
    "megatron-eager": (
        "Megatron-LM on one node, small models: bound by the host",
        _stack(0.15, 2.5, 3.0, 50, _RANK_WAIT, _gaps(312), kappa=0),
    ),
    "megatron-deepspeed": (
        "Megatron-DeepSpeed 2022 (BLOOM), synchronous launches in places",
        _stack(0.3, 3.5, 3.0, 40, _SYNCHRONOUS, kappa=0),
    ),
    "megatron-deepspeed-v100": ("Megatron-DeepSpeed 2021 on V100", _stack(0.3, 3.0, 2.0, 40, _gaps(125), kappa=0)),
    "llm-foundry-ampere": (
        "llm-foundry 2023, PyTorch FSDP, Triton attention on A100",
        _stack(0.5, 3.0, 1.0, 35, _gaps(312)),
    ),
    "llm-foundry-hopper": (
        "llm-foundry 2023, PyTorch FSDP, attention kernels not yet made for H100",
        _stack(0.32, 3.5, 1.0, 40, _gaps(989)),
    ),
    "torchtitan-compile": ("torchtitan 2024-25, FSDP2 with torch.compile", _stack(0.4, 3.0, 0.5, 20)),
    "nemo-2024": ("NeMo 24.05-24.07, Transformer Engine, Megatron-Core", _stack(0.5, 3.0, 0.5, 40)),
    "nemo-2025": ("NeMo 25.04 (dgxc-benchmarking), cuDNN attention", _stack(0.6, 2.5, 0.5, 30)),
    "megatron-core-2024": ("Megatron-Core 0.8", _stack(0.4, 2.5, 0.5, 30)),
    "megatron-core-b200": (
        "Megatron-Core on one B200 node, gradients in fp32 (SimuMax's runs)",
        _stack(0.4, 4.0, 1.0, 40, _SIMUMAX),
    ),
    "megatron-bridge": ("Megatron-Bridge, dense models, fp8 by tensor scaling", _stack(0.6, 2.5, 0.3, 20, _NARROW)),
    "megatron-bridge-mxfp8": (
        "Megatron-Bridge, dense models, block-scaled fp8: quantisation is one more pass over the bytes",
        _stack(0.6, 3.0, 0.3, 20, _NARROW),
    ),
    "megatron-bridge-nvfp4": ("Megatron-Bridge, dense models, nvfp4", _stack(0.6, 3.0, 0.3, 20, _NARROW)),
    "megatron-bridge-25": ("Megatron-Bridge 25.x, MoE", _stack(0.5, 4.0, 2.0, 40, host_high=12.0)),
    "megatron-bridge-26.02": ("Megatron-Bridge 26.02-26.04, MoE", _stack(0.5, 4.0, 1.0, 40, host_high=12.0)),
    "megatron-bridge-26.06": (
        "Megatron-Bridge from 26.06 on, MoE: fused permutation and captured graphs",
        _stack(0.5, 3.0, 0.5, 30, host_high=12.0),
    ),
    "nemo-automodel": ("NeMo AutoModel 2026: FSDP2, DeepEP", _stack(0.4, 3.5, 1.0, 40)),
    "nemo-2025-moe": ("NeMo 25.05 (dgxc-benchmarking), MoE", _stack(0.4, 4.0, 2.0, 40, host_high=12.0)),
    "mlperf-nemo": ("NVIDIA's MLPerf 4.1 submission", _stack(0.6, 2.0, 0.3, 20)),
    "maxtext": (
        "MaxText on TPU; no matmul is published, so the GEMMs are fitted too",
        _stack(
            0.4,
            2.0,
            0.1,
            20,
            Coefficient("gemm_efficiency", 0.7, 0.4, 0.95, 0.3),
            Coefficient("gemm_half_flop", 1e10, 1e9, 1e11, 0.7),
        ),
    ),
}
OVERLAPPING = (
    "nemo-2024",
    "nemo-2025",
    "megatron-core-2024",
    "megatron-core-b200",
    "megatron-bridge",
    "megatron-bridge-mxfp8",
    "megatron-bridge-nvfp4",
    "mlperf-nemo",
)
"""Stacks that overlap tensor-parallel collectives with the GEMMs beside them."""

GENERATIONS = {
    "volta": ("v100", "v100-16gb"),
    "ampere": ("a100", "a100-40gb"),
    "hopper": ("h100", "h100-500w", "h800"),
    "blackwell": ("b200", "b300", "gb200", "gb300"),
    "tpu": ("tpu-v4", "tpu-v5e", "tpu-v5p", "tpu-v6e", "tpu-v7x"),
}


def generation(accelerator):
    """The generation of an accelerator; its own name where it has none."""
    return next((name for name, members in GENERATIONS.items() if accelerator in members), accelerator)


def by_dtype(quantity, value):
    """A coefficient as a preset holds it, by the dtype of the GEMMs.

    Attention runs in 16 bits whatever the GEMMs do, so that its share of an fp8 or fp4 peak is smaller.  Narrow GEMMs read inputs that
    are cast first: about 4 bytes per element of each input, 0.6 of the minimal memory-bound bytes of a block.  A time lost per
    multiplication costs as many times more FLOP as the peak is higher.
    """
    if quantity == "attention_efficiency":
        return {dtype: value * share for dtype, share in ATTENTION.items()}
    if quantity == "memory_bytes_factor":
        return {dtype: round(value + more, 3) for dtype, more in CASTS.items()}
    if quantity == "gemm_half_flop":
        return {dtype: value * rate for dtype, rate in RATES.items()}
    return value


ATTENTION = {"bf16": 1.0, "fp8": 0.5, "fp4": 0.25, "tf32": 1.0}
RATES = {"bf16": 1.0, "fp8": 2.0, "fp4": 4.0, "tf32": 0.5}
CASTS = {"bf16": 0.0, "fp8": 0.6, "fp4": 0.6, "tf32": 0.0}


class Network(NamedTuple):
    """Where a fabric preset takes its numbers: (fabric, collective) of published curves for each, and the port where it is not the accelerator's."""

    accelerator: str
    inner_rate: tuple
    inner_latency: tuple
    outer: tuple
    link_gbps: float = 0.0
    note: str = ""


_A100 = (("azure-ndmv4", "all_reduce"), ("azure-ndmv4", "all_reduce"))
_HOPPER = (("dgx-h200", "all_gather"), ("dgx-h100", "all_reduce"))
_BLACKWELL = (("dgx-b200", "all_gather"), ("dgx-h100", "all_reduce"))
_PRIVATE = ("sophia", "all_gather")  # InfiniBand, a NIC for each GPU
_SHARED = ("polaris", "all_gather")  # a NIC for two GPUs

NETWORKS = {
    "dgx-a100": Network("a100", *_A100, _PRIVATE),
    "selene": Network("a100", *_A100, _PRIVATE, 0, "NVIDIA's DGX A100 SuperPOD, 8 x HDR200"),
    "vtrain": Network(
        "a100", *_A100, _SHARED, 100, "800 Gb/s per 8-GPU node (per the paper, unverified); two GPUs to a NIC assumed"
    ),
    "llm-foundry-a100": Network("a100", *_A100, _PRIVATE, 200, "RoCE, 1600 Gb/s per node"),
    "jean-zay-a100": Network("a100", *_A100, _SHARED, 50, "four 100 Gb/s Omni-Path links for eight GPUs"),
    "jean-zay-v100": Network(
        "v100", *_A100, _SHARED, 100, "four-GPU nodes; Omni-Path rate not stated, one link per GPU assumed"
    ),
    "dgx-v100": Network("v100", *_A100, _SHARED, 50),
    "llm-foundry-h100": Network("h100", *_HOPPER, _PRIVATE, 400),
    "grand-teton": Network("h100", *_HOPPER, _PRIVATE, 400, "RoCE, 400 Gb/s per GPU"),
    "eos": Network("h100", *_HOPPER, _PRIVATE, 400, "DGX H100 SuperPOD"),
    "dgx-b200": Network("b200", *_BLACKWELL, _PRIVATE, 400),
    "dgx-b300": Network("b300", *_BLACKWELL, _PRIVATE, 800),
    "gb200-nvl72": Network("gb200", ("oci-gb200", "alltoall"), ("dgx-h100", "all_reduce"), _PRIVATE, 400),
    "gb300-nvl72": Network("gb300", ("oci-gb300", "alltoall"), ("dgx-h100", "all_reduce"), _PRIVATE, 800),
}
"""Fabrics of the published training runs: none of them printed curves of its own, so each takes those of like hardware."""
