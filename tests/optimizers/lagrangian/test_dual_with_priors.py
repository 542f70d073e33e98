"""Subproblems whose sites are weights with Laplace priors too, (V30) and (V31): maximisers, bounds,
gradients, the box.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import likelihoods as gl
from numpy.testing import assert_allclose

from gpflow_decoupled.errors import DataError
from gpflow_decoupled.likelihoods import Laplace
from gpflow_decoupled.likelihoods.laplace import LaplaceLoss
from gpflow_decoupled.likelihoods.prior_sites import LossWithPriors
from gpflow_decoupled.models import LCLGLM
from gpflow_decoupled.optimizers.lagrangian.dual import (
    DualProblem,
    Marginals,
    Subproblem,
    check_dual,
    maximise,
)
from gpflow_decoupled.optimizers.lagrangian.subproblem import Policy, make_subproblem, moved_into
from tests.reference import laplace_prior as reference
from tests.reference import lcl_sites as sites

tfd = tfp.distributions
X = np.random.default_rng(0).normal(size=(5, 3))
Y = X[:, :1] + np.random.default_rng(1).normal(size=(5, 1))
SCALE, LOCATION, TAU = np.float64(0.6), np.float64(0.2), 6.0  # TAU is 10 times the scale
POLICY = Policy(theta=0.1, curvature=True, delta=None, radius=math.inf)


def problem() -> DualProblem:
    model = LCLGLM((X, Y), gl.Gaussian(0.3), prior=tfd.Laplace(LOCATION, SCALE), intercept=False)
    return DualProblem(model, compile=False)


def random_marginals(of: DualProblem, seed: int) -> Marginals:
    rng = np.random.default_rng(seed)
    alpha = np.concatenate([rng.normal(size=(5, 1)), 0.5 * rng.normal(size=(3, 1))])
    return of.marginals(tf.constant(alpha), tf.constant(rng.uniform(0.05, 2.0, size=(8, 1))))


def in_box(of: DualProblem, sub: Subproblem, box, seed: int) -> Marginals:
    """Multipliers inside the box, at random."""
    rng, at = np.random.default_rng(seed), random_marginals(of, seed)
    width = box.alpha_high - box.alpha_low
    share = rng.uniform(0.1, 0.9, size=(8, 1))
    alpha = np.where(
        np.isfinite(width),
        box.alpha_low + share * np.where(np.isfinite(width), width, 0.0),
        at.alpha,
    )
    lam = np.maximum(at.lam, 0.5 * box.lam_low)
    return of.marginals(tf.constant(alpha), tf.constant(lam))


def prior_site(h: float, sigma: float) -> float:
    """(V30)."""
    gaussian = 0.5 * np.log(2.0 * np.pi * TAU**2) + ((h - LOCATION) ** 2 + sigma**2) / (
        2.0 * TAU**2
    )
    return reference.expected_loss(h, abs(sigma), LOCATION, SCALE) - gaussian


def test_loss_and_its_derivatives():
    loss = problem().loss
    rng = np.random.default_rng(2)
    h, sigma = rng.normal(size=(8, 1)), rng.uniform(0.2, 2.0, size=(8, 1))
    at = loss.expand(tf.constant(h), tf.constant(sigma))
    assert_allclose(at.value, loss.value(tf.constant(h), tf.constant(sigma)), rtol=1e-14)
    for n in range(5, 8):
        assert_allclose(at.value[n, 0], prior_site(h[n, 0], sigma[n, 0]), rtol=1e-9)
    step = 1e-5
    for place, first, second in ((0, "d_h", ("d_hh", "d_hs")), (1, "d_s", ("d_hs", "d_ss"))):
        ends = [
            loss.expand(
                *(
                    tf.constant(part + sign * step * (place == i))
                    for i, part in enumerate((h, sigma))
                )
            )
            for sign in (1.0, -1.0)
        ]
        assert_allclose(getattr(at, first), (ends[0].value - ends[1].value) / (2 * step), atol=1e-8)
        for name, of in zip(second, ("d_h", "d_s")):
            assert_allclose(
                getattr(at, name),
                (getattr(ends[0], of) - getattr(ends[1], of)) / (2 * step),
                atol=1e-7,
            )
    assert_allclose(loss.curvature, [[0.0]] * 5 + [[TAU**-2.0]] * 3, rtol=1e-12)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(3))
def test_maximisers_are_those_of_a_simplex_search(seed):
    """Of (V15) with the loss (V30) and the total penalties; its derivatives by differences."""
    of = problem()
    sub, box = make_subproblem(of, random_marginals(of, seed), POLICY)
    at = in_box(of, sub, box, seed + 10)
    found = of.point(sub, at, at.mean, at.deviation).sites
    for n in range(5, 8):
        h_k, sigma_k, c = (float(part[n, 0]) for part in (sub.h, sub.sigma, sub.precision))
        penalised = lambda h, s, h_k=h_k, c=c: prior_site(h, s) + 0.5 * c * (h - h_k) ** 2  # noqa: E731
        rho = float(sub.rho[n, 0]) + c
        alpha, lam = float(at.alpha[n, 0]), float(at.lam[n, 0])
        h, sigma, value = sites.maximise(
            penalised, (h_k, sigma_k), alpha, lam, sigma_k, rho, lowest=0.5 * sigma_k
        )
        assert_allclose(found.value[n, 0], value, atol=1e-7)
        assert_allclose([found.h[n, 0], found.sigma[n, 0]], [h, sigma], atol=1e-3)
    step = 1e-6
    for name, change in (("d_h_d_alpha", (step, 0.0)), ("d_h_d_lam", (0.0, step))):
        ends = [
            maximise(
                of.loss,
                sub,
                at.alpha + sign * change[0],
                at.lam + sign * change[1],
                at.mean,
                at.deviation,
            )
            for sign in (1.0, -1.0)
        ]
        assert_allclose(
            getattr(found, name), (ends[0].h - ends[1].h) / (2 * step), rtol=1e-4, atol=1e-6
        )


def concave_form(of: DualProblem, sub: Subproblem, at: Marginals) -> float:
    """Q_k as derived with (V31): losses of Laplace densities, the variance v, and a proximal term
    of the means.
    """
    m, v = at.mean.numpy(), at.state.variance.numpy()
    h, sigma, rho, c = (part.numpy() for part in (sub.h, sub.sigma, sub.rho, sub.precision))
    s = 0.5 * (sigma + v / sigma)
    losses = (
        of.loss.reference.loss.value(tf.constant(m), tf.constant(s)).numpy()
        + 0.5 * rho * (s - sigma) ** 2
    )
    losses += 0.5 * c * ((m - h) ** 2 - (m - LOCATION) ** 2 - v) - 0.5 * np.log(
        2.0 * np.pi * TAU**2
    ) * (c > 0.0)
    return float(-np.sum(losses) - at.divergence)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(3))
def test_subproblem_touches_the_bound_from_below_and_its_dual_is_above(seed):
    of = problem()
    at = random_marginals(of, seed)
    sub, box = make_subproblem(of, at, POLICY)
    assert_allclose(of._primal(sub, at), at.bound, rtol=1e-12)
    for other in range(20):
        there = in_box(of, sub, box, 100 * seed + other)
        primal = float(of._primal(sub, there))
        assert_allclose(primal, concave_form(of, sub, there), rtol=1e-9)
        assert primal <= float(there.bound) + 1e-9
        duals = [
            float(of.point(sub, in_box(of, sub, box, k), at.mean, at.deviation).dual)
            for k in range(2)
        ]
        assert primal <= min(duals) + 1e-9


@pytest.mark.exhaustive
def test_dual_has_the_gradient_of_the_paper():
    """(V16), by differences."""
    of = problem()
    sub, box = make_subproblem(of, random_marginals(of, 0), POLICY)
    at = in_box(of, sub, box, 5)
    point, step = of.point(sub, at, at.mean, at.deviation), 1e-6
    for n in range(8):
        unit = np.eye(8)[:, [n]] * step
        for moved, gradient in (((unit, 0.0), point.g_alpha), ((0.0, unit), point.g_lam)):
            ends = [
                of.point(
                    sub,
                    of.marginals(at.alpha + sign * moved[0], at.lam + sign * moved[1]),
                    at.mean,
                    at.deviation,
                )
                for sign in (1.0, -1.0)
            ]
            assert_allclose(
                (ends[0].dual - ends[1].dual) / (2 * step), gradient[n, 0], rtol=1e-4, atol=1e-5
            )


def test_multipliers_outside_of_the_box_keep_the_means_of_the_weights():
    of = problem()
    outside = of.marginals(tf.constant(3.0 * np.ones((8, 1))), tf.ones([8, 1], tf.float64))
    sub, box = make_subproblem(of, outside, POLICY)
    assert np.any((outside.alpha < box.alpha_low) | (outside.alpha > box.alpha_high))
    inside = moved_into(box, sub, of, outside)
    assert np.all((inside.alpha >= box.alpha_low) & (inside.alpha <= box.alpha_high))
    assert_allclose(inside.mean, outside.mean, rtol=1e-9)
    assert moved_into(box, sub, of, inside) is inside


def test_a_loss_of_straight_lines_is_refused_beside_priors_too():
    class Lines(LaplaceLoss):
        no_dual = "a reason"

    priors = LaplaceLoss(Laplace(0.5), tf.zeros([3, 1], tf.float64))
    with pytest.raises(DataError, match="a reason"):
        check_dual(LossWithPriors(Lines(Laplace(0.5), Y), priors, lambda: tf.ones([3], tf.float64)))
