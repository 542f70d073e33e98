"""`fit` with optimizer="lbfgs": steps on minibatches, then L-BFGS on all rows at the best q(u)."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import likelihoods as gl
from gpflow.models import GPModel

import gpflow_decoupled as gd
from gpflow_decoupled.errors import DataError, NumericalError, UnknownOptionError
from gpflow_decoupled.models import CVIGP, ODVGP, BasisGP, MonteCarlo
from gpflow_decoupled.optimizers import collapsed_elbo
from gpflow_decoupled.optimizers.log_climb import LogCoordinates
from gpflow_decoupled.training import FitResult
from gpflow_decoupled.training.stages import climbs as climbing
from gpflow_decoupled.training.stages.climbs import CollapsedClimb
from gpflow_decoupled.training.turns import Turns
from tests.interrupts import interrupt_after, interrupt_call
from tests.training.problems import BETA, GAMMA, MODELS, parts, sine, values

pytestmark = pytest.mark.filterwarnings("ignore:The bound still rises")

X, Y = sine()
STEPS = 40


def _model() -> BasisGP:
    return BasisGP(*parts(), gd.bases.CoupledBasis(BETA))


def _fit(model: GPModel, data: Any = None, **options: Any) -> FitResult:
    settings = {"steps": STEPS, "progress": False, "batch_size": 20, "optimizer": "lbfgs"}
    return gd.fit(model, (X, Y) if data is None else data, **{**settings, **options})


def test_it_ends_at_a_maximum_of_the_bound_that_is_below_the_evidence() -> None:
    """A quarter of the steps are on minibatches; q(u) is the best one, and no hyperparameter has a
    gradient that matters.
    """
    model = _model()
    result = _fit(model)
    assert result.steps == STEPS // 4 + 1
    bound = float(model.elbo((X, Y)))
    assert result.elbo == pytest.approx(bound, rel=1e-9) and result.history["elbo"][
        -1
    ] == pytest.approx(bound, rel=1e-9)
    assert bound == pytest.approx(float(collapsed_elbo(model, (X, Y))), rel=1e-9), (
        "q(u) is the best one"
    )
    noise = model.likelihood.variance.numpy()
    exact = gpflow.models.GPR((X, Y), model.kernel, noise_variance=noise)
    assert bound <= float(exact.log_marginal_likelihood())
    with tf.GradientTape() as tape:
        value = collapsed_elbo(model, (X, Y))
    moved = [*model.kernel.trainable_variables, *model.likelihood.trainable_variables]
    assert max(abs(float(slope)) for slope in tape.gradient(value, moved)) < 0.5


@pytest.mark.exhaustive
def test_it_ends_above_adam_and_where_sgpr_finds_nothing_better() -> None:
    model, by_adam = _model(), _model()
    bound = _fit(model).elbo
    assert bound > _fit(by_adam, optimizer=None).elbo + 0.1
    peer = gpflow.models.SGPR(
        (X, Y), model.kernel, model.basis.beta, noise_variance=model.likelihood.variance.numpy()
    )
    assert float(peer.elbo()) == pytest.approx(bound, abs=1e-3)
    gpflow.optimizers.Scipy().minimize(
        peer.training_loss, peer.trainable_variables, tf_fun_args={"autograph": False}
    )
    assert float(peer.elbo()) <= bound + 0.05


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "kind",
    [
        "ODVGP",
        "SVGP",
        "SOLVEGP",
        "HDVGP",
        "DVGP coupled",
        "DVGP inverse",
        "SVGP not whitened",
        "outputs",
    ],
)
def test_every_model_with_a_closed_form(kind: str) -> None:
    data = (X, np.hstack([Y, 1.0 - Y])) if kind == "outputs" else (X, Y)
    model = (
        BasisGP(*parts(), gd.bases.CoupledBasis(BETA, 2)) if kind == "outputs" else MODELS[kind]()
    )
    result = _fit(model, data)
    assert result.elbo == pytest.approx(float(model.elbo(data)), rel=1e-6)
    assert result.elbo == pytest.approx(float(collapsed_elbo(model, data)), rel=1e-6)
    assert result.elbo > result.history["elbo"][0]


@pytest.mark.exhaustive
def test_what_is_not_trainable_stays() -> None:
    model = _model()
    gpflow.set_trainable(model.likelihood, False)
    gpflow.set_trainable(model.basis.beta, False)
    before = values(model)
    _fit(model)
    moved = {
        name for name, value in values(model).items() if not np.array_equal(value, before[name])
    }
    assert moved == {".basis.q_mu", ".basis.q_sqrt", ".kernel.variance", ".kernel.lengthscales"}


@pytest.mark.exhaustive
def test_with_q_alone_it_ends_at_the_optimum() -> None:
    model = _model()
    for part in (model.kernel, model.likelihood, model.basis.beta):
        gpflow.set_trainable(part, False)
    expected = float(collapsed_elbo(model, (X, Y)))
    result = _fit(model, steps=8)
    assert (
        result.elbo == pytest.approx(expected, rel=1e-9)
        and result.converged
        and result.reason == "converged"
    )


def _set_untrainable(model: BasisGP) -> BasisGP:
    gpflow.set_trainable(model.basis.q_mu, False)
    gpflow.set_trainable(model.basis.q_sqrt, False)
    return model


MIXED = gpflow.kernels.LinearCoregionalization([gpflow.kernels.Matern52()], W=np.ones([2, 1]))
REFUSED: dict[str, tuple[Callable[[], GPModel], Any, type[Exception], str]] = {
    "labels": (
        lambda: BasisGP(gpflow.kernels.Matern52(), gl.Bernoulli(), gd.bases.CoupledBasis(BETA)),
        (X, (Y > 0.5).astype(float)),
        UnknownOptionError,
        "optimizer='lbfgs' climbs the bound at the best q.*Gaussian likelihood.*Bernoulli",
    ),
    "mixed outputs": (
        lambda: BasisGP(MIXED, gl.Gaussian(0.1), gd.bases.CoupledBasis(BETA)),
        (X, np.hstack([Y, -Y])),
        UnknownOptionError,
        "not mixed",
    ),
    "draws": (
        lambda: BasisGP(*parts(), gd.bases.CoupledBasis(BETA), expectations=MonteCarlo(4)),
        (X, Y),
        UnknownOptionError,
        "model.expectations",
    ),
    "a dataset": (
        lambda: BasisGP(*parts(), gd.bases.CoupledBasis(BETA), num_data=60),
        tf.data.Dataset.from_tensor_slices((X, Y)).batch(20),
        DataError,
        "needs all rows in memory",
    ),
    "q held": (lambda: _set_untrainable(_model()), (X, Y), DataError, "sets q in closed form"),
    "all data": (
        lambda: ODVGP(*parts(), "data", BETA),
        (X, Y),
        UnknownOptionError,
        "climbs all rows anyway",
    ),
    "sites": (
        lambda: CVIGP((X, (Y > 0.5).astype(float)), gpflow.kernels.Matern52(), gl.Softmax(2)),
        None,
        UnknownOptionError,
        "expectations must be no samples",
    ),
    "NaN": (_model, (X, np.where(Y > 0.9, np.nan, Y)), DataError, r"Y\[18, 0\] is nan"),
}


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("why", REFUSED)
def test_it_is_refused_with_nothing_changed(why: str) -> None:
    make, data, error, message = REFUSED[why]
    model = make()
    before, options = values(model), {"batch_size": "auto"} if why in ("a dataset", "sites") else {}
    with pytest.raises(error, match=message):
        gd.fit(model, data, steps=4, optimizer="lbfgs", progress=False, **options)
    assert all(np.array_equal(value, before[name]) for name, value in values(model).items())


def test_rows_on_disk_are_refused(tmp_path: Path) -> None:
    on_disk = np.memmap(tmp_path / "X", dtype=float, mode="w+", shape=X.shape)
    on_disk[:] = X
    with pytest.raises(DataError, match="needs all rows in memory"):
        _fit(_model(), (on_disk, Y))


def test_rows_that_do_not_fit_into_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(climbing, "MOST_ENTRIES", len(X) * len(BETA) - 1)
    with pytest.raises(DataError, match="seven matrices of 5 points by 60 rows"):
        _fit(_model())
    monkeypatch.setattr(climbing, "MOST_ENTRIES", len(X) * (len(BETA) + len(GAMMA)) - 1)
    with pytest.raises(DataError, match="seven matrices of 13 points by 60 rows"):
        _fit(MODELS["ODVGP"]())


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time in seconds, which every step moves by a tenth of one: what `time.perf_counter`
    returns.
    """
    now, go = [0.0], Turns._go

    def later(turns: Turns, turn: Any) -> Any:
        now[0] += 0.1 * len(turn.budget.sizes)
        return go(turns, turn)

    monkeypatch.setattr(Turns, "_go", later)
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    return now


@pytest.mark.exhaustive
def test_a_limit_of_seconds_is_the_deadline(
    monkeypatch: pytest.MonkeyPatch, clock: list[float]
) -> None:
    """What is left of the limit after the steps; a limit of steps stands for as many passes, and 30
    at least.
    """
    taken: list[tuple[int, float]] = []
    climbed = CollapsedClimb._climbed

    def watched(climb: CollapsedClimb, deadline: float, *rest: Any) -> Any:
        taken.append((climb.evaluations, deadline - clock[0]))
        climb.evaluations = 5
        return climbed(climb, float("inf"), *rest)

    monkeypatch.setattr(CollapsedClimb, "_climbed", watched)
    result = _fit(_model(), steps=None, seconds=1.0)
    assert (result.steps, result.reason) == (4, "evaluations done"), (
        "three steps before a quarter of the second is over"
    )
    assert taken[0][1] == pytest.approx(0.7)
    _fit(_model(), steps=400)
    assert taken[1] == (100, float("inf"))
    _fit(_model(), steps=8)
    assert taken[2][0] == 30


@pytest.mark.exhaustive
def test_time_that_is_up_ends_the_climb(
    monkeypatch: pytest.MonkeyPatch, clock: list[float]
) -> None:
    """After the iteration in which the deadline passes."""
    climbed, evaluations = CollapsedClimb._climbed, list[int]()

    def late(climb: CollapsedClimb, deadline: float, *rest: Any) -> Any:
        clock[0] = deadline
        found = climbed(climb, deadline, *rest)
        evaluations.append(found.evaluations)
        return found

    monkeypatch.setattr(CollapsedClimb, "_climbed", late)
    result = _fit(_model(), steps=None, seconds=1.0)
    assert (result.reason, result.converged) == ("time is up", False) and evaluations[0] < 20


@pytest.mark.exhaustive
def test_time_that_is_up_before_the_climb_leaves_the_best_q_and_is_said() -> None:
    """A limit that one step exceeds; a resumed run with a longer limit climbs."""
    model = _model()
    with pytest.warns(
        UserWarning, match=r"ended before L-BFGS on all rows began.*raise the limit"
    ) as warned:
        result = _fit(model, steps=None, seconds=1e-6)
    assert warned[0].filename == __file__
    assert (result.steps, result.reason, result.converged) == (1, "time is up", False)
    assert result.elbo == pytest.approx(float(model.elbo((X, Y))), rel=1e-9)
    assert result.elbo == pytest.approx(float(collapsed_elbo(model, (X, Y))), rel=1e-9), (
        "q(u) is the best one"
    )


@pytest.mark.exhaustive
def test_a_run_that_ended_before_the_climb_goes_on_to_it(tmp_path: Path) -> None:
    """Steps on minibatches forget that q(u) was the best one, so that an interrupt among them
    reports their own bounds.
    """
    saved = {"checkpoint": gd.training.Checkpoints(tmp_path, every=1)}
    with pytest.warns(UserWarning, match="ended before L-BFGS"):
        _fit(MODELS["ODVGP"](mean_subsample=3), steps=None, seconds=1e-6, **saved)
    stop = gd.training.Callbacks([interrupt_after(2)], every=1)
    result = _fit(MODELS["ODVGP"](mean_subsample=3), steps=12, callbacks=stop, **saved)
    assert result.steps == 2 and result.elbo == pytest.approx(np.mean(result.history["elbo"]))
    model = MODELS["ODVGP"](mean_subsample=3)
    result = _fit(model, steps=12, **saved)
    assert (result.steps, result.reason) == (4, "evaluations done")
    assert result.elbo == pytest.approx(float(collapsed_elbo(model, (X, Y))), rel=1e-9)


@pytest.mark.exhaustive
def test_without_compilation_the_climb_is_eager() -> None:
    eager: list[bool] = []

    class Watched(gpflow.kernels.Matern52):
        """Notes whether it is called eagerly."""

        def K(self, X: tf.Tensor, X2: tf.Tensor | None = None) -> tf.Tensor:
            eager.append(tf.executing_eagerly())
            return super().K(X, X2)

    model = BasisGP(Watched(), gl.Gaussian(0.1), gd.bases.CoupledBasis(BETA))
    result = _fit(model, steps=1, compile=False)
    assert all(eager) and result.reason == "evaluations done"
    other = BasisGP(gpflow.kernels.Matern52(), gl.Gaussian(0.1), gd.bases.CoupledBasis(BETA))
    assert result.elbo == pytest.approx(_fit(other, steps=1).elbo, rel=1e-6)


@pytest.mark.exhaustive
def test_a_single_step_is_the_climb() -> None:
    model = _model()
    result = _fit(model, steps=1)  # of thirty evaluations, which may be enough
    assert (result.steps, result.reason) in {(1, "evaluations done"), (1, "converged")}
    assert result.elbo == pytest.approx(float(collapsed_elbo(model, (X, Y))), rel=1e-9)


@pytest.mark.exhaustive
def test_a_sampled_norm_leaves_the_bound_of_the_result_exact() -> None:
    model = MODELS["ODVGP"](mean_subsample=3)
    assert _fit(model, steps=8).elbo == pytest.approx(
        float(collapsed_elbo(model, (X, Y))), rel=1e-9
    )


@pytest.mark.exhaustive
def test_an_interrupt_keeps_what_it_has_found(monkeypatch: pytest.MonkeyPatch) -> None:
    model = _model()
    with monkeypatch.context() as patch:
        calls = interrupt_call(patch, LogCoordinates, "assign", 9)
        result = _fit(model)
    assert calls and (result.reason, result.converged) == ("interrupted", False)
    assert result.steps == STEPS // 4 + 1
    assert result.elbo == pytest.approx(float(model.elbo((X, Y))), rel=1e-9)
    assert result.elbo == pytest.approx(float(collapsed_elbo(model, (X, Y))), rel=1e-9)


@pytest.mark.exhaustive
@pytest.mark.parametrize("stop", [6, 11])
def test_a_run_that_is_resumed_climbs_once(stop: int, tmp_path: Path) -> None:
    saved = {"checkpoint": gd.training.Checkpoints(tmp_path, every=1)}
    first = _fit(
        _model(), callbacks=gd.training.Callbacks([interrupt_after(stop)], every=1), **saved
    )
    assert first.steps == stop
    model, expected = _model(), _model()
    second, whole = _fit(model, **saved), _fit(expected)
    assert second.steps == whole.steps
    np.testing.assert_allclose(second.history["elbo"], whole.history["elbo"], rtol=1e-7)
    for name, value in values(expected).items():
        np.testing.assert_allclose(values(model)[name], value, rtol=1e-5, atol=1e-7, err_msg=name)


def _no_number(
    basis: gd.bases.CoupledBasis, kernel: gpflow.kernels.Kernel, data: gd.bases.Regression
) -> tf.Tensor:
    return tf.constant(np.nan, tf.float64)


@pytest.mark.exhaustive
def test_a_bound_that_is_not_finite_restores_the_parameters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = _model()
    before = values(model)
    monkeypatch.setattr(gd.bases.CoupledBasis, "collapsed_elbo", _no_number)
    with pytest.raises(NumericalError, match="bound at the start is not finite") as caught:
        _fit(model, steps=4)
    assert caught.value.result.steps == 1
    assert all(np.array_equal(value, before[name]) for name, value in values(model).items()), (
        "a bound was sound there"
    )


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("compile", [True, False])
@pytest.mark.parametrize("covariance", ["inverse", "coupled"])
def test_a_trial_without_a_bound_is_no_error(covariance: str, compile: bool) -> None:
    """L-BFGS turns back where a trial has no Cholesky factor: the bound there is not a number, in a
    graph or eagerly.
    """

    class Indefinite(gpflow.kernels.SquaredExponential):
        def K_r2(self, r2: tf.Tensor) -> tf.Tensor:
            return 1.0 + r2

    basis = gd.bases.DecoupledBasis(GAMMA, BETA, covariance=covariance, mean_scaling="none")
    climb = CollapsedClimb(
        [],
        BasisGP(Indefinite(), gl.Gaussian(0.1), basis),
        (tf.constant(X), tf.constant(Y)),
        30,
        compile,
    )
    assert np.isnan(climb.bound(*climb.data))


@pytest.mark.exhaustive
def test_a_failure_names_the_matrix_that_has_no_factor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gd.bases.CoupledBasis, "collapsed_elbo", _no_number)
    indefinite = {"K_beta": tf.constant([[1.0, 2.0], [2.0, 1.0]])}
    monkeypatch.setattr(gd.bases.CoupledBasis, "matrices", lambda basis, kernel: indefinite)
    with pytest.raises(NumericalError, match=r"Step 1: K_beta \(2 x 2\) is not positive definite"):
        _fit(_model(), steps=4)


@pytest.mark.exhaustive
def test_it_says_where_it_is(capsys: pytest.CaptureFixture) -> None:
    _fit(_model(), steps=8, progress=True)
    shown = capsys.readouterr().err
    assert "L-BFGS on all rows, iteration" in shown and "nats" in shown
    assert " left" not in shown.split("iteration")[-1], "a climb tells nothing of the time left"


@pytest.mark.exhaustive
def test_a_standardized_model_takes_it() -> None:
    """In its own units, and from a start that suits the data."""
    model = gd.Standardized(lambda X, Y: _model(), (X, 5.0 + 3.0 * Y))
    result = gd.fit(model, steps=STEPS, optimizer="lbfgs", initialize="auto", progress=False)
    assert (
        result.start is not None
        and np.sqrt(np.mean((model.predict_y(X)[0] - 5.0 - 3.0 * Y) ** 2)) < 0.45
    )
