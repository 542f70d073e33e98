"""GPflow's and TensorFlow's tools work on every model without a special case."""

from __future__ import annotations

import copy
from pathlib import Path

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.utilities import print_summary, set_trainable, tabulate_module_summary
from numpy.testing import assert_allclose

from gpflow_decoupled.optimizers import NaturalGradient
from tests.models.builders import MODELS, build

names = pytest.mark.parametrize("name", MODELS)


@pytest.mark.exhaustive
@names
def test_deepcopy_is_equal_and_independent(name):
    model, data = build(name)
    twin = copy.deepcopy(model)
    assert_allclose(twin.elbo(data), model.elbo(data), rtol=1e-13)
    before = float(model.elbo(data))
    twin.kernel.variance.assign(3.0)
    twin.basis.refresh(twin.kernel)
    assert_allclose(model.elbo(data), before, rtol=1e-13)
    assert abs(float(twin.elbo(data)) - before) > 1e-3


@pytest.mark.exhaustive
@names
def test_checkpoint_restores_into_a_fresh_model(name, tmp_path: Path):
    """Also the frozen coordinates of the mean, which belong to the kernel when they were
    refreshed.
    """
    model, data = build(name)
    model.kernel.variance.assign(3.0)
    model.basis.refresh(model.kernel)
    path = tf.train.Checkpoint(model=model).write(str(tmp_path / "model"))
    fresh, _ = build(name)
    assert abs(float(fresh.elbo(data) - model.elbo(data))) > 1e-3
    tf.train.Checkpoint(model=fresh).read(path).assert_consumed()
    assert_allclose(fresh.elbo(data), model.elbo(data), rtol=1e-12)


@pytest.mark.costly(keep=2)
@names
def test_values_travel_through_dictionaries(name):
    model, data = build(name)
    fresh, _ = build(name)
    model.kernel.variance.assign(3.0)
    gpflow.utilities.multiple_assign(fresh, gpflow.utilities.parameter_dict(model))
    assert_allclose(fresh.elbo(data), model.elbo(data), rtol=1e-12)


@pytest.mark.costly(keep=3)
@names
def test_summary_lists_every_parameter(name, capsys):
    model, _ = build(name)
    table = tabulate_module_summary(model)
    for parameter in gpflow.utilities.parameter_dict(model):
        assert parameter.lstrip(".") in table
    print_summary(model)
    assert "kernel.variance" in capsys.readouterr().out
    assert len(model.parameters) == len(set(map(id, model.parameters)))


@pytest.mark.costly(keep=3)
@names
def test_trainable_flags_are_respected(name):
    model, data = build(name)
    set_trainable(model.kernel, False)
    set_trainable(model.basis, False)
    set_trainable(model.basis.beta, True)
    variables = model.trainable_variables
    ids = {id(v) for v in variables}
    assert id(model.basis.beta.Z.unconstrained_variable) in ids
    assert id(model.kernel.variance.unconstrained_variable) not in ids
    with tf.GradientTape() as tape:
        value = model.elbo(data)
    assert all(gradient is not None for gradient in tape.gradient(value, variables))
    assert np.isfinite(value)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["ODVGP", "DVGP"])
def test_scipy_raises_the_bound(name):
    model, data = build(name)
    before = model.elbo(data)
    gpflow.optimizers.Scipy().minimize(
        model.training_loss_closure(data, compile=False),
        model.trainable_variables,
        options={"maxiter": 5},
        tf_fun_args={"autograph": False},
    )
    assert model.elbo(data) > before + 1.0


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["ODVGP", "SOLVEGP"])
def test_xla_gives_the_same_bound_and_gradient(name):
    model, data = build(name)
    data = tuple(tf.constant(array) for array in data)

    def run() -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            value = model.elbo(data)
        return [value, *tape.gradient(value, model.trainable_variables)]

    for left, right in zip(tf.function(run, jit_compile=True, autograph=False)(), run()):
        assert_allclose(left, right, rtol=1e-8, atol=1e-9)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["ODVGP", "HDVGP"])
def test_gpflows_natural_gradient_works_on_the_parameters(name):
    """And does what ours does."""
    (model, data), (twin, _) = build(name), build(name)
    basis = model.basis
    gpflow.optimizers.NaturalGradient(0.3).minimize(
        model.training_loss_closure(data), [(basis.q_mu, basis.q_sqrt)]
    )
    NaturalGradient(0.3).minimize(twin, data)
    assert_allclose(basis.q_mu, twin.basis.q_mu, rtol=1e-8, atol=1e-9)
    assert_allclose(basis.q_sqrt, twin.basis.q_sqrt, rtol=1e-8, atol=1e-9)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["ODVGP", "SOLVEGP"])
def test_keras_optimizer_raises_the_bound(name):
    """Adam on everything, compiled: no optimizer hangs on the model, and none needs a special
    case.
    """
    model, data = build(name)
    optimizer = gpflow.keras.tf_keras.optimizers.Adam(0.05)
    loss = model.training_loss_closure(data, compile=False)
    step = tf.function(lambda: optimizer.minimize(loss, model.trainable_variables), autograph=False)
    before = model.elbo(data)
    for _ in range(30):
        step()
    assert model.elbo(data) > before + 1.0
