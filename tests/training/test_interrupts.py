"""Ctrl-C before the first step ends a run as it does later, and so does one whose exception Python
drops; a refused checkpoint leaves no mark on the model.
"""

from __future__ import annotations

import gc
import signal
import sys
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import gpflow_decoupled as gd
from gpflow_decoupled.errors import DataError
from gpflow_decoupled.interrupts import noted, raise_swallowed
from gpflow_decoupled.lbfgs import lbfgs_ascent
from gpflow_decoupled.training.stages.minibatches import Minibatches
from tests.training.problems import orthogonal, sine, unchanged, values


def press() -> None:
    """Press Ctrl-C, here and now."""
    signal.raise_signal(signal.SIGINT)


class PressesWhenDeleted:
    """An object during whose deletion Ctrl-C is pressed."""

    def __del__(self) -> None:
        press()


def in_finalizer() -> None:
    PressesWhenDeleted()


def in_weakref() -> None:
    holder = type("Holder", (), {})()
    weakref.finalize(holder, press)


def in_collection() -> None:
    def pressed(phase: str, info: dict[str, int]) -> None:
        gc.callbacks.remove(pressed)
        press()

    gc.callbacks.append(pressed)
    gc.collect()


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("swallowed", [in_finalizer, in_weakref, in_collection])
def test_an_interrupt_that_python_drops_ends_the_run(
    swallowed: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    ignored = list[object]()
    monkeypatch.setattr(sys, "unraisablehook", lambda found: ignored.append(found.exc_type))
    steps = list[int]()

    def callback(step: int, metrics: dict[str, float], model: object) -> None:
        steps.append(step)
        if step == 2:
            swallowed()

    calls = gd.training.Callbacks([callback], every=1)
    options = {"steps": 6, "progress": False, "compile": False}
    result = gd.fit(orthogonal(), sine(), callbacks=calls, **options)
    assert ignored == [KeyboardInterrupt]
    assert (result.steps, result.reason, steps) == (2, "interrupted", [1, 2])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    result = gd.fit(orthogonal(), sine(), **options)
    assert (result.steps, result.reason) == (6, "steps done")


def test_a_climb_ends_at_an_interrupt_that_python_drops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "unraisablehook", lambda found: None)
    seen = list[np.ndarray]()

    def bowl(x: np.ndarray) -> tuple[float, np.ndarray]:
        seen.append(x)
        if len(seen) == 3:
            in_finalizer()
        return -float(np.sum(x**4)), -4.0 * x**3

    with noted(), pytest.raises(KeyboardInterrupt):
        lbfgs_ascent(bowl, np.ones(2), lambda values: False, 50)
    assert 3 <= len(seen) < 6


def test_interrupts_of_others_are_left_alone() -> None:
    """A process that handles SIGINT itself keeps its handler, and nothing is raised."""
    heard = list[int]()
    before = signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    try:
        with noted():
            press()
            raise_swallowed()
    finally:
        signal.signal(signal.SIGINT, before)
    assert heard == [signal.SIGINT]


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
