"""Predict every pixel, and score those held out."""

from __future__ import annotations

import numpy as np
from tqdm.auto import tqdm

from gpflow_decoupled.models import NNGP, BasisGP
from gpflow_decoupled.training import FitResult

from .outcomes import Outcome, Row, Score
from .pixels import Pixels

WITHIN = 1.959964
"""Standard deviations to either side of the mean that hold 95 % of a Gaussian."""


def score(pixels: Pixels, mean: np.ndarray, variance: np.ndarray, noise: float) -> Score:
    """Score predictions of the held-out pixels.

    :param mean: [H W, 1], of all pixels, in the units of `pixels.Y`.
    :param variance: [H W, 1], of the brightness without noise.
    :param noise: variance of the noise.
    """
    error = (mean - pixels.Y)[pixels.held_out]
    spread = variance[pixels.held_out] + noise
    nats = -0.5 * (np.log(2.0 * np.pi * spread) + error**2 / spread) - np.log(pixels.std)
    return Score(
        rmse=pixels.std * float(np.sqrt(np.mean(error**2))),
        log_density=float(np.mean(nats)),
        coverage=float(np.mean(np.abs(error) < WITHIN * np.sqrt(spread))),
    )


def predict_all(
    model: BasisGP | NNGP, X: np.ndarray, chunk: int = 8192
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance [N, 1] of the latent function at X [N, 2], through the cached posterior."""
    posterior = model.posterior()
    starts = tqdm(range(0, len(X), chunk), desc="predicting", leave=False)
    parts = [posterior.predict_f(X[start : start + chunk]) for start in starts]
    return tuple(np.concatenate([part[k].numpy() for part in parts]) for k in (0, 1))


def judge(
    name: str,
    sees: str,
    model: BasisGP | NNGP,
    result: FitResult,
    pixels: Pixels,
    *,
    elbo: float | None = None,
) -> Outcome:
    """Predict every pixel by a trained model and score those held out.

    :param sees: what its predictions see, for the table.
    :param elbo: its bound in nats of grey levels, if what it climbed is one.
    """
    mean, variance = predict_all(model, pixels.X)
    noise, history = float(model.likelihood.variance.numpy()), result.history
    trace = {
        "evaluation_seconds": history["evaluation_seconds"],
        "rmse": pixels.std * history["rmse"],
    }
    if elbo is not None:
        training = int(np.sum(~pixels.held_out))
        trace |= {
            "seconds": history["seconds"],
            "elbo": history["elbo"] - training * np.log(pixels.std),
        }
    return Outcome(
        Row(
            name,
            sees,
            score(pixels, mean, variance, noise),
            result.seconds,
            elbo=elbo,
            steps=result.steps,
        ),
        mean=pixels.picture(mean),
        std=pixels.std * np.sqrt(variance).reshape(pixels.grey.shape),
        noise=pixels.std * float(np.sqrt(noise)),
        trace=trace,
    )
