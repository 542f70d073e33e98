"""The mean of all rows, solved for when needed."""

# The coefficients belong to the Parameters and the data they were solved for, and nobody must ever
# see them with others. So the values of all variables are kept beside them, and compared whenever
# a mean is asked for: outside of a `tf.function` the mean is then solved for again, inside of one
# the mean is NaN with an error, since a graph cannot solve.

from __future__ import annotations

__all__ = ["MEANS", "MeanOfRows", "SolvedMean"]

import abc
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import TensorType

from ...covariances.products import kernel_product
from ...errors import NumericalError
from ...inputs import check_rate, check_whole
from ...user_warnings import warn_user
from .all_rows import RowsSettings, precisions_of_rows, solve_rows
from .evidence import observed_parts
from .groups import Group
from .observed import mean_values

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
