"""`build`, by the rules of docs/choosing.md."""

from __future__ import annotations

__all__ = ["COREGIONALISED", "NUM_INDUCING", "NUM_MEAN_POINTS", "build", "coregionalised"]

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import gpflow
import numpy as np
import numpy.typing as npt
from gpflow.functions import Function, MeanFunction
from gpflow.kernels import Kernel, MultioutputKernel
from gpflow.likelihoods import Likelihood

from ..covariances.latents import SharedAndOwn
from ..covariances.mixed import takes_categories
from ..errors import DataError, check_option
from ..inputs import as_array, check_same_rows, check_whole
from ..likelihoods.facts import has_scale, is_by_entry, label_kind, own_number
from ..models.checks import check_mean_function
from ..training import Standardized
from ..training.stages.sites import has_best_sites
from ..training.tables import Table, is_truth, periods
from ..training.units import scaling_of_outputs
from ..user_warnings import warn_user
from .inside import NUM_INDUCING, NUM_MEAN_POINTS, ON_DATA, Inside, report, take_rows
from .kernels import AUTO, CANDIDATES, KernelChoice, choose_kernel, choose_label_kernel
from .likelihoods import example_of, most_classes, with_level

# ---
# Several outputs that share latent functions.


COREGIONALISED = "coregionalised"
"""The word for outputs that are mixtures of a few latent functions."""
_LEAST = 0.05
"""Least deviation, beside the largest, of a latent function at the start, which still can grow."""
_OWN = 0.1
"""Variance of an output's own function at the start, of standardised outputs."""


def coregionalised(
    kernel: Kernel, Y: np.ndarray, rank: int | None = None, *, weights: np.ndarray
) -> SharedAndOwn:
    """A kernel of P outputs f = W g + h, with `rank` shared latents g, and one h for each output.

    W [P, rank] starts at the principal components of Y. Latent kernels are copies of `kernel`; the
    variances of g's are fixed.

    :param Y: standardised outputs [N, P], NaN where they are missing.
    :param rank: shared latents, at most P; by default 1 for two outputs, else 2.
    :param weights: how much each entry counts, [N, P].
    """
    outputs = Y.shape[1]
    if isinstance(kernel, MultioutputKernel):
        raise DataError(
            f"a {type(kernel).__name__} has its own outputs: leave outputs={COREGIONALISED!r} out,"
            " or pass the kernel of one latent function."
        )
    rank = min(2, max(1, outputs - 1)) if rank is None else rank
    if outputs < 2 or rank > outputs:
        raise DataError(
            f"outputs={COREGIONALISED!r} with rank={rank} mixes {rank} latent functions into"
            f" {outputs} output{'s' if outputs > 1 else ''}: pass two outputs or more, and a rank"
            " of at most their number."
        )
    seen = ~np.isnan(Y) * weights
    mean = np.sum(seen * np.nan_to_num(Y), axis=0) / np.sum(seen, axis=0)
    filled = np.where(np.isnan(Y), 0.0, Y - mean) * np.sqrt(weights / np.sum(weights, axis=0))
    _, sizes, components = np.linalg.svd(filled, full_matrices=False)
    sizes = np.maximum(sizes, _LEAST * np.max(sizes, initial=1e-300))
    latents = [gpflow.utilities.deepcopy(kernel) for _ in range(rank + outputs)]
    for place, latent in enumerate(latents):
        if hasattr(latent, "variance"):
            latent.variance.assign(1.0 if place < rank else _OWN)
            gpflow.set_trainable(latent.variance, place >= rank)
    return SharedAndOwn(latents, (components[:rank] * sizes[:rank, None]).T)


# ---


if TYPE_CHECKING:
    import pandas as pd

CODED_ABOVE = 8
"""Categories of a column above which they share a lengthscale. With 600 rows and hours, months or
weather in words, the log density rose in two of two splits of bike_count, metro_traffic and
flights each, by 0.01 to 0.18; with up to 8 levels it rose on rwm5yr and fell on diamonds."""
_SCALES = ("X", "Y", "both", "neither")


def build(
    X: npt.ArrayLike | pd.DataFrame,
    Y: npt.ArrayLike | pd.DataFrame | pd.Series | str | list[str],
    likelihood: str | Likelihood = "gaussian",
    kernel: Kernel | Callable[[int], Kernel] | str | None = None,
    *,
    mean_function: MeanFunction | None = None,
    scale: str | None = None,
    sample_weight: npt.ArrayLike | str | None = None,
    offset: npt.ArrayLike | str | None = None,
    exposure: npt.ArrayLike | str | None = None,
    noise_variance: npt.ArrayLike | str | None = None,
    trials: npt.ArrayLike | str | None = None,
    censored: npt.ArrayLike | str | None = None,
    quantile: float | None = None,
    season: str | float | Sequence[str | float] | None = None,
    outputs: str | None = None,
    rank: int | None = None,
    num_inducing: int | None = None,
    num_mean_points: int | str | None = None,
    num_neighbours: int | None = None,
    seed: int = 0,
    seconds: float | None = None,
    verbose: bool = True,
) -> Standardized:
    """Return an untrained model of X and Y, chosen by their size, and print the choice.

    | rows | model |
    |---|---|
    | up to 2,000, Gaussian noise | `CVIGP`: the exact GP, trained by L-BFGS on the evidence |
    | up to 500, one latent function per output | `CVIGP`: a full GP, L-BFGS on the bound |
    | the same, classes: 334 for ten of them | `CVIGP` with `CategoricalLogit` |
    | more, Gaussian noise | `NNGP`: kernel, noise and intervals from nearest neighbours |
    | more, three or more classes | `NNGP`: least squares from nearest neighbours |
    | else, or several latent functions | `ODVGP`: 300 inducing and up to 1,000 mean points |
    | the same, no rows left for the mean | `BasisGP` with a `CoupledBasis` |
    | any, `num_neighbours` given | `NNGP`, for labels and counts too |

    Predictions are in units of X and Y; `model.model` is the model inside. Cost: N (M_beta +
    M_gamma)^2, once, for the points.

    :param X: inputs [N, D]; or a data frame or a column of it, encoded by `training.tables.Column`,
        printed, and remembered by name. More than 8 words of a column share a lengthscale, unless
        the kernel is a function, or not stationary.
    :param Y: observations [N, P] or [N], or names of columns of a data frame X. Labels are 0 and 1,
        or 0, ..., C - 1 for "multiclass" and "ordinal"; other labels of a frame are numbered in
        order, `model.table.classes`. Rows of a frame without Y are left out; NaN among several
        outputs is in no sum.
    :param likelihood: "gaussian", "student_t", "laplace", "heteroskedastic", "bernoulli"
        (logistic), "probit", "multiclass", "ordinal" (grades), "poisson", "negative_binomial",
        "zero_inflated_poisson", "hurdle_poisson", "zero_inflated_negative_binomial",
        "hurdle_negative_binomial", "binomial", "beta_binomial", "tobit", "weibull", "log_normal",
        "quantile", "tweedie", "gamma", "exponential", "beta", or a GPflow likelihood (copied): a
        scale of noise that does not train is in units of Y, one that does starts in standard
        deviations of Y, printed.
    :param kernel: a GPflow kernel (copied), or a function from D to one, of X in its units. By
        default Matern 5/2, or 1/2 where up to 2,000 rows with Gaussian noise are clearly rough,
        from lengthscales of sqrt(D), or shorter ones. "auto" compares four smoothnesses, and ranks
        of X (`training.NormalScores`), by left-out rows of nearest-neighbour GPs; labels and counts
        by least squares.
    :param mean_function: of f, a GPflow mean function (copied) of X in its units: in units of Y
        where that is f plus noise. Trained too; for one latent function per output.
    :param scale: standardise "X", "Y", "both" or "neither". By default X unless a kernel or mean
        function is given, and Y if it is f plus noise.
    :param sample_weight: how much each row counts beside others, [N]: weights are divided by their
        mean, and 2 is not two rows; rows of weight 0 are left out. Known precisions belong in
        `noise_variance`. This and the next ones may be columns of a frame.
    :param offset: added to f in each row, [N] or [N, P], in units of Y where that is f plus noise.
    :param exposure: exp(offset) of each row, above 0, for rates.
    :param noise_variance: known noise of each row in squared units of Y, [N] or [N, P], beside the
        learned one, which alone `predict_y` adds without `noise_variance=` of the new rows.
    :param trials: of each row, where Y counts successes; 1 where not given.
    :param censored: codes of rows for "tobit", "weibull" and "log_normal": 0 observed, 1 true value
        above y, -1 below; 0 where not given.
    :param quantile: level of "quantile", which `predict_f` predicts; by default 0.5.
    :param season: of a frame's dates: "day", "week", "year", a number of days, or several. The
        default kernel has a trend, and a slowly changing part that returns after each.
    :param outputs: "coregionalised": outputs share `rank` latent GPs, beside one each, and fill
        each other's gaps; None learns each alone, with one kernel.
    :param rank: shared latent GPs; by default 1 for two outputs, else 2.
    :param num_inducing: M_beta; this or the next one selects inducing points.
    :param num_mean_points: M_gamma, further points of the mean; 0 for none, "data" for all rows.
    :param num_neighbours: m of an `NNGP`, for any likelihood: 40 is usual for two classes and
        counts, else 30.
    :param seed: of the choice of points.
    :param seconds: limit of `kernel="auto"`.
    :param verbose: False prints nothing.
    :return: the model, for `gpflow_decoupled.fit`.

    Example::

        model = gpflow_decoupled.build(frame, "price")
        gpflow_decoupled.fit(model, frame)
        mean, variance = model.predict_y(new_frame)
    """
    beta, gamma = _points(num_inducing, num_mean_points)
    chosen_points = num_inducing is not None or num_mean_points is not None
    _check_options(scale, outputs, (seed, rank), (beta, gamma))
    _check_neighbours(num_neighbours, chosen_points, outputs)
    (X, Y), likelihood = Table.split(X, Y), with_level(likelihood, quantile)
    known = example_of(likelihood)
    arguments = {
        "sample_weight": sample_weight, "offset": offset, "exposure": exposure,
        "noise_variance": noise_variance, "trials": trials, "censored": censored,
    }  # fmt: skip
    X, of_rows, numbers = take_rows(X, arguments, Y, own_number(known))
    table, *data = Table.learn(
        X,
        Y,
        labels=None if trials is not None else most_classes(likelihood),
        grades=label_kind(known) == "grades",
        gaps=is_by_entry(known),
        numbers=of_rows,
        weights=None if numbers is None or of_rows is None else numbers.weights(of_rows),
        seasons=periods(season),
        coded_above=CODED_ABOVE if _takes_codes(kernel) else np.inf,
    )
    _check_rows(data, Y, known)
    _check_mean(mean_function, kernel)
    scaling = _scaling(scale, kernel, known, mean_function)
    units = scaling_of_outputs(data[1], numbers, True) if scaling["scale_outputs"] else None
    search = partial(_choose, seed=seed, seconds=seconds, progress=verbose)
    inside = Inside(
        likelihood, kernel,
        partial(search, fixed=_unscaled(table, scale), categories=table.coded), table,
        scaling["scale_inputs"], numbers,
        None if outputs is None else partial(coregionalised, rank=rank),
        (beta, gamma) if chosen_points else None, num_neighbours, mean_function, units, seed,
    )  # fmt: skip
    standardized = partial(
        Standardized, inside, data, table=table, numbers=numbers, gaps=True, **scaling
    )
    model, choices = standardized(), inside.choices
    if choices and choices[0].normal_scores:
        model = standardized(normal_scores=True)
    model.usual_options = {"optimizer": "lbfgs"} if has_best_sites(model.model) else {}
    if verbose:
        given = known is likelihood and not quantile
        print(report(model, chosen_points, choices, given, inside.fixed, inside.rough))
    return model


def _choose(
    X: np.ndarray, Y: np.ndarray, likelihood: Likelihood | None, **options: Any
) -> KernelChoice:
    if likelihood is None:
        return choose_kernel(X, Y, **options)
    return choose_label_kernel(X, Y, likelihood, **options)


def _scaling(
    scale: str | None,
    kernel: Kernel | Callable[[int], Kernel] | str | None,
    likelihood: Likelihood,
    mean_function: MeanFunction | None,
) -> dict[str, bool]:
    own = mean_function is not None or _in_units(kernel, likelihood)
    return {
        "scale_outputs": has_scale(likelihood) and scale not in ("X", "neither"),
        "scale_inputs": not own if scale is None else scale in ("X", "both"),
    }


def _takes_codes(kernel: Kernel | Callable[[int], Kernel] | str | None) -> bool:
    """True for kernels that may read columns of codes, whatever these are."""
    if not isinstance(kernel, Kernel):
        return not callable(kernel)
    return takes_categories(kernel)


def _unscaled(table: Table, scale: str | None) -> np.ndarray:
    if scale in ("Y", "neither"):
        return np.array(True)
    return np.array(False) if table.measured is None else ~table.measured


def _in_units(kernel: object, likelihood: Likelihood) -> bool:
    reads = any(isinstance(part, Function) for part in vars(likelihood).values())
    return isinstance(kernel, Kernel) or callable(kernel) or reads


def _check_rows(data: list[Any], Y: Any, likelihood: Likelihood) -> None:
    check_same_rows(as_array(data[0], "X"), data[1])
    if has_scale(likelihood) and is_truth(Y):
        warn_user(
            "Y is true or false, and this likelihood takes it for any number near 0 and 1: pass"
            ' likelihood="bernoulli" for probabilities, or Y.astype(float).'
        )


def _check_mean(mean_function: MeanFunction | None, kernel: object) -> None:
    check_mean_function(mean_function, None, 1)
    if isinstance(kernel, str) and kernel != AUTO:
        kinds = ", ".join(f"gpflow.kernels.{kind.__name__}()" for kind in CANDIDATES.values())
        raise DataError(
            f'kernel={kernel!r} is no name of a kernel: pass "{AUTO}", which compares four, or one'
            f" of {kinds}, or any other; SquaredExponential is also called RBF."
        )
    if mean_function is not None and isinstance(kernel, str):
        raise DataError(
            f"kernel={kernel!r} compares kernels without a mean function: pass a kernel beside"
            " mean_function, or take the mean off Y."
        )


def _check_options(
    scale: str | None,
    outputs: str | None,
    numbers: tuple[int, int | None],
    points: tuple[int, int | str],
) -> None:
    check_option("scale", scale, (None, *_SCALES))
    check_option("outputs", outputs, (None, COREGIONALISED))
    seed, rank = numbers
    check_whole(0, seed=seed)
    if rank is not None:
        check_whole(1, rank=rank)
    _check_points(*points)


def _points(num_inducing: int | None, num_mean_points: int | str | None) -> tuple[int, int | str]:
    beta = NUM_INDUCING if num_inducing is None else num_inducing
    return beta, NUM_MEAN_POINTS if num_mean_points is None else num_mean_points


def _check_neighbours(num_neighbours: int | None, chosen_points: bool, outputs: str | None) -> None:
    if num_neighbours is None:
        return
    check_whole(1, num_neighbours=num_neighbours)
    if chosen_points or outputs is not None:
        other = "outputs" if outputs is not None else "num_inducing and num_mean_points"
        raise DataError(
            f"num_neighbours={num_neighbours} asks for a nearest-neighbour GP, and {other} for"
            " inducing points: leave one of them out."
        )


def _check_points(beta: int, gamma: int | str) -> None:
    check_whole(1, num_inducing=beta)
    if isinstance(gamma, str) and gamma != ON_DATA:
        raise DataError(
            f"num_mean_points={gamma!r} must be a number of points, or {ON_DATA!r} for a mean on"
            " all rows."
        )
    if gamma != ON_DATA:
        check_whole(0, num_mean_points=gamma)
