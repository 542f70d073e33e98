"""A model of scaled data; indices are not scaled."""

from __future__ import annotations

__all__ = ["Build", "Scaling", "build_scaled", "scaled_columns", "scaling_of_outputs"]

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from gpflow.config import default_float
from gpflow.models import GPModel

from ..covariances.indices import indices_of
from ..diagnostics import has_scale
from ..errors import DataError, ModelError
from ..summaries import short_repr
from .normal_scores import NormalScores
from .row_numbers import RowNumbers
from .standardization import Standardization
from .tables import Table

Build: TypeAlias = Callable[[np.ndarray, np.ndarray], GPModel]
Scaling: TypeAlias = Standardization | NormalScores


def scaled_columns(wanted: bool | Sequence[bool], table: Table, X: np.ndarray) -> np.ndarray:
    """Mark the columns of X [N, D] to standardise, [D]."""
    columns = X.shape[1] if X.ndim == 2 else 1
    chosen = np.asarray(wanted)
    if chosen.dtype != bool or chosen.shape not in ((), (columns,)):
        raise DataError(
            f"scale_inputs={short_repr(wanted)}: pass True or False, or one of them for each of the"
            f" {columns} columns of X."
        )
    measured = table.measured
    return np.broadcast_to(chosen if measured is None else chosen & measured, (columns,))


def scaling_of_outputs(Y: np.ndarray, numbers: RowNumbers | None, gaps: bool) -> Standardization:
    """The scaling of Y [N, P], less its offsets; `Y` may have numbers of rows as further columns.

    :param gaps: one of several outputs may be NaN.
    """
    outputs = Y if numbers is None else Y[:, : numbers.outputs] - numbers.offsets(Y)
    several = outputs.ndim == 2 and outputs.shape[1] > 1
    weights = 1.0 if numbers is None else numbers.information(Y)
    return Standardization(outputs, "Y", gaps=gaps and several, weights=weights)


def build_scaled(
    build: Build,
    X: np.ndarray,
    scaled: np.ndarray,
    tries: Sequence[np.ndarray],
    scaling: Callable[..., Scaling],
) -> tuple[GPModel, Scaling, np.ndarray]:
    """Return a model of scaled X, the scaling, and the index of the Y it is for.

    :param X: inputs [N, D] in their units; `scaled` [D] says which columns may be scaled.
    :param tries: Y [N, P], before it standardised if that is to be tried.
    """
    # Columns that the model reads as indices are not scaled. They are known once there is a model,
    # so it is built again where some were scaled. A model that owns its data and refuses scaled
    # indices is first built of X in its units.
    inputs = scaling(X, "X", ~scaled)
    try:
        model, Y = _built(build, inputs.transform(X).numpy(), tries)
        columns = _indices(model)
    except DataError as refusal:  # it owns its data, and scaled indices are none
        try:
            columns = _indices(_built(build, X.astype(default_float()), tries)[0])
        except DataError as of_units:  # the data themselves are at fault, so in their numbers
            raise of_units from None
        if not np.any(scaled[columns]):
            raise refusal from None
    if not np.any(scaled[columns]):
        return model, inputs, Y
    scaled = scaled.copy()
    scaled[columns] = False
    return build_scaled(build, X, scaled, tries, scaling)


def _indices(model: GPModel) -> list[int]:
    parts = model.kernel, model.mean_function, model.likelihood
    return [index.column for index in indices_of(*parts)]


def _built(build: Build, X: np.ndarray, tries: Sequence[np.ndarray]) -> tuple[GPModel, np.ndarray]:
    # A model that owns its data may refuse standardised counts or labels; it is then built from the
    # second.
    Y = tries[-1]
    if len(tries) == 2:
        try:
            model = _checked(build(X, tries[0]), X)
            if has_scale(model.likelihood):
                return model, tries[0]
        except DataError as error:
            model = _checked(build(X, Y), X)
            if has_scale(model.likelihood):
                raise error
            return model, Y
    return _checked(build(X, Y), X), Y


def _checked(model: GPModel, X: np.ndarray) -> GPModel:
    if not isinstance(model, GPModel):
        raise ModelError(f"build returned a {type(model).__name__}; it must return a GPflow model.")
    if hasattr(model, "data"):
        own = np.asarray(model.data[0])
        if own.shape == X.shape and not np.allclose(own, X, rtol=1e-4, atol=1e-4):
            raise DataError(
                "The data of the model are not those that build was handed: use its arguments X"
                " and Y."
            )
    return model
