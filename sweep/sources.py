"""What each public source of training runs leaves unsaid, and how it counts: one short function per source.

A rule receives the row and a ``draft`` (the inputs the columns say) and fills in the framework's conventions: gradient
bytes on the wire, ZeRO stage, buckets, recomputation, the fabric, the stack of kernels.  Where the source itself does not say,
the choice is listed in ``assumed``.  ``Unusable`` is raised with the reason where a row does not say enough.

Frameworks, in brief:
    Megatron-LM until 2022   gradients all-reduced after the last backward, in fp16, nothing hidden (one bucket); no sequence parallelism; full recompute
    Megatron-DeepSpeed       ZeRO-1, gradients reduced and parameters gathered in the open
    Megatron-Core, NeMo      ZeRO-1 with both overlapped, buckets of max(40 M, 1 M dp) elements on stage 0, bf16 gradients, sequence parallelism with tp
    FSDP                     ZeRO-3, unit = block, gradients reduced in fp32 (llm-foundry PURE: 16 bit)
"""

import math
import re

from .runs import Run, Unusable, flop_per_token, number, shapes

ONE_BUCKET = 1e15  # bytes: larger than any model, so all gradients wait for the end of the backward pass
ACCELERATORS = {"H100 80GB": "h100", "H100": "h100", "H100 (DGX-H100)": "h100", "H100 (DGX)": "h100", "H100 80GB (GCP A3)": "h100", "NVIDIA H100-SXM5-80GB": "h100",
                "H100 96GB HBM2e 500W (Grand Teton)": "h100-500w", "H800": "h800", "A100 80GB": "a100", "A100 80GB (Selene)": "a100", "A100": "a100",
                "A100 (DGX-A100)": "a100-40gb", "A100 40GB": "a100-40gb", "V100 16GB": "v100-16gb", "V100 32GB": "v100", "V100 (DGX-2)": "v100",
                "B200": "b200", "B200 SXM": "b200", "B200 (DGX)": "b200", "B300": "b300", "GB200": "gb200", "GB300": "gb300",
                "NVIDIA Blackwell GPU (B200-SXM-180GB)": "b200", "TPU v4": "tpu-v4", "TPU v5e": "tpu-v5e", "TPU v5p": "tpu-v5p", "TPU-v5p": "tpu-v5p",
                "TPU v6e": "tpu-v6e", "TPU v7x (Ironwood)": "tpu-v7x"}
MODELS = {"deepseekv3": "deepseek3-671b", "deepseek-v3": "deepseek3-671b", "deepseek v3": "deepseek3-671b", "deepseek-v2": "deepseek2-236b",
          "qwen3_30b_a3b": "qwen3-30b-a3b", "qwen3 moe 30b": "qwen3-30b-a3b", "qwen3_235b_a22b": "qwen3-235b-a22b", "gpt oss 120b": "gpt-oss-120b",
          "gpt-oss 120b": "gpt-oss-120b", "gpt-oss 20b": "gpt-oss-20b", "kimi_k2": "kimi-k2-1t", "llama3_8b": "llama3-8b", "llama3_70b": "llama3-70b",
          "llama3.1_405b": "llama3.1-405b", "llama3-8b": "llama3-8b", "llama3-70b": "llama3-70b", "llama3-405b": "llama3.1-405b", "llama 3.1 8b": "llama3.1-8b",
          "llama 3.1 70b": "llama3.1-70b", "llama 3.1 405b": "llama3.1-405b", "llama2-7b": "llama2-7b", "llama2-70b": "llama2-70b", "llama 2 70b": "llama2-70b",
          "nemotron-8b": "Nemotron3-8B", "nemotron-22b": "Nemotron3-22B", "nemotron-340b": "Nemotron4-340B", "nemotron4 340b": "Nemotron4-340B",
          "grok1 314b": "Grok-1", "mixtral-8x7b": "mixtral-8x7b", "mixtral-8x22b": "mixtral-8x22b", "mixtral 8x7b": "mixtral-8x7b", "mixtral 8x22b": "mixtral-8x22b",
          "llama4 maverick": "llama4-17b-128e", "gpt3-175b": "gpt3-175b", "gpt-3 175b": "gpt3-175b", "bloom 176b": "BLOOM-176B", "moonlight 16b": "moonlight",
          "llama3.1-70b": "llama3.1-70b", "llama3.1-405b": "llama3.1-405b", "mpt-125m": "MPT-125m"}
OTHER_SHAPES = {  # published shapes that models.csv lacks
    "gpt3-5b": {"layers": 24, "hidden": 4096, "ffn": 16384, "heads": 32, "vocab": 51200, "gated_mlp": 0, "tied_embeddings": 1},  # NeMo launcher, gpt3/5b.yaml
    "gpt3-20b": {"layers": 44, "hidden": 6144, "ffn": 24576, "heads": 48, "vocab": 51200, "gated_mlp": 0, "tied_embeddings": 1},  # NeMo launcher, gpt3/20b.yaml
    "moonlight": {"layers": 27, "hidden": 2048, "ffn": 11264, "expert_ffn": 1408, "heads": 16, "kv_heads": 16, "vocab": 163840, "experts": 64, "top_k": 6,
                  "shared_experts": 2, "dense_layers": 1, "gated_mlp": 1, "tied_embeddings": 0, "q_lora_rank": 0, "kv_lora_rank": 512, "qk_rope_head_dim": 64,
                  "v_head_dim": 128, "head_dim": 128},  # Moonlight-16B-A3B, config.json
}
HYBRIDS = ("nemotron_3", "nemotron v3", "nemotron-h", "nemotron_h", "deepseekv4", "gemma4", "qwen3-next")


def read_row(row):
    """One row of the CSV as a ``Run``."""
    accelerator = ACCELERATORS.get(row["accelerator"].strip(), row["accelerator"].strip())
    draft = _Draft(row, accelerator)
    reason, step, inputs = "", float("nan"), {}
    try:
        source = next((rule for name, rule in SOURCES.items() if row["source"].startswith(name)), _own)
        _columns(row, draft)
        source(row, draft)
        inputs = _finish(row, draft)
        step = _step_time(row, draft, inputs)
    except Unusable as why:
        reason = str(why)
    family = f"{accelerator} {'MoE' if draft.moe else 'dense'}"
    return Run(row["id"], row["source"], family, (row.get("split") or "").strip() or "own", accelerator, draft.stack, draft.fabric, draft.recipe,
               inputs, step, tuple(draft.assumed), reason, draft.variant)


class _Draft:
    """What is known of a row while its rules run."""

    def __init__(self, row, accelerator):
        self.accelerator, self.stack, self.fabric, self.recipe, self.variant = accelerator, "", "", "bf16", ""
        self.inputs, self.assumed, self.flop = {}, [], None
        self.moe = bool((row.get("experts") or "").strip()) or any(w in row["model_name"].lower() for w in (
            "deepseek", "qwen3", "moe", "oss", "kimi", "nemotron_3", "nemotron v3", "mixtral", "grok", "maverick", "scout", "moonlight"))

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
    columns = {"layers": "layers", "hidden": "hidden", "ffn": "ffn", "heads": "heads", "kv_heads": "kv_heads", "vocab": "vocab", "experts": "experts", "topk": "top_k"}
    own = {to: value for column, to in columns.items() if (value := number(row, column)) is not None}
    if "hidden" in own and shape and shape.get("hidden") != own["hidden"]:
        shape = {}
    draft.set(**{**shape, **own})
    run = {"n_gpus": "gpus", "dp": "dp", "tp": "tp", "pp": "pp", "vpp": "vpp", "cp": "cp", "ep": "ep", "micro_batch": "micro_batch", "global_batch": "global_batch", "seq": "seq_len"}
    draft.set(**{to: value for column, to in run.items() if (value := number(row, column)) is not None})
    recompute = (row.get("recompute") or "").lower()
    if recompute:
        draft.set(recompute="full" if recompute.startswith("full") else "none" if recompute == "none" or "[]" in recompute else "selective")
    _precision(row["dtype"].strip().lower(), draft)


def _precision(text, draft):
    recipe = {"": "bf16", "bf16": "bf16", "fp16": "bf16", "amp_bf16": "bf16", "amp_fp8": "fp8", "fp8": "fp8", "fp8-cs": "fp8", "fp8-mx": "mxfp8", "mxfp8": "mxfp8",
              "nvfp4": "nvfp4", "float8": "fp8", "float8 tensorwise": "fp8", "float8 rowwise": "fp8-rowwise", "fp8_full": "fp8", "alt": "mxfp8"}.get(text, text)
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


def _megatron_flop(recompute):
    """FLOP of a step as the Megatron papers count them; ``recompute`` adds the second forward (96 against 72)."""
    first, head = (96, 16) if recompute else (72, 12)
    return lambda i: first * i["global_batch"] * i["seq_len"] * i["layers"] * i["hidden"] ** 2 * (1 + i["seq_len"] / (6 * i["hidden"]) + i["vocab"] / (head * i["layers"] * i["hidden"]))


def _full_attention_flop(inputs):
    return inputs["global_batch"] * inputs["seq_len"] * flop_per_token(inputs, "full")


# -- Megatron-LM until 2022 ------------------------------------------------------------------------------------------------

def _megatron_2021(row, draft):
    draft.stack, draft.fabric = "megatron-2021", "selene"
    draft.set(sequence_parallel=0, grad_bytes=2, bucket_bytes=ONE_BUCKET, tied_embeddings=1, gated_mlp=0)
    draft.flop = _megatron_flop(True)


def _vtrain(row, draft):
    _megatron_2021(row, draft)
    draft.default(vocab=51200)
    if "multi-node" in row["source"]:
        draft.fabric = "vtrain"
    else:
        # "configs say checkpointing on", but computing every block again would ask for 235 TFLOP/s of an A100, 75 % of peak
        draft.fabric = "dgx-a100"
        draft.set(recompute="none")
    draft.assumed.append("recompute")


def _korthikanti(row, draft):
    _megatron_2021(row, draft)
    draft.set(sequence_parallel=int(row["sp"] == "yes"))
    draft.default(vocab=51200)


def _megatron_2020(row, draft):
    draft.stack, draft.fabric = "megatron-2020", "dgx-a100" if draft.accelerator != "v100" else "dgx-v100"
    draft.set(sequence_parallel=0, grad_bytes=2, bucket_bytes=ONE_BUCKET, tied_embeddings=1, gated_mlp=0, ffn=4 * draft.inputs.get("hidden", 0))
    if "example text" in row["source"]:
        raise Unusable("parallel layout not stated")
    draft.default(seq_len=1024, vocab=51200, recompute="full")
    draft.default(micro_batch=draft.inputs["global_batch"] // draft.inputs.get("dp", 1))


# -- BigScience (Megatron-DeepSpeed) ----------------------------------------------------------------------------------------

def _bigscience(row, draft):
    i = draft.inputs
    draft.stack, draft.fabric = "megatron-deepspeed", "jean-zay-a100"
    if "hidden" not in i:
        raise Unusable("hidden not stated")
    if "layers" not in i:
        i["layers"] = round((number(row, "params_B") * 1e9 - 250_000 * i["hidden"]) / (12 * i["hidden"] ** 2))
        draft.assumed.append("layers")
    if "heads" not in i:
        i["heads"] = {14400: 80, 13824: 64}.get(i["hidden"], 64)  # 14400 / 80 = 180: not a multiple of 8, which the source's slowness asks for
        draft.assumed.append("heads")
    half = 4 if draft.recipe == "bf16" and row["dtype"].strip().lower() == "bf16" else 2  # DeepSpeed's bf16 engine accumulates and reduces fp32
    draft.set(zero_stage=1, sequence_parallel=0, grad_bytes=half, bucket_bytes=ONE_BUCKET, param_gather="exposed", gated_mlp=0, tied_embeddings=1, recompute="full",
              ffn=4 * i["hidden"])
    date = re.search(r"date (\d\d)-(\d\d)", row["notes"])
    late = not date or (int(date[1]), int(date[2])) >= (2, 25)
    draft.variant = "" if late else "before 02-25"
    correction = 1.03 if date and (int(date[1]), int(date[2])) < (2, 21) else 1.0
    count = _megatron_flop(True)
    draft.flop = lambda inputs: count(inputs) / correction


def _bigscience_v100(row, draft):
    i = draft.inputs
    draft.stack, draft.fabric = "megatron-deepspeed-v100", "jean-zay-v100"
    if row["model_name"].startswith("GPT 1.3B"):
        draft.default(layers=24, hidden=2048, heads=16, vocab=50257)
    draft.set(sequence_parallel=0, grad_bytes=2, bucket_bytes=ONE_BUCKET, gated_mlp=0, tied_embeddings=1, ffn=4 * i["hidden"], scaleup_domain=4)
    if row["zero_stage"]:
        draft.set(zero_stage=1, param_gather="exposed")


# -- FSDP ---------------------------------------------------------------------------------------------------------------

def _llm_foundry(row, draft):
    h100 = draft.accelerator == "h100"
    draft.stack, draft.fabric = ("llm-foundry-hopper", "llm-foundry-h100") if h100 else ("llm-foundry-ampere", "llm-foundry-a100")
    pure = "MP mode PURE" in row["notes"]
    draft.set(zero_stage=3, grad_bytes=2 if pure else 4, param_bytes=2, gated_mlp=0, tied_embeddings=1,
              reshard_after_forward=0 if "SHARD_GRAD_OP" in row["zero_stage"] else 1)


def _torchtitan(row, draft):
    said = row["notes"].split(";")[0].lower()
    if draft.recipe == "fp8-rowwise":
        raise Unusable("rowwise float8: no faster than bf16, its own kernels")
    if draft.inputs.get("pp", 1) > 1:
        raise Unusable("micro-batch of the pipeline not stated")
    # the eager rows have no row to fit on; the kernels of llm-foundry are the same eager PyTorch
    draft.stack, draft.fabric = "torchtitan-compile" if "compile" in said else "llm-foundry-hopper", "grand-teton"
    draft.default(seq_len=8192)
    draft.set(zero_stage=3, grad_bytes=4, param_bytes=2, sequence_parallel=1, cp_method="ring")
    if draft.inputs.get("tp", 1) > 1:
        draft.set(tp_overlap_chunks=draft.inputs["tp"] if "async" in said else 1)
    draft.variant = "async tp" if "async" in said else ""


# -- Megatron-Core and what is built on it ---------------------------------------------------------------------------------

def _megatron_core(row, draft):
    i = draft.inputs
    dp_bytes = draft.inputs.get("grad_bytes", 2)
    draft.set(zero_stage=1, grad_bytes=dp_bytes, bucketing="first", param_gather="at_once", sequence_parallel=1)
    if draft.moe:
        i["node_limit"] = _domains_met(draft)
    if (row.get("zero_stage") or "").startswith("FSDP"):
        draft.set(zero_stage=3, bucketing="all", tp=i.get("tp", 1), pp=i.get("pp", 1))
        i.pop("dp", None)


def _domains_met(draft):
    """Other scale-up domains that a token's experts sit in, on average: HybridEP and DeepEP send one copy to each, not one per expert."""
    domain = 72 if draft.accelerator in ("gb200", "gb300") else 8
    others = draft.inputs.get("ep", 1) / domain - 1
    if others <= 0 or not draft.inputs.get("top_k"):
        return 0
    return others * (1 - (1 - 1 / (others + 1)) ** draft.inputs["top_k"])


def _mcore_r08(row, draft):
    draft.stack, draft.fabric = "megatron-core-2024", "eos"
    draft.set(ffn=4 * draft.inputs["hidden"], tied_embeddings=0, gated_mlp=0)
    dp, pp = draft.inputs.get("dp", 1), draft.inputs.get("pp", 1)
    draft.default(micro_batch=_divisor(draft.inputs["global_batch"] // dp, 4 if pp == 1 else 1))
    if pp > 1:
        draft.default(vpp=draft.inputs["layers"] // pp)  # interleaving not stated; one block per chunk, as NVIDIA's own scripts
    _megatron_core(row, draft)
    draft.flop = _megatron_flop(False)


def _divisor(whole, limit):
    return max(d for d in range(1, limit + 1) if whole % d == 0)


def _nemo(row, draft):
    i = draft.inputs
    if "finetune" in row["notes"] or "SFT" in row["notes"]:
        raise Unusable("fine-tuning on packed sequences")
    draft.stack, draft.fabric = "nemo-2024", "eos"
    if "24.07" not in row["source"] and "vpp" not in i and i.get("pp", 1) > 1:
        known = {"gpt3-175b": 6, "llama2-70b": 20, "nemotron-22b": 10, "llama3-70b": 5}.get(row["model_name"].lower())
        draft.default(**({"vpp": known} if known else {}))
    draft.flop = _full_attention_flop
    _megatron_core(row, draft)


def _nemo_long(row, draft):
    draft.default(micro_batch=1)
    _nemo(row, draft)
    draft.stack, draft.fabric = "nemo-2024", "eos" if draft.accelerator == "h100" else "dgx-b200"


def _dgxc(row, draft):
    draft.stack, draft.fabric = "nemo-2025-moe" if draft.moe else "nemo-2025", {"h100": "eos", "gb200": "gb200-nvl72"}.get(draft.accelerator, "")
    if row["model_name"].startswith("Nemotron4") and "vpp" not in draft.inputs:
        draft.set(vpp=12)  # blank in the 25.04 table, 12 in the 25.05 one
    if "averick" in row["model_name"]:
        raise Unusable("interleaved dense and MoE blocks of two widths, outside the model")
    _megatron_core(row, draft)


def _bridge(row, draft):
    container = re.match(r"([\d.]+) NeMo Container", row["notes"])
    version = container.group(1) if container else ""
    if "SFT" in row["notes"] or "SFT" in row["model_name"] or "LoRA" in row["notes"]:
        raise Unusable("fine-tuning on packed sequences")
    if version.startswith("25.09"):
        draft.recipe = "mxfp8" if row["dtype"].strip() == "alt" else "fp8"
        draft.set(dtype="fp8")
    draft.variant = _era(version)
    moe = draft.moe
    dense = {"mxfp8": "megatron-bridge-mxfp8", "nvfp4": "megatron-bridge-nvfp4"}.get(draft.recipe, "megatron-bridge")
    draft.stack = f"megatron-bridge-{draft.variant}" if moe else dense
    draft.fabric = {"h100": "eos", "b200": "dgx-b200", "b300": "dgx-b300", "gb200": "gb200-nvl72", "gb300": "gb300-nvl72"}[draft.accelerator]
    if moe and version.startswith("25") and "tokendrop" in row["model_name"]:
        draft.variant += " tokendrop"
    _megatron_core(row, draft)
    draft.flop = _full_attention_flop


def _era(version):
    """Containers whose kernels perform alike: 25.x, then 26.0x, then from 26.06 on (paged-stash and fused MoE kernels)."""
    if not version:
        return "26.02"
    major, minor = (int(x) for x in version.split(".")[:2])
    return "25" if major < 26 else "26.02" if minor < 6 else "26.06"


def _bridge_ab(row, draft):
    i = draft.inputs
    draft.variant = row["notes"].split(";")[0]
    draft.stack, draft.fabric = "megatron-bridge-26.02", "eos"
    draft.default(seq_len=4096, micro_batch=1)
    if "SFT" in row["model_name"]:
        raise Unusable("fine-tuning on packed sequences")
    if "EP overlap" in draft.variant or "EP-overlap" in row["source"]:
        draft.set(ep_overlap_chunks=1 if "off" in draft.variant or "no EP" in draft.variant else 2)
    _megatron_core(row, draft)
    if "alltoall" in row["source"]:
        i["node_limit"] = 0  # this dispatcher sends one copy per expert


def _automodel(row, draft):
    draft.stack, draft.fabric = "nemo-automodel", "eos"
    draft.inputs.pop("dp", None)
    if "ep" not in draft.inputs:
        draft.default(ep=8)
    draft.set(zero_stage=3, grad_bytes=2, shard_group=int(row["zero_stage"].split()[-1]))
    if draft.inputs.get("pp", 1) > 1:
        draft.set(zero_stage=1, bucketing="all")


def _simumax(row, draft):
    said = re.search(r"mbc(\d+)", row["notes"])
    i = draft.inputs
    draft.stack, draft.fabric = "megatron-core-b200", "dgx-b200"
    draft.set(micro_batch=1, global_batch=int(said[1]) * i.get("dp", 1), zero_stage=1, grad_bytes=4, bucketing="first", param_gather="at_once",
              sequence_parallel=1)
    draft.default(seq_len=4096)
    if i.get("dense_layers"):
        layers = int(number(row, "layers"))
        draft.set(dense_layers=min(i["dense_layers"], layers - 1))
        draft.assumed.append("dense_layers")


def _mlperf(row, draft):
    if draft.accelerator.startswith("tpu"):
        raise Unusable("parallel layout not stated")
    if "pp" not in draft.inputs or "micro_batch" not in draft.inputs:
        raise Unusable("pp or micro-batch not stated")
    draft.stack, draft.fabric = "mlperf-nemo", "eos" if draft.accelerator == "h100" else "dgx-b200"
    draft.recipe = "fp8"
    draft.set(dtype="fp8")
    _megatron_core(row, draft)


def _tpu(row, draft):
    said = re.search(r"ici_fsdp_parallelism=(-1|\d+)", row["notes"])
    if not draft.accelerator.startswith("tpu") or not said:
        raise Unusable("parallel layout not stated")
    draft.stack = "maxtext"
    gpus = draft.inputs.get("gpus")
    if gpus and "micro_batch" in draft.inputs:
        draft.set(global_batch=int(gpus * draft.inputs["micro_batch"]))
    draft.set(zero_stage=3, grad_bytes=4, param_bytes=2, recompute="full" if row["recompute"] == "full" else "selective")


def _scarce(row, draft):
    raise Unusable("parallel layout, sequence or batch not stated")


def _own(row, draft):
    """A row of your own: what the columns say, gradients and ZeRO as a Megatron-Core run unless the columns say otherwise."""
    draft.stack, draft.fabric = "own", "own"
    stage = re.search(r"(\d)", row.get("zero_stage") or "")
    draft.set(zero_stage=3 if "FSDP" in (row.get("zero_stage") or "") else int(stage[1]) if stage else 0)


SOURCES = {
    "llm-foundry": _llm_foundry, "Megatron-Bridge performance summary": _bridge, "Megatron-Bridge": _bridge_ab, "NeMo 24.07": _nemo, "NeMo-Framework-Launcher": _nemo,
    "NeMo long-sequence": _nemo_long, "NeMo AutoModel": _automodel, "torchtitan": _torchtitan, "MaxText": _tpu, "tpu-recipes": _tpu, "SimuMax": _simumax,
    "Megatron-LM SC21": _megatron_2021, "Megatron-Core r0.8": _mcore_r08, "Megatron-LM README": _megatron_2020, "Korthikanti": _korthikanti,
    "BigScience V100": _bigscience_v100, "BigScience": _bigscience, "NVIDIA dgxc": _dgxc, "MLPerf": _mlperf, "vTrain": _vtrain, "OPT-175B": _scarce, "DeepSeek-V3": _scarce,
}
