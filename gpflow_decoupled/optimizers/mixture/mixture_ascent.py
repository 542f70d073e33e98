"""Inference with a mixture of Gaussians."""

from __future__ import annotations

__all__ = ["MixtureAscent"]

import numpy as np
import tensorflow as tf

from ...diagnostics.unusable_observation import naming_observation
from ...errors import check_option
from ...inputs import check_rate, check_whole
from ...models import AffineIndependentGP
from ...models.families import require_model
from ...summaries import settings_line
from ..affine_independent.affine_climb import climb
from ..affine_independent.affine_result import stage_record
from ..affine_independent.gaussian_kl import GaussianProblem, GaussianSolution
from ..results import Recorder
from .entropy import ENTROPIES, sampled_entropy
from .mixture_objective import Mixture, MixtureObjective
from .mixture_posterior import MixturePosterior
from .mixture_result import MixtureResult

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
