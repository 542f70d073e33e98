"""Effects of inputs, and shares of a sum."""

from __future__ import annotations

__all__ = [
    "Comparison", "columns_of_inputs", "compare", "importance", "partial_dependence",
    "sobol_shares",
]  # fmt: skip

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from gpflow.kernels import (
    Combination,
    Kernel,
    MultioutputKernel,
    SeparateIndependent,
    Static,
    Stationary,
    Sum,
)
from gpflow.models import GPModel
from scipy.stats import norm

from ..errors import DataError, ModelError
from ..inputs import as_pair, as_values, check_rate, check_whole
from ..likelihoods.facts import has_log_scale
from ..training import Standardized

# ---
# Which inputs matter, and which of two models is better.


if TYPE_CHECKING:
    import pandas as pd


class Comparison(NamedTuple):
    """The difference of two models' log densities of the same held-out rows.

    Example::

        print(compare(smooth, rough, (X_test, Y_test)))
    """

    difference: float
    """Mean of the first less the second, in nats per row."""
    standard_error: float
    """Of the difference, from the rows' own differences; rows that follow each other in time are
    worth less than their number."""
    rows: int
    """How many rows were compared."""

    def __str__(self) -> str:
        return f"{self.difference:.4f} +- {self.standard_error:.4f} nats per row, {self.rows} rows"


def compare(
    first: GPModel | Standardized, second: GPModel | Standardized, data: Sequence[Any]
) -> Comparison:
    """Compare two models by the log densities of the same held-out rows.

    :param first: any GPflow model, or a built one.
    :param second: another one of the same target, in the same units.
    :param data: X [N, D] and Y [N, P]; or the frame of models of data frames.

    Cost: two predictions. Example::

        gain, error, rows = compare(smooth, rough, (X_test, Y_test))
    """
    scores = []
    for model in (first, second):
        pair = data if isinstance(model, Standardized) else as_pair(data)
        scores.append(np.asarray(model.predict_log_density(pair)))
    rows = scores[0] - scores[1]
    if len(rows) < 2:
        raise DataError(f"data have {len(rows)} rows; a standard error needs two at least.")
    return Comparison(
        float(np.mean(rows)), float(np.std(rows, ddof=1) / np.sqrt(len(rows))), len(rows)
    )


def importance(
    model: Standardized, data: Sequence[Any], *, repeats: int = 5, seed: int = 0
) -> pd.DataFrame:
    """How much each input matters to a built model, the most important first.

    | column | |
    |---|---|
    | permutation | nats per row that are lost where the rows of the input are exchanged |
    | standard_error | of that, from `repeats` permutations |
    | inverse_lengthscale | standard deviations of the input in a lengthscale, inverted: 0 is \
    irrelevant; of the smoothest kind of part that reads it |
    | lengthscale | in units of the input; infinite where no stationary kernel reads it |

    The first sees how wrong predictions get, the others how fast f varies along the input. The
    columns of a category move together.

    :param model: from `build`, or a `Standardized` one.
    :param data: held-out X [N, D] and Y [N, P], or the frame of a model of a frame.
    :param repeats: permutations of each input.
    :param seed: of the permutations.

    Cost: D `repeats` predictions. Example::

        print(importance(model, test_frame))
    """
    import pandas as pd

    if not isinstance(model, Standardized):
        raise ModelError(
            f"importance needs a model that knows its columns, not a {type(model).__name__}: make"
            " it by gpflow_decoupled.build or Standardized."
        )
    check_whole(1, repeats=repeats)
    X, Y = (as_values(part, name) for part, name in zip(model.table.arrays(data), "XY"))
    X = X.astype(np.float64)
    groups, rng = columns_of_inputs(model, X.shape[1]), np.random.default_rng(seed)
    whole = float(np.mean(model.predict_log_density((X, Y))))
    inverse = _inverse_lengthscales(model.model.kernel, X.shape[1])
    rows = []
    for name, columns in groups.items():
        losses = []
        for _ in range(repeats):
            mixed = X.copy()
            mixed[:, columns] = X[rng.permutation(len(X))][:, columns]
            losses.append(whole - float(np.mean(model.predict_log_density((mixed, Y)))))
        error = np.std(losses, ddof=1) / np.sqrt(repeats) if repeats > 1 else np.nan
        place = columns[int(np.argmax(inverse[columns]))]
        length = _scale(model, place) / inverse[place] if inverse[place] > 0.0 else np.inf
        rows.append((name, float(np.mean(losses)), error, inverse[place], length))
    names = ["input", "permutation", "standard_error", "inverse_lengthscale", "lengthscale"]
    table = pd.DataFrame(rows, columns=names).set_index("input")
    return table.sort_values("permutation", ascending=False)


def columns_of_inputs(model: Standardized, columns: int) -> dict[str, list[int]]:
    """The columns of X of each input, by its name."""
    if not model.table.columns:
        return {f"X[:, {column}]": [column] for column in range(columns)}
    groups, first = dict[str, list[int]](), 0
    for column in model.table.columns:
        groups.setdefault(str(column.name), []).extend(range(first, first + len(column.names)))
        first += len(column.names)
    return groups


def _scale(model: Standardized, column: int) -> float:
    scale = getattr(model.inputs, "scale", None)
    return 1.0 if scale is None else float(np.asarray(scale)[column])


def _inverse_lengthscales(kernel: Kernel, columns: int) -> np.ndarray:
    found = np.zeros(columns)
    if isinstance(kernel, (MultioutputKernel, Combination)):
        parts = kernel.latent_kernels if isinstance(kernel, MultioutputKernel) else kernel.kernels
        return np.max([_inverse_lengthscales(part, columns) for part in parts], axis=0)
    if isinstance(kernel, Stationary):
        dims = np.arange(columns)[kernel.active_dims]
        found[dims] = 1.0 / np.broadcast_to(kernel.lengthscales.numpy(), dims.shape)
    return found


# ---


if TYPE_CHECKING:
    import pandas as pd

_MOST_ROWS = 200
"""Rows of a covariance, drawn from more: its factorisation takes milliseconds."""


def partial_dependence(
    model: Standardized,
    X: Any,
    column: Hashable,
    *,
    output: int | None = None,
    grid_resolution: int = 30,
    level: float = 0.95,
    seed: int = 0,
) -> pd.DataFrame:
    """Mean of f over the rows of X where one input has each value of a grid, with intervals.

    The average over rows (Friedman, 2001) is Gaussian under the joint posterior. Unless y is f plus
    noise, f is the logarithm or the log odds.

    :param model: from `build`, or a `Standardized` one.
    :param X: rows [N, D], or a data frame; 200 of them are drawn if there are more.
    :param column: its name, or its number if X is an array.
    :param output: the number of f, one for each output or class; where noise varies 0 is f, 1 the
        logarithm of the noise.
    :param grid_resolution: values between the 5 % and 95 % quantiles; a category has each of its
        values.
    :param level: of the intervals.
    :param seed: of the rows.
    :return: columns "mean", "low", "high", with the values as index, in units of the data.

    Cost: `grid_resolution` joint predictions of 200 rows. Example::

        partial_dependence(model, frame, "bmi").plot(y=["low", "mean", "high"])
    """
    import pandas as pd

    _check_model(model)
    check_whole(2, grid_resolution=grid_resolution)
    if output is not None:
        check_whole(0, output=output)
    check_rate(1.0, level=level)
    rows = _some_rows(model, X, seed)
    values, name = _grid(rows, column, grid_resolution), str(column)
    found = []
    for value in values:
        moved = rows.copy()
        if isinstance(moved, np.ndarray):
            moved[:, column] = value
        else:
            moved[column] = value
        mean, cov = (np.asarray(part) for part in model.predict_f(moved, full_cov=True))
        place = _place(model, output, mean.shape[-1])
        # the mean of all N^2 covariances
        found.append((np.mean(mean[:, place]), np.sqrt(np.mean(cov[place]))))
    mean, deviation = np.array(found).T
    half = norm.ppf(0.5 + 0.5 * level) * deviation
    parts = {"mean": mean, "low": mean - half, "high": mean + half}
    return pd.DataFrame(parts, index=pd.Index(values, name=name))


def sobol_shares(
    model: Standardized,
    X: Any,
    *,
    output: int | None = None,
    draws: int = 500,
    level: float = 0.95,
    seed: int = 0,
) -> pd.DataFrame:
    """Shares of the variance of f over the rows of X that the parts of an additive kernel have.

    f is a sum of functions of different inputs, one for each part of a `Sum` kernel; parts of the
    same input count as one. Joint draws give intervals (Sobol, 1993).

    :param model: from `build`, or a `Standardized` one, with an additive kernel.
    :param X: rows [N, D], or a data frame; 200 of them are drawn if there are more.
    :param output: as of `partial_dependence`.
    :param draws: of the posterior.
    :param level: of the intervals.
    :param seed: of rows and draws.
    :return: columns "share", "low", "high", with the inputs of a part as index.

    Cost: one joint prediction of 200 rows, and `draws` products with its factor. Example::

        kernel = Matern52(active_dims=[0]) + Matern52(active_dims=[1])
        model = gd.build(X, Y, kernel=kernel)
        gd.fit(model)
        print(sobol_shares(model, X))
    """
    import pandas as pd

    _check_model(model)
    check_whole(2, draws=draws)
    if output is not None:
        check_whole(0, output=output)
    check_rate(1.0, level=level)
    rows = np.asarray(model.table.inputs(_some_rows(model, X, seed)), np.float64)
    functions = model.model.predict_f(model.inputs.transform(rows[:1]))[0].shape[-1]
    place = _place(model, output, int(functions))
    parts = _parts(model.model.kernel, place, rows.shape[1])
    if len(parts) < 2:
        raise ModelError(
            "The kernel is no sum of parts that read different inputs; pass such a one, for example"
            " kernel=Matern52(active_dims=[0]) + Matern52(active_dims=[1])."
        )
    count = max(2, _MOST_ROWS // len(parts))
    rows = rows[:count]
    middle = np.quantile(rows, 0.5, axis=0, method="lower")  # an entry: codes have no other
    moved = np.repeat(middle[None, None], len(parts), axis=0)
    moved = np.repeat(moved, len(rows), axis=1)
    for part, columns in enumerate(parts):
        # where f is a sum, the rest of the inputs adds a constant
        moved[part][:, columns] = rows[:, columns]
    mean, cov = (
        np.asarray(part)
        for part in model.model.predict_f(
            model.inputs.transform(moved.reshape(-1, rows.shape[1])), full_cov=True
        )
    )
    rng = np.random.default_rng(seed)
    sampled = rng.multivariate_normal(mean[:, place], cov[place], draws, method="eigh")
    variances = sampled.reshape(draws, len(parts), len(rows)).var(axis=2)
    shares = variances / variances.sum(axis=1, keepdims=True)
    ends = np.quantile(shares, [0.5 - 0.5 * level, 0.5 + 0.5 * level], axis=0)
    table = {"share": shares.mean(axis=0), "low": ends[0], "high": ends[1]}
    names = [_names(model, columns, rows.shape[1]) for columns in parts]
    return pd.DataFrame(table, index=pd.Index(names, name="inputs")).sort_values(
        "share", ascending=False
    )


def _check_model(model: object) -> None:
    if not isinstance(model, Standardized):
        raise ModelError(
            f"Effects of inputs are of a built model, and this is a {type(model).__name__}: build"
            " it by gpflow_decoupled.build, or Standardized."
        )


def _place(model: Standardized, output: int | None, count: int) -> int:
    if output is None and (count == 1 or has_log_scale(model.model.likelihood)):
        return 0
    if output is None or output >= count:
        raise DataError(
            f"output={output}: the model has {count} functions, and an effect is of one: pass its"
            f" number, 0 to {count - 1}."
        )
    return output


def _some_rows(model: Standardized, X: Any, seed: int) -> Any:
    frame = hasattr(X, "columns") and bool(model.table.columns)
    rows: Any = X if frame else np.asarray(X, np.float64)
    if not len(rows):
        raise DataError("X has no rows; pass rows over which to average.")
    if len(rows) <= _MOST_ROWS:
        return rows.copy()
    chosen = np.sort(np.random.default_rng(seed).choice(len(rows), _MOST_ROWS, replace=False))
    return rows.iloc[chosen].copy() if frame else rows[chosen]


def _grid(rows: Any, column: Hashable, number: int) -> np.ndarray:
    array = isinstance(rows, np.ndarray)
    known = list(range(rows.shape[1])) if array else list(rows.columns)
    if column not in known:
        raise DataError(f"column={column!r} is none of X, which has {known[:8]}; pass one of them.")
    values = rows[:, column] if array else rows[column]
    kinds = np.unique(values) if array else np.array(sorted(set(values.dropna())))
    if kinds.dtype.kind not in "fiu" or len(kinds) <= 2:
        return kinds
    low, high = np.quantile(kinds if array else values.dropna().to_numpy(), [0.05, 0.95])
    return np.linspace(low, high, number)


def _parts(kernel: Kernel, output: int, columns: int) -> list[list[int]]:
    latents: Sequence[Kernel] = [kernel]
    if isinstance(kernel, SeparateIndependent):
        latents = [kernel.kernels[output]]
    elif isinstance(kernel, MultioutputKernel):
        latents = kernel.latent_kernels
    found: list[set[int]] = []
    for part in (one for latent in latents for one in _summands(latent)):
        own = set(_columns(part, columns))
        if not own:
            continue
        met = [one for one in found if one & own]
        found = [one for one in found if not one & own] + [own.union(*met)]
    return [sorted(one) for one in found]


def _summands(kernel: Kernel) -> Sequence[Kernel]:
    return kernel.kernels if type(kernel) is Sum else [kernel]


def _columns(kernel: Kernel, columns: int) -> list[int]:
    if isinstance(kernel, Combination):
        return sorted({one for part in kernel.kernels for one in _columns(part, columns)})
    if isinstance(kernel, Static):
        return []
    return [int(one) for one in np.arange(columns)[kernel.active_dims]]


def _names(model: Standardized, part: list[int], columns: int) -> str:
    groups = columns_of_inputs(model, columns)
    return ", ".join(name for name, own in groups.items() if set(own) & set(part))
