"""Laplace's approximation of a full GP."""

# With u = f - m_0 and l_n = log p(y_n | f_n) the mode u^ maximises psi, (C55), (C56):
#
#   psi(u) = sum l_n - 1/2 u^T K^-1 u,   tau = -l'',   nu = l' + tau u^
#   log Z = psi(u^) - 1/2 log det(I + K W)
#
# Iterates are a = K^-1 u, so K is not inverted.

from __future__ import annotations

__all__ = ["LaplaceApproximation"]

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from tqdm.auto import tqdm

from ...bases.site import SiteState
from ...compilation import Compiled
from ...diagnostics.accuracy import warn_of_quadrature
from ...diagnostics.unusable_observation import unusable_observation
from ...errors import DataError, ModelError, NumericalError
from ...inputs import check_rate, check_whole
from ...linalg.gaussians import apply_per_latent
from ...models import CVIGP, StateSpaceGP
from ...models.families import require_model
from ...summaries import settings_line
from ..ascent import STUCK, ascend, has_fallen, round_off
from .densities import Densities
from .evidence_result import EvidenceRecorder, EvidenceResult, attainable
from .laplace_probe import LaplaceProbe, class_probe


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
            f"The log density of {type(model.likelihood).__name__} is made of straight lines, so"
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
