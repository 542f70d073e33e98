"""Decoupled variational inference for latent Gaussian models on GPflow."""

from . import bases, errors, inducing, models, optimizers, training, wrappers
from .training import fit

__version__ = "0.1.0"
__all__ = ["bases", "errors", "fit", "inducing", "models", "optimizers", "training", "wrappers"]
