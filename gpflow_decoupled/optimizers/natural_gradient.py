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

from ..bases import Gaussian, OrthogonalBasis
from ..errors import NumericalError, UnknownOptionError, check_option
from ..linalg.gaussians import apply_per_latent, natural_to_root
from ..linalg.triangular import symmetric_product, transposed_product
from ..models import BasisGP
from .evaluation import Evaluation, as_basis_model, evaluate, local_gradient
from .mean_steps import NewtonOptions, newton_direction, steepest_step
from .memory import PrecisionMemory

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
    gaussians: tuple[Gaussian, ...]
    precisions: tuple[tf.Tensor, ...]
    coefficients: tf.Tensor | None
    """[M_gamma, L], in the basis's coordinates; None if they stay."""
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
        rho = _step_size(self.gamma, evaluation.elbo.dtype)
        move = self._move(model, data, evaluation, mean_gradients, rho)
        values = [x for part in move.gaussians for x in part if x is not None]
        values += [] if move.coefficients is None else [move.coefficients]
        finite = [tf.reduce_all(tf.math.is_finite(value)) for value in values]
        ok = tf.reduce_all(tf.stack([evaluation.state.ok, tf.math.is_finite(evaluation.elbo), *finite]))

        def assign() -> tf.Tensor:
            if move.gaussians:
                model.basis.assign_gaussians(move.state, move.gaussians)
                self._memory.store(model.basis, move.gaussians, move.precisions)
            if move.coefficients is not None and model.basis.kernel_mean is not None:
                model.basis.kernel_mean.coefficients.assign(move.coefficients)
            return ok

        tf.cond(ok, assign, lambda: ok)
        return StepReport(ok, move.shortened, move.clipped)

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
        gaussians, precisions = [], []
        for k, (old, A) in enumerate(zip(basis.gaussians(state), features.minus)):
            if k > 0:
                g, h = local_gradient(model, mean, variance, data)
            new, precision, tries = self._gaussian_step(old, self._memory.recall(basis, k, old.root), A, g, h, rho)
            if newton_mean is not None:
                new = Gaussian(newton_mean, new.root)
            if old.mean is not None and k + 1 < len(basis.gaussian_parameters()) // 2:
                mean += apply_per_latent(A, new.mean - old.mean, adjoint=True)
                root_change = tf.square(transposed_product(new.root, A)) - tf.square(features.plus[k])
                variance += tf.transpose(tf.reduce_sum(root_change, axis=-2))
            gaussians.append(new)
            precisions.append(precision)
            shortened += tf.cast(tries > 0, tf.int32)
        return Move(state, tuple(gaussians), tuple(precisions), coefficients, shortened, clipped)

    def _newton(self, basis: Any, state: Any, features: Any, operator: Any, g: tf.Tensor, h: tf.Tensor) -> tuple:
        """The change of the raw coefficients and the new whitened mean of q(u)."""
        if not isinstance(basis, OrthogonalBasis):
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
        self,
        old: Gaussian,
        old_precision: tf.Tensor,
        A: tf.Tensor,
        g: tf.Tensor,
        h: tf.Tensor,
        rho: tf.Tensor,
    ) -> tuple[Gaussian, tf.Tensor, tf.Tensor]:
        """(D46) for one Gaussian part: the new one, its precision, and how often the step was halved."""
        if self.negative_precision == "clip":
            h = tf.minimum(h, 0.0)
        target = symmetric_product(A, -2.0 * tf.transpose(h))
        target = tf.linalg.set_diag(target, tf.linalg.diag_part(target) + 1.0)
        if old.mean is None:
            old_theta = target_theta = tf.zeros([tf.shape(old.root)[1], tf.shape(old.root)[0]], g.dtype)
        else:
            own_mean = apply_per_latent(A, old.mean, adjoint=True)
            old_theta = apply_per_latent(old_precision, old.mean)
            target_theta = apply_per_latent(A, g - 2.0 * h * own_mean)  # (D46)

        def at(step: tf.Tensor) -> tuple:
            theta = (1.0 - step) * old_theta + step * target_theta  # (D46)
            precision = (1.0 - step) * old_precision + step * target  # (D46)
            mean, (root, ok) = natural_to_root(theta, precision)
            return ok, mean, root, precision

        tries, mean, root, precision = _feasible(at, rho, MAX_HALVINGS if self.negative_precision == "damp" else 0)
        return Gaussian(None if old.mean is None else mean, root), precision, tries


def _step_size(value: StepSize, dtype: tf.DType) -> tf.Tensor:
    value = value() if callable(value) and not isinstance(value, tf.Variable) else value
    if isinstance(value, (tf.Tensor, tf.Variable)):
        return tf.cast(value, dtype)
    return tf.constant(value, dtype)  # tf.cast would pass a Python float through float32


def _feasible(at: Callable[[tf.Tensor], tuple], rho: tf.Tensor, halvings: int) -> tuple:
    """The number of halvings, and what `at` gives at the first of rho, rho / 2, ... that is feasible.

    A step that had to be halved is halved once more: the feasible one may end at the edge of the cone, where a covariance
    explodes, while half of it keeps at least half of the old precision in every direction.
    """

    def halve(tries: tf.Tensor, *_: tf.Tensor) -> tuple:
        return tries + 1, *at(rho / tf.cast(2 ** (tries + 1), rho.dtype))

    def infeasible(tries: tf.Tensor, ok: tf.Tensor, *_: tf.Tensor) -> tf.Tensor:
        return tf.logical_and(tries < halvings, tf.logical_not(ok))

    tries, ok, *result = tf.while_loop(infeasible, halve, (tf.constant(0), *at(rho)))
    tries, _, *result = tf.cond(tf.logical_and(ok, tries > 0), lambda: halve(tries), lambda: (tries, ok, *result))
    return tries, *result
