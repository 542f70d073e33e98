"""Rivals of the Lagrangian, which climb the bound itself by L-BFGS."""

from __future__ import annotations

__all__ = ["CholeskyKL", "OpperArchambeau"]

from collections.abc import Callable

import numpy as np
import tensorflow as tf
from gpflow.optimizers import Scipy

from ...diagnostics.accuracy import warn_of_quadrature
from ...diagnostics.failure import naming_observation
from ...inputs import check_rate, check_whole
from ...lbfgs import LBFGSRun, Objective, lbfgs_ascent, settled
from ...linalg.triangular import solve
from ...models import LCLGP
from ...models.families import require_model
from ...summaries import settings_line
from .dual import DualProblem
from .linearly_constrained import LagrangianRecord, LagrangianResult
from .subproblem import NOT_FINITE, first_marginals, isolated_sites


class _Rival:
    def __init__(
        self, tolerance: float = 1e-4, max_evaluations: int = 5000, compile: bool = True
    ) -> None:
        check_rate(tolerance=tolerance)
        check_whole(1, max_evaluations=max_evaluations)
        self.tolerance, self.max_evaluations = float(tolerance), max_evaluations
        self.compile = compile

    def __repr__(self) -> str:
        return settings_line(self)

    def _climb(
        self,
        model: LCLGP,
        function: Objective,
        start: np.ndarray,
        low: np.ndarray,
        write: Callable[[np.ndarray], float | None],
    ) -> LagrangianResult:
        """Maximise from `start` [n], in place of the model's multipliers `write` the best point."""
        record = LagrangianRecord()
        with naming_observation(model):
            found: LBFGSRun = lbfgs_ascent(
                function,
                start,
                settled(self.tolerance),
                self.max_evaluations,
                low=low,
                record=record.add,
                advice=NOT_FINITE,
                matrix="K",
            )
        result = record.result(found.reason, write(found.x))
        warn_of_quadrature(model, result.elbo)
        return result


# ---
# Over mean and Cholesky factor. Whitened, with K = A A^T, mean m_0 + A t, V = B B^T and B = A T:
#
#   F = sum log T_ll - |T|^2 / 2 - |t|^2 / 2 + N / 2 - sum f_n(m_0 + A t, |B_n|)        (V23)


_LEAST = 1e-10
"""Smallest diagonal entry of T."""


class CholeskyKL(_Rival):
    """Maximise the bound over mean and Cholesky factor by L-BFGS (Challis & Barber 2011).

    Finds the q of `LinearlyConstrainedLagrangian` more slowly: for comparison, and for site losses
    without a dual. Cost of an evaluation: 3 N^3 per latent; memory: 40 N^2 L numbers.

    :param whiten: whitened coordinates, with far fewer iterations; False is the form in Khan 2014.
    :param tolerance: the run ends when six iterations gain less, in nats; with little noise the
        bound may be some nats low.
    :param max_evaluations: of the bound and its gradient.
    :param compile: False runs eagerly.

    Example::

        model = LCLGP((X, Y), gpflow.kernels.Matern52(), gpflow.likelihoods.Poisson())
        result = CholeskyKL().run(model)
    """

    def __init__(
        self,
        whiten: bool = True,
        tolerance: float = 1e-4,
        max_evaluations: int = 5000,
        compile: bool = True,
    ) -> None:
        super().__init__(tolerance, max_evaluations, compile)
        self.whiten = whiten

    def run(self, model: LCLGP) -> LagrangianResult:
        """Maximise the bound from the prior mean and a covariance narrower than the prior's.

        The model gets the multipliers of the best mean and factor.

        :param model: an `LCLGP`, or the result of `LCLGLM`.
        """
        require_model("CholeskyKL.run", model, LCLGP)
        problem = DualProblem(model, self.compile)
        root = problem.geometry.root if self.whiten else problem.geometry.triangular_root
        A = root(tf.convert_to_tensor(problem.prior))
        shape_t, shape_T = (
            (int(A.shape[-1]), model.num_latent_gps),
            (model.num_latent_gps, *A.shape[-1:], A.shape[-1]),
        )
        places = np.tril_indices(shape_t[0])
        size = int(np.prod(shape_t))
        objective = problem.compiled(lambda t, T: _of_factor(problem, A, self.whiten, t, T))

        # The vector of L-BFGS has t, and of each T the lower triangle.
        def packed(t: np.ndarray, T: np.ndarray) -> np.ndarray:
            return np.concatenate([t.ravel(), T[:, places[0], places[1]].ravel()]).astype(float)

        def unpacked(x: np.ndarray) -> tuple[tf.Tensor, tf.Tensor]:
            T = np.zeros(shape_T)
            T[:, places[0], places[1]] = x[size:].reshape(shape_T[0], -1)
            return tf.constant(x[:size].reshape(shape_t), A.dtype), tf.constant(T, A.dtype)

        def value_and_gradient(x: np.ndarray) -> tuple[float, np.ndarray]:
            value, g_t, g_T = objective(*unpacked(x))
            return float(value), packed(g_t.numpy(), g_T.numpy())

        diagonal = np.tile(np.where(places[0] == places[1], _LEAST, -np.inf), shape_T[0])
        low = np.concatenate([np.full(size, -np.inf), diagonal])

        def write(x: np.ndarray) -> float | None:
            t, T = unpacked(x)
            mean, deviation = _moments(problem, A, self.whiten, t, T)
            loss = problem.expand(mean, deviation)
            white = t if self.whiten else _by_latent(solve, A, t)
            alphas = [loss.d_h, *problem.geometry.coefficients_of(A, white)]  # (V11), (V7)
            return problem.write_best([(alpha, loss.d_s / deviation) for alpha in alphas])  # (V11)

        start = packed(*_start(problem, A, self.whiten))
        return self._climb(model, value_and_gradient, start, low, write)


def _start(problem: DualProblem, A: tf.Tensor, whiten: bool) -> tuple[np.ndarray, np.ndarray]:
    h, sigma = isolated_sites(problem)
    precision = (problem.expand(h, sigma).d_s / sigma).numpy().T  # [L, N]
    power = tf.reduce_mean(tf.square(A), axis=-2).numpy() * max(float(np.mean(precision)), 0.0)
    narrow = 1.0 / np.sqrt(
        1.0 + A.shape[-2] * np.broadcast_to(power, (len(precision), A.shape[-1]))
    )
    T = np.stack([np.diag(part) for part in narrow])
    if not whiten:
        T = tf.matmul(A, tf.constant(T, A.dtype)).numpy()
    return np.zeros((A.shape[-1], len(precision))), T


def _by_latent(
    apply: Callable[[tf.Tensor, tf.Tensor], tf.Tensor], A: tf.Tensor, columns: tf.Tensor
) -> tf.Tensor:
    wide = tf.transpose(columns)[..., None]
    return tf.transpose(apply(A, wide)[..., 0])


def _moments(
    problem: DualProblem, A: tf.Tensor, whiten: bool, t: tf.Tensor, T: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    if not whiten:
        return problem.prior_mean + t, tf.transpose(tf.norm(T, axis=-1))
    mean = problem.prior_mean + _by_latent(tf.matmul, A, t)
    return mean, tf.transpose(tf.norm(tf.matmul(A, T), axis=-1))  # (V23)


def _of_factor(
    problem: DualProblem, A: tf.Tensor, whiten: bool, t: tf.Tensor, T: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """F and its gradient in t [p, L] and T [L, p, p]: (V23)."""
    mean, deviation = _moments(problem, A, whiten, t, T)
    loss = problem.expand(mean, deviation)
    gamma = tf.transpose(loss.d_s / deviation)[..., None]
    white_t, white_T = (t, T) if whiten else (_by_latent(solve, A, t), solve(A, T))
    diagonal = tf.linalg.diag_part(T)
    size = tf.cast(tf.size(t), T.dtype)
    log_det = tf.reduce_sum(tf.math.log(diagonal))
    if not whiten:
        latents_per_root = tf.cast(tf.shape(T)[0] // tf.shape(A)[0], T.dtype)
        log_det -= latents_per_root * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(A)))
    norms = tf.reduce_sum(tf.square(white_T)) + tf.reduce_sum(tf.square(white_t))
    value = log_det - 0.5 * (norms - size) - tf.reduce_sum(loss.value)  # (V23)
    if whiten:
        g_t = -t - _by_latent(lambda L, x: tf.matmul(L, x, transpose_a=True), A, loss.d_h)
        g_T = -T - tf.matmul(A, gamma * tf.matmul(A, T), transpose_a=True)  # (V23)
    else:
        g_t = -_by_latent(lambda L, x: solve(L, x, adjoint=True), A, white_t) - loss.d_h
        g_T = -solve(A, white_T, adjoint=True) - gamma * T
    return value, g_t, tf.linalg.set_diag(g_T, tf.linalg.diag_part(g_T) + 1.0 / diagonal)


# ---
# Over alpha and lambda. With f_h and gamma = f_sigma / sigma the derivatives of the site losses at
# the marginals,
#
#   dF / dalpha = K (f_h - alpha),   dF / dlambda = 1/2 (V * V)(gamma - lambda)        (V21)


class OpperArchambeau(_Rival):
    """Maximise the bound over alpha and lambda by L-BFGS (Opper & Archambeau 2009).

    Finds the q of `LinearlyConstrainedLagrangian` more slowly: for comparison, and for site losses
    without a dual. Cost of an evaluation per latent: 5/3 N^3, or in weight space 3 N p^2.

    :param tolerance: the run ends when six iterations gain less, in nats; with little noise the
        bound may be some nats low.
    :param max_evaluations: of the bound and its gradient.
    :param compile: False runs eagerly.

    Example::

        model = LCLGP((X, Y), gpflow.kernels.Matern52(), gpflow.likelihoods.Poisson())
        result = OpperArchambeau().run(model)
    """

    def run(self, model: LCLGP) -> LagrangianResult:
        """Maximise the bound from the model's multipliers, or from a new start if all are zero.

        :param model: an `LCLGP`, or the result of `LCLGLM`; left at the best multipliers.
        """
        require_model("OpperArchambeau.run", model, LCLGP)
        problem = DualProblem(model, self.compile)
        at, _ = first_marginals(problem, 0, self.tolerance)
        centred = problem.marginals(tf.zeros_like(at.alpha), at.lam)
        fresh = not np.any(np.asarray(model.basis.alpha)) and not np.any(
            np.asarray(model.basis.lam)
        )
        if fresh and bool(centred.ok):
            at = centred  # the alpha of a start for the dual gives no sensible mean
        multipliers = [at.alpha, at.lam]
        gradient = problem.compiled(lambda alpha, lam: _of_multipliers(problem, alpha, lam))

        def value_and_gradient(x: np.ndarray) -> tuple[float, np.ndarray]:
            value, *parts = gradient(*Scipy.unpack_tensors(multipliers, tf.constant(x)))
            return float(value), Scipy.pack_tensors(parts).numpy().astype(float)

        start = Scipy.pack_tensors(multipliers).numpy().astype(float)
        # lambda stays at 0 or above where the likelihood is log-concave
        bumpy = np.asarray(tf.convert_to_tensor(problem.loss.curvature) > 0.0)
        low = np.concatenate(
            [np.full(start.size // 2, -np.inf), np.where(bumpy, -np.inf, 0.0).ravel()]
        )

        def write(x: np.ndarray) -> float | None:
            alpha, lam = Scipy.unpack_tensors(multipliers, tf.constant(x))
            return problem.write_best([(alpha, lam)])

        return self._climb(model, value_and_gradient, start, low, write)


def _of_multipliers(
    problem: DualProblem, alpha: tf.Tensor, lam: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """F and its gradient in alpha and lam [N, L] (V21); NaN without V."""
    at = problem._marginals(alpha, lam)
    loss = problem.expand(at.mean, at.deviation)
    geometry, prior = problem.geometry, problem.prior
    g_alpha = geometry.product(prior, loss.d_h - alpha)  # (V21)
    gap = tf.transpose(loss.d_s / at.deviation - lam)
    g_lam = 0.5 * tf.transpose(geometry.squared_covariance_product(prior, at.state, gap))  # (V21)
    nothing = tf.constant(float("nan"), at.bound.dtype)
    return tf.where(at.ok, at.bound, nothing), g_alpha, g_lam
