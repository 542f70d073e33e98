"""Gram matrices of latent functions: the same path for one kernel, separate kernels and separate
inducing variables.

All results have a leading axis G, the groups of latent functions that share kernel and inducing
variables. If all of them do, G = 1, and factorisations are done once and broadcast. Otherwise G =
L.
"""

from __future__ import annotations

__all__ = [
    "MULTIOUTPUT_INDUCING", "cross_gram", "gram", "gram_diagonal", "gram_to_data", "gram_to_factor",
    "positive_gram", "positive_variances", "prior_variance", "split_latents",
]  # fmt: skip

import numpy as np
import tensorflow as tf
from gpflow.covariances import Kuf, Kuu
from gpflow.inducing_variables import (
    FallbackSeparateIndependentInducingVariables,
    FallbackSharedIndependentInducingVariables,
    InducingPoints,
    InducingVariables,
)
from gpflow.kernels import Kernel, MultioutputKernel

from ..errors import DataError
from ..linalg.cholesky import add_jitter
from .stationary import stationary_gram

_LEAST = 1e-4
"""The least prior variance at an observation, in machine epsilons of the largest one."""
MULTIOUTPUT_INDUCING = (
    FallbackSharedIndependentInducingVariables,
    FallbackSeparateIndependentInducingVariables,
)


def split_latents(kernel: Kernel, *inducing: InducingVariables) -> list[tuple]:
    """(kernel, inducing variable, ...) per latent function, or a list of one such tuple if all
    functions share everything.

    :raises NotImplementedError: for the fully correlated case of GPflow, where one set of inducing
        points stands for all outputs jointly.
    :raises DataError: where kernel and inducing variables are for different numbers of latent
    functions.
    """
    if isinstance(kernel, MultioutputKernel):
        columns = [list(kernel.latent_kernels)]
    else:
        columns = [[kernel]]
    for variable in inducing:
        if isinstance(variable, MULTIOUTPUT_INDUCING):
            columns.append(list(variable.inducing_variables))
        elif isinstance(kernel, MultioutputKernel):
            raise NotImplementedError(
                f"{type(kernel).__name__} with {type(variable).__name__} would correlate all"
                " outputs at every inducing point; use"
                " gpflow.inducing_variables.SharedIndependentInducingVariables(...) around it (or"
                " the Separate form), or pass an array."
            )
        else:
            columns.append([variable])
    sizes = {len(column) for column in columns} - {1}
    if len(sizes) > 1:
        raise DataError(
            f"Kernels and inducing variables come in different numbers: {sorted(sizes)}; pass one"
            " of each per latent function."
        )
    count = sizes.pop() if sizes else 1
    return list(zip(*(column * count if len(column) == 1 else column for column in columns)))


def gram(kernel: Kernel, points: InducingVariables) -> tf.Tensor:
    """k(points, points) [G, M, M], without jitter."""
    return _stack([_gram(k, z) for k, z in split_latents(kernel, points)])


def positive_gram(kernel: Kernel, points: InducingVariables) -> tf.Tensor:
    """`gram` with `positive_variances` on its diagonal, [G, M, M]."""
    K = gram(kernel, points)
    return tf.linalg.set_diag(K, positive_variances(tf.linalg.diag_part(K)))


def positive_variances(variances: tf.Tensor) -> tf.Tensor:
    """Prior variances [G, N] in which those that vanish beside the largest one are 1e-4 machine
    epsilons of it.

    A linear kernel has no variance at the origin. Derivatives of a site's loss are divided by the
    standard deviation there, and a variance far below round-off changes nothing else.
    """
    largest = tf.reduce_max(tf.stop_gradient(variances), axis=-1, keepdims=True)
    least = (
        tf.constant(_LEAST * np.finfo(variances.dtype.as_numpy_dtype).eps, variances.dtype)
        * largest
    )
    return tf.where((variances >= 0.0) & (variances < least), least, variances)


def gram_to_factor(kernel: Kernel, points: InducingVariables) -> tf.Tensor:
    """`gram` with the jitter that a factorisation needs, [G, M, M].

    An inducing variable whose attribute `needs_jitter` is False gets none. That of
    `inducing.Weights` is False, since their prior covariance is positive definite, and jitter on it
    would add noise to every prediction.
    """
    K = gram(kernel, points)
    needed = any(getattr(z, "needs_jitter", True) for _, z in split_latents(kernel, points))
    return add_jitter(K) if needed else K


def gram_diagonal(kernel: Kernel, points: InducingVariables) -> tf.Tensor:
    """The diagonal of `gram`, [G, M]; M kernel evaluations for plain points."""
    return tf.stack([
        k(z.Z, full_cov=False) if type(z) is InducingPoints else tf.linalg.diag_part(Kuu(z, k))
        for k, z in split_latents(kernel, points)
    ])  # fmt: skip


def gram_to_data(kernel: Kernel, points: InducingVariables, X: tf.Tensor) -> tf.Tensor:
    """k(points, X) [G, M, N] for X [N, D]."""
    return _stack([_gram(k, z, X) for k, z in split_latents(kernel, points)])


def prior_variance(kernel: Kernel, X: tf.Tensor, full_cov: bool) -> tf.Tensor:
    """k(X, X) per latent: [G, N], or [..., G, N, N] if `full_cov`, for X [..., N, D]."""
    return tf.stack(
        [k(X, full_cov=full_cov) for (k,) in split_latents(kernel)], axis=-3 if full_cov else 0
    )


def cross_gram(kernel: Kernel, left: InducingVariables, right: InducingVariables) -> tf.Tensor:
    """k(left, right) [G, M, M']. One of the two must be plain points, so that GPflow knows the
    covariance.
    """
    return _stack([_cross(k, a, b) for k, a, b in split_latents(kernel, left, right)])


def _stack(matrices: list) -> tf.Tensor:
    """[G, ...]; a single matrix is not copied."""
    return matrices[0][None] if len(matrices) == 1 else tf.stack(matrices)


def _gram(kernel: Kernel, points: InducingVariables, X: tf.Tensor | None = None) -> tf.Tensor:
    """k(points, X) or k(points, points): `stationary_gram` for plain points and kernels it knows,
    else GPflow's dispatch.
    """
    fast = stationary_gram(kernel, points.Z, X) if type(points) is InducingPoints else None
    if fast is not None:
        return fast
    return Kuu(points, kernel) if X is None else Kuf(points, kernel, X)


def _cross(kernel: Kernel, left: InducingVariables, right: InducingVariables) -> tf.Tensor:
    """k(left, right) [M, M'] of one latent."""
    if type(right) is InducingPoints:
        return _gram(kernel, left, right.Z)
    if type(left) is InducingPoints:
        return tf.linalg.matrix_transpose(_gram(kernel, right, left.Z))
    raise NotImplementedError(
        f"GPflow has no covariance between {type(left).__name__} and {type(right).__name__}; "
        "make one of gamma and beta plain inducing points."
    )
