"""Which serving patterns need the training fabric?

One model on one accelerator, served in the ways that people serve it, a row each: time per output token, first token,
and the port that each exchange requires.  The numbers are those of kernels/serving.py through the same inputs as any
sweep; ``words`` says what follows from them.
"""

import numpy as np

from ._kernels import serving
from .errors import SweepError
from .evaluations import evaluate

DENSE = ({"tp": 1}, {"tp": 4}, {"tp": 8}, {"tp": 16}, {"tp": 8, "pp": 2})
EXPERTS = (
    {"ep": 8},
    {"ep": 32},
    {"ep": 64},
    {"ep": 64, "serving_micro_batches": 2},
    {"ep": 128, "serving_micro_batches": 2},
)
DECODE = ("decode_tp_link_gbps", "decode_ep_link_gbps", "decode_pp_link_gbps")


def patterns(model, accelerator, **settings):
    """Rows: a pattern each, with times in ms and ports in Gb/s (``settings``: any input, such as decode_batch or
    seq_len).
    """
    several = [name for name, value in settings.items() if isinstance(value, (list, tuple, dict))]
    if several:
        raise SweepError(f"{several[0]}: a pattern takes one value for each input. For several, sweep run serving.")
    moe = _of_model(model, settings, "experts", 0) > 0
    layouts = EXPERTS if moe else DENSE
    given = {name: settings[name] for name in ("tp", "pp", "ep", "serving_micro_batches") if name in settings}
    if given:
        layouts = (given,)
    rows = []
    for layout in layouts:
        ranks = {"gpus": 1024.0, **layout, **settings}
        ds = evaluate(outputs=[*serving.Serving._fields], model=model, accelerator=accelerator, **ranks)
        _check(model, layout, settings, moe)
        name = _name(layout, int(_input(ds, "scaleup_domain")))
        got = {key: float(ds[key]) for key in serving.Serving._fields}
        fits = got["serving_memory_bytes"] <= 1e9 * _input(ds, "hbm_gb")
        port = _input(ds, "link_gbps")
        need = max(got[key] for key in DECODE)
        rows.append(
            {
                "pattern": name,
                "token_ms": got["decode_time_s"] * 1e3,
                "tp_ms": got["decode_tp_s"] * 1e3,
                "experts_ms": got["decode_ep_s"] * 1e3,
                "tokens_per_s_per_gpu": got["decode_tokens_per_s_per_gpu"],
                "first_token_ms": got["first_token_time_s"] * 1e3,
                "memory_gb": got["serving_memory_bytes"] / 1e9,
                "fits": bool(fits),
                "decode_gbps": need,
                "decode_tp_gbps": got["decode_tp_link_gbps"],
                "decode_ep_gbps": got["decode_ep_link_gbps"],
                "decode_pp_gbps": got["decode_pp_link_gbps"],
                "prefill_gbps": max(got["prefill_tp_link_gbps"], got["prefill_ep_link_gbps"]),
                "kv_gbps": got["kv_link_gbps"],
                "needs": _verdict(need, port),
            }
        )
    return rows


def group(model, accelerator, rows, **settings):
    """Title, rows and the machine's port: a panel of moneyplots.draw_patterns."""
    named = ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in settings.items() if name in ("decode_batch", "seq_len"))
    return f"{model} on {accelerator}{', ' + named if named else ''}", rows, _port(accelerator, settings)


def words(model, accelerator, rows, **settings):
    """What the rows mean, in a few sentences."""
    port = _port(accelerator, settings)
    text = [f"{model} on {accelerator}, a port of {port:g} Gb/s per GPU."]
    free = [row["pattern"] for row in rows if row["decode_gbps"] == 0]
    if free:
        text.append(f"Decoding stays off the network with: {'; '.join(free)}.")
    never = [row["pattern"] for row in rows if np.isinf(row["decode_gbps"])]
    if never:
        text.append(
            f"No port is fast enough for: {'; '.join(never)}: latency and the links inside the domain alone take more than the tolerance of a block, however wide the port."
        )
    some = [row for row in rows if 0 < row["decode_gbps"] < np.inf]
    for row in some:
        text.append(
            f"{row['pattern']}: {row['decode_gbps']:.0f} Gb/s to hide the exchange of a token ({row['needs']})."
        )
    kv = max(row["kv_gbps"] for row in rows)
    text.append(
        f"Moving keys and values from prefill to decode machines takes at most {kv:.1f} Gb/s per GPU while their prompt is computed: "
        f"{'a small share of' if kv < port / 4 else 'much of' if kv < port else 'more than'} the port."
    )
    if any(not row["fits"] for row in rows):
        text.append("Rows that do not fit the memory are shown for comparison.")
    return " ".join(text)


def _verdict(need, port):
    if need == 0:
        return "no network"
    if np.isinf(need):
        return "no port helps: latency"
    return (
        "a quarter of the port at most"
        if need <= port / 4
        else "the training port"
        if need <= port
        else "more than the port"
    )


def _input(ds, name):
    from . import selections

    return float(selections.settings(ds)[name])


def _of_model(model, settings, name, default):
    from . import presets

    return settings.get(name, presets.find("model", model, "model").numbers.get(name, default))


def _check(model, layout, settings, moe):
    """A layout that no one could serve is refused."""
    tp, ep, heads = layout.get("tp", 1), layout.get("ep", 1), _of_model(model, settings, "heads", 1)
    if heads % tp:
        raise SweepError(f"tp: {tp:g} does not divide the {heads:g} heads of {model}. Write a divisor, such as 8.")
    experts = _of_model(model, settings, "experts", 0)
    if ep > 1 and (not moe or experts % ep):
        raise SweepError(f"ep: {model} has no experts to spread." if not moe else f"ep: {ep:g} does not divide the {experts:g} experts of {model}.")


def _name(layout, domain):
    """A layout in words: ``tp 16 (2 domains)``, ``experts over 64 GPUs, two micro-batches``."""
    tp, pp, ep = (layout.get(name, 1) for name in ("tp", "pp", "ep"))
    words = [f"tp {tp:g}"] if tp > 1 else []
    if ep > 1:
        words.append(f"experts over {ep:g} GPUs")
    if pp > 1:
        words.append(f"{pp:g} stages")
    if layout.get("serving_micro_batches", 1) > 1:
        words.append("two micro-batches" if layout["serving_micro_batches"] == 2 else f"{layout['serving_micro_batches']:g} micro-batches")
    domains = -(-max(tp * pp, ep) // domain)
    return ", ".join(words or ["one GPU"]) + (f" ({domains:g} domains)" if domains > 1 else " (a domain)" if ep > 1 else "")


def _port(accelerator, settings):
    from . import presets

    port = settings.get("link_gbps", presets.find("accelerator", accelerator).numbers.get("link_gbps"))
    if port is None:
        raise SweepError(f"{accelerator}: its preset has no port. Give one, such as link_gbps=400.")
    return float(port)
