"""scikit-learn estimators; needs scikit-learn 1.6 or later."""

from __future__ import annotations

__all__ = [
    "DecoupledGP", "DecoupledGPClassifier", "DecoupledGPRegressor", "blocks_of",
    "class_probabilities", "counted_rows", "held_out_rows", "how_to_go_on", "numbers_in",
    "without_gaps",
]  # fmt: skip

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gpflow
import numpy as np
import numpy.typing as npt
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, check_X_y, validate_data

from ..building import build, can_initialize
from ..building.inside import take_rows
from ..building.likelihoods import example_of
from ..errors import DataError
from ..inputs import check_whole, is_number
from ..likelihoods.facts import base_of, label_kind, name_of, own_number
from ..models import FullGP
from ..summaries import short_repr
from ..training import Evaluation, FitResult
from ..training.tables import check_order, is_frame, rows_of
from ..user_warnings import warn_user

# ---
# Class probabilities from predictions.


def class_probabilities(predicted: np.ndarray) -> np.ndarray:
    """Return class probabilities [N, K] from the mean of `predict_y`.

    :param predicted: [N, 1], the probability of the second of two classes; else [N, K], whose rows
        sum to 1 up to quadrature errors of 1e-6.
    """
    if predicted.shape[1] == 1:
        return np.concatenate([1.0 - predicted, predicted], axis=1)
    return predicted / predicted.sum(axis=1, keepdims=True)


# ---
# Held-out rows, numbers of rows, and gaps.


_LIMITS = ("steps done", "time is up")
"""Reasons of a run that could have continued."""
_RISE = 1e-3
"""Nats per row: a late gain of held-out rows that promises more from a longer run."""


def held_out_rows(groups: np.ndarray, fraction: object, rng: np.random.RandomState) -> np.ndarray:
    """Choose held-out rows, [N] booleans: the same share of each group, rounded down.

    :param groups: [N], the class of each row; constant for regression.
    :param fraction: the share, in (0, 1).
    :param rng: chooses the rows.
    """
    if not is_number(fraction) or not 0.0 < fraction < 1.0:
        raise DataError(
            f"validation_fraction={short_repr(fraction)}: pass a share of the rows above 0 and"
            " below 1, or None."
        )
    held_out = np.zeros(len(groups), bool)
    for group in np.unique(groups):
        rows = np.flatnonzero(groups == group)
        # the small number keeps 0.1 * 30 at 3; a class keeps a row at least, as the share is below
        # 1
        held_out[rng.permutation(rows)[: int(fraction * len(rows) + 1e-9)]] = True
    if not held_out.any():
        raise DataError(
            f"validation_fraction={fraction:g} of {len(groups)} rows holds out none of any class;"
            " use a larger share, or None."
        )
    return held_out


def how_to_go_on(result: FitResult) -> str:
    """Advise on a longer run if a limit ended one that still improved; else "".

    :param result: of a run with an `Evaluation`.
    """
    # It improved if the held-out mean log density at the end exceeds the best of the first three
    # quarters of the steps by at least 1e-3 nats per row.
    steps, density = result.history["evaluation_step"], result.history["log_density"]
    early = density[steps <= 0.75 * result.steps]
    if result.reason not in _LIMITS or not len(early) or not density[-1] - early.max() >= _RISE:
        return ""
    limit, size = (
        ("steps", result.steps) if result.reason == _LIMITS[0] else ("seconds", result.seconds)
    )
    return (
        f"A limit ended training ({result.reason}) while predictions for held-out rows still"
        f" improved: their mean log density rose by {density[-1] - early.max():.2g} nats in the"
        f" last quarter of {result.steps} steps. For a run twice as long pass"
        f" {limit}={2 * size:.6g}; to go on from here, for some {result.seconds:.0f} s, call"
        f" standardized_.fit({limit}={size:.6g})."
    )


def counted_rows(X: Any, Y: np.ndarray, numbers: dict[str, Any]) -> tuple[Any, np.ndarray, dict]:
    """X, Y and numbers of rows, checked as scikit-learn does, of the rows whose weight is not 0.

    :param X: a frame, or [N, D].
    :param Y: targets, [N] or [N, P].
    :param numbers: of `build`: arrays, names of columns, or None.
    """
    numbers = {name: _numbers_of_rows(name, value, len(Y)) for name, value in numbers.items()}
    weights = numbers["sample_weight"]
    if isinstance(weights, str) and is_frame(X) and weights in X.columns:
        weights = np.asarray(X[weights])
    if weights is None or isinstance(weights, str) or len(weights) != len(Y):
        return X, Y, numbers
    counts = weights != 0.0
    kept = {
        name: value if value is None or isinstance(value, str) else value[counts]
        for name, value in numbers.items()
    }
    return rows_of(X, counts), Y[counts], kept


def _numbers_of_rows(name: str, value: npt.ArrayLike | str | None, rows: int) -> Any:
    if value is None or isinstance(value, str):
        return value
    if name == "sample_weight":
        return _check_sample_weight(value, np.zeros((rows, 1)), dtype=np.float64)
    return np.asarray(value, np.float64)


def without_gaps(y: Any) -> tuple[Any, np.ndarray | None]:
    """Several targets with means where entries are missing, and which are, [N, P].

    Others unchanged, with None.

    :param y: targets [N] or [N, P].
    """
    values = np.asarray(y) if hasattr(y, "dtype") or hasattr(y, "dtypes") else np.zeros(0)
    if values.ndim != 2 or values.shape[1] < 2 or values.dtype.kind != "f":
        return y, None
    missing = np.isnan(values)
    if not missing.any() or missing.all(axis=1).any() or missing.all(axis=0).any():
        return y, None
    return np.where(missing, np.nanmean(values, axis=0), values), missing


# ---
# The shared part of the estimators.


_BLOCK = 8192
"""Rows predicted at once, so that memory does not grow with the data."""
_EVERY = 100
"""Steps between evaluations of held-out rows: score resolution against time."""


def blocks_of(rows: int) -> list[slice]:
    """Slices of rows that are predicted at once."""
    return [slice(start, start + _BLOCK) for start in range(0, rows, _BLOCK)]


def numbers_in(numbers: Mapping[str, Any], rows: slice) -> dict[str, Any]:
    """The part of some rows of arguments with a number for each; names of columns stay."""
    return {
        name: value if value is None or isinstance(value, str) else np.asarray(value)[rows]
        for name, value in numbers.items()
    }


class DecoupledGP(BaseEstimator):
    """Parameters, training and predictions in blocks of rows; X is [N, D], Y [N, P].

    See `DecoupledGPRegressor` for the parameters.
    """

    def __init__(
        self,
        kernel: Kernel | Callable[[int], Kernel] | None = None,
        *,
        likelihood: Likelihood | str | None = None,
        scale: str | None = None,
        num_inducing: int | None = None,
        num_mean_points: int | str | None = None,
        num_neighbours: int | None = None,
        steps: int | None = 1000,
        seconds: float | None = None,
        validation_fraction: float | None = None,
        n_iter_no_change: int = 10,
        fit_options: dict[str, Any] | None = None,  # the arguments of `fit` are of many types
        random_state: int | np.random.RandomState | None = 0,
        verbose: bool = False,
    ) -> None:
        self.kernel = kernel
        self.likelihood = likelihood
        self.scale = scale
        self.num_inducing = num_inducing
        self.num_mean_points = num_mean_points
        self.num_neighbours = num_neighbours
        self.steps = steps
        self.seconds = seconds
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.fit_options = fit_options
        self.random_state = random_state
        self.verbose = verbose

    def _train(
        self,
        X: np.ndarray,
        Y: np.ndarray,
        likelihood: Likelihood | str,
        numbers: dict[str, Any],
    ) -> None:
        rng = check_random_state(self.random_state)
        seed = int(rng.randint(2**31 - 1))
        X, Y, evaluation = self._hold_out(X, Y, rng, numbers, likelihood)
        self.standardized_ = build(
            X,
            Y,
            likelihood,
            self.kernel,
            scale=self.scale,
            num_inducing=self.num_inducing,
            num_mean_points=self.num_mean_points,
            num_neighbours=self.num_neighbours,
            seed=seed,
            verbose=bool(self.verbose),
            **numbers,
        )
        self.model_ = self.standardized_.model
        self.X_scaler_, self.y_scaler_ = self.standardized_.inputs, self.standardized_.outputs
        options: dict[str, object] = {
            "steps": self.steps,
            "seconds": self.seconds,
            "progress": bool(self.verbose),
        }
        # nothing in a step of a full GP is random
        options |= {} if isinstance(self.model_, FullGP) else {"seed": seed}
        options |= {} if evaluation is None else {"evaluation": evaluation}
        unchosen = self.kernel is None and example_of(likelihood) is not likelihood
        options |= {"initialize": "auto"} if unchosen and can_initialize(self.model_) else {}
        self.result_: FitResult = self.standardized_.fit(**(options | (self.fit_options or {})))
        if evaluation is not None and (advice := how_to_go_on(self.result_)):
            warn_user(advice, ConvergenceWarning)

    def _hold_out(
        self,
        X: np.ndarray,
        Y: np.ndarray,
        rng: np.random.RandomState,
        numbers: dict[str, Any],
        likelihood: Likelihood | str,
    ) -> tuple[np.ndarray, np.ndarray, Evaluation | None]:
        if self.validation_fraction is None:
            return X, Y, None
        if "evaluation" in (self.fit_options or {}):
            raise DataError(
                "validation_fraction and fit_options['evaluation'] both hold out rows; pass one of"
                " them."
            )
        check_whole(1, n_iter_no_change=self.n_iter_no_change)
        groups = Y[:, 0] if isinstance(self, ClassifierMixin) else np.zeros(len(Y))
        out = held_out_rows(groups, self.validation_fraction, rng)
        held = Y[out]
        others = [numbers[name] for name in numbers if name != "sample_weight"]
        if any(not (value is None or isinstance(value, str)) for value in others):
            # a frame has its own; each row that is held out counts alike
            alike = None if numbers["sample_weight"] is None else np.ones(len(Y))
            given = numbers | {"sample_weight": alike}
            of_rows = take_rows(X, given, Y, own_number(example_of(likelihood)))[1]
            assert of_rows is not None, "some numbers are given"
            held = np.hstack([held, of_rows[out]])
        for name, value in numbers.items():
            numbers[name] = value if value is None or isinstance(value, str) else value[~out]
        data = rows_of(X, out), held
        evaluation = Evaluation(data, every=_EVERY, patience=self.n_iter_no_change)
        return rows_of(X, ~out), Y[~out], evaluation

    def _inputs(self, X: npt.ArrayLike) -> Any:
        check_is_fitted(self)
        frame = is_frame(X) and bool(self.standardized_.table.columns)
        return validate_data(self, X, reset=False, skip_check_array=frame)

    def _learned(
        self, X: npt.ArrayLike, y: npt.ArrayLike, **checks: bool
    ) -> tuple[Any, np.ndarray]:
        if not is_frame(X):
            return validate_data(self, X, y, **checks)
        validate_data(self, X, skip_check_array=True)
        # the columns are checked where they are encoded
        rows = np.zeros((np.shape(X)[0], 1))
        return X, check_X_y(rows, y, **checks)[1]

    def _moments(
        self, X: npt.ArrayLike, noise_variance: npt.ArrayLike | str | None = None, **numbers: Any
    ) -> tuple[np.ndarray, np.ndarray]:
        inputs = self._inputs(X)
        noise: float | np.ndarray = 0.0
        if noise_variance is not None:
            noise = self.standardized_.known_noise(noise_variance, inputs)
        blocks = [
            self.standardized_.predict_y(rows_of(inputs, rows), **numbers_in(numbers, rows))
            for rows in blocks_of(len(inputs))
        ]
        mean, variance = zip(*blocks)
        return np.concatenate(mean), np.concatenate(variance) + noise


# ---


# Import them from `gpflow_decoupled.wrappers.sklearn`.


class DecoupledGPRegressor(RegressorMixin, DecoupledGP):
    """Gaussian process regression: exact, by nearest neighbours, or by inducing points.

    `gpflow_decoupled.build` chooses the model; it documents `likelihood`, `scale`, and the numbers
    of points and neighbours. X may be a data frame, see `training.tables.Column`. Predictions are
    in the units of y. Several targets are independent GPs with one kernel.

    :param kernel: a GPflow kernel, or a function from the number of inputs to one, in units of X;
        None: Matern 5/2, or 1/2 as in `build`, with one lengthscale per column. Without a kernel
        and a likelihood, models with inducing points start from an exact GP on 500 rows, unless
        `fit_options={"initialize": None}`.
    :param num_mean_points: if this or `num_inducing` is given, the other is 1,000 or 300.
    :param steps: training steps; None leaves the limit to `seconds`. Models without inducing points
        end by themselves.
    :param seconds: limit on the wall-clock time of the steps; None leaves it to `steps`.
    :param validation_fraction: share of the rows (per class in a classifier) to hold out. Training
        stops when their log density no longer improves, at the best Parameters, or with a
        `ConvergenceWarning` at a limit. None: all rows for all steps.
    :param n_iter_no_change: evaluations without improvement before training stops.
    :param fit_options: further arguments of `gpflow_decoupled.fit`.
    :param random_state: seed of points and minibatches.
    :param verbose: show progress.

    Attributes after `fit`: `model_`, the GPflow model of standardised data; `standardized_`, which
    predicts in the units of the data; `result_`, the record of training; `n_features_in_`, and
    `feature_names_in_` for data frames.

    Example::

        regressor = DecoupledGPRegressor(num_inducing=50, num_mean_points=100, steps=200)
        regressor.fit(X, y)
        mean, std = regressor.predict(X_new, return_std=True)
    """

    def fit(
        self,
        X: npt.ArrayLike,
        y: npt.ArrayLike,
        sample_weight: npt.ArrayLike | str | None = None,
        *,
        offset: npt.ArrayLike | str | None = None,
        exposure: npt.ArrayLike | str | None = None,
        noise_variance: npt.ArrayLike | str | None = None,
        trials: npt.ArrayLike | str | None = None,
        censored: npt.ArrayLike | str | None = None,
    ) -> DecoupledGPRegressor:
        """Learn from X [N, D] and y [N] or [N, P], where an entry of several outputs may be NaN.

        :param sample_weight: of each row, [N]; this and the next ones as in `build`: weights are
            divided by their mean.
        """
        numbers: dict[str, Any] = {
            "sample_weight": sample_weight, "offset": offset, "exposure": exposure,
            "noise_variance": noise_variance, "trials": trials, "censored": censored,
        }  # fmt: skip
        check_order(X=X, y=y, **numbers)
        filled, missing = without_gaps(y)
        inputs, observed = self._learned(X, filled, y_numeric=True, multi_output=True)
        targets = observed.reshape(len(observed), -1).astype(gpflow.default_float())
        if missing is not None:
            targets[missing] = np.nan
        self._single_target = observed.ndim == 1
        inputs, targets, numbers = counted_rows(inputs, targets, numbers)
        if len(targets) < 2:
            raise DataError(
                f"y has n_samples = {len(targets)}: neither scale nor noise can be learned from one"
                " observation."
            )
        self._train(inputs, targets, self.likelihood or "gaussian", numbers)
        return self

    def predict(
        self,
        X: npt.ArrayLike,
        return_std: bool = False,
        return_cov: bool = False,
        noise_variance: npt.ArrayLike | str | None = None,
        *,
        offset: npt.ArrayLike | str | None = None,
        exposure: npt.ArrayLike | str | None = None,
        trials: npt.ArrayLike | str | None = None,
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Predict the mean of y at X [N, D], shaped as y.

        :param X: inputs; a data frame with the columns of training.
        :param return_std: return (mean, standard deviation of y), too.
        :param return_cov: return (mean, covariance of y at all rows), [N, N] or [N, N, P] as in
            scikit-learn's `GaussianProcessRegressor`; N^3, for observations that are f plus noise.
        :param noise_variance: known noise of the new rows beside the learned one, in squared units
            of y: [N], [N, P], or a column of X. Without it the learned one is the only noise.
        :param offset: this, `exposure` and `trials` as in `Standardized.predict_y`.
        """
        numbers = {"offset": offset, "exposure": exposure, "trials": trials}
        if return_cov:
            return self._covariance(X, return_std, noise_variance, numbers)
        mean, variance = self._moments(X, noise_variance, **numbers)
        std = np.sqrt(variance)
        if self._single_target:
            mean, std = mean[:, 0], std[:, 0]
        return (mean, std) if return_std else mean

    def predict_quantiles(
        self,
        X: npt.ArrayLike,
        quantiles: Sequence[float] = (0.05, 0.5, 0.95),
        noise_variance: npt.ArrayLike | str | None = None,
        *,
        offset: npt.ArrayLike | str | None = None,
        exposure: npt.ArrayLike | str | None = None,
        trials: npt.ArrayLike | str | None = None,
    ) -> np.ndarray:
        """Quantiles of y at X [N, D]: [N, Q], or [N, P, Q] of several targets.

        Of counts the smallest whose probability of at most it reaches the level.

        :param noise_variance: this, `offset`, `exposure` and `trials` as in `predict`.

        Example::

            low, high = regressor.predict_quantiles(X_new, (0.05, 0.95)).T
        """
        inputs = self._inputs(X)
        model = self.standardized_
        numbers: dict[str, Any] = {"offset": offset, "exposure": exposure, "trials": trials}
        if noise_variance is not None:
            numbers["noise_variance"] = model.known_noise(noise_variance, inputs)
        blocks = [
            model.predict_quantiles(rows_of(inputs, rows), quantiles, **numbers_in(numbers, rows))
            for rows in blocks_of(len(inputs))
        ]
        found = np.concatenate(blocks)
        return found[:, 0] if self._single_target else found

    def _covariance(
        self,
        X: npt.ArrayLike,
        return_std: bool,
        noise_variance: npt.ArrayLike | str | None,
        numbers: dict[str, Any],
    ) -> tuple[np.ndarray, np.ndarray]:
        if return_std:
            raise DataError("return_std and return_cov are both true; pass one of them.")
        inputs = self._inputs(X)
        if self.y_scaler_ is None:
            raise DataError(
                "return_cov is for observations that are f plus noise, which a"
                f" {name_of(self.model_.likelihood)} does not have; pass return_std=True."
            )
        cov = self.standardized_.predict_f(inputs, full_cov=True)[1].numpy()
        mean, variance = self._moments(X, noise_variance, **numbers)
        rows = np.arange(len(mean))
        cov[:, rows, rows] = variance.T
        cov = np.moveaxis(cov, 0, 2)
        return (mean[:, 0], cov[:, :, 0]) if self._single_target else (mean, cov)

    def sample_y(
        self,
        X: npt.ArrayLike,
        n_samples: int = 1,
        random_state: int | np.random.RandomState | None = 0,
    ) -> np.ndarray:
        """Draw f jointly at X [N, D], in y's units: [N, n_samples] or [N, P, n_samples]; N^3."""
        inputs = self._inputs(X)
        inputs = self.standardized_.encoded(inputs)
        mean, cov = (
            tensor.numpy() for tensor in self.model_.predict_f(inputs, full_cov=True)
        )  # [N, P], [P, N, N]
        rng = check_random_state(random_state)
        draws = [
            rng.multivariate_normal(mean[:, p], cov[p], n_samples).T for p in range(mean.shape[1])
        ]
        samples = np.stack(draws, axis=2)  # [N, n_samples, P]
        if self.y_scaler_ is not None:
            samples = self.y_scaler_.inverse_transform(samples).numpy()
        samples = np.moveaxis(samples, 2, 1)
        return samples[:, 0] if self._single_target else samples

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class DecoupledGPClassifier(ClassifierMixin, DecoupledGP):
    """Gaussian process classification by an orthogonally decoupled posterior.

    Two classes share one latent function and a logistic link; more have a latent each and a
    `CategoricalLogit` (softmax). Other arguments and attributes as `DecoupledGPRegressor`, and
    `classes_`.

    :param likelihood: "ordinal" for grades, or a GPflow likelihood of labels 0, 1, ... in the order
        of `classes_`.

    Example::

        classifier = DecoupledGPClassifier(num_inducing=50, num_mean_points=100, steps=200)
        classifier.fit(X, labels)
        probabilities = classifier.predict_proba(X_new)
    """

    def fit(
        self,
        X: npt.ArrayLike,
        y: npt.ArrayLike,
        sample_weight: npt.ArrayLike | str | None = None,
    ) -> DecoupledGPClassifier:
        """Learn from X [N, D] and labels y [N].

        :param sample_weight: of each row, [N], or a column of X: weights are divided by their mean.
        """
        check_order(X=X, y=y, sample_weight=sample_weight)
        inputs, observed = self._learned(X, y)
        check_classification_targets(observed)
        weights = {"sample_weight": sample_weight}
        inputs, observed, weights = counted_rows(inputs, observed, weights)
        self.classes_, labels = np.unique(observed, return_inverse=True)
        if len(self.classes_) < 2:
            raise DataError(
                f"y has one class, {self.classes_[0]!r}; there is nothing to tell apart."
            )
        targets = labels.astype(gpflow.default_float())[:, None]
        likelihood = self.likelihood or "multiclass"
        if label_kind(example_of(likelihood)) == "grades" and self.classes_.dtype.kind in "OUS":
            raise DataError(
                f"y has words, such as {self.classes_[0]!r}, in no order: pass numbers of grades,"
                " such as pandas.Categorical(y, categories=[lowest, ..., highest]).codes."
            )
        self._train(inputs, targets, likelihood, weights)
        return self

    def predict_proba(self, X: npt.ArrayLike) -> np.ndarray:
        """Class probabilities [N, C] at X [N, D], columns as `classes_`."""
        inputs = self._inputs(X)
        likelihood = base_of(self.standardized_.likelihood)
        if label_kind(likelihood) != "grades":
            return class_probabilities(self._moments(X)[0])
        return likelihood.probabilities(*self.standardized_.predict_f(inputs)).numpy()

    def predict(self, X: npt.ArrayLike) -> np.ndarray:
        """The most probable class at each row of X [N, D]."""
        best = np.argmax(self.predict_proba(X), axis=1)
        return self.classes_[best]


def __dir__() -> list[str]:
    return sorted(__all__)
