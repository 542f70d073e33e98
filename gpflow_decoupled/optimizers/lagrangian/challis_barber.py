"""The bound as a function of the mean and a Cholesky factor of the covariance, climbed by L-BFGS: Challis & Barber 2011.

Whitened, with K = A A^T, mean m_0 + A t, V = A T T^T A^T and B = A T:

    F = sum log T_ll - |T|^2 / 2 - |t|^2 / 2 + N / 2 - sum f_n(m_0 + A t, |B_n|)                             (V23)

and unwhitened, V = T T^T and mean m_0 + m, the same with A^-1 T, A^-1 m in the prior terms. Concave for log-concave sites, in
N + N (N + 1) / 2 parameters.
"""

from __future__ import annotations

__all__ = ["Cholesky"]

from typing import Any

import numpy as np
import tensorflow as tf

from ...errors import DataError, NumericalError
from ...linalg.cholesky import cholesky, diagnose
from ...linalg.triangular import solve
from ...models import LCLGP
from .dual import DualProblem
from .result import LagrangianResult, Trace
from .scipy_ascent import ascend, write_multipliers
from .start import isolated_sites

_JITTERS = (0.0, 1e-15, 1e-14, 1e-13, 1e-12, 1e-11, 1e-10)
"""Of the mean diagonal: what K gets until it can be factorised."""
_LEAST = 1e-10


class Cholesky:
    """The mean and the factor of Challis & Barber, on an `LCLGP` or `LCLGLM`.

    :param whiten: in the coordinates of the prior, which is the fair rival; False is the form that Khan 2014 compares with.
    :param tolerance: on the change of the bound in an iteration, in nats.
    :param max_evaluations: of the bound and its gradient. :param compile: False runs eagerly.

    Raises `DataError` for settings out of range. Cost of an evaluation: 3 N^3 a latent; memory: 40 N^2 L numbers.
    """

    def __init__(
        self, whiten: bool = True, tolerance: float = 1e-4, max_evaluations: int = 5000, compile: bool = True
    ) -> None:
        if not tolerance > 0.0 or max_evaluations < 1:
            raise DataError(
                f"tolerance={tolerance!r} must be above 0 and max_evaluations={max_evaluations!r} at least 1."
            )
        self.whiten, self.tolerance = whiten, float(tolerance)
        self.max_evaluations, self.compile = max_evaluations, compile

    def run(self, model: LCLGP) -> LagrangianResult:
        """Climb from the prior mean and independent whitened coordinates; the model is left at the best multipliers.

        The result's bound is that of mean and factor; the multipliers (V11) have the same one where it has converged.
        Raises `NumericalError` where K is not positive definite.
        """
        trace, problem = Trace(), DualProblem(model, self.compile)
        A = _factor(problem)
        shape_t, shape_T = (int(A.shape[-1]), model.num_latent_gps), (model.num_latent_gps, *A.shape[-1:], A.shape[-1])
        places = np.tril_indices(shape_t[0])
        size = int(np.prod(shape_t))
        objective = problem.compiled(lambda t, T: _value_and_gradient(problem, A, self.whiten, t, T))

        def unpacked(x: np.ndarray) -> tuple[tf.Tensor, tf.Tensor]:
            T = np.zeros(shape_T)
            T[:, places[0], places[1]] = x[size:].reshape(shape_T[0], -1)
            return tf.constant(x[:size].reshape(shape_t)), tf.constant(T)

        def value_and_gradient(x: np.ndarray) -> tuple[float, np.ndarray]:
            value, g_t, g_T = objective(*unpacked(x))
            lower = g_T.numpy()[:, places[0], places[1]]
            return float(value), np.concatenate([g_t.numpy().ravel(), lower.ravel()])

        t, T = _start(problem, A, self.whiten)
        start = np.concatenate([t.ravel(), T[:, places[0], places[1]].ravel()])
        diagonal = np.tile(np.where(places[0] == places[1], _LEAST, -np.inf), shape_T[0])
        low = np.concatenate([np.full(size, -np.inf), diagonal])
        best, reason = ascend(value_and_gradient, start, low, trace, self.tolerance, self.max_evaluations)
        self._write(problem, A, *unpacked(best))
        return trace.result(reason)

    def _write(self, problem: DualProblem, A: tf.Tensor, t: tf.Tensor, T: tf.Tensor) -> None:
        mean, deviation = _moments(problem, A, self.whiten, t, T)
        loss = problem.expand(mean, deviation)
        lam, candidates = loss.d_s / deviation, [loss.d_h]
        if problem.basis.form == "function":
            white = t if self.whiten else _by_latent(solve, A, t)
            candidates.append(-_by_latent(lambda L, x: solve(L, x, adjoint=True), A, white))
        write_multipliers(problem, [(alpha, lam) for alpha in candidates])  # (V11)


def _factor(problem: DualProblem) -> tf.Tensor:
    """A [G, N, N], lower, with K = A A^T; in the weight form A itself [1, N, p]."""
    if problem.basis.form == "weight":
        return problem.prior
    K = problem.prior
    diagonal = tf.linalg.diag_part(K)
    for jitter in _JITTERS:
        chol, ok = cholesky(tf.linalg.set_diag(K, diagonal + jitter * tf.reduce_mean(diagonal)))
        if bool(ok):
            return chol
    raise diagnose("The kernel matrix K", K.numpy())


def _start(problem: DualProblem, A: tf.Tensor, whiten: bool) -> tuple[np.ndarray, np.ndarray]:
    """A mean of zero, and independent coordinates that are narrower than the prior."""
    h, sigma = isolated_sites(problem)
    precision = (problem.expand(h, sigma).d_s / sigma).numpy().T  # [L, N]
    power = tf.reduce_mean(tf.square(A), axis=-2).numpy() * max(float(np.mean(precision)), 0.0)
    narrow = 1.0 / np.sqrt(1.0 + A.shape[-2] * np.broadcast_to(power, (len(precision), A.shape[-1])))
    T = np.stack([np.diag(part) for part in narrow])
    if not whiten:
        if problem.basis.form == "weight":
            raise NumericalError("The unwhitened form needs a factor of K; use whiten=True for weights.", matrix="K")
        T = tf.matmul(A, tf.constant(T)).numpy()
    return np.zeros((A.shape[-1], len(precision))), T


def _by_latent(apply: Any, A: tf.Tensor, columns: tf.Tensor) -> tf.Tensor:
    """A function of A [G, ...] and columns [L, p, 1] on columns [p, L]."""
    wide = tf.transpose(columns)[..., None]
    return tf.transpose(apply(A, wide)[..., 0])


def _moments(problem: DualProblem, A: tf.Tensor, whiten: bool, t: tf.Tensor, T: tf.Tensor) -> tuple:
    if not whiten:
        return problem.prior_mean + t, tf.transpose(tf.norm(T, axis=-1))
    mean = problem.prior_mean + _by_latent(tf.matmul, A, t)
    return mean, tf.transpose(tf.norm(tf.matmul(A, T), axis=-1))  # (V23)


def _value_and_gradient(problem: DualProblem, A: tf.Tensor, whiten: bool, t: tf.Tensor, T: tf.Tensor) -> tuple:
    """F and its gradient: (V23)."""
    mean, deviation = _moments(problem, A, whiten, t, T)
    loss = problem.expand(mean, deviation)
    gamma = tf.transpose(loss.d_s / deviation)[..., None]
    white_t, white_T = (t, T) if whiten else (_by_latent(solve, A, t), solve(A, T))
    diagonal = tf.linalg.diag_part(T)
    size = tf.cast(tf.size(t), T.dtype)
    log_det = tf.reduce_sum(tf.math.log(diagonal))
    if not whiten:
        share = tf.cast(tf.shape(T)[0] // tf.shape(A)[0], T.dtype)
        log_det -= share * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(A)))
    norms = tf.reduce_sum(tf.square(white_T)) + tf.reduce_sum(tf.square(white_t))
    value = log_det - 0.5 * (norms - size) - tf.reduce_sum(loss.value)  # (V23)
    if whiten:
        g_t = -t - _by_latent(lambda L, x: tf.matmul(L, x, transpose_a=True), A, loss.d_h)
        g_T = -T - tf.matmul(A, gamma * tf.matmul(A, T), transpose_a=True)  # (V23)
    else:
        g_t = -_by_latent(lambda L, x: solve(L, x, adjoint=True), A, white_t) - loss.d_h
        g_T = -solve(A, white_T, adjoint=True) - gamma * T
    return value, g_t, tf.linalg.set_diag(g_T, tf.linalg.diag_part(g_T) + 1.0 / diagonal)
