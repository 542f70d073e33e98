"""GPflow's notebook on coregionalisation, with the constructor changed, and the trap of its
training call.
"""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
from numpy.testing import assert_allclose

import gpflow_decoupled as gd
from gpflow_decoupled.errors import ModelError

Data = tuple[np.ndarray, np.ndarray]


def _f(x: np.ndarray) -> np.ndarray:
    return np.sin(6.0 * x)


def _notebook_data() -> Data:
    """Two outputs, the second on half of the inputs; the last columns say which one."""
    rng = np.random.default_rng(0)
    X1, X2 = rng.random((30, 1)), 0.5 * rng.random((20, 1))
    Y1 = _f(X1) + 0.06 * rng.standard_t(3, X1.shape)
    Y2 = _f(X2 + 0.7) + 0.1 * rng.standard_t(3, X2.shape)
    X = np.vstack([np.hstack([X1, 0.0 * X1]), np.hstack([X2, 0.0 * X2 + 1.0])])
    return X, np.vstack([np.hstack([Y1, 0.0 * X1]), np.hstack([Y2, 0.0 * X2 + 1.0])])


def _notebook_model(data: Data) -> gd.models.CVIGP:
    coreg = gpflow.kernels.Coregion(output_dim=2, rank=1, active_dims=[1])
    coreg.W.assign(np.random.default_rng(1).random((2, 1)))
    return gd.models.CVIGP(
        data,
        kernel=gpflow.kernels.Matern32(active_dims=[0]) * coreg,
        likelihood=gpflow.likelihoods.SwitchedLikelihood(
            [gpflow.likelihoods.StudentT(), gpflow.likelihoods.StudentT()]
        ),
    )


@pytest.mark.parametrize("latents", [None, 1])
def test_the_index_column_is_no_output(latents: int | None) -> None:
    X, Y = _notebook_data()
    likelihood = gpflow.likelihoods.SwitchedLikelihood([gpflow.likelihoods.Gaussian()] * 2)
    model = gd.models.CVIGP((X, Y), gpflow.kernels.Matern32(), likelihood, num_latent_gps=latents)
    assert model.num_latent_gps == 1
    assert model.predict_log_density((X, Y)).shape == (50,)


@pytest.mark.exhaustive
def test_the_notebook() -> None:
    """It learns both functions."""
    model = _notebook_model(_notebook_data())
    gd.fit(model, progress=False, steps=60)
    x = np.linspace(0.0, 0.5, 20)[:, None]
    for output, shift in ((0.0, 0.0), (1.0, 0.7)):
        mean, _ = model.predict_f(np.hstack([x, np.full_like(x, output)]))
        assert np.sqrt(np.mean((mean - _f(x + shift)) ** 2)) < 0.15


OPTIMIZERS = [
    (gd.models.CVIGP, gd.optimizers.ConjugateComputation),
    (gd.models.LCLGP, gd.optimizers.LinearlyConstrainedLagrangian),
]


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind, method", OPTIMIZERS)
def test_gpflows_optimizer_is_no_training_of_sites(kind: type, method: type) -> None:
    """It ended with success, q the prior and a variance of 1e-6; after an optimizer of the sites it
    finds hyperparameters.
    """
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (20, 1))
    Y = np.sin(3.0 * X) + 0.1 * rng.normal(size=(20, 1))
    scipy = gpflow.optimizers.Scipy()
    model = kind((X, Y), gpflow.kernels.Matern52(), gpflow.likelihoods.StudentT())
    with pytest.raises(ModelError, match="GPflow's optimizers would fit the kernel to no data"):
        scipy.minimize(
            model.training_loss, model.trainable_variables, tf_fun_args={"autograph": False}
        )
    assert_allclose(model.kernel.variance, 1.0)
    method().run(model)
    before = float(model.elbo())
    scipy.minimize(
        model.training_loss,
        model.trainable_variables,
        options={"maxiter": 5},
        tf_fun_args={"autograph": False},
    )
    assert float(model.elbo()) > before
