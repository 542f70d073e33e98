"""The sites of a likelihood."""

from __future__ import annotations

__all__ = [
    "declare_site_loss", "expected_log_densities", "is_logit", "likelihood_site", "site_loss",
]  # fmt: skip

import numpy as np
import tensorflow as tf
from gpflow import likelihoods as gl
from gpflow.base import TensorType
from gpflow.likelihoods.base import DEFAULT_NUM_GAUSS_HERMITE_POINTS

from ..errors import DataError
from ..expectations.peaked import peaked_rule
from ..expectations.projections import Site
from .categorical_logit import CategoricalLogit
from .labels import check_labels
from .numbered import NumberedLikelihood
from .sites.description import SiteLossBuilder, check_one_latent
from .sites.logit_site import LOGIT
from .sites.registry import declare_site, site_description
from .sites.site_loss import SiteLoss, site_labels
from .sites.student_t_site import STUDENT_T


def site_loss(likelihood: gl.Likelihood, Y: TensorType) -> SiteLoss:
    """Return the expected losses -E log p(y | f) of all labels under a Gaussian f.

    :param likelihood: with a declared loss: one latent function per observation, or a
        `CategoricalLogit`, whose loss is its bound.
    :param Y: labels [N, L].

    Example::

        loss = site_loss(gpflow.likelihoods.Poisson(), Y)
        loss.value(h, sigma)  # [N, L], nats, at means and standard deviations [N, L]
    """
    labels = site_labels(Y)
    if not isinstance(likelihood, CategoricalLogit):
        check_one_latent(likelihood)
    builder = site_description(likelihood).loss
    if builder is None:
        raise DataError(_not_declared(likelihood))
    if tf.executing_eagerly():
        values = np.asarray(labels)
        if not np.all(np.isfinite(values)):
            raise DataError(
                f"Y has {np.sum(~np.isfinite(values))} entries that are not finite numbers; remove"
                " these rows."
            )
        check_labels(likelihood, values)
    return builder(likelihood, labels)


def declare_site_loss(kind: type[gl.Likelihood], builder: SiteLossBuilder) -> None:
    """Declare the site losses of a class of likelihoods: `declare_site` with a loss alone.

    :param kind: a class of likelihoods with one latent function per observation.
    :param builder: (likelihood, Y [N, L]) -> its `SiteLoss`.

    Example, for a convex -log p(y | f) with derivatives between -1 and 1::

        declare_site_loss(
            Huber, lambda likelihood, Y: QuadratureLoss(likelihood, Y, lower=-1.0, upper=1.0)
        )
    """
    declare_site(kind, loss=builder)


def likelihood_site(likelihood: gl.Likelihood, Y: TensorType) -> Site:
    """Return log p(y_n | f_n) as functions of f_n, for affine-independent inference.

    :param likelihood: with one latent function per observation. Logit, Laplace, Student-t and
        Gaussian have closed Fourier transforms, for the route "frequency_sum".
    :param Y: labels [N] or [N, 1]; [N, 2] for a `NumberedLikelihood`.

    Example::

        site = likelihood_site(BernoulliLogit(), Y[:, 0])
        # log p(y_n | f_n) [N, 1]
        site.smooth(f[:, None], *(part[:, None] for part in site.parameters))
    """
    check_one_latent(likelihood)
    labels = tf.convert_to_tensor(Y)
    if labels.shape.rank == 2 and not isinstance(likelihood, NumberedLikelihood):
        labels = labels[:, 0]
    return site_description(likelihood).density(likelihood, labels)


def expected_log_densities(
    likelihood: gl.Likelihood, X: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor, Y: tf.Tensor
) -> tf.Tensor:
    """E log p(y_n | f_n) [N] in nats, by nodes that follow the labels of Student-t noise.

    :param X: inputs [N, D]; mean and variance of f are [N, L].
    :param Y: labels [N, P].
    """
    # GPflow's fixed nodes miss a Student-t that is narrow beside q(f), where steps of the sites
    # then stall. Other likelihoods use their `variational_expectations`. Cost for Student-t noise:
    # 128 log densities per observation.
    if site_description(likelihood).loss is not STUDENT_T.loss:
        return likelihood.variational_expectations(X, mean, variance, Y)
    # the root of a variance of zero would have an infinite slope
    floor = tf.constant(np.finfo(variance.dtype.as_numpy_dtype).tiny, variance.dtype)
    spread = tf.sqrt(tf.maximum(variance, floor))
    labels = tf.cast(Y, mean.dtype)
    width = tf.ones_like(mean) * likelihood._scale(X) * likelihood.df**0.5
    nodes = getattr(likelihood.quadrature, "n_gh", DEFAULT_NUM_GAUSS_HERMITE_POINTS)
    z, w = peaked_rule(mean, spread, labels, width, nodes)
    densities = likelihood._scalar_log_prob(X, mean + spread * z, labels)
    return tf.reduce_sum(w * densities, axis=[0, -1])


def is_logit(likelihood: gl.Likelihood) -> bool:
    """Return True for binary labels with the logistic link's log density."""
    return site_description(likelihood).density is LOGIT.density


def _not_declared(likelihood: gl.Likelihood) -> str:
    name, link = type(likelihood).__name__, getattr(likelihood, "invlink", None)
    known = (
        name if link is None else f"{name} with the inverse link {getattr(link, '__name__', link)}"
    )
    return (
        f"No site loss is declared for {known}: between what numbers the derivative of -log p(y |"
        f" f) in f lies is not known. Declare it: declare_site({name}, loss=lambda likelihood, Y:"
        " QuadratureLoss(likelihood, Y, lower, upper, curvature)), both from"
        " gpflow_decoupled.likelihoods."
    )
