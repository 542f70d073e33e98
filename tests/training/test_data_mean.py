"""`fit` with a mean on all data: coupled steps, rounds, a solve at the end; limits, checkpoints,
interrupts, refusals.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import likelihoods as gl
from gpflow.kernels import LinearCoregionalization

import gpflow_decoupled as gd
from gpflow_decoupled.errors import CheckpointError, DataError, ModelError, UnknownOptionError
from gpflow_decoupled.models import ODVGP
from gpflow_decoupled.optimizers import ConjugateGradients, StochasticDualDescent
from gpflow_decoupled.training import Evaluation, FitResult, MeanSolver, Schedule
from gpflow_decoupled.training.checkpoints import locked
from gpflow_decoupled.training.routes import inducing as course
from gpflow_decoupled.training.stages import mean_on_data as solve_mean
from gpflow_decoupled.training.stages.mean_on_data import Rounds
from gpflow_decoupled.training.stages.minibatches import Minibatches
from gpflow_decoupled.training.stages.stage import Budget, Report
from tests.training.clock import Clock, SlowSolver
from tests.training.problems import BETA, orthogonal, parts, sine, unchanged, values

pytestmark = pytest.mark.filterwarnings("ignore:The bound still rises")

X, Y = sine()
LABELS = (Y > 0.0).astype(float)
COUPLED_SHARE = course._BEFORE_ROUNDS
SOLVER = ConjugateGradients(tolerance=1e-3)


def _model(likelihood: Any = None, **options: Any) -> ODVGP:
    kernel, noise = parts()
    return ODVGP(kernel, noise if likelihood is None else likelihood, "data", BETA, **options)


def _fit(model: ODVGP, data: Any = None, **options: Any) -> FitResult:
    settings = {
        "steps": 6,
        "progress": False,
        "compile": False,
        "mean_solver": SOLVER,
        "learning_rate": 0.03,
    }
    return gd.fit(model, (X, Y) if data is None else data, **{**settings, **options})


def _fixed(model: ODVGP) -> ODVGP:
    for part in (model.kernel, model.likelihood, model.basis.beta):
        gpflow.set_trainable(part, False)
    return model


@pytest.fixture(scope="module", autouse=True)
def early() -> Iterator[None]:
    """Rounds after a third of the run, so that few steps have several."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(course, "_BEFORE_ROUNDS", 0.35)
        yield


@pytest.fixture(scope="module")
def fitted() -> tuple[ODVGP, FitResult]:
    """Gaussian noise; read only."""
    model = _model()
    return model, _fit(model)


@pytest.mark.exhaustive
def test_more_rows_are_taken() -> None:
    model = _model(num_data=40)
    _fit(model, (X[:40], Y[:40]), steps=3)
    result = _fit(model, steps=3)
    assert model.num_data == len(X)
    assert result.elbo == pytest.approx(float(model.elbo((X, Y))), abs=1e-6)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "noise",
    [
        gl.Gaussian(gpflow.functions.Constant(0.1)),
        gl.Gaussian(np.full((60, 1), 0.1)),
        gl.Gaussian([0.1]),
    ],
    ids=["function", "per row", "array of one"],
)
def test_gaussian_noise_of_any_form_is_trained(noise: gl.Gaussian) -> None:
    """One variance by bounds of the evidence, others at the sites."""
    model = _model(noise)
    result = _fit(model, steps=3, batch_size=60)
    assert result.elbo == pytest.approx(float(model.elbo((X, Y))), rel=1e-9)


@pytest.mark.exhaustive
def test_gaussian_noise_trains_all_of_it(fitted: tuple[ODVGP, FitResult]) -> None:
    """At least to the exact posterior mean of its hyperparameters, and above where the coupled
    steps left off.
    """
    model, result = fitted
    exact = gpflow.models.GPR((X, Y), model.kernel, noise_variance=model.likelihood.variance)
    grid = np.linspace(0.0, 1.0, 9)[:, None]
    np.testing.assert_allclose(model.predict_f(grid)[0], exact.predict_f(grid)[0], atol=0.02)
    assert model.kernel.lengthscales != 0.3 and model.num_data == 60
    assert result.elbo == pytest.approx(float(model.elbo((X, Y))), rel=1e-9)
    assert result.elbo < float(exact.log_marginal_likelihood())
    assert (
        result.gap is not None
        and 0.0 <= result.gap <= SOLVER.tolerance
        and f"gap {result.gap:.2g} nats" in str(result)
    )
    assert result.history["elbo"][-1] > result.history["elbo"][1] and result.steps <= 6
    assert [variable.shape[0] for variable in model.basis.data_mean.parameters] == [
        60
    ]  # the inputs are no Parameter


@pytest.mark.exhaustive
def test_the_best_mean_is_left_at_the_end(fitted: tuple[ODVGP, FitResult]) -> None:
    model = fitted[0]
    before = float(model.elbo((X, Y)))
    again = ConjugateGradients(tolerance=1e-8).run(_copy(model), (X, Y))
    assert before <= again.elbo <= before + 2e-3


def _copy(model: ODVGP) -> ODVGP:
    return gpflow.utilities.deepcopy(model)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["Bernoulli", "mixed outputs"])
def test_other_likelihoods_and_mixed_outputs_have_rounds_at_sites(name: str) -> None:
    if name == "Bernoulli":
        model, data = _model(gl.Bernoulli()), (X, LABELS)
    else:
        kernel = LinearCoregionalization(
            [parts()[0], parts()[0]], np.array([[1.0, 0.2], [0.4, 0.9], [0.1, 0.3]])
        )
        model = ODVGP(kernel, gl.Gaussian(0.1), "data", BETA, num_latent_gps=2)
        data = X, np.hstack([Y, -Y, 0.5 * Y])
    before = values(model)
    result = _fit(model, data, steps=5)
    rounds = result.history["elbo"][2:]  # after a third of the steps
    assert (
        result.steps <= 5
        and np.all(np.diff(rounds) > -1e-4 * len(X))
        and rounds[-1] > rounds[0] + 0.1
    )
    assert result.elbo == pytest.approx(float(model.elbo(data)), rel=1e-9)
    assert result.elbo == pytest.approx(rounds[-1], abs=1e-9) and result.gap <= SOLVER.tolerance
    for name in (".basis.q_mu", ".kernel.lengthscales" if data[1] is LABELS else ".kernel.W"):
        assert not np.array_equal(before[name], values(model)[name])
    assert np.any(model.basis.a_gamma)
    again = ConjugateGradients(tolerance=1e-3).run(_copy(model), data)
    assert result.elbo - 1e-3 < again.elbo < result.elbo + 0.02, (
        "steps of the sites end at a gain of 1e-3, not at a gap"
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "solver", [SOLVER, StochasticDualDescent(tolerance=1e-2, batch_size=20, epochs=300)]
)
def test_at_fixed_hyperparameters_it_is_one_solve(
    solver: ConjugateGradients | StochasticDualDescent,
) -> None:
    model = _fixed(_model())
    result = _fit(model, steps=50, learning_rate=None, mean_solver=solver)
    assert (result.steps, result.converged, result.reason) == (1, True, "the mean is solved for")
    assert result.gap is not None and 0.0 <= result.gap <= solver.tolerance
    other = _fixed(_model())
    expected = solver.run(other, (X, Y))
    assert result.elbo == pytest.approx(expected.elbo, abs=1e-9)


@pytest.mark.exhaustive
def test_rounds_with_another_solver(fitted: tuple[ODVGP, FitResult]) -> None:
    """Their bound is that of conjugate gradients up to the gap, which the result says."""
    model = _model()
    solver = StochasticDualDescent(tolerance=0.1, batch_size=20, epochs=100)
    result = _fit(model, mean_solver=solver)
    assert result.gap is not None and np.isfinite(result.gap)
    assert result.elbo == pytest.approx(float(model.elbo((X, Y))), rel=1e-9)
    assert result.elbo == pytest.approx(fitted[1].elbo, abs=2.0)
    assert _best(model) <= result.elbo + result.gap


def _best(model: ODVGP) -> float:
    """The bound at the best mean for the hyperparameters."""
    return SOLVER.run(_copy(model), (X, Y)).elbo


@pytest.mark.exhaustive
def test_seconds_end_a_run_with_a_solved_mean() -> None:
    model = _model()
    result = _fit(model, steps=None, seconds=0.2)
    assert result.reason in ("time is up", "converged") and result.seconds < 60.0
    assert SOLVER.run(_copy(model), (X, Y)).elbo == pytest.approx(result.elbo, abs=5e-3)


@pytest.mark.exhaustive
def test_a_limit_of_seconds_leaves_time_for_the_last_solve(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which is exact to the tolerance, though those before it are not."""
    model, clock = _model(), Clock(monkeypatch, step=0.1)
    result = _fit(
        model,
        steps=None,
        seconds=5.0,
        mean_solver=SlowSolver(tolerance=1e-3, clock=clock),
        learning_rate=0.001,
    )
    assert 3.0 < result.seconds <= 5.0 and result.reason in ("time is up", "converged")
    assert result.gap is not None and result.gap <= 1e-3
    assert SOLVER.run(_copy(model), (X, Y)).elbo == pytest.approx(result.elbo, abs=2e-3)


@pytest.mark.exhaustive
def test_the_last_solve_is_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a quarter of the limit beyond it; then the mean is the best one so far, with a
    certified gap.
    """
    deadlines: list[float] = []

    @dataclass(frozen=True)
    class Watched(ConjugateGradients):
        """Notes how long each solve may take."""

        def run_on(self, *arguments: Any, **options: Any) -> Any:
            deadlines.append(options["deadline"] - time.perf_counter())
            return super().run_on(*arguments, **options)

    _fit(_fixed(_model()), steps=1, mean_solver=Watched())
    _fit(_fixed(_model()), steps=None, seconds=100.0, mean_solver=Watched())
    assert deadlines[0] == np.inf and 124.0 < deadlines[1] <= 125.0
    monkeypatch.setattr(solve_mean, "_OVERTIME", 0.0)
    monkeypatch.setattr(solve_mean, "_LEAST_SECONDS", 0.0)
    model = _fixed(_model())
    result = _fit(model, steps=None, seconds=0.1)
    assert result.reason == "time is up" and not result.converged
    assert result.gap is not None and SOLVER.tolerance < result.gap < np.inf
    assert SOLVER.run(_copy(model), (X, Y)).elbo - result.elbo <= result.gap * (1.0 + 1e-6)


@pytest.mark.exhaustive
def test_rounds_come_last_and_step_sizes_have_fallen_before_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rounds, coupled = list[int](), list[float]()
    round_of, step = Rounds.run, Minibatches.run
    monkeypatch.setattr(course, "_BEFORE_ROUNDS", COUPLED_SHARE)
    monkeypatch.setattr(Rounds, "run", lambda *one: rounds.append(1) or round_of(*one))

    def watched(stage: Minibatches, budget: Budget) -> Report:
        coupled.extend(size.learning_rate for size in budget.sizes)
        return step(stage, budget)

    monkeypatch.setattr(Minibatches, "run", watched)
    result = _fit(_model(), steps=20)
    assert len(coupled) == 14 and len(rounds) == result.steps - 14 > 0
    assert coupled[:11] == [0.03] * 11 and coupled[-1] < 0.01 and np.all(np.diff(coupled) <= 0.0)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("product", "end"), [(1e-9, COUPLED_SHARE), (0.03, 0.73), (10.0, COUPLED_SHARE)]
)
def test_where_few_rounds_would_fit_the_coupled_steps_go_on(
    product: float, end: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until there is time for a solve, nine products here, in a run of one second; never less than
    where there are rounds.
    """
    rounds, coupled = list[int](), list[float]()
    round_of, step = Rounds.run, Minibatches.run
    monkeypatch.setattr(course, "_BEFORE_ROUNDS", COUPLED_SHARE)
    Clock(monkeypatch, step=0.05, product=product)
    monkeypatch.setattr(Rounds, "run", lambda *one: rounds.append(1) or round_of(*one))

    def watched(stage: Minibatches, budget: Budget) -> Report:
        coupled.append(budget.clock.share)
        return step(stage, budget)

    monkeypatch.setattr(Minibatches, "run", watched)
    result = _fit(_model(), steps=None, seconds=1.0)
    assert bool(rounds) == (product < 1e-6)
    assert result.gap is not None and result.gap <= SOLVER.tolerance
    assert end - 0.06 < max(coupled) < end
    assert rounds or result.reason == "time is up"
    assert result.steps == len(coupled) + max(1, len(rounds)), "a solve is a step, too"


@pytest.mark.exhaustive
def test_a_solve_is_timed_for_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[float, float]] = []
    timed = course.seconds_of_solves

    def watched(*model: Any, **options: Any) -> tuple[float, float]:
        seen.append(timed(*model, **options))
        return seen[-1]

    monkeypatch.setattr(course, "seconds_of_solves", watched)
    _fit(_model(), steps=2, seconds=3.0)
    _fit(_model(), steps=2)
    ((product, rest),) = seen
    assert 0.0 < product < 0.5 and 0.0 < rest < 1.0


@pytest.mark.exhaustive
def test_every_round_is_reported() -> None:
    """With the bound after it, and not with a mean over coupled steps."""
    seen: list[tuple[int, float]] = []
    calls = gd.training.Callbacks(
        [lambda step, metrics, model: seen.append((step, metrics["elbo"]))]
    )
    result = _fit(_model(), callbacks=calls)
    assert [step for step, _ in seen] == list(range(4, result.steps + 1)) and len(seen) > 1
    assert [elbo for _, elbo in seen] == list(result.history["elbo"][3:])


@pytest.mark.exhaustive
def test_evaluation_sees_the_model(fitted: tuple[ODVGP, FitResult]) -> None:
    held_out = sine(20, seed=1)
    model = _model()
    result = _fit(model, evaluation=Evaluation(held_out, every=2))
    expected = gd.training.held_out_metrics(model, held_out)
    assert result.history["rmse"][-1] == pytest.approx(expected["rmse"], rel=1e-9)
    assert len(result.history["rmse"]) >= 2
    assert result.elbo == pytest.approx(fitted[1].elbo, rel=1e-9)


@pytest.mark.exhaustive
@pytest.mark.parametrize("best", [1, 2, 3])
def test_parameters_that_patience_puts_back_have_a_solved_mean(
    best: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a coupled step, which has no mean of its own, and those of a round before the
    last.
    """
    scores = iter([step if step <= best else -1.0 for step in range(1, 7)])
    monkeypatch.setattr(
        "gpflow_decoupled.training.evaluation.held_out_metrics",
        lambda *_, **__: {"log_density": next(scores)},
    )
    model = _model()
    result = _fit(model, evaluation=Evaluation((X, Y), every=1, patience=1))
    assert result.restored_step == best
    assert result.elbo == pytest.approx(float(model.elbo((X, Y))), rel=1e-9)
    assert SOLVER.run(_copy(model), (X, Y)).elbo == pytest.approx(result.elbo, abs=2e-3)


@pytest.mark.exhaustive
@pytest.mark.parametrize("stop", [1, 4, 5])
def test_a_run_that_is_resumed_is_the_run(stop: int, tmp_path: Path) -> None:
    """The first three of 6 steps are coupled; `steps` shapes the schedule, so the runs are stopped
    from outside.

    In float64: a resumed run solves once more from the solution, and in float32 may find it not
    good enough."""
    folder = gd.training.Checkpoints(tmp_path, every=1)

    def run(model: ODVGP, **options: Any) -> FitResult:
        return _fit(model, mean_solver=ConjugateGradients(tolerance=1e-3, float32=False), **options)

    def interrupt(step: int, metrics: dict, model: Any) -> None:
        if step == stop:
            raise KeyboardInterrupt

    first = run(_model(), checkpoint=folder, callbacks=gd.training.Callbacks([interrupt], every=1))
    assert (first.steps, first.reason) == (stop, "interrupted")
    model, expected = _model(), _model()
    second, result = run(model, checkpoint=folder), run(expected)
    assert second.steps == result.steps
    np.testing.assert_allclose(second.history["elbo"], result.history["elbo"], rtol=1e-9)
    for name, value in values(expected).items():
        np.testing.assert_allclose(values(model)[name], value, rtol=1e-6, atol=1e-8, err_msg=name)


@pytest.mark.exhaustive
def test_inputs_stay_where_they_are_whatever_is_trainable() -> None:
    model = _model()
    model.basis.data_mean.set_data(X)
    gpflow.set_trainable(model, True)
    _fit(model, steps=4)
    np.testing.assert_array_equal(model.basis.gamma.Z, X)


@pytest.mark.exhaustive
def test_standardized() -> None:
    def build(X: np.ndarray, Y: np.ndarray) -> ODVGP:
        return ODVGP(*parts(), "data", np.linspace(X.min(), X.max(), 5)[:, None])

    scaled = gd.Standardized(build, (100.0 * X, 10.0 * Y + 50.0))
    scaled.fit(steps=4, progress=False, compile=False, mean_solver=SOLVER)
    mean, variance = scaled.predict_y(100.0 * X)
    assert np.sqrt(np.mean((mean.numpy() - (10.0 * Y + 50.0)) ** 2)) < 2.0
    assert np.all(variance.numpy() > 0.0)


OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    **{
        solver: (
            {"mean_solver": solver},
            f"mean_solver='{solver}' is for mean points that are stored; .* 'conjugate_gr",
        )
        for solver in ("adam", "natural", "newton")
    },
    "no name": (
        {"mean_solver": "sgd"},
        "mean_solver='sgd' is not known; gamma=\"data\" takes 'conjugate_gradients', which",
    ),
    "object": (
        {"mean_solver": MeanSolver("newton", 0.5)},
        (
            "takes 'conjugate_gradients', which is the default, a ConjugateGradients with settings,"
            " or a StochasticDualDescent"
        ),
    ),
    "refreshes": (
        {"schedule": Schedule(refresh_every=5)},
        "does not use Schedule.refresh_every=5 for ODVGP",
    ),
}


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("options, message", OPTIONS.values(), ids=OPTIONS)
def test_options_of_other_mean_points_are_refused(options: dict[str, Any], message: str) -> None:
    model = _model()
    before = values(model)
    with pytest.raises(UnknownOptionError, match=message):
        _fit(model, **options)
    assert unchanged(before, model)


@pytest.mark.parametrize("options", [{}, {"initialize": "auto"}])
def test_white_noise_in_the_kernel_is_refused(options: dict[str, Any]) -> None:
    model = _model()
    model.kernel = gpflow.kernels.Product(
        [model.kernel + gpflow.kernels.White(0.5), gpflow.kernels.Constant()]
    )
    before = values(model)
    with pytest.raises(
        ModelError, match="takes no White kernel, .* add its variance to the noise variance"
    ):
        _fit(model, **options)
    assert unchanged(before, model) and model.basis.data_mean.size == 0 and model.num_data is None


@pytest.mark.exhaustive
def test_conjugate_gradients_by_name_are_the_default() -> None:
    bounds = [
        _fit(_fixed(_model()), mean_solver=solver, learning_rate=None).elbo
        for solver in ("conjugate_gradients", None)
    ]
    assert bounds[0] == bounds[1]
    model = orthogonal()
    with pytest.raises(
        UnknownOptionError, match='ConjugateGradients needs a mean on all data, gamma="data"'
    ):
        _fit(model, mean_solver="conjugate_gradients")


@pytest.mark.exhaustive
@pytest.mark.parametrize("refusal", ["initialize", "a folder in use", "a folder of another run"])
def test_a_run_that_is_refused_leaves_a_trained_mean_as_it_was(
    refusal: str, tmp_path: Path
) -> None:
    model = _model()
    _fit(model, steps=3)
    before, mean = values(model), model.predict_f(X)[0]
    options: dict[str, Any] = (
        {"initialize": "bad"} if refusal == "initialize" else {"checkpoint": tmp_path}
    )
    if refusal == "a folder of another run":
        _fit(_model(), steps=3, seed=1, checkpoint=tmp_path)
    model.num_data = None  # other rows are taken for all data
    with locked(tmp_path) if refusal == "a folder in use" else nullcontext():
        with pytest.raises((UnknownOptionError, DataError, CheckpointError)):
            _fit(model, (X[:50], Y[:50]), **options)
    assert unchanged(before, model) and model.num_data is None and len(model.basis.gamma.Z) == 60
    np.testing.assert_array_equal(model.predict_f(X)[0], mean)


def test_streams_and_other_models_are_refused() -> None:
    model = _model()
    before = values(model)
    stream = tf.data.Dataset.from_tensor_slices((X, Y)).batch(20)
    with pytest.raises(DataError, match="a tf.data.Dataset is a stream: pass arrays"):
        _fit(model, stream)
    assert unchanged(before, model)
    for solver in (SOLVER, StochasticDualDescent()):
        needs = (
            f'{type(solver).__name__} needs a mean on all data, gamma="data", .* use'
            ' mean_solver="adam"'
        )
        others: list[tuple[Callable[[], Any], str]] = [
            (orthogonal, needs),
            (lambda: gpflow.models.SVGP(*parts(), BETA), "no mean points of its own"),
        ]
        for make, message in others:
            with pytest.raises(UnknownOptionError, match=message):
                _fit(make(), mean_solver=solver)
