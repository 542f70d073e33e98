"""Limits, patience, evaluation, callbacks, the progress line and an interrupt."""

from __future__ import annotations

import sys
import types

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_decoupled as gd
from gpflow_decoupled.errors import DataError
from gpflow_decoupled.training import TensorBoard, held_out_metrics
from gpflow_decoupled.training.schedules import annealed, ramped
from tests.training.problems import MODELS, grouped, orthogonal, sine, values


def _fit(model=None, **options):
    settings = {"steps": 4, "report_every": 2, "progress": False, "compile": False, **options}
    return gd.fit(orthogonal() if model is None else model, sine(), **grouped(**settings))


@pytest.mark.exhaustive
def test_seconds_end_a_run() -> None:
    result = _fit(steps=None, seconds=0.5)
    assert result.reason == "time is up"
    assert 0.5 <= result.seconds < 5.0
    assert result.steps == len(result.history["elbo"]) >= 1


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize(("batch_size", "label"), [(None, ", ELBO "), (20, ", estimated ELBO ")])
def test_a_bound_of_minibatches_is_called_an_estimate(batch_size, label) -> None:
    result = _fit(orthogonal(), steps=2, batch_size=batch_size)
    assert label in str(result)


@pytest.mark.exhaustive
def test_the_first_limit_counts() -> None:
    assert _fit(steps=2, seconds=1e4).reason == "steps done"
    assert _fit(steps=10**6, seconds=0.1).reason == "time is up"


@pytest.mark.exhaustive
def test_evaluation_is_recorded_every_so_many_steps_and_at_the_end() -> None:
    held_out = sine(40, seed=1)
    model = orthogonal()
    result = _fit(model, steps=5, evaluation=held_out, evaluate_every=2)
    assert np.array_equal(result.history["evaluation_step"], [2, 4, 5])
    mean, _ = model.predict_f(held_out[0])
    assert result.history["rmse"][-1] == pytest.approx(
        np.sqrt(np.mean((mean - held_out[1]) ** 2)), rel=1e-10
    )
    density = np.mean(model.predict_log_density(held_out))
    assert result.history["log_density"][-1] == pytest.approx(density, rel=1e-10)
    assert len(result.history["evaluation_seconds"]) == 3


@pytest.mark.exhaustive
def test_chunks_of_the_evaluation_do_not_matter() -> None:
    model, data = orthogonal(), sine(50)
    whole, parts = held_out_metrics(model, data), held_out_metrics(model, data, chunk=7)
    assert whole == pytest.approx(parts, rel=1e-12)


@pytest.mark.filterwarnings("error")
def test_errors_whose_squares_no_float_holds_have_a_root_mean_square() -> None:
    X, Y = sine(9)
    assert held_out_metrics(orthogonal(), (X, 1e200 * Y))["rmse"] == pytest.approx(
        1e200 * np.sqrt(np.mean(np.square(Y))), rel=1e-12
    )


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("held_out", [True, False])
def test_patience_ends_a_run_that_gets_no_better(held_out: bool) -> None:
    X, Y = sine()
    if held_out:
        options = {"evaluation": (X, -Y)}  # the better the fit, the worse these
    else:  # only the noise of the batches moves the bound
        options = {
            "learning_rate": 1e-12,
            "mean_learning_rate": 1e-12,
            "natural_gradient": None,
            "batch_size": 20,
        }
    result = _fit(steps=20, patience=2, evaluate_every=2, **options)
    assert result.reason == "no improvement in 2 evaluations"
    assert result.steps == 6 if held_out else result.steps < 20


@pytest.mark.exhaustive
def test_patience_does_not_end_a_run_that_gets_better() -> None:
    assert _fit(steps=12, patience=1, evaluate_every=3).reason == "steps done"


@pytest.mark.exhaustive
def test_callbacks_are_called_with_step_metrics_and_model() -> None:
    calls: list = []
    model = orthogonal()
    result = _fit(
        model,
        steps=5,
        callbacks=[lambda *call: calls.append(call)],
        evaluation=sine(seed=1),
        evaluate_every=5,
    )
    assert [step for step, _, _ in calls] == [2, 4, 5]
    assert calls[0][1] == {"elbo": pytest.approx(np.mean(result.history["elbo"][:2]))}
    assert calls[2][1].keys() == {"elbo", "rmse", "log_density"}
    assert all(seen is model for _, _, seen in calls)


@pytest.mark.exhaustive
def test_monitor_of_gpflow_is_a_callback() -> None:
    steps: list[int] = []

    class Record(gpflow.monitor.MonitorTask):
        def run(self, **_) -> None:
            steps.append(int(self.current_step))

    monitor = gpflow.monitor.Monitor(gpflow.monitor.MonitorTaskGroup(Record(), period=1))
    _fit(callbacks=[monitor])
    assert steps == [2, 4]


def test_tensorboard_that_is_not_installed_is_named(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(ImportError, match="TensorBoard is not installed: pip install tensorboard"):
        TensorBoard(str(tmp_path))


@pytest.mark.exhaustive
def test_tensorboard_gets_every_metric(tmp_path, monkeypatch) -> None:
    import tensorflow as tf

    monkeypatch.setitem(sys.modules, "tensorboard", types.ModuleType("tensorboard"))
    written: list = []
    writer = types.SimpleNamespace(flush=lambda: None, as_default=tf.init_scope)
    monkeypatch.setattr(tf.summary, "create_file_writer", lambda folder: writer)
    monkeypatch.setattr(
        tf.summary, "scalar", lambda name, value, step: written.append((name, value, step))
    )
    _fit(callbacks=[TensorBoard(str(tmp_path))])
    assert [(name, step) for name, _, step in written] == [("elbo", 2), ("elbo", 4)]


@pytest.mark.exhaustive
def test_progress_line_can_be_switched_off(capfd) -> None:
    _fit(progress=False)
    assert capfd.readouterr() == ("", "")


@pytest.mark.exhaustive
@pytest.mark.parametrize("limit", [{"steps": 4}, {"steps": None, "seconds": 0.3}])
def test_progress_line_shows_where_the_run_is(limit: dict, capfd) -> None:
    result = _fit(progress=True, evaluation=sine(seed=1), evaluate_every=1, report_every=1, **limit)
    shown = capfd.readouterr().err
    assert "ELBO=" in shown and "rmse=" in shown and " left" in shown
    assert f"step={result.steps}" in shown
    assert ("4/4 steps" if "seconds" not in limit else "/0 s") in shown


def _interrupt(step: int, *_) -> None:
    if step == 2:
        raise KeyboardInterrupt


@pytest.mark.exhaustive
def test_interrupt_in_a_callback_ends_the_run_with_a_result() -> None:
    model = orthogonal()
    result = _fit(model, steps=50, callbacks=[_interrupt])
    assert (result.steps, result.reason) == (2, "interrupted")
    reference = _fit(steps=50, callbacks=[_interrupt])
    assert np.array_equal(result.history["elbo"], reference.history["elbo"])
    assert np.isfinite(model.elbo(sine()))
    assert _fit(model, steps=1).history["elbo"][0] > result.history["elbo"][-1]


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", [KeyboardInterrupt, MemoryError])
def test_interrupt_in_the_middle_of_a_step_leaves_the_state_before_it(kind, monkeypatch) -> None:
    """The model is the one after the last whole step, though the natural gradient had moved q
    already.
    """
    expected = orthogonal()
    _fit(expected, steps=50, callbacks=[_interrupt])
    from gpflow_decoupled.training.keras import KerasAscent

    ascend, calls = KerasAscent.ascend, []

    def ascend_twice(self, gradients) -> None:
        calls.append(gradients)
        if len(calls) == 6:  # two per step
            raise kind
        ascend(self, gradients)

    monkeypatch.setattr(KerasAscent, "ascend", ascend_twice)
    model = orthogonal()
    if kind is KeyboardInterrupt:
        assert _fit(model, steps=50).steps == 2
    else:
        with pytest.raises(MemoryError):
            _fit(model, steps=50)
    for name, value in values(expected).items():
        np.testing.assert_array_equal(values(model)[name], value, err_msg=name)


@pytest.mark.exhaustive
def test_error_in_a_callback_comes_through() -> None:
    def fails(*_) -> None:
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        _fit(callbacks=[fails])


def test_schedules() -> None:
    assert [ramped(step, 0.1, 3) for step in range(5)] == pytest.approx(
        [1e-4, 1e-3, 1e-2, 0.1, 0.1]
    )
    assert ramped(0, 0.1, 0) == 0.1 and ramped(0, 1e-6, 10) == 1e-6
    assert [annealed(share, 0.5) for share in (0.0, 0.5, 0.75, 1.0)] == pytest.approx(
        [1.0, 1.0, 0.51, 0.02]
    )
    assert annealed(0.99, 0.0) == 1.0


@pytest.mark.exhaustive
def test_svgp_is_evaluated_too() -> None:
    result = _fit(MODELS["SVGP"](), evaluation=sine(seed=1))
    assert np.isfinite(result.history["log_density"][-1])


@pytest.mark.exhaustive
@pytest.mark.parametrize("resumed", [False, True])
@pytest.mark.parametrize("batch_size", [None, 20])
def test_where_patience_ends_a_run_the_best_parameters_come_back(
    batch_size, resumed: bool, tmp_path
) -> None:
    X, Y = sine()
    options = {
        "batch_size": batch_size,
        "evaluation": (X[:30], 0.2 * Y[:30]),  # at first the better for a fit, then the worse
        "evaluate_every": 1,
        "patience": 3,
        "learning_rate": 0.05,
        "anneal": 0.0,
    }
    if resumed:  # in a second process, as it were, past the best step
        options |= {"checkpoint": tmp_path / "run"}
        steps = _fit(orthogonal(), steps=60, **{**options, "checkpoint": tmp_path / "whole"}).steps
        _fit(orthogonal(), steps=steps - 1, **options)
    model = orthogonal()
    result = _fit(model, steps=60, **options)
    densities = result.history["log_density"]
    assert (result.reason, result.converged) == ("no improvement in 3 evaluations", True)
    assert result.restored_step == 1 + np.argmax(densities) == result.steps - 3
    assert f"Parameters of step {result.restored_step}" in str(result)
    assert held_out_metrics(model, options["evaluation"])["log_density"] == pytest.approx(
        max(densities), rel=1e-12
    )
    if batch_size is None:
        assert result.elbo == pytest.approx(float(model.elbo((X, Y))), rel=1e-12)
    else:
        assert result.elbo == pytest.approx(
            np.mean(result.history["elbo"][: result.restored_step][-20:]), rel=1e-12
        )


@pytest.mark.exhaustive
def test_the_last_parameters_stay_where_that_is_asked_for() -> None:
    X, Y = sine()
    model = orthogonal()
    options = {"evaluation": (X, -Y), "evaluate_every": 1, "patience": 2}
    result = _fit(model, steps=20, **options, restore_best=False)
    assert result.restored_step is None and result.reason == "no improvement in 2 evaluations"
    score = held_out_metrics(model, (X, -Y))["log_density"]
    assert score == pytest.approx(result.history["log_density"][-1], rel=1e-12)
    assert score < max(result.history["log_density"])


def _classes() -> tuple[np.ndarray, np.ndarray]:
    X, Y = sine(40)
    return X, np.digitize(Y, [-0.5, 0.5]).astype(float)


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize(
    "likelihood", [gpflow.likelihoods.Softmax(3), gd.likelihoods.CategoricalLogit(3)]
)
def test_scores_of_classes_are_those_of_their_probabilities(
    likelihood: gpflow.likelihoods.Likelihood,
) -> None:
    """GPflow's `Softmax` takes no labels that are not integers: `fit` crashed at its first
    evaluation.
    """
    X, labels = _classes()
    model = gd.models.BasisGP(
        gpflow.kernels.Matern52(), likelihood, gd.bases.CoupledBasis(X[::5], 3)
    )
    options = {"steps": 2, "natural_gradient": None, "progress": False, "compile": False}
    result = gd.fit(model, (X, labels), evaluation=(X, labels), **options)
    assert np.isfinite(result.history["log_density"][-1])
    tf.random.set_seed(0)
    probabilities = model.predict_y(X)[0].numpy()
    expected = np.sqrt(np.mean((probabilities - np.eye(3)[labels[:, 0].astype(int)]) ** 2))
    assert held_out_metrics(model, (X, labels))["rmse"] == pytest.approx(expected, rel=0.05)


def test_scores_of_tasks_are_those_of_the_task_of_each_row() -> None:
    X, Y = sine(40)
    task = (np.arange(40) % 2)[:, None]
    kernel = gpflow.kernels.Matern52(active_dims=[0]) * gpflow.kernels.Coregion(
        2, rank=1, active_dims=[1]
    )
    likelihood = gpflow.likelihoods.SwitchedLikelihood(
        [gpflow.likelihoods.Gaussian(v) for v in (0.01, 0.1)]
    )
    inputs, outputs = np.hstack([X, task]), np.hstack([Y + 5.0 * task, task.astype(float)])
    model = gd.models.BasisGP(kernel, likelihood, gd.bases.CoupledBasis(inputs[::3]), num_data=40)
    mean = model.predict_f(inputs)[0].numpy()
    expected = np.sqrt(np.mean((mean - outputs[:, :1]) ** 2))
    assert held_out_metrics(model, (inputs, outputs))["rmse"] == pytest.approx(expected, rel=1e-10)


WRONG = {
    "rows": (lambda X, Y: (X, Y[:1]), "X has 60 rows and Y has 1"),
    "columns": (lambda X, Y: (X, np.hstack([Y, Y])), "Y has 2 columns and the model expects 1"),
    "NaN": (lambda X, Y: (X, np.where(Y > 0.5, np.nan, Y)), r"Y\[\d+, 0\] is nan"),
    "rank": (lambda X, Y: (X, Y[:, 0]), r"Y has shape \(60,\); use Y\[:, None\]"),
    "nothing": (lambda X, Y: (X[:0], Y[:0]), "no rows"),
}


@pytest.mark.costly(keep=3)
@pytest.mark.parametrize("change, message", WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("whose", ["ours", "GPflow's"])
def test_scores_refuse_what_training_refuses(whose: str, change, message: str) -> None:
    model = orthogonal()
    if whose == "GPflow's":
        model = gpflow.models.SVGP(
            model.kernel, model.likelihood, np.linspace(0.0, 1.0, 5)[:, None]
        )
    with pytest.raises(DataError, match=message):
        held_out_metrics(model, change(*sine()))


def test_labels_outside_of_the_support_are_not_scored() -> None:
    X, Y = sine()
    model = gpflow.models.SVGP(gpflow.kernels.Matern52(), gpflow.likelihoods.Bernoulli(), X[::9])
    with pytest.raises(DataError, match="Y"):
        held_out_metrics(model, (X, Y))


class _Unscored(gpflow.likelihoods.Gaussian):
    """Without a predictive density."""

    def _predict_log_density(self, X, Fmu, Fvar, Y):  # noqa: N803
        return tf.fill(tf.shape(Fmu)[:-1], tf.constant(np.nan, Fmu.dtype))


@pytest.mark.exhaustive
def test_patience_does_not_count_scores_that_are_no_numbers() -> None:
    X, Y = sine()
    model = gd.models.BasisGP(
        gpflow.kernels.Matern52(), _Unscored(0.1), gd.bases.CoupledBasis(X[::9])
    )
    evaluation = gd.training.Evaluation((X, Y), every=1, patience=2)
    with pytest.warns(
        UserWarning,
        match="The score after step . is nan, and is not taken for a lack of improvement",
    ):
        result = gd.fit(
            model, (X, Y), steps=4, evaluation=evaluation, progress=False, compile=False
        )
    assert (result.steps, result.reason, result.converged) == (4, "steps done", False)


def test_labels_between_classes_are_not_rounded() -> None:
    X, labels = _classes()
    model = gd.models.BasisGP(
        gpflow.kernels.Matern52(), gpflow.likelihoods.Softmax(3), gd.bases.CoupledBasis(X[::5], 3)
    )
    for ask in (
        lambda: held_out_metrics(model, (X, labels + 0.5)),
        lambda: model.elbo((X, labels + 0.5)),
    ):
        with pytest.raises(DataError, match="Y"):
            ask()
