"""Sites on a line, by filter and smoother."""

# Hartikainen & Sarkka 2010; Chang et al. 2020 for sites. The same q(f) as a `SiteBasis`'s:
#
#   KL = sum_n (nu m - tau (m^2 + v) / 2) - log Z,   (C15), (C16)

from __future__ import annotations

__all__ = ["Chain", "StateSpaceBasis", "StateSpaceState"]

from typing import NamedTuple, NoReturn

import numpy.typing as npt
import tensorflow as tf
from gpflow.base import TensorType
from gpflow.kernels import Kernel

from ..covariances.latents import split_latents
from ..covariances.state_space import StateSpace, resized, state_space
from ..errors import DataError, ModelError
from ..inputs import check_whole
from ..linalg.chain import (
    ChainPosterior,
    Knots,
    chain_posterior,
    covariances_between,
    marginals_between,
    predicted_between,
)
from ..linalg.conjugate_gradients import map_rows
from .base import Basis
from .site import OnObservations, observation_points, per_observation

_NUMBERS = 8_000_000
"""Most numbers in the matrices of a block of predictions."""


class Chain(NamedTuple):
    """The prior at the sorted inputs."""

    A: tf.Tensor
    """Steps to each input [N, L, d, d]; zero for the first."""
    Q: tf.Tensor
    """Their noise [N, L, d, d]; the prior covariance for the first."""
    h: tf.Tensor
    """f = h . x, [L, d]."""
    order: tf.Tensor
    """Rows of the data in the order of their inputs [N]."""
    times: tf.Tensor
    """The sorted inputs [N]."""

    @property
    def dtype(self) -> tf.DType:
        """Of the matrices."""
        return self.A.dtype


class StateSpaceState(NamedTuple):
    """The state of a `StateSpaceBasis`: first the `Knots`; fields after `ok` are in data order."""

    filtered_mean: tf.Tensor
    filtered_covariance: tf.Tensor
    slope: tf.Tensor
    curvature: tf.Tensor
    shrinkage: tf.Tensor
    times: tf.Tensor
    """Sorted inputs [N]."""
    ok: tf.Tensor
    mean: tf.Tensor | None = None
    """u at the observations [N, L]."""
    variance: tf.Tensor | None = None
    """v at the observations [N, L]."""
    evidence: tf.Tensor | None = None
    """log Z of the sites in nats, a scalar."""
    nu: tf.Tensor | None = None
    tau: tf.Tensor | None = None


class StateSpaceBasis(OnObservations, Basis):
    """q(f) of a `SiteBasis` for one input, by Kalman filter and smoother; for `StateSpaceGP`.

    Cost: 6 N L d^3 for the d states of the kernel, memory 8 N L d^2 numbers.

    :param points: the inputs X [N, 1] in any order, perhaps duplicated; they stay fixed.
    :param num_latent_gps: L; latents are independent under q.
    :param harmonics: terms of a periodic kernel's cosine series.
    :param nu: site precisions times site means [N, L]; by default zeros.
    :param tau: site precisions [N, L]; by default zeros. If both are zero, q is the prior.

    Example::

        basis = StateSpaceBasis(X, nu=Y / s2, tau=np.full(Y.shape, 1.0 / s2))
        mean, variance = basis.mean_and_cov(basis.factor(kernel), kernel, Xnew)
    """

    state_type = StateSpaceState

    def __init__(
        self,
        points: npt.ArrayLike,
        num_latent_gps: int = 1,
        *,
        harmonics: int = 7,
        nu: npt.ArrayLike | None = None,
        tau: npt.ArrayLike | None = None,
    ) -> None:
        super().__init__()
        self.points = observation_points(points)
        if self.X.shape[1] != 1:
            raise DataError(
                f"X has {self.X.shape[1]} columns, and a state space has one input: use a CVIGP or,"
                " for more than some thousand rows, an NNGP."
            )
        check_whole(1, harmonics=harmonics)
        self.num_latent_gps, self.harmonics = num_latent_gps, harmonics
        neutral = "a site without information is nu = tau = 0"
        self.nu = per_observation("nu", nu, self.num_data, num_latent_gps, neutral)
        self.tau = per_observation("tau", tau, self.num_data, num_latent_gps, neutral)

    def matrices(self, kernel: Kernel) -> dict[str, tf.Tensor]:
        """None: nothing is factorised."""
        return {}

    def prior(self, kernel: Kernel) -> Chain:
        """The chain of states at the observations; N L d^2."""
        return self._chain(kernel, self.X[:, 0])

    def prior_of(self, kernel: Kernel, rows: tf.Tensor) -> Chain:
        """The chain at some of the observations, rows [n]."""
        return self._chain(kernel, tf.gather(self.X[:, 0], rows))

    def _chain(self, kernel: Kernel, x: tf.Tensor) -> Chain:
        order = tf.argsort(x, stable=True)
        times = tf.gather(x, order)
        A, Q, P, h = self._spaces(kernel, tf.concat([times[:1], times[:-1]], axis=0), times)
        A = tf.concat([tf.zeros_like(A[:1]), A[1:]], axis=0)
        return Chain(A, tf.concat([P[None], Q[1:]], axis=0), h, order, times)

    def prior_variances(self, prior: Chain) -> tf.Tensor:
        """Variances of f at the observations under the prior, [N, L]."""
        P = prior.Q[0]
        variance = tf.reduce_sum(prior.h * tf.linalg.matvec(P, prior.h), axis=-1)
        return variance + tf.zeros_like(tf.convert_to_tensor(self.tau))

    def exists(self, prior: Chain, tau: tf.Tensor) -> tf.Tensor:
        """True if sites of precisions tau [N, L] have a posterior, [] bool."""
        tau = tf.gather(tau, prior.order)
        return chain_posterior(prior.A, prior.Q, prior.h, tf.zeros_like(tau), tau).ok

    def factor(
        self, kernel: Kernel, *, rows: tf.Tensor | None = None, with_kl: bool = True
    ) -> StateSpaceState:
        """The posterior at the observations; 6 N L d^3."""
        return self.state_at(self.prior(kernel), self.nu, self.tau)

    def state_at(self, prior: Chain, nu: tf.Tensor, tau: tf.Tensor) -> StateSpaceState:
        """The state for other sites nu, tau [N, L] and the chain of `prior`."""
        nu, tau = tf.convert_to_tensor(nu), tf.convert_to_tensor(tau)
        A, Q, h, order, times = prior
        sites = tf.gather(nu, order), tf.gather(tau, order)
        found = chain_posterior(A, Q, h, *sites)
        back = tf.math.invert_permutation(order)
        mean, variance = (
            tf.gather(part, back) for part in (found.backward.mean, found.backward.variance)
        )
        knots = _knots(found, Q[:1], sites[1])
        return StateSpaceState(
            *knots, times, found.ok, mean, variance, found.log_partition, nu, tau
        )

    def features(self, state: StateSpaceState, kernel: Kernel, X: tf.Tensor) -> NoReturn:
        """Refused: variances of a chain are no sums of squares of features.

        :raises ModelError: always, naming the model that has features.
        """
        raise ModelError(
            "A StateSpaceGP has marginals and covariances of f, and no features of its inputs, as"
            " this method needs them: use a CVIGP with the same data, kernel and likelihood."
        )

    def marginals(
        self, state: StateSpaceState, kernel: Kernel, X: tf.Tensor, *, floored: bool = False
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Means and variances [N*, L] of q(f) at X [N*, 1], without the mean function.

        Eager calls take blocks of rows. Variances are never negative.
        """

        def of_rows(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            row, before, after = self._located(state, kernel, x[:, 0])
            new = predicted_between(_knots_of(state), row, before[:2], after[0])
            return marginals_between(new, before[3])

        size = max(1, _NUMBERS // (8 * self.num_latent_gps * state.slope.shape[-1] ** 2))
        mean, variance = map_rows(of_rows, (X,), size, (X.dtype, X.dtype))
        return mean, variance

    def mean_and_cov(
        self, state: StateSpaceState, kernel: Kernel, Xnew: TensorType, full_cov: bool = False
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Moments of q(f): see `Basis.mean_and_cov`. Covariances cost N L d^3 + N*^2 L d^2."""
        if not full_cov:
            return super().mean_and_cov(state, kernel, Xnew)
        Xnew = tf.convert_to_tensor(Xnew)
        if Xnew.shape.rank == 2:
            return self._covariance(state, kernel, Xnew[:, 0])
        batch = tf.shape(Xnew)[:-2]
        flat = tf.reshape(Xnew, tf.concat([[-1], tf.shape(Xnew)[-2:]], axis=0))
        mean, cov = tf.map_fn(
            lambda x: self._covariance(state, kernel, x[:, 0]), flat, (Xnew.dtype, Xnew.dtype)
        )
        return tuple(
            tf.reshape(part, tf.concat([batch, tf.shape(part)[1:]], axis=0)) for part in (mean, cov)
        )

    def prior_kl(self, state: StateSpaceState) -> tf.Tensor:
        nu, tau, mean, variance, evidence = _at_observations(state)
        sites = nu * mean - 0.5 * tau * (tf.square(mean) + variance)
        return tf.reduce_sum(sites) - evidence

    def log_partition(self, state: StateSpaceState) -> tf.Tensor:
        """Log evidence of the sites, log integral of N(u; 0, K) prod_n t_n(u_n), in nats."""
        return _at_observations(state)[-1]

    def _covariance(
        self, state: StateSpaceState, kernel: Kernel, x: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        order = tf.argsort(x, stable=True)
        x = tf.gather(x, order)
        row, before, after = self._located(state, kernel, x)
        knots = _knots_of(state)
        new = predicted_between(knots, row, before[:2], after[0])
        h = before[3]
        following = tf.concat([x[1:], x[-1:]], axis=0)
        rows = tf.concat([row[1:], row[-1:]], axis=0)
        to_next = self._spaces(kernel, x, following)[0]
        direct = tf.where((rows > row)[:, None, None, None], after[0], to_next)
        from_last = tf.concat([before[0][1:], before[0][-1:]], axis=0)
        A = self._spaces(kernel, tf.concat([state.times[:1], state.times[:-1]], 0), state.times)[0]
        cov = covariances_between(new, row, knots, A, (direct, from_last), h)
        back = tf.math.invert_permutation(order)
        mean = marginals_between(new, h)[0]
        return tf.gather(mean, back), tf.gather(tf.gather(cov, back, axis=1), back, axis=2)

    def _located(
        self, state: StateSpaceState, kernel: Kernel, x: tf.Tensor
    ) -> tuple[tf.Tensor, tuple, tuple]:
        row = tf.searchsorted(state.times, x, side="right")
        last = tf.shape(state.times)[0] - 1
        front = tf.where(row > 0, tf.gather(state.times, tf.maximum(row - 1, 0)), x)
        behind = tf.where(row <= last, tf.gather(state.times, tf.minimum(row, last)), x)
        return row, self._spaces(kernel, front, x), self._spaces(kernel, x, behind)

    def _spaces(self, kernel: Kernel, start: tf.Tensor, end: tf.Tensor) -> tuple[tf.Tensor, ...]:
        spaces = [state_space(k, end - start, self.harmonics) for (k,) in split_latents(kernel)]
        size, L = max(one.size for one in spaces), self.num_latent_gps
        spaces = [resized(one, size) for one in spaces] * (L // len(spaces))
        spaces = [StateSpace(*(tf.convert_to_tensor(part) for part in one)) for one in spaces]
        A, Q = (tf.stack([one[k] for one in spaces], axis=1) for k in (0, 1))
        P = tf.stack([one.P for one in spaces])
        return A, Q, P, tf.cast(tf.stack([one.h for one in spaces]), A.dtype)


def _knots(found: ChainPosterior, P: tf.Tensor, tau: tf.Tensor) -> Knots:
    forward, backward = found.forward, found.backward
    shrinkage = forward.gain * (tau / (1.0 + tau * forward.latent_variance))[..., None]
    nothing = tf.zeros_like(forward.mean[:1])
    return Knots(
        tf.concat([nothing, forward.mean], axis=0),
        tf.concat([P, forward.covariance], axis=0),
        tf.concat([backward.slope, nothing], axis=0),
        tf.concat([backward.curvature, tf.zeros_like(P)], axis=0),
        shrinkage,
    )


def _knots_of(state: StateSpaceState) -> Knots:
    return Knots(*state[: len(Knots._fields)])


def _at_observations(state: StateSpaceState) -> tuple[tf.Tensor, ...]:
    if state.nu is None:
        raise ValueError(
            "This state was made for predictions; call factor(kernel) for the divergence."
        )
    return state.nu, state.tau, state.mean, state.variance, state.evidence
