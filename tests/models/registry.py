"""Named models on six rows: every model of the package, kinds of each, and GPflow's own."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

import gpflow_decoupled as gd
from gpflow_decoupled import models
from gpflow_decoupled.models.neighbours import SiteNNGP
from tests.models.builders import MODELS as BASIS_MODELS
from tests.models.builders import X, build

NOISE = 0.3
Y = np.sin(3.0 * X[:, :1])


def _kernel() -> gpflow.kernels.Kernel:
    return gpflow.kernels.Matern52(1.3, 0.8)


def _gaussian() -> gpflow.likelihoods.Likelihood:
    return gpflow.likelihoods.Gaussian(NOISE)


def _on_data(kind: Callable[..., Any]) -> Callable[[], Any]:
    return lambda: kind((X, Y), _kernel(), _gaussian())


def _basis_model(name: str) -> Callable[[], Any]:
    def make() -> Any:
        model, _ = build(name)
        model.likelihood.variance.assign(NOISE)
        return model

    return make


MODELS: dict[str, Callable[[], Any]] = {
    **{name: _basis_model(name) for name in BASIS_MODELS},
    "CVIGP": _on_data(models.CVIGP),
    "StateSpaceGP": lambda: models.StateSpaceGP((X[:, :1], Y), _kernel(), _gaussian()),
    "LCLGP": _on_data(models.LCLGP),
    "AffineIndependentGP": _on_data(functools.partial(models.AffineIndependentGP, base="normal")),
    "NNGP": lambda: models.NNGP((X, Y), _kernel(), _gaussian(), num_neighbours=3),
    "SiteNNGP": lambda: SiteNNGP((X, Y), _kernel(), _gaussian(), num_neighbours=3),
    "SparseCVIGP": lambda: models.SparseCVIGP(_kernel(), _gaussian(), X[:3] + 0.05, num_data=6),
    "DTC": lambda: models.DTC((X, Y), _kernel(), X[:3], noise_variance=NOISE),
}
"""Every class, with Gaussian noise."""


def _svgp(**options: Any) -> gpflow.models.SVGP:
    return gpflow.models.SVGP(_kernel(), _gaussian(), X[:4] + 0.05, num_data=6, **options)


THEIRS: dict[str, Callable[[], Any]] = {
    "SVGP": _svgp,
    "VGP": lambda: gpflow.models.VGP((X, Y), _kernel(), _gaussian()),
    "GPR": lambda: gpflow.models.GPR((X, Y), _kernel(), noise_variance=NOISE),
}
"""GPflow's."""

CLASSES = np.arange(6.0)[:, None] % 3
COUNTS = np.hstack([CLASSES, 2.0 - CLASSES])
GAPS = np.hstack([Y, X[:, :1] ** 2])
GAPS[1, 0] = np.nan


def _separate() -> gpflow.kernels.MultioutputKernel:
    return gpflow.kernels.SeparateIndependent([_kernel(), gpflow.kernels.Matern32(0.6, 1.4)])


def _mixed() -> gpflow.kernels.MultioutputKernel:
    return gpflow.kernels.LinearCoregionalization(
        _separate().kernels, W=[[1.0, 0.4], [-0.3, 0.8], [0.5, 0.5]]
    )


def _neighbours(Y: np.ndarray, kernel: Any = None, likelihood: Any = None, **options: Any) -> Any:
    return models.NNGP((X, Y), kernel or _kernel(), likelihood, num_neighbours=3, **options)


def _mean_on_data() -> models.ODVGP:
    model = models.ODVGP(_kernel(), _gaussian(), "data", X[:3] + 0.05)
    gd.optimizers.ConjugateGradients().run(model, (X, Y))
    return model


def _sums() -> models.StateSpaceGP:
    kernel = gpflow.kernels.Matern12(1.3, 0.5) + gpflow.kernels.Matern32(0.6, 2.0)
    return models.StateSpaceGP((X[:, :1], CLASSES % 2.0), kernel, gpflow.likelihoods.Bernoulli())


KINDS: dict[str, Callable[[], Any]] = {
    "LabelNNGP": lambda: _neighbours(CLASSES, None, gd.likelihoods.CategoricalLogit(3)),
    "SiteNNGP of labels": lambda: _neighbours(CLASSES % 2.0, None, gpflow.likelihoods.Bernoulli()),
    "NNGP with gaps": lambda: _neighbours(
        GAPS, _separate(), mean_function=gpflow.functions.Linear(0.3 * np.ones((2, 2)))
    ),
    "NNGP with spread": lambda: _neighbours(Y, spread_neighbours=3),
    "NNGP with a mean of all rows": lambda: _neighbours(Y, mean="data"),
    "ODVGP with a mean on all rows": _mean_on_data,
    "with_neighbours": lambda: models.with_neighbours(_mean_on_data(), (X, Y), num_neighbours=3),
    "CVIGP, noise that varies": lambda: models.CVIGP(
        (X, Y), _kernel(), gpflow.likelihoods.HeteroskedasticTFPConditional()
    ),
    "CVIGP, mixed outputs": lambda: models.CVIGP(
        (X, np.hstack([COUNTS, Y])), _mixed(), gpflow.likelihoods.StudentT(0.3, 4.0)
    ),
    "LCLGP of counts": lambda: models.LCLGP((X, COUNTS), _separate(), gpflow.likelihoods.Poisson()),
    "StateSpaceGP of labels": _sums,
    "AffineIndependentGP with points": lambda: models.AffineIndependentGP(
        (X, CLASSES % 2.0), _kernel(), gd.likelihoods.BernoulliLogit(), inducing_variable=X[:3]
    ),
}
"""Other likelihoods, outputs and settings, whose state is not that of the class alone."""
AT_PRIOR = ("CVIGP", "StateSpaceGP", "LCLGP", "SiteNNGP")
"""The q of these moves by their own optimizers alone."""


def moved(make: Callable[[], Any], seed: int = 0) -> Any:
    """A model whose Parameters and sites are not those of a new one."""
    model, rng = make(), np.random.default_rng(seed)
    sites = tf.constant(rng.uniform(1.0, 2.0, (6, model.num_latent_gps)))
    if isinstance(model, SiteNNGP):
        model.assign_sites(tf.range(6), 0.7 * sites, 1.5 * sites)
    elif hasattr(model, "assign_sites"):
        model.assign_sites(0.2 * sites, sites, 0.5 * sites)
    for variable in model.trainable_variables:
        variable.assign_add(rng.uniform(0.0, 0.1, variable.shape))
    if isinstance(model, models.BasisGP):
        model.basis.refresh(model.kernel)  # the frozen coordinates of its mean
    return model


def data_for(model: Any) -> tuple[np.ndarray, np.ndarray]:
    """All rows, of as many columns as the model has outputs."""
    return X, np.tile(Y, (1, model.num_latent_gps))


def loss_of(model: Any, **options: Any) -> Callable[[], tf.Tensor]:
    """Its training loss, on all rows where it takes data."""
    given = () if hasattr(model, "data") else (data_for(model),)
    return model.training_loss_closure(*given, **options)
