"""Numbers of GPBoost 1.8.0 at given parameters: Vecchia's likelihood in the model's own order,
predictions from all rows, and Laplace's approximation.

GPBoost is not needed here: its calls are `GPModel(gp_coords=X[order], cov_function="matern",
cov_fct_shape=1.5, gp_approx="vecchia", num_neighbors=8, vecchia_ordering="none")`,
`neg_log_likelihood(cov_pars=[NOISE, VARIANCE, LENGTHSCALE], y=y[order])`, and `predict` with
`gp_approx="none"`."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
from gpflow import kernels as gk
from numpy.testing import assert_allclose

from gpflow_decoupled.likelihoods import BernoulliLogit, BernoulliProbit
from gpflow_decoupled.models import CVIGP, NNGP
from gpflow_decoupled.optimizers import LaplaceApproximation

_PLACE = np.arange(60)
X = 4.0 * np.stack([0.61803398875 * (_PLACE + 1), 0.7548776662 * (_PLACE + 1)], axis=1) % 4.0
F = np.sin(2.0 * X[:, :1]) + X[:, 1:] * np.cos(X[:, :1])
Y = F + 0.3 * np.sin(37.0 * _PLACE)[:, None]
XNEW = np.array([[0.5, 1.0], [2.2, 3.1]])
VARIANCE, LENGTHSCALE, NOISE = 1.3, 0.8, 0.1

VECCHIA = {
    gk.Matern12: -71.56982313971196,
    gk.Matern32: -54.14444953828034,
    gk.Matern52: -48.736727202457175,
}
PREDICTIONS = {
    gk.Matern12: [[1.91283771, -2.61899621], [0.30507562, 0.36758534]],
    gk.Matern32: [[1.93913502, -2.67806439], [0.16637080, 0.17163597]],
    gk.Matern52: [[1.93748555, -2.67716017], [0.15168312, 0.14740665]],
}
LAPLACE = {
    BernoulliLogit: (
        F > 0.5, -26.476568094280054, [[1.65750957, -1.85640311], [0.73775176, 0.70348924]],
    ),
    BernoulliProbit: (
        F > 0.5, -21.7523412887819, [[1.53217570, -1.67690117], [0.60984887, 0.57459366]],
    ),
    gpflow.likelihoods.Poisson: (
        np.round(np.exp(0.5 * F)), -76.67266352703905,
        [[0.70266992, -1.37667207], [0.18925679, 0.48604011]],
    ),
}  # fmt: skip


@pytest.mark.exhaustive
@pytest.mark.parametrize("make", VECCHIA)
def test_vecchias_likelihood_and_predictions(make) -> None:
    # the model adds a millionth of the kernel's variance to the noise
    noise = gpflow.likelihoods.Gaussian(NOISE - 1e-6 * VARIANCE)
    model = NNGP(
        (X, Y), make(VARIANCE, LENGTHSCALE), noise, num_neighbours=8, prediction_neighbours=60
    )
    assert np.array_equal(model.order, np.random.default_rng(0).permutation(60))
    assert_allclose(-model.training_loss(), VECCHIA[make], rtol=1e-7)
    assert_allclose(np.squeeze(model.predict_y(XNEW)), PREDICTIONS[make], rtol=1e-6)


@pytest.mark.exhaustive
@pytest.mark.parametrize("make", LAPLACE)
def test_laplaces_evidence_and_mode(make) -> None:
    y, evidence, moments = LAPLACE[make]
    model = CVIGP((X, y.astype(float)), gk.Matern32(VARIANCE, LENGTHSCALE), make())
    result = LaplaceApproximation(tolerance=1e-10).run(model)
    assert_allclose(result.evidence_estimate, evidence, rtol=1e-6)
    assert_allclose(np.squeeze(model.predict_f(XNEW)), moments, rtol=1e-4)
