"""`fit` of affine-independent models: q is the optimizer's own, with and without hyperparameters;
failures are undone.
"""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.utilities import deepcopy, set_trainable
from numpy.testing import assert_allclose

import gpflow_decoupled as gd
from gpflow_decoupled.errors import DataError, NumericalError, UnknownOptionError
from gpflow_decoupled.likelihoods import BernoulliLogit
from gpflow_decoupled.models import AffineIndependentGLM, AffineIndependentGP
from gpflow_decoupled.optimizers import AffineIndependentAscent
from gpflow_decoupled.optimizers.affine_start import GaussianProblem
from gpflow_decoupled.training import Schedule
from gpflow_decoupled.training.stages import climbs as affine_climb
from gpflow_decoupled.training.stages.climbs import AffineClimb
from tests.training.problems import unchanged, values

RNG = np.random.default_rng(3)
X = RNG.uniform(-1.0, 1.0, (10, 2))
Y = (X[:, :1] + 0.3 * RNG.normal(size=(10, 1)) > 0.2).astype(float)


def _model(trainable: bool) -> AffineIndependentGP:
    model = AffineIndependentGP((X, Y), gpflow.kernels.Matern52(), BernoulliLogit())
    set_trainable(model.kernel, trainable)
    return model


@pytest.mark.exhaustive
def test_at_fixed_hyperparameters_it_is_one_ascent() -> None:
    model, alone = _model(False), _model(False)
    result, found = gd.fit(model, progress=False), AffineIndependentAscent().run(alone)
    assert (result.steps, result.reason, result.converged) == (1, "converged", True)
    assert_allclose([result.elbo, result.history["elbo"][0]], found.elbo, atol=1e-6)
    assert result.elbo == pytest.approx(float(model.elbo()), rel=1e-12)


@pytest.mark.exhaustive
def test_linear_models_with_other_priors_are_trained() -> None:
    prior = tfp.distributions.Laplace(np.float64(0.0), np.float64(0.5))
    model, alone = (AffineIndependentGLM((X, Y), BernoulliLogit(), prior=prior) for _ in range(2))
    result = gd.fit(model, progress=False)
    assert_allclose(result.elbo, AffineIndependentAscent().run(alone).elbo, atol=1e-6)


@pytest.mark.exhaustive
def test_hyperparameters_are_learned_and_q_is_the_best_at_them() -> None:
    model, start = _model(True), _model(False)
    before = AffineIndependentAscent().run(start).elbo
    schedule = Schedule(refresh_every=4)
    result = gd.fit(
        model, steps=5, learning_rate=0.15, schedule=schedule, evaluation=(X, Y), progress=False
    )
    trace = result.history["elbo"]
    assert trace[0] == pytest.approx(before, abs=1e-5), "the first step begins with an ascent"
    assert result.refreshes == 3, "at steps 0 and 4, and after the last"
    assert np.all(np.diff(trace) > -0.02) and result.elbo > before + 0.1
    assert result.elbo >= trace[-1] - 1e-6
    best = AffineIndependentAscent().run(deepcopy(model)).elbo
    assert_allclose([result.elbo, float(model.elbo())], best, atol=1e-3)
    density = np.mean(model.predict_log_density((X, Y)))
    assert result.history["log_density"][-1] == pytest.approx(density, rel=1e-10)
    assert result.seconds > result.history["seconds"][-1], "the last ascent takes time too"


@pytest.mark.exhaustive
def test_l_bfgs_ends_at_a_rotated_gaussian_that_gains_what_is_promised(monkeypatch) -> None:
    model, best = _model(True), _model(True)
    gaussian = gd.models.CVIGP((X, Y), gpflow.kernels.Matern52(), BernoulliLogit())
    with monkeypatch.context() as patch:
        patch.setattr(GaussianProblem, "solve", None)  # the sites are known
        patch.setattr(AffineClimb, "_together", None)
        patch.setattr(AffineIndependentAscent, "_climb", None)
        result = gd.fit(model, optimizer="lbfgs", progress=False)
    least = gd.fit(gaussian, optimizer="lbfgs", progress=False).elbo
    assert result.converged and result.elbo == pytest.approx(float(model.elbo()), rel=1e-9)
    best.kernel.lengthscales.assign(model.kernel.lengthscales)
    best.kernel.variance.assign(model.kernel.variance)
    found = AffineIndependentAscent().run(best)
    assert found.gaussian_elbo == pytest.approx(least, abs=1e-4)
    assert least + 0.5 * found.gain < result.elbo <= found.elbo + 1e-6


@pytest.mark.exhaustive
def test_l_bfgs_finds_hyperparameters_and_q_together(monkeypatch) -> None:
    """Its bound is above the best Gaussian one, and neither q nor the kernel can raise it."""
    monkeypatch.setattr(affine_climb, "_SETTLED", 1e-3)
    model = _model(True)
    gaussian = gd.models.CVIGP((X, Y), gpflow.kernels.Matern52(), BernoulliLogit())
    result = gd.fit(model, optimizer="lbfgs", progress=False)
    least = gd.fit(gaussian, optimizer="lbfgs", progress=False).elbo
    assert result.converged and result.elbo == pytest.approx(float(model.elbo()), rel=1e-9)
    assert result.elbo > least
    assert result.history["elbo"][0] >= result.elbo - 1e-9
    alone = deepcopy(model)
    best = AffineIndependentAscent().run(alone).elbo
    assert result.elbo == pytest.approx(best, abs=2e-3)
    with tf.GradientTape() as tape:
        bound = model.elbo()
    slopes = tape.gradient(bound, model.kernel.trainable_variables)
    assert np.max(np.abs(slopes)) < 0.02


def test_l_bfgs_refuses_a_step_size() -> None:
    with pytest.raises(UnknownOptionError, match="has no use for learning_rate"):
        gd.fit(_model(True), optimizer="lbfgs", learning_rate=0.1, progress=False)


def test_l_bfgs_refuses_models_without_a_gaussian_start() -> None:
    linear = AffineIndependentGLM((X, Y), BernoulliLogit())
    points = AffineIndependentGP(
        (X, Y), gpflow.kernels.Matern52(), BernoulliLogit(), inducing_variable=X[:4]
    )
    for model in (linear, points):
        with pytest.raises(UnknownOptionError, match="weights or inducing points"):
            gd.fit(model, optimizer="lbfgs", progress=False)


def test_the_gradient_is_that_of_the_bound_at_fixed_q() -> None:
    from gpflow_decoupled.training.stages.full_gps import AffineAscent
    from tests.training.problems import slope, turn

    model = _model(True)
    model.basis.b.assign(RNG.normal(size=10))
    set_trainable(model.basis, False)
    step = AffineAscent(model, gpflow.keras.tf_keras.optimizers.SGD(1.0), compile=False)
    before = [v.numpy() for v in step.others.moved]
    direction = [RNG.normal(size=v.shape) for v in before]
    turn(step, model.data)
    gradient = [v.numpy() - old for v, old in zip(step.others.moved, before)]
    for v, old in zip(step.others.moved, before):
        v.assign(old)
    ours = sum(float(np.sum(g * d)) for g, d in zip(gradient, direction))
    assert_allclose(ours, slope(model, lambda: float(model.elbo()), direction), rtol=1e-5)


def _break_at(monkeypatch: pytest.MonkeyPatch, call: int, error: BaseException) -> list:
    """Make the ascent do what it does half-way through, and break off, in one of its calls."""
    calls: list = []

    def run(self: AffineIndependentAscent, model: AffineIndependentGP):
        calls.append(values(model))
        if len(calls) == call:
            model.basis.b.assign(model.basis.b + 1.0)
            model.basis.assign_base("normal")
            raise error

    monkeypatch.setattr(AffineIndependentAscent, "run", run)
    return calls


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("call", [2, 3], ids=["in a refresh", "at the end"])
def test_an_ascent_that_fails_is_undone(call: int, monkeypatch) -> None:
    model = _model(True)
    calls = _break_at(monkeypatch, call, NumericalError("The bound is not finite.", matrix="A"))
    options = {
        "steps": 4,
        "schedule": Schedule(refresh_every=3),
        "progress": False,
        "compile": False,
    }
    with pytest.raises(
        NumericalError, match=f"^Step {call + 1}: .* holds the last good parameters"
    ) as info:
        gd.fit(model, **options)
    assert info.value.result.steps == call + 1 and info.value.result.reason == "numerical failure"
    assert model.basis.base.name == "skew_normal" and np.isfinite(model.elbo())
    assert np.array_equal(values(model)[".basis.b"], calls[-1][".basis.b"])


def test_an_interrupt_leaves_the_last_step(monkeypatch) -> None:
    model = _model(True)
    calls = _break_at(monkeypatch, 2, KeyboardInterrupt())
    result = gd.fit(
        model, steps=4, schedule=Schedule(refresh_every=3), progress=False, compile=False
    )
    assert (result.steps, result.reason, result.converged) == (3, "interrupted", False)
    assert unchanged(calls[-1], model)


def test_what_cannot_be_is_refused_with_the_reason(tmp_path) -> None:
    model = _model(True)
    before = values(model)
    with pytest.raises(
        UnknownOptionError,
        match="does not use checkpoint .* which no checkpoint of TensorFlow saves",
    ):
        gd.fit(model, checkpoint=tmp_path)
    with pytest.raises(UnknownOptionError, match="does not use hold='whitened' .* has no sites"):
        gd.fit(model, hold="whitened")
    with pytest.raises(DataError, match="AffineIndependentGP owns its data"):
        gd.fit(model, (X, Y))
    set_trainable(model.basis, False)
    with pytest.raises(DataError, match="A and b of q are what fit finds, and are not trainable"):
        gd.fit(model)
    assert unchanged(before, model)
