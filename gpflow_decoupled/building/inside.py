"""The model of standardised data that `build` chooses."""

from __future__ import annotations

__all__ = ["NUM_INDUCING", "NUM_MEAN_POINTS", "Inside"]

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.functions import MeanFunction
from gpflow.kernels import (
    IsotropicStationary,
    Kernel,
    LinearCoregionalization,
    Matern12,
    MultioutputKernel,
    SeparateIndependent,
    SharedIndependent,
)
from gpflow.likelihoods import (
    Gaussian,
    HeteroskedasticTFPConditional,
    Likelihood,
    ScalarLikelihood,
    SwitchedLikelihood,
)
from gpflow.models import GPModel

from ..diagnostics import lengthscale_factor, roughness
from ..errors import DataError
from ..likelihoods import CategoricalLogit, RowLikelihood
from ..models import CVIGP, NNGP
from ..models.checks import check_kernel, check_mean_function
from ..training import Standardization
from ..training.row_numbers import RowNumbers
from ..training.tables import Column
from ..training.units import StandardizedMean, fixed_numbers_inside
from .kernels import AUTO, PREDICTION_NEIGHBOURS, SPREAD_NEIGHBOURS, KernelChoice
from .label_runs import values_of
from .likelihoods import likelihood_for, prior_mean
from .report import EXACT_ROWS, FULL_ROWS, classes_rows
from .rows import with_rows
from .seasons import date_places, with_seasons
from .sparse import default_kernel, sparse_model

NUM_NEIGHBOURS = 30
"""Learning wants many rows with few neighbours, so that it meets rows that contradict each other.
"""
NUM_INDUCING, NUM_MEAN_POINTS = 300, 1000  # of models on inducing points, unless given


@dataclass
class Inside:
    """Makes a model of standardised X [N, D] and Y [N, P], for `Standardized`."""

    likelihood: str | Likelihood
    kernel: Kernel | Callable[[int], Kernel] | str | None
    search: Callable[..., KernelChoice]
    """Finds the kernel of "auto" for X, Y and a likelihood other than Gaussian noise."""
    columns: tuple[Column, ...]
    """Of the data frame that X was; none for an array."""
    scaled: bool
    """Whether X is standardised."""
    numbers: RowNumbers | None
    """Of rows, the last columns of Y."""
    mix: Callable[..., Kernel] | None
    """Makes a kernel of outputs that share latents of the kernel of one, Y and its `weights`."""
    points: tuple[int, int | str] | None
    """M_beta and M_gamma as the caller chose them; None leaves the model to the rows."""
    num_neighbours: int | None
    """m of a nearest-neighbour GP that the caller asked for."""
    mean_function: MeanFunction | None
    """Of the caller, in units of Y."""
    units: Standardization | None
    """Of Y, for parts of the caller; None where Y stays."""
    seed: int
    choices: list[KernelChoice] = field(default_factory=list)
    """The result of the search, which runs once, although models may be built again."""
    rough: float = 0.0
    """Nats by which some rows speak for Matern 1/2, which is then the default."""
    fixed: bool = False
    """Whether the caller's likelihood has a number in units of Y, which does not train."""

    def __call__(self, X: np.ndarray, Y: np.ndarray) -> GPModel:
        numbers = self.numbers
        y = Y if numbers is None else Y[:, : numbers.outputs]
        weights = np.ones(y.shape) if numbers is None else numbers.information(Y)
        gaps = y.shape[1] > 1 and bool(np.isnan(y.astype(np.float64)).any())
        rows = gaps or numbers is not None
        density = likelihood_for(self.likelihood, y, rows)
        if self.units is not None and isinstance(self.likelihood, Likelihood):
            self.fixed = fixed_numbers_inside(density, self.units)
        by_name = None if numbers is None else numbers.by_name(Y)
        kernel = self._kernel(X, y, density, by_name, weights)
        mean = self._mean(X, y, density, by_name)
        if mean is None and self.mix is not None:
            # gaps: outputs are standardised by other rows, and few latents have no room for that
            mean = gpflow.functions.Constant(np.zeros(y.shape[1]))
        neighbours = self.points is None and bool(self.num_neighbours or len(X) > EXACT_ROWS)
        if not (neighbours and numbers is None and _has_neighbours(density, kernel)):
            density = with_rows(density, numbers, gaps)  # an NNGP leaves out missing entries itself
        count = self.num_neighbours or self._of_classes(len(X), density, kernel)
        if count:
            return self._by_neighbours((X, Y), kernel, density, mean, count)
        if self.points is None:
            numbers_of = PREDICTION_NEIGHBOURS, SPREAD_NEIGHBOURS
            if self.choices:
                choice = self.choices[0]
                numbers_of = choice.prediction_neighbours, choice.spread_neighbours
            found = _without_points((X, Y), kernel, density, mean, self.seed, *numbers_of)
            if found is not None:
                return found
        beta, gamma = self.points or (NUM_INDUCING, NUM_MEAN_POINTS)
        return sparse_model(
            X[_telling(np.mean(weights, axis=1))],
            density,
            kernel,
            num_latent_gps=_latents(kernel, density, y.shape[1]),
            num_inducing=beta,
            num_mean_points=gamma,
            mean_function=mean,
            seed=self.seed,
        )

    def _mean(
        self,
        X: np.ndarray,
        y: np.ndarray,
        likelihood: Likelihood,
        numbers: Mapping[str, np.ndarray] | None,
    ) -> MeanFunction | None:
        if self.mean_function is None:
            return prior_mean(self.likelihood, y, numbers)
        if not isinstance(likelihood, ScalarLikelihood):
            raise DataError(
                f"a {type(likelihood).__name__} has several latent functions, and mean_function="
                " is for one of each output: leave it out."
            )
        check_mean_function(self.mean_function, X.shape[1], y.shape[1])  # by its own name
        made = gpflow.utilities.deepcopy(self.mean_function)
        return made if self.units is None else StandardizedMean(made, self.units)

    def _of_classes(self, rows: int, likelihood: Likelihood, kernel: Kernel) -> int | None:
        """m for classes where the caller chose no points and a full GP is slow; else None."""
        # after a minute of a core 300 points had the better log loss on two of ten sets
        if self.points is not None or type(likelihood) is not CategoricalLogit or _mixes(kernel):
            return None
        return NUM_NEIGHBOURS if rows > classes_rows(likelihood.num_classes) else None

    def _by_neighbours(
        self,
        data: tuple[np.ndarray, np.ndarray],
        kernel: Kernel,
        likelihood: Likelihood,
        mean: MeanFunction | None,
        num_neighbours: int,
    ) -> NNGP:
        columns = data[1].shape[1] if self.numbers is None else self.numbers.outputs
        of_gaussian = _has_neighbours(likelihood, kernel)
        return NNGP(
            data,
            kernel,
            likelihood,
            num_neighbours=num_neighbours,
            prediction_neighbours="auto",
            spread_neighbours=SPREAD_NEIGHBOURS if of_gaussian else None,
            mean_function=mean,
            num_latent_gps=_latents(kernel, likelihood, columns),
            seed=self.seed,
        )

    def _kernel(
        self,
        X: np.ndarray,
        y: np.ndarray,
        density: Likelihood,
        numbers: Mapping[str, np.ndarray] | None,
        weights: np.ndarray,
    ) -> Kernel:
        given = self.kernel
        if isinstance(given, str) and given == AUTO:
            gaussian = type(density) is Gaussian
            if not gaussian:
                _check_auto(density, y, self.numbers)
            self.choices[:] = self.choices or [self.search(X, y, None if gaussian else density)]
            given = self.choices[0].kernel
            if gaussian:
                _start_noise(density, self.choices[0].noise_variance)
        each = np.mean(weights, axis=1)
        part = _kernel(given, X, self.columns, self.scaled, each)
        if given is None and isinstance(part, IsotropicStationary):  # without seasons
            values, _ = values_of(y, density, numbers)
            rows = _telling(each)
            few = X[rows], values[rows]
            exact = type(density) is Gaussian and self.points is None and len(X) <= EXACT_ROWS
            self.rough = roughness(part, *few, self.seed) if exact else 0.0
            if self.rough:
                part = Matern12(lengthscales=part.lengthscales.numpy())
            factor = lengthscale_factor(part, *few, self.seed)
            part.lengthscales.assign(part.lengthscales * factor)
        if given is None and isinstance(density, HeteroskedasticTFPConditional):
            part = SeparateIndependent([part, gpflow.utilities.deepcopy(part)])
        return part if self.mix is None else self.mix(part, y, weights=weights)


def _telling(weights: np.ndarray) -> np.ndarray:
    """Rows that say something, by weights [N]: others together say less than one usual row."""
    return weights * len(weights) ** 2 >= np.mean(weights)


def _without_points(
    data: tuple[np.ndarray, np.ndarray],
    kernel: Kernel,
    likelihood: Likelihood,
    mean: MeanFunction | None,
    seed: int,
    prediction_neighbours: int,
    spread_neighbours: int,
) -> GPModel | None:
    rows = len(data[0])
    one_each = isinstance(likelihood, ScalarLikelihood) and not isinstance(
        likelihood, SwitchedLikelihood
    )
    base = likelihood.likelihood if isinstance(likelihood, RowLikelihood) else likelihood
    one_each |= isinstance(base, HeteroskedasticTFPConditional)
    one_each |= isinstance(likelihood, RowLikelihood) and likelihood.by_entry
    exact = type(base) is Gaussian and not isinstance(kernel, LinearCoregionalization)
    most = EXACT_ROWS if exact else FULL_ROWS
    if isinstance(base, CategoricalLogit):
        one_each, most = True, classes_rows(base.num_classes)
    if one_each and rows <= most:
        return CVIGP(data, kernel, likelihood, mean_function=mean)
    if not _has_neighbours(likelihood, kernel):
        return None
    fewer_may_do = prediction_neighbours == PREDICTION_NEIGHBOURS
    model = NNGP(
        data,
        kernel,
        likelihood,
        num_neighbours=NUM_NEIGHBOURS,
        prediction_neighbours="auto" if fewer_may_do else prediction_neighbours,
        spread_neighbours=spread_neighbours,
        mean_function=mean,
        seed=seed,
    )
    model.prediction_neighbours = prediction_neighbours
    return model


def _check_auto(likelihood: Likelihood, y: np.ndarray, numbers: RowNumbers | None) -> None:
    several = isinstance(likelihood, SwitchedLikelihood) or not isinstance(
        likelihood, (ScalarLikelihood, CategoricalLogit)
    )
    why = {
        f"the likelihood {type(likelihood).__name__} has several latent functions": several,
        "rows have weights, offsets or other numbers": numbers is not None,
        "entries of Y are missing": bool(np.isnan(y.astype(np.float64)).any()),
    }
    for reason, there in why.items():
        if there:
            raise DataError(
                f'kernel="auto" compares kernels by least squares, and {reason}: pass a kernel,'
                " for example kernel=gpflow.kernels.Matern52()."
            )


def _start_noise(likelihood: Gaussian, variance: float) -> None:
    own = likelihood.variance
    if isinstance(own, gpflow.Parameter) and own.trainable and int(tf.size(own)) == 1:
        own.assign(max(variance, 1.01 * float(likelihood.variance_lower_bound)))


def _has_neighbours(likelihood: Likelihood, kernel: Kernel) -> bool:
    return type(likelihood) is Gaussian and not _mixes(kernel)


def _mixes(kernel: Kernel) -> bool:
    return isinstance(kernel, MultioutputKernel) and not isinstance(
        kernel, (SharedIndependent, SeparateIndependent)
    )


def _kernel(
    kernel: Kernel | Callable[[int], Kernel] | None,
    X: np.ndarray,
    columns: Sequence[Column],
    scaled: bool,
    weights: np.ndarray,
) -> Kernel:
    num_dims = X.shape[1]
    if kernel is None:
        dates = date_places(columns)
        plain = num_dims - 2 * len(dates)
        made = default_kernel(plain, (len(columns) or num_dims) - 2 * len(dates))
        centred = X[:, :plain] - np.average(X[:, :plain], axis=0, weights=weights)
        spread = np.sqrt(np.average(np.square(centred), axis=0, weights=weights))
        spread = np.where((spread > 0.0) & (not scaled), spread, 1.0)
        made.lengthscales.assign(made.lengthscales * spread)
        return with_seasons(made, dates, spread) if dates else made
    if callable(kernel) and not isinstance(kernel, (Kernel, type)):
        kernel = kernel(num_dims)
    check_kernel(kernel, num_dims)
    return gpflow.utilities.deepcopy(kernel)


def _latents(kernel: Kernel, likelihood: Likelihood, columns: int) -> int | None:
    if likelihood.latent_dim is not None or isinstance(kernel, MultioutputKernel):
        return None
    return columns - 1 if isinstance(likelihood, SwitchedLikelihood) else columns
