"""Variational inference with a mixture of Gaussians as q(w), for the models of affine-independent
inference.

Challis & Barber 2012 name such mixtures (Bishop et al. 1998; Bouchard & Zoeter 2009; Gershman,
Hoffman & Blei 2012) as what comes before their own family, and as what needs a further bound, since
the entropy of a mixture has no closed form. The expectations of the sites are exact here, (A33),
and the entropy is bounded from below by (A30) or (A31). The objective is therefore a lower bound of
log Z, and the same at every evaluation, which an estimate from draws would not be.
"""

from __future__ import annotations

__all__ = ["MixtureAscent"]

import numpy as np
import tensorflow as tf

from ...errors import check_option
from ...inputs import check_rate, check_whole
from ...models import AffineIndependentGP
from ...models.families import require_model
from ...summaries import settings_line
from ..affine_independent.affine_climb import climb
from ..affine_independent.affine_result import stage_record
from ..affine_independent.gaussian_kl import GaussianProblem, GaussianSolution
from ..results import Recorder
from ..unusable_observation import naming_observation
from .entropy import ENTROPIES, sampled_entropy
from .mixture_objective import Mixture, MixtureObjective
from .mixture_posterior import MixturePosterior
from .mixture_result import MixtureResult

_NEAR, _FAR = 0.1, 0.8
"""Standard deviations, in units of those of the best Gaussian, of the means at the first start and
at the others.
"""
_SCALES = 0.3
"""The logarithms of the first start's scales reach from minus this to this."""


class MixtureAscent:
    """Finds a mixture of J Gaussians for an `AffineIndependentGP` or `AffineIndependentGLM`, at
    fixed hyperparameters.

    The run has three steps:

    1. The Gaussian q with the greatest bound, as in `AffineIndependentAscent`.
    2. L-BFGS on weights, means and covariances, from several starts about that Gaussian: one with
       components of different widths in nearly the same place, and others with narrower components
       at places drawn from it.
    3. The best of the ends is kept; or the Gaussian, where that has the greater bound and the
       entropy is "bhattacharyya".

    The bound has many local optima, and another seed or more starts may find a better one. The
    model's base distribution and its A and b are neither used nor changed.

    :param components: J.
    :param entropy: the lower bound of the entropy: "bhattacharyya", (A30), which is exact for J = 1
        and for components that do not overlap; or "jensen", (A31), that of Gershman, Hoffman & Blei
        2012, which is lower: by D/2 (1 - log 2) for J = 1.
    :param starts: from how many points to climb; one is enough for J = 1.
    :param tolerance: in nats; a climb ends when six iterations of L-BFGS gain less than this.
    :param max_evaluations: at most so many evaluations of the bound and its gradient, per climb.
    :param draws: from each component, for `elbo_estimate` of the result; 0 leaves it out.
    :param seed: of the starts and of these draws.
    :raises DataError: for settings out of range.
    :raises UnknownOptionError: for another name of an entropy.

    Cost per evaluation: N J (D^2 + T) + J^2 D^3, for T nodes or frequencies of an expectation.
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
        check_whole(1, components=components, starts=starts, max_evaluations=max_evaluations)
        check_whole(0, draws=draws, seed=seed)
        check_rate(tolerance=tolerance)
        check_option("entropy", entropy, tuple(ENTROPIES))
        self.components, self.entropy, self.starts = int(components), entropy, int(starts)
        self.tolerance, self.max_evaluations = float(tolerance), int(max_evaluations)
        self.draws, self.seed = int(draws), int(seed)

    def __repr__(self) -> str:
        """One line: the settings."""
        return settings_line(self)

    def run(self, model: AffineIndependentGP) -> MixtureResult:
        """Find the mixture. The model is not changed.

        :param model: an `AffineIndependentGP`, or the model that `AffineIndependentGLM` returns.
        :return: bounds, history, and the mixture as `posterior`.
        :raises ModelError: for a model of another family.
        :raises NumericalError: if the Gaussian bound is not finite where the run starts, naming the
        observation.
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
        """The points [n] from which to climb."""
        J, shape = self.components, (self.components, objective.size)
        if J == 1:
            return [objective.start(np.zeros(shape), np.ones(1))]
        scales = np.exp(np.linspace(-_SCALES, _SCALES, J))
        found = [objective.start(_NEAR * rng.standard_normal(shape), scales)]
        narrow = np.full(
            J, np.sqrt(1.0 - _FAR**2)
        )  # so that the variances add up to those of the Gaussian
        return found + [
            objective.start(_FAR * rng.standard_normal(shape), narrow)
            for _ in range(self.starts - 1)
        ]

    def _estimate(
        self, objective: MixtureObjective, found: Mixture, bound: float, rng: np.random.Generator
    ) -> tuple[float, float]:
        """The bound with an estimate of the entropy in the place of its lower bound, and the
        standard error, in nats.
        """
        if not self.draws:
            return float("nan"), float("nan")
        log_weights, means, roots = (part.numpy().astype(np.float64) for part in found)
        value, error = sampled_entropy(log_weights, means, roots, self.draws, rng)
        return bound - float(objective.entropy(*found)) + value, error


def _single(gaussian: GaussianSolution, objective: MixtureObjective) -> Mixture:
    """A Gaussian as a mixture of one component."""
    mean, root = (tf.constant(part, objective.dtype) for part in (gaussian.b, gaussian.root))
    return Mixture(tf.zeros([1], objective.dtype), mean[None], root[None])
