"""Conjugate computation by passes over all data."""

from __future__ import annotations

__all__ = ["sweep"]

from numbers import Integral, Real

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.models import SVGP
from gpflow.utilities import parameter_dict
from tqdm.auto import tqdm

from ..diagnostics.accuracy import warn_of_quadrature
from ..diagnostics.failure import unusable_observation
from ..errors import DataError, ModelError, check_option
from ..models import BasisGP
from ..replicas import Group, dataset_of, group_of
from ..summaries import short_repr
from .ascent import POLICIES, StepSize, ascend, has_fallen, step_size_at
from .conjugate_computation import ConjugateRecorder, ConjugateResult
from .data_passes import Batches, Blocks, PassReader, Reading, step_failure
from .natural_steps import Natural, as_basis_model

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
            climber = _PassClimber(
                PassReader(view, blocks, negative_precision, compile, bar), step_size, tolerance
            )
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


def _climb(climber: _PassClimber, model: BasisGP | SVGP, passes: int) -> ConjugateResult:
    view, blocks = climber.reader.model, climber.reader.blocks
    start = climber.reader.start()
    if not start.ok:
        blocks.group.together(lambda: _raise_unusable(view, blocks))
        raise step_failure("The bound is not finite")
    view.num_data = model.num_data = blocks.num_data
    end = ascend(climber, start, range(passes - 1), spent=_PASSES_DONE)
    if end.reason == _PASSES_DONE and end.refused is None:
        # the last pass gives one more step; not after a refused one, since its bound would stay
        # unknown
        climber.last_step(end.now, passes - 1, end.share)
        return climber.record.result(end.reason)
    return climber.record.result(end.reason, end.now.elbo)


class _PassClimber:
    def __init__(self, reader: PassReader, step_size: StepSize, tolerance: float) -> None:
        self.reader, self.step_size, self.tolerance = reader, step_size, tolerance
        self.group = reader.blocks.group
        self.record = ConjugateRecorder()

    def propose(self, now: Reading, step: int, share: float) -> Reading:
        new, size = self._step(now, step, share)
        return self.reader.read(new, size, otherwise=now)

    def accept(self, now: Reading, then: Reading) -> bool:
        slack = _ROUND_OFF * float(np.finfo(now.precision.dtype.as_numpy_dtype).eps)
        fell = has_fallen(now.elbo, then.elbo, relative=slack, absolute=slack) or not then.ok
        if self.group.first(fell):
            self.record.shortened += 1
            self.reader.assign(now.natural)
            return False
        self.record.add(then.step_size, now.distance(), then.elbo, now.clipped)
        return True

    def converged(self, now: Reading) -> bool:
        return bool(self.group.first(now.promise() <= self.tolerance))

    def last_step(self, now: Reading, step: int, share: float) -> None:
        new, size = self._step(now, step, share)
        self.reader.assign(new)
        self.record.add(size, now.distance(), np.nan, now.clipped)

    def _step(self, now: Reading, step: int, share: float) -> tuple[Natural, float]:
        size = share * step_size_at(self.step_size, step)
        new, size, halved = self.group.together(lambda: self.reader.step(now, size))
        self.record.shortened += int(halved)
        return new, size


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
