"""Whether data and model are on the same scale: what `fit` says before its first step.

`likelihoods.py` says whose observations have a scale at all; `outputs.py` compares Y with prior and noise, `inputs.py` the
spacing of X with the lengthscales; `warn.py` joins them. Read `warn.py` first.
"""

from .likelihoods import has_scale, noise_variance
from .warn import look_at_scales, warn_of_scales

__all__ = ["has_scale", "look_at_scales", "noise_variance", "warn_of_scales"]
