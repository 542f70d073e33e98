"""The optimum in closed form: each basis against its reference, the chain of bounds, exact
regression, gradients.
"""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import likelihoods as gl
from numpy.testing import assert_allclose

from gpflow_decoupled.bases import (
    CoupledBasis,
    DecoupledBasis,
    HybridBasis,
    OrthogonalBasis,
    SolveBasis,
)
from gpflow_decoupled.errors import ModelError, NumericalError
from gpflow_decoupled.models import BasisGP
from gpflow_decoupled.optimizers import NaturalGradient, collapsed_elbo, optimal_parameters
from tests.bounds.registry import kernel_of, matern, numpy_kernel
from tests.optimizers.problems import BETA, GAMMA, NOISE, TREND, X, observations
from tests.reference import collapsed as col
from tests.reference import grams as gr

UNION = np.vstack([GAMMA, BETA])
Y = observations(gl.Gaussian(NOISE), 2)
BASES = {
    "coupled": lambda L, **o: CoupledBasis(BETA, L, **o),
    "inverse": lambda L, **o: DecoupledBasis(UNION, BETA, L, mean_scaling="whitened"),
    "decoupled": lambda L, **o: DecoupledBasis(UNION, BETA, L, covariance="coupled", **o),
    "hybrid": lambda L, **o: HybridBasis(GAMMA, BETA, L, mean_scaling="diagonal", **o),
    "orthogonal": lambda L, **o: OrthogonalBasis(GAMMA, BETA, L, **o),
    "solve": lambda L, **o: SolveBasis(GAMMA, BETA, L, **o),
}


@pytest.fixture(autouse=True)
def _next_to_no_jitter(_fresh_state: None) -> None:
    gpflow.config.set_default_jitter(1e-12)


def _model(name: str, latents: int = 1, kernel: Any = None, **options: Any) -> BasisGP:
    kernel = matern(1.3, 0.8) if kernel is None else kernel
    basis = BASES[name](latents, **options)
    return BasisGP(kernel, gl.Gaussian(NOISE), basis, mean_function=TREND, num_data=len(X))


def _rest(column: int) -> np.ndarray:
    return Y[:, column] - TREND(X).numpy()[:, 0]


def _reference(name: str, k: gr.Grams, y: np.ndarray) -> float:
    if name == "coupled":
        return col.sgpr_bound(k, y, NOISE)
    if name == "solve":
        return col.collapsed_solve(k, y, NOISE)
    return col.collapsed_orthogonal(k, y, NOISE)


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("whiten", [True, False])
@pytest.mark.parametrize("latents", [1, 2])
@pytest.mark.parametrize("name", BASES)
def test_bound_is_the_reference_and_is_reached(name, latents, whiten):
    """(D31), (D33): as a number, as the bound at the assigned Parameters, and no neighbour is
    better.
    """
    model, data = _model(name, latents, whiten=whiten), (X, Y[:, :latents])
    k = gr.build_grams(numpy_kernel(model.kernel, 0), X, BETA, GAMMA)
    expected = sum(_reference(name, k, _rest(column)) for column in range(latents))
    optimum = optimal_parameters(model, data)
    assert_allclose(optimum.elbo, expected, rtol=1e-8)
    optimum.assign(model)
    assert_allclose(model.elbo(data), expected, rtol=1e-8)
    points = {
        id(p)
        for part in ("beta", "gamma", "alpha")
        for p in getattr(model.basis, part, model.kernel).parameters
    }
    variables = [p.unconstrained_variable for p in model.basis.parameters if id(p) not in points]
    with tf.GradientTape() as tape:
        elbo = model.elbo(data)
    for gradient in tape.gradient(elbo, variables):
        assert_allclose(gradient, np.zeros(gradient.shape), atol=1e-4)


@pytest.mark.exhaustive
def test_each_latent_with_a_kernel_of_its_own_is_a_model_of_its_own():
    kernel, _ = kernel_of("separate")
    points = gpflow.inducing_variables.SharedIndependentInducingVariables
    beta, gamma = (points(gpflow.inducing_variables.InducingPoints(Z)) for Z in (BETA, GAMMA))
    basis = OrthogonalBasis(gamma, beta, 2)
    model = BasisGP(kernel, gl.Gaussian(NOISE), basis, mean_function=TREND, num_data=len(X))
    singles = [_model("orthogonal", kernel=part) for part in kernel.kernels]
    expected = sum(float(collapsed_elbo(m, (X, Y[:, i : i + 1]))) for i, m in enumerate(singles))
    optimum = optimal_parameters(model, (X, Y))
    assert_allclose(optimum.elbo, expected, rtol=1e-9)
    optimum.assign(model)
    assert_allclose(model.elbo((X, Y)), expected, rtol=1e-8)


def _separate_points(kind: str) -> tuple[gpflow.kernels.Kernel, Any]:
    """Two latents that share kernel and points, neither, or one of the two."""
    kernel = kernel_of("separate")[0] if kind in ("kernels", "neither") else matern(1.3, 0.8)
    points = [gpflow.inducing_variables.InducingPoints(Z) for Z in (BETA, BETA + 0.3)]
    if kind in ("points", "neither"):
        return kernel, gpflow.inducing_variables.SeparateIndependentInducingVariables(points)
    return kernel, gpflow.inducing_variables.SharedIndependentInducingVariables(points[0])


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("kind", ["both", "kernels", "points", "neither"])
def test_coupled_bound_and_its_gradient_in_closed_form(kind):
    """Those of a GPflow SGPR for each latent, whatever the latents share; in kernel, points, noise
    and observations.
    """
    kernel, beta = _separate_points(kind)
    model, y = (
        BasisGP(kernel, gl.Gaussian(NOISE), CoupledBasis(beta, 2), num_data=len(X)),
        tf.constant(Y),
    )
    kernels = kernel.kernels if kind in ("kernels", "neither") else [kernel] * 2
    sets = [BETA, BETA + 0.3] if kind in ("points", "neither") else [BETA] * 2
    # Parameters of one object, so that gradients of what is shared add up
    points = [
        gpflow.Parameter(Z) for Z in (sets if kind in ("points", "neither") else sets[:1])
    ] * 2
    shared = [
        *{p.ref(): p for p in kernel.trainable_variables}.values(),
        model.likelihood.variance.unconstrained_variable,
    ]
    ours = [*shared, *(p.unconstrained_variable for p in beta.parameters)]
    theirs = [*shared, *(p.unconstrained_variable for p in points[: len(beta.parameters)])]
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(y)
        bound = collapsed_elbo(model, (X, y))
        expected = tf.zeros([], tf.float64)
        for column, (k, Z) in enumerate(zip(kernels, points)):
            single = gpflow.models.SGPR(
                (X, Y[:, :1]), k, gpflow.inducing_variables.InducingPoints(BETA)
            )
            single.inducing_variable.Z, single.likelihood = Z, model.likelihood
            single.data = tf.constant(X), y[:, column : column + 1]
            expected += single.elbo()
    assert_allclose(bound, expected, rtol=1e-9)
    assert_allclose(optimal_parameters(model, (X, Y)).elbo, expected, rtol=1e-9)
    for mine, other in zip([y, *ours], [y, *theirs]):
        right = tape.gradient(expected, other)
        assert np.abs(right).max() > 1e-3
        assert_allclose(tape.gradient(bound, mine), right, rtol=1e-6, atol=1e-7)


def test_chain_of_bounds():
    """SGPR(beta) < orthogonal < SOLVE < SGPR(gamma and beta) < log p(y)."""
    y, kernel = (Y[:, :1] - TREND(X)).numpy(), matern(1.3, 0.8)

    def sgpr(Z: np.ndarray) -> float:
        return float(gpflow.models.SGPR((X, y), kernel, Z, noise_variance=NOISE).elbo())

    bounds = {
        name: float(collapsed_elbo(_model(name, kernel=kernel), (X, Y[:, :1]))) for name in BASES
    }
    exact = gpflow.models.GPR((X, y), kernel, noise_variance=NOISE).log_marginal_likelihood()
    chain = [sgpr(BETA), bounds["orthogonal"], bounds["solve"], sgpr(UNION), float(exact)]
    assert np.all(np.diff(chain) > 1e-3)
    assert_allclose(bounds["coupled"], chain[0], rtol=1e-8)
    for name in ("inverse", "decoupled", "hybrid"):  # their mean points span the same space
        assert_allclose(bounds[name], bounds["orthogonal"], rtol=1e-7)


@pytest.mark.exhaustive
@pytest.mark.parametrize("latents", [1, 2])
def test_mean_points_at_the_inducing_points_give_sgpr(latents):
    kernel = matern(1.3, 0.8)
    y = (Y[:, :latents] - TREND(X)).numpy()
    expected = gpflow.models.SGPR((X, y), kernel, BETA, noise_variance=NOISE).elbo()
    for covariance in ("inverse", "coupled"):
        basis = DecoupledBasis(BETA, BETA, latents, covariance=covariance)
        model = BasisGP(kernel, gl.Gaussian(NOISE), basis, num_data=len(X))
        assert_allclose(collapsed_elbo(model, (X, y)), expected, rtol=1e-7)


def test_inducing_points_at_the_data_give_the_exact_posterior():
    kernel, data = matern(1.3, 0.8), (X, Y[:, :1])
    exact = gpflow.models.GPR(data, kernel, mean_function=TREND, noise_variance=NOISE)
    model = BasisGP(
        kernel, gl.Gaussian(NOISE), OrthogonalBasis(GAMMA, X), mean_function=TREND, num_data=len(X)
    )
    optimum = optimal_parameters(model, data)
    assert_allclose(optimum.elbo, exact.log_marginal_likelihood(), rtol=1e-8)
    optimum.assign(model)
    Xnew = np.random.default_rng(0).normal(size=(5, 2))
    for left, right in zip(
        model.predict_f(Xnew, full_cov=True), exact.predict_f(Xnew, full_cov=True)
    ):
        assert_allclose(left, right, rtol=1e-6, atol=1e-8)


def test_mean_points_at_the_data_give_the_exact_mean():
    kernel, data = matern(1.3, 0.8), (X, Y[:, :1])
    exact = gpflow.models.GPR(data, kernel, mean_function=TREND, noise_variance=NOISE)
    model = BasisGP(
        kernel, gl.Gaussian(NOISE), OrthogonalBasis(X, BETA), mean_function=TREND, num_data=len(X)
    )
    optimum = optimal_parameters(model, data)
    optimum.assign(model)
    Xnew = np.random.default_rng(0).normal(size=(5, 2))
    assert_allclose(model.predict_f(Xnew)[0], exact.predict_f(Xnew)[0], rtol=1e-7, atol=1e-8)
    assert np.abs(model.predict_f(Xnew)[1] - exact.predict_f(Xnew)[1]).max() > 1e-2
    K_x = numpy_kernel(kernel, 0)(X, X)
    weights = np.linalg.solve(K_x + NOISE * np.eye(len(X)), _rest(0))
    assert_allclose(optimum.coefficients[:, 0], weights, rtol=1e-6, atol=1e-7)
    Q_beta = gr.build_grams(numpy_kernel(kernel, 0), X, BETA, X).Q_x
    assert_allclose(
        optimum.elbo, col.elbo_at_coefficients(K_x, Q_beta, _rest(0), NOISE, weights), rtol=1e-9
    )


def test_any_coefficients_at_the_data_give_the_quadratic_of_cglb():
    """(D32): with q(u) at its best, after one natural-gradient step of size one."""
    kernel, v = matern(1.3, 0.8), np.random.default_rng(6).normal(size=len(X))
    basis = OrthogonalBasis(X, BETA, mean_scaling="none")
    basis.a_gamma.assign(v[:, None])
    model = BasisGP(kernel, gl.Gaussian(NOISE), basis, mean_function=TREND, num_data=len(X))
    NaturalGradient().minimize(model, (X, Y[:, :1]))
    K_x, k = numpy_kernel(kernel, 0)(X, X), gr.build_grams(numpy_kernel(kernel, 0), X, BETA, X)
    assert_allclose(
        model.elbo((X, Y[:, :1])),
        col.elbo_at_coefficients(K_x, k.Q_x, _rest(0), NOISE, v),
        rtol=1e-9,
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", BASES)
def test_gradient_by_finite_differences(name):
    """In hyperparameters and all points; and at the optimum it is that of the bound with q held
    fixed.
    """
    model, data = _model(name), (tf.constant(X), tf.constant(Y[:, :1]))
    variables = [
        p.unconstrained_variable for p in (*model.kernel.parameters, *model.likelihood.parameters)
    ]
    variables += [model.basis.beta.Z.unconstrained_variable]
    if name != "coupled":
        points = (
            model.basis.gamma if name in ("hybrid", "orthogonal", "solve") else model.basis.alpha
        )
        variables.append(points.Z.unconstrained_variable)
    value = tf.function(lambda: collapsed_elbo(model, data), autograph=False)
    with tf.GradientTape() as tape:
        bound = value()
    gradients = tape.gradient(bound, variables)
    for variable, gradient in zip(variables, gradients):
        flat, slopes = variable.numpy(), np.reshape(gradient.numpy(), -1)
        for entry in range(0, flat.size, 3):
            step = np.zeros(flat.size)
            step[entry] = 1e-5
            step = step.reshape(flat.shape)
            variable.assign(flat + step)
            up = value()
            variable.assign(flat - step)
            down = value()
            variable.assign(flat)
            assert_allclose(slopes[entry], (up - down) / 2e-5, rtol=1e-5, atol=1e-5)


def test_only_plain_gaussian_noise_has_a_closed_form():
    basis = OrthogonalBasis(GAMMA, BETA)
    varying = gl.Gaussian(scale=gpflow.functions.Linear(np.ones((2, 1)), np.ones(1)))
    for likelihood in (gl.Bernoulli(), varying):
        with pytest.raises(TypeError, match="Gaussian likelihood with one noise variance"):
            optimal_parameters(BasisGP(matern(1.0, 1.0), likelihood, basis), (X, Y[:, :1]))
    for noise, words in (
        (gl.Gaussian(gpflow.functions.Constant(NOISE)), "a Constant as its variance"),
        (gl.Gaussian(np.full((len(X), 1), NOISE)), r"an array of shape \(9, 1\) as its variance"),
        (varying, "a Linear as its scale"),
    ):
        with pytest.raises(
            ModelError, match=f"this one is Gaussian with {words} in the place of one number"
        ):
            collapsed_elbo(BasisGP(matern(1.0, 1.0), noise, basis), (X, Y[:, :1]))
    kernel = gpflow.kernels.LinearCoregionalization([matern(1.0, 1.0)], W=np.ones((2, 1)))
    points = gpflow.inducing_variables.SharedIndependentInducingVariables(
        gpflow.inducing_variables.InducingPoints(BETA)
    )
    with pytest.raises(TypeError, match="latents that are not mixed"):
        optimal_parameters(BasisGP(kernel, gl.Gaussian(), CoupledBasis(points)), (X, Y))


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize(
    "noise", [gl.Gaussian([NOISE]), gl.Gaussian([[NOISE]]), gl.Gaussian(scale=np.sqrt(NOISE))]
)
def test_noise_of_one_variance_may_be_an_array_or_a_scale(noise: gl.Gaussian) -> None:
    model, data = _model("coupled"), (X, Y[:, :1])
    expected = collapsed_elbo(model, data)
    model.likelihood = noise
    with tf.GradientTape() as tape:
        bound = collapsed_elbo(model, data)
    assert bound.shape == () and np.all(tape.gradient(bound, noise.trainable_variables[0]) != 0.0)
    optimum = optimal_parameters(model, data)
    optimum.assign(model)
    assert_allclose([bound, optimum.elbo, model.elbo(data)], expected, rtol=1e-9)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(8))
def test_in_single_precision_mean_points_that_beta_explains_do_no_harm(seed: int) -> None:
    """The residual kernel at gamma is then round-off, negative in places; the bound is the
    evidence, which beta reaches.
    """
    rng = np.random.default_rng(seed)
    inputs = rng.uniform(-150.0, 150.0, (20, 1)).astype(np.float32)
    outputs = (inputs / 100.0 + 0.3 * rng.standard_normal(inputs.shape)).astype(np.float32)
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32, jitter=1e-6)):
        kernel = gpflow.kernels.Linear(1e-4) + gpflow.kernels.Constant(1.0)
        basis = OrthogonalBasis(inputs[7:], inputs[:7], mean_scaling="none")
        model = BasisGP(kernel, gl.Gaussian(0.09), basis, num_data=20)
        bound = float(collapsed_elbo(model, (inputs, outputs)))
    K = 1e-4 * inputs.astype(float) @ inputs.astype(float).T + 1.0 + 0.09 * np.eye(20)
    evidence = -0.5 * (
        outputs[:, 0] @ np.linalg.solve(K, outputs[:, 0]) + np.linalg.slogdet(2.0 * np.pi * K)[1]
    )
    assert evidence - 5e-3 <= bound <= evidence + 1e-4, "the jitter costs some thousandths of a nat"


def _ill_conditioned(covariance: str) -> tuple[BasisGP, tuple[np.ndarray, np.ndarray]]:
    """A smooth kernel on thirty points of a line, whose K_beta is singular to round-off, and data
    that nearly fix q.
    """
    rng = np.random.default_rng(0)
    inputs = rng.uniform(size=(200, 1))
    outputs = np.sin(6.0 * inputs) + 0.1 * rng.standard_normal((200, 1))
    basis = DecoupledBasis(inputs[:30], np.linspace(0.0, 1.0, 30)[:, None], covariance=covariance)
    kernel = gpflow.kernels.SquaredExponential(lengthscales=0.3)
    return BasisGP(kernel, gl.Gaussian(0.01), basis, num_data=200), (inputs, outputs)


@pytest.mark.exhaustive
@pytest.mark.parametrize("size", [1e-6, 1e-10])
def test_the_inverse_form_is_found_where_its_prior_is_ill_conditioned(size: float) -> None:
    gpflow.config.set_default_jitter(size)
    bounds = []
    for covariance in ("inverse", "coupled"):
        model, data = _ill_conditioned(covariance)
        optimum = optimal_parameters(model, data)
        optimum.assign(model)
        bounds += [float(optimum.elbo), float(model.elbo(data))]
    assert_allclose(bounds, bounds[-1], rtol=1e-6)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "basis", [CoupledBasis(BETA), DecoupledBasis(UNION, BETA, mean_scaling="none")]
)
def test_what_cannot_be_factorised_is_named(basis: Any) -> None:
    """A prior that is not positive definite; in a graph, which has no values, the bound is not a
    number.
    """

    class Indefinite(gpflow.kernels.SquaredExponential):
        def K_r2(self, r2):
            return 1.0 + r2

    model, data = BasisGP(Indefinite(), gl.Gaussian(NOISE), basis), (X, Y[:, :1])
    for function in (optimal_parameters, collapsed_elbo):
        with pytest.raises(
            NumericalError, match=r"K_beta \(4 x 4\) is not positive definite"
        ) as info:
            function(model, data)
        assert info.value.matrix == "K_beta"
    assert np.isnan(tf.function(collapsed_elbo, autograph=False)(model, data))


def test_noise_that_is_too_small_is_named() -> None:
    model = _model("orthogonal")
    model.likelihood.variance = gpflow.Parameter(1e-320)
    with pytest.raises(
        NumericalError, match="K_beta can be factorised: the noise variance is .* larger noise"
    ) as info:
        optimal_parameters(model, (X, Y[:, :1]))
    assert info.value.matrix == "I + A A^T / s^2"


def test_all_parameters_are_written_or_none() -> None:
    for name, change in (("inverse", "chol_B"), ("orthogonal", "gaussians")):
        model = _model(name)
        optimum = optimal_parameters(model, (X, Y[:, :1]))
        before = [variable.numpy() for variable in model.variables]
        for spoilt in (lambda part: np.nan * part, lambda part: part[..., 1:]):
            bad = optimum._replace(
                **{change: tf.nest.map_structure(spoilt, getattr(optimum, change))}
            )
            with pytest.raises((NumericalError, ValueError, tf.errors.InvalidArgumentError)):
                bad.assign(model)
            for variable, value in zip(model.variables, before, strict=True):
                np.testing.assert_array_equal(variable.numpy(), value)
