"""Conjugate-computation variational inference for a full GP."""

from __future__ import annotations

__all__ = [
    "ConjugateComputation", "Visited", "all_finite", "checked_rows", "visited_posterior",
    "write_sites",
]  # fmt: skip

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from gpflow.base import RegressionData
from tqdm.auto import tqdm

from ..bases import SiteBasis
from ..bases.site import SiteState
from ..bases.state_space import Chain, StateSpaceState
from ..compilation import Compiled
from ..covariances.latents import mix_outputs
from ..diagnostics.accuracy import warn_of_quadrature
from ..diagnostics.failure import unusable_observation
from ..errors import DataError, NumericalError, check_option
from ..inputs import check_rate, check_whole, is_whole
from ..models import CVIGP, GMRF
from ..models.families import require_model
from ..summaries import settings_line, short_repr
from ..user_warnings import warn_user
from .ascent import (
    INTERRUPTED,
    POLICIES,
    ConjugateResult,
    DampedUpdate,
    Point,
    Probe,
    SiteRecorder,
    StepReport,
    StepSize,
    clip_curvature,
    has_fallen,
    largest_feasible_step,
    step_size_at,
)
from .data_passes import Expectations, by_quadrature, by_sampling

# ---
# Checked rows, written sites.


def all_finite(values: tf.Tensor) -> tf.Tensor:
    """True if all entries are finite, a scalar."""
    return tf.reduce_all(tf.math.is_finite(values))


def checked_rows(model: CVIGP, rows: npt.ArrayLike) -> tf.Tensor:
    """Indices of observations [B] as a tensor; `DataError` for invalid ones."""
    given = tf.convert_to_tensor(rows)
    shape = tuple(given.shape)
    if len(shape) != 1 or shape[0] == 0:
        raise DataError(
            f"rows has shape {shape}; it must be [B], the indices of at least one observation."
        )
    if not given.dtype.is_integer:
        raise DataError(
            f"rows are {given.dtype.name} and must be whole numbers; of a mask pass"
            " np.flatnonzero(mask)."
        )
    # int32 would wrap numbers beyond it to rows that exist
    indices: tf.Tensor = tf.cast(given, tf.int64)
    if tf.executing_eagerly() and not tf.reduce_all(
        (indices >= 0) & (indices < model.basis.num_data)
    ):
        raise DataError(
            f"rows must be indices from 0 to {model.basis.num_data - 1}; the model has no other"
            " data."
        )
    return tf.cast(indices, tf.int32)


def write_sites(
    basis: SiteBasis, new: list[tf.Tensor], ok: tf.Tensor, shortened: tf.Tensor, clipped: tf.Tensor
) -> StepReport:
    """Write new sites [N, L] if all is well, and report."""
    ok = ok & tf.reduce_all([all_finite(value) for value in new])

    def assign() -> tf.Tensor:
        basis.nu.assign(new[0])
        basis.tau.assign(new[1])
        return ok

    tf.cond(ok, assign, lambda: ok)
    return StepReport(ok, shortened, clipped)


# ---
# The observations that minibatches have visited.


class Visited(NamedTuple):
    """The posterior of all observations with sites, a minibatch [B] included."""

    known: tf.Tensor
    """Their indices [n]."""
    places: tf.Tensor
    """Places of the minibatch among them [B]."""
    K: tf.Tensor | Chain
    """Their prior, covariances [G, n, n] or a chain."""
    state: SiteState | StateSpaceState
    """Posterior of the n observations."""


def visited_posterior(model: CVIGP, rows: tf.Tensor) -> Visited:
    """The posterior of the visited observations (C21), `rows` [B] included; n^3 for n of them."""
    basis = model.basis
    nu, tau = tf.convert_to_tensor(basis.nu), tf.convert_to_tensor(basis.tau)
    visited = tf.reduce_any((nu != 0.0) | (tau != 0.0), axis=1)
    visited = tf.tensor_scatter_nd_update(visited, rows[:, None], tf.ones_like(rows, tf.bool))
    known = tf.where(visited)[:, 0]
    places = tf.gather(tf.cumsum(tf.cast(visited, tf.int32)) - 1, rows)
    K = basis.prior_of(model.kernel, known)
    return Visited(
        known, places, K, basis.state_at(K, tf.gather(nu, known), tf.gather(tau, known))
    )  # (C21)


# ---
# Runs of `ConjugateComputation`.


class _SiteClimber(DampedUpdate):
    def size_at(self, step: int) -> float:
        return float(self.rule.step_size_at(step))

    def length(self, now: Point | None, probe: Probe) -> float:
        """The squared length of a full step from the sites before."""
        if now is None:
            return np.inf
        return _squared(*(goal - was for was, goal in zip(now.q, now.probe.goal)))

    def refuses(self, before: Probe, after: Probe) -> bool:
        if not after.ok and self.rule.negative_precision == "raise":
            raise _step_failure()
        may_fall = self.rule.samples is not None or self.rule.negative_precision == "clip"
        fell = has_fallen(float(before.elbo), float(after.elbo), relative=self.round_off)
        return not after.ok or (fell and not may_fall)

    def converged(self, now: Point) -> bool:
        return now.change <= self.tolerance * (1.0 + _squared(*now.q))


def _step_failure() -> NumericalError:
    """The error for a failed step; the sites are the old ones."""
    return NumericalError(
        "The step of the sites failed: I + W^1/2 K W^1/2 or the bound is not finite, or K^-1 + W is"
        ' not positive definite. Use a smaller step_size, negative_precision="clip", or a kernel'
        " with a smaller variance.",
        matrix="K^-1 + W",
    )


def _squared(*arrays: npt.ArrayLike) -> float:
    return float(sum(tf.reduce_sum(tf.square(array)) for array in arrays))


# ---


# With u = f - m_0 and derivatives g, h of E_q log p(y_n | f_n) in mean and variance, a step of size
# rho moves the natural parameters of the sites by (C13)
#
#   nu <- (1 - rho) nu + rho (g - 2 h u),   tau <- (1 - rho) tau - 2 rho h


_STEPS = 200
"""Most steps of a run, by default; a run of fewer does not warn where it ends early."""
_NEGATIVE = 1e-3
"""A negative variance above this share of the prior's is no round-off, even in float32."""


_RISE = 1e-3
"""Nats by which the last step of a run has to raise the bound for a warning."""


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

    @tf.autograph.experimental.do_not_convert
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
        indices = None if rows is None else checked_rows(model, rows)
        report = self._step(model, indices, size, self._seed(step))
        if tf.executing_eagerly() and not report.ok:
            raise self._cause(model, indices) or _step_failure()
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
        bar = tqdm(range(steps), disable=not progress, desc="CVI")
        if batch_size is not None:
            result = self._run_batches(model, batch_size, bar)
        else:
            probe = self.compiled_probe(model)
            climber = _SiteClimber(
                self,
                model,
                lambda sites, step: probe(sites[0], sites[1], self._seed(step)),
                tolerance,
                bar,
            )
            sites = model.basis.nu, model.basis.tau

            def failure() -> NumericalError:
                cause = unusable_observation(model, None) if isinstance(model, CVIGP) else None
                return cause or _step_failure()

            end = climber.run(*map(tf.convert_to_tensor, sites), failure=failure)
            result = climber.record.result(end.reason, float(end.now.probe.elbo))
            if self.samples is None and steps >= _STEPS:
                _warn_of_steps(result)
        if isinstance(model, CVIGP):
            _check_kernel(model)
            warn_of_quadrature(model, result.elbo)
        return result

    def _run_batches(self, model: CVIGP, batch_size: int, bar: tqdm) -> ConjugateResult:
        """Take steps on minibatches without replacement, with a bound per epoch."""
        basis, steps = model.basis, len(bar)
        if not (is_whole(batch_size, 1) and batch_size <= basis.num_data):
            raise DataError(
                f"batch_size={short_repr(batch_size)} must be from 1 to the number of observations,"
                f" {basis.num_data}."
            )
        record, per_epoch = SiteRecorder(), -(-basis.num_data // batch_size)
        generator, order = np.random.default_rng(self.seed), np.arange(0)
        for step in bar:
            order = generator.permutation(basis.num_data) if len(order) == 0 else order
            rows, order = order[:batch_size], order[batch_size:]
            before = basis.nu.numpy(), basis.tau.numpy()
            report, size = self.minimize(model, rows, step), self.step_size_at(step)
            moved = basis.nu.numpy() - before[0], basis.tau.numpy() - before[1]
            ends_epoch = (step + 1) % per_epoch == 0 or step + 1 == steps
            elbo = float(model.elbo()) if ends_epoch else np.nan
            record.add(size, _squared(*moved) / size**2, elbo, int(report.clipped))
            record.shortened += int(report.shortened)
        return record.result("steps done")

    def compiled_probe(
        self, model: CVIGP | GMRF
    ) -> Callable[[tf.Tensor, tf.Tensor, tf.Tensor], Probe]:
        """Return a compiled function (nu, tau [N, L], seed [2]) -> the bound and next targets.

        The kernel matrix is computed once, here, at the present hyperparameters.
        """
        if isinstance(model, GMRF):
            return partial(self._field_probe, model)
        basis = model.basis
        K = basis.prior(model.kernel)

        def of_prior(tau: tf.Tensor) -> tuple[tf.Tensor, ...]:
            variance, none = basis.prior_variances(K), tf.zeros([], tau.dtype)
            return tf.zeros_like(tau), variance, none, tf.constant(True)

        def of_sites(nu: tf.Tensor, tau: tf.Tensor) -> tuple[tf.Tensor, ...]:
            state = basis.state_at(K, nu, tau)
            return state.mean, state.variance, basis.prior_kl(state), state.ok

        @Compiled
        def probe(nu: tf.Tensor, tau: tf.Tensor, seed: tf.Tensor) -> Probe:
            # the usual start needs no factorisation
            none = tf.reduce_all((nu == 0.0) & (tau == 0.0))
            mean, variance, divergence, ok = tf.cond(
                none, lambda: of_prior(tau), lambda: of_sites(nu, tau)
            )
            found = self._expectations(model, mean, variance, model.data, seed)
            elbo = tf.reduce_sum(found.value) - divergence
            *goal, clipped = self.targets(found.g, found.h, mean)
            return Probe(elbo, ok & tf.math.is_finite(elbo), tuple(goal), clipped)

        return probe

    def _field_probe(self, model: GMRF, nu: tf.Tensor, tau: tf.Tensor, seed: tf.Tensor) -> Probe:
        """The same of a field, in SciPy."""
        state, dtype = model.state_at(nu, tau), model.float_type
        if state is None:
            none = tf.constant(np.nan, dtype)
            return Probe(none, tf.constant(False), (nu, tau), tf.constant(0))
        mean, variance = (tf.constant(part, dtype) for part in (state.mean, state.variance))
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch([mean, variance])
            expected = tf.reduce_sum(model.expected_log_densities(mean, variance))
        g, h = tape.gradient(expected, [mean, variance])
        elbo = expected - state.divergence
        *goal, clipped = self.targets(g, h, mean)
        return Probe(elbo, tf.math.is_finite(elbo), tuple(goal), clipped)

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

    def _seed(self, step: int | tf.Tensor) -> tf.Tensor:
        return tf.convert_to_tensor([self.seed, step], tf.int32)

    def _step(
        self, model: CVIGP, rows: tf.Tensor | None, step_size: tf.Tensor, seed: tf.Tensor
    ) -> StepReport:
        """(C13); on a minibatch (C19) or (C20), from the posterior given the visited rows (C21)."""
        basis, data = model.basis, model.data
        nu, tau = model.sites
        # 1) the posterior of all observations, or of those in the minibatch or with sites
        if rows is None:
            K = basis.prior(model.kernel)
            state = basis.state_at(K, nu, tau)
            u, v = state.mean, state.variance
        else:
            known, places, K, state = visited_posterior(model, rows)
            u, v = (tf.gather(moment, places) for moment in (state.mean, state.variance))
            data = tuple(tf.gather(array, rows) for array in data)
        # 2) where its expectations lead all N sites
        found = self._expectations(model, u, v, data, seed)
        *goals, clipped = self.targets(found.g, found.h, u)
        if rows is None:
            before, after = tau, goals[1]
        else:
            goals = [self._goal(goal, old, rows) for goal, old in zip(goals, (nu, tau))]
            before, after = (tf.gather(part, known) for part in (tau, goals[1]))
        # 3) the step
        step, ok = self.feasible(partial(basis.exists, K), before, after, step_size)
        new = [(1.0 - step) * old + step * goal for old, goal in zip((nu, tau), goals)]  # (C13)
        ok = state.ok & ok & all_finite(found.value)
        return write_sites(basis, new, ok, tf.cast(step < step_size, tf.int32), clipped)

    def _goal(self, goal: tf.Tensor, old: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        """Targets [N, L] of all sites, from targets [B, L] of the minibatch `rows` [B]."""
        if self.update == "local":
            return tf.tensor_scatter_nd_update(old, rows[:, None], goal)  # (C20)
        scale = tf.cast(tf.shape(old)[0], goal.dtype) / tf.cast(tf.shape(rows)[0], goal.dtype)
        return tf.tensor_scatter_nd_add(tf.zeros_like(old), rows[:, None], scale * goal)  # (C19)

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


def _warn_of_steps(result: ConjugateResult) -> None:
    """Warn if a run has used up its steps while the bound was still rising."""
    bounds = result.history["elbo"]
    if result.converged or result.reason == INTERRUPTED or len(bounds) < 2:
        return
    rise = float(bounds[-1] - bounds[-2])
    if rise > _RISE:
        warn_user(
            f"The sites have not converged: the last of {result.steps} steps raised the bound by"
            f" {rise:.2g} nats, to {result.elbo:.6g}, and {result.shortened_steps} were halved. Run"
            " the optimizer again, which goes on from here, or give it more steps."
        )
