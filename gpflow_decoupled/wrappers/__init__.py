"""Conveniences around models and results; nothing below depends on them.

`wrappers.sklearn` needs scikit-learn and is not imported with the package; `wrappers.bayesian_benchmarks` needs nothing more.
"""

from .calibration import plot_calibration
from .plots import plot_history, plot_posterior_1d, plot_selection

__all__ = ["plot_calibration", "plot_history", "plot_posterior_1d", "plot_selection"]
