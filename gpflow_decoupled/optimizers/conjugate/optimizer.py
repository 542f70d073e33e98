"""Conjugate-computation variational inference: every site moves towards the gradient of its own expectation.

Khan & Lin 2017 (arXiv:1703.04265), Algorithm 1 and equation (13). With g = dE/dmean and h = dE/dvar at q, centred:

    nu <- (1 - rho) nu + rho (g - 2 h u),   tau <- (1 - rho) tau - 2 rho h                                     (C13)

which is a natural-gradient step of size rho. On a minibatch either only its own sites move ("local", (C20)), or all sites
shrink and those of the batch gain N/B times as much ("global", (C19)).
"""

from __future__ import annotations

__all__ = ["ConjugateComputation"]

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ...bases import SiteBasis
from ...compilation import Compiled
from ...covariances.latents import gram, prior_variance
from ...errors import DataError, check_option
from ...linalg.sites import site_posterior
from ...models import CVIGP
from ..natural_gradient.optimizer import MAX_HALVINGS, POLICIES, StepReport
from ..steps import Rho, step_size
from .local_expectations import Expectations, by_quadrature, by_sampling
from .result import ConjugateResult
from .runs import Probe, run_batches, run_whole, step_failure


class ConjugateComputation(tf.Module):
    """Conjugate-computation VI for `models.CVIGP`.

    :param rho: step size in (0, 1], a number or a function of the step 0, 1, ...; 1 is a fixed-point iteration, which
        converges in a few steps for most log-concave likelihoods.
    :param beta: the step size of the talk instead, rho = beta / (1 + beta).
    :param update: on minibatches "local" (C20) or "global" (C19).
    :param samples: expectations from so many draws instead of by quadrature.
    :param negative_precision: for likelihoods that are not log-concave: "damp" lets sites be negative and halves the step
        until the posterior exists; "raise" lets them be negative too, and raises `NumericalError` where it does not exist;
        "clip" replaces h by min(h, 0), so that no site is negative.
    :param seed: of draws and minibatches.

    Raises `DataError` for a step outside (0, 1], `UnknownOptionError` for unknown options. Cost of a step: 4/3 N^3 a
    latent; on a minibatch N becomes the number of observations visited so far.
    """

    def __init__(
        self,
        rho: Rho = 1.0,
        *,
        beta: float | None = None,
        update: str = "local",
        samples: int | None = None,
        negative_precision: str = "damp",
        seed: int = 0,
    ) -> None:
        super().__init__()
        check_option("update", update, ("local", "global"))
        check_option("negative_precision", negative_precision, POLICIES)
        if beta is not None:
            if not beta > 0:
                raise DataError(f"beta={beta!r} must be above 0; the step size of the sites is beta / (1 + beta).")
            rho = beta / (1.0 + beta)
        if samples is not None and samples < 1:
            raise DataError(f"samples={samples!r} must be at least 1, or None for quadrature.")
        self.rho, self.update, self.samples = rho, update, samples
        self.negative_precision, self.seed = negative_precision, seed
        self.step_size(0)

    def step_size(self, step: int) -> float:
        """Rho of step 0, 1, ...; raises `DataError` outside (0, 1]."""
        return step_size(self.rho, step)

    def minimize(self, model: CVIGP, rows: Any | None = None, step: int = 0) -> StepReport:
        """One step that moves all sites, or those of the observations `rows` [B]; `step` sets rho and the draws.

        The bound is not looked at, which would cost a second factorisation: it may fall, and `run` is the safe way.
        On rows only observations that were visited before or are visited now are looked at (C21). Raises `DataError` for
        rows that are empty or out of range, `NumericalError` if the step fails, with nothing changed.
        """
        rho = tf.constant(self.step_size(step), model.basis.nu.dtype)
        seed = tf.constant([self.seed, step], tf.int32)
        if rows is None:
            report = self._whole(model, rho, seed)
        else:
            report = self._batch(model, self._checked_rows(model, rows), rho, seed)
        if tf.executing_eagerly() and not report.ok:
            raise step_failure()
        return report

    def run(
        self,
        model: CVIGP,
        *,
        steps: int = 200,
        tolerance: float = 1e-10,
        batch_size: int | None = None,
        progress: bool = False,
    ) -> ConjugateResult:
        """Step until the squared change of the sites is below `tolerance` times their squared length, or `steps` times.

        On all data a step after which the bound is lower is halved, and later steps grow back to rho. On minibatches,
        drawn without replacement, and where expectations are sampled, it is not: use rho below 1, or let it decay.
        Raises as `minimize`; the sites are those of the last sound step then.
        """
        if batch_size is None:
            return run_whole(self, model, steps, tolerance, progress)
        return run_batches(self, model, steps, batch_size, progress)

    def compiled_probe(self, model: CVIGP) -> Callable[..., Probe]:
        """The bound and the targets as a function of the sites and a seed; the kernel matrix is computed here, once."""
        basis = model.basis
        K = gram(model.kernel, basis.points)

        def of_prior(tau: tf.Tensor) -> tuple[tf.Tensor, ...]:
            variance = tf.broadcast_to(tf.transpose(tf.linalg.diag_part(K)), tf.shape(tau))
            return tf.zeros_like(tau), variance, tf.zeros([], tau.dtype), tf.constant(True)

        def of_sites(nu: tf.Tensor, tau: tf.Tensor) -> tuple[tf.Tensor, ...]:
            state = basis.state_at(K, nu, tau)
            return state.mean, state.variance, basis.prior_kl(state), state.ok

        @Compiled
        def probe(nu: tf.Tensor, tau: tf.Tensor, seed: tf.Tensor) -> Probe:
            none = tf.reduce_all((nu == 0.0) & (tau == 0.0))  # the usual start needs no factorisation
            mean, variance, divergence, ok = tf.cond(none, lambda: of_prior(tau), lambda: of_sites(nu, tau))
            found = self._expectations(model, mean, variance, model.data, seed)
            elbo = tf.reduce_sum(found.value) - divergence
            return Probe(elbo, ok & tf.math.is_finite(elbo), *self.targets(found.g, found.h, mean))

        return probe

    def _expectations(
        self, model: CVIGP, mean: tf.Tensor, variance: tf.Tensor, data: tuple, seed: tf.Tensor
    ) -> Expectations:
        if self.samples is None:
            return by_quadrature(model, mean, variance, data)
        return by_sampling(model, mean, variance, data, self.samples, seed)

    def targets(self, g: tf.Tensor, h: tf.Tensor, u: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Where nu and tau [N, L] go, and how many precisions were clipped."""
        clipped = tf.constant(0)
        if self.negative_precision == "clip":
            h, clipped = tf.minimum(h, 0.0), tf.math.count_nonzero(h > 0, dtype=tf.int32)
        return g - 2.0 * h * u, -2.0 * h, clipped  # (C13)

    def _whole(self, model: CVIGP, rho: tf.Tensor, seed: tf.Tensor) -> StepReport:
        basis = model.basis
        K = gram(model.kernel, basis.points)
        state = basis.state_at(K, basis.nu, basis.tau)
        found = self._expectations(model, state.mean, state.variance, model.data, seed)
        *target, clipped = self.targets(found.g, found.h, state.mean)
        old = tf.convert_to_tensor(basis.nu), tf.convert_to_tensor(basis.tau)
        step, ok = self.feasible(K, old[1], target[1], rho)
        new = [(1.0 - step) * was + step * goal for was, goal in zip(old, target)]  # (C13)
        return _write(basis, new, state.ok & ok, tf.cast(step < rho, tf.int32), clipped)

    def _batch(self, model: CVIGP, rows: tf.Tensor, rho: tf.Tensor, seed: tf.Tensor) -> StepReport:
        """(C19) or (C20), with the posterior of the visited observations alone (C21)."""
        basis = model.basis
        nu, tau = tf.convert_to_tensor(basis.nu), tf.convert_to_tensor(basis.tau)
        visited = tf.reduce_any((nu != 0.0) | (tau != 0.0), axis=1)
        visited = tf.tensor_scatter_nd_update(visited, rows[:, None], tf.ones_like(rows, tf.bool))
        known = tf.where(visited)[:, 0]
        places = tf.gather(tf.cumsum(tf.cast(visited, tf.int32)) - 1, rows)
        K = prior_variance(model.kernel, tf.gather(basis.X, known), full_cov=True)
        state = basis.state_at(K, tf.gather(nu, known), tf.gather(tau, known))  # (C21)
        u, v = (tf.gather(moment, places) for moment in (state.mean, state.variance))
        batch = tuple(tf.gather(array, rows) for array in model.data)
        found = self._expectations(model, u, v, batch, seed)
        *target, clipped = self.targets(found.g, found.h, u)
        goals = [self._spread(goal, old, rows) for goal, old in zip(target, (nu, tau))]
        step, ok = self.feasible(K, tf.gather(tau, known), tf.gather(goals[1], known), rho)
        new = [(1.0 - step) * old + step * goal for old, goal in zip((nu, tau), goals)]
        return _write(basis, new, state.ok & ok, tf.cast(step < rho, tf.int32), clipped)

    def _spread(self, goal: tf.Tensor, old: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        """Targets of all sites [N, L] from those of the batch."""
        if self.update == "local":
            return tf.tensor_scatter_nd_update(old, rows[:, None], goal)  # (C20)
        scale = tf.cast(tf.shape(old)[0], goal.dtype) / tf.cast(tf.shape(rows)[0], goal.dtype)
        return tf.tensor_scatter_nd_add(tf.zeros_like(old), rows[:, None], scale * goal)  # (C19)

    def feasible(self, K: tf.Tensor, old: tf.Tensor, goal: tf.Tensor, rho: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The largest of rho, rho / 2, ... at which the posterior exists, for precisions [n, L], and whether it does."""

        def exists(step: tf.Tensor) -> tf.Tensor:
            tau = (1.0 - step) * old + step * goal
            positive = tf.reduce_all(tau >= 0.0)
            return tf.cond(positive, lambda: positive, lambda: site_posterior(K, tf.zeros_like(tau), tau).ok)

        def fails(step: tf.Tensor, ok: tf.Tensor) -> tf.Tensor:
            return tf.logical_not(ok) & (step > rho * 0.5**MAX_HALVINGS)

        if self.negative_precision != "damp":
            return rho, exists(rho)
        return tf.while_loop(fails, lambda step, _: (0.5 * step, exists(0.5 * step)), (rho, exists(rho)))

    @staticmethod
    def _checked_rows(model: CVIGP, rows: Any) -> tf.Tensor:
        rows = tf.cast(tf.convert_to_tensor(rows), tf.int32)
        if rows.shape.rank != 1 or rows.shape[0] == 0:
            raise DataError(
                f"rows has shape {tuple(rows.shape)}; it must be [B], the indices of at least one observation."
            )
        if tf.executing_eagerly() and not tf.reduce_all((rows >= 0) & (rows < model.basis.num_data)):
            raise DataError(f"rows must be indices from 0 to {model.basis.num_data - 1}; the model has no other data.")
        return rows


def _write(
    basis: SiteBasis, new: list[tf.Tensor], ok: tf.Tensor, shortened: tf.Tensor, clipped: tf.Tensor
) -> StepReport:
    ok = ok & tf.reduce_all([tf.reduce_all(tf.math.is_finite(value)) for value in new])

    def assign() -> tf.Tensor:
        basis.nu.assign(new[0])
        basis.tau.assign(new[1])
        return ok

    tf.cond(ok, assign, lambda: ok)
    return StepReport(ok, shortened, clipped)
