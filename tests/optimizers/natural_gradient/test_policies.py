"""Steps that cannot be made in full: negative precisions, failed factorisations, two Gaussian
parts, unknown options.
"""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import likelihoods as gl
from numpy.testing import assert_allclose

from gpflow_decoupled.bases import DecoupledBasis, SolveBasis
from gpflow_decoupled.errors import DataError, NumericalError, UnknownOptionError
from gpflow_decoupled.models import BasisGP
from gpflow_decoupled.optimizers import NaturalGradient
from gpflow_decoupled.optimizers.natural_steps import evaluate
from tests.bounds.registry import matern, randomize
from tests.optimizers.problems import (
    BETA,
    GAMMA,
    JITTER,
    NOISE,
    NUM_DATA,
    SCALE,
    X,
    decoupled_model,
    grams_of,
    moments,
    observations,
)
from tests.reference import collapsed as col
from tests.reference import decoupled as ref
from tests.reference import likelihoods as lik
from tests.reference import natural_gradient as ng
from tests.reference.grams import residual


def _outliers() -> tuple[BasisGP, tuple]:
    """Student-t noise and a narrow q: gross errors have h > 0, and the full step is not a
    covariance.
    """
    gpflow.config.set_default_jitter(JITTER)
    model = decoupled_model(gl.StudentT(scale=0.2, df=3.0), mean_function=None)
    model.basis.q_sqrt.assign(0.05 * model.basis.q_sqrt)
    Y = observations(gl.Gaussian(NOISE))
    Y[1:8] += 1.5
    return model, (tf.constant(X), tf.constant(Y))


def _values(model: BasisGP) -> list[np.ndarray]:
    return [parameter.numpy() for parameter in model.basis.parameters]


def _full_precision(model: BasisGP, h: np.ndarray, rho: float) -> np.ndarray:
    """What (D44) makes of S^-1; h holds the scale of the minibatch."""
    k = grams_of(model)
    S = moments(model, k)[2]
    return (1 - rho) * np.linalg.inv(S) + rho * (
        np.linalg.inv(k.K_b) - 2 * (k.projection * h) @ k.projection.T
    )


@pytest.mark.exhaustive
def test_damping_halves_the_step_until_it_is_a_covariance_and_once_more():
    model, data = _outliers()
    evaluation = evaluate(model, data)
    h, g = evaluation.h.numpy()[:, 0], evaluation.g.numpy()[:, 0]
    feasible = [n for n in range(9) if np.linalg.eigvalsh(_full_precision(model, h, 0.5**n))[0] > 0]
    assert np.sum(h > 0) > 2 and feasible[0] > 0
    k = grams_of(model)
    _, m, S = moments(model, k)
    report = NaturalGradient(1.0).minimize(model, data)
    assert report.ok and report.shortened == 1 and report.clipped == 0
    expected_m, expected_S = ng.natural_gradient_step(k, m, S, g, h, 0.5 ** (feasible[0] + 1))
    assert_allclose(moments(model, k)[1], expected_m, rtol=1e-8)
    assert_allclose(moments(model, k)[2], expected_S, rtol=1e-8)


@pytest.mark.exhaustive
def test_clipping_drops_negative_precisions_and_counts_them():
    model, data = _outliers()
    evaluation = evaluate(model, data)
    h, g = evaluation.h.numpy()[:, 0], evaluation.g.numpy()[:, 0]
    k = grams_of(model)
    _, m, S = moments(model, k)
    report = NaturalGradient(1.0, negative_precision="clip").minimize(model, data)
    assert report.ok and report.shortened == 0 and report.clipped == np.sum(h > 0)
    expected_m, expected_S = ng.natural_gradient_step(k, m, S, g, np.minimum(h, 0.0), 1.0)
    assert_allclose(moments(model, k)[1], expected_m, rtol=1e-8)
    assert_allclose(moments(model, k)[2], expected_S, rtol=1e-8)


@pytest.mark.exhaustive
def test_raising_leaves_everything_as_it_was():
    model, data = _outliers()
    before = _values(model)
    with pytest.raises(NumericalError, match='smaller gamma, or negative_precision="clip"'):
        NaturalGradient(1.0, negative_precision="raise").minimize(model, data)
    for left, right in zip(_values(model), before):
        np.testing.assert_array_equal(left, right)
    optimizer = NaturalGradient(1.0, negative_precision="raise")
    assert not tf.function(lambda: optimizer.minimize(model, data).ok, autograph=False)()
    for left, right in zip(_values(model), before):
        np.testing.assert_array_equal(left, right)


@pytest.mark.exhaustive
def test_damped_steps_raise_the_bound_of_outliers():
    model, data = _outliers()
    optimizer = NaturalGradient(1.0)
    step = tf.function(lambda: optimizer.minimize(model, data), autograph=False)
    start, reports = model.elbo(data), [step() for _ in range(40)]
    assert all(report.ok for report in reports) and any(report.shortened for report in reports)
    assert model.elbo(data) > start + 3.0


@pytest.mark.exhaustive
@pytest.mark.parametrize("compiled", [False, True])
def test_a_failed_factorisation_changes_nothing(compiled):
    model = decoupled_model(gl.Poisson(), mean_scaling="none")
    data = (tf.constant(X), tf.constant(observations(model.likelihood)))
    before, optimizer = _values(model), NaturalGradient(mean="natural")
    model.kernel.variance.unconstrained_variable.assign(np.nan)
    if compiled:
        assert not tf.function(lambda: optimizer.minimize(model, data).ok, autograph=False)()
    else:
        with pytest.raises(NumericalError, match="natural-gradient step failed"):
            optimizer.minimize(model, data)
    for left, right in zip(_values(model), before):
        np.testing.assert_array_equal(left, right)


@pytest.mark.exhaustive
def test_data_that_are_not_finite_change_nothing():
    model = decoupled_model(gl.Gaussian(NOISE))
    before, Y = _values(model), observations(model.likelihood)
    Y[3] = np.nan
    optimizer, data = NaturalGradient(0.1, mean="natural"), (tf.constant(X), tf.constant(Y))
    with pytest.raises(
        DataError,
        match=r"Y\[3, 0\] is nan; remove or impute the 1 rows with entries that are not finite",
    ):
        optimizer.minimize(model, data)
    step = tf.function(lambda *data: optimizer.minimize(model, data).ok, autograph=False)
    assert not step(*map(tf.constant, data))
    for left, right in zip(_values(model), before):
        np.testing.assert_array_equal(left, right)


def test_step_of_solve_is_one_part_after_the_other(rng):
    """The second part moves at the moments that the first one left, mean and variance: (D44) on
    each process.
    """
    gpflow.config.set_default_jitter(JITTER)
    basis = SolveBasis(GAMMA, BETA)
    model = BasisGP(matern(1.3, 0.8), gl.Poisson(), basis, num_data=NUM_DATA)
    randomize(basis, rng, 0.6)
    Y, k = observations(model.likelihood), grams_of(model, jitter_gamma=JITTER)
    perpendicular = residual(k)

    def parts() -> list[np.ndarray]:
        found = []
        for chol, mean, root in (
            (k.chol, basis.q_mu, basis.q_sqrt),
            (perpendicular.chol, basis.v_mu, basis.v_sqrt),
        ):
            full = chol @ root.numpy()[0]
            found += [chol @ mean.numpy()[:, 0], full @ full.T]
        return found

    q = parts()
    for part, process in ((slice(0, 2), k), (slice(2, 4), perpendicular)):
        moments_now = ref.solve(k, *q)
        _, g, h = lik.expectation(
            lik.poisson(), Y[:, 0], moments_now.mean, np.diag(moments_now.cov)
        )
        q[part] = ng.natural_gradient_step(process, *q[part], g, h, 0.4, SCALE)
    NaturalGradient(0.4).minimize(model, (X, Y))
    for left, right in zip(parts(), q):
        assert_allclose(left, right, rtol=1e-8, atol=1e-9)


@pytest.mark.exhaustive
@pytest.mark.parametrize("whiten", [True, False])
def test_alternating_steps_reach_the_optimum_of_solve(whiten, rng):
    """Both covariances after one step, both means in the limit: (D33)."""
    gpflow.config.set_default_jitter(JITTER)
    basis = SolveBasis(GAMMA, BETA, whiten=whiten)
    model = BasisGP(matern(1.3, 0.8), gl.Gaussian(NOISE), basis, num_data=len(X))
    randomize(basis, rng)
    Y, k = observations(model.likelihood), grams_of(model, jitter_gamma=JITTER)
    m, S, m_v, S_v = col.optimal_solve(k, Y[:, 0], NOISE)
    roots = (
        [k.chol, np.linalg.cholesky(k.C_g)] if whiten else [np.eye(len(BETA)), np.eye(len(GAMMA))]
    )
    data = (tf.constant(X), tf.constant(Y))
    optimizer = NaturalGradient()
    step = tf.function(lambda: optimizer.minimize(model, data).shortened, autograph=False)
    assert step() == 0
    for root, q_sqrt, expected in zip(roots, (basis.q_sqrt, basis.v_sqrt), (S, S_v)):
        full = root @ q_sqrt.numpy()[0]
        assert_allclose(full @ full.T, expected, rtol=1e-9, atol=1e-10)
    for _ in range(400):
        step()
    assert_allclose(roots[0] @ basis.q_mu.numpy()[:, 0], m, rtol=1e-7, atol=1e-8)
    assert_allclose(roots[1] @ basis.v_mu.numpy()[:, 0], m_v, rtol=1e-7, atol=1e-8)
    assert_allclose(model.elbo(data), col.collapsed_solve(k, Y[:, 0], NOISE), rtol=1e-9)


@pytest.mark.parametrize("options", [{"mean": "adam"}, {"negative_precision": "ignore"}])
def test_unknown_options_are_refused(options):
    with pytest.raises(
        UnknownOptionError, match=f"{next(iter(options))}=.* is not known; use one of"
    ):
        NaturalGradient(**options)


def test_a_basis_without_natural_parameters_is_left_alone():
    model = BasisGP(
        matern(1.0, 1.0), gl.Gaussian(NOISE), DecoupledBasis(GAMMA, BETA), num_data=len(X)
    )
    before = _values(model)
    assert NaturalGradient().minimize(model, (X, observations(model.likelihood))).ok
    for left, right in zip(_values(model), before):
        np.testing.assert_array_equal(left, right)
