"""Conjugate gradients for a mean on all data, until its certified gap is small."""

from __future__ import annotations

__all__ = ["solve_mean"]

import tensorflow as tf

from ...linalg.conjugate_gradients import Blocks, advance, begin
from ...replicas import Group
from .solution import INTERRUPTED, TIME_IS_UP, MeanSolution, Report, check_gap
from .system import MeanSystem

_SHARE = 0.5
"""The gap that the recursion must reach, as a share of the tolerance, before a product in full precision is spent on it."""
_PROGRESS = 0.5
"""If a round of products in low precision leaves more than this share of the gap, the next round has full precision."""


def solve_mean(
    system: MeanSystem,
    start: tf.Tensor,
    tolerance: float,
    max_products: int,
    *,
    K_start: tf.Tensor | None = None,
    dtype: tf.DType | None = None,
    deadline: float = float("inf"),
    report: Report = lambda products, share, gap: None,
    certify: bool = True,
) -> MeanSolution:
    """Solve (K + D) a = y~ from a start; N^2 L per product.

    Rounds of conjugate gradients with products in `dtype` are followed by one product in full precision, from whose residual
    the gap is certified, and from which the next round starts. On several workers each has all vectors and computes its
    share of every product; the first one's numbers and clock decide.

    :param system: the system.
    :param start: a [N, L], as found for a similar system, or zeros.
    :param tolerance: the gap in nats that is good enough.
    :param max_products: at most so many products, one more for the certificate.
    :param K_start: K a of the start [N, L], where it is known; else it takes a product.
    :param dtype: tf.float32 for faster products; None is the dtype of the data.
    :param deadline: a value of `time.perf_counter` after which no further product is begun.
    :param report: shows progress.
    :param certify: False trusts the recursion's own residual, and ends after the first round.
    :raises NumericalError: if the gap is not a finite number: a product has overflowed.
    """
    full = start.dtype
    dtype = full if dtype is None else dtype
    a, products, gaps, reason = start, 0, list[float](), ""

    def product(vector: tf.Tensor, kind: tf.DType) -> tf.Tensor:
        return system.product(vector, kind, lambda share: report(products, share, gaps[-1] if gaps else float("nan")))

    def apply(direction: Blocks) -> Blocks:
        return (product(direction[0], dtype),)

    def precondition(residual: Blocks) -> Blocks:
        return (system.precondition(residual[0]),)

    residual = system.target
    if K_start is not None:
        residual = system.target - K_start - start / system.weights
    elif bool(tf.reduce_any(start != 0.0)):
        residual = system.target - product(start, full)
        products += 1
    gaps.append(system.gap(residual))
    while True:
        if gaps[-1] <= tolerance:
            return MeanSolution(a, residual, gaps[-1], products, gaps, "converged")
        if reason:
            return MeanSolution(a, residual, gaps[-1], products, gaps, reason)
        check_gap(gaps[-1])
        before = gaps[-1]
        now = begin(precondition, (residual,), _inner)
        try:
            while gaps[-1] > _SHARE * tolerance and not (
                reason := _stop(system.group, products, max_products, deadline)
            ):
                now = advance(now, apply, precondition, _inner)
                products += 1
                gaps.append(system.gap(now.residual[0]))
                report(products, 0.0, gaps[-1])
        except KeyboardInterrupt:
            if system.group.workers > 1:  # the others have not stopped
                raise
            reason = INTERRUPTED
        a = a + now.x[0]
        if not certify:
            return MeanSolution(a, now.residual[0], gaps[-1], products, gaps, reason or "converged")
        residual = system.target - product(a, full)  # the recursion's own residual drifts
        products += 1
        gaps.append(system.gap(residual))
        dtype = full if gaps[-1] > _PROGRESS * before else dtype


def _stop(group: Group, products: int, most: int, deadline: float) -> str:
    if products >= most:
        return "products done"
    return TIME_IS_UP if group.is_over(deadline) else ""


def _inner(residual: Blocks, direction: Blocks) -> tf.Tensor:
    """Inner products [1, L] of columns: each latent is a system of its own."""
    return tf.reduce_sum(residual[0] * direction[0], axis=0, keepdims=True)
