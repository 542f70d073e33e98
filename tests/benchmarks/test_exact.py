"""The table of neighbours beside the exact GP."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from benchmarks import exact
from benchmarks.exact import Compared, compare, exact_gp, lines, nearest, some_rows
from benchmarks.harness.data import Data, load


def compared(name: str, scale: float) -> Compared:
    mean, variance = np.zeros([4, 1]), np.full([4, 1], 0.25 * scale**2)
    return Compared(name, np.array([scale, 2.0]), scale, 0.1, -1.0, mean, variance, 7.0)


def test_ratios_are_to_the_first() -> None:
    data = Data("any", np.zeros([3, 2]), np.zeros([3, 1]), np.zeros([4, 2]), np.ones([4, 1]))
    second = compared("twice", 2.0)._replace(mean=np.full([4, 1], 0.5), evaluations=9)
    rows = [line.split(" | ") for line in lines("any", [compared("once", 1.0), second], data)]
    assert (
        rows[0][0] == "| any, 3" and rows[0][2] == "1.00 to 1.00" and rows[0][8] == "1.00 to 1.00"
    )
    assert rows[1][2] == "1.00 to 2.00" and rows[1][7] == "1.00" and rows[1][8] == "2.00 to 2.00"
    assert rows[1][9].startswith("7 (9)") and rows[1][6].startswith("0.500 / ")


def test_the_exact_gp_has_the_hyperparameters_of_neighbours_and_its_own_evidence() -> None:
    data = some_rows(load("synthetic"), 40)
    assert len(data.X_train) == 40
    kernel = gpflow.kernels.Matern52(lengthscales=np.full(data.X_train.shape[1], 0.7))
    model = nearest(data, kernel, 0.3)
    reference = exact_gp(data, model)
    np.testing.assert_allclose(reference.kernel.lengthscales, kernel.lengthscales)
    assert float(reference.likelihood.variance.numpy()) == pytest.approx(0.3)
    with tf.GradientTape(persistent=True) as tape:
        value, theirs = (
            exact._log_density(exact._covariance(reference, data), data.Y_train),
            reference.log_marginal_likelihood(),
        )
    np.testing.assert_allclose(value, theirs, rtol=1e-10)
    for variable in reference.trainable_variables:
        np.testing.assert_allclose(
            tape.gradient(value, variable), tape.gradient(theirs, variable), rtol=1e-8, atol=1e-10
        )
    reference.kernel.variance.assign(5.0)
    assert float(kernel.variance.numpy()) == 1.0, (
        "a climb of the exact GP must not move the neighbours"
    )


@pytest.mark.exhaustive
def test_the_exact_gp_ends_at_no_lower_evidence() -> None:
    data = some_rows(load("synthetic"), 300)
    best, neighbours, same = compare(data, 5)
    assert best.evidence >= neighbours.evidence and same.evidence == best.evidence
    np.testing.assert_array_equal(same.lengthscales, best.lengthscales)
    assert np.min(same.variance / best.variance) > 1 - 1e-6
