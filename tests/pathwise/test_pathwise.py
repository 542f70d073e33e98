"""Draws as functions have the posterior's moments, exactly where the features of the kernel are
exact.

A draw is linear in its standard normal numbers. Fed with the rows of an identity in their place, S
draws are the columns of a root of the covariance, so that this is compared with `predict_f`, and
not with an average of noise."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_decoupled.bases import CoupledBasis, HybridBasis
from gpflow_decoupled.errors import DataError, ModelError
from gpflow_decoupled.models import (
    CVIGLM,
    CVIGP,
    DVGP,
    LCLGP,
    NNGP,
    ODVGP,
    SOLVEGP,
    AffineIndependentGP,
    BasisGP,
    FactorGraph,
)
from gpflow_decoupled.pathwise import pathwise_samples
from gpflow_decoupled.pathwise.prior import draw_prior
from tests.pathwise.identity import Identity

NEW = np.array([[-0.9, 0.3], [0.1, 0.2], [0.8, -0.7], [2.0, 1.0]])


def _kernel() -> gpflow.kernels.Kernel:
    return gpflow.kernels.Linear(variance=[0.7, 1.3]) + gpflow.kernels.Constant(0.5)


def _moved(model, rng):
    """Random parameters of q."""
    for parameter in model.basis.trainable_parameters:
        if (
            parameter is not getattr(getattr(model.basis, "beta", None), "Z", None)
            and parameter.shape[-1] != 2
        ):
            noise = 0.3 * rng.standard_normal(parameter.shape)
            parameter.assign(
                parameter.numpy() + (np.tril(noise) if parameter.shape.rank == 3 else noise)
            )
    return model


def _models(rng) -> dict:
    beta, gamma = rng.uniform(-1, 1, (4, 2)), rng.uniform(-1, 1, (3, 2))
    noise = gpflow.likelihoods.Gaussian(0.1)
    separate = gpflow.kernels.SeparateIndependent([_kernel(), gpflow.kernels.Linear(2.0)])
    mixed = gpflow.kernels.LinearCoregionalization(
        [_kernel(), gpflow.kernels.Linear(2.0)], W=rng.normal(size=(3, 2))
    )
    shared = gpflow.inducing_variables.SharedIndependentInducingVariables(
        gpflow.inducing_variables.InducingPoints(beta)
    )
    data = rng.uniform(-1, 1, (6, 2)), rng.standard_normal((6, 1))
    sites = CVIGP(data, _kernel(), gpflow.likelihoods.StudentT(0.3))
    sites.basis.tau.assign(np.array([1.0, 0.3, -0.05, 2.0, 0.0, 1.0])[:, None])
    dual = LCLGP(data, _kernel(), noise)
    dual.basis.lam.assign(np.linspace(0.0, 2.0, 6)[:, None])
    dual.basis.alpha.assign(rng.standard_normal((6, 1)))
    return {
        "coupled": BasisGP(
            _kernel(),
            noise,
            CoupledBasis(beta, 2),
            mean_function=gpflow.functions.Linear([[1.0], [2.0]]),
        ),
        "unwhitened": BasisGP(_kernel(), noise, CoupledBasis(beta, whiten=False)),
        "separate": BasisGP(separate, noise, CoupledBasis(shared, 2)),
        "mixed": BasisGP(mixed, noise, CoupledBasis(shared, 2)),
        "orthogonal": ODVGP(_kernel(), noise, gamma, beta),
        "hybrid": BasisGP(_kernel(), noise, HybridBasis(gamma, beta)),
        "inverse": DVGP(_kernel(), noise, gamma, beta),
        "decoupled": DVGP(_kernel(), noise, gamma, beta, covariance="coupled"),
        "solve": SOLVEGP(_kernel(), noise, gamma, beta),
        "sites": sites,
        "dual": dual,
    }


NAMES = [
    "coupled",
    "unwhitened",
    "separate",
    "mixed",
    "orthogonal",
    "hybrid",
    "inverse",
    "decoupled",
    "solve",
    "sites",
    "dual",
]


@pytest.fixture(scope="module")
def models() -> dict:
    with gpflow.config.as_context(
        gpflow.config.Config(jitter=1e-3)
    ):  # visible, if it were forgotten
        return _models(np.random.default_rng(0))


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", NAMES)
def test_moments_are_those_of_predict_f(models, name, rng) -> None:
    with gpflow.config.as_context(gpflow.config.Config(jitter=1e-3)):
        model = models[name] if name in ("sites", "dual") else _moved(models[name], rng)
        identity = Identity()
        draws = pathwise_samples(model, 64, seed=identity)
        values = draws(NEW).numpy()
        mean, cov = (tensor.numpy() for tensor in model.predict_f(NEW, full_cov=True))
    assert identity.used < 64, "one draw must be left over, which is the mean"
    np.testing.assert_allclose(values[-1], mean, atol=1e-10)
    root = values - mean
    for output in range(mean.shape[1]):
        np.testing.assert_allclose(
            root[:, :, output].T @ root[:, :, output], cov[output], atol=1e-9
        )


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["coupled", "separate", "mixed", "solve", "sites"])
def test_each_draw_has_inputs_of_its_own_if_it_wants(models, name, rng) -> None:
    draws = pathwise_samples(models[name], 3)
    X = rng.uniform(-1, 1, (3, 5, 2))
    expected = np.stack([draws(inputs).numpy()[index] for index, inputs in enumerate(X)])
    np.testing.assert_allclose(draws(X), expected, rtol=1e-9, atol=1e-9)
    with pytest.raises(DataError, match="there are 3 draws"):
        draws(X[:2])


def test_there_is_a_case_for_every_name(models) -> None:
    assert list(models) == NAMES


@pytest.mark.parametrize(
    "kernel",
    [
        gpflow.kernels.SquaredExponential(1.5, [0.5, 2.0]),
        gpflow.kernels.Matern12(lengthscales=0.8),
        gpflow.kernels.Matern32(lengthscales=0.8),
        gpflow.kernels.Matern52(1.5, active_dims=[1]),
        gpflow.kernels.RationalQuadratic(alpha=0.7),
        gpflow.kernels.SquaredExponential() + gpflow.kernels.Linear(active_dims=[0]),
    ],
    ids=lambda kernel: kernel.name,
)
def test_features_of_the_prior_average_to_the_kernel(kernel, rng) -> None:
    count = 40_000
    (phi,) = draw_prior([kernel], 2, 1, count, rng).features
    features = phi(tf.constant(NEW)[None], [0])[0].numpy()
    np.testing.assert_allclose(features @ features.T, kernel(NEW), atol=5.0 * 1.5 / np.sqrt(count))


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", [CVIGP, NNGP])
def test_draws_have_the_deviation_of_the_posterior_with_few_frequencies(kind, rng) -> None:
    """Frequencies that all draws share gave ratios of 0.5 to 1.5 here."""
    X, new = rng.uniform(size=(20, 1)), np.linspace(-0.5, 1.5, 15)[:, None]
    Y, noise = (
        np.sin(6.0 * X) + 0.1 * rng.standard_normal(X.shape),
        gpflow.likelihoods.Gaussian(0.01),
    )
    options = {"num_neighbours": 19} if kind is NNGP else {}
    model = kind((X, Y), gpflow.kernels.Matern52(lengthscales=0.3), noise, **options)
    if kind is CVIGP:
        model.assign_sites(Y / 0.01, np.full(Y.shape, 100.0), Y)
    values = pathwise_samples(model, 2000, num_frequencies=20)(new).numpy()[..., 0]
    exact = gpflow.models.GPR((X, Y), model.kernel, noise_variance=0.01)
    mean, variance = (part.numpy()[:, 0] for part in exact.predict_f(new))
    np.testing.assert_allclose(values.std(axis=0) / np.sqrt(variance), 1.0, atol=0.08)
    assert np.max(np.abs(values.mean(axis=0) - mean) / np.sqrt(variance)) < 4.5 / np.sqrt(2000)


@pytest.mark.exhaustive
def test_draws_are_functions_fixed_by_their_seed(rng) -> None:
    data = rng.uniform(-1, 1, (30, 2)), rng.standard_normal((30, 1))
    model = CVIGP(data, gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian(0.1))
    model.basis.tau.assign(np.full((30, 1), 10.0))
    draws = pathwise_samples(model, 3, num_frequencies=50, seed=1)
    assert draws.num_samples == 3
    values = draws(NEW)
    np.testing.assert_allclose(
        tf.function(draws, autograph=False)(NEW[:2]), values[:, :2], rtol=1e-10
    )
    np.testing.assert_array_equal(
        pathwise_samples(model, 3, num_frequencies=50, seed=1)(NEW), values
    )
    model.kernel.lengthscales.assign(3.0)
    np.testing.assert_array_equal(draws(NEW), values)
    X = tf.constant(NEW)
    with tf.GradientTape() as tape:
        tape.watch(X)
        first = draws(X)[0, :, 0]
    step = 1e-6 * np.array([1.0, 0.0])
    numerical = (draws(NEW + step) - draws(NEW - step))[0, :, 0] / 2e-6
    np.testing.assert_allclose(tape.gradient(first, X)[:, 0], numerical, rtol=1e-6, atol=1e-8)


def test_what_is_not_known_is_refused(rng) -> None:
    data = rng.uniform(-1, 1, (5, 2)), rng.standard_normal((5, 1))
    noise = gpflow.likelihoods.Gaussian(0.1)
    with pytest.raises(DataError, match="num_samples=0"):
        pathwise_samples(CVIGP(data, _kernel(), noise), 0)
    with pytest.raises(DataError, match="prior of Cosine.*use predict_f_samples"):
        pathwise_samples(CVIGP(data, gpflow.kernels.Cosine(), noise), 1)
    with pytest.raises(ModelError, match="known for AffineIndependentBasis.*predict_f_samples"):
        pathwise_samples(AffineIndependentGP(data, gpflow.kernels.Matern32(), noise), 1)
    with pytest.raises(
        ModelError, match="ODVGP.* and got GPR. .* at given inputs use its predict_f_samples"
    ):
        pathwise_samples(gpflow.models.GPR(data, _kernel()), 1)
    with pytest.raises(ModelError, match="and got SVGP. .*CoupledBasis"):
        pathwise_samples(gpflow.models.SVGP(_kernel(), noise, data[0]), 1)
    with pytest.raises(ModelError, match="and got FactorGraph, which has no latent function"):
        pathwise_samples(FactorGraph({}, {}), 1)
    with pytest.raises(DataError, match="inducing points, not Weights"):
        pathwise_samples(CVIGLM(data, noise), 1)
