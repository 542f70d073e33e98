"""One streaming update."""

# Bound: Bui, Nguyen & Turner 2017 (arXiv:1705.07131); sites that add up (C46): Chang, Verma, John,
# Solin & Khan 2023 (arXiv:2306.03566).

from __future__ import annotations

__all__ = ["StreamUpdate", "frame_at", "remember", "update"]

from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import Parameter, RegressionData, TensorType
from gpflow.inducing_variables import InducingVariables
from gpflow.utilities import set_trainable

from ...bases import InducingBasis
from ...bases.parts.atomic import all_or_nothing
from ...bases.parts.frame import Frame, features_in, frame_of
from ...errors import DataError, ModelError
from ...inducing.variables import as_inducing, check_indices_of, input_dims
from ...inputs import check_rate, check_whole
from ...linalg.cholesky import diagnose
from ...linalg.gaussians import apply_per_latent, precision_from_root
from ...summaries import html_table, one_line
from .learn import learned
from .site_climb import Batch, Climb, StreamModel, climb, factor_of, no_sites, sites_of
from .stream_memory import Quadratic, StreamMemory
from .stream_posterior import divergence, expectation, read, write


class StreamUpdate(NamedTuple):
    """The record of an update.

    Example::

        record = model.update((X, Y))
        print(record.bound, record.forgotten)
    """

    bound: float
    """The bound after the update, in nats: of all data at fixed kernel and points, see `update`."""
    steps: int
    """Steps of the sites."""
    converged: bool
    """The last step gained less than the tolerance."""
    shortened: int
    """Steps that were halved."""
    forgotten: float
    """Loss of the old factor's expectation by new points, in nats; 0 if they include the old."""

    def __repr__(self) -> str:
        return one_line(self, **self._asdict())

    def _repr_html_(self) -> str:
        return html_table(type(self).__name__, self._asdict())


def update(
    model: StreamModel,
    data: RegressionData,
    *,
    beta: InducingVariables | TensorType | None = None,
    gamma: InducingVariables | TensorType | None = None,
    learn: int = 0,
    keep: float = 1.0,
    steps: int = 100,
    tolerance: float = 1e-6,
) -> StreamUpdate:
    """Take in a batch: q becomes the posterior of it and all earlier data.

    At fixed kernel and points, q and `bound` are exact for Gaussian noise; for others old sites
    stay. Once kernel or points have moved, `bound` is for log int p(f) l(u) p(y_new | f) df, l the
    old factor. Cost: N M^2 + M^3 per latent and step; memory L M^2. Compile functions again after a
    change of points.

    :param model: a model on inducing points; for a q trained before, see `remember`.
    :param data: X [N, D] and Y [N, P], each observation once; perhaps no rows.
    :param beta: new inducing points [M, D], say of `inducing.select`.
    :param gamma: new points gamma, of a basis that has them.
    :param learn: rounds of 20 iterations of L-BFGS on kernel and likelihood; points and mean
        function stay.
    :param keep: power of the old factor, in (0, 1]; below 1 old data fade.
    :param tolerance: stop at a smaller gain, in nats.
    """
    check_whole(0, learn=learn)
    check_whole(1, steps=steps)
    check_rate(tolerance=tolerance)
    check_rate(1.0, keep=keep)
    X, Y = _checked_data(model, data)
    memory = _memory_so_far(model)
    basis = _on_points(model, beta, gamma)
    frame = frame_at(model, basis)
    links = memory.links(frame)
    held = (
        memory.said() if memory.fits(frame, links) else memory.projected(frame, model.kernel, links)
    )
    forgotten = float(memory.constant - held.constant)
    old = held.times(keep)
    batch = Batch(X, Y, features_in(frame, model.kernel, X))
    rows = no_sites(int(X.shape[0]), model.num_latent_gps, X.dtype)
    end = climb(model, frame, batch, old, rows, steps, tolerance)
    variables = [*model.kernel.variables, *model.likelihood.variables, *basis.variables]
    with all_or_nothing(variables, [model]):
        if learn:
            frame, batch, old, end = learned(
                model, basis, memory, links, keep, (frame, batch, old, end), learn, steps, tolerance
            )
        write(basis, model.kernel, frame, end.belief)
        said = StreamMemory(frame, _consolidated(frame, batch, old, end))
        model.basis, model.memory = basis, said
    return StreamUpdate(end.bound, end.steps, end.converged, end.shortened, forgotten)


def remember(model: StreamModel, data: RegressionData) -> StreamMemory:
    """Store the likelihood factor of the data that trained q, for later updates.

    q should be at its optimum, as after `fit`. Cost: N M^2 + M^3 per latent.

    :param data: all X [N, D] and Y [N, P] that q was trained on.
    """
    X, Y = _checked_data(model, data)
    frame = frame_at(model, model.basis)
    belief = read(model.basis, model.kernel, frame)
    batch = Batch(X, Y, features_in(frame, model.kernel, X))
    said, expected = factor_of(batch, no_sites(*_shape(model, X), X.dtype)), tf.zeros([], X.dtype)
    if int(X.shape[0]) > 0:
        sites, expected = sites_of(model, frame, batch, belief)
        said = factor_of(batch, sites)
    constant = expected - expectation(frame, belief, said)
    model.memory = StreamMemory(frame, said._replace(constant=constant))
    return model.memory


def _shape(model: StreamModel, X: tf.Tensor) -> tuple[int, int]:
    return int(X.shape[0]), model.num_latent_gps


def _checked_data(model: StreamModel, data: RegressionData) -> tuple[tf.Tensor, tf.Tensor]:
    if model.expectations is not None:
        raise ModelError(
            "update needs expectations that do not change between calls, and this model estimates"
            " them from draws: build it with expectations=None."
        )
    X, Y = model.as_tensors(data)
    return (X, Y) if int(X.shape[0]) == 0 else model.checked(data)


def frame_at(model: StreamModel, basis: InducingBasis) -> Frame:
    """Return the frame of a basis's points; raises if a factorisation fails."""
    free = len(basis.gaussian_parameters()) // 2
    frame = frame_of(model.kernel, basis.frame_points, free)
    if not bool(frame.ok):
        for name, matrix in basis.matrices(model.kernel).items():
            raise diagnose(name, matrix.numpy())
    return frame


def _memory_so_far(model: StreamModel) -> StreamMemory:
    if model.memory is not None:
        return model.memory
    frame = frame_at(model, model.basis)
    M, L, dtype = sum(frame.sizes), model.num_latent_gps, frame.chol.dtype
    nothing = Quadratic(*(tf.zeros(shape, dtype) for shape in ([M, L], [L, M, M], [])))
    if _is_untrained(model.basis):
        return StreamMemory(frame, nothing)
    belief = read(model.basis, model.kernel, frame)
    if len(frame.sizes) > 1:
        raise ModelError(
            f"q of this {type(model.basis).__name__} has been trained, and how certain the old data"
            " made its mean at gamma cannot be told from q: call model.remember(data) once, with"
            " the data that it was trained on, before the update."
        )
    precision = precision_from_root(belief.roots[0])
    said = Quadratic(
        apply_per_latent(precision, belief.mean),
        tf.linalg.set_diag(precision, tf.linalg.diag_part(precision) - 1.0),
        nothing.constant,
    )  # (C47)
    return StreamMemory(
        frame, said._replace(constant=divergence(frame, belief) - expectation(frame, belief, said))
    )


def _is_untrained(basis: InducingBasis) -> bool:
    parts = [parameter.numpy() for parameter in _parameters_of_q(basis)]
    starts = [np.eye(part.shape[-1]) if part.ndim == 3 else 0.0 for part in parts]
    return all(np.all(part == start) for part, start in zip(parts, starts))


def _on_points(
    model: StreamModel,
    beta: InducingVariables | TensorType | None,
    gamma: InducingVariables | TensorType | None,
) -> InducingBasis:
    old, names = model.basis.frame_points, ("beta", "gamma")
    if gamma is not None and len(old) == 1:
        raise DataError(
            f"gamma was passed, and a {type(model.basis).__name__} has no points gamma; leave it"
            " out."
        )
    if beta is None and gamma is None:
        return model.basis
    points = []
    for name, was, given in zip(names, old, (beta, gamma)):
        now = was if given is None else as_inducing(given, name, model.kernel)
        if input_dims(now) != input_dims(was):
            raise DataError(
                f"{name} has {input_dims(now)} columns and the inputs of this model"
                f" {input_dims(was)}; use the columns of X."
            )
        check_indices_of(now, name, model.kernel)
        if given is not None and not was.trainable_variables:
            set_trainable(now, False)
        points.append(now)
    moved = model.basis.moved_to(*points)
    for was, now in zip(_parameters_of_q(model.basis), _parameters_of_q(moved)):
        set_trainable(now, was.trainable)
        now.prior, now.prior_on = was.prior, was.prior_on
    return moved


def _parameters_of_q(basis: InducingBasis) -> list[Parameter]:
    mean = basis.kernel_mean
    return [*basis.gaussian_parameters(), *([] if mean is None else [mean.coefficients])]


def _consolidated(frame: Frame, batch: Batch, old: Quadratic, end: Climb) -> Quadratic:
    """(C46): the old factor times the batch's sites, with the constant that keeps the bound."""
    total = old.plus(factor_of(batch, end.sites))
    expected = end.bound + divergence(frame, end.belief)
    missing = expected - expectation(frame, end.belief, total)
    return total._replace(constant=total.constant + missing)  # (C46)
