"""GPflow's predictions with checked inputs."""

from __future__ import annotations

__all__ = [
    "CheckedPredictions", "Moments", "MonteCarlo", "Resolution", "as_observations",
    "check_densities", "check_draws", "check_kernel", "check_likelihood", "check_mean_function",
    "check_new_sites", "check_num_data", "check_parts", "check_reach", "check_shapes_of_data",
    "check_values", "infer_num_latent_gps", "log_densities", "moments_of_sites",
    "refuse_gradient", "refuse_replicas", "refuse_variables", "sampled_expectations",
    "variational_expectations", "warn_of_values",
]  # fmt: skip

import abc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import InputData, MeanAndVariance, Parameter, RegressionData, TensorType
from gpflow.config import default_float
from gpflow.functions import Function, MeanFunction
from gpflow.kernels import (
    ArcCosine,
    ChangePoints,
    Combination,
    Kernel,
    LinearCoregionalization,
    MultioutputKernel,
)
from gpflow.likelihoods import Likelihood
from gpflow.models import GPModel

from .. import replicas
from ..covariances.latents import check_indices, mix_outputs, split_latents
from ..covariances.mixed import Mixed
from ..covariances.stationary import covariance
from ..errors import DataError, ModelError, naming_memory
from ..expectations.projections import Projections
from ..inputs import (
    Array,
    as_array,
    as_inputs,
    as_pair,
    check_finite_entries,
    check_same_rows,
    check_type,
    check_whole,
    float_type,
    is_whole,
    known,
    of_known_rank,
    use_column,
)
from ..likelihoods import check_labels, observation_columns, observation_moments
from ..likelihoods.facts import (
    base_of,
    defined_by_user,
    has_infinite_edges,
    has_steps,
    is_scalar,
    name_of,
    reads_integers,
)
from ..likelihoods.log_densities import expected_log_densities, observation_log_density
from ..likelihoods.registry import index_columns
from ..likelihoods.row_likelihood import finer, nodes_of, with_gaps
from ..summaries import model_line, short_repr, short_table
from ..user_warnings import warn_user

# ---
# Draws for the data term.


class MonteCarlo(tf.Module):
    """Stochastic gradient variational Bayes (Kingma & Welling 2014): the data term from draws.

    Draws f = m + sqrt(v) eps make bound and gradients unbiased, for likelihoods whose quadrature is
    expensive (20^L nodes for L latents) or missing (`Softmax`). Sweeps and L-BFGS need exact
    values. Cost: S N evaluations of the log density, memory S N L.

    :param num_samples: S, draws per observation and evaluation, in pairs of opposite signs.
    :param seed: of the draws, with the number of evaluations, `calls`.

    Example::

        likelihood = gpflow.likelihoods.Softmax(3)
        model = ODVGP(
            gpflow.kernels.Matern52(), likelihood, gamma, beta, expectations=MonteCarlo(10)
        )
        result = gpflow_decoupled.fit(model, (X, Y))
    """

    def __init__(self, num_samples: int = 10, seed: int = 0) -> None:
        super().__init__()
        if not is_whole(num_samples, 1):
            raise DataError(
                f"num_samples={short_repr(num_samples)} must be a whole number, at least 1."
            )
        check_whole(0, seed=seed)
        self.num_samples, self.seed = int(num_samples), int(seed)
        self.calls = tf.Variable(0, dtype=tf.int64, trainable=False, name="calls")

    def draw(self, like: tf.Tensor) -> tf.Tensor:
        """Standard normal numbers [S, N, L] for a mean [N, L], new at every call and replica."""
        seed = replicas.fold_in_rank(
            tf.stack([tf.constant(self.seed, tf.int64), self.calls.assign_add(1)])
        )
        half = (self.num_samples + 1) // 2
        epsilon = tf.random.stateless_normal(
            tf.concat([[half], tf.shape(like)], axis=0), seed, dtype=like.dtype
        )
        return tf.concat([epsilon, -epsilon[: self.num_samples - half]], axis=0)


# ---
# The data term of the bound.


class Moments(NamedTuple):
    """f under q at N observations, as `moments` of a model returns it."""

    mean: tf.Tensor
    """[N, P]"""
    variance: tf.Tensor
    """[N, P]"""
    projections: Projections | None = None
    """The distribution of f where it is not Gaussian; None for N(mean, variance)."""


class Resolution(NamedTuple):
    """The accuracy of expected log densities, for example ("nodes", 20)."""

    name: str
    number: int


def moments_of_sites(model: GPModel) -> Moments:
    """Mean and variance of f [N, P] at the data of a model with sites; one factorisation, N^3."""
    X = model.data[0]
    state, rows = model.basis.factor(model.kernel), X.shape[0]  # sites of weights may follow
    mean, variance = mix_outputs(model.kernel, state.mean[:rows], state.variance[:rows])
    return Moments(mean + model.mean_function(X), variance)


def variational_expectations(
    model: GPModel, mean: tf.Tensor, variance: tf.Tensor, data: RegressionData
) -> tf.Tensor:
    """E_q log p(y_n | f_n) [N] in nats, by the likelihood's integrals.

    Means (less the mean function) and variances of the latents are [N, L], X [N, D], Y [N, P].
    """
    X, Y = data
    mean, variance = mix_outputs(model.kernel, mean, variance)
    mean += model.mean_function(X)
    return expected_log_densities(model.likelihood, X, mean, variance, Y)


def sampled_expectations(
    model: GPModel, mean: tf.Tensor, variance: tf.Tensor, data: RegressionData, epsilon: tf.Tensor
) -> tf.Tensor:
    """An unbiased estimate of `variational_expectations` [N], differentiable in the moments.

    :param epsilon: standard normal numbers [S, N, L].
    """
    # Draws f = m + sqrt(v) eps give the gradients E l' and E l' eps / (2 sqrt v), (C5), (C6).
    floor = tf.constant(np.finfo(variance.dtype.as_numpy_dtype).tiny, variance.dtype)
    draws = mean + tf.sqrt(tf.maximum(variance, floor)) * epsilon  # (C6)
    return tf.reduce_mean(log_densities(model, draws, data), axis=0)


def log_densities(model: GPModel, draws: tf.Tensor, data: RegressionData) -> tf.Tensor:
    """log p(y_n | f_n) [S, N] in nats, at latents [S, N, L] less the mean function; X [N, D], Y [N,
    P].
    """
    S, L = tf.shape(draws)[0], draws.shape[-1]
    X, Y = (tf.tile(part, [S, 1]) for part in data)
    f = tf.reshape(draws, [-1, L])
    mixed, _ = mix_outputs(model.kernel, f, tf.zeros_like(f))
    try:
        values = model.likelihood.log_prob(X, mixed + model.mean_function(X), Y)
    except NotImplementedError as error:
        raise DataError(
            f"{name_of(model.likelihood)} has no log density to be sampled: define its"
            " _log_prob, or leave samples out (expectations=None)."
        ) from error
    return tf.reshape(values, [S, -1])


def check_draws(likelihood: Likelihood) -> None:
    """Raise `DataError` for a piecewise constant log density, whose draws have no gradient."""
    if has_steps(likelihood):
        raise DataError(
            f"the log density of {name_of(likelihood)} is made of steps, and draws of it have"
            " no gradient: use likelihoods.CategoricalLogit, or its quadrature."
        )


# ---
# Checks of a model's parts.


_ARD = ("lengthscales", "weight_variances", "variance")
"""Attributes with numbers per column in GPflow's kernels; the first found counts."""


def check_likelihood(likelihood: object) -> None:
    """Raise `DataError` for anything but a likelihood."""
    _check_kind("likelihood", likelihood, Likelihood, "gpflow.likelihoods.Gaussian()")
    if has_infinite_edges(likelihood):
        raise DataError(
            "GPflow's Ordinal subtracts infinite bin edges; TensorFlow's erf of infinity is NaN,"
            " and so are its bounds. Pass gpflow_decoupled.likelihoods.Ordinal(bin_edges), the same"
            " likelihood."
        )


def check_parts(kernel: object, likelihood: object) -> None:
    """Raise `DataError` for anything but a kernel and a likelihood, in this order."""
    parts = zip((kernel, likelihood), (Likelihood, Kernel))
    if all(isinstance(part, kind) for part, kind in parts):
        raise DataError(
            f"kernel is the likelihood {type(kernel).__name__} and likelihood the kernel"
            f" {name_of(likelihood)}; swap them: the kernel comes first."
        )
    _check_kind("kernel", kernel, Kernel, "gpflow.kernels.Matern52()")
    check_likelihood(likelihood)


def check_kernel(kernel: Kernel, num_dims: int | None) -> None:
    """Refuse a kernel whose active columns or numbers per column do not fit the inputs.

    :param num_dims: D, the columns of the inputs; None if unknown.
    """
    _check_kind("kernel", kernel, Kernel, "gpflow.kernels.Matern52()")
    for part in _terms(kernel):
        if isinstance(part, ArcCosine) and float_type(part) == tf.float32:
            raise DataError(
                "ArcCosine is NaN on the diagonal in float32, where GPflow's guard of 1e-15 is lost"
                " in round-off: build kernel and model in float64, after"
                " gpflow.config.set_default_float(np.float64), with X.astype(np.float64)."
            )
    if num_dims is None:
        return
    for part in _terms(kernel):
        name, dims = type(part).__name__, part.active_dims
        if isinstance(dims, slice):
            count, last = len(range(num_dims)[dims]), int(dims.stop or 0) - 1
        else:
            count, last = len(dims), int(np.max(dims, initial=-1))
        if last >= num_dims:
            raise DataError(
                f"The kernel {name} has active_dims up to {last} and the inputs have {num_dims}"
                f" columns; use active_dims from 0 to {num_dims - 1}."
            )
        owner = next((field for field in _ARD if hasattr(part, field)), "")
        ard = getattr(part, owner, None)
        known = type(part).__module__.startswith("gpflow.") or isinstance(part, Mixed)
        if not known or ard is None or ard.shape.rank != 1:
            continue  # a kernel of the user's own may map its inputs to any number of columns first
        if ard.shape[0] != count:
            raise DataError(
                f"The kernel {name} has {ard.shape[0]} {owner} and reads {count} columns of the"
                " inputs; pass one number for each column, or a single one."
            )


def check_mean_function(
    mean_function: MeanFunction | None, num_dims: int | None, num_outputs: int
) -> None:
    """Refuse a mean function for other inputs or outputs.

    :param mean_function: X [N, D] -> [N, P] or [N, 1], called once at zeros; None is zero.
    """
    if mean_function is None:
        return
    if isinstance(mean_function, (type, Kernel, Likelihood)) or not callable(mean_function):
        _check_kind("mean_function", mean_function, Function, "gpflow.functions.Constant()")
    if num_dims is None:
        return
    name = type(mean_function).__name__
    try:
        values = mean_function(tf.zeros([2, num_dims], default_float()))
        shape = tuple(np.shape(values))
    except (tf.errors.InvalidArgumentError, ValueError) as error:
        raise DataError(
            f"mean_function {name} cannot be evaluated at inputs of {num_dims} columns, as the"
            f" model has: give it parameters of that shape. ({str(error).splitlines()[0][:200]})"
        ) from error
    if len(shape) != 2 or shape[0] not in (1, 2) or shape[1] not in (1, num_outputs):
        raise DataError(
            f"mean_function {name} gives values of shape {list(shape)} for two inputs, and the"
            f" model has {num_outputs} outputs; make it return [N, {num_outputs}] or [N, 1]."
        )


def refuse_gradient(
    model: GPModel, loss: tf.Tensor, sites: Callable[[], Iterable[tf.Variable]], run: str
) -> tf.Tensor:
    """Return a loss that is free to read, and has no gradient while q is still the prior.

    :param loss: a scalar [], in nats.
    :param sites: returns variables that are all zero, or NaN, while q is the prior.
    :param run: code that moves them.
    """
    # Otherwise `Scipy().minimize(model.training_loss, ...)` shrinks the kernel's variance to zero
    # and reports success.

    def gradient(upstream: tf.Tensor) -> tf.Tensor:
        with tf.init_scope():  # values, where a function is traced too
            touched = any(np.any(np.nan_to_num(part.numpy())) for part in sites())
        if not touched:
            raise ModelError(
                f"training_loss of this {type(model).__name__} is of the prior: no gradient moves"
                " its q, and GPflow's optimizers would fit the kernel to no data. Call"
                f" gpflow_decoupled.fit(model); or gpflow_decoupled.optimizers.{run} first, after"
                " which training_loss is the loss of the hyperparameters at that q."
            )
        return upstream

    return tf.custom_gradient(lambda value: (tf.identity(value), gradient))(loss)


def refuse_replicas(what: str) -> None:
    """Raise `ModelError` for several replicas and a model that owns its data."""
    replicas = int(tf.distribute.get_strategy().num_replicas_in_sync)
    if replicas > 1:
        raise ModelError(
            f"{what} does not work under a tf.distribute strategy of {replicas} replicas: it has a"
            " part of q for each observation, which would have to be moved between them. Leave"
            " strategy.scope(), or use a model on inducing points, such as ODVGP or SparseCVIGP,"
            " which fit(model, data, strategy=strategy) trains."
        )


def refuse_variables(data: object, kind: type) -> None:
    """Raise `DataError` for variables as the data (X, Y) of a class of models, which copy them."""
    for array, name in zip(as_pair(data), "XY"):
        if isinstance(array, (tf.Variable, Parameter)):
            more = (
                "add observations by model.update((X_new, Y_new)), and build a new model for others"
                if hasattr(kind, "update")
                else "build a new model for other data"
            )
            raise DataError(
                f"{name} is a {type(array).__name__}, and a {kind.__name__} copies its data: it"
                f" would not see what is assigned later. Pass {name}.numpy(); {more}."
            )


def _terms(kernel: Kernel) -> Iterator[Kernel]:
    if isinstance(kernel, MultioutputKernel):
        for latent in kernel.latent_kernels:
            yield from _terms(latent)
    elif isinstance(kernel, (Combination, ChangePoints)):
        for part in kernel.kernels:
            yield from _terms(part)
    else:
        yield kernel


def _check_kind(name: str, value: object, kind: type, example: str) -> None:
    if isinstance(value, kind):
        return
    package = f"gpflow.{kind.__module__.split('.')[1]}"
    if isinstance(value, type) and issubclass(value, kind):
        raise DataError(
            f"{name} is the class {value.__name__} itself; pass an instance, {value.__name__}()."
        )
    raise DataError(
        f"{name} is a {type(value).__name__}; pass an instance of {package}, for example {example}."
    )


# ---
# Signs of a user's log densities.


_UNBOUNDED = 100.0
"""Nats that no log density gains so far from its label."""
_NODES = 20
"""Of the quadrature of a user's log density, as in GPflow."""
_BROKEN = (NotImplementedError, TypeError, ValueError, tf.errors.OpError)


def check_densities(X: np.ndarray, Y: np.ndarray, likelihood: Likelihood) -> None:
    """Refuse a user's likelihood whose log density, or its expectation, has a wrong sign.

    The first three rows of X [N, D] and Y [N, P] are tried.
    """
    own = defined_by_user(likelihood) and is_scalar(likelihood)
    if not own or not tf.executing_eagerly() or len(X) == 0:
        return
    X, Y = X[:3], Y[:3].astype(X.dtype)
    _check_density(X, Y, likelihood)
    _check_expectations(X, Y, likelihood)


def _check_density(X: np.ndarray, Y: np.ndarray, likelihood: Likelihood) -> None:
    """Refuse a log density that grows without bound, as with a wrong sign."""
    # f is as far from zero as the labels, 100 and 10,000 times as far
    for side in (-1.0, 1.0):
        f = [(side * far * np.maximum(np.abs(Y), 1.0)).astype(X.dtype) for far in (1.0, 1e2, 1e4)]
        try:
            found = np.stack([likelihood.log_prob(X, at, Y) for at in f])
        except _BROKEN:
            return  # without a density there is nothing to look at; a broken one says so in use
        grows = (found[1:] > _UNBOUNDED) & (found[1:] > found[:-1] + _UNBOUNDED)
        if np.any(grows):
            at, row = np.argwhere(grows)[0]
            raise DataError(
                f"log p(y | f) of {name_of(likelihood)} grows without bound: at Y ="
                f" {Y[row, 0]:.4g} it is {found[at, row]:.3g} nats at f = {f[at][row, 0]:.3g} and"
                f" {found[at + 1, row]:.3g} at f = {f[at + 1][row, 0]:.3g}. Turn the sign of what"
                " its _scalar_log_prob returns."
            )


def _check_expectations(X: np.ndarray, Y: np.ndarray, likelihood: Likelihood) -> None:
    """Refuse expected log densities above those that quadrature of the log density gives."""
    if not defined_by_user(likelihood, "_variational_expectations"):
        return  # by quadrature of the log density, which was tried
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    ones, size = np.ones_like(Y), np.maximum(np.abs(Y), 1.0)
    for mean, variance in ((0.0 * Y, ones), (0.0 * Y, 1e4 * ones), (1e2 * size, ones)):
        f = mean + np.sqrt(variance) * nodes.astype(Y.dtype)[:, None, None]
        try:
            density = np.stack([likelihood.log_prob(X, at, Y) for at in f])
            found = np.asarray(likelihood.variational_expectations(X, mean, variance, Y))
        except _BROKEN:
            return
        with np.errstate(invalid="ignore", over="ignore"):
            expected = weights @ density / np.sum(weights)
        # a looser bound, and few samples or nodes, are the user's choice
        above = np.isfinite(expected) & (found > expected + 1.0 + 0.5 * np.abs(expected))
        if np.any(above):
            row = int(np.flatnonzero(above)[0])
            raise DataError(
                f"The expected log density of {name_of(likelihood)} is too large: at Y ="
                f" {Y[row, 0]:.4g} and f of mean {mean[row, 0]:.3g} and variance"
                f" {variance[row, 0]:.3g} it is {found[row]:.3g} nats, and {expected[row]:.3g} by"
                " quadrature of its log density. Check the signs in its _variational_expectations,"
                " or leave that method out."
            )


# ---
# Checks of data; of shapes also while tracing.


def infer_num_latent_gps(kernel: Kernel, likelihood: Likelihood, given: int | None) -> int:
    """L from argument, likelihood or kernel, else 1."""
    check_parts(kernel, likelihood)
    if given is not None:
        check_whole(1, num_latent_gps=given)
    # linear coregionalisation mixes L latents into P outputs: the likelihood then sees P, and says
    # nothing about L
    mixes = isinstance(kernel, LinearCoregionalization)
    claims = {
        "num_latent_gps": given,
        f"the likelihood {name_of(likelihood)}": None if mixes else likelihood.latent_dim,
        f"the kernel {type(kernel).__name__}": (
            kernel.num_latent_gps if isinstance(kernel, MultioutputKernel) else None
        ),
    }
    said = {source: int(value) for source, value in claims.items() if value is not None}
    if len(set(said.values())) > 1:
        raise DataError(
            "The number of latent functions is not consistent: "
            + ", ".join(f"{source} says {value}" for source, value in said.items())
            + "; change one of them."
        )
    return next(iter(said.values()), 1)


def check_num_data(num_data: object) -> None:
    """Raise `DataError` unless None, a tensor, or a whole number above 0."""
    if num_data is None or tf.is_tensor(num_data):
        return
    if is_whole(num_data, 1) or (
        isinstance(num_data, float) and num_data >= 1.0 and num_data.is_integer()
    ):
        return
    raise DataError(
        f"num_data={short_repr(num_data)} must be a whole number of at least 1, the rows of the"
        " whole data set; leave it out for fit to set it."
    )


def check_shapes_of_data(
    X: TensorType,
    Y: TensorType,
    likelihood: Likelihood,
    num_outputs: int,
    num_dims: int | None,
    dtype: tf.DType | None = None,
) -> None:
    """Check shapes and types, as far as known when tracing.

    X, an array, a tensor or a specification, must be [N, D] in `dtype`; Y [N, P], or integer or
    boolean.
    """
    for name, array in (("X", X), ("Y", Y)):
        rank = array.shape.rank if isinstance(array.shape, tf.TensorShape) else len(array.shape)
        if rank not in (2, None):
            fix = use_column(name) if rank == 1 else f"{name} must be a matrix"
            raise DataError(f"{name} has shape {tuple(array.shape)}; {fix}.")
        if rank == 2 and array.shape[1] == 0:
            raise DataError(f"{name} has no columns; pass a matrix with at least one.")
    check_same_rows(X, Y)
    check_type(Y, "Y", dtype, labels=True)
    check_type(X, "X", dtype)
    columns = observation_columns(likelihood, num_outputs)
    if columns is not None and Y.shape[1] is not None and Y.shape[1] != columns:
        of_classes = columns == 1 and num_outputs > 1  # one label for all latents of a row
        fix = (
            "classes are one column of numbers 0, 1, 2, ...: of columns that are 0 or 1 make it by"
            " np.argmax(Y, axis=1)[:, None]"
            if of_classes
            else f"pass num_latent_gps={Y.shape[1] - index_columns(likelihood)} to the model, or"
            " choose a column of Y"
        )
        raise DataError(
            f"Y has {Y.shape[1]} columns and the model expects {columns}"
            f" ({name_of(likelihood)} on {num_outputs} outputs); {fix}."
        )
    if num_dims is not None and X.shape[1] is not None and X.shape[1] != num_dims:
        raise DataError(
            f"X has {X.shape[1]} columns and the inducing points have {num_dims}; they must be the"
            " same inputs."
        )


def as_observations(Y: TensorType, likelihood: Likelihood, dtype: tf.DType) -> tf.Tensor:
    """Y [..., N, P] in the likelihood's type: integer for `Softmax`, else `dtype`."""
    if not reads_integers(likelihood):
        return tf.cast(Y, dtype)
    labels = known(Y)
    if labels is not None:
        check_labels(likelihood, labels)
    return tf.cast(Y, tf.int32)


def check_values(X: Array, Y: Array, likelihood: Likelihood, *readers: object) -> None:
    """Raise `DataError` for X [N, D], Y [N, P] without rows, non-finite, or outside the support.

    As `warn_of_values`, nothing where values are not known while a function is traced.

    :param readers: kernel and mean function, which may read columns of X as indices.
    """
    X, Y = known(X), known(Y)
    if X is None or Y is None:
        return
    if len(X) == 0:
        raise DataError("X and Y have no rows; there is nothing to learn from.")
    gaps = base_of(likelihood) is not likelihood
    check_finite_entries(X, "X")
    advice = ""
    if not gaps and with_gaps(likelihood, Y) is not likelihood:
        name = name_of(likelihood)
        advice = f", or pass likelihoods.RowLikelihood({name}(...)), which leaves out NaN in Y"
    check_finite_entries(np.where(np.isnan(Y), 0.0, Y) if gaps else Y, "Y", advice=advice)
    check_labels(likelihood, Y)
    check_densities(X, Y, likelihood)
    check_indices(X, "X", likelihood, *readers)


def check_reach(kernel: Kernel, X: np.ndarray, data: tf.Tensor) -> None:
    """Refuse new rows X [N*, D] with variances, or covariances with data, that are no numbers."""
    found = [
        part
        for (one,) in split_latents(kernel)
        for part in (one(X, full_cov=False), covariance(one, tf.constant(X), data[:1]))
    ]
    _check_found("X", X, found, "its covariance")


def check_new_sites(Y: np.ndarray, nu: TensorType, precision: TensorType) -> None:
    """Refuse new rows Y [N*, P] with sites [N*, L] that are no numbers."""
    _check_found("Y", Y, (nu, precision), "its site")


def _check_found(name: str, array: np.ndarray, found: Sequence[TensorType], what: str) -> None:
    fine = [np.isfinite(np.asarray(part)).reshape(len(array), -1).all(axis=1) for part in found]
    bad = np.flatnonzero(~np.all(fine, axis=0))
    if len(bad):
        raise DataError(
            f"{name}[{bad[0]}] is {short_repr(array[bad[0]].tolist())}, and {what} is not a number:"
            " nothing was changed. Scale the columns before the model is made, or drop such rows:"
            f" keep = np.nanmax(np.abs({name}), axis=1) < 1e100; X, Y = X[keep], Y[keep]."
        )


def warn_of_values(X: Array, Y: Array, likelihood: Likelihood) -> None:
    """Warn of unusual data X [N, D], Y [N, P]: a single row, constant columns."""
    X, Y = known(X), known(Y)
    if X is None or Y is None:
        return
    if len(Y) == 1:
        warn_user(
            "There is one observation (N = 1): the hyperparameters cannot be learned from it.",
        )
        return
    observed = Y[:, : Y.shape[1] - index_columns(likelihood)]
    for name, array, effect in (
        ("X", X, "it tells a stationary kernel nothing; leave it out."),
        ("Y", observed, "noise and kernel variances will shrink towards zero."),
    ):
        for column in np.flatnonzero(np.all(array == array[:1], axis=0)):
            warn_user(f"{name}[:, {column}] is constant: {effect}")


# ---


class CheckedPredictions(GPModel, abc.ABC):
    """A model whose `predict_*` refuse unusable inputs by a `DataError`."""

    starts_at_prior: bool = False
    """True if its optimizers may begin at the prior rather than at q."""

    @property
    @abc.abstractmethod
    def num_dims(self) -> int | None:
        """D, the columns of the inputs; None if any number will do."""

    @property
    def sizes(self) -> dict[str, int | str]:
        """Numbers of observations, or of points of each kind, by name."""
        return {"N": int(self.data[0].shape[0])}

    def __repr__(self) -> str:
        return model_line(self, **self.sizes)

    def _repr_html_(self) -> str:
        return short_table(super()._repr_html_())

    @property
    def float_type(self) -> tf.DType:
        """The dtype of the model's numbers."""
        return float_type(self.kernel)

    @abc.abstractmethod
    def checked(self, data: RegressionData) -> tuple[tf.Tensor, tf.Tensor]:
        """Data X [N, D] and Y [N, P] as tensors, values checked where known."""

    def inputs(self, Xnew: object, name: str = "Xnew") -> tf.Tensor:
        """Inputs [..., N, D] as a tensor of the model's dtype; `DataError` for unusable ones."""
        X = as_inputs(Xnew, name, self.num_dims, self.float_type)
        check_indices(X, name, self.kernel, self.mean_function, self.likelihood)
        return X

    def enough_memory(self, Xnew: InputData, full_cov: bool) -> AbstractContextManager[None]:
        """Within it, a lack of memory for predictions is an error that says what to do."""
        fix = (
            "leave out full_cov, or pass fewer rows at once"
            if full_cov
            else "pass fewer rows at once, or take a model that needs less for so many data, as"
            " gpflow_decoupled.build(X, Y) does"
        )
        return naming_memory(
            lambda: f"predictions of {self!r} at Xnew of shape {np.shape(Xnew)}: {fix}"
        )

    def predict_f_samples(
        self,
        Xnew: InputData,
        num_samples: int | None = None,
        full_cov: bool = True,
        full_output_cov: bool = False,
    ) -> tf.Tensor:
        """Draw f at Xnew [..., N, D]: [..., S, N, P], or [..., N, P] without `num_samples`."""
        if num_samples is not None and not tf.is_tensor(num_samples):
            check_whole(1, num_samples=num_samples)
        return super().predict_f_samples(self.inputs(Xnew), num_samples, full_cov, full_output_cov)

    def predict_y(
        self, Xnew: InputData, full_cov: bool = False, full_output_cov: bool = False
    ) -> MeanAndVariance:
        """Mean and variance of observations at Xnew [..., N, D]: [..., N, P] each."""
        X = self.inputs(Xnew)
        if full_cov or full_output_cov:
            return super().predict_y(X, full_cov, full_output_cov)  # GPflow's refusal
        return observation_moments(self.likelihood, X, *self.predict_f(X))

    def predict_log_density(
        self, data: RegressionData, full_cov: bool = False, full_output_cov: bool = False
    ) -> tf.Tensor:
        """Log predictive densities [..., N] in nats, at X [..., N, D] and Y [..., N, P]."""
        X, Y = self._held_out(data)
        if full_cov or full_output_cov:
            return super().predict_log_density((X, Y), full_cov, full_output_cov)
        mean, variance = self.predict_f(X)
        return observation_log_density(self.likelihood, X, mean, variance, Y)

    def _held_out(self, data: RegressionData) -> tuple[tf.Tensor, tf.Tensor]:
        X, Y = (as_array(array, name, self.float_type) for array, name in zip(as_pair(data), "XY"))
        X, Y = of_known_rank(X, self.num_dims), of_known_rank(Y)
        if len(X.shape) == 2:
            self.inputs(X, "X")
            return self.checked((X, Y))
        return self.inputs(X, "X"), as_observations(Y, self.likelihood, self.float_type)

    def moments(self, data: RegressionData | None = None) -> Moments:
        """Mean and variance of f under q at observations, [N, P] each.

        :param data: X [N, D] and Y [N, P]; None for a model that owns its data.
        """
        return Moments(*self.predict_f(self._observations(data)[0]))

    def expected_log_densities(
        self, moments: Moments, data: RegressionData | None = None, *, doublings: int = 0
    ) -> tf.Tensor:
        """E log p(y_n | f_n) [N] in nats, integrated as in the bound of this model.

        :param moments: of f at the observations, see `moments`.
        :param data: X [N, D] and Y [N, P]; None for a model that owns its data.
        :param doublings: how often the number of `resolution` is doubled.
        """
        X, Y = self._observations(data)
        likelihood = finer(self.likelihood, doublings)
        return expected_log_densities(likelihood, X, moments.mean, moments.variance, Y)

    @property
    def resolution(self) -> Resolution | None:
        """The number of nodes behind `expected_log_densities`; None for closed forms and draws."""
        number = nodes_of(self.likelihood)
        return None if number is None else Resolution("nodes", number)

    def _observations(self, data: RegressionData | None) -> RegressionData:
        own = getattr(self, "data", None) if data is None else data
        if own is None:
            raise DataError(f"{type(self).__name__} owns no data: pass data=(X, Y).")
        return own
