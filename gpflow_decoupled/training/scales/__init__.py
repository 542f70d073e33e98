"""Whether data and model are on the same scale: what `fit` says before its first step, and after its last one.

`likelihoods.py` says whose observations have a scale at all; `outputs.py` compares Y with prior and noise, `inputs.py` the
spacing of X with the lengthscales; `warn.py` joins them. `fall.py` looks at the bound after the run. Read `warn.py` first.
"""

from .fall import warn_of_fall
from .likelihoods import has_scale, noise_variance
from .warn import look_at_scales, warn_of_scales

__all__ = ["has_scale", "look_at_scales", "noise_variance", "warn_of_fall", "warn_of_scales"]
