"""A model of standardised data in the units of the data.

`model_parts` has kernel and likelihood, made of `views` onto Parameters; `records` posterior and
record, `predictions` predictions.
"""

from .model_parts import kernel_in_units, likelihood_in_units
from .records import StandardizedPosterior, result_in_units

__all__ = ["StandardizedPosterior", "kernel_in_units", "likelihood_in_units", "result_in_units"]
