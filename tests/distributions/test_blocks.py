"""A base with blocks: each variable has what its family alone gives, whatever the axis of the
variables is.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from numpy.testing import assert_allclose

from gpflow_decoupled.distributions import BlockBase, NormalMixtureBase, base_variable
from gpflow_decoupled.errors import DataError, UnknownOptionError

PARTS = [("skew_normal", 2), ("generalized_normal", 2), ("laplace", 1), (NormalMixtureBase(1), 1)]
THETA = tf.constant(
    [[2.0, 0, 0], [-1.0, 0, 0], [1.3, 0, 0], [3.0, 0, 0], [0, 0, 0], [0.1, 0.4, -0.3]],
    tf.float64,
)
BASE = BlockBase(PARTS)


def alone(method: str, x: tf.Tensor | None = None) -> np.ndarray:
    """What a method gives variable by variable: x [N, 6] or nothing."""
    found, place = [], 0
    for part, size in PARTS:
        base = base_variable(part)
        for _ in range(size):
            theta = THETA[place : place + 1, : base.num_shapes]
            arguments = [theta] if x is None else [x[:, place : place + 1], theta]
            found.append(tf.cast(getattr(base, method)(*arguments), tf.complex128).numpy())
            place += 1
    return np.concatenate(found, axis=-1)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "method", ["entropy", "tail", "exponent", "log_prob", "characteristic", "cdf"]
)
def test_each_variable_is_that_of_its_family(method):
    x = (
        None
        if method in ("entropy", "tail", "exponent")
        else tf.constant(np.linspace(-2.0, 3.0, 12).reshape(2, 6))
    )
    arguments = [THETA] if x is None else [x, THETA]
    found = getattr(BASE, method)(*arguments)
    assert found.dtype == (tf.complex128 if method == "characteristic" else tf.float64)
    assert_allclose(found, alone(method, x), rtol=1e-13, atol=1e-15)


@pytest.mark.exhaustive
def test_frequencies_and_arrays_that_broadcast():
    """[N, k, T] with theta [k, 1, P], in a graph too; one value for all variables."""
    omega = tf.constant(np.linspace(-4.0, 5.0, 36).reshape(2, 6, 3))
    phi = tf.function(BASE.characteristic, autograph=False)(omega, THETA[:, None, :])
    assert phi.shape == [2, 6, 3]
    for place in range(3):
        assert_allclose(
            phi[:, :, place], BASE.characteristic(omega[:, :, place], THETA), rtol=1e-13
        )
    value = tf.constant(0.3, tf.float64)
    assert_allclose(BASE.cdf(value, THETA), BASE.cdf(tf.fill([6], value), THETA), rtol=1e-15)


def test_symmetric_families_have_a_real_transform():
    base = BlockBase([("laplace", 1), ("generalized_normal", 1)])
    assert (
        base.symmetric
        and base.characteristic(tf.ones([1, 2], tf.float64), base.start(2)).dtype == tf.float64
    )
    assert (
        not BASE.symmetric
        and BASE.has_cdf
        and not BlockBase([(tfp.distributions.Gumbel(0.0, 1.0), 1), ("laplace", 1)]).has_cdf
    )


def test_samples_have_the_moments_of_each():
    """Five standard errors of the first three moments, and none of the correlations; another seed,
    other draws.
    """
    v = BASE.sample(20_000, THETA, seed=2).numpy()
    assert v.shape == (20_000, 6) and not np.allclose(v[:5], BASE.sample(5, THETA, seed=3))
    assert_allclose(v.mean(axis=0), 0.0, atol=0.04)
    assert_allclose(np.cov(v.T), np.eye(6), atol=0.1)
    skewness = np.mean(v**3, axis=0)
    assert 0.35 < skewness[0] < 0.56 and -0.21 < skewness[1] < -0.06
    kurtosis = np.mean(v**4, axis=0)
    assert (
        kurtosis[2] > 3.7
        and kurtosis[3] < 2.5
        and kurtosis[4] > 5.0
        and abs(kurtosis[5] - 3.0) < 0.3
    )


def test_unused_columns_change_nothing_and_have_no_gradient():
    used = np.array([[1, 0, 0], [1, 0, 0], [1, 0, 0], [1, 0, 0], [0, 0, 0], [1, 1, 1]], bool)
    moved = tf.where(used, THETA, THETA + 5.0)
    with tf.GradientTape() as tape:
        tape.watch(moved)
        value = tf.reduce_sum(BASE.entropy(moved)) + tf.reduce_sum(
            BASE.log_prob(tf.ones([1, 6], tf.float64), moved)
        )
    assert_allclose(BASE.entropy(moved), BASE.entropy(THETA), rtol=1e-15)
    gradient = tape.gradient(value, moved).numpy()
    assert np.all(gradient[~used] == 0.0) and np.all(gradient[:4, 0] != 0.0)


def test_the_bijector_is_that_of_each_family():
    bijector = BASE.bijector(tf.float64)
    free = tf.constant(np.linspace(-300.0, 300.0, 18).reshape(6, 3))
    for x in (free, 0.01 * free):
        BASE.check(bijector.forward(x))
    assert_allclose(bijector.inverse(bijector.forward(0.01 * free)), 0.01 * free, rtol=1e-9)
    others = [0, 1, 4, 5]
    assert_allclose(bijector.forward(0.01 * free).numpy()[others], 0.01 * free.numpy()[others])
    powers = base_variable("generalized_normal").bijector(tf.float64)
    assert_allclose(bijector.forward(0.01 * free)[2:4, :1], powers.forward(0.01 * free[2:4, :1]))
    volume = bijector.forward_log_det_jacobian(0.01 * free, event_ndims=2)
    assert_allclose(volume, powers.forward_log_det_jacobian(0.01 * free[2:4, :1], event_ndims=2))


def test_start_and_name():
    assert BASE.name == "2 skew_normal, 2 generalized_normal, 1 laplace, 1 normal_mixture"
    assert_allclose(BASE.start(6)[:, 0], [1.0, 1.0, 1.5, 1.5, 0.0, 0.0])
    assert BASE.start(6, tf.float32).dtype == tf.float32 and BASE.start(6).shape == [6, 3]
    assert base_variable(BASE) is BASE and "skew_normal" in repr(BASE)


BAD = {
    "no block": (lambda: BlockBase([]), "pass a list of pairs"),
    "a name alone": (lambda: BlockBase("skew_normal"), "pass a list of pairs"),
    "a dictionary": (lambda: BlockBase({"skew_normal": 3}), "pass a list of pairs"),
    "no number": (
        lambda: BlockBase([("laplace", 2), "skew_normal"]),
        r"blocks\[1\] is 'skew_normal'",
    ),
    "no variable": (
        lambda: BlockBase([("laplace", 2), ("normal", 0)]),
        r"blocks\[1\] has 0 variables.*leave out",
    ),
    "half a variable": (lambda: BlockBase([("laplace", 0.5)]), r"blocks\[0\] has 0.5 variables"),
    "nested": (lambda: BlockBase([(BASE, 6)]), r"blocks\[0\] has blocks itself: put its 4 blocks"),
    "too many": (
        lambda: BASE.start(7),
        "6 variables together, and there are 7: change their sizes",
    ),
    "rows of theta": (lambda: BASE.entropy(THETA[:5]), "6 variables together, and there are 5"),
    "columns of theta": (lambda: BASE.entropy(THETA[:, :2]), r"needs \[D, 3\]"),
    "no rows": (lambda: BASE.entropy(THETA[0]), r"must be \[k, P\] = \[6, 3\]"),
    "a power": (lambda: BASE.entropy(9.0 * THETA), "between 0.9 and 6"),
    "not finite": (lambda: BASE.entropy(np.nan * THETA), "not finite"),
    "a Cauchy": (
        lambda: BlockBase([(tfp.distributions.Cauchy(0.0, 1.0), 2)]),
        "no finite variance",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name):
    call, message = BAD[name]
    with pytest.raises(DataError, match=message):
        call()


def test_unknown_names():
    for blocks in ([("skewed", 3)], [(3, "laplace")]):
        with pytest.raises((UnknownOptionError, DataError)):
            BlockBase(blocks)
    with pytest.raises(UnknownOptionError, match="skew_normal"):
        BlockBase([("skewed", 3)])
