"""Settings by which an `NNGP` is trained, changed one at a time.

    python -m benchmarks.neighbour_settings --tasks kin8nm elevators --data DIR

The settings in use are 6,000 random rows, then 12,000; 30 neighbours; a random order; neighbours
searched at the start of each of two rounds. Matern 3/2, predictions from 128 neighbours, at most
2,000 test rows. Processor seconds of training. Prints rows of a table."""

from __future__ import annotations

__all__ = ["SETTINGS", "Setting", "measure"]

import argparse
import time
from pathlib import Path
from typing import NamedTuple

import gpflow
import numpy as np

from gpflow_decoupled.models import NNGP
from gpflow_decoupled.optimizers import NeighbourRounds

from .harness.data import Data, load
from .harness.metrics import gaussian_scores

_TEST_ROWS = 2000


class Setting(NamedTuple):
    """How an `NNGP` is trained."""

    rows: int = 6000
    """of the first round; later ones draw twice as many"""
    neighbours: int = 30
    order: str = "random"
    """or "coordinate", from one end of the first principal coordinate to the other, or "middle",
    from the middle outwards"""
    rounds: int = 2
    """each begins with a search in the inputs divided by the present lengthscales"""
    seed: int = 0


SETTINGS = {
    "in use": Setting(),
    "another seed": Setting(seed=1),
    "2,000 rows": Setting(rows=2000),
    "12,000 rows": Setting(rows=12_000),
    "15 neighbours": Setting(neighbours=15),
    "60 neighbours": Setting(neighbours=60),
    "by coordinate": Setting(order="coordinate"),
    "middle out": Setting(order="middle"),
    "one search": Setting(rounds=1),
    "four searches": Setting(rounds=4),
}


def measure(data: Data, setting: Setting) -> tuple[float, float, float]:
    """RMSE and log density of the test rows, in standardised units, and seconds of training."""
    start = time.process_time()
    kernel = gpflow.kernels.Matern32(lengthscales=np.ones(data.X_train.shape[1]))
    model = NNGP(
        (data.X_train, data.Y_train),
        kernel,
        gpflow.likelihoods.Gaussian(0.1),
        num_neighbours=setting.neighbours,
        prediction_neighbours=128,
        seed=setting.seed,
    )
    if setting.order != "random":
        model._order.assign(_ordered(data.X_train, setting.order))
    rounds = NeighbourRounds(model, rows=setting.rows, seed=setting.seed)
    rounds.start()
    for number in range(setting.rounds):
        rounds.run(number)
    rounds.calibrate()
    seconds = time.process_time() - start
    test = np.random.default_rng(0).permutation(len(data.X_test))[:_TEST_ROWS]
    mean, variance = map(np.asarray, model.predict_y(data.X_test[test]))
    scores = gaussian_scores(mean, variance, data.Y_test[test])
    return scores["rmse"], scores["log_density"], seconds


def _ordered(X: np.ndarray, order: str) -> np.ndarray:
    centred = X - X.mean(axis=0)
    _, vectors = np.linalg.eigh(centred.T @ centred)
    along = centred @ vectors[:, -1]
    return np.argsort(along if order == "coordinate" else np.abs(along)).astype(np.int32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="+", default=["kin8nm"])
    parser.add_argument("--settings", nargs="+", choices=[*SETTINGS], default=[*SETTINGS])
    parser.add_argument("--split", type=int, default=0)
    parser.add_argument("--data", type=Path)
    given = parser.parse_args()
    for task in given.tasks:
        data = load(task, given.split, given.data)
        for name in given.settings:
            rmse, density, seconds = measure(data, SETTINGS[name])
            print(f"| {task} | {name} | {rmse:.4f} | {density:.3f} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()
