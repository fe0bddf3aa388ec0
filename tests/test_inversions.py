"""The question the other way round: exact at the answer and a step beyond, against trying every value one by one, and by the law."""

import json
import math

import numpy as np
import pytest
import strategies
from hypothesis import given, settings
from hypothesis import strategies as st

import sweep
from sweep import cli, inversions
from sweep._kernels import quantities
from sweep.errors import SweepError

LLAMA = dict(model="llama-3-70b", accelerator="h100", tp=8, efficiency=0.55, allow=["memory"])
IDEAL = dict(
    params=70e9, accelerator="h100", tp=8, dp=4096, seq_len=8192, efficiency=0.4, link_latency_us=0, scaleup_latency_us=0, algorithm="hierarchical",
    vocab=0, allow=["memory"],
)  # fmt: skip
TOKENS_400 = 7912  # of model.md section 1: what a port of 400 Gb/s asks for at 40 % of an H100's peak


def words(row):
    """A random design of the simulator's as a config says it."""
    found = {}
    for name, value in row.items():
        quantity = quantities.INPUTS[name]
        found[name] = (
            quantity.choices[int(value)]
            if quantity.choices
            else int(value)
            if quantity.kind != "float"
            else float(value)
        )
    return found


def one_by_one(inputs, name, values):
    """(value, required port) of every value at which a run exists, each evaluated alone."""
    for value in values:
        out = sweep.evaluate(["required_link_gbps"], **inputs, **{name: value})
        if quantities.REASONS[int(out.status)] in ("ok", "memory"):
            yield value, float(out.required_link_gbps)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name, find", [("micro_batch", "smallest"), ("dp", "largest"), ("channels", "smallest")])
def test_as_when_every_value_is_tried_alone(name, find, seed):
    for calibrated in (False, True):
        batch = strategies.designs(seed, 12, calibrated)
        k = (5 * seed + calibrated) % 12
        design = words({key: column[k] for key, column in batch.items()})
        if name == "dp":
            batch = 32 * design["micro_batch"] * design["pp"]
            design |= {
                "shard_group": None,
                "zero_stage": min(design["zero_stage"], 1),
                "ep": 1,
                "micro_batches": None,
                "global_batch": batch,
            }
        del design[name]
        needed = dict(one_by_one(design, name, range(1, 33)))
        finite = sorted({value for value in needed.values() if 0 < value < math.inf}) or [200.0]
        design["link_gbps"] = gbps = finite[len(finite) // 2]  # so that some hold and some do not, where they differ
        found = inversions.search(name, find=find, upto=32, allow=["memory"], **design).rows()[0]
        tried = {value: port <= gbps for value, port in needed.items()}
        order = sorted(tried, reverse=find == "largest")
        good = [value for value in order if tried[value]]
        if not tried:
            assert found["answer"] == "impossible"
        elif not good:
            assert found["answer"] == "never" and math.isnan(found[name])
        else:
            assert found[name] == good[0] and (found["answer"] == "always") == all(tried.values())
            before = order[: order.index(good[0])]
            assert found["further"] == before[-1] if before else math.isnan(found["further"])
            again = [value for value in order[order.index(good[0]) :] if not tried[value]]
            assert found["fails_again"] == again[0] if again else math.isnan(found["fails_again"])


CONDITIONS = (
    "required_link_gbps <= link_gbps",
    "link_gbps_at_tolerance <= link_gbps",
    "exposed_dp_s <= tolerance * step_time_s",
)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from([("micro_batch", "smallest"), ("seq_len", "smallest"), ("dp", "largest"), ("grad_bytes", "largest"), ("link_gbps", "smallest"), ("efficiency", "largest"), ("tokens_per_domain", "smallest")]),
    st.sampled_from(CONDITIONS), st.floats(50, 1600), st.sampled_from(["llama-3-8b", "mixtral-8x7b", "gpt-3-175b"]), st.sampled_from([1, 8]), st.sampled_from([0, 1, 3]),
)  # fmt: skip
def test_it_holds_at_the_answer_and_not_a_step_further(asked, where, gbps, name, tp, zero):
    what, find = asked
    design = dict(model=name, accelerator="h100", tp=tp, zero_stage=zero, dp=64, link_gbps=gbps)
    for given_twice in (what, *(["micro_batch"] if what == "tokens_per_domain" else [])):
        design.pop(given_twice, None)
    ds = inversions.solve(
        what,
        where,
        allow=["memory"],
        upto=256 if what in ("micro_batch", "dp") else 4096 if what == "seq_len" else None,
        **design,
    )
    word = inversions.WORDS[int(ds.answer)]
    assert f"the {find}" in ds.attrs["title"]
    if word != "found":
        assert word in ("always", "never", "impossible") and (math.isnan(ds[what]) != (word == "always"))
        return
    held = []
    if math.isnan(
        ds.further.item()
    ):  # the last value tried: it fails on the other side alone, as where dp fills no whole domain
        assert not math.isnan(ds.fails_again.item())
        return
    for value in (ds[what].item(), ds.further.item()):
        if what == "tokens_per_domain":
            inputs = design | {"micro_batch": ds.micro_batch.item() * (1.0 if not held else 1 - 1e-13)}
        else:
            inputs = design | {what: int(value) if quantities.INPUTS[what].kind == "int" else value}
        out = sweep.evaluate(["required_link_gbps", "link_gbps_at_tolerance", "exposed_dp_s", "step_time_s"], **inputs)
        left, right = {
            CONDITIONS[0]: (out.required_link_gbps, inputs.get("link_gbps", gbps)), CONDITIONS[1]: (out.link_gbps_at_tolerance, inputs.get("link_gbps", gbps)),
            CONDITIONS[2]: (out.exposed_dp_s, 0.02 * out.step_time_s),
        }[where]  # fmt: skip
        held.append(float(left) / float(right))
    assert held[0] <= 1 + 1e-12 and held[1] > 1 - 1e-12
    if quantities.INPUTS.get(what, quantities.INPUTS["efficiency"]).kind == "float" and what != "micro_batch":
        assert ds.further.item() == pytest.approx(ds[what].item(), rel=1e-12)


def test_the_law_has_the_closed_form():
    """Section 1: 8 eta F / tau bit/s, so tau = 8 eta F / B, and (n - 1)/n <= B / B_inf for n domains."""
    closed = 8 * 0.4 * 989e12 / 400e9 * 4095 / 4096
    found = sweep.solve("tokens_per_domain", **IDEAL, link_gbps=400)
    assert found.first_order.item() == pytest.approx(closed, rel=1e-9) and round(closed) in (TOKENS_400 - 2, TOKENS_400)
    batch = sweep.solve("micro_batch", **IDEAL, link_gbps=150)
    assert batch.first_order.item() == math.ceil(8 * 0.4 * 989e12 / 150e9 * 4095 / 4096 / 8192)
    for gbps in (350.0, 380.0, 386.0):
        whole = {**IDEAL, "dp": None}
        dp = sweep.solve("dp", **whole, link_gbps=gbps)
        infinite = 8 * 0.4 * 989e12 / 8192 / 1e9
        assert dp.first_order.item() == math.floor(1 / (1 - gbps / infinite))
    assert inversions.WORDS[int(sweep.solve("dp", **{**IDEAL, "dp": None}, link_gbps=800).answer)] == "always"


def test_real_inverses_are_the_models_own():
    """The rate at which the condition begins to hold is the model's own closed inverse of it."""
    out = sweep.evaluate(
        ["required_link_gbps", "link_gbps_at_tolerance"], model="llama-3-8b", accelerator="h100", dp=64
    )
    for where, name in ((CONDITIONS[0], "required_link_gbps"), (CONDITIONS[2], "link_gbps_at_tolerance")):
        found = sweep.solve("link_gbps", where, model="llama-3-8b", accelerator="h100", dp=64, allow=["memory"])
        assert found.link_gbps.item() == pytest.approx(float(out[name]), rel=1e-9)


def test_many_designs_are_one_more_axis():
    axes = dict(accelerator=["a100", "h100", "b200"], tp=[4, 8], link_gbps=[100, 400])
    many = sweep.solve("micro_batch", model="llama-3-70b", dp=64, allow=["memory"], upto=64, **axes)
    assert many.micro_batch.dims == ("accelerator", "tp", "link_gbps") and many.micro_batch.shape == (3, 2, 2)
    for place in np.ndindex(3, 2, 2):
        one = {name: labels[k] for (name, labels), k in zip(axes.items(), place)}
        alone = sweep.solve("micro_batch", model="llama-3-70b", dp=64, allow=["memory"], upto=64, **one)
        for name in many.data_vars:
            np.testing.assert_equal(many[name].isel(dict(zip(axes, place))).item(), alone[name].item(), name)


def test_the_batch_divides():
    """At a fixed global batch dp takes divisors alone, so one step further is the next divisor."""
    found = sweep.solve(
        "dp",
        "exposed_dp_s <= tolerance * step_time_s",
        model="llama-3-8b",
        accelerator="h100",
        global_batch=720,
        seq_len=2048,
        link_gbps=200,
        allow=["memory"],
    )
    assert 720 % found.dp.item() == 0 and 720 % found.further.item() == 0
    between = [d for d in range(int(found.dp) + 1, int(found.further)) if 720 % d == 0]
    assert not between and inversions.WORDS[int(found.answer)] == "found"


def test_where_the_law_is_not_monotone_it_says_so():
    found = sweep.solve(
        "pp",
        "bubble_time_s == 0 or pp > 10",
        model="llama-3-70b",
        accelerator="h100",
        find="smallest",
        upto=40,
        dp=8,
        micro_batches=8,
        allow=["memory"],
    )
    assert found.pp.item() == 1 and found.fails_again.item() == 2


def test_never_always_memory_and_impossible_are_answers():
    design = dict(model="llama-3-70b", accelerator="h100", tp=8, efficiency=0.55, dp=128, link_gbps=200)
    word = lambda **more: inversions.search(upto=64, **design | more).rows()[0]["answer"]  # noqa: E731
    assert word(name="micro_batch") == "memory"
    assert word(name="micro_batch", allow=["memory"]) == "found"
    assert word(name="micro_batch", allow=["memory"], where="required_link_gbps <= 1e9") == "always"
    assert word(name="micro_batch", allow=["memory"], where="required_link_gbps < 0") == "never"
    assert word(name="micro_batch", allow=["memory"], layers=3, pp=2) == "impossible"
    beyond = inversions.search("micro_batch", upto=64, **design).rows()[0]
    assert math.isnan(beyond["micro_batch"]) and beyond["but_for_memory"] == 3


def test_sentences():
    said = inversions.search("micro_batch", dp=128, link_gbps=200, **LLAMA).sentence()
    found = sweep.evaluate(
        ["required_link_gbps"],
        model="llama-3-70b",
        accelerator="h100",
        tp=8,
        efficiency=0.55,
        dp=128,
        micro_batch=[2, 3],
    ).required_link_gbps.values
    assert (
        found[0] > 200 >= found[1]
        and f"is 3: required_link_gbps {found[1]:.6g}" in said
        and f"at 2: required_link_gbps {found[0]:.6g}" in said
    )
    assert "first-order law" in said
    assert (
        inversions.search("micro_batch", "step_time_s < 0", dp=128, **LLAMA)
        .sentence()
        .startswith("Never: at no micro_batch from 1 to 4,096")
    )


@pytest.mark.parametrize(
    "words, said",
    [
        (["micro_batch", "model=llama-3-8b", "accelerator=h100", "micro_batch=2"], "Leave micro_batch out"),
        (["dp", "model=llama-3-8b", "accelerator=h100", "gpus=64"], "gpus and dp decide each other"),
        (["tokens_per_domain", "model=llama-3-8b", "accelerator=h100", "global_batch=64"], "Leave global_batch out"),
        (["recompute", "model=llama-3-8b", "accelerator=h100"], "has words"),
        (["micro_batches_", "model=llama-3-8b", "accelerator=h100"], "Did you mean 'micro_batch'"),
        (["micro_batch", "model=llama-3-8b", "accelerator=h100", "--where", "required_link <= 4"], "is not known here"),
        (["micro_batch", "model=llama-3-8b", "accelerator=h100", "--where", "required_link_gbps"], "not a condition"),
        (["micro_batch", "model=llama-3-8b", "accelerator=h100", "--upto", "0"], "whole number from 1 on"),
        (["efficiency", "model=llama-3-8b", "accelerator=h100", "--upto", "7"], "Leave upto out"),
        (["micro_batch", "model=llama-3-8b", "accelerator=h100", "--allow", "rain"], "no reason of status"),
        (["micro_batch", "model=llama-3-8b"], "there is no accelerator"),
        (["seq_len", "model=llama-3-8b", "accelerator=h100", f"link_gbps={list(range(1, 101))}"], "too many at once"),
    ],
)
def test_bad_input_is_one_line(words, said, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(["solve", *words])
    error = capsys.readouterr().err
    assert end.value.code == 2 and said in error and error.count("\n") == 1


def test_the_command_prints_a_table_and_a_sentence(capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(
            [
                "solve",
                "micro_batch",
                "model=llama-3-70b",
                "accelerator=h100",
                "tp=8",
                "efficiency=0.55",
                "dp=128",
                "link_gbps=200",
                "--allow",
                "memory",
                "--format",
                "json",
            ]
        )
    printed = capsys.readouterr()
    (row,) = json.loads(printed.out)
    assert not end.value.code and row["micro_batch"] == 3 and row["answer"] == "found" and row["fails_again"] is None
    assert printed.err.startswith("The smallest micro_batch with required_link_gbps <= link_gbps is 3")


def test_find_is_one_of_two():
    with pytest.raises(SweepError, match="smallest or largest"):
        inversions.search("micro_batch", find="best", **LLAMA)
