"""Axes; the only module that imports Matplotlib."""

from __future__ import annotations

__all__ = ["axes_or_new", "legend_above", "new_figure", "rgb", "round_levels"]

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

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
