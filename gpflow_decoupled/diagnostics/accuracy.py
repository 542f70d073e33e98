"""A check of expected log densities after a run."""

from __future__ import annotations

__all__ = ["accurate_expectations", "warn_of_quadrature"]

import numpy as np
import tensorflow as tf
from gpflow import likelihoods as gl
from gpflow.base import RegressionData

from ..covariances.latents import mix_outputs
from ..likelihoods.facts import has_steps, is_gaussian, is_scalar, name_of
from ..likelihoods.log_densities import expected_log_densities
from ..likelihoods.row_likelihood import MOST_NODES, nodes_of, with_nodes
from ..models.checks import CheckedPredictions, Moments, Resolution
from ..user_warnings import warn_user


def accurate_expectations(
    likelihood: gl.Likelihood, X: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor, Y: tf.Tensor
) -> np.ndarray | None:
    """Return E log p(y_n | f_n) [N], f_n ~ N(mean_n, variance_n), in nats, at any widths.

    X is [N, D], mean and variance [N, L], Y [N, P].

    :return: exact to 1e-8 where each latent has its labels; elsewhere with twice the nodes; None
        for a likelihood without nodes.
    """
    number = nodes_of(likelihood)
    if number is None:
        return None
    if not is_scalar(likelihood) and number <= MOST_NODES // 2:
        likelihood = with_nodes(likelihood, 2 * number + 1)
    return np.asarray(expected_log_densities(likelihood, X, mean, variance, Y))


# ---


_ROWS = 2048
"""Observations that are checked at most, evenly spaced."""
_PER_OBSERVATION, _IN_ALL, _NEGLIGIBLE = 1e-3, 0.1, 1e-5
"""Nats. A warning is due above the first per observation, or above the second in the whole bound;
below the third per observation it never is."""
_DOUBLINGS = 3
"""How often frequencies are doubled at most to find the number that the warning advises."""
_MORE = (50, 100, 200)
"""Numbers of nodes that the warning may advise."""


def warn_of_quadrature(model: object, elbo: float, data: RegressionData | None = None) -> None:
    """Warn if expected log densities in the bound of a run are not accurate at its q(f).

    :param elbo: the bound that the run reports, in nats.
    :param data: X [N, D] and Y [N, P], or some rows, for a model that does not own them.
    """
    # At most 2048 observations are checked. Skips models without `moments`, likelihoods with more
    # than two latents per observation except `MultiClass`, estimates from draws, and non-Gaussian
    # priors of weights.
    if not isinstance(model, CheckedPredictions) or not np.isfinite(elbo):
        return
    observations = getattr(model, "data", data)
    if observations is None or model.resolution is None:
        return
    message = _complaint(model, elbo, observations, model.resolution)
    if message is not None:
        warn_user(message)


def _complaint(
    model: CheckedPredictions, elbo: float, observations: RegressionData, now: Resolution
) -> str | None:
    rows = slice(None, None, -(-int(observations[0].shape[0]) // _ROWS))
    sample = (observations[0][rows], observations[1][rows])
    # a likelihood may have nodes and not use them, and then moments need not be computed
    if now.name == "nodes" and not _uses_nodes(model, sample):
        return None
    number = int(getattr(model, "num_data", None) or observations[0].shape[0])
    at = model.moments(sample)
    usual = model.expected_log_densities(at, sample).numpy()
    accurate, doublings = None, 0
    if at.projections is None:
        accurate = accurate_expectations(model.likelihood, *_where(at, sample))
    if accurate is None:
        accurate, doublings = _by_doubling(model, at, sample, usual, number)
    error = np.where(np.isfinite(usual - accurate), usual - accurate, 0.0)
    gap = number * float(np.mean(error, dtype=float))
    if abs(gap) <= _allowed(number):
        return None
    found = (
        f"The bound of {elbo:.6g} nats is not accurate: with the same q(f) it is {elbo - gap:.6g}"
        " nats "
    )
    worst = int(np.argmax(np.abs(error)))
    largest = f"by up to {abs(error[worst]):.2g} nats per observation"
    if doublings:
        finer = now.number * 2**doublings
        return (
            f"{found}with {finer} {now.name} instead of {now.number}, {largest}. Build the model"
            f" with {now.name}={finer} and train again."
        )
    y, m, s = (part.numpy()[worst, 0] for part in (sample[1], at.mean, tf.sqrt(at.variance)))
    return (
        f"{found}where the expectations of {name_of(model.likelihood)} are integrated by a"
        f" fine rule. Its {now.number} Gauss-Hermite nodes are too few for a q(f) that is wide"
        f" beside the likelihood, {largest} (at Y = {y:.4g}, where f has mean {m:.4g} and standard"
        f" deviation {s:.4g}). " + _advice(model.likelihood, _where(at, sample), accurate, number)
    )


def _uses_nodes(model: CheckedPredictions, sample: RegressionData) -> bool:
    if is_gaussian(model.likelihood):
        return False
    ones = tf.ones([tf.shape(sample[0])[0], model.num_latent_gps], sample[0].dtype)
    trial = Moments(*mix_outputs(model.kernel, 0.3 * ones, ones))
    coarse, fine = (
        model.expected_log_densities(trial, sample, doublings=count).numpy() for count in (0, 1)
    )
    return bool(np.any(coarse != fine))


def _by_doubling(
    model: CheckedPredictions,
    at: Moments,
    sample: RegressionData,
    usual: np.ndarray,
    number: int,
) -> tuple[np.ndarray, int]:
    last, allowed = usual, _allowed(number)
    for doublings in range(1, _DOUBLINGS + 1):
        fine = model.expected_log_densities(at, sample, doublings=doublings).numpy()
        change, last = number * abs(float(np.mean(last - fine, dtype=float))), fine
        # the first change decides whether there is a warning, later ones how exact its number is
        if change <= (allowed if doublings == 1 else 0.1 * allowed):
            break
    return last, doublings


def _where(
    at: Moments, sample: RegressionData
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    return sample[0], at.mean, at.variance, sample[1]


def _advice(
    likelihood: gl.Likelihood, where: tuple[tf.Tensor, ...], accurate: np.ndarray, number: int
) -> str:
    for nodes in _MORE:
        error = with_nodes(likelihood, nodes).variational_expectations(*where).numpy() - accurate
        if number * abs(float(np.mean(error))) <= 0.1 * _allowed(number):
            if has_steps(likelihood):
                return f"Set num_gauss_hermite_points = {nodes} of the likelihood and train again."
            rule = (
                f"gpflow.quadrature.NDiagGHQuadrature({getattr(likelihood.quadrature, 'dim', 1)},"
                f" {nodes})"
            )
            return f"Give the likelihood more nodes, quadrature={rule}, and train again."
    return (
        f"{_MORE[-1]} nodes would not do either: use a kernel with a smaller variance or a wider"
        " likelihood."
    )


def _allowed(number: int) -> float:
    return max(min(_PER_OBSERVATION * number, _IN_ALL), _NEGLIGIBLE * number)
