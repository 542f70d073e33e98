"""Class labels by multipliers: the bound by numpy, the best q of conjugate computation, refusals;
grades and rates beside them.
"""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import likelihoods as gl
from numpy.testing import assert_allclose

import gpflow_decoupled as gd
from gpflow_decoupled.errors import DataError
from gpflow_decoupled.likelihoods import CategoricalLogit, Ordinal, site_loss
from gpflow_decoupled.likelihoods.row_likelihood import with_nodes
from gpflow_decoupled.models import CVIGP, LCLGP
from gpflow_decoupled.optimizers import (
    ConjugateComputation,
    ConstraintSubset,
    LinearlyConstrainedLagrangian,
)
from tests.reference import lcl_sites as ref

N, C = 9, 3
RULE = LinearlyConstrainedLagrangian(tolerance=1e-9, compile=False)
CVI = ConjugateComputation()
X = np.random.default_rng(0).uniform(-2.0, 2.0, (N, 2))
LABELS = np.argmax(np.sin(2.0 * X[:, :1] + 2.1 * np.arange(C)), axis=1).astype(float)[:, None]


def kernel(variance: float = 1.3) -> gpflow.kernels.Kernel:
    return gpflow.kernels.Matern52(variance, 0.8)


def separate() -> gpflow.kernels.MultioutputKernel:
    """A kernel for each class."""
    return gpflow.kernels.SeparateIndependent([kernel(0.5 + c) for c in range(C)])


def test_loss_and_slopes_are_those_of_numpy(rng: np.random.Generator) -> None:
    loss = site_loss(CategoricalLogit(C), LABELS)
    h, sigma = rng.normal(size=(N, C)), np.exp(0.5 * rng.normal(size=(N, C)))
    found = loss.expand(tf.constant(h), tf.constant(sigma))

    def of_row(n: int, c: int, h_c: float, sigma_c: float) -> float:
        mean, deviation = h[n].copy(), sigma[n].copy()
        mean[c], deviation[c] = h_c, sigma_c
        return ref.class_loss(int(LABELS[n, 0]), mean, deviation**2)

    expected = [ref.class_loss(int(LABELS[n, 0]), h[n], sigma[n] ** 2) for n in range(N)]
    assert_allclose(np.sum(found.value, axis=1), expected, rtol=1e-9)
    assert np.all((found.d_h > loss.lower) & (found.d_h < loss.upper))
    step = 1e-3
    for n, c in ((0, 0), (4, 1), (8, 2)):
        a, b = h[n, c], sigma[n, c]
        grid = [[of_row(n, c, a + i * step, b + j * step) for j in (-1, 0, 1)] for i in (-1, 0, 1)]
        at = np.array(grid)
        slopes = (at[2, 1] - at[0, 1], at[1, 2] - at[1, 0])
        first = [float(part[n, c]) for part in (found.d_h, found.d_s)]
        assert_allclose(first, np.array(slopes) / (2 * step), atol=1e-5)
        bends = (
            at[2, 1] - 2 * at[1, 1] + at[0, 1],
            0.25 * (at[2, 2] - at[2, 0] - at[0, 2] + at[0, 0]),
            at[1, 2] - 2 * at[1, 1] + at[1, 0],
        )
        second = [float(part[n, c]) for part in (found.d_hh, found.d_hs, found.d_ss)]
        assert_allclose(second, np.array(bends) / step**2, atol=1e-4)


def test_bound_is_that_of_numpy(rng: np.random.Generator) -> None:
    model = LCLGP((X, LABELS), separate(), CategoricalLogit(C))
    loss = model.site_loss()
    share = rng.uniform(0.1, 0.9, (N, C))
    model.basis.alpha.assign(loss.lower + share * (loss.upper - loss.lower))
    model.basis.lam.assign(rng.uniform(0.05, 1.0, (N, C)))
    grams = [np.asarray(one(X)) for one in model.kernel.kernels]
    alpha, lam = model.basis.alpha.numpy(), model.basis.lam.numpy()
    expected = ref.class_bound(np.array(grams), LABELS[:, 0], alpha, lam)
    assert_allclose(model.elbo(), expected, rtol=1e-8)


@pytest.mark.exhaustive
def test_the_best_q_is_that_of_conjugate_computation() -> None:
    """From two outer iterations, and no multipliers are better."""
    model, other = (
        of((X, LABELS), separate(), CategoricalLogit(C), num_latent_gps=C) for of in (LCLGP, CVIGP)
    )
    result = RULE.run(model)
    assert result.converged and result.steps <= 4 and np.all(np.diff(result.history["elbo"]) >= 0)
    CVI.run(other, steps=300, tolerance=1e-10)
    assert_allclose(result.elbo, other.elbo(), rtol=1e-8)
    for mine, theirs in zip(model.predict_f(X[:3] + 0.2), other.predict_f(X[:3] + 0.2)):
        assert_allclose(mine, theirs, atol=2e-4)
    assert_allclose(np.sum(model.predict_y(X)[0], axis=1), 1.0, rtol=1e-6)
    mean, variance = model.moments()[:2]
    slopes = model.site_loss().expand(mean, tf.sqrt(variance))
    assert_allclose(model.basis.alpha, slopes.d_h, atol=1e-6)


@pytest.mark.exhaustive
@pytest.mark.parametrize("variance", [10.0, 200.0])
def test_broad_priors(variance: float) -> None:
    model, other = (
        of((X, LABELS), kernel(variance), CategoricalLogit(C), num_latent_gps=C)
        for of in (LCLGP, CVIGP)
    )
    result = RULE.run(model)
    CVI.run(other, steps=500, tolerance=1e-9)
    assert result.converged and result.elbo >= float(other.elbo()) - 1e-6


@pytest.mark.exhaustive
def test_fit_moves_the_kernel() -> None:
    model = LCLGP((X, LABELS), kernel(), CategoricalLogit(C))
    before = RULE.run(model).elbo
    result = gd.fit(model, steps=5, progress=False, compile=False)
    assert result.elbo > before + 1e-3 and model.kernel.variance.numpy() != 1.3


def test_what_classes_refuse() -> None:
    data, classes = (X, LABELS), CategoricalLogit(C)
    with pytest.raises(DataError, match=r"argmax\(Y, axis=1\)"):
        LCLGP((X, np.eye(C)[LABELS[:, 0].astype(int)]), kernel(), classes)
    with pytest.raises(DataError, match="whole numbers 0 to 2"):
        LCLGP((X, LABELS + 3.0), kernel(), classes)
    with pytest.raises(DataError, match='use form="function"'):
        LCLGP(data, gpflow.kernels.Linear(), classes, form="weight")
    with pytest.raises(DataError, match="couples the latents.*LinearlyConstrainedLagrangian"):
        ConstraintSubset(size=4).run(LCLGP(data, kernel(), classes))


RATES = np.random.default_rng(1).uniform(0.02, 0.98, (N, 1))
OTHERS = {
    "grades": (lambda: Ordinal([-0.5, 0.5]), LABELS),
    "rates": (gl.Beta, RATES),
    "narrow rates": (lambda: gl.Beta(scale=20.0), RATES),
}
GRADES = pytest.param("grades", marks=pytest.mark.exhaustive)
"""Eight seconds: its quadrature has the most nodes."""


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", OTHERS)
def test_losses_of_grades_and_rates(name: str, rng: np.random.Generator) -> None:
    """The likelihood's own expectations, with slopes inside of S and above the curvature."""
    make, Y = OTHERS[name]
    likelihood = with_nodes(make(), 40) if name == "grades" else make()
    loss = site_loss(likelihood, Y)
    h, sigma = (tf.constant(rng.normal(size=(N, 1))) for _ in range(2))
    by_nodes = gl.base.QuadratureLikelihood._variational_expectations
    expected = by_nodes(likelihood, X, h, tf.square(sigma), tf.constant(Y))
    assert_allclose(loss.value(h, sigma)[:, 0], -expected, rtol=1e-12)
    with tf.GradientTape() as tape:
        tape.watch([h, sigma])
        total = tf.reduce_sum(loss.value(h, sigma))
    at = loss.expand(h, sigma)
    for slope, wanted in zip((at.d_h, at.d_s), tape.gradient(total, [h, sigma])):
        assert_allclose(slope, wanted, rtol=1e-8, atol=1e-10)
    f = tf.constant(np.tile(np.linspace(-8.0, 8.0, 97), (N, 1)))
    there = loss.expand(f, tf.zeros_like(f))
    assert np.all((there.d_h > loss.lower) & (there.d_h < loss.upper))
    assert np.all(there.d_hh >= -loss.curvature - 1e-9)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["rates", "narrow rates", GRADES])
def test_the_best_q_of_grades_and_rates(name: str) -> None:
    make, Y = OTHERS[name]
    model, other = (of((X, Y), kernel(), make()) for of in (LCLGP, CVIGP))
    result = RULE.run(model)
    CVI.run(other, steps=300, tolerance=1e-10)
    assert result.converged
    assert_allclose(result.elbo, other.elbo(), rtol=1e-7)
