"""Runs of `fit` that several replicas must do as one process does: models, data and options by
name.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

import gpflow_decoupled as gd
from gpflow_decoupled import replicas
from gpflow_decoupled.bases import CoupledBasis
from gpflow_decoupled.models import DVGP, HDVGP, ODVGP, SOLVEGP, BasisGP
from tests.training.problems import grouped

BETA = np.linspace(0.05, 0.95, 5)[:, None]
GAMMA = np.linspace(0.0, 1.0, 8)[:, None]
ROWS, BATCH, STEPS = 61, 31, 20


class Case(NamedTuple):
    """A run: how the model is built, the observations, the options of `fit`, and how close two runs
    must be.
    """

    build: Callable[[], Any]
    Y: str = "sine"
    options: dict[str, Any] = {}
    tolerance: float = 1e-9
    steps: int = STEPS


def inputs() -> np.ndarray:
    """X [61, 1]: an odd number, so that shards have different sizes."""
    return np.random.default_rng(0).uniform(size=(ROWS, 1))


def observations(kind: str) -> np.ndarray:
    """Y [61, 1] or [61, 2]."""
    sine = np.sin(6.0 * inputs()) + 0.1 * np.random.default_rng(1).normal(size=(ROWS, 1))
    if kind == "sine":
        return sine
    if kind == "two sines":
        return np.hstack([sine, 1.0 - sine])
    return (sine > 0).astype(float)


def kernel() -> gpflow.kernels.Kernel:
    """Well conditioned at these points, so that round-off stays round-off."""
    return gpflow.kernels.Matern52(lengthscales=0.3)


def gaussian() -> gpflow.likelihoods.Likelihood:
    """Noise of the size of the data's."""
    return gpflow.likelihoods.Gaussian(0.1)


def orthogonal(likelihood: Callable[[], Any] = gaussian, **options: Any) -> Callable[[], Any]:
    """A builder of the model that most cases use."""
    return lambda: ODVGP(kernel(), likelihood(), GAMMA, BETA, **options)


def with_prior_and_mean() -> ODVGP:
    """What does not depend on the data, and must be counted once."""
    model = ODVGP(
        kernel(), gaussian(), GAMMA, BETA, mean_function=gpflow.functions.Linear([[0.5]], [0.1])
    )
    model.kernel.lengthscales.prior = tfp.distributions.Gamma(np.float64(2.0), np.float64(30.0))
    return model


def keras_3() -> Any:
    """An optimizer that adds up the gradients of replicas by itself."""
    return tf.keras.optimizers.Adam(0.03)


def student() -> gpflow.likelihoods.Likelihood:
    """A likelihood that is not log-concave."""
    return gpflow.likelihoods.StudentT(0.05, df=3.0)


def heavy_tailed() -> gpflow.likelihoods.Likelihood:
    """One for which steps must be shortened."""
    return gpflow.likelihoods.StudentT(0.02, df=1.5)


bernoulli = gpflow.likelihoods.Bernoulli

CASES = {
    "gaussian": Case(orthogonal()),
    "bernoulli": Case(orthogonal(bernoulli), "labels"),
    "keras 3": Case(
        orthogonal(bernoulli), "labels", {"optimizer": keras_3, "negative_precision": "clip"}
    ),
    # few steps: a relative change of 1e-12 in X moves q_mu by 1.7e-11 in 12 of them, and by 4.7e-9
    # in 20
    "natural mean": Case(orthogonal(bernoulli), "labels", {"mean_solver": "natural"}, steps=12),
    "prior": Case(with_prior_and_mean),
    "subsample": Case(orthogonal(mean_subsample=4)),
    "whitened": Case(orthogonal(), options={"hold": "whitened"}),
    "no natural gradient": Case(orthogonal(), options={"natural_gradient": None}),
    "all rows": Case(orthogonal(), options={"batch_size": None}),
    "eager": Case(orthogonal(), options={"compile": False}, steps=3),
    "clip": Case(orthogonal(student), options={"negative_precision": "clip"}, tolerance=1e-7),
    # at full steps, and few of them: this problem multiplies round-off in the data by ten or more
    # at each step
    "damp": Case(
        orthogonal(heavy_tailed), "sine", {"natural_gradient": 0.9, "ramp_steps": 0}, 1e-7, 5
    ),
    "two latents": Case(orthogonal(num_latent_gps=2), "two sines"),
    "HDVGP": Case(lambda: HDVGP(kernel(), gaussian(), GAMMA, BETA)),
    "SOLVEGP": Case(lambda: SOLVEGP(kernel(), gaussian(), GAMMA + 0.03, BETA)),
    "SOLVEGP whitened": Case(
        lambda: SOLVEGP(kernel(), gaussian(), GAMMA + 0.03, BETA), options={"hold": "whitened"}
    ),
    "DVGP inverse": Case(lambda: DVGP(kernel(), gaussian(), GAMMA, BETA)),
    "DVGP coupled": Case(lambda: DVGP(kernel(), gaussian(), GAMMA, BETA, covariance="coupled")),
    "BasisGP": Case(lambda: BasisGP(kernel(), gaussian(), CoupledBasis(BETA))),
    "SVGP": Case(lambda: gpflow.models.SVGP(kernel(), gaussian(), BETA)),
    "SVGP not whitened": Case(lambda: gpflow.models.SVGP(kernel(), gaussian(), BETA, whiten=False)),
    "dataset": Case(orthogonal(num_data=ROWS), "dataset"),
    "evaluation": Case(
        orthogonal(), options={"evaluation": True, "evaluate_every": 4, "patience": 2}
    ),
}


def run(name: str, strategy: tf.distribute.Strategy | None) -> dict[str, np.ndarray]:
    """What a case ends at: the trace of the bound, every Parameter, and what is said of
    replicas.
    """
    case = CASES[name]
    data: Any = (inputs(), observations(case.Y))
    if case.Y == "dataset":  # 61 = 6 * 10 + 1: the last batch has one row, and one replica none
        data = tf.data.Dataset.from_tensor_slices((inputs(), observations("sine"))).batch(10)
    flat = {"batch_size": BATCH if case.Y != "dataset" else "auto", **case.options}
    if "evaluation" in flat:
        flat["evaluation"] = (inputs(), observations(case.Y))
    with nullcontext() if strategy is None else strategy.scope():
        model = case.build()
        if "optimizer" in flat:
            flat["optimizer"] = flat["optimizer"]()
    with replicas.counted() as messages:
        result = gd.fit(
            model, data, steps=case.steps, progress=False, strategy=strategy, **grouped(**flat)
        )
    parameters = gpflow.utilities.parameter_dict(model)
    found = {
        f"value {path}": np.asarray(parameter.numpy()) for path, parameter in parameters.items()
    }
    found |= {
        "elbo": result.history["elbo"],
        "bound": np.array(result.elbo),
        "shortened": np.array(result.shortened_steps),
    }
    found["clipped"] = np.array(result.clipped_sites)
    if strategy is not None:
        found["messages"] = np.array(
            [one.size for one in messages if one.replica == messages[0].replica]
        )
        found["equal"] = np.array(all(_equal(strategy, variable) for variable in model.variables))
    return found


def _equal(strategy: tf.distribute.Strategy, variable: tf.Variable) -> bool:
    """Whether the copies of a variable in this process are the same, bit by bit."""
    copies = [np.asarray(copy) for copy in strategy.experimental_local_results(variable)]
    return all(np.array_equal(copy, copies[0]) for copy in copies)
