"""Checks of a model of neighbours."""

from __future__ import annotations

__all__ = [
    "arrays_of",
    "check_neighbours_kernel",
    "check_new",
    "check_noise",
    "check_rows",
    "refuse_spread_of_sites",
    "warn_at_floor",
]

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.kernels import Kernel, MultioutputKernel, SeparateIndependent, SharedIndependent
from gpflow.likelihoods import Gaussian, Likelihood
from gpflow.models import GPModel

from ...covariances.indices import check_indices
from ...errors import DataError
from ...inputs import as_pair, as_values, check_finite_entries, float_type
from ...user_warnings import warn_user
from ..checks import check_densities, check_reach, check_shapes_of_data
from .groups import noise_rows, noise_variances


def warn_at_floor(noise_at_floor: np.ndarray) -> None:
    """Warn of intervals if an output's noise is at its floor, [P] bool."""
    if noise_at_floor.any():
        warn_user(
            "The noise variance is at its floor, the relative jitter or the likelihood's lower"
            " bound: intervals may be too narrow; add noise, or a rougher kernel."
        )


def refuse_spread_of_sites(spread_neighbours: int | None, likelihood: Likelihood | None) -> None:
    """Refuse a local spread where observations are not Gaussian; raises `DataError`."""
    if spread_neighbours is not None:
        raise DataError(
            f"spread_neighbours={spread_neighbours} is for Gaussian noise, and not for"
            f" {type(likelihood).__name__}: leave it out. A noise that depends on the inputs is"
            ' build(X, Y, "heteroskedastic").'
        )


def check_neighbours_kernel(kernel: Kernel) -> None:
    """Refuse kernels that mix latent functions; raises `DataError`."""
    allowed = (SharedIndependent, SeparateIndependent)
    if isinstance(kernel, MultioutputKernel) and not isinstance(kernel, allowed):
        raise DataError(
            f"The kernel {type(kernel).__name__} mixes latent functions, and NNGP conditions each"
            " output on its own observations: use gpflow.kernels.SeparateIndependent([...]) with"
            " one kernel for each output, a product with gpflow.kernels.Coregion on a column of"
            " output numbers, or models.ODVGP with this kernel."
        )


def arrays_of(data: RegressionData, dtype: tf.DType) -> list[np.ndarray]:
    """X [N, D] and Y [N, P] as arrays; `DataError` if data are no pair."""
    return [as_values(array, name, dtype) for array, name in zip(as_pair(data), "XY")]


def check_new(model: GPModel, X: np.ndarray, Y: np.ndarray, dims: int | None) -> None:
    """Refuse unusable rows X [N, D] and Y [N, P] for a model; raises `DataError`.

    :param dims: D of the data; None for the first ones.
    """
    dtype = float_type(model.kernel)
    check_shapes_of_data(X, Y, model.likelihood, model.num_latent_gps, dims, dtype)
    _check_observed(X, np.asarray(Y, float), whole=dims is None)
    seen = ~np.isnan(np.asarray(Y, float)).any(axis=1)
    check_densities(X[seen], Y[seen], model.likelihood)
    check_indices(X, "X", model.kernel, model.mean_function)
    if dims is not None:
        check_reach(model.kernel, X, model.data[0])


def _check_observed(X: np.ndarray, Y: np.ndarray, whole: bool) -> None:
    """Check values: X [N, D] finite, Y [N, P] finite or NaN for missing."""
    # whole: these are all the data, in which every output must be observed once.
    if len(X) == 0:
        raise DataError("X and Y have no rows; there is nothing to learn from.")
    check_finite_entries(X, "X")
    missing = np.isnan(Y)
    check_finite_entries(np.where(missing, 0.0, Y), "Y")
    if whole and missing.all(axis=0).any():
        column = int(np.flatnonzero(missing.all(axis=0))[0])
        raise DataError(
            f"Y[:, {column}] is NaN in all rows: nothing of this output is observed. Drop it:"
            f" np.delete(Y, {column}, axis=1)."
        )
    if missing.all(axis=1).any():
        empty = np.flatnonzero(missing.all(axis=1))
        raise DataError(
            f"Y[{empty[0]}] is NaN in all columns, like {len(empty)} rows in all: they say"
            " nothing. Drop them: keep = ~np.isnan(Y).all(axis=1); X, Y = X[keep], Y[keep]."
        )


def check_noise(likelihood: Gaussian, X: tf.Tensor, Y: tf.Tensor) -> None:
    """Refuse noise for other numbers of rows or outputs than in X [N, D] and Y [N, P]."""
    rows = noise_rows(likelihood)
    if rows not in (None, int(X.shape[0])):
        raise DataError(
            f"The likelihood has {rows} noise variances and the data {X.shape[0]} rows; pass one"
            " for each row, [N, 1], or a single number."
        )
    columns = noise_variances(likelihood, X[:1], tf.zeros([1], tf.int32)).shape[-1]
    if columns not in (1, Y.shape[1]):
        raise DataError(
            f"The likelihood has noise variances for {columns} outputs and Y has {Y.shape[1]}"
            " columns; pass one for each output, or a single number."
        )


def check_rows(rows: object, num_rows: int) -> np.ndarray:
    """Row numbers [B] of N rows of data as an array; `DataError` for others."""
    numbers = np.asarray(rows)
    fine = numbers.ndim == 1 and np.issubdtype(numbers.dtype, np.integer)
    if not fine or (numbers.size and (numbers.min() < 0 or numbers.max() >= num_rows)):
        raise DataError(f"rows must be a vector of whole numbers from 0 to {num_rows - 1}.")
    return numbers.astype(np.int64)
