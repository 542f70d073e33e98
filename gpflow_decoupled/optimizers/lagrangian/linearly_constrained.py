"""The linearly constrained Lagrangian: Khan 2014."""

from __future__ import annotations

__all__ = [
    "LagrangianRecord", "LagrangianResult", "LinearlyConstrainedLagrangian", "OuterIterations",
    "Prepared", "warn_of_gap",
]  # fmt: skip

import math
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from tqdm.auto import tqdm

from ...diagnostics.accuracy import warn_of_quadrature
from ...diagnostics.failure import unusable_observation
from ...errors import DataError, check_option
from ...inputs import check_rate, check_whole, is_number
from ...likelihoods.facts import name_of
from ...linalg.newton_systems import RIDGE
from ...models import GMRF, LCLGP
from ...models.families import require_model
from ...summaries import settings_line, short_repr
from ...user_warnings import warn_user
from ..ascent import STUCK, Recorder, RunResult
from .dual import (
    Direction,
    DualPoint,
    DualProblem,
    FieldMultipliers,
    Marginals,
    check_dual,
    newton_direction,
    newton_solve,
    no_direction,
)
from .subproblem import (
    Policy,
    class_direction,
    first_marginals,
    inside,
    lbfgs_solve,
    make_subproblem,
    more_cautious,
    moved_into,
    stationary_direction,
    stationary_step,
)

# ---
# Result and record of a run over multipliers.


@dataclass(kw_only=True, repr=False)
class LagrangianResult(RunResult):
    """Result of the optimizers of an `LCLGP`.

    `history` has arrays [steps + 1] that begin with the start: "step", "seconds", "elbo" (nats),
    "inner_steps" (Newton steps or evaluations) and "gap" (duality gap in nats, or NaN).

    Example::

        result = LinearlyConstrainedLagrangian().run(model)
        print(result.elbo, result.converged, result.history["elbo"])
    """

    @property
    def inner_steps(self) -> int:
        """Total Newton steps, or evaluations of the bound."""
        return int(np.sum(self.history["inner_steps"]))

    def __str__(self) -> str:
        return (
            f"{self.steps} outer, {self.inner_steps} inner steps in {self.seconds:.2f} s, ELBO"
            f" {self.elbo:.6g}, stopped: {self.reason}"
        )


class LagrangianRecord(Recorder):
    """The history of a running optimizer of multipliers."""

    def __init__(self) -> None:
        super().__init__("elbo", "inner_steps", "gap")

    def add(self, elbo: float, inner_steps: int = 0, gap: float = float("nan")) -> None:
        """Record the bound in nats, and the cost since the entry before."""
        self.append(len(self), elbo=elbo, inner_steps=inner_steps, gap=gap)

    def result(self, reason: str, elbo: float | None = None) -> LagrangianResult:
        """Return the result; `elbo` is by default the best of the history."""
        if elbo is None:
            elbo = float(np.nanmax(self.history["elbo"]))
        found = self.finish(LagrangianResult, elbo, reason)
        found.steps -= 1  # the first row is the start
        return found


def warn_of_gap(result: LagrangianResult, tolerance: float) -> None:
    """Warn if the run got stuck at a duality gap above `tolerance` nats."""
    gaps = result.history["gap"]
    last = float(np.append(0.0, gaps[~np.isnan(gaps)])[-1])
    if result.reason != STUCK or abs(last) <= tolerance:
        return
    warn_user(
        f"The run ended at a bound of {result.elbo:.6g} nats, which is not the best one: no step"
        f" raised it any more, but a duality gap of {last:.3g} nats says that the last subproblem"
        " was not solved. Go on from here with CholeskyKL, which maximises the bound itself, or"
        ' with LinearlyConstrainedLagrangian(inner="lbfgs").',
    )


# ---
# Outer iterations: Khan 2014, Algorithm 1.


# The solution of a subproblem (V13), which touches the bound from below, raises the bound from any
# start for a log-concave likelihood, and with the terms (V20) for others.


_GAP = 0.5
"""A subproblem is solved when its duality gap is below this share of its gain."""
_NEAR, _RETRY = 0.02, 0.1
"""Newton steps on (V11) begin below this duality gap, in nats per observation.

After a failure they are tried again below the second share of the gap at which it happened.
"""
_REGULAR = 100.0
"""Falling changes are extrapolated once one is below this many tolerances."""
_LEAST_SHARE, _SWEEP_TRIALS = 0.5**6, 7
"""Shortest step of the site fixed point, and the number of lengths tried."""
_ROUND_OFF = 1e-12  # relative fall of the bound that is no fall
_MAX_REFUSALS = 12  # more cautious subproblems before a run is stuck


class Prepared(NamedTuple):
    """Compiled functions of runs on one model, see `LinearlyConstrainedLagrangian.prepare`."""

    problem: DualProblem
    direction: Direction
    stationary: Direction


class _Iteration(NamedTuple):
    new: Marginals
    start: tuple[tf.Tensor, tf.Tensor]
    """(h, sigma) [N, L], the next start of the sites' maximisation."""
    inner: int
    """Newton steps, or evaluations."""
    gap: float
    """NaN without a subproblem."""
    violation: float = 0.0
    """The largest |sigma* - sqrt v|."""


class OuterIterations:
    """A run from one start; it keeps what the next iteration depends on.

    :param solver: of the subproblems: "newton" or "lbfgs".
    :param record: receives the bound of each iteration.
    """

    def __init__(
        self,
        settings: LinearlyConstrainedLagrangian,
        solver: str,
        prepared: Prepared,
        record: LagrangianRecord,
    ) -> None:
        problem, self.direction, self.stationary = prepared
        self.settings, self.problem, self.record, self.solver = settings, problem, record, solver
        radius = math.inf if settings.trust_region is None else float(settings.trust_region)
        ridge = RIDGE if self.solver == "newton" else math.inf
        self.policy = Policy(
            settings.theta, settings.curvature, 0.0 if settings.augmented else None, radius, ridge
        )
        self.not_concave = bool(tf.reduce_any(tf.convert_to_tensor(problem.loss.curvature) > 0.0))
        self.minorises = settings.curvature or not self.not_concave
        self.couples = problem.loss.couples
        self.fast = self.couples or (
            settings.accelerate
            and self.minorises
            and not settings.augmented
            and settings.trust_region is None
        )
        # the gap below which (V27) is tried
        self.near = _NEAR * problem.basis.num_data * problem.basis.num_latent_gps
        if self.couples:
            self.near = math.inf
        self.violation = self.change = self.gap = math.inf  # of the last outer iteration
        # step length of the next site fixed point, and what it has to gain
        self.share, self.gain = 1.0, settings.tolerance
        # whether a subproblem found no step, and the bound there
        self.stuck, self.stuck_at = False, -math.inf

    def iterate(
        self, at: Marginals, start: tuple[tf.Tensor, tf.Tensor], progress: bool
    ) -> LagrangianResult:
        """Run outer iterations from marginals `at`, with sites maximised from `start` [N, L]."""
        best, refused, converged, reason = at, 0, False, "outer iterations done"
        for _ in tqdm(range(self.settings.max_outer), disable=not progress, desc="LCL"):
            # 1) The fastest step that applies here.
            found = self._stationary(at) or self._swept(at) or self._subproblem(at, start)
            new, change = found.new, float(found.new.bound - at.bound)
            self.record.add(float(new.bound), found.inner, found.gap)
            if bool(new.ok) and float(new.bound) > float(best.bound):
                best = new
            converged = self._settled(change) and not abs(found.gap) >= self.settings.tolerance
            # 2) End, or after a refusal make the next subproblem more cautious.
            if converged or not self._accepts(found, change) or found.inner == 0:
                if not converged and found.inner == 0 and self._may_sweep(at):
                    continue
                refused, cautious = refused + 1, more_cautious(self.policy)
                if converged or cautious is None or refused > _MAX_REFUSALS:
                    reason = "converged" if converged else STUCK
                    break
                self.policy, self.violation = cautious, math.inf
                continue
            # 3) Go on from there.
            at, start, refused = new, found.start, 0
            self.change, self.gap = change, found.gap
        basis = self.problem.basis
        basis.alpha.assign(best.alpha)
        basis.lam.assign(best.lam)
        return self.record.result(reason)

    def _stationary(self, at: Marginals) -> _Iteration | None:
        if not self.fast or abs(self.gap) > self.near:
            return None
        new = stationary_step(
            self.problem, at, self.stationary, _ROUND_OFF * (1.0 + abs(float(at.bound)))
        )
        if new is None:
            self.near = _RETRY * (self.near if math.isnan(self.gap) else abs(self.gap))
            return None
        return _Iteration(new, (new.mean, new.deviation), 1, math.nan)

    def _swept(self, at: Marginals) -> _Iteration | None:
        """A site fixed point (V22) that gains more than the last subproblem, or None."""
        # Tried for sites that are not log-concave, and after a subproblem without a step.
        if not self.fast or not (self.not_concave or self.stuck or self.couples):
            return None
        for _ in range(_SWEEP_TRIALS if self.stuck or self.couples else 1):
            new = inside(
                self.problem, self.problem.sweep(at, tf.constant(self.share, at.lam.dtype))
            )
            if bool(new.ok) and float(new.bound - at.bound) > self.gain:
                self.share = min(1.0, 2.0 * self.share)
                return _Iteration(new, (new.mean, new.deviation), 1, math.nan)
            self.share = max(_LEAST_SHARE, 0.5 * self.share)
        self.stuck = False
        return None

    def _may_sweep(self, at: Marginals) -> bool:
        self.stuck, self.stuck_at = float(at.bound) > self.stuck_at, float(at.bound)
        return self.fast and self.stuck

    def _subproblem(self, at: Marginals, start: tuple[tf.Tensor, tf.Tensor]) -> _Iteration:
        problem, settings = self.problem, self.settings
        if self.couples:  # its dual does not fall apart into sites: no step is left
            return _Iteration(at, start, 0, math.inf)
        sub, box = make_subproblem(problem, at, self.policy)
        floor, before = _GAP * settings.tolerance, float(at.bound)
        at = moved_into(box, sub, problem, at)
        point = problem.point(sub, at, *start)

        def finished(now: Marginals, then: DualPoint) -> bool:
            gap, gained = float(then.dual - then.primal), float(then.primal) - before
            return bool(now.ok) and abs(gap) <= max(_GAP * gained, floor)

        if self.solver == "lbfgs":
            new, point, inner = lbfgs_solve(problem, sub, at, point, box, finished)
        else:
            direction = partial(self.direction, ridge=tf.constant(self.policy.ridge, at.lam.dtype))
            new, point, inner = newton_solve(problem, sub, at, point, box, finished, direction)
        sites, gap = point.sites, float(point.dual - point.primal)
        self.gain = max(settings.tolerance, float(new.bound) - before)
        violation = float(tf.reduce_max(tf.abs(sites.sigma - new.deviation)))
        return _Iteration(new, (sites.h, sites.sigma), inner, gap, violation)

    def _settled(self, change: float) -> bool:
        tolerance, last = self.settings.tolerance, self.change
        if abs(change) < tolerance:
            return True
        regular = 0.0 < change < min(_REGULAR * tolerance, 0.5 * last) and math.isfinite(last)
        return regular and change**2 / (last - change) < tolerance  # the rest of a geometric series

    def _accepts(self, found: _Iteration, change: float) -> bool:
        smaller, self.violation = found.violation <= self.violation, found.violation
        if not bool(found.new.ok):
            return False
        if self.settings.augmented:
            return change >= 0.0 and smaller
        if not self.minorises:
            return True
        return change >= -_ROUND_OFF * (1.0 + abs(float(found.new.bound)))


# ---


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
        self.curvature, self.sweeps, self.max_outer = curvature, sweeps, max_outer
        self.compile = compile

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
                name_of(model.likelihood) if problem.loss.reference is None else "a Laplace density"
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
        run = OuterIterations(self, self.inner_solver(view), prepared, record)
        result = run.iterate(at, start, progress)
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
