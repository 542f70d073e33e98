"""The two covariances of a `DecoupledBasis`: inverse, as in Cheng & Boots 2017, and coupled.

With B of the inverse form and S of the coupled one, S = (K_b^-1 + B)^-1 and B = S^-1 - K_b^-1,
(D8). B = C C^T is positive semi-definite, so that the inverse form has S <= K_b only. S = K_b is C
= 0, where the gradient of C vanishes. Whitened, with K_b = L L^T, S~^-1 = I + (L^T C) (L^T C)^T.
"""

from __future__ import annotations

__all__ = ["with_covariance"]

import numpy as np
import tensorflow as tf
from gpflow.kernels import Kernel

from ...covariances.latents import gram_to_factor
from ...errors import DataError, ModelError, check_option
from ...linalg.cholesky import cholesky, diagnose
from ...linalg.gaussians import precision_from_root, root_from_precision
from ..decoupled import DecoupledBasis
from ..inducing_basis import InducingBasis
from ..parts.inducing_gaussian import assign_whitened_root, whitened_root
from ..parts.inverse_root import inverse_root


def with_covariance(basis: InducingBasis, kernel: Kernel, covariance: str) -> DecoupledBasis:
    """A new `DecoupledBasis` with the same q(f), whose covariance has the other parameters, (D8).

    :param basis: a `DecoupledBasis`; its points are shared, its coefficients copied.
    :param kernel: the prior covariance of f, at which the two are the same q(f).
    :param covariance: "inverse" or "coupled", that of the new basis.
    :return: the new basis. Cost: L M_beta^3.
    :raises ModelError: for another basis.
    :raises UnknownOptionError: for another covariance.
    :raises DataError: for "inverse", where S is not below K_beta or equal to it, but for round-off.
    :raises NumericalError: if K_beta is not positive definite.

    Example, a start by the inverse form and natural gradients of the covariance after that::

        model.basis = with_covariance(model.basis, model.kernel, "coupled")
    """
    check_option("covariance", covariance, ("inverse", "coupled"))
    if not isinstance(basis, DecoupledBasis):
        raise ModelError(
            "Only a DecoupledBasis has two forms of its covariance, and got"
            f" {type(basis).__name__}."
        )
    K_b = gram_to_factor(kernel, basis.beta)
    chol, ok = cholesky(K_b)
    if not ok:
        raise diagnose("K_beta", K_b.numpy())
    precision = _whitened_precision(basis, chol)
    mean = basis.kernel_mean
    new = DecoupledBasis(
        basis.alpha,
        basis.beta,
        basis.num_latent_gps,
        covariance=covariance,
        whiten=basis.whiten,
        mean_scaling=mean.scaling.kind,
        mean_subsample=mean.subsample,
    )
    if covariance == "coupled":
        assign_whitened_root(chol, root_from_precision(precision).chol, new.q_sqrt, new.whiten)
    else:
        new.chol_B.assign(inverse_root(chol, _checked_excess(precision)))
    new.refresh(kernel)
    new.a.assign(new.kernel_mean.scaling.scaled(mean.raw()))
    return new


def _whitened_precision(basis: DecoupledBasis, chol: tf.Tensor) -> tf.Tensor:
    """S~^-1 [L, M, M], for K_b = chol chol^T [G, M, M]."""
    if basis.covariance == "coupled":
        return precision_from_root(whitened_root(chol, None, basis.q_sqrt, basis.whiten))
    C = tf.linalg.band_part(tf.convert_to_tensor(basis.chol_B), -1, 0)
    U = tf.matmul(chol, C, transpose_a=True)
    return tf.matmul(U, U, transpose_b=True) + tf.eye(tf.shape(U)[-1], dtype=U.dtype)  # (D8)


def _checked_excess(precision: tf.Tensor) -> tf.Tensor:
    """S~^-1 - I [L, M, M], whose eigenvalues are at least zero but for round-off; raises
    `DataError` for another S.
    """
    excess = precision - tf.eye(tf.shape(precision)[-1], dtype=precision.dtype)
    values, eps = np.linalg.eigvalsh(excess), np.finfo(precision.dtype.as_numpy_dtype).eps
    least = float(np.min(values))
    if not least >= -(np.sqrt(eps) + values.shape[-1] * eps * np.max(values)):
        raise DataError(
            'The covariance S is not below K_beta, as covariance="inverse" needs it: the least'
            f' eigenvalue of S^-1 - K_beta^-1, whitened, is {least:.2g}. Keep covariance="coupled",'
            " or train it first."
        )
    return excess
