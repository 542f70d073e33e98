"""Draws of a nearest-neighbour GP as functions have the moments of its predictions.

Draws are the columns of a root of the covariance, as in `test_pathwise`.
"""

from __future__ import annotations

from collections.abc import Callable

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_decoupled as gd
from gpflow_decoupled.errors import ModelError
from gpflow_decoupled.models import NNGP
from gpflow_decoupled.models.neighbours import SiteNNGP
from gpflow_decoupled.pathwise import pathwise_samples
from tests.pathwise.identity import Identity

RNG = np.random.default_rng(0)
X = RNG.uniform(-1.0, 1.0, (12, 2))
NEW = np.array([[-0.9, 0.3], [0.1, 0.2], [0.8, -0.7]])
Y = np.stack([X[:, 0], X[:, 1] - X[:, 0]], axis=1) + 0.3 * RNG.standard_normal((12, 2))
CLASSES = np.arange(12.0)[:, None] % 3


def _kernel() -> gpflow.kernels.Kernel:
    """Whose features are exact."""
    return gpflow.kernels.Linear(variance=[0.7, 1.3]) + gpflow.kernels.Constant(0.5)


def _gaps() -> NNGP:
    y = Y.copy()
    y[[2, 5], 1] = np.nan
    kernel = gpflow.kernels.SeparateIndependent([_kernel(), gpflow.kernels.Linear(2.0)])
    noise = gpflow.likelihoods.Gaussian(np.array([0.1, 0.4]))
    return NNGP((X, y), kernel, noise, num_neighbours=4)


def _spread() -> NNGP:
    mean = gpflow.functions.Linear([[1.0], [2.0]])
    noise = gpflow.likelihoods.Gaussian(0.2)
    options = {"num_neighbours": 5, "spread_neighbours": 4}
    return NNGP((X, Y[:, :1]), _kernel(), noise, mean_function=mean, **options)


def _solved() -> NNGP:
    noise = gpflow.likelihoods.Gaussian(0.2)
    model = NNGP((X, Y), _kernel(), noise, num_neighbours=4, mean="data")
    model.solve_mean()
    return model


def _classes() -> NNGP:
    likelihood = gd.likelihoods.CategoricalLogit(3)
    model = NNGP((X, CLASSES), _kernel(), likelihood, num_neighbours=4)
    model.mean_factor.assign(0.7)
    model.variance_factor.assign(1.8)
    return model


def _sites(labels: np.ndarray, likelihood: gpflow.likelihoods.Likelihood) -> SiteNNGP:
    model = SiteNNGP((X, labels), _kernel(), likelihood, num_neighbours=4)
    shape = 12, model.num_latent_gps
    nu, precision = RNG.standard_normal(shape), RNG.uniform(0.1, 2.0, shape)
    model.assign_sites(tf.range(12), tf.constant(nu), tf.constant(precision))
    return model


def _labels() -> SiteNNGP:
    return _sites(CLASSES % 2, gd.likelihoods.BernoulliLogit())


def _softmax() -> SiteNNGP:
    return _sites(CLASSES, gd.likelihoods.CategoricalLogit(3))


MODELS = {
    "gaps": _gaps, "spread": _spread, "data": _solved, "classes": _classes, "labels": _labels,
    "softmax": _softmax,
}  # fmt: skip


@pytest.mark.costly(keep=2)
@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_moments_are_those_of_predictions(make: Callable[[], NNGP]) -> None:
    model, identity = make(), Identity()
    outputs = model.num_latent_gps
    # normals of three features and twelve rows for each output, and a draw left over
    draws = pathwise_samples(model, 15 * outputs + 1, seed=identity)
    values = draws(NEW).numpy()
    assert identity.used <= 15 * outputs
    mean, variance = (part.numpy() for part in model.predict_f(NEW))
    np.testing.assert_allclose(values[-1], mean, atol=1e-9)
    np.testing.assert_allclose(np.sum((values - mean) ** 2, axis=0), variance, atol=1e-5)


def test_with_all_rows_draws_are_joint() -> None:
    noise = gpflow.likelihoods.Gaussian(0.2)
    model = NNGP((X, Y[:, :1]), _kernel(), noise, num_neighbours=12)
    draws = pathwise_samples(model, 16, seed=Identity())
    exact = gpflow.models.GPR((X, Y[:, :1]), _kernel(), noise_variance=0.2)
    mean, cov = (part.numpy() for part in exact.predict_f(NEW, full_cov=True))
    values = draws(NEW).numpy()
    np.testing.assert_allclose(values[-1], mean, atol=1e-4)
    root = values[:, :, 0] - values[-1, :, 0]
    np.testing.assert_allclose(root.T @ root, cov[0], atol=1e-5)


@pytest.mark.exhaustive
def test_each_draw_may_have_inputs_of_its_own() -> None:
    model = _gaps()
    draws, inputs = pathwise_samples(model, 3), RNG.uniform(-1, 1, (3, 5, 2))
    expected = np.stack([draws(each).numpy()[s] for s, each in enumerate(inputs)])
    np.testing.assert_allclose(draws(inputs), expected, rtol=1e-9, atol=1e-9)
    compiled = tf.function(draws, autograph=False)(tf.constant(NEW))
    np.testing.assert_allclose(compiled, draws(NEW), rtol=1e-9)
    before = draws(NEW).numpy()
    model.kernel.kernels[1].variance.assign(7.0)
    np.testing.assert_array_equal(draws(NEW), before)
    assert "N=12" in repr(draws)


def test_data_are_its_own() -> None:
    with pytest.raises(ModelError, match="An NNGP owns its data"):
        pathwise_samples(_spread(), 2, data=(X, Y))
