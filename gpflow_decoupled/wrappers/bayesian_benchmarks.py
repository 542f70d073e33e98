"""Models for the package bayesian_benchmarks: `fit`, `predict`, `sample`.

Its harness standardises the data; these models do not.
"""

from __future__ import annotations

__all__ = ["ClassificationModel", "RegressionModel"]

import gpflow
import numpy as np
from gpflow.likelihoods import Likelihood

from ..building import NUM_INDUCING, NUM_MEAN_POINTS, class_likelihood, num_latents_of, sparse_model
from ..errors import DataError
from ..models import BasisGP
from ..training import fit
from .classes import class_probabilities

_TEST_STEPS = 10


class _Model:
    """Settings, and the model after `fit`."""

    def __init__(
        self,
        is_test: bool = False,
        seed: int = 0,
        *,
        num_inducing: int = NUM_INDUCING,
        num_mean_points: int = NUM_MEAN_POINTS,
        steps: int = 2000,
    ) -> None:
        self.seed = seed
        self.points = (20, 20) if is_test else (num_inducing, num_mean_points)
        self.steps = _TEST_STEPS if is_test else steps
        self.model: BasisGP | None = None

    def _train(
        self, X: np.ndarray, Y: np.ndarray, likelihood: Likelihood, num_latent_gps: int
    ) -> None:
        num_inducing, num_mean_points = self.points
        model = sparse_model(
            X,
            likelihood,
            num_latent_gps=num_latent_gps,
            num_inducing=num_inducing,
            num_mean_points=num_mean_points,
            seed=self.seed,
        )
        fit(model, (X, Y), steps=self.steps, seed=self.seed, progress=False)
        self.model = model

    def _predict_y(self, Xs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if self.model is None:
            raise DataError("There is no model yet: call fit(X, Y) before predict or sample.")
        mean, variance = self.model.predict_y(np.asarray(Xs, gpflow.default_float()))
        return mean.numpy(), variance.numpy()


class RegressionModel(_Model):
    """An `ODVGP` with Gaussian noise for standardised data.

    `fit` starts from scratch at every call. Cost: as `gpflow_decoupled.fit` of an `ODVGP`.

    :param is_test: ten steps on at most 20 + 20 points, to see that a harness runs.
    :param seed: of points and minibatches.
    :param num_inducing: M_beta, points of mean and covariance.
    :param num_mean_points: M_gamma, further points of the mean.
    :param steps: of training.

    Example::

        model = RegressionModel(steps=500)
        model.fit(X, Y)
        mean, variance = model.predict(X_new)
    """

    def fit(self, X: np.ndarray, Y: np.ndarray) -> None:
        """Learn from X [N, D] and Y [N, P].

        :raises DataError: for unusable data.
        """
        X, Y = (np.asarray(array, gpflow.default_float()) for array in (X, Y))
        self._train(X, Y, gpflow.likelihoods.Gaussian(0.1), Y.shape[1])

    def predict(self, Xs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of Y at Xs [N, D], each [N, P]."""
        return self._predict_y(Xs)

    def sample(self, Xs: np.ndarray, num_samples: int) -> np.ndarray:
        """Draw Y [num_samples, N, P] from its marginals at Xs [N, D]; the same at every call."""
        mean, variance = self.predict(Xs)
        noise = np.random.default_rng(self.seed).standard_normal((num_samples, *mean.shape))
        return mean + np.sqrt(variance) * noise


class ClassificationModel(_Model):
    """An `ODVGP` for K classes: a logistic link for two, `CategoricalLogit` for more.

    :param K: the number of classes, labelled 0, ..., K - 1; other arguments as `RegressionModel`.

    Example::

        model = ClassificationModel(3, steps=500)
        model.fit(X, labels)
        probabilities = model.predict(X_new)
    """

    def __init__(self, K: int, is_test: bool = False, seed: int = 0, **settings: int) -> None:
        if K < 2:
            raise DataError(f"K={K} classes; there must be at least two.")
        super().__init__(is_test, seed, **settings)
        self.K = K

    def fit(self, X: np.ndarray, Y: np.ndarray) -> None:
        """Learn from X [N, D] and labels Y [N, 1].

        :raises DataError: for unusable data.
        """
        X, Y = (np.asarray(array, gpflow.default_float()) for array in (X, Y))
        self._train(X, Y, class_likelihood(self.K), num_latents_of(self.K))

    def predict(self, Xs: np.ndarray) -> np.ndarray:
        """Class probabilities [N, K] at Xs [N, D]."""
        return class_probabilities(self._predict_y(Xs)[0])

    def sample(self, Xs: np.ndarray, num_samples: int) -> np.ndarray:
        """Draw labels [num_samples, N, 1] at Xs [N, D]; the same at every call."""
        cumulative = np.cumsum(self.predict(Xs), axis=1)
        uniform = np.random.default_rng(self.seed).uniform(size=(num_samples, len(cumulative), 1))
        return np.sum(uniform > cumulative[:, :-1], axis=2, keepdims=True)


def __dir__() -> list[str]:
    return sorted(__all__)
