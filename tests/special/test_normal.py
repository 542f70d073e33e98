"""The normal distribution far out in its tails, against SciPy."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from numpy.testing import assert_allclose
from scipy.special import erfcx, log_ndtr

from gpflow_decoupled.special import inverse_mills, log_normal_cdf

U = np.concatenate([np.linspace(-40.0, 40.0, 161), [-1e4, -1e8, 1e4]])


def test_log_cdf_and_its_gradient():
    u = tf.constant(U)
    with tf.GradientTape() as tape:
        tape.watch(u)
        value = log_normal_cdf(u)
    assert_allclose(value, log_ndtr(U), rtol=1e-12, atol=1e-300)
    with np.errstate(over="ignore"):
        ratio = np.sqrt(2.0 / np.pi) / erfcx(-U / np.sqrt(2.0))
    assert_allclose(inverse_mills(u), ratio, rtol=1e-12, atol=1e-300)
    assert_allclose(tape.gradient(value, u), ratio, rtol=1e-10, atol=1e-300)


def test_single_precision():
    u = tf.constant(U, tf.float32)
    assert log_normal_cdf(u).dtype == inverse_mills(u).dtype == tf.float32
    assert_allclose(log_normal_cdf(u), log_ndtr(U), rtol=1e-5, atol=1e-30)
