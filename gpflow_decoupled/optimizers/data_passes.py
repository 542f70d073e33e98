"""One pass over all data at a fixed q(u)."""

from __future__ import annotations

__all__ = [
    "Batches", "Blocks", "Expectations", "PassReader", "Reading", "Visited", "by_quadrature",
    "by_sampling", "minibatch_goal", "step_failure", "visited_posterior",
]  # fmt: skip

from collections.abc import Callable, Iterator
from numbers import Integral
from typing import NamedTuple, SupportsIndex

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.models import GPModel
from tqdm.auto import tqdm

from ..bases import GaussianPart
from ..bases.base import State
from ..bases.site import SiteState
from ..bases.state_space import Chain, StateSpaceState
from ..errors import DataError, NumericalError
from ..inputs import as_array, stays_on_disk
from ..linalg.cholesky import diagnose
from ..linalg.triangular import symmetric_product
from ..linalg.whitening import apply_per_latent, precision_from_root
from ..models import CVIGP, BasisGP
from ..models.checks import check_draws, check_shapes_of_data, check_values, log_densities
from ..replicas import Group, RowSums
from ..summaries import short_repr
from .ascent import MAX_HALVINGS, clip_curvature
from .natural_steps import Natural, natural_step

# ---
# One observation's contribution to the bound.


class Expectations(NamedTuple):
    """E_n = E_q log p(y_n | f_n), and its derivatives in mean and variance of the latents."""

    value: tf.Tensor
    """E [N], nats."""
    g: tf.Tensor
    """dE/dmean [N, L]."""
    h: tf.Tensor
    """dE/dvariance [N, L]."""


def by_quadrature(
    model: CVIGP | BasisGP, mean: tf.Tensor, variance: tf.Tensor, data: RegressionData
) -> Expectations:
    """Expectations by the likelihood's integrals: closed forms or Gauss-Hermite quadrature.

    Mean (less the mean function) and variance of q are [N, L], X [N, D], Y [N, P].
    """
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch([mean, variance])
        value = model.variational_expectations(mean, variance, data)
    return Expectations(value, *tape.gradient(value, [mean, variance]))


def by_sampling(
    model: GPModel,
    mean: tf.Tensor,
    variance: tf.Tensor,
    data: RegressionData,
    samples: int,
    seed: tf.Tensor,
) -> Expectations:
    """Expectations from draws of each latent, independent across observations.

    :param seed: [2]; other shapes as in `by_quadrature`.
    :param samples: draws of each latent.
    """
    # With l = log p(y | f), f = mean + sd eps, the averages of g = E l' and h = E l' eps / (2 sd)
    # are unbiased.
    check_draws(model.likelihood)
    shape = tf.concat([[samples], tf.shape(mean)], axis=0)
    epsilon = tf.random.stateless_normal(shape, seed, dtype=mean.dtype)
    deviation = tf.sqrt(variance)
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        draws = mean + deviation * epsilon
        tape.watch(draws)
        densities = log_densities(model, draws, data)
    slope = tape.gradient(densities, draws)
    g = tf.reduce_mean(slope, axis=0)  # (C5)
    h = tf.reduce_mean(slope * epsilon, axis=0) / (2.0 * deviation)  # (C6)
    return Expectations(tf.reduce_mean(densities, axis=0), g, h)


# ---
# Repeated passes over data, by blocks.


Batch = tuple[tf.Tensor, tf.Tensor]
"""X [B, D] and Y [B, P]."""
Batches = Callable[[], Iterator[Batch]]
"""Starts a pass."""
_SAMPLE = 2048  # rows of the last block, by which the quadrature is judged


class Blocks:
    """Passes over data with one block in memory; arrays are checked once, streams in each pass.

    Each worker reads its share of the blocks, or its own dataset.

    :param data: (X [N, D], Y [N, P]), a dataset or a function, as for `fit`.
    """

    def __init__(
        self,
        model: BasisGP,
        data: RegressionData | tf.data.Dataset | Batches,
        size: SupportsIndex,
        group: Group | None = None,
    ) -> None:
        if not isinstance(size, Integral) or isinstance(size, bool) or size < 1:
            raise DataError(
                f"block={short_repr(size)} must be a whole number of at least 1, the rows that are"
                " in memory at a time."
            )
        self.model, self.size, self.group = model, int(size), group or Group()
        self.num_data = None if model.num_data is None else int(model.num_data)
        self._streams, self._must_check = callable(data) or isinstance(data, tf.data.Dataset), True
        self.sample: Batch | None = None
        """Rows of the last block, for the check at the end of a run"""
        self.rows = self.first = 0
        """This worker's rows read in the present pass, and the last block's first row."""
        self.length: int | None = None
        """N of arrays, which all workers must have; None for datasets"""
        self._source = self._factory(data)

    def __iter__(self) -> Iterator[Batch]:
        self.rows = 0
        for X, Y in self._source():
            X, Y = self.model.as_tensors((X, Y))
            if self._must_check:
                model = self.model
                check_values(
                    X.numpy(), Y.numpy(), model.likelihood, model.kernel, model.mean_function
                )
            self.first = self.rows if self._streams else self._first_of(self.rows // self.size)
            self.rows += int(X.shape[0])
            self.sample = X[:: -(-int(X.shape[0]) // _SAMPLE)], Y[:: -(-int(X.shape[0]) // _SAMPLE)]
            yield X, Y
        self._must_check = self._streams

    def check_rows(self) -> None:
        """Check the number of rows after a pass; one message with several workers."""
        rows = self.rows if self.group.workers == 1 else int(np.sum(self.group.gather(self.rows)))
        if rows == 0:
            raise DataError(
                "The data have no rows: check what they are made from; an iterator serves one pass"
                " only."
            )
        if self.num_data is not None and rows != self.num_data:
            raise DataError(
                f"This pass had {rows} rows and num_data is {self.num_data}: every pass must go"
                " through the whole data set. If these rows are all data, set model.num_data ="
                f" {rows}."
            )
        self.num_data = rows

    def _factory(self, data: RegressionData | tf.data.Dataset | Batches) -> Batches:
        if isinstance(data, tf.data.Dataset):
            if int(data.cardinality()) == tf.data.INFINITE_CARDINALITY:
                raise DataError(
                    "The dataset has no end, and a pass must come to one: leave out repeat()."
                )
            return lambda: iter(data)
        if callable(data):
            return data
        if not (isinstance(data, (tuple, list)) and len(data) == 2):
            raise DataError(
                f"data is a {type(data).__name__}; pass (X, Y), a tf.data.Dataset of batches (X,"
                " Y), or a function that returns an iterator of such batches."
            )
        model = self.model
        X, Y = (
            array if stays_on_disk(array) else as_array(array, name, model.float_type)
            for array, name in zip(data, "XY")
        )
        check_shapes_of_data(
            X, Y, model.likelihood, model.num_outputs, model.num_dims, model.float_type
        )
        self.length = len(X)
        starts = range(self._first_of(0), len(X), self._first_of(1) - self._first_of(0))
        return lambda: ((X[i : i + self.size], Y[i : i + self.size]) for i in starts)

    def _first_of(self, block: int) -> int:
        return (block * self.group.workers + self.group.number) * self.size


# ---
# The observations that minibatches have visited.


class Visited(NamedTuple):
    """The posterior of all observations with sites, a minibatch [B] included."""

    known: tf.Tensor
    """Their indices [n]."""
    places: tf.Tensor
    """Places of the minibatch among them [B]."""
    K: tf.Tensor | Chain
    """Their prior, covariances [G, n, n] or a chain."""
    state: SiteState | StateSpaceState
    """Posterior of the n observations."""


def visited_posterior(model: CVIGP, rows: tf.Tensor) -> Visited:
    """The posterior of the visited observations (C21), `rows` [B] included; n^3 for n of them."""
    basis = model.basis
    nu, tau = tf.convert_to_tensor(basis.nu), tf.convert_to_tensor(basis.tau)
    visited = tf.reduce_any((nu != 0.0) | (tau != 0.0), axis=1)
    visited = tf.tensor_scatter_nd_update(visited, rows[:, None], tf.ones_like(rows, tf.bool))
    known = tf.where(visited)[:, 0]
    places = tf.gather(tf.cumsum(tf.cast(visited, tf.int32)) - 1, rows)
    K = basis.prior_of(model.kernel, known)
    return Visited(
        known, places, K, basis.state_at(K, tf.gather(nu, known), tf.gather(tau, known))
    )  # (C21)


def minibatch_goal(update: str, goal: tf.Tensor, old: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """Targets [N, L] of all sites, from targets [B, L] of the minibatch `rows` [B].

    :param update: "local" leaves the other sites; "global" shrinks them, and scales up the rows'.
    """
    if update == "local":
        return tf.tensor_scatter_nd_update(old, rows[:, None], goal)  # (C20)
    scale = tf.cast(tf.shape(old)[0], goal.dtype) / tf.cast(tf.shape(rows)[0], goal.dtype)
    return tf.tensor_scatter_nd_add(tf.zeros_like(old), rows[:, None], scale * goal)  # (C19)


# ---


class Reading(NamedTuple):
    """A pass at some q(u): its bound and targets, and the step that led there."""

    natural: Natural
    """The q(u) of the pass."""
    theta: tf.Tensor
    """Target of theta [M, L]."""
    precision: tf.Tensor
    """Target of the precision [L, M, M]."""
    elbo: float
    """The bound in nats."""
    clipped: int
    """Observations with a clipped negative precision."""
    step_size: float
    """The step size that led here; NaN at the start."""

    @property
    def ok(self) -> bool:
        """True if the bound is finite."""
        return bool(np.isfinite(self.elbo))

    def distance(self) -> float:
        """Squared distance from q(u) to its target, in natural parameters."""
        theta, precision = self.theta - self.natural.theta, self.precision - self.natural.precision
        return float(tf.reduce_sum(tf.square(theta)) + tf.reduce_sum(tf.square(precision)))

    def promise(self) -> float:
        """Gain of a full step in nats: KL[q || target] to second order."""
        # With S = R R^T and targets starred: 1/2 |R^T (theta* - P* m)|^2 + 1/4 |R^T (P* - P) R|^2.
        mean, root = self.natural.gaussian()
        theta, precision = self.theta - self.natural.theta, self.precision - self.natural.precision
        slope = apply_per_latent(root, theta - apply_per_latent(precision, mean), adjoint=True)
        bend = tf.matmul(root, tf.matmul(precision, root), transpose_a=True)
        return float(0.5 * tf.reduce_sum(tf.square(slope)) + 0.25 * tf.reduce_sum(tf.square(bend)))


class _Sums(NamedTuple):
    expected: tf.Tensor
    """Sum of E_n, [] nats."""
    theta: tf.Tensor
    """[M, L]"""
    sites: tf.Tensor
    """[L, M, M]"""
    clipped: tf.Tensor


class PassReader:
    """Reads the data at a model's q(u), and moves it."""

    def __init__(
        self, model: BasisGP, blocks: Blocks, negative_precision: str, compile: bool, bar: tqdm
    ) -> None:
        self.model, self.blocks, self.negative_precision, self.bar = (
            model,
            blocks,
            negative_precision,
            bar,
        )
        rows = model.basis.draw_rows()  # one draw for all passes: bounds must be comparable
        self._rows = rows if rows is None else tf.cast(blocks.group.of_first(rows), rows.dtype)
        self._sums = RowSums(
            blocks.group, self._with_block, compile, symmetric=[_Sums._fields.index("sites")]
        )
        state = model.basis.factor(model.kernel, with_kl=False)
        if not state.ok:
            name, matrix = next(iter(model.basis.matrices(model.kernel).items()))
            raise diagnose(name, matrix.numpy())

    def start(self) -> Reading:
        """Read the data at the model's q(u), or the first worker's."""
        basis, group = self.model.basis, self.blocks.group
        state = basis.factor(self.model.kernel, with_kl=False)
        (part,) = basis.gaussians(state)
        if group.workers > 1:
            part = GaussianPart(*(tf.cast(group.of_first(one), one.dtype) for one in part))
            basis.assign_gaussians(state, (part,))
        precision = precision_from_root(part.root)
        return self._read(Natural.of(apply_per_latent(precision, part.mean), precision), np.nan)

    def read(self, natural: Natural, step_size: float, otherwise: Reading) -> Reading:
        """Write another q(u) to the model and read the data there.

        A failed pass leaves the model at `otherwise`.
        """
        self.assign(natural)
        try:
            return self._read(natural, step_size)
        except BaseException:  # an interrupt, too
            self.assign(otherwise.natural)
            raise

    def step(self, now: Reading, step_size: float) -> tuple[Natural, float, bool]:
        """Return the q(u) after a step from `now`, its step size, and whether it was halved."""
        size = tf.constant(step_size, now.precision.dtype)
        refuses = self.negative_precision == "raise"
        halvings = 0 if refuses else MAX_HALVINGS
        new, tries = natural_step(
            now.natural.theta, now.natural.precision, now.theta, now.precision, size, halvings
        )
        if not new.ok and refuses:
            raise step_failure("The precision of q(u) after the step is not positive definite")
        if not new.ok:
            raise step_failure(
                "No step, however short, leaves the precision of q(u) positive definite"
            )
        return new, step_size * 0.5 ** int(tries), bool(tries > 0)

    def assign(self, natural: Natural) -> None:
        """Write q(u) to the model."""
        basis = self.model.basis
        basis.assign_gaussians(
            basis.factor(self.model.kernel, with_kl=False), (natural.gaussian(),)
        )

    def _read(self, natural: Natural, step_size: float) -> Reading:
        basis = self.model.basis
        state = basis.factor(self.model.kernel, rows=self._rows)
        (part,) = basis.gaussians(state)
        zero = tf.zeros([], part.root.dtype)
        none = _Sums(zero, tf.zeros_like(part.mean), tf.zeros_like(part.root), tf.constant(0))
        sums = self._sums(state, none, self.blocks)
        self.blocks.check_rows()
        elbo = float(sums.expected - basis.prior_kl(state))
        self.bar.update()
        self.bar.set_postfix(ELBO=f"{elbo:.8g}")
        target = tf.linalg.set_diag(sums.sites, tf.linalg.diag_part(sums.sites) + 1.0)  # (C25)
        return Reading(natural, sums.theta, target, elbo, int(sums.clipped), step_size)

    def _with_block(self, state: State, sums: _Sums, X: tf.Tensor, Y: tf.Tensor) -> _Sums:
        """Add one block: E, A (g - 2 h A^T m~) and -2 A diag(h) A^T."""
        basis, kernel = self.model.basis, self.model.kernel
        features = basis.features(state, kernel, X)
        found = by_quadrature(
            self.model, features.mean, basis.variance(features, kernel, X), (X, Y)
        )
        h, clipped = clip_curvature(found.h, self.negative_precision)
        A, own_mean = features.minus[0], basis.gaussians(state)[0].mean
        own_mean = apply_per_latent(A, own_mean, adjoint=True)
        return _Sums(
            sums.expected + tf.reduce_sum(found.value),
            sums.theta + apply_per_latent(A, found.g - 2.0 * h * own_mean),  # (C25)
            sums.sites + symmetric_product(A, -2.0 * tf.transpose(h)),  # (C25)
            sums.clipped + clipped,
        )


def step_failure(what: str) -> NumericalError:
    """Return the error for a q(u) without a possible step; `what` is its first sentence."""
    return NumericalError(
        f'{what}. Use a smaller step_size, negative_precision="clip" for likelihoods that are not'
        " log-concave, or start from a narrower q (a smaller q_sqrt); q is the last one whose"
        " bound is known.",
        matrix="precision of q(u)",
    )
