"""The derivatives of the digamma function and what is built on them, against SciPy."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from numpy.testing import assert_allclose
from scipy.special import digamma, polygamma

from gpflow_decoupled.special import (
    gamma_shape,
    polygammas,
    trigamma,
    trigamma_defect,
    trigamma_excess,
)


def test_polygammas_are_those_of_scipy() -> None:
    x = np.concatenate([np.geomspace(1e-8, 1e8, 400), np.linspace(0.5, 12.0, 100)])
    for order, found in enumerate(polygammas(x), start=1):
        assert_allclose(found, polygamma(order, x), rtol=1e-11)


def test_excess_and_defect_where_they_do_not_cancel_and_far_out() -> None:
    near, far = np.array([1e-3, 0.4, 3.0, 29.9, 30.1]), np.array([1e5, 1e8])
    assert_allclose(trigamma(tf.constant(near)), polygamma(1, near), rtol=1e-13)
    assert_allclose(trigamma_excess(tf.constant(near)), near * polygamma(1, near) - 1.0, rtol=1e-12)
    assert_allclose(trigamma_excess(tf.constant(far)), 0.5 / far + 1.0 / (6.0 * far**2), rtol=1e-14)
    assert_allclose(trigamma_defect(tf.constant(near)), near - 1.0 / polygamma(1, near), rtol=1e-10)
    assert_allclose(trigamma_defect(tf.constant(far)), 0.5 - 1.0 / (12.0 * far), rtol=1e-9)


def test_gamma_shape_solves_its_equation() -> None:
    x = np.array([1e-2, 0.3, 1.0, 8.0, 500.0])
    assert_allclose(gamma_shape(tf.constant(np.log(x) - digamma(x))), x, rtol=1e-9)
