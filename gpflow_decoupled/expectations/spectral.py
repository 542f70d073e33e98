"""The route "spectral": the density of y by inverse FFT (A10)."""

from __future__ import annotations

__all__ = ["as_complex", "check_points", "spectral_density", "spectral_expectation", "transform_of"]

import math
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from ..errors import DataError
from .axis_products import map_blocks, product
from .decay import where_decayed
from .projections import Projections, Reach, Site, check_projections, rows_of

Transform = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
"""Characteristic functions at omega [n, D, T], for theta [D, 1, P], real or complex."""


def transform_of(
    characteristic: Transform,
    alpha: tf.Tensor,
    noise: tf.Tensor | None,
    omega: tf.Tensor,
    theta: tf.Tensor,
) -> tf.Tensor:
    """Characteristic function [n, T] of y - beta at omega [n, T], for alpha [n, D], noise [n]."""
    phi = product(characteristic(alpha[:, :, None] * omega[:, None, :], theta[:, None, :]))
    if noise is None:
        return phi
    decay = tf.exp(-0.5 * noise[:, None] * tf.square(omega))
    return phi * (as_complex(decay) if phi.dtype.is_complex else decay)


def as_complex(x: tf.Tensor) -> tf.Tensor:
    """x [...] as a complex tensor; the gradient of `tf.cast` warns."""
    return x if x.dtype.is_complex else tf.complex(x, tf.zeros_like(x))


def check_points(K: int) -> None:
    """Raise `DataError` unless K is a power of two of at least 4."""
    if not isinstance(K, int | np.integer) or K < 4 or K & (K - 1):
        raise DataError(f"K={K}: the number of points must be a power of two, for example 1024.")


def spectral_density(
    characteristic: Transform, y: Projections, R: Reach, K: int = 1024, averaged: bool = False
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return values y_k and the density of y there, [N, K] each, by (A10).

    :param characteristic: at omega [n, D, T], for theta [D, 1, P].
    """
    # The error is the mass beyond R standard deviations plus the characteristic function beyond pi
    # / step.
    check_points(K)
    check_projections(y)
    u, q = _density(characteristic, y.alpha, y.noise, y.scale, y.theta, R, K, averaged)
    return y.beta[:, None] + u, q


def _density(
    characteristic: Transform,
    alpha: tf.Tensor,
    noise: tf.Tensor | None,
    scale: tf.Tensor,
    theta: tf.Tensor,
    R: Reach,
    K: int,
    averaged: bool = False,
) -> tuple[tf.Tensor, tf.Tensor]:
    step = 2.0 * tf.cast(R, alpha.dtype) * scale[:, None] / K
    places = tf.range(K // 2 + 1, dtype=alpha.dtype)
    omega = 2.0 * math.pi / (K * step) * places
    phi = transform_of(characteristic, alpha, noise, omega, theta)
    # the signs shift the mean to the middle of the grid; a sinc averages over cells
    filters = (-1.0) ** np.arange(K // 2 + 1) * (
        np.sinc(np.arange(K // 2 + 1) / K) if averaged else 1.0
    )
    phi = tf.math.conj(as_complex(phi)) * as_complex(tf.constant(filters, alpha.dtype))
    q = tf.signal.irfft(phi, fft_length=[K]) / step  # (A10)
    return (tf.range(K, dtype=alpha.dtype) - K // 2) * step, q


def spectral_expectation(
    characteristic: Transform,
    y: Projections,
    site: Site,
    R: Reach,
    K: int = 1024,
    memory: float = 2.0**29,
    work: int = 12,
) -> tf.Tensor:
    """Return E g_n(y_n) [N], differentiable in y's arrays and the site's parameters.

    Minus infinity where the grid ends before g times the density has decayed. Kinks are corrected
    to the fourth order of the step.

    :param characteristic: at omega [n, D, T], for theta [D, 1, P].
    :param memory: bytes that `work` complex tensors [n, D, K/2 + 1] may take.
    """
    check_points(K)
    check_projections(y, site)
    noisy = y.noise is not None

    def block(
        alpha: tf.Tensor, beta: tf.Tensor, noise: tf.Tensor, scale: tf.Tensor, *rest: tf.Tensor
    ) -> tf.Tensor:
        *parameters, theta = rest
        u, q = _density(characteristic, alpha, noise if noisy else None, scale, theta, R, K)
        columns = [part[:, None] for part in parameters]
        return _expected(beta[:, None] + u, q, u[:, 1:2] - u[:, :1], site, columns)

    rows = rows_of(memory, y.alpha.shape[1], K // 2 + 1, work, y.alpha.dtype)
    return map_blocks(block, [*y.per_site, *site.parameters], [y.theta], rows)


def _expected(
    values: tf.Tensor, q: tf.Tensor, step: tf.Tensor, site: Site, columns: list[tf.Tensor]
) -> tf.Tensor:
    g = site.smooth(values, *columns)
    if site.kink is None:
        return where_decayed(tf.reduce_sum(g * q, axis=1) * step[:, 0], g * q * step, -math.inf)
    place, slope = site.kink(*columns)
    g += slope * tf.abs(values - place)
    # the error of the trapezoid rule at a kink, from the density there by linear interpolation
    at = (place - values[:, :1]) / step
    near = tf.stop_gradient(tf.floor(at))
    xi = at - near
    K = tf.cast(tf.shape(values)[1], at.dtype)
    cell = tf.cast(tf.clip_by_value(near, 0.0, K - 2.0), tf.int32)
    left, right = (tf.gather(q, cell + side, batch_dims=1) for side in (0, 1))
    inside = tf.cast((near >= 0.0) & (near < K - 1.0), q.dtype)
    density = inside * ((1.0 - xi) * left + xi * right)
    # (A10), the term of a kink
    correction = tf.square(step) * (tf.square(xi) - xi + 1.0 / 6.0) * density
    return (tf.reduce_sum(g * q, axis=1, keepdims=True) * step + slope * correction)[:, 0]
