"""What a shell or a notebook shows of an object: one line, and never pages of numbers."""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import likelihoods as gl

import gpflow_decoupled as gd
from gpflow_decoupled.distributions.families import Gamma
from gpflow_decoupled.models import FactorGraph, prior_factor
from gpflow_decoupled.summaries import described, html_table, one_line

X = np.random.default_rng(0).uniform(-1, 1, size=(20, 2))
Y = np.sin(3.0 * X[:, :1])
BETA, GAMMA = X[:4], X[5:12]


def _kernel() -> gpflow.kernels.Kernel:
    return gpflow.kernels.Matern52() + gpflow.kernels.Linear()


MODELS: dict[str, Any] = {
    "ODVGP(Sum(Matern52, Linear), StudentT, beta=4, gamma=7)": lambda: gd.models.ODVGP(
        _kernel(), gl.StudentT(), GAMMA, BETA
    ),
    "ODVGP(Linear, Gaussian, beta=4, gamma=0)": lambda: gd.models.ODVGP(
        gpflow.kernels.Linear(), gl.Gaussian(), "data", BETA
    ),
    "DVGP(Matern52, Gaussian, alpha=7, beta=4)": lambda: gd.models.DVGP(
        gpflow.kernels.Matern52(), gl.Gaussian(), GAMMA, BETA
    ),
    "SOLVEGP(Matern52, Gaussian, beta=4, gamma=7)": lambda: gd.models.SOLVEGP(
        gpflow.kernels.Matern52(), gl.Gaussian(), GAMMA, BETA
    ),
    "CVIGP(Matern52, Gaussian, N=20)": lambda: gd.models.CVIGP((X, Y), gpflow.kernels.Matern52(), gl.Gaussian()),
    "LCLGP(Matern52, Gaussian, N=20)": lambda: gd.models.LCLGP((X, Y), gpflow.kernels.Matern52(), gl.Gaussian()),
    "DTC(Matern52, Gaussian, N=20)": lambda: gd.models.DTC((X, Y), gpflow.kernels.Matern52(), BETA),
    "Standardized(CVIGP(Matern52, Gaussian, N=20))": lambda: gd.Standardized(
        lambda X, Y: gd.models.CVIGP((X, Y), gpflow.kernels.Matern52(), gl.Gaussian()), (X, Y)
    ),
    "FactorGraph(variables={rate}, factors={prior})": lambda: FactorGraph(
        {"rate": Gamma().belief(1.0, 1.0)}, {"prior": prior_factor("rate", Gamma().belief(2.0, 0.5))}
    ),
}


@pytest.mark.parametrize("line", MODELS)
def test_a_model_says_what_it_is(line: str) -> None:
    assert repr(MODELS[line]()) == line


def test_a_basis_says_its_sizes() -> None:
    assert repr(gd.bases.OrthogonalBasis(GAMMA, BETA, 2)) == "OrthogonalBasis(beta=4, gamma=7, latents=2)"


def test_results_are_one_line_and_a_table() -> None:
    model = gd.models.CVIGP((X, Y), gpflow.kernels.Matern52(), gl.Gaussian())
    run = gd.optimizers.ConjugateComputation().run(model)
    fit = gd.fit(model, steps=2, progress=False, compile=False)
    assert repr(run) == f"ConjugateResult({run})" and repr(fit) == f"FitResult({fit})"
    for result in (run, fit):
        assert len(repr(result)) < 300
        table = result._repr_html_()
        assert f"<td>{result.elbo:.6g}</td>" in table and "{step, seconds, " in table and len(table) < 3000
    sparse = gd.models.ODVGP(gpflow.kernels.Matern52(), gl.Gaussian(), GAMMA, BETA, num_data=20)
    best = gd.optimizers.optimal_parameters(sparse, (X, Y))
    assert repr(best).startswith(
        f"Optimum(elbo={float(best.elbo):.6g}, coefficients=[7, 1], gaussians=(([4, 1], [1, 4, 4]))"
    )
    report = gd.optimizers.NaturalGradient().minimize(sparse, (X, Y))
    assert repr(report) == "StepReport(ok=True, shortened=0, clipped=0)"


def test_values() -> None:
    class Thing:
        pass

    assert one_line(Thing(), "word", number=1.23456789, none=None, flag=True) == (
        "Thing(word, number=1.23457, none=None, flag=True)"
    )
    assert [described(one) for one in (np.float32(0.5), tf.constant(3), tf.zeros([2, 3]), [1, 2], {"a": 1}, (1.0, "b"))] == [
        "0.5", "3", "[2, 3]", "2 values", "{a}", "(1, b)",
    ]  # fmt: skip
    assert described("x" * 100) == "x" * 57 + "..."
    assert "&lt;b&gt;" in html_table("title", {"name": "<b>"})
    seen: list[str] = []
    tf.function(lambda x: seen.append(described(x)))(tf.constant(1.0))
    assert seen == ["not known yet"]
