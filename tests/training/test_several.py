"""Several steps in one call are the steps one by one: the same numbers, failures, limits, reports
and checkpoints.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_decoupled as gd
from gpflow_decoupled.errors import NumericalError
from gpflow_decoupled.training.batches import ArrayBatches
from gpflow_decoupled.training.routes import minibatches
from gpflow_decoupled.training.routes.minibatches import is_small
from gpflow_decoupled.training.schedules import StepSizes
from gpflow_decoupled.training.stages.minibatches import Minibatches, steps_in_a_loop
from gpflow_decoupled.training.stages.stage import Budget, Report, StepOutput
from tests.training.problems import BETA, GAMMA, MODELS, grouped, orthogonal, parts, sine, values
from tests.training.test_soundness import Brittle

QUIET = {"progress": False, "batch_size": 20}


@pytest.fixture
def calls(monkeypatch) -> list[int]:
    """How many steps each call was asked for."""
    found, run = list[int](), Minibatches.run

    def count(self: Minibatches, budget: Budget) -> Report:
        found.append(len(budget.sizes))
        return run(self, budget)

    monkeypatch.setattr(Minibatches, "run", count)
    return found


@pytest.fixture
def one_by_one(monkeypatch) -> None:
    """No model counts as small."""
    monkeypatch.setattr(minibatches, "is_small", lambda *_: False)


def _fit(model: Any, steps: int = 47, **options: Any) -> gd.training.FitResult:
    return gd.fit(model, sine(), **grouped(steps=steps, **{**QUIET, **options}))


def _batches(size: int | None = 20) -> ArrayBatches:
    return ArrayBatches(*map(tf.constant, sine()), size, 0)


def test_nothing_is_computed_after_a_step_that_fails_and_steps_wait_for_each_other() -> None:
    total, rate = tf.Variable(0.0, dtype=tf.float64), tf.Variable(0.0, dtype=tf.float64)

    def step(X: tf.Tensor, Y: tf.Tensor, seed: tf.Tensor) -> StepOutput:
        before = total.read_value()
        for _ in range(
            30
        ):  # late, so that a step which did not wait would read what is not written yet
            before = tf.linalg.matmul(
                tf.eye(2, dtype=tf.float64) * before, tf.eye(2, dtype=tf.float64)
            )[0, 0]
        total.assign(before + rate * X[0, 0])
        return StepOutput.sound(total.read_value(), seed[1] < 5)

    def set_step_sizes(sizes: StepSizes) -> None:
        rate.assign(sizes.learning_rate)

    X = tf.reshape(tf.range(8.0, dtype=tf.float64), [8, 1, 1])
    sizes = tf.constant([[np.nan, 2.0 ** -(k % 2), 0.0] for k in range(8)], tf.float64)
    loop = tf.function(partial(steps_in_a_loop, step, set_step_sizes), autograph=False)
    output = loop(X, X, tf.constant([(0, k) for k in range(8)]), sizes)
    np.testing.assert_array_equal(output.elbo, [0.0, 0.5, 2.5, 4.0, 8.0, 10.5, 0.0, 0.0])
    np.testing.assert_array_equal(output.ok, [True] * 5 + [False] * 3)
    assert total == 10.5


@pytest.mark.exhaustive
@pytest.mark.parametrize("size", [20, None])
@pytest.mark.parametrize("name", MODELS)
def test_the_steps_are_those_taken_one_by_one(
    name: str, size: int | None, calls: list[int], monkeypatch
) -> None:
    together, alone = MODELS[name](), MODELS[name]()
    result = _fit(together, batch_size=size, learning_rate=0.01)
    assert calls == [20, 20, 7]
    monkeypatch.setattr(minibatches, "is_small", lambda *_: False)
    expected = _fit(alone, batch_size=size, learning_rate=0.01)
    assert calls[3:] == [1] * 47
    np.testing.assert_allclose(
        result.history["elbo"], expected.history["elbo"], rtol=1e-6, atol=1e-6
    )
    np.testing.assert_array_equal(result.history["step"], 1 + np.arange(47))
    assert (
        np.all(np.diff(result.history["seconds"]) > 0)
        and result.history["seconds"][-1] == result.seconds
    )
    for path, value in values(together).items():
        np.testing.assert_allclose(value, values(alone)[path], rtol=1e-5, atol=1e-6, err_msg=path)


@pytest.mark.exhaustive
def test_how_steps_are_put_together_changes_nothing(calls: list[int], tmp_path: Path) -> None:
    """Reports, evaluations, refreshes and checkpoints are due where they are due; a resumed run
    goes on with other calls.
    """
    due: dict[str, list[int]] = {"report": [], "evaluation": []}

    def report(step: int, metrics: dict[str, float], model: object) -> None:
        due["evaluation" if "rmse" in metrics else "report"].append(step)

    schedule = {"refresh_every": 15, "anneal": 0.0}
    plain = _fit(orthogonal(mean_subsample=3), **schedule)
    assert calls == [15, 5, 10, 10, 5, 2]
    calls.clear()
    options = {
        **schedule,
        "callbacks": [report],
        "report_every": 7,
        "evaluation": sine(9, 1),
        "evaluate_every": 9,
    }
    options |= {"checkpoint": tmp_path, "checkpoint_every": 25}
    busy = [_fit(orthogonal(mean_subsample=3), steps, **options) for steps in (13, 47)][-1]
    assert calls == [7, 2, 4, 1, 1, 3, 3, 4, 2, 1, 2, 5, 1, 6, 3, 2]
    assert due == {"report": [7, 14, 21, 28, 35, 42], "evaluation": [9, 18, 27, 36, 45]}
    np.testing.assert_allclose(plain.history["elbo"], busy.history["elbo"], rtol=1e-9)
    assert plain.refreshes == busy.refreshes == 4


def _brittle(reach: float = 0.1) -> gd.models.ODVGP:
    return gd.models.ODVGP(Brittle(reach), gpflow.likelihoods.Gaussian(0.1), GAMMA, BETA)


BRITTLE = {"learning_rate": 0.02, "anneal": 0.0, "report_every": 4, "refresh_every": 4}


@pytest.fixture(scope="module")
def failure() -> tuple[NumericalError, gd.models.ODVGP]:
    """The error of a run whose steps are taken one by one, and its model."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(minibatches, "is_small", lambda *_: False)
        model = _brittle()
        with pytest.raises(NumericalError) as info:
            _fit(model, **BRITTLE)
    return info.value, model


@pytest.mark.exhaustive
def test_a_step_that_fails_among_others_is_found_and_undone(failure, calls: list[int]) -> None:
    error, model = failure
    number = error.result.steps
    assert number > 4 and number % 4 > 1  # in the midst of a call that is not the first
    together = _brittle()
    with pytest.raises(NumericalError) as info:
        _fit(together, **BRITTLE)
    done = number // 4 * 4
    assert calls == [4] * (done // 4 + 1) + [1] * (number - done + 1)
    assert str(info.value) == str(error) and info.value.result.steps == number
    assert info.value.result.refreshes == error.result.refreshes
    np.testing.assert_allclose(
        info.value.result.history["elbo"], error.result.history["elbo"], rtol=1e-8
    )
    for path, value in values(together).items():
        np.testing.assert_allclose(value, values(model)[path], rtol=1e-8, err_msg=path)


@pytest.mark.exhaustive
def test_a_last_step_that_spoils_the_bound_is_undone_alone(failure) -> None:
    error, _ = failure
    last = error.result.steps
    model, shorter = _brittle(), _brittle()
    with pytest.warns(
        UserWarning, match=f"Step {last} left a bound that is not finite, and was undone"
    ):
        result = _fit(model, last, **BRITTLE)
    assert (result.steps, result.restored_step) == (last, last - 1) and np.isfinite(result.elbo)
    _fit(shorter, last - 1, **BRITTLE)
    for path, value in values(model).items():
        np.testing.assert_allclose(value, values(shorter)[path], rtol=1e-9, err_msg=path)


@pytest.mark.exhaustive
def test_an_interrupt_leaves_the_steps_before_the_call(monkeypatch) -> None:
    run = Minibatches.run

    def interrupted(self: Minibatches, budget: Budget) -> Report:
        report = run(self, budget)
        if budget.first == 20:
            raise KeyboardInterrupt
        return report

    monkeypatch.setattr(Minibatches, "run", interrupted)
    model, seen = orthogonal(), list[dict[str, np.ndarray]]()
    result = _fit(model, callbacks=[lambda *_: seen.append(values(model))], report_every=20)
    assert (result.steps, result.reason, len(result.history["elbo"])) == (20, "interrupted", 20)
    for path, value in values(model).items():
        np.testing.assert_array_equal(value, seen[0][path], err_msg=path)


@pytest.mark.exhaustive
def test_a_limit_of_seconds_is_kept_to_a_step(calls: list[int], monkeypatch) -> None:
    now, run = [0.0], Minibatches.run

    def slow(self: Minibatches, budget: Budget) -> Report:
        now[0] += len(budget.sizes)
        return run(self, budget)

    monkeypatch.setattr(Minibatches, "run", slow)
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    result = gd.fit(orthogonal(), sine(), seconds=45.5, **QUIET)
    assert calls == [1, 19, 20, 5, 1] and result.steps == 46
    np.testing.assert_allclose(result.history["seconds"], 1.0 + np.arange(46))


@pytest.mark.exhaustive
def test_large_models_and_those_with_draws_take_one_step_a_call() -> None:
    model = orthogonal()
    assert is_small(model, _batches()) and is_small(model, _batches(None))
    inputs = np.linspace(0.0, 1.0, 700)[:, None]
    large = gd.models.BasisGP(*parts(), gd.bases.CoupledBasis(inputs))
    assert not is_small(large, _batches())
    X = tf.zeros([6000, 20], tf.float64)
    assert not is_small(model, ArrayBatches(X, X[:, :1], None, 0)) and is_small(
        model, ArrayBatches(X, X[:, :1], 100, 0)
    )
    assert not is_small(orthogonal(expectations=gd.models.MonteCarlo(5)), _batches())
    kernel, likelihood = gpflow.kernels.SquaredExponential(), gpflow.likelihoods.Softmax(3)
    drawn = gd.models.BasisGP(kernel, likelihood, gd.bases.CoupledBasis(BETA, 3))
    assert not is_small(drawn, _batches())


@pytest.mark.exhaustive
@pytest.mark.parametrize("how", ["eagerly", "a dataset", "another optimizer"])
def test_other_ways_to_run_take_one_step_a_call(how: str, calls: list[int]) -> None:
    X, Y = sine()
    if how == "eagerly":
        _fit(orthogonal(), 3, compile=False)
    elif how == "another optimizer":
        _fit(orthogonal(), 3, optimizer=gpflow.keras.tf_keras.optimizers.SGD(), learning_rate=1e-4)
    else:
        data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(20)
        gd.fit(orthogonal(num_data=60), data, steps=3, progress=False)
    assert calls == [1, 1, 1]


@pytest.mark.exhaustive
def test_a_model_of_which_only_q_moves_takes_several(calls: list[int]) -> None:
    model = MODELS["BasisGP"]()
    for part in (model.kernel, model.likelihood, model.basis.beta):
        gpflow.set_trainable(part, False)
    _fit(model, 21)
    assert calls == [20, 1]
