"""Classes by least squares from neighbours, beside a dense computation with NumPy."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose
from scipy import stats
from scipy.special import log_softmax

import gpflow_decoupled as gd
from gpflow_decoupled.errors import DataError, NumericalError
from gpflow_decoupled.likelihoods import CategoricalLogit
from gpflow_decoupled.models import NNGP
from gpflow_decoupled.models.neighbours import LabelNNGP
from gpflow_decoupled.models.neighbours.labels import log_densities_of_labels
from tests.reference import neighbours as ref
from tests.reference.observed import log_predictive

RNG = np.random.default_rng(3)
N, C = 40, 3
X = RNG.normal(size=(N, 2))
Y = np.digitize(np.sin(2.0 * X[:, :1]) + X[:, 1:], [-0.7, 0.7]).astype(float)
XNEW = RNG.normal(size=(6, 2))
A, B, NOISE = 3.0, 5.0, 0.2


def kernel() -> gpflow.kernels.Kernel:
    return gpflow.kernels.Matern52(variance=1.4, lengthscales=[1.0, 1.5])


def model(m: int = 8, **options: object) -> LabelNNGP:
    one = NNGP((X, Y), kernel(), CategoricalLogit(C), num_neighbours=m, **options)
    one.gaussian.likelihood.variance.assign(NOISE)
    one.mean_factor.assign(A)
    one.variance_factor.assign(B)
    return one


def targets(labels: np.ndarray) -> np.ndarray:
    return (np.eye(C)[labels[:, 0].astype(int)] - 1.0 / C) * C / np.sqrt(C - 1)


def of_targets() -> np.ndarray:
    """Covariance of the targets at the rows, with noise and the jitter of the model."""
    return kernel()(X).numpy() + (NOISE + 1.4e-6) * np.eye(N)


def test_targets_of_classes_that_are_as_frequent_have_variance_one():
    even = np.arange(30.0)[:, None] % C
    one = NNGP((X[:30], even), kernel(), CategoricalLogit(C), num_neighbours=3)
    found = one.gaussian.data[1].numpy()
    assert_allclose(found, targets(even), rtol=1e-12)
    assert_allclose((found.mean(), np.mean(found**2)), (0.0, 1.0), atol=1e-12)


def test_predictions_are_dense_least_squares_times_the_factors():
    mean, variance = model(prediction_neighbours=N).predict_f(XNEW)
    weights = np.linalg.solve(of_targets(), kernel()(X, XNEW).numpy())
    assert_allclose(mean, A * weights.T @ targets(Y), rtol=1e-6, atol=1e-8)
    narrow = 1.4 - np.sum(weights * kernel()(X, XNEW).numpy(), axis=0)
    assert_allclose(variance, np.tile(B * narrow[:, None], C), rtol=1e-4)
    joint = model(prediction_neighbours=N).predict_f(XNEW, full_cov=True)[1]
    assert_allclose(tf.linalg.diag_part(joint), np.tile(B * narrow, (C, 1)), rtol=1e-4)


def test_a_row_is_left_out_exactly():
    one, t, K = model(), targets(Y), of_targets()
    rows = np.arange(0, N, 7)
    near = one.neighbours_of(rows)
    found = one.leave_one_out(rows, num_neighbours=8)
    for place, row in enumerate(rows):
        given = near[0, place].numpy()
        assert row not in given
        moments = [ref.conditional(K, t[:, c], row, given) for c in range(C)]
        mean = np.array([one for one, _ in moments])
        deviation = np.sqrt(B * (moments[0][1] - NOISE - 1.4e-6))
        f = A * mean + deviation * RNG.standard_normal((200_000, C))
        label = int(Y[row, 0])
        expected = np.log(np.mean(np.exp(log_softmax(f, axis=1)[:, label])))
        assert_allclose(found.log_density[place], expected, atol=0.02)
    quick = one.left_out_scores(rows, 8)
    assert_allclose(quick, found.log_density, atol=0.4)
    assert_allclose(np.mean(quick), np.mean(found.log_density), atol=0.1)


@pytest.mark.exhaustive
def test_the_objective_is_the_sum_over_rows_and_has_gradients():
    one = model()
    rows = np.arange(N)
    terms = one.log_likelihood(tf.constant(rows, tf.int32), one.neighbours_of(rows))
    assert terms.shape == (N,)
    assert_allclose(one.maximum_log_likelihood_objective(), np.sum(terms), rtol=1e-12)
    variables = one.trainable_variables
    assert len(variables) == 5  # two of the kernel, noise and factors
    with tf.GradientTape() as tape:
        loss = one.training_loss()
    for variable, gradient in zip(variables, tape.gradient(loss, variables)):
        step = np.zeros(variable.shape)
        step.flat[0] = 1e-5
        variable.assign_add(step)
        higher = one.training_loss()
        variable.assign_sub(2.0 * step)
        assert_allclose(np.ravel(gradient)[0], (higher - one.training_loss()) / 2e-5, rtol=1e-3)
        variable.assign_add(step)


@pytest.mark.parametrize("variance", [0.0, 0.3, 1.0, 2.5])
def test_log_densities_of_classes_are_the_exact_ones_up_to_their_draws(variance: float):
    labels = tf.constant(RNG.integers(0, 4, (500, 1)).astype(float))
    inputs, mean = tf.zeros([500, 1], tf.float64), tf.constant(2.0 * RNG.normal(size=(500, 4)))
    moments = mean, variance * tf.ones_like(mean)
    likelihood = CategoricalLogit(4)
    found = log_densities_of_labels(likelihood, (inputs, labels), *moments)
    again = log_densities_of_labels(likelihood, (inputs, labels), *moments)
    np.testing.assert_array_equal(found, again)
    exact = likelihood.predict_log_density(inputs, *moments, labels)
    assert_allclose(np.mean(found), np.mean(exact), atol=1e-9 + 0.03 * variance**0.5)


def test_log_densities_of_counts_are_exact():
    likelihood, counts = gpflow.likelihoods.Poisson(), tf.constant([[0.0], [3.0]], tf.float64)
    moments = tf.constant([[0.3], [-1.0]], tf.float64), tf.ones([2, 1], tf.float64)
    data = tf.zeros([2, 1], tf.float64), counts
    found = log_densities_of_labels(likelihood, data, *moments)
    for k in range(2):
        mean, variance = (float(part[k, 0]) for part in moments)
        density = lambda f, y=float(counts[k, 0]): stats.poisson.logpmf(y, np.exp(f))  # noqa: E731
        expected = log_predictive(density, mean, variance**0.5)
        assert float(found[k]) == pytest.approx(expected, abs=1e-8)


def test_update_is_the_model_of_all_rows():
    one = model(prediction_neighbours=12)
    more = np.array([[0.0], [2.0], [1.0], [1.0], [0.0], [2.0]])
    one.update((XNEW, more))
    whole = NNGP(
        (np.vstack([X, XNEW]), np.vstack([Y, more])), kernel(), CategoricalLogit(C),
        num_neighbours=8, prediction_neighbours=12,
    )  # fmt: skip
    gpflow.utilities.multiple_assign(whole, gpflow.utilities.read_values(one))
    for found, expected in zip(one.predict_y(XNEW + 0.1), whole.predict_y(XNEW + 0.1)):
        assert_allclose(found, expected, rtol=1e-10)
    with pytest.raises(DataError):
        one.update((XNEW, np.full((6, 1), 3.0)))
    assert one.data[0].shape == (N + 6, 2)


@pytest.mark.exhaustive
def test_verbs():
    one = model()
    probability, _ = one.predict_y(XNEW)
    assert_allclose(np.sum(probability, axis=1), np.ones(6))
    for k in range(len(XNEW)):  # whatever the other rows of a call
        assert_allclose(one.predict_y(XNEW[k : k + 1])[0][0], probability[k], rtol=1e-10)
    assert one.predict_f_samples(XNEW, 3).shape == (3, 6, C)
    assert repr(one).startswith("LabelNNGP(Matern52, CategoricalLogit, N=40, num_neighbours=8")


def test_a_mean_of_all_rows_is_the_dense_one():
    one = model(mean="data")
    one.solve_mean(tolerance=1e-10)
    weights = np.linalg.solve(of_targets(), kernel()(X, XNEW).numpy())
    assert_allclose(one.predict_f(XNEW)[0], A * weights.T @ targets(Y), atol=2e-5)


@pytest.mark.exhaustive
def test_single_precision():
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        data = X.astype(np.float32), Y.astype(np.float32)
        one = NNGP(data, kernel(), CategoricalLogit(C), num_neighbours=8)
        found = one.left_out_scores(np.arange(N))
    double = NNGP((X, Y), kernel(), CategoricalLogit(C), num_neighbours=8)
    assert found.dtype == np.float32
    assert_allclose(np.mean(found), np.mean(double.left_out_scores(np.arange(N))), atol=0.1)


@pytest.mark.exhaustive
def test_each_class_may_have_a_kernel():
    """The moments of a class are the ones of a model with its kernel."""
    kernels = [gpflow.kernels.Matern32(lengthscales=1.0 + k) for k in range(C)]
    separate = gpflow.kernels.SeparateIndependent(kernels)
    one = NNGP((X, Y), separate, CategoricalLogit(C), num_neighbours=N, prediction_neighbours=N)
    mean, variance = one.left_out(np.arange(5))
    for c in range(C):
        other = NNGP((X, Y), kernels[c], CategoricalLogit(C), num_neighbours=N)
        alone = other.left_out(np.arange(5))
        assert_allclose(mean[:, c], alone[0][:, c], rtol=1e-8)
        assert_allclose(variance[:, c], alone[1][:, c], rtol=1e-6)


@pytest.mark.exhaustive
@pytest.mark.parametrize("factor", ["mean_factor", "variance_factor"])
def test_a_factor_that_is_not_a_number_is_named(factor: str):
    one = model()
    getattr(one, factor).unconstrained_variable.assign(np.nan)
    verbs = (
        lambda: one.predict_f(XNEW),
        lambda: one.predict_y(XNEW),
        lambda: one.predict_log_density((X, Y)),
        lambda: one.leave_one_out(np.arange(3)),
        lambda: gd.fit(one, steps=1, progress=False, compile=False),
    )
    for verb in verbs:
        with pytest.raises(NumericalError, match=f"is not a number. model.{factor} has entries"):
            verb()


def test_bad_input():
    with pytest.raises(DataError):
        NNGP((X, Y + 1.0), kernel(), CategoricalLogit(C), num_neighbours=3)
    with pytest.raises(DataError, match="spread_neighbours=5 is for Gaussian noise"):
        model(spread_neighbours=5)
