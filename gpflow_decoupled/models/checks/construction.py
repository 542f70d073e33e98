"""Checks of a model's parts."""

from __future__ import annotations

__all__ = [
    "check_kernel",
    "check_likelihood",
    "check_mean_function",
    "check_parts",
    "refuse_gradient",
    "refuse_replicas",
    "refuse_variables",
]

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import tensorflow as tf
from gpflow.base import Parameter
from gpflow.config import default_float
from gpflow.functions import Function, MeanFunction
from gpflow.kernels import ArcCosine, ChangePoints, Combination, Kernel, MultioutputKernel
from gpflow.likelihoods import Likelihood, Ordinal
from gpflow.models import GPModel

from ...errors import DataError, ModelError
from ...inputs import as_pair, float_type

_ARD = ("lengthscales", "weight_variances", "variance")
"""Attributes with numbers per column in GPflow's kernels; the first found counts."""


def check_likelihood(likelihood: object) -> None:
    """Raise `DataError` for anything but a likelihood."""
    _check_kind("likelihood", likelihood, Likelihood, "gpflow.likelihoods.Gaussian()")
    if isinstance(likelihood, Ordinal):
        raise DataError(
            "GPflow's Ordinal subtracts infinite bin edges; TensorFlow's erf of infinity is NaN,"
            " and so are its bounds. Pass gpflow_decoupled.likelihoods.Ordinal(bin_edges), the same"
            " likelihood."
        )


def check_parts(kernel: object, likelihood: object) -> None:
    """Raise `DataError` for anything but a kernel and a likelihood, in this order."""
    if isinstance(kernel, Likelihood) and isinstance(likelihood, Kernel):
        raise DataError(
            f"kernel is the likelihood {type(kernel).__name__} and likelihood the kernel"
            f" {type(likelihood).__name__}; swap them: the kernel comes first."
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
        if not type(part).__module__.startswith("gpflow.") or ard is None or ard.shape.rank != 1:
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
