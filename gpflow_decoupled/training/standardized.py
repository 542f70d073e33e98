"""Models of standardised data."""

from __future__ import annotations

__all__ = ["Standardized"]

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from gpflow.base import TensorType
from gpflow.config import default_float
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood
from gpflow.models import GPModel
from gpflow.utilities import deepcopy

from ..bases.parts.atomic import all_or_nothing, one_at_a_time
from ..errors import DataError, ModelError, check_option
from ..inputs import as_pair, as_values, check_same_rows
from ..models import Evidence, with_neighbours
from ..summaries import model_line
from ..user_warnings import naming_columns
from .batches import Data
from .evaluation import Evaluation
from .fit import fit
from .normal_scores import NormalScores
from .result import FitResult
from .row_numbers import RowNumbers
from .scaled_build import Build, Scaling, build_scaled, scaled_columns, scaling_of_outputs
from .standardization import Standardization
from .tables import Table
from .units import (
    has_log_scale,
    inducing_in_units,
    kernel_in_units,
    likelihood_in_units,
    result_in_units,
)
from .units.predictions import PredictionsInUnits


class Standardized(PredictionsInUnits):
    """A model of standardised X and Y, with predictions in the units of the data.

    Y without a scale (counts, labels) stays.

    :param build: a function of the standardised X [N, D] and Y [N, P] that returns a model for
        `fit`.
    :param data: (X [N, D], Y [N, P]), or data frames, see `tables.Column`; rows without a target
        are left out.
    :param scale_outputs: standardise Y. None: for `Gaussian`, `StudentT` and `Laplace`, else
        `build` is called again with Y unscaled. True for your own likelihood of f plus noise.
    :param scale_inputs: standardise X; or for each column, [D]. Columns of words, booleans and gaps
        never are.
    :param normal_scores: scale inputs by their ranks, see `NormalScores`.
    :param table: for frames already encoded; by default learned from `data`.
    :param numbers: the last columns of Y, if `build` makes a `RowLikelihood`.
    :param gaps: Y may be NaN; such entries are in no sum of a `RowLikelihood` or an `NNGP`.

    `model` is the model inside, `inputs` and `outputs` the scalings (perhaps None), `table` the
    columns of a frame, `usual_options` defaults of `fit`. Example::

        def build(X, Y):
            kernel, noise = gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian(0.1)
            return gpflow.models.SVGP(kernel, noise, inducing.select(X, 30, kernel))

        model = Standardized(build, (X, Y))
        model.fit(steps=1000)
        mean, variance = model.predict_y(X_new)
    """

    def __init__(
        self,
        build: Build,
        data: Sequence[npt.ArrayLike],
        *,
        scale_outputs: bool | None = None,
        scale_inputs: bool | Sequence[bool] = True,
        normal_scores: bool = False,
        table: Table | None = None,
        numbers: RowNumbers | None = None,
        gaps: bool = False,
    ) -> None:
        super().__init__()
        if not callable(build):
            raise ModelError(
                f"build is a {type(build).__name__}; pass a function of the standardised X and Y"
                " that returns the model, so that its inducing points are standardised too:"
                " Standardized(lambda X, Y: SVGP(...), (X, Y))."
            )
        check_option("scale_outputs", scale_outputs, (None, True, False))
        X, Y = as_pair(data)
        if table is None:
            weights = None
            if numbers is not None:
                weights = numbers.weights(as_values(Y, "Y")[:, numbers.outputs :])
            table, X, Y = Table.learn(X, Y, weights=weights)
        X, Y = as_values(X, "X"), as_values(Y, "Y")
        check_same_rows(X, Y)
        scaling: Callable[..., Scaling] = NormalScores if normal_scores else Standardization
        if numbers is not None:
            numbers = numbers.learned(Y)
            each = numbers.information(Y)
            scaling = partial(scaling, weights=np.mean(each, axis=1, keepdims=True))
        self.table, self.numbers = table, numbers
        with naming_columns(*self.column_names):
            scaled_inputs = scaled_columns(scale_inputs, table, X)
            self.inputs = scaling(X, "X", ~scaled_inputs)  # here, as it checks X
            outputs = scaling_of_outputs(Y, numbers, gaps)  # in any case: it checks Y
            scaled = np.asarray(
                outputs.transform(Y) if numbers is None else numbers.transform(Y, outputs)
            )
            unscaled = Y if Y.dtype.kind != "f" else Y.astype(scaled.dtype)
            unscaled = unscaled if numbers is None else numbers.transform(Y, None).numpy()
            wanted = (scaled, scale_outputs is not False), (unscaled, not scale_outputs)
            tries = [Y for Y, is_wanted in wanted if is_wanted]
            self.model, self.inputs, used = build_scaled(build, X, scaled_inputs, tries, scaling)
            inside = self.inputs.transform(X).numpy()
        self.outputs = outputs if used is scaled else None
        self._X, self._Y = inside, used
        self.usual_options: dict[str, object] = {}

    def __repr__(self) -> str:
        nameless = " object at 0x" in repr(self.model)  # as GPflow's are
        return f"{type(self).__name__}({model_line(self.model) if nameless else repr(self.model)})"

    def fit(self, **options: Any) -> FitResult:  # the arguments of `fit` are of many types
        """Train the model inside on its data; `gpflow_decoupled.fit(self, **options)`.

        :param options: of `gpflow_decoupled.fit`; held-out data of `evaluation` in original units.
        :return: the record of the run, in the units of the data.
        """
        return fit(self, **options)

    def on_scale(
        self, data: Data, evaluation: Evaluation | Sequence[npt.ArrayLike] | None
    ) -> tuple[GPModel, Data, Evaluation | Sequence[npt.ArrayLike] | None]:
        """Convert data and held-out data of `fit`; return them with the model inside.

        :param data: X [N, D] and Y [N, P] in original units, a `tf.data.Dataset` of them, or a
            function that starts passes; None uses the data it was built from.
        :param evaluation: held-out data in original units, or an `Evaluation` with such data.
        :raises DataError: for data other than its own, if the model owns them, and other columns.

        Example::

            fit(model, (X, Y))  # calls it
        """
        if evaluation is not None:
            given = evaluation if isinstance(evaluation, Evaluation) else Evaluation(evaluation)
            held_out = None if given.data is None else self._held_out(given.data)
            scale = None if self.outputs is None else self.outputs.scale.numpy()
            evaluation = replace(given, data=held_out, units=scale)
        return self.model, self._inside(data), evaluation

    def _held_out(self, data: Sequence[TensorType]) -> tuple[TensorType, TensorType]:
        try:
            return self._standardised(data)
        except DataError as error:
            raise DataError(f"evaluation: {error}") from error

    def elbo(self, data: Sequence[TensorType] | None = None) -> tf.Tensor:
        """The evidence lower bound on log p(Y) in the units of Y, in nats, a scalar.

        :param data: X and Y in original units, for a model that does not own its data; by default
            the data it was built from.
        """
        if not hasattr(self.model, "elbo"):
            raise ModelError(
                f"{type(self.model).__name__} has no bound of the evidence: compare models by"
                " model.leave_one_out(rows).log_density.mean()."
            )
        if data is None and self._data is None:
            return self.model.elbo() - self.log_scale()
        X, Y = (self._X, self._Y) if data is None else self._to_train_on(data)
        if self._data is None:
            self._check_own(X, Y)
            return self.elbo()
        return self.model.elbo((X, Y)) - self.log_scale(tf.shape(X)[0])

    def log_scale(self, rows: int | tf.Tensor | None = None) -> tf.Tensor:
        """The log determinant of dY/dz in nats, a scalar: subtract it for bounds in units of Y.

        :param rows: N of the bound's data; by default the number it was built from or trained on.
        """
        total = self._X.shape[0] if rows is None else rows
        if not hasattr(self.model, "data"):
            total = getattr(self.model, "num_data", None) or total
        each = self._log_scale(default_float(), self._seen_share)
        return tf.cast(total, default_float()) * each

    def result_in_units(self, result: FitResult) -> FitResult:
        """The record of a run of the model inside, with bounds in the units of Y."""
        return result_in_units(result, float(self.log_scale()), len(self._X))

    @property
    def kernel(self) -> Kernel:
        """The kernel in the units of the data, views onto what trains: `units.kernel_in_units`."""
        inside = self.model
        log_scale = has_log_scale(inside.likelihood)
        return kernel_in_units(inside.kernel, self.inputs, self.outputs, log_scale)

    @property
    def likelihood(self) -> Likelihood:
        """The likelihood, with views of its noise in units of Y where Y is standardised."""
        return likelihood_in_units(self.model.likelihood, self.outputs)

    @property
    def inducing_variable(self) -> InducingVariables:
        """Inducing points with Z [M, D] in units of X, a view of those that train."""
        points = getattr(self.model, "inducing_variable", None)
        if points is None:
            raise ModelError(
                f"{type(self.model).__name__} has no inducing points; X and Y that it keeps are"
                " model.training_data."
            )
        return inducing_in_units(points, self.inputs)

    def evidence(self, **options: Any) -> Evidence:
        """An interval for the log evidence in units of Y, in nats, of the rows it was built from.

        :param options: of `evidence` of the model inside, such as `max_products`.
        """
        if not hasattr(self.model, "evidence"):
            raise ModelError(
                f"{type(self.model).__name__} has no interval for its evidence: compare held-out"
                " log densities."
            )
        data = () if self._data is None else (self._data,)
        nats = float(self.log_scale(self._X.shape[0]))
        return self.model.evidence(*data, **options).shifted(-nats)

    def remember(self, data: Sequence[TensorType] | None = None) -> Any:
        """Store what the data said that q was trained on, for `update`.

        :param data: X and Y in original units; by default the data it was built from.
        """
        if not hasattr(self.model, "remember"):
            raise ModelError(f"{type(self.model).__name__} has no memory, and needs none.")
        return self.model.remember(self._data if data is None else self._to_train_on(data))

    @one_at_a_time
    def update(self, data: Sequence[TensorType], **options: Any) -> Any:
        """Take in new data, X and Y in their units, by `update` of the model inside.

        :raises ModelError: for a model without it.
        """
        if not hasattr(self.model, "update"):
            raise ModelError(f"{type(self.model).__name__} has no update: build it of all data.")
        X, Y = self._to_train_on(data)
        if not hasattr(self.model, "data"):
            return self.model.update((X, Y), **options)
        joined = (
            np.concatenate([self._X, np.asarray(X)]),
            np.concatenate([self._Y, np.asarray(Y)]),
        )
        with all_or_nothing([], [self, *self.model.submodules]):
            record = self.model.update((X, Y), **options)
            self._X, self._Y = joined
        return record

    def with_neighbours(self, **options: Any) -> Standardized:
        """A copy with variances from neighbours, of a model with a mean on all data.

        :param options: of `models.with_neighbours`; data are the rows that it was built from.
        """
        twin = deepcopy(self)
        twin.model = with_neighbours(self.model, (self._X, self._Y), **options)
        twin.usual_options = {}
        return twin

    @property
    def _seen_share(self) -> np.ndarray:
        """The share of rows that have each output, by their weights, [P]."""
        Y, numbers = self._Y, self.numbers
        if numbers is None:
            return np.mean(~np.isnan(np.asarray(Y, np.float64)), axis=0)
        seen = ~np.isnan(np.asarray(Y[:, : numbers.outputs], np.float64)) & numbers.measured(Y)
        return np.mean(seen * numbers.by_name(Y).get("weight", 1.0), axis=0)
