"""Functions drawn from a posterior: draws from the prior, corrected by Matheron's rule."""

from __future__ import annotations

__all__ = ["PathwiseSamples", "given_data", "pathwise_samples"]

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import InputData, RegressionData
from gpflow.functions import MeanFunction
from gpflow.inducing_variables import InducingPoints, InducingVariables
from gpflow.kernels import Kernel, LinearCoregionalization
from gpflow.models import SVGP, GPModel
from gpflow.utilities import deepcopy
from tqdm.auto import tqdm

from ..bases import (
    Basis,
    CoupledBasis,
    DecoupledBasis,
    DualBasis,
    GaussianPart,
    SiteBasis,
    SolveBasis,
)
from ..bases.orthogonal import OrthogonalMeanBasis
from ..covariances.latents import (
    gram,
    gram_to_factor,
    residual_gram,
    residual_gram_to_factor,
    split_latents,
)
from ..covariances.neighbours import RowIndex, row_index
from ..covariances.products import gram_product
from ..errors import DataError, ModelError, UnknownOptionError
from ..inducing.variables import point_values
from ..inputs import as_inputs, float_type, is_whole
from ..linalg.conjugate_gradients import map_rows
from ..linalg.triangular import solve
from ..models import NNGP, BasisGP, FullGP
from ..models.neighbours.conditionals import Observations, new_given_neighbours, scaled
from ..models.neighbours.groups import Group, jitter_variances, noise_of_group, noise_variances
from ..models.neighbours.likelihood import of_inputs
from ..optimizers import ConjugateGradients
from ..optimizers.data_mean.evidence import posterior_of, sites_of
from ..optimizers.data_mean.system import ROWS, MeanSolution, MeanSystem, preconditioner_rows
from ..summaries import one_line, part_name, short_repr
from ..user_warnings import warn_user
from .prior import PriorDraws, draw_prior

_TOLERANCE = 1e-3
"""Nats; at a bound's tolerance of 0.1, values could be off by 0.4 prior standard deviations."""
Correction = Callable[[tf.Tensor, bool], tf.Tensor]
"""Posterior minus prior draws, [S, N, L] at X [N, D], or with True at each draw's X [S N, D]."""


class PathwiseSamples:
    """S functions drawn from a posterior by `pathwise_samples`, to call at inputs X [N, D].

    Training does not change them; they are differentiable in X.

    Example::

        draws = pathwise_samples(model, 5)
        values = draws(X)  # [5, N, P]
    """

    def __init__(
        self,
        prior: PriorDraws,
        correction: Correction,
        kernel: Kernel,
        mean_function: MeanFunction,
        num_dims: int | None,
        sizes: dict[str, int | str],
        gap: float,
    ) -> None:
        self._prior, self._correction, self._sizes = prior, correction, sizes
        self._kernel, self._mean_function, self._num_dims = kernel, mean_function, num_dims
        self.gap = gap
        """Nats: values are within sqrt(2 gap) prior standard deviations of an exact solve.

        0 for draws of q(f), which need no iterative solve.
        """

    def __repr__(self) -> str:
        sizes = {"samples": self.num_samples, **self._sizes}
        return one_line(self, part_name(self._kernel), **sizes)

    @property
    def num_samples(self) -> int:
        """The number S of functions."""
        return self._prior.num_samples

    def __call__(self, X: InputData) -> tf.Tensor:
        """Evaluate the functions.

        N M^2 + S N (F + M) per latent for F random frequencies, S times the first if each draw has
        its inputs. Given all N_data data: N (F + N_data) S.

        :param X: inputs [N, D] for all draws, or [S, N, D], N inputs for each draw.
        :return: the values [S, N, P].
        """
        X = as_inputs(X, "X", self._num_dims, float_type(self._kernel))
        own = X.shape.rank == 3
        if own and X.shape[0] != self.num_samples:
            raise DataError(
                f"X has shape {tuple(X.shape)} and there are {self.num_samples} draws: pass X [N,"
                f" D] for all of them, or [{self.num_samples}, N, D], N inputs for each."
            )
        inputs = tf.reshape(X, [-1, X.shape[-1]]) if own else X
        values = tf.linalg.matrix_transpose(self._prior(inputs, own))
        values += self._correction(inputs, own)
        if isinstance(self._kernel, LinearCoregionalization):
            values = tf.einsum("snl,pl->snp", values, tf.convert_to_tensor(self._kernel.W))
        return values + self._mean_function(X)


def pathwise_samples(
    model: BasisGP | FullGP | NNGP,
    num_samples: int,
    *,
    data: RegressionData | None = None,
    solver: ConjugateGradients | None = None,
    num_frequencies: int = 1000,
    seed: int | np.random.Generator = 0,
) -> PathwiseSamples:
    """Draw functions from the posterior of a model.

    F random frequencies of each function approximate the prior away from the data (Wilson et al.
    2020; Lin et al. 2023). Means and covariances over functions are the posterior's for any F: of
    2,000 functions deviations are those of `predict_f` within 5 %. `predict_f_samples` is Gaussian
    too, at N^3.

    Without `data` draws are of q(f), too wide for a mean on all data. With `data` they are of f
    given all data, exact for Gaussian noise, else given q(f)'s sites of positive precision. For an
    `NNGP` they are given the nearest rows of each input, and jump a little where these change.

    :param model: a model of this package whose posterior is Gaussian and in function space.
    :param num_samples: S, the number of functions.
    :param data: all data, X [N, D] and Y [N, P], for a model with `gamma="data"` trained on them.
    :param solver: for `data`, by default `ConjugateGradients(tolerance=1e-3)`.
    :param num_frequencies: F, for a stationary kernel.
    :param seed: of frequencies and draws, or their source.
    :return: the functions. Cost: S (M F + M^2), of an `NNGP` S N F; with `data` N S F, N R^2 for R
        points of the preconditioner, N^2 (D + S L) per product; memory N (R + S L).

    Example::

        draw = pathwise_samples(model, 1)
        best = X[np.argmax(draw(X)[0, :, 0])]

        draws = pathwise_samples(model, 64, data=(X, Y))  # for gamma="data"
    """
    for name, number in (("num_samples", num_samples), ("num_frequencies", num_frequencies)):
        if not is_whole(number, 1):
            raise DataError(f"{name}={short_repr(number)}; pass a whole number of at least 1.")
    if not isinstance(model, (BasisGP, FullGP, NNGP)):
        raise ModelError(_wrong_model(model))
    if isinstance(model, NNGP) and data is not None:
        raise ModelError("An NNGP owns its data, of which its draws are: leave data out.")
    if solver is not None and not isinstance(solver, ConjugateGradients):
        raise UnknownOptionError(
            f"solver={solver!r}: draws given all data are solved for by"
            " optimizers.ConjugateGradients(...)."
        )
    if solver is not None and data is None:
        raise UnknownOptionError(
            "solver is for draws given all data: pass data=(X, Y), or leave solver out for draws of"
            " q(f)."
        )
    rng = np.random.default_rng(seed)
    # so that the draws do not change when the model is trained further
    kernel = deepcopy(model.kernel)
    kernels = [k for (k,) in split_latents(kernel)]
    X = _some_input(model)
    repeats = model.num_latent_gps // len(kernels)
    prior = draw_prior(kernels * repeats, int(X.shape[1]), num_samples, num_frequencies, rng)
    gap, sizes = 0.0, model.sizes if isinstance(model, NNGP) else model.basis.sizes
    if isinstance(model, NNGP):
        correction = _given_neighbours(model, prior, rng)
    elif data is None:
        correction = _given_basis(model, kernel, prior, X, rng)
    else:
        solver = solver or ConjugateGradients(_TOLERANCE)
        correction, gap = given_data(model, kernel, prior, data, solver, rng)
        sizes = {"data": len(data[0])}
    mean_function = deepcopy(model.mean_function)
    return PathwiseSamples(prior, correction, kernel, mean_function, model.num_dims, sizes, gap)


def _wrong_model(model: object) -> str:
    message = (
        "pathwise_samples takes a model of gpflow_decoupled.models with a Gaussian posterior in"
        " function space (ODVGP, SOLVEGP, HDVGP, DVGP, SparseCVIGP, CVIGP, LCLGP, BasisGP, NNGP),"
        f" and got {type(model).__name__}"
    )
    if isinstance(model, SVGP):
        return (
            f"{message}. Use BasisGP(kernel, likelihood, CoupledBasis(Z, q_mu=..., q_sqrt=...,"
            " whiten=...)) with the same parameters, which has the same posterior."
        )
    if hasattr(model, "pathwise_samples"):  # a `Standardized`, from `build`
        return f"{message}: call model.pathwise_samples(10), whose draws are in units of the data."
    if isinstance(model, GPModel):
        return f"{message}. For draws at given inputs use its predict_f_samples(Xnew, num_samples)."
    return f"{message}, which has no latent function of the inputs."


def _some_input(model: BasisGP | FullGP | NNGP) -> tf.Tensor:
    if isinstance(model, (FullGP, NNGP)):
        return model.data[0][:1]
    inputs = point_values(model.basis.beta)
    if not inputs:
        raise DataError(
            f"Pathwise samples need inducing points, not {type(model.basis.beta).__name__}: for"
            " draws at given inputs use predict_f_samples, or for weights"
            " models.weights_posterior(model)."
        )
    return tf.convert_to_tensor(inputs[0])[:1]


# ---
# Draws of q(f): the mean of q plus its noise, minus the values of prior draws at the conditioning
# points.


# A Gaussian basis gives f(x) the variance k(x, x) - |minus(x)|^2 + |plus(x)|^2. For eta ~ N(0, I),
# a function of a prior draw g and fresh noise with cov(g(x), eta) = minus(x), g(x) - minus(x)^T eta
# has the covariance of the first two terms (Matheron's rule; Wilson et al. 2020, arXiv:2002.09309).
# This eta is
#
# | the basis conditions on | eta |
# |---|---|
# | values at inducing points, K_b = L L^T | L^-1 g(beta) |
# | sites of precision W, I + W^1/2 K W^1/2 = L_B L_B^T | L_B^-1 (W^1/2 g(X) + noise) |
#
# Matrices are [G, M, N] with G = L, or G = 1 if all latents share one.


def _normal(like: tf.Tensor, rng: np.random.Generator) -> tf.Tensor:
    """Standard normal numbers in the shape and dtype of `like`."""
    return tf.constant(rng.standard_normal(tuple(like.shape)), like.dtype)


def _solve_draws(chol: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """L^-1 times draws [S, L, M], for a lower triangular L [G, M, M]."""
    columns = tf.transpose(values, [1, 2, 0])
    return tf.transpose(
        solve(tf.broadcast_to(chol, [columns.shape[0], *chol.shape[1:]]), columns), [2, 0, 1]
    )


def _project(features: tf.Tensor, coordinates: tf.Tensor, own: bool = False) -> tf.Tensor:
    """Multiply transposed features by the coordinates of each draw.

    Features are [G, M, N], or [G, M, S N] if `own`, coordinates [S, L, M], the result [S, L, N].
    """
    if not own:
        return tf.transpose(
            tf.matmul(features, tf.transpose(coordinates, [1, 2, 0]), transpose_a=True), [2, 0, 1]
        )
    blocks = tf.reshape(features, [*features.shape[:2], coordinates.shape[0], -1])
    return tf.einsum(
        "gmsn,slm->sln" if features.shape[0] == 1 else "lmsn,slm->sln", blocks, coordinates
    )


def _given_basis(
    model: BasisGP | FullGP,
    kernel: Kernel,
    prior: PriorDraws,
    X: tf.Tensor,
    rng: np.random.Generator,
) -> Correction:
    """Draw the noise of q and whiten the prior draws; `basis.factor`, and S (M F + M^2).

    X is one input [1, D], which sets the sizes of the features.
    """
    basis = deepcopy(model.basis)
    state = basis.factor(kernel, with_kl=False)
    minus = _coordinates(basis, state, kernel, prior, rng)
    shapes = [
        (prior.num_samples, basis.num_latent_gps, int(part.shape[1]))
        for part in basis.features(state, kernel, X).plus
    ]
    plus = [tf.constant(rng.standard_normal(shape), X.dtype) for shape in shapes]

    def correction(X: tf.Tensor, own: bool) -> tf.Tensor:
        features = basis.features(state, kernel, X)
        parts = [-_project(feature, eta, own) for feature, eta in zip(features.minus, minus)]
        parts += [_project(feature, noise, own) for feature, noise in zip(features.plus, plus)]
        values = tf.linalg.matrix_transpose(tf.add_n(parts))
        return values + (tf.reshape(features.mean, tf.shape(values)) if own else features.mean)

    return correction


def _coordinates(
    basis: Basis,
    state: Any,  # of the basis
    kernel: Kernel,
    prior: PriorDraws,
    rng: np.random.Generator,
) -> tuple[tf.Tensor, ...]:
    """The eta of prior draws, one array [S, L, M] per `Features.minus`."""
    if isinstance(basis, (SiteBasis, DualBasis)):
        if getattr(basis, "form", "function") != "function":
            raise DataError(
                "Pathwise samples need a model in function space. The posterior of a model in"
                " weight space is one of its weights: draw these from models.weights_posterior("
                "model)."
            )
        values = prior(basis.X)
        return (_solve_draws(state.chol, state.scale * values + _normal(values, rng)),)
    known = (CoupledBasis, OrthogonalMeanBasis, DecoupledBasis, SolveBasis)
    if not isinstance(basis, known):
        raise ModelError(
            f"Pathwise samples are not known for {type(basis).__name__}: for draws at given inputs"
            " use predict_f_samples."
        )
    # the jitter of what is factorised is noise of what is conditioned on
    jitter = gram_to_factor(kernel, basis.beta) - gram(kernel, basis.beta)
    values = _noisy(prior(_points(kernel, basis.beta)), jitter, rng)
    if isinstance(basis, DecoupledBasis) and basis.covariance != "coupled":
        # (D7): V = (K_b^-1 + C C^T)^-1 on beta, as if C^T f(beta) were observed with unit noise
        seen = tf.einsum("lmk,slm->slk", state.root, values)
        return (_solve_draws(state.chol, seen + _normal(seen, rng)),)
    eta = _solve_draws(state.chol, values)
    if not isinstance(basis, SolveBasis):
        return (eta,)
    residual = prior(_points(kernel, basis.gamma)) - _project(state.projection, eta)
    points = (basis.beta, basis.gamma)
    jitter = residual_gram_to_factor(kernel, *points) - residual_gram(kernel, *points)
    return eta, _solve_draws(state.chol_gamma, _noisy(residual, jitter, rng))


def _noisy(values: tf.Tensor, jitter: tf.Tensor, rng: np.random.Generator) -> tf.Tensor:
    deviation = tf.sqrt(tf.maximum(tf.linalg.diag_part(jitter), 0.0))
    return values + deviation * _normal(values, rng)


def _points(kernel: Kernel, points: InducingVariables) -> tf.Tensor | list[tf.Tensor]:
    pairs = split_latents(kernel, points)
    for _, z in pairs:
        if type(z) is not InducingPoints:
            raise DataError(
                f"Pathwise samples need inducing points, not {type(z).__name__}: for draws at given"
                " inputs use predict_f_samples."
            )
    inputs = [tf.convert_to_tensor(z.Z) for _, z in pairs]
    return inputs[0] if len(inputs) == 1 else inputs


# ---
# The correction to draws of f given all data.


# For a prior draw g and noise eps ~ N(0, D) at the N inputs (D = s^2 I, or the reciprocal
# precisions of q(f)'s sites, with means y~),
#
#   f(x) = g(x) + k(x, X) v,    (K + D) v = y~ - g(X) - eps        (D53)
#
# is a draw of f given y~ (Matheron's rule; Wilson et al. 2020, arXiv:2002.09309; Lin et al. 2023,
# arXiv:2306.11589).


def given_data(
    model: BasisGP | FullGP,
    kernel: Kernel,
    prior: PriorDraws,
    data: RegressionData,
    solver: ConjugateGradients,
    rng: np.random.Generator,
) -> tuple[Correction, float]:
    """Solve (D53) for each prior draw, with noise drawn here; the largest gap of a draw, in nats.

    X is [N, D], Y [N, P]; `solver` has tolerance and limits. n inputs cost n N (D + S L), S times
    that if each draw has its own.
    """
    mean = model.basis.data_mean if isinstance(model, BasisGP) else None
    if mean is None:
        raise ModelError(
            f"data is for models with a mean on all data, and this {type(model).__name__} has none:"
            ' leave data out for draws of q(f), or build ODVGP(kernel, likelihood, "data", beta).'
        )
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
    points, coefficients = mean.points, tf.repeat(a, count, axis=1) + found.a
    latents = int(a.shape[1])

    def correction(X: tf.Tensor, own: bool) -> tf.Tensor:
        products = gram_product(kernel, points, X, coefficients)
        if not own:
            return tf.transpose(tf.reshape(products, [-1, latents, count]), [2, 0, 1])
        return tf.einsum("snls->snl", tf.reshape(products, [count, -1, latents, count]))

    return correction, found.gap


_SOLVE_FIRST = (
    "Run optimizers.ConjugateGradients().run(model, (X, Y)) or fit(model, (X, Y)) first, with the"
    " same data."
)


def _solved(system: MeanSystem, solver: ConjugateGradients) -> MeanSolution:
    nothing = tf.zeros_like(system.target)
    low = tf.float32 if solver.float32 and nothing.dtype == tf.float64 else None
    with tqdm(disable=not solver.progress, bar_format="{desc}") as line:

        def report(products: int, share: float, gap: float) -> None:
            line.set_description_str(
                f"{system.draws} draws: {products + share:.1f} products, gap {gap:.3g} nats"
            )

        found = solver.solver(low)(
            system, nothing, K_start=nothing, deadline=math.inf, report=report
        )
    if found.gap > solver.tolerance:
        warn_user(
            f"The draws were solved for to a gap of {found.gap:.2g} nats in place of"
            f" {solver.tolerance:.2g} ({found.reason}): their values are within"
            f" {math.sqrt(2.0 * found.gap):.2g} prior standard deviations of exact ones. Pass"
            " solver=ConjugateGradients(...) with more max_products or a higher rank.",
        )
    return found


# ---
# Draws given the nearest rows of each input.


# With the weights w(x) = k(x, n) (K_nn + D)^-1 of the neighbours n of x, a prior draw g and noise
# eps ~ N(0, D),
#
#   f(x) = m(x) + sqrt(s(x)) (g(x) - w(x) (g_n + eps_n))
#
# has the mean m and the variance s (k(x, x) - w(x) k(n, x)) of a prediction from neighbours, (N7);
# s is its spread. Inputs share g and eps, and so a draw is one function (Matheron's rule).


_ENTRIES = 4_000_000
"""Most numbers in the covariances, or in the values, of neighbours of a block of inputs: 32 MB."""


def _given_neighbours(model: NNGP, prior: PriorDraws, rng: np.random.Generator) -> Correction:
    """Draw values and noise at all rows: S N (F + L), kept as S N L numbers.

    n inputs cost n m^3 / 3 for each output or group of them, and n m S L; S times that if each draw
    has its own. The model is copied, so that further training does not change the draws.
    """
    frozen, S = deepcopy(model), prior.num_samples
    observed, posterior = frozen.of_rows, frozen.posterior()
    X = tf.convert_to_tensor(observed.data[0])
    noise = noise_variances(observed.likelihood, X, tf.range(tf.shape(X)[0]))
    least = jitter_variances(observed.groups, X)
    drawn_values = prior(X)  # [S, L, N]
    normal = _normal(drawn_values, rng)
    values, normal = (tf.transpose(part, [2, 1, 0]) for part in (drawn_values, normal))
    drawn = []
    for group in observed.matrices:
        own_noise = noise_of_group(noise, group)
        jitter = tf.gather(least, group.columns, axis=1)
        # the jitter of every observation is noise to predictions, too
        eps = tf.gather(normal, group.columns, axis=1) * tf.sqrt(own_noise + jitter)[..., None]
        minus = -tf.gather(values, group.columns, axis=1) - eps  # [N, Q, S]
        rows = of_inputs(group, Observations(X, tf.reshape(minus, [X.shape[0], -1]), own_noise))
        drawn.append((group, row_index(group.kernel, rows.X), rows))
    order = np.argsort([column for group, *_ in drawn for column in group.columns])

    def correction(X: tf.Tensor, own: bool) -> tf.Tensor:
        # 1) deviations from the mean, [S, n, L]
        draw = tf.repeat(tf.range(S), tf.shape(X)[0] // S) if own else None
        explained = [_explained(*one, X, draw, S, frozen.prediction_neighbours) for one in drawn]
        values = tf.linalg.matrix_transpose(prior(X, own))
        deviation = tf.gather(tf.concat(explained, axis=-1), order, axis=-1) + values
        # 2) with the mean and the spread of predictions
        if frozen.of_gaussian_noise:
            mean, _, spread = posterior.fused_with_spread(X)
        else:
            mean, _ = posterior.predict_f(X)
            _, spread = scaled(frozen.factors, mean, tf.ones_like(mean))
        shape = [S if own else 1, -1, int(mean.shape[1])]
        mean -= frozen.mean_function(X)
        return tf.reshape(mean, shape) + tf.reshape(tf.sqrt(spread), shape) * deviation - values

    return correction


def _explained(
    group: Group,
    index: RowIndex,
    observed: Observations,
    X: tf.Tensor,
    draw: tf.Tensor | None,
    S: int,
    most: int,
) -> tf.Tensor:
    """w(x) (-g_n - eps_n) at X [n, D], [S, n, Q]; or at X [S n, D] with the draw of each."""
    Q, own = len(group.columns), draw is not None
    count = min(most, int(observed.X.shape[0]))
    near = index.nearest(X, count)
    draws = draw if own else tf.zeros(tf.shape(X)[:1], tf.int32)

    def of_block(inputs: tf.Tensor, near: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
        rows = observed.at(near)
        if own:
            each = tf.reshape(rows.residuals, [-1, count, Q, S])
            mine = tf.gather(tf.transpose(each, [0, 3, 1, 2]), draws, axis=1, batch_dims=1)
            rows = rows._replace(residuals=mine)
        return new_given_neighbours(group.kernel, inputs, rows, near >= 0).mean

    size = max(1, _ENTRIES // max((count + 1) ** 2, count * Q * S))
    found = map_rows(of_block, (X, near, draws), size, X.dtype)
    if own:
        return tf.reshape(found, [S, -1, Q])
    return tf.transpose(tf.reshape(found, [-1, Q, S]), [2, 0, 1])
