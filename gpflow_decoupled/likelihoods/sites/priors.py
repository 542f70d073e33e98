"""Sites of weights that have priors of their own."""

from __future__ import annotations

__all__ = ["prior_site"]

import tensorflow as tf
import tensorflow_probability as tfp
from gpflow.base import TensorType
from gpflow.config import default_float

from ...errors import DataError
from ...expectations.projections import Site
from .gaussian import gaussian_site
from .laplace import laplace_site
from .student_t import student_t_site

tfd = tfp.distributions


def prior_site(prior: tfp.distributions.Distribution, count: int) -> Site:
    """The site log p(w_d) of each of several weights with independent priors.

    :param prior: a scalar TFP distribution of batch shape [] or [p]. Laplace and normal priors have a Fourier transform in
        closed form; others are integrated by the route "spectral" or "lattice", and those other than Laplace, Student-t and
        normal ones must have batch shape [].
    :param count: p, the number of weights.
    :raises DataError: for a batch shape that is refused.

    Example::

        site = prior_site(tfp.distributions.Laplace(0.0, 0.5), count=10)
    """

    def rows(*parts: TensorType) -> tuple[tf.Tensor, ...]:
        return tuple(tf.cast(part, default_float()) + tf.zeros([count], default_float()) for part in parts)

    if isinstance(prior, tfd.Laplace):
        return laplace_site(*rows(prior.loc, prior.scale))
    if isinstance(prior, tfd.StudentT):
        return student_t_site(*rows(prior.loc, prior.scale, prior.df))
    if isinstance(prior, tfd.Normal):
        return gaussian_site(*rows(prior.loc, prior.scale))
    if prior.batch_shape.rank != 0:
        raise DataError(
            f"The prior {prior.name} has batch shape {prior.batch_shape}; pass one distribution of batch shape [] for all "
            "weights, or a Laplace, StudentT or Normal distribution."
        )
    return Site(smooth=lambda y: tf.cast(prior.log_prob(tf.cast(y, prior.dtype)), y.dtype))
