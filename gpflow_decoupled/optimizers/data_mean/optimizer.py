"""The best mean on all data for a model with `gamma="data"`, at fixed hyperparameters."""

from __future__ import annotations

__all__ = ["ConjugateGradients"]

import time
from dataclasses import dataclass

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.inducing_variables import (
    InducingPoints,
    InducingVariables,
    SeparateIndependentInducingVariables,
    SharedIndependentInducingVariables,
)
from gpflow.likelihoods import Gaussian as GaussianNoise
from tqdm.auto import tqdm

from ...bases import Gaussian
from ...bases.parts.data_mean import DataMean
from ...errors import ModelError, NumericalError
from ...inducing.variables import point_values
from ...inputs import check_rate, check_whole
from ...linalg.gaussians import root_from_precision
from ...models import BasisGP
from ...models.families import require_model
from ..ascent import ascend, has_fallen
from ..expectation_check import warn_of_quadrature
from ..results import Recorder
from ..unusable_observation import unusable_observation
from .moments import Posterior, posterior_of
from .projections import nested_points, project_rows
from .result import MeanResult
from .solve import MeanSolution, solve_mean
from .system import MeanSystem

_LEAST_WEIGHT = 1e-8
"""The smallest precision of a site, relative to the largest. It changes the steps but not where they end."""


@dataclass(frozen=True)
class ConjugateGradients:
    """The mean on all data by preconditioned conjugate gradients, to a certified gap in nats.

    The posterior mean of a GP is a sum over all N training inputs, and its covariance may still live on M inducing points
    beta. At the sites of q(f), which for Gaussian noise are the data themselves, the coefficients solve (K + W^-1) a = y~.
    Each product with K is computed in blocks, and K is never stored. The run ends when the bound is certified to be within
    `tolerance` nats of its maximum over the mean: the gap (D32) is an upper bound of the distance, and not an estimate. For
    other likelihoods, solves and updates of the sites take turns until the bound rises by less than `tolerance`.

    :param tolerance: nats.
    :param max_products: of a solve; the run ends there if the gap is not reached, and says so.
    :param max_steps: solves, for likelihoods other than Gaussian noise.
    :param rank: R, points of the preconditioner, beta included; more points take fewer products. None is 1000, or N / 4 if
        that is less. It costs N R^2 per solve and N R numbers of memory.
    :param float32: compute products in float32 and add them up in float64, two to three times faster; the certificate is
        always computed in full.
    :param progress: show a progress bar.
    :raises DataError: for settings out of range.

    Cost per product: N^2 D; memory N (R + L). Example::

        model = ODVGP(gpflow.kernels.Matern32(), gpflow.likelihoods.Gaussian(0.1), "data", beta)
        result = ConjugateGradients(tolerance=0.1).run(model, (X, Y))
        print(result.gap, model.elbo((X, Y)))
    """

    tolerance: float = 0.1
    max_products: int = 200
    max_steps: int = 50
    rank: int | None = None
    float32: bool = True
    progress: bool = False

    def __post_init__(self) -> None:
        check_rate(tolerance=self.tolerance)
        check_whole(1, max_products=self.max_products, max_steps=self.max_steps)
        if self.rank is not None:
            check_whole(1, rank=self.rank)

    def run(self, model: BasisGP, data: RegressionData, *, deadline: float = float("inf")) -> MeanResult:
        """Find the best q(f) at fixed hyperparameters; the model has it afterwards, also if the run was interrupted.

        :param model: a model whose basis has `gamma="data"`.
        :param data: all data, X [N, D] and Y [N, P]. Its inputs become the mean points; where they are already, the run starts
            from their coefficients.
        :param deadline: a value of `time.perf_counter` after which no further product is begun.
        :raises ModelError: for another model.
        :raises DataError: for unusable data.
        :raises NumericalError: if a matrix cannot be factorised, or the bound is not finite at the start. The model is left as
            it was, except that the data are its mean points.
        """
        mean = data_mean_of(model, "ConjugateGradients")
        X, Y = model.checked(data)
        model.num_data = int(X.shape[0])
        mean.set_data(X.numpy())
        with tqdm(disable=not self.progress, bar_format="{desc}") as line:
            run = _Run(self, model, mean, (X, Y), line, deadline)
            result = run.solve()
        warn_of_quadrature(model, result.elbo, (X, Y))
        return result


def data_mean_of(model: BasisGP, method: str) -> DataMean:
    """The mean on all data of a model.

    :raises ModelError: for a model that has none.
    """
    require_model(method, model, BasisGP)
    mean = model.basis.kernel_mean
    if not isinstance(mean, DataMean):
        raise ModelError(
            f"{method} is for models with a mean on all data, and this {type(model).__name__} has none: build "
            'ODVGP(kernel, likelihood, "data", beta), or train this model by fit(model, data).'
        )
    return mean


class _Run:
    """One run: sites, solves and what they have found so far; the climber of `ascend`."""

    def __init__(
        self,
        settings: ConjugateGradients,
        model: BasisGP,
        mean: DataMean,
        data: tuple[tf.Tensor, tf.Tensor],
        line: tqdm,
        deadline: float,
    ) -> None:
        self.settings, self.model, self.mean, self.data = settings, model, mean, data
        self.line, self.deadline = line, deadline
        self.record = Recorder("elbo", "gap", "products")
        self.products = 0
        self.last: MeanSolution | None = None
        self._sites: tuple[tf.Tensor, tf.Tensor] | None = None
        self._proposed: tuple[tf.Tensor, tf.Tensor] | None = None
        self._gain = np.inf
        X = data[0]
        beta = model.basis.beta
        size = int(point_values(beta)[0].shape[0])
        rank = min(1000, len(X) // 4) if settings.rank is None else settings.rank
        self.projections = project_rows(model.kernel, with_rows(beta, X.numpy(), rank), X, size)

    def solve(self) -> MeanResult:
        """Solve once for Gaussian noise, else until the sites stay."""
        now = self._start()
        if isinstance(self.model.likelihood, GaussianNoise):
            end, reason = self.propose(now, 0, 1.0), ""
            self._write(end)
        else:
            climbed = ascend(self, now, range(self.settings.max_steps))
            end, reason = climbed.now, climbed.reason
        last = self.last
        if last is not None and (not reason or last.reason != "converged"):
            reason = last.reason
        gap = float("nan") if last is None else last.gap
        return MeanResult(
            elbo=end.elbo,
            steps=len(self.record),
            seconds=self.record.seconds,
            history=self.record.history,
            converged=reason == "converged",
            reason=reason,
            gap=gap,
            gaps=[] if last is None else last.gaps,
            products=self.products,
        )

    def propose(self, now: Posterior, step: int, share: float) -> Posterior:
        """The posterior of sites that moved by `share` from those of `now` to those that its moments suggest."""
        natural, weights = sites_of(now)
        if self._sites is not None:
            natural = (1.0 - share) * self._sites[0] + share * natural  # (C13)
            weights = (1.0 - share) * self._sites[1] + share * weights
        self._proposed = natural, weights
        system = MeanSystem(self.model.kernel, self.mean, self.projections, weights, natural / weights)
        dtype = tf.float32 if self.settings.float32 and now.a.dtype == tf.float64 else None
        found = solve_mean(
            system,
            now.a,
            self.settings.tolerance,
            self.settings.max_products,
            dtype=dtype,
            deadline=self.deadline,
            report=self._report,
        )
        self.products += found.products
        self.last = found
        return self._posterior(system, found)

    def accept(self, now: Posterior, then: Posterior) -> bool:
        """Whether the bound has not fallen by more than the solves are exact to."""
        if has_fallen(now.elbo, then.elbo, absolute=self.settings.tolerance):
            return False
        self._sites = self._proposed
        self._write(then)
        self._gain = then.elbo - now.elbo
        return True

    def converged(self, now: Posterior) -> bool:
        """Whether the last step gained less than the tolerance, or there is no time left."""
        late = time.perf_counter() >= self.deadline or (self.last is not None and self.last.reason == "interrupted")
        return late or abs(self._gain) < self.settings.tolerance

    def _start(self) -> Posterior:
        """q(f) as the model has it."""
        basis, kernel = self.model.basis, self.model.kernel
        state = basis.factor(kernel, with_kl=False)
        K_a = self.mean.products(kernel, state.a, None) if bool(tf.reduce_any(state.a != 0.0)) else state.a
        now = posterior_of(self.model, self.data, self.projections, state.a, K_a, Gaussian(state.mean, state.root))
        if not np.isfinite(now.elbo):
            raise unusable_observation(self.model, self.data) or NumericalError(
                "The bound is not finite at the start: standardise X and Y, or start from smaller kernel and noise variances.",
                "K_beta",
            )
        return now

    def _posterior(self, system: MeanSystem, found: MeanSolution) -> Posterior:
        """The best q(f) given the coefficients."""
        mean = system.inducing_mean(found.a, found.residual)
        root = root_from_precision(system.inducing_precision()).chol
        K_a = system.target - found.residual - found.a / system.weights
        then = posterior_of(self.model, self.data, self.projections, found.a, K_a, Gaussian(mean, root))
        self.record.append(len(self.record) + 1, elbo=then.elbo, gap=found.gap, products=self.products)
        return then

    def _write(self, now: Posterior) -> None:
        basis, kernel = self.model.basis, self.model.kernel
        self.mean.coefficients.assign(now.a)
        basis.assign_gaussians(basis.factor(kernel, with_kl=False), (now.inducing,))

    def _report(self, products: int, share: float, gap: float) -> None:
        self.line.set_description_str(
            f"solve {len(self.record) + 1}: {products + share:.1f} products, gap {gap:.3g} nats, "
            f"{self.record.seconds:.0f} s"
        )


def sites_of(now: Posterior) -> tuple[tf.Tensor, tf.Tensor]:
    """The sites that the moments suggest, (C13): natural means g - 2 h m and precisions -2 h, both [N, L] and above zero."""
    weights = tf.maximum(-2.0 * now.h, 0.0)
    weights = tf.maximum(weights, _LEAST_WEIGHT * tf.reduce_max(weights))
    return now.g + weights * now.mean, weights


def with_rows(beta: InducingVariables, X: np.ndarray, rank: int) -> InducingVariables:
    """The points beta of each latent, and random rows of X [N, D] after them, `rank` in all."""
    parts = [InducingPoints(nested_points(np.asarray(values), X, rank)) for values in point_values(beta)]
    if isinstance(beta, InducingPoints):
        return parts[0]
    if len(parts) == 1:
        return SharedIndependentInducingVariables(parts[0])
    return SeparateIndependentInducingVariables(parts)
