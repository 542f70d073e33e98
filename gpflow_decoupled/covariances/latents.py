"""Gram matrices for shared or separate kernels and inducing variables."""

from __future__ import annotations

__all__ = [
    "Index", "MULTIOUTPUT_INDUCING", "SharedAndOwn", "check_indices", "cross_gram", "gram",
    "gram_diagonal", "gram_to_data", "gram_to_factor", "indices_of", "inducing_gram",
    "mix_outputs", "positive_gram", "positive_variances", "prior_variance", "residual_diagonal",
    "residual_gram", "residual_gram_to_factor", "split_latents",
]  # fmt: skip

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow import Parameter
from gpflow.base import MeanAndVariance, TensorType
from gpflow.conditionals.util import mix_latent_gp
from gpflow.covariances import Kuf, Kuu
from gpflow.functions import Function, SwitchedFunction
from gpflow.inducing_variables import (
    FallbackSeparateIndependentInducingVariables,
    FallbackSharedIndependentInducingVariables,
    InducingPoints,
    InducingVariables,
)
from gpflow.kernels import (
    ChangePoints,
    Combination,
    Coregion,
    Kernel,
    LinearCoregionalization,
    MultioutputKernel,
)
from gpflow.likelihoods import Likelihood

from ..errors import DataError
from ..inputs import known
from ..linalg.cholesky import add_jitter, cholesky
from ..linalg.triangular import solve
from .mixed import NUM_CODES, Mixed
from .stationary import covariance, is_centred, stationary_gram

# ---
# Columns that are indices: neither scaled nor rounded.


class Index(NamedTuple):
    """A column that is read as an index."""

    column: int
    """Of X; -1 is the last one."""
    size: int
    """Values are 0, 1, ..., size - 1."""
    reader: str
    """The class that reads it."""


def indices_of(*parts: Kernel | Function | Likelihood | None) -> list[Index]:
    """Return the columns of X that parts of a model read as indices.

    These are the columns of `Coregion`, the categories of a `Mixed` kernel, and the last column of
    `Categorical` and `SwitchedFunction`, in compositions too.

    :param parts: kernels, mean functions, likelihoods; None is skipped.
    """
    return [index for part in parts for index in _read_by(part)]


def check_indices(X: TensorType, name: str, *parts: Kernel | Function | Likelihood | None) -> None:
    """Refuse entries that are no index where one is read, as far as known when tracing.

    :param X: inputs [..., N, D].
    :param parts: of the model, see `indices_of`.
    """
    # TensorFlow reads 0.5 as 0, and out of range gives zeros on some devices.
    found = indices_of(*parts)
    values = known(X) if found else None
    if not found or values is None or values.ndim < 2:
        return
    for column, size, reader in found:
        if not -values.shape[-1] <= column < values.shape[-1]:
            continue  # the kernel's check of its columns says so
        entries = values[..., column].reshape(-1)
        bad = (entries != np.round(entries)) | (entries < 0) | (entries >= size)
        if np.any(bad):
            row, place = int(np.flatnonzero(bad)[0]), column % values.shape[-1]
            raise DataError(
                f"{name}[{row}, {place}] is {entries[row]:g}, and {reader} reads this column as an"
                f" index: it must be a whole number from 0 to {size - 1}. Do not scale it; number"
                " the categories by np.unique(column, return_inverse=True)[1]."
            )


def _read_by(part: object) -> Iterator[Index]:
    if isinstance(part, Coregion):
        dims = part.active_dims
        column = int((dims.start or 0) if isinstance(dims, slice) else dims[0])
        yield Index(column, int(part.output_dim), "Coregion")
    elif isinstance(part, Mixed):
        for column in part.categories:
            yield Index(column, NUM_CODES, type(part).__name__)
    elif type(part).__name__ == "Categorical" and isinstance(part, Kernel):
        # by its name, as GPflow does not export it
        yield Index(-1, int(part._Z_deltas.shape[0]) + 1, "Categorical")
    elif isinstance(part, SwitchedFunction):
        yield Index(-1, len(part.functions), type(part).__name__)
    else:
        for inner in _inside(part):
            yield from _read_by(inner)


def _inside(part: object) -> Iterable[object]:
    if isinstance(part, MultioutputKernel):
        return part.latent_kernels
    if isinstance(part, (Combination, ChangePoints)):
        return part.kernels
    if isinstance(part, (Function, Likelihood)):
        return [own for own in vars(part).values() if isinstance(own, Function)]
    return ()


# ---


# The leading axis G counts groups of latents that share kernel and inducing variables: G = 1 if all
# do, else L.


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


# ---
# The residual kernel C(x, x') = k(x, x') - k_xb K_b^-1 k_bx', the prior given beta.


def residual_gram(kernel: Kernel, beta: InducingVariables, gamma: InducingVariables) -> tf.Tensor:
    """C_g = K_g - K_gb K_b^-1 K_bg [G, M_gamma, M_gamma]; M_gamma^2 M_beta."""
    projection = _projection(kernel, beta, gamma)
    return gram(kernel, gamma) - tf.matmul(projection, projection, transpose_a=True)


def residual_gram_to_factor(
    kernel: Kernel, beta: InducingVariables, gamma: InducingVariables
) -> tf.Tensor:
    """`residual_gram` with jitter for a factorisation, [G, M_gamma, M_gamma]."""
    return add_jitter(residual_gram(kernel, beta, gamma), minuend=gram(kernel, gamma))


def residual_diagonal(
    kernel: Kernel, beta: InducingVariables, gamma: InducingVariables
) -> tf.Tensor:
    """The diagonal of C_g, [G, M_gamma]; M_gamma M_beta^2."""
    return gram_diagonal(kernel, gamma) - tf.reduce_sum(
        tf.square(_projection(kernel, beta, gamma)), axis=-2
    )


def _projection(kernel: Kernel, beta: InducingVariables, gamma: InducingVariables) -> tf.Tensor:
    chol, _ = cholesky(gram_to_factor(kernel, beta))
    return solve(chol, cross_gram(kernel, beta, gamma))


# ---
# Coregionalisation with a latent function of each output alone.


class SharedAndOwn(LinearCoregionalization):
    """Outputs f_p = sum_r W_pr g_r + h_p, of R shared and P own latents (Nguyen & Bonilla 2014).

    Without h, W W^T of R < P latents is singular.

    :param kernels: of g_1, ..., g_R, h_1, ..., h_P; kernels of g have a fixed variance.
    :param shared: mixture of the shared latents, [P, R].

    Example::

        kernel = SharedAndOwn([Matern52(), Matern52(), Matern52()], np.array([[1.0], [-1.0]]))
    """

    def __init__(
        self, kernels: Sequence[Kernel], shared: TensorType, name: str | None = None
    ) -> None:
        Combination.__init__(self, kernels=kernels, name=name)
        self.shared = Parameter(shared)

    @property
    def W(self) -> tf.Tensor:
        """The mixture of all latents, [P, R + P]: the shared part beside the identity."""
        shared = tf.convert_to_tensor(self.shared)
        return tf.concat([shared, tf.eye(shared.shape[0], dtype=shared.dtype)], axis=1)
