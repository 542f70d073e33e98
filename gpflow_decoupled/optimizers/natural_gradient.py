"""Natural gradients, and a training step in which q moves first."""

from __future__ import annotations

__all__ = [
    "Move", "NaturalGradient", "can_move_first", "check_mean_solver", "evaluate_in_turn",
]  # fmt: skip

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.models import SVGP

from .. import replicas
from ..bases import GaussianPart, InducingBasis
from ..bases.base import State
from ..compilation import rarely
from ..errors import ModelError, NumericalError, UnknownOptionError, check_option
from ..inputs import check_rate, check_whole
from ..linalg.whitening import apply_per_latent
from ..models import BasisGP
from ..summaries import settings_line
from .ascent import MAX_HALVINGS, POLICIES, StepReport, clip_curvature
from .natural_steps import (
    BoundGradients,
    Natural,
    PrecisionMemory,
    as_basis_model,
    carry_over,
    evaluate,
    local_gradient,
    natural_step,
    newton_direction,
    site_sums,
    steepest_step,
    under,
)

# ---
# A natural-gradient step, computed but not written.


class Move(NamedTuple):
    """The end of a step."""

    state: State
    """State of the basis, at the old Parameters."""
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


class _MeanMove(NamedTuple):
    """Where the Gaussian parts start, and the step of the mean coefficients."""

    mean: tf.Tensor
    """Of q(f) at the data [N, L], less the mean function, at the new coefficients."""
    g: tf.Tensor
    """dE/dmean [N, L] there; for a Newton step at the old ones, as h."""
    h: tf.Tensor
    """dE/dvariance [N, L]."""
    coefficients: tf.Tensor | None = None
    """[M_gamma, L], in the basis's coordinates; None if they stay."""
    inducing_mean: tf.Tensor | None = None
    """New whitened mean of q(u) [M_beta, L] of a joint solution; None if it follows from (D46)."""
    shortened: tf.Tensor | int = 0
    """[], int: 1 if the step was shortened."""


def check_mean_solver(basis: InducingBasis, solver: str) -> None:
    """Raise `UnknownOptionError` for a solver ("natural", "newton") that the basis lacks."""
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


# ---
# Natural gradients in closed form.


# 1. Compute the moments of q(f_n), and E_n, the expected log density of each observation.
# 2. Differentiate E_n in mean and variance of q(f_n), through the likelihood alone: g_n, h_n.
# 3. The chain rule gives the gradient in the expectation parameters (D40). Added to the natural
#    parameters P = S~^-1 and theta = P m~, times rho, with A = L_b^-1 K_bx, (D46)
#
#      P <- (1 - rho) P + rho (I - 2 A diag(h) A^T)
#      theta <- (1 - rho) theta + rho A (g - 2 h A^T m~)
#
# 4. Factorise the new P, a test of definiteness, and return to m~ and a root of S~.


MEAN_SOLVERS = (None, "natural", "newton")
Gamma: TypeAlias = float | tf.Variable | Callable[[], float | tf.Tensor]
"""A step size: a number, a variable read in each step, or a function without arguments."""


class NaturalGradient(tf.Module):
    """Take natural-gradient steps of models on inducing points, and of `gpflow.models.SVGP`.

    Steps equal `gpflow.optimizers.NaturalGradient`'s unless shortened or clipped (Salimbeni,
    Eleftheriadis & Hensman 2018; Salimbeni et al. 2018 for mean coefficients). The Gaussians of
    `SOLVEGP` move in turn; `DVGP` needs covariance="coupled".

    Cost per latent: 4 M^2 N + M^3 (2/3 to 2) multiply-adds.

    :param gamma: step size rho in (0, 1]: a number, a `tf.Variable`, or a function without
        arguments.
    :param mean: solver of the mean coefficients; None for another optimizer. "natural" is a
        gradient step in the basis's coordinates, exact for mean_scaling="whitened"; "newton", for
        an `ODVGP`, solves for them and the mean of q(u) jointly. An `HDVGP` has neither.
    :param mean_step: step size of `mean`, as `gamma`; a "natural" step is shortened if it
        overshoots.
    :param cg_iterations: limit of conjugate-gradient iterations of "newton", preconditioned by the
        scaling of the coefficients.
    :param cg_tolerance: relative residual at which they end.
    :param negative_precision: where observations have one, as outliers under a Student-t: "damp"
        halves the step until the covariance is positive definite, and once more; "clip" makes
        these precisions zero; "raise" refuses the step.

    Example::

        kernel, likelihood = gpflow.kernels.Matern52(), gpflow.likelihoods.Bernoulli()
        model = ODVGP(kernel, likelihood, gamma, beta, num_data=len(X))
        optimizer = NaturalGradient(gamma=0.5)
        for _ in range(20):
            optimizer.minimize(model, (X, Y))
    """

    def __init__(
        self,
        gamma: Gamma = 1.0,
        *,
        mean: str | None = None,
        mean_step: Gamma = 1.0,
        cg_iterations: int = 50,
        cg_tolerance: float = 1e-8,
        negative_precision: str = "damp",
    ) -> None:
        super().__init__()
        # "natural" is (D41) or (D42), "newton" (D49)
        check_option("mean", mean, MEAN_SOLVERS)
        check_option("negative_precision", negative_precision, POLICIES)
        check_whole(1, cg_iterations=cg_iterations)
        check_rate(cg_tolerance=cg_tolerance)
        for name, value, high in (("gamma", gamma, 1.0), ("mean_step", mean_step, math.inf)):
            if not (callable(value) or isinstance(value, (tf.Tensor, tf.Variable))):
                check_rate(high, **{name: value})
        self.gamma: Any = gamma  # training assigns to it where it is a variable
        self._memory = PrecisionMemory()
        self.mean = mean
        self.mean_step: Any = mean_step  # as for gamma
        self.negative_precision = negative_precision
        self.cg_iterations, self.cg_tolerance = cg_iterations, cg_tolerance

    def __repr__(self) -> str:
        return settings_line(self)

    @tf.autograph.experimental.do_not_convert
    def minimize(self, model: BasisGP | SVGP, data: RegressionData) -> StepReport:
        """Take one step on the negative bound; safe inside `tf.function`.

        With step size 1 the bound may fall. In `strategy.run` each replica passes its rows, and all
        take the whole batch's step.

        :param data: X [N, D], Y [N, P], all data or a minibatch.
        :return: whether the step was taken, shortened or clipped; read `ok` in a `tf.function`,
            which cannot raise.
        """
        model = as_basis_model(model, "NaturalGradient.minimize")
        data = model.checked(data)
        rows = model.basis.draw_rows()
        rows = None if rows is None else replicas.of_first(rows)  # drawn without a seed
        evaluation = evaluate(
            model, data, self.mean_variables(model), rows, with_target=self.starts_at(model)
        )
        report = self.apply(model, data, evaluation, evaluation.gradients)
        if tf.executing_eagerly() and not report.ok:
            raise NumericalError(
                "The natural-gradient step failed: the precision of q(u) is not positive definite,"
                ' or the bound is not finite. Use a smaller gamma, or negative_precision="clip".',
                matrix="precision of q(u)",
            )
        return report

    def prepare(self, model: BasisGP) -> None:
        """Create this optimizer's variables for `model`, for a checkpoint read later."""
        self._memory.prepare(model.basis)

    def mean_variables(self, model: BasisGP) -> list[tf.Variable]:
        """Variables of the mean coefficients, if this optimizer moves them, for `evaluate`."""
        if self.mean is None or model.basis.kernel_mean is None:
            return []
        return [model.basis.kernel_mean.coefficients.unconstrained_variable]

    def starts_at(self, model: BasisGP) -> bool:
        """True if the first Gaussian part moves from the evaluation's moments, with its target."""
        return self.negative_precision != "clip" and not self.mean_variables(model)

    def apply(
        self,
        model: BasisGP,
        data: RegressionData,
        evaluation: BoundGradients,
        mean_gradients: list[tf.Tensor],
    ) -> StepReport:
        """Move q from an evaluation at the current Parameters; nothing moves if anything fails.

        :param data: X [N, D], Y [N, P], as in the evaluation.
        :param mean_gradients: gradients in `mean_variables(model)`.
        """
        move = self.propose(model, data, evaluation, mean_gradients)
        ok, clipped = replicas.agreed(move.ok, move.clipped)
        move = move._replace(ok=ok, clipped=clipped)
        self.commit(model, move)
        return StepReport(move.ok, move.shortened, move.clipped)

    def propose(
        self,
        model: BasisGP,
        data: RegressionData,
        evaluation: BoundGradients,
        mean_gradients: list[tf.Tensor],
    ) -> Move:
        """Compute the move of `apply` by X [N, D], Y [N, P]: mean coefficients, then Gaussians."""
        _, clipped = clip_curvature(evaluation.h, self.negative_precision)
        mean_move = self._mean_move(model, data, evaluation, mean_gradients)
        naturals, shortened = self._gaussian_moves(model, data, evaluation, mean_move)
        coefficients = mean_move.coefficients
        ok = [evaluation.state.ok, tf.math.is_finite(evaluation.elbo)]
        if coefficients is not None:
            ok.append(tf.reduce_all(tf.math.is_finite(coefficients)))
        all_ok = tf.reduce_all(tf.stack([*ok, *(part.ok for part in naturals)]))
        shortened += mean_move.shortened
        return Move(evaluation.state, naturals, coefficients, all_ok, shortened, clipped)

    def commit(self, model: BasisGP, move: Move) -> None:
        """Write a move to the Parameters, if it is `ok`."""
        gaussians = tuple(part.gaussian() for part in move.naturals)
        tf.cond(move.ok, lambda: self._assign(model, move, gaussians), lambda: False)

    def commit_after(self, model: BasisGP, move: Move) -> None:
        """Write a move after kernel and inducing points have moved, at fixed sites.

        Where no positive definite precision results, q keeps its whitened mean and root.
        """
        basis = model.basis
        new = basis.factor(model.kernel, with_kl=False)
        frames = zip(basis.whiteners(move.state), basis.whiteners(new))
        # the same sites under the new kernel: (C28)
        carried = tuple(
            carry_over(part, old.chol, now.chol) for part, (old, now) in zip(move.naturals, frames)
        )
        held = move._replace(state=new, naturals=carried)
        gaussians = tuple(part.gaussian() for part in carried)
        feasible = tf.reduce_all(tf.stack([new.ok, *(part.ok for part in carried)]))

        def stay() -> tf.Tensor:
            still = tuple(part.gaussian() for part in move.naturals)
            return tf.cond(move.ok, lambda: self._assign(model, move, still), lambda: False)

        tf.cond(
            tf.logical_and(move.ok, feasible),
            lambda: self._assign(model, held, gaussians),
            rarely(stay),
        )

    def _assign(self, model: BasisGP, move: Move, gaussians: tuple[GaussianPart, ...]) -> bool:
        if gaussians:
            model.basis.assign_gaussians(move.state, gaussians)
            self._memory.store(
                model.basis, gaussians, tuple(part.precision for part in move.naturals)
            )
        if move.coefficients is not None and model.basis.kernel_mean is not None:
            model.basis.kernel_mean.coefficients.assign(move.coefficients)
        return True

    def _mean_move(
        self,
        model: BasisGP,
        data: RegressionData,
        now: BoundGradients,
        gradients: list[tf.Tensor],
    ) -> _MeanMove:
        basis, mean = model.basis, model.basis.kernel_mean
        if self.mean is not None and basis.data_mean is not None:
            raise ModelError(
                f'mean="{self.mean}" of NaturalGradient stores the kernel matrix of the mean'
                " points, which a mean on all data does not: use mean=None, and"
                " optimizers.ConjugateGradients().run(model, data) for the mean."
            )
        features, g, h = now.features, now.g, now.h
        if self.mean is None or mean is None:
            return _MeanMove(features.mean, g, h)
        check_mean_solver(basis, self.mean)
        step = _as_tensor("mean_step", self.mean_step, math.inf, h.dtype)
        operator = basis.mean_operator(now.state, model.kernel, data[0], features)
        scaling, old = mean.scaling, tf.convert_to_tensor(mean.coefficients)
        if self.mean == "natural":  # a gradient step in the basis's coordinates: (D41) or (D42)
            change, is_short = steepest_step(operator, scaling, gradients[0], h, step)
            moved = features.mean + operator.to_data(scaling.raw(change))
            local = local_gradient(model, moved, now.variance, data, now.scale)
            short = tf.cast(is_short, tf.int32)
            return _MeanMove(moved, *local, old + change, shortened=short)
        if replicas.count() > 1:
            raise UnknownOptionError(
                'mean="newton" solves by conjugate gradients, a loop in which TensorFlow cannot'
                ' sum over replicas; use mean="natural" or None under tf.distribute.'
            )
        # a joint Newton step of the coefficients and the mean of q(u): (D49)
        A, state = features.minus[0], now.state
        gradient = (
            operator.from_data(g) - operator.product(state.a),  # (D41)
            apply_per_latent(A, g) - state.mean,
        )
        limits = self.cg_iterations, self.cg_tolerance
        direction = newton_direction(operator, scaling, A, gradient, h, *limits)
        change = scaling.scaled(step * direction[0])
        return _MeanMove(features.mean, g, h, old + change, state.mean + step * direction[1])

    def _gaussian_moves(
        self, model: BasisGP, data: RegressionData, evaluation: BoundGradients, start: _MeanMove
    ) -> tuple[tuple[Natural, ...], tf.Tensor]:
        """(D46) for each Gaussian part in turn, and the number of shortened steps."""
        basis, features, shortened = model.basis, evaluation.features, tf.constant(0)
        rho = _as_tensor("gamma", self.gamma, 1.0, evaluation.elbo.dtype)
        halvings = MAX_HALVINGS if self.negative_precision == "damp" else 0
        g, h, target = start.g, start.h, evaluation.target
        naturals: list[Natural] = []
        parts = basis.gaussians(evaluation.state)
        for k, (old, A) in enumerate(zip(parts, features.minus)):
            if k > 0:  # the parts before have moved, and with them the moments
                new = [natural.gaussian() for natural in naturals]
                moved = under(features._replace(mean=start.mean), parts, new)
                moments = moved.mean, basis.variance(moved, model.kernel, data[0])
                (g, h), target = local_gradient(model, *moments, data, evaluation.scale), None
            h_used, _ = clip_curvature(h, self.negative_precision)
            if target is None or h_used is not evaluation.h:
                sums = site_sums(old, A, g, h_used)
                total = replicas.total([sums.theta, sums.precision], symmetric=[1])
                target = sums._replace(theta=total[0], precision=total[1])
            precision = self._memory.recall(basis, k, old.root)
            theta = (
                tf.zeros_like(target.theta)
                if old.mean is None
                else apply_per_latent(precision, old.mean)
            )
            full = target.theta, target.precision
            natural, tries = natural_step(theta, precision, *full, rho, halvings)
            if old.mean is None:
                natural = natural._replace(theta=None)
            if start.inducing_mean is not None:
                natural = natural._replace(
                    theta=apply_per_latent(natural.precision, start.inducing_mean)
                )
            naturals.append(natural)
            shortened += tf.cast(tries > 0, tf.int32)
        return tuple(naturals), shortened


def _as_tensor(name: str, value: Gamma, high: float, dtype: tf.DType) -> tf.Tensor:
    value = value() if callable(value) and not isinstance(value, tf.Variable) else value
    if isinstance(value, (tf.Tensor, tf.Variable)):
        tensor = tf.cast(tf.convert_to_tensor(value), dtype)
        known = tf.get_static_value(tensor)
        if known is not None:
            check_rate(high, **{name: float(known)})
        return tensor
    check_rate(high, **{name: value})
    return tf.constant(value, dtype)  # tf.cast would pass a Python float through float32


def can_move_first(basis: InducingBasis, natural: NaturalGradient) -> bool:
    """True if q's Parameters do not depend on the kernel and no solver sets the coefficients."""
    return (
        basis.whiten
        and basis.replaces_gaussians
        and (natural.mean is None or basis.kernel_mean is None)
    )


def evaluate_in_turn(
    model: BasisGP,
    data: RegressionData,
    natural: NaturalGradient,
    variables: Sequence[tf.Variable],
    rows: tf.Tensor | None = None,
    hold_sites: bool = False,
    low: tf.DType | None = None,
) -> tuple[BoundGradients, Move]:
    """Evaluate the bound at q, the move of q (not written), and the gradients at the new q.

    X is [N, D], Y [N, P]; other arguments as in `evaluate`.
    """
    moves: list[Move] = []

    def first(now: BoundGradients) -> tuple[GaussianPart, ...]:
        moves.append(natural.propose(model, model.as_tensors(data), now, []))
        return tuple(part.gaussian() for part in moves[0].naturals)

    with_target = natural.starts_at(model)
    found = evaluate(model, data, variables, rows, hold_sites, with_target, low, first)
    return found, moves[0]
