"""Many outputs and inter-domain points, against `gpflow.models.SVGP`."""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.inducing_variables import (
    InducingPatches,
    InducingPoints,
    Multiscale,
    SeparateIndependentInducingVariables,
    SharedIndependentInducingVariables,
)
from gpflow.kernels import (
    Convolutional,
    LinearCoregionalization,
    SeparateIndependent,
    SharedIndependent,
)
from numpy.testing import assert_allclose

from gpflow_decoupled.bases import (
    CoupledBasis,
    DecoupledBasis,
    HybridBasis,
    OrthogonalBasis,
    SolveBasis,
)
from gpflow_decoupled.errors import DataError
from gpflow_decoupled.models import ODVGP, BasisGP
from tests.bounds.registry import matern, randomize

POINTS = 2.0 * np.random.default_rng(3).uniform(-1, 1, size=(17, 2))
BETA, OTHER_BETA, GAMMA, X = POINTS[:4], POINTS[4:8], POINTS[8:13], POINTS[13:]
W = np.random.default_rng(1).normal(size=(3, 2))
FLAGS = [(cov, output) for cov in (False, True) for output in (False, True)]
SHARED = lambda Z: SharedIndependentInducingVariables(InducingPoints(Z))  # noqa: E731
SEPARATE = lambda *Z: SeparateIndependentInducingVariables([InducingPoints(z) for z in Z])  # noqa: E731


def _kernels() -> list:
    return [matern(1.3, 0.8), matern(0.6, 1.4)]


SETTINGS: dict[str, tuple] = {  # kernel, inducing variable, number of outputs
    "one kernel": (lambda: matern(1.3, 0.8), lambda: InducingPoints(BETA), 2),
    "shared kernel": (lambda: SharedIndependent(matern(1.3, 0.8), 2), lambda: SHARED(BETA), 2),
    "separate kernels": (lambda: SeparateIndependent(_kernels()), lambda: SHARED(BETA), 2),
    "separate points": (
        lambda: SharedIndependent(matern(1.3, 0.8), 2),
        lambda: SEPARATE(BETA, OTHER_BETA),
        2,
    ),
    "separate both": (
        lambda: SeparateIndependent(_kernels()),
        lambda: SEPARATE(BETA, OTHER_BETA),
        2,
    ),
    "coregionalisation": (lambda: LinearCoregionalization(_kernels(), W), lambda: SHARED(BETA), 3),
    "coregionalisation, separate": (
        lambda: LinearCoregionalization(_kernels(), W),
        lambda: SEPARATE(BETA, OTHER_BETA),
        3,
    ),
}


def _pair(name: str, whiten: bool) -> tuple[BasisGP, gpflow.models.SVGP, int]:
    """Our coupled model and GPflow's, with the same random q and a mean function over the
    outputs.
    """
    make_kernel, make_points, outputs = SETTINGS[name]
    kernel, likelihood = make_kernel(), gpflow.likelihoods.Poisson()
    mean_function = gpflow.functions.Linear(np.ones((2, outputs)) / 3, np.arange(outputs) / 5.0)
    basis = CoupledBasis(make_points(), 2, whiten=whiten)
    randomize(basis, np.random.default_rng(0), 0.7)
    model = BasisGP(kernel, likelihood, basis, mean_function=mean_function, num_data=9)
    svgp = gpflow.models.SVGP(
        kernel,
        likelihood,
        make_points(),
        mean_function=mean_function,
        num_latent_gps=2,
        num_data=9,
        whiten=whiten,
        q_mu=basis.q_mu.numpy(),
        q_sqrt=basis.q_sqrt.numpy(),
    )
    return model, svgp, outputs


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize(
    "name, whiten",
    [(name, True) for name in SETTINGS]
    + [("coregionalisation, separate", False), ("one kernel", False)],
)
@tf.autograph.experimental.do_not_convert  # `tf.map_fn` of GPflow would convert all of GPflow
def test_coupled_model_is_svgp(name, whiten, rng):
    """The bound, its gradient, and predictions with all four kinds of covariance."""
    model, svgp, outputs = _pair(name, whiten)
    assert model.num_outputs == outputs
    data = (tf.constant(X), tf.constant(rng.poisson(1.0, size=(4, outputs)).astype(float)))
    values, gradients = [], []
    for m in (model, svgp):
        with tf.GradientTape() as tape:
            values.append(m.elbo(data))
        gradients.append(tape.gradient(values[-1], list(m.kernel.trainable_variables)))
    assert_allclose(values[0], values[1], rtol=1e-10)
    for left, right in zip(*gradients):
        assert_allclose(left, right, rtol=1e-8, atol=1e-9)
    Xnew = rng.normal(size=(5, 2))
    for full_cov, full_output_cov in FLAGS:
        expected = svgp.predict_f(Xnew, full_cov=full_cov, full_output_cov=full_output_cov)
        found = model.predict_f(Xnew, full_cov=full_cov, full_output_cov=full_output_cov)
        for left, right in zip(found, expected):
            assert left.shape == right.shape
            assert_allclose(left, right, rtol=1e-10, atol=1e-11)


@pytest.mark.exhaustive
@pytest.mark.parametrize("basis", [OrthogonalBasis, HybridBasis, SolveBasis, DecoupledBasis])
@pytest.mark.parametrize("name", ["separate both", "coregionalisation, separate"])
def test_each_latent_is_a_model_of_its_own(name, basis, rng):
    make_kernel, make_points, _ = SETTINGS[name]
    kernel = make_kernel()
    both = basis(SEPARATE(GAMMA, GAMMA + 0.1), make_points(), 2)
    both.refresh(kernel)
    randomize(both, rng)
    state = both.factor(kernel)
    mean, cov = both.mean_and_cov(state, kernel, X, full_cov=True)
    divergence = 0.0
    for latent, (part, beta) in enumerate(zip(kernel.kernels, (BETA, OTHER_BETA))):
        single = basis(GAMMA + 0.1 * latent, beta, 1)
        single.refresh(part)
        for name in ("q_mu", "v_mu", "a_gamma", "a"):
            if hasattr(both, name):
                getattr(single, name).assign(getattr(both, name)[:, latent : latent + 1])
        for name in ("q_sqrt", "v_sqrt", "chol_B"):
            if hasattr(both, name):
                getattr(single, name).assign(getattr(both, name)[latent : latent + 1])
        own_state = single.factor(part)
        own_mean, own_cov = single.mean_and_cov(own_state, part, X, full_cov=True)
        assert_allclose(mean[:, latent], own_mean[:, 0], rtol=1e-10, atol=1e-11)
        assert_allclose(cov[latent], own_cov[0], rtol=1e-10, atol=1e-11)
        divergence += single.prior_kl(own_state)
    assert_allclose(both.prior_kl(state), divergence, rtol=1e-10)


@pytest.mark.parametrize(
    "kernel", [SharedIndependent(matern(1.0, 1.0), 2), LinearCoregionalization(_kernels(), W)]
)
def test_fully_correlated_outputs_are_refused_with_the_fix(kernel):
    basis = CoupledBasis(InducingPoints(BETA), 2)
    model = BasisGP(kernel, gpflow.likelihoods.Gaussian(), basis, num_data=4)
    with pytest.raises(
        NotImplementedError,
        match="use gpflow.inducing_variables.SharedIndependentInducingVariables",
    ):
        model.elbo((X, np.ones((4, model.num_outputs))))


def test_arrays_are_shared_by_the_latents_of_a_multioutput_kernel():
    model = ODVGP(
        SeparateIndependent(_kernels()), gpflow.likelihoods.Gaussian(), GAMMA, BETA, num_data=4
    )
    assert isinstance(model.basis.beta, SharedIndependentInducingVariables)
    assert model.num_latent_gps == 2
    assert np.isfinite(model.elbo((X, np.ones((4, 2)))))


def test_numbers_of_kernels_and_points_must_agree():
    points = SEPARATE(BETA, OTHER_BETA, BETA + 1.0)
    basis = CoupledBasis(points, 2)
    with pytest.raises(DataError, match="come in different numbers: \\[2, 3\\]"):
        basis.factor(SeparateIndependent(_kernels()))


def _interdomain(name: str, rng: np.random.Generator) -> tuple[Any, Any, np.ndarray]:
    """A kernel, inter-domain points and inputs."""
    if name == "multiscale":
        return (
            gpflow.kernels.SquaredExponential(lengthscales=[0.8, 0.9]),
            Multiscale(BETA, np.full((4, 2), 0.3)),
            X,
        )
    kernel = Convolutional(gpflow.kernels.SquaredExponential(), [3, 3], [2, 2])
    return kernel, InducingPatches(rng.normal(size=(4, 4))), rng.normal(size=(5, 9))


@pytest.mark.exhaustive
@pytest.mark.parametrize("whiten", [True, False])
@pytest.mark.parametrize("name", ["multiscale", "patches"])
def test_interdomain_points_carry_the_covariance(name, whiten, rng):
    kernel, points, inputs = _interdomain(name, rng)
    Y = rng.normal(size=(len(inputs), 2))
    basis = CoupledBasis(points, 2, whiten=whiten)
    randomize(basis, rng)
    model = BasisGP(kernel, gpflow.likelihoods.Gaussian(), basis, num_data=9)
    svgp = gpflow.models.SVGP(
        kernel,
        model.likelihood,
        points,
        num_latent_gps=2,
        num_data=9,
        whiten=whiten,
        q_mu=basis.q_mu.numpy(),
        q_sqrt=basis.q_sqrt.numpy(),
    )
    assert_allclose(model.elbo((inputs, Y)), svgp.elbo((inputs, Y)), rtol=1e-10)
    for left, right in zip(
        model.predict_f(inputs, full_cov=True), svgp.predict_f(inputs, full_cov=True)
    ):
        assert_allclose(left, right, rtol=1e-9, atol=1e-10)


@pytest.mark.exhaustive
@pytest.mark.parametrize("scaling", ["none", "diagonal", "whitened"])
@pytest.mark.parametrize("name", ["multiscale", "patches"])
def test_plain_mean_points_beside_interdomain_points(name, scaling, rng):
    """What the mean gains is C(x, gamma) a, with C the residual of the inter-domain points."""
    kernel, points, inputs = _interdomain(name, rng)
    gamma = inputs[:3] + 0.1
    basis = OrthogonalBasis(gamma, points, mean_scaling=scaling)
    basis.refresh(kernel)
    randomize(basis, rng)
    K_b = gpflow.covariances.Kuu(points, kernel).numpy() + 1e-6 * np.eye(4)
    K_bg, K_bx = (gpflow.covariances.Kuf(points, kernel, Z).numpy() for Z in (gamma, inputs))
    state = basis.factor(kernel)
    a = basis.mean_coefficients(state).numpy()
    C_xg = kernel(inputs, gamma).numpy() - K_bx.T @ np.linalg.solve(K_b, K_bg)
    C_g = kernel(gamma).numpy() - K_bg.T @ np.linalg.solve(K_b, K_bg)
    coupled = CoupledBasis(points, 1, q_mu=basis.q_mu, q_sqrt=basis.q_sqrt)
    plain = coupled.factor(kernel)
    expected = coupled.mean_and_cov(plain, kernel, inputs)[0] + C_xg @ a
    assert_allclose(basis.mean_and_cov(state, kernel, inputs)[0], expected, rtol=1e-7, atol=1e-8)
    divergence = coupled.prior_kl(plain) + 0.5 * np.sum(a * (C_g @ a))
    assert_allclose(basis.prior_kl(state), divergence, rtol=1e-7)


def test_two_sets_of_interdomain_points_are_refused_with_the_fix(rng):
    kernel, points, _ = _interdomain("multiscale", rng)
    basis = OrthogonalBasis(Multiscale(GAMMA, np.full((5, 2), 0.3)), points, mean_scaling="none")
    with pytest.raises(
        NotImplementedError, match="make one of gamma and beta plain inducing points"
    ):
        basis.factor(kernel)
    sampled = HybridBasis(
        Multiscale(GAMMA, np.full((5, 2), 0.3)), BETA, mean_scaling="none", mean_subsample=2
    )
    with pytest.raises(
        NotImplementedError, match="mean_subsample needs plain inducing points, not Multiscale"
    ):
        sampled.factor(kernel)
