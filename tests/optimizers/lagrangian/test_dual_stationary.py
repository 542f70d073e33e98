"""Newton steps on the optimality conditions: against differences, and how fast they are."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

from gpflow_decoupled.optimizers import LinearlyConstrainedLagrangian
from gpflow_decoupled.optimizers.lagrangian.dual import DualProblem, Marginals
from gpflow_decoupled.optimizers.lagrangian.subproblem import stationary_direction, stationary_step
from tests.optimizers.lagrangian.lcl_problems import KINDS, model

EXACT = [
    name for name in KINDS if name not in ("Laplace", "hinge")
]  # whose sites have no curvature along a ray


def _near(name: str, share: float = 0.03) -> tuple[DualProblem, Marginals]:
    """A problem of two latents at multipliers next to the best."""
    built = model(name, 8, latents=2)
    LinearlyConstrainedLagrangian(tolerance=1e-10, compile=False).run(built)
    problem, rng = DualProblem(built, compile=False), np.random.default_rng(0)
    factors = 1.0 + share * rng.uniform(-1.0, 1.0, size=(2, 8, 2))
    return problem, problem.marginals(built.basis.alpha * factors[0], built.basis.lam * factors[1])


def _conditions(problem: DualProblem, at: Marginals) -> np.ndarray:
    """What (V11) asks to be zero [2, N, L]."""
    loss = problem.expand(at.mean, at.deviation)
    return np.stack([loss.d_h - at.alpha, loss.d_s - at.deviation * at.lam])


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("name", EXACT)
def test_step_undoes_the_conditions_to_first_order(name):
    """Their change along the step, by differences, is minus what they are."""
    problem, at = _near(name)
    d_alpha, d_lam, ok = stationary_direction(problem, at)
    ends = [problem.marginals(at.alpha + t * d_alpha, at.lam + t * d_lam) for t in (1e-5, -1e-5)]
    slope = (_conditions(problem, ends[0]) - _conditions(problem, ends[1])) / 2e-5
    now = _conditions(problem, at)
    assert bool(ok)
    assert_allclose(slope, -now, atol=5e-3 * np.max(np.abs(now)))


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["Poisson", "logit", "Student-t"])
def test_steps_double_the_digits(name):
    """Until the tolerance of the system: the third change is below the square of the second's
    share.
    """
    problem, at = _near(name, 0.1)
    changes = []
    for _ in range(3):
        new = stationary_step(problem, at, lambda now: stationary_direction(problem, now), 1e-10)
        assert new is not None
        changes.append(float(new.bound - at.bound))
        at = new
    assert changes[0] > 1e-5
    assert abs(changes[1]) < 0.1 * changes[0] and abs(changes[2]) < 1e-3 * changes[0]


def test_a_step_that_loses_is_refused():
    """In the wrong direction no trial is kept; nor where the system was not positive definite."""
    problem, at = _near("Poisson")

    def wrong(now: Marginals) -> tuple:
        d_alpha, d_lam, ok = stationary_direction(problem, now)
        return -d_alpha, -d_lam, ok

    assert stationary_step(problem, at, wrong, 0.0) is None
    nothing = tf.zeros_like(at.alpha)
    assert (
        stationary_step(problem, at, lambda _: (nothing, nothing, tf.constant(False)), 0.0) is None
    )
