"""Inference with a mixture of Gaussians, a rival of affine-independent posteriors."""

from __future__ import annotations

__all__ = [
    "ENTROPIES", "MixtureAscent", "MixturePosterior", "MixtureResult", "bhattacharyya_entropy",
    "jensen_entropy", "sampled_entropy",
]  # fmt: skip

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import tensorflow as tf
from gpflow.base import InputData, MeanAndVariance, RegressionData, TensorType
from scipy.special import log_softmax

from ..compilation import Compiled
from ..covariances.latents import prior_variance
from ..diagnostics.failure import naming_observation
from ..errors import DataError, check_option
from ..expectations.fourier import SiteGroup
from ..expectations.projections import tiny
from ..inducing.weights import Weights
from ..inputs import as_array, check_rate, check_whole
from ..likelihoods import observation_moments
from ..linalg.cholesky import cholesky
from ..models import AffineIndependentGP
from ..models.families import require_model
from ..probability import tfp
from ..summaries import one_line, settings_line
from .affine_start import (
    GaussianProblem,
    StagedResult,
    climb,
    expected_sites,
    stage_record,
)
from .ascent import Recorder

tfd = tfp.distributions

# ---
# The entropy of a mixture of Gaussians.


# For q(w) = sum_j pi_j N(w | m_j, S_j), with S = (S_j + S_l) / 2 for a pair of components,
#
#   H[q] >= sum_j pi_j H_j - sum_j pi_j log sum_l pi_l C_jl,                          (A30)
#   C_jl = int N_j^(1/2) N_l^(1/2) dw,
#   log C_jl = -1/8 (m_j - m_l)^T S^-1 (m_j - m_l) - 1/2 log|S| + 1/4 log|S_j| + 1/4 log|S_l|
#   H[q] >= -sum_j pi_j log sum_l pi_l N(m_j | m_l, S_j + S_l)                        (A31)
#   H[q] = sum_j pi_j (H_j - log pi_j) + sum_j pi_j E_j log r_j(w),  r_j = pi_j N_j / q  (A32)
#
# (A30), Kolchinsky & Tracey 2017 with alpha = 1/2, is exact for one component, equal components,
# and components that do not overlap. (A31) is Jensen's inequality (Gershman, Hoffman & Blei 2012),
# D/2 (1 - log 2) too low for one component. Only (A32) needs draws.


_LOG_TWO_PI = math.log(2.0 * math.pi)


def _pairs(means: tf.Tensor, roots: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Squared distances of means by S [J, J], and log|S| [J, J]."""
    covariances = tf.matmul(roots, roots, transpose_b=True)
    chol = cholesky(0.5 * (covariances[:, None] + covariances[None])).chol
    apart = means[:, None] - means[None]
    scaled = tf.linalg.triangular_solve(chol, apart[..., None])[..., 0]
    return tf.reduce_sum(tf.square(scaled), axis=-1), _log_det(chol)


def _log_det(roots: tf.Tensor) -> tf.Tensor:
    return 2.0 * tf.reduce_sum(tf.math.log(tf.abs(tf.linalg.diag_part(roots))), axis=-1)


def bhattacharyya_entropy(log_weights: tf.Tensor, means: tf.Tensor, roots: tf.Tensor) -> tf.Tensor:
    """Lower bound (A30) in nats, for log weights [J], means [J, D], roots [J, D, D]; J^2 D^3."""
    distance, log_det = _pairs(means, roots)
    own = _log_det(roots)
    overlap = -0.125 * distance - 0.5 * log_det + 0.25 * (own[:, None] + own[None])
    within = 0.5 * (own + means.shape[1] * (1.0 + _LOG_TWO_PI))
    total = tf.reduce_logsumexp(log_weights[None] + overlap, axis=1)
    return tf.reduce_sum(tf.exp(log_weights) * (within - total))  # (A30)


def jensen_entropy(log_weights: tf.Tensor, means: tf.Tensor, roots: tf.Tensor) -> tf.Tensor:
    """Lower bound (A31) in nats, for log weights [J], means [J, D], roots [J, D, D]; J^2 D^3."""
    distance, log_det = _pairs(means, roots)
    constant = means.shape[1] * (math.log(2.0) + _LOG_TWO_PI)
    log_density = -0.25 * distance - 0.5 * (log_det + constant)
    total = tf.reduce_logsumexp(log_weights[None] + log_density, axis=1)
    return -tf.reduce_sum(tf.exp(log_weights) * total)  # (A31)


ENTROPIES = {"bhattacharyya": bhattacharyya_entropy, "jensen": jensen_entropy}
"""The lower bounds by their names in `MixtureAscent`."""


def sampled_entropy(
    log_weights: np.ndarray,
    means: np.ndarray,
    roots: np.ndarray,
    draws: int,
    rng: np.random.Generator,
) -> tuple[float, float]:
    """Unbiased estimate of the entropy by (A32), and its standard error, in nats.

    Log weights are [J], means [J, D], roots [J, D, D]; `draws` are per component.
    """
    D, weights = means.shape[1], np.exp(log_weights)
    log_dets = np.linalg.slogdet(roots)[1]
    known = weights @ (log_dets + 0.5 * D * (1.0 + _LOG_TWO_PI) - log_weights)
    shares, variances = np.zeros(len(means)), np.zeros(len(means))
    for j in range(len(means)):
        w = means[j] + rng.standard_normal((draws, D)) @ roots[j].T
        z = np.linalg.solve(roots, np.swapaxes(w[None] - means[:, None], 1, 2))  # [J, D, draws]
        log_r = log_softmax(log_weights - log_dets - 0.5 * np.sum(z**2, axis=1).T, axis=1)[:, j]
        shares[j], variances[j] = np.mean(log_r), np.var(log_r) / draws
    return float(known + weights @ shares), float(np.sqrt(weights**2 @ variances))  # (A32)


# ---
# Predictions of a mixture, and the result of a run.


class MixturePosterior:
    """q(w) = sum_j pi_j N(w | m_j, S_j) of a model's whitened w, with predictions of f and labels.

    Under each component f(x) is normal, so a prediction is a sum over J Gaussian ones.

    :param model: provides prior, data and likelihood; its q is neither read nor changed.
    :param log_weights: log pi [J], normalised.
    :param means: m [J, D].
    :param roots: lower triangular roots of S, [J, D, D].

    Example::

        posterior = MixtureAscent(components=3).run(model).posterior
        mean, variance = posterior.predict_f(Xnew)
        density = posterior.predict_f_density(Xnew, np.linspace(-5.0, 5.0, 101))  # [N, 101]
        posterior.distribution.sample(100)  # of the whitened w
    """

    def __init__(
        self,
        model: AffineIndependentGP,
        log_weights: TensorType,
        means: TensorType,
        roots: TensorType,
    ) -> None:
        self.model = model
        self._log_weights, self.means, self.roots = (
            tf.convert_to_tensor(part) for part in (log_weights, means, roots)
        )

    def __repr__(self) -> str:
        components, coordinates = self.means.shape
        return one_line(self, components=components, coordinates=coordinates)

    @property
    def weights(self) -> tf.Tensor:
        """The weights pi of the components, [J]."""
        return tf.exp(self._log_weights)

    @property
    def covariances(self) -> tf.Tensor:
        """The covariances S of the components, [J, D, D]."""
        return tf.matmul(self.roots, self.roots, transpose_b=True)

    @property
    def distribution(self) -> tfp.distributions.Distribution:
        """q(w) of the whitened w [D] in TensorFlow Probability."""
        components = tfd.MultivariateNormalTriL(self.means, self.roots)
        return tfd.MixtureSameFamily(tfd.Categorical(logits=self._log_weights), components)

    def _moments(self, X: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Means and variances of f [J, N] under each component."""
        model, kernel = self.model, self.model.kernel
        phi = model.basis.whitened_features(model.basis.factor(kernel, with_kl=False), kernel, X)
        offset = tf.cast(model.mean_function(X), X.dtype)[:, 0]
        mean = offset + tf.matmul(self.means, phi, transpose_b=True)
        variance = tf.reduce_sum(tf.square(tf.einsum("nd,jde->jne", phi, self.roots)), axis=2)
        if not isinstance(model.basis.inducing, Weights):
            rest = prior_variance(kernel, X, full_cov=False)[0]
            variance += tf.maximum(rest - tf.reduce_sum(tf.square(phi), axis=1), 0.0)
        return mean, tf.maximum(variance, tiny(variance))

    def predict_f(self, Xnew: InputData) -> MeanAndVariance:
        """Mean and variance of f at Xnew [N, D], [N, 1] each."""
        return self._of_all(*self._moments(self.model.inputs(Xnew)))

    def predict_f_density(self, Xnew: InputData, grid: TensorType) -> tf.Tensor:
        """Density of f(x) [N, G] at Xnew [N, D] for values [G], or [N, G] with a row per input."""
        mean, variance = self._moments(self.model.inputs(Xnew))
        values = tf.cast(as_array(grid, "grid"), mean.dtype)
        rank = values.shape.rank
        if rank not in (1, 2) or (rank == 2 and values.shape[0] != mean.shape[1]):
            raise DataError(
                f"grid has shape {values.shape}; it must be [G], or [N, G] with a row for each row"
                " of Xnew."
            )
        each = tfd.Normal(mean[:, :, None], tf.sqrt(variance)[:, :, None]).prob(values)
        return tf.einsum("j,jng->ng", self.weights, each)

    def predict_y(self, Xnew: InputData) -> MeanAndVariance:
        """Mean and variance of labels at Xnew [N, D], [N, 1]; the mean of binary labels is P(y =
        1).
        """
        X, likelihood = self.model.inputs(Xnew), self.model.likelihood
        each = [
            observation_moments(likelihood, X, m[:, None], v[:, None])
            for m, v in zip(*self._moments(X))
        ]
        return self._of_all(*(tf.stack([part[:, 0] for part in column]) for column in zip(*each)))

    def predict_log_density(self, data: RegressionData) -> tf.Tensor:
        """The log densities [N] of labels in nats, at X [N, D] and Y [N, 1]."""
        X, Y = self.model.checked(data)
        densities = [
            self.model.likelihood.predict_log_density(X, m[:, None], v[:, None], Y)
            for m, v in zip(*self._moments(X))
        ]
        return tf.reduce_logsumexp(self._log_weights[:, None] + tf.stack(densities), axis=0)

    def _of_all(self, mean: tf.Tensor, variance: tf.Tensor) -> MeanAndVariance:
        weights = self.weights[:, None]
        whole = tf.reduce_sum(weights * mean, axis=0)
        spread = tf.reduce_sum(weights * (variance + tf.square(mean - whole)), axis=0)
        return whole[:, None], spread[:, None]


@dataclass(kw_only=True, repr=False)
class MixtureResult(StagedResult):
    """Result of `MixtureAscent.run`; `elbo` is a lower bound of log Z in nats.

    `history` has arrays [steps]: "step", "seconds", "elbo" (best so far in this stage),
    "evaluations" and "stage" (0 for the Gaussian, then 1, 2, ... per start).

    Example::

        result = MixtureAscent(components=3).run(model)
        print(result.gain, "nats above the best Gaussian")
        density = result.posterior.predict_f_density(Xnew, np.linspace(-5.0, 5.0, 101))
    """

    elbo_estimate: float
    """The mixture's bound with its entropy estimated from draws, in nats.

    Unbiased: a lower bound of log Z up to its standard error. NaN without draws.
    """
    standard_error: float
    """Of `elbo_estimate`, in nats."""
    start_elbos: np.ndarray
    """The bound at the end of each climb, in nats, [starts]."""
    kept: str
    """The q in `posterior`: "mixture", or "gaussian" if its bound is greater."""
    posterior: MixturePosterior
    """q(w) and its predictions; the run leaves the model unchanged."""

    def __str__(self) -> str:
        return (
            f"ELBO {self.elbo:.6g} ({self.kept} kept; estimated as {self.elbo_estimate:.6g} +-"
            f" {self.standard_error:.2g}, Gaussian {self.gaussian_elbo:.6g}), {self.evaluations}"
            f" evaluations in {self.seconds:.2f} s, stopped: {self.reason}"
        )


# ---
# The bound of a mixture over one vector, and its ascent.


# With the best Gaussian N(b, C C^T), components have m_j = b + C m~_j and L_j = C L~_j. For sites
# g_n(y_n), y_n = phi_n^T w + beta_n + noise of variance tau_n^2, the expectation (A33) is exact:
#
#   E g_n(y_n) = sum_j pi_j E g_n(y), y ~ N(phi_n^T m_j + beta_n, |L_j^T phi_n|^2 + tau_n^2)


_NEAR, _FAR = 0.1, 0.8
"""Standard deviations of the means at the first and the other starts, of the best Gaussian's."""
_SCALES = 0.3
"""The first start's log scales reach from minus this to this."""


class MixtureAscent:
    """Find a mixture of J Gaussians for an affine-independent model, at fixed hyperparameters.

    L-BFGS climbs over weights, means and covariances from several starts; the best is kept (Bishop
    et al. 1998; Bouchard & Zoeter 2009). Cost per evaluation: N J (D^2 + T) + J^2 D^3, for T nodes
    of an expectation.

    :param components: J.
    :param entropy: its lower bound: "bhattacharyya", exact for J = 1 and components that do not
        overlap; or "jensen" (Gershman, Hoffman & Blei 2012), lower by D/2 (1 - log 2) for J = 1.
    :param starts: number of climbs; one is enough for J = 1.
    :param tolerance: a climb ends when six iterations of L-BFGS gain fewer nats.
    :param max_evaluations: of the bound and its gradient, per climb.
    :param draws: per component, for the result's `elbo_estimate`; 0 for none.
    :param seed: of the starts and draws.

    Example::

        model = AffineIndependentGP((X, Y), gpflow.kernels.Matern52(), BernoulliLogit())
        result = MixtureAscent(components=3).run(model)
        print(result.elbo, result.gain)
        mean, variance = result.posterior.predict_y(Xnew)
    """

    def __init__(
        self,
        components: int = 2,
        *,
        entropy: str = "bhattacharyya",
        starts: int = 4,
        tolerance: float = 1e-5,
        max_evaluations: int = 2000,
        draws: int = 10_000,
        seed: int = 0,
    ) -> None:
        # entropy: (A30) or (A31)
        check_whole(1, components=components, starts=starts, max_evaluations=max_evaluations)
        check_whole(0, draws=draws, seed=seed)
        check_rate(tolerance=tolerance)
        check_option("entropy", entropy, tuple(ENTROPIES))
        self.components, self.entropy, self.starts = int(components), entropy, int(starts)
        self.tolerance, self.max_evaluations = float(tolerance), int(max_evaluations)
        self.draws, self.seed = int(draws), int(seed)

    def __repr__(self) -> str:
        return settings_line(self)

    def run(self, model: AffineIndependentGP) -> MixtureResult:
        """Find the mixture, the result's `posterior`; the model does not change.

        :param model: an `AffineIndependentGP`, or the result of `AffineIndependentGLM`.
        """
        require_model("MixtureAscent", model, AffineIndependentGP)
        recorder, rng = Recorder("elbo", "evaluations", "stage"), np.random.default_rng(self.seed)
        limits = self.tolerance, self.max_evaluations

        # 1) the Gaussian q with the greatest bound
        constant = 0.0 if model.weight_priors is None else model.weight_priors.log_volume
        groups, prior = model.site_groups(), model.basis.gaussian
        problem = GaussianProblem(groups, prior, constant, model.integration)
        with naming_observation(model, lambda: problem.start_moments(model.data[0].shape[0])):
            gaussian = problem.solve(*limits, stage_record(recorder, 0))

        # 2) climbs from several points about it
        mixture_at, bound_at = self._bound(model, groups, constant, gaussian.b, gaussian.root)
        ends = [
            climb(bound_at, start, stage_record(recorder, stage), *limits)
            for stage, start in enumerate(self._starts(len(gaussian.b), rng), 1)
        ]

        # 3) the best of all
        x, bound, reason = max(ends, key=lambda end: end[1])
        dtype, kept = groups[0].features.dtype, "mixture"
        found = mixture_at(tf.constant(x, dtype))
        if self.entropy == "bhattacharyya" and not bound >= gaussian.bound:
            kept, bound = "gaussian", gaussian.bound
            mean, root = (tf.constant(part, dtype) for part in (gaussian.b, gaussian.root))
            found = tf.zeros([1], dtype), mean[None], root[None]
        estimate, error = float("nan"), float("nan")
        if self.draws:
            log_weights, means, roots = (part.numpy().astype(np.float64) for part in found)
            value, error = sampled_entropy(log_weights, means, roots, self.draws, rng)
            estimate = bound - float(ENTROPIES[self.entropy](*found)) + value
        return recorder.finish(
            MixtureResult,
            bound,
            reason,
            gaussian_elbo=gaussian.bound,
            elbo_estimate=estimate,
            standard_error=error,
            start_elbos=np.array([end[1] for end in ends]),
            kept=kept,
            posterior=MixturePosterior(model, *found),
        )

    def _bound(
        self,
        model: AffineIndependentGP,
        groups: list[SiteGroup],
        constant: float,
        b: np.ndarray,
        root: np.ndarray,
    ) -> tuple[
        Callable[[tf.Tensor], tuple[tf.Tensor, ...]],
        Callable[[np.ndarray], tuple[float, np.ndarray]],
    ]:
        """The mixture (log pi, m, L) of a vector of logits, m~ and L~ (log diagonal), and the lower
        bound of log Z with its gradient; N(b, C C^T) is the best Gaussian, root C.
        """
        integration, dtype = model.integration._replace(route="auto"), groups[0].features.dtype
        centre, C, gaussian = (tf.constant(part, dtype) for part in (b, root, model.basis.gaussian))
        J, D = self.components, len(b)

        def parts_at(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            logits, means, lower = tf.split(x, [J, J * D, J * D * (D + 1) // 2])
            roots = tfp.math.fill_triangular(tf.reshape(lower, [J, -1]))
            roots = tf.linalg.set_diag(roots, tf.exp(tf.linalg.diag_part(roots)))
            return tf.nn.log_softmax(logits), tf.reshape(means, [J, D]), roots

        def mixture_at(x: tf.Tensor) -> tuple[tf.Tensor, ...]:
            log_weights, means, roots = parts_at(x)
            means = centre + tf.matmul(means, C, transpose_b=True)
            return log_weights, means, tf.matmul(C[None], roots)

        def expected(group: SiteGroup, m: tf.Tensor, L: tf.Tensor) -> tf.Tensor:
            mean = group.offset + tf.linalg.matvec(group.features, m)
            variance = tf.reduce_sum(tf.square(tf.matmul(group.features, L)), axis=1)
            variance = variance if group.noise is None else variance + group.noise
            return tf.reduce_sum(expected_sites(mean, variance, group, integration))  # (A33)

        def value(x: tf.Tensor) -> tf.Tensor:
            log_weights, means, roots = mixture_at(x)
            # 1) the Gaussian part of the prior, and the sites, component by component
            moment = tf.square(means) + tf.reduce_sum(tf.square(roots), axis=2)
            each = -0.5 * tf.linalg.matvec(moment + math.log(2.0 * math.pi), gaussian)
            sites = [
                tf.add_n([expected(group, m, L) for group in groups])
                for m, L in zip(tf.unstack(means), tf.unstack(roots))
            ]
            energy = tf.reduce_sum(tf.exp(log_weights) * (each + tf.stack(sites)))
            # 2) the entropy, in the coordinates of the Gaussian, and the volume between the two
            entropy = ENTROPIES[self.entropy](*parts_at(x))
            return energy + constant + entropy + 0.5 * _log_det(C)

        def value_and_gradient(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            with tf.GradientTape() as tape:
                tape.watch(x)
                found = value(x)
            return found, tape.gradient(found, x)

        graph = Compiled(value_and_gradient)

        def bound_at(x: np.ndarray) -> tuple[float, np.ndarray]:
            found, gradient = graph(tf.constant(x, dtype))
            return float(found), gradient.numpy().astype(np.float64)

        return mixture_at, bound_at

    def _starts(self, D: int, rng: np.random.Generator) -> list[np.ndarray]:
        """Vectors of equal weights, means m~ [J, D] and L~_j = scale_j I."""
        J, none = self.components, np.zeros((self.components, D))
        starts = [(none, np.ones(1))]
        if J > 1:
            scales = np.exp(np.linspace(-_SCALES, _SCALES, J))
            # so that the mixture has the variance of the Gaussian
            narrow = np.full(J, np.sqrt(1.0 - _FAR**2))
            starts = [(_NEAR * rng.standard_normal(none.shape), scales)]
            for _ in range(self.starts - 1):
                starts.append((_FAR * rng.standard_normal(none.shape), narrow))
        vectors = []
        for means, scales in starts:
            diagonal = np.log(scales)[:, None, None] * np.eye(D)
            lower = tfp.math.fill_triangular_inverse(diagonal).numpy()
            vectors.append(np.concatenate([np.zeros(J), means.ravel(), lower.ravel()]))
        return vectors
