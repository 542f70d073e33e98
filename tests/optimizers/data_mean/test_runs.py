"""Runs that end early leave a usable model; settings, data and models that cannot be used are
refused.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import likelihoods as gl
from numpy.testing import assert_array_equal

from gpflow_decoupled.bases import CoupledBasis
from gpflow_decoupled.compilation import Compiled
from gpflow_decoupled.errors import DataError, ModelError, NumericalError
from gpflow_decoupled.models import CVIGP, ODVGP, BasisGP
from gpflow_decoupled.optimizers import ConjugateGradients, StochasticDualDescent
from gpflow_decoupled.optimizers.data_mean import mean_optimizer as optimizer
from gpflow_decoupled.optimizers.data_mean import solve_mean as descent
from gpflow_decoupled.optimizers.data_mean import system
from gpflow_decoupled.optimizers.data_mean.mean_optimizer import MeanOptimizer
from tests.bounds.registry import matern
from tests.interrupts import interrupt_call
from tests.optimizers.data_mean.problems import BETA, NEW, X, Y, counts, labels, model_of

DATA = X, Y[:, :1]
LIKELIHOODS: dict[str, tuple[Callable[[], gl.Likelihood], np.ndarray]] = {
    "Gaussian": (lambda: gl.Gaussian(0.1), Y[:, :1]),
    "Bernoulli": (gl.Bernoulli, labels()),
}

SOLVERS = {"gradients": ConjugateGradients, "descent": StochasticDualDescent}
solvers = pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS)


def _usable(model: ODVGP, data: tuple, elbo: float) -> None:
    """Bound and predictions are finite, the bound is what was reported, and a whole run goes on
    from here.
    """
    assert float(model.elbo(data)) == pytest.approx(elbo, rel=1e-9)
    assert np.all(np.isfinite(model.predict_f(NEW)))
    best = ConjugateGradients(tolerance=1e-6).run(model, data)
    assert best.converged and best.elbo >= elbo - 1e-6


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("name", LIKELIHOODS)
@pytest.mark.parametrize("at", [1, 3])
def test_an_interrupt_of_a_product_leaves_what_was_found(
    name: str, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, observed = LIKELIHOODS[name]
    model, data = model_of(make()), (X, observed)
    with monkeypatch.context() as patch:
        interrupt_call(patch, system, "gram_product", at)
        result = ConjugateGradients(tolerance=1e-9).run(model, data)
    assert (result.converged, result.reason) == (False, "interrupted")
    assert result.products == at and result.steps <= 1 and result.gap > 1e-3
    _usable(model, data, result.elbo)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", LIKELIHOODS)
@pytest.mark.parametrize("presses", [1, 2])
def test_an_interrupt_of_the_last_product_keeps_the_solve(
    name: str, presses: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of the certificate, without which the gap is an estimate; the second press is in it,
    too.
    """
    make, observed = LIKELIHOODS[name]
    model, data = model_of(make()), (X, observed)
    with monkeypatch.context() as patch:
        for _ in range(presses):
            interrupt_call(patch, system, "gram_product", 8 - presses)
        result = ConjugateGradients(tolerance=1e-9, max_products=6).run(model, data)
    assert (result.converged, result.reason, result.certified) == (False, "interrupted", False)
    assert result.products == 7 - presses and " gap about " in str(result)
    expected = model_of(make())
    whole = ConjugateGradients(tolerance=1e-9, max_products=result.products, max_steps=1).run(
        expected, data
    )
    assert whole.certified and " gap about " not in str(whole)
    np.testing.assert_allclose(model.basis.a_gamma, expected.basis.a_gamma, rtol=1e-9)
    assert np.any(model.basis.a_gamma) and result.gap == pytest.approx(whole.gap, rel=1e-6)
    _usable(model, data, result.elbo)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", LIKELIHOODS)
def test_an_interrupt_of_a_step_of_the_descent_leaves_what_was_found(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, observed = LIKELIHOODS[name]
    model, data = model_of(make()), (X, observed)
    with monkeypatch.context() as patch:
        calls = interrupt_call(patch, Compiled, "__call__", 61)
        solver = StochasticDualDescent(tolerance=1e-9, batch_size=10, correct_every=50)
        result = solver.run(model, data)
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
def test_time_of_a_descent_runs_out() -> None:
    for seconds in (-1.0, 1.0):
        model = model_of()
        solver = StochasticDualDescent(tolerance=1e-300, epochs=10**6, batch_size=10)
        began = time.perf_counter()
        result = solver.run(model, DATA, deadline=began + seconds)
        assert (result.converged, result.reason) == (False, "time is up")
        assert time.perf_counter() - began < 20.0
        _usable(model, DATA, result.elbo)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", LIKELIHOODS)
def test_products_and_time_run_out(name: str) -> None:
    make, observed = LIKELIHOODS[name]
    data = X, observed
    for options, deadline, reason in (
        ({"max_products": 2, "max_steps": 2}, float("inf"), "products done|steps done"),
        ({}, time.perf_counter() - 1.0, "time is up"),
    ):
        model = model_of(make())
        result = ConjugateGradients(tolerance=1e-9, **options).run(model, data, deadline=deadline)
        assert not result.converged and result.reason in reason.split("|")
        _usable(model, data, result.elbo)


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("certify, products", [(True, 8), (False, 10)])
def test_the_deadline_leaves_time_for_the_certificate(
    certify: bool, products: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Products of ten seconds in single precision, and of thirty in double precision, where a
    hundred and a half are left.
    """
    clock, product = {"now": 0.0}, system.MeanSystem.product

    def slow(self: system.MeanSystem, a: tf.Tensor, dtype: tf.DType, *rest: Any) -> tf.Tensor:
        clock["now"] += 30.0 if dtype == tf.float64 else 10.0
        return product(self, a, dtype, *rest)

    monkeypatch.setattr(system.MeanSystem, "product", slow)
    monkeypatch.setattr(system.MeanSystem, "rounding", lambda self, dtype: 1e-6)
    monkeypatch.setattr(time, "perf_counter", lambda: clock["now"])
    solver = ConjugateGradients(tolerance=1e-30, rank=6, certify=certify)
    result = solver.run(model_of(), DATA, deadline=100.5)
    assert (result.products, result.reason, clock["now"]) == (products, "time is up", 100.0)


def test_solves_that_converge_after_the_deadline_are_not_called_converged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, deadline = model_of(gl.Bernoulli()), time.perf_counter() + 1e4
    now, jump, solve = time.perf_counter, {"by": 0.0}, optimizer.solve_mean

    def late(*arguments: Any, **options: Any) -> Any:
        found = solve(*arguments, **options)
        jump["by"] = 2e4
        return found

    monkeypatch.setattr(optimizer, "solve_mean", late)
    monkeypatch.setattr(time, "perf_counter", lambda: now() + jump["by"])
    result = ConjugateGradients(tolerance=1e-6).run(model, (X, labels()), deadline=deadline)
    assert (result.steps, result.converged, result.reason) == (1, False, "time is up")


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "solver, end",
    [
        (lambda progress: ConjugateGradients(tolerance=1e-3, progress=progress), "converged"),
        (
            lambda progress: StochasticDualDescent(1e-9, 50, batch_size=10, progress=progress),
            "epochs done",
        ),
    ],
    ids=SOLVERS,
)
def test_progress_and_the_printed_result(
    solver: Callable[[bool], MeanOptimizer],
    end: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(descent, "_SECONDS", 0.0)
    result = solver(True).run(model_of(), DATA)
    printed = capsys.readouterr()
    assert not printed.out and "solve 1: " in printed.err and " products, gap " in printed.err
    assert str(result).startswith(f"1 solves with {result.products} products in ")
    assert str(result).endswith(f"gap {result.gap:.2g} nats, stopped: {end}")
    solver(False).run(model_of(), DATA)
    assert not capsys.readouterr().err


@pytest.mark.exhaustive
def test_single_precision() -> None:
    expected = model_of(mean_function=None)
    ConjugateGradients(tolerance=1e-4).run(expected, DATA)
    gpflow.config.set_default_float(np.float32)
    parts = gpflow.kernels.Matern32(variance=1.3, lengthscales=0.8), gl.Gaussian(0.1)
    model = ODVGP(*parts, "data", BETA.astype(np.float32))
    data = X.astype(np.float32), Y[:, :1].astype(np.float32)
    result = ConjugateGradients(tolerance=1e-2).run(model, data)
    assert (
        result.converged and 0.0 <= result.gap <= 1e-2 and model.basis.a_gamma.dtype == tf.float32
    )
    assert result.elbo == pytest.approx(float(expected.elbo(DATA)), abs=0.05)
    np.testing.assert_allclose(
        model.predict_f(NEW.astype(np.float32))[0], expected.predict_f(NEW)[0], atol=0.05
    )


# --- what cannot be used

RATE, WHOLE = "must be a number above 0", "must be a whole number of at least"
SETTINGS: list[tuple[type[MeanOptimizer], str, tuple[Any, ...], str]] = [
    (ConjugateGradients, "tolerance", (0.0, float("nan"), True), RATE),
    (ConjugateGradients, "max_products", (0, True), f"{WHOLE} 1"),
    (ConjugateGradients, "max_steps", (2.5,), f"{WHOLE} 1"),
    (ConjugateGradients, "rank", (0, True), f"{WHOLE} 1"),
    (StochasticDualDescent, "tolerance", (0.0,), RATE),
    (StochasticDualDescent, "epochs", (0, True), f"{WHOLE} 1"),
    (StochasticDualDescent, "correct_every", (0,), f"{WHOLE} 1"),
    (StochasticDualDescent, "batch_size", (2.5,), f"{WHOLE} 1"),
    (StochasticDualDescent, "step_size", (0.0, float("nan")), RATE),
    (StochasticDualDescent, "momentum", (1.0, -0.1, float("nan"), False), "at least 0 and below 1"),
    (StochasticDualDescent, "seed", (-1,), f"{WHOLE} 0"),
    (StochasticDualDescent, "max_steps", (0,), f"{WHOLE} 1"),
    (StochasticDualDescent, "rank", (0,), f"{WHOLE} 1"),
]


@pytest.mark.parametrize("solver, name, values, message", SETTINGS)
def test_settings_out_of_range_are_refused(
    solver: type[MeanOptimizer], name: str, values: tuple[Any, ...], message: str
) -> None:
    for value in values:
        with pytest.raises(DataError, match=f"{name}={value} .*{message}"):
            solver(**{name: value})


def _with(array: np.ndarray, value: float) -> np.ndarray:
    changed = array.copy()
    changed[2, 0] = value
    return changed


BAD_DATA = {
    "X NaN": ((_with(X, np.nan), Y[:, :1]), r"X\[2, 0\] is nan"),
    "Y infinite": ((X, _with(Y[:, :1], np.inf)), r"Y\[2, 0\] is inf"),
    "D": ((X[:, :1], Y[:, :1]), "X has 1 columns and the inducing points have 2"),
    "P": ((X, Y), "Y has 2 columns and the model expects 1"),
    "N": ((X, Y[:-1, :1]), "X has 60 rows and Y has 59"),
    "none": ((X[:0], Y[:0, :1]), "X and Y have no rows"),
}


@solvers
def test_unusable_data_are_refused_and_leave_the_model_alone(solver: type[MeanOptimizer]) -> None:
    model = model_of()
    for data, message in BAD_DATA.values():
        with pytest.raises(DataError, match=message):
            solver().run(model, data)
    assert model.basis.data_mean.size == 0 and model.num_data is None


def test_streams_are_refused_with_the_alternative() -> None:
    model, stream = model_of(), tf.data.Dataset.from_tensor_slices(DATA).batch(20)
    for data, kind in ((stream, "tf.data.Dataset"), (lambda: iter(stream), "function")):
        with pytest.raises(
            DataError, match=f"a {kind} is a stream: pass arrays .X, Y., or choose mean points"
        ):
            ConjugateGradients().run(model, data)
    assert model.basis.data_mean.size == 0


OTHERS = {
    "stored": (
        lambda: ODVGP(matern(1.3, 0.8), gl.Gaussian(), X[:9], BETA),
        (
            'build ODVGP.kernel, likelihood, "data", beta., or train this model by fit.model, data,'
            ' mean_solver="newton".'
        ),
    ),
    "coupled": (
        lambda: BasisGP(matern(1.3, 0.8), gl.Gaussian(), CoupledBasis(BETA)),
        'build ODVGP.kernel, likelihood, "data", beta., or train this model by fit.model, data.',
    ),
    "full": (lambda: CVIGP(DATA, matern(1.3, 0.8), gl.Gaussian()), "ConjugateComputation"),
    "GPflow": (lambda: gpflow.models.SVGP(matern(1.3, 0.8), gl.Gaussian(), BETA), "SVGP"),
}


@solvers
def test_other_models_are_refused_with_what_to_use(solver: type[MeanOptimizer]) -> None:
    for make, message in OTHERS.values():
        with pytest.raises(ModelError, match=message) as error:
            solver().run(make(), DATA)
        assert solver.__name__ in str(error.value)


@solvers
def test_white_noise_in_the_kernel_is_refused(solver: type[MeanOptimizer]) -> None:
    """The solver would have it in the mean at the training rows, and the model not."""
    model = model_of(kernel=matern(1.3, 0.8) + gpflow.kernels.White(0.5))
    with pytest.raises(
        ModelError, match="takes no White kernel, .* add its variance to the noise variance"
    ):
        solver().run(model, DATA)
    assert model.basis.data_mean.size == 0


def test_a_bound_that_is_not_finite_at_the_start_names_the_row() -> None:
    model = model_of(gl.Poisson(), kernel=matern(2000.0, 0.8), mean_function=None)
    with pytest.raises(NumericalError, match="-inf at row"):
        ConjugateGradients().run(model, (X, counts()))
    assert not np.any(model.basis.a_gamma)
    assert_array_equal(model.basis.q_mu, np.zeros((len(BETA), 1)))


@solvers
def test_a_product_that_overflows_ends_the_run(
    solver: type[MeanOptimizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, product = model_of(), system.gram_product
    monkeypatch.setattr(
        system, "gram_product", lambda *parts, **options: np.inf * product(*parts, **options)
    )
    with pytest.raises(
        NumericalError, match="product with the kernel matrix is not finite: standardise"
    ):
        solver().run(model, DATA)
    assert not np.any(model.basis.a_gamma)
