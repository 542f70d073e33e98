"""The models of the benchmarks, declared as data: `orthogonal-300+1000` is a family and its sizes."""

from __future__ import annotations

__all__ = ["FAMILIES", "Settings", "Spec", "build", "kernel_and_likelihood", "parse", "points", "precision"]

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import gpflow
import numpy as np

from gpflow_decoupled import bases, models

from .data import Data, inducing_points

MEAN_SUBSAMPLE = 128
"""Rows in the estimate (D25) of the mean's norm."""


class Settings(NamedTuple):
    """What all models of a run share, ours and the peers."""

    batch_size: int = 1024
    learning_rate: float = 0.01
    natural_gradient: float = 0.2
    noise: float = 1.0
    """initial noise variance, in units of the output's variance"""
    seed: int = 0
    budgets: tuple[float, ...] = (60.0,)
    """how long to train, in units of `unit`"""
    unit: str = "seconds"
    """The unit: "seconds", or "steps"."""
    dtype: str = "float64"
    """of our models; GPflow and GPJax are always trained in float64, GPyTorch in float32"""


class Spec(NamedTuple):
    """A declared model: family, number of covariance points and of extra mean points, and what moves q."""

    family: str
    num_beta: int
    num_gamma: int = 0
    natural: bool = True
    """natural gradients for what has them; otherwise Adam for all, written FAMILY-M-adam"""

    @property
    def name(self) -> str:
        sizes = f"{self.num_beta}+{self.num_gamma}" if self.num_gamma else f"{self.num_beta}"
        return f"{self.family}-{sizes}" + ("" if self.natural else "-adam")

    @property
    def library(self) -> str:
        return FAMILIES[self.family]


FAMILIES = {
    "coupled": "gpflow_decoupled",
    "whitened": "gpflow_decoupled",
    "decoupled": "gpflow_decoupled",
    "hybrid": "gpflow_decoupled",
    "orthogonal": "gpflow_decoupled",
    "solve": "gpflow_decoupled",
    "gpflow": "gpflow",
    "gpytorch": "gpytorch",
    "gpjax": "gpjax",
}
"""Family -> library. `whitened`: coupled, its whitened q(u) held while the kernel moves, not its sites. `gpflow`: whitened
SVGP; `gpytorch`: SVGP, orthogonally decoupled with mean points; `gpjax`: whitened SVGP."""


def parse(name: str) -> Spec:
    """`orthogonal-300+1000` -> Spec("orthogonal", 300, 1000). Raises ValueError for what is not declared."""
    match = re.fullmatch(r"([a-z]+)-(\d+)(?:\+(\d+))?(-adam)?", name)
    if not match or match[1] not in FAMILIES:
        families = ", ".join(FAMILIES)
        raise ValueError(
            f"Model {name!r} is not known; write FAMILY-M or FAMILY-M+MEAN_POINTS, and -adam after it, with {families}."
        )
    spec = Spec(match[1], int(match[2]), int(match[3] or 0), match[4] is None)
    if spec.library in ("gpytorch", "gpjax") and not spec.natural:
        raise ValueError(f"Model {name!r}: of {spec.family} there is one rule only; leave out -adam.")
    if spec.family in ("coupled", "gpflow", "gpjax", "whitened") and spec.num_gamma:
        raise ValueError(f"Model {name!r}: {spec.family} has no mean points of its own; leave out +{spec.num_gamma}.")
    if spec.family in ("decoupled", "hybrid", "orthogonal", "solve") and not spec.num_gamma:
        raise ValueError(f"Model {name!r}: {spec.family} needs mean points; write {name}+MEAN_POINTS.")
    return spec


@contextmanager
def precision(dtype: str) -> Iterator[None]:
    """GPflow's default float inside the block; in float32 with the jitter that GPflow's models need there."""
    jitter = 1e-6 if dtype == "float64" else 1e-4
    with gpflow.config.as_context(gpflow.config.Config(float=np.dtype(dtype).type, jitter=jitter)):
        yield


def kernel_and_likelihood(data: Data, settings: Settings) -> tuple[Any, Any]:
    """Matern-5/2 with one lengthscale an input, and Gaussian noise, Bernoulli for two classes or robust maximum for more:
    the same start for all. Lengthscales are 1 at first, or sqrt(D), as in our wrappers, where classes are declared.
    """
    num_inputs = data.X_train.shape[1]
    kernel = gpflow.kernels.Matern52(lengthscales=np.full(num_inputs, np.sqrt(num_inputs) if data.num_classes else 1.0))
    if data.num_classes > 2:
        return kernel, gpflow.likelihoods.MultiClass(data.num_classes)
    if set(np.unique(data.Y_train)) == {0.0, 1.0}:
        return kernel, gpflow.likelihoods.Bernoulli()
    return kernel, gpflow.likelihoods.Gaussian(settings.noise)


def points(spec: Spec, data: Data, settings: Settings) -> tuple[np.ndarray, np.ndarray]:
    """beta [M_beta, D], the same for all models of that size, and gamma [M_gamma, D], with another seed."""
    beta = inducing_points(data, spec.num_beta, settings.seed)
    if not spec.num_gamma:
        return beta, np.zeros([0, beta.shape[1]])
    return beta, inducing_points(data, spec.num_gamma, settings.seed + 1, given=beta)


def build(spec: Spec, data: Data, settings: Settings) -> Any:
    """The GPflow model of a declaration, ours or GPflow's own, ready to be trained."""
    kernel, likelihood = kernel_and_likelihood(data, settings)
    beta, gamma = points(spec, data, settings)
    num_data, L = len(data.X_train), data.num_classes if data.num_classes > 2 else 1
    if spec.family == "gpflow":
        return gpflow.models.SVGP(kernel, likelihood, beta, whiten=True, num_latent_gps=L, num_data=num_data)
    if spec.family in ("coupled", "whitened"):
        return models.BasisGP(kernel, likelihood, bases.CoupledBasis(beta, L), num_data=num_data)
    if spec.family == "decoupled":
        alpha = np.concatenate([gamma, beta])
        options = {"num_latent_gps": L, "num_data": num_data, "mean_subsample": MEAN_SUBSAMPLE}
        return models.DVGP(kernel, likelihood, alpha, beta, **options)
    constructor = {"hybrid": models.HDVGP, "orthogonal": models.ODVGP, "solve": models.SOLVEGP}[spec.family]
    options = {} if spec.family == "solve" else {"mean_subsample": MEAN_SUBSAMPLE}
    return constructor(kernel, likelihood, gamma, beta, num_latent_gps=L, num_data=num_data, **options)
