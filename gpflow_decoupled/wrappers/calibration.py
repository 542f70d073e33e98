"""Predicted against observed frequencies."""

from __future__ import annotations

__all__ = ["plot_calibration"]

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from gpflow.models import GPModel
from scipy.stats import binom, kstwobign, norm

from ..errors import DataError
from ..inputs import as_pair, as_values, check_finite_entries, check_whole
from ..likelihoods.facts import base_of, label_kind
from ..training import Standardized
from ..training.tables import Table
from .plots import axes_or_new, inside

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_calibration(
    model: GPModel | Standardized,
    data: Sequence[npt.ArrayLike],
    ax: Axes | None = None,
    *,
    num_bins: int = 10,
) -> Axes:
    """Draw predicted against observed frequencies on new data; calibration is the diagonal.

    Regression: the share of observations below each normal predictive quantile, with a 0.95 band
    (Kolmogorov), for each output; NaN are left out. Binary labels and classes: shares of ones, or
    of each class, in groups of equal size by predicted probability, each with a 0.95 range
    (binomial). Cost: a prediction at N inputs.

    :param model: any GPflow model, or a `Standardized` one.
    :param data: X [N, D] and Y [N, P], labels [N, 1]; or the frame of a model of a data frame.
    :param ax: Matplotlib axes; new ones if not given.
    :param num_bins: the number of groups of labels.
    :return: the axes.

    Example::

        plot_calibration(model, (X_test, Y_test)).figure.savefig("calibration.png")
    """
    check_whole(1, num_bins=num_bins)
    likelihood, table = inside(model).likelihood, getattr(model, "table", Table())
    likelihood = base_of(likelihood)
    labels = label_kind(likelihood)
    given = table.arrays(data) if isinstance(model, Standardized) else as_pair(data)
    X, Y = (as_values(array, name) for array, name in zip(given, "XY"))
    check_finite_entries(X, "X")
    if Y.ndim != 2 or Y.shape[1] == 1:
        check_finite_entries(Y, "Y")
    mean, variance = map(np.asarray, model.predict_y(X))
    single = labels in ("classes", "binary")
    columns = 1 if single else likelihood.observation_dim or mean.shape[1]
    if Y.ndim != 2 or Y.shape[1] != columns:
        raise DataError(f"Y has shape {Y.shape}; the model predicts {columns} columns, [N, P].")
    ax = axes_or_new(ax)
    ax.plot([0, 1], [0, 1], ":", color="0.5", lw=1, label="calibrated")
    if labels == "classes":
        ones = {
            str(name): (Y[:, 0] == place, mean[:, place])
            for place, name in enumerate(table.classes or range(mean.shape[1]))
        }
        _draw_shares(ax, ones, num_bins)
    elif labels == "binary":
        _draw_shares(ax, {"labels": (Y[:, 0], mean[:, 0])}, num_bins)
    else:
        names = ["observations"] if columns == 1 else list(map(str, table.targets))
        names = names or [f"Y[:, {column}]" for column in range(columns)]
        levels = norm.cdf((Y - mean[:, :columns]) / np.sqrt(variance[:, :columns]))
        _draw_levels(ax, dict(zip(names, levels.T)))
    ax.set(aspect="equal")
    ax.legend(loc="upper left", frameon=False, fontsize="small")
    return ax


def _draw_shares(
    ax: Axes, ones: Mapping[str, tuple[np.ndarray, np.ndarray]], num_bins: int
) -> None:
    largest = 0.0
    for name, (truth, probability) in ones.items():
        groups = np.array_split(np.argsort(probability, kind="stable"), num_bins)
        groups = [rows for rows in groups if len(rows)]
        predicted = np.array([np.mean(probability[rows]) for rows in groups])
        observed = np.array([np.mean(truth[rows]) for rows in groups])
        sizes = np.array([len(rows) for rows in groups])
        low, high = np.array(binom.interval(0.95, sizes, np.clip(predicted, 0.0, 1.0))) / sizes
        (line,) = ax.plot(predicted, observed, "o-", ms=3, label=name)
        ax.vlines(predicted, low, high, color=line.get_color(), alpha=0.3, lw=3)
        largest = max(largest, predicted.max(), observed.max(), high.max())
    ax.vlines([], [], [], color="0.5", alpha=0.3, lw=3, label="0.95 by chance")
    what = "1" if len(ones) == 1 else "a class"
    ax.set(xlabel=f"predicted probability of {what}")
    ax.set(ylabel="share of ones" if len(ones) == 1 else "share of the class")
    # rare events would lie in a corner
    end = min(1.0, 1.1 * largest)
    ax.set(xlim=(0, end), ylim=(0, end))


def _draw_levels(ax: Axes, levels: Mapping[str, np.ndarray]) -> None:
    fewest = min(int(np.sum(~np.isnan(one))) for one in levels.values())
    band = kstwobign.ppf(0.95) / np.sqrt(max(fewest, 1))
    edges = [-band, 1 - band], [band, 1 + band]
    ax.fill_between([0, 1], *edges, color="0.9", lw=0, label="0.95 by chance")
    for name, one in levels.items():
        ordered = np.sort(one[~np.isnan(one)])
        ax.step(ordered, np.arange(1, len(ordered) + 1) / len(ordered), where="post", label=name)
    ax.set(xlabel="predictive quantile", ylabel="share of observations below it")
    ax.set(xlim=(0, 1), ylim=(0, 1))
