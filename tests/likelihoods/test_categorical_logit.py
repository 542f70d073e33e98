"""The softmax likelihood without sampling: its bound, its gradients, its predictions, and training
with it.
"""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose
from scipy.special import log_softmax, softmax
from scipy.stats import qmc

import gpflow_decoupled as gd
from gpflow_decoupled.errors import DataError
from gpflow_decoupled.expectations.softmax import best_tilt, tilted_bound
from gpflow_decoupled.likelihoods import BernoulliLogit, CategoricalLogit
from tests.reference import likelihoods as ref

Array = np.ndarray


def _moments(C: int, rows: int, variance: float, seed: int = 0) -> tuple[Array, Array]:
    """Means and variances [rows, C] of about one size; the first row has equal ones."""
    rng = np.random.default_rng(seed)
    mean = np.sqrt(1.0 + variance) * rng.normal(size=(rows, C))
    mean[0] = 0.3
    spread = 10.0 ** rng.uniform(-0.5, 0.5, size=(rows, C))
    spread[0] = 1.0
    return mean, variance * spread


def _call(
    method: str, mean: Array, variance: Array, Y: Array | None = None
) -> Array | tuple[Array, Array]:
    arguments = (np.zeros((len(mean), 1)), mean, variance) + (() if Y is None else (Y,))
    found = getattr(CategoricalLogit(mean.shape[1]), method)(*arguments)
    return found.numpy() if Y is not None else tuple(part.numpy() for part in found)


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("variance", [1e-6, 0.1, 1.0, 4.0, 25.0])
@pytest.mark.parametrize("C", [2, 3])
def test_the_expectation_is_a_lower_bound_and_the_best_of_its_kind(C: int, variance: float) -> None:
    """Below the integral by little, and equal to the bound of the paper at the a of a general
    minimiser.
    """
    mean, var = _moments(C, 6, variance)
    Y = np.arange(6.0)[:, None] % C
    found = _call("variational_expectations", mean, var, Y)
    for row, (m, v, y) in enumerate(zip(mean, var, Y[:, 0].astype(int))):
        exact = m[y] - ref.softmax_integrals(m, v, order=200 if C == 2 else 50)[0]
        assert found[row] <= exact + 1e-4 * variance**2
        assert found[row] >= exact - 0.5 * variance
        assert_allclose(found[row], m[y] - ref.tilted_bound(m, v), rtol=1e-6, atol=1e-7)


def test_two_classes_are_below_the_exact_logit() -> None:
    """C = 2 depends on f_1 - f_0 alone, whose expectation under `BernoulliLogit` is exact."""
    for variance in (0.5, 3.0, 40.0, 1e4):
        mean, var = _moments(2, 30, variance, seed=1)
        Y = np.arange(30.0)[:, None] % 2
        difference, total = mean[:, 1:] - mean[:, :1], var.sum(axis=1, keepdims=True)
        exact = BernoulliLogit().variational_expectations(np.zeros((30, 1)), difference, total, Y)
        assert np.all(_call("variational_expectations", mean, var, Y) <= exact + 1e-9 * variance)


@pytest.mark.exhaustive
@pytest.mark.parametrize("C", [2, 4, 26])
@pytest.mark.parametrize("dtype, accuracy", [(np.float64, 1e-9), (np.float32, 1e-5)])
def test_the_tilt_is_right_at_every_variance(C: int, dtype: type, accuracy: float) -> None:
    """a = softmax(t) from variances of 1e-9 to 1e6, by what is left of the bound; and no row
    oscillates or overflows.
    """
    rng = np.random.default_rng(C)
    for size in (1e-9, 1e-2, 1.0, 1e2, 1e4, 1e6):
        mean = (10.0 ** rng.uniform(-2, 3, size=(200, 1)) * rng.normal(size=(200, C))).astype(dtype)
        var = (size * 10.0 ** rng.uniform(-1, 1, size=(200, C))).astype(dtype)
        a = best_tilt(tf.constant(mean), tf.constant(var)).numpy()
        assert a.dtype == dtype and np.all(np.isfinite(a)) and np.all(a >= 0.0)
        assert_allclose(a.sum(axis=1), 1.0, rtol=1e-5)
        bound = tilted_bound(tf.constant(mean), tf.constant(var)).numpy()
        # log a + v a - m - v / 2 is the same number A in a row, wherever a is not nothing
        A = mean + 0.5 * var - var * a - np.log(np.maximum(a, 1e-30))
        scale = np.abs(mean).max(axis=1, keepdims=True) + var + 1.0
        largest = a.argmax(axis=1)[:, None]
        middle = np.take_along_axis(A, largest, axis=1)
        # a sums to one within its accuracy, which moves the largest a by as much
        scale = 10.0 * scale + np.take_along_axis(a * var, largest, axis=1)
        assert np.all(np.isfinite(bound)) and np.all(
            np.abs(A - middle)[a > 1e-6] <= (accuracy * scale + 1e-8)[a > 1e-6]
        )


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("C", [2, 3, 10])
def test_gradients_in_variance_are_never_positive(C: int) -> None:
    """So that sites have precisions of at least 0; and gradients are those of the numbers that are
    returned.
    """
    likelihood, Y = CategoricalLogit(C), np.arange(40.0)[:, None] % C
    for variance in (0.0, 1e-6, 0.5, 10.0, 1e4):
        mean, var = map(tf.constant, _moments(C, 40, variance, seed=2))
        with tf.GradientTape() as tape:
            tape.watch([mean, var])
            value = likelihood.variational_expectations(np.zeros((40, 1)), mean, var, Y)
        g, h = (part.numpy() for part in tape.gradient(value, [mean, var]))
        assert np.all(h <= 0.0) and np.all(np.isfinite(g))
        assert_allclose(g.sum(axis=1), 0.0, atol=1e-9)
        if not variance or variance > 100.0:
            continue
        for which, gradient in ((0, g), (1, h)):
            step = 1e-4 * variance
            moved = [np.stack([m.numpy() for m in (mean, var)]) for _ in range(2)]
            moved[0][which, :, 0] -= step
            moved[1][which, :, 0] += step
            low, high = (_call("variational_expectations", *pair, Y) for pair in moved)
            assert_allclose((high - low) / (2.0 * step), gradient[:, 0], atol=1e-4)


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("C, variance", [(2, 4.0), (3, 1.0), (5, 10.0), (26, 1.0)])
def test_predictions(C: int, variance: float) -> None:
    mean, var = _moments(C, 8, variance, seed=3)
    uniform = np.clip(qmc.Sobol(C, seed=7).random(2**14), 1e-12, 1.0 - 1e-12)
    z = ref.norm.ppf(uniform)
    exact = np.stack([softmax(m + np.sqrt(v) * z, axis=1).mean(axis=0) for m, v in zip(mean, var)])
    p, spread = _call("predict_mean_and_var", mean, var)
    assert_allclose(p, exact, atol=2e-3 if variance < 5.0 else 6e-3)
    assert_allclose(p.sum(axis=1), 1.0, rtol=1e-14)
    assert_allclose(spread, p * (1.0 - p))
    for y in range(C):
        assert_allclose(
            np.exp(_call("predict_log_density", mean, var, np.full((8, 1), float(y)))),
            p[:, y],
            rtol=1e-12,
        )
    assert np.array_equal(p, _call("predict_mean_and_var", mean, var)[0]), "the same in every call"


def test_predictions_far_out_are_finite() -> None:
    mean, var = (
        np.array([[0.0, 900.0, -900.0]] * 3),
        np.array([[0.0] * 3, [1.0] * 3, [1e4, 1e-4, 1.0]]),
    )
    for y in range(3):
        density = _call("predict_log_density", mean, var, np.full((3, 1), float(y)))
        assert np.all(np.isfinite(density)) and np.all(density <= 0.0)
    mean = np.array([[0.2, -1.0, 0.5]])
    assert_allclose(
        _call("predict_mean_and_var", mean, np.zeros((1, 3)))[0], softmax(mean, axis=1), rtol=1e-12
    )


def test_density_and_conditional_moments_broadcast() -> None:
    F, Y = np.random.default_rng(4).normal(size=(2, 5, 3)), np.array([[0], [2], [1], [1], [0]])
    likelihood, X = CategoricalLogit(3), np.zeros((5, 1))
    expected = np.take_along_axis(log_softmax(F, axis=-1), np.stack([Y, Y]), axis=-1)[..., 0]
    for labels in (Y, Y.astype(float)):
        assert_allclose(likelihood.log_prob(X, F, labels), expected, rtol=1e-12)
    p = softmax(F, axis=-1)
    assert_allclose(likelihood.conditional_mean(X, F), p, rtol=1e-12)
    assert_allclose(likelihood.conditional_variance(X, F), p * (1.0 - p), rtol=1e-12)
    both = likelihood.variational_expectations(X, F, np.ones_like(F), np.stack([Y, Y]))
    assert_allclose(
        both[1], likelihood.variational_expectations(X, F[1], np.ones((5, 3)), Y), rtol=1e-12
    )


@pytest.mark.parametrize("number", [1, 0, -3, 2.5, "3", True])
def test_numbers_of_classes_that_are_none(number: object) -> None:
    with pytest.raises(
        DataError, match=r"num_classes=.*: pass the number of classes, a whole number from 2"
    ):
        CategoricalLogit(number)


def _classes(N: int = 60) -> tuple[Array, Array]:
    """Three classes in stripes, the labels of a few rows wrong."""
    rng = np.random.default_rng(5)
    X = rng.uniform(-3.0, 3.0, size=(N, 2))
    Y = np.digitize(X[:, 0] + 0.2 * rng.normal(size=N), [-1.0, 1.0])
    return X, Y[:, None].astype(float)


def _model(name: str, X: Array) -> gpflow.models.GPModel:
    kernel, likelihood = (
        gpflow.kernels.SquaredExponential(variance=4.0, lengthscales=1.5),
        CategoricalLogit(3),
    )
    if name == "coupled":
        return gd.models.SparseCVIGP(kernel, likelihood, X[:12], num_data=len(X))
    if name == "svgp":
        return gpflow.models.SVGP(kernel, likelihood, X[:12], num_latent_gps=3, num_data=len(X))
    if name == "full":
        return gd.models.CVIGP((X, _classes()[1]), kernel, likelihood)
    gamma = "data" if name == "data" else X[12:24]
    return gd.models.ODVGP(kernel, likelihood, gamma, X[:12], num_data=len(X))


CHOICES = {
    "coupled": {"natural_gradient": 0.5},
    "coupled, sites": {"natural_gradient": 0.5, "hold": "sites"},
    "orthogonal": {"natural_gradient": 0.5},
    "orthogonal, solver": {"natural_gradient": 0.5, "mean_solver": "natural"},
    "orthogonal, Adam": {"natural_gradient": None},
    "data": {},
    "svgp": {"natural_gradient": 0.5},
    "full": {},
}


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("name", ["coupled", "orthogonal"])
def test_natural_gradients_are_never_shortened(name: str) -> None:
    X, Y = _classes()
    model, bounds = _model(name, X), []
    for _ in range(4):
        bounds.append(float(model.elbo((X, Y))))
        report = gd.optimizers.NaturalGradient(0.5).minimize(model, (X, Y))
        assert report.ok and report.shortened == 0 and report.clipped == 0
    assert np.all(np.diff(bounds) > 0.0)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", CHOICES)
def test_fit(name: str) -> None:
    """With natural gradients, sites and a mean on all data, no site is clipped, and the classes are
    learned.
    """
    X, Y = _classes()
    model = _model(name.split(",")[0], X)
    own = name == "full"
    result = gd.fit(model, None if own else (X, Y), steps=40, progress=False, **CHOICES[name])
    assert np.all(np.isfinite(result.history["elbo"])) and result.clipped_sites == 0
    p = model.predict_y(X)[0].numpy()
    assert np.mean(np.argmax(p, axis=1) == Y[:, 0]) > 0.8
    density = model.predict_log_density((X, Y)).numpy()
    assert -density.mean() < 0.6 < np.log(3.0)


def test_the_elbo_is_below_the_evidence() -> None:
    """Of three observations, whose evidence is an average over draws of the prior."""
    X, Y = np.array([[0.0], [0.4], [2.0]]), np.array([[0.0], [0.0], [2.0]])
    kernel = gpflow.kernels.SquaredExponential(variance=2.0)
    model = gd.models.CVIGP((X, Y), kernel, CategoricalLogit(3))
    found = gd.optimizers.ConjugateComputation().run(model).elbo
    root = np.linalg.cholesky(kernel(X).numpy() + 1e-9 * np.eye(3))
    f = np.einsum("ij,sjc->sic", root, np.random.default_rng(6).normal(size=(200_000, 3, 3)))
    joint = np.take_along_axis(log_softmax(f, axis=2), Y.astype(int)[None], axis=2).sum(axis=(1, 2))
    evidence = np.log(np.mean(np.exp(joint)))
    assert evidence - 0.5 < found < evidence + 0.01


def test_single_precision() -> None:
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32, jitter=1e-4)):
        X, Y = (part.astype(np.float32) for part in _classes())
        model = _model("coupled", X)
        assert model.elbo((X, Y)).dtype == tf.float32
        gd.optimizers.NaturalGradient(0.5).minimize(model, (X, Y))
        assert np.isfinite(model.elbo((X, Y))) and model.predict_y(X)[0].dtype == tf.float32


def test_labels_that_are_no_class_are_refused() -> None:
    X, Y = _classes()
    model = _model("coupled", X)
    for bad, words in (
        (3.0, "= 3 is outside"),
        (0.5, "= 0.5 is outside"),
        (-1.0, "= -1 is outside"),
    ):
        labels = Y.copy()
        labels[7] = bad
        with pytest.raises(
            DataError,
            match=rf"Y\[7, 0\] {words} the support of CategoricalLogit, which takes whole",
        ):
            gd.fit(model, (X, labels), steps=1, progress=False)
    with pytest.raises(DataError, match="Y has 3 columns and the model expects 1"):
        gd.fit(model, (X, np.eye(3)[Y[:, 0].astype(int)]), steps=1, progress=False)


@pytest.mark.parametrize("label", [5.0, -1.0, 0.5, np.nan])
def test_labels_that_do_not_exist_have_no_density(label):
    """They had a probability of one."""
    X, F, V = (tf.zeros([2, size], tf.float64) for size in (1, 3, 3))
    Y = tf.constant([[1.0], [label]], tf.float64)
    likelihood = CategoricalLogit(3)
    for values in (
        likelihood.log_prob(X, F, Y),
        likelihood.variational_expectations(X, F, V + 1.0, Y),
        likelihood.predict_log_density(X, F, V + 1.0, Y),
    ):
        assert np.array_equal(np.isfinite(values), [True, False])
