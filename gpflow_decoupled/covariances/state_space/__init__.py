"""Kernels on a line as linear stochastic differential equations (Hartikainen & Sarkka 2010).

`kernels` first. `matern` has one with noise, `periodic` those without, `model` the matrices of all.
"""

from .kernels import KERNELS, refuse_kernel, series_error_of, state_space
from .model import StateSpace, resized

__all__ = [
    "KERNELS", "StateSpace", "refuse_kernel", "resized", "series_error_of", "state_space",
]  # fmt: skip
