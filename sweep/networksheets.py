"""Worked answers about the network itself: what it is made of and whether another would do, and why tensor parallelism
stays inside a scale-up domain.  ``sweep explain --about fabric ...`` and ``--about tensor ...`` print them.

Counts follow kernels/fabric.py, times kernels/collectives.py and traffic.py, both with the numbers of the one point.
"""

from . import fabrics, presets
from ._kernels import collectives, fabric, model, quantities, traffic
from .worksheets import Line, Section, Table, number

GBPS = quantities.GBPS
SIZES = (1, 2, 4, 8, 16, 32, 64)  # tensor-parallel sizes that a table compares
MACHINES = (  # words, and what a machine has other than the point: model.md's tiers
    ("8 GPUs, a port each", {"scaleup_domain": 8, "rails": 0}),
    ("8 GPUs, one port", {"scaleup_domain": 8, "rails": 1}),
    ("72 GPUs", {"scaleup_domain": 72, "rails": 0}),
)


def about_fabric(point, x):
    """Sections: switches and cables counted, the networks beside, other kinds of network, and a thinner top tier."""
    built = fabric.network(x)
    found, planes, speed, radix = built
    rate, half = speed / GBPS, radix // 2
    only = x.fabric_design == fabric.RAIL_ONLY
    copies = x.fabric_rails if only else 1
    words = fabrics.DESIGNS[int(x.fabric_design)]
    yield Section(
        "Switches and cables",
        (
            Line("planes of the network", planes, "", formula="the cheapest of B over the fastest port of a switch, x 2, x 4"),
            Line("port of a plane", rate, "Gb/s", formula="B / planes", numbers=f"{number(x.link_gbps / GBPS)} / {number(planes)}"),
            Line("ports of a switch", radix, "", formula="k = capacity / port, at most 256", numbers=f"{number(x.switch_gbps / GBPS)} / {number(rate)}"),
            Line("networks apart", copies * planes, "", formula="planes, x rails where rail-only", note=words),
            Line("accelerators of one", x.gpus / copies, "", formula="N / rails if rail-only", numbers=f"{number(x.gpus)} / {number(copies)}"),
            Line("tiers", found.tiers, "", formula="1 up to k, 2 up to k^2/2, else 3", numbers=f"{number(radix)}, {number(half * radix)}",
                 note="" if found.fits else "three tiers do not reach so far: the counts are too low"),
            Table(
                ("tier", "switches", "cables below", "USD", "watts", "share of USD"),
                tuple(_tiers(x, built)),
            ),
            Line("per accelerator", sum(fabric.network_usd(x, built)) / x.gpus, "USD", name="fabric_usd_per_gpu", note="network cards included"),
            "Spines are as many as their cables need, rounded up to a divisor of a leaf's uplinks, so that every leaf reaches every spine by the same number.",
        ),
        "kernels/fabric.py",
    )
    beside = [item for name, what in fabrics.NETWORKS.items() for item in fabrics.beside(name, what, x.gpus / fabrics.NODE)]
    yield Section(
        "The networks beside",
        (
            Table(("network", "part", "count", "USD", "watts"), tuple(item[:5] for item in beside)),
            *(f"{name}: {what.why}." for name, what in fabrics.NETWORKS.items()),
        ),
        "sweep/fabrics.py",
    )
    names = ("step_time_s", "exposed_fraction", "link_gbps_at_tolerance")
    kinds = [(name, preset) for name, preset in presets.read_table("fabric").items() if "load_balance" in preset.facts or name == "ideal"]
    rows = []
    for name, preset in kinds:
        numbers = {key: value for key, value in preset.numbers.items() if not isinstance(value, dict) and key != "link_gbps"}
        step, share, port = (float(value) for value in model.evaluate(point._replace(**numbers), names).values())
        rows.append((name, numbers["link_latency_us"], numbers["link_efficiency"], preset.facts.get("load_balance", 1), step, share, port))
    yield Section(
        "Another kind of network",
        (
            Table(("fabric", "latency, us", "efficiency", "load balance", "step, s", "exposed", "port at tolerance, Gb/s"), tuple(rows)),
            *(f"{name}: {preset.source}." for name, preset in kinds),
            "The tail is rank_cv and rank_tail (sweep explain --about stragglers): no measurement by kind of network is public.",
        ),
        "configs/presets/fabrics.yaml",
    )
    rows = []
    for split in (1.0, 2.0, 4.0, 7.0):
        there = point._replace(oversubscription=split)
        got = {key: float(value) for key, value in model.evaluate(there, (*names, "fabric_usd_per_gpu")).items()}
        rows.append((split, got["fabric_usd_per_gpu"], got["step_time_s"], got["exposed_fraction"], got["link_gbps_at_tolerance"]))
    yield Section(
        "A thinner top tier",
        (
            Table(("group", "ranks", "of a domain", "domains of a pod", "pods: above 1 it crosses the thin tier"), tuple(_groups(x))),
            "" if x.pod_gpus else "No pod is given (pod_gpus): the thin tier begins above the domain.",
            Table(("downlinks over uplinks", "network, USD per GPU", "step, s", "exposed", "port at tolerance, Gb/s"), tuple(rows)),
            "Llama 3 ran 1:7 above pods of 3,072 accelerators (arXiv 2407.21783, section 3.3.1): of a hierarchical reduction only the share of a pod, "
            "already reduced inside, crosses it.",
        ),
        "9",
    )


def _groups(x):
    """Rows of a group that exchanges: its ranks by tier, placed in Megatron's order (tp, cp, ep, dp)."""
    pod = x.pod_gpus / x.scaleup_domain if x.pod_gpus else 1.0
    for name, ranks, inner in (("tp", x.tp, 1.0), ("cp", x.cp, x.tp), ("ep", x.ep, 1.0), ("gradients", x.dp * x.cp, x.tp)):
        if ranks > 1:
            group = collectives.place(ranks, x.scaleup_domain / inner, pod)
            yield name, *(float(part) for part in group)


def _tiers(x, built):
    """Rows of a tier: switches, cables below it, money, watts, share."""
    found, _, speed, radix = built
    usd, watts = sum(fabric.network_usd(x, built)), None
    each = float(fabric.ports_bought(found, radix) / found.switches) * speed
    for tier, switches, cables in (
        ("leaf", found.leaf, found.node_leaf_cables), ("spine", found.spine, found.leaf_spine_cables), ("core", found.core, found.spine_core_cables),
    ):  # fmt: skip
        if switches:
            money = switches * each * x.switch_usd_per_gbps + cables * (x.cable_usd + speed * x.optics_usd_per_gbps)
            watts = switches * each * x.switch_watts_per_gbps + cables * speed * x.optics_watts_per_gbps
            yield tier, float(switches), float(cables), float(money), float(watts), float(money / usd)
    port = x.gpus * x.link_gbps
    yield "network cards", "", "", float(port * x.nic_usd_per_gbps), float(port * x.nic_watts_per_gbps), float(port * x.nic_usd_per_gbps / usd)


def about_tensor(point, x):
    """Sections: one block's collectives by hand, then sizes, machines and overlap side by side."""
    net, group = collectives.tiers(x), collectives.place(x.tp, x.scaleup_domain)
    nbytes = traffic.tokens(x) * x.hidden * traffic.ACTIVATION_BYTES
    lines = collectives.all_reduce(group, net)
    u = 1.0 / (x.link_gbps * x.link_efficiency)
    ring, hierarchical = (collectives.seconds_of(lines[code], nbytes, u) if x.tp > 1 else 0.0 for code in (collectives.RING, collectives.HIERARCHICAL))
    each = min(ring, hierarchical)
    parts = model.prepare(point)
    gemm = float(parts.compute.gemm_forward_s) / 2.0
    chunks = x.tp_overlap_chunks
    shown = each if chunks == 1 else max(each / chunks, each - gemm * (1.0 - 1.0 / chunks))
    yield Section(
        "One block",
        (
            Line("tokens of a micro-batch", traffic.tokens(x), "", formula="T = b s/cp"),
            Line("bytes of a collective", nbytes, "byte", formula="T h 2 byte", numbers=f"{number(traffic.tokens(x))} x {number(x.hidden)} x 2"),
            Line("ranks in a domain, domains", f"{number(group.n_in)} x {number(group.n_out)}", formula="S first"),
            Line("ring", ring, "s", formula="2 (tp - 1) alpha + 2 (tp - 1)/tp V max(1/B_in, u n_out share)"),
            Line("hierarchical", hierarchical, "s", formula="gather and scatter inside, all-reduce of V/n_in across"),
            Line("the GEMMs beside it", gemm, "s", formula="half a block's forward", numbers=f"at {number(x.peak_tflops * (x.efficiency or 1) / 1e12)} TFLOP/s" if x.efficiency else ""),
            Line("exposed, each", shown, "s", formula="c in one piece, max(c/k, c - g (1 - 1/k)) in k", numbers=f"k {number(chunks)}"),
            "Two in the forward pass of a block and two in its backward pass. Bytes do not depend on tp; the GEMMs beside them shrink as 1/tp: "
            "twice tp is twice the share, in any domain.",
        ),
        "9",
    )
    names = ("exposed_tp_s", "exposed_fraction")
    for pieces in sorted({1.0, max(float(chunks), 4.0)}):
        rows = []
        for size in SIZES:
            row = [size]
            for _, machine in MACHINES:
                there = point._replace(tp=float(size), dp=1.0, gpus=None, global_batch=None, micro_batches=None, pp=1.0, vpp=1.0, ep=1.0,
                                       tp_overlap_chunks=pieces, **machine)
                got = model.evaluate(there, (*names, "step_time_s"))
                row.append(float(got["exposed_tp_s"]) / float(got["step_time_s"]))
            rows.append(tuple(row))
        yield Section(
            f"Share of the step lost to tensor parallelism, {'exposed' if pieces == 1 else f'overlapped in {number(pieces)} chunks'}",
            (
                Table(("tp", *(words for words, _ in MACHINES)), tuple(rows)),
                "One replica, one micro-batch, this accelerator and port; a dash is a size that does not divide the model.",
            ),
            "9",
        )
