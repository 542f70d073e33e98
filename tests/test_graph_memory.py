"""A release of TensorFlow that changes what `graph_memory` relies on is noticed at import; nothing
else breaks.

That graphs go with their functions is tested in `test_compilation`.
"""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf

from gpflow_decoupled import compilation as graph_memory
from gpflow_decoupled.compilation import Compiled
from gpflow_decoupled.linalg.cholesky import cholesky


def without_registry(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(graph_memory, "_registry", dict)


def other_closures(patch: pytest.MonkeyPatch) -> None:
    """The gradient no longer refers to its tensors by the names that are looked for."""
    patch.setattr(graph_memory, "_variables_of", lambda function: {"another_name": function})


def without_cache(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(graph_memory, "_cache", dict)


CHANGES = [
    (without_registry, "registry of gradients"),
    (other_closures, "registry of gradients"),
    (without_cache, "cache of TensorFlow Probability's bijectors"),
]


def test_the_installed_versions_are_known_and_nothing_is_left_behind() -> None:
    last, size = graph_memory.last_gradient(), len(graph_memory._registry())
    assert graph_memory.untidied() == []
    assert graph_memory.last_gradient() == last and len(graph_memory._registry()) == size


@pytest.mark.parametrize("change, table", CHANGES, ids=[change.__name__ for change, _ in CHANGES])
def test_a_change_is_noticed(change, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    change(monkeypatch)
    with pytest.warns(RuntimeWarning, match=f"{table}.* stays in memory") as caught:
        graph_memory._warn_of_untidied()
    assert len(caught) == 1 and caught[0].filename == __file__


@pytest.mark.parametrize("change, table", CHANGES[:2], ids=["without_registry", "other_closures"])
def test_functions_compile_without_it(change, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    change(monkeypatch)
    parameter = gpflow.Parameter(2.0, transform=gpflow.utilities.positive())
    root = Compiled(lambda x: tf.reduce_sum(cholesky(parameter * x).chol))
    with tf.GradientTape() as tape:
        value = root(tf.eye(3, dtype=tf.float64))
    assert np.isclose(float(value), 3.0 * np.sqrt(2.0))
    assert np.isfinite(float(tape.gradient(value, parameter.unconstrained_variable)))


def test_gradients_may_be_collected_while_they_are_tidied(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trace inside of another leaves gradients that go whenever the collector runs."""
    registry = {"first": {"type": None}, "second": {"type": None}, "third": {"type": None}}

    def collect(gradient: object) -> None:
        registry.pop("second", None)

    monkeypatch.setattr(graph_memory, "_registry", lambda: registry)
    monkeypatch.setattr(graph_memory, "_graph_of", collect)
    graph_memory.tidy("first")
    assert list(registry) == ["first", "third"]
