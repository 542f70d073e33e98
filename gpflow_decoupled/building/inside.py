"""The model of standardised data that `build` chooses."""

from __future__ import annotations

__all__ = [
    "EXACT_ROWS", "FULL_ROWS", "Inside", "NUM_INDUCING", "NUM_MEAN_POINTS", "ON_DATA",
    "RowArguments", "can_initialize", "classes_rows", "default_kernel", "report",
    "sparse_model", "take_rows", "with_rows",
]  # fmt: skip

import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.functions import MeanFunction
from gpflow.inducing_variables import InducingPoints, SharedIndependentInducingVariables
from gpflow.kernels import (
    IsotropicStationary,
    Kernel,
    LinearCoregionalization,
    Matern12,
    MultioutputKernel,
    SeparateIndependent,
    SharedIndependent,
)
from gpflow.likelihoods import Gaussian, Likelihood
from gpflow.models import GPModel

from ..bases import CoupledBasis
from ..covariances.mixed import kernel_of, over_categories
from ..diagnostics import lengthscale_factor, roughness, values_of
from ..errors import DataError
from ..inducing import select
from ..inputs import stacked
from ..likelihoods import RowLikelihood
from ..likelihoods.facts import (
    base_of,
    couples_latents,
    has_latent_scale,
    has_tasks,
    is_by_entry,
    is_gaussian,
    is_scalar,
    name_of,
    own_number,
)
from ..likelihoods.row_likelihood import NEUTRAL
from ..models import CVIGP, NNGP, ODVGP, BasisGP
from ..models.checks import check_kernel, check_mean_function, infer_num_latent_gps
from ..training import NormalScores, Standardization, Standardized
from ..training.stages.sites import has_evidence
from ..training.standardization import ARGUMENTS, RowNumbers, number_columns
from ..training.tables import Table, check_order, is_frame
from ..training.units import StandardizedMean, fixed_numbers_inside
from .kernels import (
    AUTO,
    PREDICTION_NEIGHBOURS,
    SPREAD_NEIGHBOURS,
    KernelChoice,
    date_places,
    with_seasons,
)
from .likelihoods import likelihood_for, prior_mean

# ---
# Arguments of `build` with a number for each row.


RowArguments = Mapping[str, Any]  # arrays, or names of columns
"""By the name of the argument."""


def take_rows(
    X: Any, arguments: RowArguments, Y: Any, own: str | None = None
) -> tuple[Any, np.ndarray | None, RowNumbers | None]:
    """X without the columns that are numbers of rows, these numbers [N, k], and what they are.

    :param X: a data frame, or a matrix.
    :param arguments: None where nothing is given; arrays [N] or [N, P], or names of columns of X.
    :param Y: observations [N, P] or [N].
    :param own: the argument that the likelihood needs.
    """
    given = {name: value for name, value in arguments.items() if value is not None}
    if own is not None:
        given.setdefault(own, np.full(len(X), NEUTRAL[own]))
    check_order(X=X, Y=Y, **given)
    if "offset" in given and "exposure" in given:
        raise DataError("offset and exposure are both given, and exposure is exp(offset): pass one")
    shape = stacked(Y, "Y").shape
    outputs = shape[1] if len(shape) > 1 else 1
    blocks, names, columns = [], list[str](), list[tuple[str, Hashable]]()
    for argument, value in given.items():
        if isinstance(value, str):
            if not is_frame(X) or value not in X.columns:
                raise DataError(f"{argument}={value!r} is no column of X; pass numbers, [N].")
            columns.append((argument, value))
            value = X[value].to_numpy()
        block = number_columns(argument, value, len(X), outputs)
        blocks.append(block)
        names += [ARGUMENTS[argument]] * block.shape[1]
    if not blocks:
        return X, None, None
    rest = X.drop(columns=[name for _, name in columns]) if columns else X
    return rest, np.hstack(blocks), RowNumbers(outputs, tuple(names), tuple(columns))


def with_rows(likelihood: Likelihood, numbers: RowNumbers | None, gaps: bool) -> Likelihood:
    """The likelihood of rows with numbers, or gaps; itself without either, or with its number."""
    names = () if numbers is None else numbers.names
    own = own_number(likelihood)
    if names == (() if own is None else (own,)) and not gaps:
        return likelihood
    return RowLikelihood(likelihood, names)


# ---
# A model on inducing points for plain arrays.


ON_DATA = "data"
"""A number of mean points that stands for a mean on all rows."""


def sparse_model(
    X: np.ndarray,
    likelihood: Likelihood,
    kernel: Kernel | None = None,
    *,
    num_latent_gps: int | None = 1,
    num_inducing: int = 300,
    num_mean_points: int | str = 1000,
    mean_function: MeanFunction | None = None,
    seed: int = 0,
) -> BasisGP:
    """An untrained `ODVGP`, or `BasisGP` with a `CoupledBasis` if no rows are left for the mean.

    Points are rows of greatest conditional variance. Cost: N (M_beta + M_gamma)^2, once.

    :param X: standardised inputs [N, D].
    :param kernel: copied; by default Matern 5/2 with a lengthscale of sqrt(D) per column.
    :param num_latent_gps: L; None takes the likelihood's or the kernel's, else 1.
    :param num_inducing: M_beta, at most the number of distinct rows of X.
    :param num_mean_points: M_gamma, at most the remaining distinct rows; or "data".
    """
    kernel = gpflow.utilities.deepcopy(kernel) if kernel is not None else default_kernel(X.shape[1])
    distinct = len(np.unique(X, axis=0))
    M_beta = min(num_inducing, distinct)
    M_gamma = 0 if num_mean_points == ON_DATA else min(int(num_mean_points), distinct - M_beta)
    with warnings.catch_warnings():
        # `select` warns that it looks at a sample of many rows, or takes random ones where no
        # variance is left: both will do
        warnings.simplefilter("ignore", UserWarning)
        seen = kernel.latent_kernels[0] if isinstance(kernel, MultioutputKernel) else kernel
        beta = select(X, M_beta, seen, seed=seed)
        gamma = select(X, M_gamma, seen, given=beta, seed=seed) if M_gamma else None
    if num_mean_points == ON_DATA:
        return ODVGP(
            kernel,
            likelihood,
            ON_DATA,
            beta,
            num_latent_gps=num_latent_gps,
            mean_function=mean_function,
        )
    if gamma is None:
        if isinstance(kernel, MultioutputKernel):  # all latents share the points
            beta = SharedIndependentInducingVariables(InducingPoints(beta))
        basis = CoupledBasis(beta, infer_num_latent_gps(kernel, likelihood, num_latent_gps))
        return BasisGP(kernel, likelihood, basis, mean_function=mean_function)
    return ODVGP(
        kernel, likelihood, gamma, beta, num_latent_gps=num_latent_gps, mean_function=mean_function
    )


def default_kernel(
    num_dims: int, measured: int | None = None, categories: Sequence[int] = ()
) -> Kernel:
    """Matern 5/2 with D lengthscales, all at about the distance of two standardised rows.

    :param num_dims: D.
    :param measured: variables behind the columns, several columns of 0 and 1 for one; the distance
        is its root. By default D.
    :param categories: columns of codes.
    """
    distance = np.sqrt(num_dims if measured is None else measured)
    return kernel_of(gpflow.kernels.Matern52, np.full(num_dims, distance), categories)


# ---
# The lines that `build` prints.


FULL_ROWS, EXACT_ROWS = 500, 2000
"""Rows up to which a full GP, at N^3 a step, is no slower than one on inducing points; and up to
which it is the default with Gaussian noise, where L-BFGS needs some 50 evaluations."""


def classes_rows(classes: int) -> int:
    """`FULL_ROWS` for a latent function per class: they cost as much as `FULL_ROWS` of three
    classes.
    """
    return int(FULL_ROWS * min(1.0, 3.0 / classes) ** (1.0 / 3.0))


def can_initialize(model: GPModel) -> bool:
    """True if `fit(initialize="auto")` takes the model: inducing points, Gaussian, one kernel."""
    one_kernel = not isinstance(model.kernel, MultioutputKernel)
    return isinstance(model, BasisGP) and is_gaussian(model.likelihood) and one_kernel


def _scaled(model: Standardized, given: bool, fixed: bool) -> str:
    if isinstance(model.inputs, NormalScores):
        return "X by its ranks" if model.outputs is None else "X by its ranks, Y standardised"
    inputs = bool(np.any(model.inputs.scale.numpy() != 1.0))
    scaled = [*(["X"] if inputs else []), *(["Y"] if model.outputs is not None else [])]
    said = f"{' and '.join(scaled) or 'nothing'} standardised"
    said += "" if inputs else ", X in its units, which the kernel has too"
    if not given or model.outputs is None:
        return said
    if fixed:
        return said + ", but the noise of your likelihood, which does not train, in units of Y"
    # the user's numbers mean something else than in a model without scales
    return said + ", to which Y the numbers of your likelihood belong"


def _known_noise(model: Standardized) -> list[str]:
    if model.numbers is None or "noise" not in model.numbers.names:
        return []
    return ["predict_y adds the learned noise, and known noise where noise_variance= is passed"]


def _rough(nats: float) -> str:
    return (
        f"kernel Matern 1/2, as Y is rough: some rows have {nats:.0f} nats more evidence for it"
        ' than for Matern 5/2; kernel="auto" compares more'
    )


def _why(inside: GPModel, chosen_points: bool) -> str:
    if has_evidence(inside):
        return (
            f"a full GP, exact for Gaussian noise, trained by L-BFGS: up to {EXACT_ROWS} rows that"
            " takes seconds"
        )
    if isinstance(inside, CVIGP):
        classes = getattr(inside.likelihood, "num_classes", 1)
        return (
            f"a full GP, for up to {classes_rows(classes)} rows, trained by L-BFGS on the bound at"
            " the best sites"
        )
    if isinstance(inside, NNGP):
        few = inside.num_neighbours
        nearest = f"{inside.prediction_neighbours}"
        if inside.chooses_neighbours:
            other = "as many more" if inside.prediction_neighbours == few else "fewer"
            nearest += f", or {other} as leave-one-out asks for at the end of fit"
        return (
            f"learns from random rows given their {few} nearest earlier ones, and predicts from the"
            f" nearest {nearest}"
        )
    if isinstance(inside, ODVGP) and inside.basis.data_mean is not None:
        return (
            "the mean is on all rows, and the covariance on beta, points where the kernel is least"
            " certain"
        )
    if isinstance(inside, ODVGP):
        return (
            "points where the kernel is least certain: beta for mean and covariance, gamma for the"
            " mean alone"
        )
    others = "as asked" if chosen_points else "no rows are left for more of them"
    return (
        "points where the kernel is least certain, for mean and covariance; none for the mean"
        f" alone, {others}"
    )


def report(
    model: Standardized,
    chosen_points: bool,
    choices: Sequence[KernelChoice],
    given: bool,
    fixed: bool,
    rough: float,
) -> str:
    """A few lines on the choice and its reason.

    :param given: the likelihood is an object of the user.
    :param fixed: it has noise that does not train.
    :param rough: nats for the default kernel of rough functions; 0 where that is another one.
    """
    inside = model.model
    rows, columns = model.shape
    data = "frame" if model.table.columns and model.table.targets else "(X, Y)"
    start = ', initialize="auto"' if can_initialize(inside) else ""
    return "\n".join(
        [
            f"{inside!r} of {rows} rows and {columns} column{'s' if columns > 1 else ''}:",
            *filter(None, [str(model.table)]),
            *(f"  {choice}" for choice in choices),
            *([f"  {_rough(rough)};"] if rough else []),
            f"  {_why(inside, chosen_points)};",
            *(f"  {line};" for line in _known_noise(model)),
            (
                f"  {_scaled(model, given, fixed)}, predictions in your units; train it by"
                f" gpflow_decoupled.fit(model, {data}{start})."
            ),
        ]
    )


# ---


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
    table: Table
    """Of the data frame that X was; without columns for an array."""
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
        if self.units is not None:
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
        if not is_scalar(likelihood):
            raise DataError(
                f"a {name_of(likelihood)} has several latent functions, and mean_function="
                " is for one of each output: leave it out."
            )
        check_mean_function(self.mean_function, X.shape[1], y.shape[1])  # by its own name
        made = gpflow.utilities.deepcopy(self.mean_function)
        return made if self.units is None else StandardizedMean(made, self.units)

    def _of_classes(self, rows: int, likelihood: Likelihood, kernel: Kernel) -> int | None:
        """m for classes where the caller chose no points and a full GP is slow; else None."""
        # after a minute of a core 300 points had the better log loss on two of ten sets
        if self.points is not None or not couples_latents(likelihood) or _mixes(kernel):
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
            gaussian = is_gaussian(density)
            if not gaussian:
                _check_auto(density, y, self.numbers)
            self.choices[:] = self.choices or [self.search(X, y, None if gaussian else density)]
            given = self.choices[0].kernel
            if gaussian:
                _start_noise(density, self.choices[0].noise_variance)
        each = np.mean(weights, axis=1)
        part = _kernel(given, X, self.table, self.scaled, each)
        if given is None and isinstance(part, IsotropicStationary):  # without seasons
            values, _ = values_of(y, density, numbers)
            rows = _telling(each)
            few = X[rows], values[rows]
            exact = is_gaussian(density) and self.points is None and len(X) <= EXACT_ROWS
            self.rough = roughness(part, *few, self.seed) if exact else 0.0
            if self.rough:
                lengths, codes = part.lengthscales.numpy(), self.table.coded
                part = kernel_of(Matern12, lengths, codes)
            factor = lengthscale_factor(part, *few, self.seed)
            part.lengthscales.assign(part.lengthscales * factor)
        if given is None and has_latent_scale(density):
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
    base = base_of(likelihood)
    one_each = is_by_entry(base) or has_latent_scale(base)
    exact = is_gaussian(base) and not isinstance(kernel, LinearCoregionalization)
    most = EXACT_ROWS if exact else FULL_ROWS
    if couples_latents(base):
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
    several = not (is_by_entry(likelihood) or couples_latents(likelihood))
    why = {
        f"the likelihood {name_of(likelihood)} has several latent functions": several,
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
    return is_gaussian(likelihood) and not _mixes(kernel)


def _mixes(kernel: Kernel) -> bool:
    return isinstance(kernel, MultioutputKernel) and not isinstance(
        kernel, (SharedIndependent, SeparateIndependent)
    )


def _kernel(
    kernel: Kernel | Callable[[int], Kernel] | None,
    X: np.ndarray,
    table: Table,
    scaled: bool,
    weights: np.ndarray,
) -> Kernel:
    num_dims, columns = X.shape[1], table.columns
    if kernel is None:
        dates = date_places(columns)
        plain = num_dims - 2 * len(dates)
        made = default_kernel(plain, (len(columns) or num_dims) - 2 * len(dates), table.coded)
        centred = X[:, :plain] - np.average(X[:, :plain], axis=0, weights=weights)
        spread = np.sqrt(np.average(np.square(centred), axis=0, weights=weights))
        spread[table.coded] = 1.0
        spread = np.where((spread > 0.0) & (not scaled), spread, 1.0)
        made.lengthscales.assign(made.lengthscales * spread)
        return with_seasons(made, dates, spread) if dates else made
    if callable(kernel) and not isinstance(kernel, (Kernel, type)):
        kernel = kernel(num_dims)
    check_kernel(kernel, num_dims)
    return over_categories(kernel, table.coded)


def _latents(kernel: Kernel, likelihood: Likelihood, columns: int) -> int | None:
    if likelihood.latent_dim is not None or isinstance(kernel, MultioutputKernel):
        return None
    return columns - has_tasks(likelihood)
