"""Small data sets and models on which public functions are called; every function makes new
ones.
"""

from __future__ import annotations

__all__ = [
    "BETA",
    "COUNTS",
    "DOCUMENTS",
    "GAMMA",
    "LABELS",
    "X",
    "Y",
    "affine",
    "classifier",
    "dataset",
    "dual",
    "graph",
    "kernel",
    "linear",
    "noise",
    "on_data",
    "one_column",
    "projected",
    "sparse",
]

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

import gpflow_decoupled as gd

_RNG = np.random.default_rng(0)
X = _RNG.uniform(size=(12, 2))
Y = np.sin(6.0 * X[:, :1]) + 0.1 * _RNG.normal(size=(12, 1))
LABELS = (Y > 0.2).astype(float)
COUNTS = _RNG.poisson(2.0, (12, 1)).astype(float)
DOCUMENTS = _RNG.poisson(0.7, (12, 8)) + np.eye(12, 8, dtype=int)
BETA, GAMMA = X[:4], X[4:9]


def kernel() -> gpflow.kernels.Kernel:
    """A kernel."""
    return gpflow.kernels.Matern52(lengthscales=0.5)


def noise() -> gpflow.likelihoods.Likelihood:
    """A likelihood."""
    return gpflow.likelihoods.Gaussian(0.1)


def sparse(likelihood: Callable[[], Any] = noise) -> gd.models.ODVGP:
    """A model on inducing points."""
    return gd.models.ODVGP(kernel(), likelihood(), GAMMA, BETA, num_data=12)


def on_data() -> gd.models.ODVGP:
    """A mean on all data that is solved for."""
    model = gd.models.ODVGP(kernel(), noise(), "data", BETA)
    gd.optimizers.ConjugateGradients().run(model, (X, Y))
    return model


def one_column() -> gd.models.ODVGP:
    """A model on inducing points of one input."""
    return gd.models.ODVGP(kernel(), noise(), GAMMA[:, :1], BETA[:, :1], num_data=12)


def dataset() -> tf.data.Dataset:
    """The data in batches."""
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(5)


def affine() -> gd.models.AffineIndependentGP:
    """A full GP with a posterior by Fourier sums."""
    return gd.models.AffineIndependentGP((X, Y), kernel(), noise())


def projected() -> gd.models.DTC:
    """The projected process."""
    return gd.models.DTC((X, Y), kernel(), BETA)


def classifier() -> gd.models.CVIGP:
    """A full GP with labels."""
    return gd.models.CVIGP((X, LABELS), kernel(), gpflow.likelihoods.Bernoulli())


def dual() -> gd.models.LCLGP:
    """A full GP by multipliers."""
    return gd.models.LCLGP((X, LABELS), kernel(), gd.likelihoods.BernoulliLogit())


def linear() -> gd.models.SparseCVIGP:
    """A linear model."""
    return gd.models.CVIGLM((X, Y), noise())


def graph() -> gd.models.FactorGraph:
    """A graph of one variable."""
    gamma = gd.distributions.families.Gamma()
    expected = lambda z, y: tf.reduce_sum(y * z.expectation[0] - z.expectation[1])  # noqa: E731
    prior = gd.models.prior_factor("rate", gamma.belief(2.0, 0.5))
    factors = {"prior": prior, "counts": gd.models.Factor("rate", expected, data=COUNTS[:, 0])}
    return gd.models.FactorGraph({"rate": gamma.belief(1.0, 1.0)}, factors)
