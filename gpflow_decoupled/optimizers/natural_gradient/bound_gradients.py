"""The bound and its gradients in one pass."""

from __future__ import annotations

__all__ = [
    "BoundGradients", "added_up", "as_basis_model", "evaluate", "features_at", "gradients_of",
    "local_expansion", "local_gradient", "slope_of_rows",
]  # fmt: skip

from collections.abc import Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.models import SVGP

from ... import replicas
from ...bases import CoupledBasis, Features, GaussianPart
from ...bases.base import State
from ...errors import ModelError
from ...linalg.whitening import Whitener
from ...models import BasisGP
from ...models.families import require_model
from .held_sites import SiteSums, gradient_at_sites, site_sums


class BoundGradients(NamedTuple):
    """The bound at the current Parameters, and its derivatives.

    On several replicas bound, gradients and target are sums over the whole batch.
    """

    elbo: tf.Tensor
    """[], nats of the whole data set."""
    state: State
    """Result of the basis's `factor`, a NamedTuple."""
    features: Features
    """The basis's features at the data."""
    variance: tf.Tensor
    """Variance of q(f) at the data [N, L]."""
    g: tf.Tensor
    """dE/dmean [N, L], E the expected log density scaled to the whole data set."""
    h: tf.Tensor
    """dE/dvariance [N, L], at fixed mean."""
    gradients: list[tf.Tensor | None]
    """Gradients of bound plus log prior, one per variable asked for; None if independent of it."""
    scale: tf.Tensor
    """[], number of all observations over the batch's."""
    target: tuple[tf.Tensor, tf.Tensor] | None = None
    """theta* [M, L] and P* [L, M, M], a full step of the first Gaussian part, if asked for."""


def as_basis_model(model: BasisGP | SVGP, method: str = "This method") -> BasisGP:
    """Return the model, or the `BasisGP` that shares the Parameters of a GPflow `SVGP`."""
    if isinstance(model, BasisGP):
        if model.memory is not None:
            raise ModelError(
                f"{method} would forget the data that this {type(model).__name__} has taken in by"
                " update: continue with model.update(data), where learn=3 learns the kernel too;"
                " or set model.memory = None and pass all data."
            )
        return model
    require_model(method, model, BasisGP, SVGP)
    if model.q_sqrt.shape.rank != 3:
        raise ModelError(
            f"{method} needs an SVGP with a full covariance, and q_diag=True has no full"
            " covariance: build the model with q_diag=False."
        )
    view = _VIEWS.get(model)
    if view is None or _parts_of(view, view.basis) != _parts_of(model, model):
        with tf.init_scope():  # made and checked once, also if the first call is being traced
            basis = CoupledBasis(
                model.inducing_variable,
                model.num_latent_gps,
                whiten=model.whiten,
                q_mu=model.q_mu,
                q_sqrt=model.q_sqrt,
            )
            view = BasisGP(model.kernel, model.likelihood, basis, mean_function=model.mean_function)
        _VIEWS[model] = view
    view.num_data = model.num_data
    return view


_VIEWS: WeakKeyDictionary[SVGP, BasisGP] = WeakKeyDictionary()
"""One of each SVGP, which goes with it."""


def _parts_of(model: BasisGP | SVGP, q: CoupledBasis | SVGP) -> tuple[object, ...]:
    """What a view shares; users replace the parts of a model."""
    parts = model.kernel, model.likelihood, model.mean_function
    of_q = model.inducing_variable, q.q_mu, q.q_sqrt
    return *map(id, (*parts, *of_q)), model.num_latent_gps, q.whiten


def evaluate(
    model: BasisGP,
    data: RegressionData,
    variables: Sequence[tf.Variable] = (),
    rows: tf.Tensor | None = None,
    hold_sites: bool = False,
    with_target: bool = False,
    low: tf.DType | None = None,
) -> BoundGradients:
    """Evaluate the bound and its derivatives in one forward and one backward pass.

    With several replicas, each on its own rows, this sends two messages.

    :param data: X [N, D], Y [N, P].
    :param rows: indices [m] for the estimate of the mean's norm, see `Basis.factor`.
    :param hold_sites: differentiate at fixed sites of q (C28), not at fixed Parameters.
    :param with_target: compute `BoundGradients.target` too.
    :param low: precision of products with rows of data, if the basis `mixes_precision`.
    """
    X, Y = model.as_tensors(data)
    with tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
        tape.watch(list(variables))
        state = model.basis.factor(model.kernel, rows=rows)
        weights = model.basis.weights_of_rows(state) if hold_sites else None
        # where they are known, the slope of whitened rows is a part of `gradient_at_sites`
        known = (
            state if weights is None else state._replace(tangent=tf.stop_gradient(state.tangent))
        )
        features = features_at(model, known, X, low)
        mean, variance = features.mean, model.basis.variance(features, model.kernel, X)
        left = model.left_variances(features, X, slope_of_rows(model, state, weights, low))
        tape.watch([mean, variance])
        scale = model.scale(X)
        expectations = model.variational_expectations(mean, variance, (X, Y), left)
        expected = scale * tf.reduce_sum(expectations)
        elbo = expected - replicas.share(model.basis.prior_kl(state))
        objective = elbo + replicas.share(model.log_prior_density())
    g, h = tape.gradient(expected, [mean, variance])
    pairs = list(zip(model.basis.gaussians(state), features.minus))
    needed = pairs if hold_sites else pairs[:1] if with_target else []
    sums = [site_sums(part, A, g, h, low) for part, A in needed]
    held = (
        list(zip(model.basis.whiteners(state), (part for part, _ in pairs), sums))
        if hold_sites
        else []
    )
    gradients = gradients_of(tape, objective, variables, held, weights, low)
    target = (sums[0].theta, sums[0].precision) if with_target and sums else None
    return added_up(BoundGradients(elbo, state, features, variance, g, h, gradients, scale, target))


def slope_of_rows(
    model: BasisGP, state: State, weights: tf.Tensor | None, low: tf.DType | None
) -> tf.Tensor | None:
    """Return the tangent [G, M, M] for `left_variances`, in the precision of products with rows.

    None without `weights` [M, L].
    """
    if weights is None:
        return None
    return state.tangent if low is None else model.basis.lowered(state, low).tangent


def gradients_of(
    tape: tf.GradientTape,
    objective: tf.Tensor,
    variables: Sequence[tf.Variable],
    held: Sequence[tuple[Whitener, GaussianPart, SiteSums]],
    weights: tf.Tensor | None,
    low: tf.DType | None,
) -> list[tf.Tensor | None]:
    """Gradients of a scalar objective, one per variable.

    :param held: for fixed sites, each Gaussian part with its whitener and its sums.
    """
    targets, upstream = [objective], [tf.ones_like(objective)]
    for frame, part, sums in held:
        # what fixed sites add enters as a gradient with respect to the tangent of the whitening
        # factor
        targets.append(frame.tangent)
        upstream.append(gradient_at_sites(part, sums, frame.tangent, weights, low))
    return tape.gradient(targets, list(variables), output_gradients=upstream)


def features_at(model: BasisGP, state: State, X: tf.Tensor, low: tf.DType | None) -> Features:
    """Features at X [N, D] in its precision; products with rows are in `low`."""
    if low is None:
        return model.basis.features(state, model.kernel, X)
    found = model.basis.features(model.basis.lowered(state, low), model.kernel, X)
    return tf.nest.map_structure(lambda part: tf.cast(part, X.dtype), found)


def added_up(own: BoundGradients) -> BoundGradients:
    """Sum bound, gradients and target over the replicas, in one message."""
    found = [gradient for gradient in own.gradients if gradient is not None]
    target = [] if own.target is None else [own.target[1], own.target[0]]
    elbo, *sums = replicas.total([own.elbo, *target, *found], symmetric=[1] if target else [])
    if target:
        own = own._replace(target=(sums[1], sums[0]))
    left = iter(sums[len(target) :])
    return own._replace(
        elbo=elbo,
        gradients=[None if gradient is None else next(left) for gradient in own.gradients],
    )


def local_gradient(
    model: BasisGP,
    mean: tf.Tensor,
    variance: tf.Tensor,
    data: RegressionData,
    scale: tf.Tensor | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """dE/dmean and dE/dvariance [N, L] of `local_expansion`; X is [N, D], Y [N, P]."""
    return local_expansion(model, mean, variance, data, scale)[1:]


def local_expansion(
    model: BasisGP,
    mean: tf.Tensor,
    variance: tf.Tensor,
    data: RegressionData,
    scale: tf.Tensor | None = None,
    left: tf.Tensor | None = None,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """E [], dE/dmean and dE/dvariance [N, L], by one pass through the likelihood.

    :param mean: of q(f) at the data [N, L], less the mean function; `variance` likewise.
    :param data: X [N, D], Y [N, P].
    :param scale: factor of the data term []; None computes it.
    :param left: as in `BasisGP.variational_expectations`.
    """
    factor = model.scale(data[0]) if scale is None else scale
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch([mean, variance])
        expectations = model.variational_expectations(mean, variance, data, left)
        expected = factor * tf.reduce_sum(expectations)
    return expected, *tape.gradient(expected, [mean, variance])
