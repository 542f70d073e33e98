"""Classifiers under priors of several origins, with their certificates."""

from __future__ import annotations

__all__ = ["MEAN_POINTS", "NUM_SETTINGS", "SPARSE", "certified"]

import argparse
import warnings
from itertools import product

import gpflow
import numpy as np

import gpflow_decoupled as gd
from gpflow_decoupled.certificates import (
    CertifiedSelection,
    PacBayesCertificate,
    pac_bayes_certificate,
    select_by_certificate,
    split_for_certificate,
)
from gpflow_decoupled.likelihoods import BernoulliLogit
from gpflow_decoupled.models import CVIGP, ODVGP, SparseCVIGP
from gpflow_decoupled.optimizers import ConjugateComputation, sweep

VARIANCES = (1.0, 10.0, 100.0)
SCALES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Lengthscales of the grid, as multiples of that of the fixed prior."""
NUM_SETTINGS = len(VARIANCES) * len(SCALES)
SPARSE, MEAN_POINTS = 100, 200

Data = tuple[np.ndarray, np.ndarray]
Certified = tuple[str, gpflow.models.GPModel, PacBayesCertificate]
"""How the prior came about, the model, and its certificate."""


def certified(
    data: Data, test: Data, options: argparse.Namespace
) -> tuple[list[Certified], CertifiedSelection]:
    """A classifier for each origin of the prior, and sparse ones under the best of the grid; and
    the choice from the grid.

    :param data: training rows, which the certificates are computed on.
    :param test: held-out rows, on which the settings of the grid are evaluated but not chosen.
    """
    width, found = float(np.sqrt(data[0].shape[1])), []
    if "fixed" in options.rows:
        model = _full(data, 10.0, width)
        certificate = pac_bayes_certificate(model, data, options.delta, hyperparameters="fixed")
        found.append((f"fixed: {_prior(model)}", model, certificate))
    grid = [(v, scale * width) for v, scale in product(VARIANCES, SCALES)][: options.settings]
    chosen = select_by_certificate(
        lambda setting: _full(data, *setting), grid, data, options.delta, test=test
    )
    found.append((f"grid of {len(grid)}: {_prior(chosen.model)}", chosen.model, chosen.certificate))
    for label, build in (("sparse", _sparse), ("orthogonal", _orthogonal)):
        if label in options.rows:
            model = build(data, *chosen.settings[chosen.best], options)
            origin = {"hyperparameters": "fixed", "settings": len(grid)}
            found.append(
                (
                    f"the same, {label}",
                    model,
                    pac_bayes_certificate(model, data, options.delta, **origin),
                )
            )
    learned = {"split": split_for_certificate(data, 0.5, options.seed), "same-data": (data, data)}
    found += [
        _learned(label, *learned[label], width, options)
        for label in learned
        if label in options.rows
    ]
    return found, chosen


def _learned(
    label: str, first: Data, data: Data, width: float, options: argparse.Namespace
) -> Certified:
    """Hyperparameters learned on the first data, posterior and certificate on the others."""
    learned = CVIGP(first, gpflow.kernels.SquaredExponential(10.0, width), BernoulliLogit())
    gd.fit(learned, steps=options.steps, progress=False)
    model = _full(
        data,
        *(float(one.numpy()) for one in (learned.kernel.variance, learned.kernel.lengthscales)),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of rows in common, which are intended here
        certificate = pac_bayes_certificate(model, data, options.delta, learned_on=first)
    return (
        f"learned on {label}{'' if certificate.holds else ' (no bound)'}: {_prior(model)}",
        model,
        certificate,
    )


def _prior(model: CVIGP) -> str:
    kernel = model.kernel
    return f"variance {kernel.variance.numpy():.3g}, lengthscale {kernel.lengthscales.numpy():.3g}"


def _full(data: Data, variance: float, lengthscale: float) -> CVIGP:
    model = CVIGP(data, gpflow.kernels.SquaredExponential(variance, lengthscale), BernoulliLogit())
    ConjugateComputation().run(model)
    return model


def _sparse(
    data: Data, variance: float, lengthscale: float, options: argparse.Namespace
) -> SparseCVIGP:
    kernel = gpflow.kernels.SquaredExponential(variance, lengthscale)
    model = SparseCVIGP(kernel, BernoulliLogit(), _points(data[0], SPARSE, kernel, None, options))
    sweep(model, data)
    return model


def _orthogonal(
    data: Data, variance: float, lengthscale: float, options: argparse.Namespace
) -> ODVGP:
    kernel = gpflow.kernels.SquaredExponential(variance, lengthscale)
    beta = _points(data[0], SPARSE, kernel, None, options)
    model = ODVGP(
        kernel, BernoulliLogit(), _points(data[0], MEAN_POINTS, kernel, beta, options), beta
    )
    for part in (kernel, model.basis.beta, model.basis.gamma):
        gpflow.set_trainable(part, False)
    gd.fit(
        model,
        data,
        steps=30,
        batch_size=None,
        natural_gradient=0.9,
        mean_solver="newton",
        progress=False,
    )
    return model


def _points(
    X: np.ndarray,
    num: int,
    kernel: gpflow.kernels.Kernel,
    given: np.ndarray | None,
    options: argparse.Namespace,
) -> np.ndarray:
    """Inducing inputs that are chosen from the rows, at most a third of them."""
    return gd.inducing.select(X, min(num, len(X) // 3), kernel, given=given, seed=options.seed)
