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

import re

from .runs import Unusable, flop_per_token, number

ONE_BUCKET = 1e15  # bytes: larger than any model, so all gradients wait for the end of the backward pass


def _megatron_flop(recompute):
    """FLOP of a step as the Megatron papers count them; ``recompute`` adds the second forward (96 against 72)."""
    first, head = (96, 16) if recompute else (72, 12)
    return lambda i: (
        first
        * i["global_batch"]
        * i["seq_len"]
        * i["layers"]
        * i["hidden"] ** 2
        * (1 + i["seq_len"] / (6 * i["hidden"]) + i["vocab"] / (head * i["layers"] * i["hidden"]))
    )


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
    draft.stack = "megatron-2022"
    if "multi-node" in row["source"]:
        draft.fabric = "vtrain"
    else:
        # "configs say checkpointing on", but computing every block again would ask for 235 TFLOP/s of an A100, 75 % of peak
        draft.stack, draft.fabric = "megatron-eager", "dgx-a100"
        draft.set(recompute="none")
    draft.assumed.append("recompute")


def _korthikanti(row, draft):
    _megatron_2021(row, draft)
    draft.stack = "megatron-2022"
    draft.set(sequence_parallel=int(row["sp"] == "yes"))
    draft.default(vocab=51200)


def _megatron_2020(row, draft):
    draft.stack, draft.fabric = "megatron-2020", "dgx-a100" if draft.accelerator != "v100" else "dgx-v100"
    draft.set(
        sequence_parallel=0,
        grad_bytes=2,
        bucket_bytes=ONE_BUCKET,
        tied_embeddings=1,
        gated_mlp=0,
        ffn=4 * draft.inputs.get("hidden", 0),
    )
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
        i["heads"] = {14400: 80, 13824: 64}.get(
            i["hidden"], 64
        )  # 14400 / 80 = 180: not a multiple of 8, which the source's slowness asks for
        draft.assumed.append("heads")
    half = (
        4 if draft.recipe == "bf16" and row["dtype"].strip().lower() == "bf16" else 2
    )  # DeepSpeed's bf16 engine accumulates and reduces fp32
    draft.set(
        zero_stage=1,
        sequence_parallel=0,
        grad_bytes=half,
        bucket_bytes=ONE_BUCKET,
        param_gather="exposed",
        gated_mlp=0,
        tied_embeddings=1,
        recompute="full",
        ffn=4 * i["hidden"],
    )
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
    draft.set(
        sequence_parallel=0,
        grad_bytes=2,
        bucket_bytes=ONE_BUCKET,
        gated_mlp=0,
        tied_embeddings=1,
        ffn=4 * i["hidden"],
        scaleup_domain=4,
    )
    if row["zero_stage"]:
        draft.set(zero_stage=1, param_gather="exposed")


# -- FSDP ---------------------------------------------------------------------------------------------------------------


def _llm_foundry(row, draft):
    h100 = draft.accelerator == "h100"
    draft.stack, draft.fabric = (
        ("llm-foundry-hopper", "llm-foundry-h100") if h100 else ("llm-foundry-ampere", "llm-foundry-a100")
    )
    pure = "MP mode PURE" in row["notes"]
    draft.set(
        zero_stage=3,
        grad_bytes=2 if pure else 4,
        param_bytes=2,
        gated_mlp=0,
        tied_embeddings=1,
        reshard_after_forward=0 if "SHARD_GRAD_OP" in row["zero_stage"] else 1,
    )


def _torchtitan(row, draft):
    said = row["notes"].split(";")[0].lower()
    if draft.recipe == "fp8-rowwise":
        raise Unusable("rowwise float8: slower than bf16 by its casts, kernels of its own")
    if draft.inputs.get("pp", 1) > 1:
        raise Unusable("micro-batch of the pipeline not stated")
    # the eager rows have no row to fit on; the kernels of llm-foundry are the same eager PyTorch
    draft.stack, draft.fabric = "torchtitan-compile" if "compile" in said else "llm-foundry-hopper", "grand-teton"
    draft.default(seq_len=8192)
    draft.set(zero_stage=3, grad_bytes=4, param_bytes=2, sequence_parallel=1, cp_method="ring")
    if draft.inputs.get("tp", 1) > 1:
        draft.set(tp_overlap_chunks=2 if "async" in said else 1)  # half stays exposed: 16 and 10 % gained (split = fit)
    draft.variant = "async tp" if "async" in said else ""


# -- Megatron-Core and what is built on it ---------------------------------------------------------------------------------


def _megatron_core(row, draft):
    i = draft.inputs
    dp_bytes = draft.inputs.get("grad_bytes", 2)
    draft.set(zero_stage=1, grad_bytes=dp_bytes, bucketing="first", param_gather="at_once", sequence_parallel=1)
    if draft.moe:
        i["node_limit"] = _domains_met(draft)
    if shards := re.match(r"FSDP\s*(\d*)", row.get("zero_stage") or ""):
        if shards[1] and "micro_batch" in i and i["global_batch"] < i["gpus"] * i["micro_batch"]:
            draft.default(tp=i["gpus"] // int(shards[1]))  # fewer sequences than accelerators: the others share each
        draft.set(zero_stage=3, bucketing="all", tp=i.get("tp", 1), pp=i.get("pp", 1))
        i.pop("dp", None)


def _domains_met(draft):
    """Other scale-up domains that a token's experts sit in, on average: HybridEP and DeepEP send one copy to each, not one per expert."""
    domain = 72 if draft.accelerator in ("gb200", "gb300") else 8
    others = draft.inputs.get("ep", 1) / domain - 1
    if others <= 0 or not draft.inputs.get("top_k"):
        return 0
    met = others * (1 - (1 - 1 / (others + 1)) ** draft.inputs["top_k"])
    return (
        min(met, 3.0) if draft.inputs.get("kv_lora_rank") else met
    )  # DeepSeek-V3 and its kin route a token to four nodes at most


def _mcore_r08(row, draft):
    draft.stack, draft.fabric = "megatron-core-2024", "eos"
    draft.set(ffn=4 * draft.inputs["hidden"], tied_embeddings=0, gated_mlp=0)
    dp, pp = draft.inputs.get("dp", 1), draft.inputs.get("pp", 1)
    draft.default(micro_batch=_divisor(draft.inputs["global_batch"] // dp, 4 if pp == 1 else 1))
    if pp > 1:
        draft.default(
            vpp=draft.inputs["layers"] // pp
        )  # interleaving not stated; one block per chunk, as NVIDIA's own scripts
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
    draft.stack, draft.fabric = (
        "nemo-2025-moe" if draft.moe else "nemo-2025",
        {"h100": "eos", "gb200": "gb200-nvl72"}.get(draft.accelerator, ""),
    )
    if row["model_name"].startswith("Nemotron4") and "vpp" not in draft.inputs:
        draft.set(vpp=12)  # blank in the 25.04 table, 12 in the 25.05 one
    if "averick" in row["model_name"]:
        raise Unusable("dense and MoE blocks by turns, attention in chunks: outside the model")
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
    draft.fabric = {
        "h100": "eos",
        "b200": "dgx-b200",
        "b300": "dgx-b300",
        "gb200": "gb200-nvl72",
        "gb300": "gb300-nvl72",
    }[draft.accelerator]
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
    draft.set(
        micro_batch=1,
        global_batch=int(said[1]) * i.get("dp", 1),
        zero_stage=1,
        grad_bytes=4,
        bucketing="first",
        param_gather="at_once",
        sequence_parallel=1,
    )
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
    i = draft.inputs
    if not said and "Ironwood" in row["source"] and not draft.moe:
        draft.default(micro_batch=i["global_batch"] / i["gpus"])  # MaxText's own default: FSDP over all chips, one micro-batch
        said = True
    if not draft.accelerator.startswith("tpu") or not said:
        raise Unusable("parallel layout not stated")
    draft.stack = "maxtext"
    tokens = re.search(r"tokens/step (\d+)", row["notes"])
    if "seq_len" not in i and tokens and "micro_batch" in i:
        i["seq_len"] = int(tokens[1]) // int(i["gpus"] * i["micro_batch"])
    if "gpus" in i and "micro_batch" in i:
        draft.set(global_batch=int(i["gpus"] * i["micro_batch"]))
    draft.set(
        zero_stage=3, grad_bytes=4, param_bytes=2, recompute="full" if row["recompute"] == "full" else "selective"
    )


def _scarce(row, draft):
    raise Unusable("parallel layout, sequence or batch not stated")


def own(row, draft):
    """A row of your own: what the columns say, gradients and ZeRO as a Megatron-Core run unless the columns say otherwise."""
    draft.stack = "own"
    stage = re.search(r"(\d)", row.get("zero_stage") or "")
    draft.set(zero_stage=3 if "FSDP" in (row.get("zero_stage") or "") else int(stage[1]) if stage else 0)


SOURCES = {
    "llm-foundry": _llm_foundry,
    "Megatron-Bridge performance summary": _bridge,
    "Megatron-Bridge": _bridge_ab,
    "NeMo 24.07": _nemo,
    "NeMo-Framework-Launcher": _nemo,
    "NeMo long-sequence": _nemo_long,
    "NeMo AutoModel": _automodel,
    "torchtitan": _torchtitan,
    "MaxText": _tpu,
    "tpu-recipes": _tpu,
    "SimuMax": _simumax,
    "Megatron-LM SC21": _megatron_2021,
    "Megatron-Core r0.8": _mcore_r08,
    "Megatron-LM README": _megatron_2020,
    "Korthikanti": _korthikanti,
    "BigScience V100": _bigscience_v100,
    "BigScience": _bigscience,
    "NVIDIA dgxc": _dgxc,
    "MLPerf": _mlperf,
    "vTrain": _vtrain,
    "OPT-175B": _scarce,
    "DeepSeek-V3": _scarce,
}
