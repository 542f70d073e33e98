"""The bound over alpha and lambda."""

# With f_h and gamma = f_sigma / sigma the derivatives of the site losses at the marginals, (V21)
#
#   dF / dalpha = K (f_h - alpha),   dF / dlambda = 1/2 (V * V)(gamma - lambda)

from __future__ import annotations

__all__ = ["OpperArchambeau"]

import numpy as np
import tensorflow as tf
from gpflow.optimizers import Scipy

from ...diagnostics.accuracy import warn_of_quadrature
from ...diagnostics.failure import naming_observation
from ...inputs import check_rate, check_whole
from ...lbfgs import lbfgs_ascent, settled
from ...models import LCLGP
from ...models.families import require_model
from ...summaries import settings_line
from .dual import DualProblem
from .linearly_constrained import LagrangianRecord, LagrangianResult
from .subproblem import NOT_FINITE, first_marginals


class OpperArchambeau:
    """Maximise the bound over alpha and lambda by L-BFGS (Opper & Archambeau 2009).

    Finds the q of `LinearlyConstrainedLagrangian` more slowly: for comparison, and for site losses
    without a dual. Cost of an evaluation per latent: 5/3 N^3, or in weight space 3 N p^2.

    :param tolerance: the run ends when six iterations gain less, in nats; with little noise the
        bound may be some nats low.
    :param max_evaluations: of the bound and its gradient.
    :param compile: False runs eagerly.

    Example::

        model = LCLGP((X, Y), gpflow.kernels.Matern52(), gpflow.likelihoods.Poisson())
        result = OpperArchambeau().run(model)
    """

    def __init__(
        self, tolerance: float = 1e-4, max_evaluations: int = 5000, compile: bool = True
    ) -> None:
        check_rate(tolerance=tolerance)
        check_whole(1, max_evaluations=max_evaluations)
        self.tolerance, self.max_evaluations, self.compile = (
            float(tolerance),
            max_evaluations,
            compile,
        )

    def __repr__(self) -> str:
        return settings_line(self)

    def run(self, model: LCLGP) -> LagrangianResult:
        """Maximise the bound from the model's multipliers, or from a new start if all are zero.

        :param model: an `LCLGP`, or the result of `LCLGLM`; left at the best multipliers.
        """
        require_model("OpperArchambeau.run", model, LCLGP)
        record, problem = LagrangianRecord(), DualProblem(model, self.compile)
        at, _ = first_marginals(problem, 0, self.tolerance)
        centred = problem.marginals(tf.zeros_like(at.alpha), at.lam)
        fresh = not np.any(np.asarray(model.basis.alpha)) and not np.any(
            np.asarray(model.basis.lam)
        )
        if fresh and bool(centred.ok):
            at = centred  # the alpha of a start for the dual gives no sensible mean
        multipliers = [at.alpha, at.lam]
        gradient = problem.compiled(lambda alpha, lam: _value_and_gradient(problem, alpha, lam))

        def value_and_gradient(x: np.ndarray) -> tuple[float, np.ndarray]:
            value, *parts = gradient(*Scipy.unpack_tensors(multipliers, tf.constant(x)))
            return float(value), Scipy.pack_tensors(parts).numpy().astype(float)

        start = Scipy.pack_tensors(multipliers).numpy().astype(float)
        # lambda stays at 0 or above where the likelihood is log-concave
        bumpy = np.asarray(tf.convert_to_tensor(problem.loss.curvature) > 0.0)
        low = np.concatenate(
            [np.full(start.size // 2, -np.inf), np.where(bumpy, -np.inf, 0.0).ravel()]
        )
        with naming_observation(model):
            found = lbfgs_ascent(
                value_and_gradient,
                start,
                settled(self.tolerance),
                self.max_evaluations,
                low=low,
                record=record.add,
                advice=NOT_FINITE,
                matrix="K",
            )
        alpha, lam = Scipy.unpack_tensors(multipliers, tf.constant(found.x))
        problem.write_best([(alpha, lam)])
        result = record.result(found.converged, found.reason)
        warn_of_quadrature(model, result.elbo)
        return result


def _value_and_gradient(
    problem: DualProblem, alpha: tf.Tensor, lam: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """F and its gradient in alpha and lam [N, L] (V21); NaN without V."""
    at = problem._marginals(alpha, lam)
    loss = problem.expand(at.mean, at.deviation)
    geometry, prior = problem.geometry, problem.prior
    g_alpha = geometry.product(prior, loss.d_h - alpha)  # (V21)
    gap = tf.transpose(loss.d_s / at.deviation - lam)
    g_lam = 0.5 * tf.transpose(geometry.squared_covariance_product(prior, at.state, gap))  # (V21)
    nothing = tf.constant(float("nan"), at.bound.dtype)
    return tf.where(at.ok, at.bound, nothing), g_alpha, g_lam
