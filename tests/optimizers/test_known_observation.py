"""An observation at which the prior has no variance, as that of a linear kernel at the origin: f is
known there.
"""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

from gpflow_decoupled.covariances.latents import positive_variances
from gpflow_decoupled.likelihoods import BernoulliLogit, BernoulliProbit
from gpflow_decoupled.models import CVIGP, LCLGP
from gpflow_decoupled.optimizers import (
    CholeskyKL,
    ConjugateComputation,
    ConstraintSubset,
    ExpectationPropagation,
    LaplaceApproximation,
    LinearlyConstrainedLagrangian,
    OpperArchambeau,
)

X = np.linspace(-1.0, 1.0, 11)[:, None]
"""Row 5 is the origin."""
OTHERS = np.delete(np.arange(11), 5)


def end(optimizer, rows, likelihood, **options) -> float:
    """The bound, or the estimate of the evidence, with some of the rows."""
    kind = LCLGP if isinstance(optimizer, LAGRANGIAN) else CVIGP
    model = kind((X[rows], 1.0 * (X[rows] > 0.1)), gpflow.kernels.Linear(), likelihood, **options)
    result = optimizer.run(model)
    assert_allclose(model.elbo(), result.elbo, atol=1e-6)
    return getattr(result, "evidence_estimate", result.elbo)


LAGRANGIAN = LinearlyConstrainedLagrangian, OpperArchambeau, CholeskyKL, ConstraintSubset


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "likelihood", [BernoulliLogit(), BernoulliProbit()], ids=lambda one: type(one).__name__
)
@pytest.mark.parametrize(
    "optimizer, options",
    [
        (LinearlyConstrainedLagrangian(tolerance=1e-8, compile=False), {"form": "function"}),
        (LinearlyConstrainedLagrangian(tolerance=1e-8, compile=False), {"form": "weight"}),
        (OpperArchambeau(1e-10, compile=False), {"form": "function"}),
        (OpperArchambeau(1e-10, compile=False), {"form": "weight"}),
        (CholeskyKL(tolerance=1e-10, compile=False), {"form": "function"}),
        (CholeskyKL(tolerance=1e-10, compile=False), {"form": "weight"}),
        (ConstraintSubset(rows=[0, 5, 9], tolerance=1e-10), {}),
        (ConjugateComputation(), {}),
        (ExpectationPropagation(), {}),
        (LaplaceApproximation(), {}),
    ],
    ids=lambda one: type(one).__name__ if hasattr(one, "run") else "".join(one.values()),
)
def test_it_adds_the_log_density_at_the_prior_mean(optimizer, options, likelihood):
    """Which is that of a fair coin; nothing is learned from it."""
    without = end(optimizer, OTHERS, likelihood, **options)
    assert_allclose(
        end(optimizer, np.arange(11), likelihood, **options), without + np.log(0.5), atol=2e-5
    )


def test_other_variances_stay_as_they_are():
    variances = tf.constant([[4.0, 1e-3, 0.0, 1e-30], [-1.0, 0.0, 2.0, 1.0]], tf.float64)
    found = positive_variances(variances).numpy()
    kept = variances.numpy() > 1e-10
    assert_allclose(found[kept], variances.numpy()[kept], rtol=0.0)
    assert found[1, 0] == -1.0  # a kernel that is not one is left to those who find it
    assert np.all(found[[0, 0, 1], [2, 3, 1]] > 0.0) and np.all(found[[0, 0, 1], [2, 3, 1]] < 1e-19)
