"""Refusals of several latents and batches of inputs."""

from __future__ import annotations

__all__ = ["as_grid", "as_levels", "as_matrix", "refuse_several_latents"]

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from gpflow.base import RegressionData, TensorType
from gpflow.kernels import Kernel, MultioutputKernel
from gpflow.likelihoods import Likelihood

from ...errors import DataError
from ...inputs import as_array, as_pair, as_values, check_finite_entries, float_type
from ...likelihoods.labels import index_columns
from ...summaries import short_repr
from ..checks import check_parts


def refuse_several_latents(data: RegressionData, kernel: Kernel, likelihood: Likelihood) -> None:
    """Refuse likelihood, kernel or labels Y [N, P] with several latents."""
    check_parts(kernel, likelihood)
    latents, Y = likelihood.latent_dim, as_values(as_pair(data)[1], "Y", float_type(kernel))
    if latents not in (None, 1):
        raise DataError(
            f"{type(likelihood).__name__} has {latents} latent functions per observation, and here"
            " log p(y | f) must be a function of one: use CVIGP."
        )
    if isinstance(kernel, MultioutputKernel) or (
        Y.ndim == 2 and Y.shape[1] - index_columns(likelihood) != 1
    ):
        what = (
            type(kernel).__name__
            if isinstance(kernel, MultioutputKernel)
            else f"Y with {Y.shape[1]} columns"
        )
        raise DataError(
            f"{what} has several latent functions, and an AffineIndependentGP has one: fit one"
            " model per column, Y[:, :1]. Independent latent functions share nothing but the"
            " kernel, and their bounds add up."
        )


def as_matrix(Xnew: tf.Tensor, least: int = 0) -> tf.Tensor:
    """Return inputs [N, D]; `DataError` for batches [..., N, D], and fewer than `least` rows."""
    if Xnew.shape.rank != 2 or (Xnew.shape[0] is not None and Xnew.shape[0] < least):
        rows = ", with a row at least" if least else ""
        raise DataError(f"Xnew has shape {Xnew.shape}; it must be [N, D] here{rows}.")
    return Xnew


def as_grid(grid: TensorType, rows: int, dtype: tf.DType) -> tf.Tensor:
    """Values of f [G] or [N, G] as a tensor [N, G]; raises `DataError` for other shapes."""
    values = tf.convert_to_tensor(as_array(grid, "grid", dtype), dtype)
    leading = tuple(values.shape[:-1])
    if (
        values.shape.rank not in (1, 2)
        or values.shape[-1] == 0
        or leading not in ((), (1,), (rows,))
    ):
        raise DataError(
            f"grid has shape {values.shape}; it must be [G], or [N, G] with a row for each row of"
            " Xnew."
        )
    check_finite_entries(values, "grid")
    return tf.broadcast_to(values, [rows, values.shape[-1]])


def as_levels(probabilities: npt.ArrayLike) -> np.ndarray:
    """Probabilities of quantiles as an array [Q]; raises `DataError` unless they are in (0, 1)."""
    levels = np.atleast_1d(np.asarray(probabilities, float))
    if levels.ndim != 1 or not np.all((levels > 0.0) & (levels < 1.0)):
        raise DataError(
            f"probabilities={short_repr(probabilities)}: they must lie between 0 and 1, without"
            " these two."
        )
    return levels
