"""What a shell or a notebook shows of an object: one line, and never pages of numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import likelihoods as gl

import gpflow_decoupled as gd
from gpflow_decoupled.distributions.families import Gamma
from gpflow_decoupled.errors import DataError, UnknownOptionError
from gpflow_decoupled.models import FactorGraph, prior_factor
from gpflow_decoupled.summaries import described, html_table, one_line, short_repr, short_table

X = np.random.default_rng(0).uniform(-1, 1, size=(20, 2))
Y = np.sin(3.0 * X[:, :1])
BETA, GAMMA = X[:4], X[5:12]


def _kernel() -> gpflow.kernels.Kernel:
    return gpflow.kernels.Matern52() + gpflow.kernels.Linear()


MODELS: dict[str, Any] = {
    "ODVGP(Sum(Matern52, Linear), StudentT, beta=4, gamma=7)": lambda: gd.models.ODVGP(
        _kernel(), gl.StudentT(), GAMMA, BETA
    ),
    'ODVGP(Linear, Gaussian, beta=4, gamma="data")': lambda: gd.models.ODVGP(
        gpflow.kernels.Linear(), gl.Gaussian(), "data", BETA
    ),
    "DVGP(Matern52, Gaussian, alpha=7, beta=4)": lambda: gd.models.DVGP(
        gpflow.kernels.Matern52(), gl.Gaussian(), GAMMA, BETA
    ),
    "SOLVEGP(Matern52, Gaussian, beta=4, gamma=7)": lambda: gd.models.SOLVEGP(
        gpflow.kernels.Matern52(), gl.Gaussian(), GAMMA, BETA
    ),
    "CVIGP(Matern52, Gaussian, N=20)": lambda: gd.models.CVIGP(
        (X, Y), gpflow.kernels.Matern52(), gl.Gaussian()
    ),
    "LCLGP(Matern52, Gaussian, N=20)": lambda: gd.models.LCLGP(
        (X, Y), gpflow.kernels.Matern52(), gl.Gaussian()
    ),
    "DTC(Matern52, Gaussian, N=20)": lambda: gd.models.DTC((X, Y), gpflow.kernels.Matern52(), BETA),
    "Standardized(CVIGP(Matern52, Gaussian, N=20))": lambda: gd.Standardized(
        lambda X, Y: gd.models.CVIGP((X, Y), gpflow.kernels.Matern52(), gl.Gaussian()), (X, Y)
    ),
    "FactorGraph(variables={rate}, factors={prior})": lambda: FactorGraph(
        {"rate": Gamma().belief(1.0, 1.0)},
        {"prior": prior_factor("rate", Gamma().belief(2.0, 0.5))},
    ),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("line", MODELS)
def test_a_model_says_what_it_is(line: str) -> None:
    model = MODELS[line]()
    assert repr(model) == line and len(line) < 300
    assert len(getattr(model, "_repr_html_", str)()) < 6000


MANY = [gpflow.kernels.Matern52() for _ in range(30)]
LARGE: dict[str, Callable[[], Any]] = {
    "a sum of 30 kernels": lambda: gd.models.ODVGP(
        gpflow.kernels.Sum(MANY), gl.Gaussian(), GAMMA, BETA
    ),
    "30 latent functions": lambda: gd.models.ODVGP(
        gpflow.kernels.SeparateIndependent(MANY), gl.Gaussian(), GAMMA, BETA, num_latent_gps=30
    ),
    "GPflow's model inside": lambda: gd.Standardized(
        lambda X, Y: gpflow.models.SVGP(gpflow.kernels.Sum(MANY), gl.Gaussian(), X[:4]), (X, Y)
    ),
    "a posterior": (
        lambda: gd.models.ODVGP(gpflow.kernels.Sum(MANY), gl.Gaussian(), GAMMA, BETA).posterior()
    ),
}


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("name", LARGE)
def test_large_models_are_one_line_too(name: str) -> None:
    thing = LARGE[name]()
    line, table = repr(thing), getattr(thing, "_repr_html_", str)()
    assert (
        "(Matern52, Matern52, " in line
        and len(line) < 300
        and "\n" not in line
        and " at 0x" not in line
    )
    assert len(table) < 6000
    if "_repr_html_" in dir(thing):
        assert (
            table.count("<tr>") == 22
            and " more; " in table
            and table.endswith("</tbody>\n</table>")
        )


def test_a_mean_on_all_data_says_so() -> None:
    model = gd.models.ODVGP(gpflow.kernels.Linear(), gl.Gaussian(), "data", BETA)
    model.basis.data_mean.set_data(X)
    assert repr(model) == 'ODVGP(Linear, Gaussian, beta=4, gamma="data", N=20)'


PARTS: dict[str, Callable[[], Any]] = {
    "BasisPosterior(Matern52, beta=4, gamma=7, precompute_cache=tensor)": (
        lambda: gd.models.ODVGP(gpflow.kernels.Matern52(), gl.Gaussian(), GAMMA, BETA).posterior()
    ),
    "BasisPosterior(Matern52, N=20, precompute_cache=nocache)": (
        lambda: gd.models.CVIGP((X, Y), gpflow.kernels.Matern52(), gl.Gaussian()).posterior(
            precompute_cache=None
        )
    ),
    "PathwiseSamples(Linear, samples=3, beta=4, gamma=7)": lambda: gd.pathwise.pathwise_samples(
        gd.models.ODVGP(gpflow.kernels.Linear(), gl.Gaussian(), GAMMA, BETA), 3
    ),
    "Weights(num_weights=5)": lambda: gd.inducing.Weights(5),
    "Standardization(X, columns=2)": lambda: gd.training.Standardization(X),
    "Standardized(SVGP(Matern52, Gaussian))": lambda: gd.Standardized(
        lambda X, Y: gpflow.models.SVGP(gpflow.kernels.Matern52(), gl.Gaussian(), X[:4]), (X, Y)
    ),
    "Evaluation(data=([20, 2], [20, 1]), every=500, patience=2, restore_best=True)": lambda: (
        gd.training.Evaluation([X, Y], patience=2)
    ),
    "LatentDirichletAllocation(num_topics=2)": lambda: gd.topics.LatentDirichletAllocation(2),
    "LatentDirichletAllocation(seed=1, doc_prior=[10])": lambda: (
        gd.topics.LatentDirichletAllocation(doc_prior=np.ones(10), seed=1)
    ),
    "CorrelatedTopicModel(num_topics=2)": lambda: gd.topics.CorrelatedTopicModel(num_topics=2),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("line", PARTS)
def test_what_belongs_to_a_model_says_what_it_is(line: str) -> None:
    assert repr(PARTS[line]()) == line


def test_a_basis_says_its_sizes() -> None:
    assert (
        repr(gd.bases.OrthogonalBasis(GAMMA, BETA, 2))
        == "OrthogonalBasis(beta=4, gamma=7, latents=2)"
    )


@pytest.mark.exhaustive
def test_results_are_one_line_and_a_table() -> None:
    model = gd.models.CVIGP((X, Y), gpflow.kernels.Matern52(), gl.Gaussian())
    run = gd.optimizers.ConjugateComputation().run(model)
    fit = gd.fit(model, steps=2, progress=False, compile=False)
    assert repr(run) == f"ConjugateResult({run})" and repr(fit) == f"FitResult({fit})"
    for result in (run, fit):
        assert len(repr(result)) < 300
        table = result._repr_html_()
        assert (
            f"<td>{result.elbo:.6g}</td>" in table
            and "{step, seconds, " in table
            and len(table) < 3000
        )
    sparse = gd.models.ODVGP(gpflow.kernels.Matern52(), gl.Gaussian(), GAMMA, BETA, num_data=20)
    best = gd.optimizers.optimal_parameters(sparse, (X, Y))
    assert repr(best).startswith(
        f"Optimum(elbo={float(best.elbo):.6g}, coefficients=[7, 1], gaussians=(([4, 1], [1, 4, 4]))"
    )
    report = gd.optimizers.NaturalGradient().minimize(sparse, (X, Y))
    assert repr(report) == "StepReport(ok=True, shortened=0, clipped=0)"


LONG = {
    name: np.full(5000, 1 / 3)
    for name in ("step", "seconds", "elbo", "gap", "inner_steps", "evaluations", "stage")
}
"""A history that fills pages."""
VALUES = {
    "float": 1 / 3,
    "float | None": 1 / 3,
    "int": 7,
    "int | None": 7,
    "bool": True,
    "str": "no step raised the bound",
}
VALUES |= {"dict[str, np.ndarray]": LONG, "list[float]": [1 / 3] * 5000, "Start | None": None}
VALUES |= {
    "Evidence | None": gd.models.Evidence(-1 / 3, -1 / 3, "exact", "exact", 900, 0),
    "np.ndarray": np.full(5000, 1 / 3),
    "MixturePosterior": gd.optimizers.MixturePosterior(
        None, np.zeros(1), np.zeros((1, 2)), np.eye(2)[None]
    ),
}


def _filled(kind: type) -> Any:
    """An object of a record's class with values of the types of its fields."""
    return kind(**{field.name: VALUES[str(field.type)] for field in dataclasses.fields(kind)})


def _certificate() -> Any:
    values = {**VALUES, "str": "fixed"}
    kind = gd.certificates.PacBayesCertificate
    return kind(**{field.name: values[str(field.type)] for field in dataclasses.fields(kind)})


def _selection() -> Any:
    one = _certificate()
    return gd.certificates.CertifiedSelection((0.5, 1.0), (one, one), (-1 / 3, -1 / 3), (), None)


RESULTS: dict[str, Callable[[], Any]] = {
    "FitResult": lambda: _filled(gd.training.FitResult),
    "ConjugateResult": lambda: _filled(gd.optimizers.ConjugateResult),
    "EvidenceResult": lambda: _filled(gd.optimizers.EvidenceResult),
    "LagrangianResult": lambda: _filled(gd.optimizers.LagrangianResult),
    "AffineResult": lambda: _filled(gd.optimizers.AffineResult),
    "MeanResult": lambda: _filled(gd.optimizers.MeanResult),
    "MixtureResult": lambda: _filled(gd.optimizers.MixtureResult),
    "StepReport": lambda: gd.optimizers.StepReport(
        tf.constant(True), tf.constant(1), tf.constant(0)
    ),
    "Optimum": lambda: gd.optimizers.Optimum(
        tf.constant(1 / 3), tf.zeros([900, 1]), ((tf.zeros([9, 1]), tf.zeros([1, 9, 9])),)
    ),
    "StreamUpdate": lambda: gd.models.StreamUpdate(1 / 3, 3, True, 0, 1 / 3),
    "WeightsPosterior": lambda: gd.models.WeightsPosterior(tf.zeros([90]), tf.zeros([90, 90])),
    "ClassifierErrors": lambda: gd.certificates.ClassifierErrors(1 / 3, 1 / 7),
    "PacBayesCertificate": _certificate,
    "CertifiedSelection": _selection,
    "Start": lambda: gd.training.Start(500, -1 / 3, 1 / 3, 1 / 3, 1 / 3),
}
OPTIMIZERS: dict[str, Callable[[], Any]] = {
    name: getattr(gd.optimizers, name)
    for name in gd.optimizers.__all__
    if hasattr(getattr(gd.optimizers, name), "run")
    or hasattr(getattr(gd.optimizers, name), "minimize")
}


@pytest.mark.parametrize("name", RESULTS)
def test_every_result_is_one_line_and_a_small_table(name: str) -> None:
    result = RESULTS[name]()
    assert type(result).__name__ == name and repr(result).startswith(f"{name}(")
    assert len(repr(result)) < 300 and "\n" not in repr(result)
    table = result._repr_html_()
    assert (
        table.startswith("<table>")
        and len(table) < 3000
        and "0.3333333333" not in table + repr(result)
    )


def test_no_result_is_left_out() -> None:
    public = {
        name
        for module in (gd.optimizers, gd.training, gd.models, gd.certificates)
        for name in module.__all__
        if hasattr(getattr(module, name), "_repr_html_")
        and not issubclass(getattr(module, name), tf.Module)
    }
    named = {
        name
        for module in (gd.optimizers, gd.training)
        for name in module.__all__
        if name.endswith(("Result", "Report", "Choice", "Start"))
    }
    assert public == set(RESULTS) and named <= set(RESULTS)


def _neighbours() -> gd.models.NNGP:
    """A small model for optimizers that belong to one."""
    X = np.linspace(0.0, 1.0, 10)[:, None]
    return gd.models.NNGP((X, np.sin(X)), gpflow.kernels.Matern52(), num_neighbours=2)


def _sites() -> gd.models.NNGP:
    X = np.linspace(0.0, 1.0, 10)[:, None]
    labels = (X > 0.5).astype(float)
    likelihood = gpflow.likelihoods.Bernoulli()
    return gd.models.NNGP((X, labels), gpflow.kernels.Matern52(), likelihood, num_neighbours=2)


def _classes() -> gd.models.NNGP:
    X = np.linspace(0.0, 1.0, 10)[:, None]
    likelihood = gd.likelihoods.CategoricalLogit(2)
    data = X, (X > 0.5).astype(float)
    return gd.models.NNGP(data, gpflow.kernels.Matern52(), likelihood, num_neighbours=2)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_says_its_settings(name: str) -> None:
    assert len(OPTIMIZERS) >= 11
    needed = {
        "ConstraintSubset": lambda: 100,
        "LabelRounds": _classes,
        "NeighbourRounds": _neighbours,
        "SiteRounds": _sites,
        "SiteSweeps": _sites,
    }
    line = repr(OPTIMIZERS[name](*(make() for make in [needed.get(name)] if make is not None)))
    assert (
        line.startswith(f"{name}(")
        and len(line) < 300
        and "\n" not in line
        and " at 0x" not in line
    )
    assert "=" in line


def test_settings_that_are_functions_are_named() -> None:
    def falling(step: int) -> float:
        return 1.0 / (1 + step)

    assert repr(gd.optimizers.ConjugateComputation(falling)).startswith(
        "ConjugateComputation(step_size=falling, "
    )


def test_values() -> None:
    class Thing:
        pass

    assert (
        one_line(Thing(), "word", number=1.23456789, none=None, flag=True)
        == "Thing(word, number=1.23457, none=None, flag=True)"
    )
    assert [
        described(one)
        for one in (np.float32(0.5), tf.constant(3), tf.zeros([2, 3]), [1, 2], {"a": 1}, (1.0, "b"))
    ] == [
        "0.5",
        "3",
        "[2, 3]",
        "2 values",
        "{a}",
        "(1, b)",
    ]
    assert described("x" * 100) == "x" * 57 + "..."
    assert [
        short_repr(one)
        for one in (-1, "a", np.ones(2), np.ones([20, 1]), tf.ones([20, 1]), list(range(100)))
    ] == [
        "-1",
        "'a'",
        "array([1., 1.])",
        "<ndarray of shape (20, 1)>",
        "<EagerTensor of shape (20, 1)>",
        "[0, 1, 2, 3, 4, 5, ...]",
    ]
    assert [short_repr(one) for one in (np.True_, np.float64(0.5), np.int64(2))] == [
        "True",
        "0.5",
        "2",
    ]
    assert (
        len(one_line(Thing(), "w" * 500, **{f"v{number}": "x" * 60 for number in range(20)})) < 300
    )
    rows = [f"<tr><td>{number}   </td><td>value</td></tr>\n" for number in range(30)]
    assert (
        short_table(f"<table>\n{''.join(rows[:20])}</table>")
        == f"<table>\n{''.join(rows[:20])}</table>"
    )
    shortened = short_table(f"<table>\n{''.join(rows)}</table>")
    assert (
        shortened.count("<tr>") == 21 and "<td>19</td>" in shortened and "... 10 more" in shortened
    )
    assert shortened.endswith("</td></tr>\n</table>")
    assert html_table("title", dict.fromkeys(map(str, range(500)), 1.0)).count("<tr>") == 21
    assert "&lt;b&gt;" in html_table("title", {"name": "<b>"})
    seen: list[str] = []
    tf.function(lambda x: seen.append(described(x)))(tf.constant(1.0))
    assert seen == ["not known yet"]


MANY_NUMBERS = np.arange(500.0)[:, None]
REFUSED: dict[str, Callable[[], Any]] = {
    "fraction": lambda: gd.certificates.split_for_certificate((X, Y), MANY_NUMBERS),
    "steps": lambda: gd.fit(gd.models.CVIGP((X, Y), _kernel(), gl.Gaussian()), steps=MANY_NUMBERS),
    "step_size": (
        lambda: gd.optimizers.ConjugateComputation(MANY_NUMBERS).run(
            gd.models.CVIGP((X, Y), _kernel(), gl.Gaussian())
        )
    ),
    "an option": lambda: gd.inducing.select(X, 3, method=MANY_NUMBERS),
    "num_weights": lambda: gd.inducing.Weights(MANY_NUMBERS),
    "a prior": (
        lambda: gd.topics.LatentDirichletAllocation(500, doc_prior=-MANY_NUMBERS[:, 0]).fit(
            np.ones([4, 3])
        )
    ),
    "bin_edges": lambda: gd.likelihoods.Ordinal(MANY_NUMBERS),
    "num_topics": lambda: gd.topics.LatentDirichletAllocation(MANY_NUMBERS).fit(np.ones([4, 3])),
    "a tensor": lambda: gd.training.Evaluation((X, Y), every=tf.constant(MANY_NUMBERS)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_no_message_prints_an_array(name: str) -> None:
    with pytest.raises(
        (DataError, UnknownOptionError), match=r" of shape \(500,( 1)?\)>"
    ) as caught:
        REFUSED[name]()
    assert len(str(caught.value)) < 400 and "0." not in str(caught.value).replace("0.5", "")
