"""Networks against the tables of NVIDIA's reference architectures, a cost sheet, and a wiring built port by port."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import fabric
from kernels.quantities import GBPS, INPUTS


def inputs(**overridden):
    """SI inputs with the dictionary's defaults; rates and prices in ``overridden`` in people's units."""
    values = {name: row.default for name, row in INPUTS.items()} | {"gpus": 1024, "link_gbps": 400.0} | overridden
    scaled = {
        name: value * INPUTS[name].scale
        for name, value in values.items()
        if isinstance(value, (int, float, np.ndarray))
    }
    return SimpleNamespace(
        **(values | scaled | {"fabric_design": values["fabric_design"] if "fabric_design" in overridden else 1})
    )


CASES = {case["id"]: case for case in json.loads((Path(__file__).parent / "data" / "worked_cases.json").read_text())["cases"]}
SUPERPOD_B200 = [case for name, case in CASES.items() if name.startswith("superpod-b200")]


def row(found):
    """Counts as a table's row: leaf, spine, core, node-leaf, leaf-spine and spine-core cables."""
    return (found.leaf, found.spine, found.core, found.node_leaf_cables, found.leaf_spine_cables, found.spine_core_cables)


@pytest.mark.parametrize("case", SUPERPOD_B200, ids=lambda case: case["id"])
def test_superpod_b200(case):
    """The worked cases, copied from NVIDIA's table, to the last cable; a tier that the table leaves blank is empty."""
    published = case["published_answer"]["value"]
    names = ("leaf", "spine", "core", "node_leaf_cables", "leaf_spine_cables", "spine_core_cables")
    found = fabric.counts(case["inputs"]["gpus"], radix=case["inputs"]["radix"])
    assert row(found) == tuple(published[name] or 0 for name in names) and found.fits


def test_superpod_b200_8192():
    """The row of the same table that is no worked case: 1,024 nodes."""
    assert row(fabric.counts(8192, radix=64)) == (256, 256, 128, 8192, 8192, 8192)


@pytest.mark.parametrize("nodes, leaf, spine, node_cables, spine_cables", [
    (31, 8, 4, 252, 256), (63, 16, 8, 508, 512), (95, 24, 16, 764, 768), (127, 32, 16, 1020, 1024),
])  # fmt: skip
def test_superpod_h100(nodes, leaf, spine, node_cables, spine_cables):
    """One node's place goes to the fabric manager, whose four cables the table counts: 127 x 8 + 4.

    The first three rows are those of the same table (docs.nvidia.com/dgx-superpod, H100, network fabrics, table 4):
    with 95 nodes 12 spines would carry the 768 cables, but 12 does not divide a leaf's 32 uplinks, and the table has
    16.  The table counts cables of 95 nodes, not of the 96 places: 760 + 4.
    """
    published = CASES["superpod-h100-1016"]["published_answer"]["value"]
    assert nodes != 127 or (leaf, spine, node_cables, spine_cables) == tuple(published.values())
    found = fabric.counts(8 * nodes, radix=64, extra_ports=4)
    assert row(found) == (leaf, spine, 0, node_cables, spine_cables, 0)


B300 = CASES["superpod-b300-rows"]


@pytest.mark.parametrize("place", range(5))
def test_superpod_b300_two_planes(place):
    """Two planes of 400 Gb/s on switches of 128 such ports: two tiers up to 8,192 GPUs, where 64 ports of 800 Gb/s
    end at 2,048.

    The vendor's table contradicts itself: with 2 x 400 Gb/s per GPU on two planes there are two links per GPU, and
    its leaf count has ports for two, but its column of node-leaf cables has one.  It counts the twin-port plug at the
    GPU.
    """
    published, gpus = B300["published_answer"]["value"], B300["inputs"]["gpus"][place]
    planes, speed, radix = fabric.port(800.0, 51200.0, 400.0)
    assert (planes, speed, radix) == (2, 400, 128)
    found = fabric.counts(gpus, radix, planes=planes)
    assert (found.leaf, found.spine, found.core, found.tiers) == (published["leaf"][place], published["spine"][place], 0, 2)
    assert published["node_leaf"][place] == gpus and found.node_leaf_cables == 2 * gpus  # the contradiction
    assert found.leaf * radix / 2 == 2 * gpus  # ports below the leaves that the table itself buys
    assert fabric.counts(gpus, 64).tiers == (2 if gpus <= 2048 else 3)


@pytest.mark.parametrize("gpus, leaf, spine", [(576, 8, 4), (1152, 16, 8), (2304, 32, 18), (4608, 64, 36), (10368, 144, 72)])
def test_superpod_b300_xdr(gpus, leaf, spine):
    """One plane of 800 Gb/s on switches of 144 ports (docs.nvidia.com/dgx-superpod, scalable-infrastructure-b300-xdr,
    table 3).

    2,304 GPUs: 16 spines would carry the cables, 18 divide the 72 uplinks, and the table has 18.  The last row
    contradicts itself: it prints 9,216 GPUs, but 1,296 nodes, 144 leaves and 10,368 cables, which are those of
    1,296 x 8 = 10,368.
    """
    assert row(fabric.counts(gpus, radix=144)) == (leaf, spine, 0, gpus, gpus, 0)
    assert 1296 * 8 == 10368 and fabric.counts(9216, radix=144).leaf == 128


SHEET = {  # nodes: switches, million USD of switches, of cables and optics
    128: (48, 1.728, 2.621440), 256: (96, 3.456, 5.242880), 512: (192, 6.912, 10.485760), 1024: (384, 13.824, 20.971520),
    2048: (768, 27.648, 41.943040), 4096: (2560, 92.160, 124.518400), 8192: (5120, 184.320, 249.036800),
}  # fmt: skip


@pytest.mark.parametrize("nodes", SHEET)
def test_cost_sheet_rows(nodes):
    """Rows of the SHEET: separate rails of two tiers up to 2,048 nodes, three tiers beyond.

    Switches to the last one, and money: switches within 1 % (1.4 USD per Gb/s is 35,840 a switch), optics and cables
    within 2 % (the third hop is 1,240 USD there, 1,280 here).
    """
    switches, switch_million, optics_million = SHEET[nodes]
    design = fabric.RAIL_ONLY if nodes <= 2048 else fabric.FAT_TREE
    x = inputs(gpus=8 * nodes, switch_gbps=25600.0, planes=1, fabric_design=design)
    assert fabric.network(x).counts.switches == switches
    usd = fabric.network_usd(x)
    assert usd[0] == pytest.approx(switch_million * 1e6, rel=0.01)
    assert usd[1] == pytest.approx(optics_million * 1e6, rel=0.02)


def test_cost_sheet_of_august_2024():
    """1,024 H100 on 64-port switches: 48 switches of 36,000 USD, and 2,621,440 USD of optics and cables (the SHEET of
    quantities).
    """
    x = inputs(switch_gbps=25600.0)
    found, _, _speed, radix = fabric.network(x)
    switches, cables, nics = fabric.network_usd(x)
    assert found.switches == 48 and radix == 64
    assert switches == pytest.approx(48 * 36000, rel=0.01)
    assert cables == pytest.approx(2621440, rel=1e-9)
    assert fabric.cost(x).fabric_usd_per_gpu == pytest.approx((switches + cables + nics) / 1024)


# Insights into DeepSeek-V3, arXiv 2505.09343, table 3: endpoints, switches, links between switches, million USD
TOPOLOGIES = {"FT2": (2048, 96, 2048, 9), "MPFT": (16384, 768, 16384, 72), "FT3": (65536, 5120, 131072, 491)}


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_topologies_of_64_ports(name):
    """Two tiers, eight planes of two tiers (a rail each), three tiers: counts exactly, and its prices within 15 % of
    ours.

    They come from another source than ours (Slim Fly's cost model); 4.39 thousand USD per endpoint there, 4.25 here.
    """
    endpoints, switches, links, million = TOPOLOGIES[name]
    design = fabric.RAIL_ONLY if name == "MPFT" else fabric.FAT_TREE
    x = inputs(gpus=endpoints, switch_gbps=25600.0, planes=1, fabric_design=design)
    built = fabric.network(x)
    assert built.counts.switches == switches
    assert built.counts.leaf_spine_cables + built.counts.spine_core_cables == links
    assert sum(fabric.network_usd(x)[:2]) / 1e6 == pytest.approx(million, rel=0.15)


def test_twin_planes_where_they_save_a_tier():
    """800 Gb/s for 4,096 GPUs: two planes of 400 need two tiers, one plane of 800 three (the B300 design)."""
    chosen, forced = fabric.network(inputs(gpus=4096, link_gbps=800.0)), inputs(gpus=4096, link_gbps=800.0, planes=1)
    assert (chosen.planes, chosen.counts.tiers) == (2, 2) and fabric.network(forced).counts.tiers == 3
    assert (
        fabric.cost(inputs(gpus=4096, link_gbps=800.0)).fabric_usd_per_gpu
        < 0.8 * fabric.cost(forced).fabric_usd_per_gpu
    )
    assert fabric.network(inputs(gpus=1024, link_gbps=800.0)).planes == 1


def test_faster_ports_need_more_tiers():
    """A chip of 25.6 Tb/s joins 16,384 accelerators in two tiers at 100 Gb/s and not at 400; the step in price is the
    third tier.
    """
    usd = {}
    for link in (100, 200, 400):
        x = inputs(gpus=16384, link_gbps=float(link), switch_gbps=25600.0, cable_usd=0.0, planes=1)
        found, *_ = fabric.network(x)
        usd[link] = fabric.cost(x).fabric_usd_per_gpu / link
        assert found.tiers == (2 if link == 100 else 3)
    assert usd[200] > 1.3 * usd[100] and usd[400] == pytest.approx(usd[200])


def test_rail_only_saves_the_tier_between_rails():
    optimised = fabric.counts(16384, 64)
    only = fabric.counts(16384, 64, design=fabric.RAIL_ONLY)
    assert (optimised.tiers, only.tiers) == (3, 2)
    assert only.switches / optimised.switches == pytest.approx(0.6)  # 3/64 against 5/64 per port


def test_oversubscription_of_the_top_tier():
    """Llama 3's 24,576 GPUs: pods of 3,072 at full bisection under a top tier of 1:7 (arXiv 2407.21783, section
    3.3.1).
    """
    full = fabric.counts(24576, 128, design=fabric.FAT_TREE)
    thin = fabric.counts(24576, 128, design=fabric.FAT_TREE, oversubscription=7.0, pod_gpus=3072)
    assert thin.tiers == full.tiers == 3
    assert thin.leaf_spine_cables == 24576 and thin.spine_core_cables == pytest.approx(24576 / 7, rel=0.02)
    assert fabric.counts(2048, 128, oversubscription=7.0, pod_gpus=3072) == fabric.counts(2048, 128)


def test_money_and_watts():
    """Capital over its life plus energy: by hand for one point."""
    x = inputs()
    cost = fabric.cost(x)
    assert cost.watts_per_gpu == pytest.approx((1275 + 400 * (3 * 0.018 + 2 * 0.0425 + 0.06)) * 1.25)
    assert cost.fabric_usd_per_gpu == pytest.approx(400 * (3 * 1.4 + 2 * 3 + 4) + 2 * 80)
    capital = (37000 + cost.fabric_usd_per_gpu) / (4 * 365.25 * 86400)
    assert cost.usd_per_second_per_gpu == pytest.approx(capital + cost.watts_per_gpu / 1000 * 0.08 / 3600)


sizes = st.integers(1, 20000)
designs = st.sampled_from([fabric.FAT_TREE, fabric.RAIL_OPTIMISED, fabric.RAIL_ONLY])


@settings(max_examples=300, deadline=None)
@given(
    gpus=sizes,
    radix=st.integers(16, 256),
    design=designs,
    rails=st.sampled_from([1, 4, 6, 8]),
    split=st.sampled_from([1.0, 2.0, 3.0, 7.0]),
)
def test_the_counts_can_be_wired(gpus, radix, design, rails, split):
    """Every switch has the ports its cables need, and without oversubscription each tier carries all of the tier
    below.
    """
    found = fabric.counts(gpus, radix, design, rails, oversubscription=split)
    if not found.fits:
        return
    below, above = found.node_leaf_cables, found.leaf_spine_cables
    assert found.leaf * radix >= below + above
    assert found.spine * radix >= above + found.spine_core_cables
    assert found.core * radix >= found.spine_core_cables
    thinnest = above if found.tiers == 2 else found.spine_core_cables
    if found.tiers > 1:
        assert thinnest * split >= gpus * (1 - 1e-12)
        assert found.tiers == 2 or above >= gpus
    copies = rails if design == fabric.RAIL_ONLY else 1
    if found.tiers == 2:
        _wire(int(found.leaf / copies), int(found.spine / copies), int(above / found.leaf), radix)


def _wire(leaves, spines, uplinks, radix):
    """Cables laid one by one, each leaf round all spines: no spine runs out of ports, and every leaf reaches every
    spine.
    """
    used = np.zeros(spines, int)
    for leaf in range(leaves):
        for cable in range(uplinks):
            used[(cable + leaf * uplinks) % spines] += 1
    assert used.max() <= radix and uplinks >= spines


@settings(max_examples=50, deadline=None)
@given(gpus=st.lists(sizes, min_size=1, max_size=4), links=st.lists(st.floats(25, 3200), min_size=1, max_size=4))
def test_arrays_and_numbers_agree(gpus, links):
    together = fabric.cost(inputs(gpus=np.array(gpus, float)[:, None], link_gbps=np.array(links)))
    for i, n in enumerate(gpus):
        for j, link in enumerate(links):
            alone = fabric.cost(inputs(gpus=float(n), link_gbps=link))
            for one, many in zip(alone, together):
                assert np.broadcast_to(many, (len(gpus), len(links)))[i, j] == pytest.approx(float(one), rel=1e-12)


def test_a_faster_network_never_costs_less_on_real_ports():
    links = np.array([100.0, 200, 400, 800, 1600, 3200])
    for gpus in (64, 1024, 4096, 32768):
        usd = fabric.cost(inputs(gpus=float(gpus), link_gbps=links)).fabric_usd_per_gpu
        assert np.all(np.diff(usd) > 0)


def test_one_switch_is_bought_as_large_as_needed():
    """16 accelerators pay for 16 ports, not for a switch of 128."""
    x = inputs(gpus=16)
    assert fabric.network(x).counts.tiers == 1
    assert fabric.network_usd(x)[0] == pytest.approx(16 * 400 * 1.4)


def test_link_rate_is_in_si():
    assert fabric.network(inputs(link_gbps=400.0))[2] == 400 * GBPS
