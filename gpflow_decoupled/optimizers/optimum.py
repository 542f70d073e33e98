"""The best q in closed form for models with Gaussian noise: the checks of model and likelihood; the basis does the rest.

The equations, (D26)-(D33), are in `bases/parts/optimum.py`.
"""

from __future__ import annotations

__all__ = ["Optimum", "collapsed_elbo", "optimal_parameters"]

import tensorflow as tf
from gpflow.base import RegressionData
from gpflow.kernels import LinearCoregionalization
from gpflow.likelihoods import Gaussian as GaussianNoise
from gpflow.models import SVGP

from ..bases import OptimalParameters, Regression
from ..errors import ModelError
from ..models import BasisGP
from .natural_gradient.evaluation import as_basis_model


class Optimum(OptimalParameters):
    """The best q of a model for its hyperparameters as they are, and the bound there.

    The fields are those of `bases.OptimalParameters`: the scalar `elbo`, the mean `coefficients` [M_gamma, L] or None, and the
    whitened `gaussians`, means [M, L] and roots [L, M, M]. Example::

        optimum = optimal_parameters(model, (X, Y))
        optimum.assign(model)
        np.testing.assert_allclose(model.elbo((X, Y)), optimum.elbo)
    """

    __slots__ = ()

    def assign(self, model: BasisGP | SVGP) -> None:
        """Write the optimum to the Parameters of `model`, whose hyperparameters must be those it was computed for."""
        view = as_basis_model(model)
        view.basis.assign_optimum(view.kernel, self)


def optimal_parameters(model: BasisGP | SVGP, data: RegressionData) -> Optimum:
    """The best q(f) of a model with Gaussian noise, at fixed hyperparameters, in closed form.

    :param model: a model on inducing points whose basis has an optimum in closed form, or `gpflow.models.SVGP`.
    :param data: the whole data set, X [N, D] and Y [N, L].
    :return: the optimum, which `Optimum.assign` writes to the model.
    :raises ModelError: a `TypeError`, unless the likelihood is Gaussian with one noise variance, the latents are not mixed,
        and the basis has an optimum in closed form.

    Cost N (M_beta^2 + M_gamma^2) + M_beta^3 + M_gamma^3, memory N (M_beta + M_gamma). Example::

        model = ODVGP(gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian(0.1), gamma, beta)
        optimal_parameters(model, (X, Y)).assign(model)
    """
    view = as_basis_model(model)
    return Optimum(*view.basis.optimal_parameters(view.kernel, _regression(view, data)))


def collapsed_elbo(model: BasisGP | SVGP, data: RegressionData) -> tf.Tensor:
    """The bound at the best q(f) for Gaussian noise, (D31) or (D33): a scalar in nats.

    It is differentiable in the hyperparameters and the points, so that it can be maximised in the place of the bound at a q
    that is trained too. Arguments, errors and cost are those of `optimal_parameters`. Example::

        loss = lambda: -collapsed_elbo(model, (X, Y))
        gpflow.optimizers.Scipy().minimize(loss, model.kernel.trainable_variables)
    """
    view = as_basis_model(model)
    return view.basis.collapsed_elbo(view.kernel, _regression(view, data))


def _regression(model: BasisGP, data: RegressionData) -> Regression:
    """The data less the mean function, and the noise variance, of a model that is checked."""
    if not isinstance(model.likelihood, GaussianNoise) or model.likelihood.variance is None:
        raise ModelError(
            "The optimum is in closed form only for a Gaussian likelihood with one noise variance, and this one is "
            f"{type(model.likelihood).__name__}; train the model with fit and its default optimizer."
        )
    if isinstance(model.kernel, LinearCoregionalization):
        raise ModelError(
            "The optimum is in closed form only for latents that are not mixed, and the kernel is a LinearCoregionalization; "
            "train the model with fit and its default optimizer."
        )
    X, Y = model.checked(data)
    return Regression(X, Y - model.mean_function(X), tf.convert_to_tensor(model.likelihood.variance))
