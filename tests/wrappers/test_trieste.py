"""Models inside trieste's loops: shapes and contracts, trajectories, and a minimum that is
found.
"""

from __future__ import annotations

import copy

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_decoupled as gd
from gpflow_decoupled.errors import DataError, UnknownOptionError

trieste = pytest.importorskip("trieste")

from trieste.acquisition import ParallelContinuousThompsonSampling  # noqa: E402
from trieste.acquisition.rule import EfficientGlobalOptimization  # noqa: E402
from trieste.data import Dataset  # noqa: E402
from trieste.models import interfaces  # noqa: E402
from trieste.objectives import Branin, ScaledBranin  # noqa: E402
from trieste.objectives.utils import mk_observer  # noqa: E402

from gpflow_decoupled.wrappers.trieste import DecoupledVariational  # noqa: E402

SETTINGS = {"steps": 60, "natural_gradient": 1.0}


def _model() -> gd.models.ODVGP:
    points = Branin.search_space.sample_sobol(16).numpy()
    kernel = gpflow.kernels.Matern52(lengthscales=[0.3, 0.3])
    return gd.models.ODVGP(kernel, gpflow.likelihoods.Gaussian(1e-2), points[:6], points[6:])


def _data(count: int = 12) -> Dataset:
    X = Branin.search_space.sample_halton(count, seed=1)
    return Dataset(X, ScaledBranin.objective(X))


@pytest.fixture(scope="module")
def trained() -> DecoupledVariational:
    wrapped = DecoupledVariational(_model(), **SETTINGS)
    wrapped.update(_data())
    assert wrapped.optimize(_data()).steps == 60
    return wrapped


def test_it_is_what_trieste_asks_for(trained: DecoupledVariational) -> None:
    for name in (
        "TrainableProbabilisticModel",
        "SupportsPredictJoint",
        "SupportsPredictY",
        "SupportsGetKernel",
        "SupportsGetMeanFunction",
        "SupportsGetObservationNoise",
        "HasTrajectorySampler",
        "HasReparamSampler",
    ):
        assert isinstance(trained, getattr(interfaces, name)), name
    assert trained.get_observation_noise() is trained.model.likelihood.variance


def test_predictions_are_those_of_the_model_it_wraps(trained: DecoupledVariational) -> None:
    """With any leading dimensions, and from a cache that training brought up to date."""
    x = tf.reshape(_data(24).query_points, [2, 3, 4, 2])
    mean, variance = trained.predict(x)
    joint = trained.predict_joint(x)
    observed = trained.predict_y(x)
    between = trained.covariance_between_points(x, x[0, 0, :3])
    assert (
        mean.shape == [2, 3, 4, 1]
        and joint[1].shape == [2, 3, 1, 4, 4]
        and between.shape == [2, 3, 1, 4, 3]
    )
    for i, j in np.ndindex(2, 3):
        exact = trained.model.predict_f(x[i, j], full_cov=True)
        np.testing.assert_allclose(mean[i, j], exact[0], atol=1e-8)
        np.testing.assert_allclose(variance[i, j, :, 0], np.diag(exact[1][0]), atol=1e-8)
        np.testing.assert_allclose(joint[1][i, j], exact[1], atol=1e-8)
        np.testing.assert_allclose(
            observed[1][i, j], trained.model.predict_y(x[i, j])[1], atol=1e-8
        )
    np.testing.assert_allclose(between[0, 0, 0], joint[1][0, 0, 0, :, :3], atol=1e-8)
    assert trained.sample(x, 5).shape == [2, 3, 5, 4, 1]
    draws = trained.reparam_sampler(7).sample(x[0, :, :1])
    assert draws.shape == [3, 7, 1, 1]


def test_what_was_compiled_sees_the_next_training(trained: DecoupledVariational) -> None:
    wrapped, x = copy.deepcopy(trained), _data().query_points
    compiled = tf.function(wrapped.predict, autograph=False)
    before = compiled(x)[0]
    wrapped.optimize(Dataset(x, ScaledBranin.objective(x) + 1.0))
    assert np.abs(compiled(x)[0] - before).max() > 0.5
    np.testing.assert_allclose(compiled(x)[0], wrapped.model.predict_f(x)[0], atol=1e-8)
    np.testing.assert_allclose(trained.predict(x)[0], before, atol=1e-10)


def test_trajectories_are_draws_from_the_posterior(trained: DecoupledVariational) -> None:
    """Those of `pathwise_samples`, each at points of its own, also where trieste compiles, and new
    ones from every call.
    """
    x = _data(5).query_points
    sampler = DecoupledVariational(trained.model, seed=3).trajectory_sampler()
    trajectory = sampler.get_trajectory()
    own = tf.stack([x, x[::-1]], axis=1)
    expected = gd.pathwise.pathwise_samples(trained.model, 2, seed=np.random.default_rng(3))(x)
    values = tf.function(trajectory)(own)
    np.testing.assert_allclose(values[:, 0], expected[0], atol=1e-9)
    np.testing.assert_allclose(values[::-1, 1], expected[1], atol=1e-9)
    np.testing.assert_array_equal(trajectory(own), trajectory(own))
    assert np.abs(sampler.get_trajectory()(own) - values).max() > 1e-3
    wide = sampler.get_trajectory()(tf.repeat(x[:, None], 2000, axis=1)).numpy()
    error = (wide.mean(1) - trained.predict(x)[0]) / (wide.std(1) / np.sqrt(2000))
    assert np.abs(error).max() < 5.0, "five standard errors, five comparisons"


def test_bad_input_is_refused_and_changes_nothing(trained: DecoupledVariational) -> None:
    good, before = _data(), trained.predict(_data().query_points)[0]
    for X, Y, message in (
        (good.query_points, tf.fill([12, 1], np.nan * tf.ones([], tf.float64)), "Y"),
        (good.query_points[:, :1], good.observations, "X"),
        (good.query_points, tf.tile(good.observations, [1, 2]), "Y"),
    ):
        for learn in (trained.update, trained.optimize):
            with pytest.raises(DataError, match=message):
                learn(Dataset(X, Y))
    np.testing.assert_array_equal(trained.predict(good.query_points)[0], before)
    with pytest.raises(DataError, match="no inducing points"):
        DecoupledVariational(
            gpflow.models.GPR((good.query_points, good.observations), gpflow.kernels.RBF())
        )
    with pytest.raises(UnknownOptionError, match="no argument stepz: it is called steps here"):
        DecoupledVariational(_model(), stepz=3).optimize(good)


@pytest.mark.parametrize(
    "rule, rounds, batch, gap",
    [
        (EfficientGlobalOptimization(), 20, 1, 0.05),
        # explores for longer
        (
            EfficientGlobalOptimization(ParallelContinuousThompsonSampling(), num_query_points=3),
            7,
            3,
            0.7,
        ),
    ],
    ids=["expected improvement", "Thompson sampling"],
)
def test_a_loop_finds_the_minimum_of_branin(
    rule: EfficientGlobalOptimization, rounds: int, batch: int, gap: float
) -> None:
    space, observer = ScaledBranin.search_space, mk_observer(ScaledBranin.objective)
    wrapped = DecoupledVariational(_model(), steps=200)
    loop = trieste.bayesian_optimizer.BayesianOptimizer(observer, space)
    result = loop.optimize(
        rounds, observer(space.sample_sobol(8, skip=1)), wrapped, rule
    ).try_get_final_dataset()
    assert len(result) == 8 + rounds * batch
    best = result.query_points[int(tf.argmin(result.observations[:, 0]))]
    assert float(Branin.objective(best[None])[0, 0]) < 0.397887 + gap
