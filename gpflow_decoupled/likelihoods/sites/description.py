"""The description of a likelihood's sites."""

from __future__ import annotations

__all__ = [
    "DensityBuilder",
    "SiteDescription",
    "SiteLossBuilder",
    "check_one_latent",
    "site_by_density",
]

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow import Parameter
from gpflow import likelihoods as gl
from gpflow.base import TensorType

from ...errors import DataError
from ...expectations.projections import Site
from ..support import Support
from .site_loss import SiteLoss

# The likelihood is of the class for which the builder is declared, which no annotation can say.
SiteLossBuilder = Callable[[Any, TensorType], SiteLoss]
"""(likelihood, Y [N, L]) -> its loss."""
DensityBuilder = Callable[[Any, tf.Tensor], Site]
"""(likelihood, Y [N] of one latent function, or [N, 2] with a number) -> its log density."""


def check_one_latent(likelihood: gl.Likelihood) -> None:
    """Refuse likelihoods that are not a product of sites."""
    if not isinstance(likelihood, gl.ScalarLikelihood) or isinstance(
        likelihood, gl.SwitchedLikelihood
    ):
        raise DataError(
            f"{type(likelihood).__name__} has no sites: a site needs one latent function per"
            " observation and one density for all of them. Use a model that needs expected log"
            " densities alone, for example BasisGP or CVIGP."
        )


def site_by_density(likelihood: gl.ScalarLikelihood, Y: tf.Tensor) -> Site:
    """Return the site of any likelihood at labels Y [N], from its log density.

    Y of a `NumberedLikelihood` is [N, 2]. Without a Fourier transform.
    """
    found = {
        name: value for name, value in vars(likelihood).items() if isinstance(value, Parameter)
    }
    scalars = {name: value for name, value in found.items() if int(np.prod(value.shape)) == 1}

    labels = (Y,) if len(Y.shape) == 1 else tuple(tf.unstack(Y, num=2, axis=1))

    def smooth(f: tf.Tensor, *columns: tf.Tensor) -> tf.Tensor:
        substituted = copy.copy(likelihood)
        for name, column in zip(scalars, columns[len(labels) :]):
            object.__setattr__(substituted, name, column)  # past the tracking of tf.Module
        label = columns[0] if len(labels) == 1 else tf.concat(columns[:2], axis=-1)
        return substituted._scalar_log_prob(None, f, label)

    rows = tuple(
        tf.reshape(tf.convert_to_tensor(value), [-1]) + tf.zeros_like(labels[0])
        for value in scalars.values()
    )
    return Site(smooth=smooth, parameters=(*labels, *rows))


class SiteDescription(NamedTuple):
    """The sites of a likelihood; declared once, found by `registry.site_description`."""

    loss: SiteLossBuilder | None = None
    """Builds the expected loss under a Gaussian; None if its slopes' range is unknown."""
    density: DensityBuilder = site_by_density
    """Builds the log density as a function of f, with a Fourier transform if there is one."""
    support: Support | None = None
    """Valid labels; None is all numbers."""
