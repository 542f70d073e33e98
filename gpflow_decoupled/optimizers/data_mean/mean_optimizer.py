"""The best mean on all data, by any solver."""

from __future__ import annotations

__all__ = [
    "ConjugateGradients", "MeanOptimizer", "MeanResult", "MeanRun", "StochasticDualDescent",
]  # fmt: skip

import abc
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.kernels import LinearCoregionalization
from tqdm.auto import tqdm

from ...bases import GaussianPart
from ...bases.optimum import DataMean, refuse_streams
from ...covariances.products import gram_product
from ...diagnostics.accuracy import warn_of_quadrature
from ...diagnostics.failure import unusable_observation
from ...errors import DataError, NumericalError, UnknownOptionError, check_option
from ...inducing.variables import point_values
from ...inputs import check_rate, check_whole, is_number
from ...likelihoods.parameters import is_gaussian, single_noise_variance
from ...linalg.whitening import precision_from_root, root_from_precision
from ...models import BasisGP
from ...models.families import data_mean_of
from ...replicas import Group, group_of, refuse_other_workers
from ...summaries import short_repr
from ..ascent import CONVERGED, INTERRUPTED, Recorder, RunResult, ascend, has_fallen
from .evidence import Posterior, posterior_of, sites_of
from .solve_mean import DualDescent, solve_mean
from .system import (
    PRECONDITIONERS,
    TIME_IS_UP,
    MeanSolution,
    MeanSystem,
    MixedSystem,
    NeighbourFactors,
    Solve,
    best_preconditioner,
    preconditioner_rows,
)

# ---
# The result of `ConjugateGradients` and `StochasticDualDescent`.


@dataclass(kw_only=True, repr=False)
class MeanResult(RunResult):
    """Result of `ConjugateGradients.run` and `StochasticDualDescent.run`.

    A step is one linear solve. `history` has arrays [steps] "step", "seconds", "elbo" (nats), "gap"
    (nats) and "products" (so far). Example::

        result = ConjugateGradients(tolerance=0.1).run(model, (X, Y))
        print(result, result.gap)
    """

    gap: float
    """The last solve is at most this many nats below its maximum over the mean; an estimate if not
    `certified`.

    Of the ELBO for Gaussian noise; else of the quadratic of the last step's sites, and `converged`
    means that a step gains less than the tolerance.
    """
    gaps: list[float]
    """Gaps of the last solve in nats, up to `gap`: per product for conjugate gradients.

    These come from the recursion's residual, enlarged by its drift, which is no bound.
    """
    certified: bool
    """True if `gap` is a bound, by a product in full precision.

    False for `certify=False` and after Ctrl-C in that product; `gap` is then an estimate.
    """
    products: int
    """Products with the kernel matrix [N, N]; a pass over its rows in batches counts as one."""

    def __str__(self) -> str:
        gap = f"gap {self.gap:.2g} nats" if self.certified else f"gap about {self.gap:.2g} nats"
        return (
            f"{self.steps} solves with {self.products} products in {self.seconds:.1f} s, ELBO"
            f" {self.elbo:.6g}, {gap}, stopped: {self.reason}"
        )


# ---
# A run of an optimizer of the mean on all data.


def _neighbours_of(
    settings: MeanOptimizer, model: BasisGP, X: tf.Tensor
) -> NeighbourFactors | None:
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
        settings: MeanOptimizer,
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
        self._limits: dict[str, Any] = {"deadline": deadline, "report": self._report}
        self._solve, self._start_dtype = settings.solver(low), None if settings.certify else low
        self.near = _neighbours_of(settings, model, X)
        points = int(point_values(model.basis.beta)[0].shape[0])
        rank = settings.rank if self.near is None else points
        self.projections = preconditioner_rows(model.kernel, model.basis.beta, X, rank)

    def solve(self) -> MeanResult:
        """Find the best q(f), and write it to the model."""
        now = self._start()
        # no sites to update: one solve is the optimum
        if self.joint or (is_gaussian(self.model.likelihood) and not self.mixed):
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
        found = self._solve(system, now.a, K_start=now.K_a, **self._limits)
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
        found = self._solve(system, c, K_start=K_c, **self._limits)
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


# ---


class MeanOptimizer(abc.ABC):
    """Base class of optimizers for `gamma="data"`: linear solves and updates of the sites in turn.

    Derived classes are frozen dataclasses with these fields, see `ConjugateGradients`.
    """

    tolerance: float
    max_steps: int
    rank: int | None
    float32: bool
    progress: bool
    certify: bool = True
    """Compute the gap in full precision; a field of the classes with this choice."""
    preconditioner: str = "points"
    """Also such a field; see `ConjugateGradients`."""
    mixes: ClassVar[bool] = False
    """True if it solves the system of outputs that mix latents, `MixedSystem`."""
    not_on_replicas: ClassVar[str] = ""
    """Why several replicas cannot share the work, with the alternative; "" if they can."""

    def __post_init__(self) -> None:
        check_rate(tolerance=self.tolerance)
        check_whole(1, max_steps=self.max_steps)
        if self.rank is not None:
            check_whole(1, rank=self.rank)

    @property
    def settings(self) -> dict[str, object]:
        """All fields that change a result, by name; equal on all workers."""
        return {name: value for name, value in vars(self).items() if name != "progress"}

    @abc.abstractmethod
    def solver(self, dtype: tf.DType | None) -> Solve:
        """The solver of a run's linear systems.

        :param dtype: tf.float32 for faster products; None is the dtype of the data.
        """

    def rough(self, tolerance: float) -> MeanOptimizer:
        """Return a copy for solves between hyperparameter steps: `tolerance` nats or more,
        uncertified.
        """
        # the derived classes are dataclasses
        return replace(cast(Any, self), tolerance=max(self.tolerance, tolerance))

    def run(
        self,
        model: BasisGP,
        data: RegressionData,
        *,
        deadline: float = float("inf"),
        strategy: tf.distribute.Strategy | None = None,
    ) -> MeanResult:
        """Find the best q(f) at fixed hyperparameters; leave it in the model, even if interrupted.

        :param model: a model with `gamma="data"`.
        :param data: all data, X [N, D] and Y [N, P]. The mean points become X; if they already are,
            the run starts from their coefficients.
        :param deadline: a value of `time.perf_counter`, after which no product ends but the
            certificate.
        :param strategy: a `tf.distribute` strategy whose replicas share the products; build the
            model in `strategy.scope()`.
        """
        data_mean_of(model, type(self).__name__)
        refuse_streams(data)
        self.check_replicas(strategy)
        group = group_of(model, strategy)
        with group.scope(), group.naming_lost_workers():
            if group.workers > 1:
                arrays = group.together(lambda: [array.numpy() for array in model.checked(data)])
                refuse_other_workers(
                    group, model, arrays, {**self.settings, "deadline": deadline < float("inf")}
                )
            return self.run_on(group, model, data, deadline=deadline)

    def check_replicas(self, strategy: tf.distribute.Strategy | None) -> None:
        """Raise `UnknownOptionError` if several replicas cannot share the work."""
        if self.not_on_replicas and strategy is not None and strategy.num_replicas_in_sync > 1:
            raise UnknownOptionError(self.not_on_replicas)

    def run_on(
        self,
        group: Group,
        model: BasisGP,
        data: RegressionData,
        *,
        deadline: float = float("inf"),
        show: Callable[[str], object] | None = None,
    ) -> MeanResult:
        """`run` on workers already checked to agree, inside `group.scope()`.

        :param show: shows a line of progress; None is a progress bar if `progress` is set.
        """
        mean = data_mean_of(model, type(self).__name__)
        X, Y = model.checked(data)
        model.num_data = int(X.shape[0])
        mean.set_data(X.numpy())
        own_line = show is None and self.progress and group.is_first
        with tqdm(disable=not own_line, bar_format="{desc}") as line:
            run = MeanRun(
                self, model, mean, (X, Y), show or line.set_description_str, deadline, group
            )
            result = run.solve()
        warn_of_quadrature(model, result.elbo, (X, Y))
        return result


# ---
# Conjugate gradients for users.


@dataclass(frozen=True)
class ConjugateGradients(MeanOptimizer):
    """The mean on all data by preconditioned conjugate gradients, to a certified gap in nats.

    Gaussian noise of one variance takes one solve; for other likelihoods solves and updates of the
    sites alternate until a step gains less than `tolerance`, and the gap is the last solve's. K is
    never stored. Ctrl-C ends a run with its result. Cost per product: N^2 D, shared by the replicas
    of a `strategy`; memory N (R + L).

    :param tolerance: largest gap, in nats.
    :param max_products: limit of a solve, reported if reached.
    :param max_steps: limit of solves and shortened steps.
    :param rank: R, points of the preconditioner, beta included, at N R^2 per solve; None is
        min(1000, N / 4).
    :param float32: products in float32, sums in float64, two to four times faster; for
        SquaredExponential, Matern32 and Matern52, if rounding errors are below a fifth of the
        noise.
    :param certify: compute the gap from a product in full precision; False estimates it.
    :param progress: show a progress bar.
    :param preconditioner: "points", R of them; "neighbours", a sparse inverse factor from m = 60
        earlier rows, N m^3 / 3, better with little noise; "both", a half to a third of the products
        for N m^2 R at the start; "auto", the better of the first two, points if a `rank` is given.

    Example::

        model = ODVGP(gpflow.kernels.Matern32(), gpflow.likelihoods.Gaussian(0.1), "data", beta)
        result = ConjugateGradients(tolerance=0.1).run(model, (X, Y))
        print(result.gap, model.elbo((X, Y)))
    """

    tolerance: float = 0.1
    max_products: int = 200
    max_steps: int = 50
    rank: int | None = None
    float32: bool = True
    certify: bool = True
    preconditioner: str = "auto"
    progress: bool = False
    mixes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole(1, max_products=self.max_products)
        check_option("preconditioner", self.preconditioner, PRECONDITIONERS)

    def rough(self, tolerance: float) -> ConjugateGradients:
        return replace(self, tolerance=max(self.tolerance, tolerance), certify=False)

    def solver(self, dtype: tf.DType | None) -> Solve:
        return functools.partial(
            solve_mean,
            tolerance=self.tolerance,
            max_products=self.max_products,
            dtype=dtype,
            certify=self.certify,
        )


# ---
# Stochastic dual descent for users.


@dataclass(frozen=True)
class StochasticDualDescent(MeanOptimizer):
    """The mean on all data by steps on random rows of the kernel matrix, in certified rounds.

    Problem and result as in `ConjugateGradients`, which are faster with a good preconditioner. A
    round is a conjugate-gradient step, some epochs (passes over the rows), and a full product that
    certifies the gap.

    Source: Lin et al. 2024 (arXiv:2310.20581), algorithm 1, in coordinates of unit noise.

    :param tolerance: largest certified gap, in nats.
    :param epochs: limit of passes over the rows per solve.
    :param correct_every: epochs of a round, which adds two products.
    :param batch_size: B, rows of a step; down to about fifty, smaller is better per epoch.
    :param step_size: 1 is stable, about 1.3 the limit.
    :param momentum: Nesterov's rho, in [0, 1).
    :param max_steps: this, `rank` and `float32` as in `ConjugateGradients`; the certificate is in
        full precision.
    :param seed: of the rows.
    :param progress: show a progress bar.

    Cost per step: B N D; an epoch costs about two products. Memory N (R + L). Example::

        model = ODVGP(gpflow.kernels.Matern32(), gpflow.likelihoods.Gaussian(0.1), "data", beta)
        result = StochasticDualDescent(epochs=20).run(model, (X, Y))
        print(result.gap, result.reason)
    """

    tolerance: float = 0.1
    epochs: int = 100
    correct_every: int = 10
    batch_size: int = 64
    step_size: float = 1.0
    momentum: float = 0.9
    max_steps: int = 50
    rank: int | None = None
    float32: bool = True
    seed: int = 0
    progress: bool = False
    not_on_replicas: ClassVar[str] = (
        "StochasticDualDescent takes many short steps on batches of rows, which replicas cannot"
        " share out: use ConjugateGradients with strategy, or leave strategy out."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole(
            1, epochs=self.epochs, correct_every=self.correct_every, batch_size=self.batch_size
        )
        check_whole(0, seed=self.seed)
        check_rate(step_size=self.step_size)
        if not (is_number(self.momentum) and 0.0 <= self.momentum < 1.0):
            raise DataError(
                f"momentum={short_repr(self.momentum)} must be a number of at least 0 and below 1."
            )

    def solver(self, dtype: tf.DType | None) -> Solve:
        return DualDescent(self, dtype)
