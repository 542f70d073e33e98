"""Conjugate-computation VI of tied sites by passes over all data, in bounded memory.

With q fixed the targets of all observations are summed, block by block, and q moves once a pass:

    theta* = A (g - 2 h A^T m~),   P* = I - 2 A diag(h) A^T,   (theta, P) <- (1 - rho) (theta, P) + rho (theta*, P*)   (C25)

which is the natural-gradient step (D46) on all data, and (C29) where q(u) is that of `inducing.Weights`. The same pass
gives the bound of the q that it started from, so that a step which lowered the bound is known one pass later.
"""

from __future__ import annotations

__all__ = ["sweep"]

import math
import time
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tqdm.auto import tqdm

from ...compilation import Compiled
from ...errors import DataError, NumericalError, check_option
from ...linalg.cholesky import diagnose
from ...linalg.gaussians import apply_per_latent, precision_from_root
from ...linalg.triangular import symmetric_product
from ...models import BasisGP
from ..natural_gradient.evaluation import as_basis_model
from ..natural_gradient.natural import Natural
from ..natural_gradient.optimizer import MAX_HALVINGS, POLICIES
from .blocks import Blocks
from .local_expectations import by_quadrature
from .result import ConjugateResult, Record

ROUND_OFF = 1e3
"""Loss of the bound, in units in its last place, that does not count as one."""


def sweep(
    model: Any,
    data: Any,
    *,
    rho: float = 1.0,
    block: int = 8192,
    passes: int = 100,
    tolerance: float = 1e-6,
    negative_precision: str = "damp",
    progress: bool = False,
    compile: bool = True,
) -> ConjugateResult:
    """Bring q(u) to its fixed point at fixed hyperparameters, with one block of data in memory at a time.

    :param model: a `SparseCVIGP`, another model with a `CoupledBasis` or an `OrthogonalBasis` (whose mean points stay), or
        a `gpflow.models.SVGP`.
    :param data: (X [N, D], Y [N, P]), which may be `numpy.memmap`; a `tf.data.Dataset` of batches of such pairs; or a
        function that returns an iterator of such batches, called once a pass.
    :param rho: step size in (0, 1]; a step after which the bound is lower is halved, and later steps grow back.
    :param block: rows of a block of arrays. :param passes: at most so many passes over the data.
    :param tolerance: stop when a full step promises less than so many nats, which is, to second order, how far the bound
        is from its optimum.
    :param negative_precision: where h > 0: "damp" halves the step until the covariance is positive definite, and then once
        more; "clip" replaces h by min(h, 0); "raise" refuses the step.

    A pass takes one step, and the next one tells its bound: `history["elbo"]` is that after each step, NaN for a step
    taken by the last of `passes`; "change" is the squared change of the whitened natural parameters over the step size.
    Raises `DataError` and `UnknownOptionError` for unusable arguments and data, `TypeError` for models without tied sites,
    `NumericalError` where the bound is not finite from the start or a step is refused; q is the last one whose bound is
    known then. Cost of a pass: 3 M^2 N multiply-adds and M^3 a latent.
    """
    check_option("negative_precision", negative_precision, POLICIES)
    _check_settings(rho, passes, tolerance)
    view = as_basis_model(model)
    if not view.basis.ties_sites:
        raise TypeError(f"sweep moves tied sites, which {type(view.basis).__name__} has not; train the model with fit.")
    reader = _Reader(view, Blocks(view, data, block), negative_precision, compile)
    record, began = Record(), time.perf_counter()
    bar = tqdm(total=passes, disable=not progress, desc="sweep")
    now = reader.read(None, bar)
    if not now.ok:
        raise _failure("The bound is not finite")
    view.num_data = model.num_data = reader.blocks.num_data
    reason = _climb(reader, now, record, began, rho, passes, tolerance, bar)
    bar.close()
    return record.result(time.perf_counter() - began, reason)


class _Reading(NamedTuple):
    """What a pass over the data says of a q."""

    natural: Natural
    theta: tf.Tensor
    """Target [M, L]."""
    precision: tf.Tensor
    """Target [L, M, M]."""
    elbo: float
    clipped: int

    @property
    def ok(self) -> bool:
        return bool(np.isfinite(self.elbo))

    def distance(self) -> tuple[float, float]:
        """Squared distance from q to its target in natural parameters, and what a full step promises, in nats.

        The promise is KL[q || target] to second order: 1/2 |R^T (theta* - P* m)|^2 + 1/4 |R^T (P* - P) R|^2, S = R R^T.
        """
        mean, root = self.natural.gaussian()
        theta, precision = self.theta - self.natural.theta, self.precision - self.natural.precision
        change = tf.reduce_sum(tf.square(theta)) + tf.reduce_sum(tf.square(precision))
        slope = apply_per_latent(root, theta - apply_per_latent(precision, mean), adjoint=True)
        bend = tf.matmul(root, tf.matmul(precision, root), transpose_a=True)
        return float(change), float(0.5 * tf.reduce_sum(tf.square(slope)) + 0.25 * tf.reduce_sum(tf.square(bend)))


class _Sums(NamedTuple):
    """Sums over the observations seen so far in a pass."""

    expected: tf.Tensor
    theta: tf.Tensor
    sites: tf.Tensor
    clipped: tf.Tensor


class _Reader:
    """Reads data for the q that a model holds, and moves it."""

    def __init__(self, model: BasisGP, blocks: Blocks, negative_precision: str, compile: bool) -> None:
        self.model, self.blocks, self.negative_precision = model, blocks, negative_precision
        self._rows = model.basis.draw_rows()  # one draw for all passes: bounds must be comparable
        self._add: Any = Compiled(self._sums, reduce_retracing=True) if compile else self._sums
        state = model.basis.factor(model.kernel, with_kl=False)
        if not state.ok:
            name, matrix = next(iter(model.basis.matrices(model.kernel).items()))
            raise diagnose(name, matrix.numpy())

    def read(self, natural: Natural | None, bar: Any) -> _Reading:
        """One pass at the model's q; `natural` is that q, where it is known."""
        basis = self.model.basis
        state = basis.factor(self.model.kernel, rows=self._rows)
        (part,) = basis.gaussians(state)
        if natural is None:
            precision = precision_from_root(part.root)
            natural = Natural.of(apply_per_latent(precision, part.mean), precision)
        zero = tf.zeros([], part.root.dtype)
        sums = _Sums(zero, tf.zeros_like(part.mean), tf.zeros_like(part.root), tf.constant(0))
        for X, Y in self.blocks:
            sums = self._add(state, sums, X, Y)
        elbo = float(sums.expected - basis.prior_kl(state))
        bar.update()
        bar.set_postfix(ELBO=f"{elbo:.8g}")
        target = tf.linalg.set_diag(sums.sites, tf.linalg.diag_part(sums.sites) + 1.0)  # (C25)
        return _Reading(natural, sums.theta, target, elbo, int(sums.clipped))

    def _sums(self, state: Any, sums: _Sums, X: tf.Tensor, Y: tf.Tensor) -> _Sums:
        """Add one block: E, A (g - 2 h A^T m~) and -2 A diag(h) A^T."""
        basis, kernel = self.model.basis, self.model.kernel
        features = basis.features(state, kernel, X)
        found = by_quadrature(self.model, features.mean, basis.variance(features, kernel, X), (X, Y))
        h, clipped = found.h, sums.clipped
        if self.negative_precision == "clip":
            h, clipped = tf.minimum(h, 0.0), clipped + tf.math.count_nonzero(h > 0, dtype=tf.int32)
        A, own_mean = features.minus[0], basis.gaussians(state)[0].mean
        own_mean = apply_per_latent(A, own_mean, adjoint=True)
        return _Sums(
            sums.expected + tf.reduce_sum(found.value),
            sums.theta + apply_per_latent(A, found.g - 2.0 * h * own_mean),  # (C25)
            sums.sites + symmetric_product(A, -2.0 * tf.transpose(h)),  # (C25)
            clipped,
        )

    def assign(self, natural: Natural) -> None:
        """Write q to the model."""
        basis = self.model.basis
        basis.assign_gaussians(basis.factor(self.model.kernel, with_kl=False), (natural.gaussian(),))

    def step(self, now: _Reading, rho: float) -> tuple[Natural, float, bool]:
        """The q after a step of size rho, the size it had to have to be one, and whether that is smaller."""
        old_theta: Any = now.natural.theta

        def at(step: float) -> Natural:
            theta = (1.0 - step) * old_theta + step * now.theta  # (C25)
            return Natural.of(theta, (1.0 - step) * now.natural.precision + step * now.precision)  # (C25)

        new, size = at(rho), rho
        if new.ok:
            return new, size, False
        if self.negative_precision == "raise":
            raise _failure("The precision of q(u) after the step is not positive definite")
        while not new.ok and size > rho * 0.5**MAX_HALVINGS:
            size *= 0.5
            new = at(size)
        if not new.ok:
            raise _failure("No step, however short, leaves the precision of q(u) positive definite")
        return at(0.5 * size), 0.5 * size, True  # away from the edge, where the covariance explodes


def _climb(
    reader: _Reader, now: _Reading, record: Record, began: float, rho: float, passes: int, tolerance: float, bar: Any
) -> str:
    """Steps from the first reading on; returns why they end."""
    share = 1.0
    for done in range(1, passes + 1):
        change, promise = now.distance()
        if promise <= tolerance:
            return "converged"
        new, step, shortened = reader.step(now, share * rho)
        record.shortened += int(shortened)
        reader.assign(new)
        if done == passes:
            record.append(time.perf_counter() - began, step, change, float("nan"), now.clipped)
            break
        try:
            then = reader.read(new, bar)
        except BaseException:  # an interrupt, or data that turned bad
            reader.assign(now.natural)
            raise
        slack = ROUND_OFF * np.finfo(new.precision.dtype.as_numpy_dtype).eps * (1.0 + abs(now.elbo))
        if then.ok and then.elbo >= now.elbo - slack:
            record.append(time.perf_counter() - began, step, change, then.elbo, now.clipped)
            now, share = then, min(1.0, 2.0 * share)
            continue
        reader.assign(now.natural)
        share, record.shortened = 0.5 * share, record.shortened + 1
        if done + 1 == passes:
            break  # a direction that has just failed is not followed unchecked
        if share < 0.5**MAX_HALVINGS:
            return "the bound does not rise any more"
    return "passes done"


def _failure(what: str) -> NumericalError:
    return NumericalError(
        f'{what}. Use a smaller rho, negative_precision="clip" for likelihoods that are not log-concave, or start from a '
        "narrower q (a smaller q_sqrt); q is the last one whose bound is known.",
        matrix="precision of q(u)",
    )


def _check_settings(rho: Any, passes: Any, tolerance: Any) -> None:
    for name, value, high in (("rho", rho, 1.0), ("tolerance", tolerance, math.inf)):
        if not isinstance(value, Real) or isinstance(value, bool) or not 0.0 < float(value) <= high:
            raise DataError(f"{name}={value!r} must be a number above 0{'' if high > 1 else ' and at most 1'}.")
    if not isinstance(passes, Integral) or isinstance(passes, bool) or passes < 1:
        raise DataError(f"passes={passes!r} must be a whole number of at least 1.")
