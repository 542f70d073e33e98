"""Scripts written for `gpflow.models.SVGP` run with another constructor: its names of Parameters,
and GPflow's own optimizers.

The steps are those of GPflow's notebooks on SVGP with minibatches and on natural gradients.
"""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_decoupled as gd

N, M = 60, 8
_RNG = np.random.default_rng(0)
X = _RNG.uniform(-1.0, 1.0, (N, 1))
Y = np.sin(6.0 * X) + 0.2 * _RNG.standard_normal((N, 1))
Z, GAMMA = np.linspace(-1.0, 1.0, M)[:, None], np.linspace(-0.9, 0.95, 5)[:, None]

CONSTRUCTORS = {
    "SVGP": lambda kernel, likelihood: gpflow.models.SVGP(kernel, likelihood, Z, num_data=N),
    "SparseCVIGP": lambda kernel, likelihood: gd.models.SparseCVIGP(
        kernel, likelihood, Z, num_data=N
    ),
    "ODVGP": lambda kernel, likelihood: gd.models.ODVGP(kernel, likelihood, GAMMA, Z, num_data=N),
    "HDVGP": lambda kernel, likelihood: gd.models.HDVGP(kernel, likelihood, GAMMA, Z, num_data=N),
    "BasisGP": lambda kernel, likelihood: gd.models.BasisGP(
        kernel, likelihood, gd.bases.CoupledBasis(Z), num_data=N
    ),
}


def _script(name: str) -> tuple[gpflow.models.GPModel, np.ndarray]:
    """Natural gradients of q(u) and Adam on the rest by GPflow's optimizers on minibatches; the
    losses of four steps.
    """
    model = CONSTRUCTORS[name](gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian(0.1))
    batches = iter(tf.data.Dataset.from_tensor_slices((X, Y)).repeat().batch(20))
    loss = model.training_loss_closure(batches, compile=False)
    gpflow.set_trainable(model.q_mu, False)
    gpflow.set_trainable(model.q_sqrt, False)
    gpflow.set_trainable(model.inducing_variable, False)
    natural, adam = (
        gpflow.optimizers.NaturalGradient(gamma=0.5),
        gpflow.keras.tf_keras.optimizers.Adam(0.01),
    )
    losses = []
    for _ in range(4):
        adam.minimize(loss, var_list=model.trainable_variables)
        natural.minimize(loss, var_list=[(model.q_mu, model.q_sqrt)])
        losses.append(float(model.training_loss((X, Y))))
    return model, np.array(losses)


@pytest.fixture(scope="module")
def theirs() -> np.ndarray:
    return _script("SVGP")[1]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["SparseCVIGP", "ODVGP", "HDVGP", "BasisGP"])
def test_the_natural_gradient_script_runs(name: str, theirs: np.ndarray) -> None:
    model, losses = _script(name)
    assert losses[-1] < losses[0]
    if name in ("SparseCVIGP", "BasisGP"):
        np.testing.assert_allclose(losses, theirs, rtol=1e-7)
    assert model.q_mu is model.basis.q_mu and model.q_sqrt is model.basis.q_sqrt
    assert model.inducing_variable is model.basis.beta
    assert sum(".q_mu" in path for path in gpflow.utilities.parameter_dict(model)) == 1


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", CONSTRUCTORS)
def test_the_notebook_on_natural_gradients_runs(name: str) -> None:
    """Its steps with an SVGP, in their order, compiled: one of length 1 on all data, minibatches,
    and in turns with Adam.
    """
    model = CONSTRUCTORS[name](gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian())
    model.likelihood.variance.assign(0.1)
    sgpr = gpflow.models.SGPR((X, Y), gpflow.kernels.Matern52(), Z, noise_variance=0.1)
    variational = [(model.q_mu, model.q_sqrt)]
    natural = gpflow.optimizers.NaturalGradient(gamma=1.0)
    natural.minimize(model.training_loss_closure((X, Y)), var_list=variational)
    best = float(sgpr.maximum_log_likelihood_objective())
    assert float(model.elbo((X, Y))) == pytest.approx(best, abs=1e-4), (
        "mean coefficients of zero: q(u) is all there is"
    )
    batches = iter(
        tf.data.Dataset.from_tensor_slices((X, Y)).prefetch(2).repeat().shuffle(N).batch(20)
    )
    loss, natural = (
        model.training_loss_closure(batches),
        gpflow.optimizers.NaturalGradient(gamma=0.1),
    )
    gpflow.set_trainable(model.q_mu, False)
    gpflow.set_trainable(model.q_sqrt, False)
    adam, before = gpflow.keras.tf_keras.optimizers.Adam(0.01), float(model.elbo((X, Y)))
    for _ in range(20):
        adam.minimize(loss, var_list=model.trainable_variables)
        natural.minimize(loss, var_list=variational)
    assert float(model.elbo((X, Y))) > before


def test_other_parameters_are_named() -> None:
    kernel, likelihood = gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian()
    model = gd.models.DVGP(kernel, likelihood, GAMMA, Z)
    assert not hasattr(model, "q_mu")
    with pytest.raises(
        AttributeError, match="DecoupledBasis has no q_mu; the Parameters of model.basis are "
    ):
        model.q_mu  # noqa: B018
    assert gd.models.DVGP(kernel, likelihood, GAMMA, Z, covariance="coupled").q_sqrt.shape == (
        1,
        M,
        M,
    )
