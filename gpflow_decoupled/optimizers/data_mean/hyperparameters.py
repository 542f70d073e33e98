"""Kernel, noise, mean function and inducing points by the bounds of the evidence, at a fixed mean on all data."""

from __future__ import annotations

__all__ = ["climb_evidence", "hyperparameters_of"]

import time

import numpy as np
import tensorflow as tf
from gpflow.optimizers import Scipy

from ...bases.parts.data_mean import DataMean
from ...models import BasisGP
from ..lbfgs import LBFGSRun, lbfgs_ascent
from .evidence import evidence_bound


def hyperparameters_of(model: BasisGP, mean: DataMean) -> list[tf.Variable]:
    """What is trainable beside q(f) and its mean points, which are the inputs whatever their flags say."""
    parts = [parameter.unconstrained_variable for parameter in model.basis.gaussian_parameters()]
    of_q = {variable.ref() for variable in (*parts, *mean.variables)}
    return [variable for variable in model.trainable_variables if variable.ref() not in of_q]


def climb_evidence(
    model: BasisGP,
    mean: DataMean,
    data: tuple[tf.Tensor, tf.Tensor],
    *,
    evaluations: int,
    dtype: tf.DType | None = None,
    deadline: float = float("inf"),
) -> LBFGSRun:
    """A few iterations of L-BFGS on everything that is trainable except q(f), whose coefficients stay.

    :param model: a model with Gaussian noise.
    :param mean: its mean on all data.
    :param data: X [N, D], the mean points, and Y [N, P].
    :param evaluations: of the bound and its gradient, about.
    :param dtype: tf.float32 for faster products with K.
    :param deadline: a value of `time.perf_counter` after which no further iteration is begun.
    :raises NumericalError: if the bound is not finite at the start.
    """
    X, Y = data
    variables = hyperparameters_of(model, mean)
    a = tf.convert_to_tensor(mean.coefficients)

    def function(x: np.ndarray) -> tuple[float, np.ndarray]:
        Scipy.assign_tensors(variables, Scipy.unpack_tensors(variables, x))
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            noise = tf.convert_to_tensor(model.likelihood.variance)
            y = Y - model.mean_function(X)
            value = evidence_bound(model.kernel, model.basis.beta, mean, y, noise, a, dtype=dtype)
            value += model.log_prior_density()
        gradient = tape.gradient(value, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        return float(value), Scipy.pack_tensors(gradient).numpy()

    start = Scipy.pack_tensors(variables).numpy()
    run = lbfgs_ascent(
        function,
        start,
        lambda values: time.perf_counter() >= deadline,
        evaluations,
        advice="standardise X and Y, or start from a larger noise variance.",
        matrix="K_beta",
    )
    Scipy.assign_tensors(variables, Scipy.unpack_tensors(variables, run.x))
    return run
