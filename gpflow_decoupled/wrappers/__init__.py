"""The package inside other libraries: plots, scikit-learn, trieste, bayesian_benchmarks. No other sub-package imports it.

`plots` and `calibration` draw with Matplotlib, which is imported when something is drawn; `axes` finds the place. `sklearn`
and `trieste` need these libraries and are imported by name only, as is `bayesian_benchmarks`, which needs no more than the
package. Every file stands on its own; read the one that you need.
"""

from .calibration import plot_calibration
from .plots import plot_history, plot_posterior_1d, plot_selection

__all__ = ["plot_calibration", "plot_history", "plot_posterior_1d", "plot_selection"]
