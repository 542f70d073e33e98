"""Outputs that share neighbours, and their noise."""

from __future__ import annotations

__all__ = [
    "Copies", "Group", "add_noise_rows", "by_noise", "groups_of", "jitter_variances",
    "noise_at_floor", "noise_of_group", "noise_of_new", "noise_rows", "noise_variances",
    "relative_jitter",
]  # fmt: skip

from typing import NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import TensorType
from gpflow.functions import Function
from gpflow.kernels import Kernel, MultioutputKernel
from gpflow.likelihoods import Gaussian
from gpflow.utilities.parameter_or_function import evaluate_parameter_or_function

from ...errors import DataError
from ...inputs import Array, as_array, as_values, check_type

_JITTER = {tf.float64: 1e-6, tf.float32: 1e-4}
"""The noise that every observation has, in units of its prior variance. Below it the covariance of
duplicated rows is singular to round-off."""


class Copies(NamedTuple):
    """The distinct inputs of rows of data, some of which several rows have."""

    first: np.ndarray
    """The first row of each input [U], in their order."""
    place: np.ndarray
    """The number of a row's input among those of several rows, -1 for others, [N]."""
    rows: np.ndarray
    """The rows of the latter inputs [R]."""
    number: int
    """V, of these inputs."""


class Group(NamedTuple):
    """Outputs with the same kernel and observed rows, and so the same neighbours."""

    kernel: Kernel
    columns: tuple[int, ...]
    """Of Y."""
    rows: np.ndarray | None
    """The rows [N_g] that are observed in these columns, in their order; None for all."""
    copies: Copies | None = None
    """Which of these rows have the same input; None if none have."""


def groups_of(kernel: Kernel, Y: tf.Tensor) -> list[Group]:
    """Return the P outputs in groups: one if they share a kernel and none is missing.

    :param kernel: a kernel for all outputs, `SharedIndependent` or `SeparateIndependent`.
    :param Y: [N, P], with NaN for missing entries.
    """
    columns = tuple(range(int(Y.shape[1])))
    kernels = list(kernel.latent_kernels) if isinstance(kernel, MultioutputKernel) else [kernel]
    with tf.init_scope():  # Y may be a variable, which has no value inside of a graph
        missing = np.isnan(Y.numpy())
    if len(kernels) == 1 and not missing.any():
        return [Group(kernels[0], columns, None)]
    return [
        Group(
            kernels[column % len(kernels)],
            (column,),
            np.flatnonzero(~missing[:, column]) if missing[:, column].any() else None,
        )
        for column in columns
    ]


def by_noise(groups: list[Group], likelihood: Gaussian, X: tf.Tensor) -> list[Group]:
    """Split groups into outputs with one covariance matrix: the same noise, too.

    :param X: inputs [N, D] of the data.
    """
    rows = tf.zeros([1], tf.int32)
    if noise_variances(likelihood, X[:1], rows).shape[-1] == 1:
        return groups
    return [group._replace(columns=(one,)) for group in groups for one in group.columns]


def noise_variances(likelihood: Gaussian, X: tf.Tensor, rows: tf.Tensor | None) -> tf.Tensor:
    """Noise variances [..., n, 1], or [..., n, P] where outputs differ.

    :param likelihood: with one noise, one per output or observation, or a function of the inputs.
    :param X: inputs [..., n, D].
    :param rows: numbers of the observations [..., n]; None for new inputs.
    """
    parameter, lower, squared = _parameter(likelihood)
    if isinstance(parameter, Function):
        flat = tf.reshape(X, [-1, X.shape[-1]])
        values = evaluate_parameter_or_function(parameter, flat, lower_bound=lower)
        values = tf.reshape(values, tf.concat([tf.shape(X)[:-1], [values.shape[-1]]], axis=0))
    else:
        values = tf.convert_to_tensor(parameter)
        if noise_rows(likelihood) is not None:
            if rows is None:
                raise DataError(
                    "The likelihood has a noise variance for each row of the data, and none for"
                    " new inputs: pass theirs, model.predict_y(Xnew, noise_variance=variances). Or"
                    " make the noise a function of the inputs,"
                    " gpflow.likelihoods.Gaussian(variance=gpflow.functions.Constant(0.1))."
                )
            values = tf.gather(values, rows)
        else:
            columns = values.shape[-1] if values.shape.rank else 1
            shape = tf.concat([tf.shape(X)[:-1], [columns]], axis=0)
            values = tf.broadcast_to(tf.reshape(values, [-1]), shape)
    return tf.square(values) if squared else values


def noise_of_group(noise: tf.Tensor, group: Group) -> tf.Tensor:
    """The noise [..., n, 1] of all outputs, or [..., n, Q] of the group's from [..., n, P]."""
    return noise if noise.shape[-1] == 1 else tf.gather(noise, group.columns, axis=-1)


def noise_rows(likelihood: Gaussian) -> int | None:
    """N of a variance [N, 1] or [N, P] known for each observation; None for others."""
    parameter, _, _ = _parameter(likelihood)
    shape = None if isinstance(parameter, Function) else parameter.shape
    return int(shape[0]) if shape is not None and shape.rank == 2 and int(shape[0]) > 1 else None


def noise_of_new(likelihood: Gaussian, X: tf.Tensor, known: TensorType | None) -> tf.Tensor:
    """Noise variances [..., N, 1] or [..., N, P] at new inputs X [..., N, D].

    :param known: those variances, if each row of the data has its own; None for other noise. Inside
        a `tf.function` numbers of rows may be compared when it runs.
    """
    if known is None:
        return noise_variances(likelihood, X, None)
    values = tf.cast(_variances_of_rows(likelihood, known, tuple(X.shape[:-1])), X.dtype)
    rows = "noise_variance and Xnew have different numbers of rows."
    # one row would stand for all
    tf.debugging.assert_equal(tf.shape(values)[:-1], tf.shape(X)[:-1], rows)
    return values


def add_noise_rows(likelihood: Gaussian, new: TensorType | None, num_rows: int) -> None:
    """Append the noise variances [N*, 1] or [N*, P] of new rows to those known for each row.

    :raises DataError: if they are needed and not given, or given and not needed; for other shapes,
        and for numbers that are not above the lower bound.
    """
    parameter, _, squared = _parameter(likelihood)
    if new is None:
        if noise_rows(likelihood) is not None:
            raise DataError(
                "The likelihood has a noise variance for each row of the data, and none for the new"
                " ones: model.update((X, Y), noise_variance=variances), of shape"
                f" {[num_rows, int(parameter.shape[1])]}."
            )
        return
    values = _variances_of_rows(likelihood, new, (num_rows,))
    values = as_values(values, "noise_variance", parameter.dtype)
    values, old = np.sqrt(values) if squared else values, tf.convert_to_tensor(parameter)
    values = gpflow.Parameter(
        tf.concat([old, tf.cast(values, old.dtype)], axis=0),
        transform=parameter.transform,
        prior=parameter.prior,
        trainable=bool(parameter.trainable),
    )
    setattr(likelihood, "scale" if squared else "variance", values)


def _variances_of_rows(
    likelihood: Gaussian, variances: TensorType, rows: tuple[int | None, ...]
) -> Array:
    """Check variances [*rows, 1] or [*rows, P] for a likelihood with those of each row."""
    parameter, lower, squared = _parameter(likelihood)
    if noise_rows(likelihood) is None:
        raise DataError(
            "noise_variance is for a likelihood with a noise variance for each row, and this"
            " one has another noise: leave it out."
        )
    shape = [*rows, int(parameter.shape[1])]
    values = as_array(variances, "noise_variance", parameter.dtype)
    check_type(values, "noise_variance", parameter.dtype, labels=True)
    if not tf.TensorShape(values.shape).is_compatible_with(shape):
        raise DataError(f"noise_variance has shape {tuple(values.shape)}; pass {shape}.")
    known = tf.get_static_value(values)  # none inside of a graph
    least = lower**2 if squared else lower
    if known is not None and not np.all(known > least):
        raise DataError(f"noise_variance has entries that are not above the lower bound {least:g}.")
    return tf.ensure_shape(values, shape) if known is None else known


def relative_jitter(dtype: tf.DType) -> float:
    """The least noise in units of the prior variance: 1e-6 in double precision, 1e-4 in single."""
    return _JITTER[dtype]


def jitter_variances(groups: list[Group], X: tf.Tensor) -> tf.Tensor:
    """The part of each output's noise that keeps covariances positive definite, [..., N, P] at X
    [..., N, D].
    """
    variances = [group.kernel(X, full_cov=False) for group in groups for _ in group.columns]
    return relative_jitter(X.dtype) * tf.stack(variances, axis=-1)


def noise_at_floor(groups: list[Group], likelihood: Gaussian, X: tf.Tensor) -> np.ndarray:
    """Compare each output's mean noise over the rows X [N, D] with its floor, [P] bool.

    The floor is the jitter, or the likelihood's lower bound if larger.
    """
    noise = noise_variances(likelihood, X, tf.range(tf.shape(X)[0]))
    jitter = tf.reduce_mean(jitter_variances(groups, X), axis=0)
    least = np.maximum(jitter, 1.01 * float(likelihood.variance_lower_bound))
    return np.mean(noise, axis=0) <= least


def _parameter(likelihood: Gaussian) -> tuple[Function | tf.Variable, float, bool]:
    """The variance or scale, its lower bound, and whether it is a scale."""
    if likelihood.variance is None:
        return likelihood.scale, likelihood.scale_lower_bound, True
    return likelihood.variance, likelihood.variance_lower_bound, False
