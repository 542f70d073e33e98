"""Kernel, likelihood and inducing points of a model of standardised data in its units."""

from __future__ import annotations

__all__ = ["has_log_scale", "inducing_in_units", "kernel_in_units", "likelihood_in_units"]

import gpflow
import numpy as np
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
from gpflow.likelihoods import (
    Gaussian,
    HeteroskedasticTFPConditional,
    Likelihood,
    StudentT,
)

from ...covariances.centring import reads_scaled_inputs
from ...covariances.shared_and_own import SharedAndOwn
from ...errors import ModelError
from ...likelihoods import AsymmetricLaplace, CensoredNormal, Laplace, RowLikelihood
from ...probability import tfb
from ..normal_scores import NormalScores
from ..standardization import Standardization
from .views import ParameterView, view_of

_INSIDE = "; read `model.model`, whose parts belong to standardised data."


def has_log_scale(likelihood: Likelihood) -> bool:
    """True if the last latent is the logarithm of the noise's scale, which has the units of Y."""
    base = likelihood.likelihood if isinstance(likelihood, RowLikelihood) else likelihood
    varies = isinstance(base, HeteroskedasticTFPConditional)
    return varies and isinstance(base.scale_transform, tfb.Exp)


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
    if isinstance(likelihood, RowLikelihood):
        return view_of(
            likelihood, {"likelihood": likelihood_in_units(likelihood.likelihood, outputs)}
        )
    scale = _shared(outputs.scale.numpy())
    name = "scale"
    if type(likelihood) is Gaussian and likelihood.variance is not None:
        name, scale = "variance", np.square(scale)
    elif not isinstance(
        likelihood, (Gaussian, StudentT, Laplace, AsymmetricLaplace, CensoredNormal)
    ):
        raise ModelError(f"A {type(likelihood).__name__} is not known in other units{_INSIDE}")
    old = getattr(likelihood, name)
    if not isinstance(old, gpflow.Parameter):
        raise ModelError(f"Noise that depends on the inputs has no form in units{_INSIDE}")
    attributes: dict[str, object] = {name: ParameterView(old, scale, name)}
    if isinstance(likelihood, Gaussian):  # its least variance is in standardised units
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
