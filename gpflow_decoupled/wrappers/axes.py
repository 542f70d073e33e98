"""The axes of a plot. Matplotlib is optional, and this is the only place where it is imported."""

from __future__ import annotations

__all__ = ["axes_or_new"]

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def axes_or_new(ax: Axes | None) -> Axes:
    """`ax`, or new axes if it is None.

    :raises ImportError: with the fix, if Matplotlib is not installed.
    """
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("Plots need Matplotlib, which is not installed: pip install matplotlib.") from error
    return plt.subplots(layout="constrained")[1] if ax is None else ax
