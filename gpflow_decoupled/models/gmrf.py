"""Gaussian Markov random fields."""

from __future__ import annotations

__all__ = ["GMRF", "FieldState", "SiteParameters"]

from typing import NamedTuple

import gpflow
import numpy as np
import numpy.typing as npt
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.config import default_float
from gpflow.likelihoods import Likelihood
from gpflow.models import BayesianModel
from scipy import sparse

from ..errors import DataError, NumericalError
from ..inputs import as_values, check_finite_entries, check_type
from ..likelihoods import check_labels
from ..likelihoods.log_densities import expected_log_densities
from ..likelihoods.site_loss import check_one_latent
from ..linalg.sparse_precision import SparseFactor, SparsePattern
from ..summaries import short_repr
from .checks import check_likelihood

_SYMMETRIC = 1e-10
"""Largest difference of a precision and its transpose, as a share of the largest entry."""


class FieldState(NamedTuple):
    """q(x) for some sites."""

    factor: SparseFactor
    """Of P = Q + A^T diag(tau) A."""
    weights: AnyNDArray
    """Mean of x [p]."""
    mean: AnyNDArray
    """Mean of eta = A x at the observations [N, 1], without the offset."""
    variance: AnyNDArray
    """Variance of eta [N, 1]."""
    divergence: float
    """KL[q || prior], nats."""


class SiteParameters(gpflow.base.Module):
    """Site precisions times site means nu [N, 1], and site precisions tau [N, 1]."""

    # The start, precisions of one, leaves no eta with a variance above one: under a broad prior the
    # expectations of counts would overflow.

    def __init__(self, num_data: int) -> None:
        super().__init__()
        self.nu = gpflow.Parameter(np.zeros((num_data, 1)))
        self.tau = gpflow.Parameter(np.ones((num_data, 1)))


class GMRF(BayesianModel):
    """y_n ~ p(y | eta_n), eta = A x + offset, x ~ N(0, Q^-1) with a sparse precision Q [p, p].

    Areal models, random walks and mixed effects (Khan 2014, section 2). q(x) is the prior times a
    site per observation, with exact marginal variances. `ConjugateComputation` finds the sites,
    `LinearlyConstrainedLagrangian` more slowly. Q and likelihood are fixed; compare them by `elbo`.
    On a lattice of p areas a step costs about p^1.5, and memory p log p.

    :param precision: Q, a symmetric positive definite SciPy matrix [p, p]; add a small diagonal to
        a singular one.
    :param Y: labels [N, 1].
    :param likelihood: with one latent per observation.
    :param design: A [N, p], sparse or dense; by default the identity.
    :param offset: of eta, [N] or [N, 1], say the log of expected counts; by default zero.

    Example, counts on a chain of 100 places::

        steps = sparse.diags([-1.0, 1.0], [0, 1], (99, 100))
        model = GMRF(steps.T @ steps + 0.1 * sparse.eye(100), Y, gpflow.likelihoods.Poisson())
        ConjugateComputation().run(model)
        mean, variance = model.predict_x()
    """

    def __init__(
        self,
        precision: sparse.spmatrix,
        Y: npt.ArrayLike,
        likelihood: Likelihood,
        *,
        design: sparse.spmatrix | npt.ArrayLike | None = None,
        offset: npt.ArrayLike | None = None,
    ) -> None:
        super().__init__()
        check_likelihood(likelihood)
        check_one_latent(likelihood)
        self.likelihood = likelihood
        self.precision = _symmetric(precision)
        labels = _as_labels(Y)
        check_labels(likelihood, labels)
        self.Y = tf.constant(labels, default_float())
        self.design = self._as_design(design, len(labels))
        self.offset = tf.constant(_as_offset(offset, len(labels)), default_float())
        shape = abs(self.precision) + abs(self.design).T @ abs(self.design)
        self._pattern = SparsePattern(shape)
        prior = self._pattern.factor(self.precision)
        if prior is None:
            raise DataError(
                "The precision is not positive definite: add a small diagonal, for example"
                " precision + 1e-6 * scipy.sparse.eye(p)."
            )
        self._log_det = prior.log_det
        self.basis = SiteParameters(len(labels))

    @property
    def float_type(self) -> tf.DType:
        """The type of the labels."""
        return self.Y.dtype

    def state_at(self, nu: npt.ArrayLike, tau: npt.ArrayLike) -> FieldState | None:
        """q(x) for sites nu, tau [N, 1]; None if its precision is not positive definite."""
        nu, tau = (np.asarray(part, float)[:, 0] for part in (nu, tau))
        A, factor = self.design, self.posterior_factor(tau)
        if factor is None:
            return None
        weights = factor.solve(A.T @ nu)
        variance = self.variances_of(factor)
        quadratic = weights @ (self.precision @ weights)
        log_ratio = factor.log_det - self._log_det
        divergence = 0.5 * (log_ratio - tau @ variance + quadratic)  # (C71)
        return FieldState(
            factor, weights, (A @ weights)[:, None], variance[:, None], float(divergence)
        )

    def posterior_factor(self, tau: npt.ArrayLike) -> SparseFactor | None:
        """The factor of P = Q + A^T diag(tau) A, tau [N]; None if P is not positive definite."""
        A = self.design
        # tau may have zeros, so that products need not have all entries of the pattern
        return self._pattern.factor(self.precision + A.T @ sparse.diags(np.asarray(tau)) @ A)

    def variances_of(self, factor: SparseFactor) -> AnyNDArray:
        """diag(A P^-1 A^T) [N] for the factor of a precision P on the same pattern."""
        A = self.design
        return np.asarray(A.multiply(A @ factor.inverse_entries()).sum(axis=1))[:, 0]

    def expected_log_densities(self, mean: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
        """E log p(y_n | eta_n) [N] in nats, for moments of A x [N, 1]."""
        nothing = tf.zeros([len(self.Y), 0], self.Y.dtype)
        centred = mean + self.offset
        return expected_log_densities(self.likelihood, nothing, centred, variance, self.Y)

    def elbo(self) -> tf.Tensor:
        """The evidence lower bound in nats, a scalar."""
        state = self._state()
        mean, variance = (tf.constant(part, self.Y.dtype) for part in (state.mean, state.variance))
        return tf.reduce_sum(self.expected_log_densities(mean, variance)) - state.divergence

    @tf.autograph.experimental.do_not_convert
    def maximum_log_likelihood_objective(self) -> tf.Tensor:
        """The bound: see `elbo`."""
        return self.elbo()

    def predict_x(self) -> tuple[AnyNDArray, AnyNDArray]:
        """Means and exact variances [p] of x under q."""
        state = self._state()
        return state.weights, state.factor.inverse_entries().diagonal()

    def predict_f(
        self,
        design: sparse.spmatrix | npt.ArrayLike | None = None,
        offset: npt.ArrayLike | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Means and variances [N*, 1] of eta; a solve per row for a new design.

        :param design: A [N*, p]; by default the model's.
        :param offset: [N*] or [N*, 1]; by default the model's, or zero with a new design.
        """
        state = self._state()
        if design is None:
            mean, variance, rows = state.mean, state.variance, len(self.Y)
        else:
            A = self._as_design(design, None)
            rows = A.shape[0]
            mean = (A @ state.weights)[:, None]
            solved = state.factor.solve(A.T.toarray())
            variance = np.asarray(A.multiply(solved.T).sum(axis=1))
        shift = self.offset if design is None and offset is None else _as_offset(offset, rows)
        return tf.constant(mean, self.Y.dtype) + shift, tf.constant(variance, self.Y.dtype)

    def predict_y(
        self,
        design: sparse.spmatrix | npt.ArrayLike | None = None,
        offset: npt.ArrayLike | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Means and variances [N*, 1] of y; see `predict_f`."""
        mean, variance = self.predict_f(design, offset)
        nothing = tf.zeros([len(mean), 0], mean.dtype)
        return self.likelihood.predict_mean_and_var(nothing, mean, variance)

    def _state(self) -> FieldState:
        state = self.state_at(self.basis.nu, self.basis.tau)
        if state is None:
            raise NumericalError(
                "The posterior precision Q + A^T diag(tau) A is not positive definite: set nu and"
                " tau of the basis to zero and run ConjugateComputation again.",
                matrix="Q + A^T diag(tau) A",
            )
        return state

    def _as_design(
        self, design: sparse.spmatrix | npt.ArrayLike | None, rows: int | None
    ) -> sparse.csr_matrix:
        columns = self.precision.shape[0]
        if design is None:
            design = sparse.eye(columns)
        found = sparse.csr_matrix(design, dtype=float)
        if found.shape[1] != columns or rows not in (None, found.shape[0]):
            wanted = "N*" if rows is None else rows
            raise DataError(
                f"design has shape {found.shape}; it must be [{wanted}, {columns}], a row for each"
                " observation and a column for each row of the precision."
            )
        if not np.all(np.isfinite(found.data)):
            raise DataError("design has entries that are not finite numbers; remove these rows.")
        return found


def _as_labels(Y: npt.ArrayLike) -> AnyNDArray:
    labels = as_values(Y, "Y", default_float())
    if labels.ndim != 2 or not len(labels):
        raise DataError(f"Y has shape {labels.shape}; it must be [N, 1]: use Y[:, None].")
    if labels.shape[1] != 1:
        raise DataError(
            f"Y has {labels.shape[1]} columns; it must be [N, 1]: make a GMRF of each column,"
            " Y[:, :1] and so on."
        )
    check_type(labels, "Y", labels=True)
    check_finite_entries(labels, "Y")
    return labels


def _symmetric(precision: sparse.spmatrix) -> sparse.csc_matrix:
    if not (sparse.issparse(precision) and precision.shape[0] == precision.shape[1]):
        raise DataError(
            f"precision={short_repr(precision)} must be a square SciPy matrix: use"
            " scipy.sparse.csc_matrix(precision)."
        )
    if not precision.shape[0]:
        raise DataError("precision has shape (0, 0): a field has one place or more.")
    found = sparse.csc_matrix(precision, dtype=float)
    if not np.all(np.isfinite(found.data)):
        raise DataError("precision has entries that are not finite numbers.")
    if abs(found - found.T).max() > _SYMMETRIC * abs(found).max():
        raise DataError(
            "precision is not symmetric: use 0.5 * (precision + precision.T) if that is meant."
        )
    return found


def _as_offset(offset: npt.ArrayLike | None, rows: int) -> np.ndarray:
    if offset is None:
        return np.zeros((rows, 1))
    found = np.asarray(as_values(offset, "offset", default_float()))
    if found.shape not in {(rows,), (rows, 1)}:
        raise DataError(
            f"offset has shape {found.shape}; it must be [{rows}], one per observation."
        )
    if not np.all(np.isfinite(found)):
        raise DataError("offset has entries that are not finite numbers.")
    return found.reshape(-1, 1)
