"""Outer iterations: Khan 2014, Algorithm 1."""

# The solution of a subproblem (V13), which touches the bound from below, raises the bound from any
# start for a log-concave likelihood, and with the terms (V20) for others.

from __future__ import annotations

__all__ = ["OuterIterations", "OuterSettings", "Prepared"]

import math
from functools import partial
from typing import NamedTuple

import tensorflow as tf
from tqdm.auto import tqdm

from ...linalg.coupled import RIDGE
from ..ascent import STUCK
from .dual import DualPoint, DualProblem, Marginals
from .first_multipliers import inside
from .lagrangian_result import LagrangianRecord, LagrangianResult
from .lbfgs_solve import lbfgs_solve
from .newton import Direction, newton_solve
from .optimality_newton import stationary_step
from .subproblem import Policy, make_subproblem, more_cautious, moved_into

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


class OuterSettings(NamedTuple):
    """Settings of `LinearlyConstrainedLagrangian` that its iterations read, with their meaning."""

    theta: float
    tolerance: float
    accelerate: bool
    trust_region: float | None
    augmented: bool
    curvature: bool
    max_outer: int
    solver: str
    """Of the subproblems: "newton" or "lbfgs"."""


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

    :param record: receives the bound of each iteration.
    """

    def __init__(
        self, settings: OuterSettings, prepared: Prepared, record: LagrangianRecord
    ) -> None:
        problem, self.direction, self.stationary = prepared
        self.settings, self.problem, self.record = settings, problem, record
        self.solver = settings.solver
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
        self.share, self.gain = (
            1.0,
            settings.tolerance,
        )  # step length of the next site fixed point, and what it has to gain
        self.stuck, self.stuck_at = (
            False,
            -math.inf,
        )  # whether a subproblem found no step, and the bound there

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
        return self.record.result(converged, reason)

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
