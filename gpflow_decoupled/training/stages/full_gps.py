"""Hyperparameters by gradients, multipliers by the Lagrangian."""

from __future__ import annotations

__all__ = ["AffineAscent", "Messages", "Multipliers", "Sites"]

import warnings
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import tensorflow as tf
from gpflow.config import default_float
from gpflow.kernels import LinearCoregionalization

from ...bases.site import SiteState
from ...compilation import Compiled
from ...likelihoods.facts import draws_expectations
from ...models import CVIGP, LCLGP, AffineIndependentGP, FactorGraph
from ...models import factor_graph as graphs
from ...optimizers import (
    AffineIndependentAscent,
    AffineResult,
    ConjugateComputation,
    LagrangianResult,
    LinearlyConstrainedLagrangian,
    MeanFieldCVI,
)
from ...optimizers.ascent import CONVERGED, MAX_HALVINGS, STUCK, has_fallen, largest_feasible_step
from ...optimizers.lagrangian.subproblem import first_marginals
from ...optimizers.mean_field import Moved, diagnose_messages, move_groups
from ..batches import Batch, Trackable
from ..keras import KerasAscent, Optimizer, hyperparameters_of
from .stage import Budget, Clock, Report, Stage, StepOutput, all_finite

# ---
# Full GPs by steps on all data.


_ROUND_OFF = {tf.float64: 1e-12, tf.float32: 1e-5}
"""A decrease of the bound by less than this share of it is round-off."""
_TOLERANCE = 1e-10
"""Sites alone have converged when the squared change of a full step is below this share of their
squared length, as in `ConjugateComputation.run`."""


def _between(
    old: Sequence[tf.Tensor], goal: Sequence[tf.Tensor], step: tf.Tensor
) -> tuple[tf.Tensor, ...]:
    return tuple((1.0 - step) * was + step * new for was, new in zip(old, goal))  # (C13)


class Sites(Stage):
    """Update sites and hyperparameters from one pass over all data.

    Both start from the same Parameters. Sites are centred on the mean function; nu follows it.

    :param hold: fixed while hyperparameters move: "sites", at which the bound is the evidence for
        Gaussian noise, or "moments" of q(f), as in an ordinary variational M-step.
    """

    def __init__(
        self,
        model: CVIGP,
        rule: ConjugateComputation | None,
        optimizer: Optimizer,
        hold: str,
        compile: bool = True,
    ) -> None:
        self.model, self.rule = model, rule
        self.holds_sites = hold == "sites"
        self.others = KerasAscent(optimizer, hyperparameters_of(model))
        self._compiled = Compiled(self._step, reduce_retracing=True) if compile else None

    @property
    def variables(self) -> list[tf.Variable]:
        basis = self.model.basis
        return [
            basis.nu.unconstrained_variable,
            basis.tau.unconstrained_variable,
            *self.others.variables,
        ]

    @property
    def checkpointable(self) -> dict[str, Trackable]:
        return {"optimizer": self.others.optimizer}

    @property
    def settings(self) -> dict[str, object]:
        policy = None if self.rule is None else self.rule.negative_precision
        return {
            "negative_precision": policy,
            "optimizer": self.others.name,
            "holds_sites": self.holds_sites,
        }

    def prepare(self, X: tf.Tensor, Y: tf.Tensor, seed: tf.Tensor) -> None:
        if self._compiled is not None:
            self._compiled.get_concrete_function(X, Y)

    def run(self, budget: Budget) -> Report:
        self.others.set_rate(budget.sizes[0].learning_rate)
        step = self._step if self._compiled is None else self._compiled
        if self.rule is None or self.others.moved:
            return Report(step(*budget.batch))  # Adam's steps have no tolerance
        before = self._sites()
        output = step(*budget.batch)
        full = (self._sites() - before) / self.rule.step_size_at(0)
        still = np.sum(np.square(full)) <= _TOLERANCE * (1.0 + np.sum(np.square(before)))
        settled = bool(still and output.ok and not output.shortened)
        return Report(output, CONVERGED if settled else "", converged=settled)

    def _sites(self) -> np.ndarray:
        return np.stack([self.model.basis.nu.numpy(), self.model.basis.tau.numpy()])

    def _step(self, X: tf.Tensor, Y: tf.Tensor) -> StepOutput:
        model, basis, moved = self.model, self.model.basis, self.others.moved
        # 1. the bound and its gradients, by the moments at the data and by everything else
        nu, tau = tf.convert_to_tensor(basis.nu), tf.convert_to_tensor(basis.tau)
        with tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
            tape.watch(moved)
            drift = self._prior_mean(X)
            drift -= tf.stop_gradient(drift)  # zero, with the gradient of the mean function
            K = basis.prior(model.kernel)
            state = basis.state_at(K, nu - tau * drift, tau)
            mean, variance = state.mean, state.variance
            tape.watch([mean, variance])
            expected = tf.reduce_sum(model.variational_expectations(mean, variance, (X, Y)))
            elbo = expected - basis.prior_kl(state)
            objective = elbo if self.holds_sites else self._at_fixed_moments(state, drift, (X, Y))
            objective += model.log_prior_density()
        g, h = tape.gradient(expected, [mean, variance])
        gradients = tape.gradient(objective, moved)
        ok = tf.logical_and(state.ok, all_finite([elbo, g, h, *gradients]))
        # 2. where the sites go
        shortened = clipped = tf.constant(0)
        if self.rule is not None:
            *goal, clipped = self.rule.targets(g, h, mean)
            rho = tf.constant(self.rule.step_size_at(0), K.dtype)
            step, feasible = self.rule.feasible(partial(basis.exists, K), tau, goal[1], rho)
            surely = tf.reduce_all(h <= 0.0) | tf.constant(draws_expectations(model.likelihood))
            step = tf.cond(
                surely, lambda: step, lambda: self._ascending(K, (nu, tau), goal, step, elbo)
            )
            nu, tau = _between((nu, tau), goal, step)
            ok, shortened = ok & feasible, tf.cast(step < rho, tf.int32)
        # 3. everything else; the sites follow the mean function
        before = self._prior_mean(X)
        self.others.ascend(gradients)
        nu -= tau * (self._prior_mean(X) - before)
        ok = ok & tf.reduce_all(tf.math.is_finite(nu))
        tf.cond(ok, lambda: self._assign(nu, tau), lambda: False)
        return StepOutput(elbo, ok, shortened, clipped)

    def _ascending(
        self,
        K: tf.Tensor,
        old: tuple[tf.Tensor, tf.Tensor],
        goal: list[tf.Tensor],
        step: tf.Tensor,
        elbo: tf.Tensor,
    ) -> tf.Tensor:
        """Return the step size [], halved until the bound does not fall; zero if none raises it."""
        # Only a likelihood that is not log-concave (h > 0) can lower it; costs a factorisation.
        model, basis = self.model, self.model.basis
        lowest = elbo - _ROUND_OFF[elbo.dtype] * tf.abs(elbo)

        def rises(size: tf.Tensor) -> tf.Tensor:
            state = basis.state_at(K, *_between(old, goal, size))
            expected = tf.reduce_sum(
                model.variational_expectations(state.mean, state.variance, model.data)
            )
            return state.ok & (expected - basis.prior_kl(state) >= lowest)

        found, risen = largest_feasible_step(rises, step)
        return tf.where(risen, found, tf.zeros_like(found))

    def _assign(self, nu: tf.Tensor, tau: tf.Tensor) -> bool:
        self.model.basis.nu.assign(nu)
        self.model.basis.tau.assign(tau)
        return True

    def _prior_mean(self, X: tf.Tensor) -> tf.Tensor:
        none = tf.zeros_like(tf.convert_to_tensor(self.model.basis.nu))
        return (
            none
            if isinstance(self.model.kernel, LinearCoregionalization)
            else none + self.model.mean_function(X)
        )

    def _at_fixed_moments(self, state: SiteState, drift: tf.Tensor, data: Batch) -> tf.Tensor:
        """A value whose gradient is the bound's at fixed q(f): log Z~ has the gradient of -KL."""
        mean, variance = tf.stop_gradient(state.mean), tf.stop_gradient(state.variance)
        expected = tf.reduce_sum(self.model.variational_expectations(mean - drift, variance, data))
        nu, tau = tf.stop_gradient(state.nu), tf.convert_to_tensor(state.tau)
        constant = nu * drift - 0.5 * tau * tf.square(drift)
        return expected + self.model.basis.log_partition(state) + tf.reduce_sum(constant)  # (C16)


# ---
# Affine-independent models by gradient steps.


class AffineAscent(Stage):
    """Gradient steps of everything but q; `refresh` finds q at the first step and periodically.

    :param compile: False runs the gradient steps eagerly; ascents are compiled.
    """

    # Between ascents, which cost many evaluations, q stays in whitened coordinates. If only q is
    # trainable, the only step is an ascent; else one follows the last step.

    def __init__(
        self, model: AffineIndependentGP, optimizer: Optimizer, compile: bool = True
    ) -> None:
        self.model, self.compile = model, compile
        of_q = {v.ref() for v in self._q}
        self.others = KerasAscent(
            optimizer, [v for v in model.trainable_variables if v.ref() not in of_q]
        )
        self._found: AffineResult | None = None
        self._climb = self._compiled()

    @property
    def _q(self) -> list[tf.Variable]:
        basis = self.model.basis
        return [*basis.map.variables, *basis.b.variables, *basis.theta.variables]

    @property
    def variables(self) -> list[tf.Variable]:
        return [*self._q, *self.others.variables]

    def refresh(self) -> bool:
        self._ascend(keep_better=not self.others.moved)
        return True

    def run(self, budget: Budget) -> Report:
        """Take one step; where nothing but q is trainable, report on the ascent."""
        if self.others.moved:
            self.others.set_rate(budget.sizes[0].learning_rate)
            return Report(StepOutput.sound(*self._climb()))
        result = self._found
        if result is None:
            raise RuntimeError("An AffineAscent is refreshed before its first run.")
        output = StepOutput.sound(tf.constant(result.elbo, budget.batch[0].dtype))
        return Report(output, result.reason, converged=result.converged)

    def closing(self, clock: Clock) -> Report | None:
        """Find q at the last hyperparameters, where any of them moved."""
        if not self.others.moved:
            return None
        result = self._ascend(keep_better=True)
        return Report(StepOutput.sound(tf.constant(result.elbo, self.model.data[0].dtype)))

    def _ascend(self, keep_better: bool) -> AffineResult:
        basis, integration = self.model.basis, self.model.integration
        base, theta = basis.base, basis.theta
        try:
            with warnings.catch_warnings():
                # the loop says so, once
                warnings.filterwarnings("ignore", "The bound of .* is not accurate")
                found = AffineIndependentAscent(keep_better=keep_better).run(self.model)
        except BaseException:  # the ascent tries a normal base, and may break off at it
            basis.base, basis.theta = base, theta
            raise
        if self.model.integration != integration:  # which is part of what was compiled
            self._climb = self._compiled()
        self._found = found
        return found

    def _compiled(self) -> Callable[[], tuple[tf.Tensor, tf.Tensor]]:
        return Compiled(self._step) if self.compile else self._step

    def _step(self) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(self.others.moved)
            elbo = self.model.elbo()
            objective = elbo + self.model.log_prior_density()
        gradients = tape.gradient(objective, self.others.moved)
        self.others.ascend(gradients)
        return elbo, all_finite([elbo, *gradients])


# ---
# Factor graphs: all messages.


_SMALLEST = 0.5**MAX_HALVINGS  # share of a step at which a run is stuck
"""A run has converged when the squared change of the messages is below this share of their squared
length.
"""


class Messages(Stage):
    """One sweep over all variables towards the factors' gradients (C32).

    :param step_size: in (0, 1], before annealing.
    """

    def __init__(self, graph: FactorGraph, step_size: float, compile: bool = True) -> None:
        self.graph, self.step_size = graph, step_size
        self.groups = MeanFieldCVI(step_size).groups(list(graph.families))
        self.sampled = any(factor.samples is not None for factor in graph.factors.values())
        self.share = tf.Variable(1.0, dtype=tf.float64, trainable=False)
        """The length of the next step, as a share of the step size."""
        self._elbo: tf.Tensor | None = None
        self._compiled = Compiled(self._move) if compile else None

    @property
    def variables(self) -> list[tf.Variable]:
        return [*tf.nest.flatten(self.graph.messages), self.share]

    @property
    def checkpointable(self) -> dict[str, Trackable]:
        return {"share": self.share}

    @property
    def settings(self) -> dict[str, object]:
        families = {f"variable {name}": family.name for name, family in self.graph.families.items()}
        return families | {
            f"factor {key}": list(factor.neighbours) for key, factor in self.graph.factors.items()
        }

    def prepare(self, X: tf.Tensor, Y: tf.Tensor, seed: tf.Tensor) -> None:
        if self._compiled is not None:
            self._compiled.get_concrete_function(
                self.graph.current(), self._length(self.step_size), seed
            )

    def run(self, budget: Budget) -> Report:
        messages, seed = self.graph.current(), budget.step_seed
        size = budget.sizes[0].natural_gradient
        size = self.step_size if size is None else size
        if self._elbo is None:
            self._elbo = self.graph.bound(self.graph.naturals(messages), self.graph.data, seed)
            if not tf.math.is_finite(self._elbo):
                raise diagnose_messages(self.graph, messages, self.graph.data, seed)
        move = self._move if self._compiled is None else self._compiled
        then, reached = move(messages, self._length(size), seed)
        # 1. a step that is not sound, or lowers the bound, is undone, and the next one is shorter
        sound = bool(then.ok) and bool(tf.math.is_finite(reached))
        rises = self.sampled or not has_fallen(float(self._elbo), float(reached))
        if not (sound and rises):
            stuck = float(self.share) < _SMALLEST
            if stuck and not sound:
                raise diagnose_messages(self.graph, messages, self.graph.data, seed)
            self.share.assign(0.5 * self.share)
            return Report(StepOutput.sound(self._elbo, shortened=1), STUCK if stuck else "")
        # 2. else it stands
        self.graph.assign(then.messages)
        self.share.assign(tf.minimum(2.0 * self.share, 1.0))
        self._elbo = reached
        settled = float(then.change) <= _TOLERANCE * (1.0 + _squared(then.messages))
        output = StepOutput.sound(reached, shortened=then.shortened)
        return Report(output, CONVERGED if settled else "", converged=settled)

    def _length(self, step_size: float) -> tf.Tensor:
        return tf.cast(step_size * self.share, default_float())

    def _move(
        self, messages: graphs.Messages, step_size: tf.Tensor, seed: tf.Tensor
    ) -> tuple[Moved, tf.Tensor]:
        graph = self.graph
        then = move_groups(graph, Moved.at(messages), self.groups, step_size, graph.data, seed)
        draws = tf.random.fold_in(seed, len(self.groups))
        return then, graph.bound(graph.naturals(then.messages), graph.data, draws)


def _squared(messages: graphs.Messages) -> float:
    return float(sum(tf.reduce_sum(tf.square(part)) for part in tf.nest.flatten(messages)))


# ---


# While the kernel moves, the Gaussian sites' precisions lambda and natural means b stay and alpha
# follows, (V22):
#
#   u = V b,   V = (K^-1 + Lambda)^-1,   alpha = lambda u - b
#
# At fixed alpha instead the mean -K alpha would grow with the kernel.


class Multipliers(Stage):
    """A gradient step of the hyperparameters, then an outer iteration of the Lagrangian.

    The first step, the only one if nothing else is trainable, is a whole run of the Lagrangian.

    :param hold: "sites", or as in Khan 2014 "multipliers", fixed while the hyperparameters move.
    """

    def __init__(
        self, model: LCLGP, moves: bool, optimizer: Optimizer, hold: str, compile: bool = True
    ) -> None:
        self.model, self.moves = model, moves
        self.holds_sites = hold == "sites"
        self.whole = LinearlyConstrainedLagrangian(compile=compile)
        # S, the set of admissible multipliers, may have moved far with the kernel, so that (V27)
        # does not pay
        self.single = LinearlyConstrainedLagrangian(accelerate=False, max_outer=1, compile=compile)
        self.prepared = self.whole.prepare(model)
        if moves:
            # or raises
            first_marginals(self.prepared.problem, self.whole.sweeps, self.whole.tolerance)
        self.others = KerasAscent(optimizer, hyperparameters_of(model))
        self._ascent: Callable[[], tuple[tf.Tensor, ...]] = self.prepared.problem.compiled(
            self._climb
        )

    @property
    def variables(self) -> list[tf.Variable]:
        basis = self.model.basis
        return [
            basis.alpha.unconstrained_variable,
            basis.lam.unconstrained_variable,
            *self.others.variables,
        ]

    @property
    def checkpointable(self) -> dict[str, Trackable]:
        return {"optimizer": self.others.optimizer}

    @property
    def settings(self) -> dict[str, object]:
        return {
            "optimizer": self.others.name,
            "holds_sites": self.holds_sites,
        }

    def run(self, budget: Budget) -> Report:
        """Take one step on the model's data; the first one begins with a whole run."""
        model, before = self.model, tuple[float, ...]()
        if not self.others.moved:
            result = self.whole.run(model, prepared=self.prepared)
            output = StepOutput.sound(self._nats(result))
            return Report(output, result.reason, converged=result.converged)
        self.others.set_rate(budget.sizes[0].learning_rate)
        if budget.first == 0:
            before = (float(model.elbo()),)
            if self.moves:
                self.whole.run(model, prepared=self.prepared)
        elbo, ok, shortened = self._ascent()
        if self.moves and bool(ok):
            elbo = self._nats(self.single.run(model, prepared=self.prepared))
        return Report(StepOutput.sound(elbo, ok, shortened), before=before)

    def _nats(self, result: LagrangianResult) -> tf.Tensor:
        return tf.constant(result.elbo, self.model.data[0].dtype)

    def _climb(self) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        # the bound before a step, whether all is finite, and 1 if negative lambda were dropped
        model, basis, moved = self.model, self.model.basis, self.others.moved
        lam, centre = tf.convert_to_tensor(basis.lam), model.prior_mean()
        geometry = basis.geometry
        # (V22)
        sites = -lam * geometry.product(geometry.prior(model.kernel), basis.alpha) - basis.alpha
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(moved)
            elbo, ok = self._bound(sites, centre)
            objective = elbo + model.log_prior_density()
        gradients = tape.gradient(objective, moved)
        ok = tf.logical_and(ok, all_finite([elbo, *gradients]))
        self.others.ascend(gradients)
        if not self.holds_sites:
            return elbo, ok, tf.constant(0)
        return elbo, ok, tf.cond(ok, lambda: self._follow(sites, centre), lambda: tf.constant(0))

    def _bound(self, sites: tf.Tensor, centre: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The bound (V10) at fixed sites or multipliers, and whether V is positive definite."""
        # The natural means b [N, L] are centred on `centre`, the prior mean [N, L].
        model, basis = self.model, self.model.basis
        prior, mean = basis.geometry.prior(model.kernel), model.prior_mean()
        if self.holds_sites:
            state = basis.geometry.state_of_sites(
                prior, sites - basis.lam * (mean - centre), basis.lam
            )
        else:
            state = basis.geometry.state_at(prior, basis.alpha, basis.lam)
        losses = self.prepared.problem.loss.value(mean + state.mean, tf.sqrt(state.variance))
        return -tf.reduce_sum(losses) - basis.prior_kl(state), state.ok  # (V10)

    def _follow(self, sites: tf.Tensor, centre: tf.Tensor) -> tf.Tensor:
        """Write the alpha of the same sites at the new kernel; 1 if negative lambda are dropped."""
        basis = self.model.basis
        geometry = basis.geometry
        prior, drift = geometry.prior(self.model.kernel), self.model.prior_mean() - centre
        lam = tf.convert_to_tensor(basis.lam)
        state = geometry.state_of_sites(prior, sites - lam * drift, lam)
        lam = tf.where(state.ok, lam, tf.maximum(lam, 0.0))
        alpha = tf.cond(
            state.ok,
            lambda: state.alpha,
            lambda: geometry.state_of_sites(prior, sites - lam * drift, lam).alpha,
        )
        basis.lam.assign(lam)
        basis.alpha.assign(alpha)
        return tf.cast(tf.logical_not(state.ok), tf.int32)
