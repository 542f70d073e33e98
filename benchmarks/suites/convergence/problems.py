"""Problems with fixed hyperparameters, and their optimum for Gaussian noise."""

from __future__ import annotations

__all__ = ["Problem", "collapsed_elbo", "make_problem"]

import argparse
from typing import NamedTuple

import gpflow
import numpy as np
import tensorflow as tf

from ...harness.data import inducing_points, load


class Problem(NamedTuple):
    """Data, inducing points and fixed hyperparameters."""

    name: str
    X: np.ndarray
    """[N, D]"""
    Y: np.ndarray
    """[N, 1]"""
    beta: np.ndarray
    """[M_beta, D]"""
    gamma: np.ndarray
    """[M_gamma, D]"""
    kernel: gpflow.kernels.Kernel
    likelihood: gpflow.likelihoods.Likelihood

    @property
    def gaussian(self) -> bool:
        """Whether the noise is Gaussian, so that the optimum is known."""
        return isinstance(self.likelihood, gpflow.likelihoods.Gaussian)


def make_problem(kind: str, options: argparse.Namespace) -> Problem:
    """The first rows of a task with k-means beta, gamma drawn from the inputs, and a Matern-5/2
    kernel.

    :param kind: "gaussian", or "bernoulli": labels are Y > 0, and the logistic link makes the
    problem convex."""
    task = getattr(options, kind)
    data = load(task, folder=options.data)
    data = data._replace(
        X_train=data.X_train[: options.num_data], Y_train=data.Y_train[: options.num_data]
    )
    X, Y = data.X_train, data.Y_train
    likelihood = gpflow.likelihoods.Gaussian(0.05)
    if kind == "bernoulli":
        Y, likelihood = (Y > 0).astype(float), gpflow.likelihoods.Bernoulli(invlink=tf.sigmoid)
    gamma = X[np.random.default_rng(options.seed).choice(len(X), options.num_gamma, replace=False)]
    beta = inducing_points(data, options.num_beta, options.seed)
    kernel = gpflow.kernels.Matern52(lengthscales=options.lengthscale)
    return Problem(f"{task}, {kind}", X, Y, beta, gamma, kernel, likelihood)


def collapsed_elbo(problem: Problem) -> float:
    """The best ELBO of the orthogonal basis for Gaussian noise, (D31), in NumPy.

    The jitter is on K_beta, and the cost is N^3. The quadratic term is evaluated at the computed
    a_gamma of (D30), whose error enters the value in second order only."""
    X, y, noise = problem.X, problem.Y[:, 0], float(problem.likelihood.variance.numpy())

    def gram(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        return np.asarray(problem.kernel(first, second))

    K_b = gram(problem.beta, problem.beta) + gpflow.default_jitter() * np.eye(len(problem.beta))
    chol = np.linalg.cholesky(K_b)
    A, G = (
        np.linalg.solve(chol, gram(problem.beta, X)),
        np.linalg.solve(chol, gram(problem.beta, problem.gamma)),
    )
    C_gx, C_g = gram(problem.gamma, X) - G.T @ A, gram(problem.gamma, problem.gamma) - G.T @ G
    W = A.T @ A + noise * np.eye(len(X))
    solved = np.linalg.solve(W, np.column_stack([y, C_gx.T]))
    b, H = C_gx @ solved[:, 0], C_g + C_gx @ solved[:, 1:]
    a = np.linalg.lstsq(H, b, rcond=1e-13)[0]  # (D30)
    fit = y @ solved[:, 0] - (2.0 * a @ b - a @ H @ a)
    unexplained = np.sum(np.asarray(problem.kernel(X, full_cov=False)) - np.sum(A**2, 0)) / noise
    log_det = np.linalg.slogdet(W)[1]
    return float(-0.5 * (len(X) * np.log(2.0 * np.pi) + log_det + fit + unexplained))  # (D31)
