"""Variational inference for latent Gaussian models on GPflow, with a modular posterior.

Read `bases` (parametrisations of q(f)), `models` (GPflow models of a basis), `optimizers` (updates
of q(f)) and `training` (`fit`). `build` makes a model of arrays in one line; `save` and `load`
keep it in a file. `inducing` chooses inducing points; `likelihoods` and `distributions` add what
GPflow and TFP lack; `pathwise`, `certificates` and `topics` use posteriors; `wrappers` connects to
scikit-learn and other libraries.
"""

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
from .building import build
from .certificates import pac_bayes_certificate
from .saving import load, save
from .training import Standardized, fit

__version__ = "0.3.0"
__all__ = [
    "Standardized", "bases", "build", "certificates", "distributions", "errors", "fit", "inducing",
    "likelihoods", "load", "models", "optimizers", "pac_bayes_certificate", "pathwise", "save",
    "topics", "training", "wrappers",
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted(__all__)
