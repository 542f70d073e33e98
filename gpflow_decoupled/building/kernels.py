"""The choice of a kernel by leave-one-out scores of nearest-neighbour GPs."""

from __future__ import annotations

__all__ = ["AUTO", "CANDIDATES", "KernelChoice", "choose_kernel"]

import warnings
from collections.abc import Mapping
from dataclasses import dataclass

import gpflow
import numpy as np
from gpflow.kernels import Kernel, Matern12, Matern32, Matern52, SquaredExponential
from tqdm.auto import tqdm

from ..models import NNGP
from ..optimizers.neighbours import NeighbourRounds

AUTO = "auto"
CANDIDATES: Mapping[str, type[Kernel]] = {
    "Matern 1/2": Matern12,
    "Matern 3/2": Matern32,
    "Matern 5/2": Matern52,
    "squared exponential": SquaredExponential,
}
_ROWS, _EVALUATIONS, _NEIGHBOURS = 2000, 20, 30
_JUDGING_NEIGHBOURS = 100
"""Of the short run of each kernel, six to eight processor seconds. Few rows and neighbours are for
speed: close scores may change places in a longer run."""


@dataclass(frozen=True)
class KernelChoice:
    """The kernel of the best score, with the hyperparameters of its short run.

    Example::

        print(choose_kernel(X, Y).scores)
    """

    name: str
    kernel: Kernel
    noise_variance: float
    scores: Mapping[str, float]
    """Mean leave-one-out log density of 1,000 rows in nats, by kernel."""

    def __str__(self) -> str:
        """The scores in one line."""
        scores = ", ".join(f"{name} {score:.3f}" for name, score in self.scores.items())
        return f"kernel {self.name}, by the leave-one-out log density ({scores});"


def choose_kernel(
    X: np.ndarray, Y: np.ndarray, *, seed: int = 0, progress: bool = False
) -> KernelChoice:
    """Train a nearest-neighbour GP with each kernel for a few seconds, and compare their scores.

    A kernel that is too smooth for the data may learn a tiny noise and intervals that are far too
    narrow, which the leave-one-out score of rows outside of the training shows.

    :param X: standardised inputs [N, D].
    :param Y: standardised observations [N, P].
    :param seed: of the rows.
    :param progress: show a line with the kernels.
    :return: the choice. Cost: four short runs of `NeighbourRounds`, whatever N is, and searches.
    """
    found: dict[str, tuple[float, NNGP]] = {}
    line = tqdm(CANDIDATES.items(), desc="comparing kernels", disable=not progress, leave=False)
    for name, kind in line:
        kernel = kind(lengthscales=np.full(X.shape[1], np.sqrt(X.shape[1])))
        noise = gpflow.likelihoods.Gaussian(0.1)
        model = NNGP(
            (X, Y),
            kernel,
            noise,
            num_neighbours=_NEIGHBOURS,
            prediction_neighbours=_JUDGING_NEIGHBOURS,
        )
        rounds = NeighbourRounds(model, rows=_ROWS, evaluations=_EVALUATIONS, seed=seed)
        with warnings.catch_warnings():  # a kernel that ends at the floor loses by its score
            warnings.filterwarnings("ignore", "The noise variance is at its floor")
            rounds.start()
            rounds.run(0)
        found[name] = float(rounds.best), model
    best = max(found, key=lambda name: found[name][0])
    model = found[best][1]
    return KernelChoice(
        best,
        gpflow.utilities.deepcopy(model.kernel),
        _above_floor(model.likelihood),
        {name: score for name, (score, _) in found.items()},
    )


def _above_floor(likelihood: gpflow.likelihoods.Gaussian) -> float:
    """The noise variance, a little above its lower bound, which no Parameter takes as its value."""
    return max(float(likelihood.variance.numpy()), 1.01 * float(likelihood.variance_lower_bound))
