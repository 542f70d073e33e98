"""Draws given all data: each one is that of the dense formula, (D53), with the same draws of the
prior and of the noise.
"""

from __future__ import annotations

import re
import warnings
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import likelihoods as gl
from gpflow.kernels import LinearCoregionalization, SeparateIndependent
from numpy.testing import assert_allclose, assert_array_equal

from gpflow_decoupled.errors import DataError, ModelError, UnknownOptionError
from gpflow_decoupled.models import CVIGP, ODVGP
from gpflow_decoupled.optimizers import ConjugateGradients, StochasticDualDescent
from gpflow_decoupled.optimizers.data_mean import system
from gpflow_decoupled.pathwise import pathwise_samples
from gpflow_decoupled.pathwise.prior import draw_prior
from gpflow_decoupled.pathwise.samples import given_data
from tests.bounds.registry import matern
from tests.interrupts import interrupt_call
from tests.optimizers.data_mean.problems import (
    BETA,
    NEW,
    NOISE,
    TARGET,
    TREND,
    N,
    X,
    Y,
    grams_of,
    labels,
    model_of,
)
from tests.pathwise.identity import Identity
from tests.reference import conjugate as cj
from tests.reference import data_mean as dm
from tests.reference import likelihoods as lik

S, FREQUENCIES = 3, 20
EXACT = ConjugateGradients(tolerance=1e-13)
"""Whose draws are within sqrt(2e-13) prior standard deviations of exact ones."""
MIXED = np.array([[1.0, -0.4], [0.3, 0.8]])
PARTS = {
    "one": (lambda: matern(1.3, 0.8), 1),
    "two latents": (lambda: matern(1.3, 0.8), 2),
    "separate": (lambda: SeparateIndependent([matern(1.3, 0.8), matern(0.6, 1.4)]), 2),
}


def _solved(kernel: Any = None, latents: int = 1) -> tuple[ODVGP, tuple]:
    model, data = model_of(kernel=kernel, latents=latents), (X, Y[:, :latents])
    ConjugateGradients(tolerance=0.1).run(
        model, data
    )  # the draws do not depend on how exact its mean is
    return model, data


def _drawn(kernels: list, seed: int) -> tuple:
    """Values [S, L, N] and [S, L, N_new] of the draws from the prior, and noise [S, L, N], of a
    seed.
    """
    rng = np.random.default_rng(seed)
    prior = draw_prior(kernels, 2, S, FREQUENCIES, rng)
    values = prior(tf.constant(X)).numpy(), prior(tf.constant(NEW)).numpy()
    return *values, np.sqrt(NOISE) * rng.standard_normal((S, len(kernels), N))


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", PARTS)
def test_each_draw_is_that_of_the_dense_formula(name: str) -> None:
    make, latents = PARTS[name]
    kernel = make()
    model, data = _solved(kernel, latents)
    draws = pathwise_samples(model, S, data=data, solver=EXACT, num_frequencies=FREQUENCIES, seed=3)
    assert 0.0 <= draws.gap <= 1e-13
    kernels = kernel.kernels if name == "separate" else [kernel] * latents
    at_data, at_new, noise = _drawn(kernels, 3)
    values = draws(NEW).numpy()
    assert values.shape == (S, len(NEW), latents)
    for latent in range(latents):
        K, K_new = grams_of(kernel, latent).K_x, grams_of(kernel, latent, inputs=NEW).K_xg
        for draw in range(S):
            drawn = at_data[draw, latent], at_new[draw, latent], noise[draw, latent]
            expected = dm.draw(K, K_new, np.full(N, 1.0 / NOISE), TARGET[:, latent], *drawn)
            assert_allclose(values[draw, :, latent], expected + TREND(NEW).numpy()[:, 0], atol=1e-6)
    own = np.stack([NEW + 0.1 * draw for draw in range(S)])
    expected = np.stack([draws(inputs).numpy()[draw] for draw, inputs in enumerate(own)])
    assert_allclose(draws(own), expected, atol=1e-10)


def _linear() -> gpflow.kernels.Kernel:
    """A kernel whose three features are exact."""
    return gpflow.kernels.Linear(variance=[0.7, 1.3]) + gpflow.kernels.Constant(0.5)


def _site_moments(
    model: ODVGP, likelihood: lik.Likelihood, y: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mean [N_new] and covariance of the dense posterior at the sites that q(f) suggests."""
    mean, variance = (moment.numpy()[:, 0] for moment in model.predict_f(X))
    _, g, h = lik.expectation(likelihood, y, mean, variance)
    tau, K = -2.0 * h, model.kernel
    sites = cj.Sites(g + tau * (mean - TREND(X).numpy()[:, 0]), tau)
    return cj.predict(
        K(X).numpy(),
        K(NEW, X).numpy(),
        K(NEW).numpy(),
        np.zeros(N),
        TREND(NEW).numpy()[:, 0],
        sites,
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "name", [pytest.param("Gaussian", marks=pytest.mark.exhaustive), "Bernoulli"]
)
def test_moments_are_those_of_the_dense_posterior_at_the_sites(name: str) -> None:
    """Without noise of Monte Carlo: the last draw is the mean, the others are columns of a root of
    the covariance.
    """
    if name == "Gaussian":
        likelihood, reference, y = gl.Gaussian(NOISE), lik.gaussian(NOISE), Y[:, :1]
    else:
        likelihood, reference, y = gl.Bernoulli(invlink=tf.sigmoid), lik.bernoulli_logit(), labels()
    model = ODVGP(_linear(), likelihood, "data", BETA[:3], mean_function=TREND)
    ConjugateGradients(tolerance=1e-9, rank=3).run(model, (X, y))
    identity = Identity()
    draws = pathwise_samples(model, N + 4, data=(X, y), solver=EXACT, seed=identity)
    assert identity.used == N + 3
    values = draws(NEW).numpy()[..., 0]
    mean, cov = _site_moments(model, reference, y[:, 0])
    assert_allclose(values[-1], mean, atol=1e-6)
    assert_allclose(values[-1], model.predict_f(NEW)[0][:, 0], atol=1e-4)
    root = values[:-1] - mean
    assert_allclose(root.T @ root, cov, atol=1e-6)


@pytest.mark.exhaustive
def test_many_draws_average_to_the_exact_posterior() -> None:
    """Of 4000 draws, within five standard errors."""
    model = ODVGP(_linear(), gl.Gaussian(NOISE), "data", BETA[:3], mean_function=TREND)
    data = X, Y[:, :1]
    ConjugateGradients(rank=3).run(model, data)
    values = pathwise_samples(model, 4000, data=data, seed=1)(NEW).numpy()[..., 0]
    K = model.kernel
    mean, cov = dm.exact_posterior(
        K(X).numpy(), K(NEW, X).numpy(), K(NEW).numpy(), TARGET[:, 0], NOISE
    )
    deviation = np.sqrt(np.diag(cov))
    assert np.abs(
        values.mean(0) - mean - TREND(NEW).numpy()[:, 0]
    ).max() < 5.0 * deviation.max() / np.sqrt(4000)
    correlation = cov / np.outer(deviation, deviation)
    error = (np.cov(values.T) - cov) / np.outer(deviation, deviation)
    assert np.all(np.abs(error) < 5.0 * np.sqrt((1.0 + correlation**2) / 4000))


@pytest.mark.exhaustive
def test_mixed_outputs_have_the_sites_of_q() -> None:
    kernel = LinearCoregionalization([_linear(), gpflow.kernels.Linear(2.0)], MIXED)
    model = ODVGP(kernel, gl.Gaussian(0.5), "data", BETA[:3], num_latent_gps=2)
    ConjugateGradients(tolerance=1e-10, rank=3).run(model, (X, Y))
    draws = pathwise_samples(model, 2 * N + 6, data=(X, Y), solver=EXACT, seed=Identity())
    values = draws(NEW).numpy()
    assert_allclose(values[-1], model.predict_f(NEW)[0], atol=1e-4)
    root, expected = (values[:-1] - values[-1]).reshape(-1, 2 * len(NEW)), 0.0
    for latent, part in enumerate(kernel.kernels):
        tau = np.full(N, np.sum(MIXED[:, latent] ** 2) / 0.5)  # (D51)
        at = (
            part(X).numpy(),
            part(NEW, X).numpy(),
            part(NEW).numpy(),
            np.zeros(N),
            np.zeros(len(NEW)),
        )
        cov = cj.predict(*at, cj.Sites(0.0 * tau, tau))[1]
        expected = expected + np.kron(cov, np.outer(MIXED[:, latent], MIXED[:, latent]))
    assert_allclose(root.T @ root, expected, atol=1e-6)


@pytest.mark.exhaustive
def test_the_gap_bounds_how_far_values_are_from_exact_ones() -> None:
    kernel = SeparateIndependent([matern(1.3, 0.8), matern(0.6, 1.4)])
    model, data = _solved(kernel, 2)
    rng = np.random.default_rng(3)
    prior = draw_prior(list(kernel.kernels), 2, S, FREQUENCIES, rng)
    solver = ConjugateGradients(tolerance=0.3, rank=8)
    correction, found = given_data(model, kernel, prior, data, solver, rng)
    at_data, _, noise = _drawn(list(kernel.kernels), 3)
    K_v = correction(tf.constant(X), False).numpy()  # [S, N, L]
    gaps = np.zeros(S)
    for latent in range(2):
        k, K_new = grams_of(kernel, latent), grams_of(kernel, latent, inputs=NEW).K_xg
        for draw in range(S):
            target = TARGET[:, latent] - at_data[draw, latent] - noise[draw, latent]
            v = np.linalg.solve(k.K_x, K_v[draw, :, latent])
            at = k.K_x, k.Q_x, np.full(N, 1.0 / NOISE), target, v
            gaps[draw] += dm.gap(*at)
            error = K_new @ (v - dm.coefficients(k.K_x, at[2], target))
            limit = np.sqrt(2.0 * dm.gap(*at) * k.K_x[0, 0])
            assert 1e-4 * limit < np.abs(error).max() <= limit
    assert found == pytest.approx(gaps.max(), rel=1e-6) and gaps.min() < found <= 0.3


@pytest.mark.exhaustive
def test_draws_are_functions_fixed_by_their_seed(capsys: pytest.CaptureFixture) -> None:
    model, data = _solved()

    def draw(**options: Any) -> Any:
        return pathwise_samples(model, S, data=data, num_frequencies=FREQUENCIES, **options)

    draws = draw(seed=1, solver=ConjugateGradients(tolerance=1e-3, progress=True))
    assert re.search(r"3 draws: \d+\.0 products, gap .* nats", capsys.readouterr().err)
    values = draws(NEW)
    assert_array_equal(draw(seed=1)(NEW), values)
    assert np.abs(draw(seed=2)(NEW) - values).max() > 0.01
    model.kernel.lengthscales.assign(3.0)
    model.basis.data_mean.set_data(X[:10])
    assert_array_equal(draws(NEW), values)


@pytest.mark.exhaustive
@pytest.mark.parametrize("shape", [[None, 2], [S, None, 2]], ids=["shared", "own"])
def test_draws_can_be_compiled_and_differentiated(shape: list) -> None:
    """Compiled for any number of inputs; the gradient is taken through the compiled function."""
    model, data = _solved()
    draws = pathwise_samples(model, S, data=data, num_frequencies=FREQUENCIES)
    inputs = tf.constant(np.stack([NEW] * S) if len(shape) == 3 else NEW)
    compiled = tf.function(
        draws, input_signature=[tf.TensorSpec(shape, tf.float64)], autograph=False
    )
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        values = compiled(inputs)
        first = values[0, :, 0]
    assert_allclose(values, draws(NEW), rtol=1e-9, atol=1e-12)
    step = 1e-6 * np.array([1.0, 0.0])
    numerical = (draws(NEW + step) - draws(NEW - step))[0, :, 0] / 2e-6
    gradient = tf.reshape(tape.gradient(first, inputs), [-1, 2])[: len(NEW), 0]
    assert_allclose(gradient, numerical, rtol=1e-6, atol=1e-7)


@pytest.mark.exhaustive
def test_a_solve_that_is_cut_short_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    model, data = _solved()
    with pytest.warns(
        UserWarning, match=r"gap of .* nats in place of 1e-09 \(products done\).*max_products"
    ):
        draws = pathwise_samples(
            model, S, data=data, solver=ConjugateGradients(tolerance=1e-9, max_products=2)
        )
    assert draws.gap > 1e-9 and np.all(np.isfinite(draws(NEW)))
    with monkeypatch.context() as patch:
        interrupt_call(patch, system, "gram_product", 2)
        with pytest.warns(UserWarning, match=r"\(interrupted\)"):
            draws = pathwise_samples(model, S, data=data)
    assert np.all(np.isfinite(draws(NEW)))


def test_what_cannot_be_drawn_is_refused_and_nothing_changes() -> None:
    model, data = _solved()
    before = [parameter.numpy() for parameter in model.parameters]
    fresh, noise = model_of(), gl.Gaussian(NOISE)
    refused = {
        "no mean": (
            ModelError,
            "ODVGP has none: leave data out",
            ODVGP(matern(1.0, 1.0), noise, X[:5], BETA),
            data,
        ),
        "own data": (
            ModelError,
            "data is for models with a mean on all data",
            CVIGP(data, matern(1.0, 1.0), noise),
            data,
        ),
        "not run": (
            ModelError,
            "are not the rows of X. Run optimizers.ConjugateGradients",
            fresh,
            data,
        ),
        "other X": (ModelError, "are not the rows of X", model, (X[::-1], data[1])),
        "rows": (DataError, "rows", model, (X, Y[:-1, :1])),
        "outputs": (DataError, "Y has 2 columns", model, (X, Y)),
    }
    for name, (error, message, wrong, given) in refused.items():
        with pytest.raises(error, match=message):
            pathwise_samples(wrong, S, data=given)
            pytest.fail(name)
    fresh.basis.data_mean.set_data(X)
    with pytest.raises(ModelError, match="coefficients of zero. Run optimizers.ConjugateGradients"):
        pathwise_samples(fresh, S, data=data)
    with pytest.raises(UnknownOptionError, match=r"pass data=\(X, Y\)"):
        pathwise_samples(model, S, solver=ConjugateGradients())
    with pytest.raises(UnknownOptionError, match="solved for by optimizers.ConjugateGradients"):
        pathwise_samples(model, S, data=data, solver=StochasticDualDescent())
    with pytest.raises(DataError, match="prior of Cosine"):
        pathwise_samples(model_of(kernel=gpflow.kernels.Cosine()), S, data=data)
    for old, parameter in zip(before, model.parameters):
        assert_array_equal(parameter, old)


@pytest.mark.exhaustive
def test_zeros_may_be_what_was_solved_for() -> None:
    model = model_of(mean_function=None)
    data = X, np.zeros((N, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that Y is constant
        ConjugateGradients().run(model, data)
    assert np.all(np.isfinite(pathwise_samples(model, S, data=data)(NEW)))


@pytest.mark.exhaustive
def test_single_precision() -> None:
    model, data = _solved()
    expected = pathwise_samples(model, S, data=data, num_frequencies=FREQUENCIES)(NEW)
    gpflow.config.set_default_float(np.float32)
    data = X.astype(np.float32), Y[:, :1].astype(np.float32)
    trend = gpflow.functions.Linear(
        TREND.A.numpy().astype(np.float32), TREND.b.numpy().astype(np.float32)
    )
    model = ODVGP(
        matern(1.3, 0.8), gl.Gaussian(NOISE), "data", BETA.astype(np.float32), mean_function=trend
    )
    ConjugateGradients(tolerance=0.1).run(model, data)
    draws = pathwise_samples(model, S, data=data, num_frequencies=FREQUENCIES)
    values = draws(NEW.astype(np.float32))
    assert values.dtype == tf.float32
    assert_allclose(values, expected, atol=2e-2)
