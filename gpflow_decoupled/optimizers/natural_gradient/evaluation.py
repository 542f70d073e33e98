"""One pass through the bound that serves every optimizer: its value, dE/dmean and dE/dvar, and the other gradients."""

from __future__ import annotations

__all__ = ["Evaluation", "as_basis_model", "evaluate", "local_gradient"]

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.models import SVGP

from ...bases import CoupledBasis, Features
from ...models import BasisGP
from .held_sites import share_of_sites


class Evaluation(NamedTuple):
    """The bound at the current Parameters, and what its optimizers need."""

    elbo: tf.Tensor
    """[], nats of the whole data set."""
    state: Any
    features: Features
    variance: tf.Tensor
    """[N, L]"""
    g: tf.Tensor
    """[N, L]: derivative of the scaled expected log density with respect to the mean."""
    h: tf.Tensor
    """[N, L]: with respect to the variance, the mean held fixed."""
    gradients: list
    """Of bound plus log prior, one a variable asked for; None where it does not depend on it."""


def as_basis_model(model: Any) -> BasisGP:
    """The model itself, or a `BasisGP` that shares all Parameters with a plain `gpflow.models.SVGP`.

    Raises `TypeError` for other models, and for an SVGP with a diagonal covariance.
    """
    if isinstance(model, BasisGP):
        return model
    if not isinstance(model, SVGP):
        raise TypeError(
            f"{type(model).__name__} has no basis; use a model of gpflow_decoupled.models, or gpflow.models.SVGP."
        )
    if model.q_sqrt.shape.rank != 3:
        raise TypeError("SVGP with q_diag=True has no full covariance to step in; build it with q_diag=False.")
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
    """The bound and all gradients from one forward and one backward pass.

    :param data: X [N, D], Y [N, P]. :param variables: what to differentiate with respect to, besides the moments.
    :param rows: indices for the mean's norm, see `Basis.factor`.
    :param hold_sites: differentiate at fixed sites of q's Gaussians, (C28), instead of at fixed Parameters.
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
        basis = model.basis
        for frame, part, A in zip(basis.whiteners(state), basis.gaussians(state), features.minus):
            targets.append(frame.tangent)
            upstream.append(share_of_sites(part, A, g, h, frame.tangent))
    gradients = tape.gradient(targets, list(variables), output_gradients=upstream)
    return Evaluation(elbo, state, features, variance, g, h, gradients)


def local_gradient(
    model: BasisGP, mean: tf.Tensor, variance: tf.Tensor, data: RegressionData
) -> tuple[tf.Tensor, tf.Tensor]:
    """G and h [N, L] at given moments [N, L]: reverse mode through the likelihood only."""
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch([mean, variance])
        expected = model.scale(data[0]) * tf.reduce_sum(model.variational_expectations(mean, variance, data))
    return tuple(tape.gradient(expected, [mean, variance]))
