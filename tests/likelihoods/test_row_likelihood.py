"""Likelihoods whose rows differ by known numbers, and gaps, beside plain ones."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
from gpflow.likelihoods import Gaussian, Poisson
from scipy.stats import binom

from gpflow_decoupled.errors import DataError
from gpflow_decoupled.likelihoods import (
    BernoulliLogit,
    CategoricalLogit,
    RowLikelihood,
    check_labels,
)

RNG = np.random.default_rng(0)
X = RNG.normal(size=(6, 2))
MEAN, VARIANCE = RNG.normal(size=(6, 2)), RNG.uniform(0.1, 1.0, (6, 2))
Y = RNG.normal(size=(6, 2))


def _expected(likelihood, mean, variance, y) -> np.ndarray:
    return likelihood.variational_expectations(X, mean, variance, y).numpy()


def test_entries_that_are_missing_count_for_nothing() -> None:
    y = Y.copy()
    y[[0, 3], [1, 0]] = np.nan
    likelihood = RowLikelihood(Gaussian(np.array([0.1, 0.4])))
    each = [
        _expected(Gaussian(noise), MEAN[:, [p]], VARIANCE[:, [p]], Y[:, [p]])
        for p, noise in enumerate((0.1, 0.4))
    ]
    expected = np.where(np.isnan(y), 0.0, np.stack(each, axis=1)).sum(axis=1)
    np.testing.assert_allclose(_expected(likelihood, MEAN, VARIANCE, y), expected)
    counts = np.where(np.isnan(y), np.nan, np.round(np.exp(Y)))
    own = _expected(RowLikelihood(Poisson()), MEAN, VARIANCE, counts)
    whole = _expected(Poisson(), MEAN, VARIANCE, np.round(np.exp(Y)))
    seen = ~np.isnan(y).any(axis=1)
    np.testing.assert_allclose(own[seen], whole[seen])
    assert np.all(np.isfinite(own)) and np.all(own[~seen] > whole[~seen])


def test_numbers_of_rows() -> None:
    mean, variance, y = MEAN[:, :1], VARIANCE[:, :1], Y[:, :1]
    extra = RNG.uniform(0.5, 2.0, (6, 2))
    noisy = RowLikelihood(Gaussian(0.1), ["weight", "noise"])
    found = _expected(noisy, mean, variance, np.hstack([y, extra]))
    for row in range(6):
        one = [part[row : row + 1] for part in (X, mean, variance, y)]
        value = Gaussian(0.1 + extra[row, 1]).variational_expectations(*one)
        assert found[row] == pytest.approx(extra[row, 0] * float(value[0]))
    counts, offset = np.round(np.exp(y)), extra[:, :1]
    shifted = _expected(
        RowLikelihood(Poisson(), ["offset"]), mean, variance, np.hstack([counts, offset])
    )
    np.testing.assert_allclose(shifted, _expected(Poisson(), mean + offset, variance, counts))


def test_successes_in_trials() -> None:
    likelihood = RowLikelihood(BernoulliLogit(), ["trials"])
    data = np.array([[3.0, 7.0], [0.0, 1.0]])
    f = np.array([[0.3], [-1.0]])
    expected = binom.logpmf(data[:, 0], data[:, 1], 1.0 / (1.0 + np.exp(-f[:, 0])))
    np.testing.assert_allclose(likelihood.log_prob(X[:2], f, data), expected)
    wide = np.full((2, 1), 0.8)
    nodes = f + np.sqrt(0.8) * np.random.default_rng(0).normal(size=(2, 200_000))
    draws = binom.pmf(data[:, :1], data[:, 1:], 1.0 / (1.0 + np.exp(-nodes)))
    density = likelihood.predict_log_density(X[:2], f, wide, data)
    np.testing.assert_allclose(density, np.log(draws.mean(axis=1)), atol=0.01)


def test_weights_of_classes() -> None:
    likelihood = RowLikelihood(CategoricalLogit(3), ["weight"])
    mean, variance = RNG.normal(size=(6, 3)), RNG.uniform(0.1, 1.0, (6, 3))
    y, weight = np.arange(6.0)[:, None] % 3, RNG.uniform(size=(6, 1))
    found = _expected(likelihood, mean, variance, np.hstack([y, weight]))
    plain = _expected(CategoricalLogit(3), mean, variance, y)
    np.testing.assert_allclose(found, weight[:, 0] * plain)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: RowLikelihood(CategoricalLogit(3)), "takes weights alone"),
        (lambda: RowLikelihood(Poisson(), ["noise"]), "known noise is for a Gaussian"),
        (lambda: RowLikelihood(Gaussian(), ["trials"]), "trials are for labels"),
    ],
)
def test_what_has_no_use_is_refused(make, message: str) -> None:
    with pytest.raises(DataError, match=message):
        make()


@pytest.mark.parametrize(
    "numbers, Y, message",
    [
        ([], [[np.nan, np.nan]], r"Y\[0\] is NaN in all columns"),
        (["weight"], [[1.0, -1.0]], "weight of row 0 is -1"),
        (["noise"], [[1.0, np.inf]], "noise of row 0 is inf"),
    ],
)
def test_bad_rows_are_refused(numbers: list[str], Y: list, message: str) -> None:
    with pytest.raises(DataError, match=message):
        check_labels(RowLikelihood(Gaussian(), numbers), np.array(Y))
    with pytest.raises(DataError, match="no number of successes in 2 trials"):
        check_labels(
            RowLikelihood(gpflow.likelihoods.Bernoulli(), ["trials"]), np.array([[3.0, 2.0]])
        )
