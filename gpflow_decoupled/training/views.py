"""Kernel, likelihood and inducing points of a model of standardised data in its units."""

from __future__ import annotations

__all__ = [
    "ParameterView", "inducing_in_units", "kernel_in_units",
    "likelihood_in_units", "view_of",
]  # fmt: skip

import copy
import functools
from collections.abc import Mapping
from typing import Any, TypeVar

import gpflow
import numpy as np
import numpy.typing as npt
import tensorflow as tf
from gpflow.base import TensorData
from gpflow.inducing_variables import (
    InducingPoints,
    InducingVariables,
    MultioutputInducingVariables,
)
from gpflow.kernels import (
    Kernel,
    LinearCoregionalization,
    MultioutputKernel,
    Product,
    SeparateIndependent,
    SharedIndependent,
    Static,
    Sum,
)
from gpflow.likelihoods import Likelihood

from ..covariances.latents import SharedAndOwn
from ..covariances.stationary import reads_scaled_inputs
from ..errors import DataError, ModelError
from ..likelihoods.facts import (
    base_of,
    has_log_scale,
    is_gaussian,
    name_of,
    noise_parameter,
)
from ..probability import tfb, tfu
from .standardization import NormalScores, Standardization

# ---
# Parameters in other units, sharing their variable.


Part = TypeVar("Part", bound=tf.Module)


class ParameterView(gpflow.Parameter):
    """A Parameter times a factor plus an offset, of the same value, flag and variable.

    :param inside: the Parameter that trains.
    :param factor: positive; a scalar `inside` and a factor [D] make a view [D].
    :param offset: for inputs, which are centred before they are scaled.
    """

    def __init__(
        self,
        inside: gpflow.Parameter,
        factor: npt.ArrayLike,
        name: str,
        offset: npt.ArrayLike = 0.0,
    ) -> None:
        scale, shift = (np.asarray(x, inside.dtype.as_numpy_dtype) for x in (factor, offset))
        own = tfb.Identity() if inside.transform is None else inside.transform
        to_units = [tfb.Scale(tf.constant(scale)), own]
        tfu.TransformedVariable.__init__(
            self,
            None,
            tfb.Chain([tfb.Shift(tf.constant(shift)), *to_units] if np.any(shift) else to_units),
            dtype=inside.dtype,
            name=name,
            pretransformed_input=inside.unconstrained_variable,
        )
        self._shape = tf.TensorShape(np.broadcast_shapes(tuple(inside.shape), scale.shape))
        self._own, self._factor, self._offset = own, scale, shift
        self.prior_on = "constrained"

    def __deepcopy__(self, memo: dict[int, object]) -> gpflow.Parameter:
        positive = isinstance(self._own, (tfb.Softplus, tfb.Chain))
        transform = gpflow.utilities.positive() if positive else self._own
        memo[id(self)] = plain = gpflow.Parameter(
            self.numpy(), transform=transform, trainable=self.trainable, dtype=self.dtype
        )
        return plain

    @property
    def prior(self) -> None:
        """None: a prior belongs to the Parameter that trains."""
        return None

    @prior.setter
    def prior(self, value: object) -> None:
        raise ModelError(
            f"{self.name} is in the units of the data, where a prior would have no effect: set it"
            " on the Parameter of standardised data, for example"
            " model.model.kernel.lengthscales.prior."
        )

    def assign(
        self,
        value: TensorData,
        use_locking: bool = False,
        name: str | None = None,
        read_value: bool = True,
    ) -> tf.Tensor:
        """Set the Parameter that trains, so that this is `value`.

        :raises DataError: where several numbers stand for one Parameter and disagree.
        """
        shape = tuple(self.unconstrained_variable.shape)
        given = np.broadcast_to(np.asarray(value, self._factor.dtype), self.shape)
        values = (given - self._offset) / self._factor
        if values.shape != shape:
            if np.ptp(values) > 1e-6 * np.max(np.abs(values)):
                shown = ", ".join(f"{number:.6g}" for number in self._factor.reshape(-1)[:6])
                raise DataError(
                    f"{self.name} is a single number in standardised data, and its values in units"
                    f" are multiples of {shown}: assign such, or build the model with a Parameter"
                    " for each column."
                )
            values = np.full(shape, values.reshape(-1)[0])
        found = self._own.inverse(tf.constant(values, self.dtype))
        tf.debugging.assert_all_finite(found, f"{self.name} cannot be {value}.")
        return self.unconstrained_variable.assign(
            found, use_locking=use_locking, name=name, read_value=read_value
        )


def view_of(part: Part, attributes: Mapping[str, object]) -> Part:
    """A kernel or likelihood that shares everything with `part` except some attributes.

    It refuses new attributes, which would not reach `part`; deep copies are independent.

    :param part: stays unchanged.
    :param attributes: by name, replacing the attributes of `part`.
    """
    # not by setattr: the lists by which TensorFlow tracks variables are shared with `part`
    kind: Any = type(part)
    view: Part = object.__new__(_view_type(kind))
    vars(view).update({**vars(part), **attributes})
    return view


@functools.cache
def _view_type(kind: Any) -> Any:
    def refuse(self: Any, name: str, value: object) -> None:
        if name.startswith("_"):  # TensorFlow's own
            return object.__setattr__(self, name, value)
        raise ModelError(
            f"{kind.__name__}.{name} is a view of the model in the units of the data, and replacing"
            f" it would have no effect: use .{name}.assign(...), or set {name} of that part of"
            " model.model, of standardised data."
        )

    def deep_copy(self: Any, memo: dict[int, object]) -> Any:
        plain: Any = object.__new__(kind)
        memo[id(self)] = plain
        for name, value in vars(self).items():
            if not name.startswith("_self_"):  # TensorFlow's own, made again by setattr
                setattr(plain, name, copy.deepcopy(value, memo))
        return plain

    methods = {"__setattr__": refuse, "__deepcopy__": deep_copy, "__module__": kind.__module__}
    return type(kind.__name__, (kind,), methods)


# ---


_INSIDE = "; read `model.model`, whose parts belong to standardised data."


def kernel_in_units(
    kernel: Kernel,
    inputs: Standardization | NormalScores,
    outputs: Standardization | None,
    log_scale: bool = False,
) -> Kernel:
    """The kernel with lengthscales in units of X and a variance in units of Y.

    Its Parameters are `ParameterView`s of the kernel that trains. For stationary and static
    kernels, their sums and products, and any kernel of unscaled columns. Outputs of different scale
    have `SeparateIndependent` kernels, or a W in units of Y.

    :param kernel: of standardised data.
    :param inputs: of X [N, D].
    :param outputs: of Y [N, P]; None where Y has no scale.
    :param log_scale: another latent, the logarithm of a scale, varies alike in all units.
    :raises ModelError: for another kernel of scaled columns, and for ranks of X.
    """
    if isinstance(inputs, NormalScores):
        raise ModelError(f"A kernel of the ranks of X has no form in units{_INSIDE}")
    scales = np.ones(1) if outputs is None else outputs.scale.numpy()
    scales = np.append(scales, 1.0) if log_scale else scales
    if isinstance(kernel, MultioutputKernel):
        return _of_outputs(kernel, inputs, scales)
    if np.ptp(scales) == 0.0:
        return _converted(kernel, inputs, float(scales[0]) ** 2)
    return SeparateIndependent([_converted(kernel, inputs, float(s) ** 2) for s in scales])


def _of_outputs(kernel: MultioutputKernel, inputs: Standardization, scales: np.ndarray) -> Kernel:
    latents, count = list(kernel.latent_kernels), len(scales)
    mixes = isinstance(kernel, LinearCoregionalization)
    outputs = kernel.W.shape[0] if mixes else kernel.num_latent_gps
    if not mixes and not isinstance(kernel, (SharedIndependent, SeparateIndependent)):
        raise ModelError(f"A {type(kernel).__name__} has no known form in units{_INSIDE}")
    if count not in (1, outputs) or (count < outputs and scales[0] != 1.0):
        raise ModelError(
            f"{outputs} latent functions of {count} outputs have no common unit{_INSIDE}"
        )
    scales = np.broadcast_to(scales, [outputs])
    if not mixes:
        by_output = latents if isinstance(kernel, SeparateIndependent) else latents[:1] * outputs
        return SeparateIndependent(
            [_converted(one, inputs, s**2) for one, s in zip(by_output, scales.tolist())]
        )
    own = scales if isinstance(kernel, SharedAndOwn) else scales[:0]
    units = [1.0] * (len(latents) - len(own)) + own.tolist()
    parts = [_converted(one, inputs, s**2) for one, s in zip(latents, units)]
    name = "shared" if isinstance(kernel, SharedAndOwn) else "W"
    mixture = ParameterView(getattr(kernel, name), scales[:, None], name)
    return view_of(kernel, {"kernels": parts, name: mixture})


def _converted(kernel: Kernel, inputs: Standardization, variance: float) -> Kernel:
    if type(kernel) is Sum:
        return Sum([_converted(part, inputs, variance) for part in kernel.kernels])
    if type(kernel) is Product:
        first, *rest = kernel.kernels
        return Product(
            [_converted(first, inputs, variance), *(_converted(part, inputs, 1.0) for part in rest)]
        )
    scale, mean = (np.asarray(part)[_columns(kernel)] for part in (inputs.scale, inputs.mean))
    if isinstance(kernel, Static) or reads_scaled_inputs(kernel):
        parts = {"variance": ParameterView(kernel.variance, variance, "variance")}
        if not isinstance(kernel, Static):
            parts["lengthscales"] = ParameterView(
                kernel.lengthscales, _shared(scale), "lengthscales"
            )
        return view_of(kernel, parts)
    if np.any(scale != 1.0) or np.any(mean != 0.0):
        raise ModelError(f"A {type(kernel).__name__} of scaled X has no form in units{_INSIDE}")
    constant = gpflow.kernels.Constant(variance)
    gpflow.set_trainable(constant, False)
    return kernel if variance == 1.0 else Product([constant, kernel])


def _columns(kernel: Kernel) -> slice | np.ndarray:
    dims = kernel.active_dims
    return dims if isinstance(dims, slice) else np.asarray(dims)


def _shared(scale: np.ndarray) -> np.ndarray:
    return scale[0] if np.ptp(scale) == 0.0 else scale


def likelihood_in_units(likelihood: Likelihood, outputs: Standardization | None) -> Likelihood:
    """The likelihood with noise in units of Y, by `ParameterView`s; without a scale of Y itself.

    :param likelihood: of standardised Y.
    :param outputs: of Y [N, P].
    :raises ModelError: for noise that depends on the inputs, or on the output in other forms.
    """
    if outputs is None or has_log_scale(likelihood):
        return likelihood
    if (base := base_of(likelihood)) is not likelihood:
        return view_of(likelihood, {"likelihood": likelihood_in_units(base, outputs)})
    name, scale = noise_parameter(likelihood), _shared(outputs.scale.numpy())
    if name is None:
        raise ModelError(f"A {name_of(likelihood)} is not known in other units{_INSIDE}")
    scale = np.square(scale) if name == "variance" else scale
    old = getattr(likelihood, name)
    if not isinstance(old, gpflow.Parameter):
        raise ModelError(f"Noise that depends on the inputs has no form in units{_INSIDE}")
    attributes: dict[str, object] = {name: ParameterView(old, scale, name)}
    if is_gaussian(likelihood):  # its least variance is in standardised units
        attributes |= {"variance_lower_bound": 0.0, "scale_lower_bound": 0.0}
    return view_of(likelihood, attributes)


def inducing_in_units(
    points: InducingVariables, inputs: Standardization | NormalScores
) -> InducingVariables:
    """The inducing points with places Z [M, D] in units of X, views of those that train.

    Those of several outputs are views part by part.

    :param points: of standardised data.
    :param inputs: of X [N, D].
    :raises ModelError: for ranks of X, and for inducing variables without places.
    """
    if isinstance(inputs, NormalScores):
        raise ModelError(f"Inducing points among ranks of X have no form in units{_INSIDE}")
    if isinstance(points, MultioutputInducingVariables):
        parts = [inducing_in_units(part, inputs) for part in points.inducing_variables]
        shared = hasattr(points, "inducing_variable")
        attribute = {"inducing_variable": parts[0]} if shared else {"inducing_variable_list": parts}
        return view_of(points, attribute)
    if type(points) is not InducingPoints:
        raise ModelError(f"{type(points).__name__} has no known form in units{_INSIDE}")
    places = ParameterView(points.Z, np.asarray(inputs.scale), "Z", np.asarray(inputs.mean))
    return view_of(points, {"Z": places})
