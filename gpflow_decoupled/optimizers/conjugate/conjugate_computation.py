"""Conjugate-computation variational inference for a full GP."""

# With u = f - m_0 and derivatives g, h of E_q log p(y_n | f_n) in mean and variance, a step of size
# rho moves the natural parameters of the sites by (C13)
#
#   nu <- (1 - rho) nu + rho (g - 2 h u),   tau <- (1 - rho) tau - 2 rho h

from __future__ import annotations

__all__ = ["ConjugateComputation"]

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy.typing as npt
import tensorflow as tf
from gpflow.base import RegressionData

from ...compilation import Compiled
from ...covariances.latents import mix_outputs
from ...diagnostics.accuracy import warn_of_quadrature
from ...diagnostics.unusable_observation import unusable_observation
from ...errors import DataError, NumericalError, check_option
from ...inputs import check_rate, check_whole, is_whole
from ...models import CVIGP, GMRF
from ...models.families import require_model
from ...summaries import settings_line, short_repr
from ..steps import (
    POLICIES,
    StepReport,
    StepSize,
    clip_curvature,
    largest_feasible_step,
    step_size_at,
)
from .conjugate_result import ConjugateResult, warn_of_steps
from .field_sites import field_probe
from .local_expectations import Expectations, by_quadrature, by_sampling
from .site_runs import Probe, run_batches, run_whole, step_failure
from .site_updates import all_finite, checked_rows, write_sites
from .visited import minibatch_goal, visited_posterior

_STEPS = 200
"""Most steps of a run, by default; a run of fewer does not warn where it ends early."""
_NEGATIVE = 1e-3
"""A negative variance above this share of the prior's is no round-off, even in float32."""


class _AtSites(NamedTuple):
    mean: tf.Tensor
    """[N, L], of f less the mean function."""
    variance: tf.Tensor
    """[N, L]"""
    divergence: tf.Tensor
    """[], KL from the prior in nats."""
    ok: tf.Tensor
    """[], bool: the posterior exists."""


class ConjugateComputation(tf.Module):
    """Conjugate-computation VI for `models.CVIGP`: the best Gaussian q(f) at fixed hyperparameters.

    Cost: 4/3 N^3 per step and latent; on minibatches, N counts the observations visited so far.
    Source: Khan & Lin 2017 (arXiv:1703.04265).

    :param step_size: rho in (0, 1], a number or a function of the step 0, 1, ...; the paper's beta
        is rho / (1 - rho).
    :param update: on a minibatch, "local": its sites move; "global": all shrink and its sites gain
        N/B times as much.
    :param samples: draws to estimate expectations; None uses quadrature.
    :param negative_precision: "damp" allows negative site precisions, and halves the step until the
        posterior exists; "clip" replaces positive h by zero; "raise" raises `NumericalError` where
        no posterior exists.
    :param seed: of draws and minibatches.

    Example::

        model = CVIGP((X, Y), gpflow.kernels.Matern52(), gpflow.likelihoods.Bernoulli())
        result = ConjugateComputation().run(model)
        mean, variance = model.predict_y(Xnew)
    """

    def __init__(
        self,
        step_size: StepSize = 1.0,
        *,
        update: str = "local",
        samples: int | None = None,
        negative_precision: str = "damp",
        seed: int = 0,
    ) -> None:
        super().__init__()
        check_option("update", update, ("local", "global"))
        check_option("negative_precision", negative_precision, POLICIES)
        if samples is not None and not is_whole(samples, 1):
            raise DataError(
                f"samples={short_repr(samples)} must be a whole number of at least 1, or None for"
                " quadrature."
            )
        self.step_size, self.update, self.samples = step_size, update, samples
        self.negative_precision, self.seed = negative_precision, seed
        self.step_size_at(0)

    def __repr__(self) -> str:
        return settings_line(self)

    def step_size_at(self, step: int) -> float:
        """The step size of step 0, 1, ...; raises `DataError` outside (0, 1]."""
        return step_size_at(self.step_size, step)

    def minimize(
        self, model: CVIGP, rows: npt.ArrayLike | None = None, step: int | tf.Tensor = 0
    ) -> StepReport:
        """Take one step of all sites, or some rows' sites; safe inside `tf.function`.

        The bound may fall; `run` watches it.

        :param rows: indices [B] of a minibatch; None is all data.
        :param step: its number, for step size and draws; an int32 tensor for a constant step size.
        :return: whether the step was taken, shortened or clipped; read `ok` in a `tf.function`,
            which cannot raise.
        """
        require_model("ConjugateComputation.minimize", model, CVIGP)
        size = tf.constant(self.step_size_at(step), model.basis.nu.dtype)
        seed = tf.convert_to_tensor([self.seed, step], tf.int32)
        if rows is None:
            report = self._whole(model, size, seed)
        else:
            report = self._batch(model, checked_rows(model, rows), size, seed)
        if tf.executing_eagerly() and not report.ok:
            raise (
                self._cause(model, None if rows is None else checked_rows(model, rows))
                or step_failure()
            )
        return report

    def run(
        self,
        model: CVIGP | GMRF,
        *,
        steps: int = _STEPS,
        tolerance: float = 1e-10,
        batch_size: int | None = None,
        progress: bool = False,
    ) -> ConjugateResult:
        """Step until the sites have converged; leave the model at the last accepted sites.

        A step that lowers the bound is undone and halved; with minibatches or samples the bound is
        not watched: use a smaller or decaying step size.

        :param model: for a `GMRF` all data are used, and expectations by quadrature.
        :param steps: most steps, undone ones included.
        :param tolerance: stop when a full step, squared, is below this share of the sites, squared.
        :param batch_size: observations per minibatch, drawn without replacement, for all `steps`;
            None is all data.
        """
        require_model("ConjugateComputation.run", model, CVIGP, GMRF)
        check_whole(1, steps=steps)
        if tolerance != 0.0:  # zero: all steps are taken
            check_rate(tolerance=tolerance)
        if isinstance(model, GMRF) and not (batch_size is None and self.samples is None):
            raise DataError(
                "A GMRF takes steps on all data with expectations by quadrature: leave out"
                " batch_size and samples."
            )
        if batch_size is None or isinstance(model, GMRF):
            result = run_whole(self, model, steps, tolerance, progress)
        else:
            result = run_batches(self, model, steps, batch_size, progress)
        if batch_size is None and self.samples is None and steps >= _STEPS:
            warn_of_steps(result)
        if isinstance(model, CVIGP):
            _check_kernel(model)
            warn_of_quadrature(model, result.elbo)
        return result

    def compiled_probe(
        self, model: CVIGP | GMRF
    ) -> Callable[[tf.Tensor, tf.Tensor, tf.Tensor], Probe]:
        """Return a compiled function (nu, tau [N, L], seed [2]) -> the bound and next targets.

        The kernel matrix is computed once, here, at the present hyperparameters.
        """
        if isinstance(model, GMRF):
            return field_probe(self.targets, model)
        basis = model.basis
        K = basis.prior(model.kernel)

        def of_prior(tau: tf.Tensor) -> _AtSites:
            variance, none = basis.prior_variances(K), tf.zeros([], tau.dtype)
            return _AtSites(tf.zeros_like(tau), variance, none, tf.constant(True))

        def of_sites(nu: tf.Tensor, tau: tf.Tensor) -> _AtSites:
            state = basis.state_at(K, nu, tau)
            return _AtSites(state.mean, state.variance, basis.prior_kl(state), state.ok)

        @Compiled
        def probe(nu: tf.Tensor, tau: tf.Tensor, seed: tf.Tensor) -> Probe:
            # the usual start needs no factorisation
            none = tf.reduce_all((nu == 0.0) & (tau == 0.0))
            at = tf.cond(none, lambda: of_prior(tau), lambda: of_sites(nu, tau))
            found = self._expectations(model, at.mean, at.variance, model.data, seed)
            elbo = tf.reduce_sum(found.value) - at.divergence
            return Probe(
                elbo, at.ok & tf.math.is_finite(elbo), *self.targets(found.g, found.h, at.mean)
            )

        return probe

    def targets(
        self, g: tf.Tensor, h: tf.Tensor, u: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Return nu and tau [N, L] of a full step, and the number of clipped precisions [].

        :param g: dE/dmean [N, L]; h is dE/dvariance, u the mean of q(f) less the mean function.
        """
        h, clipped = clip_curvature(h, self.negative_precision)
        return g - 2.0 * h * u, -2.0 * h, clipped  # (C13)

    def feasible(
        self,
        exists: Callable[[tf.Tensor], tf.Tensor],
        old: tf.Tensor,
        goal: tf.Tensor,
        step_size: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return a step that keeps the posterior, and whether there is one, [] bool.

        Only "damp" halves.

        :param exists: precisions tau [n, L] -> whether the prior times such sites has a posterior.
        :param old: precisions [n, L], and their targets `goal`.
        """

        def holds(step: tf.Tensor) -> tf.Tensor:
            tau = (1.0 - step) * old + step * goal
            # then the posterior exists, and nothing need be factorised
            positive = tf.reduce_all(tau >= 0.0)
            return tf.cond(positive, lambda: positive, lambda: exists(tau))

        if self.negative_precision != "damp":
            return step_size, holds(step_size)
        return largest_feasible_step(holds, step_size)

    def _expectations(
        self,
        model: CVIGP,
        mean: tf.Tensor,
        variance: tf.Tensor,
        data: RegressionData,
        seed: tf.Tensor,
    ) -> Expectations:
        if self.samples is None:
            return by_quadrature(model, mean, variance, data)
        return by_sampling(model, mean, variance, data, self.samples, seed)

    def _whole(self, model: CVIGP, step_size: tf.Tensor, seed: tf.Tensor) -> StepReport:
        basis = model.basis
        K = basis.prior(model.kernel)
        state = basis.state_at(K, basis.nu, basis.tau)
        found = self._expectations(model, state.mean, state.variance, model.data, seed)
        *target, clipped = self.targets(found.g, found.h, state.mean)
        old = tf.convert_to_tensor(basis.nu), tf.convert_to_tensor(basis.tau)
        step, ok = self.feasible(partial(basis.exists, K), old[1], target[1], step_size)
        new = [(1.0 - step) * was + step * goal for was, goal in zip(old, target)]  # (C13)
        ok = state.ok & ok & all_finite(found.value)
        return write_sites(basis, new, ok, tf.cast(step < step_size, tf.int32), clipped)

    def _batch(
        self, model: CVIGP, rows: tf.Tensor, step_size: tf.Tensor, seed: tf.Tensor
    ) -> StepReport:
        """(C19) or (C20), from the posterior given the visited observations (C21)."""
        basis = model.basis
        nu, tau = tf.convert_to_tensor(basis.nu), tf.convert_to_tensor(basis.tau)
        # 1) the posterior of observations in the minibatch or with sites that are not zero
        known, places, K, state = visited_posterior(model, rows)
        # 2) what the minibatch contributes
        u, v = (tf.gather(moment, places) for moment in (state.mean, state.variance))
        batch = tuple(tf.gather(array, rows) for array in model.data)
        found = self._expectations(model, u, v, batch, seed)
        *target, clipped = self.targets(found.g, found.h, u)
        # 3) the step of all N sites
        goals = [
            minibatch_goal(self.update, goal, old, rows) for goal, old in zip(target, (nu, tau))
        ]
        before, after = (tf.gather(part, known) for part in (tau, goals[1]))
        step, ok = self.feasible(partial(basis.exists, K), before, after, step_size)
        new = [(1.0 - step) * old + step * goal for old, goal in zip((nu, tau), goals)]
        ok = state.ok & ok & all_finite(found.value)
        return write_sites(basis, new, ok, tf.cast(step < step_size, tf.int32), clipped)

    def _cause(self, model: CVIGP, rows: tf.Tensor | None) -> NumericalError | None:
        if rows is None:
            return unusable_observation(model, None)
        _, places, _, state = visited_posterior(model, rows)
        X, Y = (tf.gather(array, rows) for array in model.data)
        mean, variance = mix_outputs(
            model.kernel, *(tf.gather(part, places) for part in (state.mean, state.variance))
        )
        return unusable_observation(
            model, (X, Y), (mean + model.mean_function(X), variance), rows.numpy()
        )


def _check_kernel(model: CVIGP) -> None:
    """Refuse a kernel that is not positive semi-definite, by a negative variance of q(f)."""
    variance = model.basis.factor(model.kernel).variance
    prior = model.basis.prior_variances(model.basis.prior(model.kernel))
    least = float(tf.reduce_min(variance))
    if least < -_NEGATIVE * float(tf.reduce_max(tf.abs(prior))):
        raise NumericalError(
            f"q(f) has a variance of {least:.4g}: the kernel is not positive semi-definite. Use"
            " another formula of the kernel; no jitter makes up for that.",
            matrix="k(X, X)",
        )
