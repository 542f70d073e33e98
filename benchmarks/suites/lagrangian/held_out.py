"""Held-out densities of counts and of regression with Laplace noise, all hyperparameters learned,
by three methods.
"""

from __future__ import annotations

__all__ = ["PART"]

import argparse
import warnings
from itertools import product
from typing import NamedTuple

import gpflow
import numpy as np
import tensorflow as tf

from gpflow_decoupled import fit
from gpflow_decoupled.likelihoods import Laplace
from gpflow_decoupled.models import CVIGP, LCLGP
from gpflow_decoupled.optimizers import ConjugateComputation, LinearlyConstrainedLagrangian

from ...harness.data import Data, load
from ...harness.machine import clock
from ...harness.report import Section, Table
from ...harness.runner import Part

_LEARNING_STEPS = 20
"""L-BFGS iterations on the hyperparameters in a round, and steps of `fit` where it is used
instead.
"""
_LEARNING_RATE = 0.1
EMBEDDED = {"diabetes": "Laplace"}
FOLDER = {"coal": "Poisson", "bike_count": "Poisson", "housing": "Laplace", "concrete": "Laplace"}


class HeldOut(NamedTuple):
    """One method on one task; bounds and densities in nats."""

    task: str
    num_data: int
    method: str
    seconds: float
    elbo: float
    log_density: float
    note: str


def _pieces(options: argparse.Namespace) -> list[tuple]:
    """(task, method)."""
    return list(product(FOLDER if options.data else EMBEDDED, _METHODS))


def _measure(options: argparse.Namespace, task: str, method: str) -> list[HeldOut]:
    """Train one method on one task; all methods start from the same hyperparameters."""
    noise = {**FOLDER, **EMBEDDED}[task]
    data = _at_most(load(task, 0, options.data), options.num_data, options.seed)
    began = clock()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a column that is constant
        model = _METHODS[method](data, noise, options.rounds)
    seconds = clock() - began
    density = float(tf.reduce_mean(model.predict_log_density((data.X_test, data.Y_test))))
    return [
        HeldOut(
            task, len(data.X_train), method, seconds, float(model.elbo()), density, f"{noise} noise"
        )
    ]


def _at_most(data: Data, num: int, seed: int) -> Data:
    """The data with at most `num` of the training rows."""
    rows = np.random.default_rng(seed).permutation(len(data.X_train))[:num]
    return data._replace(X_train=data.X_train[rows], Y_train=data.Y_train[rows])


def _parts(data: Data, noise: str) -> tuple:
    kernel = gpflow.kernels.Matern52(lengthscales=float(np.sqrt(data.X_train.shape[1])))
    likelihood = Laplace(0.5) if noise == "Laplace" else gpflow.likelihoods.Poisson()
    mean = None if noise == "Laplace" else gpflow.functions.Constant(np.log(np.mean(data.Y_train)))
    return (data.X_train, data.Y_train), kernel, likelihood, mean


def _learn(model: gpflow.models.GPModel) -> None:
    """Some iterations of L-BFGS on all that is trainable."""
    gpflow.optimizers.Scipy().minimize(
        model.training_loss, model.trainable_variables, options={"maxiter": _LEARNING_STEPS}
    )


def _lagrangian(data: Data, noise: str, rounds: int) -> gpflow.models.GPModel:
    *rest, mean = _parts(data, noise)
    model = LCLGP(*rest, mean_function=mean)
    fit(model, steps=_LEARNING_STEPS * rounds, learning_rate=_LEARNING_RATE, progress=False)
    LinearlyConstrainedLagrangian().run(model)
    return model


def _conjugate(data: Data, noise: str, rounds: int) -> gpflow.models.GPModel:
    *rest, mean = _parts(data, noise)
    model = CVIGP(*rest, mean_function=mean)
    for _ in range(rounds):
        ConjugateComputation().run(model)
        _learn(model)
    ConjugateComputation().run(model)
    return model


def _natural_gradient(data: Data, noise: str, rounds: int) -> gpflow.models.GPModel:
    """GPflow: natural gradients for q, then L-BFGS for the rest at fixed q, in turn."""
    *rest, mean = _parts(data, noise)
    model = gpflow.models.VGP(*rest, mean_function=mean)
    gpflow.set_trainable(model.q_mu, False)
    gpflow.set_trainable(model.q_sqrt, False)
    optimizer, q = gpflow.optimizers.NaturalGradient(0.5), [(model.q_mu, model.q_sqrt)]
    step = tf.function(lambda: optimizer.minimize(model.training_loss, q))
    for turn in range(rounds + 1):
        for _ in range(15):
            step()
        if turn < rounds:
            _learn(model)
    return model


_METHODS = {"LCLGP": _lagrangian, "CVIGP": _conjugate, "GPflow VGP": _natural_gradient}


def _section(rows: list[HeldOut], _: argparse.Namespace) -> Section:
    header = ["task", "N", "method", "seconds", "ELBO", "held-out log density", "note"]
    cells = [
        [
            one.task,
            str(one.num_data),
            one.method,
            f"{one.seconds:.1f}",
            f"{one.elbo:.2f}",
            f"{one.log_density:.4f}",
            one.note,
        ]
        for one in rows
    ]
    note = (
        "Held out: seconds of the processor where one thread is used, compilation included; bounds"
        " and densities in nats."
    )
    return Section([Table("Held-out density, hyperparameters learned", header, cells)], [], [note])


PART = Part(HeldOut, _pieces, _measure, _section)
