"""Models of standardised data."""

from __future__ import annotations

__all__ = ["PredictionsInUnits", "Standardized", "StandardizedPosterior"]

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from gpflow.base import MeanAndVariance, TensorType
from gpflow.config import default_float
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood
from gpflow.models import GPModel
from gpflow.posteriors import AbstractPosterior, PrecomputeCacheType
from gpflow.utilities import deepcopy
from scipy.special import ndtri

from ..errors import DataError, ModelError, check_option
from ..inputs import as_pair, as_values, check_same_rows
from ..interrupts import all_or_nothing, one_at_a_time
from ..likelihoods import observation_moments, observation_quantiles
from ..likelihoods.facts import base_of, has_log_scale, is_gaussian
from ..likelihoods.predictions import moments_of_trials
from ..linalg.neighbours import log_densities
from ..models import NNGP, AffineIndependentGP, Evidence, LeaveOneOut, with_neighbours
from ..models.neighbours import GaussianNNGP
from ..models.neighbours.groups import noise_rows
from ..pathwise import pathwise_samples
from ..summaries import model_line, short_repr
from ..user_warnings import naming_columns
from .batches import Data
from .evaluation import Evaluation
from .fit import fit
from .result import FitResult
from .standardization import NormalScores, RowNumbers, Standardization
from .tables import Table, is_frame, is_labelled
from .units import (
    Build,
    DataInUnits,
    Scaling,
    build_scaled,
    check_adds_noise,
    known_noise,
    result_in_units,
    scaled_columns,
    scaling_of_outputs,
)
from .views import inducing_in_units, kernel_in_units, likelihood_in_units

# ---
# Predictions in the units of the data.


class PredictionsInUnits(DataInUnits):
    """The predictions of a `model` of standardised data."""

    def posterior(
        self, precompute_cache: str | PrecomputeCacheType = PrecomputeCacheType.TENSOR
    ) -> StandardizedPosterior:
        """Predictions of f with the present factorisations; "variable" ones can be exported."""
        return StandardizedPosterior(self, self.model.posterior(precompute_cache))

    def pathwise_samples(
        self, num_samples: int, **options: Any
    ) -> Callable[[TensorType], tf.Tensor]:
        """Draw functions of the posterior: X [N, D] -> [S, N, P] in the units of the data.

        :param num_samples: S.
        :param options: of `pathwise.pathwise_samples`.
        """
        draws = pathwise_samples(self.model, num_samples, **options)

        def function(X: TensorType) -> tf.Tensor:
            values = draws(self.encoded(X))
            return self.in_units((values, tf.ones_like(values)), False, False)[0]

        return function

    def predict_f(
        self, Xnew: TensorType, full_cov: bool = False, full_output_cov: bool = False
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Moments of f at Xnew [..., N, D] in the units of Y, in GPflow's shapes."""
        moments = self.model.predict_f(
            self.encoded(Xnew), full_cov=full_cov, full_output_cov=full_output_cov
        )
        return self.in_units(moments, full_cov, full_output_cov)

    def predict_y(
        self,
        Xnew: TensorType,
        full_cov: bool = False,
        full_output_cov: bool = False,
        *,
        noise_variance: npt.ArrayLike | str | None = None,
        offset: npt.ArrayLike | str | None = None,
        exposure: npt.ArrayLike | str | None = None,
        trials: npt.ArrayLike | str | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Moments of new observations at Xnew [..., N, D] in the units of Y, as `predict_f`.

        :param noise_variance: known noise of the new rows, in squared units of Y, which is added to
            the learned one: [..., N], [..., N, P], or a column of the frame Xnew. Without it only
            the learned noise is added, although rows of training had their own.
        :param offset: of the new rows, as in `build`: [N], [N, P], or a column of the frame Xnew.
            Where this and the next ones are not given, every prediction of observations reads the
            columns of training that a frame has, else it is for an exposure of 1 and one trial.
        :param exposure: exp(offset).
        :param trials: of the new rows; y counts their successes.
        """
        given: dict[str, Any] = {"offset": offset, "exposure": exposure, "trials": trials}
        if numbers := self._of_new(Xnew, given):
            return self._moments_at(Xnew, numbers, noise_variance, (full_cov, full_output_cov))
        X, known, options = self.encoded(Xnew), None, {}
        if noise_variance is not None:
            known = self.known_noise(noise_variance, Xnew)
            if isinstance(self.model, GaussianNNGP) and noise_rows(self.model.likelihood):
                # the model adds it, and has no other
                scale = 1.0 if self.outputs is None else self.outputs.scale.numpy()
                options, known = {"noise_variance": known / np.square(scale)}, None
        moments = self.model.predict_y(
            X, full_cov=full_cov, full_output_cov=full_output_cov, **options
        )
        mean, variance = self.in_units(moments, full_cov, full_output_cov)
        if known is None:
            return mean, variance
        known = tf.cast(known, variance.dtype)
        # inside of a tf.function rows are counted when it runs, and one would stand for all
        rows = "noise_variance and Xnew have different numbers of rows."
        tf.debugging.assert_equal(tf.shape(known), tf.shape(variance), rows)
        return mean, variance + known

    def predict_log_density(
        self,
        data: Sequence[TensorType],
        full_cov: bool = False,
        full_output_cov: bool = False,
        *,
        noise_variance: npt.ArrayLike | str | None = None,
        offset: npt.ArrayLike | str | None = None,
        exposure: npt.ArrayLike | str | None = None,
        trials: npt.ArrayLike | str | None = None,
    ) -> tf.Tensor:
        """Log densities [..., N] in nats per unit of Y, at X [..., N, D], Y [..., N, P].

        Of a censored row it is the log probability beyond its limit.

        :param noise_variance: as in `predict_y`, in the place of noise among the columns of Y.
        :param offset: this, `exposure` and `trials` as in `predict_y`.
        """
        given: dict[str, Any] = {"offset": offset, "exposure": exposure, "trials": trials}
        if noise_variance is not None:
            return self._noisy_log_density(data, noise_variance, given, full_cov, full_output_cov)
        inside = self._standardised(data, **given)
        density = self.model.predict_log_density(
            inside, full_cov=full_cov, full_output_cov=full_output_cov
        )
        seen = self._measured(tf.cast(inside[1], density.dtype))
        return density - self._log_scale(density.dtype, seen)

    def predict_quantiles(
        self,
        Xnew: TensorType,
        quantiles: Sequence[float] = (0.05, 0.5, 0.95),
        *,
        noise_variance: npt.ArrayLike | str | None = None,
        offset: npt.ArrayLike | str | None = None,
        exposure: npt.ArrayLike | str | None = None,
        trials: npt.ArrayLike | str | None = None,
    ) -> np.ndarray:
        """Quantiles [N, P, Q] of new observations at Xnew [N, D], in the units of Y.

        Of counts and labels the smallest y with a probability of at most y that reaches the level.
        Cost: `predict_f`, and for other than Gaussian noise `likelihoods.observation_quantiles`.

        :param quantiles: levels [Q], above 0 and below 1.
        :param noise_variance: this, `offset`, `exposure` and `trials` as in `predict_y`.

        Example::

            low, high = model.predict_quantiles(X_new, (0.05, 0.95))[:, 0].T
        """
        levels = np.asarray(quantiles, dtype=np.float64)
        if levels.ndim != 1 or not np.all((levels > 0.0) & (levels < 1.0)):
            raise DataError(
                f"quantiles={short_repr(quantiles)}: pass numbers above 0 and below 1, for example"
                " (0.05, 0.95)."
            )
        if isinstance(self.model, AffineIndependentGP):
            raise ModelError(
                "f of an AffineIndependentGP is not Gaussian, and quantiles of y are not known:"
                " model.model.predict_f_quantiles has those of f."
            )
        base = base_of(self.model.likelihood)
        if is_gaussian(base):
            given: dict[str, Any] = {"offset": offset, "exposure": exposure, "trials": trials}
            moments = self.predict_y(Xnew, noise_variance=noise_variance, **given)
            mean, variance = (np.asarray(part)[..., None] for part in moments)
            return mean + np.sqrt(variance) * ndtri(levels)
        if noise_variance is not None:
            check_adds_noise(self.model)
        X = self.encoded(Xnew)
        f_mean, f_variance = (np.asarray(part, np.float64) for part in self.model.predict_f(X))
        numbers = self._of_new(Xnew, {"offset": offset, "exposure": exposure, "trials": trials})
        scale = 1.0 if self.outputs is None else self.outputs.scale.numpy()
        f_mean = f_mean + numbers.get("offset", 0.0) / scale
        found = partial(
            observation_quantiles, base, np.asarray(X), f_mean, f_variance,
            trials=numbers.get("trials"),
        )  # fmt: skip
        values = np.stack([found(level) for level in levels], axis=-1)
        if self.outputs is None:
            return values
        return values * self.outputs.scale.numpy()[:, None] + self.outputs.mean.numpy()[:, None]

    def predict_f_samples(
        self,
        Xnew: TensorType,
        num_samples: int | None = None,
        full_cov: bool = True,
        full_output_cov: bool = False,
    ) -> tf.Tensor:
        """Samples [..., S, N, P] (without S [..., N, P]) of f at Xnew [..., N, D] in units of Y."""
        inside = self.encoded(Xnew)
        samples = self.model.predict_f_samples(
            inside, num_samples, full_cov=full_cov, full_output_cov=full_output_cov
        )
        return self.in_units((samples, tf.ones_like(samples)), False, False)[0]

    def leave_one_out(self, rows: np.ndarray | None = None, **options: Any) -> LeaveOneOut:
        """Predict observed rows, each from its nearest other rows, in the units of Y.

        :param rows: row numbers [B]; all rows if not given.
        :param options: of `leave_one_out` of the `NNGP` inside.
        :raises ModelError: for other models.
        """
        if not isinstance(self.model, NNGP):
            raise ModelError(
                f"{type(self.model).__name__} has no leave_one_out: compare models by rows that"
                " were set aside, wrappers.compare(first, second, data)."
            )
        found = self.model.leave_one_out(rows, **options)
        mean, variance = self.in_units((found.mean, found.variance), False, False)
        Y = self.model.data[1].numpy().astype(np.float64)
        seen = self._measured(Y if rows is None else Y[rows])
        density = found.log_density - self._log_scale(tf.float64, seen).numpy()
        return LeaveOneOut(np.asarray(mean), np.asarray(variance), density, found.spread)

    def in_units(
        self, moments: MeanAndVariance, full_cov: bool, full_output_cov: bool
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Moments of f or y, mean [..., N, P] and (co)variances, in the units of Y."""
        mean, cov = moments
        if self.outputs is None:
            return mean, cov
        # latents beyond the outputs have no units, but for the logarithm of a scale
        count = int(mean.shape[-1]) - int(self.outputs.scale.shape[0])
        own = tf.pad(self.outputs.scale, [[0, count]], constant_values=1.0)
        beyond = tf.math.log(self.outputs.scale[:count]) * has_log_scale(self.model.likelihood)
        shift = tf.concat([self.outputs.mean, beyond], axis=0)
        level = tf.cast(mean, tf.float64) * own + shift
        scale = tf.cast(own, cov.dtype)
        if full_output_cov:  # [..., N, P, P], or [..., N, P, N, P]
            factor = scale[:, None, None] * scale if full_cov else scale[:, None] * scale
        else:  # [..., P, N, N], or [..., N, P]
            factor = tf.square(scale)[:, None, None] if full_cov else tf.square(scale)
        return tf.cast(level, default_float()), cov * factor

    def _measured(self, Y: TensorType) -> tf.Tensor:
        """[..., P], 1 where an entry of Y [..., P + k] inside was measured, else 0."""
        width = None if self.numbers is None else self.numbers.outputs
        seen = ~tf.math.is_nan(Y[..., :width])
        if self.numbers is not None:
            seen = tf.logical_and(seen, self.numbers.measured(Y))
        return tf.cast(seen, Y.dtype)

    def known_noise(self, value: npt.ArrayLike | str, X: Any) -> np.ndarray:
        """Check noise variances of new rows X; return them as [..., N, P] in squared units of Y.

        Parameters and errors as of `noise_variance` in `predict_y`.
        """
        check_adds_noise(self.model)
        shape = tuple(np.shape(X)[:1] if is_labelled(X) else self.encoded(X).shape[:-1])
        return known_noise(value, X, shape, self._num_outputs)

    def _of_new(self, X: Any, given: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Offsets and trials of new rows X, where they are known."""
        if not is_frame(X) and all(one is None for one in given.values()):
            return {}  # inside of a tf.function rows are not counted yet
        rows = np.shape(X)[0] if is_labelled(X) else self.encoded(X).shape[-2]
        found = self.numbers_of(X, rows, given)
        return {name: found[name] for name in ("offset", "trials") if name in found}

    def _moments_at(
        self,
        X: Any,
        numbers: Mapping[str, np.ndarray],
        noise_variance: Any,
        full: tuple[bool, bool],
    ) -> MeanAndVariance:
        offset, trials = numbers.get("offset", 0.0), numbers.get("trials")
        likelihood, inside = self.model.likelihood, self.encoded(X)
        base = base_of(likelihood)
        if is_gaussian(base) or self.outputs is not None:  # f plus noise
            value = None if noise_variance is None else self.known_noise(noise_variance, X)
            plain = self.table.inputs(X)  # without columns of numbers
            mean, variance = self.predict_y(plain, *full, noise_variance=value)
            return mean + tf.cast(offset, mean.dtype), variance
        if any(full) or isinstance(self.model, AffineIndependentGP):
            raise ModelError(
                "offsets and trials of new rows need a Gaussian f of each row: leave full_cov, or"
                " scale predictions of one trial and an exposure of 1 yourself."
            )
        if noise_variance is not None:
            check_adds_noise(self.model)
        mean, variance = self.model.predict_f(inside)
        mean = mean + tf.cast(offset, mean.dtype)
        if trials is None:
            return observation_moments(base, inside, mean, variance)
        return moments_of_trials(base, inside, mean, variance, tf.cast(trials, mean.dtype))

    @property
    def _num_outputs(self) -> int:
        return self._Y.shape[1] if self.numbers is None else self.numbers.outputs

    def _noisy_log_density(
        self,
        data: Any,
        value: Any,
        given: Mapping[str, Any],
        full_cov: bool,
        full_output_cov: bool,
    ) -> tf.Tensor:
        P, numbers = self._num_outputs, self.numbers
        noise = value
        X, Y = self._to_predict(data, given)
        if is_frame(data) or is_frame(data[0]):  # without the rows that have no target
            noise = self.table.arrays(data, lambda frame: self.known_noise(value, frame))[1][:, P:]
        mean, variance = self.predict_y(X, full_cov, full_output_cov, noise_variance=noise)
        Y = tf.cast(Y if numbers is None else numbers.complete(Y), mean.dtype)
        y = Y[..., :P]
        there = ~tf.math.is_nan(y)
        if numbers is not None:
            mean += tf.cast(numbers.offsets(Y), mean.dtype)
        terms = log_densities(tf.where(there, y, mean), mean, variance)
        return tf.reduce_sum(tf.where(there, terms, tf.zeros_like(terms)), axis=-1)

    def _log_scale(self, dtype: tf.DType, seen: TensorType) -> tf.Tensor:
        """The log determinant of dY/dz of observations whose entries are seen or not, [...]."""
        # `seen` [..., P] is 1 or 0, or the share of rows.
        if self.outputs is None:
            return tf.zeros([], dtype)
        return tf.reduce_sum(tf.cast(tf.math.log(self.outputs.scale), dtype) * seen, axis=-1)


class StandardizedPosterior(tf.Module):
    """Predictions of f from cached factorisations, in the units of the data.

    `inside` is the posterior of standardised data. Example::

        posterior = model.posterior()
        mean, variance = posterior.predict_f(Xnew)
    """

    def __init__(self, model: PredictionsInUnits, inside: AbstractPosterior) -> None:
        super().__init__()
        self.model, self.inside = model, inside

    def predict_f(
        self, Xnew: TensorType, full_cov: bool = False, full_output_cov: bool = False
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Moments of f at Xnew [..., N, D], as `Standardized.predict_f`."""
        X = self.model.encoded(Xnew)
        moments = self.inside.predict_f(X, full_cov=full_cov, full_output_cov=full_output_cov)
        return self.model.in_units(moments, full_cov, full_output_cov)

    def update_cache(self, precompute_cache: PrecomputeCacheType | None = None) -> None:
        """Compute the factorisations again from the present Parameters."""
        self.inside.update_cache(precompute_cache)


# ---


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
        if X.ndim == Y.ndim == 2:  # other shapes are refused below
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

        New words of a column with one lengthscale for all are known from then on.

        :raises ModelError: for a model without it.
        """
        if not hasattr(self.model, "update"):
            raise ModelError(f"{type(self.model).__name__} has no update: build it of all data.")
        with all_or_nothing([], [self, *self.model.submodules]):
            frame = data if is_frame(data) else as_pair(data)[0]
            self.table = self.table.with_categories_of(frame)
            X, Y = self._to_train_on(data)
            record = self.model.update((X, Y), **options)
            if hasattr(self.model, "data"):
                self._X = np.concatenate([self._X, np.asarray(X)])
                self._Y = np.concatenate([self._Y, np.asarray(Y)])
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
