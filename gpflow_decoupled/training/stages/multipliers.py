"""Hyperparameters by gradients, multipliers by the Lagrangian."""

# While the kernel moves, the Gaussian sites' precisions lambda and natural means b stay and alpha
# follows, (V22):
#
#   u = V b,   V = (K^-1 + Lambda)^-1,   alpha = lambda u - b
#
# At fixed alpha instead the mean -K alpha would grow with the kernel.

from __future__ import annotations

__all__ = ["Multipliers"]

from collections.abc import Callable

import tensorflow as tf

from ...models import LCLGP
from ...optimizers import LagrangianResult, LinearlyConstrainedLagrangian
from ...optimizers.lagrangian.first_multipliers import first_marginals
from ..batches import Trackable
from ..keras import KerasAscent, Optimizer, hyperparameters_of
from .stage import Budget, Report, Stage, StepOutput, all_finite


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
