"""The last step, and the state of every checkpoint, are known to be sound: a run goes back to the
last one that is.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_decoupled as gd
from gpflow_decoupled.errors import NumericalError
from gpflow_decoupled.training.snapshots import Best
from tests.training.problems import BETA, GAMMA, grouped, sine, values

OPTIONS = {"learning_rate": 0.02, "anneal": 0.0, "progress": False, "compile": False}


class Brittle(gpflow.kernels.SquaredExponential):
    """A kernel that is not finite once its lengthscale has moved by more than `reach`, by default
    some two steps of Adam.
    """

    def K_r2(self, r2: tf.Tensor) -> tf.Tensor:
        moved = tf.abs(self.lengthscales.unconstrained_variable - self.start)
        return super().K_r2(r2) * tf.where(moved > self.reach, tf.constant(np.nan, r2.dtype), 1.0)

    def __init__(self, reach: float = 0.03) -> None:
        super().__init__(lengthscales=0.3)
        self.reach = reach
        self.start = self.lengthscales.unconstrained_variable.numpy()


def _noise() -> gpflow.likelihoods.Likelihood:
    return gpflow.likelihoods.Gaussian(0.1)


KINDS: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "all data": (lambda: gd.models.ODVGP(Brittle(), _noise(), GAMMA, BETA), {}),
    "minibatches": (lambda: gd.models.ODVGP(Brittle(), _noise(), GAMMA, BETA), {"batch_size": 20}),
    "rows drawn": (lambda: gd.models.ODVGP(Brittle(), _noise(), GAMMA, BETA, mean_subsample=4), {}),
    "sites": (lambda: gd.models.CVIGP(sine(), Brittle(), _noise()), {}),
}


def _fit(kind: str, steps: int, **more: Any) -> tuple[Any, gd.training.FitResult]:
    build, options = KINDS[kind]
    model = build()
    data = None if kind == "sites" else sine()
    return model, gd.fit(model, data, steps=steps, **grouped(**{**OPTIONS, **options, **more}))


def _spoils(kind: str) -> int:
    """The number of the step after which there is no finite bound: the next one finds that."""
    with pytest.raises(NumericalError) as info:
        _fit(kind, 20)
    assert info.value.result is not None and info.value.result.steps > 1
    return info.value.result.steps


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", KINDS)
def test_a_last_step_that_spoils_the_bound_is_undone(kind: str) -> None:
    last = _spoils(kind)
    with pytest.warns(
        UserWarning, match=f"Step {last} left a bound that is not finite, and was undone"
    ):
        model, result = _fit(kind, last)
    assert (result.steps, result.restored_step) == (last, last - 1)
    assert (
        result.reason
        == "steps done; the last step was undone, because the bound after it is not finite"
    )
    assert f"Parameters of step {last - 1}" in str(result) and np.isfinite(result.elbo)
    expected, reference = _fit(kind, last - 1)
    assert reference.restored_step is None
    for name, value in values(model).items():
        np.testing.assert_array_equal(value, values(expected)[name], err_msg=name)


@pytest.mark.exhaustive
@pytest.mark.parametrize("at_the_end", [True, False])
def test_no_checkpoint_has_a_state_that_is_not_sound(at_the_end: bool, tmp_path: Path) -> None:
    last = _spoils("minibatches")
    more = {"checkpoint": tmp_path, "checkpoint_every": 1}
    if at_the_end:
        with pytest.warns(UserWarning, match="was undone"):
            _fit("minibatches", last, **more)
    else:
        with pytest.raises(
            NumericalError, match=f"^Step {last}: .* holds the last good parameters"
        ):
            _fit("minibatches", 20, **more)
    assert {path.name for path in tmp_path.glob("run-*")} == {
        f"run-{step}.json" for step in (last - 2, last - 1)
    }


@pytest.mark.exhaustive
def test_the_look_at_the_last_state_draws_nothing(tmp_path: Path) -> None:
    """A run in two parts has the trace of one that is not interrupted, also where steps draw from
    generators.
    """
    traces = []
    for limits in ((4,), (2, 4)):
        folder = tmp_path / str(len(limits))
        for limit in limits:
            model = gd.models.ODVGP(
                gpflow.kernels.SquaredExponential(),
                _noise(),
                GAMMA,
                BETA,
                mean_subsample=4,
                expectations=gd.models.MonteCarlo(5),
            )
            options = {**OPTIONS, "checkpoint": folder, "checkpoint_every": 4, "batch_size": 20}
            result = gd.fit(model, sine(), steps=limit, **grouped(**options))
        traces.append(result.history["elbo"])
    np.testing.assert_array_equal(*traces)


def test_the_best_values_go_back_to_their_own_variables_alone() -> None:
    best, pair = Best(), [tf.Variable(1.0), tf.Variable(2.0)]
    assert not best.put_back(pair), "nothing was taken"
    best.take(pair)
    pair[0].assign(3.0)
    assert not best.put_back(pair[:1]) and float(pair[0]) == 3.0
    assert best.put_back(pair) and [float(one) for one in pair] == [1.0, 2.0]
