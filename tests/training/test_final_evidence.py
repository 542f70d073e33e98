"""`result.evidence`: which models have it, its units, and the time that it may take."""

from __future__ import annotations

import sys
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import likelihoods as gl

import gpflow_decoupled as gd
from gpflow_decoupled.diagnostics import final_evidence
from gpflow_decoupled.inducing.variables import as_inducing
from gpflow_decoupled.models import CVIGP, NNGP, BasisGP, Evidence
from gpflow_decoupled.training import Standardized
from tests.reference import evidence_bounds as eb

PLACE = "gpflow_decoupled.diagnostics.trend"
_RNG = np.random.default_rng(0)
N = 40
X = _RNG.uniform(-2.0, 2.0, (N, 1))
Y = np.sin(2.0 * X) + 0.3 * _RNG.normal(size=(N, 1))
QUICK = {"progress": False, "compile": False, "steps": 1}


def _kernel() -> gpflow.kernels.Kernel:
    return gpflow.kernels.Matern32(0.8, 1.3)


def _sparse(likelihood: Any = None, kernel: Any = None) -> BasisGP:
    kernel = kernel or _kernel()
    points = as_inducing(X[:5], "beta", kernel)
    return BasisGP(kernel, likelihood or gl.Gaussian(0.1), gd.bases.CoupledBasis(points))


def _dense(kernel: Any, noise: float, jitter: float = 0.0) -> float:
    K = kernel(X).numpy()
    return eb.evidence(K, noise + jitter * np.diag(K), Y[:, 0])


MODELS = {
    "BasisGP": lambda: _sparse(),
    "CVIGP": lambda: CVIGP((X, Y), _kernel(), gl.Gaussian(0.1)),
    "NNGP": lambda: NNGP((X, Y), _kernel(), gl.Gaussian(0.1), num_neighbours=10),
}


@pytest.mark.filterwarnings("ignore:The mean squared standardised")
@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("name", MODELS)
def test_it_is_the_log_density_at_the_final_parameters(name: str) -> None:
    model = MODELS[name]()
    result = gd.fit(model, *([(X, Y)] if name == "BasisGP" else []), **QUICK)
    noise = float(model.likelihood.variance.numpy())
    expected = _dense(model.kernel, noise, 1e-6 if name == "NNGP" else 0.0)
    assert result.evidence.upper - result.evidence.lower < 1e-6
    assert result.evidence.lower == pytest.approx(expected, rel=1e-8)
    assert f", log evidence {expected:.6g} nats (exact)" in str(result)


@pytest.mark.exhaustive
def test_it_is_in_the_units_of_y() -> None:
    model = Standardized(lambda X, Y: _sparse(), (3.0 * X + 1.0, 100.0 * Y))
    result = model.fit(**QUICK)
    K = model.kernel(3.0 * X + 1.0).numpy()
    y = 100.0 * (Y - Y.mean())[:, 0]
    expected = eb.evidence(K, np.full(N, float(model.likelihood.variance.numpy())), y)
    assert result.evidence.lower == pytest.approx(expected, rel=1e-8)


def _mixed() -> gpflow.kernels.Kernel:
    return gpflow.kernels.LinearCoregionalization([_kernel()], W=np.ones((1, 1)))


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["labels", "mixed", "dataset"])
def test_there_is_none_where_it_cannot_be_had(kind: str) -> None:
    labels = kind == "labels"
    model = _sparse(gl.StudentT() if labels else None, _mixed() if kind == "mixed" else None)
    data: Any = (X, Y)
    if kind == "dataset":
        model.num_data = N
        data = tf.data.Dataset.from_tensor_slices(data).batch(10)
    result = gd.fit(model, data, **QUICK)
    assert result.evidence is None and "log evidence" not in str(result)


@pytest.mark.exhaustive
def test_many_rows_have_an_interval_if_there_is_time(monkeypatch: pytest.MonkeyPatch) -> None:
    model = MODELS["CVIGP"]()
    monkeypatch.setattr(sys.modules[PLACE], "EXACT_ROWS", 10)
    monkeypatch.setattr("gpflow_decoupled.models.evidence.EXACT_ROWS", 10)
    assert final_evidence(model, None, 1e-3) is None
    assert final_evidence(model, None, 1e3, left=-1.0) is None  # the limit of the run is over
    found = final_evidence(model, None, 1e3)
    assert isinstance(found, Evidence) and not found.certain
    exact = _dense(model.kernel, 0.1)
    assert exact - 3.0 < found.lower < exact + 1e-6
    assert exact - 1e-6 < found.upper < exact + 3.0
    assert f"log evidence between {found.lower:.6g} (certified" in str(found)
    assert f"and {found.upper:.6g} (an estimate" in str(found)


def test_an_interrupt_leaves_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> Evidence:
        raise KeyboardInterrupt

    monkeypatch.setattr(BasisGP, "evidence", interrupted)
    assert gd.fit(_sparse(), (X, Y), **QUICK).evidence is None


@pytest.mark.exhaustive
def test_it_is_printed_below_the_progress_line(capsys: pytest.CaptureFixture[str]) -> None:
    result = gd.fit(_sparse(), (X, Y), **{**QUICK, "progress": True})
    assert str(result.evidence) in capsys.readouterr().err
