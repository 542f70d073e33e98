"""Diagnostics: what is wrong with data, model or bound, said before a run, in it and after it.

Before: `scales.py` compares the sizes of Y with prior and noise, `lengthscales.py` the spacing of X
with the kernel, and `start.py` finds hyperparameters to start from. In it: `failure.py` explains a
step that failed, and `unusable_observation.py` names the row of the data that makes a bound
infinite. After it: `fall.py` warns of a bound that fell, and `accuracy.py` of expected log
densities that are not accurate, with the accurate ones of `integrals.py`.

Models are asked for two things, whatever their q: `model.moments(data)` and
`model.expected_log_densities(moments, data)`. Read `accuracy.py` first.
"""

from .accuracy import warn_of_quadrature
from .failure import explain, restored
from .fall import warn_of_fall
from .scales import check_digits, has_scale, noise_variance, warn_of_scales
from .start import Start, initialize
from .unusable_observation import naming_observation, unusable_observation

__all__ = [
    "Start", "check_digits", "explain", "has_scale", "initialize", "naming_observation",
    "noise_variance", "restored", "unusable_observation", "warn_of_fall", "warn_of_quadrature",
    "warn_of_scales",
]  # fmt: skip
