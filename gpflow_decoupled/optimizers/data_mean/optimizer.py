"""The best mean on all data for a model with `gamma="data"`, at fixed hyperparameters."""

from __future__ import annotations

__all__ = ["ConjugateGradients"]

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.kernels import LinearCoregionalization
from gpflow.likelihoods import Gaussian as GaussianNoise
from tqdm.auto import tqdm

from ...bases import Gaussian
from ...bases.parts.data_mean import DataMean
from ...errors import ModelError, NumericalError
from ...inducing.variables import point_values
from ...inputs import check_rate, check_whole
from ...linalg.gaussians import precision_from_root, root_from_precision
from ...models import BasisGP
from ...models.families import require_model
from ..ascent import CONVERGED, ascend, has_fallen
from ..expectation_check import warn_of_quadrature
from ..results import Recorder
from ..unusable_observation import unusable_observation
from .moments import Posterior, posterior_of, sites_of
from .projections import project_rows, with_rows
from .result import MeanResult
from .solve import INTERRUPTED, TIME_IS_UP, MeanSolution, solve_mean
from .system import MeanSystem


@dataclass(frozen=True)
class ConjugateGradients:
    """The mean on all data by preconditioned conjugate gradients, to a certified gap in nats.

    The posterior mean of a GP is a sum over all N training inputs, and its covariance may still live on M inducing points
    beta. At the sites of q(f), which for Gaussian noise are the data themselves, the coefficients solve (K + W^-1) a = y~.
    Each product with K is computed in blocks, and K is never stored. The run ends when the bound is certified to be within
    `tolerance` nats of its maximum over the mean: the gap (D32) is an upper bound of the distance, and not an estimate. For
    other likelihoods, and where a `LinearCoregionalization` mixes the latents, solves and updates of the sites take turns
    until a whole step raises the bound by less than `tolerance`. A step that would lower it is shortened, which takes no new
    solve.

    :param tolerance: nats.
    :param max_products: of a solve; the run ends there if the gap is not reached, and says so.
    :param max_steps: at most so many solves, shortened steps among them, where one is not enough.
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
        :raises NumericalError: if a matrix cannot be factorised, or the bound is not finite. The model is left as it was,
            except that the data are its mean points.
        """
        mean = _data_mean_of(model, "ConjugateGradients")
        X, Y = model.checked(data)
        model.num_data = int(X.shape[0])
        mean.set_data(X.numpy())
        with tqdm(disable=not self.progress, bar_format="{desc}") as line:
            run = _Run(self, model, mean, (X, Y), line, deadline)
            result = run.solve()
        warn_of_quadrature(model, result.elbo, (X, Y))
        return result


def _data_mean_of(model: BasisGP, method: str) -> DataMean:
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


class _Full(NamedTuple):
    """Where a whole step leads."""

    a: tf.Tensor
    """Coefficients [N, L]."""
    K_a: tf.Tensor
    """K a [N, L]."""
    mean: tf.Tensor
    """Of q(u), whitened [M, L]."""
    precision: tf.Tensor
    """Of q(u), whitened [L, M, M]."""


class _Run:
    """One run: solves and what they have found so far; the climber of `ascend`."""

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
        self._step: tuple[Posterior, _Full] | None = None
        self._share, self._gain = 1.0, np.inf
        X = data[0]
        beta = model.basis.beta
        size = int(point_values(beta)[0].shape[0])
        rank = min(1000, len(X) // 4) if settings.rank is None else settings.rank
        self.projections = project_rows(model.kernel, with_rows(beta, X.numpy(), rank), X, size)

    def solve(self) -> MeanResult:
        """Solve once where the sites are the data, else until they stay."""
        now, kernel = self._start(), self.model.kernel
        if isinstance(self.model.likelihood, GaussianNoise) and not isinstance(kernel, LinearCoregionalization):
            end, reason = self.propose(now, 0, 1.0), CONVERGED
            if not np.isfinite(end.elbo):
                raise NumericalError(
                    "The bound after the solve is not finite: standardise X and Y, or pass float32=False.", "K"
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
        return MeanResult(
            elbo=end.elbo,
            steps=len(self.record),
            seconds=self.record.seconds,
            history=self.record.history,
            converged=reason == CONVERGED,
            reason=reason,
            gap=gap,
            gaps=[] if last is None else last.gaps,
            products=self.products,
        )

    def propose(self, now: Posterior, step: int, share: float) -> Posterior:
        """The posterior after a share of the step to the best q(f) at the sites that the moments of `now` suggest."""
        self._share = share
        if self._step is None or self._step[0] is not now:
            self._step = now, self._whole_step(now)
        full = self._step[1]
        if share == 1.0:
            return self._posterior(full)
        # the mean moves on a line, on which the bound is concave where the likelihood is log-concave
        old = now.a, now.K_a, now.inducing.mean, precision_from_root(now.inducing.root)
        return self._posterior(_Full(*((1.0 - share) * left + share * right for left, right in zip(old, full))))

    def accept(self, now: Posterior, then: Posterior) -> bool:
        """Whether the bound has not fallen by more than the solves are exact to."""
        if has_fallen(now.elbo, then.elbo, absolute=self.settings.tolerance):
            return False
        self._take(then)
        self._gain = (then.elbo - now.elbo) / self._share
        return True

    def converged(self, now: Posterior) -> bool:
        """Whether the last step gained less than the tolerance, or would have if it had been a whole one."""
        return abs(self._gain) < self.settings.tolerance

    def _steps(self) -> Iterator[int]:
        """The numbers of the steps, until there is no time left."""
        for step in range(self.settings.max_steps):
            if self._over():
                return
            yield step

    def _over(self) -> str:
        """Why no further step is to be taken, or nothing."""
        if self.last is not None and self.last.reason == INTERRUPTED:
            return INTERRUPTED
        return TIME_IS_UP if time.perf_counter() >= self.deadline else ""

    def _whole_step(self, now: Posterior) -> _Full:
        """Solve for the mean at the sites of `now`."""
        natural, weights, precisions = sites_of(now)
        system = MeanSystem(self.model.kernel, self.mean, self.projections, weights, natural / weights)
        dtype = tf.float32 if self.settings.float32 and now.a.dtype == tf.float64 else None
        found = solve_mean(
            system,
            now.a,
            self.settings.tolerance,
            self.settings.max_products,
            K_start=now.K_a,
            dtype=dtype,
            deadline=self.deadline,
            report=self._report,
        )
        self.products += found.products
        self.last = found
        K_a = system.target - found.residual - found.a / weights
        same = bool(tf.reduce_all(precisions == weights))
        precision = system.inducing_precision() if same else self.projections.precision(precisions, system.size)
        return _Full(found.a, K_a, system.inducing_mean(found.a, found.residual), precision)

    def _start(self) -> Posterior:
        """q(f) as the model has it."""
        basis, kernel = self.model.basis, self.model.kernel
        state = basis.factor(kernel, with_kl=False)
        K_a = tf.zeros_like(state.a)
        if bool(tf.reduce_any(state.a != 0.0)):
            K_a = self.mean.products(kernel, state.a, None)
            self.products += 1
        now = posterior_of(self.model, self.data, self.projections, state.a, K_a, Gaussian(state.mean, state.root))
        if not np.isfinite(now.elbo):
            raise unusable_observation(self.model, self.data) or NumericalError(
                "The bound is not finite at the start: standardise X and Y, or start from smaller kernel and noise variances.",
                "K_beta",
            )
        return now

    def _posterior(self, point: _Full) -> Posterior:
        """q(f) and its bound, which is not a number where the precision of q(u) is not positive definite."""
        inducing = Gaussian(point.mean, root_from_precision(point.precision).chol)
        return posterior_of(self.model, self.data, self.projections, point.a, point.K_a, inducing)

    def _take(self, then: Posterior) -> None:
        """Record a step, and write it to the model."""
        gap = float("nan") if self.last is None else self.last.gap
        self.record.append(len(self.record) + 1, elbo=then.elbo, gap=gap, products=self.products)
        self._write(then)

    def _write(self, now: Posterior) -> None:
        basis, kernel = self.model.basis, self.model.kernel
        self.mean.coefficients.assign(now.a)
        basis.assign_gaussians(basis.factor(kernel, with_kl=False), (now.inducing,))

    def _report(self, products: int, share: float, gap: float) -> None:
        self.line.set_description_str(
            f"solve {len(self.record) + 1}: {products + share:.1f} products, gap {gap:.3g} nats, "
            f"{self.record.seconds:.0f} s"
        )
