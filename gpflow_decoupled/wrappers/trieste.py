"""Models for trieste's Bayesian optimisation; needs `.[trieste]`."""

from __future__ import annotations

__all__ = ["DecoupledVariational"]

import warnings

import numpy as np
import tensorflow as tf
from gpflow.base import TensorType

try:
    from trieste.data import Dataset
    from trieste.models.gpflow import GPflowPredictor
    from trieste.models.gpflow.interface import EncodedSupportsCovarianceBetweenPoints
    from trieste.models.interfaces import (
        HasTrajectorySampler,
        TrajectoryFunctionClass,
        TrajectorySampler,
    )
    from trieste.models.optimizer import Optimizer
    from trieste.space import EncoderFunction
except ImportError as error:
    raise ImportError(
        "DecoupledVariational needs trieste, which is not installed, in an environment of its own"
        ' with TensorFlow below 2.19: pip install "gpflow_decoupled[trieste]".'
    ) from error

from ..errors import DataError
from ..likelihoods import observation_moments
from ..models import BasisGP
from ..models.checks import check_values
from ..pathwise import PathwiseSamples, pathwise_samples
from ..training import FitResult, fit

DEFAULT_SETTINGS = {"steps": 300, "progress": False}


class DecoupledVariational(
    GPflowPredictor, EncodedSupportsCovarianceBetweenPoints, HasTrajectorySampler
):
    """A model on inducing points with trieste's interface, trained by `fit`, with a cache.

    `update` checks the data; `optimize` learns from them, from where the last training ended. A
    prediction costs N M^2, and `optimize` as much as `fit`.

    :param model: an `ODVGP`, `HDVGP`, `SOLVEGP`, `DVGP` or `BasisGP`, with points in the encoded
        search space, say `search_space.sample_sobol(M)`.
    :param num_frequencies: of the prior in trajectories, see `pathwise_samples`.
    :param seed: of trajectories.
    :param encoder: trieste's encoder of query points.
    :param settings: further arguments of `fit`; default 300 steps without progress.
    :raises DataError: for models without inducing points.

    Example::

        wrapped = DecoupledVariational(model, steps=200)
        BayesianOptimizer(observer, space).optimize(10, initial_data, wrapped)
    """

    def __init__(
        self,
        model: BasisGP,
        *,
        num_frequencies: int = 1000,
        seed: int = 0,
        encoder: EncoderFunction | None = None,
        **settings: object,
    ) -> None:
        if not isinstance(model, BasisGP):
            raise DataError(
                f"{type(model).__name__} has no inducing points: pass an ODVGP, HDVGP, SOLVEGP,"
                " DVGP or BasisGP."
            )
        super().__init__(Optimizer(fit, {**DEFAULT_SETTINGS, **settings}), encoder)
        self._model, self.num_frequencies, self.rng = (
            model,
            num_frequencies,
            np.random.default_rng(seed),
        )
        self.create_posterior_cache()

    @property
    def model(self) -> BasisGP:
        """The wrapped model."""
        return self._model

    def predict_y_encoded(self, query_points: TensorType) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and variance [..., P] of observations at [..., D]."""
        mean, variance = self.predict_encoded(query_points)
        return observation_moments(self.model.likelihood, query_points, mean, variance)

    def covariance_between_points_encoded(
        self, query_points_1: TensorType, query_points_2: TensorType
    ) -> tf.Tensor:
        """Posterior covariances [..., P, N, M] of points [..., N, D] and [M, D], from all N + M."""
        lead = tf.shape(query_points_1)[:-2]
        second = tf.broadcast_to(
            query_points_2, tf.concat([lead, tf.shape(query_points_2)], axis=0)
        )
        count = tf.shape(query_points_1)[-2]
        covariance = self.predict_joint_encoded(tf.concat([query_points_1, second], axis=-2))[1]
        return covariance[..., :count, count:]

    def update_encoded(self, dataset: Dataset) -> None:
        """Check and count the data; `optimize` trains q(f)."""
        X, Y = (tensor.numpy() for tensor in self.model.as_tensors(dataset.astuple()))
        check_values(X, Y, self.model.likelihood)
        self.model.num_data = len(X)

    def optimize_encoded(self, dataset: Dataset) -> FitResult:
        """Train on all data and update the cached posterior; raises as `fit`."""
        self.update_encoded(dataset)
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", "beta has .* points and the data"
            )  # every search begins with few data
            result = fit(self.model, dataset.astuple(), **self.optimizer.minimize_args)
        self.update_posterior_cache()
        return result

    def trajectory_sampler(self) -> TrajectorySampler:
        """Draw from q(f) as functions, for Thompson sampling."""
        return PathwiseTrajectorySampler(self)


class PathwiseTrajectorySampler(TrajectorySampler):
    """Trajectories of a `DecoupledVariational`: `pathwise_samples` at their first call."""

    def get_trajectory(self) -> PathwiseTrajectory:
        """A batch of functions, as many as the second axis of its first call has points."""
        return PathwiseTrajectory(self._model)


class PathwiseTrajectory(TrajectoryFunctionClass):
    """B draws from q(f), each at its points: [N, B, D] to [N, B, P]."""

    def __init__(self, model: DecoupledVariational) -> None:
        self._model = model
        self._draws: PathwiseSamples | None = None

    @tf.autograph.experimental.do_not_convert
    def __call__(self, x: TensorType) -> tf.Tensor:
        """Evaluate; cost as `PathwiseSamples`, and `basis.factor` at the first call."""
        x = self._model.encode(tf.convert_to_tensor(x))
        if self._draws is None:
            with tf.init_scope():  # drawn once, even if trieste is just compiling
                wrapped = self._model
                self._draws = pathwise_samples(
                    wrapped.model,
                    x.shape[1],
                    num_frequencies=wrapped.num_frequencies,
                    seed=wrapped.rng,
                )
        return tf.transpose(self._draws(tf.transpose(x, [1, 0, 2])), [1, 0, 2])


def __dir__() -> list[str]:
    return sorted(__all__)
