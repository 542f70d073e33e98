"""The choices of `fit`: solvers of the mean, policies, float32, and optimizers of Keras 2 and Keras
3.
"""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.keras import tf_keras

import gpflow_decoupled as gd
from gpflow_decoupled.covariances import products
from gpflow_decoupled.errors import DataError
from tests.training.problems import (
    BETA,
    GAMMA,
    MODELS,
    grouped,
    orthogonal,
    parts,
    sine,
    unchanged,
    values,
)


def _fit(model, **options):
    return gd.fit(
        model, sine(), **{"steps": 6, "progress": False, "compile": False, **grouped(**options)}
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "solver, name",
    [("adam", "ODVGP"), ("natural", "ODVGP"), ("newton", "ODVGP"), ("adam", "HDVGP")]
    + [("natural", "DVGP inverse"), ("natural", "DVGP coupled")],
)
def test_every_solver_of_the_mean_raises_the_bound(solver: str, name: str) -> None:
    model = MODELS[name]()
    before = values(model)
    natural = {} if name == "DVGP inverse" else {"natural_gradient": 0.5, "ramp_steps": 5}
    trace = _fit(model, steps=15, mean_solver=solver, **natural).history
    assert trace["elbo"][-1] > trace["elbo"][0] + 50
    after = values(model)
    assert all(not np.array_equal(before[path], after[path]) for path in before)


@pytest.mark.exhaustive
def test_newton_finds_the_optimum_of_the_mean_in_one_step() -> None:
    model, data = orthogonal(num_data=60), sine()
    for part in (model.kernel, model.likelihood, model.basis.gamma, model.basis.beta):
        gpflow.set_trainable(part, False)
    options = {"natural_gradient": 1.0, "ramp_steps": 0, "mean_solver": "newton", "anneal": 0.0}
    _fit(model, steps=1, **options)
    optimum = float(gd.optimizers.collapsed_elbo(model, data))
    assert float(model.elbo(data)) == pytest.approx(optimum, abs=1e-5)


@pytest.mark.exhaustive
def test_mean_learning_rate_scales_the_step_of_the_mean() -> None:
    moves = []
    for rate in (1e-3, 2e-3):
        model = orthogonal()
        options = {"mean_solver": "natural", "mean_learning_rate": rate, "anneal": 0.0}
        _fit(model, steps=1, **options)
        moves.append(model.basis.a_gamma.numpy())
    np.testing.assert_allclose(moves[1], 2 * moves[0], rtol=1e-8)


def _student(rows: slice, shift: float) -> tuple[gd.models.ODVGP, tuple]:
    X, Y = sine()
    Y[rows] += shift
    likelihood = gpflow.likelihoods.StudentT(scale=0.1)
    return gd.models.ODVGP(gpflow.kernels.SquaredExponential(), likelihood, GAMMA, BETA), (X, Y)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "policy, rows, shift", [("damp", slice(None, None, 2), 3.0), ("clip", slice(5), 30.0)]
)
def test_outliers_are_counted(policy: str, rows: slice, shift: float) -> None:
    model, data = _student(rows, shift)
    schedule = gd.training.Schedule(ramp_steps=0, anneal=0.0)
    options = {
        "natural_gradient": 1.0,
        "negative_precision": policy,
        "learning_rate": 1e-3,
        "schedule": schedule,
    }
    result = gd.fit(model, data, steps=8, progress=False, compile=False, **options)
    counts = {"damp": result.shortened_steps, "clip": result.clipped_sites}
    assert counts.pop(policy) > 0 and sum(counts.values()) == 0
    assert ("shortened steps" if policy == "damp" else "clipped sites") in str(result)
    assert np.all(np.isfinite(result.history["elbo"]))


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "name", ["ODVGP", "HDVGP", "DVGP inverse", "DVGP coupled", "SOLVEGP", "SVGP"]
)
def test_float32_models_train(name: str) -> None:
    X, Y = sine()
    gpflow.config.set_default_float(np.float32)
    beta, gamma = BETA.astype(np.float32), GAMMA.astype(np.float32)
    coupled = {"covariance": "coupled"} if name.endswith("coupled") else {}
    if name == "SVGP":
        model = gpflow.models.SVGP(*parts(), beta)
    else:
        model = getattr(gd.models, name.split()[0])(*parts(), gamma, beta, **coupled)
    data = X.astype(np.float32), Y.astype(np.float32)
    options = grouped(evaluation=data, ramp_steps=5, progress=False, compile=False)
    result = gd.fit(model, data, steps=15, batch_size=30, **options)
    assert result.history["elbo"][-1] > result.history["elbo"][0] + 50
    assert {value.dtype for value in values(model).values()} == {np.dtype(np.float32)}


OPTIMIZERS = {
    "Keras 2 Adam": lambda: tf_keras.optimizers.Adam(0.03),
    "Keras 2 SGD": lambda: tf_keras.optimizers.SGD(1e-4, momentum=0.9),
    "Keras 2 RMSprop": lambda: tf_keras.optimizers.RMSprop(0.03),
    "Keras 3 Adam": lambda: tf.keras.optimizers.Adam(0.03),
    "Keras 3 SGD": lambda: tf.keras.optimizers.SGD(1e-4, momentum=0.9),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_any_keras_optimizer_will_do(make, tmp_path) -> None:
    expected = _fit(orthogonal(), optimizer=make(), anneal=0.0)
    assert expected.history["elbo"][-1] > expected.history["elbo"][0]
    for steps in (3, 6):  # its state is saved
        options = {"checkpoint": tmp_path, "anneal": 0.0, "steps": steps}
        result = _fit(orthogonal(), optimizer=make(), **options)
    np.testing.assert_allclose(result.history["elbo"], expected.history["elbo"], rtol=1e-9)


@pytest.mark.exhaustive
def test_keras_2_and_keras_3_agree_and_keep_their_own_rate() -> None:
    fitted = []
    for options in (
        {"optimizer": tf_keras.optimizers.Adam(0.03)},
        {"optimizer": tf.keras.optimizers.Adam(0.03)},
        {"optimizer": tf_keras.optimizers.Adam(0.5), "learning_rate": 0.03},
        {"learning_rate": 0.03},
    ):
        model = orthogonal()
        _fit(model, **options)
        fitted.append(model.kernel.lengthscales.numpy())
    np.testing.assert_allclose(fitted, fitted[0], rtol=1e-5)
    assert abs(fitted[0] - 0.3) > 0.02


@pytest.mark.exhaustive
def test_interrupted_step_of_keras_3_is_undone() -> None:
    gpflow.config.set_default_jitter(0.0)
    model = orthogonal()
    with pytest.raises(gd.errors.NumericalError):
        _fit(model, steps=60, optimizer=tf.keras.optimizers.Adam(1e3), natural_gradient=1.0)
    assert all(np.all(np.isfinite(value)) for value in values(model).values())


UNUSABLE = {
    "legacy": (
        tf_keras.optimizers.legacy.Adam,
        "Adam, which fit cannot drive; pass an instance from gpflow.keras",
    ),
    "a class": (lambda: tf_keras.optimizers.Adam, "which fit cannot drive"),
    "a name": (lambda: "adam", "optimizer is a str, which fit cannot drive"),
    "GPflow's": (gpflow.optimizers.Scipy, "optimizer is a Scipy, which fit cannot drive"),
    "schedule": (
        lambda: tf_keras.optimizers.Adam(
            tf_keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)
        ),
        "is a schedule, and fit anneals it by itself; pass a number",
    ),
    "Keras 3 schedule": (
        lambda: tf.keras.optimizers.Adam(
            tf.keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)
        ),
        "is a schedule, and fit anneals it by itself; pass a number",
    ),
}


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("make, message", UNUSABLE.values(), ids=UNUSABLE)
def test_optimizers_that_cannot_be_driven_are_refused(make, message: str) -> None:
    model, optimizer = orthogonal(), make()
    before = values(model)
    with pytest.raises(DataError, match=message):
        _fit(model, optimizer=optimizer)
    assert unchanged(before, model)


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", [gpflow.kernels.Matern52, gpflow.kernels.Matern12])
def test_steps_on_many_mean_points_can_be_compiled(
    kind: type[gpflow.kernels.Kernel], monkeypatch
) -> None:
    """Where a step has a tape within another, the gradient of strips of a kernel without fused
    blocks cannot be compiled.
    """
    ends = []
    for compile, small in ((False, products._SMALL), (True, 0)):
        monkeypatch.setattr(products, "_SMALL", small)
        monkeypatch.setattr(products, "_STRIP", 10)
        model = gd.models.ODVGP(kind(lengthscales=0.3), parts()[1], GAMMA, BETA)
        gd.fit(model, sine(), steps=2, progress=False, compile=compile)
        ends.append(values(model))
    for path, value in ends[0].items():
        np.testing.assert_allclose(ends[1][path], value, rtol=1e-6, atol=1e-8, err_msg=path)
