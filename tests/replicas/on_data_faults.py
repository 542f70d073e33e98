"""What one of two workers does wrong, or later, while both solve for a mean on all data."""

from __future__ import annotations

__all__ = ["data_faults"]

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import tensorflow as tf

import gpflow_decoupled as gd
from gpflow_decoupled.covariances import blocks as stationary_products
from gpflow_decoupled.replicas import Group
from gpflow_decoupled.training import Checkpoints, Schedule
from tests.replicas.cases import inputs, observations
from tests.replicas.on_data import on_data, small_blocks, solver
from tests.training.problems import values

Found = dict[str, np.ndarray]
QUICK = {"batch_size": 31, "progress": False, "compile": False}


def _message(action: Callable[[], Any]) -> np.ndarray:
    """What an action ends with, interrupts too."""
    try:
        action()
    except BaseException as error:
        return np.array(f"{type(error).__name__}: {error}")
    return np.array("went through")


@contextmanager
def _third_product_fails(error: BaseException | None) -> Iterator[None]:
    """The third product of a run raises an error on this worker."""
    plain, calls = stationary_products.in_chunks, list[int]()

    def in_chunks(*given: Any) -> Any:
        calls.append(1)
        if error is not None and len(calls) == 3:
            raise error
        return plain(*given)

    with mock.patch.object(stationary_products, "in_chunks", in_chunks):
        yield


def _stop_at_4(step: int, *_: Any) -> None:
    if step == 4:
        raise RuntimeError("the fourth step is not saved")


def data_faults(strategy: tf.distribute.Strategy, path: str) -> Found:
    """Errors, interrupts, other data and settings on the second worker; clocks that differ; and a
    run that goes on.
    """
    number, data = Group(strategy).number, (inputs(), observations("sine"))

    def model() -> Any:
        with strategy.scope():
            return on_data()()

    def solve(at: Any = None, data: Any = data, chosen: Any = None, **options: Any) -> Any:
        return (chosen or solver()).run(at or model(), data, strategy=strategy, **options)

    def fit(steps: int, **options: Any) -> tuple[Any, Any]:
        trained = model()
        schedule = Schedule(anneal=0.0)
        result = gd.fit(
            trained,
            data,
            steps=steps,
            strategy=strategy,
            mean_solver=solver(),
            schedule=schedule,
            **options,
            **QUICK,
        )
        return values(trained), result

    found: Found = {}
    with small_blocks():
        for name, error in (
            ("memory", MemoryError("none left in the third product")),
            ("interrupt", KeyboardInterrupt()),
        ):
            with _third_product_fails(error if number == 1 else None):
                found[name] = _message(solve)
        found["data"] = _message(lambda: solve(data=(data[0], data[1] + number)))
        found["settings"] = _message(lambda: solve(chosen=solver(rank=10 + number)))
        other = model()
        other.kernel.lengthscales.assign(0.3 + 0.1 * number)
        found["kernel"] = _message(lambda: solve(other))
        now = time.perf_counter()
        found["reason"] = np.array(solve(deadline=now - 1.0 if number == 1 else now + 1e6).reason)
        stopped = solve(deadline=now - 1.0 if number == 0 else now + 1e6)
        found |= {"no time": np.array(stopped.reason), "products": np.array(stopped.products)}
        folder = Path(path).parent / "on data"
        expected, whole = fit(4)  # two coupled steps and two rounds
        stop = gd.training.Callbacks([_stop_at_4], every=1)
        _message(lambda: fit(4, checkpoint=Checkpoints(folder, every=1), callbacks=stop))
        resumed, again = fit(4, checkpoint=Checkpoints(folder, every=1))
        # a resumed run solves once more where it begins, from the solution, so that round-off may
        # differ
        for name, value in resumed.items():
            np.testing.assert_allclose(value, expected[name], rtol=1e-6, atol=1e-8, err_msg=name)
        found["resumed"] = np.allclose(whole.history["elbo"], again.history["elbo"], rtol=1e-9)
        calls = gd.training.Callbacks([lambda *_: time.sleep(0.2 * number)], every=1)
        trained = model()
        result = gd.fit(
            trained,
            data,
            seconds=1.0,
            callbacks=calls,
            strategy=strategy,
            mean_solver=solver(),
            **QUICK,
        )
        found |= {"steps": np.array(result.steps), "q": trained.basis.q_mu.numpy()}
    return found
