"""The Lagrangian with multipliers of M observations (V26)."""

from __future__ import annotations

__all__ = ["ConstraintSubset", "SubsetBound", "SubsetPoint", "SubsetState"]

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from gpflow.inducing_variables import InducingPoints, SharedIndependentInducingVariables
from gpflow.keras import tf_keras
from gpflow.optimizers import Scipy

from ...compilation import Compiled
from ...covariances.latents import gram_to_data, positive_gram, positive_variances, prior_variance
from ...diagnostics.accuracy import warn_of_quadrature
from ...diagnostics.failure import naming_observation, unusable_observation
from ...errors import DataError, NumericalError
from ...inputs import check_rate, check_whole
from ...lbfgs import lbfgs_ascent, settled
from ...likelihoods import Expansion, site_loss
from ...likelihoods.facts import name_of
from ...linalg.cholesky import add_jitter, cholesky
from ...linalg.triangular import solve
from ...linalg.whitening import apply_per_latent
from ...models import LCLGP
from ...models.families import require_model
from ...summaries import settings_line
from .linearly_constrained import LagrangianRecord, LagrangianResult
from .subproblem import NOT_FINITE

# ---
# The bound with multipliers of M observations alone.


# For any observation n, with B = I + Lambda^1/2 K_SS Lambda^1/2, (V26)
#
#   KL = 1/2 [log|B| - lambda^T v_S + alpha^T K_SS alpha]
#   m_n = m_0 - K_nS alpha,   v_n = K_nn - K_nS (K_SS + Lambda^-1)^-1 K_Sn
#
# With V_nS = K_nS - K_nS (K_SS + Lambda^-1)^-1 K_SS the gradient is (V21), summed over all n.


_BLOCK = 1024
"""Observations in a block of a pass over all data."""


class SubsetState(NamedTuple):
    """The subset at some multipliers: terms for the moments elsewhere, and the divergence."""

    alpha: tf.Tensor
    """[M, L]"""
    chol: tf.Tensor
    """L_B [L, M, M]"""
    scale: tf.Tensor
    """Lambda^1/2 [L, M, 1]"""
    half: tf.Tensor
    """L_B^-1 Lambda^1/2 K_SS [L, M, M]"""
    divergence: tf.Tensor
    """KL, [] nats"""
    g_alpha: tf.Tensor
    """Gradient of -KL in alpha [M, L]"""
    g_lam: tf.Tensor
    """Gradient of -KL in lambda [M, L]"""
    ok: tf.Tensor
    """[], bool"""


class SubsetPoint(NamedTuple):
    """The bound and its gradient."""

    bound: tf.Tensor
    """[] nats; NaN where undefined."""
    g_alpha: tf.Tensor
    """[M, L]"""
    g_lam: tf.Tensor
    """[M, L]"""


class SubsetBound:
    """The bound F as a function of a subset's multipliers, on all data or estimated from a batch.

    Multipliers are [M, L]; estimates are unbiased. Cost per latent for a batch of B:
    M^3 + 3 B M^2, memory M^2 + B M.
    """

    def __init__(self, model: LCLGP, rows: np.ndarray, compile: bool = True) -> None:
        self.model, self.rows = model, rows
        self.X, self.Y = model.data
        self.num_data, self.num_latents = int(self.X.shape[0]), model.num_latent_gps
        inducing = InducingPoints(tf.gather(self.X, rows))
        self.points = SharedIndependentInducingVariables(inducing)
        self.K = positive_gram(model.kernel, self.points)
        self.variances = positive_variances(prior_variance(model.kernel, self.X, False))
        self._head = Compiled(self.state) if compile else self.state
        self._part = Compiled(self.part, reduce_retracing=True) if compile else self.part

    def evaluate(self, alpha: tf.Tensor, lam: tf.Tensor) -> SubsetPoint:
        """F on all data, in blocks, at alpha and lam [M, L], lam >= 0."""
        state = self._head(alpha, lam)
        losses, g_alpha, g_lam = (
            sum(terms) for terms in zip(*(self._part(state, b) for b in self._blocks()))
        )
        return _point(state, losses, g_alpha, g_lam)

    def estimate(self, alpha: tf.Tensor, lam: tf.Tensor, batch: tf.Tensor) -> SubsetPoint:
        """Unbiased estimate of F and its gradient from rows [B], with losses times N / B."""
        state = self.state(alpha, lam)
        weight = tf.cast(self.num_data, alpha.dtype) / tf.cast(tf.shape(batch)[0], alpha.dtype)
        return _point(state, *(weight * term for term in self.part(state, batch)))

    def state(self, alpha: tf.Tensor, lam: tf.Tensor) -> SubsetState:
        """(V26) for the subset at alpha and lam [M, L]; M^3 per latent."""
        columns = tf.transpose(lam)
        scale = tf.sqrt(columns)[:, :, None]
        B = scale * self.K * tf.linalg.matrix_transpose(scale)
        chol, ok = cholesky(tf.linalg.set_diag(B, tf.linalg.diag_part(B) + 1.0))
        half = solve(chol, scale * self.K)
        V = self.K - tf.matmul(half, half, transpose_a=True)
        K_alpha = apply_per_latent(self.K, alpha)
        log_det = 2.0 * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(chol)))
        divergence = 0.5 * (
            log_det
            - tf.reduce_sum(columns * tf.linalg.diag_part(V))
            + tf.reduce_sum(alpha * K_alpha)
        )  # (V26)
        g_lam = -0.5 * tf.transpose(tf.linalg.matvec(tf.square(V), columns))  # (V21)
        return SubsetState(alpha, chol, scale, half, divergence, -K_alpha, g_lam, ok)

    def part(self, state: SubsetState, batch: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Sum of losses of rows [B], and its negative gradients in alpha and lam [M, L]."""
        K, T, mean, variance = self._moments(state, batch)
        sigma = tf.sqrt(variance)
        loss = self._expand(batch, mean, sigma)
        V = K - tf.matmul(state.half, T, transpose_a=True)
        gamma = tf.transpose(loss.d_s / sigma)
        g_lam = 0.5 * tf.transpose(tf.linalg.matvec(tf.square(V), gamma))  # (V21)
        return tf.reduce_sum(loss.value), apply_per_latent(K, loss.d_h), g_lam

    def precision(self, alpha: tf.Tensor, lam: tf.Tensor) -> tf.Tensor:
        """Cholesky factor [L, M, M] of F's negative Hessian in alpha; N M^2 + M^3."""
        state = self._head(alpha, lam)
        total = self.K + sum(self.spread(state, b) for b in self._blocks())
        return cholesky(add_jitter(total)).chol

    def spread(self, state: SubsetState, batch: tf.Tensor) -> tf.Tensor:
        """K_SB diag(f_hh) K_BS of rows [B], [L, M, M]."""
        K, _, mean, variance = self._moments(state, batch)
        weights = tf.transpose(self._expand(batch, mean, tf.sqrt(variance)).d_hh)
        return tf.matmul(tf.maximum(weights, 0.0)[:, None] * K, K, transpose_b=True)

    def precisions(self) -> tf.Tensor:
        """gamma = f_sigma / sigma of the subset [M, L] under the prior: a first lambda."""
        sigma = tf.transpose(tf.sqrt(tf.linalg.diag_part(self.K))) * tf.ones(
            [1, self.num_latents], self.K.dtype
        )
        return self._expand(self.rows, self._prior_mean(self.rows), sigma).d_s / sigma

    def _moments(
        self, state: SubsetState, batch: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
        """K_SB [G, M, B], L_B^-1 Lambda^1/2 K_SB [L, M, B], mean and variance [B, L]; (V26)."""
        X = tf.gather(self.X, batch)
        own = tf.constant(self.rows)[:, None] == tf.cast(batch, self.rows.dtype)
        # between two arrays of inputs a kernel such as White does not know which rows are one
        # observation
        K = tf.where(
            own,
            tf.linalg.diag_part(self.K)[..., None],
            gram_to_data(self.model.kernel, self.points, X),
        )
        T = solve(state.chol, state.scale * K)
        mean = self._prior_mean(batch) - apply_per_latent(K, state.alpha, adjoint=True)
        variance = tf.gather(self.variances, batch, axis=-1) - tf.reduce_sum(
            tf.square(T), axis=-2
        )  # (V26)
        return K, T, mean, tf.transpose(variance)

    def _prior_mean(self, batch: tf.Tensor) -> tf.Tensor:
        X = tf.gather(self.X, batch)
        return tf.broadcast_to(
            tf.cast(self.model.mean_function(X), X.dtype), [tf.shape(X)[0], self.num_latents]
        )

    def _expand(self, batch: tf.Tensor, mean: tf.Tensor, sigma: tf.Tensor) -> Expansion:
        return site_loss(self.model.likelihood, tf.gather(self.Y, batch)).expand(mean, sigma)

    def _blocks(self) -> Iterator[tf.Tensor]:
        for first in range(0, self.num_data, _BLOCK):
            yield tf.range(first, min(first + _BLOCK, self.num_data))


def _point(
    state: SubsetState, losses: tf.Tensor, g_alpha: tf.Tensor, g_lam: tf.Tensor
) -> SubsetPoint:
    bound = -losses - state.divergence
    bound = tf.where(state.ok, bound, tf.constant(float("nan"), bound.dtype))
    return SubsetPoint(bound, state.g_alpha + g_alpha, state.g_lam + g_lam)


# ---


_CHECKS = 10
"""Times a run on batches computes the bound of all data."""
_NEWTON_STEPS = 5
"""Newton steps in alpha on all data before the batches, for which Adam is too slow."""
_LEAST = 1e-6
"""Smallest lambda at the start of a run on batches, relative to the largest."""


class ConstraintSubset:
    """Find the best multipliers of M observations of an `LCLGP`, for log-concave likelihoods.

    The bound holds for every subset, and does not fall as rows are added. Cost of a step per
    latent: M^3 + 3 B M^2 for a batch of B, and M^2 + B M memory; L-BFGS-B has B = N.

    :param size: M; the random subset contains smaller ones of the same seed.
    :param batch_size: observations per step of Adam; None is all, by SciPy's L-BFGS-B.
    :param steps: of Adam, or most evaluations of L-BFGS-B.
    :param learning_rate: of Adam; it decays to zero.
    :param seed: of the subset and the batches.
    :param rows: the subset [M], instead of a size.
    :param tolerance: L-BFGS-B ends when six iterations together gain less, in nats.
    :param compile: False runs eagerly.

    Example::

        model = LCLGP((X, Y), gpflow.kernels.Matern52(), gpflow.likelihoods.Poisson())
        result = ConstraintSubset(200, batch_size=500).run(model)
    """

    def __init__(
        self,
        size: int | None = None,
        batch_size: int | None = None,
        steps: int = 2000,
        learning_rate: float = 0.05,
        seed: int = 0,
        *,
        rows: npt.ArrayLike | None = None,
        tolerance: float = 1e-5,
        compile: bool = True,
    ) -> None:
        if (size is None) == (rows is None):
            raise DataError(
                "Give either size, the number of observations with multipliers, or rows, their"
                " indices."
            )
        for name, number in (("size", size), ("batch_size", batch_size)):
            if number is not None:
                check_whole(1, **{name: number})
        check_whole(1, steps=steps)
        check_whole(0, seed=seed)
        check_rate(tolerance=tolerance, learning_rate=learning_rate)
        self.size, self.batch_size, self.steps = size, batch_size, steps
        self.learning_rate = float(learning_rate)
        self.seed, self.rows, self.tolerance, self.compile = seed, rows, float(tolerance), compile

    def __repr__(self) -> str:
        return settings_line(self)

    def run(self, model: LCLGP) -> LagrangianResult:
        """Find the best multipliers of the subset; leave the model there: [N, L], zero elsewhere.

        Starts at the model's multipliers if the subset contains all that are not zero.

        :param model: an `LCLGP`, or the result of `LCLGLM`.
        """
        require_model("ConstraintSubset.run", model, LCLGP)
        rng = np.random.default_rng(self.seed)
        rows = self._checked_rows(model, rng)
        self._check_model(model)
        record, bound = LagrangianRecord(), SubsetBound(model, rows, self.compile)
        alpha, lam = _start(model, bound)
        if self.batch_size is None:
            alpha, lam, reason = self._maximise_on_all(bound, alpha, lam, record)
        else:
            alpha, lam = self._maximise_on_batches(bound, alpha, lam, record, rng)
            reason = "steps done"
        for parameter, part in ((model.basis.alpha, alpha), (model.basis.lam, lam)):
            value = np.zeros(parameter.shape)
            value[rows] = part
            parameter.assign(value)
        result = record.result(reason)
        warn_of_quadrature(model, result.elbo)
        return result

    def _checked_rows(self, model: LCLGP, rng: np.random.Generator) -> np.ndarray:
        count = model.basis.num_data
        if self.size is not None:
            if self.size > count:
                raise DataError(
                    f"size={self.size} is more than the {count} observations: use at most {count}."
                )
            return np.sort(rng.permutation(count)[: self.size])
        rows = np.asarray(self.rows)
        if rows.ndim != 1 or rows.size == 0 or not np.issubdtype(rows.dtype, np.integer):
            raise DataError(
                f"rows has shape {rows.shape} and type {rows.dtype}; it must be [M], whole numbers."
            )
        if rows.min() < 0 or rows.max() >= count:
            raise DataError(
                f"rows go from {rows.min()} to {rows.max()}; they must lie in 0 to {count - 1}."
            )
        if len(np.unique(rows)) < len(rows):
            raise DataError("rows contains an observation twice; use np.unique(rows).")
        return rows

    def _check_model(self, model: LCLGP) -> None:
        if self.batch_size is not None and self.batch_size > model.basis.num_data:
            raise DataError(
                f"batch_size={self.batch_size} is more than the {model.basis.num_data}"
                " observations: use None for all."
            )
        loss, name = model.site_loss(), name_of(model.likelihood)
        if loss.reference is not None:
            raise DataError(
                "The model has Laplace priors of weights, which are sites beside the observations,"
                " and a subset of the observations does not hold them. Use"
                " LinearlyConstrainedLagrangian, or a Gaussian prior."
            )
        if loss.couples:
            raise DataError(
                f"{name} couples the latents of an observation, and a subset takes each by itself."
                " Use LinearlyConstrainedLagrangian."
            )
        if np.any(np.asarray(loss.curvature) > 0.0):
            raise DataError(
                f"{name} is not log-concave, so that lambda may have to be negative. Use"
                " LinearlyConstrainedLagrangian; or a log-concave likelihood: Laplace for StudentT,"
                " and for Bernoulli, whose link has a jitter that makes it not log-concave,"
                " BernoulliProbit or BernoulliLogit."
            )

    def _maximise_on_all(
        self, bound: SubsetBound, alpha: tf.Tensor, lam: tf.Tensor, record: LagrangianRecord
    ) -> tuple[np.ndarray, np.ndarray, str]:
        root = bound.precision(alpha, lam)
        unit = tf.maximum(lam, _LEAST * tf.reduce_max(lam) + 1e-12)

        def multipliers(x: np.ndarray) -> tuple[tf.Tensor, tf.Tensor]:
            whitened, scaled = Scipy.unpack_tensors([alpha, lam], tf.constant(x))
            return _from_whitened(root, whitened), unit * scaled

        def packed(first: tf.Tensor, second: tf.Tensor) -> np.ndarray:
            return Scipy.pack_tensors([first, second]).numpy().astype(float)

        def value_and_gradient(x: np.ndarray) -> tuple[float, np.ndarray]:
            at = bound.evaluate(*multipliers(x))
            return float(at.bound), packed(_whitened(root, at.g_alpha), unit * at.g_lam)

        start = packed(_product(root, alpha), lam / unit)
        low = np.repeat([-np.inf, 0.0], len(start) // 2)
        with naming_observation(bound.model):
            found = lbfgs_ascent(
                value_and_gradient,
                start,
                settled(self.tolerance),
                self.steps,
                low=low,
                record=record.add,
                advice=NOT_FINITE,
                matrix="K",
            )
        best_alpha, best_lam = multipliers(found.x)
        return best_alpha.numpy(), best_lam.numpy(), found.reason

    def _maximise_on_batches(
        self,
        bound: SubsetBound,
        alpha: tf.Tensor,
        lam: tf.Tensor,
        record: LagrangianRecord,
        rng: np.random.Generator,
    ) -> tuple[np.ndarray, np.ndarray]:
        root = bound.precision(alpha, lam)
        alpha = _newton(bound, root, alpha, lam)
        floor = _LEAST * tf.reduce_max(lam) + 1e-12
        variables = [
            tf.Variable(_product(root, alpha)),
            tf.Variable(tf.math.log(tf.maximum(lam, floor))),
        ]
        step = self._make_step(bound, root, variables)
        best, since = (-math.inf, alpha, lam), 0
        every, batches = max(1, self.steps // _CHECKS), self._batches(bound.num_data, rng)
        for count in range(self.steps + 1):
            if count % every == 0 or count == self.steps:
                at = _from_whitened(root, variables[0]), tf.exp(variables[1])
                value = float(bound.evaluate(*at).bound)
                record.add(value, since)
                best, since = (value, *at) if value > best[0] else best, 0
            if count < self.steps:
                step(tf.constant(next(batches)))
                since += 1
        if not math.isfinite(best[0]):
            raise unusable_observation(bound.model, None) or NumericalError(
                "The bound is not finite at any step: use a kernel with a smaller variance.", "K"
            )
        return best[1].numpy(), best[2].numpy()

    def _make_step(
        self, bound: SubsetBound, root: tf.Tensor, variables: list[tf.Variable]
    ) -> Callable[[tf.Tensor], None]:
        schedule = tf_keras.optimizers.schedules.CosineDecay(self.learning_rate, self.steps)
        optimizer = tf_keras.optimizers.Adam(schedule)
        if hasattr(optimizer, "build"):
            optimizer.build(variables)

        def step(batch: tf.Tensor) -> None:
            lam = tf.exp(variables[1])
            at: SubsetPoint = bound.estimate(_from_whitened(root, variables[0]), lam, batch)
            gradients = [-_whitened(root, at.g_alpha), -lam * at.g_lam]
            good = tf.math.is_finite(at.bound + sum(tf.reduce_sum(g) for g in gradients))
            optimizer.apply_gradients(
                (tf.where(good, g, tf.zeros_like(g)), v) for g, v in zip(gradients, variables)
            )

        return Compiled(step) if self.compile else step

    def _batches(self, count: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
        size = int(self.batch_size or count)
        while True:
            order = rng.permutation(count)
            yield from (order[first : first + size] for first in range(0, count - size + 1, size))


def _start(model: LCLGP, bound: SubsetBound) -> tuple[tf.Tensor, tf.Tensor]:
    alpha, lam = (tf.convert_to_tensor(part) for part in (model.basis.alpha, model.basis.lam))
    used = np.any((np.asarray(alpha) != 0.0) | (np.asarray(lam) != 0.0), axis=1)
    inside = np.isin(np.flatnonzero(used), bound.rows).all() and bool(tf.reduce_all(lam >= 0.0))
    if inside and used.any():
        return tf.gather(alpha, bound.rows), tf.gather(lam, bound.rows)
    nothing = tf.zeros([len(bound.rows), bound.num_latents], alpha.dtype)
    gamma = tf.maximum(bound.precisions(), 0.0)
    share = bound.num_data / len(bound.rows)
    starts = [(nothing, factor * gamma) for factor in sorted({share, share**0.5, 1.0, 0.1, 0.01})]
    values = [float(bound.evaluate(*start).bound) for start in starts]
    return starts[int(np.argmax(np.where(np.isfinite(values), values, -np.inf)))]


def _newton(bound: SubsetBound, root: tf.Tensor, alpha: tf.Tensor, lam: tf.Tensor) -> tf.Tensor:
    at, share = bound.evaluate(alpha, lam), 1.0
    for _ in range(_NEWTON_STEPS):
        new = alpha + share * _from_whitened(root, _whitened(root, at.g_alpha))
        there = bound.evaluate(new, lam)
        if float(there.bound) > float(at.bound):
            alpha, at = new, there
        else:
            share *= 0.5
    return alpha


def _product(root: tf.Tensor, alpha: tf.Tensor) -> tf.Tensor:
    return tf.transpose(tf.linalg.matvec(root, tf.transpose(alpha), transpose_a=True))


def _from_whitened(root: tf.Tensor, whitened: tf.Tensor) -> tf.Tensor:
    return tf.transpose(solve(root, tf.transpose(whitened)[..., None], adjoint=True)[..., 0])


def _whitened(root: tf.Tensor, gradient: tf.Tensor) -> tf.Tensor:
    return tf.transpose(solve(root, tf.transpose(gradient)[..., None])[..., 0])
