"""The posterior of a Gaussian prior and Gaussian sites, against explicit inverses."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose
from scipy.optimize import brentq

from gpflow_decoupled.linalg.site_posterior import SitePosterior, site_posterior

N = 7
SIGNS = {"positive": 0, "one negative": 1, "some negative": 3, "all negative": N, "zero": None}
signs = pytest.mark.parametrize("sign", SIGNS)
groups = pytest.mark.parametrize("G, L", [(1, 1), (1, 3), (3, 3)])


def _prior(G: int, rng: np.random.Generator) -> np.ndarray:
    root = rng.normal(size=(G, N, N))
    return root @ np.swapaxes(root, -1, -2) / N + 0.1 * np.eye(N)


def _sites(
    K: np.ndarray, L: int, sign: str, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Random sites; a latent has its negative ones in places of its own, within what K allows."""
    tau = rng.uniform(0.2, 4.0, size=(N, L))
    if SIGNS[sign] is None:
        return rng.normal(size=(N, L)), 0.0 * tau
    lowest = 0.8 / np.linalg.eigvalsh(K).max()
    for latent in range(L):
        tau[rng.permutation(N)[: SIGNS[sign]], latent] = -lowest * rng.uniform(
            0.3, 1.0, size=SIGNS[sign]
        )
    return rng.normal(size=(N, L)), tau


def _explicit(
    K: np.ndarray, nu: np.ndarray, tau: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """Mean [N], covariance [N, N] and log det(I + K W) of one latent; K may be singular."""
    inner = np.eye(len(K)) + K * tau
    V = np.linalg.solve(inner, K)
    return V @ nu, V, np.linalg.slogdet(inner)[1]


def _latent(found: SitePosterior, latent: int) -> tuple[np.ndarray, ...]:
    """What belongs to one latent: L_B, W^1/2, F, alpha, u, v."""
    rows = (found.chol, found.scale, found.negative)
    return (
        *(part.numpy()[latent] for part in rows),
        *(part.numpy()[:, latent] for part in (found.alpha, found.mean, found.variance)),
    )


def _with_gradients(K: tf.Tensor, nu: tf.Tensor, tau: tf.Tensor) -> tuple[tf.Tensor, ...]:
    """Moments, log determinant, what negative sites add at three points, and the gradients of a
    mixture of all of them.
    """
    cross = tf.constant(np.cos(np.arange(3.0 * N)).reshape(N, 3))
    with tf.GradientTape() as tape:
        tape.watch([K, nu, tau])
        p = site_posterior(K, nu, tau)
        added = tf.reduce_sum(tf.square(tf.matmul(p.negative, cross)), axis=1)
        parts = (p.mean, p.variance, p.alpha, p.log_det, added)
        total = sum(tf.reduce_sum(tf.sin(part)) for part in parts)
    return (*parts, *tape.gradient(total, [K, nu, tau]))


@pytest.mark.exhaustive
@pytest.mark.parametrize("sign", [name for name in SIGNS if name != "zero"])
def test_xla_has_the_same_numbers_and_gradients(sign, rng):
    """Its rows have a static size; also where some tau v are too small for the short formula of the
    variance.
    """
    K = _prior(2, rng)
    nu, tau = _sites(K, 2, sign, rng)
    tau[0] = np.abs(1e-9 * tau[0])
    arguments = [tf.constant(value) for value in (K, nu, tau)]
    for left, right in zip(
        tf.function(_with_gradients, jit_compile=True, autograph=False)(*arguments),
        _with_gradients(*arguments),
    ):
        assert_allclose(left, right, rtol=1e-10, atol=1e-12)


def _assert_explicit(K: np.ndarray, nu: np.ndarray, tau: np.ndarray, rtol: float = 1e-9) -> None:
    found = site_posterior(*map(tf.constant, (K, nu, tau)))
    assert found.ok and found.log_det.shape == ()
    log_det = 0.0
    for latent in range(nu.shape[1]):
        prior = K[latent if len(K) > 1 else 0]
        u, V, term = _explicit(prior, nu[:, latent], tau[:, latent])
        log_det += term
        chol, scale, negative, alpha, mean, variance = _latent(found, latent)
        assert_allclose(mean, u, rtol=rtol, atol=rtol)
        assert_allclose(variance, np.diag(V), rtol=rtol, atol=rtol)
        assert_allclose(alpha, nu[:, latent] - tau[:, latent] * u, rtol=rtol, atol=rtol)
        assert_allclose(prior @ alpha, u, rtol=rtol, atol=rtol)
        minus = np.linalg.solve(chol, scale[:, None] * prior)
        predicted = prior - minus.T @ minus + prior @ negative.T @ negative @ prior
        assert_allclose(predicted, V, rtol=rtol, atol=rtol)
    assert_allclose(found.log_det, log_det, rtol=rtol, atol=rtol)


@groups
@signs
def test_moments_are_those_of_explicit_inverses(sign, G, L, rng):
    K = _prior(G, rng)
    _assert_explicit(K, *_sites(K, L, sign, rng))


@signs
def test_a_singular_prior_needs_no_jitter(sign, rng):
    """A linear kernel of rank 2; also the predictions, which know nothing of K^-1."""
    X = rng.normal(size=(N, 2))
    K = gpflow.kernels.Linear(variance=0.7)(X).numpy()[None]
    assert np.linalg.matrix_rank(K[0]) == 2
    _assert_explicit(K, *_sites(K, 2, sign, rng))


def test_precisions_of_any_size(rng):
    """From nothing to next to no noise, in one problem."""
    K = _prior(1, rng)
    tau = np.array([0.0, 1e-12, 1e-3, 1.0, 1e4, 1e8, 0.0])[:, None]
    _assert_explicit(K, rng.normal(size=(N, 1)) * np.sqrt(tau), tau, rtol=1e-6)


def test_rows_of_no_negative_site_are_none(rng):
    K = _prior(1, rng)
    for sign, rows in (("positive", 0), ("zero", 0), ("one negative", 1), ("all negative", N)):
        found = site_posterior(*map(tf.constant, (K, *_sites(K, 1, sign, rng))))
        assert found.negative.shape == (1, rows, N)


def test_ok_says_whether_the_posterior_exists(rng):
    """On both sides of the edge, which eigenvalues tell; and one latent of two is enough to
    fail.
    """
    K = _prior(1, rng)
    nu, tau = _sites(K, 1, "some negative", rng)
    precision = np.linalg.inv(K[0])

    def smallest(scale: float) -> float:
        return float(
            np.linalg.eigvalsh(precision + np.diag(np.where(tau < 0, scale * tau, tau)[:, 0]))[0]
        )

    edge = brentq(smallest, 1.0, 100.0)
    for scale, exists in ((edge * 0.999, True), (edge * 1.001, False)):
        scaled = np.where(tau < 0, scale * tau, tau)
        assert bool(site_posterior(*map(tf.constant, (K, nu, scaled))).ok) == exists
        pair = np.concatenate([np.ones_like(tau), scaled], axis=1)
        assert bool(site_posterior(*map(tf.constant, (K, np.tile(nu, 2), pair))).ok) == exists


def test_a_prior_that_is_not_finite_is_not_ok(rng):
    K = _prior(1, rng)
    nu, tau = _sites(K, 1, "positive", rng)
    assert not site_posterior(tf.constant(np.nan * K), tf.constant(nu), tf.constant(tau)).ok


@signs
def test_single_precision(sign, rng):
    K = _prior(1, rng)
    values = (K, *_sites(K, 2, sign, rng))
    single = site_posterior(*(tf.constant(value, tf.float32) for value in values))
    double = site_posterior(*map(tf.constant, values))
    for name, left, right in zip(single._fields, single, double):
        if name == "ok":
            assert left
            continue
        assert left.dtype == tf.float32
        assert_allclose(left, right, rtol=2e-3, atol=2e-4)


# where a precision is zero there is a corner: roots on its one side, negative rows on the other
@pytest.mark.costly(keep=4)
@pytest.mark.parametrize(
    "sign, argument",
    [(s, a) for s in SIGNS for a in ("K", "nu", "tau") if (s, a) != ("zero", "tau")],
)
def test_gradients_are_finite_differences(sign, argument, rng):
    """Of moments, log determinant and predictions; K moves along symmetric directions."""
    K = _prior(2, rng)
    values = dict(zip(("K", "nu", "tau"), (K, *_sites(K, 2, sign, rng))))
    direction = rng.normal(size=values[argument].shape)
    direction = direction + np.swapaxes(direction, -1, -2) if argument == "K" else direction
    weights, cross = rng.normal(size=(3, N, 2)), tf.constant(rng.normal(size=(2, N, 3)))

    def value(moved: tf.Tensor) -> tf.Tensor:
        p = site_posterior(
            **{
                name: tf.constant(v)
                for name, v in {**values, argument: moved}.items()
                if name != argument
            },
            **{argument: moved},
        )
        total = sum(
            tf.reduce_sum(w * part) for w, part in zip(weights, (p.mean, p.variance, p.alpha))
        )
        minus = tf.linalg.triangular_solve(p.chol, p.scale[:, :, None] * cross)
        predicted = tf.reduce_sum(tf.matmul(p.negative, cross) ** 2) - tf.reduce_sum(minus**2)
        return total + 0.7 * p.log_det + 0.3 * predicted

    at = tf.constant(values[argument])
    with tf.GradientTape() as tape:
        tape.watch(at)
        total = value(at)
    slope = np.sum(tape.gradient(total, at).numpy() * direction)
    step = 1e-6
    ends = [
        float(value(tf.constant(values[argument] + sign_ * step * direction))) for sign_ in (1, -1)
    ]
    assert_allclose(slope, (ends[0] - ends[1]) / (2 * step), rtol=1e-5, atol=1e-6)
