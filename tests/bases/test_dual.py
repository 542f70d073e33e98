"""The dual basis: both forms against inverses, predictions, and what is refused."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

from gpflow_decoupled.bases import DualBasis
from gpflow_decoupled.errors import DataError, UnknownOptionError
from gpflow_decoupled.inducing import LinearWeights
from tests.reference import lcl
from tests.reference.decoupled import brute_force_kl

X = np.random.default_rng(0).normal(size=(9, 3))
NEW = np.random.default_rng(1).normal(size=(4, 3))
S = np.array([[1.2, 0.3, 0.0], [0.3, 0.8, 0.1], [0.0, 0.1, 0.5]])
PRIORS = {
    "shared variance": 0.7 * np.eye(3),
    "a variance each": np.diag([0.7, 1.3, 0.4]),
    "full covariance": S,
    "intercept": np.diag([0.7, 1.3, 0.4, 2.0]),
}
"""Prior covariance of the weights."""
KERNELS = {
    "shared variance": lambda: gpflow.kernels.Linear(variance=0.7),
    "a variance each": lambda: gpflow.kernels.Linear(variance=[0.7, 1.3, 0.4]),
    "full covariance": lambda: LinearWeights(S),
    "intercept": lambda: (
        gpflow.kernels.Linear(variance=[0.7, 1.3, 0.4]) + gpflow.kernels.Constant(2.0)
    ),
}
SIGNS = pytest.mark.parametrize("low", [0.0, -0.02], ids=["positive", "of both signs"])


def _pair(kernel: gpflow.kernels.Kernel, low: float, latents: int = 2) -> list[DualBasis]:
    rng = np.random.default_rng(2)
    alpha, lam = rng.normal(size=(9, latents)), np.maximum(rng.normal(size=(9, latents)), low)
    lam[0] = 0.0
    return [DualBasis(X, latents, form, alpha=alpha, lam=lam) for form in ("function", "weight")]


def _columns(name: str, inputs: np.ndarray) -> np.ndarray:
    """What the weights multiply at the inputs [N, 3]: [N, 3], or [N, 4] with an intercept."""
    return (
        np.concatenate([inputs, np.ones((len(inputs), 1))], axis=1)
        if name == "intercept"
        else inputs
    )


@pytest.mark.costly(keep=1)
@SIGNS
@pytest.mark.parametrize("name", KERNELS)
def test_both_forms_are_the_posterior_of_the_weights(name, low):
    """Moments at the data and at other inputs, and the divergence; K is singular, so that the
    inverses are of weights.
    """
    kernel, prior = KERNELS[name](), PRIORS[name]
    columns, new_columns = _columns(name, X), _columns(name, NEW)
    assert_allclose(kernel(X, NEW), columns @ prior @ new_columns.T, rtol=1e-12, atol=1e-13)
    for basis in _pair(kernel, low):
        state = basis.factor(kernel)
        assert bool(state.ok)
        divergence = 0.0
        new_mean, new_cov = basis.mean_and_cov(state, kernel, NEW, full_cov=True)
        covariance = basis.geometry.covariance(basis.geometry.prior(kernel), state)
        for latent in range(2):
            alpha, lam = (np.asarray(p)[:, latent] for p in (basis.alpha, basis.lam))
            mean_w, V_w = lcl.posterior_of_weights(prior, columns, alpha, lam)
            V = columns @ V_w @ columns.T
            assert_allclose(state.mean[:, latent], columns @ mean_w, rtol=1e-10, atol=1e-12)
            assert_allclose(state.variance[:, latent], np.diag(V), rtol=1e-10, atol=1e-12)
            assert_allclose(covariance[latent], V, rtol=1e-10, atol=1e-12)
            assert_allclose(new_mean[:, latent], new_columns @ mean_w, rtol=1e-10, atol=1e-12)
            assert_allclose(
                new_cov[latent], new_columns @ V_w @ new_columns.T, rtol=1e-10, atol=1e-12
            )
            divergence += brute_force_kl(mean_w, V_w, np.zeros(len(prior)), prior)
        assert_allclose(basis.prior_kl(state), divergence, rtol=1e-9)


@pytest.mark.exhaustive
@SIGNS
@pytest.mark.parametrize("name", KERNELS)
def test_forms_agree_to_round_off(name, low):
    kernel = KERNELS[name]()
    (function, weight), states = _pair(kernel, low), []
    for basis in (function, weight):
        states.append(basis.factor(kernel))
    for field in ("mean", "variance", "log_det"):
        assert_allclose(getattr(states[0], field), getattr(states[1], field), rtol=1e-9, atol=1e-10)
    assert_allclose(function.prior_kl(states[0]), weight.prior_kl(states[1]), rtol=1e-9)
    for full in (False, True):
        pairs = [
            b.mean_and_cov(s, kernel, NEW, full_cov=full)
            for b, s in zip((function, weight), states)
        ]
        for left, right in zip(*pairs):
            assert_allclose(left, right, rtol=1e-8, atol=1e-9)


def test_sites_with_a_mean_are_the_same_multipliers(rng):
    """(V22): from b and lambda to alpha, in both forms."""
    kernel = KERNELS["intercept"]()
    for basis in _pair(kernel, 0.0):
        prior, b = basis.geometry.prior(kernel), rng.normal(size=(9, 2))
        lam = tf.convert_to_tensor(basis.lam)
        state = basis.geometry.state_of_sites(prior, tf.constant(b), lam)
        again = basis.geometry.state_at(prior, state.alpha, lam)
        moved = basis.geometry.with_alpha(
            prior, basis.geometry.state_at(prior, basis.alpha, lam), state.alpha
        )
        for other in (again, moved):
            assert_allclose(other.mean, state.mean, rtol=1e-8, atol=1e-9)
            assert_allclose(basis.prior_kl(other), basis.prior_kl(state), rtol=1e-8)
        K = kernel(X).numpy()
        for latent in range(2):
            W = np.diag(lam.numpy()[:, latent])
            assert_allclose(
                state.mean[:, latent],
                np.linalg.solve(np.eye(9) + K @ W, K @ b[:, latent]),
                atol=1e-9,
            )


def test_zero_multipliers_are_the_prior():
    kernel = gpflow.kernels.Matern52()
    basis = DualBasis(X)
    state = basis.factor(kernel)
    mean, cov = basis.mean_and_cov(state, kernel, NEW, full_cov=True)
    assert_allclose(mean, np.zeros((4, 1)))
    assert_allclose(cov[0], kernel(NEW), rtol=1e-12)
    assert_allclose(basis.prior_kl(state), 0.0, rtol=1e-10, atol=1e-12)


def test_covariance_that_does_not_exist_is_noticed():
    kernel = gpflow.kernels.Linear(variance=2.0)
    for form in ("function", "weight"):
        basis = DualBasis(X, 1, form, lam=-np.ones((9, 1)))
        assert not bool(basis.factor(kernel).ok)
        assert basis.matrices(kernel)


def test_what_is_refused():
    with pytest.raises(UnknownOptionError, match="form='weights'"):
        DualBasis(X, 1, "weights")
    with pytest.raises(DataError, match="points has shape"):
        DualBasis(X[:, 0])
    with pytest.raises(DataError, match="alpha has shape"):
        DualBasis(X, 2, alpha=np.zeros((9, 1)))
    with pytest.raises(DataError, match="lam has entries that are not finite"):
        DualBasis(X, 1, lam=np.full((9, 1), np.nan))
    with pytest.raises(NotImplementedError, match="Matern52 is not their kernel"):
        DualBasis(X, 1, "weight").factor(gpflow.kernels.Matern52())
