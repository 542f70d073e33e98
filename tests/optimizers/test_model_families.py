"""An optimizer that is handed a model of another family says so, says what to use for that model,
and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_decoupled.distributions.families import Gamma
from gpflow_decoupled.errors import ModelError
from gpflow_decoupled.models import CVIGP, LCLGP, SparseCVIGP, prior_factor
from gpflow_decoupled.models.factor_graph import FactorGraph
from gpflow_decoupled.optimizers import ConjugateComputation, MeanFieldCVI, NaturalGradient, sweep

X = np.linspace(0.0, 1.0, 5)[:, None]
Y = np.array([[0.0], [1.0], [1.0], [0.0], [1.0]])
DATA = (X, Y)
MODELS: dict[str, Callable[[], Any]] = {
    "CVIGP": lambda: CVIGP(
        DATA, gpflow.kernels.Matern52(), gpflow.likelihoods.Bernoulli(invlink=tf.sigmoid)
    ),
    "LCLGP": lambda: LCLGP(DATA, gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian()),
    "SparseCVIGP": lambda: SparseCVIGP(
        gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian(), X[::2]
    ),
    "FactorGraph": lambda: FactorGraph(
        {"rate": Gamma().belief(1.0, 1.0)},
        {"prior": prior_factor("rate", Gamma().belief(2.0, 0.5))},
    ),
    "GPR": lambda: gpflow.models.GPR(DATA, gpflow.kernels.Matern52()),
    "str": lambda: "a model",
}
USES = {
    "CVIGP": r"Train a CVIGP by fit\(model\), or .*ConjugateComputation\(\).run\(model\)",
    "LCLGP": r"Train a LCLGP by fit\(model\), or .*LinearlyConstrainedLagrangian\(\).run\(model\)",
    "SparseCVIGP": (
        r"Train a SparseCVIGP by fit\(model, data\), or .*NaturalGradient\(\).minimize\(model,"
        r" data\) or, .*sweep"
    ),
    "FactorGraph": r"Train a FactorGraph by .*MeanFieldCVI\(\).run\(graph\)",
    "GPR": "GPR is not a model of this package",
    "str": "Pass a model of gpflow_decoupled.models",
}
METHODS: dict[str, tuple[Callable[[Any], Any], str, tuple[str, ...]]] = {
    "NaturalGradient.minimize": (
        lambda model: NaturalGradient().minimize(model, DATA),
        "BasisGP or SVGP",
        ("CVIGP", "FactorGraph", "GPR", "str"),
    ),
    "sweep": (lambda model: sweep(model, DATA), "BasisGP or SVGP", ("LCLGP", "FactorGraph", "GPR")),
    "ConjugateComputation.minimize": (
        lambda model: ConjugateComputation().minimize(model),
        "CVIGP",
        ("SparseCVIGP", "LCLGP"),
    ),
    "ConjugateComputation.run": (
        lambda model: ConjugateComputation().run(model),
        "CVIGP or GMRF",
        ("SparseCVIGP", "FactorGraph"),
    ),
    "MeanFieldCVI.minimize": (
        lambda graph: MeanFieldCVI().minimize(graph),
        "FactorGraph",
        ("CVIGP", "GPR"),
    ),
    "MeanFieldCVI.run": (
        lambda graph: MeanFieldCVI().run(graph),
        "FactorGraph",
        ("SparseCVIGP", "LCLGP"),
    ),
}


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize(
    "method, kind", [(method, kind) for method, (*_, kinds) in METHODS.items() for kind in kinds]
)
def test_models_of_another_family_are_refused(method: str, kind: str) -> None:
    call, takes, _ = METHODS[method]
    model = MODELS[kind]()
    before = [variable.numpy() for variable in getattr(model, "variables", ())]
    with pytest.raises(
        ModelError,
        match=f"^{method} takes a model of the class {takes}, and got {kind}. {USES[kind]}",
    ):
        call(model)
    for variable, value in zip(getattr(model, "variables", ()), before):
        np.testing.assert_array_equal(variable, value)


def test_the_same_inside_a_graph() -> None:
    """There the message comes while it is traced."""
    model = MODELS["LCLGP"]()
    step = tf.function(lambda: ConjugateComputation().minimize(model), autograph=False)
    with pytest.raises(ModelError, match="Train a LCLGP by"):
        step()
