"""Conjugate-computation variational inference for a full GP."""

from __future__ import annotations

__all__ = [
    "ConjugateComputation", "ConjugateRecorder", "ConjugateResult", "Probe", "SiteRule",
    "all_finite", "checked_rows", "field_probe", "run_batches", "run_whole", "step_failure",
    "warn_of_steps", "write_sites",
]  # fmt: skip

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from gpflow.base import RegressionData
from tqdm.auto import tqdm

from ..bases import SiteBasis
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
    Recorder,
    RunResult,
    StepReport,
    StepSize,
    ascend,
    clip_curvature,
    has_fallen,
    largest_feasible_step,
    round_off,
    step_size_at,
)
from .data_passes import Expectations, by_quadrature, by_sampling, minibatch_goal, visited_posterior

# ---
# Result of conjugate computation, and its recorder.


_RISE = 1e-3
"""Nats by which the last step of a run has to raise the bound for a warning."""


@dataclass(kw_only=True, repr=False)
class ConjugateResult(RunResult):
    """Result of `ConjugateComputation.run`, `sweep` or `MeanFieldCVI.run`.

    `history` has one entry per kept step: "step", "seconds", "step_size", "change" (squared
    distance of the sites, or messages, from a full step) and "elbo" (nats; on minibatches at the
    end of each epoch, else NaN).

    Example::

        result = ConjugateComputation().run(model)
        print(result)
        plt.plot(result.history["seconds"], result.history["elbo"])
    """

    shortened_steps: int = 0
    """Number of halvings, for a posterior to exist or because the bound had fallen."""
    clipped_sites: int = 0
    """Negative precisions replaced by zero, over all steps."""

    def __str__(self) -> str:
        extra = f", {self.shortened_steps} halvings" if self.shortened_steps else ""
        extra += f", {self.clipped_sites} clipped sites" if self.clipped_sites else ""
        return super().__str__() + extra


class ConjugateRecorder(Recorder):
    """The history of a running optimizer, with the counts of a `ConjugateResult`."""

    def __init__(self) -> None:
        super().__init__("step_size", "change", "elbo")
        self.shortened = 0
        self.clipped = 0

    def add(self, step_size: float, change: float, elbo: float, clipped: int = 0) -> None:
        """Record a kept step; `elbo` is NaN if not computed."""
        self.append(len(self) + 1, step_size=step_size, change=change, elbo=elbo)
        self.clipped += clipped

    def result(self, reason: str, elbo: float | None = None) -> ConjugateResult:
        """Return the result; `elbo` is by default the last bound recorded."""
        if elbo is None:
            bounds = self.history["elbo"]
            known = bounds[np.isfinite(bounds)]
            elbo = float(known[-1]) if len(known) else float("nan")
        return self.finish(
            ConjugateResult,
            elbo,
            reason,
            shortened_steps=self.shortened,
            clipped_sites=self.clipped,
        )


def warn_of_steps(result: ConjugateResult) -> None:
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
# Runs of `ConjugateComputation`.


class Probe(NamedTuple):
    """The bound for some sites, and the sites of a full step."""

    elbo: tf.Tensor
    """[], nats."""
    ok: tf.Tensor
    """[], bool: the posterior exists and the bound is finite."""
    nu: tf.Tensor
    """[N, L]: nu after a full step."""
    tau: tf.Tensor
    """[N, L]: tau after a full step."""
    clipped: tf.Tensor
    """[], int: negative precisions that were clipped."""


class SiteRule(Protocol):
    """The interface of a `ConjugateComputation` for runs."""

    samples: int | None
    negative_precision: str
    seed: int

    def step_size_at(self, step: int) -> float:
        """The step size of step 0, 1 and so on."""

    def compiled_probe(
        self, model: CVIGP | GMRF
    ) -> Callable[[tf.Tensor, tf.Tensor, tf.Tensor], Probe]:
        """Return nu, tau [N, L], seed [2] -> `Probe`."""

    def minimize(
        self, model: CVIGP, rows: npt.ArrayLike | None = None, step: int = 0
    ) -> StepReport:
        """One step on the observations `rows` [B]."""


class _Point(NamedTuple):
    nu: tf.Tensor
    tau: tf.Tensor
    probe: Probe
    step_size: float
    change: float
    """Squared length of a full step from the sites before."""


class _SiteClimber:
    def __init__(self, rule: SiteRule, model: CVIGP | GMRF, tolerance: float, bar: tqdm) -> None:
        self.rule, self.model, self.tolerance, self.bar = rule, model, tolerance, bar
        self.record = ConjugateRecorder()
        self.probe = rule.compiled_probe(model)
        self.round_off = round_off(model.float_type)

    def start(self) -> _Point:
        nu, tau = (
            tf.convert_to_tensor(self.model.basis.nu),
            tf.convert_to_tensor(self.model.basis.tau),
        )
        return _Point(nu, tau, self.probe(nu, tau, _seed(self.rule, 0)), np.nan, np.inf)

    def propose(self, now: _Point, step: int, share: float) -> _Point:
        size, goal = share * self.rule.step_size_at(step), now.probe
        nu = (1.0 - size) * now.nu + size * goal.nu  # (C13)
        tau = (1.0 - size) * now.tau + size * goal.tau  # (C13)
        change = _squared(goal.nu - now.nu, goal.tau - now.tau)
        return _Point(nu, tau, self.probe(nu, tau, _seed(self.rule, step + 1)), size, change)

    def accept(self, now: _Point, then: _Point) -> bool:
        rule, elbo = self.rule, float(then.probe.elbo)
        if not then.probe.ok and rule.negative_precision == "raise":
            raise step_failure()
        may_fall = rule.samples is not None or rule.negative_precision == "clip"
        fell = has_fallen(float(now.probe.elbo), elbo, relative=self.round_off)
        if not then.probe.ok or (fell and not may_fall):
            self.record.shortened += 1
            return False
        self.record.add(then.step_size, then.change, elbo, int(now.probe.clipped))
        self.model.basis.nu.assign(then.nu)
        self.model.basis.tau.assign(then.tau)
        self.bar.set_postfix(ELBO=f"{elbo:.6g}")
        return True

    def converged(self, now: _Point) -> bool:
        return now.change <= self.tolerance * (1.0 + _squared(now.nu, now.tau))


def run_whole(
    rule: SiteRule, model: CVIGP | GMRF, steps: int, tolerance: float, progress: bool
) -> ConjugateResult:
    """Run steps of `rule` on all data, halved where they lower the bound."""
    bar = tqdm(range(steps), disable=not progress, desc="CVI")
    climber = _SiteClimber(rule, model, tolerance, bar)
    start = climber.start()
    if not start.probe.ok:
        cause = unusable_observation(model, None) if isinstance(model, CVIGP) else None
        raise cause or step_failure()
    end = ascend(climber, start, bar)
    return climber.record.result(end.reason, float(end.now.probe.elbo))


def run_batches(
    rule: SiteRule, model: CVIGP, steps: int, batch_size: int, progress: bool
) -> ConjugateResult:
    """Run steps of `rule` on minibatches without replacement, with a bound per epoch."""
    basis = model.basis
    if not (is_whole(batch_size, 1) and batch_size <= basis.num_data):
        raise DataError(
            f"batch_size={short_repr(batch_size)} must be from 1 to the number of observations,"
            f" {basis.num_data}."
        )
    record, per_epoch = ConjugateRecorder(), -(-basis.num_data // batch_size)
    generator, order = np.random.default_rng(rule.seed), np.arange(0)
    for step in tqdm(range(steps), disable=not progress, desc="CVI"):
        order = generator.permutation(basis.num_data) if len(order) == 0 else order
        rows, order = order[:batch_size], order[batch_size:]
        before = basis.nu.numpy(), basis.tau.numpy()
        report = rule.minimize(model, rows, step)
        size = rule.step_size_at(step)
        change = _squared(basis.nu.numpy() - before[0], basis.tau.numpy() - before[1]) / size**2
        ends_epoch = (step + 1) % per_epoch == 0 or step + 1 == steps
        elbo = float(model.elbo()) if ends_epoch else float("nan")
        record.add(size, change, elbo, int(report.clipped))
        record.shortened += int(report.shortened)
    return record.result("steps done")


def step_failure() -> NumericalError:
    """The error for a failed step; the sites are the old ones."""
    return NumericalError(
        "The step of the sites failed: I + W^1/2 K W^1/2 or the bound is not finite, or K^-1 + W is"
        ' not positive definite. Use a smaller step_size, negative_precision="clip", or a kernel'
        " with a smaller variance.",
        matrix="K^-1 + W",
    )


def _seed(rule: SiteRule, step: int) -> tf.Tensor:
    return tf.constant([rule.seed, step], tf.int32)


def _squared(*arrays: npt.ArrayLike) -> float:
    return float(sum(tf.reduce_sum(tf.square(array)) for array in arrays))


# ---
# Steps of a `GMRF`, in SciPy.


Targets = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor, tf.Tensor]]
"""g, h and the mean of eta, [N, 1] each -> nu, tau and the number of clipped precisions."""


def field_probe(
    targets: Targets, model: GMRF
) -> Callable[[tf.Tensor, tf.Tensor, tf.Tensor], Probe]:
    """Return a function (nu, tau [N, 1], seed [2]) -> the bound and the next targets."""

    def probe(nu: tf.Tensor, tau: tf.Tensor, seed: tf.Tensor) -> Probe:
        state, dtype = model.state_at(nu, tau), model.float_type
        if state is None:
            return Probe(
                tf.constant(float("nan"), dtype), tf.constant(False), nu, tau, tf.constant(0)
            )
        mean, variance = (tf.constant(part, dtype) for part in (state.mean, state.variance))
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch([mean, variance])
            expected = tf.reduce_sum(model.expected_log_densities(mean, variance))
        g, h = tape.gradient(expected, [mean, variance])
        elbo = expected - state.divergence
        return Probe(elbo, tf.math.is_finite(elbo), *targets(g, h, mean))

    return probe


# ---


# With u = f - m_0 and derivatives g, h of E_q log p(y_n | f_n) in mean and variance, a step of size
# rho moves the natural parameters of the sites by (C13)
#
#   nu <- (1 - rho) nu + rho (g - 2 h u),   tau <- (1 - rho) tau - 2 rho h


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
