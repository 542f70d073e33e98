"""Numbers of very different sizes: variances stay positive, data stay where they are, and lost
digits are refused.
"""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import likelihoods as gl
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

import gpflow_decoupled as gd
from gpflow_decoupled.bases import CoupledBasis
from gpflow_decoupled.errors import DataError
from gpflow_decoupled.likelihoods import observation_moments

X = np.linspace(0.0, 1.0, 6)[:, None]
Y = np.sin(6.0 * X)
OWNERS = [gd.models.CVIGP, gd.models.LCLGP, gd.models.AffineIndependentGP]


@pytest.mark.parametrize(
    "likelihood",
    [gl.StudentT(0.3, df=4.0), gl.Gamma(), gl.Beta()],
    ids=lambda one: type(one).__name__,
)
def test_moments_by_nodes_are_those_of_gpflow(likelihood: gl.Likelihood) -> None:
    mean, variance = np.array([[-0.3], [0.4]]), np.array([[0.2], [0.7]])
    ours, theirs = (
        f(X[:2], mean, variance)
        for f in (
            lambda *arguments: observation_moments(likelihood, *arguments),
            likelihood.predict_mean_and_var,
        )
    )
    for one, other in zip(ours, theirs):
        assert_allclose(one, other, rtol=1e-10)


def test_moments_of_labels_far_from_zero_do_not_cancel() -> None:
    """Var y = scale^2 df / (df - 2) + Var f; GPflow's own difference of squares has no digit left
    here.
    """
    likelihood, mean, variance = (
        gl.StudentT(0.1, df=4.0),
        np.full((2, 1), 3e8),
        np.full((2, 1), 0.25),
    )
    found = observation_moments(likelihood, X[:2], mean, variance)
    assert_allclose(found[0], mean, rtol=1e-12)
    assert_allclose(found[1], 0.1**2 * 4.0 / 2.0 + 0.25, rtol=1e-6)
    assert np.all(np.abs(likelihood.predict_mean_and_var(X[:2], mean, variance)[1] - 0.27) > 0.1)


@pytest.mark.parametrize(
    "likelihood", [gl.Exponential(), gl.Poisson(), gl.Gamma()], ids=lambda one: type(one).__name__
)
def test_moments_beyond_the_range_of_floats_are_infinite(likelihood: gl.Likelihood) -> None:
    """Of exp(f): where its mean is infinite, where its square is, and where neither is."""
    mean, variance = np.array([[800.0], [400.0], [1.0]]), np.full((3, 1), 0.5)
    found = [
        np.asarray(one)[:, 0] for one in observation_moments(likelihood, X[:3], mean, variance)
    ]
    assert (
        np.isposinf(found[0][0])
        and np.all(np.isfinite(found[0][1:]))
        and not np.any(np.isnan(found))
    )
    assert np.isposinf(found[1][0]) and np.isposinf(found[1][1]) and 0.0 < found[1][2] < np.inf


def test_labels_of_affine_independent_models_do_not_cancel() -> None:
    values, shift = {}, {}
    for offset in (0.0, 1e6):
        mean = gpflow.functions.Constant(offset)
        model = gd.models.AffineIndependentGP(
            (X, Y + offset), gpflow.kernels.Matern52(), gl.Gaussian(1e-4), mean_function=mean
        )
        shift[offset], values[offset] = model.predict_y(X)
    assert_allclose(shift[1e6] - 1e6, shift[0.0], atol=1e-4)
    assert_allclose(values[1e6], values[0.0], rtol=1e-5)


@pytest.mark.exhaustive
@pytest.mark.parametrize("model_class", OWNERS)
def test_nothing_trains_the_inputs_of_observations(model_class: type) -> None:
    """A posterior on other inputs than those of the data has a bound that may lie above the
    evidence.
    """
    model = model_class((X, Y), gpflow.kernels.Matern32(lengthscales=0.3), gl.Gaussian(0.1))
    gpflow.set_trainable(model, True)
    gd.fit(model, steps=20, progress=False, learning_rate=0.1)
    K = model.kernel(X).numpy() + float(model.likelihood.variance.numpy()) * np.eye(len(X))
    evidence = stats.multivariate_normal(np.zeros(len(X)), K).logpdf(Y[:, 0])
    assert float(model.elbo()) < evidence + 1e-4, evidence
    assert_array_equal(model.data[0], X)


@pytest.mark.exhaustive
def test_data_of_a_mean_stay_too() -> None:
    model = gd.models.ODVGP(gpflow.kernels.Matern32(), gl.Gaussian(0.1), "data", X[::3])
    model.basis.data_mean.set_data(X)
    gpflow.set_trainable(model, True)
    gd.fit(model, (X, Y), steps=10, progress=False)
    assert_array_equal(model.basis.data_mean.inputs, X)


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize(
    "build",
    [
        lambda kernel, noise: (gd.models.CVIGP((X, Y), kernel, noise), None),
        lambda kernel, noise: (gpflow.models.SVGP(kernel, noise, X[::3]), (X, Y)),
    ],
    ids=["CVIGP", "SVGP"],
)
def test_noise_below_the_digits_of_the_prior_is_refused(build) -> None:
    kernel, likelihood = gpflow.kernels.Linear(variance=1e16), gl.Gaussian(1.0)
    likelihood.variance = gpflow.Parameter(0.5, transform=gpflow.utilities.positive())
    model, data = build(kernel, likelihood)
    before = [one.numpy() for one in model.parameters]
    with pytest.raises(
        DataError, match="prior variance of f is up to 1e\\+16 at X and the noise variance is 0.5"
    ):
        gd.fit(model, data, steps=2, progress=False)
    for one, value in zip(model.parameters, before):
        assert_array_equal(one, value)
    kernel.variance.assign(1e14)
    gd.fit(model, data, steps=1, progress=False, **({} if data else {"compile": False}))


def test_predicted_variances_are_not_negative() -> None:
    """Round-off of the features, which float32 has more of, is cut off below zero; what q adds is
    not.
    """
    kernel, basis = gpflow.kernels.Matern52(), CoupledBasis(X[::2])
    state = basis.factor(kernel)
    features = basis.features(state, kernel, tf.constant(X))
    larger = features._replace(minus=tuple(1.1 * one for one in features.minus))
    assert np.min(basis.variance(larger._replace(plus=()), kernel, X)) < -0.1
    floored = basis.variance(larger, kernel, X, floored=True)
    plus = np.sum(np.square(features.plus[0]), axis=-2).T
    assert np.all(floored >= plus) and np.any(floored == plus)
    exact = basis.variance(features, kernel, X)
    assert_array_equal(basis.mean_and_cov(state, kernel, X)[1], exact)


@pytest.mark.exhaustive
def test_a_mean_function_that_is_flung_away_is_said() -> None:
    """The bound of an LCLGP is recorded after each step: the fall in the first one counts as
    well.
    """
    mean = gpflow.functions.Constant(0.0)
    likelihood = gl.Gaussian()
    likelihood.variance = gpflow.Parameter(1e-8, transform=gpflow.utilities.positive())
    model = gd.models.LCLGP(
        (X, 1e-3 * Y), gpflow.kernels.Matern32(variance=1e-6), likelihood, mean_function=mean
    )
    with pytest.warns(UserWarning, match="The bound fell from"):
        gd.fit(model, steps=1, schedule=gd.training.Schedule(anneal=0.0), progress=False)
