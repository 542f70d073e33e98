"""The mean of all rows, solved for when needed."""

from __future__ import annotations

__all__ = [
    "MEANS", "MeanOfRows", "RowsSettings", "RowsSolution", "SolvedMean", "precisions_of_rows",
    "solve_rows",
]  # fmt: skip

import abc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import TensorType

from ...covariances.neighbourhoods import inverse_factor, ordered_neighbours
from ...covariances.products import kernel_product
from ...errors import NumericalError
from ...inputs import check_rate, check_whole
from ...linalg.conjugate_gradients import Blocks, advance, begin
from ...user_warnings import warn_user
from ..evidence import EXACT_ROWS, Nystrom, Observed, indefinite
from .conditionals import mean_values
from .evidence import observed_parts
from .groups import Group

# ---
# The linear systems of all rows: exact for few, else by conjugate gradients.


# Which preconditioner is better depends on the noise. With much of it the mean is smooth, and a
# thousand points say nearly all; with little, each row depends on its neighbours. On 4,000 rows of
# elevators points took 3 products where neighbours were far off after 25.


_NEIGHBOURS, _POINTS = 60, 1000
"""Of the preconditioners. Points are at most a quarter of the rows, and fewer for several parts, of
which each factorises another matrix: N M^2 for all of them."""
_MUCH_LEFT = 20.0
"""Variance that points leave, in noise variances, from which on neighbours are tried: products
with points grow with its root, to some thirty here, and with neighbours hardly at all."""
_ROUNDED_ROWS, _ROUNDING = 2048, 0.2
"""Rows on which products in single precision are compared with full ones, and the largest error
that is worth it, in units of the noise."""
_ENTRIES = 4_000_000
"""Most entries of the columns [N, B] that are solved for at once, 32 MB."""
_SHARE = 0.5
"""Of the tolerance, that the recursion's residual must reach: round-off takes some of the rest."""


class RowsSettings(NamedTuple):
    """When a solve ends."""

    tolerance: float
    """Largest gap, in nats."""
    max_products: int
    deadline: float = float("inf")
    """A value of `time.perf_counter`; no product begins that would end later."""
    show: Callable[[str], object] | None = None
    """Shows a line after each product."""


class RowsSolution(NamedTuple):
    """The coefficients found, and how far they are from the solution."""

    coefficients: tf.Tensor
    """a [N, R]."""
    gap: float
    """r^T (K + D)^-1 r / 2 in nats for the residual r, summed over columns: a bound with points, an
    estimate with neighbours."""
    products: int
    """With the kernel matrix."""


def solve_rows(parts: Sequence[Observed], start: tf.Tensor, settings: RowsSettings) -> RowsSolution:
    """Solve (K + D) a = y by Cholesky factors for up to 2,000 rows, in double precision; beyond by
    conjugate gradients, preconditioned by points or neighbours (N8).

    :param parts: observations with the same kernel and inputs [N, D]; a product serves all R
        columns.
    :param start: a [N, R] of a similar system, or zeros.
    :raises NumericalError: if the preconditioner's covariances cannot be factorised.

    Cost: N^2 (D + R) a product, some ten to thirty of them; N M^2 for M = 1,000 points, or a search
    for m = 60 neighbours and N (m^3 / 3 + m^2 D) for each part. Memory: N M.
    """
    if int(parts[0].X.shape[0]) <= EXACT_ROWS:
        factors = [part.factor() for part in parts]
        if all(bool(one.ok) for one in factors):
            columns = [
                tf.linalg.cholesky_solve(one.chol, tf.cast(part.y, tf.float64))
                for one, part in zip(factors, parts)
            ]
            return RowsSolution(tf.cast(tf.concat(columns, axis=1), start.dtype), 0.0, 0)
    system = _System(parts, settings)
    y = system.y
    nothing = RowsSolution(tf.zeros_like(y), system.gap(y), 0)
    best, residual = nothing, y
    if bool(tf.reduce_any(start != 0.0)):
        best, residual = system.judged(start)
        if not best.gap < nothing.gap:
            best, residual = nothing._replace(products=best.products), y
    for dtype in system.dtypes():
        if best.gap <= settings.tolerance or system.is_over():
            break
        change = system.climb(residual, dtype)
        if change is None:
            break
        then, left = system.judged(best.coefficients + change)
        if then.gap < best.gap:
            best, residual = then, left
    return best._replace(products=system.products)


def precisions_of_rows(part: Observed, places: np.ndarray, settings: RowsSettings) -> np.ndarray:
    """The diagonal of (K + D)^-1 at some rows [B].

    Cost: N^3 / 3 + N^2 B up to 2,000 rows; beyond, some thirty products, N^2 (D + B) each, with an
    error of twice the tolerance, as a share.
    """
    N, dtype = int(part.X.shape[0]), part.X.dtype
    if N <= EXACT_ROWS:
        chol, fine = part.factor()
        if not bool(fine):
            raise indefinite("K + D")
        right = tf.transpose(tf.one_hot(places, N, dtype=chol.dtype))
        return np.sum(np.square(tf.linalg.triangular_solve(chol, right)), axis=0)
    # y = c e_i with c^2 the prior variance and noise, so that y^T (K + D)^-1 y is one at least
    scales = np.sqrt(part.kernel(part.X, full_cov=False) + part.noise)[places]
    found, size = [], max(1, _ENTRIES // N)
    for first in range(0, len(places), size):
        some, scale = places[first : first + size], scales[first : first + size]
        y = np.zeros((N, len(some)), dtype.as_numpy_dtype)
        y[some, np.arange(len(some))] = scale
        solved = solve_rows([part._replace(y=tf.constant(y))], tf.zeros_like(y), settings)
        if not solved.gap <= settings.tolerance:
            raise NumericalError(
                "The rows that are left out could not be told from the mean of all rows:"
                f" {solved.products} products with the kernel matrix were not enough. Use a larger"
                ' noise variance, or mean="neighbours".'
            )
        a = solved.coefficients
        product = kernel_product(part.kernel, part.X, None, a) + part.noise[:, None] * a
        # a lower bound, whose error is of second order
        found.append(np.sum(a * (2.0 * y - product), axis=0) / np.square(scale))
    return np.concatenate(found) if found else np.zeros(0)


class _System:
    """K + D, its preconditioner, and the count of products."""

    def __init__(self, parts: Sequence[Observed], settings: RowsSettings) -> None:
        self.settings, self.products, self._seconds = settings, 0, 0.0
        self._kernel, self._X = parts[0].kernel, parts[0].X
        self.y = tf.concat([part.y for part in parts], axis=1)
        self._noise = tf.concat(
            [part.noise[:, None] + tf.zeros_like(part.y) for part in parts], axis=1
        )
        self._widths = [int(part.y.shape[1]) for part in parts]
        self._preconditioners = _preconditioners(parts)

    def precondition(self, blocks: Blocks) -> Blocks:
        """P^-1 r."""
        columns = tf.split(blocks[0], self._widths, axis=1)
        solved = [one.solve(some) for one, some in zip(self._preconditioners, columns)]
        return (tf.concat(solved, axis=1),)

    def gap(self, residual: tf.Tensor) -> float:
        return 0.5 * float(tf.reduce_sum(residual * self.precondition((residual,))[0]))

    def dtypes(self) -> list[tf.DType]:
        """Single precision where its errors are small, then full, in which the rest is solved."""
        if self.y.dtype != tf.float64:
            return [self.y.dtype]
        N = int(self._X.shape[0])
        rows = np.linspace(0, N - 1, min(N, _ROUNDED_ROWS)).astype(int)
        few, v = tf.gather(self._X, rows), np.random.default_rng(0).standard_normal((len(rows), 1))
        low, full = (
            kernel_product(self._kernel, few, None, tf.constant(v), dtype=kind)
            for kind in (tf.float32, tf.float64)
        )
        least = tf.reduce_min(tf.gather(self._noise, rows), axis=1, keepdims=True)
        scale = np.sqrt(N / len(rows)) / np.linalg.norm(v)
        # in units of each row's noise: sites that say nothing have a great deal of it
        fine = float(tf.norm((low - full) / least) * scale) < _ROUNDING
        return [tf.float32, self.y.dtype] if fine else [self.y.dtype]

    def judged(self, a: tf.Tensor) -> tuple[RowsSolution, tf.Tensor]:
        residual = self.y - self._product(a, a.dtype)
        return RowsSolution(a, self.gap(residual), self.products), residual

    def is_over(self) -> bool:
        late = time.perf_counter() + 2.0 * self._seconds > self.settings.deadline
        return late or self.products + 2 > self.settings.max_products

    def climb(self, residual: tf.Tensor, dtype: tf.DType) -> tf.Tensor | None:
        goal = _SHARE * self.settings.tolerance

        def apply(blocks: Blocks) -> Blocks:
            return (self._product(blocks[0], dtype),)

        now = begin(self.precondition, (residual,), _inner)
        while 0.5 * float(tf.reduce_sum(now.size)) > goal and not self.is_over():
            now = advance(now, apply, self.precondition, _inner)
            gap = 0.5 * float(tf.reduce_sum(now.size))
            if self.settings.show is not None:
                self.settings.show(f"mean of all rows, {self.products} products, gap {gap:.2g}")
            if not np.isfinite(gap):
                return None
        return now.x[0] if int(now.step) else None

    def _product(self, columns: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
        """(K + D) v [N, R]."""
        began = time.perf_counter()
        found = kernel_product(self._kernel, self._X, None, columns, dtype=dtype)
        found += self._noise * columns
        found = tf.constant(found.numpy())  # waits for it, so that its time is known
        self.products, self._seconds = self.products + 1, time.perf_counter() - began
        return found


class _Neighbours:
    """U^T U, the precision of observations given neighbours (N8)."""

    def __init__(self, part: Observed, near: np.ndarray) -> None:
        self._factor = inverse_factor(part.kernel, part.X, part.noise, near)
        if not np.isfinite(self._factor.log_determinant):
            raise NumericalError(
                "The covariance of a row's neighbours is not positive definite: use a larger noise"
                " variance, double precision, or kernel parameters that are finite.",
                "k(neighbours, neighbours)",
            )

    def solve(self, right: tf.Tensor) -> tf.Tensor:
        """U^T U r [N, R]."""
        return self._factor.transposed(self._factor.times(right))


def _preconditioners(parts: Sequence[Observed]) -> Sequence[Nystrom | _Neighbours]:
    kernel, X, _, noise = parts[0]
    N = int(X.shape[0])
    most = min(_POINTS // int(np.ceil(np.sqrt(len(parts)))), N // 4)
    chosen = np.random.default_rng(0).permutation(N)
    points = Nystrom(kernel, tf.gather(X, chosen[: max(1, most)]), X, noise)
    left = points.left(kernel(X, full_cov=False))
    shares = [float(tf.reduce_mean(left / part.noise)) for part in parts]
    if max(shares) < _MUCH_LEFT:
        return [points, *(points.with_noise(part.noise) for part in parts[1:])]
    near = ordered_neighbours(kernel, X, chosen, max(1, min(_NEIGHBOURS, N - 1)))
    return [_Neighbours(part, near) for part in parts]


def _inner(left: Blocks, right: Blocks) -> tf.Tensor:
    """[1, R]: columns are independent systems."""
    return tf.reduce_sum(left[0] * right[0], axis=0, keepdims=True)


# ---


# The coefficients belong to the Parameters and the data they were solved for, and nobody must ever
# see them with others. So the values of all variables are kept beside them, and compared whenever
# a mean is asked for: outside of a `tf.function` the mean is then solved for again, inside of one
# the mean is NaN with an error, since a graph cannot solve.


MEANS = ("neighbours", "data")
_TOLERANCE, _MAX_PRODUCTS = 1e-3, 200
"""Nats, summed over the rows, and products: fewer than thirty in all cases tried."""


class SolvedMean(NamedTuple):
    """The outcome of `NNGP.solve_mean`.

    Example::

        print(model.solve_mean().gap)
    """

    gap: float
    """Nats between the mean and the solution: half the squared residual in units of K + D."""
    products: int
    """With the kernel matrix."""
    converged: bool
    """True if the gap is below the tolerance."""


@dataclass
class _Kept:
    """A solution, and what it belongs to; no part of checkpoints, whose data may be others."""

    coefficients: tf.Variable
    """a [N, P], zero where Y is missing."""
    values: tf.Variable
    """[n], of all variables of kernel, likelihood and mean function, and of sites."""
    data: tuple[tf.Tensor, tf.Tensor]


class MeanOfRows:
    """A mean m_0(x) + k(x, X) a with (K + D) a = y - m_0 at all rows, a mixin.

    For other likelihoods than Gaussian noise y and D are values and variances of the sites.
    """

    mean: str
    _kept: _Kept | None = None

    @property
    @abc.abstractmethod
    def of_rows(self) -> Any:
        """The `GaussianNNGP` of y with noise D: this model, or the model of its sites."""

    def solve_mean(
        self,
        *,
        tolerance: float = _TOLERANCE,
        max_products: int = _MAX_PRODUCTS,
        seconds: float | None = None,
        show: Callable[[str], object] | None = None,
    ) -> SolvedMean:
        """Solve for the mean of all rows at the present Parameters, from the last solution.

        Predictions do so if need be; compiled functions do not, once Parameters changed.

        :param tolerance: largest gap, in nats.
        :param max_products: of the kernel matrix, from 2; a solve that ends there warns.
        :param seconds: limit of time; a solve that it ends warns.
        :param show: shows a line of text after each product.
        :raises NumericalError: if a covariance cannot be factorised, or no product could be made.

        Cost: N^3 / 3 up to 2,000 rows, which is exact. Beyond, N^2 (D + P) a product, some ten to
        thirty products, and N M^2 for M = 1,000 points or N (m^3 / 3 + m^2 D) for m = 60
        neighbours, as the noise suggests. Example::

            model = NNGP((X, Y), kernel, num_neighbours=30, mean="data")
            print(model.solve_mean())
        """
        check_rate(tolerance=tolerance)
        check_whole(2, max_products=max_products)
        deadline = float("inf")
        if seconds is not None:
            check_rate(seconds=seconds)
            deadline = time.perf_counter() + seconds
        model = self.of_rows
        systems = _systems(model.matrices)
        settings = RowsSettings(tolerance / len(systems), max_products, deadline, show)
        a, gap, products = self._start(), 0.0, 0
        for groups in systems:
            rows = np.arange(len(a)) if groups[0].rows is None else groups[0].rows
            columns = np.array([column for group in groups for column in group.columns])
            place = np.ix_(rows, columns)
            parts = observed_parts(model, model.data, groups)
            found = solve_rows(parts, tf.constant(a[place]), settings)
            a[place] = found.coefficients
            gap, products = gap + found.gap, products + found.products
        if not np.isfinite(gap) or (products == 0 and gap > tolerance):
            raise NumericalError(
                "The mean of all rows is not known: no product with the kernel matrix was made in"
                " the time given, or the solve failed. Give model.solve_mean(seconds=...) more, or"
                ' a larger noise variance, or use mean="neighbours".'
            )
        self.assign_mean(a)
        if gap > tolerance:
            warn_user(
                f"The mean of all rows was cut short after {products} products, {gap:.2g} nats from"
                " the solution: model.solve_mean(max_products=500) goes on. A larger noise variance"
                ' takes fewer products, mean="neighbours" none.'
            )
        return SolvedMean(gap, products, gap <= tolerance)

    def mean_coefficients(self) -> tf.Tensor:
        """The coefficients a [N, P] at the present Parameters, zero where Y is missing.

        Solves if they are not known, in a `tf.function` when it is traced; after a change of
        Parameters NaN until `solve_mean` is called. A constant in gradients.
        """
        with tf.init_scope():
            if not self.mean_is_solved:
                self.solve_mean()
        kept = self._kept
        assert kept is not None, "the mean is solved"
        a = tf.convert_to_tensor(kept.coefficients)
        if tf.executing_eagerly():
            return a
        fresh = tf.reduce_all(_values(self._sources) == kept.values)
        check = tf.debugging.Assert(
            fresh,
            ["Parameters changed after the mean of all rows was solved for: call solve_mean()."],
        )
        with tf.control_dependencies([] if check is None else [check]):
            return tf.where(fresh, a, tf.constant(np.nan, a.dtype))

    @property
    def mean_is_solved(self) -> bool:
        """True if the coefficients belong to the present Parameters and data."""
        kept = self._kept
        data = self.of_rows.data
        if kept is None or any(ours is not then for ours, then in zip(data, kept.data)):
            return False
        return np.array_equal(_values(self._sources).numpy(), kept.values.numpy())

    def mean_without(self, rows: tf.Tensor, variances: tf.Tensor | None = None) -> tf.Tensor:
        """Means of f at rows of the data given all other rows, [B, L].

        With P = (K + D)^-1 the mean without row i is y_i - a_i / P_ii, and 1 / P_ii its variance as
        an observation, v_i + D_i (Sundararajan & Keerthi 2001): with a = D^-1 (y - m_0 - K a),

            m_0(x_i) + k(x_i, X) a - v_i a_i

        :param rows: row numbers [B].
        :param variances: v of f given other rows [B, L]: those of neighbours are an approximation.
            By default exact, at the cost of `precisions_of_rows`.
        """
        model = self.of_rows
        a, X = self.mean_coefficients(), tf.gather(model.data[0], rows)
        if variances is None:
            variances = tf.cast(self._variances_without(np.asarray(rows)), a.dtype)
        columns, places = list[tf.Tensor](), list[int]()
        for group in model.groups:
            some = tf.gather(a, group.columns, axis=1)
            columns.append(kernel_product(group.kernel, X, model.data[0], some))
            places.extend(group.columns)
        mean = tf.gather(tf.concat(columns, axis=1), np.argsort(places), axis=1)
        mean += mean_values(model.mean_function, X, int(a.shape[1]))
        return mean - variances * tf.gather(a, rows)

    def _variances_without(self, rows: np.ndarray) -> np.ndarray:
        """1 / P_ii - D_i at rows [B], [B, L]; zero where an output is missing."""
        model, settings = self.of_rows, RowsSettings(_TOLERANCE, _MAX_PRODUCTS)
        found = np.zeros((len(rows), int(model.data[1].shape[1])))
        for group in model.matrices:
            seen = np.arange(int(model.data[0].shape[0])) if group.rows is None else group.rows
            there = np.flatnonzero(np.isin(rows, seen))
            if len(there):
                (part,) = observed_parts(model, model.data, [group])
                places = np.searchsorted(seen, rows[there])
                left = 1.0 / precisions_of_rows(part, places, settings) - part.noise.numpy()[places]
                found[np.ix_(there, group.columns)] = left[:, None]
        return found

    def _trackable_children(self, save_type: str = "checkpoint", **options: Any) -> dict[str, Any]:
        # an exported model predicts with its solution, which a checkpoint for other data leaves out
        children = super()._trackable_children(save_type, **options)  # type: ignore[misc]
        if save_type == "savedmodel" and self._kept is not None:
            children |= {"_mean": self._kept.coefficients, "_mean_of": self._kept.values}
        return children

    @property
    def _sources(self) -> list[tf.Variable]:
        model = self.of_rows
        return [
            *model.kernel.variables, *model.likelihood.variables, *model.mean_function.variables,
            *(part for part in model.data if isinstance(part, tf.Variable)),
        ]  # fmt: skip

    def _start(self) -> np.ndarray:
        Y = self.of_rows.data[1]
        a = np.zeros(Y.shape, Y.dtype.as_numpy_dtype)
        if self._kept is not None:
            last = self._kept.coefficients.numpy()[: len(a)]
            a[: len(last)] = last
        return a

    def assign_mean(self, a: TensorType) -> None:
        """Take coefficients a [N, P] for the solution at the present Parameters and data.

        Compiled functions see them where numbers of rows and Parameters are the same.
        """
        values, kept = _values(self._sources), self._kept
        if kept is None or kept.coefficients.shape != a.shape or kept.values.shape != values.shape:
            first, second = (tf.Variable(part, trainable=False) for part in (a, values))
            self._kept = _Kept(first, second, self.of_rows.data)
            return
        kept.coefficients.assign(a)
        kept.values.assign(values)
        kept.data = self.of_rows.data


def _systems(groups: list[Group]) -> list[list[Group]]:
    found: dict[tuple, list[Group]] = {}
    for group in groups:
        key = id(group.kernel), None if group.rows is None else group.columns
        found.setdefault(key, []).append(group)
    return list(found.values())


def _values(variables: list[tf.Variable]) -> tf.Tensor:
    flat = [tf.reshape(tf.cast(one, tf.float64), [-1]) for one in variables]
    # sites of missing outputs are NaN, which is never equal to itself
    flat = [tf.where(tf.math.is_nan(one), tf.cast(np.inf, one.dtype), one) for one in flat]
    return tf.concat([tf.zeros([0], tf.float64), *flat], axis=0)
