"""Predicted against observed frequencies."""

from __future__ import annotations

__all__ = ["plot_calibration"]

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from gpflow.likelihoods import Bernoulli
from gpflow.models import GPModel
from scipy.stats import kstwobign, norm

from ..errors import DataError
from ..inputs import as_pair, as_values, check_finite_entries, check_whole
from ..likelihoods import BernoulliLogit, BernoulliProbit
from ..training import Standardized
from .axes import axes_or_new
from .curves import inside

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BINARY = (Bernoulli, BernoulliLogit, BernoulliProbit)


def plot_calibration(
    model: GPModel | Standardized,
    data: Sequence[npt.ArrayLike],
    ax: Axes | None = None,
    *,
    num_bins: int = 10,
) -> Axes:
    """Draw predicted against observed frequencies on new data; calibration is the diagonal.

    Regression: the share of observations below each normal predictive quantile, with a 0.95 band
    (Kolmogorov). Binary labels: shares of ones in groups of equal size, by predicted probability.
    Cost: a prediction at N inputs.

    :param model: any GPflow model, or a `Standardized` one.
    :param data: X [N, D] and Y [N, 1]; or the frame of a model of a data frame.
    :param ax: Matplotlib axes; new ones if not given.
    :param num_bins: the number of groups of binary labels.
    :return: the axes.
    :raises DataError: for more than one column of Y, masked or non-finite entries, and no groups.
    :raises ImportError: with the fix, if Matplotlib is not installed.

    Example::

        plot_calibration(model, (X_test, Y_test)).figure.savefig("calibration.png")
    """
    check_whole(1, num_bins=num_bins)
    given = model.table.arrays(data) if isinstance(model, Standardized) else as_pair(data)
    X, Y = (as_values(array, name) for array, name in zip(given, "XY"))
    for array, name in ((X, "X"), (Y, "Y")):
        check_finite_entries(array, name)
    if Y.ndim != 2 or Y.shape[1] != 1:
        raise DataError(f"Y has shape {Y.shape}; calibration is drawn for one column, [N, 1].")
    likelihood = inside(model).likelihood
    ax = axes_or_new(ax)
    mean, variance = (np.asarray(part)[:, 0] for part in model.predict_y(X))
    ax.plot([0, 1], [0, 1], ":", color="0.5", lw=1, label="calibrated")
    if isinstance(likelihood, _BINARY):
        from sklearn.calibration import calibration_curve

        observed, predicted = calibration_curve(Y[:, 0], mean, n_bins=num_bins, strategy="quantile")
        ax.plot(predicted, observed, "o-", ms=3, label="labels")
        ax.set(xlabel="predicted probability of 1", ylabel="share of ones")
    else:
        levels = np.sort(norm.cdf((Y[:, 0] - mean) / np.sqrt(variance)))
        observed = np.arange(1, len(levels) + 1) / len(levels)
        band = kstwobign.ppf(0.95) / np.sqrt(len(levels))
        edges = [-band, 1 - band], [band, 1 + band]
        ax.fill_between([0, 1], *edges, color="0.9", lw=0, label="0.95 by chance")
        ax.step(levels, observed, where="post", label="observations")
        ax.set(xlabel="predictive quantile", ylabel="share of observations below it")
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    ax.legend(loc="upper left", frameon=False, fontsize="small")
    return ax
