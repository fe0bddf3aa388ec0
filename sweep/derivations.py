"""The worked sections that lead up to the law: who shares what, what is sent, which compute hides it, the napkin.

Every number is the kernels' own (points.py); what a line works out by hand is held against them by a test.
"""

from ._kernels import overlap, quantities, reduction, schedule
from .worksheets import Line, Section, amount, number

TRAFFIC = {"tp": "9.1", "cp": "9.3", "ep": "9.5"}


def sections(point):
    """The four sections of a :class:`~sweep.points.Point`."""
    return [sizes(point), sent(point), window(point), first_order(point)]


def sizes(p):
    """Groups and tokens."""
    x, shares = p.x, p.parts.shares
    group = shares.dense
    gpus, dp, tp, cp, pp = (number(value) for value in (x.gpus, x.dp, x.tp, x.cp, x.pp))
    batch, sequence = number(x.micro_batch), number(x.seq_len)
    both = "2 " if schedule.held(x) > 1 else ""  # DualPipe: each stage lives on two ranks
    items = [
        Line("data-parallel replicas", x.dp, "", "2.1", "dp = N/(tp cp pp)", f"{gpus}/({tp} x {cp} x {pp})", "dp"),
        Line("micro-batches per step", x.micro_batches, "", "2.1", "m = B_g/(dp b)",
             f"{number(x.global_batch)}/({dp} x {batch})", "micro_batches"),
        Line("tokens of a rank and micro-batch", p.tokens, "", "2.1", "T = b s/cp", f"{batch} x {sequence}/{cp}"),
        Line("ranks that reduce a gradient", group.n, "", "2.2", f"n = {both}dp cp", f"{both and '2 x '}{dp} x {cp}", "n"),
        Line("of these in one scale-up domain", group.n_in, "", "2.2", "n_in = min(S/tp, n)",
             f"{number(x.scaleup_domain)}/{tp}", "n_in"),
        Line("domains", group.n_out, "", "2.2", "n_out = n/n_in", f"{number(group.n)}/{number(group.n_in)}", "n_out"),
        Line("tokens of a domain in the window", p.out["tokens_per_domain"], "", "1.3", "tau = T n_in", "",
             "tokens_per_domain"),
    ]  # fmt: skip
    if group.n_top > 1 and x.pod_gpus > 0:
        items.append(Line("pods of the oversubscribed tier", group.n_top, "", "2.4", "n_top"))
    if shares.moe:
        experts = shares.experts
        items.append(Line("ranks that reduce an expert's gradient", experts.n, "", "2.3", "n_e = dp cp tp/ep",
                          f"{number(experts.n_in)} in each of {number(experts.n_out)} domains"))  # fmt: skip
    return Section("Who shares what", tuple(items))


def sent(p):
    """Parameters and gradient bytes of a GPU."""
    x, work = p.x, p.parts.work
    size = number(x.grad_bytes)
    items = [Line("parameters of the model", work.params, "parameters", "3.1", "P", "", "params")]
    if p.parts.shares.moe:
        items.append(
            Line("of which a token meets", work.active_params, "parameters", "3.2", "P_a", "", "active_params")
        )
    items.append(Line("gradient of a block on this GPU", x.grad_bytes * work.block_params, "byte", "3.1", "s_g p_b",
                      f"{size} x {amount(work.block_params, 'parameters')}"))  # fmt: skip
    if p.parts.shares.moe:
        items.append(Line("gradient of its routed experts", x.grad_bytes * work.block_expert_params, "byte", "3.2",
                          "s_g p_e", f"{size} x {amount(work.block_expert_params, 'parameters')}"))  # fmt: skip
    items.append(Line("blocks of a stage", x.layers / x.pp, "", "2.1", "L/pp", f"{number(x.layers)}/{number(x.pp)}"))
    if work.embedding_params or work.head_params:
        embedding, head = x.grad_bytes * work.embedding_params, x.grad_bytes * work.head_params
        tied = "" if head else "the embedding's own matrix"
        items += [Line("gradient of the embedding", embedding, "byte", "3.3", "s_g V_o h/tp"),
                  Line("gradient of the head", head, "byte", "3.3", "s_g V_o h/tp" if head else "", note=tied)]  # fmt: skip
    return Section("What has to be sent", tuple(items))


def window(p):
    """Seconds of compute that can hide it."""
    x, compute, work = p.x, p.parts.compute, p.parts.work
    fixed = x.efficiency is not None
    law = "4.1" if fixed else "4.2"
    again = ("", " + core again", " + forward again")[int(x.recompute)]
    causal = x.attention == 0
    rate = f"{number(x.efficiency)} x {amount(x.peak_tflops, 'FLOP/s')}" if fixed else ""
    items = [
        Line("FLOP rate while computing", p.rate, "FLOP/s", law, "eta F", rate, "achieved_tflops",
             "" if fixed else "all FLOP over all seconds"),
        Line("FLOP of a block, forward", p.tokens * work.block_flop / x.tp, "FLOP", "3.4", "T c_b/tp",
             f"{number(p.tokens)} x {amount(work.block_flop, 'FLOP')}/{number(x.tp)}"),
        Line("of which the attention core", p.tokens * work.attention_flop / x.tp, "FLOP", "3.4",
             "s a (d + d_v) T/tp" if causal else "2 s a (d + d_v) T/tp", note="causal: half of it" if causal else ""),
        Line("forward of a block", compute.block_forward_s, "s", law, "f = T c_b/(tp eta F)" if fixed else "f"),
        Line("backward of a block", compute.block_backward_s, "s", law, "beta = 2 f" + again if fixed else "beta"),
    ]  # fmt: skip
    if compute.head_backward_s:
        items.append(Line("backward of the head", compute.head_backward_s, "s", law if fixed else "4.5"))
    for name, moved in p.parts.traffic.items():
        if moved.backward:
            late = float(overlap.exposed(moved.backward, {key: cost.seconds(p.u) for key, cost in moved.costs.items()}))
            where = "on the port: no window" if bool(moved.crosses) else "on the scale-up links: part of the window"
            items.append(Line(f"{name} traffic exposed in a block's backward", late, "s", TRAFFIC[name], note=where))
    if p.code == reduction.BUCKETS:
        blocks = -float(p.way.sustained[0].candidates[0].offset)
        whole = x.schedule == schedule.ONE_F_ONE_B
        words = "blocks' part of the window" if whole else "last weight-gradient pass of a stage"
        formula = "L/(pp vpp) (beta + exposed)" if whole else ""
        items.append(Line(words, blocks, "s", "6.4", formula, "", "window"))
    return Section("How long the compute that hides it takes", tuple(items))


def first_order(p):
    """Section 1's law with this point's numbers."""
    x, work, required = p.x, p.parts.work, p.out["first_order_link_gbps"]
    ranks = x.tp * x.pp
    forward = 2.0 * work.active_params * p.tokens / (ranks * p.rate)
    passes = 3.0 if x.recompute == 2 else 2.0
    title = "First order: the law of a napkin"
    if x.zero_stage >= 3:
        return Section(title, (
            Line("forward of all parameters", forward, "s", "1.3", "W_f = 2 P_a T/(tp pp eta F)"),
            Line("backward of all parameters", passes * forward, "s", "1.3", f"W = {number(passes)} W_f"),
            Line("required port", required, "Gb/s", "1.5", "B_1 = max(V_a/W_f, (V_a + V_r)/W)", "",
                 "first_order_link_gbps", "V_a gathered parameters, V_r scattered gradients, on the port"),
        ))  # fmt: skip
    seconds, factor = passes * forward, number(2.0 * passes)
    nbytes = required * quantities.GBPS * seconds
    in_network = x.algorithm == 4 and x.zero_stage == 0
    active = amount(work.active_params, "parameters")
    return Section(title, (
        Line("bytes on the port of a GPU", nbytes, "byte", "1.2",
             "V/n_in" if in_network else "2 (n_out - 1)/n_out V/n_in", _port_bytes(p, in_network), "first_order_bytes",
             "dense parameters and experts over their own groups" if p.parts.shares.moe else ""),
        Line("backward of all parameters", seconds, "s", "1.3", f"W = {factor} P_a T/(tp pp eta F)",
             f"{factor} x {active} x {number(p.tokens)}/({number(ranks)} x {amount(p.rate, 'FLOP/s')})", "first_order_s"),
        Line("required port", required, "Gb/s", "1.4",
             f"B_1 = 2 (n_out - 1)/n_out s_g eta F/({factor} tau)" + (" P/P_a" if p.parts.shares.moe else ""),
             f"{amount(nbytes, 'byte')}/{amount(seconds, 's')}", "first_order_link_gbps"),
    ))  # fmt: skip


def _port_bytes(p, in_network):
    x, group = p.x, p.parts.shares.dense
    if p.parts.shares.moe or group.n_out <= 1:
        return ""
    gradients = amount(x.grad_bytes * p.parts.work.params / (x.tp * x.pp), "byte")
    ring = "" if in_network else f"2 x {number(group.n_out - 1)}/{number(group.n_out)} x "
    return f"{ring}{gradients}" + (f"/{number(group.n_in)}" if x.rails != 1 else ", one port for the domain")
