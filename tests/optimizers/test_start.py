"""Values to start from: those of an exact GP on some rows, never worse than what was there;
refusals change nothing.
"""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import likelihoods as gl
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

import gpflow_decoupled as gd
from gpflow_decoupled.errors import DataError, ModelError, UnknownOptionError
from gpflow_decoupled.training import initialize

N = 150
_RNG = np.random.default_rng(0)
X = _RNG.uniform(size=(N, 2)) * np.array([2000.0, 0.1])
Y = 30.0 * np.sin(X[:, :1] / 300.0) + 3.0 * _RNG.normal(size=(N, 1))
BETA = X[::10]


def parts() -> tuple[gpflow.kernels.Kernel, gl.Gaussian]:
    """A kernel and noise of order one, far from these data."""
    return gpflow.kernels.Matern32(lengthscales=[1.0, 1.0]), gl.Gaussian(1.0)


def svgp() -> gpflow.models.SVGP:
    """A model of them."""
    return gpflow.models.SVGP(*parts(), BETA.copy(), num_data=N)


def log_evidence(kernel: gpflow.kernels.Kernel, noise: float, rows: np.ndarray) -> float:
    """log N(y | 0, K + noise I) by SciPy; Matern-3/2 by its formula."""
    scaled = X[rows] / kernel.lengthscales.numpy()
    r = np.sqrt(3.0) * np.linalg.norm(scaled[:, None] - scaled[None], axis=-1)
    K = float(kernel.variance.numpy()) * (1.0 + r) * np.exp(-r)
    return stats.multivariate_normal(np.zeros(len(rows)), K + noise * np.eye(len(rows))).logpdf(
        Y[rows, 0]
    )


def values(*modules: gpflow.base.Module) -> list[np.ndarray]:
    """All Parameters of the modules."""
    return [one.numpy() for module in modules for one in module.parameters]


@pytest.mark.exhaustive
def test_the_evidence_is_that_of_the_rows_and_its_scales_are_found() -> None:
    kernel, likelihood = parts()
    before = log_evidence(kernel, 1.0, np.arange(N))
    start = initialize(kernel, likelihood, (X, Y))
    noise = float(likelihood.variance.numpy())
    assert_allclose(
        [start.before, start.after], [before, log_evidence(kernel, noise, np.arange(N))], rtol=1e-7
    )
    assert start.rows == N and start.unexplained == 0.0 and "150 rows" in str(start)
    assert 4.0 < noise < 20.0, "that of the data is 9"
    assert 100.0 < kernel.lengthscales.numpy()[0] < 2000.0 and kernel.variance.numpy() > 100.0


@pytest.mark.exhaustive
def test_rows_are_drawn_by_the_seed() -> None:
    found = []
    for seed in (0, 0, 1):
        kernel, likelihood = parts()
        start = initialize(kernel, likelihood, (X.tolist(), Y.tolist()), rows=40, seed=seed)
        assert start.rows == 40
        found.append(np.concatenate([np.ravel(one) for one in values(kernel, likelihood)]))
    assert_array_equal(found[0], found[1])
    assert np.any(found[0] != found[2])


@pytest.mark.exhaustive
def test_what_is_fixed_stays_and_good_values_are_kept() -> None:
    kernel, likelihood = parts()
    initialize(kernel, likelihood, (X, Y))
    good = values(kernel, likelihood)
    gpflow.set_trainable(likelihood, False)
    start = initialize(kernel, likelihood, (X, Y))
    assert (
        start.after >= start.before
    )  # the guess, with lengthscales of another ratio, is worse than these
    assert_array_equal(likelihood.variance.numpy(), good[-1])
    gpflow.set_trainable(kernel, False)
    fixed = values(kernel)
    start = initialize(kernel, likelihood, (X, Y))
    assert start.after == start.before
    assert all(map(np.array_equal, values(kernel), fixed))


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "make",
    [
        lambda: gpflow.kernels.Matern32() + gpflow.kernels.Linear(active_dims=[1]),
        lambda: (
            gpflow.kernels.RBF(active_dims=[0])
            * gpflow.kernels.Periodic(gpflow.kernels.RBF(active_dims=[1]))
        ),
        lambda: gpflow.kernels.Matern12(lengthscales=[1.0], active_dims=[0]),
    ],
    ids=["sum", "product", "one column"],
)
def test_any_single_kernel(make) -> None:
    kernel, likelihood = make(), gl.Gaussian(1.0)
    start = initialize(
        kernel, likelihood, (X, Y), rows=60, mean_function=gpflow.functions.Constant(1.0)
    )
    assert start.after > start.before + 10.0


@pytest.mark.exhaustive
def test_the_noise_takes_what_inducing_points_leave() -> None:
    kernel, likelihood = parts()
    start = initialize(kernel, likelihood, (X, Y), beta=BETA)
    other = parts()
    initialize(*other, (X, Y))
    Kuf, Kuu = kernel(BETA, X).numpy(), kernel(BETA).numpy() + 1e-6 * np.eye(len(BETA))
    left = np.mean(
        kernel(X, full_cov=False).numpy() - np.sum(Kuf * np.linalg.solve(Kuu, Kuf), axis=0)
    )
    assert_allclose(start.unexplained, left, rtol=1e-4)
    assert_allclose(
        likelihood.variance.numpy(), other[1].variance.numpy() + start.unexplained, rtol=1e-10
    )


@pytest.mark.exhaustive
def test_a_noise_variance_in_an_array_is_found() -> None:
    scalar, array = gl.Gaussian(), gl.Gaussian([1.0])
    for likelihood in (scalar, array):
        initialize(gpflow.kernels.Matern52(), likelihood, (X, Y), rows=50)
    assert_allclose(array.variance, [float(scalar.variance.numpy())], rtol=1e-6)


@pytest.mark.exhaustive
def test_fit_starts_from_there() -> None:
    plain, model = svgp(), svgp()
    with pytest.warns(UserWarning, match="standardise"):
        gd.fit(plain, (X, Y), steps=3, compile=False, progress=False)
    result = gd.fit(model, (X, Y), steps=3, compile=False, initialize="auto", progress=False)
    assert (
        result.start.rows == N
        and result.start.unexplained > 0.0
        and result.seconds > result.start.seconds
    )
    assert float(model.elbo((X, Y))) > float(plain.elbo((X, Y))) + 100.0


@pytest.mark.exhaustive
def test_it_is_the_same_each_time() -> None:
    options = {"steps": 5, "compile": False, "initialize": "auto", "progress": False}
    first, second = (gd.fit(svgp(), (X, Y), **options) for _ in range(2))
    assert_array_equal(first.history["elbo"], second.history["elbo"])


@pytest.mark.exhaustive
def test_a_run_that_goes_on_does_not_start_again(tmp_path) -> None:
    options = {
        "initialize": "auto",
        "progress": False,
        "checkpoint": gd.training.Checkpoints(tmp_path, every=3),
    }
    schedule = gd.training.Schedule(anneal=0.0)
    whole = gd.fit(svgp(), (X, Y), steps=6, initialize="auto", schedule=schedule, progress=False)
    first = gd.fit(svgp(), (X, Y), steps=3, schedule=schedule, **options)
    second = gd.fit(svgp(), (X, Y), steps=6, schedule=schedule, **options)
    assert first.start is not None and second.start is None
    assert_array_equal(second.history["elbo"], whole.history["elbo"])


@pytest.mark.exhaustive
def test_a_start_takes_a_tenth_of_the_seconds() -> None:
    result = gd.fit(svgp(), (X, Y), seconds=0.5, initialize="auto", progress=False)
    assert result.start.seconds < result.seconds


BAD = {
    "likelihood": (
        lambda: initialize(parts()[0], gl.Bernoulli(), (X, (Y > 0) * 1.0)),
        ModelError,
        "Bernoulli",
    ),
    "kernel": (
        lambda: initialize(gpflow.kernels.SharedIndependent(parts()[0], 1), parts()[1], (X, Y)),
        ModelError,
        "SharedIndependent",
    ),
    "not a number": (lambda: initialize(*parts(), (X * np.nan, Y)), DataError, "X"),
    "lengths": (lambda: initialize(*parts(), (X, Y[:-1])), DataError, "rows"),
    "no pair": (lambda: initialize(*parts(), X), DataError, "pass"),
    "rows": (lambda: initialize(*parts(), (X, Y), rows=1), DataError, "rows"),
    "seed": (lambda: initialize(*parts(), (X, Y), seed=-1), DataError, "seed"),
    "beta": (
        lambda: initialize(*parts(), (X, Y), beta=BETA[:, :1]),
        DataError,
        "beta has 1 columns and X has 2",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name) -> None:
    call, error, words = BAD[name]
    with pytest.raises(error, match=words):
        call()


def test_fit_refuses_before_anything_is_changed() -> None:
    model = svgp()
    before = values(model)
    with pytest.raises(UnknownOptionError, match="initialize='fast'"):
        gd.fit(model, (X, Y), steps=3, initialize="fast", progress=False)
    classifier = gpflow.models.SVGP(parts()[0], gl.Bernoulli(), BETA)
    with pytest.raises(ModelError, match="Bernoulli"):
        gd.fit(classifier, (X, (Y > 0) * 1.0), steps=3, initialize="auto", progress=False)
    with pytest.raises(DataError, match="needs arrays"):
        dataset = tf.data.Dataset.from_tensor_slices((X, Y)).batch(10)
        gd.fit(model, dataset, steps=3, initialize="auto", progress=False)
    with pytest.raises(UnknownOptionError, match="initialize"):
        gd.fit(gd.models.CVIGP((X, Y), *parts()), steps=3, initialize="auto", progress=False)
    assert all(map(np.array_equal, values(model), before))
