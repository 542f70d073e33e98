"""The bound as a function of alpha and lambda, climbed by L-BFGS: Opper & Archambeau 2009.

    dF / dalpha = K (f_h - alpha),   dF / dlambda = 1/2 (V * V)(gamma - lambda)                              (V21)

Not concave, and slow where K is badly conditioned: both gradients are multiplied by it.
"""

from __future__ import annotations

__all__ = ["Opper"]

import numpy as np
import tensorflow as tf

from ...errors import DataError
from ...linalg.coupled_roots import squared_gram_product
from ...models import LCLGP
from .dual import DualProblem
from .result import LagrangianResult, Trace
from .scipy_ascent import ascend, write_multipliers
from .start import first_marginals


class Opper:
    """The two parameters an observation of Opper & Archambeau, as in `gpflow.models.VGPOpperArchambeau`.

    :param tolerance: on the change of the bound in an iteration, in nats.
    :param max_evaluations: of the bound and its gradient. :param compile: False runs eagerly.

    Raises `DataError` for settings out of range. Cost of an evaluation: 5/3 N^3 a latent, or 3 N p^2.
    """

    def __init__(self, tolerance: float = 1e-4, max_evaluations: int = 5000, compile: bool = True) -> None:
        if not tolerance > 0.0 or max_evaluations < 1:
            raise DataError(
                f"tolerance={tolerance!r} must be above 0 and max_evaluations={max_evaluations!r} at least 1."
            )
        self.tolerance, self.max_evaluations, self.compile = float(tolerance), max_evaluations, compile

    def run(self, model: LCLGP) -> LagrangianResult:
        """Climb from the model's multipliers, or from nothing where they are all zero; the model is left at the best.

        Raises as `LinearlyConstrainedLagrangian.run`.
        """
        trace, problem = Trace(), DualProblem(model, self.compile)
        at, _ = first_marginals(problem, 0, self.tolerance)
        centred = problem.marginals(tf.zeros_like(at.alpha), at.lam)
        fresh = not np.any(np.asarray(model.basis.alpha)) and not np.any(np.asarray(model.basis.lam))
        if fresh and bool(centred.ok):
            at = centred  # the multipliers of a start for the dual give no sensible mean
        bumpy = np.asarray(tf.convert_to_tensor(problem.loss.curvature) > 0.0)
        low = np.concatenate([np.full(at.alpha.shape, -np.inf).ravel(), np.where(bumpy, -np.inf, 0.0).ravel()])
        shape = at.alpha.shape
        gradient = problem.compiled(lambda alpha, lam: _value_and_gradient(problem, alpha, lam))

        def value_and_gradient(x: np.ndarray) -> tuple[float, np.ndarray]:
            value, *parts = gradient(*(tf.constant(part.reshape(shape)) for part in np.split(x, 2)))
            return float(value), np.concatenate([part.numpy().ravel() for part in parts])

        start = np.concatenate([at.alpha.numpy().ravel(), at.lam.numpy().ravel()])
        best, reason = ascend(value_and_gradient, start, low, trace, self.tolerance, self.max_evaluations)
        alpha, lam = (tf.constant(part.reshape(shape)) for part in np.split(best, 2))
        write_multipliers(problem, [(alpha, lam)])
        return trace.result(reason)


def _value_and_gradient(problem: DualProblem, alpha: tf.Tensor, lam: tf.Tensor) -> tuple:
    """F and (V21); F is NaN where V does not exist."""
    at = problem._marginals(alpha, lam)
    loss = problem.expand(at.mean, at.deviation)
    basis, prior = problem.basis, problem.prior
    g_alpha = -basis.mean_at(prior, loss.d_h - alpha)  # (V21)
    gap = tf.transpose(loss.d_s / at.deviation - lam)
    if basis.form == "weight":
        pulled = squared_gram_product(basis.root(prior, at.state), gap)
    else:
        pulled = tf.linalg.matvec(tf.square(basis.covariance(prior, at.state)), gap)
    g_lam = 0.5 * tf.transpose(pulled)  # (V21)
    nothing = tf.constant(float("nan"), at.bound.dtype)
    return tf.where(at.ok, at.bound, nothing), g_alpha, g_lam
