"""Logarithms of Gaussian means of densities, against quadrature in panels."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from numpy.testing import assert_allclose
from scipy.special import logsumexp

from gpflow_decoupled.expectations.log_means import log_mean_exp

COUNT = 4.0


def poisson(f):
    """log p(4 | f) of a Poisson rate e^f, less log 4!."""
    return COUNT * f - np.exp(f)


def panels(m, v):
    """log E exp(poisson(f)), f ~ N(m, v), by 16 nodes on each of many panels."""
    x, weights = np.polynomial.legendre.leggauss(16)
    peak, reach = np.log(COUNT), 12.0 / np.sqrt(COUNT)
    edges = np.unique(
        np.concatenate(
            [
                np.linspace(peak - reach, peak + reach, 400),
                m + np.sqrt(v) * np.linspace(-12.0, 12.0, 400),
            ]
        )
    )
    half = 0.5 * np.diff(edges)[:, None]
    f = 0.5 * (edges[1:] + edges[:-1])[:, None] + half * x
    with np.errstate(over="ignore"):
        terms = poisson(f) - 0.5 * (f - m) ** 2 / v
    return logsumexp(terms, b=half * weights) - 0.5 * np.log(2.0 * np.pi * v)


def test_a_poisson_count_under_gaussians_of_any_width_as_arrays_of_numpy():
    """As methods of likelihoods get them from callers outside of a graph."""
    mean = np.repeat([-3.0, 1.0, 6.0], 4)
    variance = np.tile([1e-8, 0.1, 4.0, 400.0], 3)
    found = log_mean_exp(
        lambda f: COUNT * f - tf.exp(f), mean, variance, np.log(COUNT), COUNT**-0.5
    )
    assert_allclose(found, [panels(*pair) for pair in zip(mean, variance)], atol=1e-8)
