"""The worked answer: its numbers are the model's, its factors multiply, its equations exist, and it needs no jax."""

import json
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest

import sweep
from sweep import explanations
from sweep._kernels import model, quantities
from sweep.worksheets import Line, amount, mathematics, number

ROOT = Path(__file__).resolve().parent.parent
DESIGNS = {
    "dense": dict(model="llama-3-70b", accelerator="h100", tp=8, dp=128),
    "first order": dict(
        params=70e9, accelerator="h100", tp=8, dp=4096, fabric="ideal", efficiency=0.4, scaleup_gbytes_per_s=math.inf
    ),
    "one domain": dict(model="llama-3-8b", accelerator="h100", dp=8),
    "zero-1": dict(
        model="llama-3-8b", accelerator="a100", dp=64, zero_stage=1, overlap_slowdown=0.1, comm_slowdown=0.2
    ),
    "fsdp": dict(model="llama-3-8b", accelerator="h100", dp=64, zero_stage=3),
    "hsdp": dict(model="llama-3-8b", accelerator="h100", dp=64, zero_stage=3, shard_group=8, grad_bytes=4),
    "pipeline": dict(model="llama-3-405b", accelerator="h100", tp=8, pp=14, vpp=3, dp=16, micro_batches=28),
    "contended pipeline": dict(
        model="gpt-3-175b", accelerator="a100", tp=8, pp=8, dp=16, micro_batches=16, overlap_slowdown=0.1
    ),
    "zero bubble": dict(model="gpt-3-175b", accelerator="a100", tp=8, pp=8, dp=16, micro_batches=16, schedule="zb-h1"),
    "experts": dict(model="mixtral-8x7b", accelerator="h100", ep=8, pp=4, dp=64, micro_batches=16),
    "experts on the port": dict(model="deepseek-v3", accelerator="h100", ep=64, dp=128, recompute="full"),
    "context": dict(model="llama-3-8b", accelerator="h100", cp=4, tp=2, dp=16, seq_len=65536),
    "diloco": dict(model="llama-3-8b", accelerator="h100", dp=64, sync_every=50, sync_fragments=4),
    "impossible": dict(model="llama-3-8b", accelerator="h100", tp=3, dp=8, pp=5),
    "latency-bound": dict(model="llama-3-8b", accelerator="h100", dp=4096, micro_batch=0.01, link_latency_us=50),
    "oversubscribed": dict(
        model="llama-3-8b",
        accelerator="gb200",
        dp=512,
        oversubscription=4,
        pod_gpus=144,
        channels=8,
        link_efficiency=0.9,
    ),
}


@pytest.fixture(scope="module", params=DESIGNS, ids=str)
def worked(request):
    return sweep.explain(**DESIGNS[request.param])


def lines(explanation):
    return [item for section in explanation.worksheet.sections for item in section.items if isinstance(item, Line)]


def test_outputs_are_those_of_the_model(worked):
    values = model.evaluate(worked.point.inputs, quantities.STEP_OUTPUTS)
    for name, value in worked.outputs.items():
        assert value == pytest.approx(float(values[name]), rel=1e-12, nan_ok=True), name


def test_named_lines_agree_with_the_outputs(worked):
    """Every line that carries the name of an output shows that output (per cents apart)."""
    checked = 0
    for line in lines(worked):
        if line.name in worked.outputs:
            scale = 100 if line.unit == "%" else quantities.OUTPUTS[line.name].scale if line.unit == "FLOP/s" else 1
            assert float(line.value) == pytest.approx(scale * worked.outputs[line.name], rel=1e-12), line.name
            checked += 1
    assert checked >= 9


def test_factors_multiply_to_the_whole_ratio(worked):
    product = worked.first_order_gbps
    for step in worked.steps:
        product *= step.factor
        if step.factor == step.factor and math.isfinite(product):
            assert product == pytest.approx(step.gbps, rel=1e-12)
    assert worked.steps[-1].gbps == worked.outputs["link_gbps_at_tolerance"]
    assert worked.steps[-2].gbps == worked.outputs["required_link_gbps"]


def test_the_requirement_is_bytes_over_what_is_left_of_the_window(worked):
    found = {line.name: line.value for line in lines(worked)}
    required = worked.outputs["required_link_gbps"]
    if 0 < required < math.inf:
        rate = (
            found["port_bytes"]
            / (found["window_s"] - found["fixed_s"])
            / worked.point.x.link_efficiency
            / quantities.GBPS
        )
        assert rate == pytest.approx(required, rel=1e-9)


def test_the_worked_terms_sum_to_what_is_exposed(worked):
    p = worked.point
    if not p.impossible:
        total = sum(float(term.times) * p.binding(term, p.u)[1] for term in p.way.terms)
        assert total == pytest.approx(worked.outputs["exposed_dp_s"], rel=1e-9, abs=1e-15)


def test_every_input_is_stated_with_its_source(worked):
    stated = {given.name: given for given in worked.point.given}
    names = list(quantities.INPUTS)
    step = names[: names.index("tolerance") + 1]
    assert set(step) - {"params"} <= set(stated)
    fixed = worked.point.spec.fixed
    assert all(stated[name].source == "given" for name in fixed if name in stated)
    text = worked.text()
    flat = " ".join(text.split())
    assert all(f"{name} " in flat for name, given in stated.items() if given.value is not None)


def test_every_equation_is_in_the_kernels_readme(worked):
    known = set(re.findall(r"\((\d+\.\d+)\)", (ROOT / "kernels" / "README.md").read_text(encoding="utf-8")))
    named = {section.equation for section in worked.worksheet.sections} | {line.equation for line in lines(worked)}
    wanted = {label for text in named for label in re.findall(r"\d+\.\d+", text)}
    assert wanted and wanted <= known


def test_formats(worked):
    content = json.loads(worked.render("json"))
    assert content["outputs"]["status"] in quantities.REASONS
    assert content["status"] == (worked.point.reasons or ["ok"])
    assert worked.markdown().startswith("# ") and str(worked) == worked.text()
    tex = worked.latex()
    assert tex.count(r"\begin{tabular}") == tex.count(r"\end{tabular}") and "nan" not in worked.text()
    assert max(map(len, worked.text().splitlines())) <= 260


def test_sections_by_word():
    worked = sweep.explain(**DESIGNS["dense"])
    text = worked.render("text", ["memory", "first order to full"])
    assert text.count("----\n") == 2 and "tail" in text and "workspace" in text
    with pytest.raises(sweep.SweepError, match="no title holds 'memry'.*Memory and status"):
        worked.render("text", ["memry"])


def test_all_reasons_are_named():
    worked = sweep.explain(**DESIGNS["impossible"])
    assert worked.point.reasons[:2] == ["heads", "layers"]
    assert (
        "status heads" in worked.text() and "status layers" in worked.text() and "No such run exists" in worked.text()
    )


def test_terms_are_what_they_are_called():
    """Each feature alone changes its own factor and leaves the others of the ideal design at one."""
    base = DESIGNS["first order"] | {"params": None, "model": "llama-3-8b", "tp": 1}
    features = {
        "latency": {"link_latency_us": 2.0},
        "port efficiency": {"link_efficiency": 0.8},
        "contention": {"overlap_slowdown": 0.2, "comm_slowdown": 0.1},
        "sharding": {"zero_stage": 1},
        "schedule": {"schedule": "zb-h1", "pp": 4, "micro_batches": 8},
        "synchronisation": {"sync_every": 100},
        "compute": {"efficiency": None, "gemm_efficiency": 0.6},
    }
    plain = {step.name: step.factor for step in sweep.explain(**base).steps}
    for name, change in features.items():
        steps = {step.name: step.factor for step in sweep.explain(**base | change).steps}
        assert abs(math.log(steps[name])) > 1e-3, name
        others = {key for key in steps if key not in (name, "tail", "attention", "ends")}
        assert all(steps[key] == pytest.approx(plain[key], rel=1e-9) for key in others), (name, steps)


def test_traffic_is_window():
    steps = {step.name: step for step in sweep.explain(**DESIGNS["dense"] | {"efficiency": 0.4}).steps}
    assert steps["traffic"].factor < 0.95 and steps["attention"].factor == pytest.approx(0.928, abs=2e-3)
    assert steps["contention"].factor == 1.0


def test_levers_of_the_ideal_law():
    """Where P, tp and pp cancel: elasticity 1 in FLOP rate and gradient bytes, -1 in tokens, 0 in everything else."""
    worked = sweep.explain(**DESIGNS["first order"])
    slopes = {lever.name: lever.elasticity for lever in worked.levers}
    assert slopes["efficiency"] == pytest.approx(1, abs=1e-6) and slopes["grad_bytes"] == pytest.approx(1, abs=1e-6)
    assert slopes["micro_batch"] == pytest.approx(-1, abs=1e-6)
    assert {"bucket_bytes", "link_latency_us"}.isdisjoint(slopes)


def test_the_batch_tokens_and_replicas_for_which_the_port_is_enough():
    dense = DESIGNS["dense"] | {"efficiency": 0.4}

    def said(gbps):
        return " ".join(sweep.explain(**dense, link_gbps=gbps).render("text", ["would change"]).split())

    assert "No micro-batch up to 4,096 sequences makes a port of 0.001 Gb/s enough" in said(0.001)
    assert "is enough for any micro-batch" in said(1e4) and "up to dp" not in said(1e4)
    found = sweep.solve("micro_batch", allow=["memory"], **dense, link_gbps=200)
    exact = sweep.solve("tokens_per_domain", allow=["memory"], **dense, link_gbps=200)
    most = sweep.solve("dp", allow=["memory"], **{**dense, "dp": None}, link_gbps=200)
    assert f"from a micro-batch of {int(found.micro_batch)} sequences on" in said(200)
    assert f"{number(exact.tokens_per_domain.item())} tokens per domain" in said(200)
    assert f"up to dp {int(most.dp)}." in said(200)


def test_one_sentence_says_what_sets_it(worked):
    sentence = explanations.what_sets_it(worked)
    assert sentence.endswith(".") and sentence in worked.worksheet.sections[0].items


def test_needs_one_value_for_each_input():
    with pytest.raises(sweep.SweepError, match="one point takes one value"):
        sweep.explain(model="llama-3-8b", accelerator="h100", tp=[1, 2])


def test_amounts_and_formulas():
    assert (
        amount(4.31e-3, "s") == "4.31 ms"
        and amount(1.4e11, "byte") == "140 GB"
        and amount(386.33, "Gb/s") == "386.3 Gb/s"
    )
    assert amount(math.inf, "Gb/s") == "infinite Gb/s" and number(8192.0) == "8,192" and number(0.02) == "0.02"
    assert mathematics("2 (n_out - 1)/n_out V/n_in") == r"2 (n_{\mathrm{out}} - 1)/n_{\mathrm{out}} V/n_{\mathrm{in}}"
    assert mathematics("eta F/(4 tau)") == r"\eta F/(4 \tau)"


def test_explain_needs_no_jax():
    code = (
        "import sys; from sweep.cli import main\n"
        "try: main(['explain', 'model=llama-3-8b', 'accelerator=h100', 'dp=64'])\n"
        "except SystemExit as end: assert end.code == 0, end.code\n"
        "heavy = {'jax', 'xarray', 'zarr', 'dask', 'matplotlib'} & set(sys.modules); assert not heavy, heavy"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert ran.returncode == 0, ran.stderr
    assert "required port" in ran.stdout


@pytest.mark.parametrize(
    "words, said",
    [
        (["model"], "has no '='"),
        (["modl=llama-3-8b"], "Did you mean 'model'"),
        (["model=llama-3-8b", "model=x"], "given twice"),
        (["model=llama-3-8b", "accelerator=h100", "tp=many"], "is not a number"),
        (["model=llama-3-8b"], "there is no accelerator"),
    ],
)
def test_bad_input_is_one_line(words, said, capsys):
    from sweep.cli import main

    with pytest.raises(SystemExit) as end:
        main(["explain", *words])
    error = capsys.readouterr().err
    assert end.value.code == 2 and said in error and error.count("\n") == 1
