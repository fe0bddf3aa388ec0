"""One row of the CSV of training runs as a ``Run``: what its columns say, its source's conventions, its step time.

The columns come first, then the rules of the source (sources.py) fill in what it leaves unsaid, then come the checks that hold for
all: layouts that multiply to the number of accelerators, a batch that divides, a time that follows from what was printed.
"""

from .runs import Run, Unusable, number, shapes
from .sources import SOURCES, own

ACCELERATORS = {
    "H100 80GB": "h100",
    "H100": "h100",
    "H100 (DGX-H100)": "h100",
    "H100 (DGX)": "h100",
    "H100 80GB (GCP A3)": "h100",
    "NVIDIA H100-SXM5-80GB": "h100",
    "H100 96GB HBM2e 500W (Grand Teton)": "h100-500w",
    "H800": "h800",
    "A100 80GB": "a100",
    "A100 80GB (Selene)": "a100",
    "A100": "a100",
    "A100 (DGX-A100)": "a100-40gb",
    "A100 40GB": "a100-40gb",
    "V100 16GB": "v100-16gb",
    "V100 32GB": "v100",
    "V100 (DGX-2)": "v100",
    "B200": "b200",
    "B200 SXM": "b200",
    "B200 (DGX)": "b200",
    "B300": "b300",
    "GB200": "gb200",
    "GB300": "gb300",
    "NVIDIA Blackwell GPU (B200-SXM-180GB)": "b200",
    "TPU v4": "tpu-v4",
    "TPU v5e": "tpu-v5e",
    "TPU v5p": "tpu-v5p",
    "TPU-v5p": "tpu-v5p",
    "TPU v6e": "tpu-v6e",
    "TPU v7x (Ironwood)": "tpu-v7x",
}
MODELS = {
    "deepseekv3": "deepseek3-671b",
    "deepseek-v3": "deepseek3-671b",
    "deepseek v3": "deepseek3-671b",
    "deepseek-v2": "deepseek2-236b",
    "qwen3_30b_a3b": "qwen3-30b-a3b",
    "qwen3 moe 30b": "qwen3-30b-a3b",
    "qwen3_235b_a22b": "qwen3-235b-a22b",
    "gpt oss 120b": "gpt-oss-120b",
    "gpt-oss 120b": "gpt-oss-120b",
    "gpt-oss 20b": "gpt-oss-20b",
    "kimi_k2": "kimi-k2-1t",
    "llama3_8b": "llama3-8b",
    "llama3_70b": "llama3-70b",
    "llama3.1_405b": "llama3.1-405b",
    "llama3-8b": "llama3-8b",
    "llama3-70b": "llama3-70b",
    "llama3-405b": "llama3.1-405b",
    "llama 3.1 8b": "llama3.1-8b",
    "llama 3.1 70b": "llama3.1-70b",
    "llama 3.1 405b": "llama3.1-405b",
    "llama2-7b": "llama2-7b",
    "llama2-70b": "llama2-70b",
    "llama 2 70b": "llama2-70b",
    "nemotron-8b": "Nemotron3-8B",
    "nemotron-22b": "Nemotron3-22B",
    "nemotron-340b": "Nemotron4-340B",
    "nemotron4 340b": "Nemotron4-340B",
    "grok1 314b": "Grok-1",
    "mixtral-8x7b": "mixtral-8x7b",
    "mixtral-8x22b": "mixtral-8x22b",
    "mixtral 8x7b": "mixtral-8x7b",
    "mixtral 8x22b": "mixtral-8x22b",
    "llama4 maverick": "llama4-17b-128e",
    "gpt3-175b": "gpt3-175b",
    "gpt-3 175b": "gpt3-175b",
    "bloom 176b": "BLOOM-176B",
    "moonlight 16b": "moonlight",
    "llama3.1-70b": "llama3.1-70b",
    "llama3.1-405b": "llama3.1-405b",
    "mpt-125m": "MPT-125m",
}
OTHER_SHAPES = {  # published shapes that models.csv lacks
    "gpt3-5b": {
        "layers": 24,
        "hidden": 4096,
        "ffn": 16384,
        "heads": 32,
        "vocab": 51200,
        "gated_mlp": 0,
        "tied_embeddings": 1,
    },  # NeMo launcher, gpt3/5b.yaml
    "gpt3-20b": {
        "layers": 44,
        "hidden": 6144,
        "ffn": 24576,
        "heads": 48,
        "vocab": 51200,
        "gated_mlp": 0,
        "tied_embeddings": 1,
    },  # NeMo launcher, gpt3/20b.yaml
    "moonlight": {
        "layers": 27,
        "hidden": 2048,
        "ffn": 11264,
        "expert_ffn": 1408,
        "heads": 16,
        "kv_heads": 16,
        "vocab": 163840,
        "experts": 64,
        "top_k": 6,
        "shared_experts": 2,
        "dense_layers": 1,
        "gated_mlp": 1,
        "tied_embeddings": 0,
        "q_lora_rank": 0,
        "kv_lora_rank": 512,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "head_dim": 128,
    },  # Moonlight-16B-A3B, config.json
}
HYBRIDS = ("nemotron_3", "nemotron v3", "nemotron-h", "nemotron_h", "deepseekv4", "gemma4", "qwen3-next")


def read_row(row):
    """One row of the CSV as a ``Run``."""
    accelerator = ACCELERATORS.get(row["accelerator"].strip(), row["accelerator"].strip())
    draft = _Draft(row, accelerator)
    reason, step, inputs = "", float("nan"), {}
    try:
        source = next((rule for name, rule in SOURCES.items() if row["source"].startswith(name)), own)
        _columns(row, draft)
        source(row, draft)
        inputs = _finish(row, draft)
        step = _step_time(row, draft, inputs)
    except Unusable as why:
        reason = str(why)
    family = f"{accelerator} {'MoE' if draft.moe else 'dense'}"
    return Run(
        row["id"],
        row["source"],
        family,
        (row.get("split") or "").strip() or "own",
        accelerator,
        draft.stack,
        draft.fabric,
        draft.recipe,
        inputs,
        step,
        tuple(draft.assumed),
        reason,
        draft.variant,
    )


class _Draft:
    """What is known of a row while its rules run."""

    def __init__(self, row, accelerator):
        self.accelerator, self.stack, self.fabric, self.recipe, self.variant = accelerator, "", "", "bf16", ""
        self.inputs, self.assumed, self.flop = {}, [], None
        self.moe = bool((row.get("experts") or "").strip()) or any(
            w in row["model_name"].lower()
            for w in (
                "deepseek",
                "qwen3",
                "moe",
                "oss",
                "kimi",
                "nemotron_3",
                "nemotron v3",
                "mixtral",
                "grok",
                "maverick",
                "scout",
                "moonlight",
            )
        )

    def set(self, **values):
        self.inputs.update(values)

    def default(self, **values):
        """Fill in what the row does not say, and list it as assumed."""
        for name, value in values.items():
            if name not in self.inputs:
                self.inputs[name] = value
                self.assumed.append(name)


def _columns(row, draft):
    """What the columns themselves say."""
    name = row["model_name"].lower()
    if any(word in name for word in HYBRIDS):
        raise Unusable("state-space or otherwise hybrid architecture, outside the model")
    shape = {}
    for key, known in sorted(MODELS.items(), key=lambda item: -len(item[0])):
        if name.startswith(key):
            shape = dict(OTHER_SHAPES.get(known) or shapes()[known])
            break
    else:
        shape = dict(OTHER_SHAPES.get(name) or shapes().get(row["model_name"]) or {})
    columns = {
        "layers": "layers",
        "hidden": "hidden",
        "ffn": "ffn",
        "heads": "heads",
        "kv_heads": "kv_heads",
        "vocab": "vocab",
        "experts": "experts",
        "topk": "top_k",
    }
    own = {to: value for column, to in columns.items() if (value := number(row, column)) is not None}
    if "hidden" in own and shape and shape.get("hidden") != own["hidden"]:
        shape = {}
    draft.set(**{**shape, **own})
    run = {
        "n_gpus": "gpus",
        "dp": "dp",
        "tp": "tp",
        "pp": "pp",
        "vpp": "vpp",
        "cp": "cp",
        "ep": "ep",
        "micro_batch": "micro_batch",
        "global_batch": "global_batch",
        "seq": "seq_len",
    }
    draft.set(**{to: value for column, to in run.items() if (value := number(row, column)) is not None})
    recompute = (row.get("recompute") or "").lower()
    if recompute:
        draft.set(
            recompute="full"
            if recompute.startswith("full")
            else "none"
            if recompute == "none" or "[]" in recompute
            else "selective"
        )
    _precision(row["dtype"].strip().lower(), draft)


def _precision(text, draft):
    recipe = {
        "": "bf16",
        "bf16": "bf16",
        "fp16": "bf16",
        "amp_bf16": "bf16",
        "amp_fp8": "fp8",
        "fp8": "fp8",
        "fp8-cs": "fp8",
        "fp8-mx": "mxfp8",
        "mxfp8": "mxfp8",
        "nvfp4": "nvfp4",
        "float8": "fp8",
        "float8 tensorwise": "fp8",
        "float8 rowwise": "fp8-rowwise",
        "fp8_full": "fp8",
        "alt": "mxfp8",
    }.get(text, text)
    draft.recipe = recipe
    draft.set(dtype={"fp8": "fp8", "mxfp8": "fp8", "fp8-rowwise": "fp8", "nvfp4": "fp4"}.get(recipe, "bf16"))


def _finish(row, draft):
    """The checks and derivations common to all sources; returns the inputs."""
    i = draft.inputs
    for name in ("layers", "hidden", "heads", "vocab"):
        if name not in i:
            raise Unusable(f"{name} not stated")
    if "seq_len" not in i:
        raise Unusable("sequence length not stated")
    if "gpus" not in i:
        raise Unusable("number of accelerators not stated")
    for name in ("tp", "pp", "cp", "vpp", "ep"):
        i.setdefault(name, 1)
    model_parallel = i["tp"] * i["pp"] * i["cp"]
    if i["gpus"] % model_parallel:
        raise Unusable("tp pp cp does not divide the accelerators")
    dp = i["gpus"] // model_parallel
    if "dp" in i and i.pop("dp") != dp:
        raise Unusable("dp tp pp cp does not give the number of accelerators")
    if "micro_batch" not in i:
        raise Unusable("micro-batch not stated")
    if "global_batch" not in i:
        draft.default(global_batch=dp * i["micro_batch"])
    if i["global_batch"] % (dp * i["micro_batch"]):
        raise Unusable("the global batch is not a multiple of dp and micro-batch")
    i.setdefault("ffn", 4 * i["hidden"])
    if not i.get("experts"):
        i.pop("ep")
    i.setdefault("recompute", "none")
    if draft.inputs.get("bucketing") == "first" and "bucket_bytes" not in i:
        i["bucket_bytes"] = max(40e6, 1e6 * dp) * i.get("grad_bytes", 2)  # Megatron-Core's default, in elements
    i["attention"] = "full"
    return i


def _step_time(row, draft, inputs):
    """Seconds of a step: printed, else from tokens/s, else from TFLOP/s by the source's own count."""
    if (step := number(row, "measured_step_s")) is not None:
        return float(step)
    tokens = inputs["global_batch"] * inputs["seq_len"]
    if (rate := number(row, "tokens_per_s_per_gpu")) is not None:
        return tokens / (inputs["gpus"] * rate)
    if (tflops := number(row, "tflops_per_gpu")) is not None:
        if draft.flop is None:
            raise Unusable("only TFLOP/s, by an unknown count of FLOP")
        return draft.flop(inputs) / (inputs["gpus"] * tflops * 1e12)
    raise Unusable("neither time nor rate")
