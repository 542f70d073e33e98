"""Where the multipliers start: a check of what the user gave, or a start from nothing."""

from __future__ import annotations

__all__ = ["first_marginals"]

import tensorflow as tf

from ..errors import DataError, NumericalError
from ..linalg.cholesky import diagnose
from .dual_newton import MARGIN, box_of
from .dual_objective import DualProblem, Marginals
from .subproblem import EXCESS

_NUDGE = 0.01
_COLD_SWEEPS = 3
_MAX_HALVINGS = 10


def first_marginals(problem: DualProblem, sweeps: int, tolerance: float) -> Marginals:
    """The marginals at the model's multipliers; where these are all zero, as in a new model, at a start of section 7.

    :param sweeps: at most so many site fixed points (V22) improve a start from nothing, while each gains more than
        `tolerance` nats.

    Raises `DataError` for multipliers outside S or at which V does not exist, `NumericalError` where no start is found.
    """
    basis = problem.basis
    alpha, lam = tf.convert_to_tensor(basis.alpha), tf.convert_to_tensor(basis.lam)
    if bool(tf.reduce_any(alpha != 0.0)) or bool(tf.reduce_any(lam != 0.0)):
        return _checked(problem, alpha, lam)
    alpha, lam = _cold(problem)
    at = problem.marginals(alpha, lam)
    if not at.ok:
        raise _failure(problem, at)
    return _swept(problem, at, sweeps, tolerance)


def _cold(problem: DualProblem) -> tuple[tf.Tensor, tf.Tensor]:
    """Alpha of zero, nudged into S, and lam [N, L] that agrees with it: section 7."""
    alpha = tf.clip_by_value(tf.convert_to_tensor(problem.basis.alpha), *box_of(problem.loss, _NUDGE))
    lam = tf.zeros_like(alpha)
    for _ in range(_COLD_SWEEPS):
        sigma = problem.marginals(alpha, lam).deviation
        _, gamma = problem.pinned(alpha, sigma)
        lam = tf.maximum(gamma, 0.0)
    return alpha, lam


def _swept(problem: DualProblem, at: Marginals, sweeps: int, tolerance: float) -> Marginals:
    """(V22), its step halved where the bound would fall."""
    low, high = box_of(problem.loss, MARGIN)
    share = 1.0
    for _ in range(sweeps):
        new = problem.sweep(at, tf.constant(share, at.alpha.dtype), low, high)
        if not (new.ok and float(new.bound) > float(at.bound)):
            share *= 0.5
            if share < 0.5**_MAX_HALVINGS:
                break
            continue
        gain, at = float(new.bound - at.bound), new
        share = min(1.0, 2.0 * share)
        if gain < tolerance:
            break
    return at


def _checked(problem: DualProblem, alpha: tf.Tensor, lam: tf.Tensor) -> Marginals:
    lower, upper = tf.convert_to_tensor(problem.loss.lower), tf.convert_to_tensor(problem.loss.upper)
    outside = tf.where((alpha <= lower) | (alpha >= upper)).numpy()
    if len(outside):
        n, column = outside[0]
        raise DataError(
            f"alpha[{n}, {column}] = {alpha[n, column]:g} is outside of S = ({lower[n, column]:g}, {upper[n, column]:g}), "
            f"where f_h of this observation can lie ({len(outside)} entries are outside): use multipliers inside, or zeros "
            "for alpha and lam, from which a start is made."
        )
    lowest = -EXCESS * tf.convert_to_tensor(problem.loss.curvature)
    below = tf.where(lam < lowest).numpy()
    if len(below):
        n, column = below[0]
        raise DataError(
            f"lam[{n}, {column}] = {lam[n, column]:g} is below {float(lowest[n, column]):g}, the least second derivative of "
            f"this site's loss ({len(below)} entries are): use multipliers above it, or zeros for alpha and lam."
        )
    at = problem.marginals(alpha, lam)
    if not at.ok:
        raise _failure(problem, at)
    return at


def _failure(problem: DualProblem, at: Marginals) -> NumericalError:
    """The error for a start at which V does not exist, or the bound is not finite."""
    basis = problem.basis
    prior = problem.prior.numpy()
    if basis.form == "function" and not bool(at.state.ok):
        return diagnose("The kernel matrix K", prior)
    return NumericalError(
        "The bound at the first multipliers is not finite: the kernel's variance, the data or the likelihood's parameters "
        "are too extreme for the expectations. Scale the inputs, or use a kernel with a smaller variance.",
        matrix="K",
    )
