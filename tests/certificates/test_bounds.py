"""The binary divergence, its inverse, the four bounds and that of a finite class: reference,
limits, and that they bound.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import binom

from gpflow_decoupled.certificates import (
    binary_kl,
    hoeffding,
    inverse_binary_kl,
    maurer,
    mcallester,
    pinsker,
    seeger,
)
from gpflow_decoupled.errors import DataError
from tests.reference import pac_bayes as ref

RULES = {rule.__name__: rule for rule in (seeger, maurer, pinsker, mcallester, hoeffding)}
FIGURES = dict(zip(RULES, (0.1731, 0.1655, 0.2057, 0.2222, 0.1895)))
CASES = [
    *((0.0, 0.0, 1, 0.5), (0.08, 9.0, 500, 0.05), (0.3, 0.0, 20, 0.9)),
    *((0.5, 1e3, 5000, 1e-6), (0.02, 0.5, 7, 0.1)),
]


@pytest.mark.parametrize("name", RULES)
def test_figures(name: str) -> None:
    assert float(RULES[name](0.08, 9.0, 500, 0.05)) == pytest.approx(FIGURES[name], abs=6e-5)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_bounds_are_those_of_the_reference(case: tuple) -> None:
    for name, expected in ref.bounds(*case).items():
        assert float(RULES[name](*case)) == pytest.approx(min(expected, 1.0), abs=1e-10), name


@pytest.mark.parametrize(
    "risk, members, n, delta", [(0.0, 1, 20, 0.5), (0.08, 7, 500, 0.05), (0.02, 10**6, 5000, 1e-6)]
)
def test_hoeffding_is_that_of_the_reference(risk, members, n, delta) -> None:
    expected = ref.hoeffding(risk, members, n, delta)
    assert float(hoeffding(risk, np.log(members), n, delta)) == pytest.approx(expected, abs=1e-10)


def test_hoeffding_beside_the_others() -> None:
    """For a member of a finite class it is below McAllester's, and above Seeger's where the error
    is small.
    """
    kl = np.log([[1], [100], [10**6]])
    n = np.array([50, 1000, 20000])
    assert np.all(hoeffding(0.2, kl, n, 0.05) < mcallester(0.2, kl, n, 0.05))
    assert np.all(hoeffding(0.2, kl, n, 0.05) < pinsker(0.2, kl, n, 0.05))
    assert np.all(hoeffding(0.01, kl, n, 0.05)[:, 1:] > seeger(0.01, kl, n, 0.05)[:, 1:])


def test_inverse_is_the_inverse() -> None:
    q, c = np.meshgrid([0.0, 1e-9, 0.1, 0.5, 0.9, 1.0], [1e-12, 0.01, 0.3, 2.0])
    p = inverse_binary_kl(q, c)
    assert np.all(p >= q)
    inside = p < 1.0
    assert_allclose(
        binary_kl(q, p)[inside], c[inside], rtol=1e-5, atol=1e-15
    )  # 1 - p is known to 1e-16
    assert np.all(p[q == 1.0] == 1.0)
    assert_allclose(inverse_binary_kl(0.0, c), -np.expm1(-c), rtol=0, atol=2e-16)
    assert np.all(p <= q + np.sqrt(c / 2.0) + 1e-15)
    assert inverse_binary_kl(0.2, 1e3) == 1.0
    assert inverse_binary_kl(0.2, 0.0) == pytest.approx(0.2, abs=1e-7)


def test_divergence_of_coins() -> None:
    assert binary_kl(0.3, 0.3) == 0.0 and binary_kl(0.0, 0.0) == 0.0 and binary_kl(1.0, 1.0) == 0.0
    assert np.isinf(binary_kl(0.1, 0.0)) and np.isinf(binary_kl(0.1, 1.0))
    assert float(binary_kl(0.2, 0.7)) == pytest.approx(ref.binary_kl(0.2, 0.7), rel=1e-14)


@pytest.mark.parametrize("name", RULES)
def test_limits_and_monotonicity(name: str) -> None:
    rule = RULES[name]
    steps = np.linspace(0.02, 0.98, 25)
    assert np.all(np.diff(rule(0.9 * steps, 3.0, 2000, 0.05)) > 0.0)
    assert np.all(np.diff(rule(0.1, 100.0 * steps, 2000, 0.05)) > 0.0)
    assert np.all(np.diff(rule(0.1, 3.0, 2000, steps)) < 0.0)
    assert np.all(np.diff(rule(0.1, 3.0, np.arange(20, 2000, 50), 0.05)) < 0.0)
    assert rule(0.5, 0.0, 10**6, 0.05) >= 0.5  # Q = P
    assert rule(0.1, 1e9, 100, 0.05) == 1.0
    assert rule(0.1, 3.0, 10**9, 0.05) == pytest.approx(0.1, abs=1e-3)


def test_order_and_constants() -> None:
    n = np.arange(1, 300)
    assert np.all(maurer(0.2, 5.0, n, 0.05) <= seeger(0.2, 5.0, n, 0.05))
    assert np.all(maurer(0.2, 5.0, n, 0.05) <= pinsker(0.2, 5.0, n, 0.05) + 1e-15)
    constants = np.array([ref.exact_constant(int(size)) for size in n])
    assert np.all(constants <= 2.0 * np.sqrt(n) * (1.0 + 1e-12)) and np.all(
        constants <= n + 1.0 + 1e-12
    )


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("name", RULES)
def test_one_classifier_violates_seldom(name: str) -> None:
    """KL = 0: over all samples, by the binomial distribution itself, at every risk."""
    for n, delta in ((5, 0.3), (40, 0.1), (300, 0.05)):
        errors = np.arange(n + 1)
        bound = RULES[name](errors / n, 0.0, n, delta)
        risks = np.linspace(0.001, 0.999, 333)
        violated = [np.sum(binom.pmf(errors, n, risk)[bound < risk]) for risk in risks]
        assert max(violated) <= delta


@pytest.mark.parametrize("name", RULES)
def test_the_best_of_many_violates_seldom(name: str) -> None:
    """The best of a million fair coins, by its exact distribution: KL = log 10^6 of the Q on it, or
    delta / 10^6 for each.

    Without the divergence, or at delta, the bound would fail nearly always.
    """
    n, delta, coins = 60, 0.2, 10**6
    errors, rule = np.arange(n + 1), RULES[name]

    def failing(bounds: np.ndarray) -> float:
        reach = int(np.sum(bounds < 0.5))  # bounds grow with the errors
        return float(-np.expm1(coins * np.log1p(-binom.cdf(reach - 1, n, 0.5)))) if reach else 0.0

    assert failing(rule(errors / n, np.log(coins), n, delta)) <= delta
    assert failing(rule(errors / n, 0.0, n, delta / coins)) <= delta
    assert failing(rule(errors / n, 0.0, n, delta)) > 0.9


NAN = np.nan
BAD = [
    *(("kl", {"kl": value}) for value in (NAN, -100.0, np.inf)),
    *(("n", {"n": value}) for value in (0, 10.5, np.inf)),
    *(("delta", {"delta": value}) for value in (NAN, 5.0, 0.0)),
    *(("risk", {"risk": value}) for value in (5.0, np.array([0.1, NAN]))),
]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name, bad", BAD)
def test_numbers_out_of_range_make_no_bound(rule: str, name: str, bad: dict) -> None:
    """A bisection made the most optimistic bound of a NaN."""
    with pytest.raises(DataError, match=f"{name}=.* must be"):
        RULES[rule](**{"risk": 0.05, "kl": 1.0, "n": 1000, "delta": 0.05, **bad})


def test_the_inverse_of_nothing_is_nothing():
    assert np.array_equal(
        np.isnan(inverse_binary_kl([0.1, np.nan, 0.1], [0.1, 0.1, np.nan])), [False, True, True]
    )
