"""A network of so many accelerators as a shopping list: switches, cables and optics by tier, dollars and watts.

The scale-out (compute) network follows kernels/fabric.py and the inputs of a config.  A cluster has others beside it,
which NETWORKS describes: storage, in-band management (provisioning, users, schedulers) and out-of-band management
(service processors, power).  They are what reference architectures of such clusters have in common; their sizes and
prices are assumptions, each with its reason beside it.
"""

from typing import NamedTuple

from ._kernels import fabric, inputs, quantities
from .errors import SweepError
from .spec import Spec

GBPS = quantities.GBPS
DESIGNS = quantities.INPUTS["fabric_design"].choices
NODE = 8  # accelerators of a node
SETTINGS = (
    "fabric_design", "fabric_rails", "planes", "oversubscription", "pod_gpus", "switch_gbps", "switch_port_gbps", "switch_radix",
    "switch_usd_per_gbps", "optics_usd_per_gbps", "cable_usd", "nic_usd_per_gbps", "switch_watts_per_gbps", "optics_watts_per_gbps", "nic_watts_per_gbps",
)  # fmt: skip


class Beside(NamedTuple):
    """A network beside the compute network: ports per node and their speed, further ends, and the switch that it is
    made of.
    """

    ports: float  # per node
    gbps: float
    ends: float  # further ports per node: storage servers, head nodes, switches to be managed
    radix: int
    oversubscription: float
    switch_usd: float
    switch_watts: float
    link_usd: float  # optics and cable
    link_watts: float
    nic_usd: float  # per port of a node
    why: str


NETWORKS = {
    "storage": Beside(
        2,
        400,
        0.5,
        64,
        1.0,
        36000,
        750,
        1280,
        17,
        1600,
        "a pair of storage ports per node (docs.nvidia.com/dgx-superpod, H100 and B200, network fabrics), 400 Gb/s, a port of the storage for every two nodes by assumption; prices of 400 Gb/s in quantities.py",
    ),
    "in-band": Beside(
        2,
        100,
        0.1,
        64,
        3.0,
        20000,
        400,
        250,
        7,
        0,
        "a pair of in-band ports per node to different switches (same page), 100 Gb/s; on board; 3:1 and prices assumed",
    ),
    "out-of-band": Beside(
        3,
        1,
        0.5,
        48,
        12.0,
        4000,
        100,
        10,
        0,
        0,
        "service processor per node (same page), BMC of the network cards and power shelf, and the switches themselves; copper; prices assumed",
    ),
}


class Item(NamedTuple):
    """One row of the list; money in dollars, power in watts at the equipment (without cooling)."""

    network: str
    part: str
    count: float
    usd: float
    watts: float


class Design(NamedTuple):
    """A complete design: ``items``, the compute network's counts, and the numbers that it was made from."""

    gpus: int
    items: tuple
    network: object  # kernels.fabric.Network of the compute network
    x: object

    @property
    def usd(self):
        return sum(item.usd for item in self.items)

    @property
    def watts(self):
        return sum(item.watts for item in self.items)

    def rows(self):
        """One mapping per item, with shares, and a last row of the total."""
        rows = [_row(item, self.gpus, self.usd) for item in self.items]
        return [*rows, _row(Item("all", "total", float("nan"), self.usd, self.watts), self.gpus, self.usd)]

    def words(self):
        """What was assumed, and what stands out, in a few sentences."""
        found, planes, speed, radix = self.network
        rate = speed / GBPS
        text = [
            (
                f"{self.gpus:,} accelerators with {self.x.link_gbps / GBPS:g} Gb/s each: {_several(planes, 'plane')} of {rate:g} Gb/s ports, "
                f"switches of {radix:g} such ports, {found.tiers:g} {'tier' if found.tiers == 1 else 'tiers'}, {DESIGNS[int(self.x.fabric_design)]}."
            )
        ]
        if not found.fits:
            text.append("Three tiers do not reach so far: the counts are those of three and too low.")
        compute = [item for item in self.items if item.network == "compute"]
        money = sum(item.usd for item in compute)
        optics = sum(item.usd for item in compute if "cables" in item.part)
        text.append(
            f"The compute network costs {money / self.gpus:,.0f} USD and draws {sum(i.watts for i in compute) / self.gpus:.0f} W per accelerator; "
            f"{optics / money:.0%} of the money is cables and optics."
        )
        text.append("Prices are inputs: sweep presets inputs shows each with its source or as an assumption.")
        return " ".join(text)


def design(gpus, link_gbps=400.0, networks="all", nodes=None, extra_ports=0, **settings):
    """The ``Design`` of ``gpus`` accelerators with ports of ``link_gbps``.

    ``networks``: ``all``, ``compute``, or names of NETWORKS.  ``settings``: those of SETTINGS.
    """
    x = _inputs(gpus, link_gbps, settings)
    built = fabric.network(x)
    if extra_ports:
        more = fabric.counts(
            x.gpus,
            built.radix,
            x.fabric_design,
            x.fabric_rails,
            built.planes,
            x.oversubscription,
            x.pod_gpus,
            extra_ports,
        )
        built = built._replace(counts=more)
    wanted = (
        ("compute", *NETWORKS) if networks == "all" else (networks,) if isinstance(networks, str) else tuple(networks)
    )
    items = []
    for name in wanted:
        if name == "compute":
            items += _compute(x, built)
        elif name in NETWORKS:
            items += beside(name, NETWORKS[name], nodes or gpus / NODE)
        else:
            raise SweepError(f"networks: {name!r} is none. Known: compute, {', '.join(NETWORKS)}, all.")
    return Design(int(gpus), tuple(items), built, x)


def beside(name, what, nodes):
    """The items of one of NETWORKS for ``nodes`` nodes."""
    ends = -(-nodes * (what.ports + what.ends) // 1)
    found = fabric.counts(ends, what.radix, fabric.FAT_TREE, oversubscription=what.oversubscription)
    switches, cables = float(found.switches), float(found.cables)
    items = [
        Item(name, "switches", switches, switches * what.switch_usd, switches * what.switch_watts),
        Item(
            name,
            "cables with optics" if what.gbps > 1 else "cables",
            cables,
            cables * what.link_usd,
            cables * what.link_watts,
        ),
    ]
    if what.nic_usd:
        ports = nodes * what.ports
        items.append(
            Item(
                name,
                "network cards",
                ports,
                ports * what.nic_usd,
                ports * what.gbps * quantities.INPUTS["nic_watts_per_gbps"].default,
            )
        )
    return items


def _inputs(gpus, link_gbps, settings):
    """Completed inputs, checked like those of any point, with defaults for what a network does not depend on."""
    for name in settings:
        if name in quantities.INPUTS and name not in SETTINGS:
            raise SweepError(f"{name}: what a network consists of does not depend on it. It takes {', '.join(SETTINGS)}.")
    machine = {
        "params": 1e9,
        "peak_tflops": 1.0,
        "hbm_gb": 1.0,
        "hbm_gbytes_per_s": 1.0,
        "scaleup_domain": NODE,
        "scaleup_gbytes_per_s": 1.0,
    }
    spec = Spec.from_inputs(("fabric_usd_per_gpu",), **(machine | settings | {"gpus": gpus, "link_gbps": link_gbps}))
    if spec.mesh.axes:
        raise SweepError(f"{spec.mesh.dims[0]}: one network takes one value for each input.")
    return inputs.complete(spec.mesh.block())


def _compute(x, built):
    found, _, speed, radix = built
    per_switch = float(fabric.ports_bought(found, radix) / found.switches * speed)
    usd_each, watts_each = per_switch * x.switch_usd_per_gbps, per_switch * x.switch_watts_per_gbps
    link_usd, link_watts = x.cable_usd + speed * x.optics_usd_per_gbps, speed * x.optics_watts_per_gbps
    items = [
        Item("compute", f"{tier} switches", count, count * usd_each, count * watts_each)
        for tier, count in (("leaf", found.leaf), ("spine", found.spine), ("core", found.core))
        if count
    ]
    hops = (
        ("node-leaf", found.node_leaf_cables),
        ("leaf-spine", found.leaf_spine_cables),
        ("spine-core", found.spine_core_cables),
    )
    items += [
        Item("compute", f"{hop} cables with optics", count, count * link_usd, count * link_watts)
        for hop, count in hops
        if count
    ]
    port = x.gpus * x.link_gbps
    return items + [Item("compute", "network cards", x.gpus, port * x.nic_usd_per_gbps, port * x.nic_watts_per_gbps)]


def _row(item, gpus, total):
    return {
        "network": item.network,
        "part": item.part,
        "count": item.count,
        "usd": float(round(item.usd)),
        "watts": float(round(item.watts)),
        "usd_per_gpu": round(item.usd / gpus, 1),
        "watts_per_gpu": round(item.watts / gpus, 2),
        "share": f"{item.usd / total:.1%}",
    }


def _several(count, word):
    return f"{count:g} {word}{'' if count == 1 else 's'}"
