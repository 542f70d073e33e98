"""A run of an optimizer of the mean on all data."""

from __future__ import annotations

__all__ = ["MeanRun"]

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.kernels import LinearCoregionalization
from gpflow.likelihoods import Gaussian as GaussianNoise

from ...bases import GaussianPart
from ...bases.parts.data_mean import DataMean
from ...covariances.products import gram_product
from ...diagnostics.unusable_observation import unusable_observation
from ...errors import NumericalError
from ...inducing.variables import point_values
from ...likelihoods.parameters import single_noise_variance
from ...linalg.gaussians import precision_from_root, root_from_precision
from ...models import BasisGP
from ...replicas import Group
from ..ascent import CONVERGED, INTERRUPTED, ascend, has_fallen
from ..results import Recorder
from .mean_result import MeanResult
from .mean_settings import MeanSettings
from .mean_solution import TIME_IS_UP, MeanSolution
from .mixed_system import MixedSystem
from .neighbour_factors import NeighbourFactors, best_preconditioner
from .row_features import preconditioner_rows
from .row_posterior import Posterior, posterior_of, sites_of
from .system import MeanSystem


def _neighbours_of(settings: MeanSettings, model: BasisGP, X: tf.Tensor) -> NeighbourFactors | None:
    kernel, beta, rank = model.kernel, model.basis.beta, settings.rank
    noise, kind = single_noise_variance(model.likelihood), settings.preconditioner
    if kind == "auto" and rank is None and noise is not None:
        kind = best_preconditioner(kernel, beta, X, noise)
    if kind not in ("neighbours", "both"):
        return None
    features = preconditioner_rows(kernel, beta, X, rank) if kind == "both" else None
    return NeighbourFactors(kernel, X, features)


class _Full(NamedTuple):
    a: tf.Tensor
    """Coefficients [N, L]."""
    K_a: tf.Tensor
    """K a [N, L]."""
    mean: tf.Tensor
    """Mean of q(u), whitened [M, L]."""
    precision: tf.Tensor
    """Precision of q(u), whitened [L, M, M]."""


class MeanRun:
    """Linear solves and updates of the sites in turn, on data X [N, D] and Y [N, P].

    :param show: shows a line of progress.
    :param deadline: a value of `time.perf_counter`.
    """

    def __init__(
        self,
        settings: MeanSettings,
        model: BasisGP,
        mean: DataMean,
        data: tuple[tf.Tensor, tf.Tensor],
        show: Callable[[str], object],
        deadline: float,
        group: Group,
    ) -> None:
        self.settings, self.model, self.mean, self.data = settings, model, mean, data
        self.show, self.deadline, self.group = show, deadline, group
        self.record = Recorder("elbo", "gap", "products")
        self.products = 0
        self.last: MeanSolution | None = None
        self._step: tuple[Posterior, _Full] | None = None
        self._share, self._gain = 1.0, np.inf
        X = data[0]
        self.mixed = isinstance(model.kernel, LinearCoregionalization)
        one_noise = single_noise_variance(model.likelihood) is not None
        self.joint = settings.mixes and self.mixed and one_noise
        """True if the observations have one system for all latents."""
        low = tf.float32 if settings.float32 and X.dtype == tf.float64 else None
        self._solve, self._start_dtype = settings.solver(low), None if settings.certify else low
        self.near = _neighbours_of(settings, model, X)
        points = int(point_values(model.basis.beta)[0].shape[0])
        rank = settings.rank if self.near is None else points
        self.projections = preconditioner_rows(model.kernel, model.basis.beta, X, rank)

    def solve(self) -> MeanResult:
        """Find the best q(f), and write it to the model."""
        now = self._start()
        # no sites to update: one solve is the optimum
        if self.joint or (isinstance(self.model.likelihood, GaussianNoise) and not self.mixed):
            end, reason = self.propose(now, 0, 1.0), CONVERGED
            if not np.isfinite(end.elbo):
                raise NumericalError(
                    "The bound after the solve is not finite: standardise X and Y, or pass"
                    " float32=False.",
                    "K",
                )
            self._take(end)
        else:
            climbed = ascend(self, now, self._steps())
            end, reason = climbed.now, climbed.reason
            reason = reason if reason == CONVERGED else self._over() or reason
        last = self.last
        if last is not None and reason == CONVERGED:
            reason = last.reason
        gap = float("nan") if last is None else last.gap
        return self.record.finish(
            MeanResult,
            end.elbo,
            reason,
            gap=gap,
            gaps=[] if last is None else last.gaps,
            certified=last is not None and last.certified,
            products=self.products,
        )

    def propose(self, now: Posterior, step: int, share: float) -> Posterior:
        """A share of the step from `now`, see `ascend`."""
        self._share = share
        if self._step is None or self._step[0] is not now:
            self._step = now, self._whole_step(now)
        full = self._step[1]
        if share == 1.0:
            return self._posterior(full)
        # the mean moves on a line, on which the bound is concave where the likelihood is
        # log-concave
        old = now.a, now.K_a, now.inducing.mean, precision_from_root(now.inducing.root)
        return self._posterior(
            _Full(*((1.0 - share) * left + share * right for left, right in zip(old, full)))
        )

    def accept(self, now: Posterior, then: Posterior) -> bool:
        """Take a step unless the bound falls."""
        if has_fallen(now.elbo, then.elbo, absolute=self.settings.tolerance):
            return False
        self._take(then)
        self._gain = (then.elbo - now.elbo) / self._share
        return True

    def converged(self, now: Posterior) -> bool:
        """True if a whole step would gain less than the tolerance."""
        return abs(self._gain) < self.settings.tolerance

    def _steps(self) -> Iterator[int]:
        for step in range(self.settings.max_steps):
            if self._over():
                return
            yield step

    def _over(self) -> str:
        if self.last is not None and self.last.reason == INTERRUPTED:
            return INTERRUPTED
        return TIME_IS_UP if self.group.is_over(self.deadline) else ""

    def _whole_step(self, now: Posterior) -> _Full:
        if self.joint:
            return self._joint_step(now)
        natural, weights, precisions = sites_of(now)
        parts = self.model.kernel, self.mean, self.projections, weights, natural / weights
        factors = () if self.near is None else self.near.factors(weights)
        system = MeanSystem(*parts, self.group, factors=factors)
        found = self._solve(system, now.a, now.K_a, deadline=self.deadline, report=self._report)
        self.products += found.products
        self.last = found
        K_a = system.target - found.residual - found.a / weights
        same = bool(tf.reduce_all(precisions == weights))
        precision = (
            system.inducing_precision()
            if same
            else self.projections.precision(precisions, system.size)
        )
        return _Full(found.a, K_a, system.inducing_mean(found.a, found.residual), precision)

    def _joint_step(self, now: Posterior) -> _Full:
        system = MixedSystem.of(self.model, self.data, self.mean, self.projections, self.group)
        c, K_c = system.start(now.a, now.mean)
        self.products += int(bool(tf.reduce_any(c != 0.0)))
        found = self._solve(system, c, K_c, deadline=self.deadline, report=self._report)
        a = system.latents(found.a)
        K_a = gram_product(self.model.kernel, self.mean.points, None, a, group=self.group)
        self.products += found.products + 1
        self.last = found
        precision = self.projections.precision(sites_of(now)[2], system.size)
        return _Full(a, K_a, system.inducing_mean(found.a, found.residual), precision)

    def _start(self) -> Posterior:
        basis, kernel = self.model.basis, self.model.kernel
        state = basis.factor(kernel, with_kl=False)
        K_a = tf.zeros_like(state.a)
        if bool(tf.reduce_any(state.a != 0.0)):
            K_a = gram_product(
                kernel, self.mean.points, None, state.a, dtype=self._start_dtype, group=self.group
            )
            self.products += 1
        now = self._moments(state.a, K_a, GaussianPart(state.mean, state.root))
        if not np.isfinite(now.elbo):
            raise unusable_observation(self.model, self.data) or NumericalError(
                "The bound is not finite at the start: standardise X and Y, or start from smaller"
                " kernel and noise variances.",
                "K_beta",
            )
        return now

    def _posterior(self, point: _Full) -> Posterior:
        inducing = GaussianPart(point.mean, root_from_precision(point.precision).chol)
        return self._moments(point.a, point.K_a, inducing)

    def _moments(self, a: tf.Tensor, K_a: tf.Tensor, inducing: GaussianPart) -> Posterior:
        found = posterior_of(self.model, self.data, self.projections, a, K_a, inducing)
        return found._replace(elbo=self.group.first(found.elbo))

    def _take(self, then: Posterior) -> None:
        gap = float("nan") if self.last is None else self.last.gap
        self.record.append(len(self.record) + 1, elbo=then.elbo, gap=gap, products=self.products)
        self._write(then)

    def _write(self, now: Posterior) -> None:
        basis, kernel = self.model.basis, self.model.kernel
        self.mean.coefficients.assign(now.a)
        basis.assign_gaussians(basis.factor(kernel, with_kl=False), (now.inducing,))

    def _report(self, products: int, share: float, gap: float) -> None:
        self.show(
            f"solve {len(self.record) + 1}: {products + share:.1f} products, gap {gap:.3g} nats, "
            f"{self.record.seconds:.0f} s"
        )
