"""Laplace's approximation of a full GP."""

from __future__ import annotations

__all__ = ["LaplaceApproximation"]

from collections.abc import Callable

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
from .ascent import STUCK, DampedUpdate, EvidenceResult, Point, Probe, has_fallen
from .tilted import Densities, attainable

# ---
# Laplace's approximation at one point; for classes.


# With p = softmax(m_0 + u) and e the label's unit vector, each observation has slope e - p and
# curvature W = diag(p) - p p^T, which couples its classes, (C73).


def _class_probe(model: CVIGP, densities: Densities, K: tf.Tensor, a: tf.Tensor) -> Probe:
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
    return Probe(
        elbo, ok, (goal,), tf.constant(0), change, evidence, log_joint, (state.nu, state.tau)
    )


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
        probe = self.compiled_probe(model, densities)
        climber = _ModeClimber(
            self,
            model,
            lambda a, _: probe(*a),
            attainable(self.tolerance, model.float_type),
            bar,
            evidence_estimate="evidence",
        )
        end = climber.run(
            model.basis.factor(model.kernel).alpha,
            failure=lambda: unusable_observation(model, None) or _failure(),
        )
        climber.write(end.now)  # also where no step was taken
        found = end.now.probe
        result = climber.record.finish(
            EvidenceResult,
            float(found.elbo),
            "the log joint density does not rise any more" if end.reason == STUCK else end.reason,
            evidence_estimate=float(found.evidence),
            shortened_steps=climber.record.shortened,
            clipped_sites=int(found.dropped),
        )
        warn_of_quadrature(model, result.elbo)
        return result

    def compiled_probe(
        self, model: CVIGP, densities: Densities | None = None
    ) -> Callable[[tf.Tensor], Probe]:
        """Return a compiled function of a [N, L] at the present hyperparameters.

        Raises the errors of `run`.
        """
        labels = Densities(model, "LaplaceApproximation") if densities is None else densities
        K = model.basis.prior(model.kernel)
        return Compiled(lambda a: _probe(model, labels, K, a))


def _probe(model: CVIGP, densities: Densities, K: tf.Tensor, a: tf.Tensor) -> Probe:
    if densities.couples:
        return _class_probe(model, densities, K, a)
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
    sites = state.nu, state.tau
    return Probe(elbo, ok, (state.alpha,), clipped, change, evidence, log_joint, sites)


class _ModeClimber(DampedUpdate):
    def refuses(self, before: Probe, after: Probe) -> bool:
        return not after.ok or self._fell(before, after)

    def converged(self, now: Point) -> bool:
        """True if the next Newton step is short, or as long as a last one that gained nothing."""
        if now.before is None or now.change <= self.tolerance:
            return now.change <= self.tolerance
        return not self._fell(now.probe, now.before) and now.change > 0.5 * float(now.before.change)

    def _fell(self, before: Probe, after: Probe) -> bool:
        values = float(before.log_joint), float(after.log_joint)
        return has_fallen(*values, relative=self.round_off)


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
