"""Linearly constrained Lagrangian: the best q of a `models.LCLGP` by a sequence of convex duals.

Khan 2014, Algorithm 1, as a minorise-maximise scheme: with sigma_k the standard deviations of the marginals at the start of
an outer iteration, and rho = theta lambda, the subproblem (V13) touches the bound from below, so that the bound rises from
any start where the likelihood is log-concave, and by the terms (V20) where it is not.
"""

from __future__ import annotations

__all__ = ["LinearlyConstrainedLagrangian", "Prepared"]

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import tensorflow as tf
from tqdm.auto import tqdm

from ...errors import DataError, check_option
from ...models import LCLGP
from .dual import DualPoint, DualProblem, Marginals
from .lbfgs import lbfgs_solve
from .newton import newton_direction, newton_solve
from .result import LagrangianResult, Trace
from .site_maximiser import check_dual
from .start import first_marginals, inside
from .stationary import stationary_direction, stationary_step
from .subproblem import Policy, make_subproblem

_GAP = 0.5
"""Share of what a subproblem has gained that it may leave on the table."""
_LARGEST_NEWTON = 3000
_NEAR, _RETRY = 0.02, 0.1
"""Duality gap, in nats an observation, below which (V27) is tried; and as a share of that at which it failed."""
_REGULAR = 100.0
"""Changes of so many tolerances are far enough down a series for its rest to be foretold."""
_LEAST_SHARE, _SWEEP_TRIALS = 0.5**6, 7
"""Of a step of the site fixed point."""
_ROUND_OFF = 1e-12
_MAX_REFUSALS = 12


class Prepared(NamedTuple):
    """What runs on a model compile: see `LinearlyConstrainedLagrangian.prepare`."""

    problem: DualProblem
    direction: Callable[..., Any]
    stationary: Callable[..., Any]


class LinearlyConstrainedLagrangian:
    """Decoupled variational Gaussian inference for `models.LCLGP` and `models.LCLGLM`.

    :param theta: rho = theta lambda; the paper's is 1.
    :param inner: "newton", "lbfgs" (SciPy's L-BFGS-B), or "auto": Newton up to 3000 observations, and
        in the weight form.
    :param tolerance: on the change of the bound in nats, as in the paper, or on what a falling series of changes leaves.
    :param accelerate: near the solution, Newton steps on the optimality conditions (V27), which double the digits; where
        one would lower the bound, a subproblem takes its place. And site fixed points (V22) that gain more than the last
        subproblem, where sites are not log-concave or it found no step. Not with `trust_region`, `augmented` or without
        `curvature`.
    :param trust_region: how far each lambda may move in a subproblem, as a multiple of 1 + |lambda|; None for no limit.
    :param augmented: the paper's (19)-(20), an extra term in sigma whose weight grows where a step is refused.
    :param curvature: the terms (V20) at sites that are not log-concave; without them a run need not converge.
    :param sweeps: at most so many site fixed points (V22) improve a start from nothing.
    :param max_outer: outer iterations at most. :param compile: False runs eagerly, which pays for few or large steps.

    Raises `DataError` for settings out of range, `UnknownOptionError` for another `inner`. Cost of a Newton step: about
    2.5 N^3 a latent; of an evaluation of L-BFGS-B 2/3 N^3. In the weight form some 30 N p^2, or N p^2, and N p memory.
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
        directions = [partial(of, problem) for of in (newton_direction, stationary_direction)]
        return Prepared(problem, *(problem.compiled(direction) for direction in directions))

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
        small = model.basis.form == "weight" or model.basis.num_data <= _LARGEST_NEWTON
        return "newton" if small else "lbfgs"


class _Iteration(NamedTuple):
    """What one outer iteration found."""

    new: Marginals
    start: tuple
    """(h, sigma) [N, L] from which the sites are maximised next."""
    inner: int
    gap: float
    """NaN where no subproblem was solved."""
    violation: float = 0.0
    """The largest |sigma* - sqrt v|."""


class _Run:
    """One run: what changes from one outer iteration to the next."""

    def __init__(self, rule: LinearlyConstrainedLagrangian, prepared: Prepared, trace: Trace) -> None:
        problem, self.direction, self.stationary = prepared
        self.rule, self.problem, self.trace = rule, problem, trace
        self.solver = rule.inner_solver(problem.model)
        self.radius = math.inf if rule.trust_region is None else float(rule.trust_region)
        self.delta = 0.0 if rule.augmented else None
        self.bumpy = bool(tf.reduce_any(tf.convert_to_tensor(problem.loss.curvature) > 0.0))
        self.minorises = rule.curvature or not self.bumpy
        self.fast = rule.accelerate and self.minorises and not rule.augmented and rule.trust_region is None
        self.near = _NEAR * problem.basis.num_data * problem.basis.num_latent_gps
        self.violation = self.change = self.gap = math.inf
        self.share, self.gain = 1.0, rule.tolerance
        self.stuck, self.stuck_at = False, -math.inf

    def iterate(self, at: Marginals, start: tuple, progress: bool) -> LagrangianResult:
        """Outer iterations from the marginals `at`, their sites maximised from `start`, [N, L] each."""
        best, refused, reason = at, 0, "outer iterations done"
        for _ in tqdm(range(self.rule.max_outer), disable=not progress, desc="LCL"):
            found = self._stationary(at) or self._swept(at) or self._subproblem(at, start)
            new, change = found.new, float(found.new.bound - at.bound)
            self.trace.append(float(new.bound), found.inner, found.gap)
            if bool(new.ok) and float(new.bound) > float(best.bound):
                best = new
            solved = self._settled(change) and not abs(found.gap) >= self.rule.tolerance
            if solved or not self._accepts(found, change) or found.inner == 0:
                if not solved and found.inner == 0 and self._may_sweep(at):
                    continue
                refused += 1
                if solved or not self._tighten() or refused > _MAX_REFUSALS:
                    reason = "converged" if solved else "the bound does not rise any more"
                    break
                continue
            at, start, refused = new, found.start, 0
            self.change, self.gap = change, found.gap
        basis = self.problem.basis
        basis.alpha.assign(best.alpha)
        basis.lam.assign(best.lam)
        return self.trace.result(reason)

    def _stationary(self, at: Marginals) -> _Iteration | None:
        """A Newton step on (V11), where the last subproblem was nearly solved; None where the bound would fall."""
        if not self.fast or abs(self.gap) > self.near:
            return None
        new = stationary_step(self.problem, at, self.stationary, _ROUND_OFF * (1.0 + abs(float(at.bound))))
        if new is None:
            self.near = _RETRY * (self.near if math.isnan(self.gap) else abs(self.gap))
            return None
        return _Iteration(new, (new.mean, new.deviation), 1, math.nan)

    def _swept(self, at: Marginals) -> _Iteration | None:
        """A site fixed point (V22) that gains more than the last subproblem, where these are cautious or found no step."""
        if not self.fast or not (self.bumpy or self.stuck):
            return None
        for _ in range(_SWEEP_TRIALS if self.stuck else 1):
            new = inside(self.problem, self.problem.sweep(at, tf.constant(self.share, at.lam.dtype)))
            if bool(new.ok) and float(new.bound - at.bound) > self.gain:
                self.share = min(1.0, 2.0 * self.share)
                return _Iteration(new, (new.mean, new.deviation), 1, math.nan)
            self.share = max(_LEAST_SHARE, 0.5 * self.share)
        self.stuck = False
        return None

    def _may_sweep(self, at: Marginals) -> bool:
        """Whether site fixed points are to be tried where a subproblem found no step, and not in vain before."""
        self.stuck, self.stuck_at = float(at.bound) > self.stuck_at, float(at.bound)
        return self.fast and self.stuck

    def _subproblem(self, at: Marginals, start: tuple) -> _Iteration:
        """The solution of one subproblem, by duality gap."""
        problem, rule = self.problem, self.rule
        sub, box = make_subproblem(problem, at, Policy(rule.theta, rule.curvature, self.delta, self.radius))
        point = problem.point(sub, at, *start)
        floor, before = _GAP * rule.tolerance, float(at.bound)

        def finished(now: Marginals, then: DualPoint) -> bool:
            gap, gained = float(then.dual - then.primal), float(then.primal) - before
            return bool(now.ok) and abs(gap) <= max(_GAP * gained, floor)

        if self.solver == "lbfgs":
            new, point, inner = lbfgs_solve(problem, sub, at, point, box, finished)
        else:
            new, point, inner = newton_solve(problem, sub, at, point, box, finished, self.direction)
        sites, gap = point.sites, float(point.dual - point.primal)
        self.gain = max(rule.tolerance, float(new.bound) - before)
        violation = float(tf.reduce_max(tf.abs(sites.sigma - new.deviation)))
        return _Iteration(new, (sites.h, sites.sigma), inner, gap, violation)

    def _settled(self, change: float) -> bool:
        """Whether less than the tolerance is left to gain, by the last change or by a series of two."""
        tolerance, last = self.rule.tolerance, self.change
        if abs(change) < tolerance:
            return True
        regular = 0.0 < change < min(_REGULAR * tolerance, 0.5 * last) and math.isfinite(last)
        return regular and change**2 / (last - change) < tolerance  # the rest of a geometric series

    def _accepts(self, found: _Iteration, change: float) -> bool:
        """Whether the outer iteration stands: the bound has not fallen, or nothing was promised."""
        smaller, self.violation = found.violation <= self.violation, found.violation
        if not bool(found.new.ok):
            return False
        if self.rule.augmented:
            return change >= 0.0 and smaller
        if not self.minorises:
            return True
        return change >= -_ROUND_OFF * (1.0 + abs(float(found.new.bound)))

    def _tighten(self) -> bool:
        """What is done after a refusal; False where nothing is left to do."""
        if self.delta is not None:
            self.delta = max(1.0, 4.0 * self.delta)  # the paper's (20)
            self.violation = math.inf
            return True
        if self.radius < math.inf:
            self.radius *= 0.1
            return True
        return False
