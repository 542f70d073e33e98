"""The two ends of the interval."""

from __future__ import annotations

__all__ = ["EXACT_ROWS", "evidence_interval", "indefinite", "quantile"]

import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from scipy import stats

from ...covariances.neighbours import InverseFactor, inverse_factor, ordered_neighbours
from ...covariances.products import kernel_product
from ...errors import NumericalError
from .determinant import lanczos_log_determinant
from .interval import LEVEL, Evidence, EvidenceSettings
from .observed import Observed
from .quadratic import Nystrom, Product, bound_quadratic

EXACT_ROWS = 2_000
"""Most rows whose evidence is computed exactly: the factorisation takes half a second."""
_POINTS = 1_000
"""Most points of Q, at most a quarter of the rows."""
_MAX_PRODUCTS = 200


class _Ends(NamedTuple):
    """Both ends of one part's log evidence, nats, and the standard error of an estimated one."""

    lower: float
    upper: float
    error: float
    products: int


def evidence_interval(parts: Sequence[Observed], settings: EvidenceSettings) -> Evidence:
    """An interval for the log density of all parts, which are independent.

    :param parts: at least one.
    :param settings: neighbours, tolerance and probes.
    """
    N, parts = max(int(part.X.shape[0]) for part in parts), [part.in_double() for part in parts]
    if N <= EXACT_ROWS:
        found = [_exact(part) for part in parts]
        exact, error = (sum(one) for one in zip(*found))
        return Evidence(exact - error, exact + error, "exact", "exact", N, 0)
    share = settings.tolerance / len(parts)
    ends = [_ends(part, settings, share) for part in parts]
    above = quantile(settings.probes) if settings.probes else 0.0
    upper = sum(one.upper for one in ends) + above * math.hypot(*(one.error for one in ends))
    return Evidence(
        sum(one.lower for one in ends),
        upper,
        "neighbours",
        "Lanczos" if settings.probes else "inducing points",
        N,
        sum(one.products for one in ends),
    )


def indefinite(matrix: str) -> NumericalError:
    """The error for a covariance without a Cholesky factor."""
    return NumericalError(
        f"The covariance {matrix} could not be factorised: the noise variance is far below the"
        " prior variance's round-off; use a larger one, or double precision.",
        matrix,
    )


def quantile(probes: int) -> float:
    """Standard errors above a mean of random vectors that hold at the `LEVEL`: Student's t."""
    return float(stats.t.ppf(LEVEL, probes - 1))


def _exact(part: Observed) -> tuple[float, float]:
    """The log density, and what round-off may have changed."""
    chol, fine = part.factor()
    if not bool(fine):
        raise indefinite("K + D")
    half = tf.linalg.triangular_solve(chol, tf.cast(part.y, chol.dtype))
    quadratic = float(tf.reduce_sum(tf.square(half)))
    log_det = 2.0 * float(tf.reduce_sum(tf.math.log(tf.linalg.diag_part(chol))))
    value = _log_density(part, log_det, quadratic)
    if not math.isfinite(value):
        raise indefinite("K + D")
    return value, part.round_off(quadratic, int(part.X.shape[0]))


def _log_density(part: Observed, log_det: float, quadratic: float) -> float:
    N, R = (int(size) for size in part.y.shape)
    return -0.5 * (R * N * math.log(2.0 * math.pi) + R * log_det + quadratic)


def _ends(part: Observed, settings: EvidenceSettings, tolerance: float) -> _Ends:
    """(N4), and the upper bound with log|Q + D|, or the estimate of log|K + D|."""
    kernel, X, y, noise = part
    lost = partial(part.round_off, width=settings.num_neighbours + 1)
    probes, seed = settings.probes, settings.seed
    N = int(X.shape[0])
    order = np.random.default_rng(seed).permutation(N)
    neighbours = ordered_neighbours(kernel, X, order, settings.num_neighbours)
    U = inverse_factor(kernel, X, noise, neighbours)
    if not np.isfinite(U.log_determinant):
        raise indefinite("k(neighbours, neighbours)")
    Z = tf.gather(X, order[: min(_POINTS, N // 4)])
    nystrom = Nystrom(kernel, Z, X, noise)

    def product(columns: tf.Tensor, dtype: tf.DType | None) -> tf.Tensor:
        return kernel_product(kernel, X, None, columns, dtype=dtype) + noise[:, None] * columns

    squares = bound_quadratic(
        product, lambda r: U.transposed(U.times(r)), nystrom, y, tolerance, _MAX_PRODUCTS
    )
    lower = _log_density(part, U.log_determinant, squares.upper) - lost(squares.upper)
    if not probes:
        upper = _log_density(part, nystrom.log_determinant(), squares.lower)
        upper += part.round_off(squares.lower, int(Z.shape[0]))
        return _Ends(lower, upper, 0.0, squares.products)
    rest, error, products = _estimate(product, U, X, probes, seed)
    upper = _log_density(part, U.log_determinant + rest, squares.lower) + lost(squares.lower)
    columns = int(y.shape[1])
    return _Ends(lower, upper, 0.5 * columns * error, squares.products + products)


def _estimate(
    product: Product, U: InverseFactor, X: tf.Tensor, probes: int, seed: int
) -> tuple[float, float, int]:
    def apply(columns: tf.Tensor) -> tf.Tensor:
        inner = U.transposed(tf.cast(columns, X.dtype))
        return tf.cast(U.times(product(inner, None)), tf.float64)

    return lanczos_log_determinant(apply, int(X.shape[0]), probes, seed)
