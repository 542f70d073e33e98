"""Decoupled variational inference for latent Gaussian models on GPflow."""

from . import (
    bases,
    certificates,
    distributions,
    errors,
    inducing,
    likelihoods,
    models,
    optimizers,
    pathwise,
    topics,
    training,
    wrappers,
)
from .certificates import pac_bayes_certificate
from .training import fit

__version__ = "0.1.0"
__all__ = [
    "bases", "certificates", "distributions", "errors", "fit", "inducing", "likelihoods", "models", "optimizers",
    "pac_bayes_certificate", "pathwise", "topics", "training", "wrappers",
]  # fmt: skip
