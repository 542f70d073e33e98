"""The correction from prior draws to draws of f given the nearest observations of each input."""

from __future__ import annotations

__all__ = [
    "BasisCorrection", "DataCorrection", "NeighbourCorrection", "basis_correction",
    "data_correction", "neighbour_correction",
]  # fmt: skip

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel
from gpflow.utilities import deepcopy
from tqdm.auto import tqdm

from ..bases import Basis, GaussianPart
from ..bases.optimum import DataMean
from ..covariances.neighbours import RowIndex, row_index
from ..covariances.products import gram_product
from ..errors import ModelError
from ..linalg.conjugate_gradients import map_rows
from ..models import NNGP, BasisGP, FullGP
from ..models.neighbours import NeighboursPosterior
from ..models.neighbours.conditionals import Observations, new_given_neighbours, scaled
from ..models.neighbours.groups import Group, jitter_variances, noise_of_group, noise_variances
from ..models.neighbours.likelihood import of_inputs
from ..optimizers import ConjugateGradients
from ..optimizers.data_mean.evidence import posterior_of, sites_of
from ..optimizers.data_mean.system import ROWS, MeanSolution, MeanSystem, preconditioner_rows
from ..user_warnings import warn_user
from .prior import PriorDraws, prior_coordinates, project

# ---
# The correction to draws of q(f).


@dataclass
class BasisCorrection:
    """The mean of q plus its noise, minus the values of S prior draws at the conditioning points.

    `minus` has whitened values eta [S, L, M] of `prior_coordinates`, `plus` standard normal numbers
    [S, L, M].
    """

    kernel: Kernel
    basis: Basis
    state: tuple[tf.Tensor, ...]
    minus: tuple[tf.Tensor, ...]
    plus: tuple[tf.Tensor, ...]
    gap: float = 0.0
    """No iterative solve."""

    @property
    def sizes(self) -> dict[str, int | str]:
        """Sizes of the basis."""
        return self.basis.sizes

    def __call__(self, X: tf.Tensor, own: bool) -> tf.Tensor:
        """Correction [S, N, L] at X [N, D], or X [S N, D] if `own`; N M^2 + S N M per latent."""
        features = self.basis.features(self.state, self.kernel, X)
        parts = [-project(feature, eta, own) for feature, eta in zip(features.minus, self.minus)]
        parts += [project(feature, noise, own) for feature, noise in zip(features.plus, self.plus)]
        values = tf.linalg.matrix_transpose(tf.add_n(parts))
        return values + (tf.reshape(features.mean, tf.shape(values)) if own else features.mean)


def basis_correction(
    model: BasisGP | FullGP,
    kernel: Kernel,
    prior: PriorDraws,
    X: tf.Tensor,
    rng: np.random.Generator,
) -> BasisCorrection:
    """Draw the noise of q and whiten the prior draws; `basis.factor`, and S (M F + M^2).

    X is one input [1, D], which sets the sizes of the features.
    """
    basis = deepcopy(model.basis)
    state = basis.factor(kernel, with_kl=False)
    minus = prior_coordinates(basis, state, kernel, prior, rng)
    shapes = [
        (prior.num_samples, basis.num_latent_gps, int(part.shape[1]))
        for part in basis.features(state, kernel, X).plus
    ]
    plus = tuple(tf.constant(rng.standard_normal(shape), X.dtype) for shape in shapes)
    return BasisCorrection(kernel, basis, state, minus, plus)


# ---
# The correction to draws of f given all data.


# For a prior draw g and noise eps ~ N(0, D) at the N inputs (D = s^2 I, or the reciprocal
# precisions of q(f)'s sites, with means y~),
#
#   f(x) = g(x) + k(x, X) v,    (K + D) v = y~ - g(X) - eps        (D53)
#
# is a draw of f given y~ (Matheron's rule; Wilson et al. 2020, arXiv:2002.09309; Lin et al. 2023,
# arXiv:2306.11589).


@dataclass
class DataCorrection:
    """k(x, X) v of S draws.

    v is [N, L S], a latent's columns side by side; `gap` the largest of a draw, in nats.
    """

    kernel: Kernel
    points: InducingVariables
    coefficients: tf.Tensor
    num_samples: int
    gap: float

    @property
    def sizes(self) -> dict[str, int | str]:
        """The number of data N."""
        return {"data": int(self.coefficients.shape[0])}

    def __call__(self, X: tf.Tensor, own: bool) -> tf.Tensor:
        """Correction [S, n, L] at X [n, D], or with `own` at X [S n, D].

        n N (D + S L); with `own` S times that, and S n S L numbers.
        """
        products = gram_product(self.kernel, self.points, X, self.coefficients)
        latents = self.coefficients.shape[1] // self.num_samples
        if not own:
            return tf.transpose(tf.reshape(products, [-1, latents, self.num_samples]), [2, 0, 1])
        return tf.einsum(
            "snls->snl", tf.reshape(products, [self.num_samples, -1, latents, self.num_samples])
        )


def data_correction(
    model: BasisGP | FullGP,
    kernel: Kernel,
    prior: PriorDraws,
    data: RegressionData,
    solver: ConjugateGradients,
    rng: np.random.Generator,
) -> DataCorrection:
    """Solve (D53) for each prior draw, with noise drawn here.

    X is [N, D], Y [N, P]; `solver` has tolerance and limits.
    """
    mean = _data_mean_of(model)
    X, Y = model.checked(data)
    if not mean.has_data(X.numpy()):
        raise ModelError(
            f"The mean points of this {type(model).__name__} are not the rows of X. {_SOLVE_FIRST}"
        )
    # 1) the sites of q(f): their precisions, and what its mean leaves of them
    a = mean.raw()
    K_a = gram_product(model.kernel, mean.points, None, a)
    projections = preconditioner_rows(model.kernel, model.basis.beta, X, solver.rank)
    state = model.basis.factor(model.kernel, with_kl=False)
    inducing = GaussianPart(state.mean, state.root)
    natural, weights, _ = sites_of(posterior_of(model, (X, Y), projections, a, K_a, inducing))
    left = natural / weights - K_a - a / weights
    if not tf.reduce_any(a != 0.0) and tf.reduce_any(left != 0.0):
        raise ModelError(
            f"The mean of this {type(model).__name__} has coefficients of zero. {_SOLVE_FIRST}"
        )
    # 2) one right-hand side for each draw, of which v = a solves the part that all have in common
    count = prior.num_samples
    values = tf.concat(
        [prior(X[start : start + ROWS]) for start in range(0, X.shape[0], ROWS)], axis=-1
    )
    noise = tf.constant(rng.standard_normal(tuple(values.shape)), X.dtype) / tf.sqrt(
        tf.transpose(weights)
    )
    drawn = tf.reshape(tf.transpose(values + noise, [2, 1, 0]), [X.shape[0], -1])
    target = tf.repeat(left, count, axis=1) - drawn
    system = MeanSystem(model.kernel, mean, projections, weights, target, draws=count)
    found = _solved(system, solver)
    return DataCorrection(
        kernel, mean.points, tf.repeat(a, count, axis=1) + found.a, count, found.gap
    )


_SOLVE_FIRST = (
    "Run optimizers.ConjugateGradients().run(model, (X, Y)) or fit(model, (X, Y)) first, with the"
    " same data."
)


def _data_mean_of(model: BasisGP | FullGP) -> DataMean:
    mean = model.basis.data_mean if isinstance(model, BasisGP) else None
    if mean is None:
        raise ModelError(
            f"data is for models with a mean on all data, and this {type(model).__name__} has none:"
            ' leave data out for draws of q(f), or build ODVGP(kernel, likelihood, "data", beta).'
        )
    return mean


def _solved(system: MeanSystem, solver: ConjugateGradients) -> MeanSolution:
    nothing = tf.zeros_like(system.target)
    low = tf.float32 if solver.float32 and nothing.dtype == tf.float64 else None
    with tqdm(disable=not solver.progress, bar_format="{desc}") as line:

        def report(products: int, share: float, gap: float) -> None:
            line.set_description_str(
                f"{system.draws} draws: {products + share:.1f} products, gap {gap:.3g} nats"
            )

        found = solver.solver(low)(system, nothing, nothing, deadline=math.inf, report=report)
    if found.gap > solver.tolerance:
        warn_user(
            f"The draws were solved for to a gap of {found.gap:.2g} nats in place of"
            f" {solver.tolerance:.2g} ({found.reason}): their values are within"
            f" {math.sqrt(2.0 * found.gap):.2g} prior standard deviations of exact ones. Pass"
            " solver=ConjugateGradients(...) with more max_products or a higher rank.",
        )
    return found


# ---


# With the weights w(x) = k(x, n) (K_nn + D)^-1 of the neighbours n of x, a prior draw g and noise
# eps ~ N(0, D),
#
#   f(x) = m(x) + sqrt(s(x)) (g(x) - w(x) (g_n + eps_n))
#
# has the mean m and the variance s (k(x, x) - w(x) k(n, x)) of a prediction from neighbours, (N7);
# s is its spread. Inputs share g and eps, and so a draw is one function (Matheron's rule).


_ENTRIES = 4_000_000
"""Most numbers in the covariances, or in the values, of neighbours of a block of inputs: 32 MB."""


class _Drawn(NamedTuple):
    """Observed rows of outputs with one covariance matrix, and what was drawn there."""

    group: Group
    row_index: RowIndex
    rows: Observations
    """Of inputs: X [U, D], noise [U, 1], and minus prior values and noise of S draws, [U, Q S]."""


@dataclass
class NeighbourCorrection:
    """The mean of neighbours, plus what they explain of S prior draws and their noise.

    :param posterior: of a copy of the model.
    """

    model: NNGP
    posterior: NeighboursPosterior
    prior: PriorDraws
    drawn: list[_Drawn]
    gap: float = 0.0
    """No iterative solve."""

    @property
    def sizes(self) -> dict[str, int | str]:
        """The numbers of rows and of neighbours."""
        return self.model.sizes

    def __call__(self, X: tf.Tensor, own: bool) -> tf.Tensor:
        """Correction [S, n, L] at X [n, D], or with `own` at X [S n, D].

        n m^3 / 3 for each output or group of them, and n m S L; S times that with `own`.
        """
        S = self.prior.num_samples
        # 1) deviations from the mean, [S, n, L]
        draw = tf.repeat(tf.range(S), tf.shape(X)[0] // S) if own else None
        explained = [self._explained(one, X, draw) for one in self.drawn]
        columns = [column for one in self.drawn for column in one.group.columns]
        deviation = tf.gather(tf.concat(explained, axis=-1), np.argsort(columns), axis=-1)
        values = tf.linalg.matrix_transpose(self.prior(X, own))
        deviation += values
        # 2) with the mean and the spread of predictions
        mean, spread = self._mean_and_spread(X)
        shape = [S if own else 1, -1, int(mean.shape[1])]
        mean -= self.model.mean_function(X)
        return tf.reshape(mean, shape) + tf.reshape(tf.sqrt(spread), shape) * deviation - values

    def _mean_and_spread(self, X: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean of f and factor of its variance at X [n, D], [n, L] each."""
        if self.model.of_gaussian_noise:
            mean, _, spread = self.posterior.fused_with_spread(X)
            return mean, spread
        mean, _ = self.posterior.predict_f(X)
        _, spread = scaled(self.model.factors, mean, tf.ones_like(mean))
        return mean, spread

    def _explained(self, drawn: _Drawn, X: tf.Tensor, draw: tf.Tensor | None) -> tf.Tensor:
        """w(x) (-g_n - eps_n) at X [n, D], [S, n, Q]; or at X [S n, D] with the draw of each."""
        S, Q = self.prior.num_samples, len(drawn.group.columns)
        count = min(self.model.prediction_neighbours, int(drawn.rows.X.shape[0]))
        near = drawn.row_index.nearest(X, count)
        own = draw is not None
        draws = draw if own else tf.zeros(tf.shape(X)[:1], tf.int32)

        def of_block(inputs: tf.Tensor, near: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
            rows = drawn.rows.at(near)
            if own:
                each = tf.reshape(rows.residuals, [-1, count, Q, S])
                mine = tf.gather(tf.transpose(each, [0, 3, 1, 2]), draws, axis=1, batch_dims=1)
                rows = rows._replace(residuals=mine)
            return new_given_neighbours(drawn.group.kernel, inputs, rows, near >= 0).mean

        size = max(1, _ENTRIES // max((count + 1) ** 2, count * Q * S))
        found = map_rows(of_block, (X, near, draws), size, X.dtype)
        if own:
            return tf.reshape(found, [S, -1, Q])
        return tf.transpose(tf.reshape(found, [-1, Q, S]), [2, 0, 1])


def neighbour_correction(
    model: NNGP, prior: PriorDraws, rng: np.random.Generator
) -> NeighbourCorrection:
    """Draw values and noise at all rows: S N (F + L), kept as S N L numbers.

    :param model: copied, so that further training does not change the draws.
    """
    frozen = deepcopy(model)
    observed = frozen.of_rows
    X = tf.convert_to_tensor(observed.data[0])
    noise = noise_variances(observed.likelihood, X, tf.range(tf.shape(X)[0]))
    least = jitter_variances(observed.groups, X)
    drawn_values = prior(X)  # [S, L, N]
    normal = tf.constant(rng.standard_normal(tuple(drawn_values.shape)), X.dtype)
    values, normal = (tf.transpose(part, [2, 1, 0]) for part in (drawn_values, normal))
    drawn = []
    for group in observed.matrices:
        own = noise_of_group(noise, group)
        jitter = tf.gather(least, group.columns, axis=1)
        # the jitter of every observation is noise to predictions, too
        eps = tf.gather(normal, group.columns, axis=1) * tf.sqrt(own + jitter)[..., None]
        minus = -tf.gather(values, group.columns, axis=1) - eps
        rows = Observations(X, tf.reshape(minus, [X.shape[0], -1]), own)
        rows = of_inputs(group, rows)
        drawn.append(_Drawn(group, row_index(group.kernel, rows.X), rows))
    return NeighbourCorrection(frozen, frozen.posterior(), prior, drawn)
