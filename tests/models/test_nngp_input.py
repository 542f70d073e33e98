"""Bad input of a nearest-neighbour GP works, or is refused with a fix."""

from __future__ import annotations

import warnings
from typing import Any

import gpflow
import numpy as np
import pytest
from gpflow import kernels as gk
from gpflow import likelihoods as gl
from numpy.testing import assert_allclose

from gpflow_decoupled.errors import DataError
from gpflow_decoupled.models import NNGP
from tests.models.test_nngp import FEW, XNEW, N, X, Y, model


def with_nan(array: np.ndarray, place: Any) -> np.ndarray:
    array = array.copy()
    array[place] = np.nan
    return array


mixing = gk.LinearCoregionalization([gk.Matern12(), gk.Matern32()], W=np.ones((2, 2)))
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "mixing": ({"kernel": mixing}, "SeparateIndependent"),
    "NaN in X": ({"X": with_nan(X, (3, 1))}, r"X\[3, 1\] is nan"),
    "infinite Y": ({"Y": np.where(Y == Y[2, 1], np.inf, Y)}, r"Y\[2, 1\] is inf"),
    "an output that is missing": ({"Y": with_nan(Y, (slice(None), 1))}, r"Y\[:, 1\] is NaN"),
    "a row that is missing": ({"Y": with_nan(Y, 4)}, r"Y\[4\] is NaN in all columns"),
    "no rows": ({"X": X[:0], "Y": Y[:0]}, "no rows"),
    "rank 1": ({"Y": Y[:, 0]}, r"use Y\[:, None\]"),
    "rows": ({"Y": Y[:-1]}, "same observations"),
    "no neighbours": ({"m": 0}, "num_neighbours=0"),
    "half a neighbour": ({"m": 2.5}, "num_neighbours=2.5"),
    "columns of the kernel": ({"kernel": gk.Matern12(lengthscales=np.ones(3))}, "3 lengthscales"),
    "noise of other rows": ({"likelihood": gl.Gaussian(np.ones((N - 1, 1)))}, "39 noise variances"),
    "noise of other outputs": ({"likelihood": gl.Gaussian(np.ones(3))}, "for 3 outputs"),
    "mean function": ({"mean_function": gpflow.functions.Linear(np.ones((3, 2)))}, "mean_function"),
}


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    options, message = REFUSED[name]
    with pytest.raises(DataError, match=message):
        model(**options)


def test_bad_rows_and_inputs_are_refused():
    ours = model(m=FEW)
    for rows in ([N], [-1], [0.5], [[0]]):
        with pytest.raises(DataError, match="whole numbers from 0 to 39"):
            ours.leave_one_out(rows)
    for count in (0, 2.5):
        with pytest.raises(DataError, match=f"num_neighbours={count}"):
            ours.leave_one_out([0], num_neighbours=count)
    with pytest.raises(DataError, match="3 columns"):
        ours.predict_f(np.zeros((2, 3)))
    data, loss = ours.data, float(ours.training_loss())
    with pytest.raises(DataError, match="nan"):
        ours.update((with_nan(XNEW, 0), XNEW))
    assert ours.data is data and float(ours.training_loss()) == loss


def test_union_that_is_too_large_is_refused(monkeypatch):
    monkeypatch.setattr("gpflow_decoupled.models.neighbours.posterior._JOINT_ROWS", 10)
    ours = model(m=FEW)
    with pytest.raises(DataError, match="pass fewer inputs at a time"):
        ours.predict_f(XNEW, full_cov=True)
    ours.predict_f(XNEW)


def test_no_inputs_give_no_predictions():
    mean, variance = model(m=FEW).predict_f(XNEW[:0])
    assert mean.shape == variance.shape == (0, 2)


@pytest.mark.exhaustive
@pytest.mark.parametrize("m", [1, N - 1, 10 * N])
def test_any_number_of_neighbours(m):
    ours = model(m=m)
    assert np.all(np.isfinite(ours.training_loss()))
    assert np.all(ours.predict_f(XNEW)[1] > 0.0)
    assert np.all(np.isfinite(ours.leave_one_out().log_density))


def test_one_row():
    with pytest.warns(UserWarning, match="one observation"):
        ours = model(m=5, X=X[:1], Y=Y[:1])
    exact = gpflow.models.GPR((X[:1], Y[:1]), gk.Matern52(1.3, [0.8, 1.5]), noise_variance=0.05)
    assert_allclose(ours.training_loss(), -exact.maximum_log_likelihood_objective(), rtol=1e-4)
    assert_allclose(ours.predict_f(XNEW)[0], exact.predict_f(XNEW)[0], rtol=1e-4)
    assert_allclose(ours.leave_one_out().variance, 1.35, rtol=1e-4)


DEGENERATE = {
    "duplicated rows": np.repeat(X[:4], 10, axis=0),
    "discrete": np.round(X),
    "constant column": np.stack([X[:, 0], np.ones(N)], axis=1),
    "far from the origin": X + 1e6,
}


@pytest.mark.costly(keep=2)
@pytest.mark.parametrize("kernel", [gk.Matern12, gk.SquaredExponential])
@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_inputs_work(name, kernel):
    inputs = DEGENERATE[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        ours = model(kernel(), FEW, X=inputs, likelihood=gl.Gaussian(1.1e-6))
        loss, left_out = ours.training_loss(), ours.leave_one_out()
    assert np.isfinite(loss) and np.all(np.isfinite(left_out.log_density))
    mean, variance = ours.predict_f(inputs[:5])
    assert np.all(np.isfinite(mean)) and np.all(variance >= 0.0)


def test_data_frames_lists_and_default_noise():
    ours = NNGP((X.tolist(), Y.tolist()), gk.Matern52(), num_neighbours=FEW)
    assert isinstance(ours.likelihood, gl.Gaussian)
    assert ours.predict_f(XNEW.tolist())[0].shape == (7, 2)
