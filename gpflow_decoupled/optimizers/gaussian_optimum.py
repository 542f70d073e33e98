"""The best q for Gaussian noise."""

from __future__ import annotations

__all__ = ["Optimum", "bound_at_optimum", "collapsed_elbo", "optimal_parameters", "regression"]

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.functions import Function
from gpflow.kernels import LinearCoregionalization
from gpflow.likelihoods import Likelihood
from gpflow.models import SVGP

from ..bases import OptimalParameters, Regression
from ..covariances.latents import gram_to_factor
from ..errors import ModelError, NumericalError
from ..likelihoods.facts import is_gaussian, name_of, noise_parameter
from ..likelihoods.parameters import single_noise_variance
from ..linalg.cholesky import unsound
from ..models import BasisGP
from .natural_steps import as_basis_model


class Optimum(OptimalParameters):
    """The best q of a model at its hyperparameters, and the bound there.

    Fields: `elbo`, mean `coefficients` [M_gamma, L] or None, whitened `gaussians`, means [M, L] and
    roots [L, M, M]. Example::

        optimum = optimal_parameters(model, (X, Y))
        optimum.assign(model)
        np.testing.assert_allclose(model.elbo((X, Y)), optimum.elbo)
    """

    __slots__ = ()

    def assign(self, model: BasisGP | SVGP) -> None:
        """Write the optimum to the Parameters of `model`, all or none.

        Raises `NumericalError` for an optimum that is not finite.
        """
        view = as_basis_model(model)
        view.basis.assign_optimum(view.kernel, self)


@tf.autograph.experimental.do_not_convert
def optimal_parameters(model: BasisGP | SVGP, data: RegressionData) -> Optimum:
    """Return the best q(f) of a model with Gaussian noise at fixed hyperparameters.

    Cost N (M_beta^2 + M_gamma^2) + M_beta^3 + M_gamma^3, memory N (M_beta + M_gamma).

    :param model: a model on inducing points whose basis has a closed form, or `gpflow.models.SVGP`.
    :param data: the whole data set, X [N, D] and Y [N, L].

    Example::

        model = ODVGP(gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian(0.1), gamma, beta)
        optimal_parameters(model, (X, Y)).assign(model)
    """
    view = as_basis_model(model)
    fixed = regression(view, data)
    found = Optimum(*view.basis.optimal_parameters(view.kernel, fixed))
    if view.bound != "classical":
        found = found._replace(elbo=found.elbo + tf.reduce_sum(view.row_gains(fixed.X)))
    _check_finite(view, fixed, [part for part in tf.nest.flatten(found) if part is not None])
    return found


@tf.autograph.experimental.do_not_convert
def collapsed_elbo(model: BasisGP | SVGP, data: RegressionData) -> tf.Tensor:
    """Return the bound at the best q(f) for Gaussian noise, a scalar in nats.

    Differentiable in hyperparameters and points. Arguments, errors and cost as in
    `optimal_parameters`. Example::

        loss = lambda: -collapsed_elbo(model, (X, Y))
        gpflow.optimizers.Scipy().minimize(loss, model.kernel.trainable_variables)
    """
    view = as_basis_model(model)
    fixed = regression(view, data)
    bound = bound_at_optimum(view, fixed)
    _check_finite(view, fixed, [bound])
    return bound


def bound_at_optimum(model: BasisGP, data: Regression) -> tf.Tensor:
    """The bound at the best q(f), nats [], unchecked: NaN where `collapsed_elbo` raises.

    :param model: with Gaussian noise of one variance.
    :param data: see `regression`.
    """
    if model.bound == "classical":
        return model.basis.collapsed_elbo(model.kernel, data)  # (D31) or (D33)
    bound, left = model.basis.collapsed_elbo_and_left(model.kernel, data)
    return bound + tf.reduce_sum(model.row_gains(data.X, left))


def regression(model: BasisGP, data: RegressionData) -> Regression:
    """X [N, D], Y [N, L] less the mean function, and noise variance, for `bound_at_optimum`.

    Raises the `ModelError`s of `optimal_parameters`.
    """
    noise = single_noise_variance(model.likelihood)
    if noise is None:
        raise ModelError(
            "The optimum is in closed form only for a Gaussian likelihood with one noise variance,"
            f" and this one is {_described(model.likelihood)}; train the model with fit and its"
            " default optimizer."
        )
    if isinstance(model.kernel, LinearCoregionalization):
        raise ModelError(
            "The optimum is in closed form only for latents that are not mixed, and the kernel is a"
            " LinearCoregionalization; train the model with fit and its default optimizer."
        )
    X, Y = model.checked(data)
    return Regression(X, Y - model.mean_function(X), noise)


def _described(likelihood: Likelihood) -> str:
    name, part = name_of(likelihood), noise_parameter(likelihood)
    if part is None or not is_gaussian(likelihood):
        return name
    value = getattr(likelihood, part)
    what = (
        f"a {type(value).__name__}"
        if isinstance(value, Function)
        else f"an array of shape {tuple(value.shape)}"
    )
    return f"{name} with {what} as its {part} in the place of one number"


def _check_finite(model: BasisGP, data: Regression, found: list[tf.Tensor]) -> None:
    if not tf.executing_eagerly() or all(np.all(np.isfinite(part)) for part in found):
        return
    matrices = {
        "K_beta": gram_to_factor(model.kernel, model.basis.beta),
        **model.basis.matrices(model.kernel),
    }
    # on a separate line: AutoGraph cannot read an assignment within an expression
    error = unsound(matrices)
    if error is not None:
        raise error
    raise NumericalError(
        f"The best q is not finite, though {' and '.join(matrices)} can be factorised: the noise"
        f" variance is {float(data.noise):.3g}, for which I + A A^T / s^2 or the matrix of the"
        " mean's coefficients cannot. Standardise X and Y, or set a larger noise variance.",
        matrix="I + A A^T / s^2",
    )
