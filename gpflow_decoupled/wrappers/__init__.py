"""The package inside other libraries: plots, scikit-learn, trieste.

`posterior_plots`, `marginal_plots`, `plots` and `calibration` draw with Matplotlib, helped by
`axes` and `curves`; `matters` ranks inputs and compares models, `effects` has effects of inputs.
`sklearn` and `trieste` are imported by name only; `estimator`, `classes` and `validation` serve
`sklearn`.
"""

from .calibration import plot_calibration
from .effects import partial_dependence, sobol_shares
from .marginal_plots import plot_densities, plot_weights
from .matters import Comparison, compare, importance
from .plots import plot_history, plot_posterior_1d
from .posterior_plots import plot_posterior

__all__ = [
    "Comparison", "compare", "importance", "partial_dependence", "plot_calibration",
    "plot_densities", "plot_history", "plot_posterior", "plot_posterior_1d", "plot_weights",
    "sobol_shares",
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted(__all__)
