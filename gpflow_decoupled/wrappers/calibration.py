"""How often predictions come true. Matplotlib and, for labels, scikit-learn are imported when a plot is drawn."""

from __future__ import annotations

__all__ = ["plot_calibration"]

from typing import Any

import numpy as np
from gpflow.likelihoods import Bernoulli
from scipy.stats import kstwobign, norm

from ..errors import DataError
from ..likelihoods import BernoulliLogit, BernoulliProbit
from .axes import axes_or_new

_BINARY = (Bernoulli, BernoulliLogit, BernoulliProbit)


def plot_calibration(model: Any, data: tuple, ax: Any | None = None, *, num_bins: int = 10) -> Any:
    """Draw predicted against observed frequencies on data X [N, D], Y [N, 1] that the model has not seen.

    Of a regression: the share of observations below each predictive quantile, quantiles as if the predictive
    distribution were normal; the grey band holds a calibrated model's line with probability 0.95 (Kolmogorov). Of binary
    labels: the share of ones among `num_bins` groups of equal size, by predicted probability. A calibrated model is on the
    diagonal.

    :param ax: Matplotlib axes; new ones if not given. Returns them.

    Raises `DataError` for more than one column of Y, and `ImportError`, with the fix, without Matplotlib. Cost: a
    prediction at N inputs.
    """
    X, Y = (np.asarray(array) for array in data)
    if Y.ndim != 2 or Y.shape[1] != 1:
        raise DataError(f"Y has shape {Y.shape}; calibration is drawn for one column, [N, 1].")
    ax = axes_or_new(ax)
    mean, variance = (tensor.numpy()[:, 0] for tensor in model.predict_y(X))
    ax.plot([0, 1], [0, 1], ":", color="0.5", lw=1)
    if isinstance(model.likelihood, _BINARY):
        from sklearn.calibration import calibration_curve

        observed, predicted = calibration_curve(Y[:, 0], mean, n_bins=num_bins, strategy="quantile")
        ax.plot(predicted, observed, "o-", ms=3)
        ax.set(xlabel="predicted probability of 1", ylabel="share of ones")
    else:
        levels = np.sort(norm.cdf((Y[:, 0] - mean) / np.sqrt(variance)))
        observed = np.arange(1, len(levels) + 1) / len(levels)
        band = kstwobign.ppf(0.95) / np.sqrt(len(levels))
        ax.fill_between([0, 1], [-band, 1 - band], [band, 1 + band], color="0.9", lw=0)
        ax.step(levels, observed, where="post")
        ax.set(xlabel="predictive quantile", ylabel="share of observations below it")
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    return ax
