"""Gram matrices for shared or separate kernels and inducing variables."""

# The leading axis G counts groups of latents that share kernel and inducing variables: G = 1 if all
# do, else L.

from __future__ import annotations

__all__ = [
    "MULTIOUTPUT_INDUCING", "cross_gram", "gram", "gram_diagonal", "gram_to_data", "gram_to_factor",
    "inducing_gram", "mix_outputs", "positive_gram", "positive_variances", "prior_variance",
    "split_latents",
]  # fmt: skip

import numpy as np
import tensorflow as tf
from gpflow.base import MeanAndVariance
from gpflow.conditionals.util import mix_latent_gp
from gpflow.covariances import Kuf, Kuu
from gpflow.inducing_variables import (
    FallbackSeparateIndependentInducingVariables,
    FallbackSharedIndependentInducingVariables,
    InducingPoints,
    InducingVariables,
)
from gpflow.kernels import Kernel, LinearCoregionalization, MultioutputKernel

from ..errors import DataError
from ..linalg.cholesky import add_jitter
from .centring import covariance, is_centred
from .stationary import stationary_gram

_LEAST = 1e-4
"""Least prior variance at an observation, in machine epsilons of the largest one."""
MULTIOUTPUT_INDUCING = (
    FallbackSharedIndependentInducingVariables,
    FallbackSeparateIndependentInducingVariables,
)


def split_latents(kernel: Kernel, *inducing: InducingVariables) -> list[tuple]:
    """Return (kernel, inducing variable, ...) per latent, or one such tuple if all are shared."""
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
    """Raise vanishing prior variances [G, N] to 1e-4 machine epsilons of the largest one."""
    # A linear kernel has zero variance at the origin, and derivatives are divided by the deviation.
    largest = tf.reduce_max(tf.stop_gradient(variances), axis=-1, keepdims=True)
    least = (
        tf.constant(_LEAST * np.finfo(variances.dtype.as_numpy_dtype).eps, variances.dtype)
        * largest
    )
    return tf.where((variances >= 0.0) & (variances < least), least, variances)


def gram_to_factor(kernel: Kernel, points: InducingVariables) -> tf.Tensor:
    """`gram` [G, M, M] with jitter, unless the inducing variable has `needs_jitter = False`."""
    # `inducing.Weights` needs none; jitter would add noise to every prediction.
    latents = split_latents(kernel, points)
    K = _stack([_gram(k, z) for k, z in latents])
    needed = any(getattr(z, "needs_jitter", True) for _, z in latents)
    return add_jitter(K) if needed else K


def gram_diagonal(kernel: Kernel, points: InducingVariables) -> tf.Tensor:
    """The diagonal of `gram`, [G, M]; M kernel evaluations for plain points."""
    diagonals = [
        k(z.Z, full_cov=False)
        if type(z) is InducingPoints
        else tf.linalg.diag_part(inducing_gram(z, k))
        for k, z in split_latents(kernel, points)
    ]
    return tf.stack(diagonals)


def gram_to_data(kernel: Kernel, points: InducingVariables, X: tf.Tensor) -> tf.Tensor:
    """k(points, X) [G, M, N] for X [N, D]."""
    return _stack([_gram(k, z, X) for k, z in split_latents(kernel, points)])


def prior_variance(kernel: Kernel, X: tf.Tensor, full_cov: bool) -> tf.Tensor:
    """k(X, X) per latent: [G, N], or [..., G, N, N] if `full_cov`, for X [..., N, D]."""
    kernels = [k for (k,) in split_latents(kernel)]
    if full_cov:
        return tf.stack([covariance(k, tf.convert_to_tensor(X)) for k in kernels], axis=-3)
    return tf.stack([k(X, full_cov=False) for k in kernels], axis=0)


def cross_gram(kernel: Kernel, left: InducingVariables, right: InducingVariables) -> tf.Tensor:
    """k(left, right) [G, M, M']; one of the two must be plain points for GPflow's dispatch."""
    return _stack([_cross(k, a, b) for k, a, b in split_latents(kernel, left, right)])


def mix_outputs(
    kernel: Kernel,
    mean: tf.Tensor,
    cov: tf.Tensor,
    full_cov: bool = False,
    full_output_cov: bool = False,
) -> MeanAndVariance:
    """Moments of the P outputs from moments of the L latents, in `predict_f`'s shapes.

    :param mean: [..., N, L].
    :param cov: variances [..., N, L], or covariances [..., L, N, N] if `full_cov`.
    :return: the mean [..., N, P] and the variances or covariances.
    """
    # P = L unless the kernel is a `LinearCoregionalization` with W [P, L]: then f(x) = W g(x), with
    # mean E[g] W^T and variances var[g] (W * W)^T, (D51).
    if isinstance(kernel, LinearCoregionalization):
        # GPflow's mixing wants [L, ..., N, N]
        leading = tf.transpose(cov, _latents_first(cov)) if full_cov else cov
        return mix_latent_gp(kernel.W, mean, leading, full_cov, full_output_cov)
    if not full_output_cov:
        return mean, cov
    if not full_cov:
        return mean, tf.linalg.diag(cov)  # [..., N, P, P]
    rank = cov.shape.rank
    # outputs that are not mixed are independent: P goes last, onto a diagonal, and then where
    # GPflow has it
    cov = tf.linalg.diag(
        tf.transpose(cov, [*range(rank - 3), rank - 2, rank - 1, rank - 3])
    )  # [..., N, N, P, P]
    return mean, tf.transpose(cov, [*range(rank - 3), rank - 3, rank - 1, rank - 2, rank])


def _latents_first(cov: tf.Tensor) -> list[int]:
    rank = cov.shape.rank
    return [rank - 3, *range(rank - 3), rank - 2, rank - 1]


def _stack(matrices: list) -> tf.Tensor:
    return matrices[0][None] if len(matrices) == 1 else tf.stack(matrices)


def _gram(kernel: Kernel, points: InducingVariables, X: tf.Tensor | None = None) -> tf.Tensor:
    if type(points) is InducingPoints:
        fast = stationary_gram(kernel, points.Z, X)
        if fast is not None:
            return fast
        if is_centred(kernel):
            return covariance(kernel, tf.convert_to_tensor(points.Z), X)
    return inducing_gram(points, kernel) if X is None else Kuf(points, kernel, X)


def inducing_gram(points: InducingVariables, kernel: Kernel) -> tf.Tensor:
    """Kuu [M, M] by GPflow's dispatch, made dense: variational Fourier features have a
    `LinearOperator`.
    """
    found = Kuu(points, kernel)
    return found.to_dense() if isinstance(found, tf.linalg.LinearOperator) else found


def _cross(kernel: Kernel, left: InducingVariables, right: InducingVariables) -> tf.Tensor:
    if type(right) is InducingPoints:
        return _gram(kernel, left, right.Z)
    if type(left) is InducingPoints:
        return tf.linalg.matrix_transpose(_gram(kernel, right, left.Z))
    raise NotImplementedError(
        f"GPflow has no covariance between {type(left).__name__} and {type(right).__name__}; "
        "make one of gamma and beta plain inducing points."
    )
