"""Means on all data that several replicas must find as one process does: models, data and runs by
name.
"""

from __future__ import annotations

__all__ = ["ON_DATA", "found_alone", "found_on", "on_data", "small_blocks", "solver"]

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple
from unittest import mock

import gpflow
import numpy as np
import tensorflow as tf

import gpflow_decoupled as gd
from gpflow_decoupled import replicas
from gpflow_decoupled.covariances import blocks as stationary_products
from gpflow_decoupled.covariances import products
from gpflow_decoupled.models import ODVGP
from gpflow_decoupled.optimizers import ConjugateGradients
from gpflow_decoupled.replicas import Group
from gpflow_decoupled.training.routes import inducing as course
from tests.replicas.cases import BETA, bernoulli, gaussian, inputs, kernel, observations

ROWS = 1100
"""More than a product needs to be computed in blocks."""


class OnData(NamedTuple):
    """A run: how the model is built, the observations, the steps of `fit`, and what a run of the
    solver alone has.
    """

    build: Callable[[], Any]
    Y: str = "sine"
    steps: int = 0
    """Of `fit`; none is one run of the solver."""
    large: bool = False
    """With blocks as they are, on so many rows that they are used."""
    tolerance: float = 1e-9
    """Relative; L-BFGS multiplies round-off, most where the noise variance falls: by strips, one
    process whose Y are changed by 1e-15 of their size ends with a q_sqrt that differs by 4e-6."""


def on_data(
    likelihood: Callable[[], Any] = gaussian, prior: Callable[[], Any] = kernel, **options: Any
) -> Any:
    """A builder of a model with a mean on all data."""
    return lambda: ODVGP(prior(), likelihood(), "data", BETA, **options)


def rough() -> gpflow.kernels.Kernel:
    """A kernel whose products are computed by strips of rows."""
    line = gpflow.kernels.Linear(0.01)
    gpflow.set_trainable(line, False)
    return gpflow.kernels.Matern12(lengthscales=0.3) + line


def separate() -> gpflow.kernels.Kernel:
    """A kernel for each of two latent functions."""
    return gpflow.kernels.SeparateIndependent([kernel(), rough()])


def solver(**options: Any) -> ConjugateGradients:
    """In double precision throughout: L-BFGS multiplies the round-off of single precision."""
    return ConjugateGradients(**{"tolerance": 1e-6, "rank": 10, "float32": False, **options})


ON_DATA = {
    "solve": OnData(on_data()),
    "fit": OnData(on_data(bernoulli), "labels", steps=4),
    "bernoulli": OnData(on_data(bernoulli), "labels"),
    "fit gaussian": OnData(on_data(), steps=4, tolerance=1e-7),
    "strips": OnData(on_data(prior=rough), steps=3, tolerance=1e-5),
    "two kernels": OnData(
        on_data(prior=separate, num_latent_gps=2), "two sines", steps=3, tolerance=1e-7
    ),
    "large": OnData(on_data(), large=True),
}


@contextmanager
def small_blocks() -> Iterator[None]:
    """Blocks of few rows, so that few observations are shared out, without XLA; and rounds of `fit`
    after a third of it.
    """
    blocks = dict.fromkeys(stationary_products.BLOCKS, (8, 8))
    with (
        mock.patch.multiple(products, _SMALL=0, _STRIP=500, BLOCKS=blocks),
        mock.patch.multiple(stationary_products, BLOCKS=blocks, xla_works=lambda: False),
        mock.patch.object(course, "_BEFORE_ROUNDS", 0.35),
    ):
        yield


def data_of(name: str) -> tuple[np.ndarray, np.ndarray]:
    """X [N, 1] and Y [N, P]."""
    case = ON_DATA[name]
    if not case.large:
        return inputs(), observations(case.Y)
    X = np.random.default_rng(0).uniform(size=(ROWS, 1))
    return X, np.sin(6.0 * X) + 0.1 * np.random.default_rng(1).normal(size=X.shape)


def found_alone(name: str) -> dict[str, np.ndarray]:
    """What one process finds."""
    return _found(name, ON_DATA[name].build(), None)


def found_on(strategy: tf.distribute.Strategy, name: str) -> dict[str, np.ndarray]:
    """What the replicas of a strategy find, and the messages that they have traced."""
    with strategy.scope():
        model = ON_DATA[name].build()
    with replicas.counted() as messages:
        found = _found(name, model, strategy)
    copies = Group(strategy).copies(list(model.variables))
    equal = all(np.array_equal(a, b) for one in copies for a, b in zip(one, copies[0]))
    return {**found, "messages": np.array([one.size for one in messages]), "equal": np.array(equal)}


def _found(name: str, model: Any, strategy: tf.distribute.Strategy | None) -> dict[str, np.ndarray]:
    case, data = ON_DATA[name], data_of(name)
    with nullcontext() if case.large else small_blocks():
        if case.steps:
            options = {"progress": False, "compile": False, "batch_size": 31}
            result = gd.fit(
                model, data, steps=case.steps, mean_solver=solver(), strategy=strategy, **options
            )
            trace = {"elbo": result.history["elbo"]}
        else:
            result = solver().run(model, data, strategy=strategy)
            products = np.array(result.products)
            trace = {
                "elbo": result.history["elbo"],
                "gaps": np.array(result.gaps),
                "products": products,
            }
    parameters = gpflow.utilities.parameter_dict(model)
    values = {
        f"value {path}": np.asarray(parameter.numpy()) for path, parameter in parameters.items()
    }
    return {**values, **trace, "bound": np.array(result.elbo), "gap": np.array(result.gap)}
