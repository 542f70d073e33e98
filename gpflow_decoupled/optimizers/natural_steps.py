"""What natural-gradient steps are made of: parameters, fixed sites, one pass over a batch."""

from __future__ import annotations

__all__ = [
    "BoundGradients", "Natural", "PrecisionMemory", "SiteSums", "as_basis_model", "carry_over",
    "evaluate", "gradient_at_sites", "local_gradient", "natural_step", "newton_direction",
    "site_sums", "steepest_step", "under",
]  # fmt: skip

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import NamedTuple
from weakref import WeakKeyDictionary

import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.models import SVGP

from .. import replicas
from ..bases import CoupledBasis, Features, GaussianPart, InducingBasis
from ..bases.base import State
from ..bases.kernel_mean import MeanOperator, MeanScaling
from ..compilation import rarely
from ..errors import ModelError
from ..linalg.cholesky import cholesky
from ..linalg.conjugate_gradients import conjugate_gradients
from ..linalg.triangular import (
    lower_congruence,
    lower_gram,
    lower_outer,
    solve_lower,
    symmetric_product,
    transposed_product,
)
from ..linalg.whitening import (
    apply_per_latent,
    precision_factor,
    precision_from_root,
    root_from_factor,
)
from ..models import BasisGP
from ..models.families import require_model

# ---
# Natural parameters of a Gaussian, and their steps.


class Natural(NamedTuple):
    """Whitened natural parameters theta = S^-1 m and P = S^-1; factorising P tests definiteness."""

    theta: tf.Tensor | None
    """[M, L]; None if the basis ties only the covariance to this part."""
    precision: tf.Tensor
    """[L, M, M]"""
    factor: tf.Tensor
    """[L, M, M], see `precision_factor`."""
    ok: tf.Tensor
    """[], bool: whether all numbers are finite and P is positive definite."""

    @classmethod
    def of(cls, theta: tf.Tensor | None, precision: tf.Tensor) -> Natural:
        """Factorise the precision; cost M^3 / 3 per latent."""
        factor, ok = precision_factor(precision)
        return cls(
            theta,
            precision,
            factor,
            ok if theta is None else ok & tf.reduce_all(tf.math.is_finite(theta)),
        )

    def gaussian(self) -> GaussianPart:
        """Mean and root of S; cost M^3 / 2 per latent."""
        root = root_from_factor(self.factor)
        if self.theta is None:
            return GaussianPart(None, root)
        return GaussianPart(
            apply_per_latent(root, apply_per_latent(root, self.theta, adjoint=True)), root
        )


def natural_step(
    theta: tf.Tensor,
    precision: tf.Tensor,
    target_theta: tf.Tensor,
    target_precision: tf.Tensor,
    step_size: tf.Tensor,
    max_halvings: int,
) -> tuple[Natural, tf.Tensor]:
    """Move natural parameters towards a target, halving the step until P is positive definite.

    Theta is [M, L], P is [L, M, M], `step_size` []; `max_halvings` of 0 takes the step unchecked.

    :return: the new parameters, `ok` false if no step was feasible, and the halvings [], int.
    """
    # A halved step is halved once more: the first feasible one may end at the edge of the positive
    # definite matrices; half of it keeps at least half of the old precision in every direction.

    def halve(tries: tf.Tensor, _: Natural | None = None) -> tuple[tf.Tensor, Natural]:
        tries += 1
        step = step_size / tf.cast(2**tries, step_size.dtype)
        new = (1.0 - step) * theta + step * target_theta  # (D46), (C25)
        # (D46), (C25)
        return tries, Natural.of(new, (1.0 - step) * precision + step * target_precision)

    def infeasible(tries: tf.Tensor, new: Natural) -> tf.Tensor:
        return tf.logical_and(tries < max_halvings, tf.logical_not(new.ok))

    def search() -> tuple[Natural, tf.Tensor]:
        tries, new = tf.while_loop(infeasible, halve, (none, first))
        tries, new = tf.cond(new.ok, partial(halve, tries, new), lambda: (tries, new))
        return new, tries

    none, first = halve(tf.constant(-1))
    if max_halvings == 0:
        return first, none
    return tf.cond(first.ok, lambda: (first, none), rarely(search))


# ---
# Precisions kept from the last natural-gradient step.


Reference = Hashable
"""Identifies a variable among all models' variables."""


class PrecisionMemory(tf.Module):
    """S^-1 of each whitened Gaussian part [L, M, M], next to the root it was computed from."""

    # Used only while the root is bitwise equal, so an assigned or restored q gets a new precision.
    # Saves M^3 (1/3 to 1) multiply-adds per step.

    def __init__(self) -> None:
        super().__init__()
        # one that is made in each trace of a `tf.function` cannot keep variables between steps
        self._keeps = tf.executing_eagerly()
        self._roots: list[tf.Variable] = []
        self._precisions: list[tf.Variable] = []
        self._places: dict[tuple[Reference, int], int] = {}

    def recall(self, basis: InducingBasis, part: int, root: tf.Tensor) -> tf.Tensor:
        """The precision [L, M, M] of the part with this whitened root [L, M, M]."""
        # unwhitened, the root changes whenever the kernel does, and would never match
        if not (basis.whiten and self._keeps):
            return precision_from_root(root)
        place = self._place(basis, part, root)
        same = tf.reduce_all(tf.equal(self._roots[place], root))
        return tf.cond(
            same, self._precisions[place].read_value, rarely(partial(precision_from_root, root))
        )

    def store(
        self,
        basis: InducingBasis,
        gaussians: tuple[GaussianPart, ...],
        precisions: tuple[tf.Tensor, ...],
    ) -> None:
        """Store the precisions [L, M, M] of the new roots."""
        if not (basis.whiten and self._keeps):
            return
        for part, (gaussian, precision) in enumerate(zip(gaussians, precisions)):
            place = self._place(basis, part, gaussian.root)
            self._roots[place].assign(gaussian.root)
            self._precisions[place].assign(precision)

    def prepare(self, basis: InducingBasis) -> None:
        """Create the variables, for a checkpoint that is read later."""
        if basis.whiten and self._keeps:
            roots = [
                parameter for parameter in basis.gaussian_parameters() if len(parameter.shape) == 3
            ]
            for part, root in enumerate(roots):
                self._place(basis, part, tf.convert_to_tensor(root))

    def _place(self, basis: InducingBasis, part: int, root: tf.Tensor) -> int:
        key = (basis.gaussian_parameters()[-1].unconstrained_variable.ref(), part)
        if key not in self._places:
            self._places[key] = len(self._roots)
            with tf.init_scope():  # variables cannot be created inside of a graph
                for slots in (self._roots, self._precisions):
                    slots.append(tf.Variable(tf.zeros(root.shape, root.dtype), trainable=False))
        return self._places[key]


# ---
# Sites fixed while the kernel moves.


# The M-step of conjugate-computation VI (Adam, Chang, Khan & Solin 2021, arXiv:2111.03412), for any
# whitened Gaussian part. When the Cholesky factor of p(u) changes from L_old to L_new, T = L_old^-1
# L_new, the same site under the new kernel is (C28)
#
#   theta <- T^T theta,   P <- I + T^T (P - I) T
#
# For a small change dX = L^-1 dK L^-T of the kernel, with P* = I - 2 A diag(h) A^T, g_m = A g - m~
# and u = S~ g_m, the bound changes by (C69)
#
#   dF = < -(I - S~) P* (I - S~) - w (A g)^T + m~ u^T + (u - g_m) m~^T,  phi(X) >
#
# phi(X) the lower triangle with half of the diagonal, w the factor of A in the mean of q(f). This
# includes the change of A = L^-1 K_ux and needs no product as wide as the batch.


class SiteSums(NamedTuple):
    """Sums over a batch for one Gaussian part; with replicas, one replica's share."""

    precision: tf.Tensor
    """P* = I - 2 A diag(h) A^T [L, M, M]"""
    pull: tf.Tensor
    """A g [M, L]"""
    theta: tf.Tensor
    """A (g - 2 h A^T m~) [M, L]; zero for a part without a mean."""


def site_sums(
    part: GaussianPart,
    A: tf.Tensor,
    g: tf.Tensor,
    h: tf.Tensor,
    low: tf.DType | None = None,
    before: tuple | None = None,
) -> SiteSums:
    """Sum over a batch what all steps of a Gaussian part use; cost M^2 N per latent.

    A is L^-1 K_ux [G, M, N]; g and h [N, L] are taken at the whole mean.

    :param low: precision of the product of cost M^2 N; None is A's.
    :param before: an h and its P* with the same A, reused while h is equal, as for Gaussian noise.
    """

    def target() -> tf.Tensor:
        weights, dtype = -2.0 * tf.transpose(h), A.dtype if low is None else low
        sites = tf.cast(symmetric_product(tf.cast(A, dtype), tf.cast(weights, dtype)), h.dtype)
        return tf.linalg.set_diag(sites, tf.linalg.diag_part(sites) + 1.0 / replicas.count())

    if before is None:
        precision = target()
    else:
        precision = tf.cond(
            tf.reduce_all(tf.equal(h, before[0])), lambda: before[1], rarely(target)
        )
    if part.mean is None:
        none = tf.zeros([tf.shape(part.root)[1], tf.shape(part.root)[0]], g.dtype)
        return SiteSums(precision, none, none)
    own_mean = apply_per_latent(A, part.mean, adjoint=True)
    # (D46)
    return SiteSums(precision, apply_per_latent(A, g), apply_per_latent(A, g - 2.0 * h * own_mean))


def gradient_at_sites(
    part: GaussianPart,
    sums: SiteSums,
    tangent: tf.Tensor,
    weights: tf.Tensor | None = None,
    low: tf.DType | None = None,
) -> tf.Tensor:
    """Gradient in X, the tangent of L, at fixed sites: [G, M, M], lower triangle; cost 2 M^3 per
    latent.

    :param sums: of the batch; the result is linear in them, so replicas add up.
    :param weights: w [M, L] of (C69), to include the part through A.
    :param low: precision of the matrix products; None is the tangent's.
    """
    dtype = tangent.dtype if low is None else low
    covariance, precision = lower_gram(tf.cast(part.root, dtype)), tf.cast(sums.precision, dtype)
    identity = tf.eye(tf.shape(covariance)[-1], dtype=dtype)
    excess = tf.matmul(covariance, precision) - (
        replicas.share(identity) if weights is None else precision
    )
    share = tf.cast(lower_outer(identity - covariance, excess), tangent.dtype)  # (C69)
    if part.mean is not None:
        gradient = sums.pull - replicas.share(part.mean)
        root = part.root
        u = apply_per_latent(root, apply_per_latent(root, gradient, adjoint=True))
        share += _columns_outer(part.mean, u) + _columns_outer(u - gradient, part.mean)  # (C69)
    if weights is not None:
        share -= _columns_outer(weights, sums.pull)  # (C69)
    return tf.reduce_sum(share, axis=0, keepdims=True) if tangent.shape[0] == 1 else share


def carry_over(natural: Natural, old: tf.Tensor, new: tf.Tensor) -> Natural:
    """Natural parameters of the same sites under another kernel: (C28).

    `old` and `new` are the factors L_old and L_new [G, M, M]; cost M^3 per latent.
    """
    T = solve_lower(old, new)
    sites = tf.linalg.set_diag(natural.precision, tf.linalg.diag_part(natural.precision) - 1.0)
    sites = lower_congruence(T, sites)
    precision = tf.linalg.set_diag(sites, tf.linalg.diag_part(sites) + 1.0)  # (C28)
    # (C28)
    theta = None if natural.theta is None else apply_per_latent(T, natural.theta, adjoint=True)
    return Natural.of(theta, precision)


def _columns_outer(left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
    return tf.transpose(left)[:, :, None] * tf.transpose(right)[:, None, :]


# ---
# The bound and its gradients in one pass.


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
    target: SiteSums | None = None
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


# At the old q the gradient of kernel and likelihood is mostly noise of the batch: on houses, with
# 90 points and batches of 256, that costs 230 nats after 1,500 steps. So q may move `first`. Both
# evaluations share A = L^-1 k(beta, x): the mean moves by A^T (m~_new - m~_old), and the variance
# uses R_new^T A with the new root.


def evaluate(
    model: BasisGP,
    data: RegressionData,
    variables: Sequence[tf.Variable] = (),
    rows: tf.Tensor | None = None,
    hold_sites: bool = False,
    with_target: bool = False,
    low: tf.DType | None = None,
    first: Callable[[BoundGradients], tuple[GaussianPart, ...]] | None = None,
) -> BoundGradients:
    """Evaluate the bound and its derivatives in one forward and one backward pass.

    With several replicas, each on its own rows, this sends two messages; three with `first`.

    :param data: X [N, D], Y [N, P].
    :param rows: indices [m] for the estimate of the mean's norm, see `Basis.factor`.
    :param hold_sites: differentiate at fixed sites of q (C28), not at fixed Parameters.
    :param with_target: compute `BoundGradients.target` too.
    :param low: precision of products with rows of data, if the basis `mixes_precision`.
    :param first: where the Gaussian parts go, from the bound and its derivatives here; the
        gradients in `variables` are then those at the new parts, for M^2 N more.
    """
    (X, Y), basis = model.as_tensors(data), model.basis
    sums: SiteSums | None = None
    now: BoundGradients | None = None
    with tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
        tape.watch(list(variables))
        state = basis.factor(model.kernel, rows=rows)
        weights = basis.weights_of_rows(state) if hold_sites else None
        known, slope = state, None
        if weights is not None:  # then `gradient_at_sites` has the slope of whitened rows
            known = state._replace(tangent=tf.stop_gradient(state.tangent))
            slope = (state if low is None else basis.lowered(state, low)).tangent
        features, parts = _features_at(model, known, X, low), basis.gaussians(state)
        left, scale = model.left_variances(features, X, slope), model.scale(X)
        at, there = state, features
        if first is not None:
            with tape.stop_recording():
                variance = basis.variance(features, model.kernel, X)
                local = features.mean, variance, (X, Y), scale, left
                expected, g, h = _local_expansion(model, *local)
                if with_target:
                    sums = site_sums(parts[0], features.minus[0], g, h, low)
                elbo = expected - replicas.share(basis.prior_kl(state))
                now = _added_up(
                    BoundGradients(elbo, state, features, variance, g, h, [], scale, sums)
                )
                new = first(now)
            at, there = basis.with_gaussians(state, new), under(features, parts, new, low)
            parts = new
        mean, variance = there.mean, basis.variance(there, model.kernel, X)
        tape.watch([mean, variance])
        expectations = model.variational_expectations(mean, variance, (X, Y), left)
        expected = scale * tf.reduce_sum(expectations)
        elbo = expected - replicas.share(basis.prior_kl(at))
        objective = elbo + replicas.share(model.log_prior_density())
    g, h = tape.gradient(expected, [mean, variance])
    same = None if now is None or sums is None else (now.h, sums.precision)
    before = [same, *[None] * len(parts)]
    needed = parts if hold_sites else parts[:1] if with_target and now is None else ()
    found = [
        site_sums(part, A, g, h, low, known)
        for part, A, known in zip(needed, features.minus, before)
    ]
    targets, upstream = [objective], [tf.ones_like(objective)]
    if hold_sites:
        # what fixed sites add enters as a gradient with respect to the tangent of the whitening
        # factor
        weights = basis.weights_of_rows(at)
        for frame, part, own in zip(basis.whiteners(state), parts, found):
            targets.append(frame.tangent)
            upstream.append(gradient_at_sites(part, own, frame.tangent, weights, low))
    gradients = tape.gradient(targets, list(variables), output_gradients=upstream)
    if now is not None:
        return now._replace(gradients=_summed(gradients))
    target = found[0] if with_target and found else None
    return _added_up(
        BoundGradients(elbo, state, features, variance, g, h, gradients, scale, target)
    )


def _features_at(model: BasisGP, state: State, X: tf.Tensor, low: tf.DType | None) -> Features:
    """Features at X [N, D] in its precision; products with rows are in `low`."""
    if low is None:
        return model.basis.features(state, model.kernel, X)
    found = model.basis.features(model.basis.lowered(state, low), model.kernel, X)
    return tf.nest.map_structure(lambda part: tf.cast(part, X.dtype), found)


def under(
    features: Features,
    old: Sequence[GaussianPart],
    new: Sequence[GaussianPart],
    low: tf.DType | None = None,
) -> Features:
    """Features after the first Gaussian parts became `new`; M^2 N per latent."""
    mean, plus = features.mean, list(features.plus)
    for k, (was, now, A) in enumerate(zip(old, new, features.minus)):
        if was.mean is not None and now.mean is not None:  # else the covariance alone moved
            mean += apply_per_latent(A, now.mean - tf.stop_gradient(was.mean), adjoint=True)
        dtype = A.dtype if low is None else low
        plus[k] = tf.cast(transposed_product(tf.cast(now.root, dtype), tf.cast(A, dtype)), A.dtype)
    return Features(mean, features.minus, tuple(plus))


def _summed(gradients: Sequence[tf.Tensor | None]) -> list[tf.Tensor | None]:
    left = iter(replicas.total([gradient for gradient in gradients if gradient is not None]))
    return [None if gradient is None else next(left) for gradient in gradients]


def _added_up(own: BoundGradients) -> BoundGradients:
    """Sum bound, gradients and target over the replicas, in one message."""
    target = [] if own.target is None else [own.target.precision, own.target.theta]
    sums = [own.elbo, *target, *own.gradients]
    found = [value for value in sums if value is not None]
    left = iter(replicas.total(found, symmetric=[1] if target else []))
    elbo, *rest = [None if value is None else next(left) for value in sums]
    if own.target is not None:
        precision, theta, *rest = rest
        own = own._replace(target=own.target._replace(precision=precision, theta=theta))
    return own._replace(elbo=elbo, gradients=rest)


def local_gradient(
    model: BasisGP,
    mean: tf.Tensor,
    variance: tf.Tensor,
    data: RegressionData,
    scale: tf.Tensor | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """dE/dmean and dE/dvariance [N, L], by one pass through the likelihood.

    :param mean: of q(f) at the data [N, L], less the mean function; `variance` likewise.
    :param data: X [N, D], Y [N, P].
    :param scale: factor of the data term []; None computes it.
    """
    scale = model.scale(data[0]) if scale is None else scale
    return _local_expansion(model, mean, variance, data, scale)[1:]


def _local_expansion(
    model: BasisGP,
    mean: tf.Tensor,
    variance: tf.Tensor,
    data: RegressionData,
    scale: tf.Tensor,
    left: tf.Tensor | None = None,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch([mean, variance])
        expectations = model.variational_expectations(mean, variance, data, left)
        expected = scale * tf.reduce_sum(expectations)
    return expected, *tape.gradient(expected, [mean, variance])


# ---


# With weights w = -2 h >= 0 and W = diag(w), the negative bound has over the coefficients a and the
# whitened mean m~ of q(u) the Hessian (D49)
#
#   [ C_g + C_gx W C_xg    C_gx W A^T  ]
#   [ A W C_xg             I + A W A^T ]


Pair = tuple[tf.Tensor, tf.Tensor]
"""A block for the coefficients [M_gamma, L], and one for the whitened mean of q(u) [M_beta, L]."""


def steepest_step(
    operator: MeanOperator, scaling: MeanScaling, gradient: tf.Tensor, h: tf.Tensor, step: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Step along the gradient d of the scaled coefficients [M, L]; cost N M + M^2.

    :param operator: between mean coefficients and the mean at the data.
    :param gradient: d [M, L].
    :param h: dE/dvariance [N, L]; positive entries count as zero.
    :return: the change [M, L], and whether it was shortened, [] bool.
    """
    # In whitened coordinates the gradient is the natural gradient (D41), in diagonal ones the rule
    # (D42). A step of size one overshoots (D43), so it is shortened to the maximum of the local
    # quadratic model along the gradient, |d|^2 / d^T H d. Several replicas send one number.
    raw = scaling.raw(gradient)
    weights = tf.maximum(-2.0 * h, 0.0)
    (of_data,) = replicas.total([tf.reduce_sum(weights * tf.square(operator.to_data(raw)))])
    curvature = of_data + tf.reduce_sum(raw * operator.product(raw))
    best = tf.math.divide_no_nan(tf.reduce_sum(tf.square(gradient)), curvature)
    return tf.minimum(step, best) * gradient, best < step


def newton_direction(
    operator: MeanOperator,
    scaling: MeanScaling,
    A: tf.Tensor,
    gradient: Pair,
    h: tf.Tensor,
    iterations: int,
    tolerance: float,
) -> Pair:
    """Newton direction over raw coefficients and the whitened mean of q(u): (D49).

    Cost: N (M_gamma + M_beta) + M_gamma^2 per iteration of conjugate gradients, and M_beta^3 once.

    :param A: L_b^-1 K_bx [G, M_beta, N].
    :param gradient: of the bound, [M_gamma, L] and [M_beta, L].
    :param h: dE/dvariance [N, L]; positive entries count as zero, so the system is positive
        definite.
    :param tolerance: relative residual at which the iteration ends.
    """
    weights = tf.maximum(-2.0 * h, 0.0)

    def hessian(z: Pair) -> Pair:
        pull = weights * (operator.to_data(z[0]) + apply_per_latent(A, z[1], adjoint=True))
        # (D49)
        return operator.product(z[0]) + operator.from_data(pull), z[1] + apply_per_latent(A, pull)

    precision = symmetric_product(A, tf.transpose(weights))
    chol = cholesky(
        tf.linalg.set_diag(precision, tf.linalg.diag_part(precision) + 1.0)
    ).chol  # I + A W A^T

    def precondition(z: Pair) -> Pair:
        inducing = tf.linalg.cholesky_solve(chol, tf.transpose(z[1])[..., None])[..., 0]
        return scaling.raw(scaling.dual(z[0])), tf.transpose(inducing)  # T T^T of the basis

    return conjugate_gradients(
        hessian,
        precondition,
        gradient,
        _dot,
        tolerance,
        iterations,
        norm=lambda r: _dot(r, r),
    ).x


def _dot(x: Pair, y: Pair) -> tf.Tensor:
    return tf.reduce_sum(x[0] * y[0]) + tf.reduce_sum(x[1] * y[1])
