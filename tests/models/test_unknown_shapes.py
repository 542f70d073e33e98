"""Graphs that know nothing of the shapes of their inputs, as in GPflow's own tests of dynamic
shapes.
"""

from __future__ import annotations

from collections.abc import Callable

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

import gpflow_decoupled as gd
from tests.models.builders import X

Y = np.sin(X[:, :1])
ANY = tf.TensorSpec(None, tf.float64)
MODELS: dict[str, Callable[[], gpflow.models.GPModel]] = {
    "ODVGP": lambda: gd.models.ODVGP(
        gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian(), X[:3], X[3:5], num_data=len(X)
    ),
    "CVIGP": lambda: gd.models.CVIGP(
        (X, Y), gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian()
    ),
}


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("name", MODELS)
def test_inputs_of_unknown_rank(name: str) -> None:
    """Are taken as matrices, and give the same numbers; a vector is refused once it is there."""
    model = MODELS[name]()
    verbs = [
        lambda x: model.predict_f(x)[0],
        lambda x: model.predict_f(x, full_cov=True)[1],
        lambda x: model.predict_y(x)[1],
        lambda x: tf.shape(model.predict_f_samples(x, 3)),
        lambda x: model.posterior().predict_f(x)[0],
    ]
    for verb in verbs:
        graph = tf.function(verb, input_signature=[ANY], autograph=False)
        assert_allclose(graph(X), verb(tf.constant(X)), rtol=1e-9)
    with pytest.raises(tf.errors.InvalidArgumentError, match="not compatible with expected shape"):
        graph(X[:, 0])


def test_data_of_unknown_rank() -> None:
    model = MODELS["ODVGP"]()
    for verb in (model.elbo, model.training_loss, model.predict_log_density):
        graph = tf.function(verb, input_signature=[(ANY, ANY)], autograph=False)
        assert_allclose(graph((X, Y)), verb((X, Y)), rtol=1e-9)
    held_out = MODELS["CVIGP"]().predict_log_density
    graph = tf.function(held_out, input_signature=[(ANY, ANY)], autograph=False)
    assert_allclose(graph((X, Y)), held_out((X, Y)), rtol=1e-9)
