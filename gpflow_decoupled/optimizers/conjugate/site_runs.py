"""Runs of `ConjugateComputation`."""

from __future__ import annotations

__all__ = ["Probe", "SiteRule", "run_batches", "run_whole", "step_failure"]

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from tqdm.auto import tqdm

from ...diagnostics.unusable_observation import unusable_observation
from ...errors import DataError, NumericalError
from ...inputs import is_whole
from ...models import CVIGP, GMRF
from ...summaries import short_repr
from ..ascent import ascend, has_fallen, round_off
from ..steps import StepReport
from .conjugate_result import ConjugateRecorder, ConjugateResult


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
