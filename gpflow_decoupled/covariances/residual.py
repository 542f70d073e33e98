"""The residual kernel C(x, x') = k(x, x') - k_xb K_b^-1 k_bx', the prior given beta."""

from __future__ import annotations

__all__ = ["residual_diagonal", "residual_gram", "residual_gram_to_factor"]

import tensorflow as tf
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel

from ..linalg.cholesky import add_jitter, cholesky
from ..linalg.triangular import solve
from .latents import cross_gram, gram, gram_diagonal, gram_to_factor


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
