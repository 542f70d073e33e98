"""A `GMRF` as the Lagrangian sees its models."""

# With K = A Q^-1 A^T at the observations, never formed, (V7) and (V9) read, as in (C71),
#
#   E u = -K alpha = -A Q^-1 A^T alpha,   v = diag(A P^-1 A^T),   P = Q + A^T Lambda A
#   log|I + K Lambda| = log|P| - log|Q|
#
# so that Gaussian sites of precision lambda and natural mean lambda u - alpha give q.

from __future__ import annotations

__all__ = ["FieldMultipliers", "no_direction"]

from typing import Any

import numpy as np
import tensorflow as tf

from ...bases.dual import DualState
from ...errors import NumericalError
from ...likelihoods import SiteLoss, site_loss
from ...models import GMRF

_BLOCK = 256  # columns of K at a time


class FieldMultipliers:
    """The multipliers alpha, lambda [N, 1] of a field, and what `DualProblem` asks of a model.

    :param field: whose q begins the run; sites that were never moved are no multipliers.
    """

    kernel = None
    """The prior has no parameters."""

    def __init__(self, field: GMRF) -> None:
        self.field, self.likelihood = field, field.likelihood
        self.data = None, field.Y
        nu, tau = (tf.convert_to_tensor(part) for part in (field.basis.nu, field.basis.tau))
        self.basis = _FieldBasis(field)
        state = field.state_at(nu, tau) if bool(tf.reduce_any(nu != 0.0)) else None
        if state is not None:
            self.basis.alpha.assign(tau * state.mean - nu)
            self.basis.lam.assign(tau)

    def prior_mean(self) -> tf.Tensor:
        """The offset [N, 1]."""
        return self.field.offset

    def site_loss(self) -> SiteLoss:
        """Losses of the labels [N, 1]."""
        return site_loss(self.likelihood, self.field.Y)

    def write(self) -> None:
        """Set the field's sites to the multipliers."""
        alpha, lam = (tf.convert_to_tensor(part) for part in (self.basis.alpha, self.basis.lam))
        self.field.basis.nu.assign(lam * self.basis.geometry.product(None, -alpha) - alpha)
        self.field.basis.tau.assign(lam)


class _FieldBasis:
    num_latent_gps = 1

    def __init__(self, field: GMRF) -> None:
        # the part of a `Geometry` that L-BFGS on a dual uses
        self.geometry: Any = _FieldGeometry(field)
        self.num_data = len(field.Y)
        self.alpha, self.lam = (
            tf.Variable(tf.zeros_like(field.Y), trainable=False) for _ in range(2)
        )

    def prior_kl(self, state: DualState) -> tf.Tensor:
        """KL in nats (V10)."""
        quadratic = tf.reduce_sum(state.alpha * state.mean + state.lam * state.variance)
        return 0.5 * (state.log_det - quadratic)


class _FieldGeometry:
    """Products with K = A Q^-1 A^T [N, N] and posteriors, one sparse factorisation each.

    `prior` is ignored: Q does not change.
    """

    forms_square_matrices = False
    in_graphs = False
    """The factorisations are SciPy's."""

    def __init__(self, field: GMRF) -> None:
        self.field, self.dtype = field, field.float_type
        factor = field.posterior_factor(np.zeros(len(field.Y)))
        if factor is None:
            raise NumericalError(
                "The precision Q has changed and is not positive definite: make a new GMRF.",
                matrix="Q",
            )
        self.factor = factor

    def prior(self, kernel: None) -> tf.Tensor:
        """No numbers."""
        return tf.zeros([0], self.dtype)

    def product(self, prior: tf.Tensor | None, vectors: tf.Tensor) -> tf.Tensor:
        """K x [N, 1]."""
        A = self.field.design
        return tf.constant(A @ self.factor.solve(A.T @ np.asarray(vectors)), self.dtype)

    def diagonal(self, prior: tf.Tensor) -> tf.Tensor:
        """The diagonal of K [1, N]."""
        return tf.constant(self.field.variances_of(self.factor)[None], self.dtype)

    def row_squares(self, prior: tf.Tensor) -> tf.Tensor:
        """sum_j K_nj^2 [1, N]; a solve per observation."""
        A, found = self.field.design, []
        for first in range(0, A.shape[0], _BLOCK):
            columns = A @ self.factor.solve(A[first : first + _BLOCK].T.toarray())
            found.append(np.sum(columns**2, axis=0))
        return tf.constant(np.concatenate(found)[None], self.dtype)

    def diagnosis(self, prior: tf.Tensor) -> NumericalError | None:
        """None: Q was factorised."""
        return None

    def state_at(self, prior: tf.Tensor, alpha: tf.Tensor, lam: tf.Tensor) -> DualState:
        """(V7), (V9)."""
        return self._state(self.product(prior, -tf.convert_to_tensor(alpha)), alpha, lam)

    def state_of_sites(self, prior: tf.Tensor, b: tf.Tensor, lam: tf.Tensor) -> DualState:
        """The state with sites exp(b u - lam u^2 / 2), (V22)."""
        found = self.field.state_at(b, lam)
        mean = tf.zeros_like(b) if found is None else tf.constant(found.mean, self.dtype)
        return self._state(mean, lam * mean - b, lam)  # (V22)

    def with_alpha(self, prior: tf.Tensor, state: DualState, alpha: tf.Tensor) -> DualState:
        """The state with another alpha [N, 1], without factorisation."""
        mean = self.product(prior, -tf.convert_to_tensor(alpha))
        return state._replace(alpha=alpha, coefficients=alpha, mean=mean)

    def _state(self, mean: tf.Tensor, alpha: tf.Tensor, lam: tf.Tensor) -> DualState:
        alpha, lam = tf.convert_to_tensor(alpha), tf.convert_to_tensor(lam)
        factor = self.field.posterior_factor(np.asarray(lam)[:, 0])
        unused, variance, log_det = tf.zeros([0], self.dtype), tf.fill(tf.shape(lam), np.nan), 0.0
        if factor is not None:
            variance = self.field.variances_of(factor)[:, None]
            log_det = factor.log_det - self.factor.log_det
        return DualState(
            chol=unused,
            scale=unused,
            negative=unused,
            coefficients=alpha,
            ok=tf.constant(factor is not None),
            mean=mean,
            variance=tf.cast(variance, self.dtype),
            log_det=tf.constant(log_det, self.dtype),
            alpha=alpha,
            lam=lam,
        )


def no_direction(*_: object, **__: object) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Newton's steps need K and V [N, N], which a field does not form: none is found."""
    nothing = tf.zeros([])
    return nothing, nothing, tf.constant(False)
