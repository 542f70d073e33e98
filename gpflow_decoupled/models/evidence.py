"""The two ends of the interval."""

from __future__ import annotations

__all__ = [
    "EXACT_ROWS", "Evidence", "EvidenceSettings", "LEVEL", "Nystrom", "Observed", "Quadratic",
    "bound_quadratic", "evidence_interval", "indefinite", "lanczos_log_determinant", "quantile",
]  # fmt: skip

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.inducing_variables import InducingPoints
from gpflow.kernels import Kernel
from scipy import stats
from scipy.linalg import eigh_tridiagonal

from ..covariances.latents import gram_to_data, gram_to_factor
from ..covariances.neighbourhoods import InverseFactor, inverse_factor, ordered_neighbours
from ..covariances.products import kernel_product
from ..covariances.stationary import covariance
from ..errors import DataError, NumericalError
from ..inputs import check_rate, check_whole
from ..linalg.cholesky import CholeskyFactor, cholesky
from ..linalg.conjugate_gradients import Blocks, conjugate_gradients
from ..linalg.site_posterior import normal_log_density
from ..linalg.triangular import solve, symmetric_product

# ---
# Log determinants by stochastic Lanczos quadrature (Ubaru, Chen & Saad 2017).


_MOST, _LEAST = 40, 4
"""Steps of Lanczos. Eigenvalues near one, as of a preconditioned matrix, take about ten."""
_SETTLED = 0.1
"""Steps end when the last one moved the estimate by less than this share of its error."""


def lanczos_log_determinant(
    apply: Callable[[tf.Tensor], tf.Tensor], size: int, probes: int, seed: int
) -> tuple[float, float, int]:
    """Estimate log|B| = tr log B of a positive definite B.

    :param apply: B V [n, S] for V [n, S].
    :param size: n.
    :param probes: S, at least two.
    :return: the mean, its standard error, and the products. Cost: 10 to 40 products.
    """
    # Each random vector z of signs gives z^T log(B) z by Gauss quadrature with the Lanczos matrix,
    # exact for polynomials of twice the number of steps. Their mean estimates the trace.
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], size=(size, probes))
    now = tf.constant(signs / np.sqrt(size))
    before, beta = tf.zeros_like(now), tf.zeros([probes], now.dtype)
    alphas: list[np.ndarray] = []
    betas: list[np.ndarray] = []
    last = np.inf
    while True:
        w = apply(now) - beta * before
        alpha = tf.reduce_sum(w * now, axis=0)
        w -= alpha * now
        alphas.append(alpha.numpy())
        values = np.array([_log_moment(alphas, betas, one) for one in range(probes)]) * size
        mean, error = float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(probes))
        beta = tf.norm(w, axis=0)
        steps = len(alphas)
        settled = steps >= _LEAST and abs(mean - last) <= _SETTLED * error
        if settled or steps >= _MOST or not float(tf.reduce_min(beta)) > 1e-10:
            return mean, error, steps
        betas.append(beta.numpy())
        last, before, now = mean, now, w / beta


def _log_moment(alphas: list[np.ndarray], betas: list[np.ndarray], probe: int) -> float:
    nodes, vectors = eigh_tridiagonal([a[probe] for a in alphas], [b[probe] for b in betas])
    return float(vectors[0] ** 2 @ np.log(np.maximum(nodes, np.finfo(float).tiny)))


# ---
# Bounds of y^T (K + D)^-1 y.


# For any a, with r = y - (K + D) a and a Nystrom matrix Q <= K, (D32),
#
#     2 a^T y - a^T (K + D) a  <=  y^T (K + D)^-1 y  <=  the same + r^T (Q + D)^-1 r.


_SHARE = 0.5
"""Of the tolerance, that the recursion's residual must reach: round-off takes some of the rest."""
Product = Callable[[tf.Tensor, tf.DType | None], tf.Tensor]
"""(K + D) v [N, R] for v [N, R], with K in a dtype."""


class Quadratic(NamedTuple):
    """Bounds of y^T (K + D)^-1 y, summed over columns of y."""

    lower: float
    upper: float
    products: int


class Nystrom:
    """Q + D for Q = K_xz K_z^-1 K_zx at M points.

    :param Z: points [M, D].
    :param X: inputs [N, D].
    :param noise: the noise variances [N].

    Cost: N M^2, memory N M.
    """

    def __init__(self, kernel: Kernel, Z: tf.Tensor, X: tf.Tensor, noise: tf.Tensor) -> None:
        points = InducingPoints(Z)
        chol, fine = cholesky(gram_to_factor(kernel, points))
        self._A = solve(chol, gram_to_data(kernel, points, X))  # [1, M, N]
        self._weigh(noise, fine)

    def with_noise(self, noise: tf.Tensor) -> Nystrom:
        """Q + D for other noise variances [N], which shares the covariances; N M^2."""
        other = copy.copy(self)
        other._weigh(noise, tf.constant(True))
        return other

    def _weigh(self, noise: tf.Tensor, fine: tf.Tensor) -> None:
        """Factorise I + A D^-1 A^T; `fine` tells whether A itself is."""
        self._weights = 1.0 / noise
        product = symmetric_product(self._A, self._weights[None])
        product = tf.linalg.set_diag(product, tf.linalg.diag_part(product) + 1.0)
        self._chol, ok = cholesky(product)
        if not bool(fine & ok):
            raise NumericalError(
                "The covariance at the inducing points of the evidence could not be factorised:"
                " the kernel or the noise variance is not finite, or far too small.",
                "I + A W A^T",
            )

    def log_determinant(self) -> float:
        """log|Q + D|, a lower bound of log|K + D|."""
        half = tf.reduce_sum(tf.math.log(tf.linalg.diag_part(self._chol)))
        return 2.0 * float(half) - float(tf.reduce_sum(tf.math.log(self._weights)))

    def quadratic(self, residual: tf.Tensor) -> tf.Tensor:
        """r^T (Q + D)^-1 r [1, R] for the columns of r [N, R], from above; N M R."""
        # It is the minimum over t of (r - A^T t)^T W (r - A^T t) + t^T t, a sum of squares, which
        # round-off in t can only raise.
        t, rest = self._split(residual)
        squares = tf.reduce_sum(self._weights[:, None] * tf.square(rest), axis=0)
        return (squares + tf.reduce_sum(tf.square(t), axis=0))[None]

    def solve(self, right: tf.Tensor) -> tf.Tensor:
        """(Q + D)^-1 r for the columns of r [N, R]; N M R."""
        return self._weights[:, None] * self._split(right)[1]

    def _split(self, right: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """t [M, R], and r - A^T t [N, R], at that minimum."""
        A, weights = self._A[0], self._weights[:, None]
        half = tf.linalg.triangular_solve(self._chol[0], tf.matmul(A, weights * right))
        t = tf.linalg.triangular_solve(self._chol[0], half, adjoint=True)
        return t, right - tf.matmul(A, t, transpose_a=True)

    def left(self, prior: tf.Tensor) -> tf.Tensor:
        """The variance that the points leave unexplained, diag(K - Q) [N], of diag(K)."""
        return tf.maximum(prior - tf.reduce_sum(tf.square(self._A[0]), axis=0), 0.0)


def bound_quadratic(
    product: Product,
    precondition: Callable[[tf.Tensor], tf.Tensor],
    nystrom: Nystrom,
    y: tf.Tensor,
    tolerance: float,
    max_products: int,
) -> Quadratic:
    """Solve (K + D) a = y by conjugate gradients until the two bounds are close.

    :param product: with K + D.
    :param precondition: an approximate inverse of K + D, applied to [N, R].
    :param tolerance: largest difference of half the bounds, in nats.
    :param max_products: a limit; bounds hold however far the solution is.
    """
    # Products in single precision come first, then one in full, which certifies; if that is not
    # good enough, more in full precision follow.
    a, residual, count = tf.zeros_like(y), y, 0
    best = _bounds(nystrom, y, a, residual, count)
    for dtype in (tf.float32, y.dtype) if y.dtype == tf.float64 else (y.dtype,):
        start = float(tf.reduce_sum(nystrom.quadratic(residual)))
        goal = 2.0 * _SHARE * tolerance
        if start <= goal or count >= max_products - 1:
            break
        used = [0]

        def apply(blocks: Blocks, dtype: tf.DType = dtype, used: list = used) -> Blocks:
            used[0] += 1
            return (product(blocks[0], dtype),)

        found = conjugate_gradients(
            apply,
            lambda blocks: (precondition(blocks[0]),),
            (residual,),
            lambda left, right: tf.reduce_sum(left[0] * right[0], axis=0, keepdims=True),
            float(np.sqrt(goal / start)),
            max_products - 1 - count,
            lambda blocks: tf.reduce_sum(nystrom.quadratic(blocks[0])),
        )
        a = a + found.x[0]
        residual = y - product(a, None)
        count += used[0] + 1
        then = _bounds(nystrom, y, a, residual, count)
        # the better of each side: both hold at any a
        best = Quadratic(max(best.lower, then.lower), min(best.upper, then.upper), count)
    return best


def _bounds(
    nystrom: Nystrom, y: tf.Tensor, a: tf.Tensor, residual: tf.Tensor, products: int
) -> Quadratic:
    """Both bounds at a [N, R] with its residual; not finite ones say nothing."""
    lower = float(tf.reduce_sum(a * (y + residual)))
    upper = lower + float(tf.reduce_sum(nystrom.quadratic(residual)))
    if not np.isfinite(upper):
        return Quadratic(-np.inf, np.inf, products)
    return Quadratic(lower, upper, products)


# ---
# The exact log density of observations.


class Observed(NamedTuple):
    """Observations with one covariance matrix K + D; R columns are independent.

    Example::

        Observed(gpflow.kernels.Matern52(), X, y, tf.fill([len(X)], 0.1)).log_density()
    """

    kernel: Kernel
    X: tf.Tensor
    """[N, D]."""
    y: tf.Tensor
    """[N, R]: less the mean function."""
    noise: tf.Tensor
    """[N]: variances, above zero."""

    def log_density(self, dtype: tf.DType | None = None) -> tf.Tensor:
        """log N(y; 0, K + D) in nats, a scalar; NaN where K + D cannot be factorised.

        Differentiable. Cost: N^3 / 3, and twice that for the gradient.

        :param dtype: of the factorisation; the kernel's if not given.
        """
        K = self._covariance(dtype)
        return normal_log_density(K, tf.cast(self.y, K.dtype))

    def factor(self) -> CholeskyFactor:
        """The Cholesky factor of K + D in double precision; N^3 / 3."""
        return cholesky(self._covariance(tf.float64))

    def in_double(self) -> Observed:
        """The same observations in double precision; unchanged if the kernel has no such form."""
        if self.X.dtype == tf.float64:
            return self
        twins = {
            id(part): gpflow.Parameter(tf.cast(part, tf.float64), dtype=tf.float64)
            for part in self.kernel.parameters
        }
        kernel = copy.deepcopy(self.kernel, twins)
        X, y, noise = (tf.cast(part, tf.float64) for part in self[1:])
        try:
            kernel(X[:1]), kernel(X[:1], full_cov=False)
        except (TypeError, ValueError, tf.errors.InvalidArgumentError):
            return self  # a kernel of the user's, with constants in single precision
        return Observed(kernel, X, y, noise)

    def round_off(self, quadratic: float, width: int) -> float:
        """Nats by which round-off may have changed the log density, to first order.

        :param quadratic: y^T (K + D)^-1 y, summed over columns.
        :param width: rows w of the largest matrix that was factorised.
        """
        # A Cholesky factor of w rows belongs to a matrix that differs by E, where |E_ij| is at most
        # some sqrt(w) epsilons of sqrt(A_ii A_jj), A = K + D (Higham & Mary 2019). Half of
        # tr(A^-1 E) and of a^T E a, a = A^-1 y, are the changes, and A^-1 is at most 1 / min D.
        N, R = (int(size) for size in self.y.shape)
        size = float(tf.reduce_max(self.kernel(self.X, full_cov=False) + self.noise))
        worst = size / float(tf.reduce_min(self.noise)) * np.finfo(self.X.dtype.as_numpy_dtype).eps
        return worst * (width**1.5 * quadratic + width * N * R)

    def _covariance(self, dtype: tf.DType | None) -> tf.Tensor:
        K = covariance(self.kernel, self.X)
        K, noise = (tf.cast(part, dtype or K.dtype) for part in (K, self.noise))
        return tf.linalg.set_diag(K, tf.linalg.diag_part(K) + noise)


# ---
# The interval of a log evidence, and its settings.


LEVEL = 0.975
"""Of an estimated upper end: its chance to be above the evidence."""


@dataclass(frozen=True)
class Evidence:
    """An interval for the log evidence log p(y) of a model with Gaussian noise, in nats.

    Of two models of the same data, one has the higher evidence if its `lower` is above the other's
    `upper`. Example::

        smooth, rough = (model.evidence() for model in (smooth_model, rough_model))
        print(smooth, rough, rough.lower > smooth.upper)
    """

    lower: float
    """A certified lower bound; round-off is taken off, to first order."""
    upper: float
    """An upper bound: certified, or estimated at the level of 97.5 % if not `certain`."""
    lower_by: str
    """"exact", or "neighbours" for (N4)."""
    upper_by: str
    """"exact", "inducing points" or "Lanczos"."""
    num_data: int
    """N, the rows of the data."""
    products: int
    """Products with the kernel matrix that were computed."""

    @property
    def certain(self) -> bool:
        """True if `upper` is a bound rather than an estimate."""
        return self.upper_by != "Lanczos"

    def shifted(self, nats: float) -> Evidence:
        """The interval in other units of Y: both ends `nats` higher."""
        return replace(self, lower=self.lower + nats, upper=self.upper + nats)

    def __str__(self) -> str:
        """One line: the number if it is exact, else both ends, and how they were had."""
        if self.lower_by == "exact":
            low, high = (f"{end:.6g}" for end in (self.lower, self.upper))
            if low == high:
                return f"log evidence {low} nats (exact)"
            return f"log evidence between {low} and {high} nats (exact but for round-off)"
        upper = self.upper_by if self.certain else f"an estimate at {LEVEL:.1%}, Lanczos"
        width = (self.upper - self.lower) / self.num_data
        return (
            f"log evidence between {self.lower:.6g} (certified, {self.lower_by}) and"
            f" {self.upper:.6g} ({upper}) nats, {width:.2g} nats per row apart"
        )


@dataclass(frozen=True)
class EvidenceSettings:
    """Neighbours, tolerance and probes of the bounds; see `CVIGP.evidence`."""

    num_neighbours: int
    tolerance: float
    probes: int
    seed: int

    def __post_init__(self) -> None:
        check_whole(1, num_neighbours=self.num_neighbours)
        check_rate(tolerance=self.tolerance)
        check_whole(0, probes=self.probes, seed=self.seed)
        if self.probes == 1:
            raise DataError("probes=1 has no standard error: pass 0, or at least 2.")


# ---


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
