"""Learn a photograph from neighbouring pixels: a nearest-neighbour GP, and its plain rival."""

from __future__ import annotations

import time

import gpflow
import numpy as np
from scipy.spatial import cKDTree

import gpflow_decoupled
from gpflow_decoupled.models import NNGP
from gpflow_decoupled.training import Evaluation

from .judging import judge, score
from .outcomes import Outcome, Row
from .pixels import Pixels

NUM_NEIGHBOURS = 30
PREDICTION_NEIGHBOURS = 32
"""With 64 a prediction takes several times as long, and the error hardly changes."""
NEAREST = 4


def learn_neighbours(pixels: Pixels, seconds: float, watched: int, seed: int) -> Outcome:
    """Train a nearest-neighbour GP for so many seconds, predict every pixel, score those held out.

    :param watched: held-out pixels that are scored after each round of training.
    """
    kernel = gpflow.kernels.Matern32(lengthscales=[2.0, 2.0])
    model = NNGP(
        pixels.training,
        kernel,
        gpflow.likelihoods.Gaussian(0.1),
        num_neighbours=NUM_NEIGHBOURS,
        prediction_neighbours=PREDICTION_NEIGHBOURS,
        seed=seed,
    )
    result = gpflow_decoupled.fit(
        model,
        seconds=seconds,
        evaluation=Evaluation(pixels.some_held_out(watched, seed), every=1),
        seed=seed,
    )
    sees = f"{PREDICTION_NEIGHBOURS} nearest pixels"
    return judge("neighbours", sees, model, result, pixels)


def nearest_pixels(pixels: Pixels) -> Outcome:
    """Predict by the mean of the nearest training pixels; the variance, one for all, is that of
    training pixels about the mean of the others nearest to them.
    """
    began = time.perf_counter()
    X, Y = pixels.training
    tree = cKDTree(X)
    others = tree.query(X, NEAREST + 1)[1][:, 1:]  # the first is the pixel itself
    noise = float(np.mean((Y[others].mean(axis=1) - Y) ** 2))
    seconds = time.perf_counter() - began
    mean = Y[tree.query(pixels.X, NEAREST)[1]].mean(axis=1)
    return Outcome(
        Row(
            "mean of the nearest",
            f"{NEAREST} nearest pixels",
            score(pixels, mean, np.zeros_like(mean), noise),
            seconds,
        ),
        mean=pixels.picture(mean),
        std=None,
        noise=pixels.std * float(np.sqrt(noise)),
        trace={},
    )
