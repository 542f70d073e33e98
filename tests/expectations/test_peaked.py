"""Nodes that follow the narrower of a Gaussian and a bend, against adaptive quadrature."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose
from scipy.special import log_ndtr

from gpflow_decoupled.expectations.peaked import peaked_rule

Y = 0.3
CASES = {
    "Student-t": (lambda f, w: -2.0 * np.log1p(np.square((f - Y) / w)), lambda w: (Y, w)),
    "probit": (lambda f, w: log_ndtr((f - Y) / w), lambda w: (Y - 1.9 * w, 2.8 * w)),
    "softplus": (lambda f, w: np.logaddexp(0.0, (f - Y) / w), lambda w: (Y, np.pi * w)),
}


def panels(g, m, spread, width):
    """E g under N(m, spread^2) by 16 nodes on each of many panels, graded towards Y."""
    graded = np.clip(Y + width * np.sinh(np.linspace(-30, 30, 601)), m - 9 * spread, m + 9 * spread)
    edges = np.unique(np.concatenate([graded, m + spread * np.linspace(-9, 9, 181)]))
    x, weights = np.polynomial.legendre.leggauss(16)
    half = 0.5 * np.diff(edges)[:, None]
    f = 0.5 * (edges[1:] + edges[:-1])[:, None] + half * x
    return np.sum(half * weights * g(f, width) * np.exp(-0.5 * ((f - m) / spread) ** 2)) / (
        spread * np.sqrt(2 * np.pi)
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", CASES)
def test_mean_of_a_function_that_bends(name):
    g, place = CASES[name]
    for width in [1e-3, 0.02, 1.0, 50.0]:
        centre, reach = place(width)
        spread = np.repeat([1e-3, 0.1, 1.0, 10.0], 6)
        m = Y + spread * np.tile([0.0, -0.7, 3.0, 8.0, -14.0, 60.0], 4)
        like = tf.ones_like(tf.constant(m))
        z, w = peaked_rule(tf.constant(m), tf.constant(spread), centre * like, reach * like)
        found = np.sum(w * g((m + spread * z).numpy(), width), axis=0)
        expected = [panels(g, *pair, width) for pair in zip(m, spread)]
        # that of the tail of a normal beyond 8.5 standard deviations is all that is left
        assert_allclose(found, expected, rtol=1e-8, atol=1e-9)


def test_nodes_are_opposite_for_the_opposite_spread():
    m, spread = tf.constant([0.1, 0.1]), tf.constant([0.5, 0.01])
    one = tf.ones_like(m)
    z, w = peaked_rule(m, spread, 0.0 * one, 0.05 * one, hermite=30)
    opposite, same = peaked_rule(m, -spread, 0.0 * one, 0.05 * one, hermite=30)
    assert_allclose(opposite, -z)
    assert_allclose(same, w)
    assert_allclose(tf.reduce_sum(w, axis=0), 1.0, rtol=1e-6)
    assert np.sum(w[:, 1] > 0) == 30, "a narrow Gaussian takes Hermite's nodes"
