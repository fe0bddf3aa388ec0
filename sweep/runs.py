"""Measured training runs, read as inputs of the model.

``configs/data/training_runs.csv`` (and a file of your own runs with the same columns) holds what public sources printed: a
model, a parallel layout, a machine and a rate.  ``read_runs`` turns each row into a ``Run``: the inputs of the model in the
dictionary's own names and units, the measured step time, and the family it is scored in.  A row that does not say enough
stays, with the ``reason`` why it cannot be used; nothing is dropped in silence.

What each source leaves unsaid or counts in its own way is in ``sources.py``; here are only the rules common to all.

Step times, in order of preference: printed; from tokens/s and GPU (global_batch seq_len / (gpus rate)); from TFLOP/s by the
source's own count of FLOP.
"""

import csv
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .errors import SweepError

COLUMNS = (
    "id",
    "source",
    "model_name",
    "accelerator",
    "n_gpus",
    "micro_batch",
    "global_batch",
    "seq",
)  # a row needs at least these


class Run(NamedTuple):
    """One measured run.  ``inputs``: name of the dictionary -> number or word; ``step_s``: measured seconds of a step.

    ``recipe`` is the precision as the source names it (bf16, fp8, mxfp8, nvfp4); ``stack``, ``fabric`` and ``accelerator`` name
    presets; ``assumed`` lists what the source does not say and we filled in; ``reason`` is why the row cannot be used.
    """

    id: str
    source: str
    family: str
    split: str
    accelerator: str
    stack: str
    fabric: str
    recipe: str
    inputs: dict
    step_s: float
    assumed: tuple = ()
    reason: str = ""
    variant: str = ""

    @property
    def usable(self):
        return not self.reason

    @property
    def key(self):
        """What makes two rows the same configuration: everything but the measured time."""
        return (
            self.source,
            self.accelerator,
            self.stack,
            self.recipe,
            self.variant,
            tuple(sorted(self.inputs.items())),
        )


class Unusable(Exception):
    """Raised by a source's rules: the reason why a row cannot be used."""


def data_path(name):
    """The path of a file of ``configs/data``: in a checkout, or beside the installed package."""
    for folder in (Path(__file__).resolve().parent.parent / "configs", Path(__file__).resolve().parent / "configs"):
        if (folder / "data" / name).exists():
            return folder / "data" / name
    raise SweepError(f"configs/data/{name} is missing. Restore it from the repository.")


def read_runs(path=None):
    """Every row of a CSV as a ``Run``, in order; ``path`` None is the project's own collection."""
    from .rows import read_row

    path = Path(path) if path else data_path("training_runs.csv")
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = csv.DictReader(file)
            missing = [c for c in COLUMNS if c not in (rows.fieldnames or ())]
            if missing:
                raise SweepError(
                    f"{path}: no column {', '.join(missing)}. Write the columns of configs/data/training_runs.csv."
                )
            return [read_row(row) for row in rows]
    except OSError as error:
        raise SweepError(
            f"{path}: {error.strerror or error}. Give the path of a CSV with the columns of training_runs.csv."
        ) from None


def usable(runs):
    """The runs that can be predicted, each configuration once: repeats of one row are one row, with the median time."""
    groups = {}
    for run in runs:
        if run.usable:
            groups.setdefault(run.key, []).append(run)
    return [group[0]._replace(step_s=float(np.median([r.step_s for r in group]))) for group in groups.values()]


def number(row, name, default=None):
    """A cell as a number; ``default`` where it is blank."""
    text = (row.get(name) or "").strip()
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        raise Unusable(f"{name} is not a number") from None
    if not np.isfinite(value) or value <= 0:
        raise Unusable(f"{name} is not a positive number")
    return int(value) if value == int(value) else value


@cache
def shapes():
    """name -> the architecture's inputs, from ``configs/data/models.csv``."""
    names = {
        "layers": "layers",
        "hidden": "hidden",
        "ffn": "ffn",
        "moe_ffn": "expert_ffn",
        "heads": "heads",
        "kv_heads": "kv_heads",
        "head_dim": "head_dim",
        "vocab": "vocab",
        "experts": "experts",
        "topk": "top_k",
        "shared_experts": "shared_experts",
        "first_dense_layers": "dense_layers",
    }
    table = {}
    with data_path("models.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            shape = {names[c]: int(float(row[c])) for c in names if row[c].strip()}
            shape["gated_mlp"] = int(row["gated_mlp"] == "yes")
            shape["tied_embeddings"] = int(row["tied_embeddings"] == "yes")
            if not shape.get("experts"):
                for name in ("experts", "top_k", "expert_ffn", "shared_experts", "dense_layers"):
                    shape.pop(name, None)
            if row["model"].startswith("gemma2"):
                shape["layers"] *= 2  # MaxText counts a pair of local and global layers as one
            if row["attention"] == "MLA":
                shape.update(mla(row["notes"]))
            table[row["model"]] = shape
    return table


def mla(notes):
    """The ranks and widths of multi-head latent attention from a note such as ``MLA q_lora=1536 kv_lora=512 nope=128 rope=64 v=128``."""
    said = dict(word.split("=") for word in notes.split() if "=" in word and word.split("=")[1].isdigit())
    return {
        "q_lora_rank": int(said.get("q_lora", 1536)),
        "kv_lora_rank": int(said.get("kv_lora", 512)),
        "qk_rope_head_dim": int(said.get("rope", 64)),
        "v_head_dim": int(said.get("v", 128)),
        "head_dim": int(said.get("nope", 128)),
    }


def flop_per_token(inputs, attention="full"):
    """Model FLOP of a training step per token: 6 FLOP per active parameter and 12 L s a d of attention (half when causal)."""
    i = inputs
    head_dim = i.get("head_dim") or i["hidden"] // i["heads"]
    q, kv = i["heads"] * head_dim, i.get("kv_heads", i["heads"]) * head_dim
    mats = 3 if i.get("gated_mlp") else 2
    if i.get("kv_lora_rank"):
        width = head_dim + i["qk_rope_head_dim"]
        rank = i.get("q_lora_rank") or 0
        queries = i["hidden"] * rank + rank * i["heads"] * width if rank else i["hidden"] * i["heads"] * width
        attention_params = (
            queries
            + i["hidden"] * (i["kv_lora_rank"] + i["qk_rope_head_dim"])
            + i["kv_lora_rank"] * i["heads"] * (head_dim + i["v_head_dim"])
            + i["heads"] * i["v_head_dim"] * i["hidden"]
        )
        core = 6 * i["seq_len"] * i["heads"] * (width + i["v_head_dim"])
    else:
        attention_params = i["hidden"] * (2 * q + 2 * kv)
        core = 12 * i["seq_len"] * q
    dense = mats * i["hidden"] * i.get("ffn", 4 * i["hidden"])
    moe = mats * i["hidden"] * i.get("expert_ffn", 0) * (i.get("top_k", 0) + i.get("shared_experts", 0))
    dense_layers = i.get("dense_layers", 0) if i.get("experts") else i["layers"]
    blocks = i["layers"] * attention_params + dense_layers * dense + (i["layers"] - dense_layers) * moe
    return 6 * (blocks + i["hidden"] * i["vocab"]) + i["layers"] * core * (0.5 if attention == "causal" else 1.0)
