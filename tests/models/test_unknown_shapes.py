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
from gpflow_decoupled.errors import DataError
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


@pytest.mark.exhaustive
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


@pytest.mark.exhaustive
def test_data_of_unknown_rank() -> None:
    model = MODELS["ODVGP"]()
    for verb in (model.elbo, model.training_loss, model.predict_log_density):
        graph = tf.function(verb, input_signature=[(ANY, ANY)], autograph=False)
        assert_allclose(graph((X, Y)), verb((X, Y)), rtol=1e-9)
    held_out = MODELS["CVIGP"]().predict_log_density
    graph = tf.function(held_out, input_signature=[(ANY, ANY)], autograph=False)
    assert_allclose(graph((X, Y)), held_out((X, Y)), rtol=1e-9)


@pytest.mark.exhaustive
def test_bounds_of_built_models() -> None:
    """With points a bound of any rows; a model that owns its rows cannot compare them in a graph,
    and says what to call there.
    """
    few = gd.build(X, Y, num_inducing=3)
    few.model.num_data = len(X)
    graph = tf.function(few.elbo, input_signature=[(ANY, ANY)], autograph=False)
    assert_allclose(graph((X, Y)), few.elbo((X, Y)), rtol=1e-9)
    own = gd.build(X, Y)
    graph = tf.function(own.elbo, input_signature=[(ANY, ANY)], autograph=False)
    with pytest.raises(DataError, match=r"call elbo\(\) there"):
        graph((X, Y))
    assert_allclose(tf.function(own.elbo, autograph=False)(), own.elbo(), rtol=1e-9)
