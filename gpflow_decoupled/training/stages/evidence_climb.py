"""Exact GPs by L-BFGS on the log evidence."""

from __future__ import annotations

__all__ = ["EvidenceClimb", "has_evidence"]


import numpy as np
import tensorflow as tf
from gpflow.kernels import LinearCoregionalization
from gpflow.likelihoods import Gaussian

from ...errors import NumericalError
from ...lbfgs import CONVERGED
from ...likelihoods.parameters import noise_variance_at
from ...linalg.cholesky import unsound
from ...models import CVIGP, StateSpaceGP
from ...models.neighbours.evidence import log_evidence_of
from ...optimizers.array_evidence import array_evidence
from ...optimizers.log_climb import FAR, climb_logarithms
from ...optimizers.log_coordinates import coordinates_of
from ...optimizers.log_objective import LogObjective
from ..keras import hyperparameters_of
from .stage import Budget, Report, Stage

_SETTLED, _WINDOW = 1e-6, 3
"""The climb ends if this number of iterations gained less than this many nats per row."""


def has_evidence(model: object) -> bool:
    """True for a full GP whose best sites are known in closed form: Gaussian noise, f not mixed."""
    mixed = isinstance(getattr(model, "kernel", None), LinearCoregionalization)
    return isinstance(model, CVIGP) and type(model.likelihood) is Gaussian and not mixed


class EvidenceClimb(Stage):
    """L-BFGS on log N(y; m, K + s^2 I), and the sites of the exact posterior.

    One turn and one step. An evaluation costs N^3 per latent, of a `StateSpaceGP` two loops over
    the rows. Usual kernels and means are evaluated as arrays, others as a graph. Noise may be a
    function of the inputs.
    """

    def __init__(self, model: CVIGP, evaluations: int, compile: bool = True) -> None:
        self.model, self.evaluations = model, evaluations
        self.coordinates = coordinates_of(model, hyperparameters_of(model))
        chain = isinstance(model, StateSpaceGP)
        self.on_arrays = None if chain else array_evidence(model, self.coordinates)
        self.in_graph: LogObjective | None = None
        if self.on_arrays is None:
            density = model.log_evidence if chain else log_evidence_of(model, model.data)
            moved = self.coordinates.variables
            self.in_graph = LogObjective.of_model(model, moved, density, compile)

    @property
    def variables(self) -> list[tf.Variable]:
        return [*self.coordinates.variables, *self.model.site_variables]

    def prepare(self, X: tf.Tensor, Y: tf.Tensor, seed: tf.Tensor) -> None:
        if self.in_graph is not None and self.coordinates.variables:
            list(self.in_graph.terms())

    def run(self, budget: Budget) -> Report:
        deadline = budget.clock.deadline(budget.until)
        reason = CONVERGED
        before: tuple[float, ...] = ()
        bound: float | None = None
        rise = 0.0
        try:
            objective = self.on_arrays or self.in_graph
            if objective is not None and self.coordinates.variables:
                arrays = self.on_arrays
                found = climb_logarithms(
                    objective,
                    self.coordinates,
                    self.model.basis.num_data,
                    evaluations=self.evaluations,
                    deadline=deadline,
                    show=budget.clock.show,
                    name="L-BFGS on the evidence",
                    tolerance=_SETTLED,
                    window=_WINDOW,
                    rise=np.inf if arrays is None else arrays.rise(),
                    fall=FAR if arrays is None else arrays.fall,
                    matrix="k(X, X) + noise",
                    shift=budget.clock.shift,
                )
                reason, before, rise = found.reason, (found.start,), found.rise
                # without priors, the evidence is the bound at the sites that follow
                bound = None if self.on_arrays is None else found.value
        except NumericalError as error:
            if (cause := unsound(self.model.basis.matrices(self.model.kernel))) is not None:
                raise cause from error
            raise
        finally:
            self._set_sites()
        bound = self.model.elbo() if bound is None else bound
        return Report.of_climb(bound, reason, deadline, before, rise)

    def _set_sites(self) -> None:
        X, Y = self.model.data
        residual = Y - self.model.mean_function(X)
        noise = tf.zeros_like(residual) + noise_variance_at(self.model.likelihood, X)
        self.model.basis.nu.assign(residual / noise)
        self.model.basis.tau.assign(1.0 / noise)
