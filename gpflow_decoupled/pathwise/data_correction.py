"""The correction to draws of f given all data."""

# For a prior draw g and noise eps ~ N(0, D) at the N inputs (D = s^2 I, or the reciprocal
# precisions of q(f)'s sites, with means y~),
#
#   f(x) = g(x) + k(x, X) v,    (K + D) v = y~ - g(X) - eps        (D53)
#
# is a draw of f given y~ (Matheron's rule; Wilson et al. 2020, arXiv:2002.09309; Lin et al. 2023,
# arXiv:2306.11589).

from __future__ import annotations

__all__ = ["DataCorrection", "data_correction"]

import math
from dataclasses import dataclass

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel
from tqdm.auto import tqdm

from ..bases import GaussianPart
from ..bases.parts.data_mean import DataMean
from ..covariances.products import gram_product
from ..errors import ModelError
from ..models import BasisGP, FullGP
from ..optimizers import ConjugateGradients
from ..optimizers.data_mean.mean_solution import MeanSolution
from ..optimizers.data_mean.row_features import ROWS, preconditioner_rows
from ..optimizers.data_mean.row_posterior import posterior_of, sites_of
from ..optimizers.data_mean.system import MeanSystem
from ..user_warnings import warn_user
from .prior import PriorDraws


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
