"""The sites of a likelihood and its labels, as methods of inference ask for them: views of its
`SiteDescription`.
"""

from __future__ import annotations

__all__ = ["declare_site_loss", "is_logit", "likelihood_site", "site_loss"]

import numpy as np
import tensorflow as tf
from gpflow import likelihoods as gl
from gpflow.base import TensorType

from ..errors import DataError
from ..expectations.projections import Site
from .labels import check_labels
from .sites.description import SiteLossBuilder, check_one_latent
from .sites.logit import LOGIT
from .sites.registry import declare_site, site_description
from .sites.site_loss import SiteLoss, site_labels


def site_loss(likelihood: gl.Likelihood, Y: TensorType) -> SiteLoss:
    """The expected losses -E log p(y | f) of all labels under Gaussian f, with their derivatives.

    :param likelihood: with one latent function per observation, and with a declared loss.
    :param Y: labels [N, L].
    :raises DataError: for labels that are not finite or outside of the support, for parameters that
        are functions of the inputs or not positive, and for likelihoods without a declared loss;
        the message says how to declare one.

    Example::

        loss = site_loss(gpflow.likelihoods.Poisson(), Y)
        loss.value(h, sigma)  # [N, L], nats, at means and standard deviations [N, L]
    """
    labels = site_labels(Y)
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
    """Say how the site losses of a class of likelihoods are built: `declare_site` with a loss and
    nothing else.

    :param kind: a class of likelihoods with one latent function per observation.
    :param builder: of a likelihood and Y [N, L], its `SiteLoss`.
    :raises DataError: if `kind` is not a class of likelihoods.

    Example, for a likelihood whose -log p(y | f) has derivatives between -1 and 1 and is convex::

        declare_site_loss(
            Huber, lambda likelihood, Y: QuadratureLoss(likelihood, Y, lower=-1.0, upper=1.0)
        )
    """
    declare_site(kind, loss=builder)


def likelihood_site(likelihood: gl.Likelihood, Y: TensorType) -> Site:
    """The log densities log p(y_n | f_n) as functions of f_n, for affine-independent inference.

    :param likelihood: any with one latent function per observation. Logit, Laplace and Gaussian
        likelihoods have a Fourier transform in closed form and can be integrated by the route
        "frequency_sum", others by "spectral" and "lattice".
    :param Y: labels [N].
    :raises DataError: for likelihoods with several latents per observation, and for parameters that
        are functions of the inputs.

    Example::

        site = likelihood_site(BernoulliLogit(), Y[:, 0])
        # log p(y_n | f_n) [N, 1]
        site.smooth(f[:, None], *(part[:, None] for part in site.parameters))
    """
    check_one_latent(likelihood)
    return site_description(likelihood).density(likelihood, tf.convert_to_tensor(Y))


def is_logit(likelihood: gl.Likelihood) -> bool:
    """Whether the labels are binary and their log density is that of the logistic link."""
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
