"""Single precision gives the answers of double precision, to what its digits are worth."""

import numpy as np

from sweep._kernels import model
from sweep.spec import Spec
from sweep.stages import Stages, double_precision
from tests.gpu_check import DESIGNS

OUTPUTS = ("step_time_s", "required_link_gbps", "link_gbps_at_tolerance")


def test_requirements_in_single_precision_are_those_in_double():
    content = {"sample": {"method": "sobol", "size": 1024, "seed": 5, "of": DESIGNS}, "fixed": {"model": "llama-3-70b"}, "outputs": list(OUTPUTS)}
    mesh = Spec.from_dict(content).mesh
    double = model.evaluate(mesh.block(), OUTPUTS)
    with double_precision():
        single = {name: np.asarray(value, float) for name, value in Stages(mesh, OUTPUTS, mesh.shape, "float32", "float64")((0,)).items()}
    for name in OUTPUTS:
        np.testing.assert_allclose(single[name].ravel(), np.asarray(double[name]).ravel(), rtol=2e-3, err_msg=name)
        assert np.isfinite(single[name]).sum() > 500
