"""One compiled step of a full GP with sites: the sites by conjugate computation, everything else by the bound's gradient."""

from __future__ import annotations

__all__ = ["SiteStep"]

from typing import Any

import tensorflow as tf
from gpflow.kernels import LinearCoregionalization

from ...compilation import Compiled
from ...covariances.latents import gram
from ...models import CVIGP
from ...optimizers import ConjugateComputation
from .inducing import StepOutput, ascend


class SiteStep:
    """E-step and M-step from one pass over all data, from the same Parameters.

    :param rule: moves the sites by its step size; None leaves them alone.
    :param optimizer: a Keras optimizer for kernel, likelihood and mean function.
    :param hold: what stays while they move: the "sites", whose bound is the evidence for Gaussian noise, or the "moments"
        of q(f), whose gradient is that of an ordinary variational M-step.

    Sites are centred on the mean function; when that moves, nu follows, so that the site as a function of f stays.
    """

    natural = None
    mean_optimizer = None
    stop_reason = ""

    def __init__(
        self, model: CVIGP, rule: ConjugateComputation | None, optimizer: Any, hold: str, compile: bool = True
    ) -> None:
        self.model, self.rule, self.optimizer = model, rule, optimizer
        self.holds_sites = hold == "sites"
        self.other_variables = list(model.trainable_variables)
        if self.other_variables:
            optimizer.build(self.other_variables)
        self.run: Any = Compiled(self._step, reduce_retracing=True) if compile else self._step

    @property
    def variables(self) -> list[tf.Variable]:
        """Everything a step writes: what must be restored after a failure."""
        basis = self.model.basis
        states = [v if isinstance(v, tf.Variable) else v.value for v in self.optimizer.variables]  # Keras 3 wraps
        return [basis.nu.unconstrained_variable, basis.tau.unconstrained_variable, *self.other_variables, *states]

    def _step(self, X: tf.Tensor, Y: tf.Tensor, seed: tf.Tensor) -> StepOutput:
        model, basis = self.model, self.model.basis
        nu, tau = tf.convert_to_tensor(basis.nu), tf.convert_to_tensor(basis.tau)
        with tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
            tape.watch(self.other_variables)
            drift = self._prior_mean(X)
            drift -= tf.stop_gradient(drift)
            K = gram(model.kernel, basis.points)
            state = basis.state_at(K, nu - tau * drift, tau)
            mean, variance = state.mean, state.variance
            tape.watch([mean, variance])
            expected = tf.reduce_sum(model.variational_expectations(mean, variance, (X, Y)))
            elbo = expected - basis.prior_kl(state)
            objective = elbo if self.holds_sites else self._at_fixed_moments(state, drift, (X, Y))
            objective += model.log_prior_density()
        g, h = tape.gradient(expected, [mean, variance])
        gradients = tape.gradient(objective, self.other_variables)
        finite = [tf.reduce_all(tf.math.is_finite(x)) for x in (elbo, g, h, *gradients) if x is not None]
        ok = tf.reduce_all(tf.stack([state.ok, *finite]))
        shortened = clipped = tf.constant(0)
        if self.rule is not None:
            *goal, clipped = self.rule.targets(g, h, mean)
            rho = tf.constant(self.rule.step_size_at(0), K.dtype)
            step, feasible = self.rule.feasible(K, tau, goal[1], rho)
            nu, tau = ((1.0 - step) * old + step * new for old, new in zip((nu, tau), goal))  # (C13)
            ok, shortened = ok & feasible, tf.cast(step < rho, tf.int32)
        before = self._prior_mean(X)
        ascend(self.optimizer, self.other_variables, gradients)
        nu -= tau * (self._prior_mean(X) - before)
        ok = ok & tf.reduce_all(tf.math.is_finite(nu))
        tf.cond(ok, lambda: self._assign(nu, tau), lambda: False)
        return StepOutput(elbo, ok, shortened, clipped)

    def _assign(self, nu: tf.Tensor, tau: tf.Tensor) -> bool:
        self.model.basis.nu.assign(nu)
        self.model.basis.tau.assign(tau)
        return True

    def _prior_mean(self, X: tf.Tensor) -> tf.Tensor:
        """m_0 [N, L] where latents are outputs; zero where outputs are mixed, and sites stay centred."""
        none = tf.zeros_like(tf.convert_to_tensor(self.model.basis.nu))
        return none if isinstance(self.model.kernel, LinearCoregionalization) else none + self.model.mean_function(X)

    def _at_fixed_moments(self, state: Any, drift: tf.Tensor, data: tuple) -> tf.Tensor:
        """What has the gradient of the bound at a fixed q(f): log Z~ has that of -KL (section 3.5)."""
        mean, variance = tf.stop_gradient(state.mean), tf.stop_gradient(state.variance)
        expected = tf.reduce_sum(self.model.variational_expectations(mean - drift, variance, data))
        nu = tf.stop_gradient(state.nu)
        constant = nu * drift - 0.5 * state.tau * tf.square(drift)
        return expected + self.model.basis.log_partition(state) + tf.reduce_sum(constant)  # (C16)
