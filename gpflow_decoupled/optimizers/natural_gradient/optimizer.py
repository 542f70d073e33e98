"""Natural gradients in closed form, from dE/dmean and dE/dvar at the data.

Salimbeni, Eleftheriadis & Hensman 2018 (arXiv:1803.09151) for (m, S); Salimbeni et al. 2018 (arXiv:1809.08820),
equations (14)-(16), for the mean points. Whitened, with P = S~^-1 and A = L_b^-1 K_bx:

    P <- (1 - rho) P + rho (I - 2 A diag(h) A^T)                                                    (D46)
    P m~ <- (1 - rho) P m~ + rho A (g - 2 h A^T m~)                                                  (D46)

A^T m~ is the part of the mean that belongs to the inducing points: neither the mean points nor the mean function enter
it, while g and h are taken at the total mean. Nothing is differentiated through a Cholesky factor.
"""

from __future__ import annotations

__all__ = ["Move", "NaturalGradient", "StepReport"]

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf
from gpflow.base import RegressionData

from ...bases import Gaussian
from ...errors import NumericalError, UnknownOptionError, check_option
from ...linalg.gaussians import apply_per_latent
from ...linalg.triangular import transposed_product
from ...models import BasisGP
from .evaluation import Evaluation, as_basis_model, evaluate, local_gradient
from .held_sites import carry_over, site_precision
from .mean_steps import NewtonOptions, newton_direction, steepest_step
from .memory import PrecisionMemory
from .natural import Natural

MAX_HALVINGS = 30
POLICIES = ("damp", "clip", "raise")
MEAN_SOLVERS = (None, "natural", "newton")
StepSize = Any  # a number, a tf.Variable, or a function without arguments


class StepReport(NamedTuple):
    """What a step did."""

    ok: tf.Tensor
    """[], bool: false if a factorisation failed; nothing was changed then."""
    shortened: tf.Tensor
    """[], int: how many parts of the step were shortened to stay feasible."""
    clipped: tf.Tensor
    """[], int: how many observations had a negative precision clipped."""


class Move(NamedTuple):
    """Where a step goes."""

    state: Any
    """Of the basis, at the new coefficients."""
    naturals: tuple[Natural, ...]
    coefficients: tf.Tensor | None
    """[M_gamma, L], in the basis's coordinates; None if they stay."""
    ok: tf.Tensor
    """[], bool: whether all of it is finite and positive definite."""
    shortened: tf.Tensor
    clipped: tf.Tensor


class NaturalGradient(tf.Module):
    """Natural-gradient steps for models with a basis, and for plain `gpflow.models.SVGP`.

    :param gamma: step size rho in (0, 1]; a number, a `tf.Variable`, or a function without arguments.
    :param mean: how the coefficients of the mean points move: None leaves them to another optimizer; "natural" takes a
        gradient step in the basis's own coordinates, which is (D41) for mean_scaling="whitened" and (D42) for
        "diagonal"; "newton" solves (D49) for them and the mean of q(u) jointly, by conjugate gradients.
    :param mean_step: step size of `mean`, as `gamma`; a "natural" step is shortened to the maximum of the bound's
        local quadratic model.
    :param preconditioner: for "newton": "scaling" (that of the basis) or "pivoted" (rank `rank`, (D47)).
    :param negative_precision: what to do where h > 0, which happens if the likelihood is not log-concave: "damp" halves
        the step until the covariance is positive definite, and then once more; "clip" replaces h by min(h, 0); "raise"
        refuses the step.

    On the same model a step gives the same q as `gpflow.optimizers.NaturalGradient`, to round-off. Cost per latent:
    4 M^2 N + M^3 (2/3 to 2). Raises `UnknownOptionError` for unknown options.
    """

    def __init__(
        self,
        gamma: StepSize = 1.0,
        *,
        mean: str | None = None,
        mean_step: StepSize = 1.0,
        preconditioner: str = "scaling",
        rank: int = 100,
        cg_iterations: int = 50,
        cg_tolerance: float = 1e-8,
        negative_precision: str = "damp",
    ) -> None:
        super().__init__()
        check_option("mean", mean, MEAN_SOLVERS)
        check_option("preconditioner", preconditioner, ("scaling", "pivoted"))
        check_option("negative_precision", negative_precision, POLICIES)
        self.gamma = gamma
        self._memory = PrecisionMemory()
        self.mean = mean
        self.mean_step = mean_step
        self.negative_precision = negative_precision
        self.newton_options = NewtonOptions(rank if preconditioner == "pivoted" else None, cg_iterations, cg_tolerance)

    def minimize(self, model: Any, data: RegressionData) -> StepReport:
        """One step that raises the bound of `model` on data (X [N, D], Y [N, P]); safe inside `tf.function`.

        Raises `NumericalError` if a factorisation fails; the model is as before then. Inside `tf.function` nothing can
        be raised: read `StepReport.ok`.
        """
        model = as_basis_model(model)
        data = model.as_tensors(data)
        rows = model.basis.draw_rows()
        evaluation = evaluate(model, data, self.mean_variables(model), rows)
        report = self.apply(model, data, evaluation, evaluation.gradients)
        if tf.executing_eagerly() and not report.ok:
            raise NumericalError(
                "The natural-gradient step failed: the precision of q(u) is not positive definite, or the bound is not "
                'finite. Use a smaller gamma, or negative_precision="clip".',
                matrix="precision of q(u)",
            )
        return report

    def prepare(self, model: BasisGP) -> None:
        """Create the variables of this optimizer for `model`, so that a checkpoint that is read later finds them."""
        self._memory.prepare(model.basis)

    def mean_variables(self, model: BasisGP) -> list[tf.Variable]:
        """What `evaluate` must differentiate for `apply`: the mean coefficients, if this optimizer moves them."""
        if self.mean is None or model.basis.kernel_mean is None:
            return []
        return [model.basis.kernel_mean.coefficients.unconstrained_variable]

    def apply(
        self, model: BasisGP, data: RegressionData, evaluation: Evaluation, mean_gradients: list[tf.Tensor]
    ) -> StepReport:
        """Move q from an evaluation at the current Parameters; nothing moves if anything fails.

        :param mean_gradients: the gradients of `mean_variables(model)`.
        """
        move = self.propose(model, data, evaluation, mean_gradients)
        self.commit(model, move)
        return StepReport(move.ok, move.shortened, move.clipped)

    def propose(
        self, model: BasisGP, data: RegressionData, evaluation: Evaluation, mean_gradients: list[tf.Tensor]
    ) -> Move:
        """Where `apply` would go."""
        move = self._move(model, data, evaluation, mean_gradients, _step_size(self.gamma, evaluation.elbo.dtype))
        finite = [] if move.coefficients is None else [tf.reduce_all(tf.math.is_finite(move.coefficients))]
        ok = [evaluation.state.ok, tf.math.is_finite(evaluation.elbo), *finite, *(part.ok for part in move.naturals)]
        return move._replace(ok=tf.reduce_all(tf.stack(ok)))

    def commit(self, model: BasisGP, move: Move) -> None:
        """Write a move to the Parameters, if it is sound."""
        gaussians = tuple(part.gaussian() for part in move.naturals)
        tf.cond(move.ok, lambda: self._assign(model, move, gaussians), lambda: False)

    def commit_after(self, model: BasisGP, move: Move) -> None:
        """Write a move after kernel and inducing points have moved too: q keeps its sites, (C28).

        Where that would leave the cone of positive definite matrices, q keeps its whitened mean and root.
        """
        basis = model.basis
        new = basis.factor(model.kernel, with_kl=False)
        frames = zip(basis.whiteners(move.state), basis.whiteners(new))
        carried = tuple(carry_over(part, old.chol, now.chol) for part, (old, now) in zip(move.naturals, frames))
        held = move._replace(state=new, naturals=carried)
        gaussians = tuple(part.gaussian() for part in carried)
        feasible = tf.reduce_all(tf.stack([new.ok, *(part.ok for part in carried)]))

        def stay() -> tf.Tensor:
            return self._assign(model, move, tuple(part.gaussian() for part in move.naturals))

        tf.cond(
            move.ok,
            lambda: tf.cond(feasible, lambda: self._assign(model, held, gaussians), stay),
            lambda: False,
        )

    def _assign(self, model: BasisGP, move: Move, gaussians: tuple[Gaussian, ...]) -> bool:
        if gaussians:
            model.basis.assign_gaussians(move.state, gaussians)
            self._memory.store(model.basis, gaussians, tuple(part.precision for part in move.naturals))
        if move.coefficients is not None and model.basis.kernel_mean is not None:
            model.basis.kernel_mean.coefficients.assign(move.coefficients)
        return True

    def _move(
        self,
        model: BasisGP,
        data: RegressionData,
        evaluation: Evaluation,
        mean_gradients: list[tf.Tensor],
        rho: tf.Tensor,
    ) -> Move:
        """Where q goes: the mean coefficients first, then each Gaussian part at the moments that result."""
        basis, features, state = model.basis, evaluation.features, evaluation.state
        mean, variance, g, h = features.mean, evaluation.variance, evaluation.g, evaluation.h
        clipped = tf.math.count_nonzero(h > 0, dtype=tf.int32) if self.negative_precision == "clip" else tf.constant(0)
        shortened = tf.constant(0)
        coefficients, newton_mean = None, None
        if self.mean is not None and basis.kernel_mean is not None:
            operator = basis.mean_operator(state, model.kernel, data[0], features)
            scaled = tf.convert_to_tensor(basis.kernel_mean.coefficients)
            if self.mean == "newton":
                change, newton_mean = self._newton(basis, state, features, operator, g, h)
                coefficients = scaled + basis.kernel_mean.scaling.scaled(change)
            else:
                step = _step_size(self.mean_step, h.dtype)
                change, short = steepest_step(operator, basis.kernel_mean.scaling, mean_gradients[0], h, step)
                coefficients, shortened = scaled + change, shortened + tf.cast(short, tf.int32)
                raw = basis.kernel_mean.scaling.raw(change)
                state = basis.moved(state, model.kernel, raw)
                mean += operator.to_data(raw)
                g, h = local_gradient(model, mean, variance, data)
        naturals: list[Natural] = []
        parts: Any = basis.gaussians(state)
        for k, (old, A) in enumerate(zip(parts, features.minus)):
            if k > 0:  # the part before has moved
                new_mean, new_root = naturals[-1].gaussian()
                mean += apply_per_latent(features.minus[k - 1], new_mean - parts[k - 1].mean, adjoint=True)
                new_plus = transposed_product(new_root, features.minus[k - 1])
                variance += tf.transpose(tf.reduce_sum(tf.square(new_plus) - tf.square(features.plus[k - 1]), axis=-2))
                g, h = local_gradient(model, mean, variance, data)
            natural, tries = self._gaussian_step(old, self._memory.recall(basis, k, old.root), A, g, h, rho)
            if newton_mean is not None:
                natural = natural._replace(theta=apply_per_latent(natural.precision, newton_mean))
            naturals.append(natural)
            shortened += tf.cast(tries > 0, tf.int32)
        return Move(state, tuple(naturals), coefficients, tf.constant(True), shortened, clipped)

    def _newton(self, basis: Any, state: Any, features: Any, operator: Any, g: tf.Tensor, h: tf.Tensor) -> tuple:
        """The change of the raw coefficients and the new whitened mean of q(u)."""
        if not basis.solves_mean:
            raise UnknownOptionError(
                f'mean="newton" solves (D49), which is for OrthogonalBasis, not {type(basis).__name__}.'
            )
        A = features.minus[0]
        gradient = operator.from_data(g) - operator.product(state.a)  # (D41)
        direction = newton_direction(
            operator,
            basis.kernel_mean.scaling,
            A,
            (gradient, apply_per_latent(A, g) - state.mean),
            h,
            self.newton_options,
        )
        step = _step_size(self.mean_step, g.dtype)
        return step * direction[0], state.mean + step * direction[1]

    def _gaussian_step(
        self, old: Gaussian, old_precision: tf.Tensor, A: tf.Tensor, g: tf.Tensor, h: tf.Tensor, rho: tf.Tensor
    ) -> tuple[Natural, tf.Tensor]:
        """(D46) for one Gaussian part: the new one, and how often the step was halved."""
        if self.negative_precision == "clip":
            h = tf.minimum(h, 0.0)
        target = site_precision(A, h)
        if old.mean is None:
            old_theta = target_theta = tf.zeros([tf.shape(old.root)[1], tf.shape(old.root)[0]], g.dtype)
        else:
            own_mean = apply_per_latent(A, old.mean, adjoint=True)
            old_theta = apply_per_latent(old_precision, old.mean)
            target_theta = apply_per_latent(A, g - 2.0 * h * own_mean)  # (D46)

        def at(step: tf.Tensor) -> Natural:
            theta = (1.0 - step) * old_theta + step * target_theta  # (D46)
            return Natural.of(theta, (1.0 - step) * old_precision + step * target)  # (D46)

        tries, new = _feasible(at, rho, MAX_HALVINGS if self.negative_precision == "damp" else 0)
        return new if old.mean is not None else new._replace(theta=None), tries


def _step_size(value: StepSize, dtype: tf.DType) -> tf.Tensor:
    value = value() if callable(value) and not isinstance(value, tf.Variable) else value
    if isinstance(value, (tf.Tensor, tf.Variable)):
        return tf.cast(value, dtype)
    return tf.constant(value, dtype)  # tf.cast would pass a Python float through float32


def _feasible(at: Callable[[tf.Tensor], Natural], rho: tf.Tensor, halvings: int) -> tuple[tf.Tensor, Natural]:
    """The number of halvings, and what `at` gives at the first of rho, rho / 2, ... that is feasible.

    A step that had to be halved is halved once more: the feasible one may end at the edge of the cone, where a covariance
    explodes, while half of it keeps at least half of the old precision in every direction.
    """

    def halve(tries: tf.Tensor, _: Natural) -> tuple:
        return tries + 1, at(rho / tf.cast(2 ** (tries + 1), rho.dtype))

    def infeasible(tries: tf.Tensor, new: Natural) -> tf.Tensor:
        return tf.logical_and(tries < halvings, tf.logical_not(new.ok))

    tries, new = tf.while_loop(infeasible, halve, (tf.constant(0), at(rho)))
    return tf.cond(tf.logical_and(new.ok, tries > 0), lambda: halve(tries, new), lambda: (tries, new))
