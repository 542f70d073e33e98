"""A nearest-neighbour GP answers GPflow's verbs and works with its tools."""

from __future__ import annotations

import copy
from pathlib import Path

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import kernels as gk
from gpflow.likelihoods import Gaussian
from gpflow.posteriors import PrecomputeCacheType
from numpy.testing import assert_allclose
from scipy import stats

import gpflow_decoupled as gd
from gpflow_decoupled.models import NNGP
from tests.models.test_nngp import (
    FEW,
    KERNELS,
    NOISE,
    XNEW,
    N,
    X,
    Y,
    log_normal,
    model,
    observed_covariance,
)

FLAGS = [(cov, output) for cov in (False, True) for output in (False, True)]


def separate() -> gk.SeparateIndependent:
    return gk.SeparateIndependent([KERNELS["Matern12"](), KERNELS["sum"]()])


def trend() -> gpflow.functions.Linear:
    return gpflow.functions.Linear([[0.3, 0.1], [-0.2, 0.4]], [0.1, -0.1])


def missing() -> np.ndarray:
    """Outputs with entries that were not observed."""
    values = Y.copy()
    values[3:15, 0] = np.nan
    values[20:24, 1] = np.nan
    return values


@pytest.mark.exhaustive
def test_verbs():
    ours = model(m=FEW, mean_function=trend())
    mean, variance = ours.predict_f(XNEW)
    y_mean, y_variance = ours.predict_y(XNEW)
    assert_allclose(y_mean, mean)
    assert_allclose(y_variance - variance, NOISE + 1e-6 * 1.3, rtol=1e-9)
    expected = np.sum(
        -0.5 * (np.log(2 * np.pi * y_variance) + (XNEW - y_mean) ** 2 / y_variance), axis=1
    )
    assert_allclose(ours.predict_log_density((XNEW, XNEW)), expected, rtol=1e-10)
    assert ours.predict_f_samples(XNEW, 4).shape == (4, 7, 2)
    assert ours.predict_f_samples(XNEW, 4, full_cov=False).shape == (4, 7, 2)
    assert_allclose(ours.training_loss_closure(compile=False)(), ours.training_loss(), rtol=1e-12)
    for flags in ({"full_cov": True}, {"full_output_cov": True}):
        with pytest.raises(NotImplementedError):
            ours.predict_y(XNEW, **flags)
    assert (
        repr(ours)
        == f"GaussianNNGP(Matern52, Gaussian, N={N}, num_neighbours=6, prediction_neighbours=6)"
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize("make", [KERNELS["Matern52"], separate], ids=["shared", "separate"])
@pytest.mark.parametrize("full_cov, full_output_cov", FLAGS)
def test_posterior_and_batches_give_the_same(make, full_cov, full_output_cov):
    ours = model(make(), FEW, mean_function=trend())
    flags = {"full_cov": full_cov, "full_output_cov": full_output_cov}
    expected = ours.predict_f(XNEW, **flags)
    shape = {(0, 0): (7, 2), (1, 0): (2, 7, 7), (0, 1): (7, 2, 2), (1, 1): (7, 2, 7, 2)}
    assert expected[1].shape == shape[full_cov, full_output_cov]
    for kind in PrecomputeCacheType:
        posterior = ours.posterior(kind)
        predict = posterior.fused_predict_f if kind.value == "nocache" else posterior.predict_f
        for run in (predict, tf.function(predict, autograph=False)):
            for mine, theirs in zip(run(XNEW, **flags), expected):
                assert_allclose(mine, theirs, rtol=1e-9, atol=1e-12)
    batched = ours.predict_f(np.stack([XNEW, XNEW + 1.0]), **flags)
    for mine, theirs in zip(batched, expected):
        assert_allclose(mine[0], theirs, rtol=1e-9, atol=1e-12)


def test_joint_predictions_are_from_the_union_of_neighbours():
    ours, kernel = model(m=FEW), KERNELS["Matern52"]()
    near = X / kernel.lengthscales.numpy()
    new = XNEW / kernel.lengthscales.numpy()
    distance = np.linalg.norm(new[:, None] - near, axis=-1)
    union = np.unique(np.argsort(distance, axis=1)[:, :FEW])
    assert FEW < len(union) < N
    K, cross = observed_covariance(kernel, X[union]), kernel(XNEW, X[union]).numpy()
    mean, cov = ours.predict_f(XNEW, full_cov=True)
    assert_allclose(mean, cross @ np.linalg.solve(K, Y[union]), rtol=1e-8)
    expected = kernel(XNEW).numpy() - cross @ np.linalg.solve(K, cross.T)
    assert_allclose(cov[1], expected, rtol=1e-8, atol=1e-12)


@pytest.mark.exhaustive
def test_outputs_with_kernels_of_their_own_or_missing_entries_are_models_of_their_own():
    values, kernels = missing(), separate()
    ours = model(kernels, FEW, Y=values, mean_function=trend())
    total = 0.0
    for column, kernel in enumerate(kernels.kernels):
        there = ~np.isnan(values[:, column])
        mean = gpflow.functions.Linear(
            trend().A.numpy()[:, [column]], trend().b.numpy()[column : column + 1]
        )
        alone = model(kernel, N, Y=values[there][:, [column]], X=X[there], mean_function=mean)
        few = model(kernel, FEW, Y=values[there][:, [column]], X=X[there], mean_function=mean)
        total += float(alone.maximum_log_likelihood_objective())
        for mine, theirs in zip(ours.predict_f(XNEW), few.predict_f(XNEW)):
            assert_allclose(mine[:, column], theirs[:, 0], rtol=1e-9)
        for mine, theirs in zip(ours.leave_one_out()[:2], few.leave_one_out()[:2]):
            assert_allclose(mine[there, column], theirs[:, 0], rtol=1e-9)
    exact = model(separate(), N, Y=values, mean_function=trend())
    assert_allclose(exact.maximum_log_likelihood_objective(), total, rtol=1e-10)
    assert np.all(np.isfinite(ours.leave_one_out().log_density))
    with tf.GradientTape() as tape:
        loss = ours.training_loss()
    for gradient in tape.gradient(loss, ours.trainable_variables):
        assert np.all(np.isfinite(gradient))


NOISES = {
    "for each row": (
        Gaussian(0.02 + 0.1 * np.arange(N)[:, None] / N),
        0.02 + 0.1 * np.arange(N) / N,
    ),
    "scale": (Gaussian(scale=0.3), 0.09),
    "a function": (
        Gaussian(scale=gpflow.functions.Linear([[0.05], [0.0]], [0.5])),
        (0.05 * X[:, 0] + 0.5) ** 2,
    ),
    "for each output": (Gaussian([0.03, 0.2]), None),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", NOISES)
def test_noise_of_every_kind(name):
    likelihood, variances = NOISES[name]
    ours, kernel = model(likelihood=copy.deepcopy(likelihood)), KERNELS["Matern52"]()
    expected, cross = 0.0, kernel(XNEW, X).numpy()
    for column, y in enumerate(Y.T):
        noise = [0.03, 0.2][column] if variances is None else variances
        K = observed_covariance(kernel, noise=noise)
        expected += log_normal(y, K)
        mean = cross @ np.linalg.solve(K, y)
        assert_allclose(ours.predict_f(XNEW)[0][:, column], mean, rtol=1e-7)
    assert_allclose(ours.maximum_log_likelihood_objective(), expected, rtol=1e-9)
    if name == "for each row":
        with pytest.raises(gd.errors.DataError, match="none for new inputs: pass theirs"):
            ours.predict_y(XNEW)
        with pytest.raises(gd.errors.DataError, match="evaluation: The likelihood has a noise var"):
            gd.fit(ours, evaluation=(XNEW, XNEW), progress=False)
        with pytest.raises(gd.errors.DataError, match=r"shape \(2, 1\); pass \[7, 1\]"):
            ours.predict_y(XNEW, noise_variance=np.ones((2, 1)))
        with pytest.raises(gd.errors.DataError, match="none for the new ones"):
            ours.update((XNEW, XNEW))
        with pytest.raises(gd.errors.DataError, match=r"shape \(2, 1\); pass \[7, 1\]"):
            ours.update((XNEW, XNEW), noise_variance=np.ones((2, 1)))
        with pytest.raises(gd.errors.DataError, match="not above the lower bound"):
            ours.update((XNEW, XNEW), noise_variance=np.zeros((7, 1)))
        assert ours.data[0].shape[0] == N
    else:
        assert np.all(ours.predict_y(XNEW)[1] > ours.predict_f(XNEW)[1])
        with pytest.raises(gd.errors.DataError, match="leave it out"):
            ours.update((XNEW, XNEW), noise_variance=np.ones((7, 1)))
        with pytest.raises(gd.errors.DataError, match="leave it out"):
            ours.predict_y(XNEW, noise_variance=np.ones((7, 1)))


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("scale", [False, True])
def test_update_takes_the_noise_of_each_new_row(scale: bool):
    variances = 0.02 + 0.1 * np.arange(N)[:, None] / N

    def noise(rows: slice) -> Gaussian:
        some = variances[rows]
        return Gaussian(scale=np.sqrt(some)) if scale else Gaussian(some)

    ours = model(m=N, X=X[:30], Y=Y[:30], likelihood=noise(slice(30)))
    gpflow.set_trainable(ours.likelihood, False)
    ours.update((X[30:], Y[30:]), noise_variance=variances[30:])
    whole = model(m=N, likelihood=noise(slice(None)))
    assert_allclose(ours.training_loss(), whole.training_loss(), rtol=1e-9)
    assert_allclose(ours.predict_f(XNEW)[1], whole.predict_f(XNEW)[1], rtol=1e-9)
    assert not ours.likelihood.trainable_parameters
    known = np.linspace(0.1, 0.5, 7)[:, None]
    mean, variance = ours.predict_y(XNEW, noise_variance=known)
    assert_allclose(variance, ours.predict_f(XNEW)[1] + known, rtol=1e-5)  # and jitter
    density = stats.norm(mean, np.sqrt(variance)).logpdf(XNEW).sum(axis=1)
    assert_allclose(ours.predict_log_density((XNEW, XNEW), noise_variance=known), density)


@pytest.mark.exhaustive
def test_known_noise_of_an_unknown_number_of_rows():
    ours = model(likelihood=Gaussian(np.full((N, 1), 0.1)))
    known = np.linspace(0.1, 0.5, 7)[:, None]
    specs = tf.TensorSpec([None, 2], tf.float64), tf.TensorSpec([None, 1], tf.float64)

    @tf.function(input_signature=specs, autograph=False)
    def compiled(X: tf.Tensor, noise: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return ours.predict_y(X, noise_variance=noise)

    for there, here in zip(compiled(XNEW, known), ours.predict_y(XNEW, noise_variance=known)):
        assert_allclose(there, here, rtol=1e-9)
    with pytest.raises(tf.errors.InvalidArgumentError, match="different numbers of rows"):
        compiled(XNEW, known[:1])
    wide = tf.function(lambda X: ours.predict_y(X, noise_variance=tf.ones_like(X[:, :0])))
    with pytest.raises(gd.errors.DataError, match="noise_variance"):
        wide.get_concrete_function(specs[0])


def test_update_is_a_model_of_all_rows():
    ours, whole = model(m=N, X=X[:30], Y=Y[:30]), model(m=N)
    before = ours.neighbours_of(np.arange(30), num_neighbours=5)
    assert float(ours.training_loss()) != pytest.approx(float(whole.training_loss()))
    ours.update((X[30:], Y[30:]))
    assert_allclose(ours.training_loss(), whole.training_loss(), rtol=1e-9)
    assert np.array_equal(ours.neighbours_of(np.arange(30), num_neighbours=5), before)
    for mine, theirs in zip(ours.predict_y(XNEW), whole.predict_y(XNEW)):
        assert_allclose(mine, theirs, rtol=1e-9)


def test_new_rows_extend_the_neighbours_of_the_likelihood():
    ours = model(m=FEW, X=X[:30], Y=Y[:30])
    ours.training_loss()
    ours.update((X[30:], Y[30:]))
    extended = float(ours.training_loss())
    ours.refresh_neighbours()
    assert_allclose(ours.training_loss(), extended, rtol=1e-12)


@pytest.mark.exhaustive
def test_neighbours_stay_until_they_are_refreshed():
    kernel = gk.Matern32(lengthscales=[1.0, 1.0])
    ours = model(kernel, FEW)
    loss = tf.function(ours.training_loss, autograph=False)
    loss()
    kernel.lengthscales.assign([0.1, 10.0])
    stale = float(loss())
    fresh = model(gk.Matern32(lengthscales=[0.1, 10.0]), FEW)
    assert abs(stale - float(fresh.training_loss())) > 0.1
    ours.refresh_neighbours()
    assert_allclose(loss(), fresh.training_loss(), rtol=1e-10)  # the same compiled function


@pytest.mark.exhaustive
def test_scipy_learns_hyperparameters():
    ours = model(gk.Matern32(), FEW, likelihood=Gaussian(1.0), mean_function=trend())
    before = float(ours.training_loss())
    gpflow.optimizers.Scipy().minimize(
        ours.training_loss,
        ours.trainable_variables,
        options={"maxiter": 15},
        tf_fun_args={"autograph": False},
    )
    assert float(ours.training_loss()) < before - 5.0


@pytest.mark.exhaustive
def test_blocks_of_rows_change_nothing(monkeypatch):
    ours = model(separate(), FEW, mean_function=trend())
    variables = ours.trainable_variables

    @tf.function(autograph=False)
    def compiled() -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape() as tape:
            loss = ours.training_loss()
        return loss, tape.gradient(loss, variables)

    whole = compiled()
    moments = ours.predict_f(XNEW)
    for module in ("likelihood", "posterior"):
        monkeypatch.setattr(f"gpflow_decoupled.models.neighbours.{module}._ENTRIES", 200)
    blocks = tf.function(compiled.python_function, autograph=False)()
    eager = compiled.python_function()
    for mine, other, theirs in zip(*(tf.nest.flatten(part) for part in (blocks, eager, whole))):
        assert_allclose(mine, theirs, rtol=1e-9)
        assert_allclose(other, theirs, rtol=1e-9)
    for mine, theirs in zip(ours.predict_f(XNEW), moments):
        assert_allclose(mine, theirs, rtol=1e-12)


def test_checkpoint_restores_neighbours_too(tmp_path: Path):
    ours = model(m=FEW)
    ours.training_loss()
    ours.kernel.lengthscales.assign([3.0, 0.2])
    loss = float(ours.training_loss())
    path = tf.train.Checkpoint(model=ours).save(str(tmp_path / "state"))
    fresh = model(m=FEW, seed=1)
    status = tf.train.Checkpoint(model=fresh).restore(path)
    assert_allclose(fresh.training_loss(), loss, rtol=1e-12)
    status.assert_consumed()


def test_gradient_of_predictions_in_the_inputs():
    ours, inputs = model(KERNELS["Matern12"](), FEW), tf.constant(XNEW)
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        mean = tf.reduce_sum(ours.predict_f(inputs)[0])
    step = np.zeros_like(XNEW)
    step[2, 1] = 1e-6
    values = [np.sum(ours.predict_f(XNEW + sign * step)[0]) for sign in (1, -1)]
    assert_allclose(tape.gradient(mean, inputs)[2, 1], (values[0] - values[1]) / 2e-6, rtol=1e-4)


@pytest.mark.exhaustive
def test_single_precision():
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        ours = NNGP(
            (X.astype(np.float32), Y.astype(np.float32)),
            gk.Matern52(variance=1.3, lengthscales=[0.8, 1.5]),
            Gaussian(NOISE),
            num_neighbours=FEW,
        )
        mean, variance = ours.predict_f(XNEW.astype(np.float32))
        assert mean.dtype == tf.float32
        loss = float(ours.training_loss())
    exact = model(m=FEW)
    assert_allclose(mean, exact.predict_f(XNEW)[0], atol=2e-3)
    assert_allclose(variance, exact.predict_f(XNEW)[1], rtol=1e-2)
    assert_allclose(loss, exact.training_loss(), rtol=1e-3)


def test_noise_at_its_floor_is_reported():
    with pytest.warns(UserWarning, match="at its floor"):
        model(gk.Matern52(variance=3.0), FEW, likelihood=Gaussian(2e-6)).leave_one_out([0, 1])
    assert not model().noise_at_floor().any()
