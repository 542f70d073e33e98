"""`Standardized` trains on standardised data and answers in the units of the data."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_decoupled as gd
from gpflow_decoupled.errors import DataError, ModelError, UnknownOptionError
from gpflow_decoupled.likelihoods import Laplace
from gpflow_decoupled.training import Evaluation, Schedule, Standardization, held_out_metrics
from tests.training.problems import sine

EAGER = {
    "compile": False,
    "progress": False,
    "natural_gradient": 1.0,
    "learning_rate": 0.15,
    "schedule": Schedule(ramp_steps=0),
}


def _units(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of X in the thousands and Y = 100 sin + 150 with noise of 10."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.0, 10.0, (rows, 1))
    return 1000.0 + 50.0 * x, 150.0 + 100.0 * (np.sin(x) + 0.1 * rng.standard_normal(x.shape))


def _sparse(X: np.ndarray, Y: np.ndarray) -> gpflow.models.SVGP:
    kernel, points = gpflow.kernels.Matern52(), X[:: max(1, len(X) // 20)]
    model = gpflow.models.SVGP(kernel, gpflow.likelihoods.Gaussian(0.1), points)
    gpflow.set_trainable(model.inducing_variable, False)
    return model


def _outputs(X: np.ndarray, Y: np.ndarray) -> gpflow.models.SVGP:
    return gpflow.models.SVGP(
        gpflow.kernels.Matern52(),
        gpflow.likelihoods.Gaussian(0.1),
        X[:8],
        num_latent_gps=Y.shape[1],
    )


def _trained(steps: int) -> gd.Standardized:
    model = gd.Standardized(_sparse, _units(150, 0))
    model.fit(steps=steps, **EAGER)
    return model


@pytest.fixture(scope="module")
def trained() -> gd.Standardized:
    return _trained(15)


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore:The bound still rises")
def test_intervals_cover() -> None:
    X, Y = _units(1000, 1)
    mean, variance = (part.numpy() for part in _trained(100).predict_y(X))
    covered = np.mean(np.abs(Y - mean) < 1.96 * np.sqrt(variance))
    assert 0.90 <= covered <= 0.98
    assert np.std(Y - mean) < 13.0, "the noise is 10"


@pytest.mark.exhaustive
def test_densities_integrate_to_one(trained) -> None:
    X = np.full((2001, 1), 1123.0)
    Y = np.linspace(-400.0, 700.0, 2001)[:, None]
    density = np.exp(trained.predict_log_density((X, Y)).numpy())
    assert density.sum() * (Y[1, 0] - Y[0, 0]) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("outputs", [1, 2])
def test_predictions_are_those_of_a_model_in_the_units_of_the_data(outputs: int) -> None:
    """Hyperparameters scaled by hand, and the optimal q of each."""
    rng = np.random.default_rng(0)
    X = rng.uniform([1e3, -2.0], [3e3, 5.0], (30, 2))
    scales = np.array([40.0, 1e-3])[:outputs]
    Y = 150.0 + scales * np.stack([np.sin(X[:, 0] / 300.0), X[:, 1]], axis=1)[:, :outputs]
    X_new, m, s = X[:4] + [30.0, 0.2], Y.mean(axis=0), Y.std(axis=0)

    def build(X: np.ndarray, Y: np.ndarray) -> gd.models.CVIGP:
        kernel = gpflow.kernels.Matern32(variance=0.7, lengthscales=[0.8, 1.5])
        return gd.models.CVIGP((X, Y), kernel, gpflow.likelihoods.Gaussian(0.05))

    model = gd.Standardized(build, (X, Y))
    gd.optimizers.ConjugateComputation(1.0).run(model.model)
    f, y, density = model.predict_f(X_new), model.predict_y(X_new), 0.0
    covariance = model.predict_f(X_new, full_cov=True)[1]
    crossed = model.predict_f(X_new, full_output_cov=True)[1]
    both = model.predict_f(X_new, full_cov=True, full_output_cov=True)[1]
    elbo = 0.0
    for p in range(outputs):
        kernel = gpflow.kernels.Matern32(
            variance=0.7 * s[p] ** 2, lengthscales=[0.8, 1.5] * X.std(axis=0)
        )
        noise = gpflow.likelihoods.Gaussian(0.05 * s[p] ** 2, variance_lower_bound=1e-12)
        mean = gpflow.functions.Constant(m[p : p + 1])
        exact = gpflow.models.GPR((X, Y[:, p : p + 1]), kernel, mean, likelihood=noise)
        for ours, theirs in ((f, exact.predict_f(X_new)), (y, exact.predict_y(X_new))):
            np.testing.assert_allclose(ours[0][:, p], theirs[0][:, 0], rtol=1e-8)
            np.testing.assert_allclose(ours[1][:, p], theirs[1][:, 0], rtol=1e-8)
        full = exact.predict_f(X_new, full_cov=True)[1].numpy()[0]
        np.testing.assert_allclose(covariance[p], full, rtol=1e-7, atol=1e-10 * s[p] ** 2)
        np.testing.assert_allclose(crossed[:, p, p], np.diag(full), rtol=1e-8)
        np.testing.assert_allclose(both[:, p, :, p], full, rtol=1e-7, atol=1e-10 * s[p] ** 2)
        density += exact.predict_log_density((X_new, Y[:4, p : p + 1])).numpy()
        elbo += float(exact.log_marginal_likelihood())
    np.testing.assert_allclose(model.predict_log_density((X_new, Y[:4])), density, rtol=1e-8)
    assert float(model.elbo()) == pytest.approx(elbo, rel=1e-8)


@pytest.mark.exhaustive
def test_samples_are_in_the_units_of_y(trained) -> None:
    X = _units(3, 2)[0]
    samples = trained.predict_f_samples(X, 4000).numpy()
    mean, cov = (part.numpy() for part in trained.predict_f(X, full_cov=True))
    assert samples.shape == (4000, 3, 1)
    np.testing.assert_allclose(samples.mean(axis=0), mean, atol=5.0 * np.sqrt(cov.max() / 4000))
    np.testing.assert_allclose(np.cov(samples[:, :, 0].T), cov[0], rtol=0.2, atol=0.1 * cov.max())


@pytest.mark.exhaustive
@pytest.mark.parametrize("owns_data", [False, True])
def test_counts_stay_counts(owns_data: bool) -> None:
    X = _units(30, 0)[0]
    counts = np.random.default_rng(0).poisson(5.0, X.shape)
    seen: list[np.ndarray] = []

    def build(X: np.ndarray, Y: np.ndarray) -> gpflow.models.GPModel:
        seen.append(Y)
        parts = (gpflow.kernels.Matern52(), gpflow.likelihoods.Poisson())
        return gd.models.CVIGP((X, Y), *parts) if owns_data else gpflow.models.SVGP(*parts, X[:5])

    model = gd.Standardized(build, (X, counts))
    assert model.outputs is None and len(seen) == 2
    np.testing.assert_array_equal(seen[1], counts)
    model.fit(steps=2, compile=False, progress=False)
    Z = (X - X.mean()) / X.std()
    for ours, inner in zip(model.predict_y(X[:3]), model.model.predict_y(Z[:3])):
        np.testing.assert_allclose(ours, inner)
    data = (X[:3], counts[:3].astype(float))
    np.testing.assert_allclose(
        model.predict_log_density(data),
        model.model.predict_log_density((Z[:3], data[1])),
        rtol=1e-10,
    )
    seen.clear()
    gd.Standardized(build, (X, counts), scale_outputs=False)
    assert len(seen) == 1


@pytest.mark.parametrize(
    "likelihood", [gpflow.likelihoods.StudentT(0.3), Laplace(0.3)], ids=["t", "laplace"]
)
def test_other_noise_has_a_scale_too(likelihood) -> None:
    model = gd.Standardized(
        lambda X, Y: gpflow.models.SVGP(gpflow.kernels.Matern52(), likelihood, X[:5]), _units(20, 0)
    )
    assert model.outputs is not None


@pytest.mark.exhaustive
def test_scores_take_held_out_data_in_their_units(trained) -> None:
    held_out = _units(100, 3)
    model = gpflow.utilities.deepcopy(trained)
    given = model.fit(steps=1, evaluation=held_out, **EAGER).history
    scores = held_out_metrics(model, held_out)
    assert scores["rmse"] == pytest.approx(given["rmse"][-1])
    assert scores["log_density"] == pytest.approx(given["log_density"][-1])
    again = model.fit(
        steps=1, evaluation=Evaluation(held_out, every=1, patience=5), **EAGER
    ).history
    assert held_out_metrics(model, held_out)["rmse"] == pytest.approx(again["rmse"][-1])
    assert model.fit(steps=1, evaluation=Evaluation(patience=5), **EAGER).steps == 1


def test_copies_and_checkpoints(trained, tmp_path) -> None:
    X = _units(5, 4)[0]
    expected = trained.predict_f(X)[0].numpy()
    copy = gpflow.utilities.deepcopy(trained)
    copy.model.kernel.lengthscales.assign(0.1)
    np.testing.assert_array_equal(trained.predict_f(X)[0], expected)
    path = tf.train.Checkpoint(model=trained).write(str(tmp_path / "state"))
    fresh = gd.Standardized(_sparse, _units(150, 9))
    assert not np.allclose(fresh.predict_f(X)[0], expected)
    tf.train.Checkpoint(model=fresh).read(path).assert_consumed()
    np.testing.assert_array_equal(fresh.predict_f(X)[0], expected)


@pytest.mark.exhaustive
def test_predictions_can_be_differentiated_and_compiled(trained) -> None:
    X = tf.constant(_units(3, 5)[0])
    with tf.GradientTape() as tape:
        tape.watch(X)
        mean = tf.function(trained.predict_f, autograph=False)(X)[0]
    slope = tape.gradient(mean, X).numpy()
    high, low = (trained.predict_f(X + step)[0].numpy() for step in (1e-3, -1e-3))
    np.testing.assert_allclose(slope, (high - low) / 2e-3, rtol=1e-4)


@pytest.mark.exhaustive
def test_constant_columns_keep_their_scale() -> None:
    X, Y = _units(20, 0)
    with pytest.warns(UserWarning, match=r"X\[:, 1\] is constant"):
        model = gd.Standardized(_sparse, (np.concatenate([X, np.full_like(X, 7.0)], axis=1), Y))
        model.fit(steps=1, **EAGER)
    np.testing.assert_array_equal(model.inputs.scale.numpy()[1], 1.0)
    with pytest.warns(UserWarning, match=r"Y\[:, 0\] is constant"):
        model = gd.Standardized(_sparse, (X, np.full_like(Y, 7.0)))
        model.fit(steps=1, **EAGER)
    np.testing.assert_allclose(model.predict_y(X[:2])[0], 7.0)
    with pytest.warns(UserWarning, match=r"X\[:, 0\] is 0.3 and differs in its last digits only"):
        almost = Standardization(np.array([[0.1 + 0.2], [0.3]]))
    assert np.all(np.abs(almost.transform([[0.3]])) < 1e-15)


@pytest.mark.parametrize("size", [1e-200, 1e-8, 1e8, 1e200])
def test_any_size(size: float) -> None:
    X = size * np.random.default_rng(0).standard_normal((50, 2)) + size
    scaled = Standardization(X)
    Z = scaled.transform(X).numpy()
    np.testing.assert_allclose(Z.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(Z.std(axis=0), 1.0)
    np.testing.assert_allclose(scaled.inverse_transform(Z), X, rtol=1e-10)


@pytest.mark.exhaustive
def test_float32_keeps_the_digits_of_large_numbers() -> None:
    gpflow.config.set_default_float(np.float32)
    X = 1e8 + np.arange(10.0)[:, None]
    Z = Standardization(X).transform(X).numpy()
    assert Z.dtype == np.float32
    np.testing.assert_allclose(Z[:, 0], (np.arange(10) - 4.5) / np.arange(10).std(), rtol=1e-6)
    model = gd.Standardized(_sparse, (X, 1e6 * X))
    model.fit(steps=1, **EAGER)
    assert model.predict_y(X)[0].dtype == tf.float32


@pytest.mark.parametrize(
    "data, message",
    [
        ((np.ones((1, 1)), np.ones((1, 1))), r"X has 1 row\(s\): no scale"),
        ((np.ones(5), np.ones((5, 1))), r"X has shape \(5,\); use X\[:, None\]"),
        ((np.eye(5), np.arange(4.0)[:, None]), "X has 5 rows and Y has 4"),
        ((np.eye(3), np.array([[1.0], [np.nan], [2.0]])), r"Y\[1, 0\] is nan"),
        ((np.eye(2), np.array([["a"], ["b"]])), "Y holds string values; encode them as numbers"),
        (np.eye(3), "data is a ndarray"),
    ],
)
def test_bad_data_are_refused(data, message: str) -> None:
    with pytest.raises(DataError, match=message):
        gd.Standardized(_sparse, data)


def test_bad_arguments_are_refused(trained) -> None:
    data = _units(20, 0)
    with pytest.raises(ModelError, match="build is a SVGP; pass a function"):
        gd.Standardized(_sparse(*data), data)
    with pytest.raises(ModelError, match="build returned a int"):
        gd.Standardized(lambda X, Y: 3, data)
    with pytest.raises(UnknownOptionError, match="scale_outputs='yes'"):
        gd.Standardized(_sparse, data, scale_outputs="yes")
    parts = (gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian())
    with pytest.raises(DataError, match="are not those that build was handed"):
        gd.Standardized(lambda X, Y: gd.models.CVIGP(data, *parts), data)
    with pytest.raises(DataError, match=r"X has shape \(4, 2\); it must be a matrix of 1 columns"):
        trained.predict_f(np.ones((4, 2)))


@pytest.mark.exhaustive
def test_the_bound_counts_the_rows_that_it_was_trained_on() -> None:
    """Each of them changes its units, and not only those that the model was built from."""
    X, Y = sine(40)
    model = gd.build(X, 5.0 * Y, num_inducing=6, num_mean_points=0, verbose=False)
    data = np.tile(X, (10, 1)), 5.0 * np.tile(Y, (10, 1))
    gd.fit(model, data, steps=3, progress=False, compile=False)
    inside = model.inputs.transform(data[0]), model.outputs.transform(data[1])
    expected = model.model.elbo(inside) - 400 * np.log(model.outputs.scale[0])
    assert float(model.elbo()) == pytest.approx(float(expected), rel=1e-9)


def test_what_is_no_pair_of_data_is_refused() -> None:
    X, Y = sine(40)
    model = gd.build(X, Y, num_inducing=6, num_mean_points=0, verbose=False)
    for score in (
        lambda: model.predict_log_density((X,)),
        lambda: model.fit(evaluation=(X,), progress=False),
    ):
        with pytest.raises(DataError, match=r"pass \(X, Y\)"):
            score()


@pytest.mark.parametrize("held_out, message", [
    (lambda X, Y: (X,), r"pass \(X, Y\)"),
    (lambda X, Y: Evaluation((X, Y, Y)), r"pass \(X, Y\)"),
    (lambda X, Y: (X, Y[None]), r"Y has shape \(1, 40, 1\)"),
    (lambda X, Y: (np.hstack([X, X]), Y), r"X has shape \(40, 2\)"),
])  # fmt: skip
def test_errors_of_held_out_data_say_which_data_are_meant(held_out, message: str) -> None:
    X, Y = sine(40)
    model = gd.Standardized(_sparse, (X, Y))
    with pytest.raises(DataError, match=f"^evaluation: .*{message}"):
        model.fit(evaluation=held_out(X, Y), progress=False)
