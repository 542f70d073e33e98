"""A training step in which q moves first."""

# At the old q the gradient of kernel and likelihood is mostly noise of the batch: on houses, with
# 90 points and batches of 256, that costs 230 nats after 1,500 steps. Both evaluations share A =
# L^-1 k(beta, x): the mean moves by A^T (m~_new - m~_old), and the variance uses R_new^T A with the
# new root.

from __future__ import annotations

__all__ = ["can_move_first", "evaluate_in_turn"]

from collections.abc import Sequence

import tensorflow as tf
from gpflow.base import RegressionData

from ... import replicas
from ...bases import Features, GaussianPart, InducingBasis
from ...bases.base import State
from ...linalg.gaussians import apply_per_latent
from ...linalg.triangular import transposed_product
from ...models import BasisGP
from .bound_gradients import (
    BoundGradients,
    added_up,
    features_at,
    gradients_of,
    local_expansion,
    slope_of_rows,
)
from .held_sites import SiteSums, site_sums
from .moves import Move
from .natural_gradient import NaturalGradient


def can_move_first(basis: InducingBasis, natural: NaturalGradient) -> bool:
    """True if q's Parameters do not depend on the kernel and no solver sets the coefficients."""
    return (
        basis.whiten
        and basis.replaces_gaussians
        and (natural.mean is None or basis.kernel_mean is None)
    )


def evaluate_in_turn(
    model: BasisGP,
    data: RegressionData,
    natural: NaturalGradient,
    variables: Sequence[tf.Variable],
    rows: tf.Tensor | None = None,
    hold_sites: bool = False,
    low: tf.DType | None = None,
) -> tuple[BoundGradients, Move]:
    """Evaluate the bound at q, the move of q (not written), and the gradients at the new q.

    Costs M^2 N more than one pass; three messages on several replicas.

    :param data: X [N, D], Y [N, P].
    :param rows: indices [m], see `evaluate`, as `hold_sites` and `low`.
    """
    (X, Y), basis = model.as_tensors(data), model.basis
    with tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
        tape.watch(list(variables))
        # 1. where q goes
        state = basis.factor(model.kernel, rows=rows)
        for_rows, weights = state, basis.weights_of_rows(state) if hold_sites else None
        if weights is not None:  # see `evaluate`
            for_rows = state._replace(tangent=tf.stop_gradient(state.tangent))
        features, old = features_at(model, for_rows, X, low), basis.gaussians(state)
        left = model.left_variances(features, X, slope_of_rows(model, state, weights, low))
        with tape.stop_recording():
            with_target = natural.starts_at(model)
            now, sums = _evaluation(model, (X, Y), state, features, left, with_target, low)
            move = natural.propose(model, (X, Y), now, [])
            new = tuple(part.gaussian() for part in move.naturals)
        # 2. the moments there
        moved, features = basis.with_gaussians(state, new), _under(features, old, new, low)
        mean, variance = features.mean, basis.variance(features, model.kernel, X)
        tape.watch([mean, variance])
        # 3. the bound there
        expectations = model.variational_expectations(mean, variance, (X, Y), left)
        expected = now.scale * tf.reduce_sum(expectations)
        objective = expected + replicas.share(model.log_prior_density() - basis.prior_kl(moved))
    held = []
    if hold_sites:
        g, h = tape.gradient(expected, [mean, variance])
        known = [None if sums is None else (now.h, sums.precision)] + [None] * (len(new) - 1)
        there = [
            site_sums(part, A, g, h, low, before)
            for part, A, before in zip(new, features.minus, known)
        ]
        held = list(zip(basis.whiteners(state), new, there))
    weights = basis.weights_of_rows(moved) if hold_sites else None
    gradients = gradients_of(tape, objective, variables, held, weights, low)
    found = iter(replicas.total([gradient for gradient in gradients if gradient is not None]))
    return now._replace(
        gradients=[None if gradient is None else next(found) for gradient in gradients]
    ), move


def _evaluation(
    model: BasisGP,
    data: RegressionData,
    state: State,
    features: Features,
    left: tf.Tensor | None,
    with_target: bool,
    low: tf.DType | None,
) -> tuple[BoundGradients, SiteSums | None]:
    variance, scale = model.basis.variance(features, model.kernel, data[0]), model.scale(data[0])
    expected, g, h = local_expansion(model, features.mean, variance, data, scale, left)
    elbo, sums = expected - replicas.share(model.basis.prior_kl(state)), None
    if with_target:
        sums = site_sums(model.basis.gaussians(state)[0], features.minus[0], g, h, low)
    target = None if sums is None else (sums.theta, sums.precision)
    return added_up(BoundGradients(elbo, state, features, variance, g, h, [], scale, target)), sums


def _under(
    features: Features,
    old: Sequence[GaussianPart],
    new: Sequence[GaussianPart],
    low: tf.DType | None,
) -> Features:
    mean, plus = features.mean, list(features.plus)
    for k, (was, now, A) in enumerate(zip(old, new, features.minus)):
        if was.mean is not None and now.mean is not None:
            mean += apply_per_latent(A, now.mean - tf.stop_gradient(was.mean), adjoint=True)
        dtype = A.dtype if low is None else low
        plus[k] = tf.cast(transposed_product(tf.cast(now.root, dtype), tf.cast(A, dtype)), A.dtype)
    return Features(mean, features.minus, tuple(plus))
