"""Variances from neighbours for a mean on all data, `models.with_neighbours`."""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import kernels as gk
from gpflow import likelihoods as gl
from numpy.testing import assert_allclose

import gpflow_decoupled as gd
from gpflow_decoupled.errors import DataError, ModelError
from gpflow_decoupled.models import NNGP, ODVGP, with_neighbours
from gpflow_decoupled.models.neighbours import GaussianNNGP, SiteNNGP
from tests.optimizers.data_mean.problems import (
    BETA,
    NEW,
    NOISE,
    TREND,
    N,
    X,
    Y,
    counts,
    labels,
    model_of,
    outliers,
)  # fmt: skip

JITTER = 1e-6
TIGHT = gd.optimizers.ConjugateGradients(tolerance=1e-16, float32=False, max_steps=200)


def kernel() -> gk.Kernel:
    return gk.Matern52(variance=1.3, lengthscales=0.8)


def separate() -> gk.Kernel:
    return gk.SeparateIndependent([kernel(), gk.Matern32(variance=0.7, lengthscales=1.1)])


def solved(likelihood: Any = None, Y: np.ndarray = Y[:, :1], **options: Any) -> ODVGP:
    """A model whose mean is solved for to round-off."""
    ours = model_of(likelihood, **{"kernel": kernel(), **options})
    TIGHT.run(ours, (X, Y))
    return ours


def exact_variances(kernel: gk.Kernel, noise: Any) -> np.ndarray:
    """Of f at NEW given observations at X with noise [N], and the least noise of neighbours."""
    K, cross = kernel(X).numpy(), kernel(NEW, X).numpy()
    solved = np.linalg.solve(K + np.diag(noise * np.ones(N) + JITTER * np.diag(K)), cross.T)
    return np.diag(kernel(NEW).numpy() - cross @ solved)


ROWS = np.linspace(0.02, 0.8, N)
SEVERAL = {
    "one output": (lambda: solved(), Y[:, :1], [NOISE]),
    "two outputs": (lambda: solved(Y=Y, latents=2), Y, [NOISE, NOISE]),
    "a noise each": (
        lambda: solved(gl.Gaussian(np.array([0.1, 0.4])), Y, latents=2), Y, [0.1, 0.4],
    ),
    "a kernel each": (
        lambda: solved(
            Y=Y, kernel=separate(), latents=2,
            mean_function=gpflow.functions.Linear(np.eye(2), np.zeros(2)),
        ), Y, [NOISE, NOISE],
    ),
    "known noise": (lambda: solved(gl.Gaussian(ROWS[:, None])), Y[:, :1], [ROWS]),
}  # fmt: skip


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", SEVERAL)
def test_the_mean_stays_and_variances_are_those_of_neighbours(name):
    make, values, noises = SEVERAL[name]
    ours = make()
    mean, wide = ours.predict_f(NEW)
    kernels = getattr(ours.kernel, "kernels", [ours.kernel] * len(noises))
    exact = np.stack([exact_variances(*pair) for pair in zip(kernels, noises)], axis=1)
    every = with_neighbours(ours, (X, values), prediction_neighbours=N)
    assert isinstance(every, GaussianNNGP) and every.mean_is_solved
    assert_allclose(every.predict_f(NEW)[0], mean, rtol=0, atol=1e-8)
    assert_allclose(every.predict_f(NEW)[1], exact, rtol=1e-7)
    few = with_neighbours(ours, (X, values), prediction_neighbours=8)
    found, variance = few.predict_f(NEW)
    assert_allclose(found, mean, rtol=0, atol=1e-8)
    assert (variance.numpy() >= exact).all() and (variance.numpy() > exact + 1e-6).any()
    assert np.mean(variance) < 0.7 * np.mean(wide)


@pytest.mark.exhaustive
def test_it_is_another_model_with_every_verb():
    ours = solved()
    near = with_neighbours(ours, (X, Y[:, :1]), prediction_neighbours=12)
    mean, variance = near.predict_f(NEW)
    joint, cov = near.predict_f(NEW, full_cov=True)
    assert_allclose(joint, mean, rtol=1e-9)
    # inputs together see the union of their neighbours
    assert (np.diag(cov[0]) <= variance[:, 0].numpy() + 1e-9).all()
    y_mean, y_variance = near.predict_y(NEW)
    assert_allclose(y_mean, mean)
    assert_allclose(y_variance, variance + NOISE + JITTER * 1.3, rtol=1e-9)
    density = -0.5 * (np.log(2 * np.pi * y_variance) + (NEW[:, :1] - mean) ** 2 / y_variance)
    assert_allclose(near.predict_log_density((NEW, NEW[:, :1])), density.numpy()[:, 0])
    before = ours.predict_f(NEW)
    near.update((NEW[:2], NEW[:2, :1]))
    near.kernel.lengthscales.assign(0.3)
    assert np.abs(near.predict_f(NEW)[0] - mean).max() > 1e-2  # solved for again
    for part, expected in zip(ours.predict_f(NEW), before):
        assert_allclose(part, expected, rtol=0, atol=0)


OTHERS = {
    "labels": (gd.likelihoods.BernoulliLogit, labels),
    "counts": (gl.Poisson, counts),
    "outliers": (lambda: gl.StudentT(scale=0.3, df=4.0), outliers),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", OTHERS)
def test_other_likelihoods_keep_their_sites(name):
    likelihood, values = OTHERS[name][0](), OTHERS[name][1]()
    ours = solved(likelihood, values)
    near = with_neighbours(ours, (X, values), prediction_neighbours=N)
    assert isinstance(near, SiteNNGP) and near.mean_is_solved
    mean, variance = near.predict_f(NEW)
    assert_allclose(mean, ours.predict_f(NEW)[0], rtol=0, atol=1e-8)
    nu, precision = (part.numpy()[:, 0] for part in near.sites)
    assert_allclose(variance[:, 0], exact_variances(near.kernel, 1.0 / precision), rtol=1e-6)
    # sites of the curvatures of this q(f), and whose system its coefficients solve
    m, v = ours.predict_f(X)
    with tf.GradientTape() as tape:
        tape.watch((m, v))
        expected = ours.variational_expectations(m - TREND(X), v, (X, values))
    g, h = tape.gradient(expected, (m, v))
    assert_allclose(precision, np.maximum(-2.0 * h[:, 0], 1e-8 / 1.3), rtol=1e-6)
    assert_allclose(nu - precision * m.numpy()[:, 0], g[:, 0], rtol=1e-4, atol=1e-6)
    change = near.predict_f(NEW)[0].numpy()
    assert near.solve_mean(tolerance=1e-5).products <= 1
    assert_allclose(near.predict_f(NEW)[0], change, rtol=0, atol=1e-6)


@pytest.mark.exhaustive
def test_sweeps_move_the_sites_on_to_the_dense_ones():
    ours = solved(gl.Poisson(), counts())
    near = with_neighbours(ours, (X, counts()), num_neighbours=N, prediction_neighbours=N)
    dense = gd.models.CVIGP((X, counts()), kernel(), gl.Poisson(), mean_function=TREND)
    gd.optimizers.ConjugateComputation().run(dense)
    expected = dense.predict_f(NEW)
    assert np.abs(near.predict_f(NEW)[0] - expected[0]).max() > 2e-2
    gd.optimizers.SiteSweeps(near).run()
    for part, other in zip(near.predict_f(NEW), expected):
        assert_allclose(part, other, rtol=1e-2, atol=1e-2)


@pytest.mark.exhaustive
def test_missing_outputs_have_no_sites():
    gaps = np.where(np.arange(2 * N).reshape(N, 2) % 7 == 0, np.nan, Y)
    likelihood = gd.likelihoods.RowLikelihood(gl.Gaussian(NOISE))
    ours = solved(likelihood, gaps, latents=2)
    near = with_neighbours(ours, (X, gaps), prediction_neighbours=N)
    noise = gl.Gaussian(NOISE)
    exact = NNGP((X, gaps), kernel(), noise, num_neighbours=N, mean_function=TREND)
    for part, expected in zip(near.predict_f(NEW), exact.predict_f(NEW)):
        assert_allclose(part, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.exhaustive
def test_a_model_of_standardised_data():
    def build(X: np.ndarray, Y: np.ndarray) -> ODVGP:
        return ODVGP(kernel(), gl.Gaussian(NOISE), "data", BETA)

    built = gd.Standardized(build, (5.0 + X, 100.0 * Y[:, :1]))
    gd.fit(built, steps=1, mean_solver=TIGHT, progress=False)
    near = built.with_neighbours(prediction_neighbours=N)
    mean, variance = near.predict_y(5.0 + NEW)
    expected, wide = built.predict_y(5.0 + NEW)
    assert_allclose(mean, expected, rtol=1e-8, atol=1e-6)
    assert (variance.numpy() < wide.numpy()).all() and np.mean(variance) > 100.0
    assert isinstance(built.model, ODVGP)
    assert near.leave_one_out(np.arange(3)).mean.shape == (3, 1)
    with pytest.raises(ModelError, match="takes a model of the class BasisGP"):
        near.with_neighbours()


@pytest.mark.exhaustive
def test_what_has_no_such_mean_is_refused():
    ours = solved()
    with pytest.raises(DataError, match="not the 60 of the model's mean"):
        with_neighbours(ours, (X[1:], Y[1:, :1]))
    fresh = model_of(kernel=kernel())
    with pytest.raises(DataError, match="not the 0 of"):
        with_neighbours(fresh, (X, Y[:, :1]))
    ours.basis.q_mu.assign(ours.basis.q_mu + 2.0)
    with pytest.raises(ModelError, match="solve for them first"):
        with_neighbours(ours, (X, Y[:, :1]))
    with pytest.raises(ModelError, match="mean on all data"):
        with_neighbours(ODVGP(kernel(), gl.Gaussian(), X[:9], BETA), (X, Y[:, :1]))
    mixed = gk.LinearCoregionalization([kernel(), kernel()], W=np.eye(2))
    two = solved(Y=Y, kernel=mixed, latents=2)
    with pytest.raises(DataError, match="mix"):
        with_neighbours(two, (X, Y))
    with pytest.raises(DataError, match="prediction_neighbours"):
        with_neighbours(solved(), (X, Y[:, :1]), prediction_neighbours=0)
