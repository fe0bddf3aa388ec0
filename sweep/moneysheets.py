"""Worked answers beside the step: money, serving, capacity, stragglers.  ``sweep explain --about money ...`` prints
one.

Each takes the same inputs as any point and works its numbers line by line from kernels/fabric.py, serving.py,
capacity.py or stragglers.py; a worksheet renders as text, Markdown, LaTeX or plain values like that of the step.
"""

import math

from . import networksheets
from ._kernels import capacity, fabric, model, quantities, serving, stragglers
from .errors import SweepError, did_you_mean
from .spec import Spec
from .worksheets import Line, Section, Table, Worksheet, number

GBPS = quantities.GBPS
PORTS = (25, 50, 100, 200, 400, 800, 1600, 3200)


def about(topic, **inputs):
    """The ``Worksheet`` of one of TOPICS."""
    if topic not in TOPICS:
        raise SweepError(f"about: {topic!r} is no topic. {did_you_mean(topic, TOPICS)}")
    spec = Spec.from_inputs(("step_time_s",), **inputs).single()
    if spec.mesh.axes:
        raise SweepError(f"{spec.mesh.dims[0]}: one point takes one value for each input.")
    point = spec.mesh.block()
    parts = model.prepare(point)
    return Worksheet(
        f"About {topic}: {', '.join(f'{name} {value}' for name, value in inputs.items())}",
        tuple(TOPICS[topic](point, parts.x)),
    )


def _money(point, x):
    found, planes, speed, radix = built = fabric.network(x)
    gpus = float(x.gpus)
    switches, cables, nics = (float(part) / gpus for part in fabric.network_usd(x, built))
    cost = fabric.cost(x)
    out = {
        name: float(value)
        for name, value in model.evaluate(
            point, ("tokens_per_s_per_gpu", "usd_per_million_tokens", "joules_per_token", "status")
        ).items()
    }
    life = x.amortisation_years * fabric.SECONDS_PER_YEAR
    watts = float(cost.watts_per_gpu)
    yield Section(
        "The network",
        (
            Line(
                "planes, port of a plane",
                speed / GBPS,
                "Gb/s",
                formula="B / planes",
                numbers=f"{number(x.link_gbps / GBPS)} / {number(planes)}",
            ),
            Line(
                "ports of a switch at that speed",
                radix,
                "",
                formula="capacity / port, at most 256",
                numbers=f"{number(x.switch_gbps / GBPS)} / {number(speed / GBPS)}",
            ),
            Line(
                "tiers",
                found.tiers,
                "",
                note="" if found.fits else "three tiers do not reach so far: counts are too low",
            ),
            Table(
                ("tier", "switches", "cables below"),
                (
                    ("leaf", float(found.leaf), float(found.node_leaf_cables)),
                    ("spine", float(found.spine), float(found.leaf_spine_cables)),
                    ("core", float(found.core), float(found.spine_core_cables)),
                ),
            ),
        ),
        "kernels/fabric.py",
    )
    yield Section(
        "Dollars per accelerator",
        (
            Line(
                "switches",
                switches,
                "USD",
                formula="ports B usd / N",
                numbers=f"{number(fabric.ports_bought(found, radix))} x {number(speed / GBPS)} x {number(x.switch_usd_per_gbps * GBPS)} / {number(gpus)}",
            ),
            Line(
                "cables and optics",
                cables,
                "USD",
                formula="cables (usd + B usd) / N",
                numbers=f"{number(found.cables)} x ({number(x.cable_usd)} + {number(speed / GBPS)} x {number(x.optics_usd_per_gbps * GBPS)}) / {number(gpus)}",
            ),
            Line(
                "network card",
                nics,
                "USD",
                formula="B usd",
                numbers=f"{number(x.link_gbps / GBPS)} x {number(x.nic_usd_per_gbps * GBPS)}",
            ),
            Line("network in all", float(cost.fabric_usd_per_gpu), "USD", name="fabric_usd_per_gpu"),
            Line(
                "power at the meter",
                watts,
                "W",
                formula="(accelerator + network) pue",
                numbers=f"({number(x.accelerator_watts)} + {number(watts / x.pue - x.accelerator_watts)}) x {number(x.pue)}",
                name="watts_per_gpu",
            ),
            Line(
                "money per hour",
                float(cost.usd_per_second_per_gpu) * 3600,
                "USD",
                formula="(accelerator + network)/life + W usd/kWh",
                numbers=f"({number(x.accelerator_usd)} + {number(float(cost.fabric_usd_per_gpu))}) / {number(life / 3600)} h + {number(watts / 1000)} kW x {number(x.usd_per_kwh)}",
            ),
        ),
        "kernels/fabric.py",
    )
    yield Section(
        "Dollars per token",
        (
            Line("tokens per second and accelerator", out["tokens_per_s_per_gpu"], "1/s"),
            Line(
                "a million tokens",
                out["usd_per_million_tokens"],
                "USD",
                formula="usd/s / (tokens/s) 1e6",
                name="usd_per_million_tokens",
            ),
            Line("energy of a token", out["joules_per_token"], "J", name="joules_per_token"),
            *_other_ports(point),
            "Prices and powers are inputs; sweep presets inputs shows each with its source or as an assumption.",
        ),
    )


def _other_ports(point):
    names = ("usd_per_million_tokens", "fabric_usd_per_gpu", "tokens_per_s_per_gpu")
    rows = []
    for port in PORTS:
        out = model.evaluate(point._replace(link_gbps=float(port)), names)
        rows.append((port, *(float(out[name]) for name in names)))
    known = [row for row in rows if math.isfinite(row[1])]
    if not known:
        return ("No such run exists, so no token has a cost.",)
    best = min(known, key=lambda row: row[1])
    flat = [row[0] for row in known if row[1] <= 1.01 * best[1]]
    said = f"A token costs least with a port of {best[0]:g} Gb/s"
    said += (
        f"; from {min(flat):g} to {max(flat):g} it costs within 1 % of that."
        if len(flat) > 1
        else "; no other port comes within 1 %."
    )
    return Table(
        ("port, Gb/s", "USD per million tokens", "network, USD per GPU", "tokens/s per GPU"), tuple(rows)
    ), said


def _serving(point, x):
    found = {name: float(value) for name, value in serving.report(x).items()}
    yield Section(
        "A token",
        (
            Line(
                "read weights, experts met, keys and values; or compute",
                found["decode_compute_s"],
                "s",
                formula="m L max(bytes/HBM, FLOP/F)",
                name="decode_compute_s",
            ),
            Line(
                "two all-reduces per block",
                found["decode_tp_s"],
                "s",
                formula="2 m L t(b_d h 2 byte)",
                name="decode_tp_s",
            ),
            Line(
                "dispatch and combine per block",
                found["decode_ep_s"],
                "s",
                formula="m L t(b_d top_k h (s_d + s_c))",
                name="decode_ep_s",
            ),
            Line(
                "time per output token",
                found["decode_time_s"],
                "s",
                name="decode_time_s",
                note="experts hide under the other micro-batch"
                if x.serving_micro_batches > 1
                else "one after the other",
            ),
            Line("output tokens per second and accelerator", found["decode_tokens_per_s_per_gpu"], "1/s"),
        ),
        "kernels/serving.py",
    )
    yield Section(
        "A prompt",
        (
            Line("prefill", found["prefill_time_s"], "s", name="prefill_time_s"),
            Line(
                "keys and values of a token",
                found["kv_bytes_per_token"],
                "byte",
                formula="L k (d + d_v) s_kv, MLA L (r_kv + d_r) s_kv",
            ),
            Line(
                "their move to another machine", found["kv_transfer_s"], "s", formula="s kv / B", name="kv_transfer_s"
            ),
            Line("first token", found["first_token_time_s"], "s", name="first_token_time_s"),
            Line("memory", found["serving_memory_bytes"], "byte", note=f"of {number(x.hbm_gb / 1e9)} GB"),
        ),
        "kernels/serving.py",
    )
    ports = [
        (words, found[name] / GBPS)
        for words, name in (
            ("tensor parallelism, decoding", "decode_tp_link_gbps"),
            ("experts, decoding", "decode_ep_link_gbps"),
            ("pipeline hops, decoding", "decode_pp_link_gbps"),
            ("tensor parallelism, prefill", "prefill_tp_link_gbps"),
            ("experts, prefill", "prefill_ep_link_gbps"),
            ("keys and values", "kv_link_gbps"),
        )
    ]
    own = x.link_gbps / GBPS
    most, port = max(ports, key=lambda one: one[1])
    if port == 0:
        said = "Nothing leaves the scale-up domain: no training fabric is needed."
    elif math.isinf(port):
        said = f"{most}: latency alone exceeds the tolerance; no port helps."
    else:
        said = f"{most} asks for the most, {number(port)} Gb/s: {'within' if port <= own else 'beyond'} the port of {number(own)}."
    yield Section("Ports required", (Table(("exchange", "Gb/s per GPU"), tuple(ports)), said), "kernels/serving.py")


def _capacity(point, x):
    gang, cv = x.job_gpus, x.job_gpus_cv
    usable = float(capacity.usable_gpus(x.gpus, gang, cv))
    found = capacity.waiting(x.gpus, x.utilisation, gang, cv, x.arrival_cv, x.duration_cv)
    weighted = gang * (1 + cv * cv)
    mix = {"gang": gang, "gang_cv": cv, "arrival_cv": x.arrival_cv, "service_cv": x.duration_cv}
    yield Section(
        "Waiting",
        (
            Line(
                "gang that a busy accelerator sees",
                weighted,
                "",
                formula="g (1 + c_g^2)",
                numbers=f"{number(gang)} (1 + {number(cv)}^2)",
            ),
            Line(
                "accelerators that can be kept busy",
                usable,
                "",
                formula="N - (g_w - smallest)/2 / (1 - g_w/N)",
                numbers=f"N {number(x.gpus)}",
                name="usable_utilisation",
            ),
            Line("load of those", x.gpus * x.utilisation / usable, "", formula="N rho / usable"),
            Line("share of jobs that wait", float(found.probability), "", formula="Erlang C of usable / g_w servers"),
            Line(
                "mean wait",
                float(found.mean) * x.job_hours * 3600,
                "s",
                formula="P S (c_a^2 + c_w^2)/2 g / (usable (1 - rho))",
                name="wait_hours",
                note=f"{number(float(found.mean) * x.job_hours)} hours",
            ),
            Line(
                "99 % wait less than",
                float(found.p99) * x.job_hours * 3600,
                "s",
                name="wait_p99_hours",
                note=f"{number(float(found.p99) * x.job_hours)} hours",
            ),
        ),
        "kernels/capacity.py",
    )
    rows = []
    for hours in (0.5, 1.0, 4.0, 12.0, 24.0):
        rows.append(
            (
                hours,
                *(
                    float(capacity.highest_utilisation(float(x.gpus), hours / x.job_hours, which, **mix))
                    for which in ("mean", "p99")
                ),
            )
        )
    yield Section(
        "How busy it may be",
        (
            Table(("wait, hours", "utilisation, mean wait", "utilisation, 99 % of jobs"), tuple(rows)),
            f"An accelerator's busy hour costs {number(float(capacity.report(x)['usd_per_busy_gpu_hour']))} USD at a utilisation of {number(x.utilisation)}, idle ones paid for.",
        ),
    )


def _stragglers(point, x):
    factor = float(stragglers.slowdown(x.gpus, x.rank_cv, x.rank_tail))
    rows = [
        (word, float(stragglers.slowdown(x.gpus, x.rank_cv, code)))
        for code, word in enumerate(quantities.INPUTS["rank_tail"].choices)
    ]
    days = float(stragglers.failures_per_day(x.gpus, x.mtbf_years))
    yield Section(
        "The slowest of all",
        (
            Line(
                "expected largest of N normals",
                float(stragglers.expected_maximum(x.gpus)),
                "",
                formula="E max of N",
                numbers=f"N {number(x.gpus)}",
            ),
            Line("step of the slowest over the mean", factor, "", formula="1 + c_r E max", name="straggler_factor"),
            Table(("distribution", "slowest over the mean"), tuple(rows)),
        ),
        "kernels/stragglers.py",
    )
    yield Section(
        "Failures",
        (
            Line(
                "failures per day", days, "", formula="N / MTBF", numbers=f"{number(x.gpus)} / {number(x.mtbf_years)} a"
            ),
            Line("of them network", float(stragglers.failures_per_day(x.gpus, x.network_mtbf_years)), ""),
            Line(
                "goodput",
                float(stragglers.goodput(x.gpus, factor, x.mtbf_years, x.restart_hours)),
                "",
                formula="1 / (slowest (1 + failures restart))",
                name="goodput",
            ),
            Line(
                "a port is down somewhere",
                float(stragglers.port_down(x.gpus, x.network_mtbf_years, x.repair_hours)),
                "",
                formula="1 - exp(-N repair/MTBF)",
                numbers=f"{number(x.gpus)} x {number(x.repair_hours)} h / {number(x.network_mtbf_years)} a",
                name="port_down_fraction",
                note="of the time, where jobs ride it out on the node's other rails",
            ),
        ),
        "kernels/stragglers.py",
    )
    names = ("step_time_s", "exposed_fraction", "link_gbps_at_tolerance")
    lost = [count for count in (0.0, 1.0, 2.0, 4.0) if count < x.fabric_rails]
    rows = [(count, *(float(value) for value in model.evaluate(point._replace(lost_rails=count), names).values())) for count in lost]
    yield Section(
        "Rails lost",
        (
            Line("collectives of that node", float(stragglers.rail_loss(x.fabric_rails)), "", formula="r / (r - 1)", note="the survivors carry all bytes, and everybody waits"),
            Table(("ports lost of one node (lost_rails)", "step, s", "exposed", "port at tolerance, Gb/s"), tuple(rows)),
        ),
        "kernels/stragglers.py",
    )


TOPICS = {
    "money": _money,
    "fabric": networksheets.about_fabric,
    "serving": _serving,
    "capacity": _capacity,
    "stragglers": _stragglers,
    "tensor": networksheets.about_tensor,
}
