"""`fit` of a factor graph: the optimizer's own optimum, steps that are undone, resumed runs, and
failures.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

import gpflow_decoupled as gd
from gpflow_decoupled.distributions.families import Gamma
from gpflow_decoupled.errors import DataError, NumericalError, UnknownOptionError
from gpflow_decoupled.models import Factor, FactorGraph
from gpflow_decoupled.optimizers import MeanFieldCVI
from gpflow_decoupled.training import Checkpoints, Schedule
from tests.optimizers.mean_field import mean_field_problems as problems

X = np.array([0.3, -0.4, 1.9, 0.8, 1.1, 0.2])
GRAPHS = {
    "conjugate": problems.gamma_poisson,
    "two variables": lambda: problems.normal_gamma(X, 0.2, 0.5, 2.0, 1.5),
    "not conjugate": problems.log_normal_rate,
}


def _values(graph: FactorGraph) -> list[np.ndarray]:
    return [part.numpy() for part in tf.nest.flatten(graph.messages)]


@pytest.mark.exhaustive
@pytest.mark.parametrize("compile", [True, False], ids=["compiled", "eager"])
@pytest.mark.parametrize("name", GRAPHS)
def test_it_finds_the_optimum_of_the_optimizer(name: str, compile: bool) -> None:
    graph, alone = GRAPHS[name](), GRAPHS[name]()
    result, found = gd.fit(graph, progress=False, compile=compile), MeanFieldCVI().run(alone)
    assert result.converged and result.reason == "converged" and result.steps < 200
    assert_allclose([result.elbo, float(graph.elbo())], found.elbo, rtol=1e-9)
    assert np.all(np.diff(result.history["elbo"]) >= -1e-9)
    for ours, theirs in zip(_values(graph), _values(alone)):
        assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.exhaustive
def test_steps_are_those_of_the_optimizer() -> None:
    graph, alone = problems.log_normal_rate(), problems.log_normal_rate()
    result = gd.fit(graph, steps=4, natural_gradient=0.4, progress=False, compile=False)
    found = MeanFieldCVI(0.4).run(alone, steps=4, tolerance=0.0)
    assert_allclose(result.history["elbo"], found.history["elbo"], rtol=1e-12)


def _coupled() -> FactorGraph:
    """A graph whose bound the full step lowers at first: the message is far too long."""
    graph = problems.log_normal_rate()
    far = Gamma().natural(50.0, 0.1)
    graph.assign(tf.nest.map_structure(lambda part: 0.0 * part, graph.current()))
    for part, value in zip(graph.messages["prior"]["rate"], far):
        part.assign(value)
    return graph


def test_a_step_that_lowers_the_bound_is_undone(monkeypatch) -> None:
    from gpflow_decoupled.training.stages import full_gps as messages

    graph, move_groups, lengths = problems.log_normal_rate(), messages.move_groups, []

    def overshoots(graph, now, groups, step_size, data, seed):
        lengths.append(float(step_size))
        return move_groups(
            graph, now, groups, (4.0 if len(lengths) == 2 else 1.0) * step_size, data, seed
        )

    monkeypatch.setattr(messages, "move_groups", overshoots)
    result = gd.fit(graph, steps=5, natural_gradient=0.6, progress=False, compile=False)
    assert_allclose(lengths, [0.6, 0.6, 0.3, 0.6, 0.6])
    assert result.shortened_steps == 1
    assert result.history["elbo"][1] == result.history["elbo"][0]
    assert np.all(np.diff(result.history["elbo"]) >= 0.0)


@pytest.mark.exhaustive
def test_steps_stay_in_the_domain() -> None:
    graph = _coupled()
    result = gd.fit(graph, progress=False, compile=False)
    best = MeanFieldCVI().run(problems.log_normal_rate()).elbo
    assert result.shortened_steps > 0 and result.converged
    assert_allclose(result.elbo, best, rtol=1e-8)


@pytest.mark.exhaustive
def test_seeds_and_draws() -> None:
    traces = []
    for seed in (0, 0, 1):
        graph = problems.log_normal_rate(samples=20)
        options = {
            "natural_gradient": 0.3,
            "schedule": Schedule(anneal=0.5),
            "progress": False,
            "compile": False,
        }
        result = gd.fit(graph, steps=20, seed=seed, **options)
        traces.append(result.history["elbo"])
    assert np.array_equal(traces[0], traces[1]) and not np.array_equal(traces[0], traces[2])
    assert result.elbo == pytest.approx(np.mean(traces[2][-20:])), "the bound is an estimate"


@pytest.mark.exhaustive
def test_a_resumed_fit_goes_on_to_the_same_trace(tmp_path) -> None:
    options = {"natural_gradient": 0.5, "progress": False, "compile": False}
    expected = gd.fit(_coupled(), steps=6, **options)
    for steps in (3, 6):
        graph = _coupled()
        result = gd.fit(graph, steps=steps, checkpoint=Checkpoints(tmp_path, every=2), **options)
    assert_allclose(result.history["elbo"], expected.history["elbo"], rtol=1e-12)
    assert result.shortened_steps == expected.shortened_steps
    with pytest.raises(DataError, match="was written with .*and this run has"):
        gd.fit(GRAPHS["two variables"](), checkpoint=tmp_path, **options)


def test_a_converged_fit_that_is_resumed_takes_no_more_steps(tmp_path) -> None:
    options = {"progress": False, "compile": False, "checkpoint": tmp_path}
    expected = gd.fit(problems.gamma_poisson(), **options)
    assert expected.converged
    again = gd.fit(problems.gamma_poisson(), **options)
    assert (again.steps, again.reason, again.converged) == (expected.steps, expected.reason, True)
    assert again.elbo == expected.elbo


@pytest.mark.exhaustive
def test_a_failure_names_the_factor_and_restores_the_messages() -> None:
    improper = Factor("rate", lambda z: tf.reduce_sum(3.0 * z.expectation[1]))
    graph = FactorGraph({"rate": Gamma().belief(1.0, 1.0)}, {"improper": improper})
    with pytest.raises(
        NumericalError, match="^Step .*'improper'.* holds the last good parameters"
    ) as info:
        gd.fit(graph, progress=False, compile=False)
    assert info.value.result.reason == "numerical failure"
    assert np.all(
        np.isfinite(np.concatenate([part.ravel() for part in _values(graph)]))
    ) and np.isfinite(graph.elbo())


def test_what_cannot_be_is_refused_with_the_reason() -> None:
    graph = problems.gamma_poisson()
    before = _values(graph)
    with pytest.raises(
        UnknownOptionError, match="does not use batch_size=2 .* optimizers.MeanFieldCVI.*batch_size"
    ):
        gd.fit(graph, batch_size=2)
    with pytest.raises(
        UnknownOptionError, match="does not use evaluation .* predicts nothing by itself"
    ):
        gd.fit(graph, evaluation=(X, X))
    with pytest.raises(DataError, match="FactorGraph owns its data"):
        gd.fit(graph, (X, X))
    with pytest.raises(DataError, match="natural_gradient=None leaves the messages where they are"):
        gd.fit(graph, natural_gradient=None)
    assert all(np.array_equal(old, new) for old, new in zip(before, _values(graph)))
