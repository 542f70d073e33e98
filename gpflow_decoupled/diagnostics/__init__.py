"""Diagnostics of data, model and bound.

Before a run `scales` compares the data with the model. During it `failure` explains a failed step.
After it `trend` warns of a bound that fell or still rises, and `accuracy` of inaccurate
expectations.
"""

from .accuracy import warn_of_quadrature
from .failure import explain, naming_observation, restored, unusable_observation
from .scales import check_digits, warn_of_scales
from .starts import (
    lengthscale_factor,
    multiply_lengthscales,
    other_start,
    roughness,
    values_of,
    warn_of_no_signal,
)
from .trend import final_evidence, warn_of_fall, warn_of_last_rise, warn_of_rise

__all__ = [
    "check_digits", "explain", "final_evidence", "lengthscale_factor",
    "multiply_lengthscales", "naming_observation", "other_start", "restored",
    "roughness", "unusable_observation", "values_of", "warn_of_fall",
    "warn_of_last_rise", "warn_of_no_signal", "warn_of_quadrature", "warn_of_rise",
    "warn_of_scales",
]  # fmt: skip
