"""Variational inference for latent Gaussian models on GPflow, with the parts of the posterior taken
apart.

A model joins a kernel, a likelihood and an approximate posterior q(f). Read in this order: `bases`
(what q(f) is), `models` (GPflow models built from a basis), `optimizers` (how q(f) is updated), and
`training`: its `fit` trains any model, and its `Standardized` brings data to the scale of a model
and predictions back to the units of the data. `inducing` chooses inducing points, and `likelihoods`
and `distributions` add what GPflow and TensorFlow Probability do not have. `pathwise`,
`certificates` and `topics` use a trained posterior; `wrappers` connects to scikit-learn and other
libraries. `build` makes a model of arrays in one line, and `save` and `load` keep a trained one in
a file.
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

__version__ = "0.2.0"
__all__ = [
    "Standardized", "bases", "build", "certificates", "distributions", "errors", "fit", "inducing",
    "likelihoods", "load", "models", "optimizers", "pac_bayes_certificate", "pathwise", "save",
    "topics", "training", "wrappers",
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted(__all__)
