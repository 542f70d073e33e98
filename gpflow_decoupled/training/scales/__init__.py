"""Whether data and model are on the same scale: what `fit` says before its first step, and after
its last one.

`likelihoods.py` says whose observations have a scale at all; `outputs.py` compares Y with prior and
noise, `inputs.py` the spacing of X with the lengthscales; `warn.py` joins them. `digits.py` refuses
a noise below the round-off of the prior. `start.py` finds values that suit the data, and
`beginning.py` is what a run does of this before its first step. `fall.py` looks at the bound after
it. Read `warn.py` first.
"""

from .beginning import Beginning
from .fall import warn_of_fall
from .likelihoods import has_scale, noise_variance
from .start import Start, initialize
from .warn import look_at_scales, warn_of_scales

__all__ = [
    "Beginning",
    "Start",
    "has_scale",
    "initialize",
    "look_at_scales",
    "noise_variance",
    "warn_of_fall",
    "warn_of_scales",
]
