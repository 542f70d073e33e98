"""Other parameters of the q(f) that a basis holds, as functions of it: they change nothing unless
they are written back.

`legendre` has the natural and the expectation parameters of bases with mean points beside beta;
`inverse_covariance` goes between the two covariances of a `DecoupledBasis`.
"""

from .inverse_covariance import with_covariance
from .legendre import (
    ExpectationParameters,
    LegendrePair,
    MomentParameters,
    NaturalParameters,
    assign_moments,
    legendre_pair,
    moment_parameters,
)

__all__ = [
    "ExpectationParameters", "LegendrePair", "MomentParameters", "NaturalParameters",
    "assign_moments", "legendre_pair", "moment_parameters", "with_covariance",
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted(__all__)
