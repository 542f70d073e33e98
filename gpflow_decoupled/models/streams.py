"""One streaming update."""

from __future__ import annotations

__all__ = [
    "Batch", "Climb", "Sites", "Stage", "StreamModel", "StreamUpdate", "bound", "climb",
    "factor_of", "frame_at", "learned", "no_sites", "remember", "sites_of", "update",
]  # fmt: skip

from typing import NamedTuple, Protocol, TypeAlias

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import Parameter, RegressionData, TensorType
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood
from gpflow.utilities import set_trainable

from ..bases import InducingBasis
from ..bases.optimum import Frame, features_in, frame_of
from ..errors import DataError, ModelError, NumericalError
from ..inducing.variables import as_inducing, check_indices_of, input_dims
from ..inputs import check_rate, check_whole
from ..interrupts import all_or_nothing
from ..linalg.cholesky import diagnose
from ..linalg.triangular import symmetric_product
from ..linalg.whitening import apply_per_latent, precision_from_root
from ..summaries import html_table, one_line
from .checks import MonteCarlo
from .stream_posterior import (
    Quadratic,
    StreamBelief,
    StreamMemory,
    best,
    divergence,
    expectation,
    moments,
    read,
    write,
)

# ---
# The sites of a new batch, with the old data's factor fixed.


# They move by (C13), halved where the bound (C43) falls.


_ROUND_OFF = 1e3
"""Decrease of the bound that counts as round-off, in units of its last place."""
_SHORTEST = 2.0**-30  # share of a step at which a climb gives up


class StreamModel(Protocol):
    """The interface of a `BasisGP` that streams use."""

    kernel: Kernel
    likelihood: Likelihood
    basis: InducingBasis
    memory: StreamMemory | None
    expectations: MonteCarlo | None
    num_latent_gps: int

    def as_tensors(self, data: RegressionData) -> tuple[tf.Tensor, tf.Tensor]:
        """X [N, D] and Y [N, P], shapes checked."""

    def checked(self, data: RegressionData) -> tuple[tf.Tensor, tf.Tensor]:
        """X [N, D] and Y [N, P], values checked too."""

    def variational_expectations(
        self, mean: tf.Tensor, variance: tf.Tensor, data: RegressionData
    ) -> tf.Tensor:
        """E_n [N] in nats, from moments [N, L]."""

    def log_prior_density(self) -> tf.Tensor:
        """The log prior density of the hyperparameters, a scalar."""


class Sites(NamedTuple):
    """nu [N, L] and tau [N, L] of exp(nu f - tau f^2 / 2)."""

    nu: tf.Tensor
    tau: tf.Tensor

    def towards(self, other: Sites, share: float) -> Sites:
        """(1 - share) of these sites plus share of the other, each [N, L], (C13)."""
        return Sites(*((1.0 - share) * mine + share * theirs for mine, theirs in zip(self, other)))


class Batch(NamedTuple):
    """New data, and their features in the frame."""

    X: tf.Tensor
    """[N, D]"""
    Y: tf.Tensor
    """[N, P]"""
    Phi: tf.Tensor
    """[G, M, N]"""


class _Point(NamedTuple):
    bound: float
    belief: StreamBelief
    sites: Sites
    target: Sites
    ok: bool


class Climb(NamedTuple):
    """The final sites of a batch."""

    bound: float
    belief: StreamBelief
    sites: Sites
    steps: int
    converged: bool
    shortened: int


def no_sites(rows: int, latents: int, dtype: tf.DType) -> Sites:
    """Uninformative sites, [N, L]."""
    return Sites(*(tf.zeros([rows, latents], dtype) for _ in range(2)))


def factor_of(batch: Batch, sites: Sites) -> Quadratic:
    """The sites [N, L] as one factor in the frame, constant zero: (C46); N M^2 per latent."""
    precision = symmetric_product(batch.Phi, tf.transpose(sites.tau))
    # (C46)
    return Quadratic(apply_per_latent(batch.Phi, sites.nu), precision, tf.zeros([], batch.X.dtype))


def bound(
    model: StreamModel, frame: Frame, batch: Batch, old: Quadratic, belief: StreamBelief
) -> tf.Tensor:
    """The bound (C43) in nats, a scalar, at any q.

    :param batch: X [N, D], Y [N, P] and features.
    """
    mean, variance = moments(frame, belief, model.kernel, batch.X, batch.Phi)
    new = tf.reduce_sum(model.variational_expectations(mean, variance, (batch.X, batch.Y)))
    return new + expectation(frame, belief, old) - divergence(frame, belief)  # (C43)


def sites_of(
    model: StreamModel, frame: Frame, batch: Batch, belief: StreamBelief
) -> tuple[Sites, tf.Tensor]:
    """Target (C13) of the sites at a q, each [N, L], and the sum of E_n in nats, a scalar."""
    mean, variance = moments(frame, belief, model.kernel, batch.X, batch.Phi)
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch([mean, variance])
        expected = tf.reduce_sum(model.variational_expectations(mean, variance, (batch.X, batch.Y)))
    g, h = tape.gradient(expected, [mean, variance])
    return Sites(g - 2.0 * h * mean, -2.0 * h), expected  # (C13)


def climb(
    model: StreamModel,
    frame: Frame,
    batch: Batch,
    old: Quadratic,
    start: Sites,
    steps: int,
    tolerance: float,
) -> Climb:
    """Move a batch's sites until a step gains below `tolerance` nats; N M^2 + M^3 each.

    :param start: initial sites [N, L]; none for a batch without rows.
    """
    now = _point(model, frame, batch, old, start)
    if not now.ok:
        raise NumericalError(
            "The bound of the stream is not finite, or a precision is not positive definite, before"
            " the new data move q: scale the observations, or use fewer or better separated"
            " inducing points.",
            matrix="precision of q(u)",
        )
    share, shortened, taken, converged = 1.0, 0, 0, int(batch.X.shape[0]) == 0
    round_off = (
        _ROUND_OFF * float(np.finfo(old.theta.dtype.as_numpy_dtype).eps) * (1.0 + abs(now.bound))
    )
    while taken < steps and not converged and share > _SHORTEST:
        taken += 1
        then = _point(model, frame, batch, old, now.sites.towards(now.target, share))
        if not (then.ok and then.bound >= now.bound - tolerance - round_off):
            share, shortened = 0.5 * share, shortened + 1
            continue
        converged = then.bound - now.bound <= tolerance * share
        now, share = then, min(1.0, 2.0 * share)
    return Climb(now.bound, now.belief, now.sites, taken, converged, shortened)


def _point(model: StreamModel, frame: Frame, batch: Batch, old: Quadratic, sites: Sites) -> _Point:
    belief = best(frame, old.plus(factor_of(batch, sites)))
    held = expectation(frame, belief, old) - divergence(frame, belief)
    target, expected = sites, tf.zeros([], held.dtype)
    if int(batch.X.shape[0]) > 0:
        target, expected = sites_of(model, frame, batch, belief)
    value = held + expected  # (C43)
    finite = [belief.ok, *(tf.reduce_all(tf.math.is_finite(part)) for part in (value, *target))]
    return _Point(float(value), belief, sites, target, bool(tf.reduce_all(tf.stack(finite))))


# ---
# Kernel and likelihood learned on a stream.


_ITERATIONS = 20
"""L-BFGS iterations in a round."""
Stage: TypeAlias = tuple[Frame, Batch, Quadratic, Climb]
"""Frame at a kernel, batch and old factor in it, state of the sites."""


def learned(
    model: StreamModel,
    basis: InducingBasis,
    memory: StreamMemory,
    links: np.ndarray,
    keep: float,
    stage: Stage,
    rounds: int,
    steps: int,
    tolerance: float,
) -> Stage:
    """Return the stage after at most `rounds` rounds; a round without gain is undone, the last.

    :param links: D [G, M_a, M_z].
    """
    variables = list(model.kernel.trainable_variables) + list(model.likelihood.trainable_variables)
    if not variables:
        raise DataError(
            "learn is not 0, and no Parameter of the kernel or the likelihood is trainable; leave"
            " learn=0."
        )

    def at_kernel(frame: Frame, batch: Batch) -> tuple[Batch, Quadratic]:
        old = memory.projected(frame, model.kernel, links).times(keep)
        return Batch(batch.X, batch.Y, features_in(frame, model.kernel, batch.X)), old

    def loss() -> tf.Tensor:
        frame = frame_of(model.kernel, stage[0].points, stage[0].free)
        batch, old = at_kernel(frame, stage[1])
        belief = best(frame, old.plus(factor_of(batch, stage[3].sites)))
        return -bound(model, frame, batch, old, belief) - model.log_prior_density()

    for _ in range(rounds):
        before, log_prior = (
            [tf.identity(variable) for variable in variables],
            float(model.log_prior_density()),
        )
        gain = -np.inf
        try:
            gpflow.optimizers.Scipy().minimize(
                loss, variables, compile=False, options={"maxiter": _ITERATIONS}
            )
            frame = frame_of(model.kernel, stage[0].points, stage[0].free)
            batch, old = at_kernel(frame, stage[1])
            end = climb(model, frame, batch, old, stage[3].sites, steps, tolerance)
            gain = end.bound + float(model.log_prior_density()) - stage[3].bound - log_prior
        except NumericalError:
            pass  # gain stays -inf, so the round is taken back below
        finally:
            if not gain >= 0.0:
                for variable, value in zip(variables, before):
                    variable.assign(value)
        if not gain >= 0.0:
            break
        stage = frame, batch, old, end
        if gain <= tolerance:
            break
    return stage


# ---


# Bound: Bui, Nguyen & Turner 2017 (arXiv:1705.07131); sites that add up (C46): Chang, Verma, John,
# Solin & Khan 2023 (arXiv:2306.03566).


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
