"""One pass through the bound: its value, and the derivatives that natural gradients and ordinary ones need."""

from __future__ import annotations

__all__ = ["Evaluation", "as_basis_model", "evaluate", "local_gradient"]

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.models import SVGP

from ...bases import CoupledBasis, Features
from ...bases.base import State
from ...errors import ModelError
from ...models import BasisGP
from ...models.families import require_model
from .held_sites import share_of_sites


class Evaluation(NamedTuple):
    """The bound at the current Parameters, and its derivatives."""

    elbo: tf.Tensor
    """[], nats of the whole data set."""
    state: State
    """What the basis's `factor` returned, a NamedTuple of its own type."""
    features: Features
    """Of the basis at the data."""
    variance: tf.Tensor
    """Of q(f) at the data [N, L]."""
    g: tf.Tensor
    """dE/dmean [N, L], where E is the expected log density, scaled to the whole data set."""
    h: tf.Tensor
    """dE/dvariance [N, L], the mean held fixed."""
    gradients: list[tf.Tensor | None]
    """Of the bound plus the log prior, one per variable that was asked for; None where it does not depend on the variable."""


def as_basis_model(model: BasisGP | SVGP, method: str = "This method") -> BasisGP:
    """The model itself, or a `BasisGP` that shares all Parameters with a plain `gpflow.models.SVGP`.

    :param model: what a user passed.
    :param method: the name of what was called, for the message.
    :raises ModelError: for other models, and for an SVGP with a diagonal covariance.
    """
    if isinstance(model, BasisGP):
        return model
    require_model(method, model, BasisGP, SVGP)
    if model.q_sqrt.shape.rank != 3:
        raise ModelError(
            f"{method} needs an SVGP with a full covariance, and q_diag=True has no full covariance: build the model with "
            "q_diag=False."
        )
    basis = CoupledBasis(
        model.inducing_variable,
        model.num_latent_gps,
        whiten=model.whiten,
        q_mu=model.q_mu,
        q_sqrt=model.q_sqrt,
    )
    return BasisGP(model.kernel, model.likelihood, basis, mean_function=model.mean_function, num_data=model.num_data)


def evaluate(
    model: BasisGP,
    data: RegressionData,
    variables: Sequence[tf.Variable] = (),
    rows: tf.Tensor | None = None,
    hold_sites: bool = False,
) -> Evaluation:
    """The bound and all derivatives, from one forward and one backward pass.

    :param model: a model on inducing points.
    :param data: X [N, D], Y [N, P].
    :param variables: what to differentiate with respect to, besides the moments of q(f).
    :param rows: indices [m] for the estimate of the mean's norm, see `Basis.factor`.
    :param hold_sites: differentiate while the sites of q's Gaussians stay as they are, (C28), instead of the Parameters.
    """
    X, Y = model.as_tensors(data)
    with tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
        tape.watch(list(variables))
        state = model.basis.factor(model.kernel, rows=rows)
        features = model.basis.features(state, model.kernel, X)
        mean, variance = features.mean, model.basis.variance(features, model.kernel, X)
        tape.watch([mean, variance])
        expected = model.scale(X) * tf.reduce_sum(model.variational_expectations(mean, variance, (X, Y)))
        elbo = expected - model.basis.prior_kl(state)
        objective = elbo + model.log_prior_density()
    g, h = tape.gradient(expected, [mean, variance])
    targets, upstream = [objective], [tf.ones_like(objective)]
    if hold_sites:
        # what fixed sites add enters as a gradient with respect to the tangent of each whitening factor
        basis = model.basis
        for frame, part, A in zip(basis.whiteners(state), basis.gaussians(state), features.minus):
            targets.append(frame.tangent)
            upstream.append(share_of_sites(part, A, g, h, frame.tangent))
    gradients = tape.gradient(targets, list(variables), output_gradients=upstream)
    return Evaluation(elbo, state, features, variance, g, h, gradients)


def local_gradient(
    model: BasisGP, mean: tf.Tensor, variance: tf.Tensor, data: RegressionData
) -> tuple[tf.Tensor, tf.Tensor]:
    """dE/dmean and dE/dvariance [N, L] at given moments, from a backward pass through the likelihood alone.

    :param model: its likelihood, mean function and mixing of outputs are used.
    :param mean: of q(f) at the data [N, L], less the mean function.
    :param variance: of q(f) at the data [N, L].
    :param data: X [N, D], Y [N, P].
    """
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch([mean, variance])
        expected = model.scale(data[0]) * tf.reduce_sum(model.variational_expectations(mean, variance, data))
    return tuple(tape.gradient(expected, [mean, variance]))
