"""Configs: what is accepted, what it means, and that every refusal ends in what to type."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep import presets
from sweep._kernels import quantities
from sweep.errors import SpecError, SweepError
from sweep.spec import Spec

BASE = {"model": "llama-3-70b", "accelerator": "h100"}
MODELS, CHIPS = {"accelerator": "h100"}, {"model": "llama-3-70b"}


def spec(axes=None, fixed=BASE, **more):
    return Spec.from_dict({"axes": axes, "fixed": fixed, **more}, "configs/x.yaml")


def refused(axes=None, fixed=BASE, **more):
    with pytest.raises(SpecError) as caught:
        spec(axes, fixed, **more)
    message = str(caught.value)
    assert "\n" not in message and message.startswith("configs/x.yaml")
    assert message.endswith((".", "?"))
    return message


def labels(values, name="link_gbps"):
    return spec({name: values}).mesh.axes[0].labels.tolist()


# -- axes of one quantity ----------------------------------------------------------------------------------------------


def test_generated_labels_are_the_numbers_that_people_select():
    found = labels({"geomspace": [25, 3200, 43]})
    assert found[24] == 400.0 and found[0] == 25 and found[-1] == 3200 and len(found) == 43


@pytest.mark.parametrize(
    "rule, wanted",
    [
        ({"linspace": [0.1, 0.5, 5]}, [0.1, 0.2, 0.3, 0.4, 0.5]),
        ({"powers_of_two": [25.0 / 25, 8]}, [1, 2, 4, 8]),
        ({"range": [100, 400, 100]}, [100, 200, 300, 400]),
        ({"range": [0.1, 0.3, 0.1]}, [0.1, 0.2, 0.3]),
        ({"range": [400, 200, -100]}, [400, 300, 200]),
        ([800, 200], [800, 200]),
        (400, [400]),
        (np.array([200.0, 400.0]), [200, 400]),
        ([math.inf], [math.inf]),
    ],
)
def test_ways_to_write_values(rule, wanted):
    assert labels(rule) == wanted


@given(st.floats(1e-3, 1e6), st.floats(1.1, 1e3), st.integers(2, 50), st.sampled_from(["linspace", "geomspace"]))
def test_bounds_are_included_and_labels_short(low, factor, count, rule):
    low, high = float(f"{low:.6g}"), float(f"{low * factor:.6g}")
    found = labels({rule: [low, high, count]})
    assert found[0] == low and found[-1] == high and len(found) == count
    assert all(value == float(f"{value:.12g}") for value in found)


def test_whole_numbers_are_whole():
    axis = spec({"tp": {"geomspace": [1, 64, 7]}}).mesh.axes[0]
    assert axis.labels.dtype == np.int64 and axis.labels.tolist() == [1, 2, 4, 8, 16, 32, 64]


def test_categories_keep_words_as_labels_and_codes_as_values():
    mesh = spec({"schedule": ["zb-h1", "1f1b"], "recompute": ["none", "full"]}).mesh
    assert mesh.axes[0].labels.tolist() == ["zb-h1", "1f1b"] and mesh.axes[0].labels.dtype == object
    codes = mesh.inputs["schedule"].values
    assert codes.dtype == np.int32 and [quantities.INPUTS["schedule"].choices[c] for c in codes] == ["zb-h1", "1f1b"]


# -- tables and groups -------------------------------------------------------------------------------------------------


def test_a_table_axis_moves_its_columns_together():
    mesh = spec({"accelerator": ["h100", "b200"]}, CHIPS).mesh
    assert mesh.inputs["hbm_gb"].dims == ("accelerator",) and mesh.inputs["hbm_gb"].values.tolist() == [80, 180]
    assert mesh.inputs["link_gbps"].values.tolist() == [400, 400], "the port that each ships with"
    assert mesh.axes[0].columns["peak_tflops"].tolist() == [989, 2250]
    assert "layers" not in mesh.axes[0].columns and mesh.inputs["layers"].dims == ()


def test_two_tables_give_one_quantity_two_dims():
    mesh = spec({"accelerator": ["h100", "b200"], "dtype": ["bf16", "fp8"]}, CHIPS).mesh
    assert mesh.inputs["peak_tflops"].dims == ("accelerator", "dtype")
    assert mesh.inputs["peak_tflops"].values.tolist() == [[989, 1979], [2250, 4500]]


def test_dtype_of_a_fixed_accelerator():
    assert spec(fixed={**BASE, "dtype": "fp8"}).mesh.inputs["peak_tflops"].values == 1979
    mesh = spec({"dtype": ["bf16", "fp8"]}).mesh
    assert mesh.inputs["peak_tflops"].dims == ("dtype",) and mesh.inputs["peak_tflops"].values.tolist() == [989, 1979]


def test_a_group_moves_quantities_and_presets_together():
    mesh = spec({"layout": {"model": ["llama-3-8b", "llama-3-70b"], "tp": [1, 8]}}, MODELS).mesh
    assert mesh.axes[0].labels.tolist() == ["llama-3-8b tp=1", "llama-3-70b tp=8"]
    assert mesh.inputs["tp"].dims == ("layout",) and mesh.inputs["layers"].values.tolist() == [32, 80]
    assert mesh.axes[0].columns["model"].tolist() == ["llama-3-8b", "llama-3-70b"]


def test_a_group_pairs_accelerators_with_dtypes():
    group = {"accelerator": ["a100", "h200"], "dtype": ["bf16", "fp8"]}
    mesh = spec({"accelerator": group}, CHIPS).mesh
    assert mesh.axes[0].labels.tolist() == ["a100", "h200"]
    assert mesh.inputs["peak_tflops"].values.tolist() == [312, 1979]
    assert mesh.axes[0].columns["dtype"].tolist() == ["bf16", "fp8"]


def test_a_group_can_name_its_points():
    mesh = spec({"layout": {"labels": ["wide", "deep"], "tp": [8, 1], "pp": [1, 8]}}).mesh
    assert mesh.axes[0].labels.tolist() == ["wide", "deep"]


def test_written_out_beats_presets():
    assert spec(fixed={**BASE, "hbm_gb": 96}).mesh.inputs["hbm_gb"].values == 96
    mesh = spec({"link_gbps": [200, 800], "accelerator": ["h100", "b300"]}, CHIPS).mesh
    assert mesh.inputs["link_gbps"].dims == ("link_gbps",) and "link_gbps" not in mesh.axes[1].columns


def test_stack_beats_accelerator_and_fills_its_gaps(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    machine = {"peak_tflops": 1, "hbm_gb": 1, "hbm_gbytes_per_s": 1, "scaleup_domain": 8, "scaleup_gbytes_per_s": 1, "link_gbps": 100}
    bare = {**machine, "source": "here"}
    presets.write_presets("accelerator", {"mine": {**bare, "gemm_efficiency": 0.7}, "bare": bare})
    presets.write_presets("stack", {"quick": {"gemm_efficiency": 0.9, "source": "here"}, "plain": {"host_time_ms": 1, "source": "here"}})
    mesh = spec({"stack": ["quick", "plain"]}, {"model": "llama-3-8b", "accelerator": "mine"}).mesh
    assert mesh.inputs["gemm_efficiency"].values.tolist() == [0.9, 0.7]
    assert mesh.inputs["host_time_ms"].values.tolist() == [0, 1], "the default where a preset lacks it"
    mesh = spec({"accelerator": ["mine", "bare"]}, {"model": "llama-3-8b", "stack": "plain"}).mesh
    assert mesh.inputs["gemm_efficiency"].values.tolist() == [0.7, 0.4], "0.4 beside a calibrated one"


def test_efficiency_stays_unset_unless_it_is_written():
    assert "efficiency" not in spec().mesh.inputs


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_text_where_a_number_belongs():
    wanted = "configs/x.yaml, axes.link_gbps: 'fast' is not a number. Write a list such as [200, 400] or {geomspace: [25, 3200, 43]}."
    assert refused({"link_gbps": "fast"}) == wanted
    assert refused(fixed={**BASE, "link_gbps": "400"}) == "configs/x.yaml, fixed.link_gbps: '400' is not a number. Write one in Gb/s such as 400."


@pytest.mark.parametrize(
    "axes, place, hint",
    [
        ({"lnk_gbps": [1]}, "axes.lnk_gbps", "Did you mean 'link_gbps'?"),
        ({"link_gbps": 0}, "axes.link_gbps", "above 0 (Gb/s)"),
        ({"link_gbps": [400, -1]}, "axes.link_gbps", "above 0 (Gb/s)"),
        ({"link_gbps": []}, "axes.link_gbps", "the axis is empty"),
        ({"link_gbps": None}, "axes.link_gbps", "the axis is empty"),
        ({"link_gbps": [200, 400, 200]}, "axes.link_gbps", "200 stands twice"),
        ({"link_gbps": [float("nan")]}, "axes.link_gbps", "NaN is not a value"),
        ({"link_gbps": [True]}, "axes.link_gbps", "True is not a number"),
        ({"link_gbps": {"geomspace": [25, 3200]}}, "axes.link_gbps.geomspace", "[first, last, count]"),
        ({"link_gbps": {"geomspace": [0, 3200, 5]}}, "axes.link_gbps.geomspace", "above 0"),
        ({"link_gbps": {"logspace": [1, 2, 3]}}, "axes.link_gbps", "'logspace' is no rule"),
        ({"link_gbps": {"linspace": [1, 2, 10**9]}}, "axes.link_gbps.linspace", "too many"),
        ({"tp": {"powers_of_two": [1, 63]}}, "axes.tp.powers_of_two", "63 is not a power of two"),
        ({"tp": {"range": [1, 8, 0]}}, "axes.tp.range", "does not lead from 1 to 8"),
        ({"tp": [1.5]}, "axes.tp", "not a whole number"),
        ({"schedule": ["1f1", "zb-h1"]}, "axes.schedule", "Did you mean '1f1b'?"),
        ({"efficiency": [0.4, 1.2]}, "axes.efficiency", "at most 1"),
        ({"model": ["llama-3-70b"]}, "fixed.model", "model is an axis too"),
        ({"layout": {"tp": [1, 2], "pp": [1]}}, "axes.layout", "tp has 2, pp has 1"),
        ({"layout": {"tq": [1, 2]}}, "axes.layout.tq", "no quantity"),
        ({"layout": {"tp": [1, 2]}, "tp": [1]}, "axes.tp", "stands in axes.layout.tp too"),
        ({"mfu": {"tp": [1, 2]}}, "axes.mfu", "Call the group otherwise"),
        ({"layout": {"tp": [1, 1], "pp": [2, 2]}}, "axes.layout", "stands twice"),
        ({"my layout": {"tp": [1, 2]}}, "axes.my layout", "cannot name an axis"),
    ],
)
def test_axes_refused(axes, place, hint):
    message = refused(axes)
    assert message.startswith(f"configs/x.yaml, {place}: ") and hint in message


@pytest.mark.parametrize(
    "fixed, hint",
    [
        ({"dp": 4, "gpus": 32}, "gpus = dp tp cp pp"),
        ({"global_batch": 4, "micro_batches": 2}, "global_batch = dp micro_batch micro_batches"),
        ({"params": 7e10}, "model and params are both given"),
        ({"mfu": 0.4}, "It is an output"),
        ({"seq_len": [4096, 8192]}, "a list belongs under axes"),
        ({"gated_mlp": "yes"}, "Write true or false"),
        ({"accelerator": "h1000"}, "Did you mean 'h100'"),
        ({"accelerator": 100}, "no name of a preset"),
    ],
)
def test_constants_refused(fixed, hint):
    assert hint in refused(fixed={**BASE, **fixed})


def test_missing_model_or_accelerator_is_said():
    assert "Write model: llama-3-70b" in refused(fixed=MODELS)
    assert "Write accelerator: h100" in refused(fixed=CHIPS)
    assert "the model lacks" in refused(fixed={"accelerator": "h100", "layers": 8})


def test_a_precision_that_the_accelerator_lacks_is_said():
    message = refused({"accelerator": ["a100", "h100"], "dtype": ["bf16", "fp8"]}, CHIPS)
    assert "a100 has no peak_tflops at fp8" in message


@pytest.mark.parametrize(
    "more, hint",
    [
        ({"axs": {}}, "Did you mean 'axes'?"),
        ({"link_gbps": 400}, "Write it below fixed:"),
        ({"outputs": ["mfuu"]}, "Did you mean 'mfu'?"),
        ({"outputs": "mfu"}, "is not a list"),
        ({"allow": ["memry"]}, "'memory'"),
        ({"precision": "f32"}, "'float64' or 'float32'"),
        ({"store": {"chunks": 3}}, "no key of store"),
        ({"store": {"block_points": 0}}, "whole number above 0"),
        ({"where": "tp < "}, "where"),
        ({"where": "tpp < 8"}, "Did you mean"),
        ({"where": "mfu > 0.5"}, "is an output"),
        ({"reduce": {"minimize": "step_time_s", "over": ["tpp"]}}, "is no axis"),
        ({"axes": []}, "axes"),
        ({"fixed": [1]}, "is not a mapping"),
    ],
)
def test_other_keys_refused(more, hint):
    content = {"axes": {"tp": [1, 2]}, "fixed": BASE, **more}
    with pytest.raises(SweepError) as caught:
        Spec.from_dict(content, "configs/x.yaml")
    assert hint in str(caught.value) and "\n" not in str(caught.value)


# -- outputs, where, set -----------------------------------------------------------------------------------------------


def test_status_is_always_an_output_and_an_axis_never():
    assert spec(outputs=["mfu"]).outputs == ("mfu", "status")
    assert "dp" not in spec({"dp": [1, 2]}, outputs=["dp", "mfu"]).outputs
    assert set(spec(outputs="all").outputs) == set(quantities.STEP_OUTPUTS)


def test_where_uses_axes_columns_constants_and_defaults():
    made = spec({"accelerator": ["h100", "gb200"], "tp": [8, 16]}, CHIPS, where="tp <= scaleup_domain and pp == 1 and accelerator != 'h100'")
    assert made.where


def test_set_replaces_axis_or_constant():
    made = spec({"tp": [1, 2]})
    assert made.with_set("tp=8").mesh.shape == () and made.with_set("tp=8").fixed["tp"] == 8
    assert made.with_set("model=[llama-3-8b, llama-3-70b]").mesh.dims == ("tp", "model")
    assert made.with_set("link_gbps={geomspace: [25, 3200, 43]}").mesh.shape == (2, 43)
    assert made.with_set("bucket_bytes=1e6").mesh.inputs["bucket_bytes"].values == 1e6
    assert made.with_set("precision=float32").precision == "float32"
    for text, hint in {"tp": "there is no '='", "tpp=8": "Did you mean", "tp=[1": "not YAML"}.items():
        with pytest.raises(SpecError, match=hint.replace("'", ".")):
            made.with_set(text)


def test_from_inputs_makes_axes_of_lists():
    made = Spec.from_inputs(**BASE, link_gbps=np.array([200.0, 400.0]), tp=np.int64(8), dp=None)
    assert made.mesh.dims == ("link_gbps",) and made.mesh.inputs["tp"].values == 8.0
    with pytest.raises(SpecError, match="^link_gbps: 'fast' is not a number"):
        Spec.from_inputs(**BASE, link_gbps="fast")


# -- canonical ---------------------------------------------------------------------------------------------------------


def test_canonical_is_plain_json_and_the_hash_is_of_values():
    one = spec({"link_gbps": [0.1, 400], "model": ["llama-3-8b", "deepseek-v3"]}, MODELS, title="one")
    two = spec({"link_gbps": np.array([0.1, 400.0]), "model": ["llama-3-8b", "deepseek-v3"]}, MODELS, title="two")
    json.dumps(one.canonical(), allow_nan=False)
    assert one.sha256 == two.sha256
    assert one.canonical()["axes"]["model"]["inputs"]["layers"] == [32, 61]
    assert one.canonical()["fixed"]["peak_tflops"] == 989
    other = spec({"link_gbps": [0.1, 200], "model": ["llama-3-8b", "deepseek-v3"]}, MODELS)
    assert other.sha256 != one.sha256
    assert spec(fixed={**BASE, "scaleup_gbytes_per_s": math.inf}).canonical()["fixed"]["scaleup_gbytes_per_s"] == "inf"


def test_a_preset_is_its_numbers():
    chip = presets.find("accelerator", "h100").numbers
    written = {key: value["bf16"] if isinstance(value, dict) else value for key, value in chip.items()}
    assert spec(fixed=BASE).sha256 == spec(fixed={"model": "llama-3-70b", **written}).sha256


def test_to_dict_round_trip():
    made = spec({"tp": [1, 2], "layout": {"pp": [1, 2], "dp": [2, 1]}}, where="tp < 2", allow=["memory"], outputs=["mfu"], precision="float32")
    assert Spec.from_dict(made.to_dict()).sha256 == made.sha256


# -- mesh --------------------------------------------------------------------------------------------------------------


def test_blocks_are_open_and_padded_by_the_last_value():
    mesh = spec({"accelerator": ["h100", "b200", "b300"], "dtype": ["bf16", "fp8"], "link_gbps": [1, 2, 4, 8]}, CHIPS).mesh
    whole = mesh.block()
    assert whole.link_gbps.shape == (1, 1, 4) and whole.peak_tflops.shape == (3, 2, 1) and whole.layers == 80.0
    part = mesh.block((2, 1, 3), (2, 1, 2))
    assert part.peak_tflops.ravel().tolist() == [4500, 4500] and part.link_gbps.ravel().tolist() == [8, 8]


def test_order_of_two_dims_follows_the_axes():
    mesh = spec({"dtype": ["bf16", "fp8"], "accelerator": ["h100", "b200", "b300"]}, CHIPS).mesh
    assert mesh.block().peak_tflops.shape == (2, 3)
    assert mesh.block().peak_tflops[1].tolist() == [1979, 4500, 4500]


def test_environment_holds_codes_and_words():
    mesh = spec({"accelerator": ["h100", "gb200"], "schedule": ["zb-h1"]}, CHIPS).mesh
    env = mesh.environment()
    assert env["accelerator"].shape == (2, 1) and mesh.categories["accelerator"] == ("h100", "gb200")
    assert env["scaleup_domain"].ravel().tolist() == [8, 72] and env["tp"] == 1
    assert mesh.categories["schedule"][int(env["schedule"].item())] == "zb-h1"
