"""A natural-gradient step, computed but not written."""

from __future__ import annotations

__all__ = [
    "MeanMove", "DataMoments", "Move", "check_mean_solver", "gaussian_target", "natural_mean_move",
    "newton_mean_move", "replaced",
]  # fmt: skip

from typing import NamedTuple

import tensorflow as tf
from gpflow.base import RegressionData

from ... import replicas
from ...bases import GaussianPart, InducingBasis
from ...bases.base import State
from ...bases.parts.kernel_mean import KernelMean
from ...errors import UnknownOptionError
from ...linalg.gaussians import apply_per_latent
from ...linalg.triangular import transposed_product
from ...models import BasisGP
from .bound_gradients import BoundGradients, local_gradient
from .held_sites import site_sums
from .mean_steps import NewtonOptions, newton_direction, steepest_step
from .natural_parameters import Natural


class Move(NamedTuple):
    """The end of a step."""

    state: State
    """State of the basis, at the new coefficients."""
    naturals: tuple[Natural, ...]
    """The new Gaussian parts."""
    coefficients: tf.Tensor | None
    """New mean coefficients [M_gamma, L] in the basis's coordinates; None if they stay."""
    ok: tf.Tensor
    """[], bool: whether all is finite and positive definite."""
    shortened: tf.Tensor
    """[], int: number of shortened parts of the step."""
    clipped: tf.Tensor
    """[], int: observations with a clipped negative precision."""


class DataMoments(NamedTuple):
    """Moments of q(f) at the data, less the mean function, and derivatives of E log p."""

    mean: tf.Tensor
    """[N, L]"""
    variance: tf.Tensor
    """[N, L]"""
    g: tf.Tensor
    """dE/dmean [N, L]."""
    h: tf.Tensor
    """dE/dvariance [N, L]."""
    scale: tf.Tensor
    """[], factor of the data term."""

    @classmethod
    def at(
        cls,
        model: BasisGP,
        mean: tf.Tensor,
        variance: tf.Tensor,
        data: RegressionData,
        scale: tf.Tensor,
    ) -> DataMoments:
        """Differentiate at other moments [N, L]; one pass through the likelihood."""
        return cls(mean, variance, *local_gradient(model, mean, variance, data, scale), scale)

    @classmethod
    def of(cls, evaluation: BoundGradients) -> DataMoments:
        """The moments of an evaluation."""
        return cls(
            evaluation.features.mean,
            evaluation.variance,
            evaluation.g,
            evaluation.h,
            evaluation.scale,
        )


class MeanMove(NamedTuple):
    """The step of the mean coefficients, and the start of the Gaussian parts."""

    state: State
    """State of the basis, at the new coefficients."""
    moments: DataMoments
    """At the new coefficients; for a Newton step at the old ones."""
    coefficients: tf.Tensor | None = None
    """[M_gamma, L], in the basis's coordinates; None if they stay."""
    inducing_mean: tf.Tensor | None = None
    """New whitened mean of q(u) [M_beta, L] of a joint solution; None if it follows from (D46)."""
    shortened: tf.Tensor | int = 0
    """[], int: 1 if the step was shortened."""


def check_mean_solver(basis: InducingBasis, solver: str) -> None:
    """Raise `UnknownOptionError` for a solver ("natural", "newton") that the basis does not
    support.
    """
    able = {"natural": basis.steps_mean, "newton": basis.solves_mean}
    if able[solver]:
        return
    why = {
        "natural": (
            "has no natural steps of the coefficients alone: they shift the mean of q(f(beta)),"
            " which stays in (D41)"
        ),
        "newton": "does not solve for the mean coefficients by Newton's method",
    }
    others = " or ".join(f'"{name}"' for name in able if able[name])
    raise UnknownOptionError(
        f'A {type(basis).__name__} {why[solver]}. Use mean_solver="adam" of fit, or mean=None of'
        " NaturalGradient with another optimizer for the coefficients; an OrthogonalBasis, which"
        ' describes the same q(f) by other coordinates, takes "natural" and "newton"'
        + (f", and this basis takes {others}." if others else ".")
    )


def natural_mean_move(
    model: BasisGP,
    kernel_mean: KernelMean,
    data: RegressionData,
    evaluation: BoundGradients,
    gradient: tf.Tensor,
    step_size: tf.Tensor,
) -> MeanMove:
    """A gradient step of the coefficients [M_gamma, L] in the basis's coordinates: (D41) or (D42).

    `evaluation` and `gradient` are at the current Parameters; X is [N, D], Y [N, P].
    """
    basis, now = model.basis, evaluation
    operator = basis.mean_operator(now.state, model.kernel, data[0], now.features)
    scaling = kernel_mean.scaling
    change, is_short = steepest_step(operator, scaling, gradient, now.h, step_size)
    raw = scaling.raw(change)
    moments = DataMoments.at(
        model, now.features.mean + operator.to_data(raw), now.variance, data, now.scale
    )
    coefficients = tf.convert_to_tensor(kernel_mean.coefficients) + change
    return MeanMove(now.state, moments, coefficients, shortened=tf.cast(is_short, tf.int32))


def newton_mean_move(
    model: BasisGP,
    kernel_mean: KernelMean,
    data: RegressionData,
    evaluation: BoundGradients,
    step_size: tf.Tensor,
    options: NewtonOptions,
) -> MeanMove:
    """A joint Newton step of the coefficients and the mean of q(u), for an `OrthogonalBasis`:
    (D49).

    X is [N, D], Y [N, P]; `step_size` [] is the share of the step.
    """
    basis, state, features = model.basis, evaluation.state, evaluation.features
    operator = basis.mean_operator(state, model.kernel, data[0], features)
    g, h, A = evaluation.g, evaluation.h, features.minus[0]
    gradient = (
        operator.from_data(g) - operator.product(state.a),  # (D41)
        apply_per_latent(A, g) - state.mean,
    )
    scaling = kernel_mean.scaling
    direction = newton_direction(operator, scaling, A, gradient, h, options)
    change = scaling.scaled(step_size * direction[0])
    coefficients = tf.convert_to_tensor(kernel_mean.coefficients) + change
    return MeanMove(
        state, DataMoments.of(evaluation), coefficients, state.mean + step_size * direction[1]
    )


def gaussian_target(
    part: GaussianPart, A: tf.Tensor, g: tf.Tensor, h: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Natural parameters theta* [M, L] and P* [L, M, M] after a full step: (D46).

    A is the part's features [G, M, N]; g and h are [N, L]. Several replicas send one message.
    """
    sums = site_sums(part, A, g, h)
    theta, precision = replicas.total([sums.theta, sums.precision], symmetric=[1])
    return theta, precision


def replaced(
    model: BasisGP,
    data: RegressionData,
    at: DataMoments,
    A: tf.Tensor,
    plus: tf.Tensor,
    old: GaussianPart,
    new: GaussianPart,
) -> DataMoments:
    """Moments after replacing one Gaussian part `old` by `new`.

    X is [N, D], Y [N, P], A the part's features [G, M, N], and `plus` root^T A of the old part [L,
    M, N].
    """
    mean = at.mean
    if old.mean is not None and new.mean is not None:  # else the covariance alone was replaced
        mean += apply_per_latent(A, new.mean - old.mean, adjoint=True)
    new_plus = transposed_product(new.root, A)
    variance = at.variance + tf.transpose(
        tf.reduce_sum(tf.square(new_plus) - tf.square(plus), axis=-2)
    )
    return DataMoments.at(model, mean, variance, data, at.scale)
