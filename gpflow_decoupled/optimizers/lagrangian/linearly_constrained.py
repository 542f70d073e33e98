"""The linearly constrained Lagrangian: Khan 2014."""

from __future__ import annotations

__all__ = ["LinearlyConstrainedLagrangian"]

from functools import partial

import tensorflow as tf

from ...diagnostics.accuracy import warn_of_quadrature
from ...diagnostics.unusable_observation import unusable_observation
from ...errors import DataError, check_option
from ...inputs import check_rate, check_whole, is_number
from ...models import GMRF, LCLGP
from ...models.families import require_model
from ...summaries import settings_line, short_repr
from .class_newton import class_direction
from .dual import DualProblem
from .field_dual import FieldMultipliers, no_direction
from .first_multipliers import first_marginals
from .lagrangian_result import LagrangianRecord, LagrangianResult, warn_of_gap
from .newton import newton_direction
from .optimality_newton import stationary_direction
from .outer_iterations import OuterIterations, OuterSettings, Prepared
from .site_maximiser import check_dual

_LARGEST_NEWTON = 3000
"""Observations up to which "auto" uses Newton's method, whose steps form N x N matrices."""


class LinearlyConstrainedLagrangian:
    """Find the best q of an `LCLGP` at fixed hyperparameters by the LCL of Khan 2014.

    With class labels an outer iteration is a Newton step on the optimality conditions, 19/6 N^3 per
    class, or a site fixed point; `theta`, `inner`, `accelerate`, `trust_region` and `augmented`
    have no effect. A `GMRF` takes `inner="lbfgs"`, a sparse factorisation per evaluation.

    Cost per latent else: a Newton step about 2.5 N^3, an evaluation of L-BFGS-B 2/3 N^3; with
    form="weight" some 30 N p^2, or N p^2, and N p memory.

    :param theta: proximal weight rho = theta lambda; 1 in the paper, smaller for longer steps.
    :param inner: minimiser of the dual: "newton", "lbfgs" (SciPy's L-BFGS-B), or "auto": Newton up
        to 3000 observations, and for form="weight".
    :param tolerance: the run ends when outer iterations change the bound by fewer nats.
    :param accelerate: near the solution, take Newton steps on the optimality conditions, and site
        fixed points.
    :param trust_region: largest move of a lambda in a subproblem, in units of 1 + |lambda|.
    :param augmented: add the paper's (19)-(20), a term in sigma that grows after a refused step.
    :param curvature: add concave terms for sites that are not log-concave.
    :param sweeps: most site fixed points to improve a new start.
    :param max_outer: most outer iterations.
    :param compile: False runs eagerly, faster for few or very large steps.

    Example::

        model = LCLGP((X, Y), gpflow.kernels.Matern52(), gpflow.likelihoods.Poisson())
        result = LinearlyConstrainedLagrangian().run(model)
    """

    def __init__(
        self,
        theta: float = 0.1,
        inner: str = "auto",
        tolerance: float = 1e-4,
        accelerate: bool = True,
        trust_region: float | None = None,
        augmented: bool = False,
        *,
        curvature: bool = True,
        sweeps: int = 3,
        max_outer: int = 100,
        compile: bool = True,
    ) -> None:
        # accelerate: (V27) and (V22); curvature: (V20); sweeps: (V22)
        check_option("inner", inner, ("auto", "newton", "lbfgs"))
        if not is_number(theta) or theta < 0.0:
            raise DataError(
                f"theta={short_repr(theta)} must be at least 0; the paper's is 1, and 0.1 is"
                " faster."
            )
        check_rate(tolerance=tolerance)
        if trust_region is not None:
            check_rate(trust_region=trust_region)
        check_whole(0, sweeps=sweeps)
        check_whole(1, max_outer=max_outer)
        self.theta, self.inner, self.tolerance = float(theta), inner, float(tolerance)
        self.accelerate, self.trust_region, self.augmented = accelerate, trust_region, augmented
        self.curvature, self.sweeps, self.max_outer, self.compile = (
            curvature,
            sweeps,
            max_outer,
            compile,
        )

    def __repr__(self) -> str:
        return settings_line(self)

    def prepare(self, model: LCLGP | GMRF) -> Prepared:
        """Compile the functions of `run`, for runs alternating with hyperparameter steps.

        Raises the errors of `run`.
        """
        require_model("LinearlyConstrainedLagrangian.prepare", model, LCLGP, GMRF)
        is_field = isinstance(model, GMRF)
        if is_field and self.inner == "newton":
            raise DataError(
                'inner="newton" forms matrices [N, N], which a GMRF is made to avoid: use'
                ' inner="lbfgs".'
            )
        problem = DualProblem(FieldMultipliers(model) if is_field else model, self.compile)
        couples = problem.loss.couples
        try:
            if not couples:
                check_dual(problem.loss)
        except DataError as error:  # derivatives that overflow look like straight lines
            raise unusable_observation(model, None) or error from error
        if self.theta == 0.0 and bool(tf.reduce_any(problem.loss.penalised)):
            name = (
                type(model.likelihood).__name__
                if problem.loss.reference is None
                else "a Laplace density"
            )
            raise DataError(
                f"theta must be above 0: {name} needs a penalty, or its subproblems have no"
                " maximum."
            )
        if is_field:
            return Prepared(problem, no_direction, no_direction)
        stationary = class_direction if couples else stationary_direction
        directions = [partial(of, problem) for of in (newton_direction, stationary)]
        return Prepared(problem, *(problem.compiled(direction) for direction in directions))

    def run(
        self, model: LCLGP | GMRF, *, prepared: Prepared | None = None, progress: bool = False
    ) -> LagrangianResult:
        """Find the best multipliers at the model's hyperparameters, and leave the model there.

        Starts there, or at a new start if all are zero. An error changes nothing.

        :param model: an `LCLGP`, the result of `LCLGLM`, or a `GMRF`.
        :param prepared: `prepare(model)`, so that nothing is compiled twice; multipliers outside
            the new S are moved back.
        :param progress: show a progress bar.
        """
        require_model("LinearlyConstrainedLagrangian.run", model, LCLGP, GMRF)
        record, again = LagrangianRecord(), prepared is not None
        if prepared is None:
            prepared = self.prepare(model)
        elif getattr(prepared.problem.model, "field", prepared.problem.model) is not model:
            raise DataError(
                "prepared was made for another model: call prepare(model) for this one."
            )
        else:
            prepared.problem.refresh()
        view = prepared.problem.model
        # the sites of a field may come from other optimizers, outside of S
        project = again or isinstance(view, FieldMultipliers)
        at, start = first_marginals(prepared.problem, self.sweeps, self.tolerance, project=project)
        record.add(float(at.bound))
        settings = OuterSettings(
            self.theta,
            self.tolerance,
            self.accelerate,
            self.trust_region,
            self.augmented,
            self.curvature,
            self.max_outer,
            self.inner_solver(view),
        )
        result = OuterIterations(settings, prepared, record).iterate(at, start, progress)
        if isinstance(view, FieldMultipliers):
            view.write()
        warn_of_gap(result, self.tolerance)
        if not again:
            warn_of_quadrature(model, result.elbo)
        return result

    def inner_solver(self, model: LCLGP | GMRF | FieldMultipliers) -> str:
        """The minimiser of the duals of a model: "newton" or "lbfgs"."""
        if isinstance(model, FieldMultipliers):
            return "lbfgs"
        require_model("LinearlyConstrainedLagrangian.inner_solver", model, LCLGP, GMRF)
        if isinstance(model, GMRF):
            return "lbfgs"
        if self.inner != "auto":
            return self.inner
        large = (
            model.basis.geometry.forms_square_matrices and model.basis.num_data > _LARGEST_NEWTON
        )
        return "lbfgs" if large else "newton"
