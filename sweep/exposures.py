"""The worked sections of what stays exposed at the port, and of the exact inverse: collectives, requirement, step, memory.

A term of the kernels is the largest of a few candidates, each an offset and services; the one that counts is printed with
its numbers.  Around the answer every candidate is a line in 1/B, so that each requirement reads B = D/(W - A): D bytes on
the port, W seconds that hide them, A seconds of the same messages that no port shortens.
"""

import math

from ._kernels import memory as kernel_memory
from ._kernels import quantities, reduction, schedule
from .worksheets import Line, Section, Table, amount, number

LAWS = {
    reduction.BUCKETS: "buckets under the last backward",
    reduction.SHARDED: "FSDP, block by block",
    reduction.RARE: "DiLoCo, every H steps",
}
STAGES = {"first": "stage 0", "last": "the last stage", "plain": "an inner chunk"}
PARTS = {
    "first": "first bucket",
    "last": "last bucket",
    "regular": "full bucket",
    "dense": "full bucket without experts",
    "mixed": "full bucket of blocks with experts",
    "into": "bucket where the blocks begin",
    "out": "bucket where the blocks end",
    "gather": "gather of a block's parameters",
    "gather.embedding": "gather of the embedding",
    "gather.head": "gather of the head",
    "a": "gather of a block",
    "a.root": "gather of embedding and head",
    "r": "scatter of a block",
    "r.root": "scatter of embedding and head",
    "s": "all-reduce of a block's shards",
    "fragment": "fragment",
    "hop": "pipeline hop",
}
REASONS = {
    "gpus": "tp cp pp does not divide gpus",
    "heads": "tp does not divide heads, kv_heads and ffn",
    "layers": "pp vpp does not divide layers",
    "batch": "micro-batches are not a whole number, or cp does not divide the sequence",
    "experts": "ep does not divide experts or ranks, or top_k exceeds experts",
    "schedule": "the schedule does not take this pp, vpp and number of micro-batches",
    "shard_group": "shard_group does not divide dp cp",
    "contention": "overlap_slowdown x comm_slowdown exceeds 1",
    "memory": "more than the accelerator has: every number stands, the run does not fit",
}


def sections(point):
    """The sections before and after the decomposition: a pair of lists."""
    before = [collectives(point), exposed(point), requirement(point)]
    return before, [groups(point), step(point), memory(point)]


def collectives(p):
    """The collectives that data parallelism issues, with what they cost at this port."""
    counts = {}
    for served in p.way.served:
        for name, count in served.items():
            counts[name] = max(counts.get(name, 0.0), float(count))
    rows = [
        (words_of(name, p), number(count), word, amount(nbytes, "byte"), amount(latency, "s"), amount(whole, "s"))
        for name, count in counts.items()
        if count and name != "hop"
        for word, nbytes, latency, whole in p.chosen(p.way.costs[name], p.u)
    ]
    table = Table(("collective", "times", "algorithm", "bytes", "latency", "seconds"), tuple(rows), "collectives")
    rails = quantities.INPUTS["rails"].choices[int(p.x.rails)]
    said = f"Bytes of the full tensor. Ports of a domain that a ring over domains uses: {rails} (rails)."
    return Section(f"Collectives at {_port(p)}", (table, said), "5.1 to 5.8")


def exposed(p):
    """What of the reduction is exposed at this port: each term by the candidate that counts."""
    items = []
    for index, term in enumerate(p.way.terms):
        times = float(term.times)
        if times:
            item, value = p.binding(term, p.u)
            worked = _worked(p, item)
            worked = f"{number(times)} x ({worked})" if times != 1 else worked
            words, equation = _term(p, index)
            items.append(Line(words, times * value, "s", equation, "", worked))
    if not p.impossible:
        items.append(Line("exposed of a step", p.out["exposed_dp_s"], "s", "11.1", name="exposed_dp_s"))
    items.append(Line("communication, hidden and exposed", p.out["dp_comm_time_s"], "s", "6.1", name="dp_comm_time_s"))
    if not p.impossible and p.out["dp_comm_time_s"]:
        hidden = 100 * p.out["hidden_fraction"]
        items.append(Line("hidden", hidden, "%", "6.1", "1 - exposed/communication", name="hidden_fraction"))
    return Section(f"The reduction under compute at {_port(p)}: {LAWS[p.code]}", tuple(items))


def requirement(p):
    """The exact inverse: where the stream keeps up, and where the step loses no more than the tolerance."""
    out, x = p.out, p.x
    required, tolerant = out["required_link_gbps"], out["link_gbps_at_tolerance"]
    items = []
    if required == 0:
        items.append("The groups that reduce stay inside one scale-up domain: no port is needed.")
    else:
        items += _keeps_up(p, required)
        formula = "B_req = D/(W - A)" + ("/e_out" if x.link_efficiency != 1 else "")
        items.append(Line("required port", required, "Gb/s", "7.1", formula, "", "required_link_gbps"))
    free = float(p.parts.free_step_s)
    tol = f"{number(x.tolerance)}/{number(1 - x.tolerance)} x {amount(free, 's')}"
    items.append(
        Line("seconds that may stay exposed", p.allowed_s, "s", "7.2", "epsilon = tol/(1 - tol) (step - exposed)", tol)
    )
    items.append(Line("port at which no more is exposed", tolerant, "Gb/s", "7.2", "B_tol", _at_tolerance(p, tolerant),
                      "link_gbps_at_tolerance"))  # fmt: skip
    return Section("The requirement: windows and slack taken at infinite link speed", tuple(items))


def groups(p):
    """What each group asks of the port."""
    words = {
        "dp": "data parallelism",
        "pp": "pipeline hops",
        "ep": "expert exchange",
        "cp": "context exchange",
        "tp": "tensor parallelism",
    }
    rows = tuple((name, words[name], number(p.out[f"required_link_gbps_{name}"])) for name in quantities.GROUPS[1:])
    table = Table(("group", "what", "required Gb/s"), rows, "required_by_group")
    binding, margin = p.word("binding_dimension"), p.out["binding_margin"]
    alone = math.isinf(margin) or margin > 1e9
    following = "and nothing else needs the port" if alone else f"{number(margin)} times the next"
    said = "No group needs the port." if binding == "none" else f"{binding} asks for the most, {following}."
    return Section("Which group sets it", (table, said), "7.1, 7.3, 7.4")


def step(p):
    """The step's time and what it consists of."""
    if p.impossible:
        return Section("The step", ("No such run exists, so the step has no time: see the status below.",))
    out = p.out
    parts = (
        ("compute on the slowest stage", "compute_time_s", "11.1"),
        ("pipeline bubble", "bubble_time_s", "10.1 to 10.4"),
        ("exposed data parallelism", "exposed_dp_s", "6.1"),
        ("exposed tensor parallelism", "exposed_tp_s", "9.1"),
        ("exposed context parallelism", "exposed_cp_s", "9.3"),
        ("exposed expert parallelism", "exposed_ep_s", "9.5"),
        ("exposed pipeline hops", "exposed_pp_s", "10.5"),
        ("optimizer update", "optimizer_time_s", "4.7"),
    )
    total = out["step_time_s"]
    items = [Line(f"{words}, {100 * out[name] / total:.1f} %", out[name], "s", equation, name=name)
             for words, name, equation in parts if out[name] > 0]  # fmt: skip
    items += [
        Line("step", total, "s", "11.1", name="step_time_s", note="pipeline, what is exposed, update"),
        Line("model FLOP utilisation", 100 * out["mfu"], "%", "11.2", "mfu = 3 forward FLOP/(F step)", name="mfu"),
        Line(
            "tokens per second and GPU",
            out["tokens_per_s_per_gpu"],
            "",
            "11.2",
            "T m/(tp pp step)",
            name="tokens_per_s_per_gpu",
        ),
        f"The largest term is: {p.word('bottleneck')}.",
    ]
    return Section(f"The step at {_port(p)}", tuple(items))


def memory(p):
    """Bytes, and every reason of status."""
    stages = kernel_memory.memory(p.x, p.parts.work, *schedule.in_flight(p.x))
    fuller = max(stages.first, stages.last, key=lambda stage: float(stage.total))
    parts = (
        ("parameters", "12.1"),
        ("gradients", "12.1"),
        ("optimizer", "12.1"),
        ("activations", "12.2"),
        ("workspace", "12.3"),
    )
    items = [Line(name, float(getattr(fuller, name)), "byte", equation) for name, equation in parts]
    items.append(Line("memory of the fullest stage", p.out["memory_bytes"], "byte", "12.1", name="memory_bytes",
                      note=f"of {amount(p.x.hbm_gb, 'byte')}"))  # fmt: skip
    items += [f"status {name}: {REASONS[name]}." for name in p.reasons] or ["status ok."]
    return Section("Memory and status", tuple(items))


def words_of(name, p):
    """A cost's name in words."""
    stage, _, part = name.partition(".")
    if part in PARTS and stage in (*STAGES, "all"):
        return PARTS[part] + (f", {STAGES[stage]}" if p.x.pp > 1 and stage in STAGES else "")
    return PARTS.get(name, name)


def _port(p):
    return amount(p.x.link_gbps / quantities.GBPS, "Gb/s")


def _term(p, index):
    """Words and equation of a term of exposed data parallelism."""
    if p.code == reduction.SHARDED:
        backward = "8.5" if p.x.shard_group is not None else "8.4"
        return ("exposed in forward", "8.3") if index == 0 else ("exposed in backward", backward)
    if p.code == reduction.RARE:
        return "exposed, spread over a period", "8.7"
    if index == 0:
        return "exposed after backward", "6.6" if p.x.overlap_slowdown or p.x.comm_slowdown else "6.1"
    if p.way.terms[index].least:
        return "stages that wait for slowed ones", "6.7"
    return "exposed gather of new parameters", "8.1"


def _worked(p, item):
    """A candidate with numbers: offset and what is served from there on."""
    costs = p.seconds(p.u)
    parts = [amount(float(item.offset), "s")] if float(item.offset) else []
    for name, count in item.counts.items():
        seconds = float(costs[name])
        if abs(float(count)) > 1e-12 and seconds:
            parts.append(f"{number(float(count))} x {amount(seconds, 's')} ({words_of(name, p)})")
    return " + ".join(parts).replace("+ -", "- ") or "0"


def _keeps_up(p, gbps):
    """Lines of B = D/(W - A) at the candidate that binds."""
    finite = math.isfinite(gbps)
    u = p.u_of(gbps) if finite else 0.0
    item, _ = p.binding(p.way.sustained[0], u, p.hop_s)
    nbytes, start = p.line(item.counts, u)
    prefixes = {name.split(".")[0] for name, count in item.counts.items() if "." in name and count}
    place = next((f", {STAGES[prefix]}" for prefix in prefixes if prefix in STAGES and p.x.pp > 1), "")
    served = ", ".join(
        f"{number(float(count))} x {words_of(name, p)}"
        for name, count in item.counts.items()
        if abs(float(count)) > 1e-12
    )
    lines = [
        Line(f"window that hides it{place}", -float(item.offset), "s", "7.1", "W", name="window_s"),
        Line("bytes on the port under it", nbytes, "byte", "7.1", "D", name="port_bytes", note=served),
        Line("its latency and scale-up seconds", start, "s", "7.1", "A", name="fixed_s"),
    ]
    return lines if finite else [*lines, "A is at least W: no port is fast enough."]


def _at_tolerance(p, gbps):
    """B = bytes/(epsilon - offsets - latencies) over the candidates that count together."""
    if not math.isfinite(gbps) or gbps <= 0:
        return ""
    u, nbytes, seconds = p.u_of(gbps), 0.0, 0.0
    for term in p.way.terms:
        item, _ = p.binding(term, u, p.hop_s)
        slope, start = p.line(item.counts, u)
        nbytes += float(term.times) * slope
        seconds += float(term.times) * (float(item.offset) + start)
    sign = "+" if seconds < 0 else "-"
    return f"{amount(nbytes, 'byte')}/({amount(p.allowed_s, 's')} {sign} {amount(abs(seconds), 's')})" if nbytes else ""
