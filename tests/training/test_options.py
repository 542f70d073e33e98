"""Options of `fit`, and of what it builds on: refused before the first step, with the fix, and
nothing changed.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_decoupled as gd
from gpflow_decoupled.errors import DataError, ModelError, UnknownOptionError
from gpflow_decoupled.models import DVGP
from gpflow_decoupled.training import Schedule, fit
from gpflow_decoupled.training.options import ROWS, markdown
from gpflow_decoupled.training.routes.registry import ROUTES
from tests.training.problems import (
    BETA,
    GAMMA,
    MODELS,
    grouped,
    orthogonal,
    parts,
    sine,
    unchanged,
    values,
)

X, Y = sine()


def _fit(model: Any, data: Any, **options: Any) -> gd.training.FitResult:
    return gd.fit(
        model, data, **{"steps": 1, "progress": False, "compile": False, **grouped(**options)}
    )


BAD = {
    "minibatch larger than N": (
        {"batch_size": 61},
        "batch_size=61 is larger than the data, which have 60 rows; use None",
    ),
    "no minibatch": (
        {"batch_size": 0},
        "batch_size=0 must be a whole number of at least 1, None for all rows, or",
    ),
    "half a minibatch": ({"batch_size": 2.5}, "batch_size=2.5 must be a whole number"),
    "unknown minibatch": (
        {"batch_size": "all"},
        "batch_size='all' must be a whole number of at least 1, None .*\"auto\"",
    ),
    "no steps": ({"steps": 0}, "steps=0 must be a whole number of at least 1"),
    "half a step": ({"steps": 1.5}, "steps=1.5 must be a whole number"),
    "seconds": ({"seconds": -1.0}, "seconds=-1.0 must be a number above 0"),
    "learning rate": ({"learning_rate": 0.0}, "learning_rate=0.0 must be a number above 0"),
    "NaN": ({"learning_rate": np.nan}, "learning_rate=nan must be a number above 0"),
    "infinite": ({"mean_learning_rate": np.inf}, "mean_learning_rate=inf must be a number above 0"),
    "text": ({"learning_rate": "fast"}, "learning_rate='fast' must be a number above 0"),
    "natural gradient": (
        {"natural_gradient": 1.5},
        "natural_gradient=1.5 must be a number above 0 and at most 1",
    ),
    "anneal": ({"anneal": 2}, "anneal=2 must be a number above 0 and at most 1"),
    "evaluate_every": ({"evaluate_every": 0}, "every=0 must be a whole number of at least 1"),
    "report_every": ({"report_every": 0}, "every=0 must be a whole number of at least 1"),
    "refresh_every": (
        {"refresh_every": -1},
        "refresh_every=-1 must be a whole number of at least 1",
    ),
    "checkpoint_every": (
        {"checkpoint": "folder", "checkpoint_every": 0},
        "every=0 must be a whole number of at least 1",
    ),
    "patience": ({"patience": 0}, "patience=0 must be a whole number of at least 1"),
    "seed": ({"seed": -1}, "seed=-1 must be a whole number of at least 0"),
    "ramp_steps": (
        {"ramp_steps": None, "seed": 0.5},
        "seed=0.5 must be a whole number of at least 0",
    ),
    "policy": (
        {"negative_precision": "ignore"},
        "negative_precision='ignore' is not known; use one of 'damp', 'clip', 'raise'",
    ),
    "precision": (
        {"precision": "half"},
        "precision='half' is not known; use one of 'full', 'mixed'",
    ),
    "solver": (
        {"mean_solver": "lbfgs"},
        "mean_solver='lbfgs' is not known; use one of 'adam', 'natural', 'newton'",
    ),
    "solver without step": (
        {"mean_solver": "natural", "natural_gradient": None},
        "mean_solver='natural' needs natural_gradient; give a step size",
    ),
    "evaluation": (
        {"evaluation": (X, Y[:, 0])},
        r"evaluation: Y has shape \(60,\); use Y\[:, None\]",
    ),
    "NaN in evaluation": ({"evaluation": (X, Y * np.nan)}, r"evaluation: Y\[0, 0\] is nan"),
    "evaluation on X alone": ({"evaluation": X}, "evaluation is a ndarray; pass held-out"),
    "callback": ({"callbacks": ["print"]}, "callbacks must be a list of functions"),
    "one callback": ({"callbacks": print}, "callbacks must be a list of functions"),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("options, message", BAD.values(), ids=BAD)
def test_fit_refuses_bad_options(options: dict, message: str) -> None:
    model = orthogonal()
    before = values(model)
    with pytest.raises((DataError, UnknownOptionError), match=message):
        _fit(model, (X, Y), **options)
    assert unchanged(before, model) and model.num_data is None


def test_unknown_options_are_refused() -> None:
    with pytest.raises(UnknownOptionError, match="learning_rates"):
        _fit(orthogonal(), (X, Y), learning_rates=0.1)
    with pytest.raises(TypeError, match="mean_scale"):
        orthogonal(mean_scale="none")
    with pytest.raises(
        UnknownOptionError, match="mean_scaling='white' is not known; use one of 'none', 'diagonal'"
    ):
        orthogonal(mean_scaling="white")
    with pytest.raises(
        UnknownOptionError, match="covariance='full' is not known; use one of 'inverse', 'coupled'"
    ):
        DVGP(*parts(), GAMMA, BETA, covariance="full")
    with pytest.raises(UnknownOptionError, match="method='best' is not known"):
        gd.inducing.select(X, 5, method="best")
    with pytest.raises(UnknownOptionError, match="negative_precision='ignore' is not known"):
        gd.optimizers.NaturalGradient(negative_precision="ignore")
    with pytest.raises(
        DataError, match="mean_subsample=0; use a whole number of rows of at least 1"
    ):
        orthogonal(mean_subsample=0)


@pytest.mark.parametrize("name", ["validation_data", "test_data"])
def test_other_names_of_held_out_data_lead_to_evaluation(name: str) -> None:
    with pytest.raises(UnknownOptionError, match=f"{name}: it is called evaluation here"):
        fit(orthogonal(), (X, Y), **{name: (X, Y)})


def test_flags_that_natural_gradients_cannot_follow_are_refused() -> None:
    model = orthogonal()
    gpflow.set_trainable(model.basis.q_mu, False)
    with pytest.raises(
        DataError,
        match="Some Parameters of q.u. are trainable and some are not.*natural_gradient=None",
    ):
        _fit(model, (X, Y))
    _fit(model, (X, Y), natural_gradient=None)
    gpflow.set_trainable(model.basis.q_sqrt, False)
    with pytest.raises(
        DataError, match="mean_solver='natural' moves q.u. too, which is not trainable here"
    ):
        _fit(model, (X, Y), mean_solver="natural")
    gpflow.set_trainable(model, False)
    with pytest.raises(
        DataError,
        match=r"No Parameter of the model is trainable; use gpflow.utilities.set_trainable",
    ):
        _fit(model, (X, Y))


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize(
    "option", [{"natural_gradient": 0.3}, {"hold": "sites"}, {"negative_precision": "clip"}]
)
def test_options_of_natural_gradients_are_refused_without_natural_parameters(option: dict) -> None:
    model = MODELS["DVGP inverse"]()
    before = values(model)
    with pytest.raises(
        UnknownOptionError,
        match="does not use .* for DVGP. The covariance .* no natural parameters",
    ):
        _fit(model, (X, Y), **option)
    assert unchanged(before, model)
    _fit(model, (X, Y), natural_gradient=None)
    _fit(MODELS["DVGP coupled"](), (X, Y), **option)


@pytest.mark.parametrize(
    "solver, reason", [("newton", "Newton's method"), ("natural", "which stays in .D41.")]
)
def test_hybrid_basis_leaves_its_coefficients_to_adam(solver, reason) -> None:
    model = MODELS["HDVGP"]()
    before = values(model)
    with pytest.raises(
        UnknownOptionError,
        match=f'HybridBasis .*{reason}. Use mean_solver="adam" of fit.*OrthogonalBasis',
    ):
        _fit(model, (X, Y), mean_solver=solver)
    assert unchanged(before, model)


def test_optimizers_that_do_not_climb_or_are_used_are_refused() -> None:
    keras = tf.keras.optimizers
    wrapped, used = keras.LossScaleOptimizer(keras.Adam(0.01)), keras.Adam(0.01)
    used.iterations.assign(1)
    for optimizer, message in (
        (keras.Adam(-0.01), "The learning rate of this Adam is -0.0.* at least 0"),
        (wrapped, "pass the optimizer inside"),
        (used, "was used before and has the state of other variables; pass a new instance"),
    ):
        with pytest.raises(DataError, match=message):
            _fit(orthogonal(), (X, Y), optimizer=optimizer)


class _Scaled(gpflow.models.SVGP):
    """With a divergence that counts a hundred times."""

    def prior_kl(self) -> tf.Tensor:
        return 100.0 * super().prior_kl()


class _Shown(gd.models.BasisGP):
    """With predictions in other units, which are no part of its bound."""

    def predict_f(self, *arguments: Any, **options: Any) -> Any:
        mean, variance = super().predict_f(*arguments, **options)
        return 10.0 * mean, 100.0 * variance


class _Lowered(gd.models.BasisGP):
    """With a bound that is lower by a number."""

    def elbo(self, data: Any) -> tf.Tensor:
        return super().elbo(data) - 1000.0


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("own", ["prior_kl", "elbo"])
def test_a_bound_of_its_own_is_not_trained_past(own: str) -> None:
    if own == "elbo":
        model = _Lowered(*parts(), gd.bases.CoupledBasis(BETA))
    else:
        model = _Scaled(*parts(), BETA)
    with pytest.raises(
        ModelError, match=f"{type(model).__name__} has {own} of its own.*train by GPflow"
    ):
        _fit(model, (X, Y))
    assert _fit(_Shown(*parts(), gd.bases.CoupledBasis(BETA)), (X, Y)).steps == 1


def test_the_signature_and_the_docstring_of_fit_are_those_of_the_table() -> None:
    """One row of the table for each argument, or for each field of a `Schedule`."""
    arguments = inspect.signature(fit).parameters
    rows = {row.name: row for row in ROWS.values() if "." not in row.name}
    assert set(arguments) - {"model", "data", "schedule"} == set(rows)
    for name, row in rows.items():
        assert arguments[name].default == row.unset, name
        assert f"\n:param {name}: " in str(inspect.getdoc(fit)), name
    fields = {row.name for row in ROWS.values() if "." in row.name}
    assert fields == {f"Schedule.{name}" for name in vars(Schedule())}


def test_the_documentation_has_the_table_of_options() -> None:
    table = markdown({route.models[0]: (route.takes, route.defaults) for route in ROUTES})
    page = Path(__file__).parents[2] / "docs" / "fit.md"
    assert table in page.read_text(encoding="utf-8"), f"docs/fit.md should have:\n{table}"
