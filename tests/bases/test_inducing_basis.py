"""What a basis promises: a closed-form optimum only where it defines one, and points for models
that need them.
"""

from __future__ import annotations

from typing import NamedTuple

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import likelihoods as gl
from numpy.testing import assert_allclose

from gpflow_decoupled.bases import (
    AffineIndependentBasis,
    Basis,
    CoupledBasis,
    DecoupledBasis,
    DualBasis,
    Features,
    GaussianPart,
    HybridBasis,
    InducingBasis,
    MeanOnDataBasis,
    OptimalParameters,
    OrthogonalBasis,
    Regression,
    SiteBasis,
    SolveBasis,
)
from gpflow_decoupled.bases.optimum import best_means
from gpflow_decoupled.covariances.latents import gram_to_data, gram_to_factor
from gpflow_decoupled.errors import DataError, ModelError
from gpflow_decoupled.inducing.variables import as_inducing, count_points
from gpflow_decoupled.linalg.whitening import whiten, whitener
from gpflow_decoupled.models import BasisGP
from gpflow_decoupled.optimizers import NaturalGradient, collapsed_elbo, optimal_parameters, sweep
from tests.bounds.registry import matern
from tests.optimizers.problems import BETA, GAMMA, NOISE, X, observations

Y = observations(gl.Gaussian(NOISE), 1)


class DiagonalState(NamedTuple):
    chol: tf.Tensor
    mean: tf.Tensor
    deviation: tf.Tensor
    ok: tf.Tensor
    tangent: tf.Tensor | None = None


class DiagonalBasis(InducingBasis):
    """The basis of the documentation: whitened inducing variables that are independent under q."""

    state_type = DiagonalState

    def __init__(self, beta: np.ndarray) -> None:
        super().__init__()
        self.beta = as_inducing(beta, "beta")
        self.num_latent_gps = 1
        shape = (count_points(self.beta), 1)
        self.q_mu = gpflow.Parameter(np.zeros(shape))
        self.q_deviation = gpflow.Parameter(np.ones(shape), transform=gpflow.utilities.positive())

    def matrices(self, kernel):
        return {"K_beta": gram_to_factor(kernel, self.beta)}

    def factor(self, kernel, *, rows=None, with_kl=True):
        chol, ok, tangent = whitener(gram_to_factor(kernel, self.beta))
        return DiagonalState(chol, self.q_mu + 0.0, self.q_deviation + 0.0, ok, tangent)

    def features(self, state, kernel, X):
        A = whiten(state.chol, state.tangent, gram_to_data(kernel, self.beta, X))
        mean = tf.matmul(A[0], state.mean, transpose_a=True)
        return Features(mean, (A,), (A * tf.transpose(state.deviation)[:, :, None],))

    def prior_kl(self, state):
        quadratic = tf.reduce_sum(state.mean**2 + state.deviation**2 - 1.0)
        return 0.5 * quadratic - tf.reduce_sum(tf.math.log(state.deviation))


class SolvedBasis(DiagonalBasis):
    """The same with its optimum: the means jointly, each deviation by itself."""

    def optimal_parameters(
        self, kernel: gpflow.kernels.Kernel, data: Regression
    ) -> OptimalParameters:
        state = self.factor(kernel)
        (A,) = self.features(state, kernel, data.X).minus
        (mean,) = best_means([A], data.y, data.noise)
        deviation = tf.math.rsqrt(1.0 + tf.reduce_sum(A**2, axis=-1) / data.noise)
        state = state._replace(mean=mean, deviation=tf.transpose(deviation))
        features = self.features(state, kernel, data.X)
        spread = (data.y - features.mean) ** 2 + self.variance(features, kernel, data.X)
        expected = -0.5 * tf.reduce_sum(tf.math.log(2.0 * np.pi * data.noise) + spread / data.noise)
        return OptimalParameters(
            expected - self.prior_kl(state), None, (GaussianPart(mean, tf.linalg.diag(deviation)),)
        )

    def assign_optimum(self, kernel, optimum):
        self.q_mu.assign(optimum.gaussians[0].mean)
        self.q_deviation.assign(tf.transpose(tf.linalg.diag_part(optimum.gaussians[0].root)))


def _model(basis: InducingBasis) -> BasisGP:
    return BasisGP(matern(1.3, 0.8), gl.Gaussian(NOISE), basis, num_data=len(X))


def test_a_basis_without_an_optimum_refuses():
    """And does not return that of the coupled basis, which is above what this basis can reach."""
    for function in (optimal_parameters, collapsed_elbo):
        with pytest.raises(
            ModelError, match="DiagonalBasis has no closed-form optimum: train the model with fit"
        ):
            function(_model(DiagonalBasis(BETA)), (X, Y))


def test_a_basis_provides_its_optimum():
    model = _model(SolvedBasis(BETA))
    optimum = optimal_parameters(model, (X, Y))
    coupled = collapsed_elbo(_model(CoupledBasis(BETA)), (X, Y))
    assert optimum.elbo < coupled - 1e-3
    optimum.assign(model)
    assert_allclose(model.elbo((X, Y)), optimum.elbo, rtol=1e-10)
    variables = [p.unconstrained_variable for p in (model.basis.q_mu, model.basis.q_deviation)]
    with tf.GradientTape() as tape:
        elbo = model.elbo((X, Y))
    for gradient in tape.gradient(elbo, variables):
        assert_allclose(gradient, np.zeros(gradient.shape), atol=1e-4)


def test_what_a_basis_does_not_declare_is_refused():
    model = _model(DiagonalBasis(BETA))
    basis, state = model.basis, model.basis.factor(model.kernel)
    assert (
        basis.gaussians(state) == ()
        and basis.gaussian_parameters() == ()
        and basis.draw_rows() is None
    )
    assert not (basis.whiten or basis.holds_sites or basis.ties_sites or basis.solves_mean)
    with pytest.raises(TypeError, match="DiagonalBasis"):
        sweep(model, (X, Y))
    refused = [
        (lambda: basis.assign_gaussians(state, ()), "no natural parameters to assign"),
        (lambda: basis.whiteners(state), "cannot keep its sites while the kernel changes"),
        (lambda: basis.mean_coefficients(state), "no mean points of its own"),
        (lambda: basis.mean_operator(state, model.kernel, X, None), "no mean points of its own"),
    ]
    for call, message in refused:
        with pytest.raises(NotImplementedError, match=message):
            call()
    before = basis.q_mu.numpy()
    NaturalGradient().minimize(model, (X, Y))
    assert_allclose(basis.q_mu, before)


def test_bases_on_all_data_have_no_inducing_points():
    for basis in (SiteBasis(X), DualBasis(X), AffineIndependentBasis(BETA)):
        assert isinstance(basis, Basis) and not isinstance(basis, InducingBasis)
        with pytest.raises(
            DataError,
            match=rf"basis is a {type(basis).__name__}.*bases.InducingBasis.*CVIGP, LCLGP",
        ):
            BasisGP(matern(1.0, 1.0), gl.Gaussian(), basis)
    with pytest.raises(DataError, match="basis is a ndarray"):
        BasisGP(matern(1.0, 1.0), gl.Gaussian(), BETA)


def test_declared_properties():
    """What `sweep`, `SparseCVIGP`, `fit` and natural gradients ask, in the place of classes."""
    cases = {
        "coupled": (CoupledBasis(BETA), True, True, False),
        "unwhitened": (CoupledBasis(BETA, whiten=False), False, True, False),
        "decoupled": (DecoupledBasis(GAMMA, BETA, covariance="coupled"), True, False, False),
        "inverse": (DecoupledBasis(GAMMA, BETA), False, False, False),
        "hybrid": (HybridBasis(GAMMA, BETA), False, False, False),
        "orthogonal": (OrthogonalBasis(GAMMA, BETA), True, True, True),
        "on data": (MeanOnDataBasis(BETA), True, True, False),
        "solve": (SolveBasis(GAMMA, BETA), True, False, False),
    }
    for name, (basis, holds, ties, solves) in cases.items():
        assert (basis.holds_sites, basis.ties_sites, basis.solves_mean) == (holds, ties, solves), (
            name
        )
        state = basis.factor(matern(1.3, 0.8))
        parts = basis.gaussians(state)
        assert not holds or len(basis.whiteners(state)) == len(parts), name
        assert not ties or (len(parts) == 1 and parts[0].mean is not None), name
        assert not solves or basis.mean_coefficients(state).shape == (len(GAMMA), 1), name


@pytest.mark.parametrize("names", [("q_mu", "q_sqrt"), ("v_mu", "v_sqrt")])
def test_arrays_of_q_are_checked_by_their_own_names(names: tuple[str, str]) -> None:
    """A list will do; what has another shape, is not finite or holds no numbers is refused."""
    mean, root = names
    basis = SolveBasis(
        GAMMA, BETA, **{mean: [[1.0]] * (len(GAMMA) if mean == "v_mu" else len(BETA))}
    )
    assert_allclose(getattr(basis, mean), 1.0)
    size = getattr(basis, mean).shape[0]
    cases = {
        (mean, rf"^{mean} has shape \(2, 1\); it must be \[M, L\] = \[{size}, 1\]"): np.zeros(
            (2, 1)
        ),
        (mean, f"^{mean} has entries that are not finite"): np.full((size, 1), np.nan),
        (mean, f"^{mean} holds string values"): [["a"]],
        (
            root,
            rf"^{root} has shape \(2, 2\); it must be \[L, M, M\] = \[1, {size}, {size}\]",
        ): np.eye(2),
        (root, f"^{root} has entries that are not finite"): np.full((1, size, size), np.inf),
    }
    for (name, message), value in cases.items():
        with pytest.raises(DataError, match=message):
            SolveBasis(GAMMA, BETA, **{name: value})


@pytest.mark.parametrize("latents", [0, -1, 2.0, True, "1"])
def test_the_number_of_latents_is_a_whole_number(latents: object) -> None:
    bases = [
        lambda: CoupledBasis(BETA, latents),
        lambda: DecoupledBasis(GAMMA, BETA, latents),
        lambda: HybridBasis(GAMMA, BETA, latents),
        lambda: OrthogonalBasis(GAMMA, BETA, latents),
        lambda: MeanOnDataBasis(BETA, latents),
        lambda: SolveBasis(GAMMA, BETA, latents),
        lambda: SiteBasis(BETA, latents),
        lambda: DualBasis(BETA, latents),
    ]
    for make in bases:
        with pytest.raises(
            DataError, match="^num_latent_gps=.* must be a whole number of at least 1"
        ):
            make()
