"""Figures of data sheets that are taken for inputs: refused in one line with the right number, and only those."""

import pytest

import sweep
from sweep.errors import SpecError
from sweep.spec import Spec

MODEL = dict(model="llama-3-8b", dp=64)


def spec(**inputs):
    return Spec.from_inputs(**MODEL | inputs).mesh


@pytest.mark.parametrize("inputs, words", [
    (dict(accelerator="h100", peak_tflops=1979), ("sparsity", "Write 989", "dtype: fp8")),
    (dict(accelerator="h100", peak_tflops=1978), ("sparsity", "Write 989")),
    (dict(accelerator="h100", dtype="fp8", peak_tflops=3958), ("sparsity", "Write 1979")),
    (dict(accelerator="a100", peak_tflops=624), ("sparsity", "Write 312")),
    (dict(accelerator="b200", peak_tflops=4500), ("sparsity", "Write 2250")),
    (dict(accelerator="h100", scaleup_gbytes_per_s=900), ("both directions", "Write 450")),
    (dict(accelerator="a100", scaleup_gbytes_per_s=600), ("both directions", "Write 300")),
    (dict(accelerator="h100", scaleup_gbytes_per_s=3600), ("Gb/s, not GB/s", "Write 450")),
    (dict(accelerator="h100", link_gbps=3200), ("8 ports", "Write 400")),
    (dict(accelerator="a100", link_gbps=1600), ("8 ports", "Write 200")),
    (dict(accelerator="h100", hbm_gb=74.5), ("GiB", "Write 80")),
    (dict(accelerator="h100", hbm_gb=81920), ("MB", "Write 80")),
    (dict(accelerator="h100", grad_bytes=16), ("Write 2", "bits")),
    (dict(accelerator="h100", param_bytes=32), ("Write 4", "bits")),
], ids=str)  # fmt: skip
def test_a_wrong_figure_is_refused_with_the_right_one(inputs, words):
    with pytest.raises(SpecError) as told:
        spec(**inputs)
    assert "\n" not in str(told.value)
    for word in words:
        assert word in str(told.value)


@pytest.mark.parametrize("inputs", [
    dict(accelerator="h100", link_gbps=[400, 3200]),  # a sweep passes where it likes
    dict(accelerator="h100", link_gbps=[3200]),  # a list insists
    dict(accelerator="h100", link_gbps=3200, rails="all"),
    dict(accelerator="h100", link_gbps=3200, rails="one"),  # the node's ports, shared
    dict(accelerator=["h100", "b200"], link_gbps=3200),
    dict(accelerator="b200", link_gbps=400, peak_tflops=[2250, 4500]),
    dict(accelerator="h100", dtype="fp8", peak_tflops=1979),
    dict(accelerator="h100", peak_tflops=1000, scaleup_gbytes_per_s=400, hbm_gb=75, grad_bytes=4),
    dict(accelerator="gh200", link_gbps=400),
    dict(peak_tflops=1979, hbm_gb=80, hbm_gbytes_per_s=3350, scaleup_domain=8, scaleup_gbytes_per_s=900, link_gbps=3200),
], ids=str)  # fmt: skip
def test_what_may_be_meant_is_taken(inputs):
    spec(**inputs)


def test_where_it_stands_is_said(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("fixed: {model: llama-3-8b, accelerator: h100, peak_tflops: 1979}\naxes: {dp: [8, 16]}\n")
    with pytest.raises(SpecError, match=r"a\.yaml, fixed\.peak_tflops: 1979 is the bf16 peak of h100 with sparsity"):
        Spec.load(path)
    with pytest.raises(SpecError, match="sparsity"):
        sweep.evaluate(**MODEL, accelerator="h100", peak_tflops=1979)
