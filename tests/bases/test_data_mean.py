"""A mean on all data in the orthogonal basis: bound and predictions at any coefficients, copies,
export, and refusals.
"""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import likelihoods as gl
from gpflow.inducing_variables import InducingPoints, SeparateIndependentInducingVariables
from gpflow.kernels import LinearCoregionalization, SeparateIndependent, SharedIndependent
from numpy.testing import assert_allclose, assert_array_equal

import gpflow_decoupled as gd
from gpflow_decoupled.bases import CoupledBasis, OrthogonalBasis
from gpflow_decoupled.errors import DataError, ModelError, UnknownOptionError
from gpflow_decoupled.models import DVGP, HDVGP, ODVGP, SOLVEGP, BasisGP
from gpflow_decoupled.optimizers import NaturalGradient, collapsed_elbo, optimal_parameters, sweep
from tests.bounds.registry import matern, numpy_kernel
from tests.optimizers.problems import JITTER, NOISE, TREND, randomize
from tests.reference import collapsed as col
from tests.reference import data_mean as dm
from tests.reference import decoupled as ref
from tests.reference import grams as gr

Array = np.ndarray
POINTS = 2.0 * np.random.default_rng(3).uniform(-1, 1, size=(21, 2))
BETA, X, NEW = POINTS[:4], np.vstack([POINTS[4:15], POINTS[4:5]]), POINTS[15:]
"""One row of X repeats another, and one point of beta is a row of X in `_model`."""
Y = np.random.default_rng(1).normal(size=(len(X), 2)) + X[:, :1]
PARTS = {
    "one": (lambda: matern(1.3, 0.8), 1),
    "two latents": (lambda: matern(1.3, 0.8), 2),
    "shared": (lambda: SharedIndependent(matern(1.3, 0.8), 2), 2),
    "separate": (lambda: SeparateIndependent([matern(1.3, 0.8), matern(0.6, 1.4)]), 2),
}


def _model(
    kernel: Any = None, latents: int = 1, beta: Any = None, likelihood: Any = None, **options: Any
) -> ODVGP:
    beta = np.vstack([BETA, X[2:3]]) if beta is None else beta
    kernel = matern(1.3, 0.8) if kernel is None else kernel
    likelihood = gl.Gaussian(NOISE) if likelihood is None else likelihood
    options = {"mean_function": TREND, "num_data": len(X), "num_latent_gps": latents, **options}
    return ODVGP(kernel, likelihood, "data", beta, **options)


def _moved(model: ODVGP, seed: int = 2) -> ODVGP:
    """With the data set, at random parameters."""
    model.basis.data_mean.set_data(X)
    randomize(model.basis.q_mu, model.basis.q_sqrt, seed)
    model.basis.a_gamma.assign(np.random.default_rng(seed).normal(size=model.basis.a_gamma.shape))
    return model


@pytest.fixture(scope="module")
def solved() -> ODVGP:
    """At random parameters; read only."""
    return _moved(_model())


def _reference(model: ODVGP, latent: int, inputs: Array) -> ref.Process:
    """q(f) of one latent at inputs, from the definition of the family."""
    one = model.kernel.kernel if isinstance(model.kernel, SharedIndependent) else model.kernel
    beta = np.vstack([BETA, X[2:3]])
    k = gr.build_grams(numpy_kernel(one, latent), inputs, beta, X, gpflow.config.default_jitter())
    root = k.chol @ model.basis.q_sqrt.numpy()[latent]
    a, m = model.basis.a_gamma.numpy()[:, latent], k.chol @ model.basis.q_mu.numpy()[:, latent]
    return ref.orthogonal(k, a, m, root @ root.T)


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("name", PARTS)
def test_bound_and_predictions_are_those_of_the_family_at_any_coefficients(name: str) -> None:
    gpflow.config.set_default_jitter(JITTER)
    make, latents = PARTS[name]
    model = _moved(_model(make(), latents))
    mean, variance = model.predict_f(NEW)
    _, covariance = model.predict_f(NEW, full_cov=True)
    bound = 0.0
    for latent in range(latents):
        q = _reference(model, latent, NEW)
        assert_allclose(mean[:, latent], q.mean + TREND(NEW)[:, 0], rtol=1e-9, atol=1e-10)
        assert_allclose(variance[:, latent], np.diag(q.cov), rtol=1e-9)
        assert_allclose(covariance[latent], q.cov, rtol=1e-9, atol=1e-10)
        bound += col.gaussian_elbo(
            _reference(model, latent, X), Y[:, latent] - TREND(X).numpy()[:, 0], NOISE
        )
    assert_allclose(model.elbo((X, Y[:, :latents])), bound, rtol=1e-9)


def test_bound_and_predictions_where_outputs_are_mixed_or_points_are_separate() -> None:
    """Against the orthogonal basis whose mean points are the rows, apart from the ones that
    repeat.
    """
    distinct = X[:-1]
    points = [POINTS[:5], np.vstack([POINTS[1:5], X[2:3] + 0.3])]
    W = np.random.default_rng(0).normal(size=(2, 2))
    kernels = [
        matern(1.3, 0.8),
        gpflow.kernels.Matern52(active_dims=[1]) + gpflow.kernels.Linear(active_dims=[0]),
    ]
    beta = SeparateIndependentInducingVariables([InducingPoints(one - 1e-2) for one in points])
    gamma = SeparateIndependentInducingVariables([InducingPoints(distinct) for _ in points])
    kernel, likelihood = LinearCoregionalization(kernels, W), gl.Gaussian(NOISE)
    ours = ODVGP(kernel, likelihood, "data", beta, num_data=11)
    basis = OrthogonalBasis(
        gamma, beta, 2, mean_scaling="none", q_mu=ours.basis.q_mu, q_sqrt=ours.basis.q_sqrt
    )
    theirs = BasisGP(kernel, likelihood, basis, num_data=11)
    ours.basis.data_mean.set_data(distinct)
    randomize(ours.basis.q_mu, ours.basis.q_sqrt)
    for part in (ours.basis, theirs.basis):
        part.a_gamma.assign(np.random.default_rng(4).normal(size=(11, 2)))
    theirs.basis.q_mu.assign(ours.basis.q_mu)
    theirs.basis.q_sqrt.assign(ours.basis.q_sqrt)
    assert_allclose(ours.elbo((distinct, Y[:11])), theirs.elbo((distinct, Y[:11])), rtol=1e-10)
    for left, right in zip(
        ours.predict_f(NEW, full_output_cov=True), theirs.predict_f(NEW, full_output_cov=True)
    ):
        assert_allclose(left, right, rtol=1e-9, atol=1e-10)


@pytest.mark.exhaustive
def test_equal_rows_count_by_the_sum_of_their_coefficients(solved: ODVGP) -> None:
    moved = copy.deepcopy(solved)
    a = solved.basis.a_gamma.numpy()
    assert_array_equal(X[0], X[-1])
    a[0], a[-1] = a[0] + a[-1], 0.0
    moved.basis.a_gamma.assign(a)
    assert_allclose(moved.predict_f(NEW)[0], solved.predict_f(NEW)[0], rtol=1e-12)
    assert_allclose(moved.prior_kl(), solved.prior_kl(), rtol=1e-12)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["one", "separate"])
def test_it_is_the_coupled_model_before_it_has_data(name: str) -> None:
    make, latents = PARTS[name]
    model = _model(make(), latents)
    randomize(model.basis.q_mu, model.basis.q_sqrt)
    basis = model.basis.without_mean_points()
    assert type(basis) is CoupledBasis and basis.q_mu is model.basis.q_mu
    coupled = BasisGP(model.kernel, model.likelihood, basis, mean_function=TREND, num_data=len(X))
    data = X, Y[:, :latents]
    for _ in range(2):  # and with data, as long as the coefficients are zero
        assert_allclose(model.elbo(data), coupled.elbo(data), rtol=1e-12)
        for left, right in zip(
            model.predict_f(NEW, full_cov=True), coupled.predict_f(NEW, full_cov=True)
        ):
            assert_allclose(left, right, rtol=1e-12, atol=1e-14)
        model.basis.data_mean.set_data(X)


def test_coefficients_stay_only_where_the_data_are_the_same(solved: ODVGP) -> None:
    model = copy.deepcopy(solved)
    mean = model.basis.data_mean
    before = model.basis.a_gamma.numpy()
    mean.set_data(X.copy())
    assert_array_equal(model.basis.a_gamma, before)
    mean.set_data(X[:-1])
    assert model.basis.a_gamma.shape == (11, 1) and not np.any(model.basis.a_gamma)
    assert mean.has_data(X[:-1]) and not mean.has_data(X)
    assert not any(parameter.trainable for parameter in mean.parameters)


# --- copies and export


@pytest.mark.exhaustive
def test_a_checkpoint_restores_into_a_model_that_has_the_data(
    solved: ODVGP, tmp_path: Path
) -> None:
    path = tf.train.Checkpoint(model=solved).write(str(tmp_path / "model"))
    other = _model()
    other.basis.data_mean.set_data(X)
    tf.train.Checkpoint(model=other).read(path).assert_consumed()
    assert_array_equal(other.elbo((X, Y[:, :1])), solved.elbo((X, Y[:, :1])))
    with pytest.raises(
        ValueError, match=r"shape \(12, 1\) .* shape \(0, 1\)"
    ):  # TensorFlow's: it has no data
        tf.train.Checkpoint(model=_model()).read(path).expect_partial()


class _Server(tf.Module):
    """What a user would export."""

    def __init__(self, posterior: Any) -> None:
        super().__init__()
        self.posterior = posterior

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float64)], autograph=False)
    def predict(self, inputs: tf.Tensor) -> tuple:
        """Mean and variance."""
        return self.posterior.predict_f(inputs)


_LOAD = """
import sys, numpy as np, tensorflow as tf
loaded = tf.saved_model.load(sys.argv[1])
np.save(sys.argv[1] + "/found.npy", np.stack(loaded.predict(tf.constant(np.load(sys.argv[1] + "/new.npy")))))
assert "gpflow" not in sys.modules
"""  # noqa: E501


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore")  # of TensorFlow's own exporter
def test_predictions_are_exported_to_a_process_without_this_package(
    solved: ODVGP, tmp_path: Path
) -> None:
    tf.saved_model.save(_Server(solved.posterior("variable")), str(tmp_path))
    np.save(tmp_path / "new.npy", NEW)
    subprocess.run([sys.executable, "-c", _LOAD, str(tmp_path)], check=True, timeout=120)
    for left, right in zip(np.load(tmp_path / "found.npy"), solved.predict_f(NEW)):
        assert_allclose(left, right, rtol=1e-10)


@pytest.mark.exhaustive
def test_pathwise_samples_have_the_moments_of_the_model(rng: np.random.Generator) -> None:
    """The features of a linear kernel are exact, and 4000 draws leave an error of 1.6 % of a
    deviation in the mean.
    """
    kernel = gpflow.kernels.Linear(variance=[0.7, 1.3]) + gpflow.kernels.Constant(0.5)
    model = _moved(_model(kernel, beta=BETA[:3]))
    draws = gd.pathwise.pathwise_samples(model, 4000, seed=0)(NEW).numpy()[..., 0]
    mean, covariance = (moment.numpy() for moment in model.predict_f(NEW, full_cov=True))
    deviation = np.sqrt(np.diag(covariance[0]))
    assert np.abs((draws.mean(0) - mean[:, 0]) / deviation).max() < 0.08  # five standard errors
    scaled = (np.cov(draws.T) - covariance[0]) / np.outer(deviation, deviation)
    assert np.abs(scaled).max() < 0.12


@pytest.mark.exhaustive
def test_single_precision(rng: np.random.Generator) -> None:
    reference = _moved(_model())
    gpflow.config.set_default_float(np.float32)
    parts = gpflow.kernels.Matern32(variance=1.3, lengthscales=0.8), gl.Gaussian(NOISE)
    trend = gpflow.functions.Linear(
        TREND.A.numpy().astype(np.float32), TREND.b.numpy().astype(np.float32)
    )
    model = ODVGP(
        *parts,
        "data",
        reference.basis.beta.Z.numpy().astype(np.float32),
        mean_function=trend,
        num_data=12,
    )
    model.basis.data_mean.set_data(X.astype(np.float32))
    for name in ("q_mu", "q_sqrt", "a_gamma"):
        getattr(model.basis, name).assign(getattr(reference.basis, name).numpy().astype(np.float32))
    data = X.astype(np.float32), Y[:, :1].astype(np.float32)
    assert model.elbo(data).dtype == tf.float32
    assert_allclose(model.elbo(data), reference.elbo((X, Y[:, :1])), rtol=1e-4)
    assert_allclose(
        model.predict_f(NEW.astype(np.float32))[0], reference.predict_f(NEW)[0], atol=1e-4
    )


# --- what moves q(u) at given coefficients, and what is refused


@pytest.mark.exhaustive
def test_natural_gradient_and_sweep_find_the_best_q_of_u_at_given_coefficients() -> None:
    """They leave the coefficients alone; the bound is then (D31) at these."""
    gpflow.config.set_default_jitter(JITTER)
    data = X, Y[:, :1]
    k = gr.build_grams(numpy_kernel(matern(1.3, 0.8), 0), X, np.vstack([BETA, X[2:3]]), X, JITTER)
    for update in (
        lambda model: NaturalGradient().minimize(model, data),
        lambda model: sweep(model, data),
    ):
        model = _moved(_model())
        a = model.basis.a_gamma.numpy()
        update(model)
        assert_array_equal(model.basis.a_gamma, a)
        expected = dm.bound(k.K_x, k.Q_x, Y[:, 0] - TREND(X).numpy()[:, 0], NOISE, a[:, 0])
        assert_allclose(model.elbo(data), expected, rtol=1e-9)


REFUSED = {
    "another word": (
        lambda k, g: ODVGP(k, g, "dota", BETA),
        UnknownOptionError,
        "gamma='dota' is not known",
    ),
    "beta": (lambda k, g: ODVGP(k, g, "data", "data"), DataError, "beta='data': pass points"),
    "HDVGP": (lambda k, g: HDVGP(k, g, "data", BETA), DataError, 'gamma="data" of ODVGP'),
    "DVGP": (lambda k, g: DVGP(k, g, "data", BETA), DataError, 'gamma="data" of ODVGP'),
    "SOLVEGP": (lambda k, g: SOLVEGP(k, g, "data", BETA), DataError, 'gamma="data" of ODVGP'),
    "weights": (
        lambda k, g: ODVGP(gpflow.kernels.Linear(), g, "data", gd.inducing.Weights(2)),
        DataError,
        "needs a beta of inducing points, and Weights is none.*inducing.select",
    ),
    "subsample": (
        lambda k, g: ODVGP(k, g, "data", BETA, mean_subsample=3),
        DataError,
        "mean_subsample=3.*leave",
    ),
    "scaling": (
        lambda k, g: ODVGP(k, g, "data", BETA, mean_scaling="x"),
        UnknownOptionError,
        "mean_scaling='x'",
    ),
}


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("build, error, message", REFUSED.values(), ids=REFUSED)
def test_models_that_cannot_have_it_are_refused(build: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        build(matern(1.3, 0.8), gl.Gaussian(NOISE))


_NATURAL = (
    r'mean="\w+" of NaturalGradient stores .* optimizers.ConjugateGradients\(\).run\(model, data'
)
_CLOSED = r"MeanOnDataBasis has no closed-form optimum: train the model with fit\(model, data\)"
STORED = {
    "newton": (lambda *args: NaturalGradient(mean="newton").minimize(*args), _NATURAL),
    "natural": (lambda *args: NaturalGradient(mean="natural").minimize(*args), _NATURAL),
    "optimum": (optimal_parameters, _CLOSED),
    "collapsed": (collapsed_elbo, _CLOSED),
}


@pytest.mark.parametrize("method, message", STORED.values(), ids=STORED)
def test_methods_that_store_the_matrix_of_the_mean_points_are_refused(
    solved: ODVGP, method: Any, message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        method(solved, (X, Y[:, :1]))
