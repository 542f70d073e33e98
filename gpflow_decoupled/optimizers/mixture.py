"""Inference with a mixture of Gaussians."""

from __future__ import annotations

__all__ = [
    "ENTROPIES", "Mixture", "MixtureAscent", "MixtureObjective", "MixturePosterior",
    "MixtureResult", "bhattacharyya_entropy", "jensen_entropy", "sampled_entropy",
]  # fmt: skip

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from gpflow.base import InputData, MeanAndVariance, RegressionData, TensorType
from scipy.special import log_softmax

from ..compilation import Compiled
from ..covariances.latents import prior_variance
from ..diagnostics.failure import naming_observation
from ..errors import DataError, check_option
from ..expectations.projections import tiny
from ..expectations.site_integrals import Integration, SiteGroup
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
    GaussianSolution,
    StagedResult,
    climb,
    expected_sites,
    stage_record,
)
from .ascent import Recorder

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
# D/2 (1
# - log 2) too low for one component. Only (A32) needs draws.


_LOG_TWO_PI = math.log(2.0 * math.pi)


def _pairs(means: tf.Tensor, roots: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
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
    return tf.reduce_sum(
        tf.exp(log_weights) * (within - tf.reduce_logsumexp(log_weights[None] + overlap, axis=1))
    )  # (A30)


def jensen_entropy(log_weights: tf.Tensor, means: tf.Tensor, roots: tf.Tensor) -> tf.Tensor:
    """Lower bound (A31) in nats, for log weights [J], means [J, D], roots [J, D, D]; J^2 D^3."""
    distance, log_det = _pairs(means, roots)
    log_density = -0.25 * distance - 0.5 * (
        log_det + means.shape[1] * (math.log(2.0) + _LOG_TWO_PI)
    )
    return -tf.reduce_sum(
        tf.exp(log_weights) * tf.reduce_logsumexp(log_weights[None] + log_density, axis=1)
    )  # (A31)


ENTROPIES: dict[str, Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]] = {
    "bhattacharyya": bhattacharyya_entropy,
    "jensen": jensen_entropy,
}
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
    D = means.shape[1]
    log_dets = np.linalg.slogdet(roots)[1]
    known = np.exp(log_weights) @ (log_dets + 0.5 * D * (1.0 + _LOG_TWO_PI) - log_weights)
    shares, variances = np.zeros(len(means)), np.zeros(len(means))
    for j in range(len(means)):
        w = means[j] + rng.standard_normal((draws, D)) @ roots[j].T
        z = np.linalg.solve(roots, np.swapaxes(w[None] - means[:, None], 1, 2))  # [J, D, draws]
        log_r = log_softmax(log_weights - log_dets - 0.5 * np.sum(z**2, axis=1).T, axis=1)[:, j]
        shares[j], variances[j] = np.mean(log_r), np.var(log_r) / draws
    weights = np.exp(log_weights)
    return float(known + weights @ shares), float(np.sqrt(weights**2 @ variances))  # (A32)


# ---
# The bound of a mixture over one vector.


# With the best Gaussian N(b, C C^T), components have m_j = b + C m~_j and L_j = C L~_j. For sites
# g_n(y_n), y_n = phi_n^T w + beta_n + noise of variance tau_n^2, the expectation (A33) is exact:
#
#   E g_n(y_n) = sum_j pi_j E g_n(y), y ~ N(phi_n^T m_j + beta_n, |L_j^T phi_n|^2 + tau_n^2)


class Mixture(NamedTuple):
    """A mixture of Gaussians."""

    log_weights: tf.Tensor
    """log pi [J], normalised."""
    means: tf.Tensor
    """m [J, D]."""
    roots: tf.Tensor
    """Lower triangular roots of S, [J, D, D]."""


class MixtureObjective:
    """The lower bound of log Z and its gradient in a vector of logits, m~_j and L~_j (log
    diagonal).

    :param groups: the sites, with features [N, D].
    :param gaussian: [D], 1 for a weight with a Gaussian prior, 0 if its prior is a site.
    :param constant: added to the bound, in nats.
    :param frame: mean b [D] and lower triangular root C [D, D] of the best Gaussian.
    """

    def __init__(
        self,
        groups: list[SiteGroup],
        gaussian: npt.ArrayLike,
        constant: float,
        integration: Integration,
        frame: tuple[np.ndarray, np.ndarray],
        components: int,
        entropy: str,
    ) -> None:
        self.groups, self.constant, self.integration = (
            groups,
            constant,
            integration._replace(route="auto"),
        )
        self.dtype = groups[0].features.dtype
        self.gaussian = tf.constant(gaussian, self.dtype)
        self.b, self.C = (tf.constant(part, self.dtype) for part in frame)
        self.components, self.size = components, len(frame[0])
        self.entropy = ENTROPIES[entropy]
        self._graph = Compiled(self._value_and_gradient)

    def __call__(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = self._graph(tf.constant(x, self.dtype))
        return float(value), gradient.numpy().astype(np.float64)

    def start(self, means: np.ndarray, scales: np.ndarray) -> np.ndarray:
        """The vector [n] of equal weights, means m~ [J, D] and L~_j = scale_j I, scales [J]."""
        diagonal = np.log(scales)[:, None, None] * np.eye(self.size)
        lower = tfp.math.fill_triangular_inverse(diagonal).numpy()
        return np.concatenate([np.zeros(len(scales)), means.ravel(), lower.ravel()]).astype(
            np.float64
        )

    def mixture(self, x: npt.ArrayLike | tf.Tensor) -> Mixture:
        """The mixture of a vector [n], in whitened coordinates."""
        log_weights, means, roots = self._parts(tf.cast(tf.convert_to_tensor(x), self.dtype))
        return Mixture(
            log_weights,
            self.b + tf.matmul(means, self.C, transpose_b=True),
            tf.matmul(self.C[None], roots),
        )

    def _parts(self, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        J, D = self.components, self.size
        logits, means, lower = tf.split(x, [J, J * D, J * D * (D + 1) // 2])
        roots = tfp.math.fill_triangular(tf.reshape(lower, [J, -1]))
        roots = tf.linalg.set_diag(roots, tf.exp(tf.linalg.diag_part(roots)))
        return tf.nn.log_softmax(logits), tf.reshape(means, [J, D]), roots

    def _value_and_gradient(self, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = self._bound(x)
        return value, tape.gradient(value, x)

    def _bound(self, x: tf.Tensor) -> tf.Tensor:
        mixture = self.mixture(x)
        # 1) the Gaussian part of the prior
        moment = tf.square(mixture.means) + tf.reduce_sum(tf.square(mixture.roots), axis=2)
        each = -0.5 * tf.linalg.matvec(moment + math.log(2.0 * math.pi), self.gaussian)
        # 2) the sites, component by component
        sites = [
            tf.add_n([self._expected(group, m, root) for group in self.groups])
            for m, root in zip(tf.unstack(mixture.means), tf.unstack(mixture.roots))
        ]
        energy = tf.reduce_sum(tf.exp(mixture.log_weights) * (each + tf.stack(sites)))
        # 3) the entropy, in the coordinates of the Gaussian, and the volume between the two
        volume = tf.reduce_sum(tf.math.log(tf.abs(tf.linalg.diag_part(self.C))))
        return energy + self.constant + self.entropy(*self._parts(x)) + volume

    def _expected(self, group: SiteGroup, m: tf.Tensor, root: tf.Tensor) -> tf.Tensor:
        mean = group.offset + tf.linalg.matvec(group.features, m)
        variance = tf.reduce_sum(tf.square(tf.matmul(group.features, root)), axis=1)
        variance = variance if group.noise is None else variance + group.noise
        return tf.reduce_sum(expected_sites(mean, variance, group, self.integration))  # (A33)


# ---
# Predictions of a mixture.


tfd = tfp.distributions


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
        return one_line(
            self, components=int(self.means.shape[0]), coordinates=int(self.means.shape[1])
        )

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

    def log_prob(self, w: TensorType) -> tf.Tensor:
        """The log density [...] in nats of whitened w [..., D]."""
        return self.distribution.log_prob(tf.cast(as_array(w, "w"), self.means.dtype))

    def sample(self, n: int, seed: int | None = None) -> tf.Tensor:
        """Draws of the whitened w, [n, D]."""
        return self.distribution.sample(n, seed=seed)

    def _moments(self, X: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        model = self.model
        phi = model.basis.whitened_features(
            model.basis.factor(model.kernel, with_kl=False), model.kernel, X
        )
        offset = tf.cast(model.mean_function(X), X.dtype)[:, 0]
        mean = offset + tf.matmul(self.means, phi, transpose_b=True)
        projected = tf.einsum("nd,jde->jne", phi, self.roots)
        variance = tf.reduce_sum(tf.square(projected), axis=2)
        if not isinstance(model.basis.inducing, Weights):
            rest = prior_variance(model.kernel, X, full_cov=False)[0] - tf.reduce_sum(
                tf.square(phi), axis=1
            )
            variance += tf.maximum(rest, 0.0)
        return mean, tf.maximum(variance, tiny(variance))

    def predict_f(self, Xnew: InputData) -> MeanAndVariance:
        """Mean and variance of f at Xnew [N, D], [N, 1] each."""
        return self._of_all(*self._moments(self.model.inputs(Xnew)))

    def predict_f_density(self, Xnew: InputData, grid: TensorType) -> tf.Tensor:
        """Density of f(x) [N, G] at Xnew [N, D] for values [G], or [N, G] with a row per input."""
        mean, variance = self._moments(self.model.inputs(Xnew))
        values = tf.cast(as_array(grid, "grid"), mean.dtype)
        if values.shape.rank not in (1, 2) or (
            values.shape.rank == 2 and values.shape[0] != mean.shape[1]
        ):
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
        mean, variance = (tf.stack([part[:, 0] for part in column]) for column in zip(*each))
        return self._of_all(mean, variance)

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

    def numpy(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Weights [J], means [J, D] and covariances [J, D, D] as NumPy arrays."""
        return self.weights.numpy(), self.means.numpy(), self.covariances.numpy()


# ---
# The result of `MixtureAscent`.


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
        parts = model.site_groups(), model.basis.gaussian
        constant = 0.0 if model.weight_priors is None else model.weight_priors.log_volume

        # 1) the Gaussian q with the greatest bound
        problem = GaussianProblem(*parts, constant, model.integration)
        with naming_observation(model, lambda: problem.start_moments(model.data[0].shape[0])):
            gaussian = problem.solve(
                self.tolerance, self.max_evaluations, stage_record(recorder, 0)
            )

        # 2) climbs from several points about it
        frame = gaussian.b, gaussian.root
        objective = MixtureObjective(
            *parts, constant, model.integration, frame, self.components, self.entropy
        )
        ends = [
            climb(
                objective,
                start,
                stage_record(recorder, stage),
                self.tolerance,
                self.max_evaluations,
            )
            for stage, start in enumerate(self._starts(objective, rng), 1)
        ]

        # 3) the best of all
        x, bound, reason = max(ends, key=lambda end: end[1])
        gaussian_is_kept = self.entropy == "bhattacharyya" and not bound >= gaussian.bound
        found = _single(gaussian, objective) if gaussian_is_kept else objective.mixture(x)
        bound = gaussian.bound if gaussian_is_kept else bound
        estimate, error = self._estimate(objective, found, bound, rng)
        return recorder.finish(
            MixtureResult,
            bound,
            reason,
            gaussian_elbo=gaussian.bound,
            elbo_estimate=estimate,
            standard_error=error,
            start_elbos=np.array([end[1] for end in ends]),
            kept="gaussian" if gaussian_is_kept else "mixture",
            posterior=MixturePosterior(model, *found),
        )

    def _starts(self, objective: MixtureObjective, rng: np.random.Generator) -> list[np.ndarray]:
        J, shape = self.components, (self.components, objective.size)
        if J == 1:
            return [objective.start(np.zeros(shape), np.ones(1))]
        scales = np.exp(np.linspace(-_SCALES, _SCALES, J))
        found = [objective.start(_NEAR * rng.standard_normal(shape), scales)]
        # so that the mixture has the variance of the Gaussian
        narrow = np.full(J, np.sqrt(1.0 - _FAR**2))
        return found + [
            objective.start(_FAR * rng.standard_normal(shape), narrow)
            for _ in range(self.starts - 1)
        ]

    def _estimate(
        self, objective: MixtureObjective, found: Mixture, bound: float, rng: np.random.Generator
    ) -> tuple[float, float]:
        if not self.draws:
            return float("nan"), float("nan")
        log_weights, means, roots = (part.numpy().astype(np.float64) for part in found)
        value, error = sampled_entropy(log_weights, means, roots, self.draws, rng)
        return bound - float(objective.entropy(*found)) + value, error


def _single(gaussian: GaussianSolution, objective: MixtureObjective) -> Mixture:
    mean, root = (tf.constant(part, objective.dtype) for part in (gaussian.b, gaussian.root))
    return Mixture(tf.zeros([1], objective.dtype), mean[None], root[None])
