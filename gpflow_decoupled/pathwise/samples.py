"""Draws from a posterior."""

from __future__ import annotations

__all__ = ["Correction", "PathwiseSamples", "pathwise_samples"]

from typing import Protocol

import numpy as np
import tensorflow as tf
from gpflow.base import InputData, RegressionData
from gpflow.functions import MeanFunction
from gpflow.kernels import Kernel, LinearCoregionalization
from gpflow.models import SVGP, GPModel
from gpflow.utilities import deepcopy

from ..covariances.latents import split_latents
from ..errors import DataError, ModelError, UnknownOptionError
from ..inducing.variables import point_values
from ..inputs import as_inputs, float_type, is_whole
from ..models import NNGP, BasisGP, FullGP
from ..optimizers import ConjugateGradients
from ..summaries import kernel_name, one_line, short_repr
from .corrections import basis_correction, data_correction, neighbour_correction
from .prior import PriorDraws, draw_prior

_TOLERANCE = 1e-3
"""Nats; at a bound's tolerance of 0.1, values could be off by 0.4 prior standard deviations."""


class Correction(Protocol):
    """The difference between S prior draws and S posterior draws."""

    @property
    def gap(self) -> float:
        """Largest gap of a draw's coefficients to the exact solution, in nats."""

    @property
    def sizes(self) -> dict[str, int | str]:
        """Sizes of the conditioning set, by name."""

    def __call__(self, X: tf.Tensor, own: bool) -> tf.Tensor:
        """Correction [S, N, L] at X [N, D], or with `own` at each draw's inputs, X [S N, D]."""


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
        num_dims: int | None = None,
    ) -> None:
        self._prior, self._correction = prior, correction
        self._kernel, self._mean_function, self._num_dims = kernel, mean_function, num_dims

    def __repr__(self) -> str:
        return one_line(
            self, kernel_name(self._kernel), samples=self.num_samples, **self._correction.sizes
        )

    @property
    def num_samples(self) -> int:
        """The number S of functions."""
        return self._prior.num_samples

    @property
    def gap(self) -> float:
        """Nats: values are within sqrt(2 gap) prior standard deviations of an exact solve.

        0 for draws of q(f), which need no iterative solve.
        """
        return self._correction.gap

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
        values = tf.linalg.matrix_transpose(self._prior(inputs, own)) + self._correction(
            inputs, own
        )
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
    _check_solver(solver, data)
    rng = np.random.default_rng(seed)
    # so that the draws do not change when the model is trained further
    kernel = deepcopy(model.kernel)
    kernels = [k for (k,) in split_latents(kernel)]
    X = _some_input(model)
    repeats = model.num_latent_gps // len(kernels)
    prior = draw_prior(kernels * repeats, int(X.shape[1]), num_samples, num_frequencies, rng)
    correction: Correction
    if isinstance(model, NNGP):
        correction = neighbour_correction(model, prior, rng)
    elif data is None:
        correction = basis_correction(model, kernel, prior, X, rng)
    else:
        correction = data_correction(
            model, kernel, prior, data, solver or ConjugateGradients(_TOLERANCE), rng
        )
    return PathwiseSamples(prior, correction, kernel, deepcopy(model.mean_function), model.num_dims)


def _check_solver(solver: ConjugateGradients | None, data: RegressionData | None) -> None:
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
