"""One pass over all data at a fixed q(u)."""

from __future__ import annotations

__all__ = ["PassReader", "Reading", "step_failure"]

from typing import NamedTuple

import numpy as np
import tensorflow as tf
from tqdm.auto import tqdm

from ...bases import GaussianPart
from ...bases.base import State
from ...errors import NumericalError
from ...linalg.cholesky import diagnose
from ...linalg.gaussians import apply_per_latent, precision_from_root
from ...linalg.triangular import symmetric_product
from ...models import BasisGP
from ...replicas import RowSums
from ..natural_gradient.natural_parameters import Natural, natural_step
from ..steps import MAX_HALVINGS, clip_curvature
from .blocks import Blocks
from .local_expectations import by_quadrature


class Reading(NamedTuple):
    """A pass at some q(u): its bound and targets, and the step that led there."""

    natural: Natural
    """The q(u) of the pass."""
    theta: tf.Tensor
    """Target of theta [M, L]."""
    precision: tf.Tensor
    """Target of the precision [L, M, M]."""
    elbo: float
    """The bound in nats."""
    clipped: int
    """Observations with a clipped negative precision."""
    step_size: float
    """The step size that led here; NaN at the start."""

    @property
    def ok(self) -> bool:
        """True if the bound is finite."""
        return bool(np.isfinite(self.elbo))

    def distance(self) -> float:
        """Squared distance from q(u) to its target, in natural parameters."""
        theta, precision = self.theta - self.natural.theta, self.precision - self.natural.precision
        return float(tf.reduce_sum(tf.square(theta)) + tf.reduce_sum(tf.square(precision)))

    def promise(self) -> float:
        """Gain of a full step in nats: KL[q || target] to second order."""
        # With S = R R^T and targets starred: 1/2 |R^T (theta* - P* m)|^2 + 1/4 |R^T (P* - P) R|^2.
        mean, root = self.natural.gaussian()
        theta, precision = self.theta - self.natural.theta, self.precision - self.natural.precision
        slope = apply_per_latent(root, theta - apply_per_latent(precision, mean), adjoint=True)
        bend = tf.matmul(root, tf.matmul(precision, root), transpose_a=True)
        return float(0.5 * tf.reduce_sum(tf.square(slope)) + 0.25 * tf.reduce_sum(tf.square(bend)))


class _Sums(NamedTuple):
    expected: tf.Tensor
    """Sum of E_n, [] nats."""
    theta: tf.Tensor
    """[M, L]"""
    sites: tf.Tensor
    """[L, M, M]"""
    clipped: tf.Tensor


class PassReader:
    """Reads the data at a model's q(u), and moves it."""

    def __init__(
        self, model: BasisGP, blocks: Blocks, negative_precision: str, compile: bool, bar: tqdm
    ) -> None:
        self.model, self.blocks, self.negative_precision, self.bar = (
            model,
            blocks,
            negative_precision,
            bar,
        )
        rows = model.basis.draw_rows()  # one draw for all passes: bounds must be comparable
        self._rows = rows if rows is None else tf.cast(blocks.group.of_first(rows), rows.dtype)
        self._sums = RowSums(
            blocks.group, self._with_block, compile, symmetric=[_Sums._fields.index("sites")]
        )
        state = model.basis.factor(model.kernel, with_kl=False)
        if not state.ok:
            name, matrix = next(iter(model.basis.matrices(model.kernel).items()))
            raise diagnose(name, matrix.numpy())

    def start(self) -> Reading:
        """Read the data at the model's q(u), or the first worker's."""
        basis, group = self.model.basis, self.blocks.group
        state = basis.factor(self.model.kernel, with_kl=False)
        (part,) = basis.gaussians(state)
        if group.workers > 1:
            part = GaussianPart(*(tf.cast(group.of_first(one), one.dtype) for one in part))
            basis.assign_gaussians(state, (part,))
        precision = precision_from_root(part.root)
        return self._read(Natural.of(apply_per_latent(precision, part.mean), precision), np.nan)

    def read(self, natural: Natural, step_size: float, otherwise: Reading) -> Reading:
        """Write another q(u) to the model and read the data there.

        A failed pass leaves the model at `otherwise`.
        """
        self.assign(natural)
        try:
            return self._read(natural, step_size)
        except BaseException:  # an interrupt, too
            self.assign(otherwise.natural)
            raise

    def step(self, now: Reading, step_size: float) -> tuple[Natural, float, bool]:
        """Return the q(u) after a step from `now`, its step size, and whether it was halved."""
        size = tf.constant(step_size, now.precision.dtype)
        refuses = self.negative_precision == "raise"
        halvings = 0 if refuses else MAX_HALVINGS
        new, tries = natural_step(
            now.natural.theta, now.natural.precision, now.theta, now.precision, size, halvings
        )
        if not new.ok and refuses:
            raise step_failure("The precision of q(u) after the step is not positive definite")
        if not new.ok:
            raise step_failure(
                "No step, however short, leaves the precision of q(u) positive definite"
            )
        return new, step_size * 0.5 ** int(tries), bool(tries > 0)

    def assign(self, natural: Natural) -> None:
        """Write q(u) to the model."""
        basis = self.model.basis
        basis.assign_gaussians(
            basis.factor(self.model.kernel, with_kl=False), (natural.gaussian(),)
        )

    def _read(self, natural: Natural, step_size: float) -> Reading:
        basis = self.model.basis
        state = basis.factor(self.model.kernel, rows=self._rows)
        (part,) = basis.gaussians(state)
        zero = tf.zeros([], part.root.dtype)
        none = _Sums(zero, tf.zeros_like(part.mean), tf.zeros_like(part.root), tf.constant(0))
        sums = self._sums(state, none, self.blocks)
        self.blocks.check_rows()
        elbo = float(sums.expected - basis.prior_kl(state))
        self.bar.update()
        self.bar.set_postfix(ELBO=f"{elbo:.8g}")
        target = tf.linalg.set_diag(sums.sites, tf.linalg.diag_part(sums.sites) + 1.0)  # (C25)
        return Reading(natural, sums.theta, target, elbo, int(sums.clipped), step_size)

    def _with_block(self, state: State, sums: _Sums, X: tf.Tensor, Y: tf.Tensor) -> _Sums:
        """Add one block: E, A (g - 2 h A^T m~) and -2 A diag(h) A^T."""
        basis, kernel = self.model.basis, self.model.kernel
        features = basis.features(state, kernel, X)
        found = by_quadrature(
            self.model, features.mean, basis.variance(features, kernel, X), (X, Y)
        )
        h, clipped = clip_curvature(found.h, self.negative_precision)
        A, own_mean = features.minus[0], basis.gaussians(state)[0].mean
        own_mean = apply_per_latent(A, own_mean, adjoint=True)
        return _Sums(
            sums.expected + tf.reduce_sum(found.value),
            sums.theta + apply_per_latent(A, found.g - 2.0 * h * own_mean),  # (C25)
            sums.sites + symmetric_product(A, -2.0 * tf.transpose(h)),  # (C25)
            sums.clipped + clipped,
        )


def step_failure(what: str) -> NumericalError:
    """Return the error for a q(u) without a possible step; `what` is its first sentence."""
    return NumericalError(
        f'{what}. Use a smaller step_size, negative_precision="clip" for likelihoods that are not'
        " log-concave, or start from a narrower q (a smaller q_sqrt); q is the last one whose"
        " bound is known.",
        matrix="precision of q(u)",
    )
