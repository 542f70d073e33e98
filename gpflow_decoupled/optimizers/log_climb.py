"""L-BFGS over hyperparameters, by default over their logarithms."""

from __future__ import annotations

__all__ = [
    "FAR", "LogCoordinates", "LogObjective", "SETTLED", "climb_logarithms", "coordinates_of",
    "with_gradients",
]  # fmt: skip

import itertools
import time
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import tensorflow as tf
from gpflow import Parameter
from gpflow.models import BayesianModel

from ..compilation import Compiled
from ..lbfgs import CONVERGED, TIME_IS_UP, LBFGSRun, Objective, lbfgs_ascent, settled
from ..probability import tfb, tfm
from ..replicas import Group

# ---
# Parameters as a vector for L-BFGS.


class LogCoordinates:
    """Trainable Parameters as one vector x [n]: positive ones by their logarithms.

    :param parameters: to move; shared ones are taken once.
    :param logarithms: False keeps every u.
    """

    # Large lengthscales hardly grow in GPflow's u. In
    #
    #     x = log softplus(u),     du/dx = softplus(u) / sigmoid(u)
    #
    # a step multiplies. Other Parameters, and variables without one, keep their u.

    def __init__(
        self, parameters: Iterable[Parameter | tf.Variable], logarithms: bool = True
    ) -> None:
        unique = {id(_variable_of(p)): p for p in parameters}
        self.variables = [_variable_of(p) for p in unique.values()]
        """Unconstrained variables, in the order of the vector."""
        self._logarithmic = [
            logarithms and isinstance(p, Parameter) and _is_softplus(p.transform)
            for p in unique.values()
        ]
        self._least = [
            _least(p) if logarithmic else 0.0
            for p, logarithmic in zip(unique.values(), self._logarithmic)
        ]
        plain = [_is_plain(p) for p in unique.values()]
        self.is_closed = all(a or b for a, b in zip(self._logarithmic, plain))
        """True if values are logarithms or the numbers themselves, so that `values` exist."""
        sizes = [int(np.prod(variable.shape)) for variable in self.variables]
        self._ends = np.cumsum(sizes)[:-1]
        self.is_log = np.repeat(self._logarithmic, sizes).astype(bool)
        """[n]: which entries are logarithms."""
        self.has_least = np.repeat([least > 0.0 for least in self._least], sizes).astype(bool)
        """[n]: which entries are logarithms of a Parameter above its least value, if not zero."""

    def pack(self) -> np.ndarray:
        """The vector [n] of the present values."""
        parts = [
            tf.math.log(tf.nn.softplus(u)) if logarithmic else tf.convert_to_tensor(u)
            for u, logarithmic in zip(self.variables, self._logarithmic)
        ]
        return _flat(parts)

    def assign(self, x: np.ndarray) -> None:
        """Set the variables to a vector [n]."""
        for u, part, logarithmic in zip(self.variables, self._split(x), self._logarithmic):
            value = tf.constant(part.reshape(u.shape), u.dtype)
            u.assign(tfm.softplus_inverse(tf.exp(value)) if logarithmic else value)

    def numbers(self) -> list[np.ndarray]:
        """The present numbers of the variables."""
        return [variable.numpy() for variable in self.variables]

    def restore(self, numbers: Sequence[np.ndarray]) -> None:
        """Give the variables exact earlier numbers, not by way of logarithms."""
        for variable, number in zip(self.variables, numbers):
            variable.assign(number)

    def gradient(self, gradients: Sequence[tf.Tensor]) -> np.ndarray:
        """Return the gradient [n] in x at the present values.

        :param gradients: by `variables`, one for each.
        """
        parts = [
            g * tf.nn.softplus(u) / tf.nn.sigmoid(u) if logarithmic else g
            for u, g, logarithmic in zip(self.variables, gradients, self._logarithmic)
        ]
        return _flat(parts)

    def values(self, x: np.ndarray) -> list[np.ndarray]:
        """The values of the Parameters at a vector [n], without setting them."""
        return [
            (least + np.exp(part) if logarithmic else part).reshape(u.shape)
            for u, part, logarithmic, least in zip(
                self.variables, self._split(x), self._logarithmic, self._least
            )
        ]

    def reader(
        self, parameters: Iterable[Parameter]
    ) -> Callable[[np.ndarray], Callable[[Parameter], np.ndarray]]:
        """Return x [n] -> Parameter -> its value there, without setting or reading a variable.

        :param parameters: those that may be asked for; fixed ones are read now.
        """
        # TFP's transforms take 8 ms for a Parameter's value, more than a gram of 500 rows
        moved = [id(variable) for variable in self.variables]
        rest = {id(p.unconstrained_variable): p for p in parameters}
        fixed = {key: p.numpy() for key, p in rest.items() if key not in moved}

        def at(x: np.ndarray) -> Callable[[Parameter], np.ndarray]:
            values = {**fixed, **dict(zip(moved, self.values(x)))}
            return lambda parameter: values[id(parameter.unconstrained_variable)]

        return at

    def gradient_by_parameters(
        self, x: np.ndarray, gradients: Iterable[tuple[Parameter, np.ndarray]]
    ) -> np.ndarray:
        """The gradient [n] in x at a vector [n].

        :param gradients: by values of Parameters; repeated ones are added, fixed ones left out.
        """
        sums = {id(u): np.zeros(u.shape) for u in self.variables}
        for parameter, gradient in gradients:
            if (key := id(parameter.unconstrained_variable)) in sums:
                sums[key] = sums[key] + gradient
        return self.gradient_by_values(x, list(sums.values()))

    def gradient_by_values(self, x: np.ndarray, gradients: Sequence[np.ndarray]) -> np.ndarray:
        """The gradient [n] in x at a vector [n].

        :param gradients: by `values`, one for each.
        """
        flat = _flat(gradients)
        return np.where(self.is_log, np.exp(np.where(self.is_log, x, 0.0)) * flat, flat)

    def _split(self, x: np.ndarray) -> list[np.ndarray]:
        return np.split(x, self._ends) if self.variables else []


def coordinates_of(
    module: tf.Module, variables: Iterable[tf.Variable], logarithms: bool = True
) -> LogCoordinates:
    """Coordinates of some variables of a module, by the Parameters that they belong to."""
    parts = module.submodules
    owners = {p.unconstrained_variable.ref(): p for p in parts if isinstance(p, Parameter)}
    moved = [owners.get(variable.ref(), variable) for variable in variables]
    return LogCoordinates(moved, logarithms)


def _variable_of(parameter: Parameter | tf.Variable) -> tf.Variable:
    return parameter.unconstrained_variable if isinstance(parameter, Parameter) else parameter


def _is_plain(parameter: Parameter | tf.Variable) -> bool:
    transform = parameter.transform if isinstance(parameter, Parameter) else None
    return transform is None or type(transform) is tfb.Identity


def _is_softplus(transform: tfb.Bijector | None) -> bool:
    first = transform.bijectors[-1] if isinstance(transform, tfb.Chain) else transform
    return isinstance(first, tfb.Softplus)


def _least(parameter: Parameter) -> float:
    return float(parameter.transform.forward(tf.constant(-1e4, parameter.dtype)))


def _flat(parts: Sequence[tf.Tensor | np.ndarray]) -> np.ndarray:
    flat = [np.asarray(part, dtype=np.float64).reshape(-1) for part in parts]
    return np.concatenate(flat) if flat else np.zeros(0)


# ---
# Nats as a function of log hyperparameters.


Evaluated = list[tf.Tensor]
"""A value in nats, and its gradient in each variable of some coordinates."""


class LogObjective:
    """A sum of terms, for `climb_logarithms`: a value and its gradient [n] at a vector [n].

    :param coordinates: of the vector.
    :param terms: evaluates the terms at the present Parameters, see `with_gradients`.
    :param group: the workers, which all use the first one's value and gradient.
    """

    def __init__(
        self,
        coordinates: LogCoordinates,
        terms: Callable[[], Iterable[Evaluated]],
        group: Group | None = None,
    ) -> None:
        self.coordinates, self.terms, self.group = coordinates, terms, group or Group()

    @classmethod
    def of_model(
        cls,
        model: BayesianModel,
        variables: Iterable[tf.Variable],
        density: Callable[[], tf.Tensor],
        compile: bool = False,
        *,
        group: Group | None = None,
        logarithms: bool = True,
    ) -> LogObjective:
        """A density and the model's log prior density, as a function of some of its variables.

        :param compile: trace both as graphs at the first call.
        :param logarithms: see `LogCoordinates`.
        """
        coordinates = coordinates_of(model, variables, logarithms)
        both = density, model.log_prior_density
        terms = [with_gradients(one, coordinates, compile=compile, group=group) for one in both]
        return cls(coordinates, lambda: (term() for term in terms), group)

    def __call__(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        self.coordinates.assign(x)
        value, *gradients = (sum(same) for same in zip(*self.terms()))
        own = np.append(float(value), self.coordinates.gradient(gradients))
        agreed = self.group.of_first(tf.constant(own)).numpy()
        return float(agreed[0]), agreed[1:]


def with_gradients(
    density: Callable[..., tf.Tensor],
    coordinates: LogCoordinates,
    *,
    compile: bool = False,
    group: Group | None = None,
) -> Callable[..., Evaluated]:
    """A function with the same arguments that returns the density and its gradients.

    :param density: returns nats [].
    :param compile: trace density and gradient as one graph.
    :param group: its replicas' copies of a variable count as one.
    """
    watched = [(group or Group()).parts_of(variable) for variable in coordinates.variables]

    def evaluated(*arguments: tf.Tensor) -> Evaluated:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(watched)
            value = density(*arguments)
        zero = tf.UnconnectedGradients.ZERO
        gradients = tape.gradient(value, watched, unconnected_gradients=zero)
        return [value, *(tf.add_n(of_copies) for of_copies in gradients)]

    return Compiled(evaluated) if compile else evaluated


# ---


FAR = 12.0
"""Most that a logarithm moves in a climb: what is irrelevant goes far, and not to overflow."""
SETTLED = 1e-5
"""Nats per row of data that are worth three more iterations where rows are sampled."""


def climb_logarithms(
    objective: Objective,
    coordinates: LogCoordinates,
    num_data: int,
    *,
    evaluations: int,
    rise: np.ndarray | float = np.inf,
    fall: np.ndarray | float = FAR,
    deadline: float = float("inf"),
    show: Callable[[str], object] | None = None,
    name: str = "L-BFGS",
    tolerance: float = SETTLED,
    window: int = 3,
    keep: bool = True,
    group: Group | None = None,
    matrix: str = "K_cc",
    shift: float = 0.0,
) -> LBFGSRun:
    """Climb from the present Parameters, and leave them at the best point.

    :param objective: nats and their gradient at a vector [n], see `LogObjective`.
    :param coordinates: of the vector.
    :param num_data: N: L-BFGS sees nats per row.
    :param evaluations: approximate limit.
    :param rise: most that entries of the vector rise, one number or [n].
    :param fall: most that logarithms fall, one number or [n].
    :param deadline: a value of `time.perf_counter`: no iteration begins that would end later.
    :param show: shows a line after each iteration, with `name`.
    :param tolerance: ends the climb where `window` iterations gained less, in nats per row of data.
    :param keep: an interrupt ends the climb with its best point instead of raising.
    :param group: the workers; the first one's clock counts.
    :param matrix: the one that an error names.
    :param shift: nats by which shown values are less, for data in other units.
    :return: the run, in nats; its reason may be "time is up".
    :raises NumericalError: if the objective is not finite at the start.
    """
    workers = group or Group()
    start, reach = coordinates.pack(), np.where(coordinates.is_log, FAR, np.inf)
    has_settled, total = settled(tolerance, window), itertools.count()

    last, is_late = [0.0], False  # seconds of the last evaluation

    def per_row(x: np.ndarray) -> tuple[float, np.ndarray]:
        began = time.perf_counter()
        value, gradient = objective(x)
        last[0] = time.perf_counter() - began
        return value / num_data, gradient / num_data

    def is_over(values: list[float]) -> bool:
        nonlocal is_late
        if has_settled(values):
            return True
        is_late = workers.is_over(deadline - last[0])
        return is_late

    def report(value: float, _: int) -> None:
        if show is not None:
            show(f"{name}, iteration {next(total)}, {value * num_data - shift:.6g} nats")

    run = lbfgs_ascent(
        per_row,
        start,
        is_over,
        evaluations,
        low=start - np.where(coordinates.is_log, fall, np.inf),
        high=start + np.minimum(reach, rise),
        record=report,
        keep=keep,
        advice="standardise X and Y, or start from a larger noise variance.",
        matrix=matrix,
        flat=tolerance,
    )
    coordinates.assign(run.x)
    if is_late and run.reason == CONVERGED:  # to L-BFGS both are an end that was asked for
        run = run._replace(converged=False, reason=TIME_IS_UP)
    nats = {name: getattr(run, name) * num_data for name in ("value", "start", "rise")}
    return run._replace(**nats)
