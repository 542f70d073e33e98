"""Ctrl-C before the first step ends a run as it does later; a refused checkpoint leaves no mark on
the model.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import gpflow_decoupled as gd
from gpflow_decoupled.errors import DataError
from gpflow_decoupled.training.stages.minibatches import Minibatches
from tests.training.problems import orthogonal, sine, unchanged, values


@pytest.mark.exhaustive
@pytest.mark.parametrize("resumed", [False, True])
def test_an_interrupt_while_tracing_ends_the_run_with_a_result(
    resumed: bool, monkeypatch, tmp_path: Path
) -> None:
    options = {"progress": False, "compile": False, "checkpoint": tmp_path}
    done = 2 if resumed else 0
    if resumed:
        gd.fit(orthogonal(), sine(), steps=done, **options)

    def trace(self, X, Y, seed) -> None:
        raise KeyboardInterrupt

    model = orthogonal()
    before = values(model)
    with monkeypatch.context() as patch:
        patch.setattr(Minibatches, "prepare", trace)
        result = gd.fit(model, sine(), steps=4, **options)
    assert (result.steps, result.reason, result.converged) == (done, "interrupted", False)
    assert len(result.history.get("elbo", [])) == done
    assert unchanged(before, model) is not resumed
    assert gd.fit(model, sine(), steps=4, **options).steps == 4


@pytest.mark.exhaustive
def test_the_size_of_the_data_is_not_set_by_a_run_that_is_refused(tmp_path: Path) -> None:
    options = {"steps": 1, "progress": False, "compile": False, "checkpoint": tmp_path}
    gd.fit(orthogonal(), sine(), **options)
    model = orthogonal()
    with pytest.raises(DataError, match="num_data=60, and this run has 61"):
        gd.fit(model, sine(61), **options)
    assert model.num_data is None
    gd.fit(model, sine(), **options)
    assert model.num_data == 60
