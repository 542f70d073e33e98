"""Conjugate computation by passes over all data."""

from __future__ import annotations

__all__ = ["sweep"]

from numbers import Integral, Real
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.models import SVGP
from gpflow.utilities import parameter_dict
from tqdm.auto import tqdm

from ..bases import GaussianPart
from ..bases.base import State
from ..diagnostics.accuracy import warn_of_quadrature
from ..diagnostics.failure import unusable_observation
from ..errors import DataError, ModelError, NumericalError, check_option
from ..linalg.cholesky import diagnose
from ..linalg.triangular import symmetric_product
from ..linalg.whitening import apply_per_latent, precision_from_root
from ..models import BasisGP
from ..replicas import Group, RowSums, dataset_of, group_of
from ..summaries import short_repr
from .ascent import (
    MAX_HALVINGS,
    POLICIES,
    ConjugateResult,
    SiteRecorder,
    StepSize,
    ascend,
    clip_curvature,
    has_fallen,
    step_size_at,
)
from .data_passes import Batches, Blocks, by_quadrature
from .natural_steps import Natural, as_basis_model, natural_step

# A pass at a fixed q(u) sums over blocks of rows the bound and the targets theta*, P* of the
# natural-gradient step (D46) on all data; then the whitened natural parameters move, (C25):
#
#   (theta, P) <- (1 - rho) (theta, P) + rho (theta*, P*)


_ROUND_OFF = 1e3
"""Decrease of the bound that counts as round-off, in units of its last place."""
_PASSES_DONE = "passes done"


def sweep(
    model: BasisGP | SVGP,
    data: RegressionData | tf.data.Dataset | Batches,
    *,
    step_size: StepSize = 1.0,
    block: int = 8192,
    passes: int = 100,
    tolerance: float = 1e-6,
    negative_precision: str = "damp",
    progress: bool = False,
    compile: bool = True,
    strategy: tf.distribute.Strategy | None = None,
) -> ConjugateResult:
    """Find the best q(u) at fixed hyperparameters, with one block of data in memory.

    Each pass takes a step, and the next computes its bound; a step that lowered it is undone and
    halved. Cost of a pass: 3 M^2 N, and M^3 per latent; replicas send one message of 4 L M^2 bytes.

    :param model: with a `CoupledBasis` or an `OrthogonalBasis` (whose mean coefficients stay), or a
        `gpflow.models.SVGP`. `num_data` is set to the number of rows.
    :param data: (X [N, D], Y [N, P]), a `tf.data.Dataset`, or a function, as for `fit`.
    :param step_size: rho in (0, 1], a number or a function of the step 0, 1, ...
    :param block: rows per block of arrays.
    :param passes: most passes over the data.
    :param tolerance: stop when a full step would gain fewer nats, to second order.
    :param negative_precision: see `NaturalGradient`.
    :param progress: show a progress bar.
    :param compile: False runs eagerly, faster for a few small blocks.
    :param strategy: a `tf.distribute` strategy whose replicas share the rows; build the model in
        its `scope()`. Workers pass equal arrays, or a function of `tf.distribute.InputContext`.

    Example::

        model = SparseCVIGP(gpflow.kernels.Matern52(), gpflow.likelihoods.Bernoulli(), Z)
        result = sweep(model, (X, Y), block=1000)
    """
    check_option("negative_precision", negative_precision, POLICIES)
    _check_settings(step_size, passes, tolerance)
    view = as_basis_model(model, "sweep")
    if not view.basis.ties_sites:
        raise ModelError(
            "sweep takes models with a CoupledBasis or an OrthogonalBasis, and this"
            f" {type(model).__name__} has a {type(view.basis).__name__}. Train it by fit(model,"
            " data), or with the hyperparameters fixed by"
            " optimizers.NaturalGradient().minimize(model, data)."
        )
    group = group_of(model, strategy)
    with group.scope(), group.naming_lost_workers():
        blocks = _agreed_blocks(
            group,
            view,
            data,
            block,
            (passes, tolerance, step_size_at(step_size, 0), negative_precision),
        )
        with tqdm(total=passes, disable=not (progress and group.is_first), desc="sweep") as bar:
            climber = _Passes(view, blocks, step_size, tolerance, negative_precision, compile, bar)
            result = _climb(climber, model, passes)
    warn_of_quadrature(view, result.elbo, blocks.sample)
    return result


def _agreed_blocks(
    group: Group,
    model: BasisGP,
    data: RegressionData | tf.data.Dataset | Batches,
    block: int,
    settings: tuple[object, ...],
) -> Blocks:
    blocks = group.together(
        lambda: Blocks(
            model, data if group.strategy is None else dataset_of(data, group), block, group
        )
    )
    if group.workers > 1:
        taken = {id(p) for p in model.basis.gaussian_parameters()}
        others = {name: p for name, p in parameter_dict(model).items() if id(p) not in taken}
        sizes = {"num_data": blocks.num_data, "the number of rows": blocks.length}
        group.refuse_unlike(
            {"the names of the Parameters": list(others), "the settings": settings, **sizes}
        )
        group.refuse_unlike({f"parameter {name}": p.numpy().tolist() for name, p in others.items()})
    return blocks


def _climb(climber: _Passes, model: BasisGP | SVGP, passes: int) -> ConjugateResult:
    view, blocks = climber.model, climber.blocks
    start = climber.start()
    if not start.ok:
        blocks.group.together(lambda: _raise_unusable(view, blocks))
        raise _step_failure("The bound is not finite")
    view.num_data = model.num_data = blocks.num_data
    end = ascend(climber, start, range(passes - 1), spent=_PASSES_DONE)
    if end.reason == _PASSES_DONE and end.refused is None:
        # the last pass gives one more step; not after a refused one, since its bound would stay
        # unknown
        climber.last_step(end.now, passes - 1, end.share)
        return climber.record.result(end.reason)
    return climber.record.result(end.reason, end.now.elbo)


class _Reading(NamedTuple):
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


class _Passes:
    """Reads the data at a model's q(u), and moves it; a climber for `ascend`."""

    def __init__(
        self,
        model: BasisGP,
        blocks: Blocks,
        step_size: StepSize,
        tolerance: float,
        negative_precision: str,
        compile: bool,
        bar: tqdm,
    ) -> None:
        self.model, self.blocks, self.group, self.bar = model, blocks, blocks.group, bar
        self.step_size, self.tolerance = step_size, tolerance
        self.negative_precision, self.record = negative_precision, SiteRecorder()
        rows = model.basis.draw_rows()  # one draw for all passes: bounds must be comparable
        self._rows = rows if rows is None else tf.cast(blocks.group.of_first(rows), rows.dtype)
        self._sums = RowSums(
            blocks.group, self._with_block, compile, symmetric=[_Sums._fields.index("sites")]
        )
        state = model.basis.factor(model.kernel, with_kl=False)
        if not state.ok:
            name, matrix = next(iter(model.basis.matrices(model.kernel).items()))
            raise diagnose(name, matrix.numpy())

    def start(self) -> _Reading:
        """Read the data at the model's q(u), or the first worker's."""
        basis, group = self.model.basis, self.group
        state = basis.factor(self.model.kernel, with_kl=False)
        (part,) = basis.gaussians(state)
        if group.workers > 1:
            part = GaussianPart(*(tf.cast(group.of_first(one), one.dtype) for one in part))
            basis.assign_gaussians(state, (part,))
        precision = precision_from_root(part.root)
        return self._read(Natural.of(apply_per_latent(precision, part.mean), precision), np.nan)

    def propose(self, now: _Reading, step: int, share: float) -> _Reading:
        """Write the next q(u) to the model and read the data there; a failed pass is undone."""
        new, size = self._step(now, step, share)
        self.assign(new)
        try:
            return self._read(new, size)
        except BaseException:  # an interrupt, too
            self.assign(now.natural)
            raise

    def accept(self, now: _Reading, then: _Reading) -> bool:
        slack = _ROUND_OFF * float(np.finfo(now.precision.dtype.as_numpy_dtype).eps)
        fell = has_fallen(now.elbo, then.elbo, relative=slack, absolute=slack) or not then.ok
        if self.group.first(fell):
            self.record.shortened += 1
            self.assign(now.natural)
            return False
        self.record.add(then.step_size, now.distance(), then.elbo, now.clipped)
        return True

    def converged(self, now: _Reading) -> bool:
        return bool(self.group.first(now.promise() <= self.tolerance))

    def last_step(self, now: _Reading, step: int, share: float) -> None:
        """Step without reading the data there."""
        new, size = self._step(now, step, share)
        self.assign(new)
        self.record.add(size, now.distance(), np.nan, now.clipped)

    def _step(self, now: _Reading, step: int, share: float) -> tuple[Natural, float]:
        wanted = share * step_size_at(self.step_size, step)
        new, size = self.group.together(lambda: self._feasible(now, wanted))
        self.record.shortened += int(size < wanted)
        return new, size

    def _feasible(self, now: _Reading, step_size: float) -> tuple[Natural, float]:
        """The q(u) after a step from `now`, halved until there is one, and its size."""
        refuses, size = self.negative_precision == "raise", tf.constant(step_size, now.theta.dtype)
        old, goal = (now.natural.theta, now.natural.precision), (now.theta, now.precision)
        new, tries = natural_step(*old, *goal, size, 0 if refuses else MAX_HALVINGS)
        if not new.ok:
            raise _step_failure(
                "The precision of q(u) after the step is not positive definite"
                if refuses
                else "No step, however short, leaves the precision of q(u) positive definite"
            )
        return new, step_size * 0.5 ** int(tries)

    def assign(self, natural: Natural) -> None:
        """Write q(u) to the model."""
        basis = self.model.basis
        basis.assign_gaussians(
            basis.factor(self.model.kernel, with_kl=False), (natural.gaussian(),)
        )

    def _read(self, natural: Natural, step_size: float) -> _Reading:
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
        return _Reading(natural, sums.theta, target, elbo, int(sums.clipped), step_size)

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


def _step_failure(what: str) -> NumericalError:
    """Return the error for a q(u) without a possible step; `what` is its first sentence."""
    return NumericalError(
        f'{what}. Use a smaller step_size, negative_precision="clip" for likelihoods that are not'
        " log-concave, or start from a narrower q (a smaller q_sqrt); q is the last one whose"
        " bound is known.",
        matrix="precision of q(u)",
    )


def _raise_unusable(model: BasisGP, blocks: Blocks) -> None:
    for X, Y in blocks:
        error = unusable_observation(model, (X, Y), rows=blocks.first + np.arange(X.shape[0]))
        if error is not None:
            raise error


def _check_settings(step_size: StepSize, passes: int, tolerance: float) -> None:
    step_size_at(step_size, 0)
    if not isinstance(tolerance, Real) or isinstance(tolerance, bool) or not float(tolerance) > 0.0:
        raise DataError(f"tolerance={short_repr(tolerance)} must be a number above 0, in nats.")
    if not isinstance(passes, Integral) or isinstance(passes, bool) or passes < 1:
        raise DataError(f"passes={short_repr(passes)} must be a whole number of at least 1.")
