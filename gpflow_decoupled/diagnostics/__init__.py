"""Diagnostics of data, model and bound.

Before a run: `scales` compares Y with prior and noise, `lengthscales` X with the kernel; `starts`
finds lengthscales to start from, and whether Y is rough.

During: `failure` explains a failed step, `unusable_observation` finds the row. After: `trend` warns
of a bound that fell or still rises, `accuracy` of inaccurate expectations, by `integrals`;
`final_evidence` is the log evidence where cheap.
"""

from .accuracy import warn_of_quadrature
from .failure import explain, restored
from .final_evidence import final_evidence
from .scales import check_digits, has_scale, noise_variance, warn_of_scales
from .starts import lengthscale_factor, roughness, warn_of_no_signal
from .trend import warn_of_fall, warn_of_last_rise, warn_of_rise
from .unusable_observation import naming_observation, unusable_observation

__all__ = [
    "check_digits", "explain", "final_evidence", "has_scale", "lengthscale_factor",
    "naming_observation", "noise_variance", "restored", "roughness", "unusable_observation",
    "warn_of_fall", "warn_of_last_rise", "warn_of_no_signal", "warn_of_quadrature", "warn_of_rise",
    "warn_of_scales",
]  # fmt: skip
