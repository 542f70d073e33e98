"""scikit-learn estimators; needs scikit-learn 1.6 or later."""

# Import them from `gpflow_decoupled.wrappers.sklearn`.

from __future__ import annotations

__all__ = ["DecoupledGPClassifier", "DecoupledGPRegressor"]

from collections.abc import Sequence
from typing import Any

import gpflow
import numpy as np
import numpy.typing as npt
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.multiclass import check_classification_targets

from ..building.likelihoods import takes_grades
from ..errors import DataError
from ..likelihoods import Ordinal
from ..training.tables.table import check_order, rows_of
from .classes import class_probabilities
from .estimator import DecoupledGP, blocks_of, numbers_in
from .validation import counted_rows, without_gaps


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
                f" {type(self.model_.likelihood).__name__} does not have; pass return_std=True."
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
        inputs = self.standardized_.encoded(self._inputs(X))
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
        if takes_grades(likelihood) and self.classes_.dtype.kind in "OUS":
            raise DataError(
                f"y has words, such as {self.classes_[0]!r}, in no order: pass numbers of grades,"
                " such as pandas.Categorical(y, categories=[lowest, ..., highest]).codes."
            )
        self._train(inputs, targets, likelihood, weights)
        return self

    def predict_proba(self, X: npt.ArrayLike) -> np.ndarray:
        """Class probabilities [N, C] at X [N, D], columns as `classes_`."""
        likelihood = self.standardized_.likelihood
        likelihood = getattr(likelihood, "likelihood", likelihood)  # of rows with weights
        if not isinstance(likelihood, Ordinal):
            return class_probabilities(self._moments(X)[0])
        return likelihood.probabilities(*self.standardized_.predict_f(self._inputs(X))).numpy()

    def predict(self, X: npt.ArrayLike) -> np.ndarray:
        """The most probable class at each row of X [N, D]."""
        best = np.argmax(self.predict_proba(X), axis=1)
        return self.classes_[best]


def __dir__() -> list[str]:
    return sorted(__all__)
