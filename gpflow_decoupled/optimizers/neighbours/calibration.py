"""Predictive variances that are right on average."""

from __future__ import annotations

__all__ = ["Calibration", "calibrate", "scales_of", "shrunk"]

from typing import NamedTuple

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.kernels import Kernel, Linear, Polynomial, Product, Static, Stationary, Sum
from gpflow.likelihoods import Gaussian

from ...models.neighbours import GaussianNNGP
from .judgement import Judged


class Calibration(NamedTuple):
    """The end of `NeighbourRounds.calibrate`.

    Example::

        print(NeighbourRounds(model).calibrate().done)
    """

    judged: Judged
    """Before it."""
    done: bool
    """True if the variances were changed."""


def calibrate(model: GaussianNNGP, judged: Judged) -> Calibration:
    """Multiply variances of kernel and noise by the spread of the leave-one-out errors.

    Means do not move (Allison et al. 2023). The spread is first shrunk towards 1 by its standard
    error, see `shrunk`. With a local spread its factor is multiplied instead; else skipped where
    nothing is left, or kernel or noise has no trainable variance.

    :param model: whose variances change.
    :param judged: at its present hyperparameters.
    """
    if model.spread_neighbours is not None:
        factor = shrunk(judged.spread, judged.error)
        model.spread_factor.assign(factor * model.spread_factor.numpy())
        return Calibration(judged, factor != 1.0)
    scales = scales_of(model)
    factor = 1.0 if scales is None else _factor(model.likelihood, judged)
    if scales is None or factor == 1.0:
        return Calibration(judged, False)
    for one in scales:
        one.assign(one.numpy() * factor)
    return Calibration(judged, True)


def _factor(likelihood: Gaussian, judged: Judged) -> float:
    """The factor of all variances, which leaves the noise above its lower bound.

    Noise that stayed at its bound while the kernel's variance fell would be a larger share of it,
    and means would move: on one set their error grew from 0.0005 to 0.006.
    """
    factor = shrunk(judged.spread, judged.error)
    if factor >= 1.0:
        return factor
    least = 1.01 * float(likelihood.variance_lower_bound)
    return min(1.0, max(factor, least / float(likelihood.variance.numpy())))


def shrunk(spread: float, error: float) -> float:
    """Shrink a spread by its standard error: 1 within one error, itself far from 1.

        log s -> (1 - (e / log s)^2)_+ log s

    Waiting for two standard errors left intervals of heavy-tailed outputs too narrow: there one
    standard error of a thousand rows is some 0.1.

    :param spread: s, above zero.
    :param error: e, the standard error of its logarithm.
    """
    log_spread = np.log(spread)
    if abs(log_spread) <= error:
        return 1.0
    return float(np.exp((1.0 - (error / log_spread) ** 2) * log_spread))


def scales_of(model: GaussianNNGP) -> list[gpflow.Parameter] | None:
    """The trainable variances of kernel and noise; None unless they scale both."""
    noise = model.likelihood.variance
    if not isinstance(noise, gpflow.Parameter) or int(tf.size(noise)) != 1:
        return None
    variances = _variances_of(model.kernel)
    every = [noise, *(variances or [])]
    if variances is None or not all(one.trainable for one in every):
        return None
    return list({id(one): one for one in every}.values())  # parts may share a variance


def _variances_of(kernel: Kernel) -> list[gpflow.Parameter] | None:
    """Variances whose multiplication scales the whole kernel; None if there are none."""
    if isinstance(kernel, Sum):
        parts = [_variances_of(one) for one in kernel.kernels]
        return None if None in parts else [one for part in parts for one in part or ()]
    if isinstance(kernel, Product):
        parts = [_variances_of(one) for one in kernel.kernels]
        return next((part for part in parts if part is not None), None)
    # the variance of a Polynomial is inside of its power
    scaled = isinstance(kernel, (Stationary, Static, Linear)) and not isinstance(kernel, Polynomial)
    return [kernel.variance] if scaled else None
