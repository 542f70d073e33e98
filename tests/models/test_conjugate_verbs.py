"""A full GP with sites answers GPflow's verbs and works with its tools; bad input is refused with a
message.
"""

from __future__ import annotations

import gpflow
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from gpflow import likelihoods as gl
from gpflow.posteriors import PrecomputeCacheType
from numpy.testing import assert_allclose

from gpflow_decoupled.bases import SiteBasis
from gpflow_decoupled.errors import DataError
from gpflow_decoupled.models import CVIGP
from gpflow_decoupled.optimizers import ConjugateComputation
from tests.bounds.registry import matern
from tests.models.builders import LIKELIHOODS
from tests.models.builders import X as INPUTS
from tests.models.conjugate_problems import (
    PROBLEMS,
    X,
    gram,
    mixed,
    posterior_of_latent,
    problem,
    random_sites,
)

XNEW = np.random.default_rng(7).normal(size=(3, 2))
FLAGS = [(cov, output) for cov in (False, True) for output in (False, True)]
problems = pytest.mark.parametrize("name", PROBLEMS)


@pytest.mark.exhaustive
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_verbs(likelihood, rng):
    make, latents, observe = LIKELIHOODS[likelihood]
    Y = observe(rng)
    Y = Y if likelihood == "Softmax" else Y.astype(float)
    model = CVIGP((INPUTS, Y), matern(1.3, 0.8), make(), num_latent_gps=latents)
    random_sites(model)
    sampled = 0.5 if likelihood == "Softmax" else 1e-12  # GPflow's own draws
    elbo = model.elbo()
    assert elbo.shape == () and np.isfinite(elbo)
    assert_allclose(model.training_loss_closure(compile=False)(), -elbo, rtol=sampled)
    mean, variance = model.predict_f(XNEW)
    assert mean.shape == variance.shape == (3, latents) and np.all(variance > 0)
    samples = model.predict_f_samples(XNEW, 4)
    assert samples.shape == (4, 3, latents) and np.all(np.isfinite(samples))
    density = model.predict_log_density((XNEW, Y[:3]))
    assert density.shape == (3,) and np.all(np.isfinite(density))
    if likelihood != "Switched":  # GPflow's own cannot
        y_mean, y_variance = model.predict_y(XNEW)
        assert np.all(np.isfinite(y_mean)) and np.all(y_variance > 0)


@pytest.mark.exhaustive
@pytest.mark.parametrize("full_cov, full_output_cov", FLAGS)
@pytest.mark.parametrize("name", ["heteroscedastic", "Student-t, coregionalised"])
def test_batches_of_inputs_cached_and_fused(name, full_cov, full_output_cov, rng):
    model, batches = problem(name), rng.normal(size=(2, 5, 2))
    flags = {"full_cov": full_cov, "full_output_cov": full_output_cov}
    fused = model.predict_f(batches, **flags)
    for kind in ("tensor", "variable"):
        for left, right in zip(model.posterior(kind).predict_f(batches, **flags), fused):
            assert left.shape == right.shape
            assert_allclose(left, right, rtol=1e-10, atol=1e-12)
    each = [model.predict_f(batch, **flags) for batch in batches]
    for part, together in enumerate(fused):
        assert_allclose(together, np.stack([one[part] for one in each]), rtol=1e-9, atol=1e-11)


@pytest.mark.exhaustive
@problems
def test_covariance_at_the_data_is_that_of_explicit_inverses(name):
    model = problem(name, with_mean=False)
    if isinstance(model.kernel, gpflow.kernels.LinearCoregionalization):
        model.kernel.W.assign(np.eye(3, 2))  # the third output is zero then
    _, cov = model.predict_f(X, full_cov=True)
    for latent in range(model.num_latent_gps):
        assert_allclose(cov[latent], posterior_of_latent(model, latent)[1], rtol=1e-9, atol=1e-10)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "kind", ["tensor", "variable", "nocache", None, *PrecomputeCacheType], ids=str
)
def test_each_kind_of_cache_predicts_the_same(kind):
    model = problem("Poisson, separate")
    posterior = model.posterior(kind)
    expected = model.predict_f(XNEW, full_cov=True)
    verbs = [posterior.fused_predict_f] + (
        [posterior.predict_f] if posterior.cache is not None else []
    )
    for verb in verbs:
        for left, right in zip(verb(XNEW, full_cov=True), expected):
            assert_allclose(left, right, rtol=1e-12)


def test_a_cache_is_as_old_as_its_last_update():
    """Also where the number of negative sites has changed in between."""
    model = problem("Student-t, coregionalised")
    posterior = model.posterior()
    before = posterior.predict_f(XNEW)
    random_sites(model, seed=3, positive=True)
    assert_allclose(posterior.predict_f(XNEW)[0], before[0], rtol=1e-12)
    posterior.update_cache()
    for left, right, old in zip(posterior.predict_f(XNEW), model.predict_f(XNEW), before):
        assert_allclose(left, right, rtol=1e-10)
        assert np.abs(left - old).max() > 1e-3


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["Gaussian", "probit", "heteroscedastic"])
def test_float32(name):
    double = problem(name)
    gpflow.config.set_default_float(np.float32)
    make, kernel, _, outputs = PROBLEMS[name]
    data = tuple(part.numpy().astype(np.float32) for part in double.data)
    mean = gpflow.functions.Linear(double.mean_function.A.numpy(), double.mean_function.b.numpy())
    single = CVIGP(data, kernel(), make(), mean_function=mean)
    random_sites(single)
    for step in range(2):
        values = [single.elbo(), single.elbo_of_sites(), *single.predict_f(XNEW.astype(np.float32))]
        expected = [double.elbo(), double.elbo(), *double.predict_f(XNEW)]
        assert all(value.dtype == tf.float32 for value in values)
        for left, right in zip(values, expected):
            assert_allclose(left, right, rtol=2e-3, atol=2e-3)
        for model in (single, double):
            ConjugateComputation(0.5).minimize(model, step=step)


@pytest.mark.exhaustive
def test_number_of_latents_follows_likelihood_kernel_and_data():
    for name, (_, _, latents, _) in PROBLEMS.items():
        assert problem(name).num_latent_gps == latents == problem(name).basis.num_latent_gps, name
    with pytest.raises(
        DataError, match="num_latent_gps says 1, the likelihood MultiClass says 3; change one"
    ):
        CVIGP((X, np.zeros((len(X), 1))), matern(1.0, 1.0), gl.MultiClass(3), num_latent_gps=1)


COUNTS = np.arange(9.0)[:, None]
BAD = {
    "counts for a Bernoulli": (
        gl.Bernoulli,
        X,
        COUNTS,
        r"Y\[2, 0\] = 2 is outside the support of Bernoulli",
    ),
    "NaN": (
        gl.Poisson,
        X,
        np.where(COUNTS == 4, np.nan, COUNTS),
        r"Y\[4, 0\] is nan; remove or impute the 1 rows",
    ),
    "infinite X": (
        gl.Poisson,
        X + np.where(COUNTS == 4, np.inf, 0),
        COUNTS,
        r"X\[4, 0\] is inf; remove or impute",
    ),
    "rank 1": (gl.Poisson, X, COUNTS[:, 0], r"Y has shape \(9,\); use Y\[:, None\]"),
    "rank 1 X": (gl.Poisson, X[:, 0], COUNTS, r"X has shape \(9,\); use X\[:, None\]"),
    "columns": (
        lambda: gl.MultiClass(3),
        X,
        np.zeros((9, 2)),
        "Y has 2 columns and the model expects 1",
    ),
    "float32": (
        gl.Poisson,
        X.astype(np.float32),
        COUNTS,
        r"X is float32 and the model float64; use X.astype",
    ),
    "lengths": (gl.Poisson, X, COUNTS[:5], "X has 9 rows and Y has 5"),
    "no rows": (gl.Poisson, X[:0], COUNTS[:0], "no rows"),
}


@pytest.mark.parametrize("make, inputs, Y, message", BAD.values(), ids=BAD)
def test_bad_data_are_refused(make, inputs, Y, message):
    with pytest.raises(DataError, match=message):
        CVIGP((inputs, Y), matern(1.0, 1.0), make())


def test_columns_must_be_the_outputs_of_the_kernel():
    with pytest.raises(DataError, match="Y has 2 columns and the model expects 3"):
        CVIGP((X, np.zeros((9, 2)) + COUNTS), mixed(), gl.Gaussian())


@pytest.mark.parametrize("argument", ["nu", "tau"])
def test_site_vectors_are_checked(argument):
    with pytest.raises(
        DataError, match=rf"{argument} has shape \(8, 1\); it must be \[N, L\] = \[9, 1\]"
    ):
        SiteBasis(X, **{argument: np.zeros((8, 1))})
    with pytest.raises(DataError, match=rf"{argument} has shape \(9,\)"):
        SiteBasis(X, **{argument: np.zeros(9)})
    with pytest.raises(DataError, match=f"{argument} has entries that are not finite"):
        SiteBasis(X, **{argument: np.full((9, 1), np.nan)})


def test_points_are_checked():
    with pytest.raises(DataError, match=r"points has shape \(9,\); it must be \[N, D\]"):
        SiteBasis(X[:, 0])
    with pytest.raises(DataError, match="points"):
        SiteBasis(np.full((3, 2), np.nan))


def test_what_conditions_a_step():
    model = problem("Gaussian")
    tau = np.maximum(model.basis.tau.numpy()[:, 0], 0.0)
    (found,) = model.basis.matrices(model.kernel).values()
    assert_allclose(found[0], np.eye(9) + np.sqrt(np.outer(tau, tau)) * gram(model), rtol=1e-11)


def test_a_gap_in_a_data_frame_is_named_by_its_column() -> None:
    frame = pd.DataFrame({"area": [1.0, 2.0, 3.0], "age": [1.0, np.nan, 2.0]})
    Y, message = np.ones((3, 1)), r"X\w*\[1, 1\], in the column 'age', is nan"
    with pytest.raises(DataError, match=message):
        CVIGP((frame, Y), gpflow.kernels.Matern52(), gl.Gaussian())
    model = CVIGP(
        (frame.fillna(0.0), Y * np.array([[1.0], [2.0], [3.0]])),
        gpflow.kernels.Matern52(),
        gl.Gaussian(),
    )
    with pytest.raises(DataError, match=message):
        model.predict_f(frame)
