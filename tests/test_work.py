"""Parameters and FLOP against released models and published formulas; sharding adds up; nothing widens.

``data/models.csv`` is a collection of released architectures (MaxText, llm-analysis, calculon, llm-foundry, Megatron-LM, NeMo and
others; the column ``source_ref`` names the file of each row, ``notes`` its traps).
"""

import csv
import re
from pathlib import Path

import numpy as np
import pytest
from points import DEEPSEEK_V3, GPT3, LLAMA_8B, LLAMA_70B, point

from kernels.work import work

ROWS = list(csv.DictReader((Path(__file__).parent / "data" / "models.csv").read_text().splitlines()))


def architecture(row):
    """Inputs of a row of models.csv."""

    def count(key):
        return int(row[key] or 0)

    given = dict(
        layers=count("layers"), hidden=count("hidden"), ffn=count("ffn"), heads=count("heads"), vocab=count("vocab"),
        kv_heads=count("kv_heads"), head_dim=count("head_dim") or None, gated_mlp=int(row["gated_mlp"] == "yes"),
        tied_embeddings=int(row["tied_embeddings"] == "yes"), experts=count("experts"), top_k=count("topk"),
        shared_experts=count("shared_experts"), dense_layers=count("first_dense_layers"),
        expert_ffn=count("moe_ffn") or count("ffn"),
    )  # fmt: skip
    if row["attention"] == "MLA":
        latent = {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", row["notes"])}
        given |= dict(q_lora_rank=latent["q_lora"], kv_lora_rank=latent["kv_lora"], qk_rope_head_dim=latent["rope"])
        given |= dict(head_dim=latent["nope"], v_head_dim=latent["v"])
    return given


def counted(column):
    return [pytest.param(row, id=row["model"]) for row in ROWS if row[column]]


def test_the_collection_is_whole():
    assert len(ROWS) == 104
    assert len(counted("params_B_computed")) == 91 and len(counted("params_B_published")) == 8


@pytest.mark.parametrize("row", counted("params_B_computed"))
def test_parameters_against_the_collection(row):
    of = work(point(**architecture(row)))
    for ours, theirs in ((of.params, row["params_B_computed"]), (of.active_params, row["active_params_B_computed"])):
        assert ours / 1e9 == pytest.approx(float(theirs), abs=6e-4, rel=2e-4)  # as printed; they leave out norms


@pytest.mark.parametrize("row", counted("params_B_published"))
def test_parameters_against_names(row):
    """Names round: Llama 3.1 '70B' has 70.55 billion."""
    assert work(point(**architecture(row))).params / 1e9 == pytest.approx(float(row["params_B_published"]), rel=8e-3)


@pytest.mark.parametrize(
    "name, changed, billions, source",
    [
        ("gemma2-2b", dict(layers=26), 2.614, "arXiv:2408.00118 table 2; MaxText counts pairs of layers"),
        ("gemma2-9b", dict(layers=42), 9.242, "arXiv:2408.00118 table 2"),
        ("gemma2-27b", dict(layers=46), 27.228, "arXiv:2408.00118 table 2"),
        ("lamda (calculon)", dict(gated_mlp=1), 137.4, "LaMDA has 137 B, gated; calculon's file does not say so"),
        ("llama4-17b-128e", dict(dense_layers=24), 400, "Llama 4 Maverick: every second block is MoE, 400 B, 17 B active"),
        ("llama4-17b-16e", {}, 109, "Llama 4 Scout: 109 B, 17 B active"),
        ("kimi-k2-1t", {}, 1026, "Kimi K2: 1.03 T, 32.6 B active"),
        ("deepseek2-16b", {}, 15.7, "arXiv:2405.04434: V2-Lite, 15.7 B, 2.4 B active without embeddings"),
    ],
)
def test_rows_that_need_a_word(name, changed, billions, source):
    row = next(row for row in ROWS if row["model"] == name)
    assert work(point(**(architecture(row) | changed))).params / 1e9 == pytest.approx(billions, rel=0.012), source


def test_active_parameters():
    """DeepSeek-V3 publishes 671 B and 37 B active."""
    of = work(point(**DEEPSEEK_V3))
    assert of.params / 1e9 == pytest.approx(671, abs=0.5)
    assert of.active_params / 1e9 == pytest.approx(37, abs=0.6)


def test_split_of_llama_70b():
    """jax-ml/scaling-book applied-training.md: 56.3 B in MLPs, 12 B in attention, 2.1 B in embedding and head."""
    x = point(**LLAMA_70B)
    of = work(x)
    attention = [gemm.weight for gemm in of.gemms[:2]]
    mlp = [gemm.weight for gemm in of.gemms[2:]]
    assert x.layers * sum(mlp) == pytest.approx(56.3e9, rel=2e-3)
    assert x.layers * sum(attention) == pytest.approx(12e9, rel=0.01)
    assert of.embedding_params + of.head_params == pytest.approx(2.1e9, rel=2e-3)


def test_attention_equals_projections_at_twice_the_width():
    """jax-ml/scaling-book transformers.md: with full attention at s = 2 h (8,192 for h = 4,096)."""
    x = point(layers=1, hidden=4096, ffn=16384, heads=32, vocab=0, seq_len=8192, attention="full")
    of = work(x)
    assert of.attention_flop == sum(gemm.flop for gemm in of.gemms[:2])
    assert work(point(**(vars_of(x) | dict(attention="causal")))).attention_flop == of.attention_flop / 2


def vars_of(x):
    """The inputs that make up the shape of ``x``."""
    return {name: getattr(x, name) for name in ("layers", "hidden", "ffn", "heads", "vocab", "seq_len")}


def test_flop_of_megatron():
    """arXiv:2104.04473 equation 3 and arXiv:2205.05198 equation 7: 72 B L s h^2 (1 + s/6h + V/12Lh), 4/3 on blocks if recomputed."""
    x = point(**GPT3, seq_len=2048, attention="full", recompute="full")
    L, h, s, V = x.layers, x.hidden, x.seq_len, x.vocab
    of = work(x)
    assert of.model_flop == pytest.approx(72 * L * h * h * (1 + s / (6 * h) + V / (12 * L * h)), rel=1e-12)
    assert of.hardware_flop == pytest.approx(96 * L * h * h * (1 + s / (6 * h) + V / (16 * L * h)), rel=1e-12)
    again = work(point(**GPT3, seq_len=2048, attention="full", recompute="selective"))
    assert again.hardware_flop - again.model_flop == L * 4 * s * h
    none = work(point(**GPT3, seq_len=2048, attention="full"))
    assert none.hardware_flop == none.model_flop


@pytest.mark.parametrize("shape", [LLAMA_8B, LLAMA_70B, DEEPSEEK_V3], ids=["8b", "70b", "v3"])
@pytest.mark.parametrize("split", [dict(tp=4), dict(pp=2, tp=8), dict(ep=16), dict(tp=2, ep=8)], ids=str)
def test_the_ranks_hold_the_model(shape, split):
    """Parameters of all ranks of one replica add up to the model, replicated norms, router and down-projections aside."""
    one, many = work(point(**shape)), work(point(**shape, **split))
    tp, ep = split.get("tp", 1), split.get("ep", 1)
    norms = 2 * shape["hidden"] + shape.get("q_lora_rank", 0) + shape.get("kv_lora_rank", 0)
    down = shape["hidden"] * (2112 if "kv_lora_rank" in shape else 0)
    router = one.moe_share * shape["hidden"] * shape.get("experts", 0)
    whole = norms + down + router
    assert many.block_params * tp - (tp - 1) * whole == pytest.approx(one.block_params, rel=1e-12)
    assert many.block_expert_params * ep == pytest.approx(one.block_expert_params, rel=1e-12)
    assert many.embedding_params * tp == one.embedding_params and many.head_params * tp == one.head_params
    blocks = shape["layers"] * (one.block_params + one.block_expert_params)
    ends = one.embedding_params + one.head_params + shape["hidden"]
    assert blocks + ends == pytest.approx(one.params, rel=1e-12)
    for name in ("params", "active_params", "block_flop", "model_flop"):
        assert getattr(many, name) == getattr(one, name)
    flop = sum(gemm.share * gemm.flop for gemm in many.gemms) * tp
    assert flop == pytest.approx(one.block_flop - one.attention_flop, rel=1e-12)


def test_keys_and_values_are_replicated_beyond_their_heads():
    few, many = work(point(**LLAMA_8B, tp=8)), work(point(**LLAMA_8B, tp=16))
    kv_head = 4096 * 2 * 128
    assert few.block_params - 2 * 4096 == (work(point(**LLAMA_8B)).block_params - 2 * 4096) / 8
    assert many.block_params - 2 * 4096 == (few.block_params - 2 * 4096 - kv_head) / 2 + kv_head


def test_ends():
    tied, untied = work(point(**GPT3)), work(point(**(GPT3 | dict(tied_embeddings=0))))
    both = work(point(**GPT3, pp=4))
    matrix = 51200 * 12288
    assert tied.head_params == 0 and tied.embedding_params == matrix
    assert untied.head_params == both.head_params == both.embedding_params == matrix
    assert untied.params - tied.params == matrix and both.params == tied.params
    none = work(point(**(GPT3 | dict(vocab=0))))
    assert none.embedding_params == none.head_params == none.head_flop == none.head_gemm.share == 0
    assert none.params == 96 * (12 * 12288**2 + 2 * 12288)


def test_real_valued_shape():
    """P = 12 L h^2 with h = 128 L: blocks hold P and nothing else."""
    params = 70e9
    layers = (params / (12 * 128**2)) ** (1 / 3)
    hidden = 128 * layers
    of = work(point(params=params, layers=layers, hidden=hidden, ffn=4 * hidden, heads=layers, head_dim=128, vocab=0))
    assert of.params == pytest.approx(params, rel=1e-14) and of.active_params == of.params
    assert layers * of.block_params == pytest.approx(params, rel=1e-14)
    assert of.block_flop - of.attention_flop == pytest.approx(2 * params / layers, rel=1e-14)


def test_a_dense_model_carries_no_experts():
    assert len(work(point(**LLAMA_8B)).gemms) == 4
    assert len(work(point(**DEEPSEEK_V3)).gemms) == 12


AXES = dict(layers=0, hidden=0, ffn=0, heads=0, kv_heads=0, head_dim=0, v_head_dim=0, vocab=0, gated_mlp=0, tied_embeddings=0)
AXES |= dict(experts=0, top_k=0, shared_experts=0, expert_ffn=0, dense_layers=0, kv_lora_rank=0, q_lora_rank=0)
AXES |= dict(qk_rope_head_dim=0, tp=1, ep=2, pp=3, seq_len=4, recompute=5)


def mesh():
    """An open mesh over models (axis 0), tp, ep, pp, seq_len and recompute, and the points it stands for."""
    models = [dict(vars(point(**shape))) for shape in (LLAMA_8B, GPT3, DEEPSEEK_V3)]
    values = dict(tp=[1, 8], ep=[1, 4], pp=[1, 2], seq_len=[2048, 8192], recompute=[0, 1, 2])
    values |= {name: [model[name] for model in models] for name, axis in AXES.items() if axis == 0}
    shaped = {}
    for name, axis in AXES.items():
        shape = [1] * 6
        shape[axis] = len(values[name])
        shaped[name] = np.asarray(values[name], float).reshape(shape)
    return shaped, values


def test_open_mesh_equals_points_and_does_not_widen():
    shaped, values = mesh()
    of = work(point(**shaped))
    shape = (3, 2, 2, 2, 2, 3)
    for index in np.ndindex(shape):
        one = work(point(**{name: values[name][index[axis]] for name, axis in AXES.items()}))
        for name in of._fields[:-2]:
            ours = np.broadcast_to(getattr(of, name), shape)[index]
            assert ours == pytest.approx(getattr(one, name), rel=1e-13), name
        total = sum(g.share * g.flop for g in of.gemms)
        assert np.broadcast_to(total, shape)[index] == pytest.approx(sum(g.share * g.flop for g in one.gemms), rel=1e-13)
    assert of.params.shape == (3, 1, 1, 1, 1, 1)
    assert of.block_params.shape == (3, 2, 1, 1, 1, 1)
    assert of.block_expert_params.shape == (3, 1, 2, 1, 1, 1)
    assert of.head_params.shape == (3, 2, 1, 2, 1, 1)
    assert of.block_flop.shape == (3, 1, 1, 1, 2, 1)
    assert of.hardware_flop.shape == (3, 1, 1, 1, 2, 3)


def test_multiplications_of_latent_attention_and_experts():
    """DeepSeek-V3 by hand on tp 2, ep 4: rows per token, inputs and outputs on this GPU, matrices held, share of the blocks."""
    x = point(**DEEPSEEK_V3, tp=2, ep=4)
    of = work(x)
    moe, tp = 58 / 61, 2
    expected = [
        (0.5, 7168, 1536, 1, 1),  # queries down: whole, on the tokens of the sequence shard
        (1, 1536, 128 * 192 / tp, 1, 1),
        (0.5, 7168, 512 + 64, 1, 1),  # keys and values down
        (1, 512, 128 * 256 / tp, 1, 1),
        (1, 128 * 128 / tp, 7168, 1, 1),
        (1, 7168, 2 * 18432 / tp, 1, 1 - moe),
        (1, 18432 / tp, 7168, 1, 1 - moe),
        (0.5, 7168, 256, 1, moe),
        (8 / tp, 7168, 2 * 2048, 256 / 4, moe),
        (8 / tp, 2048, 7168, 256 / 4, moe),
        (1, 7168, 2 * 2048 / tp, 1, moe),
        (1, 2048 / tp, 7168, 1, moe),
    ]
    assert len(of.gemms) == len(expected)
    for gemm, (rows, inputs, outputs, copies, share) in zip(of.gemms, expected, strict=True):
        by_hand = (share, 2 * rows * inputs * outputs, copies * inputs * outputs, rows * (inputs + outputs))
        assert tuple(gemm) == pytest.approx(by_hand, rel=1e-13)
    assert of.attention_flop == 2 * 8192 * 128 * (192 + 128) / 2
    assert of.expert_flop == pytest.approx(moe * 2 * 8 * 3 * 7168 * 2048)
    assert of.head_gemm == (1, 2 * 7168 * 129280 / 2, 7168 * 129280 / 2, 7168 + 129280 / 2)


def test_uncompressed_queries():
    """DeepSeek-V2-Lite has no query rank: one matrix h x a (d + d_r), and no more norm."""
    lite, compressed = work(point(**(DEEPSEEK_V3 | dict(q_lora_rank=0)))), work(point(**DEEPSEEK_V3))
    assert compressed.block_params - lite.block_params == pytest.approx(7168 * 1536 + 1536 * 128 * 192 + 1536 - 7168 * 128 * 192)
    assert lite.gemms[0][:3] == (1, 2 * 7168 * 128 * 192, 7168 * 128 * 192)
    assert len(lite.gemms) == len(compressed.gemms) - 1
