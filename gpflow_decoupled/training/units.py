"""A model of scaled data; indices are not scaled."""

from __future__ import annotations

__all__ = [
    "Build", "DataInUnits", "Scaling", "StandardizedMean", "build_scaled", "check_adds_noise",
    "fixed_numbers_inside", "known_noise", "result_in_units", "scaled_columns",
    "scaling_of_outputs",
]  # fmt: skip

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import TensorType
from gpflow.config import default_float
from gpflow.functions import MeanFunction
from gpflow.likelihoods import Likelihood
from gpflow.models import GPModel

from ..covariances.latents import indices_of
from ..errors import DataError, ModelError
from ..inputs import as_values
from ..likelihoods.facts import base_of, has_scale, is_gaussian, name_of, noise_parameter
from ..models import AffineIndependentGP
from ..replicas import starts_passes
from ..summaries import short_repr
from ..user_warnings import warn_user
from .batches import Data, Passes
from .result import FitResult
from .standardization import NormalScores, RowNumbers, Standardization
from .tables import Table, check_order, is_frame

# ---
# Records in the units of the data.


def result_in_units(result: FitResult, shift: float, rows: int) -> FitResult:
    """Subtract `shift` nats, the log determinant of dY/dz of all rows, from the bounds of a run,
    and a row's share from scores of left-out rows.

    Scores of held-out rows are in units already, see `Evaluation.units`.
    """
    result.elbo -= shift
    if "elbo" in result.history:
        result.history["elbo"] = result.history["elbo"] - shift
    if "leave_one_out" in result.history:
        result.history["leave_one_out"] = result.history["leave_one_out"] - shift / rows
    if result.evidence is not None:
        result.evidence = result.evidence.shifted(-shift)
    return result


# ---
# Known noise of new rows.


def check_adds_noise(model: GPModel) -> None:
    """Refuse models to whose observations the noise of a row cannot be added.

    :raises ModelError: unless y is f plus Gaussian noise, and q(f) is Gaussian.
    """
    gaussian = is_gaussian(base_of(model.likelihood))
    if not gaussian or isinstance(model, AffineIndependentGP):
        what = type(model).__name__ if gaussian else name_of(model.likelihood)
        raise ModelError(
            f"noise_variance is added to Gaussian noise, and this is a {what}: leave it out."
        )


def known_noise(value: Any, X: Any, shape: tuple[int | None, ...], outputs: int) -> np.ndarray:
    """Noise variances [..., N, P] of new rows, in units of Y.

    :param value: [..., N], [..., N, 1] or [..., N, P]; or the name of a column of X.
    :param X: as the caller passed it.
    :param shape: [..., N] of the rows.
    :param outputs: P.
    :raises DataError: for unknown columns, other shapes, and numbers below 0 or not finite.
    """
    if isinstance(value, str):
        if not is_frame(X) or value not in X.columns:
            raise DataError(f"noise_variance={value!r} is no column of X; pass numbers, [N].")
        value = np.asarray(X[value])
    check_order(X=X, noise_variance=value)
    values = as_values(value, "noise_variance").astype(np.float64)
    full = values[..., None] if values.ndim == len(shape) else values
    same = full.ndim == len(shape) + 1 and all(
        rows in (None, found) for rows, found in zip(shape, full.shape)
    )
    if not same or full.shape[-1] not in (1, outputs):
        wanted = ["N" if rows is None else rows for rows in shape]
        raise DataError(
            f"noise_variance has shape {values.shape}; pass a number per row,"
            f" [{', '.join(map(str, wanted))}]."
        )
    bad = ~(np.isfinite(full) & (full >= 0.0))
    if np.any(bad):
        place = tuple(int(index) for index in np.argwhere(bad)[0])
        row = place[0] if len(place) == 2 else list(place[:-1])
        raise DataError(
            f"noise_variance of row {row} is {full[place]:g}; pass a finite variance, not below 0."
        )
    return np.broadcast_to(full, (*full.shape[:-1], outputs))


# ---
# Parts of a model that are in units of Y, for a model of standardised Y.


class StandardizedMean(MeanFunction):
    """A mean function of Y in its units, less the mean of Y, over its deviation.

    :param function: m(x) [N, P] in units of Y; its Parameters are trained.
    :param outputs: of Y [N, P].
    """

    def __init__(self, function: MeanFunction, outputs: Standardization) -> None:
        super().__init__()
        self.function = function
        self.shift, self.scale = outputs.mean.numpy(), outputs.scale.numpy()

    def __call__(self, X: TensorType) -> tf.Tensor:
        values = tf.convert_to_tensor(self.function(X))
        dtype = values.dtype
        return (values - tf.constant(self.shift, dtype)) / tf.constant(self.scale, dtype)


def fixed_numbers_inside(likelihood: Likelihood, outputs: Standardization) -> bool:
    """Divide a variance or scale of noise that does not train by that of Y.

    Others are starts, of standardised Y as the kernel's variance is.

    :param likelihood: changed in place.
    :param outputs: of Y [N, P].
    :return: True if it had such a number.
    :raises DataError: for outputs of different scale that share it, unless the noise is Gaussian.
    """
    likelihood = base_of(likelihood)
    name = noise_parameter(likelihood)
    if name is None:
        return False
    squared, old = name == "variance", getattr(likelihood, name)
    if not isinstance(old, gpflow.Parameter) or old.trainable:
        return False
    scale = outputs.scale.numpy()
    scale = scale[:1].reshape(()) if np.ptp(scale) == 0.0 else scale
    if scale.ndim and not is_gaussian(likelihood):
        raise DataError(
            f"the {name} of your {name_of(likelihood)} does not train, and outputs of different"
            ' scale share it: pass scale="X", so that Y stays in its units.'
        )
    factor = 1.0 / (np.square(scale) if squared else scale)
    bound = f"{name}_lower_bound"
    least = getattr(likelihood, bound, 0.0) * float(np.min(factor))
    if hasattr(likelihood, bound):
        setattr(likelihood, bound, least)
    value = gpflow.Parameter(
        old.numpy() * factor,
        transform=gpflow.utilities.positive(lower=least),
        trainable=False,
        dtype=old.dtype,
    )
    setattr(likelihood, name, value)
    return True


# ---
# Data in their units, and as a model of standardised data sees them.


class DataInUnits(tf.Module):
    """The scalings of X and Y, and the data that a `model` inside was built from.

    `inputs` is the scaling of X, `outputs` that of Y, None if Y stays; `table` has the columns of a
    frame, and `numbers` what follows Y in its columns.
    """

    model: GPModel
    table: Table
    inputs: Standardization | NormalScores
    outputs: Standardization | None
    numbers: RowNumbers | None
    _X: np.ndarray
    """[N, D], and `_Y` [N, P], as the model inside sees them."""
    _Y: np.ndarray

    @property
    def column_names(self) -> tuple[Sequence[object], Sequence[object]]:
        """Names of the columns of X and of Y, none where they were arrays."""
        return self.table.names, self.table.targets

    @property
    def training_data(self) -> tuple[tf.Tensor, tf.Tensor]:
        """X [N, D] and Y [N, P] that the model was built from, in original units."""
        X, Y = self.inputs.inverse_transform(self._X), self._Y
        if self.numbers is not None:
            return X, self.numbers.inverse_transform(Y, self.outputs)
        return X, Y if self.outputs is None else self.outputs.inverse_transform(Y)

    def encoded(self, Xnew: object) -> tf.Tensor:
        """Inputs [..., N, D], a frame or an array, as the model inside sees them.

        :raises DataError: for a frame that lacks a column, by its name, and other numbers of
            columns.
        """
        return self.inputs.transform(self.table.inputs(Xnew))

    @property
    def shape(self) -> tuple[int, int]:
        """N and D of the data that the model was built from."""
        return self._X.shape[0], self._X.shape[1]

    @property
    def _data(self) -> tuple[np.ndarray, np.ndarray] | None:
        return None if hasattr(self.model, "data") else (self._X, self._Y)

    def _standardised(
        self, data: Sequence[TensorType], **given: object
    ) -> tuple[TensorType, TensorType]:
        X, Y = self._to_predict(data, given)
        return self.inputs.transform(X), self._seen(Y)

    def _to_predict(
        self, data: Sequence[TensorType], given: Mapping[str, object]
    ) -> tuple[TensorType, TensorType]:
        """X and Y, which ends with the numbers that are given or in the columns of a frame."""
        numbers = self.numbers
        if numbers is None:
            self.numbers_of(None, 0, given)  # refuses them
            return self.table.arrays(data)

        def of_frame(frame: Any) -> np.ndarray:
            found = numbers.of_new(frame, len(frame), given)
            return numbers.in_columns(found, len(frame))

        X, Y = self.table.arrays(data, of_frame)
        if any(one is not None for one in given.values()) and Y.shape[-1] == numbers.outputs:
            found = numbers.of_new(None, len(Y), given)
            Y = np.hstack([np.asarray(Y, np.float64), numbers.in_columns(found, len(Y))])
        return X, Y

    def numbers_of(self, X: Any, rows: int, given: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """`RowNumbers.of_new`, of none for a model without numbers of rows."""
        return (self.numbers or RowNumbers(self._Y.shape[1], ())).of_new(X, rows, given)

    def _arrays(self, data: Sequence[TensorType]) -> tuple[TensorType, TensorType]:
        of_rows = None if self.numbers is None else self.numbers.of_frame
        return self.table.arrays(data, of_rows)

    def _seen(self, Y: TensorType) -> TensorType:
        if self.numbers is not None:
            return self.numbers.transform(self.numbers.complete(Y), self.outputs)
        if self.outputs is not None:
            return self.outputs.transform(Y)
        kind = tf.as_dtype(Y.dtype)
        return tf.cast(Y, default_float()) if kind.is_floating else Y

    def _inside(self, data: Data) -> Data:
        if data is None:
            return self._data
        if isinstance(data, tf.data.Dataset):
            return data.map(lambda X, Y: self._to_train_on((X, Y)))
        if starts_passes(data):
            passes = cast(Passes, data)
            return lambda: (self._to_train_on(batch) for batch in passes())
        if callable(data):
            of_worker = cast("Callable[[tf.distribute.InputContext], tf.data.Dataset]", data)
            # the dataset of a worker is known only there
            return lambda context: self._inside(of_worker(context))
        inside = self._to_train_on(data)
        if self._data is None:
            self._check_own(*inside)
            return None
        return inside

    def _to_train_on(self, data: Sequence[TensorType]) -> tuple[TensorType, TensorType]:
        """X and Y as the model inside sees them; rows it was built from keep their numbers."""
        X, Y = self._arrays(data)
        if self.numbers is not None:
            X, Y = self._counted(X, Y, self.numbers)
        inside = self.inputs.transform(X), self._seen(Y)
        if self.numbers is None or Y.shape[-1] != self.numbers.outputs:
            return inside
        if not self._other_than_own(*inside, self.numbers.outputs):
            return self._X, self._Y
        if self.numbers.differ(self._Y):
            names = ", ".join(dict.fromkeys(self.numbers.names))
            warn_user(
                f"Y has no {names} of its rows, and the rows that the model was built from have:"
                f" these count like any other. Pass {names} as further columns of Y."
            )
        return inside

    def _counted(
        self, X: TensorType, Y: TensorType, numbers: RowNumbers
    ) -> tuple[TensorType, TensorType]:
        """X and Y [N, P] or [N, P + k] without rows of weight 0."""
        if tf.is_symbolic_tensor(X) or tf.is_symbolic_tensor(Y):
            return X, Y  # they add nothing to a bound
        counts = np.ones(len(Y), bool)
        if Y.shape[-1] != numbers.outputs:
            weights = numbers.weights(np.asarray(Y)[:, numbers.outputs :])
            counts = counts if weights is None else weights != 0.0
        elif len(Y) == len(self._Y) + len(self.table.weightless):
            counts[list(self.table.weightless)] = False
        return (X, Y) if counts.all() else (np.asarray(X)[counts], np.asarray(Y)[counts])

    def _other_than_own(self, X: TensorType, Y: TensorType, width: int | None = None) -> str:
        """The name of an array that is none of those it was built from, X or Y; else empty."""
        # width: columns of Y to compare.
        if tf.is_symbolic_tensor(X) or tf.is_symbolic_tensor(Y):
            return "X"
        for name, array, theirs in zip("XY", (X, Y), (self._X, self._Y)):
            values = np.asarray(array)
            if name == "Y":
                values, theirs = values[:, :width], theirs[:, :width]
            # up to the round-off of standardising twice
            if values.shape != theirs.shape or not np.allclose(
                values, theirs, rtol=1e-6, atol=1e-6, equal_nan=True
            ):
                return name
        return ""

    def _check_own(self, X: TensorType, Y: TensorType) -> None:
        kind = type(self.model).__name__
        if tf.is_symbolic_tensor(X) or tf.is_symbolic_tensor(Y):
            raise DataError(
                f"{kind} owns the {len(self._X)} rows that it was built from, and others cannot be"
                " compared with them inside of a tf.function: call elbo() there, without data."
            )
        if name := self._other_than_own(X, Y):
            raise DataError(
                f"{kind} owns the {len(self._X)} rows that it was built from, and {name} is"
                " another: call fit(model) for those rows, and build a new model of others."
            )


# ---


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
