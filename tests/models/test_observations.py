"""The two questions that `diagnostics` asks every model: f at observations, and their expected log
densities.
"""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import likelihoods as gl
from numpy.testing import assert_allclose
from scipy.integrate import trapezoid

from gpflow_decoupled.bases import CoupledBasis
from gpflow_decoupled.errors import DataError
from gpflow_decoupled.likelihoods import BernoulliLogit
from gpflow_decoupled.models import (
    CVIGP,
    LCLGLM,
    LCLGP,
    ODVGP,
    AffineIndependentGP,
    BasisGP,
    MonteCarlo,
)
from gpflow_decoupled.models.checks import Moments

X = np.linspace(-2.0, 2.0, 9)[:, None]
Y = (np.sin(3.0 * X) > 0.0) * 1.0
DATA = tf.constant(X), tf.constant(Y)
MEAN = gpflow.functions.Constant(0.3)


def _kernel() -> gpflow.kernels.Kernel:
    return gpflow.kernels.Matern52(variance=2.0, lengthscales=0.7)


def _mixed(make: Any) -> Any:
    """A model of two outputs that share three latent functions."""
    W = np.random.default_rng(0).normal(size=(2, 3))
    return make(gpflow.kernels.LinearCoregionalization([_kernel() for _ in range(3)], W))


MODELS: dict[str, Any] = {
    "CVIGP": lambda: CVIGP((X, Y), _kernel(), gl.Bernoulli(), mean_function=MEAN),
    "LCLGP": lambda: LCLGP((X, Y), _kernel(), gl.Bernoulli(), mean_function=MEAN),
    "affine": lambda: AffineIndependentGP(
        (X, Y), _kernel(), BernoulliLogit(), mean_function=MEAN, frequencies=12
    ),
    "ODVGP": lambda: ODVGP(
        _kernel(), gl.Bernoulli(), X[::2], X[1::2], mean_function=MEAN, num_data=9
    ),
    "mixed CVIGP": lambda: _mixed(
        lambda kernel: CVIGP((X, np.hstack([Y, 1.0 - Y])), kernel, gl.Bernoulli())
    ),
}


def _random(model: Any) -> Any:
    rng = np.random.default_rng(1)
    for parameter in model.basis.parameters:
        if np.asarray(parameter).ndim == 2 and parameter.shape[0] == len(X):
            parameter.assign(np.abs(0.3 * rng.normal(size=parameter.shape)))
    if isinstance(model, AffineIndependentGP):
        model.basis.theta.assign(np.full(model.basis.theta.shape, 4.0))
    return model


def _divergence(model: Any) -> float:
    if isinstance(model, AffineIndependentGP):
        return float(model.basis.divergence())
    return float(model.basis.prior_kl(model.basis.factor(model.kernel)))


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("name", MODELS)
def test_expected_log_densities_are_the_data_term_of_the_bound(name: str) -> None:
    model = _random(MODELS[name]())
    owns = hasattr(model, "data")
    data = None if owns else DATA
    at = model.moments(data)
    values = model.expected_log_densities(at, data)
    bound = float(model.elbo() if owns else model.elbo(DATA))
    assert values.shape == (len(X),)
    assert_allclose(np.sum(values) - _divergence(model), bound, rtol=1e-10)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", MODELS)
def test_moments_are_predictions_also_at_some_of_the_rows(name: str) -> None:
    model = _random(MODELS[name]())
    whole = getattr(model, "data", DATA)
    some = tuple(part[2:5] for part in whole)
    at = model.moments(some)
    if name == "affine":
        grid = np.linspace(-12.0, 12.0, 2001)
        density = model.predict_f_density(some[0], grid).numpy()
        mean = trapezoid(density * grid, grid)
        assert_allclose(at.mean[:, 0], mean, atol=1e-4)  # of the tails
    else:
        for found, expected in zip(at[:2], model.predict_f(some[0])):
            assert_allclose(found, expected, rtol=1e-10)
    own = model.moments() if hasattr(model, "data") else model.moments(DATA)
    for found, expected in zip(at[:2], own[:2]):
        assert_allclose(found, expected[2:5], rtol=1e-4)  # of the jitter at inputs that are points
    values = model.expected_log_densities(own, whole)
    assert_allclose(model.expected_log_densities(at, some), values[2:5], rtol=1e-4)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", [name for name in MODELS if name != "LCLGP"])
def test_a_doubled_resolution_changes_little(name: str) -> None:
    model = _random(MODELS[name]())
    data = getattr(model, "data", DATA)
    at, name = model.moments(data), "frequencies" if name == "affine" else "nodes"
    coarse, fine = (
        model.expected_log_densities(at, data, doublings=count).numpy() for count in (0, 1)
    )
    assert model.resolution.name == name
    assert_allclose(coarse, fine, rtol=1e-3)
    # scalar likelihoods take as many nodes as they need
    assert np.any(coarse != fine) == (name == "frequencies")


def test_closed_forms_have_no_resolution() -> None:
    assert LCLGP((X, Y), _kernel(), BernoulliLogit()).resolution is None


def test_draws_have_no_resolution() -> None:
    options = {"num_data": 9, "expectations": MonteCarlo(3)}
    assert BasisGP(_kernel(), gl.Bernoulli(), CoupledBasis(X[::2]), **options).resolution is None


def test_gaussian_moments_are_taken_by_a_model_that_is_not_gaussian() -> None:
    model, m, v = MODELS["affine"](), tf.constant(Y - 0.3), tf.ones_like(DATA[0])
    expected = BernoulliLogit().variational_expectations(DATA[0], m, v, DATA[1])
    assert_allclose(model.expected_log_densities(Moments(m, v), DATA), expected, atol=1e-6)


def test_sites_of_weights_are_no_observations() -> None:
    import tensorflow_probability as tfp

    model = LCLGLM((X, Y), BernoulliLogit(), prior=tfp.distributions.Laplace(0.0, 0.5))
    at = model.moments()
    assert at.mean.shape == at.variance.shape == (len(X), 1)
    assert model.expected_log_densities(at).shape == (len(X),)


def test_a_model_without_data_asks_for_them() -> None:
    with pytest.raises(DataError, match=r"ODVGP owns no data: pass data=\(X, Y\)"):
        MODELS["ODVGP"]().moments()
