"""Runs of conjugate computation: on all data with a check of the bound, and on minibatches."""

from __future__ import annotations

__all__ = ["Probe", "run_batches", "run_whole", "step_failure"]

import time
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tqdm.auto import tqdm

from ...errors import DataError, NumericalError
from ...models import CVIGP
from ..natural_gradient.optimizer import MAX_HALVINGS
from .result import ConjugateResult, Record

ROUND_OFF = 1e-10
"""Relative loss of the bound that does not count as one."""


class Probe(NamedTuple):
    """The bound at some sites, and where they would go from there."""

    elbo: tf.Tensor
    ok: tf.Tensor
    nu: tf.Tensor
    """Target of nu [N, L]."""
    tau: tf.Tensor
    """Target of tau [N, L]."""
    clipped: tf.Tensor


def run_whole(rule: Any, model: CVIGP, steps: int, tolerance: float, progress: bool) -> ConjugateResult:
    """Steps of `rule` on all data; one that lowers the bound is halved, and later ones grow back."""
    record, began = Record(), time.perf_counter()
    probe = rule.compiled_probe(model)
    sites = tf.convert_to_tensor(model.basis.nu), tf.convert_to_tensor(model.basis.tau)
    now = probe(*sites, _seed(rule, 0))
    if not now.ok:
        raise step_failure()
    share, reason = 1.0, "steps done"
    bar = tqdm(range(steps), disable=not progress, desc="CVI")
    for step in bar:
        rho = share * rule.step_size(step)
        proposed = tuple((1.0 - rho) * old + rho * new for old, new in zip(sites, (now.nu, now.tau)))  # (C13)
        then = probe(*proposed, _seed(rule, step + 1))
        if not _accepts(rule, now, then):
            share, record.shortened = 0.5 * share, record.shortened + 1
            if share < 0.5**MAX_HALVINGS:
                reason = "the bound does not rise any more"
                break
            continue
        change = _squared(*(new - old for old, new in zip(sites, (now.nu, now.tau))))
        record.append(time.perf_counter() - began, rho, change, float(then.elbo), int(now.clipped))
        sites, now, share = proposed, then, min(1.0, 2.0 * share)
        model.basis.nu.assign(sites[0])
        model.basis.tau.assign(sites[1])
        bar.set_postfix(ELBO=f"{float(now.elbo):.6g}")
        if change <= tolerance * (1.0 + _squared(*sites)):
            reason = "converged"
            break
    return record.result(time.perf_counter() - began, reason)


def run_batches(rule: Any, model: CVIGP, steps: int, batch_size: int, progress: bool) -> ConjugateResult:
    """Steps of `rule` on minibatches without replacement; the bound is computed at the end of each epoch."""
    basis = model.basis
    if not 1 <= batch_size <= basis.num_data:
        raise DataError(f"batch_size={batch_size} must be from 1 to the number of observations, {basis.num_data}.")
    record, began, per_epoch = Record(), time.perf_counter(), -(-basis.num_data // batch_size)
    generator, order = np.random.default_rng(rule.seed), np.arange(0)
    for step in tqdm(range(steps), disable=not progress, desc="CVI"):
        order = generator.permutation(basis.num_data) if len(order) == 0 else order
        rows, order = order[:batch_size], order[batch_size:]
        before = basis.nu.numpy(), basis.tau.numpy()
        report = rule.minimize(model, rows, step)
        rho = rule.step_size(step)
        change = _squared(basis.nu.numpy() - before[0], basis.tau.numpy() - before[1]) / rho**2
        ends_epoch = (step + 1) % per_epoch == 0 or step + 1 == steps
        elbo = float(model.elbo()) if ends_epoch else float("nan")
        record.append(time.perf_counter() - began, rho, change, elbo, int(report.clipped))
        record.shortened += int(report.shortened)
    return record.result(time.perf_counter() - began, "steps done")


def _accepts(rule: Any, now: Probe, then: Probe) -> bool:
    """Whether the step to `then` stands: the posterior exists, and the bound has not fallen."""
    if not then.ok:
        if rule.negative_precision == "raise":
            raise step_failure()
        return False
    if rule.samples is not None or rule.negative_precision == "clip":  # where neither ascends, step by step
        return True
    return bool(then.elbo >= now.elbo - ROUND_OFF * tf.abs(now.elbo))


def _seed(rule: Any, step: int) -> tf.Tensor:
    return tf.constant([rule.seed, step], tf.int32)


def _squared(*arrays: Any) -> float:
    return float(sum(tf.reduce_sum(tf.square(array)) for array in arrays))


def step_failure() -> NumericalError:
    """The error for a step that failed; the sites are those before it."""
    return NumericalError(
        "The step of the sites failed: I + W^1/2 K W^1/2 or the bound is not finite, or K^-1 + W is not positive "
        'definite. Use a smaller rho, negative_precision="clip", or a kernel with a smaller variance.',
        matrix="K^-1 + W",
    )
