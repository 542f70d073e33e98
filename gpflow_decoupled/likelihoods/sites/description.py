"""What is known of the sites of one likelihood, in one record.

A site is the factor p(y_n | f_n) of one observation. Two methods of inference ask different things
of it:

- the Lagrangian dual needs f(h, sigma) = -E log p(y | eta) under a Gaussian, with derivatives: a
  `SiteLoss`;
- affine-independent inference needs log p(y | f) itself as a function of f and, where it is known,
  the Fourier transform of its second derivative: an `expectations.projections.Site`.

A `SiteDescription` says how both are built from a likelihood and its labels, and which labels are
valid. Expectations that conjugate computation and natural gradients need are methods of the
likelihood itself, as in GPflow.
"""

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
"""Of a likelihood and Y [N, L]"""
DensityBuilder = Callable[[Any, tf.Tensor], Site]
"""Of a likelihood and Y [N], the labels of one latent function"""


def check_one_latent(likelihood: gl.Likelihood) -> None:
    """Refuse likelihoods that are not a product of sites.

    :raises DataError: unless the likelihood has one latent function and one density per
    observation.
    """
    if not isinstance(likelihood, gl.ScalarLikelihood) or isinstance(
        likelihood, gl.SwitchedLikelihood
    ):
        raise DataError(
            f"{type(likelihood).__name__} has no sites: a site needs one latent function per"
            " observation and one density for all of them. Use a model that needs expected log"
            " densities alone, for example BasisGP or CVIGP."
        )


def site_by_density(likelihood: gl.ScalarLikelihood, Y: tf.Tensor) -> Site:
    """The site of any likelihood at labels Y [N], from its own log density.

    Without a Fourier transform, so that it is integrated by the routes "spectral" or "lattice".
    Scalar Parameters of the likelihood become columns [N] of the site, so that gradients reach
    them.
    """
    found = {
        name: value for name, value in vars(likelihood).items() if isinstance(value, Parameter)
    }
    scalars = {name: value for name, value in found.items() if int(np.prod(value.shape)) == 1}

    def smooth(f: tf.Tensor, label: tf.Tensor, *columns: tf.Tensor) -> tf.Tensor:
        substituted = copy.copy(likelihood)
        for name, column in zip(scalars, columns):
            object.__setattr__(substituted, name, column)  # past the tracking of tf.Module
        return substituted._scalar_log_prob(None, f, label)

    rows = tuple(
        tf.reshape(tf.convert_to_tensor(value), [-1]) + tf.zeros_like(Y)
        for value in scalars.values()
    )
    return Site(smooth=smooth, parameters=(Y, *rows))


class SiteDescription(NamedTuple):
    """What one observation contributes under one likelihood; declared once, and looked up by
    `registry.site_description`.
    """

    loss: SiteLossBuilder | None = None
    """How its expected loss under a Gaussian is built; None where the range of its derivatives is
    not known
    """
    density: DensityBuilder = site_by_density
    """How its log density as a function of f is built, with a Fourier transform where there is
    one
    """
    support: Support | None = None
    """Labels that are valid; None where all numbers are"""
