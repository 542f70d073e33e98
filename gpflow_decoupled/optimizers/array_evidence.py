"""The log evidence on arrays, without a graph."""

from __future__ import annotations

__all__ = ["ArrayEvidence", "array_evidence"]

from collections.abc import Sequence

import numpy as np
from gpflow import Parameter
from gpflow.functions import Constant, Zero
from gpflow.kernels import MultioutputKernel

from ..covariances.stationary import ArrayGram, array_gram
from ..likelihoods.facts import is_gaussian
from ..linalg.site_posterior import normal_density
from ..models import CVIGP
from .log_climb import FAR, LogCoordinates

_DIGITS = 1e10
"""Largest prior variance in variances of the noise, in double precision: round-off of the evidence
stays below the nats at which a climb ends."""
_NO_SHARE = 1e-9
"""Of the prior variance: coordinates below, such as lengthscales, do not change it."""


class ArrayEvidence:
    """log N(y; c, K + S) of all outputs as a function of the vector of coordinates.

    Equal to the compiled evidence of `EvidenceClimb`, for kernels and means of arrays. Entries of Y
    that are NaN are left out. Cost: N^3, per output where noise or missing entries differ.

    :param model: with one kernel, Gaussian noise and a constant mean; see `array_evidence`.
    :param gram: of its kernel at its data X [N, D].
    :param coordinates: of its trainable Parameters.
    """

    def __init__(self, model: CVIGP, gram: ArrayGram, coordinates: LogCoordinates) -> None:
        self.gram, self.coordinates = gram, coordinates
        self.Y = model.data[1].numpy()
        likelihood, mean = model.likelihood, model.mean_function
        self.by_scale = likelihood.variance is None
        self.noise: Parameter = likelihood.scale if self.by_scale else likelihood.variance
        self.mean: Parameter | None = mean.c if type(mean) is Constant else None
        own = [self.noise, *([] if self.mean is None else [self.mean])]
        own += model.kernel.parameters
        self.values_at = coordinates.reader(own)
        self.groups = _groups(self.Y, int(np.size(self.noise.numpy())))

    def __call__(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        value = self.values_at(x)
        K, back = self.gram(value)
        noise = value(self.noise)
        variances = np.broadcast_to(noise**2 if self.by_scale else noise, self.Y.shape[1:])
        mean = 0.0 if self.mean is None else value(self.mean)
        total, of_K = 0.0, np.zeros_like(K)
        of_noise, of_mean = np.zeros(self.Y.shape[1]), np.zeros(self.Y.shape[1])
        for columns, rows in self.groups:
            square = np.ix_(rows, rows)
            C = K[square] + variances[columns[0]] * np.eye(len(rows))
            found = normal_density(C, (self.Y - mean)[np.ix_(rows, columns)])
            total += found.value
            of_K[square] += found.of_covariance
            of_noise[columns[0]] = np.trace(found.of_covariance)
            of_mean[columns] = -np.sum(found.of_columns, axis=0)
        of_noise *= 2.0 * np.sqrt(variances) if self.by_scale else 1.0
        gradients = [*back(of_K), (self.noise, _like(of_noise, noise))]
        if self.mean is not None:
            gradients.append((self.mean, _like(of_mean, np.asarray(mean))))
        return total, self.coordinates.gradient_by_parameters(x, gradients)

    @property
    def fall(self) -> np.ndarray:
        """How far each logarithm may fall [n], a noise with a least value as good as to it."""
        return np.where(self.coordinates.has_least, 2.0 * FAR, FAR)

    def rise(self) -> np.ndarray:
        """How far each coordinate may rise from here [n], prior variances to `_DIGITS` noises.

        Data without noise have ever more evidence for larger variances and lengthscales; beyond,
        evidence is off by nats and predictive variances turn negative.
        """
        x = self.coordinates.pack()
        K, back = self.gram(self.values_at(x))
        if K.dtype != np.float64:
            return np.full(x.shape, np.inf)
        # the noise may fall in the same climb
        lowest = x - np.where(self.coordinates.is_log, self.fall, 0.0)
        least = self.values_at(lowest)(self.noise)
        largest, noise = float(np.max(np.diag(K))), float(np.min(least))
        noise = noise**2 if self.by_scale else noise
        # of log trace K by each coordinate
        share = self.coordinates.gradient_by_parameters(x, back(np.eye(len(K)))) / np.trace(K)
        room = max(0.0, float(np.log(_DIGITS * noise / largest)))
        return np.where(share > _NO_SHARE, room / max(1.0, float(np.sum(share))), np.inf)


def array_evidence(model: CVIGP, coordinates: LogCoordinates) -> ArrayEvidence | None:
    """Return the evidence on arrays; None for models whose parts are not known as such.

    :param model: with Gaussian noise and latents that are not mixed.
    :param coordinates: of its trainable Parameters.
    """
    kernel, likelihood, mean = model.kernel, model.likelihood, model.mean_function
    noise = likelihood.scale if likelihood.variance is None else likelihood.variance
    priors = any(p.prior is not None for p in model.trainable_parameters)
    if (
        isinstance(kernel, MultioutputKernel)
        or not is_gaussian(likelihood)
        or not isinstance(noise, Parameter)
        or type(mean) not in (Zero, Constant)
        or priors
        or not coordinates.is_closed
    ):
        return None
    gram = array_gram(kernel, model.data[0].numpy())
    return None if gram is None else ArrayEvidence(model, gram, coordinates)


def _groups(Y: np.ndarray, noises: int) -> Sequence[tuple[np.ndarray, np.ndarray]]:
    seen = ~np.isnan(Y)
    if noises == 1 and seen.all():
        return [(np.arange(Y.shape[1]), np.arange(len(Y)))]
    return [(np.array([column]), np.flatnonzero(seen[:, column])) for column in range(Y.shape[1])]


def _like(gradient: np.ndarray, value: np.ndarray) -> np.ndarray:
    return gradient if value.shape == gradient.shape else np.full(value.shape, np.sum(gradient))
