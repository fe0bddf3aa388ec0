"""Diagnose a fabric from logs of nccl-tests and NCCL_DEBUG: expected beside measured, suspects, what it costs, what to measure next.

    sweep diagnose LOG --fabric NAME --accelerator NAME

The expectation of each size comes from the fabric preset: its own laws where it was calibrated with ``sweep calibrate``, else the
kernels' collectives on the preset's numbers.  Suspects are ranked by how well each explains the measured curve (faults.py).
"""

from typing import NamedTuple

import numpy as np

from . import bisection, curves, faults, nccl_debug, nccl_logs, nccl_versions, presets
from ._kernels import model
from .errors import SweepError

COLLECTIVES = {
    "all_reduce": "all_reduce",
    "all_gather": "half_reduce",
    "reduce_scatter": "half_reduce",
    "alltoall": "all_to_all",
}


class Finding(NamedTuple):
    """One curve: ``rows`` of sizes, ``suspects`` (best first), ``notes`` on how to read it, ``shape`` (where it departs)."""

    curve: nccl_logs.Curve
    rows: list
    suspects: list
    shape: str
    notes: list
    fraction: float  # of the expected speed, at the largest sizes


class Diagnosis(NamedTuple):
    """Findings of a log, differences that NCCL_DEBUG shows, the cost of the shortfall, and the next measurements in order."""

    findings: list
    differences: list
    debug: nccl_debug.Debug
    cost: dict
    next: list
    ignored: dict


def diagnose(path, fabric, accelerator, collective=None, ranks=None, nodes=None, design=None, nccl=None):
    """The ``Diagnosis`` of a log.  ``nccl``: its version, where the log does not say.  ``design``: quantities of a training step (as for ``sweep.evaluate``) that the shortfall is priced on."""
    chip = presets.find("accelerator", accelerator, "--accelerator").numbers
    network = presets.find("fabric", fabric, "--fabric")
    if nccl and not nccl_versions.parse(nccl):
        raise SweepError(f"--nccl {nccl}: is no version. Write one such as 2.21.5.")
    log = nccl_logs.read_log(path, collective, ranks)
    debug = nccl_debug.read_debug(path)
    if not log.curves and not debug.seen:
        raise SweepError(
            f"{path}: neither a row of nccl-tests nor a line of NCCL_DEBUG=INFO in {log.lines} lines. Give the output of one of the two."
        )
    findings = []
    for curve in log.curves:
        if not curve.ranks:
            raise SweepError(f"{path}: the log does not say how many ranks ran. Give --ranks.")
        version = nccl or curve.version or debug.version
        findings.append(find(curve._replace(nodes=nodes or curve.nodes or _nodes(curve, debug, chip), version=version), network, chip))
    across = any(f.curve.nodes > 1 for f in findings) or debug.nodes > 1 or not findings
    different = (
        nccl_debug.differences(
            debug, accelerator, int(chip["scaleup_domain"]) if chip["scaleup_domain"] <= 8 else 4, across
        )
        if debug.seen
        else []
    )
    findings = [finding._replace(suspects=_told(finding.suspects, different)) for finding in findings]
    cost = price(findings, accelerator, fabric, design)
    return Diagnosis(findings, different, debug, cost, following(findings, different), log.ignored)


def _told(suspects, different):
    """Suspects whose variable NCCL_DEBUG shows to differ come first."""
    shown = {name.strip() for difference in different for name in difference.variable.split(",")}
    return sorted(
        suspects, key=lambda v: v.score - 10.0 * bool(shown & {n.strip() for n in v.suspect.variable.split(",")})
    )


def _nodes(curve, debug, chip):
    return debug.nodes or max(1, int(np.ceil(curve.ranks / chip["scaleup_domain"])))


def find(curve, network, chip):
    """The ``Finding`` of one curve on a fabric preset and an accelerator's numbers."""
    inside = curve.ranks if curve.nodes <= 1 else max(1, curve.ranks // curve.nodes)
    law = expected_law(curve, network, chip, inside)
    rows, factor = [], nccl_logs.bus_factor(curve.collective, curve.ranks)
    expected = curves.seconds(law, curve.collective, curve.sizes, curve.ranks, inside)
    low, simple = curves.protocols(law, curve.collective, curve.sizes, curve.ranks, inside)
    by_algorithm = algorithms(curve, network, chip, inside)
    for k, size in enumerate(curve.sizes):
        rows.append(
            {
                "size_bytes": float(size),
                "measured_us": 1e6 * curve.seconds[k],
                "expected_us": 1e6 * expected[k],
                "speed": float(expected[k] / curve.seconds[k]),
                "measured_busbw": size * factor / curve.seconds[k] / 1e9,
                "expected_busbw": size * factor / expected[k] / 1e9,
                "low_latency_us": 1e6 * low[k],
                "simple_us": 1e6 * simple[k],
                **{f"{name}_us": 1e6 * times[k] for name, times in by_algorithm.items()},
            }
        )
    ratio = expected / curve.seconds
    large = ratio[curve.sizes >= max(curve.sizes.max() / 8, 1.0)]
    return Finding(
        curve,
        rows,
        faults.suspects(curve, law, inside, bool(own_law(curve, network, inside))),
        _shape(curve, ratio),
        _notes(curve, law, ratio),
        float(np.median(large)),
    )


def expected_law(curve, network, chip, inside):
    """The law of the fabric: the preset's own for this collective and tier, else one fitted to the kernels' prediction."""
    own = own_law(curve, network, inside)
    if own:
        return curves.Law(own["a0_us"] * 1e-6, own["a1_us"] * 1e-6, own["gbytes_per_s"] * 1e9, own["r1"], own["r2"])
    sizes = np.array([2.0**k for k in range(10, 35)])
    times = np.min(
        [t for t in _kernel_times(curve.collective, curve.ranks, inside, sizes, network, chip, curve.version).values()],
        axis=0,
    )
    rate = (sizes[-1] - sizes[-2]) / (times[-1] - times[-2]) * curves.shape(curve.collective, curve.ranks, inside)[0]
    ratio = network.numbers.get("simple_latency_ratio", 1.0)
    return curves.Law(float(times[0]), 0.0, float(rate), network.numbers.get("ll_bandwidth_ratio", 1.0), ratio)


def own_law(curve, network, inside):
    """The coefficients that the preset holds for this collective and tier, or None."""
    tier = "in" if inside >= curve.ranks else f"out-{inside}"
    return network.facts.get("laws", {}).get(f"{curve.collective} {tier}")


def algorithms(curve, network, chip, inside):
    """Seconds of each algorithm at each size that this version of NCCL has, by the kernels."""
    return _kernel_times(curve.collective, curve.ranks, inside, curve.sizes, network, chip, curve.version)


def _kernel_times(collective, ranks, inside, sizes, network, chip, version=""):
    from ._kernels import collectives as c

    given = {k: v.get("bf16") if isinstance(v, dict) else v for k, v in {**chip, **network.numbers}.items()}
    given = {k: v for k, v in given.items() if k in model.Inputs._fields and v is not None}
    x = model.Inputs(**(given | {"layers": 1, "hidden": 128, "heads": 1, "scaleup_domain": inside, "gpus": ranks}))
    x = model.complete(x)
    net, u = c.tiers(x), model.link_u(x)
    group = c.place(float(ranks), float(inside))
    if collective == "alltoall":
        lists = {"pairwise": c.all_to_all(group, net)}
    else:
        table = c.all_reduce(group, net) if collective == "all_reduce" else c.half_reduce(group, net)
        names = {c.RING: "ring", c.TREE: "tree", c.HIERARCHICAL: "hierarchical"}
        lists = {
            names[code]: item
            for code, item in table.items()
            if code in names and (collective == "all_reduce" or code == c.RING or group.n_out > 1)
        }
        has = nccl_versions.available(version, collective, int(np.ceil(ranks / inside)), inside)
        lists = {name: item for name, item in lists.items() if name != "tree" or name in has}
        if "pat" in has and nccl_versions.parse(version):  # log2 n steps where the ring takes n - 1
            lists["pat"] = lists["ring"]._replace(a=lists["ring"].a * np.ceil(np.log2(ranks)) / (ranks - 1))
    found = {}
    for name, item in lists.items():
        low = item._replace(
            g=item.g * net.ll_bandwidth_ratio, h=item.h * net.ll_bandwidth_ratio, b=item.b * net.ll_bandwidth_ratio
        )
        simple = item._replace(a=item.a * net.simple_latency_ratio)
        found[name] = np.minimum(c.seconds_of(low, sizes, u), c.seconds_of(simple, sizes, u))
    return found


def _shape(curve, ratio):
    """Where a curve departs from what is expected, in a few words."""
    small, large = ratio[curve.sizes < curves.LARGE], ratio[curve.sizes >= curves.LARGE]
    low = [
        name
        for name, part in (("latency", small), ("bandwidth", large))
        if len(part) and np.median(part) < 1 - faults.HEALTHY
    ]
    slow = np.sum(ratio < 0.7)
    if slow == 1 and not low:
        return "one size"
    return " and ".join(low) if low else "nowhere"


def _notes(curve, law, ratio):
    """How figures that look too good or too low are to be read."""
    notes = []
    large = ratio[curve.sizes >= curves.LARGE]
    if curve.collective == "all_reduce" and len(large) and np.median(large) > 1.15:
        if curve.nodes == 2:
            notes.append(
                "two nodes: a double tree sends each byte once between them, so busbw reads up to twice the rate of the NICs; it is no rate of the wire"
            )
        in_switch = {"nvls", "nvls-tree"} & set(nccl_versions.available(curve.version, "all_reduce", curve.nodes, 0))
        who = "NVLS, SHARP" if in_switch else f"SHARP: NCCL {curve.version} has no NVLS here"
        notes.append(
            f"busbw above the wire: the switches reduce ({who}). busbw is no wire rate; compare with all_gather or NCCL_ALGO=Ring"
        )
    if curve.wrong:
        notes.append(f"{curve.wrong} wrong values: the results are not correct, stop and check memory and links first")
    return notes


def price(findings, accelerator, fabric, design=None):
    """What the slowest shortfall costs a training step: seconds and dollars per million tokens, with the denominator named."""
    fractions = [f.fraction for f in findings if f.suspects and f.curve.nodes > 1]
    if not fractions:
        return {}
    from .evaluations import evaluate

    share = min(1.0, min(fractions))
    asked = {
        "model": "llama-3-70b",
        "tp": 8,
        "gpus": 1024,
        "micro_batch": 1,
        "seq_len": 8192,
        "global_batch": 1024,
        "zero_stage": 1,
    } | (design or {})
    efficiency = presets.find("fabric", fabric).numbers.get("link_efficiency", 1.0)
    names = ["step_time_s", "usd_per_million_tokens"]
    good = evaluate(names, accelerator=accelerator, fabric=fabric, **asked)
    bad = evaluate(
        names, accelerator=accelerator, fabric=fabric, **(asked | {"link_efficiency": max(efficiency * share, 1e-3)})
    )
    before, after = float(good.step_time_s), float(bad.step_time_s)
    return {
        "design": asked,
        "fraction_of_fabric_speed": share,
        "step_s": before,
        "slow_step_s": after,
        "slower": after / before - 1,
        "usd_per_million_tokens": float(good.usd_per_million_tokens),
        "slow_usd_per_million_tokens": float(bad.usd_per_million_tokens),
    }


def following(findings, different):
    """The next measurements, in order."""
    steps = []
    if different:
        steps.append("correct what NCCL_DEBUG shows (above), one variable at a time, and run the same log again")
    if any(f.suspects for f in findings):
        slow = next(f for f in findings if f.suspects)
        steps.append(
            f"the collective alone: {slow.curve.collective}_perf on the same nodes with nothing else running, three times"
        )
        if slow.curve.nodes > 2:
            hosts = [f"node-{k}" for k in range(1, slow.curve.nodes + 1)]
            first = bisection.next_measurement(hosts, {frozenset(hosts): slow.fraction})
            steps.append(
                f"halves of the job until the slow pair or rank shows, first {first.hosts[0]} to {first.hosts[-1]} ({len(first.hosts)} of {len(hosts)} nodes)"
            )
        if slow.curve.nodes > 1:
            steps.append("the link: ib_write_bw or sendrecv_perf between the two nodes found, each NIC in turn")
        steps.append("the node: all_reduce_perf inside it, then one GPU less each time")
        if slow.curve.nodes > 1:
            steps.append("placement: the same nodes under one leaf, then across leaves")
    return steps


# -- what is printed ----------------------------------------------------------------------------------------------------------


def to_text(found):
    """A ``Diagnosis`` in words and tables."""
    lines = []
    for finding in found.findings:
        curve = finding.curve
        lines += [
            f"{curve.name}: {curve.collective}, {curve.ranks} ranks on {curve.nodes} nodes{', NCCL ' + curve.version if curve.version else ''}",
            f"  at large sizes {100 * finding.fraction:.0f} % of what this fabric should give; departs in: {finding.shape}",
            "",
        ]
        names = [
            key
            for key in finding.rows[0]
            if key.endswith("_us") and key not in ("measured_us", "expected_us", "low_latency_us", "simple_us")
        ]
        head = [
            "size B",
            "measured us",
            "expected us",
            "LL us",
            "Simple us",
            *[n[:-3] + " us" for n in names],
            "busbw GB/s",
            "expected",
            "speed",
        ]
        rows = [
            [
                f"{r['size_bytes']:.0f}",
                *(f"{r[k]:.1f}" for k in ("measured_us", "expected_us", "low_latency_us", "simple_us", *names)),
                f"{r['measured_busbw']:.2f}",
                f"{r['expected_busbw']:.2f}",
                f"{r['speed']:.2f}",
            ]
            for r in finding.rows
        ]
        widths = [max(len(row[k]) for row in (head, *rows)) for k in range(len(head))]
        lines += ["  " + "  ".join(cell.rjust(w) for cell, w in zip(row, widths)) for row in (head, *rows)] + [""]
        lines += [f"  note: {note}" for note in finding.notes]
        if finding.suspects:
            lines += ["  suspects, best first:"]
            lines += [
                f"  {k + 1}. {v.suspect.name} ({v.suspect.where}; explains the curve to {100 * v.remains:.0f} %): {v.suspect.variable}"
                for k, v in enumerate(finding.suspects[:4])
            ]
        else:
            lines += ["  healthy: nobody is named"]
        lines.append("")
    if found.debug.seen:
        d = found.debug
        lines += [
            (
                f"NCCL_DEBUG: version {d.version or '?'}, network {d.network or '?'}, GPUDirect {'?' if d.gpudirect is None else 'on' if d.gpudirect else 'off'}, "
                f"{len(d.nics) or '?'} NICs, {d.channels or '?'} channels, {d.trees} trees, {d.ranks or '?'} ranks on {d.nodes or '?'} nodes"
            )
        ]
        lines += [f"  {x.what}: {x.found}; expected {x.expected} ({x.variable})" for x in found.differences] + [""]
    if found.cost:
        c, design = found.cost, " ".join(f"{k}={v}" for k, v in found.cost["design"].items())
        lines += [
            (
                f"cost: a training step of {design} takes {c['step_s']:.2f} s on this fabric and {c['slow_step_s']:.2f} s at {100 * c['fraction_of_fabric_speed']:.0f} % of its speed "
                f"({100 * c['slower']:+.1f} %), {c['usd_per_million_tokens']:.3f} against {c['slow_usd_per_million_tokens']:.3f} USD per million tokens"
            ),
            "",
        ]
    lines += ["next:", *(f"  {k + 1}. {step}" for k, step in enumerate(found.next))] if found.next else []
    if found.ignored:
        lines += ["", "lines without a row: " + ", ".join(f"{n} {why}" for why, n in sorted(found.ignored.items()))]
    return "\n".join(lines)


def to_plain(found):
    """A ``Diagnosis`` as plain values, for JSON."""
    return {
        "curves": [
            {
                "name": f.curve.name,
                "collective": f.curve.collective,
                "ranks": f.curve.ranks,
                "nodes": f.curve.nodes,
                "fraction": f.fraction,
                "departs_in": f.shape,
                "notes": f.notes,
                "rows": [{k: float(v) for k, v in row.items()} for row in f.rows],
                "suspects": [
                    {
                        "name": v.suspect.name,
                        "amount": v.amount,
                        "remains": v.remains,
                        "score": v.score,
                        "variable": v.suspect.variable,
                    }
                    for v in f.suspects
                ],
            }
            for f in found.findings
        ],
        "nccl_debug": {
            "version": found.debug.version,
            "network": found.debug.network,
            "gpudirect": found.debug.gpudirect,
            "nics": list(found.debug.nics),
            "channels": found.debug.channels,
            "differences": [d._asdict() for d in found.differences],
        }
        if found.debug.seen
        else None,
        "cost": found.cost,
        "next": found.next,
        "ignored": found.ignored,
    }
