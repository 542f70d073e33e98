"""Ctrl-C in `fit` with a mean on all data keeps the mean that was solved for; and what is shown
while a solve takes time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gpflow import likelihoods as gl

import gpflow_decoupled as gd
from gpflow_decoupled.lbfgs import LBFGSRun
from gpflow_decoupled.models import ODVGP
from gpflow_decoupled.optimizers import ConjugateGradients
from gpflow_decoupled.optimizers.data_mean import evidence as hyperparameters
from gpflow_decoupled.optimizers.data_mean import mean_optimizer as mean_run
from gpflow_decoupled.optimizers.data_mean import system
from gpflow_decoupled.training import FitResult
from gpflow_decoupled.training.routes import inducing as course
from gpflow_decoupled.training.stages import mean_on_data as rounds
from tests.interrupts import interrupt_call
from tests.training.problems import BETA, parts, sine

X, Y = sine()
LABELS = (Y > 0.0).astype(float)


def _model(likelihood: Any = None) -> ODVGP:
    kernel, noise = parts()
    return ODVGP(kernel, noise if likelihood is None else likelihood, "data", BETA)


def _fit(model: ODVGP, data: Any = None, **options: Any) -> FitResult:
    settings = {
        "steps": 6,
        "progress": False,
        "compile": False,
        "mean_solver": ConjugateGradients(tolerance=1e-3),
    }
    return gd.fit(
        model, (X, Y) if data is None else data, **{**settings, "learning_rate": 0.03, **options}
    )


@pytest.fixture(autouse=True)
def early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds after a third of the run, so that few steps have several."""
    monkeypatch.setattr(course, "_BEFORE_ROUNDS", 0.35)


INTERRUPTS = {
    "climb": (hyperparameters, "evidence_bound", 4, False),
    "start of the second solve": (mean_run, "gram_product", 1, False),
    "second solve": (system, "gram_product", 2, True),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("owner, name, at, moved", INTERRUPTS.values(), ids=INTERRUPTS)
def test_an_interrupt_of_a_round_ends_the_run_and_keeps_a_mean(
    owner: Any, name: str, at: int, moved: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rather than end one product of it. The mean is that of the first solve, with the
    hyperparameters for which it is.
    """
    model, seen = _model(), dict[int, float]()
    follow = gd.training.Callbacks(
        [lambda step, *_: seen.update({step: float(model.kernel.lengthscales.numpy())})], every=1
    )
    with monkeypatch.context() as patch:
        calls = interrupt_call(patch, owner, name, at)
        result = _fit(model, mean_solver=ConjugateGradients(tolerance=1e-9), callbacks=follow)
    assert (result.reason, result.converged, result.steps) == ("interrupted", False, 4)
    assert len(calls) <= at + 1 and np.any(model.basis.a_gamma)
    assert result.elbo == pytest.approx(float(model.elbo((X, Y))), rel=1e-6)
    assert (seen[4] != pytest.approx(seen[3], rel=1e-12)) is moved
    assert ConjugateGradients(tolerance=1e-3).run(model, (X, Y)).elbo >= result.elbo - 1e-6


@pytest.mark.exhaustive
def test_a_round_that_is_interrupted_and_lowers_the_bound_is_taken_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a solve after the interrupt."""
    model, calls, before = _model(gl.Bernoulli()), list[list[int]](), list[float]()

    def climb(*arguments: Any, **options: Any) -> LBFGSRun:
        before.append(float(model.kernel.lengthscales.numpy()))
        model.kernel.lengthscales.assign(9.0)
        calls.append(interrupt_call(monkeypatch, system, "gram_product", 1))
        return LBFGSRun(np.zeros(0), 1e9, 0.0, 1, True, "converged")

    with monkeypatch.context() as patch:
        patch.setattr(rounds, "climb_logarithms", climb)
        result = _fit(model, (X, LABELS))
    assert (result.reason, result.converged) == ("interrupted", False) and calls == [[1]]
    assert model.kernel.lengthscales.numpy() == pytest.approx(before[0], rel=1e-12) and np.any(
        model.basis.a_gamma
    )
    assert result.elbo == pytest.approx(float(model.elbo((X, LABELS))), rel=1e-6)


@pytest.mark.exhaustive
def test_the_progress_line_shows_the_solves(capsys: pytest.CaptureFixture[str]) -> None:
    """That of the last one, too, which follows the steps; here there is no other."""
    _fit(_model(), steps=1, progress=True)
    shown = capsys.readouterr().err
    assert (
        ", solve 1: " in shown
        and " products, gap " in shown
        and "ELBO=" not in shown.split("solve 1: ")[-1]
    )
    _fit(_model(), steps=1)
    assert not capsys.readouterr().err


def test_an_interrupt_of_the_last_solve_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    model = _model(gl.Bernoulli())
    with monkeypatch.context() as patch:
        interrupt_call(patch, system, "gram_product", 2)
        result = _fit(model, (X, LABELS), steps=1)  # of the coupled model
    assert (result.steps, result.reason, result.converged) == (1, "interrupted", False)
    assert np.all(np.isfinite(model.predict_y(X[:3])))
