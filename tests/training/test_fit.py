"""`fit` raises the bound of every model, moves what is trainable and nothing else, and says what it
did.
"""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.keras import tf_keras

import gpflow_decoupled as gd
from gpflow_decoupled.optimizers import NaturalGradient
from gpflow_decoupled.training import Schedule
from tests.training.problems import BETA, GAMMA, MODELS, orthogonal, parts, sine, values


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("name", MODELS)
def test_bound_rises_and_the_result_says_how(name: str) -> None:
    data = sine()
    model = MODELS[name]()
    flags = {path: p.trainable for path, p in gpflow.utilities.parameter_dict(model).items()}
    result = gd.fit(model, data, steps=60, batch_size=30, progress=False)

    trace = result.history["elbo"]
    assert np.mean(trace[-10:]) > np.mean(trace[:10]) + 50
    assert float(model.elbo(data)) == pytest.approx(np.mean(trace[-10:]), abs=15)
    assert (result.steps, result.reason) == (60, "steps done")
    assert np.array_equal(result.history["step"], np.arange(1, 61))
    assert np.all(np.diff(result.history["seconds"]) > 0)
    assert result.history["seconds"][-1] == result.seconds > 0
    assert result.compile_seconds > 0
    assert model.num_data == 60
    assert {
        path: p.trainable for path, p in gpflow.utilities.parameter_dict(model).items()
    } == flags
    assert str(result).startswith("60 steps in ") and "stopped: steps done" in str(result)
    assert ", estimated ELBO " in str(result), "of minibatches"


def _hyperparameters(model: gpflow.models.GPModel) -> list[tf.Variable]:
    """Those of kernel, likelihood and mean function."""
    return [
        v
        for part in (model.kernel, model.likelihood, model.mean_function)
        for v in part.trainable_variables
    ]


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("name", MODELS)
def test_a_plain_gradient_step_is_the_gradient_of_bound_and_prior(name: str) -> None:
    X, Y = data = sine(30)
    model = MODELS[name](
        mean_function=gpflow.functions.Linear(np.ones((1, 1)), np.ones(1)), num_data=30
    )
    model.kernel.lengthscales.prior = tfp.distributions.Gamma(np.float64(2.0), np.float64(3.0))
    rate = 2.0**-20  # exact in float32, which Keras keeps its rates in
    there = gpflow.utilities.deepcopy(model)
    options = {} if name == "DVGP inverse" else {"natural_gradient": 0.3, "hold": "whitened"}
    if name not in ("DVGP inverse", "SVGP not whitened"):  # q moves first
        NaturalGradient(0.3).minimize(there, data)
    with tf.GradientTape() as tape:
        loss = there.training_loss(data)
    gradients = tape.gradient(loss, _hyperparameters(there))
    variables = _hyperparameters(model)
    before = [v.numpy() for v in variables]
    gd.fit(
        model,
        data,
        steps=1,
        **options,
        optimizer=tf_keras.optimizers.SGD(rate),
        schedule=Schedule(ramp_steps=0, anneal=0.0),
        progress=False,
        compile=False,
    )
    assert len(variables) == 5
    for variable, old, gradient in zip(variables, before, gradients):
        np.testing.assert_allclose((old - variable.numpy()) / rate, gradient, rtol=1e-6, atol=1e-6)


@pytest.mark.exhaustive
def test_priors_pull() -> None:
    fitted = []
    for prior in (None, tfp.distributions.Normal(np.float64(0.05), np.float64(1e-3))):
        model = orthogonal()
        model.kernel.lengthscales.prior = prior
        gd.fit(model, sine(), steps=80, learning_rate=0.1, progress=False)
        fitted.append(float(model.kernel.lengthscales.numpy()))
    assert fitted[0] > 0.15 and fitted[1] == pytest.approx(0.05, abs=0.02)


@pytest.mark.exhaustive
def test_mean_function_is_learned() -> None:
    X = np.linspace(0, 1, 50)[:, None]
    model = orthogonal(mean_function=gpflow.functions.Linear(np.zeros((1, 1)), np.zeros(1)))
    model.kernel.variance.assign(1e-3)
    gpflow.set_trainable(model.kernel, False)
    with pytest.warns(UserWarning, match="still rises"):  # as the noise falls to 0
        gd.fit(model, (X, 2.0 - 3.0 * X), steps=200, learning_rate=0.1, progress=False)
    assert float(model.mean_function.A.numpy()[0, 0]) == pytest.approx(-3.0, abs=0.2)
    assert float(model.mean_function.b.numpy()[0]) == pytest.approx(2.0, abs=0.1)


FROZEN = {
    "kernel": (".kernel",),
    "likelihood": (".likelihood",),
    "gamma": (".basis.kernel_mean.points",),
    "beta": (".basis.beta",),
    "mean": (".basis.kernel_mean",),
    "q": (".basis.q_",),
    "all but q": (".kernel", ".likelihood", ".basis.kernel_mean", ".basis.beta"),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("frozen", FROZEN)
@pytest.mark.parametrize("mean_solver", ["adam", "natural"])
def test_what_is_not_trainable_stays(frozen: str, mean_solver: str) -> None:
    if (frozen, mean_solver) == ("q", "natural"):
        pytest.skip("refused, which tests/test_bad_input.py checks")
    model = orthogonal()
    before = values(model)
    held = {name for name in before if name.startswith(FROZEN[frozen])}
    for name in held:
        gpflow.set_trainable(gpflow.utilities.parameter_dict(model)[name], False)
    gd.fit(model, sine(), steps=3, mean_solver=mean_solver, progress=False, compile=False)
    moved = {
        name for name, value in values(model).items() if not np.array_equal(before[name], value)
    }
    assert held and moved == set(before) - held


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", MODELS)
def test_without_natural_gradients_adam_moves_all(name: str) -> None:
    model = MODELS[name]()
    before = values(model)
    result = gd.fit(model, sine(), steps=5, natural_gradient=None, progress=False, compile=False)
    assert result.history["elbo"][-1] > result.history["elbo"][0]
    after = values(model)
    assert all(not np.array_equal(before[name], after[name]) for name in before)


@pytest.mark.exhaustive
def test_svgp_is_fitted_as_the_coupled_model_is() -> None:
    traces = [
        gd.fit(
            MODELS[name](), sine(), steps=5, batch_size=20, progress=False, compile=False
        ).history["elbo"]
        for name in ("SVGP", "BasisGP")
    ]
    np.testing.assert_allclose(*traces, rtol=1e-10)


@pytest.mark.exhaustive
def test_classes_and_several_outputs() -> None:
    X, Y = sine()
    data = X, (Y > 0).astype(int) + (Y > 0.7)  # classes 0, 1, 2 as integers
    likelihood = gpflow.likelihoods.MultiClass(3)
    model = gd.models.ODVGP(parts()[0], likelihood, GAMMA, BETA)
    options = {"progress": False, "compile": False}
    result = gd.fit(model, data, steps=12, batch_size=20, evaluation=data, **options)
    assert model.num_latent_gps == 3
    assert np.mean(result.history["elbo"][-5:]) > np.mean(result.history["elbo"][:5])
    assert result.history["log_density"][-1] > np.log(1 / 3)


@pytest.mark.exhaustive
def test_second_fit_goes_on_from_the_first() -> None:
    model = orthogonal()
    first = gd.fit(model, sine(), steps=30, progress=False).history["elbo"]
    # a new Adam takes steps of full length, which would lower a bound that is nearly at its best
    second = gd.fit(model, sine(), steps=5, learning_rate=0.003, progress=False).history["elbo"]
    assert second[0] > first[-1] - 0.1


@pytest.mark.exhaustive
def test_scaling_is_refreshed_every_so_many_steps() -> None:
    result = gd.fit(
        orthogonal(),
        sine(),
        steps=7,
        schedule=Schedule(refresh_every=3),
        progress=False,
        compile=False,
    )
    assert result.refreshes == 3
    result = gd.fit(MODELS["SVGP"](), sine(), steps=3, progress=False, compile=False)
    assert result.refreshes == 0
