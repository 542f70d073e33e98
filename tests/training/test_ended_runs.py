"""A run that reached its limit, and its end, is no other run once it goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest

import gpflow_decoupled as gd
from gpflow_decoupled.models import NNGP
from gpflow_decoupled.training import Checkpoints, FitResult, Schedule
from gpflow_decoupled.training.run import Run
from gpflow_decoupled.training.turns import Plan

pytestmark = pytest.mark.filterwarnings(
    "ignore:The bound still rises", "ignore:The mean squared standardised"
)

RNG = np.random.default_rng(7)
X = RNG.uniform(size=(300, 2))
F = np.sin(6.0 * X[:, :1])
Y = F + 0.1 * RNG.standard_normal(F.shape)
COUNTS = RNG.poisson(np.exp(F)).astype(float)
# a third at random, so that closing work makes classes less sure
LABELS = np.where(
    RNG.uniform(size=Y.shape) < 0.3, RNG.integers(0, 3, Y.shape), np.digitize(Y, [-0.3, 0.3])
).astype(float)
STEPS = {"learning_rate": 0.1, "batch_size": 50, "schedule": Schedule(anneal=0.0)}


def _nngp(Y: np.ndarray, likelihood: gpflow.likelihoods.Likelihood, **options: Any) -> NNGP:
    kernel = gpflow.kernels.Matern52(lengthscales=np.ones(2))
    more = {"num_neighbours": 10, "prediction_neighbours": "auto", **options}
    return NNGP((X, Y), kernel, likelihood, **more)


KINDS: dict[str, tuple[Callable[[], NNGP], int, int, dict[str, Any]]] = {
    "Gaussian": (lambda: _nngp(Y, gpflow.likelihoods.Gaussian(0.3)), 1, 3, {}),
    "local spread": (
        lambda: _nngp(Y, gpflow.likelihoods.Gaussian(0.3), spread_neighbours=8), 2, 3, {},
    ),
    "mean of rows": (lambda: _nngp(Y, gpflow.likelihoods.Gaussian(0.3), mean="data"), 1, 2, {}),
    "minibatches": (lambda: _nngp(Y, gpflow.likelihoods.Gaussian(0.3)), 6, 12, STEPS),
    "sites": (lambda: _nngp(COUNTS, gpflow.likelihoods.Poisson()), 2, 5, {}),
    "classes": (lambda: _nngp(LABELS, gd.likelihoods.CategoricalLogit(3)), 1, 3, {}),
}  # fmt: skip
"""A model, a limit of steps, a larger one, and options."""
QUICK = ("minibatches",)
MARKED = [
    kind if kind in QUICK else pytest.param(kind, marks=pytest.mark.exhaustive) for kind in KINDS
]
"""The kinds; the short run takes the one that trains fastest."""


def _fit(model: NNGP, steps: int, folder: Path | None, options: dict[str, Any]) -> FitResult:
    checkpoint = None if folder is None else Checkpoints(folder, every=100)
    return gd.fit(
        model, steps=steps, checkpoint=checkpoint, progress=False, compile=False, **options
    )


def _equal(one: NNGP, other: NNGP) -> None:
    ours, theirs = (gpflow.utilities.read_values(model) for model in (one, other))
    for name, value in ours.items():
        np.testing.assert_array_equal(value, theirs[name], err_msg=name)
    for mine, their in zip(one.predict_f(X[:5] + 0.01), other.predict_f(X[:5] + 0.01)):
        np.testing.assert_allclose(mine, their, rtol=1e-9)
    assert one.prediction_neighbours == other.prediction_neighbours


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", MARKED)
def test_a_run_that_reached_its_limit_goes_on_to_the_same_trace(kind: str, tmp_path: Path) -> None:
    make, few, many, options = KINDS[kind]
    whole, again, resumed = make(), make(), make()
    expected = _fit(whole, many, None, options)
    _fit(again, few, tmp_path, options)
    found = _fit(resumed, many, tmp_path, options)
    assert found.history.keys() == expected.history.keys() and found.reason == expected.reason
    for name in set(found.history) - {"seconds"}:
        np.testing.assert_array_equal(found.history[name], expected.history[name], err_msg=name)
    assert found.elbo == expected.elbo
    _equal(resumed, whole)


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_without_a_step_left_is_read_back(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, few, _, options = KINDS[kind]
    first, read = make(), make()
    expected = _fit(first, few, tmp_path, options)
    with monkeypatch.context() as patch:
        patch.setattr(Run, "_closing", None)  # it is not done again
        found = _fit(read, few, tmp_path, options)
    assert found.steps == expected.steps and found.elbo == expected.elbo
    assert found.gap == expected.gap and found.seconds == expected.seconds
    assert found.objective == expected.objective
    _equal(read, first)


@pytest.mark.exhaustive
def test_a_damaged_end_is_found_again(tmp_path: Path) -> None:
    make, few, _, options = KINDS["Gaussian"]
    first, read = make(), make()
    expected = _fit(first, few, tmp_path, options)
    (tmp_path / "end" / f"history-{expected.steps}.npz").write_bytes(b"damaged")
    assert _fit(read, few, tmp_path, options).elbo == expected.elbo
    _equal(read, first)


@pytest.mark.exhaustive
def test_an_end_that_was_interrupted_is_found_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, few, _, options = KINDS["Gaussian"]
    whole, stopped, resumed = make(), make(), make()
    _fit(whole, few, None, options)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    init = Plan.__init__
    with monkeypatch.context() as patch:
        patch.setattr(
            Plan, "__init__", lambda *args, **rest: init(*args, **{**rest, "closing": interrupted})
        )
        assert _fit(stopped, few, tmp_path, options).reason == "interrupted"
    _fit(resumed, few, tmp_path, options)
    _equal(resumed, whole)
