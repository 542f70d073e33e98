"""Functions drawn from q(f): draws from the prior, with a correction at the values on which q conditions (Matheron's rule)."""

from __future__ import annotations

__all__ = ["PathwiseSamples", "pathwise_samples"]

import numpy as np
import tensorflow as tf
from gpflow.base import InputData
from gpflow.functions import MeanFunction
from gpflow.kernels import Kernel, LinearCoregionalization
from gpflow.models import SVGP, GPModel
from gpflow.utilities import deepcopy

from ..bases import Basis
from ..covariances.latents import split_latents
from ..errors import DataError, ModelError
from ..inducing.variables import point_values
from ..inputs import as_inputs, float_type, is_whole
from ..models import BasisGP, FullGP
from ..summaries import kernel_name, one_line, short_repr
from .arrays import project
from .prior import PriorDraws, draw_prior
from .projection import prior_coordinates


class PathwiseSamples:
    """S functions drawn from q(f) by `pathwise_samples`, to be called at inputs X [N, D].

    They remain the same functions when the model is trained further. They can be differentiated with respect to X and called
    inside `tf.function`.

    :param kernel: a copy of the model's kernel.
    :param basis: a copy of its basis.
    :param mean_function: a copy of its mean function.
    :param prior: S draws from the prior.
    :param minus: for each of the basis's `Features.minus`, the whitened values eta [S, L, M] of `prior_coordinates`.
    :param plus: for each of the basis's `Features.plus`, standard normal numbers [S, L, M].
    :param state: the result of `basis.factor(kernel)`.
    :param num_dims: D, the columns that inputs must have; None takes any number.

    Example::

        draws = pathwise_samples(model, 5)
        values = draws(X)  # [5, N, P]
    """

    def __init__(
        self,
        kernel: Kernel,
        basis: Basis,
        mean_function: MeanFunction,
        prior: PriorDraws,
        minus: tuple[tf.Tensor, ...],
        plus: tuple[tf.Tensor, ...],
        state: tuple[tf.Tensor, ...],
        num_dims: int | None = None,
    ) -> None:
        self._kernel, self._basis, self._mean_function = kernel, basis, mean_function
        self._num_dims = num_dims
        self._prior, self._minus, self._plus, self._state = prior, minus, plus, state

    def __repr__(self) -> str:
        """One line: the kernel, the number of functions, and the sizes of the basis."""
        return one_line(self, kernel_name(self._kernel), samples=self.num_samples, **self._basis.sizes)

    @property
    def num_samples(self) -> int:
        """The number S of functions."""
        return int(self._prior.weights[0].shape[0])

    def __call__(self, X: InputData) -> tf.Tensor:
        """The values of the functions.

        The cost per latent is N (F + M^2) + S N (F + M) for F random frequencies; if each draw has inputs of its own, the
        first term has S N in the place of N.

        :param X: inputs [N, D] for all draws, or [S, N, D], N inputs for each draw.
        :return: the values [S, N, P].
        :raises DataError: for unusable inputs, and if X has rank 3 and not S entries in its first axis.
        """
        X = as_inputs(X, "X", self._num_dims, float_type(self._kernel))
        own = X.shape.rank == 3
        if own and X.shape[0] != self.num_samples:
            raise DataError(
                f"X has shape {tuple(X.shape)} and there are {self.num_samples} draws: pass X [N, D] for all of them, or "
                f"[{self.num_samples}, N, D], N inputs for each."
            )
        inputs = tf.reshape(X, [-1, X.shape[-1]]) if own else X
        features = self._basis.features(self._state, self._kernel, inputs)
        values = self._prior(inputs, own)
        # Matheron's rule: subtract what the draw implies for the values that q conditions on, then add q's noise and mean
        for feature, coordinates in zip(features.minus, self._minus):
            values -= project(feature, coordinates, own)
        for feature, noise in zip(features.plus, self._plus):
            values += project(feature, noise, own)
        values = tf.linalg.matrix_transpose(values)
        values += tf.reshape(features.mean, tf.shape(values)) if own else features.mean
        if isinstance(self._kernel, LinearCoregionalization):
            values = tf.einsum("snl,pl->snp", values, tf.convert_to_tensor(self._kernel.W))
        return values + self._mean_function(X)


def pathwise_samples(
    model: BasisGP | FullGP, num_samples: int, *, num_frequencies: int = 1000, seed: int | np.random.Generator = 0
) -> PathwiseSamples:
    """Draw functions from the posterior of a model.

    A draw can be evaluated at any inputs, at a cost that grows linearly with their number. The correction from prior to
    posterior is exact. The prior is approximated by F random frequencies, with an error of the covariance of about
    variance / sqrt(F) away from the data. `predict_f_samples` is exact, and costs N^3 for N inputs.

    :param model: a model of this package whose posterior is Gaussian and in function space.
    :param num_samples: S, the number of functions.
    :param num_frequencies: F, the number of random frequencies of a stationary kernel.
    :param seed: the seed of frequencies and draws, or their source.
    :return: the functions. Cost: `basis.factor`, and S (M F + M^2).
    :raises DataError: for numbers below 1, and for kernels and inducing variables that do not allow it.
    :raises ModelError: for a model of another family.

    Example::

        draw = pathwise_samples(model, 1)
        best = X[np.argmax(draw(X)[0, :, 0])]  # Thompson sampling
    """
    for name, number in (("num_samples", num_samples), ("num_frequencies", num_frequencies)):
        if not is_whole(number, 1):
            raise DataError(f"{name}={short_repr(number)}; pass a whole number of at least 1.")
    if not isinstance(model, (BasisGP, FullGP)):
        raise ModelError(_wrong_model(model))
    rng = np.random.default_rng(seed)
    # 1) copies, so that the draws do not change when the model is trained further
    kernel, basis = deepcopy(model.kernel), deepcopy(model.basis)
    state = basis.factor(kernel, with_kl=False)
    kernels = [k for (k,) in split_latents(kernel)]
    latents = basis.num_latent_gps
    # 2) draws from the prior, and the values that they imply where the basis conditions
    X = _some_input(model)
    prior = draw_prior(kernels * (latents // len(kernels)), int(X.shape[1]), num_samples, num_frequencies, rng)
    minus = prior_coordinates(basis, state, kernel, prior, rng)
    # 3) the noise of q at these values
    shapes = [(num_samples, latents, int(part.shape[1])) for part in basis.features(state, kernel, X).plus]
    plus = tuple(tf.constant(rng.standard_normal(shape), X.dtype) for shape in shapes)
    return PathwiseSamples(kernel, basis, deepcopy(model.mean_function), prior, minus, plus, state, model.num_dims)


def _wrong_model(model: object) -> str:
    """The message for a model of another family: what is taken, and what to use for this one."""
    message = (
        "pathwise_samples takes a model of gpflow_decoupled.models with a Gaussian posterior in function space (ODVGP, "
        f"SOLVEGP, HDVGP, DVGP, SparseCVIGP, CVIGP, LCLGP, BasisGP), and got {type(model).__name__}"
    )
    if isinstance(model, SVGP):
        return (
            f"{message}. Use BasisGP(kernel, likelihood, CoupledBasis(Z, q_mu=..., q_sqrt=..., whiten=...)) with the same "
            "parameters, which has the same posterior."
        )
    if isinstance(model, GPModel):
        return f"{message}. For draws at given inputs use its predict_f_samples(Xnew, num_samples)."
    return f"{message}, which has no latent function of the inputs."


def _some_input(model: BasisGP | FullGP) -> tf.Tensor:
    """One input [1, D], from which the sizes of the features are read."""
    if isinstance(model, FullGP):
        return model.data[0][:1]
    inputs = point_values(model.basis.beta)
    if not inputs:
        raise DataError(
            f"Pathwise samples need inducing points, not {type(model.basis.beta).__name__}: for draws at given inputs use "
            "predict_f_samples, or for weights models.weights_posterior(model)."
        )
    return tf.convert_to_tensor(inputs[0])[:1]
