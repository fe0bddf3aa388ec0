"""The cost-optimal port against a law that can be solved by hand, and the shopping list against its parts."""

import json

import numpy as np
import pytest
import xarray as xr

import sweep
from sweep import capacities, economics, fabrics, moneysheets, servings
from sweep.cli import main
from sweep.errors import SweepError

LINKS = np.array([50.0, 100, 200, 400, 800])


def by_hand(owned=40000.0, per_gbps=10.0, enough=300.0, life=4 * 365.25 * 86400):
    """A step that takes 1 s beyond ``enough`` Gb/s and enough/link below it, at 1,000 tokens a second."""
    rate = 1000.0 * np.minimum(LINKS / enough, 1.0)
    usd = (owned + per_gbps * LINKS) / life / rate * 1e6
    return xr.Dataset(
        {
            "usd_per_million_tokens": ("link_gbps", usd),
            "tokens_per_s_per_gpu": ("link_gbps", rate),
            "status": ((), np.uint8(0), {"flag_values": [0, 1], "flag_meanings": "ok gpus"}),
        },
        {"link_gbps": ("link_gbps", LINKS, {"units": "Gb/s"})},
    )


def test_the_optimum_is_the_first_port_that_is_enough():
    row = economics.table(by_hand()).iloc[0]
    assert (row.cost_optimal_link_gbps, row.flat_low_link_gbps, row.flat_high_link_gbps) == (400, 400, 400)
    assert row.worth_usd_per_gbps == pytest.approx(0) and row.price_usd_per_gbps == pytest.approx(10)


def test_worth_and_price_of_the_next_gbps():
    """From 100 to 200 Gb/s the step halves: ln 2 of 41,500 USD for 100 Gb/s, at a price of 10 each."""
    found = economics.next_gbps(by_hand()).sel(link_gbps=100.0)
    assert float(found.worth_usd_per_gbps) == pytest.approx(np.log(2) * 41500 / 100)
    assert float(found.price_usd_per_gbps) == pytest.approx(10)
    assert float(found.next_link_gbps) == 200


def test_worth_passes_below_price_exactly_at_the_optimum():
    rng = np.random.default_rng(3)
    for _ in range(50):
        ds = by_hand(rng.uniform(1e4, 1e5), rng.uniform(1, 100), rng.uniform(40, 900))
        best = float(economics.best_ports(ds).cost_optimal_link_gbps)
        more = economics.next_gbps(ds)
        pays = more.worth_usd_per_gbps > more.price_usd_per_gbps
        assert np.array_equal(pays.values, LINKS[:-1] < best)


def test_a_flat_region():
    """A network that costs nothing: every port from enough upwards is as good as any."""
    found = economics.best_ports(by_hand(per_gbps=0.0, enough=100.0))
    assert (float(found.flat_low_link_gbps), float(found.flat_high_link_gbps)) == (100, 800)


def test_what_cannot_run_is_left_out():
    ds = by_hand()
    ds["status"] = (
        "link_gbps",
        np.array([0, 0, 0, 1, 0], np.uint8),
        {"flag_values": [0, 1], "flag_meanings": "ok gpus"},
    )
    assert float(economics.best_ports(ds).cost_optimal_link_gbps) == 800
    with pytest.raises(SweepError, match="link_gbps does not vary"):
        economics.table(ds.isel(link_gbps=0))


def test_a_token_in_dollars_and_joules():
    """By hand: capital over its life and energy per second, over tokens per second; prices are inputs."""
    names = ["usd_per_million_tokens", "joules_per_token", "watts_per_gpu", "fabric_usd_per_gpu", "tokens_per_s_per_gpu"]
    case = {"model": "llama-3-70b", "accelerator": "h100", "tp": 8, "gpus": 1024, "efficiency": 0.4, "link_gbps": 400}
    got = {name: float(value) for name, value in sweep.evaluate(**case, outputs=names).items()}
    assert got["joules_per_token"] == pytest.approx(got["watts_per_gpu"] / got["tokens_per_s_per_gpu"])
    per_second = (37000 + got["fabric_usd_per_gpu"]) / (4 * 365.25 * 86400) + got["watts_per_gpu"] / 1000 * 0.08 / 3600
    assert got["usd_per_million_tokens"] == pytest.approx(per_second / got["tokens_per_s_per_gpu"] * 1e6)
    longer = sweep.evaluate(**case, amortisation_years=8, usd_per_kwh=0, outputs=names)
    assert float(longer.usd_per_million_tokens) == pytest.approx((37000 + got["fabric_usd_per_gpu"]) / (8 * 365.25 * 86400) / got["tokens_per_s_per_gpu"] * 1e6)


def test_generations_and_their_ports():
    """Llama 3 70B, 8,192 tokens per eight GPUs, 1,024 GPUs: the port that a token is cheapest with is the one each
    ships with.
    """
    ds = sweep.evaluate(
        model="llama-3-70b", accelerator=["v100", "a100", "h100", "b200"], tp=8, gpus=1024, efficiency=0.4,
        link_gbps=[25, 50, 100, 200, 400, 800, 1600], outputs=["usd_per_million_tokens", "tokens_per_s_per_gpu"],
    )  # fmt: skip
    found = economics.table(ds, allow=["memory"])
    assert found.cost_optimal_link_gbps.tolist() == [50, 200, 400, 800]
    assert found.flat_low_link_gbps.tolist() == [50, 100, 400, 800]
    assert found.flat_high_link_gbps.tolist() == [50, 200, 400, 800]
    text = economics.words(ds, {"accelerator": "h100"}, ["memory"])
    assert "with a port of 400 Gb/s" in text and "One step less, 200 Gb/s, costs +" in text


def test_a_design_adds_up():
    design = fabrics.design(1024, 400)
    rows = design.rows()
    assert rows[-1]["usd"] == pytest.approx(sum(row["usd"] for row in rows[:-1]), abs=len(rows))
    assert {row["network"] for row in rows} == {"compute", "storage", "in-band", "out-of-band", "all"}
    compute = fabrics.design(1024, 400, "compute")
    assert compute.usd / 1024 == pytest.approx(
        float(
            sweep.evaluate(
                params=1e9, accelerator="h100", gpus=1024, link_gbps=400, outputs=["fabric_usd_per_gpu"]
            ).fabric_usd_per_gpu
        )
    )
    with pytest.raises(SweepError, match="is none"):
        fabrics.design(1024, networks="tape")
    with pytest.raises(SweepError, match="rail-only"):
        fabrics.design(1024, fabric_design="torus")


@pytest.mark.parametrize(
    "settings", [{}, {"fabric_design": "rail-only", "switch_gbps": 12800}, {"switch_gbps": 6400, "planes": 2}]
)
def test_the_drawing(tmp_path, settings):
    from sweep import topologies

    path = tmp_path / "fabric.svg"
    drawing = topologies.draw(fabrics.design(1024, 400, **settings), path)
    assert "leaf switches" in path.read_text() and drawing.key["gpus"] == 1024


def test_serving_says_which_patterns_need_the_network():
    dense = servings.patterns("llama-3-70b", "h100")
    assert [row["needs"] for row in dense] == ["no network"] * 3 + ["no port helps: latency", "a quarter of the port at most"]
    moe = servings.patterns(
        "deepseek-v3", "h800", dispatch_bytes=1, combine_bytes=2, param_bytes=1, decode_batch=64, seq_len=4096
    )
    assert {row["pattern"]: row["needs"] for row in moe}[
        "experts over 64 GPUs, two micro-batches (8 domains)"
    ] == "the training port"
    assert all(row["kv_gbps"] < 20 for row in dense + moe)
    wide = servings.patterns("deepseek-v3", "gb200", decode_batch=64)
    assert [row["decode_gbps"] for row in wide[:4]] == [0] * 4 and wide[-1]["pattern"].endswith("(2 domains)")


@pytest.mark.parametrize("settings, said", [
    ({"tp": 3}, "does not divide the 64 heads"), ({"ep": 8}, "has no experts"), ({"decode_batch": [1, 2]}, "one value"),
])  # fmt: skip
def test_layouts_that_no_one_serves(settings, said):
    with pytest.raises(SweepError, match=said):
        servings.patterns("llama-3-70b", "h100", **settings)


def test_patterns_and_ceilings_are_drawn(tmp_path):
    """A bar per exchange that leaves the domain, the port as a line; ceilings that rise with the pool and the target."""
    from sweep import moneyplots

    rows = servings.patterns("llama-3-70b", "h100")
    drawing = moneyplots.draw_patterns([servings.group("llama-3-70b", "h100", rows)], tmp_path / "patterns.svg")
    area = drawing.figure.axes[0]
    asked = sum(row[name] > 0 for row in rows for name, *_ in moneyplots.EXCHANGES)
    assert len(area.patches) == asked and area.lines[0].get_xdata()[0] == 400
    assert "no port" in [text.get_text() for text in area.texts]
    data = moneyplots.draw_ceiling(capacities.Mix((8, 64), (3, 1)), tmp_path / "ceiling.png").data
    busy = data.utilisation.values
    assert (np.diff(busy, axis=0) >= 0).all() and busy[2, -1] > 0.95 and (busy[-1] <= data.usable_utilisation.values + 1e-9).all()


def test_fleets_and_pools_in_words():
    demand = capacities.Demand(200.0, 10.0, 64, 0.3)
    rows = capacities.fleet_waits(demand, 0.5)
    meeting = [row["replicas"] for row in rows if row["meets"]]
    assert min(meeting) == capacities.fleet(demand, 0.5) == 42 and "42 replicas" in capacities.fleet_words(demand, 0.5)
    assert "sharing saves" in capacities.pool_words((100, 200, 300), 4.0)


def test_capacity_in_hours():
    mix = capacities.Mix((8, 64), (3, 1), job_hours=10.0)
    found = capacities.limits(1024, 2.0, mix)
    rows = capacities.waits(1024, mix, [found["mean"] - 1e-6, found["mean"] + 0.01])
    assert rows[0]["wait_hours"] <= 2.0 < rows[1]["wait_hours"]
    assert found["p99"] < found["mean"] < found["endless"]
    with pytest.raises(SweepError, match="more than"):
        capacities.waits(32, mix)


@pytest.mark.parametrize("arguments", [
    ["fabric", "--gpus", "1024", "--link-gbps", "400"],
    ["serve", "model=llama-3-70b", "accelerator=h100", "tp=8"],
    ["serve", "model=llama-3-70b", "accelerator=h100", "/", "model=deepseek-v3", "accelerator=h800"],
    ["fleet", "--peak", "200", "--seconds", "10", "--concurrency", "64", "--headroom", "0.3"],
    ["capacity", "--gpus", "1024", "--gangs", "8,64", "--busy", "700", "--growth", "0.3"],
])  # fmt: skip
def test_verbs(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        main([*arguments, "--format", "json"])
    assert stop.value.code == 0
    assert json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("line, said", [
    ("fabric --gpus 1024 --set planes=0", "at least 1"), ("fabric --gpus 1024 --set link_gbps=800", "--link-gbps 800"),
    ("fabric --gpus 1024 --set tp=8", "does not depend"), ("fabric --gpus 1024 --link-gbps nan", "finite"),
    ("fabric --gpus 1024 --set planes=[1,2]", "one value"), ("fabric --gpus 1024 --networks tape", "Known"),
    ("serve model=llama-3-70b accelerator=h100 tp=3", "does not divide"), ("serve model=llama-9 accelerator=h100", "Did you mean"),
    ("serve model=llama-3-70b accelerator=h100 decode_batch=[1,2]", "one value"), ("serve llama-3-70b h100", "has no '='"),
    ("capacity --gpus 64 --gangs 128", "more than"), ("capacity --gpus 64 --gangs 8,x", "no list"),
    ("capacity --gpus 64 --gangs 8,16 --shares 1,-1", "above 0"), ("capacity --gpus 64 --job-hours 0", "job-hours"),
    ("capacity --gpus 64 --arrival-cv nan", "finite"), ("capacity --gpus 64 --busy 9 --growth -1", "growth"),
    ("fleet --peak 200 --seconds nan", "finite"), ("fleet --peak -1 --seconds 10", "peak"), ("economics nowhere", "no such store"),
])  # fmt: skip
def test_what_newcomers_mistype_is_said_in_one_line(line, said, capsys):
    with pytest.raises(SystemExit) as stop:
        main(line.split())
    err = capsys.readouterr().err.strip().splitlines()[-1]
    assert stop.value.code == 2 and err.startswith("error: ") and said in err


@pytest.mark.parametrize("topic, inputs, said", [
    ("money", {"model": "llama-3-70b", "accelerator": "h100", "tp": 8, "gpus": 1024, "efficiency": 0.4}, "least with a port of 400 Gb/s"),
    ("serving", {"model": "llama-3-70b", "accelerator": "h100", "tp": 16, "gpus": 1024}, "no port helps"),
    ("capacity", {"params": 1e9, "accelerator": "h100", "gpus": 1024, "job_gpus": 64}, "busy hour costs"),
    ("stragglers", {"params": 1e9, "accelerator": "h100", "gpus": 16384, "rank_cv": 0.02}, "port_down_fraction"),
    ("fabric", {"model": "llama-3-70b", "accelerator": "h100", "tp": 8, "gpus": 24576, "pod_gpus": 3072, "efficiency": 0.4}, "Llama 3 ran 1:7"),
    ("tensor", {"model": "llama-3-70b", "accelerator": "h100", "tp": 8, "gpus": 1024, "efficiency": 0.4}, "twice tp is twice the share"),
])  # fmt: skip
def test_worked_answers(topic, inputs, said):
    sheet = moneysheets.about(topic, **inputs)
    assert said in sheet.text() + json.dumps(sheet.to_dict())
    assert sheet.latex() and sheet.markdown()


def lines_of(sheet, title):
    """Lines by their words and tables of the section with ``title``."""
    section = next(one for one in sheet.sections if title in one.title)
    tables = [item for item in section.items if hasattr(item, "rows")]
    return {item.words: item.value for item in section.items if hasattr(item, "words")}, tables


def test_the_worked_network_adds_up():
    """Tiers and network cards by hand are the network's price, and a worked collective is what the step exposes."""
    point = {"model": "llama-3-70b", "accelerator": "h100", "gpus": 1024, "efficiency": 0.4}
    lines, (tiers,) = lines_of(moneysheets.about("fabric", **point, tp=8), "Switches")
    usd = sum(row[3] for row in tiers.rows) / 1024
    got = sweep.evaluate(**point, tp=[8, 16], outputs=["fabric_usd_per_gpu", "exposed_tp_s"])
    assert usd == pytest.approx(float(lines["per accelerator"])) == pytest.approx(float(got.fabric_usd_per_gpu))
    assert sum(row[5] for row in tiers.rows) == pytest.approx(1)
    for place, tp in enumerate((8, 16)):
        each = lines_of(moneysheets.about("tensor", **point, tp=tp), "One block")[0]["exposed, each"]
        assert 4 * 80 * each == pytest.approx(float(got.exposed_tp_s[place]), rel=1e-9)


def test_tensor_parallelism_its_own_answer():
    """Twice tp costs about twice the share, in any domain: bytes stay and FLOP halve.  One port for eight GPUs is
    what is terrible.
    """
    shape = {
        "hidden": 8192,
        "ffn": 32768,
        "heads": 64,
        "kv_heads": 64,
        "layers": 80,
        "vocab": 0,
        "accelerator": "h100",
        "dp": 1,
        "efficiency": 0.4,
    }

    def share(**machine):
        return sweep.evaluate(
            **shape, **machine, link_gbps=400, tp=[1, 4, 8, 16], outputs=["exposed_fraction"]
        ).exposed_fraction.values

    domain, ports, one = share(scaleup_domain=72), share(scaleup_domain=8), share(scaleup_domain=8, rails="one")
    assert domain[0] == 0 and 1.6 < domain[2] / domain[1] < 2.4 and 1.6 < domain[3] / domain[2] < 2.4
    assert ports[3] == pytest.approx(domain[3], rel=0.2) and one[3] > 2 * domain[3]
    assert ports[2] == pytest.approx(domain[2]) == pytest.approx(one[2])
    hidden = share(scaleup_domain=72, tp_overlap_chunks=8)
    assert hidden[2] < domain[2] / 4


def test_only_groups_that_cross_pods_pay_for_a_thin_top_tier():
    """Experts over 64 GPUs inside a pod of 3,072 pay nothing; over pods of a domain their dispatch takes seven times as long."""
    case = {"model": "deepseek-v3", "accelerator": "h100", "ep": 64, "gpus": 6144, "efficiency": 0.4, "link_latency_us": 0, "scaleup_latency_us": 0}
    names = ["exposed_ep_s", "decode_ep_s"]

    def share(pod, split):
        found = sweep.evaluate(**case, pod_gpus=pod, oversubscription=split, outputs=names)
        return np.array([float(found[name]) for name in names])

    assert share(3072, 7) == pytest.approx(share(3072, 1), rel=1e-12)
    assert share(8, 7) == pytest.approx(7 * share(8, 1), rel=1e-9)
    assert share(64, 7) == pytest.approx(share(64, 1))  # a pod of eight domains holds them all
    assert share(32, 7) == pytest.approx((1 + 6 * 32 / 56) * share(32, 1))  # of 56 peers in other domains 32 are in the other pod


def test_would_another_fabric_change_it():
    """The port at tolerance follows load balance; a top tier of 1:7 above pods of 3,072 hardly matters to a
    hierarchical reduction.
    """
    fabrics_ = ["ideal", "infiniband", "spectrum-x", "roce", "roce-ecmp"]
    ds = sweep.evaluate(
        model="llama-3-70b", accelerator="h100", tp=8, gpus=24576, pod_gpus=3072, efficiency=0.4, fabric=fabrics_,
        oversubscription=[1, 7], outputs=["link_gbps_at_tolerance"],
    )  # fmt: skip
    ports = ds.link_gbps_at_tolerance.transpose("fabric", "oversubscription").values
    assert np.all(np.diff(ports[:, 0]) > 0) and ports[-1, 0] > 1.5 * ports[1, 0]
    assert np.all(ports[:, 1] < 1.03 * ports[:, 0])
