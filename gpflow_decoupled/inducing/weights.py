"""Weights as inducing variables."""

from __future__ import annotations

__all__ = ["LinearWeights", "Weights", "weight_counts", "weight_parts"]

from numbers import Integral

import numpy as np
import tensorflow as tf
from check_shapes import Shape, check_shapes, inherit_check_shapes
from gpflow import Parameter
from gpflow.base import TensorType
from gpflow.config import default_float
from gpflow.covariances import Kuf, Kuu
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Constant, Kernel, Linear, Sum
from gpflow.kernels.base import ActiveDims
from gpflow.utilities import triangular
from numpy.typing import ArrayLike

from ..errors import DataError
from ..linalg.cholesky import cholesky
from ..summaries import settings_line, short_repr

# ---
# The kernel of a linear function of Gaussian weights.


class LinearWeights(Kernel):
    """The covariance x^T S x' of f(x) = x^T w, for weights w with prior covariance S [p, p].

    :param covariance: S, symmetric and positive definite.
    :param active_dims: columns of X that the kernel reads, as in GPflow.

    Example::

        kernel = LinearWeights(np.diag([1.0, 0.1]))
        model = CVIGP((X, Y), kernel, gpflow.likelihoods.Gaussian())
    """

    def __init__(self, covariance: ArrayLike, active_dims: ActiveDims | None = None) -> None:
        super().__init__(active_dims)
        self.scale_tril = Parameter(_factor(covariance), transform=triangular(), trainable=False)
        self._validate_ard_active_dims(self.scale_tril)

    @property
    def num_weights(self) -> int:
        """The number of weights p."""
        return int(self.scale_tril.shape[0])

    @property
    def covariance(self) -> tf.Tensor:
        """The prior covariance S [p, p] of the weights."""
        return tf.matmul(self.scale_tril, self.scale_tril, transpose_b=True)

    @inherit_check_shapes
    def K(self, X: TensorType, X2: TensorType | None = None) -> tf.Tensor:
        """x^T S x' for rows of X [..., N, p], and of X2 [..., N2, p] if given."""
        left = self._whitened(X)
        if X2 is None:
            return tf.matmul(left, left, transpose_b=True)
        return tf.tensordot(left, self._whitened(X2), [[-1], [-1]])

    @inherit_check_shapes
    def K_diag(self, X: TensorType) -> tf.Tensor:
        """x^T S x for each row of X [..., N, p]."""
        return tf.reduce_sum(tf.square(self._whitened(X)), axis=-1)

    def _whitened(self, X: TensorType) -> tf.Tensor:
        return tf.tensordot(X, tf.convert_to_tensor(self.scale_tril), [[-1], [0]])


def _factor(covariance: ArrayLike) -> np.ndarray:
    S = np.asarray(covariance, dtype=default_float())
    if S.ndim != 2 or S.shape[0] != S.shape[1] or not len(S):
        raise DataError(
            f"covariance has shape {list(S.shape)}; it must be [p, p], for p weights. For"
            " independent weights with prior variances [p] use"
            " gpflow.kernels.Linear(variance=variances)."
        )
    if not np.all(np.isfinite(S)):
        raise DataError(
            f"covariance has {int(np.sum(~np.isfinite(S)))} entries that are NaN or infinite:"
            " repair them."
        )
    gap = np.abs(S - S.T)
    if np.max(gap) > np.sqrt(np.finfo(S.dtype).eps) * np.max(np.abs(S)):
        row, column = np.unravel_index(np.argmax(gap), gap.shape)
        raise DataError(
            f"covariance is not symmetric: [{row}, {column}] is {S[row, column]:g} and [{column},"
            f" {row}] is {S[column, row]:g}; pass 0.5 * (S + S.T) if the difference is due to"
            " rounding."
        )
    chol, ok = cholesky(tf.constant(0.5 * (S + S.T)))
    if not bool(ok):
        raise DataError(
            f"covariance ({len(S)} x {len(S)}) is not positive definite: its smallest eigenvalue is"
            f" {np.linalg.eigvalsh(S)[0]:.3g}. It must be the covariance of a proper Gaussian prior"
            " (not its precision or its factor); if it is only nearly singular, add a small"
            " multiple of numpy.eye(p)."
        )
    return chol.numpy()


# ---


# f(x) = x^T w with w ~ N(0, S) is a GP with k(x, x') = x^T S x'. With u = w nothing is
# approximated, because f(x) is a function of u:
#
#   K_u = S,   K_ux = S x,   so that   K_u^-1 K_ux = x   and   k(x, x) - k_xu K_u^-1 k_ux = 0
#
# The tied sites (C22) of u then make a generalised linear model (C29).
#
# | kernel | weights | S |
# |---|---|---|
# | `gpflow.kernels.Linear` | one per active column | diag(variance) |
# | `LinearWeights` | one per active column | `covariance` |
# | `gpflow.kernels.Constant` | one, the intercept | `variance` |
# | a sum of these | the terms' weights, in order | block diagonal |


class Weights(InducingVariables):
    """The weights w [p] of a linear function f(x) = x^T w, with their prior from the kernel.

    For linear kernels; others raise `NotImplementedError` at their first use.

    :param num_weights: p, the columns of X that the kernel uses, plus one for an intercept
        (`gpflow.kernels.Constant`).

    Example::

        kernel = gpflow.kernels.Linear(variance=np.ones(4)) + gpflow.kernels.Constant(100.0)
        model = SparseCVIGP(kernel, gpflow.likelihoods.Poisson(), Weights(5))
    """

    num_weights: int
    """p."""
    needs_jitter = False
    """The prior covariance S is positive definite by itself."""

    def __init__(self, num_weights: int) -> None:
        super().__init__()
        if (
            not isinstance(num_weights, Integral)
            or isinstance(num_weights, bool)
            or num_weights < 1
        ):
            raise DataError(
                f"num_weights={short_repr(num_weights)} must be a whole number of at least 1, the"
                " length of w."
            )
        self.num_weights = int(num_weights)

    def __repr__(self) -> str:
        return settings_line(self)

    @property
    def num_inducing(self) -> tf.Tensor:
        """The number p of weights, a scalar tensor as GPflow has it."""
        return tf.constant(self.num_weights)

    @property
    def shape(self) -> Shape:
        """[M, D, P] for GPflow's checks: p weights, any number of columns, one output."""
        return (self.num_weights, None, 1)


def weight_parts(kernel: Kernel) -> list[Kernel]:
    """The terms of a linear kernel; `NotImplementedError` for other kernels."""
    parts = list(kernel.kernels) if type(kernel) is Sum else [kernel]
    for part in parts:
        # a Polynomial is a Linear, but not linear
        if type(part) not in (
            Linear,
            LinearWeights,
            Constant,
        ):
            raise NotImplementedError(
                f"Weights are inducing variables of linear functions, and {type(part).__name__} is"
                " not their kernel; use gpflow.kernels.Linear, LinearWeights,"
                " gpflow.kernels.Constant (an intercept), or a sum of these."
            )
    return parts


def weight_counts(kernel: Kernel, total: int) -> list[int]:
    """The number of weights of each term of a linear kernel."""
    # A `Linear` kernel with a single variance takes the rest of `total`.
    known = [_own_count(part) for part in weight_parts(kernel)]
    missing = [place for place, count in enumerate(known) if count is None]
    if len(missing) > 1:
        raise DataError(
            "Several Linear kernels of the sum have one variance for all of their columns, so that"
            " the numbers of their weights are not known: give all but one of them one variance per"
            " column."
        )
    rest = total - sum(count for count in known if count is not None)
    if (missing and rest < 1) or (not missing and rest != 0):
        raise DataError(
            f"Weights({total}) does not fit the kernel, which has"
            f" {total - rest}{' or more' if missing else ''} weights: one per column of a Linear"
            " kernel, and one for a Constant; pass that number."
        )
    return [rest if count is None else count for count in known]


def _own_count(part: Kernel) -> int | None:
    if isinstance(part, Constant):
        return 1
    if isinstance(part, LinearWeights):
        return part.num_weights
    return int(part.variance.shape[0]) if part.ard else None


def _times_covariance(part: Kernel, columns: tf.Tensor) -> tf.Tensor:
    if isinstance(part, LinearWeights):
        return tf.tensordot(columns, part.covariance, [[-1], [0]])
    return columns * part.variance


def _columns(part: Kernel, count: int, X: tf.Tensor) -> tf.Tensor:
    if isinstance(part, Constant):
        return tf.ones_like(X[..., :1])
    columns, _ = part.slice(X)
    if columns.shape[-1] is not None and columns.shape[-1] != count:
        raise DataError(
            f"X has {columns.shape[-1]} columns for {count} weights: pass the X that the weights"
            " are for, or Weights with another number."
        )
    return columns


@Kuu.register(Weights, Kernel)
@check_shapes("inducing_variable: [M, ., 1]", "return: [M, M]")
def _kuu_weights(inducing_variable: Weights, kernel: Kernel, *, jitter: float = 0.0) -> tf.Tensor:
    parts, counts = weight_parts(kernel), weight_counts(kernel, inducing_variable.num_weights)
    dtype = parts[0].parameters[0].dtype
    blocks = [
        _times_covariance(part, tf.eye(count, dtype=dtype)) for part, count in zip(parts, counts)
    ]
    operators = [tf.linalg.LinearOperatorFullMatrix(block) for block in blocks]
    S = blocks[0] if len(blocks) == 1 else tf.linalg.LinearOperatorBlockDiag(operators).to_dense()
    return tf.linalg.set_diag(S, tf.linalg.diag_part(S) + tf.cast(jitter, dtype))


@Kuf.register(Weights, Kernel, object)
@check_shapes("inducing_variable: [M, ., 1]", "Xnew: [batch..., N, D]", "return: [M, batch..., N]")
def _kuf_weights(inducing_variable: Weights, kernel: Kernel, Xnew: TensorType) -> tf.Tensor:
    """K_ux = S x; the cost is N p for a diagonal S and N p^2 for `LinearWeights`."""
    X = tf.convert_to_tensor(Xnew)
    counts = weight_counts(kernel, inducing_variable.num_weights)
    rows = [
        _times_covariance(part, _columns(part, count, X))
        for part, count in zip(weight_parts(kernel), counts)
    ]
    joined = rows[0] if len(rows) == 1 else tf.concat(rows, axis=-1)
    rank = joined.shape.rank
    return tf.transpose(joined, [rank - 1, *range(rank - 1)])
