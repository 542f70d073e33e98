"""A step of a full GP with multipliers: kernel, likelihood and mean function by the bound's gradient, then the multipliers.

The multipliers are those of Gaussian sites with precisions lambda and natural means b = lambda u - alpha, (V22), so that
q(f) is the posterior of these sites. While the kernel moves, b and lambda stay and alpha follows:

    u = V b,   V = (K^-1 + Lambda)^-1,   alpha = lambda u - b                                               (V22)

With Gaussian noise the bound at fixed sites is the evidence, at every kernel; at fixed alpha the mean -K alpha would grow
with the kernel.
"""

from __future__ import annotations

__all__ = ["LagrangianStep"]

from typing import Any

import tensorflow as tf

from ...models import LCLGP
from ...optimizers import LagrangianResult, LinearlyConstrainedLagrangian
from ...optimizers.lagrangian.start import first_marginals
from .inducing import StepOutput, ascend


class LagrangianStep:
    """Hyperparameters at held sites or multipliers, then one outer iteration of the Lagrangian at the new ones.

    :param moves: whether the multipliers are sought; False holds them throughout.
    :param optimizer: a Keras optimizer for kernel, likelihood and mean function.
    :param hold: what stays while they move: the "sites", or as in Khan 2014 the "multipliers".

    The first step begins with a whole run of the Lagrangian; where nothing else is trainable, that is all. Its seconds include
    compilation. Raises as `LinearlyConstrainedLagrangian.run`.
    """

    natural = None
    mean_optimizer = None

    def __init__(self, model: LCLGP, moves: bool, optimizer: Any, hold: str, compile: bool = True) -> None:
        self.model, self.moves, self.optimizer = model, moves, optimizer
        self.holds_sites, self.stop_reason = hold == "sites", ""
        self.whole = LinearlyConstrainedLagrangian(compile=compile)
        self.single = LinearlyConstrainedLagrangian(
            accelerate=False, max_outer=1, compile=compile
        )  # S may have moved far
        self.prepared = self.whole.prepare(model)
        if moves:
            first_marginals(self.prepared.problem, self.whole.sweeps, self.whole.tolerance)  # or raises
        self.other_variables = list(model.trainable_variables)
        if self.other_variables:
            optimizer.build(self.other_variables)
        self._ascent: Any = self.prepared.problem.compiled(self._climb)

    @property
    def variables(self) -> list[tf.Variable]:
        """Everything a step writes: what must be restored after a failure."""
        basis = self.model.basis
        states = [v if isinstance(v, tf.Variable) else v.value for v in self.optimizer.variables]  # Keras 3 wraps
        own = [basis.alpha.unconstrained_variable, basis.lam.unconstrained_variable]
        return [*own, *self.other_variables, *states]

    def run(self, X: tf.Tensor, Y: tf.Tensor, seed: tf.Tensor) -> StepOutput:
        """One step; X and Y are the model's own, and of `seed` [2] the second is the number of the step."""
        none, sound = tf.constant(0), tf.constant(True)
        if not self.other_variables:
            result = self.whole.run(self.model, prepared=self.prepared)
            self.stop_reason = result.reason
            return StepOutput(self._nats(result), sound, none, none)
        if self.moves and int(seed[1]) == 0:
            self.whole.run(self.model, prepared=self.prepared)
        elbo, ok, shortened = self._ascent()
        if self.moves and bool(ok):
            elbo = self._nats(self.single.run(self.model, prepared=self.prepared))
        return StepOutput(elbo, ok, shortened, none)

    def _nats(self, result: LagrangianResult) -> tf.Tensor:
        return tf.constant(result.elbo, self.model.data[0].dtype)

    def _climb(self) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """The bound before, whether all is sound, and whether negative lambda had to go."""
        model, basis = self.model, self.model.basis
        lam, centre = tf.convert_to_tensor(basis.lam), model.prior_mean()
        geometry = basis.geometry
        sites = -lam * geometry.product(geometry.prior(model.kernel), basis.alpha) - basis.alpha  # (V22)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(self.other_variables)
            elbo, ok = self._bound(sites, centre)
            objective = elbo + model.log_prior_density()
        gradients = tape.gradient(objective, self.other_variables)
        finite = [tf.reduce_all(tf.math.is_finite(x)) for x in (elbo, *gradients) if x is not None]
        ok = tf.reduce_all(tf.stack([ok, *finite]))
        ascend(self.optimizer, self.other_variables, gradients)
        if not self.holds_sites:
            return elbo, ok, tf.constant(0)
        return elbo, ok, tf.cond(ok, lambda: self._follow(sites, centre), lambda: tf.constant(0))

    def _bound(self, sites: tf.Tensor, centre: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """(V10) at the sites [N, L], which are centred on `centre` [N, L], or at the multipliers; and whether V exists."""
        model, basis = self.model, self.model.basis
        prior, mean = basis.geometry.prior(model.kernel), model.prior_mean()
        if self.holds_sites:
            state = basis.geometry.state_of_sites(prior, sites - basis.lam * (mean - centre), basis.lam)
        else:
            state = basis.geometry.state_at(prior, basis.alpha, basis.lam)
        losses = self.prepared.problem.loss.value(mean + state.mean, tf.sqrt(state.variance))
        return -tf.reduce_sum(losses) - basis.prior_kl(state), state.ok  # (V10)

    def _follow(self, sites: tf.Tensor, centre: tf.Tensor) -> tf.Tensor:
        """Write the alpha of the sites at the new kernel; 1 where V exists no more, and without negative lambda does."""
        basis = self.model.basis
        geometry = basis.geometry
        prior, drift = geometry.prior(self.model.kernel), self.model.prior_mean() - centre
        lam = tf.convert_to_tensor(basis.lam)
        state = geometry.state_of_sites(prior, sites - lam * drift, lam)
        lam = tf.where(state.ok, lam, tf.maximum(lam, 0.0))
        alpha = tf.cond(
            state.ok, lambda: state.alpha, lambda: geometry.state_of_sites(prior, sites - lam * drift, lam).alpha
        )
        basis.lam.assign(lam)
        basis.alpha.assign(alpha)
        return tf.cast(tf.logical_not(state.ok), tf.int32)
