"""Where a plot is drawn. Matplotlib is optional, and imported here alone."""

from __future__ import annotations

__all__ = ["axes_or_new"]

from typing import Any


def axes_or_new(ax: Any | None) -> Any:
    """`ax`, or new axes; raises `ImportError`, with the fix, without Matplotlib."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("Plots need Matplotlib, which is not installed: pip install matplotlib.") from error
    return plt.subplots(layout="constrained")[1] if ax is None else ax
