"""Choice of inducing points."""

# Greedy conditional variance (Burt, Rasmussen & van der Wilk, JMLR 2020) is a pivoted Cholesky.

from __future__ import annotations

__all__ = ["METHODS", "select"]

import functools
import operator
import warnings

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import TensorType
from gpflow.kernels import Kernel, MultioutputKernel
from numpy.typing import ArrayLike
from scipy.cluster.vq import kmeans2

from ..compilation import Compiled
from ..covariances.stationary import covariance
from ..errors import DataError, check_option
from ..inputs import is_whole
from ..linalg.cholesky import add_jitter, cholesky, diagnose
from ..linalg.conjugate_gradients import Entries, pivoted_cholesky
from ..linalg.triangular import solve
from ..summaries import short_repr
from ..user_warnings import warn_user
from .variables import check_finite, check_inducing, first_equal_row, read, rows_in

METHODS = ("greedy_variance", "kmeans", "random")

_MAX_ROWS = 20_000
"""Default number of candidate rows; more change the choice little, at proportional cost."""
_MAX_BYTES = 4 * 2**30
"""Memory limit for the N M numbers that two of the methods hold."""
_ULPS = 100.0
"""Variances below this many machine epsilons of the largest prior variance are zero."""


def select(
    X: ArrayLike | TensorType,
    M: int,
    kernel: Kernel | None = None,
    *,
    method: str = "greedy_variance",
    given: ArrayLike | TensorType | None = None,
    seed: int | np.random.Generator = 0,
    max_rows: int | None = None,
) -> np.ndarray:
    """Choose M distinct inducing points [M, D] for inputs X [N, D].

    `method` is one of

    * "greedy_variance": rows of X, each with the largest prior variance given the rows before. Time
      N M^2, memory N M.
    * "kmeans": centres of clusters in Euclidean distance; scale the columns of X alike first. Time
      10 N M D, memory N M.
    * "random": rows of X without replacement. Time N log N.

    Beyond the rank of the kernel matrix random rows follow, with a warning.

    :param X: the finite inputs [N, D].
    :param M: the number of points.
    :param kernel: for "greedy_variance", of one latent function, at its present hyperparameters.
    :param given: existing points [M_given, D], say beta for gamma: not chosen again;
        "greedy_variance" conditions on them.
    :param seed: the same seed gives the same points.
    :param max_rows: size of a random subset to choose from, with a warning; by default max(20000,
        2 M).
    :return: the points, in the dtype of X (GPflow's default float for integers).

    Example::

        beta = inducing.select(X, 100, kernel)
        gamma = inducing.select(X, 1000, kernel, given=beta)
    """
    check_option("method", method, METHODS)
    X = _inputs(X)
    M = _count("M", M)
    if given is not None:
        check_inducing(given, "given", X.shape[1])
        given = _values(given, "given").astype(X.dtype)
    if method == "greedy_variance":
        _check_kernel(kernel)
    limit = max(_MAX_ROWS, 2 * M) if max_rows is None else _count("max_rows", max_rows)
    _check_size(X, M, method, limit)
    rng = np.random.default_rng(seed)
    pool = _pool(X, M, method, given, limit, rng)
    if method == "random":
        return pool[rng.permutation(len(pool))[:M]]
    if method == "kmeans":
        return _kmeans(pool, M, given, rng)
    return _greedy(pool, M, kernel, given, rng)


def _values(Z: ArrayLike | TensorType, name: str) -> np.ndarray:
    values = read(Z, name)[0]
    if values is None:
        raise DataError(f"{name} has no values inside a tf.function: call select outside of it.")
    return values


def _inputs(X: ArrayLike | TensorType) -> np.ndarray:
    values = _values(X, "X")
    if values.ndim != 2 or values.shape[1] == 0:
        fix = "; use X[:, None] if there is one input dimension" if values.ndim == 1 else ""
        raise DataError(f"X has shape {list(values.shape)}, but must be [N, D]{fix}.")
    check_finite(values, "X")
    return (
        values
        if values.dtype in (np.float32, np.float64)
        else values.astype(gpflow.default_float())
    )


def _count(name: str, value: object) -> int:
    if not is_whole(value, 1):
        raise DataError(f"{name}={short_repr(value)} must be an integer, at least 1.")
    return operator.index(value)  # type: ignore[arg-type]


def _check_kernel(kernel: object) -> None:
    if kernel is None:
        raise DataError(
            "method='greedy_variance' needs a kernel: pass kernel=..., or use method='kmeans'."
        )
    if isinstance(kernel, MultioutputKernel):
        raise DataError(
            f"kernel {type(kernel).__name__} has several outputs: pass one of its kernels, "
            "for instance kernel.latent_kernels[0]."
        )
    if not isinstance(kernel, Kernel):
        raise DataError(f"kernel is a {type(kernel).__name__}: pass a gpflow.kernels.Kernel.")


def _check_size(X: np.ndarray, M: int, method: str, limit: int) -> None:
    if M > len(X):
        raise DataError(
            f"M={M} points cannot be chosen from the {len(X)} rows of X: use M <= {len(X)}."
        )
    if M > limit:
        raise DataError(f"max_rows={limit} is less than M={M}: use max_rows >= M.")
    need = min(len(X), limit) * M * X.itemsize
    if method != "random" and need > _MAX_BYTES:
        raise DataError(
            f"method={method!r} with M={M} and {min(len(X), limit)} rows needs {need / 2**30:.0f}"
            f" GiB, more than {_MAX_BYTES / 2**30:.0f}: use method='random', a smaller M, or a"
            " smaller max_rows."
        )


def _pool(
    X: np.ndarray,
    M: int,
    method: str,
    given: np.ndarray | None,
    limit: int,
    rng: np.random.Generator,
) -> np.ndarray:
    N = len(X)
    if N <= limit:
        pool = _distinct(X, given)
    else:
        if method != "random":
            warn_user(
                f"X has N={N} rows; method={method!r} looks at a random max_rows={limit} of them."
                f" To look at all, pass max_rows={N}; time and memory grow in proportion.",
            )
        pool = _distinct(X[np.sort(rng.choice(N, limit, replace=False))], given)
        if len(pool) < M:  # X repeats many rows: remove the repeated ones before the random choice
            pool = _distinct(X, given)
            pool = pool[np.sort(rng.permutation(len(pool))[:limit])]
    if len(pool) < M:
        besides = "" if given is None else " and not in `given`"
        raise DataError(
            f"M={M} points cannot be chosen: only {len(pool)} of the {N} rows of X are"
            f" distinct{besides}. Use M <= {len(pool)}."
        )
    return pool


def _distinct(X: np.ndarray, given: np.ndarray | None) -> np.ndarray:
    X = X[first_equal_row(X) == np.arange(len(X))]
    return X if given is None else X[~rows_in(X, given)]


def _kmeans(
    pool: np.ndarray, M: int, given: np.ndarray | None, rng: np.random.Generator
) -> np.ndarray:
    # from distinct rows, so that a cluster is rarely empty
    start = pool[rng.permutation(len(pool))[:M]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of empty clusters, which are replaced below
        centres, labels = kmeans2(pool, start, minit="matrix")
    keep = np.bincount(labels, minlength=M) > 0
    keep &= first_equal_row(centres) == np.arange(M)
    if given is not None:
        keep &= ~rows_in(centres, given)
    return _complete(centres[keep], pool, M, rng)


def _complete(chosen: np.ndarray, pool: np.ndarray, M: int, rng: np.random.Generator) -> np.ndarray:
    spare = pool[~rows_in(pool, chosen)]
    return np.concatenate([chosen, spare[rng.permutation(len(spare))[: M - len(chosen)]]])


def _greedy(
    pool: np.ndarray, M: int, kernel: Kernel, given: np.ndarray | None, rng: np.random.Generator
) -> np.ndarray:
    dtype = kernel.parameters[0].dtype if kernel.parameters else gpflow.default_float()
    points = tf.constant(pool, dtype)
    diagonal, entries = _kernel_entries(kernel, points)
    # relative to the prior variance: the residual given `given` may consist of round-off only
    floor = _ULPS * np.finfo(diagonal.dtype).eps * np.max(diagonal)
    if given is not None:
        diagonal, entries = _residual_entries(
            kernel, points, tf.constant(given, dtype), diagonal, entries
        )
    pivots = pivoted_cholesky(diagonal, entries, M, floor).pivots
    if len(pivots) < M:
        warn_user(
            f"Only {len(pivots)} of M={M} points have any variance left under"
            f" {type(kernel).__name__}: the other {M - len(pivots)} are random rows of X. Use a"
            " smaller M, or shorter lengthscales.",
        )
    return _complete(pool[pivots], pool, M, rng)


def _kernel_entries(kernel: Kernel, points: tf.Tensor) -> tuple[np.ndarray, Entries]:
    spec = tf.TensorSpec([None, points.shape[1]], points.dtype)
    compiled = Compiled(functools.partial(covariance, kernel), input_signature=[spec, spec])
    values = points.numpy()

    def entries(rows: np.ndarray | slice, columns: np.ndarray) -> np.ndarray:
        left = points if isinstance(rows, slice) else tf.constant(values[rows])
        return compiled(left, tf.constant(values[columns])).numpy()

    try:  # one entry, so that a kernel that does not fit X fails here
        entries(np.arange(1), np.arange(1))
    except Exception as error:
        raise DataError(
            f"kernel {type(kernel).__name__} cannot be evaluated on X with {points.shape[1]}"
            " columns: check its active_dims and the number of its lengthscales"
            f" ({type(error).__name__})."
        ) from error
    diagonal = kernel(points, full_cov=False).numpy()
    if not (np.all(np.isfinite(diagonal)) and np.all(diagonal >= 0)):
        raise DataError(
            f"kernel {type(kernel).__name__} gives variances that are NaN, infinite or negative on"
            " X: check its parameters."
        )
    return diagonal, entries


def _residual_entries(
    kernel: Kernel, points: tf.Tensor, given: tf.Tensor, diagonal: np.ndarray, entries: Entries
) -> tuple[np.ndarray, Entries]:
    K_b = add_jitter(covariance(kernel, given))
    chol, ok = cholesky(K_b)
    if not bool(ok):
        raise diagnose("k(given, given)", K_b.numpy())
    A = solve(chol, covariance(kernel, given, points)).numpy().T

    def residual_entries(rows: np.ndarray | slice, columns: np.ndarray) -> np.ndarray:
        return entries(rows, columns) - A[rows] @ A[columns].T

    return np.maximum(diagonal - np.einsum("nm,nm->n", A, A), 0), residual_entries
