"""A training step in which q moves first."""

from __future__ import annotations

__all__ = [
    "DataMoments", "MeanMove", "Move", "NaturalGradient", "can_move_first", "check_mean_solver",
    "evaluate_in_turn", "gaussian_target", "natural_mean_move", "newton_mean_move", "replaced",
]  # fmt: skip

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.models import SVGP

from .. import replicas
from ..bases import Features, GaussianPart, InducingBasis
from ..bases.base import State
from ..bases.kernel_mean import KernelMean
from ..compilation import rarely
from ..errors import ModelError, NumericalError, UnknownOptionError, check_option
from ..inputs import check_rate, check_whole
from ..linalg.triangular import transposed_product
from ..linalg.whitening import apply_per_latent
from ..models import BasisGP
from ..summaries import settings_line
from .ascent import MAX_HALVINGS, POLICIES, StepReport, clip_curvature
from .natural_steps import (
    BoundGradients,
    Natural,
    NewtonOptions,
    PrecisionMemory,
    SiteSums,
    added_up,
    as_basis_model,
    carry_over,
    evaluate,
    features_at,
    gradients_of,
    local_expansion,
    local_gradient,
    natural_step,
    newton_direction,
    site_sums,
    slope_of_rows,
    steepest_step,
)

# ---
# A natural-gradient step, computed but not written.


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
    :param preconditioner: of "newton": "scaling" (the basis's) or "pivoted" (pivoted Cholesky).
    :param rank: of the pivoted Cholesky.
    :param cg_iterations: limit of conjugate-gradient iterations.
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
        preconditioner: str = "scaling",
        rank: int = 100,
        cg_iterations: int = 50,
        cg_tolerance: float = 1e-8,
        negative_precision: str = "damp",
    ) -> None:
        super().__init__()
        # "natural" is (D41) or (D42), "newton" (D49), "pivoted" (D47)
        check_option("mean", mean, MEAN_SOLVERS)
        check_option("preconditioner", preconditioner, ("scaling", "pivoted"))
        check_option("negative_precision", negative_precision, POLICIES)
        check_whole(1, rank=rank, cg_iterations=cg_iterations)
        check_rate(cg_tolerance=cg_tolerance)
        for name, value, high in (("gamma", gamma, 1.0), ("mean_step", mean_step, math.inf)):
            if not (callable(value) or isinstance(value, (tf.Tensor, tf.Variable))):
                check_rate(high, **{name: value})
        self.gamma: Any = gamma  # training assigns to it where it is a variable
        self._memory = PrecisionMemory()
        self.mean = mean
        self.mean_step: Any = mean_step  # as for gamma
        self.negative_precision = negative_precision
        self.newton_options = NewtonOptions(
            rank if preconditioner == "pivoted" else None, cg_iterations, cg_tolerance
        )

    def __repr__(self) -> str:
        return settings_line(self)

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
        finite = [] if coefficients is None else [tf.reduce_all(tf.math.is_finite(coefficients))]
        ok = [
            evaluation.state.ok,
            tf.math.is_finite(evaluation.elbo),
            *finite,
            *(part.ok for part in naturals),
        ]
        shortened += mean_move.shortened
        return Move(
            mean_move.state, naturals, coefficients, tf.reduce_all(tf.stack(ok)), shortened, clipped
        )

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
        evaluation: BoundGradients,
        gradients: list[tf.Tensor],
    ) -> MeanMove:
        now, kernel_mean = evaluation, model.basis.kernel_mean
        if self.mean is not None and model.basis.data_mean is not None:
            raise ModelError(
                f'mean="{self.mean}" of NaturalGradient stores the kernel matrix of the mean'
                " points, which a mean on all data does not: use mean=None, and"
                " optimizers.ConjugateGradients().run(model, data) for the mean."
            )
        if self.mean is None or kernel_mean is None:
            return MeanMove(now.state, DataMoments.of(now))
        check_mean_solver(model.basis, self.mean)
        step_size = _as_tensor("mean_step", self.mean_step, math.inf, now.h.dtype)
        if self.mean == "newton":
            if replicas.count() > 1:
                raise UnknownOptionError(
                    'mean="newton" solves by conjugate gradients, a loop in which TensorFlow cannot'
                    ' sum over replicas; use mean="natural" or None under tf.distribute.'
                )
            return newton_mean_move(model, kernel_mean, data, now, step_size, self.newton_options)
        return natural_mean_move(model, kernel_mean, data, now, gradients[0], step_size)

    def _gaussian_moves(
        self, model: BasisGP, data: RegressionData, evaluation: BoundGradients, start: MeanMove
    ) -> tuple[tuple[Natural, ...], tf.Tensor]:
        """(D46) for each Gaussian part in turn, and the number of shortened steps."""
        rho = _as_tensor("gamma", self.gamma, 1.0, evaluation.elbo.dtype)
        halvings = MAX_HALVINGS if self.negative_precision == "damp" else 0
        features, moments, shortened = evaluation.features, start.moments, tf.constant(0)
        naturals: list[Natural] = []
        parts = model.basis.gaussians(start.state)
        for k, (old, A) in enumerate(zip(parts, features.minus)):
            if k > 0:  # the part before has moved, and with it the moments
                moved = naturals[-1].gaussian()
                A_before, plus = features.minus[k - 1], features.plus[k - 1]
                moments = replaced(model, data, moments, A_before, plus, parts[k - 1], moved)
            h, _ = clip_curvature(moments.h, self.negative_precision)
            precision = self._memory.recall(model.basis, k, old.root)
            known = evaluation.target if k == 0 and h is evaluation.h else None
            target = gaussian_target(old, A, moments.g, h) if known is None else known
            theta = (
                tf.zeros_like(target[0])
                if old.mean is None
                else apply_per_latent(precision, old.mean)
            )
            natural, tries = natural_step(theta, precision, *target, rho, halvings)
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


# ---


# At the old q the gradient of kernel and likelihood is mostly noise of the batch: on houses, with
# 90 points and batches of 256, that costs 230 nats after 1,500 steps. Both evaluations share A =
# L^-1 k(beta, x): the mean moves by A^T (m~_new - m~_old), and the variance uses R_new^T A with the
# new root.


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

    Costs M^2 N more than one pass; three messages on several replicas.

    :param data: X [N, D], Y [N, P].
    :param rows: indices [m], see `evaluate`, as `hold_sites` and `low`.
    """
    (X, Y), basis = model.as_tensors(data), model.basis
    with tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
        tape.watch(list(variables))
        # 1. where q goes
        state = basis.factor(model.kernel, rows=rows)
        for_rows, weights = state, basis.weights_of_rows(state) if hold_sites else None
        if weights is not None:  # see `evaluate`
            for_rows = state._replace(tangent=tf.stop_gradient(state.tangent))
        features, old = features_at(model, for_rows, X, low), basis.gaussians(state)
        left = model.left_variances(features, X, slope_of_rows(model, state, weights, low))
        with tape.stop_recording():
            with_target = natural.starts_at(model)
            now, sums = _evaluation(model, (X, Y), state, features, left, with_target, low)
            move = natural.propose(model, (X, Y), now, [])
            new = tuple(part.gaussian() for part in move.naturals)
        # 2. the moments there
        moved, features = basis.with_gaussians(state, new), _under(features, old, new, low)
        mean, variance = features.mean, basis.variance(features, model.kernel, X)
        tape.watch([mean, variance])
        # 3. the bound there
        expectations = model.variational_expectations(mean, variance, (X, Y), left)
        expected = now.scale * tf.reduce_sum(expectations)
        objective = expected + replicas.share(model.log_prior_density() - basis.prior_kl(moved))
    held = []
    if hold_sites:
        g, h = tape.gradient(expected, [mean, variance])
        known = [None if sums is None else (now.h, sums.precision)] + [None] * (len(new) - 1)
        there = [
            site_sums(part, A, g, h, low, before)
            for part, A, before in zip(new, features.minus, known)
        ]
        held = list(zip(basis.whiteners(state), new, there))
    weights = basis.weights_of_rows(moved) if hold_sites else None
    gradients = gradients_of(tape, objective, variables, held, weights, low)
    found = iter(replicas.total([gradient for gradient in gradients if gradient is not None]))
    return now._replace(
        gradients=[None if gradient is None else next(found) for gradient in gradients]
    ), move


def _evaluation(
    model: BasisGP,
    data: RegressionData,
    state: State,
    features: Features,
    left: tf.Tensor | None,
    with_target: bool,
    low: tf.DType | None,
) -> tuple[BoundGradients, SiteSums | None]:
    variance, scale = model.basis.variance(features, model.kernel, data[0]), model.scale(data[0])
    expected, g, h = local_expansion(model, features.mean, variance, data, scale, left)
    elbo, sums = expected - replicas.share(model.basis.prior_kl(state)), None
    if with_target:
        sums = site_sums(model.basis.gaussians(state)[0], features.minus[0], g, h, low)
    target = None if sums is None else (sums.theta, sums.precision)
    return added_up(BoundGradients(elbo, state, features, variance, g, h, [], scale, target)), sums


def _under(
    features: Features,
    old: Sequence[GaussianPart],
    new: Sequence[GaussianPart],
    low: tf.DType | None,
) -> Features:
    mean, plus = features.mean, list(features.plus)
    for k, (was, now, A) in enumerate(zip(old, new, features.minus)):
        if was.mean is not None and now.mean is not None:
            mean += apply_per_latent(A, now.mean - tf.stop_gradient(was.mean), adjoint=True)
        dtype = A.dtype if low is None else low
        plus[k] = tf.cast(transposed_product(tf.cast(now.root, dtype), tf.cast(A, dtype)), A.dtype)
    return Features(mean, features.minus, tuple(plus))
