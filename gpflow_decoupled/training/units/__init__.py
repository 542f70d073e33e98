"""A model of standardised data in the units of the data.

`data` converts X and Y, `predictions` has the verbs that ask the model, and its posterior;
`known_noise` checks the noise of new rows.
`model_parts` has kernel, likelihood and inducing points, made of `views` onto the Parameters that
train; `own_parts` brings parts of the user inside, `records` has the record of a run.
"""

from .model_parts import has_log_scale, inducing_in_units, kernel_in_units, likelihood_in_units
from .own_parts import StandardizedMean, fixed_numbers_inside
from .predictions import StandardizedPosterior
from .records import result_in_units

__all__ = [
    "StandardizedMean", "StandardizedPosterior", "fixed_numbers_inside", "has_log_scale",
    "inducing_in_units", "kernel_in_units", "likelihood_in_units", "result_in_units",
]  # fmt: skip
