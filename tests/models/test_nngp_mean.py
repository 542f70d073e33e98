"""The mean of all rows of a nearest-neighbour GP, `NNGP(..., mean="data")`."""

from __future__ import annotations

from pathlib import Path

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import kernels as gk
from gpflow.likelihoods import Gaussian
from gpflow.posteriors import PrecomputeCacheType
from numpy.testing import assert_allclose

import gpflow_decoupled as gd
from gpflow_decoupled.errors import DataError, NumericalError, UnknownOptionError
from gpflow_decoupled.models import NNGP
from tests.models.test_nngp import (
    FEW,
    KERNELS,
    NOISE,
    XNEW,
    N,
    X,
    Y,
    model,
    observed_covariance,
)
from tests.models.test_nngp_verbs import missing, separate, trend

CLOSE = {"rtol": 1e-2, "atol": 3e-3}
"""The default gap of a thousandth of a nat."""


def exact_mean(kernel: gk.Kernel, Y: np.ndarray, **options: np.ndarray) -> np.ndarray:
    """The mean of one output given all rows where it is observed, [7]."""
    there = ~np.isnan(Y)
    K = observed_covariance(kernel, X[there], **options)
    return kernel(XNEW, X[there]).numpy() @ np.linalg.solve(K, Y[there])


def solved(*args: object, **options: object) -> NNGP:
    """A model of few neighbours, whose mean is solved for to round-off."""
    ours = model(*args, m=FEW, mean="data", **options)
    ours.solve_mean(tolerance=1e-10)
    return ours


@pytest.fixture(params=["points", "neighbours"])
def weak(request, monkeypatch):
    """Few points, or two neighbours, in the preconditioner: all rows would solve at once."""
    place = "gpflow_decoupled.models.neighbours.mean_of_rows"
    monkeypatch.setattr(f"{place}.EXACT_ROWS", 0)
    monkeypatch.setattr(f"{place}._NEIGHBOURS", 2)
    monkeypatch.setattr(f"{place}._MUCH_LEFT", np.inf if request.param == "points" else -1.0)


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("name", ["Matern52", "sum", "Matern12", "linear"])
def test_the_mean_is_the_exact_one_and_the_variance_that_of_neighbours(name, weak):
    kernel = KERNELS[name]()
    ours, near = solved(kernel), model(kernel, FEW)
    mean, variance = ours.predict_f(XNEW)
    assert_allclose(mean[:, 1], exact_mean(kernel, Y[:, 1]), rtol=1e-5, atol=1e-6)
    assert_allclose(variance, near.predict_f(XNEW)[1], rtol=1e-12)
    assert np.abs(mean - near.predict_f(XNEW)[0]).max() > 1e-3


def test_every_verb_has_the_mean_of_all_rows():
    ours, near = solved(mean_function=trend()), model(m=FEW, mean_function=trend())
    prior = trend()
    expected = prior(XNEW) + np.stack(
        [exact_mean(ours.kernel, (Y - prior(X).numpy())[:, p]) for p in (0, 1)], axis=1
    )
    mean, variance = ours.predict_y(XNEW)
    assert_allclose(mean, expected, rtol=1e-5, atol=1e-6)
    assert_allclose(variance, near.predict_y(XNEW)[1], rtol=1e-12)
    density = -0.5 * (np.log(2 * np.pi * variance) + (XNEW - mean) ** 2 / variance)
    assert_allclose(ours.predict_log_density((XNEW, XNEW)), density.numpy().sum(1), rtol=1e-9)
    joint, cov = ours.predict_f(XNEW, full_cov=True)
    assert_allclose(joint, expected, rtol=1e-5, atol=1e-6)
    assert_allclose(cov, near.predict_f(XNEW, full_cov=True)[1], rtol=1e-9, atol=1e-12)
    batched, _ = ours.predict_f(np.stack([XNEW + 1.0, XNEW]))
    assert_allclose(batched[1], expected, rtol=1e-5, atol=1e-6)
    for kind in PrecomputeCacheType:
        posterior = ours.posterior(kind)
        predict = posterior.fused_predict_f if kind.value == "nocache" else posterior.predict_f
        for run in (predict, tf.function(predict, autograph=False)):
            assert_allclose(run(XNEW)[0], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("by_products", [False, True])
def test_leave_one_out_has_the_mean_of_all_other_rows(by_products, monkeypatch):
    """Whatever the neighbours, whose variances it keeps."""
    if by_products:
        monkeypatch.setattr("gpflow_decoupled.models.neighbours.mean_of_rows.EXACT_ROWS", 0)
        monkeypatch.setattr("gpflow_decoupled.models.neighbours.mean_of_rows._ENTRIES", 7 * N)
    values, rows = missing(), np.array([3, 0, 17, 17, 5, 9, 11, 30])
    ours = model(separate(), FEW, Y=values, mean_function=trend())
    ours.solve_mean(tolerance=1e-10)
    found, near = ours.leave_one_out(rows, mean="data"), ours.leave_one_out(rows)
    assert_allclose(found.variance, near.variance, rtol=1e-12)
    prior = trend()(X).numpy()
    for p, kernel in enumerate(ours.kernel.kernels):
        for k, row in enumerate(rows):
            others = ~np.isnan(values[:, p]) & (np.arange(N) != row)
            K = observed_covariance(kernel, X[others])
            solved = np.linalg.solve(K, values[others, p] - prior[others, p])
            mean = prior[row, p] + kernel(X[row : row + 1], X[others]).numpy() @ solved
            exact = {"rtol": 1e-2, "atol": 3e-3} if by_products else {"rtol": 1e-7, "atol": 1e-9}
            assert_allclose(found.mean[k, p], mean[0], **exact)
    assert np.nanmax(np.abs(found.mean - near.mean)) > 0.01


def test_the_mean_of_few_rows_is_exact():
    """Without a word of how well: no gap is left to the default tolerance."""
    ours = model(m=FEW, mean="data")
    assert_allclose(ours.predict_f(XNEW)[0][:, 0], exact_mean(ours.kernel, Y[:, 0]), rtol=1e-9)
    assert ours.solve_mean() == (0.0, 0, True)


def test_separate_kernels_missing_entries_and_known_noise():
    values, kernels = missing(), separate()
    mean, _ = solved(kernels, Y=values).predict_f(XNEW)
    for p, kernel in enumerate(kernels.kernels):
        assert_allclose(mean[:, p], exact_mean(kernel, values[:, p]), rtol=1e-5, atol=1e-6)
    noise = np.linspace(0.01, 1.0, len(X))
    ours = solved(likelihood=Gaussian(noise[:, None]))
    expected = exact_mean(ours.kernel, Y[:, 0], noise=noise)
    assert_allclose(ours.predict_f(XNEW)[0][:, 0], expected, rtol=1e-5, atol=1e-6)
    ours = solved(likelihood=Gaussian(np.array([0.1, 0.4])))
    for p, variance in enumerate((0.1, 0.4)):
        expected = exact_mean(ours.kernel, Y[:, p], noise=np.full(len(X), variance))
        assert_allclose(ours.predict_f(XNEW)[0][:, p], expected, rtol=1e-5, atol=1e-6)


def test_the_mean_is_never_stale():
    ours = solved()
    compiled = tf.function(ours.predict_f, autograph=False)
    before = compiled(XNEW)[0].numpy()
    for change in (
        lambda: ours.kernel.lengthscales.assign([0.3, 0.4]),
        lambda: ours.likelihood.variance.assign(0.5),
    ):
        change()
        assert not ours.mean_is_solved
        with pytest.raises(tf.errors.InvalidArgumentError, match="call solve_mean"):
            compiled(XNEW)
        K = observed_covariance(ours.kernel, noise=ours.likelihood.variance.numpy())
        expected = ours.kernel(XNEW, X).numpy() @ np.linalg.solve(K, Y)
        mean = ours.predict_f(XNEW)[0]  # solves again
        assert_allclose(mean, expected, **CLOSE)
        assert_allclose(compiled(XNEW)[0], mean, rtol=1e-9)  # and compiled functions see it
        assert np.abs(mean - before).max() > 1e-2
    fast = tf.function(ours.mean_coefficients, autograph=False, jit_compile=True)
    assert np.isfinite(fast()).all()
    ours.likelihood.variance.assign(0.6)
    assert np.isnan(fast()).all()  # XLA has no errors
    ours.data = (ours.data[0], -ours.data[1])
    assert not ours.mean_is_solved


def test_new_rows_change_the_mean():
    kernel = KERNELS["Matern52"]()
    ours = NNGP((X[:20], Y[:20]), kernel, Gaussian(NOISE), num_neighbours=FEW, mean="data")
    first = ours.predict_f(XNEW)[0]
    ours.update((X[20:], Y[20:]))
    assert not ours.mean_is_solved
    whole = ours.predict_f(XNEW)[0]
    assert_allclose(whole[:, 0], exact_mean(kernel, Y[:, 0]), **CLOSE)
    assert np.abs(whole - first).max() > 1e-3


@pytest.mark.exhaustive
def test_a_solution_continues_where_it_was_cut_short(weak):
    ours = model(m=FEW, mean="data")
    with pytest.warns(UserWarning, match="cut short after 3 products"):
        short = ours.solve_mean(tolerance=1e-9, max_products=3)
    assert not short.converged and short.gap > 1e-9
    assert ours.mean_is_solved  # as well as was asked for
    rest = ours.solve_mean(tolerance=1e-9)
    assert rest.converged and rest.gap <= 1e-9
    assert ours.solve_mean(tolerance=1e-9).products == 1  # which finds that nothing is left
    late = model(m=FEW, mean="data")
    with pytest.raises(NumericalError, match="more"):
        late.solve_mean(seconds=1e-9)
    assert not late.mean_is_solved


def test_the_gap_is_a_sum_over_systems(weak):
    kernels = separate()
    parts = [model(k, Y=Y[:, [p]], m=FEW, mean="data") for p, k in enumerate(kernels.kernels)]
    with pytest.warns(UserWarning, match="cut short"):
        both = model(kernels, m=FEW, mean="data").solve_mean(tolerance=1e-9, max_products=3)
        alone = [part.solve_mean(tolerance=1e-9, max_products=3) for part in parts]
    assert_allclose(both.gap, sum(one.gap for one in alone), rtol=1e-6)


def test_outputs_that_are_the_prior_mean_take_no_product():
    line = gpflow.functions.Linear(A=[[1.0], [0.0]], b=[0.0])
    ours = model(Y=X[:, :1], m=FEW, mean="data", mean_function=line)
    assert ours.solve_mean() == (0.0, 0, True)
    assert_allclose(ours.predict_f(XNEW)[0], XNEW[:, :1])


@pytest.mark.exhaustive
def test_a_checkpoint_has_the_mean_of_other_data_to_solve_for(tmp_path: Path):
    ours = solved(separate(), Y=missing(), mean_function=trend())
    path = tf.train.Checkpoint(model=ours).save(str(tmp_path / "state"))
    other = model(separate(), FEW, Y=-missing(), mean_function=trend(), mean="data")
    tf.train.Checkpoint(model=other).restore(path)
    flipped = solved(separate(), Y=-missing(), mean_function=trend())
    assert_allclose(other.predict_f(XNEW)[0], flipped.predict_f(XNEW)[0], **CLOSE)


def test_single_precision_and_one_row():
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        kernel = gk.Matern52(variance=1.3, lengthscales=[0.8, 1.5])
        data = X.astype(np.float32), Y.astype(np.float32)
        ours = NNGP(data, kernel, Gaussian(NOISE), num_neighbours=FEW, mean="data")
        mean, _ = ours.predict_f(XNEW.astype(np.float32))
    assert_allclose(mean[:, 0], exact_mean(KERNELS["Matern52"](), Y[:, 0]), rtol=1e-2, atol=1e-2)
    with pytest.warns(UserWarning, match="one observation"):
        one, near = (model(X=X[:1], Y=Y[:1], mean=mean) for mean in ("data", "neighbours"))
    assert_allclose(one.predict_f(XNEW)[0], near.predict_f(XNEW)[0], rtol=1e-6)


def test_bad_settings_are_refused():
    with pytest.raises(UnknownOptionError, match="mean"):
        model(mean="all")
    ours = model(mean="data")
    with pytest.raises(UnknownOptionError, match="mean"):
        ours.leave_one_out([0], mean="all")
    for options in ({"tolerance": 0.0}, {"max_products": 1}, {"seconds": -1.0}):
        with pytest.raises(DataError, match=next(iter(options))):
            ours.solve_mean(**options)


@pytest.mark.exhaustive
def test_it_is_the_mean_of_a_decoupled_model():
    ours = solved()
    points = gd.models.ODVGP(ours.kernel, ours.likelihood, "data", X[::4], num_data=len(X))
    # the noise of ours has the jitter
    gd.optimizers.ConjugateGradients(tolerance=1e-8).run(points, (X, Y[:, :1]))
    assert_allclose(ours.predict_f(XNEW)[0][:, :1], points.predict_f(XNEW)[0], rtol=1e-4, atol=1e-5)
