"""Linearly constrained Lagrangian: the best q of a `models.LCLGP` by a sequence of convex duals.

Khan 2014, Algorithm 1, as a minorise-maximise scheme: with sigma_k the standard deviations of the marginals at the start of
an outer iteration, and rho = theta lambda, the subproblem (V13) touches the bound from below, so that the bound rises from
any start where the likelihood is log-concave, and by the terms (V20) where it is not.
"""

from __future__ import annotations

__all__ = ["LinearlyConstrainedLagrangian", "Prepared"]

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf
from tqdm.auto import tqdm

from ..errors import DataError, check_option
from ..models import LCLGP
from .dual_lbfgs import lbfgs_solve
from .dual_newton import newton_direction, newton_solve
from .dual_objective import DualPoint, DualProblem, Marginals
from .dual_start import first_marginals
from .lagrangian_result import LagrangianResult, Trace
from .site_maximiser import check_dual
from .subproblem import Policy, make_subproblem

_GAP = 0.1
"""Share of what a subproblem has gained that it may leave on the table."""
_LARGEST_NEWTON = 3000
_BEFORE_ACCELERATION, _NEAR = 2, 0.1
"""Iterations, and a change of the bound in nats, before rho may be negative."""
_ROUND_OFF = 1e-12
_MAX_REFUSALS = 12


class Prepared(NamedTuple):
    """What runs on a model compile: see `LinearlyConstrainedLagrangian.prepare`."""

    problem: DualProblem
    direction: Callable[..., Any]


class LinearlyConstrainedLagrangian:
    """Decoupled variational Gaussian inference for `models.LCLGP` and `models.LCLGLM`.

    :param theta: rho = theta lambda; the paper's is 1.
    :param inner: "newton", "lbfgs" (SciPy's L-BFGS-B), or "auto": Newton up to 3000 observations.
    :param tolerance: on the change of the bound in nats, as in the paper.
    :param accelerate: negative rho after two iterations, with a fall-back to theta where the bound would fall.
    :param trust_region: how far each lambda may move in a subproblem, as a multiple of 1 + |lambda|; None for no limit.
    :param augmented: the paper's (19)-(20), an extra term in sigma whose weight grows where a step is refused.
    :param curvature: the terms (V20) at sites that are not log-concave; without them a run need not converge.
    :param sweeps: at most so many site fixed points (V22) improve a start from nothing.
    :param max_outer: outer iterations at most. :param compile: False runs eagerly, which pays for few or large steps.

    Raises `DataError` for settings out of range, `UnknownOptionError` for another `inner`. Cost of a Newton step: about
    2.5 N^3 a latent; of an evaluation of L-BFGS-B 2/3 N^3, or N p^2 in the weight form.
    """

    def __init__(
        self,
        theta: float = 0.1,
        inner: str = "auto",
        tolerance: float = 1e-4,
        accelerate: bool = False,
        trust_region: float | None = None,
        augmented: bool = False,
        *,
        curvature: bool = True,
        sweeps: int = 5,
        max_outer: int = 100,
        compile: bool = True,
    ) -> None:
        check_option("inner", inner, ("auto", "newton", "lbfgs"))
        if not (math.isfinite(theta) and theta >= 0.0):
            raise DataError(f"theta={theta!r} must be a number of at least 0; the paper's is 1, and 0.1 is faster.")
        if not tolerance > 0.0:
            raise DataError(f"tolerance={tolerance!r} must be above 0: a change of the bound in nats.")
        if trust_region is not None and not trust_region > 0.0:
            raise DataError(f"trust_region={trust_region!r} must be above 0, or None for no limit.")
        if sweeps < 0 or max_outer < 1:
            raise DataError(f"sweeps={sweeps!r} must be at least 0 and max_outer={max_outer!r} at least 1.")
        self.theta, self.inner, self.tolerance = float(theta), inner, float(tolerance)
        self.accelerate, self.trust_region, self.augmented = accelerate, trust_region, augmented
        self.curvature, self.sweeps, self.max_outer, self.compile = curvature, sweeps, max_outer, compile

    def prepare(self, model: LCLGP) -> Prepared:
        """The functions that runs on `model` compile, for runs that alternate with steps of the kernel; raises as `run`."""
        problem = DualProblem(model, self.compile)
        check_dual(problem.loss)
        if problem.loss.needs_penalty and self.theta == 0.0:
            raise DataError(f"theta must be above 0: {type(model.likelihood).__name__} needs a penalty.")
        return Prepared(problem, problem.compiled(lambda *arguments: newton_direction(problem, *arguments)))

    def run(self, model: LCLGP, *, prepared: Prepared | None = None, progress: bool = False) -> LagrangianResult:
        """Outer iterations until the bound changes by less than `tolerance`; the model is left at the best multipliers.

        :param prepared: of `prepare(model)`, for runs that alternate with steps of the hyperparameters: nothing is compiled
            twice, kernel and likelihood are read anew, and multipliers that S has moved away from are projected into it.

        It starts at the model's multipliers, or from nothing where they are all zero. Raises `DataError` for multipliers
        outside S, for theta = 0 where the likelihood needs a penalty, for losses without a dual (the piecewise bound, and
        straight lines by quadrature), and for functions of another model, `NumericalError` where the posterior does not
        exist at the start; nothing has changed then.
        """
        trace, again = Trace(), prepared is not None
        if prepared is None:
            prepared = self.prepare(model)
        elif prepared.problem.model is not model:
            raise DataError("prepared belongs to another model: call prepare(model) for this one.")
        else:
            prepared.problem.refresh()
        problem = prepared.problem
        at, start = first_marginals(problem, self.sweeps, self.tolerance, project=again)
        trace.append(float(at.bound))
        return _Run(self, prepared, trace).iterate(at, start, progress)

    def inner_solver(self, model: LCLGP) -> str:
        """The solver that "auto" stands for: "newton" or "lbfgs"."""
        if self.inner != "auto":
            return self.inner
        return "newton" if model.basis.num_data <= _LARGEST_NEWTON else "lbfgs"


class _Run:
    """One run: what changes from one outer iteration to the next."""

    def __init__(self, rule: LinearlyConstrainedLagrangian, prepared: Prepared, trace: Trace) -> None:
        problem, self.direction = prepared
        self.rule, self.problem, self.trace = rule, problem, trace
        self.solver = rule.inner_solver(problem.model)
        self.radius = math.inf if rule.trust_region is None else float(rule.trust_region)
        self.delta = 0.0 if rule.augmented else None
        self.fast = rule.accelerate and not problem.loss.needs_penalty
        bumpy = bool(tf.reduce_any(tf.convert_to_tensor(problem.loss.curvature) > 0.0))
        self.minorises = rule.curvature or not bumpy
        self.violation, self.near = math.inf, False

    def iterate(self, at: Marginals, start: tuple, progress: bool) -> LagrangianResult:
        """Subproblems from the marginals `at`, their sites maximised from `start`, [N, L] each."""
        rule, best, refused, reason = self.rule, at, 0, "outer iterations done"
        for step in tqdm(range(rule.max_outer), disable=not progress, desc="LCL"):
            new, point, inner = self._subproblem(at, start, self._policy(step))
            self.trace.append(float(new.bound), inner, float(point.dual - point.primal))
            change = float(new.bound - at.bound)
            if bool(new.ok) and float(new.bound) > float(best.bound):
                best = new
            solved = abs(float(point.dual - point.primal)) < rule.tolerance and abs(change) < rule.tolerance
            if solved or not self._accepts(new, point, change) or inner == 0:
                refused += 1
                if solved or not self._tighten() or refused > _MAX_REFUSALS:
                    reason = "converged" if solved else "the bound does not rise any more"
                    break
                continue
            at, start, refused = new, (point.sites.h, point.sites.sigma), 0
            self.near = change < _NEAR
        basis = self.problem.basis
        basis.alpha.assign(best.alpha)
        basis.lam.assign(best.lam)
        return self.trace.result(reason)

    def _policy(self, step: int) -> Policy:
        fast = self.fast and self.near and step >= _BEFORE_ACCELERATION
        return Policy(self.rule.theta, fast, self.rule.curvature, self.delta, self.radius)

    def _subproblem(self, at: Marginals, start: tuple, policy: Policy) -> tuple[Marginals, DualPoint, int]:
        """The solution of one subproblem, by duality gap."""
        problem = self.problem
        sub, box = make_subproblem(problem, at, policy)
        point = problem.point(sub, at, *start)
        floor, before = _GAP * self.rule.tolerance, float(at.bound)

        def finished(now: Marginals, then: DualPoint) -> bool:
            gap, gained = float(then.dual - then.primal), float(then.primal) - before
            return bool(now.ok) and abs(gap) <= max(_GAP * gained, floor)

        if self.solver == "lbfgs":
            return lbfgs_solve(problem, sub, at, point, box, finished)
        return newton_solve(problem, sub, at, point, box, finished, self.direction)

    def _accepts(self, new: Marginals, point: DualPoint, change: float) -> bool:
        """Whether the outer iteration stands: the bound has not fallen, or nothing was promised."""
        violation = float(tf.reduce_max(tf.abs(point.sites.sigma - new.deviation)))
        smaller, self.violation = violation <= self.violation, violation
        if not bool(new.ok):
            return False
        if self.rule.augmented:
            return change >= 0.0 and smaller
        if not self.minorises:
            return True
        return change >= -_ROUND_OFF * (1.0 + abs(float(new.bound)))

    def _tighten(self) -> bool:
        """What is done after a refusal; False where nothing is left to do."""
        if self.delta is not None:
            self.delta = max(1.0, 4.0 * self.delta)  # the paper's (20)
            self.violation = math.inf
            return True
        if self.fast:
            self.fast = False
            return True
        if self.radius < math.inf:
            self.radius *= 0.1
            return True
        return False
