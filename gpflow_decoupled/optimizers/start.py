"""Hyperparameters from the data."""

# Adam moves a hyperparameter by its learning rate per step, too slowly from 1 to 80. An exact GP on
# some hundred random rows finds it in a second:
#
# 1. Guess: lengthscales sqrt(D) times the columns' standard deviations, or shorter ones where a
#    single kernel then has more evidence, the variance of Y for the kernel, a tenth of it for the
#    noise. Keep the guess if it explains the rows better.
# 2. Climb the log evidence of the rows by L-BFGS.
# 3. Add to the noise the mean variance that inducing points leave unexplained.

from __future__ import annotations

__all__ = ["Start", "check_parts", "initialize"]

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from gpflow import Parameter
from gpflow.functions import MeanFunction
from gpflow.inducing_variables import InducingPoints, InducingVariables
from gpflow.kernels import IsotropicStationary, Kernel, MultioutputKernel, Stationary
from gpflow.likelihoods import Likelihood

from ..covariances.latents import residual_diagonal
from ..covariances.mixed import spreads
from ..covariances.stationary import reads_scaled_inputs
from ..diagnostics import lengthscale_factor
from ..errors import DataError, ModelError, NumericalError
from ..inducing.variables import as_inducing, input_dims
from ..inputs import as_pair, as_values, check_whole
from ..interrupts import all_or_nothing
from ..likelihoods.facts import is_gaussian, name_of
from ..models import CVIGP
from ..models.neighbours.evidence import log_evidence_of
from ..summaries import html_table
from .log_climb import LogObjective, climb_logarithms

_EVALUATIONS = 30
"""Limit of evaluations of the log evidence; L-BFGS has most of its gain by then."""
_NOISE = 0.1
"""The share of the variance of Y that the guess takes for noise."""
_UNSEEN = 0.5
"""The same at shorter lengthscales, which see about half of the signal."""


@dataclass(frozen=True)
class Start:
    """The record of `initialize`; print it for one line.

    Example::

        start = initialize(kernel, likelihood, (X, Y))
        print(start.after - start.before, "nats higher")
    """

    rows: int
    """The number of random rows."""
    before: float
    """Log evidence of these rows in nats before; -inf where it could not be computed."""
    after: float
    """The same at the new values, before the noise was raised."""
    unexplained: float
    """Added to the noise variance: the mean variance that inducing points leave unexplained."""
    seconds: float
    """Wall-clock time."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self})"

    def _repr_html_(self) -> str:
        return html_table(type(self).__name__, asdict(self))

    def __str__(self) -> str:
        return (
            f"{self.rows} rows in {self.seconds:.1f} s, log evidence {self.before:.5g} before,"
            f" {self.after:.5g} after"
        )


def initialize(
    kernel: Kernel,
    likelihood: Likelihood,
    data: Sequence[npt.ArrayLike],
    *,
    mean_function: MeanFunction | None = None,
    beta: InducingVariables | npt.ArrayLike | None = None,
    rows: int = 500,
    seed: int = 0,
    deadline: float = float("inf"),
) -> Start:
    """Fit kernel, noise and mean function to some rows of the data, before a model is built.

    Fixed Parameters keep their values, and so do all if no better ones are found.
    `fit(initialize="auto")` calls it.

    :param kernel: a kernel of one output.
    :param likelihood: a `gpflow.likelihoods.Gaussian`.
    :param data: (X [N, D], Y [N, P]).
    :param mean_function: m_0(x); zero if not given.
    :param beta: inducing points, whose unexplained variance the noise then includes.
    :param rows: the largest number of random rows n.
    :param seed: of the rows.
    :param deadline: a value of `time.perf_counter` after which no iteration begins.

    Cost: some 100 n^3 operations. Example::

        kernel = gpflow.kernels.Matern52(lengthscales=[1.0, 1.0])
        likelihood = gpflow.likelihoods.Gaussian()
        print(initialize(kernel, likelihood, (X, Y)))
        model = gpflow.models.SVGP(kernel, likelihood, inducing.select(X, 300, kernel))
    """
    check_whole(2, rows=rows)
    check_whole(0, seed=seed)
    check_parts(kernel, likelihood)
    began = time.perf_counter()
    model = _exact_gp(kernel, likelihood, data, mean_function, rows, seed)
    points = None if beta is None else _checked_points(beta, model)
    density = log_evidence_of(model, model.data)
    of_q = {variable.ref() for variable in model.basis.trainable_variables}
    variables = [v for v in model.trainable_variables if v.ref() not in of_q]
    before, present = [variable.numpy() for variable in variables], _value(model, density)
    with all_or_nothing(variables):
        _guess(model)
        after = _value(model, density)
        # a guess may be worse than the caller's values; also where its evidence is NaN
        if not after > present:
            for variable, value in zip(variables, before):
                variable.assign(value)
            after = present
        if not np.isfinite(after):
            raise NumericalError(
                "Neither the hyperparameters nor a guess from the data have a finite evidence:"
                " standardise X and Y.",
                "K",
            )
        if variables:
            objective = LogObjective.of_model(model, variables, density)
            after = climb_logarithms(
                objective,
                objective.coordinates,
                len(model.data[0]),
                evaluations=_EVALUATIONS,
                deadline=deadline,
                keep=False,
                matrix="K",
            ).value
        unexplained = 0.0 if points is None else _raise_noise(model, points)
    return Start(len(model.data[0]), present, after, unexplained, time.perf_counter() - began)


def check_parts(kernel: Kernel, likelihood: Likelihood) -> None:
    """Raise `ModelError` for a multi-output kernel or a likelihood other than `Gaussian`."""
    if not is_gaussian(likelihood) or isinstance(kernel, MultioutputKernel):
        raise ModelError(
            "initialize is for one kernel and a Gaussian likelihood, and this is a"
            f" {type(kernel).__name__} with a {name_of(likelihood)}: set lengthscales to the"
            " size of the columns of X instead, or standardise X."
        )


def _checked_points(beta: InducingVariables | npt.ArrayLike, model: CVIGP) -> InducingVariables:
    points, dims = as_inducing(beta, "beta"), int(model.data[0].shape[1])
    if input_dims(points) != dims:
        raise DataError(
            f"beta has {input_dims(points)} columns and X has {dims}: choose beta by"
            " inducing.select(X, M, kernel)."
        )
    return points


def _exact_gp(
    kernel: Kernel,
    likelihood: Likelihood,
    data: Sequence[npt.ArrayLike],
    mean_function: MeanFunction | None,
    rows: int,
    seed: int,
) -> CVIGP:
    X, Y = (as_values(array, name) for array, name in zip(as_pair(data), "XY"))
    if X.ndim == Y.ndim == 2 and len(X) == len(Y) > rows:
        chosen = np.sort(np.random.default_rng(seed).choice(len(X), rows, replace=False))
        X, Y = X[chosen], Y[chosen]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of columns that are constant in these rows
        return CVIGP((X, Y), kernel, likelihood, mean_function=mean_function)


def _value(model: CVIGP, density: Callable[[], tf.Tensor]) -> float:
    value = float(density()) + float(model.log_prior_density())
    return value if np.isfinite(value) else -np.inf


def _guess(model: CVIGP) -> None:
    X, Y = (part.numpy() for part in model.data)
    left = Y - model.mean_function(X)
    variance = float(np.var(left))
    parts = dict.fromkeys((model.kernel, *model.kernel.submodules))
    kernels = [one for one in parts if isinstance(one, Stationary)]
    for kernel in kernels:
        _assign(kernel.variance, variance / len(kernels))
        if not reads_scaled_inputs(kernel):  # its lengthscales may have other units
            continue
        columns = spreads(kernel, np.asarray(kernel.slice(X)[0]))
        lengths = np.sqrt(len(columns)) * columns
        shape = kernel.lengthscales.shape
        _assign(
            kernel.lengthscales,
            np.broadcast_to(lengths, shape) if shape.rank else np.sqrt(np.mean(lengths**2)),
        )
    noise = _NOISE
    if isinstance(model.kernel, IsotropicStationary) and reads_scaled_inputs(model.kernel):
        lengths, factor = model.kernel.lengthscales, lengthscale_factor(model.kernel, X, left)
        _assign(lengths, lengths.numpy() * factor)
        noise = _NOISE if factor == 1.0 else _UNSEEN
    _assign(model.likelihood.variance, noise * variance)


def _assign(parameter: object, value: npt.ArrayLike) -> None:
    if isinstance(parameter, Parameter) and parameter.trainable and np.all(np.asarray(value) > 0.0):
        unconstrained = parameter.transform.inverse(
            tf.constant(value, parameter.dtype, shape=parameter.shape)
        )
        if np.all(np.isfinite(unconstrained)):
            parameter.unconstrained_variable.assign(unconstrained)


def _raise_noise(model: CVIGP, beta: InducingVariables) -> float:
    noise = model.likelihood.variance
    if not isinstance(noise, Parameter) or not noise.trainable:
        return 0.0
    left = float(
        tf.reduce_mean(residual_diagonal(model.kernel, beta, InducingPoints(model.data[0])))
    )
    _assign(noise, noise.numpy() + max(left, 0.0))
    return max(left, 0.0)
