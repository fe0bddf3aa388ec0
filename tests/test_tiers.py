"""What a dimension asks of the scale-up links and of the uplinks is what the model needs there, and is drawn as asked."""

import math

import pytest
import xarray as xr

import sweep
from sweep import barplots, tiers

DENSE = {"model": "llama-3-70b", "accelerator": "h100", "tp": 4, "dp": 128, "efficiency": 0.4, "zero_stage": 3}
EXPERTS = {
    "model": "mixtral-8x7b",
    "accelerator": "h100",
    "ep": 8,
    "tp": 2,
    "dp": 64,
    "micro_batches": 4,
    "efficiency": 0.4,
    "oversubscription": 4,
    "pod_gpus": 32,
}


@pytest.mark.parametrize("inputs, dimension", [(DENSE, "tp"), (DENSE, "dp"), (EXPERTS, "tp")])
def test_the_scaleup_rate_asked_for_leaves_the_tolerance_exposed(inputs, dimension):
    found = tiers.of_point(**inputs)[f"required_scaleup_gbps_{dimension}"]
    free = {**inputs, "link_gbps": math.inf}
    allowed = 0.02 / 0.98 * float(sweep.evaluate(["step_time_s"], **free, scaleup_gbytes_per_s=math.inf).step_time_s)
    late = sweep.evaluate([f"exposed_{dimension}_s"], **free, scaleup_gbytes_per_s=[found / 8, found / 8 / 1.001])[
        f"exposed_{dimension}_s"
    ]
    assert float(late[0]) <= allowed < float(late[1])


def test_the_port_is_the_kernels_own_and_the_uplinks_carry_what_is_left_above_the_pod():
    found = tiers.of_point(**EXPERTS)
    kernels = sweep.evaluate(["required_link_gbps_dp"], **EXPERTS)
    assert found["required_link_gbps_dp"] == float(kernels.required_link_gbps_dp) > 0
    assert found["required_uplink_gbps_dp"] == pytest.approx(found["required_link_gbps_dp"] / 4)
    flat = tiers.of_point(**DENSE)
    assert flat["required_uplink_gbps_dp"] == flat["required_scaleup_gbps_pp"] == flat["required_link_gbps_tp"] == 0
    assert math.isnan(
        tiers.of_point(**DENSE | {"tp": 3})["required_scaleup_gbps_tp"]
    )  # heads do not divide: no such run


def test_tiers_are_ranked_together_each_in_its_colour():
    values = {
        "required_link_gbps_dp": 338.0,
        "required_scaleup_gbps_dp": 0.0,
        "required_link_gbps_tp": 0.0,
        "required_scaleup_gbps_tp": 9000.0,
        "required_link_gbps_pp": 0.0,
    }
    figure = barplots.draw_requirements(xr.Dataset({name: ((), value) for name, value in values.items()})).figure
    axes = figure.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()][::-1] == ["tp", "dp", "pp"]
    assert [text.get_text().strip() for text in axes.texts][::-1] == ["9000", "338", "none"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["scale-out port", "scale-up"]
    assert len({bar.get_facecolor() for bar in axes.patches}) == 2
