"""Several replicas of `tf.distribute`: models refuse them rather than return a wrong bound."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SCRIPT = """
import gpflow, numpy as np, tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
import gpflow_decoupled as gd
X = np.linspace(0.0, 1.0, 8)[:, None]
kernel, likelihood = gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian()
makes = {
    "ODVGP": lambda: gd.models.ODVGP(kernel, likelihood, X[:3], X[4:6], num_data=8),
    "CVIGP": lambda: gd.models.CVIGP((X, np.sin(X)), kernel, likelihood),
}
outside = makes["ODVGP"]()
for strategy, refuses in ((tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]), True), (tf.distribute.get_strategy(), False)):
    with strategy.scope():
        for name, make in {**makes, "The bound": lambda: outside.elbo((X, np.sin(X)))}.items():
            try:
                make()
                assert not refuses, name
            except gd.errors.ModelError as error:
                assert refuses and f"{name} does not work under a tf.distribute strategy of 2 replicas" in str(error), error
print("as expected")
"""


@pytest.mark.exhaustive
def test_several_replicas_are_refused() -> None:
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=environment, check=False)
    assert done.stdout.endswith("as expected\n"), done.stderr[-2000:]
