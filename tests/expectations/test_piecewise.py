"""Bounds of log(1 + e^x) by quadratic pieces: the best one, the convex one, and their
expectations.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose
from scipy.integrate import quad

from gpflow_decoupled.errors import DataError
from gpflow_decoupled.expectations import logit_integrals
from gpflow_decoupled.expectations import logit_integrals as piecewise

GAPS = {
    4: 3.295e-2,
    6: 7.422e-3,
    10: 1.310e-3,
    20: 1.421429e-4,
}  # Khan 2014's 20 pieces are not the best ones
CONVEX_GAPS = {4: 5.114e-2, 6: 1.3156e-2, 10: 2.580e-3, 20: 3.0406e-4}
KNOTS = [0.0, 0.6905, 1.2263, 1.7508, 2.3083, 2.9379, 3.6933, 4.6713, 6.1010, 8.8586]


def bound(pieces: piecewise.Pieces, x: np.ndarray) -> np.ndarray:
    r = np.searchsorted(pieces.knots, x, side="right")
    return pieces.a[r] * x**2 + pieces.b[r] * x + pieces.c[r]


@pytest.mark.costly(keep=2)
@pytest.mark.parametrize("convex", [False, True], ids=["best", "convex"])
@pytest.mark.parametrize("number", GAPS)
def test_pieces_are_above_by_the_gap_at_most(number, convex):
    pieces = piecewise.softplus_pieces(number, convex)
    if convex:
        assert_allclose(pieces.gap, CONVEX_GAPS[number], rtol=5e-4)
    else:
        assert_allclose(pieces.gap, GAPS[number], rtol=5e-4 if number < 20 else 1e-6)
    assert len(pieces.a) == len(pieces.b) == len(pieces.c) == number == len(pieces.knots) + 1
    x = np.concatenate(
        [np.linspace(-40.0, 40.0, 80_001), pieces.knots, np.nextafter(pieces.knots, -np.inf)]
    )
    excess = bound(pieces, x) - np.logaddexp(0.0, x)
    assert np.min(excess) > -1e-14 and np.max(excess) < pieces.gap + 1e-14
    edges = [-60.0, *pieces.knots, 60.0]
    largest = [np.max(excess[(left < x) & (x < right)]) for left, right in zip(edges, edges[1:])]
    assert_allclose(
        largest,
        pieces.gap,
        rtol=1e-3,
        err_msg="a piece with less of a gap than others could be longer",
    )


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("number", CONVEX_GAPS)
def test_the_convex_bound_is_continuous_and_its_slope_rises(number):
    """Looked at on both sides of each knot, and by second differences along the line."""
    pieces = piecewise.softplus_pieces(number, convex=True)
    t, (a, b, c) = pieces.knots, pieces[:3]
    left, right = a[:-1] * t**2 + b[:-1] * t + c[:-1], a[1:] * t**2 + b[1:] * t + c[1:]
    assert_allclose(left, right, atol=1e-14)
    assert_allclose(left, np.logaddexp(0.0, t), atol=1e-14)
    assert np.all(2.0 * np.diff(a) * t + np.diff(b) > 0.0) and np.all(a >= 0.0)
    values = bound(pieces, np.linspace(-15.0, 15.0, 3001))
    assert np.min(np.diff(values, 2)) > -1e-13


@pytest.mark.exhaustive
def test_knots_of_twenty_pieces():
    knots = piecewise.softplus_pieces(20).knots
    assert_allclose(knots[9:], KNOTS, atol=6e-5)
    assert_allclose(knots, -knots[::-1], atol=1e-12)


@pytest.mark.parametrize("number", [0, 2, 7, -4])
def test_numbers_of_pieces_that_are_refused(number):
    with pytest.raises(DataError, match="must be even and at least 4"):
        piecewise.softplus_pieces(number)


@pytest.mark.costly(keep=4)
@pytest.mark.parametrize("convex", [False, True], ids=["best", "convex"])
@pytest.mark.parametrize("number", [4, 20])
@pytest.mark.parametrize("sigma", [0.05, 1.0, 8.0])
def test_expectations_piece_by_piece(number, sigma, convex):
    pieces = piecewise.softplus_pieces(number, convex)
    for h in [-9.0, 0.3, 2.0, 30.0]:
        edges = [
            h - 13.0 * sigma,
            *pieces.knots[np.abs(pieces.knots - h) < 13.0 * sigma],
            h + 13.0 * sigma,
        ]
        expected = 0.0
        for left, right in zip(edges, edges[1:]):
            middle = np.array([0.5 * (left + right)])
            r = np.searchsorted(pieces.knots, middle)[0]

            def integrand(x: float, r: int = r, h: float = h) -> float:
                value = pieces.a[r] * x**2 + pieces.b[r] * x + pieces.c[r]
                return (
                    value * np.exp(-0.5 * ((x - h) / sigma) ** 2) / (np.sqrt(2.0 * np.pi) * sigma)
                )

            cuts = [point for point in (h - sigma, h, h + sigma) if left < point < right]
            expected += quad(
                integrand, left, right, epsabs=1e-14, epsrel=1e-12, points=cuts or None, limit=400
            )[0]
        here, deviation = tf.constant([h], tf.float64), tf.constant([sigma], tf.float64)
        found = piecewise.piecewise_mean(here, deviation, number, convex)
        assert_allclose(found[0], expected, rtol=1e-10, atol=1e-12)
        found = piecewise.piecewise_moments(here, -deviation, number, convex)
        assert_allclose(found.value[0], expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("convex", [False, True], ids=["best", "convex"])
@pytest.mark.parametrize("sigma", [1e-7, 0.1, 1.0, 10.0, 60.0])
def test_within_the_gap_of_the_exact_expectation(sigma, convex):
    h = tf.constant(np.linspace(-25.0, 25.0, 101))
    deviation = sigma + tf.zeros_like(h)
    excess = piecewise.piecewise_mean(h, deviation, convex=convex) - logit_integrals.softplus_mean(
        h, deviation
    )
    assert (
        np.min(excess) > -1e-12
        and np.max(excess) < piecewise.softplus_pieces(20, convex).gap + 1e-12
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize("weight", [0.1, 10.0, 1000.0])
def test_no_quadratic_makes_the_best_bound_convex(weight):
    """Which is why it is kept out of the dual: f_hh + c is negative at a small sigma, next to a
    knot, for every c (V29).
    """
    gap, knots = piecewise.softplus_pieces(20).gap, piecewise.softplus_pieces(20).knots
    sigma = np.sqrt(0.02 * gap / weight)
    at = piecewise.piecewise_moments(tf.constant(knots[12:14] - sigma), tf.constant([sigma, sigma]))
    assert np.all(at.d_hh + weight < 0.0)
    assert np.all(at.d_s < 0.0), (
        "more variance lowers the expected loss there, so that a step need not ascend"
    )


@pytest.mark.parametrize("sigma", [1e-3, 0.02, 0.3, 2.0, 20.0])
def test_expectations_of_the_convex_bound_are_convex(sigma):
    h = tf.constant(
        np.concatenate([np.linspace(-30.0, 30.0, 601), piecewise.softplus_pieces(20, True).knots])
    )
    at = piecewise.piecewise_moments(h, sigma + tf.zeros_like(h), convex=True)
    half, difference = 0.5 * (at.d_hh + at.d_ss), 0.5 * (at.d_hh - at.d_ss)
    least = half - np.sqrt(difference**2 + at.d_hs**2)
    assert np.min(least / (1.0 + half)) > -1e-12
    assert np.min(at.d_s) > -1e-15 and np.max(at.d_s) > 1e-4 * sigma


def test_single_precision():
    h, sigma = np.meshgrid(np.linspace(-20.0, 20.0, 21), [0.1, 1.0, 30.0])
    exact = piecewise.piecewise_mean(tf.constant(h), tf.constant(sigma))
    found = piecewise.piecewise_mean(tf.constant(h, tf.float32), tf.constant(sigma, tf.float32))
    assert found.dtype == tf.float32
    assert_allclose(found, exact, rtol=1e-5, atol=2e-5)
