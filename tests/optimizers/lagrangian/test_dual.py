"""The dual of a subproblem: values and gradients against brute force, strong duality, and the two
solvers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from gpflow import likelihoods as gl
from numpy.testing import assert_allclose

from gpflow_decoupled.models import LCLGLM
from gpflow_decoupled.optimizers.lagrangian.dual import (
    DualProblem,
    Subproblem,
    maximise,
    newton_direction,
    newton_solve,
)
from gpflow_decoupled.optimizers.lagrangian.rivals import _of_multipliers
from gpflow_decoupled.optimizers.lagrangian.subproblem import (
    Policy,
    isolated_sites,
    lbfgs_solve,
    make_subproblem,
    stationary_direction,
)
from tests.optimizers.lagrangian.lcl_problems import (
    KINDS,
    gram,
    inputs,
    labels,
    model,
    prior_mean,
    randomize,
    site_functions,
)
from tests.reference import lcl

POLICY = Policy(theta=0.1, curvature=True, delta=None, radius=math.inf)
names = pytest.mark.parametrize("name", KINDS)


def _problem(name: str, N: int = 5, seed: int = 0) -> tuple[DualProblem, Any, Any, Any]:
    """A problem, a subproblem linearised at random multipliers, its box, and other multipliers."""
    built = model(name, N)
    randomize(built, seed)
    problem = DualProblem(built, compile=False)
    at = problem.marginals(built.basis.alpha, built.basis.lam)
    sub, box = make_subproblem(problem, at, POLICY)
    randomize(built, seed + 1)
    lam = tf.maximum(built.basis.lam, 0.5 * box.lam_low)
    return problem, sub, box, problem.marginals(built.basis.alpha, lam)


def _numpy(sub: Subproblem, N: int) -> lcl.Linearised:
    kappa = np.zeros(N) if sub.kappa is None else sub.kappa.numpy()[:, 0]
    return lcl.Linearised(
        sub.h.numpy()[:, 0], sub.sigma.numpy()[:, 0], sub.rho.numpy()[:, 0], kappa
    )


@names
def test_bounds_are_those_of_brute_force(name):
    """F, and Q_k at any point: divergences of matrices, expectations of the reference."""
    problem, sub, _, at = _problem(name)
    built = problem.model
    K, m_0, f = gram(built), prior_mean(built), site_functions(name, built)
    m, V = lcl.posterior(K, m_0, at.alpha.numpy()[:, 0], at.lam.numpy()[:, 0])
    assert_allclose(at.bound, lcl.bound(K, m_0, m, V, f), rtol=1e-9)
    point = problem.point(sub, at, at.mean, at.deviation)
    assert_allclose(point.primal, lcl.primal(K, m_0, m, V, _numpy(sub, 5), f), rtol=1e-9)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "name", [name for name in KINDS if name not in ("Laplace", "hinge")]
)  # clamped, and tested with its site loss
def test_dual_is_that_of_brute_force(name):
    """The maxima by a search without derivatives; lambda so small that quadrature serves at
    sigma*.
    """
    problem, sub, _, at = _problem(name, 3)
    at, built = problem.marginals(at.alpha, 0.1 * at.lam), problem.model
    alpha, lam = at.alpha.numpy()[:, 0], at.lam.numpy()[:, 0]
    value, where = lcl.dual(
        gram(built), prior_mean(built), alpha, lam, _numpy(sub, 3), site_functions(name, built)
    )
    point = problem.point(sub, at, at.mean, at.deviation)
    assert_allclose(point.dual, value, rtol=1e-7)
    assert_allclose(point.sites.h[:, 0], where[:, 0], rtol=1e-3, atol=1e-3)
    assert_allclose(point.sites.sigma[:, 0], where[:, 1], rtol=1e-3, atol=1e-3)


@pytest.mark.costly(keep=2)
@names
def test_gradient_and_hessian_are_finite_differences(name):
    """(V16); and along random directions the change of the gradient is (V18), read off a Newton
    step on a free set.
    """
    problem, sub, box, at = _problem(name)
    point = problem.point(sub, at, at.mean, at.deviation)
    rng, step = np.random.default_rng(3), 1e-5
    d_alpha, d_lam = (tf.constant(rng.normal(size=(5, 1)) * scale) for scale in (0.01, 0.01))
    ends = []
    for sign in (1.0, -1.0):
        moved = problem.marginals(at.alpha + sign * step * d_alpha, at.lam + sign * step * d_lam)
        ends.append(problem.point(sub, moved, point.sites.h, point.sites.sigma))
    slope = tf.reduce_sum(point.g_alpha * d_alpha + point.g_lam * d_lam)
    assert_allclose(slope, (ends[0].dual - ends[1].dual) / (2 * step), rtol=1e-5, atol=1e-8)
    # the gradient that this direction makes is solved for, and gives it back
    curved = [(a - b) / (2 * step) for a, b in zip(ends[0][3:], ends[1][3:])]
    wide = box._replace(
        alpha_low=box.alpha_low - 9.0, alpha_high=box.alpha_high + 9.0, lam_low=box.lam_low - 9.0
    )
    back = point._replace(g_alpha=-curved[0], g_lam=-curved[1])
    p_alpha, p_lam, ok = newton_direction(problem, sub, at, back, wide)
    assert bool(ok)
    assert_allclose(p_alpha, d_alpha, rtol=1e-3, atol=1e-6)
    assert_allclose(p_lam, d_lam, rtol=1e-3, atol=1e-6)


@pytest.mark.exhaustive
@names
def test_strong_duality_and_both_solvers(name):
    """min D_k = max Q_k, at the same multipliers; Q_k is below the bound everywhere, and touches it
    where it was made.
    """
    problem, sub, box, at = _problem(name, 6)
    built = problem.model
    here = problem.marginals(*box.clip(at.alpha, at.lam))
    point = problem.point(sub, here, here.mean, here.deviation)

    def finished(now: Any, then: Any) -> bool:
        return abs(float(then.dual - then.primal)) < 1e-9

    def direction(*arguments: Any) -> Any:
        return newton_direction(problem, *arguments)

    newton, at_newton, steps = newton_solve(problem, sub, here, point, box, finished, direction)
    assert finished(newton, at_newton) and steps <= 30
    if name in ("Gaussian", "Poisson"):
        quasi = lbfgs_solve(problem, sub, here, point, box, finished)
        assert_allclose(quasi[1].dual, at_newton.dual, atol=1e-8)
        assert_allclose(quasi[0].bound, newton.bound, atol=1e-3)
    assert float(at_newton.dual) <= float(point.dual)
    assert float(newton.bound) >= float(at_newton.primal) - 1e-9
    rng = np.random.default_rng(5)
    for _ in range(4):
        randomize(built, int(rng.integers(1000)))
        other = problem.marginals(built.basis.alpha, tf.maximum(built.basis.lam, 0.5 * box.lam_low))
        there = problem.point(sub, other, other.mean, other.deviation)
        assert float(there.primal) <= float(other.bound) + 1e-9
        assert float(there.dual) >= float(at_newton.dual) - 1e-9


@pytest.mark.exhaustive
def test_subproblem_touches_the_bound_where_it_was_made():
    for name in KINDS:
        built = model(name, 6)
        randomize(built)
        problem = DualProblem(built, compile=False)
        at = problem.marginals(built.basis.alpha, built.basis.lam)
        sub, _ = make_subproblem(problem, at, POLICY)
        assert_allclose(problem.point(sub, at, at.mean, at.deviation).primal, at.bound, rtol=1e-12)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["logit", "probit", "Student-t"])
@pytest.mark.parametrize("far", [0.0, 300.0])
def test_maximiser_finds_the_same_point_from_afar(name, far):
    """From a cold start, hundreds of units away, and with the augmented term."""
    problem, sub, _, at = _problem(name, 6)
    for augmented in (False, True):
        now = sub._replace(delta=2.0 * tf.ones_like(sub.sigma)) if augmented else sub
        near = maximise(problem.loss, now, at.alpha, at.lam, sub.h, sub.sigma)
        other = maximise(problem.loss, now, at.alpha, at.lam, sub.h + far, 3.0 * sub.sigma)
        for left, right in zip(near, other):
            assert_allclose(left, right, rtol=1e-5, atol=1e-6)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["Poisson", "logit", "Student-t"])
def test_derivatives_of_the_maximiser(name):
    """(V17) against differences."""
    problem, sub, _, at = _problem(name, 6)
    step, sites = 1e-6, maximise(problem.loss, sub, at.alpha, at.lam, sub.h, sub.sigma)

    def difference(d_alpha: float, d_lam: float) -> tuple:
        up, down = (
            maximise(
                problem.loss, sub, at.alpha + s * d_alpha, at.lam + s * d_lam, sites.h, sites.sigma
            )
            for s in (step, -step)
        )
        return (up.h - down.h) / (2 * step), (up.sigma - down.sigma) / (2 * step)

    by_alpha, by_lam = difference(1.0, 0.0), difference(0.0, 1.0)
    assert_allclose(sites.d_h_d_alpha, by_alpha[0], rtol=1e-5, atol=1e-7)
    assert_allclose(sites.d_h_d_lam, by_lam[0], rtol=1e-5, atol=1e-7)
    assert_allclose(sites.d_s_d_lam, by_lam[1], rtol=1e-5, atol=1e-7)
    assert_allclose(by_alpha[1] * sub.sigma, by_lam[0], rtol=1e-4, atol=1e-7)


def test_start_from_nothing_bears_a_wide_prior():
    """Counts and an intercept of variance 1e4: where exp(sigma^2 / 2) at the prior's sigma would be
    1e21; in both forms.
    """
    X, starts = inputs(30), []
    for form in ("weight", "function"):
        problem = DualProblem(
            LCLGLM((X, labels("Poisson", X)), gl.Poisson(), form=form), compile=False
        )
        K = problem.model.kernel(X).numpy()
        k, squares, _ = problem.prior_sums(problem.prior_mean)
        assert_allclose(k[:, 0], np.diag(K), rtol=1e-8)
        assert_allclose(squares[:, 0], np.sum(K**2, axis=1), rtol=1e-8)
        h, sigma = isolated_sites(problem)
        at = problem.expand(h, sigma)
        assert np.max(at.d_s / sigma) < 100.0 and np.max(np.abs(at.d_h)) < 1.0
        starts.append((h, sigma))
    assert_allclose(starts[0], starts[1], rtol=1e-5)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["Poisson", "Student-t"])
def test_newton_direction_is_the_same_in_both_forms(name):
    """Of weights by thin products and conjugate gradients, of functions by N x N matrices; some
    lambda negative.
    """
    X, found = inputs(10), []
    for form in ("weight", "function"):
        built = LCLGLM(
            (X, labels(name, X, 2)),
            KINDS[name].make(),
            num_latent_gps=2,
            intercept_variance=4.0,
            form=form,
        )
        randomize(built)
        problem = DualProblem(built, compile=False)
        at = problem.marginals(built.basis.alpha, built.basis.lam)
        sub, box = make_subproblem(problem, at, POLICY)
        randomize(built, 1)
        at = problem.marginals(built.basis.alpha, tf.maximum(built.basis.lam, 0.5 * box.lam_low))
        found.append(
            newton_direction(problem, sub, at, problem.point(sub, at, at.mean, at.deviation), box)
        )
        assert found[-1][2]
        found[-1] += stationary_direction(problem, at)
    for weights, functions, tolerance in zip(*found, (2e-4, 2e-4, 0.0, 1e-2, 1e-2, 0.0)):
        assert_allclose(weights, functions, atol=tolerance)


def test_weights_need_no_matrix_of_observations():
    """The largest tensor of bound, subproblem and direction, p = 3 weights: a few numbers per
    observation.
    """
    X = inputs(400)
    problem = DualProblem(LCLGLM((X, labels("Poisson", X)), gl.Poisson()), compile=False)
    unit = tf.ones([400, 1], X.dtype)
    sub, box = make_subproblem(problem, problem.marginals(0.1 * unit, unit), POLICY)

    def everything() -> Any:
        at = problem.marginals(0.1 * unit, unit)
        point = problem.point(sub, at, at.mean, at.deviation)
        rival = _of_multipliers(problem, at.alpha, at.lam)
        return (
            newton_direction(problem, sub, at, point, box),
            stationary_direction(problem, at),
            rival,
        )

    graph = tf.function(everything, autograph=False).get_concrete_function().graph
    operations = [
        *graph.get_operations(),
        *(o for f in graph._functions.values() for o in f.graph.get_operations()),
    ]
    sizes = [
        out.shape.num_elements() for o in operations for out in o.outputs if out.dtype.is_floating
    ]
    assert max(size for size in sizes if size is not None) <= 8 * 400
