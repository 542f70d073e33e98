"""The expectation of a softmax (V34), against sums over the latent functions themselves."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose
from scipy.special import expit, softmax
from scipy.stats import norm

from gpflow_decoupled.expectations import softmax as module
from gpflow_decoupled.expectations.softmax import expected_softmax
from tests.reference import likelihoods as ref

Array = np.ndarray


def _found(mean: Array, var: Array) -> Array:
    return expected_softmax(tf.constant(mean), tf.constant(var)).numpy()


def _moments(rows: int, C: int, variance: float, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    mean = 2.0 * np.sqrt(1.0 + variance) * rng.normal(size=(rows, C))
    return mean, variance * rng.uniform(0.5, 2.0, size=(rows, C))


@pytest.mark.costly(keep=4)
@pytest.mark.parametrize("variance", [0.0, 0.16, 1.0, 150.0, 1e-14, 1e-4, 0.05, 0.1, 0.3, 10.0])
def test_two_classes(variance: float) -> None:
    """The softmax is a logistic function of the difference, whose expectation is one sum; rare
    classes included.
    """
    mean, var = _moments(30, 2, variance)
    mean[:3, 0] = [15.0, 25.0, 35.0]
    assert_allclose(_found(mean, var), _of_two(mean, var), rtol=1e-7, atol=1e-15)


def test_a_rare_class_far_below_the_other() -> None:
    """Alone in a block, so that nothing else asks for a lattice that goes so far down."""
    for variances in ([0.2, 0.2], [0.3, 3.0]):
        mean, var = np.array([[35.0, 0.0]]), np.array([variances])
        assert_allclose(_found(mean, var), _of_two(mean, var), rtol=1e-6)


def _of_two(mean: Array, var: Array) -> Array:
    """Of two classes, by one sum."""
    d, s = (mean[:, 1] - mean[:, 0])[:, None], np.sqrt(var.sum(axis=1))[:, None]
    z = np.linspace(-14.0, 14.0, 40_001)
    weights = np.exp(-0.5 * z**2) / np.exp(-0.5 * z**2).sum()
    return np.stack([expit(-d - s * z) @ weights, expit(d + s * z) @ weights], axis=1)


@pytest.mark.exhaustive
@pytest.mark.parametrize("C, order", [(3, 60), (4, 36)])
@pytest.mark.parametrize("variance", [0.02, 0.2, 1.0])
def test_more_classes(C: int, order: int, variance: float) -> None:
    mean, var = _moments(5, C, variance, seed=1)
    exact = np.stack([ref.softmax_integrals(m, v, order=order)[1] for m, v in zip(mean, var)])
    assert_allclose(_found(mean, var), exact, rtol=2e-7)


@pytest.mark.exhaustive
def test_many_classes_and_very_different_variances() -> None:
    """What follows without integrals: equal moments, a common shift, another order, a class that
    cannot be; sums are one.
    """
    for C in (2, 10, 100):
        assert_allclose(_found(np.full((1, C), 5.0), np.full((1, C), 3.0)), 1.0 / C, rtol=1e-12)
    mean, _ = _moments(20, 10, 3.0, seed=2)
    var = 10.0 ** np.random.default_rng(3).uniform(-3.0, 2.0, size=mean.shape)
    p = _found(mean, var)
    assert_allclose(p.sum(axis=1), 1.0, rtol=1e-14)
    assert_allclose(_found(mean + 100.0, var), p, rtol=1e-7)
    order = np.random.default_rng(4).permutation(10)
    assert_allclose(_found(mean[:, order], var[:, order]), p[:, order], rtol=1e-9)
    none = np.hstack([mean, np.full((20, 1), -1e3)]), np.hstack([var, np.ones((20, 1))])
    assert_allclose(_found(*none)[:, :-1], p, rtol=1e-9, atol=1e-20)
    assert_allclose(_found(np.zeros((1, 2)), np.array([[1e4, 1e-4]])), 0.5, atol=1e-9)


def _with_one_wide(mean: Array, var: Array) -> Array:
    """E softmax(f) [3] where the variance of the second is large: the mean over it, of the others'
    expectations.
    """
    z, weights = np.polynomial.hermite_e.hermegauss(50)
    one, other = (mean[k] + np.sqrt(var[k]) * z for k in (0, 2))
    pairs = np.stack(np.meshgrid(one, other, indexing="ij"), axis=-1).reshape(-1, 2)
    both = np.outer(weights, weights).ravel() / (2.0 * np.pi)
    edge = 70.0  # beyond it the second class is certain, or impossible
    f = np.linspace(-edge, edge, 1401)
    density = norm.pdf(f, mean[1], np.sqrt(var[1])) * (f[1] - f[0])
    density[[0, -1]] *= 0.5
    values = [
        both @ softmax(np.column_stack([pairs[:, 0], np.full(len(pairs), g), pairs[:, 1]]), axis=1)
        for g in f
    ]
    low, high = norm.cdf([-edge, -edge], [mean[1], -mean[1]], np.sqrt(var[1]))
    return density @ np.array(values) + low * values[0] + high * values[-1]


@pytest.mark.exhaustive
@pytest.mark.parametrize("wide", [100.0, 1e3, 1e5, 1e6, 1e8, 1e10, 1e12])
def test_latents_of_very_different_variance(wide: float) -> None:
    """On both sides of the place where lattices end: [1, 1e5, 1] was off by 0.033, and [1, 1e6, 1]
    by 0.42.
    """
    for mean in ([0.0, 0.0, 0.0], [1.0, -2.0, 0.3], [-1.0, 0.7 * np.sqrt(wide), 2.0]):
        var = np.array([1.0, wide, 0.2])
        exact = _with_one_wide(np.array(mean), var)
        assert_allclose(_found(np.array([mean]), var[None])[0], exact, atol=1e-7)
    two = np.array([[3.0, -0.4 * np.sqrt(wide)]]), np.array([[wide, 0.7]])
    assert_allclose(_found(*two), _of_two(*two), atol=4e-5)


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("beside", [1e3, 1e6, 1e10, np.nan, np.inf])
def test_a_row_does_not_depend_on_the_others(beside: float) -> None:
    """Whatever variance stands in the same call, and whatever mean."""
    mean, var = np.array([[0.3, 1.0, -2.0]]), np.array([[1.0, 2.0, 3.0]])
    alone = _found(mean, var)
    for other in (np.zeros((1, 3)), np.array([[0.0, 1e9, -1e9]])):
        pair = np.concatenate([other, mean]), np.concatenate([[[beside, 1.0, 1.0]], var])
        assert_allclose(_found(*pair)[1:], alone, rtol=1e-9)


@pytest.mark.exhaustive
def test_blocks_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of one block share a lattice, which is no matter; and no row is lost or added."""
    mean, var = _moments(23, 3, 2.0, seed=6)
    whole = _found(mean, var)
    monkeypatch.setattr(module, "_AT_ONCE", 15)
    assert_allclose(_found(mean, var), whole, rtol=1e-8)
    assert_allclose(_found(mean[:1], var[:1]), whole[:1], rtol=1e-8)
    assert _found(mean[:0], var[:0]).shape == (0, 3)
    spec = tf.TensorSpec([None, 3], tf.float64)
    assert_allclose(
        tf.function(expected_softmax, input_signature=[spec, spec], autograph=False)(mean, var),
        whole,
        rtol=1e-8,
    )


@pytest.mark.costly(keep=2)
@pytest.mark.parametrize("variance", [0.02, 2000.0, 20.0, 0.0, 0.5])
def test_gradients(variance: float) -> None:
    """Those of the numbers that are returned, and finite where a class cannot be or has no
    variance.
    """
    mean, var = _moments(6, 3, variance, seed=7)
    mean[0, 0], mean[1] = -2e3, 0.0
    with tf.GradientTape() as tape:
        m, v = tf.constant(mean), tf.constant(var)
        tape.watch([m, v])
        p = expected_softmax(m, v)[:, 1]
    slopes = [part.numpy() for part in tape.gradient(p, [m, v])]
    assert all(np.all(np.isfinite(part)) for part in slopes)
    step = np.zeros((6, 3))
    step[:, 1] = 1e-4 * (1.0 + variance)
    difference = (_found(mean + step, var) - _found(mean - step, var))[:, 1] / (2.0 * step[:, 1])
    assert_allclose(slopes[0][:, 1], difference, rtol=1e-5, atol=1e-6)
    if variance:
        step *= 0.1 * variance / (1.0 + variance)
        difference = (_found(mean, var + step) - _found(mean, var - step))[:, 1] / (
            2.0 * step[:, 1]
        )
        assert_allclose(slopes[1][:, 1], difference, rtol=1e-4, atol=1e-4)


def test_without_variance_it_is_the_softmax() -> None:
    mean = _moments(5, 4, 1.0)[0]
    assert_allclose(_found(mean, np.zeros_like(mean)), softmax(mean, axis=1), rtol=1e-14)
    assert _found(mean.astype(np.float32), np.ones_like(mean, np.float32)).dtype == np.float64


@pytest.mark.exhaustive
def test_xla() -> None:
    """Compiled with its gradients: no size depends on values."""
    mean, var = map(tf.constant, _moments(6, 3, 1.0, seed=8))

    def values(mean: tf.Tensor, var: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape() as tape:
            tape.watch([mean, var])
            p = expected_softmax(mean, var)
            second = p[:, 1]
        return p, tape.gradient(second, [mean, var])

    found, plain = (
        tf.nest.flatten(f(mean, var))
        for f in (tf.function(values, jit_compile=True, autograph=False), values)
    )
    for one, other in zip(found, plain, strict=True):
        assert_allclose(one.numpy(), other.numpy(), rtol=1e-10, atol=1e-12)


def test_the_first_lattice_that_reaches_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A longer one changes nothing; rows beyond a short one are computed by growing steps."""
    mean, var = _moments(20, 4, 20.0, seed=9)
    found = _found(mean, var)
    monkeypatch.setattr(module, "_SIZES", module._SIZES[-1:])
    assert_allclose(_found(mean, var), found, rtol=1e-8)
    monkeypatch.setattr(module, "_SIZES", ((96, 48),))
    wide = _found(mean, var)
    assert not np.array_equal(wide, found)
    assert_allclose(wide, found, atol=1e-8)
