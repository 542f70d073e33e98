"""Checks of data; of shapes also while tracing."""

from __future__ import annotations

__all__ = [
    "as_observations", "check_new_sites", "check_num_data", "check_reach", "check_shapes_of_data",
    "check_values", "infer_num_latent_gps", "warn_of_values",
]  # fmt: skip

from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from gpflow.base import TensorType
from gpflow.kernels import Kernel, LinearCoregionalization, MultioutputKernel
from gpflow.likelihoods import Likelihood, Softmax

from ...covariances.centring import covariance
from ...covariances.indices import check_indices
from ...covariances.latents import split_latents
from ...errors import DataError
from ...inputs import (
    Array,
    check_finite_entries,
    check_same_rows,
    check_type,
    check_whole,
    is_whole,
    known,
    use_column,
)
from ...likelihoods import RowLikelihood, check_labels, observation_columns
from ...likelihoods.labels import index_columns
from ...likelihoods.row_likelihood import with_gaps
from ...summaries import short_repr
from ...user_warnings import warn_user
from .construction import check_parts
from .densities import check_densities


def infer_num_latent_gps(kernel: Kernel, likelihood: Likelihood, given: int | None) -> int:
    """L from argument, likelihood or kernel, else 1."""
    check_parts(kernel, likelihood)
    if given is not None:
        check_whole(1, num_latent_gps=given)
    # linear coregionalisation mixes L latents into P outputs: the likelihood then sees P, and says
    # nothing about L
    mixes = isinstance(kernel, LinearCoregionalization)
    claims = {
        "num_latent_gps": given,
        f"the likelihood {type(likelihood).__name__}": None if mixes else likelihood.latent_dim,
        f"the kernel {type(kernel).__name__}": (
            kernel.num_latent_gps if isinstance(kernel, MultioutputKernel) else None
        ),
    }
    said = {source: int(value) for source, value in claims.items() if value is not None}
    if len(set(said.values())) > 1:
        raise DataError(
            "The number of latent functions is not consistent: "
            + ", ".join(f"{source} says {value}" for source, value in said.items())
            + "; change one of them."
        )
    return next(iter(said.values()), 1)


def check_num_data(num_data: object) -> None:
    """Raise `DataError` unless None, a tensor, or a whole number above 0."""
    if num_data is None or tf.is_tensor(num_data):
        return
    if is_whole(num_data, 1) or (
        isinstance(num_data, float) and num_data >= 1.0 and num_data.is_integer()
    ):
        return
    raise DataError(
        f"num_data={short_repr(num_data)} must be a whole number of at least 1, the rows of the"
        " whole data set; leave it out for fit to set it."
    )


def check_shapes_of_data(
    X: TensorType,
    Y: TensorType,
    likelihood: Likelihood,
    num_outputs: int,
    num_dims: int | None,
    dtype: tf.DType | None = None,
) -> None:
    """Check shapes and types, as far as known when tracing.

    X, an array, a tensor or a specification, must be [N, D] in `dtype`; Y [N, P], or integer or
    boolean.
    """
    for name, array in (("X", X), ("Y", Y)):
        rank = array.shape.rank if isinstance(array.shape, tf.TensorShape) else len(array.shape)
        if rank not in (2, None):
            fix = use_column(name) if rank == 1 else f"{name} must be a matrix"
            raise DataError(f"{name} has shape {tuple(array.shape)}; {fix}.")
        if rank == 2 and array.shape[1] == 0:
            raise DataError(f"{name} has no columns; pass a matrix with at least one.")
    check_same_rows(X, Y)
    check_type(Y, "Y", dtype, labels=True)
    check_type(X, "X", dtype)
    columns = observation_columns(likelihood, num_outputs)
    if columns is not None and Y.shape[1] is not None and Y.shape[1] != columns:
        of_classes = columns == 1 and num_outputs > 1  # one label for all latents of a row
        fix = (
            "classes are one column of numbers 0, 1, 2, ...: of columns that are 0 or 1 make it by"
            " np.argmax(Y, axis=1)[:, None]"
            if of_classes
            else f"pass num_latent_gps={Y.shape[1] - index_columns(likelihood)} to the model, or"
            " choose a column of Y"
        )
        raise DataError(
            f"Y has {Y.shape[1]} columns and the model expects {columns}"
            f" ({type(likelihood).__name__} on {num_outputs} outputs); {fix}."
        )
    if num_dims is not None and X.shape[1] is not None and X.shape[1] != num_dims:
        raise DataError(
            f"X has {X.shape[1]} columns and the inducing points have {num_dims}; they must be the"
            " same inputs."
        )


def as_observations(Y: TensorType, likelihood: Likelihood, dtype: tf.DType) -> tf.Tensor:
    """Y [..., N, P] in the likelihood's type: integer for `Softmax`, else `dtype`."""
    if not isinstance(likelihood, Softmax):
        return tf.cast(Y, dtype)
    labels = known(Y)
    if labels is not None:
        check_labels(likelihood, labels)
    return tf.cast(Y, tf.int32)


def check_values(X: Array, Y: Array, likelihood: Likelihood, *readers: object) -> None:
    """Raise `DataError` for X [N, D], Y [N, P] without rows, non-finite, or outside the support.

    As `warn_of_values`, nothing where values are not known while a function is traced.

    :param readers: kernel and mean function, which may read columns of X as indices.
    """
    X, Y = known(X), known(Y)
    if X is None or Y is None:
        return
    if len(X) == 0:
        raise DataError("X and Y have no rows; there is nothing to learn from.")
    gaps = isinstance(likelihood, RowLikelihood)
    check_finite_entries(X, "X")
    advice = ""
    if not gaps and with_gaps(likelihood, Y) is not likelihood:
        name = type(likelihood).__name__
        advice = f", or pass likelihoods.RowLikelihood({name}(...)), which leaves out NaN in Y"
    check_finite_entries(np.where(np.isnan(Y), 0.0, Y) if gaps else Y, "Y", advice=advice)
    check_labels(likelihood, Y)
    check_densities(X, Y, likelihood)
    check_indices(X, "X", likelihood, *readers)


def check_reach(kernel: Kernel, X: np.ndarray, data: tf.Tensor) -> None:
    """Refuse new rows X [N*, D] with variances, or covariances with data, that are no numbers."""
    found = [
        part
        for (one,) in split_latents(kernel)
        for part in (one(X, full_cov=False), covariance(one, tf.constant(X), data[:1]))
    ]
    _check_found("X", X, found, "its covariance")


def check_new_sites(Y: np.ndarray, nu: TensorType, precision: TensorType) -> None:
    """Refuse new rows Y [N*, P] with sites [N*, L] that are no numbers."""
    _check_found("Y", Y, (nu, precision), "its site")


def _check_found(name: str, array: np.ndarray, found: Sequence[TensorType], what: str) -> None:
    fine = [np.isfinite(np.asarray(part)).reshape(len(array), -1).all(axis=1) for part in found]
    bad = np.flatnonzero(~np.all(fine, axis=0))
    if len(bad):
        raise DataError(
            f"{name}[{bad[0]}] is {short_repr(array[bad[0]].tolist())}, and {what} is not a number:"
            " nothing was changed. Scale the columns before the model is made, or drop such rows:"
            f" keep = np.nanmax(np.abs({name}), axis=1) < 1e100; X, Y = X[keep], Y[keep]."
        )


def warn_of_values(X: Array, Y: Array, likelihood: Likelihood) -> None:
    """Warn of unusual data X [N, D], Y [N, P]: a single row, constant columns."""
    X, Y = known(X), known(Y)
    if X is None or Y is None:
        return
    if len(Y) == 1:
        warn_user(
            "There is one observation (N = 1): the hyperparameters cannot be learned from it.",
        )
        return
    observed = Y[:, : Y.shape[1] - index_columns(likelihood)]
    for name, array, effect in (
        ("X", X, "it tells a stationary kernel nothing; leave it out."),
        ("Y", observed, "noise and kernel variances will shrink towards zero."),
    ):
        for column in np.flatnonzero(np.all(array == array[:1], axis=0)):
            warn_user(f"{name}[:, {column}] is constant: {effect}")
