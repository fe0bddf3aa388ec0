"""What a scale-out network is made of, what it costs, and what it draws.

A network of N accelerators at a port speed needs leaf, spine and core switches, and each hop needs a cable with an
optic at both ends.  The counts follow from the radix: a switch chip moves a fixed number of bits per second (25.6
Tb/s is 64 ports of 400 Gb/s, 51.2 Tb/s is 64 of 800 or 128 of 400), so a faster port leaves fewer ports, and fewer
ports need more tiers.  That is why the price of a network is not simply proportional to its speed: it steps where a
tier is added.

    tiers   switches                                                  largest N (radix k, half of it down)
    1       one                                                       k
    2       leaf N/(k/2), spine = leaf k/2 / k                        k^2 / 2
    3       leaf N/(k/2), spine = leaf, core = spine k/2 / k          k^3 / 4

Spines are rounded up so that every leaf reaches every spine by the same number of cables (16 and not 12 for 24 leaves
of 32 uplinks): the rule behind the tables of NVIDIA's SuperPOD reference architectures, which the tests hold exactly.

Designs.  ``fat-tree``: any port of a node on any leaf.  ``rail-optimised``: the r-th accelerator of every node on the
leaves of rail r, all rails under common spines.  ``rail-only``: the rails are separate networks, and traffic between
rails goes over the scale-up links first.  Planes are whole copies of the network, each with an equal part of the
port's speed: what a port faster than ``switch_port_gbps`` is split into.  ``oversubscription`` thins the top tier:
downlinks over uplinks of the tier below.

Money is capital written off evenly over its life plus energy; watts are at the meter, cooling included.  Everything
works elementwise on open meshes of NumPy or jax arrays, and on plain numbers.
"""

from typing import NamedTuple

from . import ops

FAT_TREE, RAIL_OPTIMISED, RAIL_ONLY = 0, 1, 2  # codes of quantities.INPUTS["fabric_design"].choices
SECONDS_PER_YEAR = 365.25 * 86400.0
JOULES_PER_KWH = 3.6e6
LARGEST_RADIX = 256.0  # ports a switch chip can be split into, however slow they are (Tomahawk 5: 256 x 200 Gb/s)
EPSILON = 1e-9  # keeps 51.2 Tb/s over 400.0000000001 Gb/s at 128 ports, not 127


class Counts(NamedTuple):
    """Switches, cables and ports of a network over all its planes and rails; ``fits`` is False beyond three tiers.

    A cable has a port at both ends and, here, an optic at both ends.  ``ports`` counts the switch ports in use; the
    switches bought have ``switches * radix``.  Beyond three tiers the counts are those of three tiers and too low.
    """

    leaf: object
    spine: object
    core: object
    tiers: object
    node_leaf_cables: object
    leaf_spine_cables: object
    spine_core_cables: object
    fits: object

    @property
    def switches(self):
        return self.leaf + self.spine + self.core

    @property
    def cables(self):
        return self.node_leaf_cables + self.leaf_spine_cables + self.spine_core_cables

    @property
    def optics(self):
        return 2 * self.cables

    @property
    def ports(self):
        return self.node_leaf_cables + 2 * (self.leaf_spine_cables + self.spine_core_cables)


class Network(NamedTuple):
    """Counts, planes, speed of a port (SI) and radix of a switch."""

    counts: Counts
    planes: object
    speed: object
    radix: object


class Cost(NamedTuple):
    """Per accelerator: price of the scale-out network, watts at the meter, and money per second of everything."""

    fabric_usd_per_gpu: object
    watts_per_gpu: object
    usd_per_second_per_gpu: object


def counts(gpus, radix, design=RAIL_OPTIMISED, rails=8, planes=1, oversubscription=1.0, pod_gpus=0, extra_ports=0):
    """Counts of a network for ``gpus`` ports per plane on switches of ``radix`` ports.

    ``design`` is one of the codes above, ``rails`` the accelerators of a node.  ``oversubscription`` applies to the
    top tier, and only above a pod of ``pod_gpus`` accelerators where that is given.  ``extra_ports`` are further
    endpoints (a fabric manager) on free leaf ports.
    """
    only = design == RAIL_ONLY
    copies = ops.where(only, rails, 1)
    endpoints = ops.ceil(gpus / copies)
    lanes = ops.where(design == RAIL_OPTIMISED, rails, 1)
    half = ops.floor(radix / 2)
    split = ops.where((pod_gpus > 0) & (pod_gpus >= gpus), 1.0, oversubscription)
    top_down = ops.clip(ops.floor(radix * split / (1.0 + split) + EPSILON), 1.0, radix - 1)
    top_up = ops.ceil(top_down / split - EPSILON)
    leaf_two = _leaves(endpoints, lanes, top_down)
    natural = ops.where(endpoints <= radix, 1.0, ops.where(leaf_two <= radix, 2.0, 3.0))
    below_pod = ops.where(pod_gpus / copies <= top_down, 2.0, 3.0)
    tiers = ops.where((pod_gpus > 0) & (pod_gpus < gpus), ops.maximum(natural, below_pod), natural)

    one, three = tiers == 1, tiers == 3
    leaf = ops.where(one, 1.0, ops.where(three, _leaves(endpoints, lanes, half), leaf_two))
    leaf_up = ops.where(one, 0.0, ops.where(three, half, top_up))
    spread = _spread(leaf * leaf_up / radix, leaf_up)
    spine = ops.where(one, 0.0, ops.where(three, ops.ceil(leaf * half / top_down), spread))
    spine_up = ops.where(three, top_up, 0.0)
    core = ops.ceil(spine * spine_up / radix)
    return Counts(
        leaf * copies * planes,
        spine * copies * planes,
        core * copies * planes,
        tiers,
        gpus * planes + extra_ports,
        leaf * leaf_up * copies * planes,
        spine * spine_up * copies * planes,
        endpoints <= half * radix * top_down,
    )


def port(link_gbps, switch_gbps, largest_port_gbps, planes=None, radix=None):
    """(planes, port speed, radix): how a port of ``link_gbps`` meets a switch of ``switch_gbps``; any one unit of rate.

    Planes are as few as keep the port within ``largest_port_gbps``, unless given.  The radix is the switch's capacity over the
    port's speed, at most 256, unless given.  An infinite port is priced as one of 10^18 bytes/s.
    """
    link_gbps = ops.minimum(link_gbps, 1e18)
    if planes is None:
        planes = ops.maximum(ops.ceil(link_gbps / largest_port_gbps - EPSILON), 1.0)
    speed = link_gbps / planes
    if radix is None:
        radix = ops.clip(ops.floor(switch_gbps / speed + EPSILON), 2.0, LARGEST_RADIX)
    return planes, speed, radix


def network(x):
    """The :class:`Network` of completed inputs ``x``.

    Planes that are not given are as few as ``switch_port_gbps`` allows, or two or four times as many where that is
    cheaper: more planes of slower ports have a larger radix and may save a tier.
    """
    planes, speed, radix = port(x.link_gbps, x.switch_gbps, x.switch_port_gbps, x.planes, x.switch_radix)
    best = _network(x, planes, speed, radix)
    if x.planes is not None or x.switch_radix is not None:
        return best
    for more in (2.0, 4.0):
        other = _network(x, *port(x.link_gbps, x.switch_gbps, x.switch_port_gbps, planes * more))
        cheaper = _usd(x, other) < _usd(x, best)
        found = Counts(*(ops.where(cheaper, new, old) for new, old in zip(other.counts, best.counts)))
        best = Network(found, *(ops.where(cheaper, new, old) for new, old in zip(other[1:], best[1:])))
    return best


def ports_bought(found, radix):
    """Ports of the switches that are bought: all of them, but those in use where one switch is enough (smaller ones
    are sold).
    """
    return ops.where(found.tiers == 1, found.ports, found.switches * radix)


def network_usd(x, built=None):
    """Price of the switches, cables with optics, and NICs of a network (of ``x``): in dollars, for all accelerators."""
    found, _, speed, radix = built or network(x)
    switches = ports_bought(found, radix) * speed * x.switch_usd_per_gbps
    cables = found.cables * (x.cable_usd + speed * x.optics_usd_per_gbps)
    nics = x.gpus * x.link_gbps * x.nic_usd_per_gbps
    return switches, cables, nics


def network_watts(x, built=None):
    """Power of the switches, optics and NICs of a network (of ``x``): in watts, for all accelerators, without
    cooling.
    """
    found, _, speed, radix = built or network(x)
    switches = ports_bought(found, radix) * speed * x.switch_watts_per_gbps
    optics = found.cables * speed * x.optics_watts_per_gbps
    nics = x.gpus * x.link_gbps * x.nic_watts_per_gbps
    return switches, optics, nics


def cost(x):
    """Cost of the SI inputs ``x``: rates in bytes/s, and prices and watts per rate scaled with them."""
    built = network(x)
    usd = sum(network_usd(x, built)) / x.gpus
    watts = (x.accelerator_watts + sum(network_watts(x, built)) / x.gpus) * x.pue
    capital = (x.accelerator_usd + usd) / (x.amortisation_years * SECONDS_PER_YEAR)
    return Cost(usd, watts, capital + watts * x.usd_per_kwh / JOULES_PER_KWH)


def _network(x, planes, speed, radix):
    found = counts(x.gpus, radix, x.fabric_design, x.fabric_rails, planes, x.oversubscription, x.pod_gpus)
    return Network(found, planes, speed, radix)


def _usd(x, built):
    return sum(network_usd(x, built))


def _leaves(endpoints, lanes, down):
    """Leaves of ``endpoints`` in ``lanes`` rails with ``down`` ports each; small rails share a leaf."""
    per_lane = ops.ceil(endpoints / lanes)
    lanes_per_leaf = ops.maximum(ops.floor(down / per_lane), 1.0)
    return ops.ceil(lanes / lanes_per_leaf) * ops.ceil(per_lane / down)


def _spread(fewest, uplinks):
    """Spines, at least ``fewest``, that a leaf's ``uplinks`` divide over evenly."""
    cables_each = ops.maximum(ops.floor(uplinks / ops.maximum(fewest, 1.0) + EPSILON), 1.0)
    return ops.ceil(uplinks / cables_each)
