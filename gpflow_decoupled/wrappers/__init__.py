"""The package inside other libraries: plots, scikit-learn, trieste, bayesian_benchmarks. No other
sub-package imports it.

`posterior`, `marginals`, `plots` and `calibration` draw with Matplotlib, which is imported when
something is drawn; `axes` finds the place, and `curves` what to draw of a posterior. `sklearn` and
`trieste` need these libraries and are imported by name only, as is `bayesian_benchmarks`, which
needs no more than the package. Every file stands on its own; read the one that you need.
"""

from .calibration import plot_calibration
from .marginals import plot_densities, plot_weights
from .plots import plot_history, plot_posterior_1d, plot_selection
from .posterior import plot_posterior

__all__ = [
    "plot_calibration", "plot_densities", "plot_history", "plot_posterior", "plot_posterior_1d",
    "plot_selection", "plot_weights",
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted(__all__)
