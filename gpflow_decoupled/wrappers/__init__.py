"""Conveniences around models and results; nothing below depends on them."""

from .plots import plot_history, plot_posterior_1d, plot_selection

__all__ = ["plot_history", "plot_posterior_1d", "plot_selection"]
