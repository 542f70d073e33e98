"""Filter and smoother of a chain with sites: the dense posterior, and gradients of everything."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

from gpflow_decoupled.linalg.chain import _rounded, chain_posterior, scan
from tests.reference import conjugate as ref
from tests.reference import state_space as kernels

RNG = np.random.default_rng(0)
N = 30
T = np.sort(RNG.uniform(0.0, 6.0, N))
T[4] = T[5]  # a duplicate
ORDERS = (1, 2)
"""p of each of two latents; the first has one state that is always zero."""
TAU = RNG.uniform(0.3, 3.0, (N, 2))
TAU[[7, 8]] = 0.0
NU = np.where(TAU == 0.0, 0.0, RNG.normal(size=(N, 2)))


def _chain() -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    A, Q = np.zeros((2, N, 2, 3, 3))
    for latent, p in enumerate(ORDERS):
        d = p + 1
        F, P = kernels.matern_model(p, 1.3, 0.8)
        for n in range(N):
            step = kernels.expm(F * (T[n] - T[n - 1])) if n else np.zeros((d, d))
            A[n, latent, :d, :d], Q[n, latent, :d, :d] = step, P - step @ P @ step.T
    return tf.constant(A), tf.constant(Q), tf.constant(np.eye(3)[[0, 0]])


A, Q, H = _chain()


def _dense(latent: int, tau: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    K = kernels.matern(ORDERS[latent], T, T, 1.3, 0.8)
    sites = ref.Sites(NU[:, latent], tau[:, latent])
    mean, cov = ref.posterior(K, np.zeros(N), sites)
    return mean, np.diag(cov), ref.log_partition(K, np.zeros(N), sites)


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("negative", [False, True])
def test_it_is_the_dense_posterior(negative):
    tau = np.where(np.arange(N)[:, None] % 5 == 3, -0.05, TAU) if negative else TAU
    found = chain_posterior(A, Q, H, tf.constant(NU), tf.constant(tau))
    assert bool(found.ok)
    dense = [_dense(latent, tau) for latent in (0, 1)]
    for latent, (mean, variance, _) in enumerate(dense):
        assert_allclose(found.backward.mean[:, latent], mean, atol=1e-11)
        assert_allclose(found.backward.variance[:, latent], variance, atol=1e-11)
    assert float(found.log_partition) == pytest.approx(sum(one[2] for one in dense), abs=1e-10)


def test_sites_without_a_posterior_are_told():
    assert not bool(chain_posterior(A, Q, H, tf.constant(NU), tf.constant(-5.0 * TAU)).ok)


@pytest.mark.exhaustive
@pytest.mark.parametrize("what", ["evidence", "moments"])
def test_gradients_are_those_of_finite_differences(what):
    """Of the log evidence by moments of the smoother, of all else by repeated steps."""
    weights = [tf.constant(RNG.normal(size=shape)) for shape in ((N, 2), (N, 2), (N, 2, 3, 3))]

    def value(*given: tf.Tensor) -> tf.Tensor:
        found = chain_posterior(*given[:2], H, *given[2:])
        parts = found.backward.mean, found.backward.variance, found.backward.curvature
        if what == "evidence":
            return found.log_partition
        return tf.add_n([tf.reduce_sum(a * b) for a, b in zip(weights, parts)])

    at = [A, Q, tf.constant(NU), tf.constant(TAU)]
    with tf.GradientTape() as tape:
        tape.watch(at)
        total = value(*at)
    for place, gradient in enumerate(tape.gradient(total, at)):
        towards = RNG.normal(size=at[place].shape)
        if place < 2:  # states that do not exist, and the step into the first row, stay zero
            towards[:, 0, 2], towards[:, 0, :, 2] = 0.0, 0.0
            towards[0] = 0.0
            towards = towards + np.swapaxes(towards, -1, -2)
        ends = [
            value(*at[:place], at[place] + s * 1e-6 * towards, *at[place + 1 :]) for s in (1, -1)
        ]
        slope = float(ends[0] - ends[1]) / 2e-6
        assert float(tf.reduce_sum(gradient * towards)) == pytest.approx(slope, rel=1e-6, abs=1e-6)


def _product(carry, row, _):
    return (carry[0] * (1.0 + row[0]) + row[1],), (carry[0] ** 2,)


@pytest.mark.exhaustive
@pytest.mark.parametrize("reverse", [False, True])
def test_scan(reverse):
    a, b = tf.constant(RNG.uniform(-0.5, 0.5, 5)), tf.constant(RNG.normal(size=5))

    def slow(a: tf.Tensor, b: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        carry, carries, squares = tf.constant(0.3, tf.float64), {}, {}
        for n in reversed(range(5)) if reverse else range(5):
            squares[n], carry = carry**2, carry * (1.0 + a[n]) + b[n]
            carries[n] = carry
        return tuple(tf.stack([part[n] for n in range(5)]) for part in (carries, squares))

    def fast(a: tf.Tensor, b: tf.Tensor) -> tuple[tf.Tensor, ...]:
        return scan(_product, (tf.constant(0.3, tf.float64),), (a, b), reverse=reverse)

    results = []
    for function in (slow, fast):
        with tf.GradientTape() as tape:
            tape.watch([a, b])
            carries, squares = function(a, b)
            total = tf.reduce_sum(tf.sin(carries)) + tf.reduce_sum(squares * a)
        results.append([carries, squares, *tape.gradient(total, [a, b])])
    for left, right in zip(*results):
        assert_allclose(left, right, rtol=1e-12)


def test_loops_have_few_lengths():
    lengths = {_rounded(rows) for rows in range(1, 1025)}
    assert len(lengths) <= 20
    for rows in (1, 64, 65, 1000, 1_000_000):
        assert rows <= _rounded(rows) <= max(64, 1.25 * rows)
