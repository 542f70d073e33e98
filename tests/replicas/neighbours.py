"""Nearest-neighbour GPs that several workers must train as one process does."""

from __future__ import annotations

__all__ = [
    "data_of", "labels_model", "neighbours", "neighbours_faults", "neighbours_labels",
    "neighbours_model", "neighbours_sites", "site_faults", "sites_model",
]  # fmt: skip

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest import mock

import gpflow
import numpy as np
import tensorflow as tf

import gpflow_decoupled as gd
from gpflow_decoupled.models import NNGP
from gpflow_decoupled.models.neighbours import GaussianNNGP, SiteNNGP
from gpflow_decoupled.replicas import Group
from tests.training.problems import values

Found = dict[str, np.ndarray]
ROWS = 620
"""124 judge, so that 496 are sampled: two blocks of 248, one for each worker."""


def data_of(rows: int = ROWS) -> tuple[np.ndarray, np.ndarray]:
    """X [N, 2] and Y [N, 1], with two rows that contradict others."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(rows, 2))
    Y = np.sin(6.0 * X[:, :1]) * X[:, 1:] + 0.1 * rng.normal(size=(rows, 1))
    X[-2:] = X[:2]
    return X, Y


def neighbours_model(data: tuple[np.ndarray, np.ndarray]) -> NNGP:
    """With a lengthscale for each column."""
    kernel = gpflow.kernels.Matern32(lengthscales=np.ones(2))
    return NNGP(data, kernel, num_neighbours=8, prediction_neighbours=12)


def sites_model(data: tuple[np.ndarray, np.ndarray]) -> NNGP:
    """Labels: rows whose function is above 0.1. To be built outside of a strategy's scope."""
    kernel = gpflow.kernels.Matern32(lengthscales=np.ones(2))
    return NNGP(
        (data[0], (data[1] > 0.1).astype(float)),
        kernel,
        gd.likelihoods.BernoulliLogit(),
        num_neighbours=6,
        prediction_neighbours="auto",
    )


def labels_model(data: tuple[np.ndarray, np.ndarray]) -> NNGP:
    """Three classes, by the function. To be built outside of a strategy's scope."""
    X, Y = data
    classes = np.digitize(Y, np.quantile(Y, [0.3, 0.6])).astype(float)
    likelihood = gd.likelihoods.CategoricalLogit(3)
    return NNGP((X, classes), gpflow.kernels.Matern32(), likelihood, num_neighbours=8)


def neighbours(
    strategy: tf.distribute.Strategy, path: str, rows: int = ROWS, compile: bool = True
) -> Found:
    """A run by the first worker alone and by both, and predictions of new rows."""
    found: Found = {}
    alone = {"one": None} if Group(strategy).is_first else {}
    for kind, chosen in {**alone, "two": strategy}.items():
        group = Group(chosen)
        with group.scope():
            model = neighbours_model(data_of(rows))
        with _searched() as numbers:
            result = gd.fit(model, steps=2, strategy=chosen, progress=False, compile=compile)
        X = np.random.default_rng(1).uniform(size=(7, 2))
        mean, variance = group.over_rows(model.predict_y, X)
        trace = {name: result.history[name] for name in ("elbo", "leave_one_out")}
        trace |= {"bound": np.array(result.elbo), "mean": mean, "variance": variance}
        named = {f"value {name}": value for name, value in values(model).items()}
        found |= {f"{kind}/{name}": value for name, value in (named | trace).items()}
        found[f"{kind}/searched"] = np.array(numbers)
    return found


def neighbours_labels(strategy: tf.distribute.Strategy, path: str) -> Found:
    """Classes, by this worker alone and by both."""
    found: Found = {}
    for kind, chosen in (("one", None), ("two", strategy)):
        model = labels_model(data_of(121))
        with _searched() as numbers:
            result = gd.fit(model, steps=3, strategy=chosen, progress=False, compile=False)
        trace = {name: result.history[name] for name in ("elbo", "leave_one_out")}
        trace |= {"searched": np.array(numbers)}
        named = {f"value {name}": value for name, value in values(model).items()}
        found |= {f"{kind}/{name}": value for name, value in (named | trace).items()}
    return found


def neighbours_sites(strategy: tf.distribute.Strategy, path: str) -> Found:
    """Labels, by this worker alone and by both."""
    found: Found = {}
    for kind, chosen in (("one", None), ("two", strategy)):
        model = sites_model(data_of(121))
        with _searched() as numbers:
            result = gd.fit(model, steps=2, strategy=chosen, progress=False, compile=False)
        new = np.random.default_rng(1).uniform(size=(7, 2))
        mean, variance = Group(chosen).over_rows(model.predict_y, new)
        trace = {name: result.history[name] for name in ("elbo", "leave_one_out")}
        trace |= dict(zip(("nu", "precision"), (part.numpy() for part in model.sites)))
        trace |= {"mean": mean, "variance": variance, "searched": np.array(numbers)}
        named = {f"value {name}": value for name, value in values(model).items()}
        found |= {f"{kind}/{name}": value for name, value in (named | trace).items()}
    return found


def neighbours_faults(strategy: tf.distribute.Strategy, path: str) -> Found:
    """Errors and other data on the second worker; clocks that differ."""

    def made(data: tuple[np.ndarray, np.ndarray]) -> NNGP:
        with strategy.scope():
            return neighbours_model(data)

    faults = {"neighbours_of": GaussianNNGP, "log_likelihood": GaussianNNGP}
    return _faults(strategy, made, faults, seconds=0.8)


def site_faults(strategy: tf.distribute.Strategy, path: str) -> Found:
    """The same in rounds of sites."""
    faults = {"log_likelihood": GaussianNNGP, "moved_sites": SiteNNGP, "left_out": SiteNNGP}
    return _faults(strategy, sites_model, faults, seconds=1.5)


def _faults(
    strategy: tf.distribute.Strategy,
    made: Callable[[tuple[np.ndarray, np.ndarray]], NNGP],
    faults: dict[str, type[NNGP]],
    seconds: float,
) -> Found:
    """Errors in methods of some class and other data on the second worker; clocks that differ."""
    number, data = Group(strategy).number, data_of(100)

    def fit(data: tuple[np.ndarray, np.ndarray] = data, **options: Any) -> tuple[Any, Any]:
        model = made(data)
        options = {"steps": 2, **options}
        result = gd.fit(model, strategy=strategy, progress=False, compile=False, **options)
        return values(model), result

    found: Found = {}
    for name, owner in faults.items():
        with _third_call_fails(owner, name) if number == 1 else nullcontext():
            found[name] = _message(fit)
    found["data"] = _message(lambda: fit((data[0], data[1] + number)))
    found["rows"] = _message(lambda: fit((data[0][number:], data[1][number:])))
    late = gd.training.Callbacks([lambda *_: time.sleep(number)], every=1)
    trained, result = fit(steps=None, seconds=seconds, callbacks=late)
    return {
        **found,
        "steps": np.array(result.steps),
        **{f"value {k}": v for k, v in trained.items()},
    }


@contextmanager
def _searched() -> Iterator[list[int]]:
    """Collect how many rows each search of neighbours is for."""
    numbers: list[int] = []
    plain = GaussianNNGP.neighbours_of

    def neighbours_of(model: NNGP, rows: np.ndarray, **options: Any) -> tf.Tensor:
        numbers.append(len(rows))
        return plain(model, rows, **options)

    with mock.patch.object(GaussianNNGP, "neighbours_of", neighbours_of):
        yield numbers


@contextmanager
def _third_call_fails(owner: type[NNGP], name: str) -> Iterator[None]:
    """The third call of a method raises on this worker."""
    plain, calls = getattr(owner, name), list[int]()

    def method(*given: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise MemoryError("none left in the third call")
        return plain(*given, **options)

    with mock.patch.object(owner, name, method):
        yield


def _message(action: Callable[[], Any]) -> np.ndarray:
    try:
        action()
    except Exception as error:
        return np.array(f"{type(error).__name__}: {error}")
    return np.array("went through")
