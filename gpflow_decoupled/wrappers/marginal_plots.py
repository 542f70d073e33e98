"""Plots of marginals."""

from __future__ import annotations

__all__ = ["plot_densities", "plot_weights"]

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from scipy.stats import norm

from ..errors import DataError
from ..inputs import as_values, is_number
from ..models import AffineIndependentGP, WeightsPosterior
from ..models.linear.weights_posterior import weight_labels
from ..summaries import short_repr
from .axes import axes_or_new, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_DENSITIES = 8


def plot_densities(model: AffineIndependentGP, X: npt.ArrayLike, ax: Axes | None = None) -> Axes:
    """Draw the density of f(x) at each row of X, and its Gaussian approximation, dashed.

    :param model: an `AffineIndependentGP`, or a model of `AffineIndependentGLM`.
    :param X: at most 8 inputs [N, D].
    :param ax: Matplotlib axes; new ones if not given.
    :return: the axes.

    Example::

        plot_densities(model, X[:3]).figure.savefig("densities.png")
    """
    if not isinstance(model, AffineIndependentGP):
        raise DataError(
            f"The densities of this {type(model).__name__} are Gaussian; draw it by plot_posterior."
        )
    inputs = as_values(X, "X")
    if inputs.ndim != 2 or not 0 < len(inputs) <= _MOST_DENSITIES:
        raise DataError(
            f"X has shape {inputs.shape}; pass from 1 to {_MOST_DENSITIES} rows, [N, D]."
        )
    ax = axes_or_new(ax)
    mean, variance = (part.numpy()[:, 0] for part in model.predict_f(inputs))
    deviation = np.sqrt(variance)
    grid = mean[:, None] + deviation[:, None] * np.linspace(-4.5, 4.5, 301)
    density = model.predict_f_density(inputs, grid).numpy()
    for row, (values, heights) in enumerate(zip(grid, density)):
        place = ", ".join(f"{value:.3g}" for value in inputs[row, :3]) + (
            ", ..." if inputs.shape[1] > 3 else ""
        )
        ax.plot(values, heights, color=f"C{row}", label=f"x = {place}")
        ax.plot(values, norm.pdf(values, mean[row], deviation[row]), "--", color=f"C{row}", lw=1)
    ax.plot([], [], "--", color="0.5", lw=1, label="Gaussian")
    ax.set(xlabel="f", ylabel="density", ylim=(0.0, None))
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize="small")
    return ax


def plot_weights(
    posterior: WeightsPosterior,
    names: Iterable[object] | None = None,
    ax: Axes | None = None,
    *,
    level: float = 0.95,
) -> Axes:
    """Draw mean and interval of each weight of a linear model, the first at the top.

    Several latents are side by side, in different colours.

    :param posterior: of `models.weights_posterior`.
    :param names: of the weights, as in `WeightsPosterior.summary`.
    :param ax: Matplotlib axes; new ones if not given.
    :param level: the probability of a Gaussian interval.
    :return: the axes.

    Example::

        plot_weights(gpflow_decoupled.models.weights_posterior(model), frame.columns)
    """
    if not (is_number(level) and 0.0 < level < 1.0):
        raise DataError(
            f"level={short_repr(level)} must be a number between 0 and 1, for example 0.95."
        )
    if not isinstance(posterior, WeightsPosterior):
        raise DataError(
            f"posterior is a {type(posterior).__name__}; pass the weights of a linear model,"
            " gpflow_decoupled.models.weights_posterior(model)."
        )
    means, deviations = posterior.moments
    labels = weight_labels(names, means.shape[1])
    if ax is None:
        height = float(np.clip(0.28 * len(labels) * len(means) + 1.0, 2.4, 30.0))
        ax = new_figure(1, 1, (6.4, height))[1][0, 0]
    z = float(norm.ppf(0.5 + 0.5 * level))
    for latent, (mean, deviation) in enumerate(zip(means, deviations)):
        shift = 0.0 if len(means) == 1 else 0.5 * (latent / (len(means) - 1) - 0.5)
        rows = np.arange(len(labels)) + shift
        name = None if len(means) == 1 else f"latent {latent}"
        ax.errorbar(
            mean,
            rows,
            xerr=z * deviation,
            fmt="o",
            ms=4,
            capsize=2,
            color=f"C{latent % 10}",
            label=name,
        )
    ax.axvline(0.0, color="0.6", lw=1, zorder=0)
    ax.set_yticks(range(len(labels)), [str(label) for label in labels])
    ax.set(ylim=(len(labels) - 0.5, -0.5), xlabel=f"weight, with intervals of {100.0 * level:g} %")
    if len(means) > 1:
        ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize="small")
    return ax
