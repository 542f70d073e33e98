"""Known noise of new rows, and offsets in units of Y."""

from __future__ import annotations

import gpflow
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose
from scipy.stats import norm

import gpflow_decoupled as gd
from gpflow_decoupled.errors import DataError, ModelError
from gpflow_decoupled.wrappers.sklearn import DecoupledGPRegressor

RNG = np.random.default_rng(0)
X, XNEW = RNG.uniform(0.0, 10.0, (30, 2)), RNG.uniform(0.0, 10.0, (7, 2))
Y = 100.0 + 20.0 * np.sin(X[:, :1]) + RNG.normal(size=(30, 1))
TWO = np.hstack([Y, 0.01 * Y + RNG.normal(size=Y.shape)])
YNEW = RNG.normal(100.0, 20.0, (7, 2))
KNOWN, NEW = RNG.uniform(0.1, 50.0, 30), RNG.uniform(0.1, 50.0, 7)
QUIET = {"verbose": False}
OPTIONS = {
    "exact": {},
    "exact with noise": {"noise_variance": KNOWN},
    "neighbours": {"num_neighbours": 6},
    "sites of neighbours": {"num_neighbours": 6, "noise_variance": KNOWN},
    "weights": {"sample_weight": KNOWN},
    "ODVGP": {"num_inducing": 5, "num_mean_points": 5, "noise_variance": KNOWN},
    "BasisGP": {"num_inducing": 5, "num_mean_points": 0},
    "unscaled": {"scale": "neither", "noise_variance": KNOWN},
}


def _normal_density(y: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    return np.nansum(norm.logpdf(y, mean, np.sqrt(variance)), axis=1)


@pytest.mark.exhaustive
@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("name", OPTIONS)
def test_it_is_added_in_every_model_of_build(name: str, outputs: int) -> None:
    model = gd.build(X, TWO[:, :outputs], **OPTIONS[name], **QUIET)
    mean, plain = map(np.asarray, model.predict_y(XNEW))
    for given in (NEW, NEW[:, None], np.tile(NEW[:, None], outputs), gpflow.Parameter(NEW)):
        found = model.predict_y(XNEW, noise_variance=given)
        assert_allclose(found[0], mean, rtol=1e-12)
        assert_allclose(found[1], plain + NEW[:, None], rtol=1e-10)
    y = YNEW[:, :outputs].copy()
    y[:3, outputs - 1] = np.nan if outputs == 2 else 90.0
    density = model.predict_log_density((XNEW, y), noise_variance=NEW)
    assert_allclose(density, _normal_density(y, mean, plain + NEW[:, None]), rtol=1e-10)
    if model.numbers is not None and "noise" in model.numbers.names:
        columns = np.tile(NEW[:, None], outputs)
        assert_allclose(density, model.predict_log_density((XNEW, np.hstack([y, columns]))))
        other = np.hstack([y, 0.0 * columns])
        assert_allclose(density, model.predict_log_density((XNEW, other), noise_variance=NEW))
    if outputs == 1:
        none = model.predict_log_density((XNEW, y), noise_variance=np.zeros(7))
        assert_allclose(none, model.predict_log_density((XNEW, y)), rtol=1e-8)


@pytest.mark.exhaustive
def test_it_is_that_of_the_plain_model_in_units() -> None:
    model = gd.build(X, Y, noise_variance=KNOWN, **QUIET)
    learned = model.likelihood.likelihood.variance.numpy()
    K = model.kernel(np.vstack([X, XNEW])).numpy()
    solved = np.linalg.solve(K[:30, :30] + np.diag(KNOWN + learned), K[:30, 30:])
    level = model.outputs.mean.numpy()
    mean = level + solved.T @ (Y - level)
    variance = np.diag(K)[30:] - np.sum(solved * K[:30, 30:], axis=0) + learned + NEW
    gd.optimizers.ConjugateComputation(1.0).run(model.model)
    found = model.predict_y(XNEW, noise_variance=NEW)
    assert_allclose(found[0], mean, rtol=1e-10)
    assert_allclose(found[1][:, 0], variance, rtol=1e-10)


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("option", ["full_cov", "full_output_cov"])
def test_options_that_log_densities_refuse_are_refused_with_it_too(option: str) -> None:
    model = gd.build(X, Y, **QUIET)
    for noise in ({}, {"noise_variance": NEW}):
        with pytest.raises(NotImplementedError, match=f"{option}=True"):
            model.predict_log_density((XNEW, YNEW[:, :1]), **{option: True}, **noise)


@pytest.mark.exhaustive
def test_one_row_does_not_stand_for_all_in_a_function() -> None:
    """Where the number of rows is known when it runs."""
    kernel = gpflow.kernels.Matern52()
    model = gd.Standardized(lambda x, y: gpflow.models.GPR((x, y), kernel), (X, Y))
    signature = [tf.TensorSpec([None, 2], tf.float64)]
    compiled = tf.function(lambda some: model.predict_y(some, noise_variance=NEW)[1], signature)
    assert_allclose(compiled(XNEW), model.predict_y(XNEW, noise_variance=NEW)[1])
    with pytest.raises(tf.errors.InvalidArgumentError, match="different numbers of rows"):
        compiled(XNEW[:1])


def test_several_outputs_have_their_own() -> None:
    both = np.stack([NEW, NEW[::-1] / 9.0], axis=1)
    model = gd.build(X, TWO, noise_variance=KNOWN, **QUIET)
    plain = model.predict_y(XNEW)[1].numpy()
    assert_allclose(model.predict_y(XNEW, noise_variance=both)[1], plain + both, rtol=1e-10)
    batches = np.stack([XNEW, XNEW + 0.1])
    found = model.predict_y(batches, noise_variance=np.stack([both, both]))[1]
    assert_allclose(found[0], plain + both, rtol=1e-10)


def test_rows_with_known_noise_alone_need_it() -> None:
    """A likelihood of the user with a variance for each row adds that of new rows, in units."""

    def make(x: np.ndarray, y: np.ndarray) -> gpflow.models.GPModel:
        noise = gpflow.likelihoods.Gaussian(variance=KNOWN[:, None] / Y.var())
        return gd.models.NNGP((x, y), gpflow.kernels.Matern52(), noise, num_neighbours=29)

    model = gd.Standardized(make, (X, Y))
    with pytest.raises(DataError, match="pass theirs"):
        model.predict_y(XNEW)
    found = model.predict_y(XNEW, noise_variance=NEW)[1].numpy() - NEW[:, None]
    jitter = 1e-6 * Y.var()
    assert_allclose(found, model.predict_f(XNEW)[1].numpy() + jitter, rtol=1e-9)
    density = model.predict_log_density((XNEW, YNEW[:, :1]), noise_variance=NEW)
    moments = map(np.asarray, model.predict_y(XNEW, noise_variance=NEW))
    assert_allclose(density, _normal_density(YNEW[:, :1], *moments), rtol=1e-10)


@pytest.mark.exhaustive
def test_it_may_be_a_column(capsys: pytest.CaptureFixture[str]) -> None:
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "s2": KNOWN, "y": Y[:, 0]})
    model = gd.build(frame, "y", noise_variance="s2")
    assert "known noise where noise_variance= is passed" in capsys.readouterr().out
    new = pd.DataFrame({"s2": NEW, "b": XNEW[:, 1], "a": XNEW[:, 0], "y": YNEW[:, 0]})
    expected = model.predict_y(XNEW, noise_variance=NEW)[1]
    assert_allclose(model.predict_y(new, noise_variance="s2")[1], expected)
    density = model.predict_log_density(new, noise_variance=4.0 * NEW).numpy()
    gaps = new.assign(y=new.y.where(np.arange(7) != 2), v=4.0 * NEW)
    rows = np.arange(7) != 2
    assert_allclose(model.predict_log_density(gaps, noise_variance="v"), density[rows])
    pair = XNEW, YNEW[:, 0]
    assert_allclose(model.predict_log_density(pair, noise_variance=4.0 * NEW), density)


BAD = [
    (NEW[:3], r"noise_variance has shape \(3,\); pass a number per row, \[7\]"),
    (np.ones((7, 3)), r"noise_variance has shape \(7, 3\)"),
    (0.5, r"noise_variance has shape \(\)"),
    (np.where(NEW > NEW.mean(), -1.0, 1.0), "is -1; pass a finite variance, not below 0"),
    (np.where(np.arange(7) == 2, np.nan, 1.0), "noise_variance of row 2 is nan"),
    (np.where(np.arange(7) == 2, np.inf, 1.0), "noise_variance of row 2 is inf"),
    ("s2", "noise_variance='s2' is no column of X; pass numbers"),
    (["a"] * 7, "noise_variance holds"),
]


@pytest.mark.costly(keep=2)
@pytest.mark.parametrize("value, message", BAD)
def test_bad_noise_is_refused(value: object, message: str, monkeypatch) -> None:
    model = gd.build(X, Y, **QUIET)
    estimator = DecoupledGPRegressor(steps=1, fit_options={"compile": False}).fit(X, Y[:, 0])
    for one in (model.model, estimator.model_):  # before any work
        monkeypatch.setattr(one, "predict_f", None)
    asks = [
        lambda: model.predict_y(XNEW, noise_variance=value),
        lambda: model.predict_log_density((XNEW, YNEW[:, :1]), noise_variance=value),
        lambda: estimator.predict(XNEW, return_std=True, noise_variance=value),
        lambda: estimator.predict_quantiles(XNEW, noise_variance=value),
    ]
    for ask in asks:
        with pytest.raises(DataError, match=message):
            ask()


@pytest.mark.exhaustive
@pytest.mark.parametrize("likelihood", ["student_t", "heteroskedastic", "poisson", "bernoulli"])
def test_other_noise_refuses_it(likelihood: str) -> None:
    model = gd.build(X, (Y > 100.0).astype(float), likelihood, **QUIET)
    with pytest.raises(ModelError, match="noise_variance is added to Gaussian noise"):
        model.predict_y(XNEW, noise_variance=NEW)


@pytest.mark.exhaustive
def test_estimators_add_it() -> None:
    options = {"steps": 2, "fit_options": {"compile": False, "progress": False}}
    model = DecoupledGPRegressor(**options).fit(X, Y[:, 0], noise_variance=KNOWN)
    mean, plain = model.predict(XNEW, return_std=True)
    std = model.predict(XNEW, return_std=True, noise_variance=NEW)[1]
    assert_allclose(std, np.sqrt(plain**2 + NEW))
    cov, whole = (
        model.predict(XNEW, return_cov=True, **more)[1] for more in ({}, {"noise_variance": NEW})
    )
    assert_allclose(whole, cov + np.diag(NEW))
    high = model.predict_quantiles(XNEW, (0.9,), noise_variance=NEW)[:, 0]
    assert_allclose(high, norm.ppf(0.9, mean, std))
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "s2": KNOWN})
    named = DecoupledGPRegressor(**options).fit(frame, Y[:, 0], noise_variance="s2")
    new = pd.DataFrame({"a": XNEW[:, 0], "b": XNEW[:, 1], "s2": NEW})
    assert_allclose(named.predict(new, return_std=True, noise_variance="s2")[1], std)


@pytest.mark.exhaustive
@pytest.mark.parametrize("outputs", [1, 2])
def test_offsets_are_in_units(outputs: int) -> None:
    """y = f + offset: the predictions of f, and densities, are those of y less its offset."""
    offset, y = 1000.0 * RNG.normal(size=30), TWO[:, :outputs]
    plain = gd.build(X, y, **QUIET)
    model = gd.build(X, y + offset[:, None], offset=offset, **QUIET)
    for one in (plain, model):
        gd.optimizers.ConjugateComputation(1.0).run(one.model)
    assert_allclose(model.outputs.scale, plain.outputs.scale)
    assert_allclose(model.training_data[1][:, outputs:], np.tile(offset[:, None], outputs))
    assert_allclose(model.elbo(), plain.elbo(), rtol=1e-8)
    for verb in ("predict_f", "predict_y"):
        for found, expected in zip(getattr(model, verb)(XNEW), getattr(plain, verb)(XNEW)):
            assert_allclose(found, expected, rtol=1e-8)
    shift = np.full((7, outputs), 9.0)
    with_offset = np.hstack([YNEW[:, :outputs] + shift, shift])
    for known in (None, NEW):
        assert_allclose(
            model.predict_log_density((XNEW, with_offset), noise_variance=known),
            plain.predict_log_density((XNEW, YNEW[:, :outputs]), noise_variance=known),
            rtol=1e-8,
        )
