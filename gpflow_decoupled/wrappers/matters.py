"""Which inputs matter, and which of two models is better."""

from __future__ import annotations

__all__ = ["Comparison", "columns_of_inputs", "compare", "importance"]

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from gpflow.kernels import Combination, Kernel, MultioutputKernel, Stationary
from gpflow.models import GPModel

from ..errors import DataError, ModelError
from ..inputs import as_pair, as_values, check_whole
from ..training import Standardized

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
