"""Points of the kernels as ``work``, ``compute`` and ``memory`` take them: SI, derived entries filled, defaults from the dictionary."""

from types import SimpleNamespace

import numpy as np

from kernels.quantities import INPUTS, encode

GPT3 = dict(layers=96, hidden=12288, ffn=49152, heads=96, vocab=51200, tied_embeddings=1)
LLAMA_8B = dict(layers=32, hidden=4096, ffn=14336, heads=32, kv_heads=8, head_dim=128, vocab=128256, gated_mlp=1)
LLAMA_70B = dict(layers=80, hidden=8192, ffn=28672, heads=64, kv_heads=8, head_dim=128, vocab=128256, gated_mlp=1)
LLAMA_405B = dict(layers=126, hidden=16384, ffn=53248, heads=128, kv_heads=8, head_dim=128, vocab=128256, gated_mlp=1)
MLA = dict(head_dim=128, v_head_dim=128, qk_rope_head_dim=64, kv_lora_rank=512, q_lora_rank=1536)
DEEPSEEK_V2 = MLA | dict(
    layers=60, hidden=5120, ffn=12288, heads=128, vocab=102400, gated_mlp=1,
    experts=160, top_k=6, shared_experts=2, expert_ffn=1536, dense_layers=1,
)  # fmt: skip
DEEPSEEK_V3 = MLA | dict(
    layers=61, hidden=7168, ffn=18432, heads=128, vocab=129280, gated_mlp=1,
    experts=256, top_k=8, shared_experts=1, expert_ffn=2048, dense_layers=3,
)  # fmt: skip
H100 = dict(peak_tflops=989.0, hbm_gbytes_per_s=3350.0, gemm_efficiency=0.72, gemm_half_flop=1.9e10)
A100 = dict(peak_tflops=312.0, hbm_gbytes_per_s=2039.0, gemm_efficiency=0.82, gemm_half_flop=1.6e10)


def point(**given):
    """Inputs of a point: values as people write them, words for categories, arrays for open-mesh axes."""
    x = {}
    for name, row in INPUTS.items():
        value = given.pop(name, row.default)
        if isinstance(value, str):
            value = encode(row, value)
        scaled = isinstance(value, (int, float, np.ndarray)) and row.scale != 1
        x[name] = value * row.scale if scaled else value
    assert not given, f"no such inputs: {list(given)}"
    x["kv_heads"] = x["heads"] if x["kv_heads"] is None else x["kv_heads"]
    x["head_dim"] = x["hidden"] / x["heads"] if x["head_dim"] is None else x["head_dim"]
    if isinstance(x["v_head_dim"], int) and not x["v_head_dim"]:
        x["v_head_dim"] = x["head_dim"]
    if x["dp"] is None:
        x["dp"] = (x["gpus"] or 1024) / (x["tp"] * x["cp"] * x["pp"])
    return SimpleNamespace(**x)
