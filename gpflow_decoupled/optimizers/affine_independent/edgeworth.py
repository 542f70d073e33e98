"""The rotation of A and the shapes that affine-independent inference starts from, by an Edgeworth expansion.

At the Gaussian optimum N(b, A A^T) two things are still open. Any rotation Q gives the same Gaussian, A Q, but not the same q
once the v_d are not normal. And the bound of a skew-normal base distribution has a saddle at the normal one, where its
gradient in the shapes vanishes.

An expansion of the bound about the Gaussian in the skewness gamma_d of each v_d answers both. Its leading terms are

    gamma_d s_d / 6 - gamma_d^2 / 12,   s_d = sum_n alpha_nd^3 E g_n'''(y_n)                               (A18)

with the projections alpha = X A and the expectation under the Gaussian. The best skewness is gamma_d = s_d, and the bound then
gains sum_d s_d^2 / 12, (A19), which Q is chosen to maximise. For symmetric base distributions the same holds with the excess
kurtosis, fourth powers and fourth derivatives, and 24 and 48 in the place of 6 and 12.
"""

from __future__ import annotations

__all__ = ["Start", "edgeworth_shapes", "edgeworth_start"]

import math
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from scipy.special import gammaln

from ...distributions import Base
from ...expectations.site_integrals import SiteGroup

_SWEEPS = 30
_ROTATIONS = 4
_NODES = 1001
_LARGEST_SKEW, _LEAST_SKEW = 0.9, 0.02


class Start(NamedTuple):
    """A root of the Gaussian covariance, and shapes."""

    A: np.ndarray
    """The rotated root [D, D]."""
    theta: np.ndarray
    """The shapes [k, P] of the first k variables, P numbers per variable."""
    gain: float
    """The gain over the Gaussian bound that (A19) predicts, in nats; NaN for a base distribution without a known rule."""


def edgeworth_start(
    groups: list[SiteGroup], b: np.ndarray, A: np.ndarray, base: Base, rotate: bool, k: int | None = None
) -> Start:
    """The rotated root and the shapes at the Gaussian optimum N(b, A A^T).

    :param groups: the sites.
    :param b: the mean [D].
    :param A: a root [D, D] of the covariance.
    :param base: the base distribution.
    :param rotate: whether A may be rotated. If not, only the order of its columns changes, where k < D.
    :param k: how many of the D variables are not normal, all if not given. Their columns come first: those with the
        greatest s_d.
    """
    D, order = len(b), 4 if base.symmetric else 3
    k = D if k is None else k
    if base.name == "normal":
        return Start(A, base.start(k).numpy(), 0.0)
    alpha, weights = _derivatives(groups, b, A, order)
    Q = _rotation(alpha, weights, order, k) if rotate else _largest(alpha, weights, order, k)
    s = _slopes(alpha @ Q, weights, order)[:k]
    return Start(A @ Q, _shapes(base, s), _gain(base, s))


def edgeworth_shapes(groups: list[SiteGroup], b: np.ndarray, A: np.ndarray, base: Base, k: int) -> np.ndarray:
    """The shapes [k, P] for the first k columns of A [D, D], without any rotation."""
    order = 4 if base.symmetric else 3
    return _shapes(base, _slopes(*_derivatives(groups, b, A, order), order)[:k])


def _derivatives(groups: list[SiteGroup], b: np.ndarray, A: np.ndarray, order: int) -> tuple[np.ndarray, np.ndarray]:
    """The projections alpha [N, D], and E g_n'''(y_n) or, for order 4, E g_n''''(y_n) under the Gaussian [N].

    By parts, for y = m + sigma z and the Hermite polynomial He of that order: E g^(order)(y) = E g(y) He(z) / sigma^order.
    """
    z = np.linspace(-9.0, 9.0, _NODES)
    hermite = z**3 - 3.0 * z if order == 3 else z**4 - 6.0 * z**2 + 3.0
    rule = np.exp(-0.5 * z**2) * hermite * (z[1] - z[0]) / math.sqrt(2.0 * math.pi)
    found = []
    for group in groups:
        alpha = group.features.numpy().astype(float) @ A
        noise = 0.0 if group.noise is None else group.noise.numpy().astype(float)
        sigma = np.sqrt(np.maximum(np.sum(alpha**2, axis=1) + noise, 1e-300))
        m = group.offset.numpy() + group.features.numpy() @ b
        y = tf.constant(m[:, None] + sigma[:, None] * z, group.features.dtype)
        columns = [part[:, None] for part in group.site.parameters]
        g = group.site.smooth(y, *columns)
        if group.site.kink is not None:
            place, slope = group.site.kink(*columns)
            g += slope * tf.abs(y - place)
        with np.errstate(all="ignore"):  # rows whose y is constant are set to zero below
            found.append((alpha, g.numpy() @ rule / sigma**order))  # (A18)
    alphas, weights = (np.concatenate(part) for part in zip(*found))
    return alphas, np.where(np.isfinite(weights), weights, 0.0)


def _slopes(alpha: np.ndarray, weights: np.ndarray, order: int) -> np.ndarray:
    """s_d [D] of (A18)."""
    return weights @ alpha**order


def _largest(alpha: np.ndarray, weights: np.ndarray, order: int, k: int) -> np.ndarray:
    """The permutation [D, D] that brings the k greatest |s_d| to the front; the identity where k is D."""
    D = alpha.shape[1]
    places = np.arange(D) if k == D else np.argsort(-np.abs(_slopes(alpha, weights, order)), kind="stable")
    return np.eye(D)[:, places]


def _rotation(alpha: np.ndarray, weights: np.ndarray, order: int, k: int) -> np.ndarray:
    """The orthogonal Q [D, D] with the greatest sum of squares of the first k slopes of alpha Q, (A19).

    Each sweep maximises the linearised objective over orthogonal matrices, which a singular value decomposition solves. The
    objective has several local maxima: the best of a few starts is taken.
    """
    D, rng = alpha.shape[1], np.random.default_rng(0)
    best, best_value = np.eye(D), -np.inf
    for start in range(_ROTATIONS):
        Q = _largest(alpha, weights, order, k) if start == 0 else np.linalg.qr(rng.normal(size=(D, D)))[0]
        for _ in range(_SWEEPS):
            projected = alpha @ Q[:, :k]
            s = weights @ projected**order
            left, _, right = np.linalg.svd(alpha.T @ (weights[:, None] * projected ** (order - 1)) * s)
            Q = np.concatenate([left[:, :k] @ right, left[:, k:]], axis=1)
        value = float(np.sum(_slopes(alpha @ Q[:, :k], weights, order) ** 2))
        if value > best_value:
            best, best_value = Q, value
    return best


def _shapes(base: Base, s: np.ndarray) -> np.ndarray:
    """Shapes [k, P] with skewness (or excess kurtosis) s [k], as nearly as the base distribution allows."""
    default = base.start(len(s)).numpy()
    if base.name == "skew_normal":
        return _skew_normal_shape(s)[:, None]
    if base.name == "generalized_normal":
        powers = np.linspace(1.0, 4.0, 301)
        kurtosis = np.exp(gammaln(5.0 / powers) + gammaln(1.0 / powers) - 2.0 * gammaln(3.0 / powers)) - 3.0
        return np.interp(-s, -kurtosis, powers)[:, None]
    if base.name == "variance_gamma":
        return np.clip(3.0 / np.maximum(s, 0.05), 0.6, 60.0)[:, None]
    if base.name == "student_t":
        return np.clip(4.0 + 6.0 / np.maximum(s, 0.1), 4.5, 64.0)[:, None]
    return default


def _skew_normal_shape(s: np.ndarray) -> np.ndarray:
    """Skew-normal shapes [k] with skewness s [k]; never zero, where the gradient vanishes."""
    sign = np.where(s < 0.0, -1.0, 1.0)
    size = np.clip(np.abs(s), _LEAST_SKEW, _LARGEST_SKEW)
    c = np.cbrt(2.0 * size / (4.0 - math.pi))
    delta = sign * math.sqrt(0.5 * math.pi) * c / np.sqrt(1.0 + c**2)
    return delta / np.sqrt(1.0 - delta**2)


def _gain(base: Base, s: np.ndarray) -> float:
    """The predicted gain in nats: (A19), or the corresponding sum for the excess kurtosis."""
    if base.name == "skew_normal":
        return float(np.sum(s**2) / 12.0)  # (A19)
    if base.name in ("generalized_normal", "variance_gamma", "student_t"):
        reached = s if base.name == "generalized_normal" else np.maximum(s, 0.0)
        return float(np.sum(reached**2) / 48.0)
    return float("nan")
