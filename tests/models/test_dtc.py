"""The projected process against dense matrices, against GPflow's `SGPR` and `GPR`, and what it
refuses.
"""

from __future__ import annotations

import copy
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.models import GPR, GPRFITC, SGPR
from gpflow.posteriors import PrecomputeCacheType
from numpy.testing import assert_allclose

from gpflow_decoupled.errors import DataError, UnknownOptionError
from gpflow_decoupled.models import DTC
from tests.bounds.registry import matern
from tests.reference import grams as gr
from tests.reference import sparse_regression as ref

RNG = np.random.default_rng(0)
X, Z, NEW = RNG.uniform(-2, 2, (20, 2)), RNG.uniform(-2, 2, (5, 2)), RNG.uniform(-2, 2, (7, 2))
Y = np.sin(2.0 * X) + 0.1 * RNG.normal(size=(20, 2))
JITTER = 0.01
"""One that cannot be overlooked."""


def _slope() -> gpflow.functions.Linear:
    return gpflow.functions.Linear(0.3 * np.ones((2, 2)), np.array([0.1, -0.2]))


def _noise(varying: bool) -> gpflow.likelihoods.Gaussian:
    if varying:
        return gpflow.likelihoods.Gaussian(
            scale=gpflow.functions.Linear(0.05 * np.ones((2, 1)), np.array([0.5]))
        )
    return gpflow.likelihoods.Gaussian(0.3)


def _matrices() -> tuple[np.ndarray, ...]:
    def k(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        return gr.matern32(first, second, 1.3, 0.8)

    return k(X, X), k(Z, Z) + JITTER * np.eye(5), k(Z, X), k(Z, NEW), k(NEW, NEW)


@pytest.mark.exhaustive
@pytest.mark.parametrize("varying", [False, True], ids=["one noise variance", "varying noise"])
@pytest.mark.parametrize("kind, model_type", [("dtc", DTC), ("vfe", SGPR), ("fitc", GPRFITC)])
def test_objective_and_predictions(kind: str, model_type: Any, varying: bool) -> None:
    """Two outputs and a mean function; GPflow's two are here because benchmarks and notebook
    compare with them.
    """
    gpflow.config.set_default_jitter(JITTER)
    model = model_type(
        (X, Y), matern(1.3, 0.8), Z, mean_function=_slope(), likelihood=_noise(varying)
    )
    noise = np.broadcast_to(model.likelihood.variance_at(X).numpy()[:, 0], 20)
    K, K_u, K_uf, K_us, K_s = _matrices()
    centred, prior = Y - _slope()(X).numpy(), _slope()(NEW).numpy()
    value = sum(ref.objective(kind, K, K_u, K_uf, y, noise) for y in centred.T)
    assert_allclose(model.maximum_log_likelihood_objective(), value, rtol=1e-11)
    mean, cov = model.predict_f(NEW, full_cov=True)
    variance = model.predict_f(NEW)[1]
    for output, y in enumerate(centred.T):
        expected_mean, expected_cov = ref.prediction(kind, K, K_u, K_uf, y, noise, K_us, K_s)
        assert_allclose(mean[:, output], expected_mean + prior[:, output], rtol=1e-9)
        assert_allclose(cov[output], expected_cov, rtol=1e-9, atol=1e-12)
        assert_allclose(variance[:, output], np.diag(expected_cov), rtol=1e-9)


@pytest.mark.exhaustive
def test_above_the_bound_and_equal_where_the_points_are_the_data() -> None:
    gpflow.config.set_default_jitter(1e-12)
    excess = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        kernel = matern(*np.exp(rng.normal(size=2)))
        model = DTC(
            (X, Y[:, :1]),
            kernel,
            rng.uniform(-2, 2, (6, 2)),
            noise_variance=float(np.exp(rng.normal())),
        )
        excess.append(float(model.maximum_log_likelihood_objective() - model.elbo()))
    assert min(excess) > 0.0
    kernel = matern(1.3, 0.8)
    exact = float(GPR((X, Y), kernel, noise_variance=0.3).log_marginal_likelihood())
    for model_type in (DTC, SGPR, GPRFITC):
        model = model_type((X, Y), kernel, X.copy(), noise_variance=0.3)
        assert float(model.maximum_log_likelihood_objective()) == pytest.approx(exact, rel=1e-9), (
            model_type.__name__
        )


@pytest.mark.exhaustive
def test_verbs() -> None:
    model = DTC((X, Y), matern(1.3, 0.8), Z, mean_function=_slope(), noise_variance=0.3)
    peer = SGPR((X, Y), model.kernel, Z, mean_function=_slope(), noise_variance=0.3)
    value = model.maximum_log_likelihood_objective()
    assert_allclose(model.training_loss(), -value, rtol=1e-14)
    assert_allclose(
        tf.function(model.maximum_log_likelihood_objective, autograph=False)(), value, rtol=1e-12
    )
    assert_allclose(copy.deepcopy(model).maximum_log_likelihood_objective(), value, rtol=1e-14)
    for verb in ("predict_f", "predict_y"):
        for ours, theirs in zip(getattr(model, verb)(NEW), getattr(peer, verb)(NEW)):
            assert_allclose(ours, theirs, rtol=1e-12)
    for ours, theirs in zip(model.posterior().predict_f(NEW), peer.predict_f(NEW)):
        assert_allclose(ours, theirs, rtol=1e-6)
    density = (model.predict_log_density((NEW, Y[:7])), peer.predict_log_density((NEW, Y[:7])))
    assert_allclose(*density, rtol=1e-12)


@pytest.mark.exhaustive
def test_gradients() -> None:
    model = DTC((X, Y), matern(1.3, 0.8), Z, noise_variance=0.3)
    with tf.GradientTape() as tape:
        loss = model.training_loss()
    for variable, slope in zip(
        model.trainable_variables, tape.gradient(loss, model.trainable_variables)
    ):
        value, step = variable.numpy(), 1e-6 * np.ones_like(variable.numpy())
        ends = []
        for sign in (1.0, -1.0):
            variable.assign(value + sign * step)
            ends.append(float(model.training_loss()))
        variable.assign(value)
        assert (ends[0] - ends[1]) / 2e-6 == pytest.approx(float(np.sum(slope)), rel=1e-4, abs=1e-6)


def test_bad_data_are_refused() -> None:
    with pytest.raises(DataError, match=r"Y\[3, 0\] is nan; remove or impute the 1 rows"):
        DTC((X, np.where(np.arange(20)[:, None] == 3, np.nan, Y)), matern(1.0, 1.0), Z)
    with pytest.raises(DataError, match="X has 2 columns and the inducing points have 1"):
        DTC((X, Y), matern(1.0, 1.0), Z[:, :1])
    with pytest.raises(DataError, match="X has 20 rows and Y has 19"):
        DTC((X, Y[:-1]), matern(1.0, 1.0), Z)
    with pytest.raises(DataError, match="X and Y have no rows"):
        DTC((X[:0], Y[:0]), matern(1.0, 1.0), Z)
    with pytest.raises(DataError, match="inducing_variable has 1 duplicate rows"):
        DTC((X, Y), matern(1.0, 1.0), np.concatenate([Z, Z[:1]]))


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("cache", ["variable", "tensor", "VARIABLE", PrecomputeCacheType.VARIABLE])
def test_cached_posteriors(cache: str | PrecomputeCacheType) -> None:
    model = DTC((X, Y), matern(1.3, 0.8), Z)
    posterior = model.posterior(cache)
    for left, right in zip(posterior.predict_f(NEW), model.predict_f(NEW)):
        assert_allclose(left, right, rtol=1e-6, atol=1e-6)
    model.kernel.variance.assign(2.0)
    posterior.update_cache()
    assert_allclose(posterior.predict_f(NEW)[0], model.predict_f(NEW)[0], rtol=1e-6, atol=1e-6)
    with pytest.raises(
        UnknownOptionError, match="precompute_cache='disk' is not known; use one of"
    ):
        model.posterior("disk")
