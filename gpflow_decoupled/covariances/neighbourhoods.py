"""A sparse factor of the inverse covariance of observations."""

from __future__ import annotations

__all__ = [
    "Conditioning", "InverseFactor", "conditional_variances", "inverse_factor",
    "neighbourhood_covariances", "neighbourhood_grams", "ordered_neighbours",
]  # fmt: skip

import functools
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.kernels import Exponential, Kernel, Matern12
from scipy.sparse import csr_matrix

from ..compilation import Compiled
from ..linalg.neighbours import conditional, inverse_factor_rows, vacuous_noise
from .mixed import between_levels, radial, without_codes
from .neighbours import NOBODY, earlier_neighbours
from .stationary import PROFILES, Profile, covariance, middle_row

# ---
# Covariance matrices of many neighbourhoods at once, with their gradient written out.


# Each neighbourhood is moved so that its last row is the origin, to keep the digits of distances.


def neighbourhood_grams(kernel: Kernel, X: tf.Tensor, fused: bool = False) -> tf.Tensor:
    """k(x, x') within each of B neighbourhoods.

    :param kernel: of one latent function.
    :param X: the inputs [B, n, D] of the neighbourhoods.
    :param fused: let XLA compile Matern and squared exponential kernels: half the time, after 0.3 s
        for each shape.
    :return: [B, n, n], without jitter. Cost: B n^2 D. Matern and squared exponential kernels can be
        differentiated once, by symmetric gradients only.
    """
    profile = _PROFILES.get(radial(kernel))
    if profile is None:
        return covariance(kernel, X)
    active, _ = kernel.slice(X, None)
    numbers = without_codes(kernel, active)
    scaled = (numbers - middle_row(numbers)) / tf.convert_to_tensor(kernel.lengthscales)
    return _gram(profile, kernel.variance, scaled, between_levels(kernel, active), fused)


def _gram(
    profile: Profile, variance: tf.Tensor, scaled: tf.Tensor, levels: list[tf.Tensor], fused: bool
) -> tf.Tensor:
    @tf.custom_gradient
    def run(variance: tf.Tensor, scaled: tf.Tensor, *levels: tf.Tensor) -> tuple:
        values, slopes = _values_and_slopes(profile, variance, scaled, *levels)
        if fused:  # the others are computed for derivatives alone
            shapes = tuple(scaled.shape), len(levels)
            values = _compiled(profile, shapes)(variance, scaled, *levels)

        def grad(upstream: tf.Tensor) -> tuple:
            weights, total = upstream * slopes, tf.reduce_sum(upstream * values)
            # sum_j w_ij (a_i - a_j), twice: once as a row and once as a column
            ones = tf.ones_like(scaled[..., :1])
            sums = tf.matmul(weights, tf.concat([ones, scaled], axis=-1))
            to_scaled = 4.0 * (sums[..., :1] * scaled - sums[..., 1:])
            return total / variance, to_scaled, *(weights for _ in levels)

        return values, grad

    return run(tf.convert_to_tensor(variance), scaled, *levels)


def _values_and_slopes(
    profile: Profile, variance: tf.Tensor, scaled: tf.Tensor, *levels: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    return profile(tf.add_n([_square_distances(scaled), *levels]), variance)


@functools.cache
def _compiled(profile: Profile, shapes: tuple) -> Compiled:
    # one for each shape, or TensorFlow would warn of a function that is traced for every data set
    def values(variance: tf.Tensor, scaled: tf.Tensor, *levels: tf.Tensor) -> tf.Tensor:
        return _values_and_slopes(profile, variance, scaled, *levels)[0]

    return Compiled(values, jit_compile=True)


def _square_distances(scaled: tf.Tensor) -> tf.Tensor:
    norms = tf.reduce_sum(tf.square(scaled), axis=-1, keepdims=True)
    ones = tf.ones_like(norms)
    left = tf.concat([-2.0 * scaled, norms, ones], axis=-1)
    right = tf.concat([scaled, ones, norms], axis=-1)
    squares = tf.maximum(tf.matmul(left, right, transpose_b=True), 0.0)
    return tf.linalg.set_diag(squares, tf.zeros_like(norms[..., 0]))


def _matern12(squares: tf.Tensor, variance: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """k = variance e^-r and dk/dr2 = -k / (2 r), zero where distances vanish, as it multiplies
    differences.
    """
    distance = tf.sqrt(squares)
    values = variance * tf.exp(-distance)
    return values, tf.math.divide_no_nan(-0.5 * values, distance)


def _exponential(squares: tf.Tensor, variance: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """k = variance e^(-r/2), GPflow's `Exponential`, and dk/dr2 = -k / (4 r)."""
    distance = tf.sqrt(squares)
    values = variance * tf.exp(-0.5 * distance)
    return values, tf.math.divide_no_nan(-0.25 * values, distance)


_PROFILES: dict[type, Profile] = {
    **PROFILES,
    Matern12: _matern12,
    Exponential: _exponential,
}
"""Unlike in `profiles.py`, kernels with a kink at zero: here distances are rounded little."""


# ---
# Observations given earlier neighbours, for one latent function.


# Conditioning on fewer observations cannot lower a variance, so for every ordering and choice of
# earlier neighbours, (N3),
#
#   log|K + D| <= sum_i log tau_i,      tau_i = Var(y_i | its neighbours).


_FLOOR = {tf.float64: 1e-10, tf.float32: 1e-4}
"""Least noise in units of the prior variance: below it the covariance of neighbours is singular to
round-off. More noise raises log|K + D|, so that its bound remains one."""
_ENTRIES = 8_000_000
"""Most entries of the covariance matrices of a block of rows, 64 MB in double precision."""


class Conditioning(NamedTuple):
    """Rows of the data, and the earlier neighbours that each is conditioned on."""

    rows: tf.Tensor
    """Row numbers [B]: all, or a random sample, whose sums are then enlarged by N / B."""
    neighbours: tf.Tensor
    """Row numbers [G, B, m], -1 for none; G = 1 if the latents share them, else one each."""


def ordered_neighbours(
    kernel: Kernel, X: tf.Tensor, order: np.ndarray, count: int, rows: np.ndarray | None = None
) -> np.ndarray:
    """The nearest earlier rows of each row, or of some.

    :param kernel: of one latent function.
    :param X: inputs [N, D].
    :param order: all row numbers [N].
    :param count: m.
    :param rows: row numbers [B]; all N if not given.
    :return: row numbers [B, m], int32, -1 for none; not differentiable. Cost: B N D, or B m log N
        and N log N by trees in up to eight columns.
    """
    order = np.asarray(order)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    rows = np.arange(len(order)) if rows is None else rows
    count = min(count, max(1, len(order) - 1))
    found = earlier_neighbours(kernel, tf.gather(X, order), tf.gather(X, rows), rank[rows], count)
    return np.where(found < 0, NOBODY, order[np.maximum(found, 0)]).astype(np.int32)


def neighbourhood_covariances(
    kernel: Kernel, X: tf.Tensor, noise: tf.Tensor, rows: tf.Tensor, neighbours: tf.Tensor
) -> tf.Tensor:
    """Covariances [B, m + 1, m + 1] of observations: a row's neighbours, and the row last.

    Parameters as in `conditional_variances`. Absent neighbours carry no information.
    """
    joint = tf.concat([neighbours, rows[:, None]], axis=1)
    there, joint = joint >= 0, tf.maximum(joint, 0)
    K = neighbourhood_grams(kernel, tf.gather(X, joint))
    prior = tf.linalg.diag_part(K)
    nothing = vacuous_noise(K.dtype) * tf.reduce_max(prior, axis=1, keepdims=True)
    noise = tf.maximum(tf.gather(noise, joint), _FLOOR[K.dtype] * prior)
    return tf.linalg.set_diag(K, prior + tf.where(there, noise, nothing))


def conditional_variances(
    kernel: Kernel, X: tf.Tensor, noise: tf.Tensor, rows: tf.Tensor, neighbours: tf.Tensor
) -> tf.Tensor:
    """tau_i, the variances of observations given their neighbours, (N1); noise included.

    :param kernel: of one latent function.
    :param X: inputs [N, D].
    :param noise: the noise variances [N], above zero.
    :param rows: row numbers [B].
    :param neighbours: row numbers [B, m], -1 for none.
    :return: [B], at least the noise; differentiable once, in the kernel's parameters, X and noise.
        Cost: B (m^3 / 3 + m^2 D), memory a block of rows.
    """
    size = max(1, _ENTRIES // (int(neighbours.shape[1]) + 1) ** 2)

    @tf.recompute_grad
    def of_block(X: tf.Tensor, noise: tf.Tensor, start: int) -> tf.Tensor:
        these, near = rows[start : start + size], neighbours[start : start + size]
        joint = neighbourhood_covariances(kernel, X, noise, these, near)
        variance = conditional(joint, tf.zeros_like(joint[:, 1:, :1])).variance
        # round-off in large neighbourhoods must not take a variance below its noise
        return tf.maximum(variance, tf.gather(noise, these))

    starts = range(0, int(rows.shape[0]), size)
    return tf.concat([of_block(X, noise, start) for start in starts], axis=0)


# ---


# With weights b_i and variance tau_i of observation i given its neighbours, (N8),
#
#   U_ii = tau_i^-1/2,      U_ic = -tau_i^-1/2 b_i^T
#
# has U^T U close to (K + D)^-1: a preconditioner whose iterations hardly depend on the noise.


"""Most entries of the covariance matrices of a block of rows, 64 MB in double precision."""


class InverseFactor(NamedTuple):
    """U, not inside of a `tf.function`; N m operations a column."""

    matrix: csr_matrix
    """[N, N], with m + 1 entries a row at most."""
    back: csr_matrix
    """Its transpose."""
    log_determinant: float
    """-log|U^T U|, an upper bound of log|K + D|, (N3)."""

    def times(self, columns: tf.Tensor) -> tf.Tensor:
        """U v [N, R] for v [N, R]."""
        return tf.constant(self.matrix @ columns.numpy(), columns.dtype)

    def transposed(self, columns: tf.Tensor) -> tf.Tensor:
        """U^T v [N, R] for v [N, R]."""
        return tf.constant(self.back @ columns.numpy(), columns.dtype)

    def solve(self, columns: tf.Tensor) -> tf.Tensor:
        """U^T U v [N, R] for v [N, R], close to (K + D)^-1 v."""
        return self.transposed(self.times(columns))


def inverse_factor(
    kernel: Kernel,
    X: tf.Tensor,
    noise: tf.Tensor,
    neighbours: np.ndarray,
    explained: tf.Tensor | None = None,
) -> InverseFactor:
    """U of all rows; N (m^3 / 3 + m^2 D) and N m numbers of memory, not differentiable.

    :param kernel: of one latent function.
    :param X: inputs [N, D].
    :param noise: the noise variances [N], above zero.
    :param neighbours: the earlier neighbours of each row [N, m], -1 for none.
    :param explained: A^T [N, R], for U of K - A^T A + D: N m^2 R more.
    """
    N, m = neighbours.shape
    width = m + 1 if explained is None else max(m + 1, int(explained.shape[1]))
    size, values = max(1, _ENTRIES // ((m + 1) * width)), []
    for start in range(0, N, size):
        rows = tf.range(start, min(start + size, N))
        near = tf.constant(neighbours[start : start + size])
        joint = neighbourhood_covariances(kernel, X, noise, rows, near)
        if explained is not None:
            which = tf.maximum(tf.concat([near, rows[:, None]], axis=1), 0)
            features = tf.gather(explained, which)
            joint -= tf.matmul(features, features, transpose_b=True)
        values.append(inverse_factor_rows(joint).numpy())
    entries = np.concatenate(values)
    columns = np.concatenate([neighbours, np.arange(N)[:, None]], axis=1)
    there = columns >= 0
    starts = np.concatenate([[0], np.cumsum(there.sum(axis=1))])
    matrix = csr_matrix((entries[there], columns[there], starts), shape=(N, N))
    log_determinant = -2.0 * float(np.sum(np.log(entries[:, -1].astype(float))))
    return InverseFactor(matrix, matrix.T.tocsr(), log_determinant)
