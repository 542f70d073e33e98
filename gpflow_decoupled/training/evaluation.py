"""Held-out quality of a model, in chunks, so that any number of points fits into memory."""

from __future__ import annotations

__all__ = ["held_out_metrics"]

from typing import Any

import numpy as np
import tensorflow as tf


def held_out_metrics(model: Any, data: tuple, chunk: int = 4096) -> dict[str, float]:
    """RMSE of the predictive mean and mean log density (nats per observation) on data (X [N, D], Y [N, P]).

    Uses the cached posterior; N M^2. The RMSE compares E[y] with Y, so for class labels it is not an error rate.
    """
    X, Y = (np.asarray(array) for array in data)
    posterior = model.posterior()
    squares, densities = [], []
    for start in range(0, len(X), chunk):
        x, y = tf.convert_to_tensor(X[start : start + chunk]), tf.convert_to_tensor(Y[start : start + chunk])
        y = tf.cast(y, x.dtype)
        mean, variance = posterior.predict_f(x)
        densities.append(model.likelihood.predict_log_density(x, mean, variance, y).numpy())
        predicted, _ = model.likelihood.predict_mean_and_var(x, mean, variance)
        columns = min(predicted.shape[1], y.shape[1])
        squares.append(np.square(predicted.numpy()[:, :columns] - y.numpy()[:, :columns]))
    return {
        "rmse": float(np.sqrt(np.mean(np.concatenate(squares)))),
        "log_density": float(np.mean(np.concatenate(densities))),
    }
