"""Errors for models of another family."""

from __future__ import annotations

__all__ = ["data_mean_of", "require_model", "ways_to_train"]

from gpflow.models import SVGP, BayesianModel

from ..bases.optimum import DataMean, refuse_white
from ..errors import ModelError
from .affine_independent import AffineIndependentGP
from .basis_gp import BasisGP
from .decoupled import DTC
from .factor_graph import FactorGraph
from .full_gp import CVIGP, LCLGP
from .gmrf import GMRF
from .neighbours import GaussianNNGP, LabelNNGP, SiteNNGP

_WAYS: tuple[tuple[tuple[type, ...], str], ...] = (
    (
        (BasisGP, SVGP),
        (
            "fit(model, data), or with the hyperparameters fixed"
            " optimizers.NaturalGradient().minimize(model, data) or, where q(u) is one Gaussian,"
            " optimizers.sweep(model, data)"
        ),
    ),
    (
        (CVIGP,),
        (
            "fit(model), or with the hyperparameters fixed"
            " optimizers.ConjugateComputation().run(model)"
        ),
    ),
    (
        (LCLGP,),
        (
            "fit(model), or with the hyperparameters fixed"
            " optimizers.LinearlyConstrainedLagrangian().run(model)"
        ),
    ),
    (
        (AffineIndependentGP,),
        (
            "fit(model), or with the hyperparameters fixed"
            " optimizers.AffineIndependentAscent().run(model)"
        ),
    ),
    (
        (GaussianNNGP, LabelNNGP),
        "fit(model), or with kernel and noise fixed not at all: its predictions need no training",
    ),
    (
        (GMRF,),
        (
            "optimizers.ConjugateComputation().run(model) or"
            " optimizers.LinearlyConstrainedLagrangian().run(model)"
        ),
    ),
    (
        (SiteNNGP,),
        "fit(model), or with the hyperparameters fixed optimizers.SiteSweeps(model).run()",
    ),
    ((FactorGraph,), "fit(graph) or optimizers.MeanFieldCVI().run(graph)"),
    ((DTC,), "gpflow.optimizers.Scipy().minimize(model.training_loss, model.trainable_variables)"),
)


def ways_to_train(model: object) -> str:
    """Describe how to train this model: the end of an error message."""
    for kinds, way in _WAYS:
        if isinstance(model, kinds):
            return f"Train a {type(model).__name__} by {way}."
    if isinstance(model, BayesianModel):
        name = type(model).__name__
        return (
            f"{name} is not a model of this package: train it as GPflow does, or use"
            " gpflow_decoupled.models."
        )
    return "Pass a model of gpflow_decoupled.models."


def require_model(method: str, model: object, *kinds: type) -> None:
    """Refuse a model that is none of `kinds`, naming the right method.

    :param method: as users write it, for example "ConjugateComputation".
    """
    if not isinstance(model, kinds):
        names = " or ".join(kind.__name__ for kind in kinds)
        raise ModelError(
            f"{method} takes a model of the class {names}, and got {type(model).__name__}."
            f" {ways_to_train(model)}"
        )


def data_mean_of(model: BasisGP, method: str) -> DataMean:
    """The mean on all data of a model."""
    require_model(method, model, BasisGP)
    basis = model.basis
    if basis.data_mean is not None:
        refuse_white(model.kernel)
        return basis.data_mean
    solver = ', mean_solver="newton"' if basis.kernel_mean is not None and basis.solves_mean else ""
    raise ModelError(
        f"{method} is for models with a mean on all data, and this {type(model).__name__} has none:"
        " build "
        f'ODVGP(kernel, likelihood, "data", beta), or train this model by fit(model, data{solver}).'
    )
