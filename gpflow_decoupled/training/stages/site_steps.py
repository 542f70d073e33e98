"""Full GPs by steps on all data."""

from __future__ import annotations

__all__ = ["Sites"]

from collections.abc import Sequence
from functools import partial

import numpy as np
import tensorflow as tf
from gpflow.kernels import LinearCoregionalization
from gpflow.likelihoods import MonteCarloLikelihood

from ...bases.site import SiteState
from ...compilation import Compiled
from ...models import CVIGP
from ...optimizers import ConjugateComputation
from ...optimizers.ascent import CONVERGED
from ...optimizers.steps import largest_feasible_step
from ..batches import Batch, Trackable
from ..keras import KerasAscent, Optimizer, hyperparameters_of
from .stage import Budget, Report, Stage, StepOutput, all_finite

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
            surely = tf.reduce_all(h <= 0.0) | tf.constant(
                isinstance(model.likelihood, MonteCarloLikelihood)
            )
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
