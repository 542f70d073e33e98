"""The package inside other libraries: plots, scikit-learn, trieste.

`posterior_plots`, `plots` and `calibration` draw with Matplotlib; `effects` has effects of inputs
and which of them matter. `sklearn` and `trieste` are imported by name only.
"""

from .calibration import plot_calibration
from .effects import Comparison, compare, importance, partial_dependence, sobol_shares
from .plots import plot_densities, plot_history, plot_posterior_1d, plot_weights
from .posterior_plots import plot_posterior

__all__ = [
    "Comparison", "compare", "importance", "partial_dependence", "plot_calibration",
    "plot_densities", "plot_history", "plot_posterior", "plot_posterior_1d", "plot_weights",
    "sobol_shares",
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted(__all__)
