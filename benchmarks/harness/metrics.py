"""Metrics and their directions: which of two values is the better one."""

from __future__ import annotations

__all__ = [
    "METRICS",
    "Metric",
    "average_ranks",
    "classification_scores",
    "elbo",
    "evaluate",
    "evaluate_classes",
    "gaussian_scores",
    "mean_and_error",
    "standard_error",
    "table_cell",
]

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from scipy.stats import norm, rankdata
from sklearn.metrics import accuracy_score, log_loss

from gpflow_decoupled.wrappers.sklearn import class_probabilities

from .data import Data


class Model(Protocol):
    """What the metrics use of a GPflow model."""

    def predict_y(self, X: np.ndarray) -> tuple[npt.ArrayLike, npt.ArrayLike]:
        """Mean and variance of y, or probabilities of classes."""

    def predict_log_density(self, data: tuple[np.ndarray, np.ndarray]) -> npt.ArrayLike:
        """log p(y) of each row."""

    def elbo(self, data: tuple[np.ndarray, np.ndarray]) -> npt.ArrayLike:
        """The bound on all training rows, estimated from those of `data`."""


class Metric(NamedTuple):
    """A name for axes and tables, and a direction."""

    label: str
    larger_is_better: bool

    def better(self, first: float, second: float) -> bool:
        """Whether `first` is strictly better than `second`."""
        return first > second if self.larger_is_better else first < second

    def best(self, values: Iterable[float]) -> float:
        """The best of the finite numbers in `values`, or NaN if there is none."""
        finite = [value for value in values if np.isfinite(value)]
        return (max if self.larger_is_better else min)(finite, default=float("nan"))


METRICS = {
    "mae": Metric("test MAE", larger_is_better=False),
    "rmse": Metric("test RMSE", larger_is_better=False),
    "log_density": Metric("mean test log density", larger_is_better=True),
    "accuracy": Metric("test accuracy", larger_is_better=True),
    "log_loss": Metric("test log loss (nats)", larger_is_better=False),
    "elbo": Metric("ELBO (nats, all training data)", larger_is_better=True),
}


def evaluate(model: Model, data: Data, batch_size: int = 2000) -> dict[str, float]:
    """Test MAE and RMSE of E[y], the mean log density, and the share within 95 % intervals, by
    batches.

    In units of the standardised output. The interval is the mean and 1.96 standard deviations of y
    on both sides."""
    errors, squares, density, covered, count = 0.0, 0.0, 0.0, 0, len(data.X_test)
    for X, Y in _batches(data.X_test, data.Y_test, batch_size):
        mean, variance = map(np.asarray, model.predict_y(X))
        residuals = Y - mean
        errors += float(np.sum(np.abs(residuals)))
        squares += float(np.sum(residuals**2))
        density += float(np.sum(np.asarray(model.predict_log_density((X, Y)))))
        covered += int(np.sum(_within(residuals, variance)))
    rmse = float(np.sqrt(squares / count))
    return {
        "mae": errors / count,
        "rmse": rmse,
        "log_density": density / count,
        "coverage": covered / count,
    }


def gaussian_scores(mean: np.ndarray, variance: np.ndarray, Y: np.ndarray) -> dict[str, float]:
    """What `evaluate` gives, from Gaussian predictions of y: mean, variance and outputs [N, 1]."""
    residuals = Y - mean
    density = -0.5 * np.mean(np.log(2.0 * np.pi * variance) + residuals**2 / variance)
    mae, rmse = float(np.mean(np.abs(residuals))), float(np.sqrt(np.mean(residuals**2)))
    covered = float(np.mean(_within(residuals, variance)))
    return {"mae": mae, "rmse": rmse, "log_density": float(density), "coverage": covered}


def _within(residuals: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Whether outputs are within the central 95 % of a Gaussian with this variance."""
    return np.abs(residuals) <= norm.ppf(0.975) * np.sqrt(variance)


def classification_scores(labels: np.ndarray, probabilities: np.ndarray) -> dict[str, float]:
    """Accuracy and log loss in nats.

    :param labels: [N] or [N, 1], in 0..C-1.
    :param probabilities: [N, C]; a single column has the probabilities of class 1 of two.
    """
    labels, chances = np.ravel(labels).astype(int), np.asarray(probabilities, dtype=float)
    if chances.shape[1] == 1:
        chances = np.hstack([1.0 - chances, chances])
    loss = log_loss(labels, chances, labels=range(chances.shape[1]))
    return {"accuracy": float(accuracy_score(labels, chances.argmax(1))), "log_loss": float(loss)}


def evaluate_classes(model: Model, data: Data, batch_size: int = 2000) -> dict[str, float]:
    """Accuracy and log loss on the test rows of a GPflow model of two classes or more."""
    chances = [
        np.asarray(model.predict_y(X)[0]) for X, _ in _batches(data.X_test, data.Y_test, batch_size)
    ]
    return classification_scores(data.Y_test, class_probabilities(np.concatenate(chances)))


def elbo(model: Model, data: Data, batch_size: int = 2000) -> float:
    """The ELBO on all training rows, as the weighted mean of estimates from batches; the model's
    `num_data` must be set.
    """
    count = len(data.X_train)
    weighted = (
        len(X) * float(model.elbo((X, Y)))
        for X, Y in _batches(data.X_train, data.Y_train, batch_size)
    )
    return sum(weighted) / count


def _batches(X: np.ndarray, Y: np.ndarray, size: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    return ((X[start : start + size], Y[start : start + size]) for start in range(0, len(X), size))


def average_ranks(values: np.ndarray, metric: Metric) -> tuple[np.ndarray, np.ndarray]:
    """The mean rank of each model over the tasks and its standard error; rank 1 is the best.

    :param values: [tasks, models]. Equal values share the mean of their ranks, and NaN comes last.
    """
    losses = (
        -np.asarray(values, dtype=float)
        if metric.larger_is_better
        else np.asarray(values, dtype=float)
    )
    ranks = rankdata(np.where(np.isnan(losses), np.inf, losses), axis=1)
    return ranks.mean(0), np.array([standard_error(column) for column in ranks.T])


def standard_error(values: Sequence[float]) -> float:
    """Standard error of the mean; 0 for a single value."""
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def table_cell(value: float, digits: int, bold: bool = False, error: float = 0.0) -> str:
    """A number as a cell of a table, with its standard error where that is not zero; empty for
    NaN.
    """
    text = (
        ""
        if np.isnan(value)
        else f"{value:.{digits}f}" + (f" +- {error:.{digits}f}" if error else "")
    )
    return f"**{text}**" if bold else text


def mean_and_error(values: Sequence[float], digits: int) -> str:
    """Mean and standard error as a cell of a table; the mean alone of a single value."""
    return table_cell(float(np.mean(values)), digits, error=standard_error(values))
