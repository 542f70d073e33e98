"""Plots of a run, and of one input."""

from __future__ import annotations

__all__ = [
    "Curve", "Observed", "axes_or_new", "curve", "inducing_sets", "inside", "legend_above",
    "new_figure", "observed", "plot_densities", "plot_history", "plot_posterior_1d",
    "plot_weights", "rgb", "round_levels",
]  # fmt: skip

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
from gpflow.models import GPModel
from gpflow.utilities import deepcopy
from scipy.stats import norm

from ..errors import DataError
from ..inducing.variables import point_values
from ..inputs import as_pair, as_values, check_finite_entries, check_whole, float_type, is_number
from ..likelihoods.facts import has_scale, is_gaussian, is_scalar, label_kind
from ..models import AffineIndependentGP, WeightsPosterior
from ..models.linear import weight_labels
from ..summaries import short_repr
from ..training import FitResult, Standardized

# ---
# Axes; the only module that imports Matplotlib.


if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MISSING = "Plots need Matplotlib, which is not installed: pip install matplotlib."


def axes_or_new(ax: Axes | None) -> Axes:
    """Return `ax`, or new axes if it is None."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(_MISSING) from error
    return plt.subplots(layout="constrained")[1] if ax is None else ax


def legend_above(ax: Axes, shown: Sequence[Artist]) -> None:
    """Draw a legend of these lines and bands above the axes."""
    names = [str(artist.get_label()) for artist in shown]
    ax.legend(
        shown,
        names,
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0),
        ncols=min(3, len(names)),
        frameon=False,
        fontsize="small",
    )


def new_figure(rows: int, columns: int, size: tuple[float, float]) -> tuple[Figure, np.ndarray]:
    """Return a figure and its axes [rows, columns].

    :param size: width and height in inches.
    """
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(_MISSING) from error
    return plt.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")


def rgb(name: str) -> tuple[float, float, float]:
    """Red, green and blue of a colour's name, such as "C0"."""
    from matplotlib.colors import to_rgb

    return to_rgb(name)


def round_levels(low: float, high: float) -> np.ndarray:
    """About a dozen round numbers [K] that cover [`low`, `high`]."""
    from matplotlib.ticker import MaxNLocator

    return np.asarray(MaxNLocator(12).tick_values(low, high if high > low else low + 1.0))


# ---
# The contents of a plot.


POINTS = {
    "beta": "inducing points beta",
    "gamma": "mean points gamma",
    "alpha": "mean points alpha",
}


class Curve(NamedTuple):
    """A posterior at inputs, on the scale of the observations."""

    centre: np.ndarray
    """[N, P]: mean of f if observations are f plus noise, else mean of an observation."""
    low: np.ndarray | None
    """[N, P], lower end of a 0.95 interval of f, if known."""
    high: np.ndarray | None
    """[N, P], its upper end."""
    noise: np.ndarray | None
    """[N, P], standard deviation of an observation under Gaussian noise, else None."""
    name: str
    """The name of `centre`."""


class Observed(NamedTuple):
    """Data of a plot."""

    X: np.ndarray
    """[N, D]"""
    Y: np.ndarray
    """[N, P]"""
    names: list[str]
    """[D], names of the columns of X."""


def inside(model: GPModel | Standardized) -> GPModel:
    """The GPflow model of a `Standardized` one; any other unchanged; `DataError` for no model."""
    found = model.model if isinstance(model, Standardized) else model
    if not hasattr(found, "predict_y"):
        raise DataError(f"model is a {type(model).__name__}; pass a GPflow model, or a built one.")
    return found


def curve(model: GPModel | Standardized, X: np.ndarray) -> Curve:
    """Return the posterior at X [N, D].

    The interval is mean -+ 2 standard deviations of f, or quantiles of a non-Gaussian f, mapped to
    the conditional mean (say, a probability) unless observations are f plus noise.
    """
    likelihood = inside(model).likelihood
    scaled = has_scale(likelihood)
    if not scaled and not is_scalar(likelihood):
        name = "probability of" if label_kind(likelihood) == "classes" else "mean of y"
        return Curve(model.predict_y(X)[0].numpy(), None, None, None, name)
    mean, variance = (part.numpy() for part in model.predict_f(X))
    ends = [mean - 2.0 * np.sqrt(variance), mean + 2.0 * np.sqrt(variance)]
    if hasattr(model, "predict_f_quantiles"):
        ends = [end[:, None] for end in model.predict_f_quantiles(X, (0.025, 0.975)).T]
    if scaled:
        noise = np.sqrt(model.predict_y(X)[1].numpy()) if is_gaussian(likelihood) else None
        return Curve(mean, ends[0], ends[1], noise, "mean")
    low, high = (np.asarray(likelihood.conditional_mean(X, end)) for end in ends)
    centre = model.predict_y(X)[0].numpy()
    name = "probability of 1" if label_kind(likelihood) == "binary" else "mean of y"
    return Curve(centre, np.minimum(low, high), np.maximum(low, high), None, name)


def observed(model: GPModel | Standardized, data: Sequence[npt.ArrayLike] | None) -> Observed:
    """Return X [N, D] and Y [N, P]: the argument, or the model's data."""
    inside(model)
    if data is None:
        data = (
            model.training_data if isinstance(model, Standardized) else getattr(model, "data", None)
        )
    if data is None:
        raise DataError(f"This {type(model).__name__} does not keep its data: pass (X, Y).")
    given: Sequence[object]
    if isinstance(model, Standardized) and model.table.columns:
        given, names = model.table.arrays(data), list(model.table.names)
    else:
        given = as_pair(data)
        names = [str(name) for name in getattr(given[0], "columns", ())]
    X, Y = (
        as_values(array, name, float_type(inside(model).kernel)) for array, name in zip(given, "XY")
    )
    for array, name in ((X, "X"), (Y, "Y")):
        if array.ndim != 2 or len(array) == 0 or len(array) != len(X):
            fix = (
                f"use {name}[:, None]"
                if array.ndim == 1
                else "pass X [N, D] and Y [N, P] of the same N observations"
            )
            raise DataError(f"{name} has shape {array.shape}; {fix}.")
        several = name == "Y" and array.shape[1] > 1  # whose gaps are not drawn
        check_finite_entries(np.where(np.isnan(array), 0.0, array) if several else array, name)
    if not names:
        names = ["x"] if X.shape[1] == 1 else [f"x{column}" for column in range(X.shape[1])]
    return Observed(X, Y, names)


def inducing_sets(model: GPModel | Standardized) -> dict[str, np.ndarray]:
    """Inducing points [M, D] by their names in a legend, in the units of X."""
    part = inside(model)
    basis = getattr(part, "basis", None)
    found = {label: getattr(basis, name, None) for name, label in POINTS.items()}
    if basis is None:
        found = {"inducing points": getattr(part, "inducing_variable", None)}
    sets = {
        label: point_values(variable) for label, variable in found.items() if variable is not None
    }
    values = {label: np.asarray(arrays[0]) for label, arrays in sets.items() if arrays}
    if isinstance(model, Standardized):
        return {label: np.asarray(model.inputs.inverse_transform(Z)) for label, Z in values.items()}
    return values


# ---


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
    noisy = model.predict_y(grid)[1].numpy() if is_gaussian(inside.likelihood) else None
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


# ---
# Plots of marginals.


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
