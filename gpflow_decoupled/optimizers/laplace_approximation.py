"""Laplace's approximation of a full GP."""

from __future__ import annotations

__all__ = ["LaplaceApproximation", "LaplaceProbe", "class_probe"]

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from tqdm.auto import tqdm

from ..bases.site import SiteState
from ..compilation import Compiled
from ..diagnostics.accuracy import warn_of_quadrature
from ..diagnostics.failure import unusable_observation
from ..errors import DataError, ModelError, NumericalError
from ..inputs import check_rate, check_whole
from ..likelihoods.facts import name_of
from ..linalg.newton_systems import class_mode_step
from ..linalg.whitening import apply_per_latent
from ..models import CVIGP, StateSpaceGP
from ..models.families import require_model
from ..summaries import settings_line
from .ascent import STUCK, ascend, has_fallen, round_off
from .tilted import Densities, EvidenceRecorder, EvidenceResult, attainable

# ---
# Laplace's approximation at one point; for classes.


# With p = softmax(m_0 + u) and e the label's unit vector, each observation has slope e - p and
# curvature W = diag(p) - p p^T, which couples its classes, (C73).


class LaplaceProbe(NamedTuple):
    """The sites and psi at one a = K^-1 u, and Newton's next point."""

    log_joint: tf.Tensor
    """[], nats: psi of (C55)."""
    evidence: tf.Tensor
    """[], nats: (C56), the estimate if u is the mode."""
    elbo: tf.Tensor
    """[], nats: of the sites."""
    ok: tf.Tensor
    """[], bool: all of these are finite."""
    nu: tf.Tensor
    """[N, L]: of the sites at u."""
    tau: tf.Tensor
    """[N, L]: of the sites at u."""
    goal: tf.Tensor
    """[N, L]: a after a Newton step."""
    change: tf.Tensor
    """[]: the largest change of u in that step, in standard deviations of q."""
    clipped: tf.Tensor
    """[], int: negative tau replaced by zero."""


def class_probe(model: CVIGP, densities: Densities, K: tf.Tensor, a: tf.Tensor) -> LaplaceProbe:
    """The findings for classes at u = K a, for a [N, C]."""
    u = apply_per_latent(K, a)
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(u)
        value = densities.log_prob(u)
    slope, p = tape.gradient(value, u), tf.nn.softmax(densities.offset + u)
    step, log_det, ok = class_mode_step(K, tf.transpose(p), tf.transpose(slope - a))  # (C73)
    goal = a + tf.transpose(step)
    # q has independent latents: the diagonal of W
    tau = p * (1.0 - p)
    state = model.basis.state_at(K, slope + tau * u, tau)
    log_joint = tf.reduce_sum(value) - 0.5 * tf.reduce_sum(a * u)  # (C55)
    moved = apply_per_latent(K, goal) - u
    change = tf.reduce_max(tf.abs(moved) / tf.sqrt(state.variance))
    expected = tf.reduce_sum(model.variational_expectations(state.mean, state.variance, model.data))
    ok &= state.ok & tf.math.is_finite(log_joint) & tf.math.is_finite(change)
    elbo = expected - model.basis.prior_kl(state)
    evidence = log_joint - 0.5 * log_det  # (C73)
    clipped = tf.constant(0)
    return LaplaceProbe(log_joint, evidence, elbo, ok, state.nu, state.tau, goal, change, clipped)


# ---


# With u = f - m_0 and l_n = log p(y_n | f_n) the mode u^ maximises psi, (C55), (C56):
#
#   psi(u) = sum l_n - 1/2 u^T K^-1 u,   tau = -l'',   nu = l' + tau u^
#   log Z = psi(u^) - 1/2 log det(I + K W)
#
# Iterates are a = K^-1 u, so K is not inverted.


class LaplaceApproximation:
    """Laplace's approximation for `models.CVIGP`, at fixed hyperparameters, by Newton's method.

    Fast, but less exact: q(f) is centred at the mode (Rasmussen & Williams 2006, section 3.4).
    Negative precisions without a posterior become zero. Cost per step and latent: 4/3 N^3.

    With `CategoricalLogit` mode and evidence use the joint curvature (Rasmussen & Williams 2006,
    section 3.5; 4 N^3), sites its diagonal: variances are a little small.

    :param tolerance: stop when a Newton step moves no value of u by more deviations, or gains
        nothing beyond round-off and does not shrink.
    :param max_steps: the largest number of steps.

    Example::

        model = CVIGP((X, Y), gpflow.kernels.Matern52(), BernoulliLogit())
        result = LaplaceApproximation().run(model)
        print(result.evidence_estimate)
        mean, variance = model.predict_y(Xnew)
    """

    def __init__(self, tolerance: float = 1e-8, max_steps: int = 200) -> None:
        check_rate(tolerance=tolerance)
        check_whole(1, max_steps=max_steps)
        self.tolerance, self.max_steps = float(tolerance), int(max_steps)

    def __repr__(self) -> str:
        return settings_line(self)

    def run(self, model: CVIGP, *, progress: bool = False) -> EvidenceResult:
        """Climb psi from the mean of the model's q(f), and leave the model with the mode's sites.

        :param progress: show a progress bar.
        """
        require_model("LaplaceApproximation.run", model, CVIGP)
        if isinstance(model, StateSpaceGP):
            raise ModelError(
                "LaplaceApproximation climbs in K^-1 f, and a StateSpaceGP has no K: use"
                " ConjugateComputation or ExpectationPropagation, or a CVIGP with the same data."
            )
        densities = Densities(model, "LaplaceApproximation")
        bar = tqdm(range(self.max_steps), disable=not progress, desc="LaplaceApproximation")
        _check_curvature(model, densities)
        climber = _ModeClimber(self, model, densities, bar)
        start = climber.start()
        if not start.probe.ok:
            raise unusable_observation(model, None) or _failure()
        climber.write(start)
        end = ascend(climber, start, bar)
        probe = end.now.probe
        reason = (
            "the log joint density does not rise any more" if end.reason == STUCK else end.reason
        )
        result = climber.record.result(
            reason, float(probe.evidence), float(probe.elbo), int(probe.clipped)
        )
        warn_of_quadrature(model, result.elbo)
        return result

    def compiled_probe(
        self, model: CVIGP, densities: Densities | None = None
    ) -> Callable[[tf.Tensor], LaplaceProbe]:
        """Return a compiled function of a [N, L] at the present hyperparameters.

        Raises the errors of `run`.
        """
        labels = Densities(model, "LaplaceApproximation") if densities is None else densities
        K = model.basis.prior(model.kernel)
        return Compiled(lambda a: _probe(model, labels, K, a))


def _probe(model: CVIGP, densities: Densities, K: tf.Tensor, a: tf.Tensor) -> LaplaceProbe:
    if densities.couples:
        return class_probe(model, densities, K, a)
    u = apply_per_latent(K, a)
    at = densities.expand(u)
    tau = -at.second  # (C55)

    def with_sites(tau: tf.Tensor) -> SiteState:
        return model.basis.state_at(K, at.first + tau * u, tau)  # (C55)

    # the true precisions where the posterior exists, else the positive ones
    state = with_sites(tau)
    state = tf.cond(state.ok, lambda: state, lambda: with_sites(tf.maximum(tau, 0.0)))
    log_joint = tf.reduce_sum(at.value) - 0.5 * tf.reduce_sum(a * u)  # (C55)
    change = tf.reduce_max(tf.abs(state.mean - u) / tf.sqrt(state.variance))
    expected = tf.reduce_sum(model.variational_expectations(state.mean, state.variance, model.data))
    ok = state.ok & tf.math.is_finite(log_joint) & tf.math.is_finite(change)
    evidence = log_joint - 0.5 * state.log_det  # (C56)
    clipped = tf.math.count_nonzero(state.tau != tau, dtype=tf.int32)
    elbo = expected - model.basis.prior_kl(state)
    return LaplaceProbe(
        log_joint, evidence, elbo, ok, state.nu, state.tau, state.alpha, change, clipped
    )


class _Point(NamedTuple):
    a: tf.Tensor
    probe: LaplaceProbe
    step_size: float
    before: LaplaceProbe | None = None
    """Findings at the step's start."""


class _ModeClimber:
    def __init__(
        self, rule: LaplaceApproximation, model: CVIGP, densities: Densities, bar: tqdm
    ) -> None:
        self.model, self.bar = model, bar
        self.tolerance = attainable(rule.tolerance, model.float_type)
        self.round_off = round_off(model.float_type)
        self.record = EvidenceRecorder()
        self.probe = rule.compiled_probe(model, densities)

    def start(self) -> _Point:
        a = self.model.basis.factor(self.model.kernel).alpha
        return _Point(a, self.probe(a), np.nan)

    def propose(self, now: _Point, step: int, share: float) -> _Point:
        a = now.a + share * (now.probe.goal - now.a)
        return _Point(a, self.probe(a), share, now.probe)

    def accept(self, now: _Point, then: _Point) -> bool:
        probe = then.probe
        if not probe.ok or has_fallen(
            float(now.probe.log_joint), float(probe.log_joint), relative=self.round_off
        ):
            self.record.shortened += 1
            return False
        self.record.add(
            then.step_size, float(probe.change), float(probe.evidence), float(probe.elbo)
        )
        self.write(then)
        self.bar.set_postfix(psi=f"{float(probe.log_joint):.6g}")
        return True

    def converged(self, now: _Point) -> bool:
        """True if the next Newton step is short, or as long as a last one that gained nothing."""
        probe, before = now.probe, now.before
        if before is None or float(probe.change) <= self.tolerance:
            return float(probe.change) <= self.tolerance
        rose = has_fallen(float(probe.log_joint), float(before.log_joint), relative=self.round_off)
        return not rose and float(probe.change) > 0.5 * float(before.change)

    def write(self, point: _Point) -> None:
        self.model.basis.nu.assign(point.probe.nu)
        self.model.basis.tau.assign(point.probe.tau)


def _check_curvature(model: CVIGP, densities: Densities) -> None:
    if densities.couples:
        return
    if not np.any(densities.expand(tf.zeros_like(densities.offset)).second):
        raise DataError(
            f"The log density of {name_of(model.likelihood)} is made of straight lines, so"
            " that its second derivative, which Laplace's approximation needs, is zero: use"
            " ExpectationPropagation or ConjugateComputation."
        )


def _failure() -> NumericalError:
    return NumericalError(
        "Laplace's approximation cannot start at the mean of the model's q(f): a log density is not"
        " finite there, or K^-1 + W is not positive definite. Set the sites nu and tau of the basis"
        " to zero, or use a kernel with a smaller variance.",
        matrix="K^-1 + W",
    )
