"""A plot of any model's posterior."""

from __future__ import annotations

__all__ = ["plot_posterior"]

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from gpflow.models import GPModel
from scipy.ndimage import gaussian_filter

from ..errors import DataError
from ..inputs import as_values, check_whole
from ..training import Standardized
from .plots import Curve, Observed, curve, inducing_sets, new_figure, observed, rgb, round_levels

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_PANELS = 9
_MOST_DOTS = 400
"""Observations in a plane; more of them hide the contours, and are drawn as lines of density."""
_BINS = 24
"""Of each column, to count observations in a plane: some ten in a bin where there are 5,000."""
_MARGIN = 0.05
"""Margin on both sides, as a share of the range of the data."""
_MARKS = {"inducing points beta": ("k", "|", "."), "inducing points": ("k", "|", ".")}
"""Colour, mark on an axis, and mark in a plane."""
_MEAN_MARKS = ("C3", "|", "+")


def plot_posterior(
    model: GPModel | Standardized,
    data: Sequence[npt.ArrayLike] | None = None,
    *,
    at: npt.ArrayLike | None = None,
    num_points: int | None = None,
) -> Figure:
    """Draw the posterior of any model on the scale of the observations.

    * One input column: a curve with a 0.95 band, data, points beta as ticks at the bottom, gamma at
      the top; dotted lines add noise.
    * Two columns: contours of the mean with the data (above 400 their density), and of the standard
      deviation of f with the points.
    * More: a curve over each of the first nine columns, the others held at `at`; data fade with
      distance.

    Unless observations are f plus noise, the curve is their mean, and the band is f's, mapped;
    several latents per observation have none.

    :param model: any GPflow model, or a `Standardized` one.
    :param data: X [N, D] and Y [N, P]; a data frame's columns are named. None: the model's data.
    :param at: [D], the held values of a slice; by default the medians.
    :param num_points: inputs per column; default 200 for curves, 40 for contours.
    :return: the figure.

    Example::

        plot_posterior(model, (X, Y)).savefig("posterior.png")
    """
    shown = observed(model, data)
    columns = shown.X.shape[1]
    count = num_points or (40 if columns == 2 else 200)
    check_whole(2, num_points=count)
    if columns == 2:
        return _contours(model, shown, count)
    centre = np.median(shown.X, axis=0) if at is None else as_values(at, "at").astype(shown.X.dtype)
    if centre.shape != (columns,):
        raise DataError(
            f"at has shape {centre.shape}; pass one value for each of the {columns} columns of X."
        )
    panels = min(columns, _MOST_PANELS)
    across = min(panels, 3)
    down = -(-panels // across)
    size = (6.4, 4.0) if panels == 1 else (3.2 * across + 0.6, 2.6 * down + 0.6)
    figure, axes = new_figure(down, across, size)
    for column, ax in enumerate(axes.flat):
        if column >= panels:
            ax.set_axis_off()
            continue
        _draw_slice(ax, model, shown, column, centre, count)
    _outside_legend(figure, axes.flat[0])
    if panels < columns:
        rest = columns - panels
        figure.supxlabel(
            f"the first {panels} of {columns} columns; {rest} more are held, not shown"
        )
    return figure


def _draw_slice(
    ax: Axes,
    model: GPModel | Standardized,
    shown: Observed,
    column: int,
    centre: np.ndarray,
    count: int,
) -> None:
    x = shown.X[:, column]
    values = np.linspace(*_limits(x), count)
    grid = np.tile(centre, (count, 1))
    grid[:, column] = values
    found = curve(model, grid.astype(shown.X.dtype))
    _draw_data(ax, shown, column, centre, found)
    outputs = found.centre.shape[1]
    for output in range(outputs):
        colour, suffix = f"C{output % 10}", "" if outputs == 1 else f" {output}"
        ax.plot(values, found.centre[:, output], color=colour, label=found.name + suffix, zorder=3)
        if found.low is not None and found.high is not None:
            ax.fill_between(
                values,
                found.low[:, output],
                found.high[:, output],
                color=colour,
                alpha=0.25,
                lw=0,
                zorder=2,
                label="0.95 band of f" if output == 0 else None,
            )
        if found.noise is not None:
            label = "0.95 of observations" if output == 0 else None
            for sign, named in ((-2.0, label), (2.0, None)):
                edge = found.centre[:, output] + sign * found.noise[:, output]
                ax.plot(values, edge, ":", color=colour, lw=1, zorder=2, label=named)
    for label, Z in inducing_sets(model).items():
        colour, mark, _ = _MARKS.get(label, _MEAN_MARKS)
        place = 0.02 if label in _MARKS else 0.98
        ax.plot(
            Z[:, column],
            np.full(len(Z), place),
            mark,
            color=colour,
            transform=ax.get_xaxis_transform(),
            label=label,
            ls="none",
            ms=4 if len(Z) > 100 else 6,
        )
    ax.set_xlim(*_limits(x))
    ax.set_xlabel(shown.names[column])


def _draw_data(ax: Axes, shown: Observed, column: int, centre: np.ndarray, found: Curve) -> None:
    if shown.Y.shape[1] != found.centre.shape[1]:
        return
    others = np.delete(shown.X - centre, column, axis=1)
    spread = np.delete(np.maximum(np.std(shown.X, axis=0), 1e-300), column)
    near = np.exp(-0.5 * np.sum(np.square(others / spread), axis=1))
    strength = min(0.8, 20.0 / len(shown.X) ** 0.5) * near
    for output in range(shown.Y.shape[1]):
        tone = (0.35, 0.35, 0.35) if shown.Y.shape[1] == 1 else rgb(f"C{output % 10}")
        colours = np.concatenate([np.tile(tone, (len(near), 1)), strength[:, None]], axis=1)
        ax.scatter(shown.X[:, column], shown.Y[:, output], s=9, c=colours, lw=0, zorder=1)


def _contours(model: GPModel | Standardized, shown: Observed, count: int) -> Figure:
    first, second = (np.linspace(*_limits(shown.X[:, column]), count) for column in range(2))
    grid = np.stack(np.meshgrid(first, second), axis=-1).reshape(-1, 2).astype(shown.X.dtype)
    found = curve(model, grid)
    deviation = np.sqrt(model.predict_f(grid)[1].numpy())
    outputs = min(found.centre.shape[1], _MOST_PANELS)
    paired = shown.Y.shape[1] == found.centre.shape[1]
    figure, axes = new_figure(outputs, 2, (9.0, 3.6 * outputs + 0.5))
    for output in range(outputs):
        suffix = "" if outputs == 1 else f" {output}"
        values = [found.centre[:, output]] + ([shown.Y[:, output]] if paired else [])
        low, high = (float(bound) for bound in (min(map(np.min, values)), max(map(np.max, values))))
        levels = round_levels(low, high)
        ax, other = axes[output]
        filled = ax.contourf(
            first, second, found.centre[:, output].reshape(count, count), levels, cmap="viridis"
        )
        figure.colorbar(filled, ax=ax)
        _draw_rows(ax, shown.X, shown.Y[:, output] if paired else None, (low, high))
        ax.set_title(found.name + suffix, fontsize="medium")
        filled = other.contourf(
            first,
            second,
            deviation[:, output % deviation.shape[1]].reshape(count, count),
            12,
            cmap="Greys",
        )
        figure.colorbar(filled, ax=other)
        for label, Z in inducing_sets(model).items():
            colour, _, mark = _MARKS.get(label, _MEAN_MARKS)
            other.plot(
                *Z.T[:2],
                mark,
                color="C0" if colour == "k" else colour,
                ms=5,
                ls="none",
                label=label,
            )
        other.set_title(f"standard deviation of f{suffix}", fontsize="medium")
        for panel in (ax, other):
            panel.set(
                xlabel=shown.names[0], xlim=_limits(shown.X[:, 0]), ylim=_limits(shown.X[:, 1])
            )
        ax.set_ylabel(shown.names[1])
    _outside_legend(figure, *axes[0])
    total = found.centre.shape[1]
    if outputs < total:
        figure.supxlabel(
            f"the first {outputs} of {total} outputs; {total - outputs} more are not shown"
        )
    return figure


def _draw_rows(
    ax: Axes, X: np.ndarray, values: np.ndarray | None, limits: tuple[float, float]
) -> None:
    if len(X) > _MOST_DOTS:
        counts, *edges = np.histogram2d(X[:, 0], X[:, 1], bins=_BINS)
        centres = [(edge[1:] + edge[:-1]) / 2.0 for edge in edges]
        smooth = gaussian_filter(counts, 1.0)
        levels = np.max(smooth) * np.array([0.1, 0.3, 0.6])
        ax.contour(*centres, smooth.T, levels, colors="w", linewidths=0.9)
        ax.plot([], [], color="0.75", lw=0.9, label="density of observations")
        return
    low, high = limits
    size = float(np.clip(3000.0 / len(X), 7.5, 25.0))
    dots = ax.scatter(X[:, 0], X[:, 1], s=size, edgecolors="k", lw=0.3, label="observations")
    if values is None:
        dots.set_facecolor("0.9")
        return
    dots.set(array=values, cmap="viridis", clim=(low, high))


def _outside_legend(figure: Figure, *axes: Axes) -> None:
    handles: dict[str, Artist] = {}
    for ax in axes:
        for handle, label in zip(*ax.get_legend_handles_labels()):
            handles.setdefault(label, handle)
    if handles:
        figure.legend(
            list(handles.values()),
            list(handles),
            loc="outside upper center",
            ncols=4,
            frameon=False,
            fontsize="small",
        )


def _limits(x: np.ndarray) -> tuple[float, float]:
    margin = _MARGIN * (float(np.ptp(x)) or 1.0)
    return float(x.min()) - margin, float(x.max()) + margin
