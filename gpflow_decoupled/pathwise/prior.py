"""Draws from a GP prior, by random Fourier features."""

from __future__ import annotations

__all__ = ["PriorDraws", "draw_prior"]

from collections.abc import Callable

import numpy as np
import tensorflow as tf
from gpflow.kernels import (
    Constant,
    Kernel,
    Linear,
    Matern12,
    Matern32,
    Matern52,
    RationalQuadratic,
    SquaredExponential,
    Sum,
)

from ..covariances.mixed import code_columns, radial, without_codes
from ..errors import DataError
from ..linalg.conjugate_gradients import map_rows

# F draws of omega from a stationary kernel's spectral density give 2 F random features (Rahimi &
# Recht 2007)
#
#   phi(x) = sqrt(variance / F) (cos omega_1^T x, ..., cos omega_F^T x, sin omega_1^T x, ...)
#
# Each draw has frequencies of its own: the draws then have the kernel's covariance, whatever F is.
# With the same ones for all, every draw would have the features' error. For x in units of the
# lengthscales and z ~ N(0, I),
#
# | kernel | omega |
# |---|---|
# | SquaredExponential | z |
# | Matern, smoothness nu | z / sqrt(c / 2 nu), c ~ chi^2 with 2 nu degrees of freedom |
# | RationalQuadratic, alpha | z sqrt(s), s ~ Gamma(alpha, 1 / alpha) |
#
# A code has a z for each level, made of its number, so that also new levels have theirs.
# Linear (one feature per column) and constant kernels are exact; a sum has the features of its
# terms.


Features = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
"""X [b or 1, N, D] and the numbers [b] of draws -> phi(X) of each, [b or 1, N, K]."""
_ENTRIES = 4_000_000
"""Most features of a block of draws, 32 MB in double precision."""
_DEGREES = {Matern12: 1, Matern32: 3, Matern52: 5}
"""2 nu."""


class PriorDraws:
    """S functions drawn from the priors GP(0, k_l) of L latents, made by `draw_prior`.

    :param features: phi of each latent; latents with the same kernel share it.
    :param weights: w of each latent, [S, K].

    Example::

        prior = draw_prior([gpflow.kernels.Matern52()], 2, 10, 1000, np.random.default_rng(0))
        values = prior(X)  # [10, 1, N]
    """

    def __init__(self, features: list[Features], weights: list[tf.Tensor]) -> None:
        self.features, self.weights = features, weights

    @property
    def num_samples(self) -> int:
        """The number of functions S."""
        return int(self.weights[0].shape[0])

    def __call__(self, X: list[tf.Tensor] | tf.Tensor, own: bool = False) -> tf.Tensor:
        """Evaluate the functions; cost S N K, sines and cosines too, per latent.

        :param X: inputs [N, D], or a list with one array per latent.
        :param own: X is [S N, D], N inputs for each draw.
        :return: [S, L, N].
        """
        inputs = X if isinstance(X, list) else [X] * len(self.features)
        S, draws, values = self.num_samples, tf.range(self.num_samples), []
        for phi, w, x in zip(self.features, self.weights, inputs):

            def of_block(
                draws: tf.Tensor,
                w: tf.Tensor,
                *x: tf.Tensor,
                phi: Features = phi,
                X: tf.Tensor = x,
            ) -> tf.Tensor:
                return tf.linalg.matvec(phi(x[0] if x else X[None], draws), w)

            each = (tf.reshape(x, [S, -1, x.shape[-1]]),) if own else ()
            rows = None if x.shape[0] is None else x.shape[0] // (S if own else 1)
            size = max(1, _ENTRIES // max(1, rows * w.shape[1])) if rows else S if own else 1
            values.append(map_rows(of_block, (draws, w, *each), min(S, size), w.dtype))
        return tf.stack(values, axis=1)


def draw_prior(
    kernels: list[Kernel],
    num_dims: int,
    num_samples: int,
    num_frequencies: int,
    rng: np.random.Generator,
) -> PriorDraws:
    """Draw functions from the priors of several latents.

    :param kernels: per latent: SquaredExponential, Matern, RationalQuadratic, Linear, Constant or
        sums of them. Latents with the same kernel object share features, not weights.
    :param num_dims: columns of the inputs.
    :param num_samples: S, the number of draws.
    :param num_frequencies: F random frequencies per stationary kernel and draw: covariances over
        draws are exact, and a draw is Gaussian up to about 1 / sqrt(F).
    :param rng: the source of the draws.
    :raises DataError: for a kernel whose spectral density is not known here.
    """
    sizes = num_samples, num_dims, num_frequencies
    made = {id(kernel): _features(kernel, sizes, rng) for kernel in kernels}
    features = [made[id(kernel)] for kernel in kernels]
    probe = tf.zeros([1, 1, num_dims], kernels[0].parameters[0].dtype)
    weights = [
        tf.constant(rng.standard_normal((num_samples, phi(probe, [0]).shape[2])), probe.dtype)
        for phi in features
    ]
    return PriorDraws(features, weights)


def _features(kernel: Kernel, sizes: tuple[int, int, int], rng: np.random.Generator) -> Features:
    """Features of S draws; `sizes` are S, D and F."""
    if type(kernel) is Sum:
        parts = [_features(part, sizes, rng) for part in kernel.kernels]

        def joined(X: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
            found = [phi(X, draws) for phi in parts]
            most = tf.reduce_max([tf.shape(part)[0] for part in found])
            return tf.concat(
                [tf.broadcast_to(p, [most, tf.shape(p)[1], p.shape[2]]) for p in found], axis=2
            )

        return joined
    if type(kernel) is Constant:
        return lambda X, draws: tf.sqrt(kernel.variance) * tf.ones_like(X[..., :1])
    if type(kernel) is Linear:
        return lambda X, draws: tf.sqrt(kernel.variance) * kernel.slice(X, None)[0]
    S, num_dims, count = sizes
    columns = kernel.slice(tf.zeros([1, num_dims]), None)[0].shape[1]
    dtype, places = kernel.parameters[0].dtype, code_columns(kernel)
    z, each = rng.normal(size=(S, columns, count)), _sizes(kernel, (S, 1, count), rng)
    omega, size = tf.constant(z * each, dtype), tf.constant(each, dtype)
    seeds = rng.integers(2**62, size=len(places))

    def stationary(X: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
        X, _ = kernel.slice(X, None)
        angles = tf.matmul(kernel.scale(without_codes(kernel, X)), tf.gather(omega, draws))
        lengthscales = tf.broadcast_to(kernel.lengthscales, [columns])
        for place, seed in zip(places, seeds):
            of_levels = _normal_of(X[..., place], draws, count, int(seed))
            angles += tf.gather(size, draws) * of_levels / lengthscales[place]
        return tf.sqrt(kernel.variance / count) * tf.concat(
            [tf.cos(angles), tf.sin(angles)], axis=2
        )

    return stationary


def _sizes(kernel: Kernel, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Factors of z, one for each frequency."""
    kind = radial(kernel)
    if kind is SquaredExponential:
        return np.ones(shape)
    if kind in _DEGREES:
        return 1.0 / np.sqrt(rng.chisquare(_DEGREES[kind], shape) / _DEGREES[kind])
    if kind is RationalQuadratic:
        alpha = float(tf.convert_to_tensor(kernel.alpha))
        return np.sqrt(rng.gamma(alpha, 1.0 / alpha, shape))
    raise DataError(
        f"Functions cannot be drawn from the prior of {type(kernel).__name__}, because its spectral"
        " density is not known here. They can be drawn for SquaredExponential, Matern12, Matern32,"
        " Matern52, RationalQuadratic, Linear, Constant and sums of them. For draws at given inputs"
        " use predict_f_samples."
    )


def _normal_of(codes: tf.Tensor, draws: tf.Tensor, count: int, seed: int) -> tf.Tensor:
    """Standard normal numbers [b, N, F] for codes [b or 1, N], the same wherever a code stands."""
    own = tf.cast(draws, tf.uint64)[:, None, None] * count + tf.cast(tf.range(count), tf.uint64)
    x = _scrambled(tf.cast(codes, tf.uint64)[..., None] + seed)
    x = _scrambled(tf.bitwise.bitwise_xor(x, _scrambled(own)))
    uniform = (
        tf.cast(tf.bitwise.right_shift(x, tf.constant(11, x.dtype)), tf.float64) + 0.5
    ) / 2**53
    return tf.cast(tf.math.ndtri(uniform), codes.dtype)


def _scrambled(x: tf.Tensor) -> tf.Tensor:
    """Whole numbers that look independent of x, Steele, Lea & Flood 2014."""
    x += tf.constant(0x9E3779B97F4A7C15, x.dtype)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        shifted = tf.bitwise.right_shift(x, tf.constant(shift, x.dtype))
        x = tf.bitwise.bitwise_xor(x, shifted) * tf.constant(factor, x.dtype)
    return x
