"""Kernels for inputs and functions of a given scale."""

from __future__ import annotations

__all__ = ["KERNELS", "ON_A_LINE", "STATIONARY", "draw_kernel"]

from collections.abc import Callable

import numpy as np
from gpflow import kernels

Make = Callable[[float, float, int], kernels.Kernel]
"""Of variance, lengthscale and D."""

STATIONARY: dict[str, Make] = {
    "SquaredExponential": lambda v, s, _: kernels.SquaredExponential(v, s),
    "SquaredExponential ARD": lambda v, s, D: kernels.SquaredExponential(v, np.full(D, s)),
    "Matern12": lambda v, s, _: kernels.Matern12(v, s),
    "Matern32": lambda v, s, _: kernels.Matern32(v, s),
    "Matern52": lambda v, s, _: kernels.Matern52(v, s),
}
"""Kernels that have forgotten the data a thousand lengthscales away."""

KERNELS: dict[str, Make] = {
    **STATIONARY,
    "RationalQuadratic": lambda v, s, _: kernels.RationalQuadratic(v, s),
    "Linear": lambda v, s, _: kernels.Linear(v / s**2),
    "Linear + Constant": lambda v, s, _: kernels.Linear(v / s**2) + kernels.Constant(v),
    "Polynomial": lambda v, s, _: kernels.Polynomial(2, v ** (1 / 2) / s**2, v ** (1 / 2)),
    "Periodic": lambda v, s, _: kernels.Periodic(
        kernels.SquaredExponential(v, 1.0), period=3.0 * s
    ),
    "Cosine": lambda v, s, _: kernels.Cosine(v, s),
    "ArcCosine": lambda v, s, _: kernels.ArcCosine(1, v, 1.0 / s**2, 1.0),
    "Matern52 + White": lambda v, s, _: kernels.Matern52(v, s) + kernels.White(0.1 * v),
    "Matern32 * Linear": lambda v, s, _: kernels.Matern32(v, s) * kernels.Linear(1.0 / s**2),
    "SquaredExponential of one column": lambda v, s, D: kernels.SquaredExponential(
        v, s, active_dims=[D - 1]
    ),
}

ON_A_LINE: dict[str, Make] = {
    **{name: STATIONARY[name] for name in ("Matern12", "Matern32", "Matern52")},
    "Matern12 + Cosine": lambda v, s, _: kernels.Matern12(v, s) + kernels.Cosine(v, s),
    "Matern32 * Matern12": lambda v, s, _: kernels.Matern32(v, s) * kernels.Matern12(1.0, 3.0 * s),
    "Matern52 + Constant": lambda v, s, _: kernels.Matern52(v, s) + kernels.Constant(v),
}
"""Kernels of one input that a chain of states has exactly."""


def draw_kernel(
    rng: np.random.Generator,
    variance: float,
    scale: float,
    columns: int,
    latents: int,
    line: bool = False,
) -> tuple[kernels.Kernel, str]:
    """A kernel and its name; for several latents at times with parameters of their own, or
    mixed.

    :param line: of `ON_A_LINE`, the same for all latents.
    """
    if line:
        name = str(rng.choice(list(ON_A_LINE)))
        return ON_A_LINE[name](variance, scale, columns), name
    name = str(rng.choice(list(STATIONARY if rng.uniform() < 0.4 else KERNELS)))
    make = KERNELS[name]
    if latents == 1 or rng.uniform() < 0.5:
        return make(variance, scale, columns), name
    if rng.uniform() < 0.3:
        return kernels.SharedIndependent(
            make(variance, scale, columns), latents
        ), f"SharedIndependent {name}"
    several = [make(variance * (1.0 + latent), scale, columns) for latent in range(latents)]
    if rng.uniform() < 0.3:
        W = rng.normal(size=(latents, latents))
        return kernels.LinearCoregionalization(several, W=W), f"LinearCoregionalization {name}"
    return kernels.SeparateIndependent(several), f"SeparateIndependent {name}"
