"""Plots of a run, and of one input."""

from __future__ import annotations

__all__ = ["plot_history", "plot_posterior_1d"]

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from gpflow.likelihoods import Gaussian
from gpflow.models import GPModel
from gpflow.utilities import deepcopy

from ..errors import DataError
from ..inputs import as_pair, as_values, check_finite_entries, check_whole, float_type
from ..training import FitResult, Standardized
from .axes import axes_or_new, legend_above
from .curves import inducing_sets

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LABELS = {
    "elbo": "ELBO (nats)",
    "rmse": "held-out RMSE",
    "log_density": "held-out log density (nats)",
}


def plot_history(result: FitResult, ax: Axes | None = None, *, window: int = 20) -> Axes:
    """Draw the bound against seconds of training, and held-out scores, if any.

    The axis may omit a first fifth; held-out metrics have axes on the right.

    :param result: of `fit`.
    :param ax: Matplotlib axes for the bound; new ones if not given.
    :param window: steps of the running mean, since each bound comes from one minibatch.
    :return: the axes.

    Example::

        plot_history(fit(model, (X, Y))).figure.savefig("training.png")
    """
    check_whole(1, window=window)
    if not hasattr(result, "history"):
        raise DataError(
            f"result is a {type(result).__name__}; pass the one that fit returns: result ="
            " gpflow_decoupled.fit(model, data)."
        )
    if result.steps == 0 or len(result.history.get("elbo", ())) == 0:
        raise DataError("result has no steps, so there is nothing to plot.")
    ax = axes_or_new(ax)
    history = result.history
    window = max(1, min(window, len(history["elbo"]) // 4))
    seconds, bound = (_running_mean(history[name], window) for name in ("seconds", "elbo"))
    ax.plot(seconds, bound, color="C0", label=LABELS["elbo"])
    late = bound[len(bound) // 5 :]
    margin = 0.1 * float(np.ptp(late)) or 1.0
    ax.set_ylim(float(late.min()) - margin, float(bound.max()) + margin)
    ax.set_xlabel("seconds of training")
    ax.set_ylabel(LABELS["elbo"])
    lines = list(ax.get_lines())
    scored = [name for name in ("rmse", "log_density") if len(history.get(name, ())) > 0]
    for place, (colour, name) in enumerate(zip(("C1", "C2"), scored)):
        right = ax.twinx()
        right.spines["right"].set_position(("outward", 55.0 * place))
        lines += right.plot(
            history["evaluation_seconds"],
            history[name],
            "o-",
            ms=3,
            color=colour,
            label=LABELS[name],
        )
        if len(scored) == 2:
            right.set_ylim(*_half(history[name], upper=place == 0))
        right.set_ylabel(LABELS[name], color=colour)
        right.tick_params(axis="y", colors=colour)
    if scored:
        legend_above(ax, lines)
    return ax


def plot_posterior_1d(
    model: GPModel | Standardized,
    data: Sequence[npt.ArrayLike],
    ax: Axes | None = None,
    *,
    num_points: int = 300,
    parts: bool = False,
) -> Axes:
    """Draw a posterior over one input: mean, two standard deviations, data, inducing points.

    One colour per output; dotted lines add Gaussian noise. Points beta are ticks at the bottom,
    mean points at the top.

    :param model: a model of this package or of GPflow; or a `Standardized` one, without `parts`.
    :param data: X [N, 1] and Y [N, P].
    :param ax: Matplotlib axes; new ones if not given.
    :param num_points: the inputs at which the posterior is computed.
    :param parts: add the mean without its mean points, and their contribution, both dashed.
    :return: the axes.

    Example::

        plot_posterior_1d(model, (X, Y), parts=True).figure.savefig("posterior.png")
    """
    check_whole(1, num_points=num_points)
    dtype = float_type(getattr(model, "kernel", None))
    X, Y = (as_values(array, name, dtype) for array, name in zip(as_pair(data), "XY"))
    if X.ndim != 2 or X.shape[1] != 1:
        fix = "use X[:, None]" if X.ndim == 1 else "this plot needs one input column"
        raise DataError(f"X has shape {X.shape}; {fix}.")
    if Y.ndim != 2 or len(Y) != len(X) or len(X) == 0:
        raise DataError(
            f"X has shape {X.shape} and Y {Y.shape}; pass X [N, 1] and Y [N, P] of the same N"
            " observations."
        )
    check_finite_entries(X, "X")
    ax = axes_or_new(ax)
    margin = 0.1 * (np.ptp(X) or 1.0)
    grid = np.linspace(X.min() - margin, X.max() + margin, num_points)[:, None].astype(
        dtype.as_numpy_dtype
    )
    mean, variance = (tensor.numpy() for tensor in model.predict_f(grid))
    inside = model.model if isinstance(model, Standardized) else model
    noisy = model.predict_y(grid)[1].numpy() if isinstance(inside.likelihood, Gaussian) else None
    ax.plot(X, Y, "x", color="0.5", ms=3, alpha=min(1.0, 20 / len(X) ** 0.5), zorder=1)
    for output in range(mean.shape[1]):
        centre, spread = mean[:, output], 2.0 * np.sqrt(variance[:, output])
        ax.plot(
            grid[:, 0],
            centre,
            color=f"C{output}",
            label="mean" if mean.shape[1] == 1 else f"mean {output}",
        )
        ax.fill_between(
            grid[:, 0],
            centre - spread,
            centre + spread,
            color=f"C{output}",
            alpha=0.25,
            lw=0,
            label="2 standard deviations of f" if output == 0 else None,
        )
        if noisy is not None:
            label = "2 of observations" if output == 0 else None
            for sign, named in ((-2.0, label), (2.0, None)):
                edge = centre + sign * np.sqrt(noisy[:, output])
                ax.plot(grid[:, 0], edge, ":", color=f"C{output}", lw=1, label=named)
    if parts:
        _draw_parts(model, grid, mean, ax)
    _draw_points(model, ax)
    ax.set_xlabel("x")
    legend_above(ax, ax.get_legend_handles_labels()[0])
    return ax


def _draw_parts(
    model: GPModel | Standardized, grid: np.ndarray, mean: np.ndarray, ax: Axes
) -> None:
    if getattr(getattr(model, "basis", None), "kernel_mean", None) is None:
        raise DataError(
            f"The mean of this {type(model).__name__} has no points of its own; leave out"
            " parts=True."
        )
    without = deepcopy(model)
    coefficients = without.basis.kernel_mean.coefficients
    coefficients.assign(np.zeros(coefficients.shape))
    rest = without.predict_f(grid)[0].numpy()
    for output in range(mean.shape[1]):
        name = "" if mean.shape[1] == 1 else f" {output}"
        ax.plot(
            grid[:, 0], rest[:, output], "--", color=f"C{output}", lw=1, label=f"from beta{name}"
        )
        ax.plot(
            grid[:, 0],
            (mean - rest)[:, output],
            "-.",
            color=f"C{output}",
            lw=1,
            label=f"from mean points{name}",
        )


def _draw_points(model: GPModel | Standardized, ax: Axes) -> None:
    for label, Z in inducing_sets(model).items():
        place, colour = (0.98, "C3") if label.startswith("mean") else (0.02, "k")
        ax.plot(
            Z[:, 0],
            np.full(len(Z), place),
            "|",
            color=colour,
            transform=ax.get_xaxis_transform(),
            label=label,
        )


def _half(values: npt.ArrayLike, upper: bool) -> tuple[float, float]:
    finite = np.asarray(values, float)[np.isfinite(values)]
    if len(finite) == 0:
        return 0.0, 1.0
    low, high = float(finite.min()), float(finite.max())
    span = high - low or 0.5 * abs(high) or 1.0
    below, above = (0.4, 0.1) if upper else (0.1, 0.4)
    return low - below * span, high + above * span


def _running_mean(values: np.ndarray, window: int) -> np.ndarray:
    return np.convolve(values, np.full(window, 1.0 / window), mode="valid")
