"""Decoupled variational inference for latent Gaussian models on GPflow."""

from . import bases, distributions, errors, inducing, likelihoods, models, optimizers, training, wrappers
from .training import fit

__version__ = "0.1.0"
__all__ = [
    "bases", "distributions", "errors", "fit", "inducing", "likelihoods", "models", "optimizers", "training", "wrappers",
]  # fmt: skip
