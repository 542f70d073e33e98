"""How each model is built on random data, and how it is asked for its bound."""

from __future__ import annotations

__all__ = [
    "FULL",
    "LINEAR",
    "LOCAL",
    "MODELS",
    "ON_A_LINE",
    "Data",
    "Parts",
    "bound",
    "data_of",
    "labels_for",
]

from collections.abc import Callable
from dataclasses import dataclass

import gpflow
import numpy as np
from gpflow.functions import MeanFunction
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood
from gpflow.models import GPModel

from gpflow_decoupled import models
from gpflow_decoupled.bases import CoupledBasis, OrthogonalBasis
from gpflow_decoupled.likelihoods import CategoricalLogit

Data = tuple[np.ndarray, np.ndarray]


@dataclass
class Parts:
    """What a model is made of: data, kernel, likelihood, mean function, latents L, and points beta
    and gamma.
    """

    data: Data
    kernel: Kernel
    likelihood: Likelihood
    mean: MeanFunction | None
    latents: int
    beta: np.ndarray
    gamma: np.ndarray

    @property
    def sparse(self) -> dict[str, object]:
        """Options of models on inducing points."""
        return {"mean_function": self.mean, "num_latent_gps": self.latents}


Build = Callable[[Parts], GPModel]


MODELS: dict[str, Build] = {
    "ODVGP": lambda p: models.ODVGP(p.kernel, p.likelihood, p.gamma, p.beta, **p.sparse),
    "ODVGP diagonal": lambda p: models.ODVGP(
        p.kernel, p.likelihood, p.gamma, p.beta, mean_scaling="diagonal", whiten=False, **p.sparse
    ),
    "HDVGP": lambda p: models.HDVGP(p.kernel, p.likelihood, p.gamma, p.beta, **p.sparse),
    "DVGP": lambda p: models.DVGP(p.kernel, p.likelihood, p.gamma, p.beta, **p.sparse),
    "DVGP coupled": lambda p: models.DVGP(
        p.kernel, p.likelihood, p.gamma, p.beta, covariance="coupled", **p.sparse
    ),
    "SOLVEGP": lambda p: models.SOLVEGP(p.kernel, p.likelihood, p.gamma, p.beta, **p.sparse),
    "BasisGP": lambda p: models.BasisGP(
        p.kernel, p.likelihood, CoupledBasis(_points(p), p.latents), mean_function=p.mean
    ),
    "SparseCVIGP": lambda p: models.SparseCVIGP(p.kernel, p.likelihood, p.beta, **p.sparse),
    "SparseCVIGP orthogonal": lambda p: models.SparseCVIGP(
        p.kernel,
        p.likelihood,
        OrthogonalBasis(_points(p, p.gamma), _points(p), p.latents),
        mean_function=p.mean,
    ),
    "SVGP": lambda p: gpflow.models.SVGP(p.kernel, p.likelihood, _points(p), **p.sparse),
    "CVIGP": lambda p: models.CVIGP(
        p.data, p.kernel, p.likelihood, mean_function=p.mean, num_latent_gps=p.latents
    ),
    "LCLGP": lambda p: models.LCLGP(
        p.data, p.kernel, p.likelihood, mean_function=p.mean, num_latent_gps=p.latents
    ),
    "AffineIndependentGP": lambda p: models.AffineIndependentGP(
        p.data, p.kernel, p.likelihood, mean_function=p.mean
    ),
    "CVIGLM": lambda p: models.CVIGLM(p.data, p.likelihood, num_latent_gps=p.latents),
    "CVIGLM function": lambda p: models.CVIGLM(
        p.data, p.likelihood, num_latent_gps=p.latents, form="function"
    ),
    "LCLGLM": lambda p: models.LCLGLM(p.data, p.likelihood, num_latent_gps=p.latents),
    "AffineIndependentGLM": lambda p: models.AffineIndependentGLM(p.data, p.likelihood),
}
"""By name; a model of one latent function refuses several."""

ON_A_LINE = ("StateSpaceGP",)
"""Models of one input."""

LOCAL: dict[str, Build] = {
    "StateSpaceGP": lambda p: models.StateSpaceGP(
        p.data, p.kernel, p.likelihood, mean_function=p.mean, num_latent_gps=p.latents
    ),
    "NNGP": lambda p: models.NNGP(
        p.data, p.kernel, p.likelihood, num_neighbours=8, mean_function=p.mean
    ),
    "NNGP of labels": lambda p: models.NNGP(
        _ranks(p.data, 2), p.kernel, gpflow.likelihoods.Bernoulli(), num_neighbours=8
    ),
    "NNGP of classes": lambda p: models.NNGP(
        _ranks(p.data, 3), p.kernel, CategoricalLogit(3), num_neighbours=8
    ),
}
"""Models that compute with neighbours in time or space; those in space have no bound. They are
drawn where they are named, and `oracles` has them beside the dense model. Some make labels of Y.
"""

FULL = (
    "CVIGP",
    "LCLGP",
    "AffineIndependentGP",
    "CVIGLM function",
    "LCLGLM",
    "AffineIndependentGLM",
)
"""Models that own their data."""
LINEAR = ("CVIGLM", "CVIGLM function", "LCLGLM", "AffineIndependentGLM")
"""Models that bring their own kernel and mean function."""


def data_of(model: GPModel, data: Data) -> Data | None:
    """What `fit` takes: nothing for a model that owns its data."""
    return None if hasattr(model, "data") else data


def labels_for(model: GPModel, Y: np.ndarray) -> np.ndarray:
    """Y as the model's own verbs take it: GPflow's models with `Softmax` take integers alone."""
    own = type(model) is gpflow.models.SVGP and isinstance(
        model.likelihood, gpflow.likelihoods.Softmax
    )
    return Y.astype(np.int32) if own else Y


def bound(model: GPModel, data: Data) -> float:
    """The bound in nats on all data."""
    given = data_of(model, (data[0], labels_for(model, data[1])))
    if given is None:
        return float(model.elbo())
    if getattr(model, "num_data", 0) is None:
        model.num_data = len(data[0])
    return float(model.elbo(given))


def _ranks(data: Data, classes: int) -> Data:
    """X, and the class [N, 1] of each row by the rank of its first output."""
    X, Y = data
    ranks = np.argsort(np.argsort(Y[:, 0], kind="stable"))
    return X, (classes * ranks[:, None] // len(Y)).astype(Y.dtype)


def _points(p: Parts, Z: np.ndarray | None = None) -> gpflow.inducing_variables.InducingVariables:
    """Inducing points as a kernel of several latents needs them."""
    points = gpflow.inducing_variables.InducingPoints(p.beta if Z is None else Z)
    several = isinstance(p.kernel, gpflow.kernels.MultioutputKernel)
    return (
        gpflow.inducing_variables.SharedIndependentInducingVariables(points) if several else points
    )
