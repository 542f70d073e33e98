"""A model of arrays by the rules of docs/choosing.md."""

from __future__ import annotations

__all__ = ["NUM_INDUCING", "NUM_MEAN_POINTS", "build"]

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import gpflow
import numpy as np
import numpy.typing as npt
import tensorflow as tf
from gpflow.functions import Function, MeanFunction
from gpflow.kernels import (
    Kernel,
    LinearCoregionalization,
    MultioutputKernel,
    SeparateIndependent,
    SharedIndependent,
)
from gpflow.likelihoods import Gaussian, Likelihood, ScalarLikelihood, SwitchedLikelihood
from gpflow.models import GPModel

from ..errors import DataError, check_option
from ..inputs import check_whole
from ..models import CVIGP, NNGP
from ..models.checks import check_kernel
from ..training import Standardized
from ..training.stages.evidence_climb import has_evidence
from ..training.tables import Table
from .kernels import AUTO, PREDICTION_NEIGHBOURS, KernelChoice, choose_kernel
from .likelihoods import has_scale_by_name, likelihood_for, prior_mean, takes_classes
from .report import EXACT_ROWS, FULL_ROWS, report
from .sparse import ON_DATA, default_kernel, sparse_model

if TYPE_CHECKING:
    import pandas as pd

NUM_NEIGHBOURS = 30
"""Learning wants many rows with few neighbours, so that it meets rows that contradict each other.
"""
NUM_INDUCING, NUM_MEAN_POINTS = 300, 1000  # of models on inducing points, unless given
_SCALES = ("X", "Y", "both", "neither")


def build(
    X: npt.ArrayLike | pd.DataFrame,
    Y: npt.ArrayLike | pd.DataFrame | pd.Series | str | list[str],
    likelihood: str | Likelihood = "gaussian",
    kernel: Kernel | Callable[[int], Kernel] | str | None = None,
    *,
    scale: str | None = None,
    num_inducing: int | None = None,
    num_mean_points: int | str | None = None,
    seed: int = 0,
    seconds: float | None = None,
    verbose: bool = True,
) -> Standardized:
    """Return an untrained model of X and Y, chosen by their size, and print the choice.

    | rows | model |
    |---|---|
    | up to 2,000, Gaussian noise | `CVIGP`: the exact GP, trained by L-BFGS on the evidence |
    | up to 500, one latent function per output | `CVIGP`: a full GP |
    | more, Gaussian noise | `NNGP`: kernel, noise and intervals from nearest neighbours |
    | else, or several latent functions | `ODVGP`: 300 inducing and up to 1,000 mean points |
    | the same, no rows left for the mean | `BasisGP` with a `CoupledBasis` |

    X is standardised unless you pass a kernel, which is in units of X; indices, and columns of 0
    and 1 that stand for words, booleans and gaps, never are. Y is standardised if it is f plus
    noise ("gaussian", "student_t", "laplace"). Without inducing points "gaussian" has a noise for
    each output. Predictions are in the units of X and Y, and `model.model` is the model inside. If
    the mean of Y is exp(f) ("poisson", "negative_binomial", "gamma", "exponential"), a constant
    mean function starts at its logarithm. Cost: N (M_beta + M_gamma)^2, once, for the points.

    :param X: inputs [N, D] in their units; or a data frame, whose columns are encoded by the rules
        of `training.tables.Column`, printed, and remembered by name.
    :param Y: observations [N, P] or [N] in their units, or names of columns of a data frame X.
        Labels are 0 and 1 for "bernoulli" and "probit", 0, 1, ..., C - 1 for "multiclass"; words,
        and labels of a data frame, are numbered in order, `model.table.classes`. Rows of a frame
        without Y are left out.
    :param likelihood: "gaussian", "student_t", "laplace", "bernoulli" (a logistic link), "probit",
        "multiclass", "poisson", "negative_binomial", "gamma", "exponential", "beta", or a GPflow
        likelihood (copied) of standardised Y; functions of X in it take X in its units.
    :param kernel: a GPflow kernel (copied), or a function from D to one, of X in its units unless
        `scale` says otherwise, and of standardised Y where Y is standardised. By default Matern 5/2
        with one lengthscale per column, initially sqrt(D). "auto", for Gaussian noise, takes the
        roughest of nearest-neighbour GPs with Matern 1/2, 3/2, 5/2 and squared exponential kernels
        whose leave-one-out score is within a standard error of the best, and ranks of X
        (`training.NormalScores`) where they score higher.
    :param scale: the data to standardise: "X", "Y", "both", "neither"; by default by the rule
        above. Y only where it is f plus noise.
    :param num_inducing: M_beta; giving this or the next one selects inducing points.
    :param num_mean_points: M_gamma, further points of the mean; 0 for none, or "data" for a mean on
        all rows of X.
    :param seed: of the choice of points, rows of X of greatest conditional variance.
    :param seconds: of `kernel="auto"`, after which it tries no other candidate.
    :param verbose: False prints nothing.
    :return: the model, for `gpflow_decoupled.fit`.
    :raises DataError: for unusable data, labels outside of the support, and invalid counts.
    :raises UnknownOptionError: for an unknown likelihood, with the known names.

    Example::

        model = gpflow_decoupled.build(frame, "price")
        gpflow_decoupled.fit(model, frame)
        mean, variance = model.predict_y(new_frame)
    """
    beta = NUM_INDUCING if num_inducing is None else num_inducing
    gamma = NUM_MEAN_POINTS if num_mean_points is None else num_mean_points
    check_option("scale", scale, (None, *_SCALES))
    check_whole(0, seed=seed)
    _check_points(beta, gamma)
    chosen_points = num_inducing is not None or num_mean_points is not None
    choices: list[KernelChoice] = []
    search = partial(choose_kernel, seed=seed, seconds=seconds, progress=verbose)

    def inside(X: np.ndarray, Y: np.ndarray) -> GPModel:
        """The model of standardised X [N, D] and the likelihood's Y [N, P]."""
        density = likelihood_for(likelihood, Y, each=not chosen_points)
        given = kernel
        if isinstance(kernel, str) and kernel == AUTO:
            _check_auto(density)
            choices[:] = choices or [search(X, Y, fixed=_unscaled(table, scale))]
            given = choices[0].kernel
            _start_noise(density, choices[0].noise_variance)
        part = _kernel(given, X.shape[1], len(table.columns) or X.shape[1])
        mean = prior_mean(likelihood, Y)
        if not chosen_points:
            predicting = choices[0].prediction_neighbours if choices else PREDICTION_NEIGHBOURS
            without = _without_points((X, Y), part, density, mean, seed, predicting)
            if without is not None:
                return without
        return sparse_model(
            X,
            density,
            part,
            num_latent_gps=_latents(part, density, Y.shape[1]),
            num_inducing=beta,
            num_mean_points=gamma,
            mean_function=mean,
            seed=seed,
        )

    table, *data = Table.learn(*Table.split(X, Y), labels=takes_classes(likelihood))
    scaling = _scaling(scale, kernel, likelihood)
    standardized = partial(Standardized, inside, data, table=table, **scaling)
    model = standardized()
    if choices and choices[0].normal_scores:
        model = standardized(normal_scores=True)
    model.usual_options = {"optimizer": "lbfgs"} if has_evidence(model.model) else {}
    if verbose:
        print(report(model, chosen_points, choices))
    return model


def _without_points(
    data: tuple[np.ndarray, np.ndarray],
    kernel: Kernel,
    likelihood: Likelihood,
    mean: MeanFunction | None,
    seed: int,
    prediction_neighbours: int,
) -> GPModel | None:
    """Return the model without inducing points for standardised data; None if there is none."""
    rows = len(data[0])
    one_each = isinstance(likelihood, ScalarLikelihood) and not isinstance(
        likelihood, SwitchedLikelihood
    )
    exact = type(likelihood) is Gaussian and not isinstance(kernel, LinearCoregionalization)
    if one_each and rows <= (EXACT_ROWS if exact else FULL_ROWS):
        return CVIGP(data, kernel, likelihood, mean_function=mean)
    if _has_neighbours(likelihood, kernel):
        return NNGP(
            data,
            kernel,
            likelihood,
            num_neighbours=NUM_NEIGHBOURS,
            prediction_neighbours=prediction_neighbours,
            mean_function=mean,
            seed=seed,
        )
    return None


def _scaling(
    scale: str | None,
    kernel: Kernel | Callable[[int], Kernel] | str | None,
    likelihood: str | Likelihood,
) -> dict[str, bool]:
    own = _in_units(kernel, likelihood)
    return {
        "scale_outputs": has_scale_by_name(likelihood) and scale not in ("X", "neither"),
        "scale_inputs": not own if scale is None else scale in ("X", "both"),
    }


def _unscaled(table: Table, scale: str | None) -> np.ndarray:
    if scale in ("Y", "neither"):
        return np.array(True)
    return np.array(False) if table.measured is None else ~table.measured


def _check_auto(likelihood: Likelihood) -> None:
    if type(likelihood) is not Gaussian:
        raise DataError(
            f'kernel="auto" compares nearest-neighbour GPs with Gaussian noise, and the likelihood'
            f" is {type(likelihood).__name__}: pass a kernel, for example"
            " kernel=gpflow.kernels.Matern52."
        )


def _start_noise(likelihood: Gaussian, variance: float) -> None:
    own = likelihood.variance
    if isinstance(own, gpflow.Parameter) and own.trainable and int(tf.size(own)) == 1:
        own.assign(max(variance, 1.01 * float(likelihood.variance_lower_bound)))


def _has_neighbours(likelihood: Likelihood, kernel: Kernel) -> bool:
    """True if an `NNGP` takes both."""
    mixes = isinstance(kernel, MultioutputKernel) and not isinstance(
        kernel, (SharedIndependent, SeparateIndependent)
    )
    return type(likelihood) is Gaussian and not mixes


def _kernel(
    kernel: Kernel | Callable[[int], Kernel] | None, num_dims: int, measured: int
) -> Kernel:
    """Return a copied or default kernel that fits `num_dims` columns, of `measured` things."""
    if kernel is None:
        return default_kernel(num_dims, measured)
    if callable(kernel) and not isinstance(kernel, (Kernel, type)):
        kernel = kernel(num_dims)
    check_kernel(kernel, num_dims)
    return gpflow.utilities.deepcopy(kernel)


def _latents(kernel: Kernel, likelihood: Likelihood, columns: int) -> int | None:
    if likelihood.latent_dim is not None or isinstance(kernel, MultioutputKernel):
        return None
    return columns - 1 if isinstance(likelihood, SwitchedLikelihood) else columns


def _in_units(kernel: object, likelihood: object) -> bool:
    """True if the caller's kernel or likelihood reads X, so that X stays in its units."""
    reads = isinstance(likelihood, Likelihood) and any(
        isinstance(part, Function) for part in vars(likelihood).values()
    )
    return isinstance(kernel, Kernel) or callable(kernel) or reads


def _check_points(beta: int, gamma: int | str) -> None:
    check_whole(1, num_inducing=beta)
    if isinstance(gamma, str) and gamma != ON_DATA:
        raise DataError(
            f"num_mean_points={gamma!r} must be a number of points, or {ON_DATA!r} for a mean on"
            " all rows."
        )
    if gamma != ON_DATA:
        check_whole(0, num_mean_points=gamma)
