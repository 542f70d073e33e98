"""Affine-independent models by L-BFGS."""

from __future__ import annotations

__all__ = ["AffineClimb", "has_gaussian_start"]

import time
import warnings
from dataclasses import replace

import numpy as np
import tensorflow as tf

from ...lbfgs import LBFGSRun, lbfgs_ascent, settled
from ...models import CVIGP, AffineIndependentGP
from ...optimizers import AffineIndependentAscent, AffineResult
from ...optimizers.affine_independent.affine_objective import (
    as_vector,
    assign_vector,
    compiled_objective,
)
from ...optimizers.affine_independent.climb_coordinates import ClimbCoordinates
from ..keras import hyperparameters_of
from .sites_climb import SitesClimb, has_best_sites
from .stage import Budget, Report, Stage

_SETTLED = 0.05
"""Nats by which 2 may miss what is promised, and which six iterations of 3 gain at its end."""


def has_gaussian_start(model: AffineIndependentGP) -> bool:
    """True if a full GP of sites has the same prior and likelihood: no weights, inducing points or
    sampled expectations.
    """
    if model.weight_priors is not None or model.basis.size != len(model.data[0]):
        return False
    return has_best_sites(_gaussian(model))


class AffineClimb(Stage):
    """L-BFGS on the bound over hyperparameters and q together, in one step.

    1. The best Gaussian q, and hyperparameters by `SitesClimb` on its bound.
    2. A better q at these hyperparameters, by `AffineIndependentAscent`. Often the rotated Gaussian
       with its shapes reaches the predicted gain, and ends the run.
    3. Both together, in coordinates that whiten q.

    :param evaluations: most of 1, and of 3.
    :param compile: False evaluates the expectations of 1 eagerly.
    """

    def __init__(self, model: AffineIndependentGP, evaluations: int, compile: bool = True) -> None:
        self.model, self.evaluations = model, evaluations
        self.gaussian = SitesClimb(_gaussian(model), evaluations, compile)

    @property
    def _q(self) -> list[tf.Variable]:
        basis = self.model.basis
        return [*basis.map.variables, *basis.b.variables, *basis.theta.variables]

    @property
    def variables(self) -> list[tf.Variable]:
        return [*self._q, *self.gaussian.coordinates.variables]

    def prepare(self, X: tf.Tensor, Y: tf.Tensor, seed: tf.Tensor) -> None:
        self.gaussian.prepare(X, Y, seed)

    def run(self, budget: Budget) -> Report:
        deadline = budget.clock.deadline(budget.until)
        # half of the time is left for the q that is not Gaussian
        half = replace(budget, until=0.5 * (budget.clock.share + budget.until))
        reason, before, rise = self.gaussian.climb(half)
        basis = self.model.basis
        base, theta = basis.base, basis.theta
        try:
            found = self._ascended()
        except BaseException:  # the ascent tries a normal base, and may break off at it
            basis.base, basis.theta = base, theta
            raise
        bound = found.elbo
        climbed = np.sum(found.history["stage"]) > 1
        if climbed and hyperparameters_of(self.model) and time.perf_counter() < deadline:
            together = self._together(budget, deadline)
            reason, rise, bound = together.reason, together.rise, float(self.model.elbo())
        return Report.of_climb(bound, reason, deadline, before, rise)

    def _ascended(self) -> AffineResult:
        more = hyperparameters_of(self.model)
        ascent = AffineIndependentAscent(_SETTLED) if more else AffineIndependentAscent()
        nu, tau = (site.numpy()[:, 0].astype(float) for site in self.gaussian.model.sites)
        return ascent.run_from(self.model, (nu, tau))

    def _together(self, budget: Budget, deadline: float) -> LBFGSRun:
        model, basis = self.model, self.model.basis
        moved = {variable.ref() for variable in hyperparameters_of(model)}
        variables = [
            *basis.map.trainable_variables,
            *basis.b.trainable_variables,
            *basis.theta.trainable_variables,
            *(v for v in model.trainable_variables if v.ref() in moved),
        ]

        def objective() -> tf.Tensor:
            return model.bound(model.site_groups()) + model.log_prior_density()

        A = basis.matrix().numpy()
        root = np.linalg.cholesky(A @ A.T) if basis.structure != "low_rank" else None
        frame = ClimbCoordinates(basis, root, variables)
        has_settled = settled(_SETTLED)

        def show(value: float, _: int) -> None:
            budget.clock.show(f"L-BFGS on q and the rest, {value - budget.clock.shift:.6g} nats")

        run = lbfgs_ascent(
            frame.around(compiled_objective(objective, variables)),
            frame.inward(as_vector(variables)),
            lambda values: has_settled(values) or time.perf_counter() >= deadline,
            self.evaluations,
            record=show,
            keep=True,
            advice="standardise X and Y.",
            matrix="A",
        )
        assign_vector(variables, frame.outward(run.x))
        return run


def _gaussian(model: AffineIndependentGP) -> CVIGP:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of the data, which the model has said
        return CVIGP(model.data, model.kernel, model.likelihood, mean_function=model.mean_function)
