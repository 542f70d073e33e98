"""Sweeps over data that several replicas must take as one process does: models, data and options by
name.
"""

from __future__ import annotations

__all__ = ["SWEEPS", "sweep_alone", "sweep_on"]

from collections.abc import Callable
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf

from gpflow_decoupled import replicas
from gpflow_decoupled.models import CVIGLM, SparseCVIGP
from gpflow_decoupled.optimizers import sweep
from gpflow_decoupled.replicas import Group
from tests.replicas.cases import BETA, heavy_tailed, inputs, kernel, observations, orthogonal

Data = tuple[np.ndarray, np.ndarray]


class Sweep(NamedTuple):
    """A run: how the model is built, the observations, and the options of `sweep`."""

    build: Callable[[], Any]
    Y: str = "labels"
    options: dict[str, Any] = {}


def powers() -> np.ndarray:
    """X [61, 3]."""
    return np.hstack([inputs() ** power for power in (1, 2, 3)])


def sparse() -> Any:
    """The model that most cases use."""
    return SparseCVIGP(kernel(), gpflow.likelihoods.Bernoulli(), BETA)


def linear() -> Any:
    """A linear model in weight space, whose inducing variables are the weights."""
    return CVIGLM(
        (powers(), observations("labels")), gpflow.likelihoods.Bernoulli(invlink=tf.sigmoid)
    )


SWEEPS = {
    "SparseCVIGP": Sweep(sparse, options={"compile": False, "passes": 6}),
    "CVIGLM": Sweep(linear, options={"compile": False, "passes": 4}),
    "compiled": Sweep(sparse),
    "SVGP": Sweep(
        lambda: gpflow.models.SVGP(kernel(), gpflow.likelihoods.Poisson(), BETA),
        options={"compile": False},
    ),
    "mean points": Sweep(
        orthogonal(gpflow.likelihoods.Bernoulli, mean_subsample=4), options={"compile": False}
    ),
    "halved": Sweep(
        lambda: SparseCVIGP(kernel(), heavy_tailed(), BETA),
        "sine",
        {"compile": False, "passes": 12},
    ),
}


def data_of(name: str) -> Data:
    """X [61, D] and Y [61, 1]."""
    return powers() if name == "CVIGLM" else inputs(), observations(SWEEPS[name].Y)


def sweep_alone(name: str) -> dict[str, np.ndarray]:
    """What one process finds."""
    return _found(name, SWEEPS[name].build(), None, data_of(name))


def sweep_on(
    strategy: tf.distribute.Strategy, name: str, data: Any = None
) -> dict[str, np.ndarray]:
    """What the replicas of a strategy find, and the messages of a pass."""
    with strategy.scope():
        model = SWEEPS[name].build()
    with replicas.counted() as messages:
        found = _found(name, model, strategy, data_of(name) if data is None else data)
    own = [one.size for one in messages if one.replica == messages[0].replica]
    copies = Group(strategy).copies(list(model.variables))
    equal = all(np.array_equal(a, b) for one in copies for a, b in zip(one, copies[0]))
    return {**found, "messages": np.array(own), "equal": np.array(equal)}


def _found(
    name: str, model: Any, strategy: tf.distribute.Strategy | None, data: Any
) -> dict[str, np.ndarray]:
    if name == "mean points":
        model.basis.a_gamma.assign(np.linspace(-1.0, 1.0, 8)[:, None])
    tf.random.set_seed(0)  # the rows of a subsample
    result = sweep(model, data, block=7, strategy=strategy, **SWEEPS[name].options)
    q = model if isinstance(model, gpflow.models.SVGP) else model.basis
    return {
        "q_mu": q.q_mu.numpy(),
        "covariance": np.asarray(q.q_sqrt @ tf.linalg.matrix_transpose(q.q_sqrt)),
        "elbo": result.history["elbo"],
        "bound": np.array(result.elbo),
        "shortened": np.array(result.shortened_steps),
    }
