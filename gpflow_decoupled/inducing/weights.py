"""The weights of a linear function as inducing variables: sparse inference with them is inference in weight space.

For f(x) = x^T w with prior w ~ N(0, S), which is a GP with k(x, x') = x^T S x', and u = w:

    K_u = S,   K_ux = S x,   so that   K_u^-1 K_ux = x   and   k(x, x) - k_xu K_u^-1 k_ux = 0

and the tied sites (C22) of u are those of a generalised linear model (C29).

| kernel | weights | S |
|---|---|---|
| `gpflow.kernels.Linear` | one for each active column | diag(variance) |
| `LinearWeights` | one for each active column | `covariance` |
| `gpflow.kernels.Constant` | 1, an intercept | `variance` |
| a sum of these | all of them, in the order of the sum | block diagonal |
"""

from __future__ import annotations

__all__ = ["Weights", "weight_counts", "weight_parts"]

from numbers import Integral
from typing import Any

import tensorflow as tf
from check_shapes import Shape, check_shapes
from gpflow.base import TensorType
from gpflow.covariances import Kuf, Kuu
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Constant, Kernel, Linear, Sum

from ..errors import DataError
from .linear_kernel import LinearWeights


class Weights(InducingVariables):
    """The weights w [p] of f(x) = x^T w; their prior covariance is the kernel's.

    :param num_weights: p, the number of columns of X that the kernel uses, and 1 more for an intercept
        (`gpflow.kernels.Constant`).

    Raises `DataError` for a number that is not at least 1, and when used with a kernel or inputs of other sizes;
    `NotImplementedError` when used with a kernel that is not linear. No jitter is needed. Example::

        kernel = gpflow.kernels.Linear(variance=np.ones(4)) + gpflow.kernels.Constant(100.0)
        model = SparseCVIGP(kernel, gpflow.likelihoods.Poisson(), Weights(5))
    """

    needs_jitter = False
    """Their prior covariance is positive definite."""

    def __init__(self, num_weights: Any) -> None:
        super().__init__()
        if not isinstance(num_weights, Integral) or isinstance(num_weights, bool) or num_weights < 1:
            raise DataError(f"num_weights={num_weights!r} must be a whole number of at least 1, the length of w.")
        self.num_weights = int(num_weights)

    @property
    def num_inducing(self) -> tf.Tensor:
        """The number of weights p, a scalar."""
        return tf.constant(self.num_weights)

    @property
    def shape(self) -> Shape:
        """[M, D, P] as GPflow reads it: p weights, any number of input columns, one output."""
        return (self.num_weights, None, 1)


def weight_parts(kernel: Kernel) -> list[Kernel]:
    """The terms of a linear kernel, each with weights of its own; raises `NotImplementedError` for other kernels."""
    parts = list(kernel.kernels) if type(kernel) is Sum else [kernel]
    for part in parts:
        if type(part) not in (Linear, LinearWeights, Constant):  # a Polynomial is a Linear, but not linear
            raise NotImplementedError(
                f"Weights are inducing variables of linear functions, and {type(part).__name__} is not their kernel; use "
                "gpflow.kernels.Linear, LinearWeights, gpflow.kernels.Constant (an intercept), or a sum of these."
            )
    return parts


def weight_counts(kernel: Kernel, total: int) -> list[int]:
    """How many of `total` weights belong to each term of a linear kernel. Raises `DataError` where they do not add up."""
    known = [_own_count(part) for part in weight_parts(kernel)]
    missing = [place for place, count in enumerate(known) if count is None]
    if len(missing) > 1:
        raise DataError("Several Linear kernels share one variance each: give all but one of them a variance a column.")
    rest = total - sum(count for count in known if count is not None)
    if (missing and rest < 1) or (not missing and rest != 0):
        raise DataError(
            f"Weights({total}) does not fit the kernel, which has {total - rest}{' or more' if missing else ''} weights: "
            "one for each column of a Linear kernel, one for a Constant; pass that number."
        )
    return [rest if count is None else count for count in known]


def _own_count(part: Kernel) -> int | None:
    """The number of weights of one term, None where it depends on the inputs."""
    if isinstance(part, Constant):
        return 1
    if isinstance(part, LinearWeights):
        return part.num_weights
    return int(part.variance.shape[0]) if part.ard else None


def _times_covariance(part: Kernel, columns: tf.Tensor) -> tf.Tensor:
    """S z for each row z of columns [..., p]."""
    if isinstance(part, LinearWeights):
        return tf.tensordot(columns, part.covariance, [[-1], [0]])
    return columns * part.variance


def _columns(part: Kernel, count: int, X: tf.Tensor) -> tf.Tensor:
    """The inputs that the weights of one term multiply, [..., N, count]."""
    if isinstance(part, Constant):
        return tf.ones_like(X[..., :1])
    columns, _ = part.slice(X)
    if columns.shape[-1] is not None and columns.shape[-1] != count:
        raise DataError(
            f"X has {columns.shape[-1]} columns for {count} weights: pass the X that the weights are for, or Weights of "
            "another number."
        )
    return columns


@Kuu.register(Weights, Kernel)
@check_shapes("inducing_variable: [M, ., 1]", "return: [M, M]")
def _kuu_weights(inducing_variable: Weights, kernel: Kernel, *, jitter: float = 0.0) -> tf.Tensor:
    """K_u = S."""
    parts, counts = weight_parts(kernel), weight_counts(kernel, inducing_variable.num_weights)
    dtype = parts[0].parameters[0].dtype
    blocks = [_times_covariance(part, tf.eye(count, dtype=dtype)) for part, count in zip(parts, counts)]
    operators = [tf.linalg.LinearOperatorFullMatrix(block) for block in blocks]
    S = blocks[0] if len(blocks) == 1 else tf.linalg.LinearOperatorBlockDiag(operators).to_dense()
    return tf.linalg.set_diag(S, tf.linalg.diag_part(S) + tf.cast(jitter, dtype))


@Kuf.register(Weights, Kernel, object)
@check_shapes("inducing_variable: [M, ., 1]", "Xnew: [batch..., N, D]", "return: [M, batch..., N]")
def _kuf_weights(inducing_variable: Weights, kernel: Kernel, Xnew: TensorType) -> tf.Tensor:
    """K_ux = S x; N p for a diagonal S, N p^2 for `LinearWeights`."""
    X: Any = tf.convert_to_tensor(Xnew)
    counts = weight_counts(kernel, inducing_variable.num_weights)
    rows = [_times_covariance(part, _columns(part, count, X)) for part, count in zip(weight_parts(kernel), counts)]
    joined = rows[0] if len(rows) == 1 else tf.concat(rows, axis=-1)
    rank = joined.shape.rank
    return tf.transpose(joined, [rank - 1, *range(rank - 1)])
