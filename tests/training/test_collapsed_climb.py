"""`fit` with a mean on all data and Gaussian noise: L-BFGS on the collapsed bound between coupled
steps and rounds.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow_probability as tfp
from gpflow import likelihoods as gl

import gpflow_decoupled as gd
from gpflow_decoupled.lbfgs import LBFGSRun
from gpflow_decoupled.models import ODVGP, BasisGP
from gpflow_decoupled.optimizers import ConjugateGradients, collapsed_elbo
from gpflow_decoupled.optimizers.log_climb import LogCoordinates
from gpflow_decoupled.training import FitResult
from gpflow_decoupled.training.stages import climbs as collapsed
from gpflow_decoupled.training.stages.climbs import CollapsedClimb
from gpflow_decoupled.training.stages.minibatches import Minibatches
from gpflow_decoupled.training.stages.stage import Budget, Report
from tests.interrupts import interrupt_after, interrupt_call
from tests.training.clock import Clock
from tests.training.problems import BETA, parts, sine, values

pytestmark = pytest.mark.filterwarnings("ignore:The bound still rises")

X, Y = sine()
STEPS = 140
"""Of which a quarter are coupled; the climb may then take 63 evaluations."""


def _model(likelihood: Any = None) -> ODVGP:
    kernel, noise = parts()
    return ODVGP(kernel, noise if likelihood is None else likelihood, "data", BETA)


def _fit(model: ODVGP, data: Any = None, **options: Any) -> FitResult:
    solver = ConjugateGradients(tolerance=1e-3, float32=False)
    settings = {"steps": STEPS, "progress": False, "mean_solver": solver, "learning_rate": 0.03}
    return gd.fit(model, (X, Y) if data is None else data, **{**settings, **options})


class Watch:
    """Notes what every climb did."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.runs: list[tuple[float, LBFGSRun, float]] = []
        self.views: list[BasisGP] = []
        self.seconds: list[float] = []
        run, climbed, found = CollapsedClimb.run, CollapsedClimb._climbed, list[LBFGSRun]()

        def noted(*arguments: Any) -> LBFGSRun:
            found.append(climbed(*arguments))
            return found[-1]

        def watched(climb: CollapsedClimb, budget: Budget) -> Report:
            before = float(collapsed_elbo(climb.model, (X, Y)))
            self.seconds.append(budget.clock.deadline(budget.until) - time.perf_counter())
            report = run(climb, budget)
            self.views.append(climb.model)
            self.runs.append((before, found[-1], float(climb.model.elbo((X, Y)))))
            assert float(report.output.elbo) == pytest.approx(self.runs[-1][2], rel=1e-9)
            return report

        patch.setattr(CollapsedClimb, "_climbed", noted)
        patch.setattr(CollapsedClimb, "run", watched)


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(monkeypatch)


@pytest.mark.exhaustive
def test_it_raises_the_bound_of_the_coupled_model_and_leaves_the_best_q(watch: Watch) -> None:
    model = _model()
    gpflow.set_trainable(model.likelihood, False)
    noise, points = model.likelihood.variance.numpy(), model.basis.beta.Z.numpy().copy()
    result = _fit(model)
    ((before, found, after),) = watch.runs
    assert before + 0.05 < after == pytest.approx(
        found.value, rel=1e-9
    ) and found.start == pytest.approx(before, rel=1e-9)
    assert 2 < found.evaluations <= 63 + 20  # a line search is not cut off
    assert after == pytest.approx(float(collapsed_elbo(watch.views[0], (X, Y))), abs=2.0), (
        "rounds change little"
    )
    assert model.likelihood.variance.numpy() == noise and not np.allclose(
        model.basis.beta.Z, points
    )
    history = result.history["elbo"]
    assert result.steps < 60 and history[35] == pytest.approx(after, rel=1e-9)
    exact = gpflow.models.GPR((X, Y), model.kernel, noise_variance=noise)
    assert after - 1e-3 <= result.elbo <= float(exact.log_marginal_likelihood())


@pytest.mark.exhaustive
def test_the_log_prior_is_part_of_what_it_climbs(watch: Watch) -> None:
    """A narrow prior holds the lengthscale where it is."""
    model = _model()
    model.kernel.lengthscales.prior = tfp.distributions.Normal(np.float64(0.31), np.float64(1e-4))
    _fit(model)
    assert len(watch.runs) == 1 and model.kernel.lengthscales.numpy() == pytest.approx(
        0.31, abs=1e-3
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "why", ["few steps", "few seconds", "labels", "mixed outputs", "fixed", "no memory"]
)
def test_it_is_left_out(why: str, watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    model, data, options = _model(), (X, Y), dict[str, Any]()
    if why == "few steps":
        options["steps"] = 66  # 29 evaluations, one fewer than it needs
    elif why == "few seconds":
        monkeypatch.setattr(CollapsedClimb, "seconds", lambda climb: 0.45 * 60.0 / 29.5)
        options.update(steps=None, seconds=60.0)
    elif why == "labels":
        model, data = _model(gl.Bernoulli()), (X, (Y > 0.0).astype(float))
    elif why == "mixed outputs":
        kernel = gpflow.kernels.LinearCoregionalization(
            [gpflow.kernels.Matern52()], W=np.ones([2, 1])
        )
        model, data = ODVGP(kernel, gl.Gaussian(0.1), "data", BETA), (X, np.hstack([Y, -Y]))
    elif why == "fixed":
        for part in (model.kernel, model.likelihood, model.basis.beta):
            gpflow.set_trainable(part, False)
    else:
        monkeypatch.setattr(collapsed, "MOST_ENTRIES", len(X) * len(BETA) - 1)
    ends: list[float] = []
    step = Minibatches.run

    def watched(stage: Minibatches, budget: Budget) -> Report:
        ends.append(budget.until)
        return step(stage, budget)

    monkeypatch.setattr(Minibatches, "run", watched)
    result = _fit(
        model, data, callbacks=gd.training.Callbacks([interrupt_after(40)], every=1), **options
    )
    assert not watch.runs and np.isfinite(result.elbo)
    assert set(ends) == (set() if why == "fixed" else {0.7})  # the solve is all there is to do


@pytest.mark.exhaustive
def test_a_limit_of_seconds_leaves_time_for_the_rounds(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    Clock(monkeypatch, step=0.05, evaluation=0.005)
    result = _fit(_model(), steps=None, seconds=2.0)
    assert len(watch.runs) == 1 and 0.4 * 2.0 < watch.seconds[0] <= 0.45 * 2.0
    assert result.gap is not None and result.gap <= 1e-3


@pytest.mark.exhaustive
def test_an_interrupt_keeps_what_it_has_found(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = _model()
    with monkeypatch.context() as patch:
        calls = interrupt_call(patch, LogCoordinates, "assign", 9)
        result = _fit(model)
    ((before, found, after),) = watch.runs
    assert calls and (result.reason, result.converged, found.reason) == (
        "interrupted",
        False,
        "interrupted",
    )
    assert result.steps == 36 and before < found.value == pytest.approx(after, rel=1e-9)
    assert float(model.elbo((X, Y))) == pytest.approx(after, rel=1e-6), (
        "without a mean on all data yet"
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize("stop", [30, 36])
def test_a_run_that_is_resumed_climbs_once(stop: int, watch: Watch, tmp_path: Path) -> None:
    saved = {"checkpoint": gd.training.Checkpoints(tmp_path, every=1)}
    first = _fit(
        _model(), callbacks=gd.training.Callbacks([interrupt_after(stop)], every=1), **saved
    )
    assert (first.steps, first.reason) == (stop, "interrupted")
    model, expected = _model(), _model()
    second = _fit(model, **saved)
    assert len(watch.runs) == 1
    result = _fit(expected)
    assert len(watch.runs) == 2 and second.steps == result.steps
    np.testing.assert_allclose(second.history["elbo"], result.history["elbo"], rtol=1e-7)
    for name, value in values(expected).items():
        np.testing.assert_allclose(values(model)[name], value, rtol=1e-5, atol=1e-7, err_msg=name)
