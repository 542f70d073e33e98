"""Log densities of left-out labels by fixed draws, beside the exact integrals."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_decoupled.likelihoods import CategoricalLogit
from gpflow_decoupled.models import NNGP
from gpflow_decoupled.optimizers.neighbours import LabelDensities, SiteSweeps
from gpflow_decoupled.optimizers.neighbours.label_densities import left_out_scores

RNG = np.random.default_rng(0)
X = tf.constant(RNG.uniform(size=(300, 2)))
MEAN, VARIANCE = 2.0 * RNG.standard_normal((300, 4)), RNG.uniform(0.1, 4.0, (300, 4))


def test_of_classes_they_are_the_exact_ones_up_to_their_draws():
    Y = tf.constant(RNG.integers(0, 4, (300, 1)).astype(float))
    likelihood = CategoricalLogit(4)
    densities = LabelDensities(likelihood, X, Y)
    exact = likelihood.predict_log_density(X, tf.constant(MEAN), tf.constant(VARIANCE), Y).numpy()
    found = densities(MEAN, VARIANCE)
    np.testing.assert_array_equal(found, densities(MEAN, VARIANCE))
    assert np.mean(found) == pytest.approx(np.mean(exact), abs=0.03)
    assert np.std(found - exact) < 0.3
    np.testing.assert_allclose(  # without variance nothing is drawn
        densities(MEAN, 0.0 * VARIANCE), likelihood.log_prob(X, MEAN, Y), rtol=1e-10
    )


def test_of_other_likelihoods_they_are_exact():
    Y, likelihood = (
        tf.constant(RNG.poisson(2.0, (300, 1)).astype(float)),
        gpflow.likelihoods.Poisson(),
    )
    moments = MEAN[:, :1], VARIANCE[:, :1]
    exact = likelihood.predict_log_density(X, *map(tf.constant, moments), Y)
    np.testing.assert_array_equal(LabelDensities(likelihood, X, Y)(*moments), exact)


def test_rows_left_out_have_the_factors_of_the_model():
    Y = RNG.integers(0, 3, (300, 1)).astype(float)
    model = NNGP((X, Y), gpflow.kernels.Matern32(), CategoricalLogit(3), num_neighbours=8)
    SiteSweeps(model, compile=False).run(1)
    model.mean_factor.assign(2.0)
    rows = np.arange(0, 300, 3)
    exact = model.leave_one_out(rows, num_neighbours=5).log_density
    found = left_out_scores(model, rows, 5)
    assert np.mean(found) == pytest.approx(np.mean(exact), abs=0.03)
    assert abs(np.mean(found) - np.mean(left_out_scores(model, rows))) > 1e-4
