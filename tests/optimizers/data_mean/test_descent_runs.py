"""Descents that end early leave a usable model; settings, data and models that cannot be used are
refused.
"""

from __future__ import annotations

import time
from typing import Any

import gpflow
import numpy as np
import pytest
from gpflow import likelihoods as gl

from gpflow_decoupled.compilation import Compiled
from gpflow_decoupled.errors import DataError, ModelError, NumericalError
from gpflow_decoupled.models import ODVGP
from gpflow_decoupled.optimizers import ConjugateGradients, StochasticDualDescent
from gpflow_decoupled.optimizers.data_mean import solve_mean as descent
from gpflow_decoupled.optimizers.data_mean import system
from tests.bounds.registry import matern
from tests.interrupts import interrupt_call
from tests.optimizers.data_mean.problems import BETA, NEW, X, Y, labels, model_of

DATA = X, Y[:, :1]


def _usable(model: ODVGP, data: tuple, elbo: float) -> None:
    """Bound and predictions are finite, the bound is what was reported, and a whole run goes on
    from here.
    """
    assert float(model.elbo(data)) == pytest.approx(elbo, rel=1e-9)
    assert np.all(np.isfinite(model.predict_f(NEW)))
    best = ConjugateGradients(tolerance=1e-6).run(model, data)
    assert best.converged and best.elbo >= elbo - 1e-6


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["Gaussian", "Bernoulli"])
def test_an_interrupt_of_a_step_leaves_what_was_found(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = DATA if name == "Gaussian" else (X, labels())
    model = model_of(gl.Gaussian(0.1) if name == "Gaussian" else gl.Bernoulli())
    with monkeypatch.context() as patch:
        calls = interrupt_call(patch, Compiled, "__call__", 61)
        result = StochasticDualDescent(tolerance=1e-9, batch_size=10, correct_every=50).run(
            model, data
        )
    assert len(calls) == 61
    assert (result.converged, result.reason, result.steps) == (False, "interrupted", 1)
    assert result.products == 1 + 10 + 1 and len(result.gaps) == 2  # 60 steps of 10 of 60 rows
    assert 1e-3 < result.gap < 0.1 * result.gaps[0]
    _usable(model, data, result.elbo)


@pytest.mark.exhaustive
@pytest.mark.parametrize("at", [1, 2, 3, 4])
def test_an_interrupt_of_a_whole_product_leaves_the_last_round(
    at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each round has two: that of the step of conjugate gradients, and the certificate."""
    solver, model = StochasticDualDescent(tolerance=1e-9, epochs=4, correct_every=2), model_of()
    with monkeypatch.context() as patch:
        interrupt_call(patch, system, "gram_product", at)
        result = solver.run(model, DATA)
    assert (result.reason, result.converged) == ("interrupted", False)
    assert len(result.gaps) == (1 if at < 3 else 2)
    assert bool(np.any(model.basis.a_gamma)) is (at > 2)
    _usable(model, DATA, result.elbo)


@pytest.mark.exhaustive
def test_time_runs_out() -> None:
    for seconds in (-1.0, 1.0):
        model = model_of()
        solver = StochasticDualDescent(tolerance=1e-300, epochs=10**6, batch_size=10)
        began = time.perf_counter()
        result = solver.run(model, DATA, deadline=began + seconds)
        assert (result.converged, result.reason) == (False, "time is up")
        assert time.perf_counter() - began < 20.0
        _usable(model, DATA, result.elbo)


@pytest.mark.exhaustive
def test_progress_and_the_printed_result(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(descent, "_SECONDS", 0.0)
    options = {"tolerance": 1e-9, "epochs": 50, "batch_size": 10}
    result = StochasticDualDescent(progress=True, **options).run(model_of(), DATA)
    assert str(result).startswith("1 solves with 60 products in ")
    assert str(result).endswith(f"gap {result.gap:.2g} nats, stopped: epochs done")
    shown = capsys.readouterr().err
    assert "solve 1: " in shown and " products, gap " in shown
    StochasticDualDescent(**options).run(model_of(), DATA)
    assert not capsys.readouterr().err


# --- what cannot be used

SETTINGS: dict[str, tuple[dict[str, Any], str]] = {
    "tolerance": ({"tolerance": 0.0}, "tolerance=0.0 must be a number above 0"),
    "epochs": ({"epochs": 0}, "epochs=0 must be a whole number of at least 1"),
    "epochs boolean": ({"epochs": True}, "epochs"),
    "correct": ({"correct_every": 0}, "correct_every=0 must be a whole number of at least 1"),
    "batch": ({"batch_size": 2.5}, "batch_size=2.5 must be a whole number"),
    "step zero": ({"step_size": 0.0}, "step_size=0.0 must be a number above 0"),
    "step NaN": ({"step_size": float("nan")}, "step_size"),
    "momentum one": ({"momentum": 1.0}, "momentum=1.0 must be a number of at least 0 and below 1"),
    "momentum negative": ({"momentum": -0.1}, "momentum"),
    "momentum NaN": ({"momentum": float("nan")}, "momentum"),
    "momentum boolean": ({"momentum": False}, "momentum"),
    "seed": ({"seed": -1}, "seed=-1 must be a whole number of at least 0"),
    "steps": ({"max_steps": 0}, "max_steps"),
    "rank": ({"rank": 0}, "rank"),
}


@pytest.mark.parametrize("options, message", SETTINGS.values(), ids=SETTINGS)
def test_settings_out_of_range_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        StochasticDualDescent(**options)


def test_unusable_data_and_other_models_are_refused() -> None:
    model = model_of()
    with pytest.raises(DataError, match="X has 60 rows and Y has 59"):
        StochasticDualDescent().run(model, (X, Y[:-1, :1]))
    assert model.basis.data_mean.size == 0 and model.num_data is None
    with pytest.raises(
        ModelError,
        match='StochasticDualDescent is for models .* build ODVGP.kernel, likelihood, "data"',
    ):
        StochasticDualDescent().run(ODVGP(matern(1.3, 0.8), gl.Gaussian(), X[:9], BETA), DATA)
    with pytest.raises(
        ModelError, match="StochasticDualDescent takes a model of the class BasisGP, and got SVGP"
    ):
        StochasticDualDescent().run(gpflow.models.SVGP(matern(1.3, 0.8), gl.Gaussian(), BETA), DATA)


def test_a_product_that_overflows_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    model, product = model_of(), system.gram_product
    monkeypatch.setattr(
        system, "gram_product", lambda *parts, **options: np.inf * product(*parts, **options)
    )
    with pytest.raises(
        NumericalError, match="product with the kernel matrix is not finite: standardise"
    ):
        StochasticDualDescent().run(model, DATA)
    assert not np.any(model.basis.a_gamma)
