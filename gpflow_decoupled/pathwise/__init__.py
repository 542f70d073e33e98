"""Functions drawn from a posterior, for example for Thompson sampling.

Read `samples` first: a draw of `prior` plus a correction (Matheron's rule).
"""

from .samples import PathwiseSamples, pathwise_samples

__all__ = ["PathwiseSamples", "pathwise_samples"]


def __dir__() -> list[str]:
    return sorted(__all__)
