# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # A basis and a likelihood of your own
#
# The coupled basis has M (M + 1) / 2 numbers for the covariance of q(u). Here is one with M (r + 1): a diagonal and r columns.
# It is defined once, by three functions of a kernel, and then the bound, `fit` and the cached posterior work with it. After
# that comes a likelihood that neither GPflow nor this package has, for all methods.

# %%
import os
from pathlib import Path
from typing import NamedTuple

import gpflow
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
from gpflow.utilities import positive

import gpflow_decoupled as gd
from gpflow_decoupled.bases import Features, InducingBasis
from gpflow_decoupled.covariances.latents import gram_to_data, gram_to_factor
from gpflow_decoupled.inducing.variables import as_inducing, count_points
from gpflow_decoupled.likelihoods import QuadratureLoss, declare_site_loss
from gpflow_decoupled.linalg.cholesky import cholesky
from gpflow_decoupled.linalg.whitening import whiten, whitener

FAST = os.environ.get("NOTEBOOK_FAST", "") == "1"
N, M = (60, 8) if FAST else (200, 16)
OUTPUT = Path("notebook_output")
OUTPUT.mkdir(exist_ok=True)

rng = np.random.default_rng(11)
X = np.sort(rng.uniform(0.0, 6.0, (N, 1)), axis=0)
F = np.sin(2.0 * X) + 0.5 * X
Y = F + 0.3 * rng.standard_normal(X.shape)
grid = np.linspace(-0.5, 6.5, 200)[:, None]


# %% [markdown]
# ## The basis
#
# In whitened coordinates q(u) has mean m and covariance S = diag(d^2) + U U^T. `factor` does what is done once per step,
# `features` gives mean and variances as sums of squares, `prior_kl` the divergence. With E = I + U^T diag(d^-2) U,
#
#     KL = 1/2 [m^T m + sum d^2 + sum U^2 - M - 2 sum log d - log det E].


# %%
class LowRankState(NamedTuple):
    chol: tf.Tensor
    mean: tf.Tensor
    deviation: tf.Tensor
    columns: tf.Tensor
    ok: tf.Tensor
    tangent: tf.Tensor | None = None


class LowRankBasis(InducingBasis):
    """One latent function; q(u) whitened, with the covariance diag(d^2) + U U^T."""

    state_type = LowRankState
    num_latent_gps = 1

    def __init__(self, beta, rank):
        super().__init__()
        self.beta = as_inducing(beta, "beta")
        size = count_points(self.beta)
        self.m = gpflow.Parameter(np.zeros((size, 1)))
        self.d = gpflow.Parameter(np.ones((size, 1)), transform=positive())
        self.U = gpflow.Parameter(0.1 * np.random.default_rng(0).standard_normal((size, rank)))

    def matrices(self, kernel):
        return {"K_beta": gram_to_factor(kernel, self.beta)}

    def factor(self, kernel, *, rows=None, with_kl=True):
        chol, ok, tangent = whitener(gram_to_factor(kernel, self.beta))
        return LowRankState(chol, *(tf.convert_to_tensor(part) for part in (self.m, self.d, self.U)), ok, tangent)

    def features(self, state, kernel, X):
        A = whiten(state.chol, state.tangent, gram_to_data(kernel, self.beta, X))  # [1, M, N]
        mean = tf.matmul(A[0], state.mean, transpose_a=True)
        return Features(mean, (A,), (state.deviation * A, tf.matmul(state.columns, A, transpose_a=True)))

    def prior_kl(self, state):
        m, d, U = state.mean, state.deviation, state.columns
        E = tf.eye(U.shape[1], dtype=U.dtype) + tf.matmul(U / d, U / d, transpose_a=True)
        log_det = 2.0 * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(cholesky(E).chol)))
        squares = tf.reduce_sum(m**2) + tf.reduce_sum(d**2) + tf.reduce_sum(U**2)
        return 0.5 * (squares - float(M) - log_det) - tf.reduce_sum(tf.math.log(d))


# %% [markdown]
# ## Is the divergence right?
#
# If the divergence is wrong, the bound is not a bound. Here it is beside the divergence of two Gaussians, written out, at
# random parameters:

# %%
kernel = gpflow.kernels.Matern52(lengthscales=0.8)
beta = gd.inducing.select(X, M, kernel)
basis = LowRankBasis(beta, 2)
for parameter in (basis.m, basis.d, basis.U):
    parameter.assign(np.abs(rng.standard_normal(parameter.shape)))
m, d, U = (parameter.numpy() for parameter in (basis.m, basis.d, basis.U))
S = np.diag(d[:, 0] ** 2) + U @ U.T
written_out = 0.5 * (m.T @ m + np.trace(S) - M - np.linalg.slogdet(S)[1]).item()
divergence = float(basis.prior_kl(basis.factor(kernel)))
print(f"KL {divergence:.6f}, written out {written_out:.6f}")

# %% [markdown]
# ## It trains
#
# The kernel is fixed and the noise is Gaussian, so that the best bound of the coupled basis and the log evidence are known in
# closed form. The coupled basis has the low-rank ones as special cases, and is never below them; each column brings them
# nearer to it.

# %%
likelihood = gpflow.likelihoods.Gaussian(0.09)
exact = float(gpflow.models.GPR((X, Y), kernel, noise_variance=0.09).log_marginal_likelihood())
coupled = gd.models.BasisGP(kernel, likelihood, gd.bases.CoupledBasis(beta), num_data=N)
best = float(gd.optimizers.collapsed_elbo(coupled, (X, Y)))
gpflow.set_trainable(kernel, False)
gpflow.set_trainable(likelihood, False)
ranks = [1, 4] if FAST else [1, 2, 4, 8, 12]
bounds, models = {}, {}
for rank in ranks:
    models[rank] = model = gd.models.BasisGP(kernel, likelihood, LowRankBasis(beta, rank), num_data=N)
    gpflow.set_trainable(model.basis.beta, False)
    loss = model.training_loss_closure((X, Y))
    gpflow.optimizers.Scipy().minimize(loss, model.trainable_variables, options={"maxiter": 60 if FAST else 400})
    bounds[rank] = float(model.elbo((X, Y)))
    print(f"rank {rank:2d}: bound {bounds[rank]:9.3f}; coupled {best:.3f}, log evidence {exact:.3f}")

# %% [markdown]
# This basis has no closed-form optimum of its own, and so `collapsed_elbo` refuses it.

# %%
try:
    gd.optimizers.collapsed_elbo(models[ranks[0]], (X, Y))
except gd.errors.ModelError as error:
    refusal = str(error)
print(refusal)

# %% [markdown]
# `fit` trains the model too, with a kernel to learn. `natural_gradient=None` trains q by Adam, since this basis defines no
# part that has natural parameters.

# %%
learned = gd.models.BasisGP(gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian(0.5), LowRankBasis(beta, 4))
result = gd.fit(learned, (X, Y), steps=20 if FAST else 800, natural_gradient=None, compile=not FAST)
print(result)
mean, variance = learned.posterior().predict_f(grid)

# %% [markdown]
# ## The likelihood
#
# Logistic noise has tails like those of Laplace noise, and is smooth. Its density is enough for conjugate computation and for
# all models on inducing points. The Lagrangian also needs the interval in which the slope of -log p lies.


# %%
class LogisticNoise(gpflow.likelihoods.ScalarLikelihood):
    """y = f + scale * e, e logistic."""

    def __init__(self, scale=1.0):
        super().__init__()
        self.scale = gpflow.Parameter(scale, transform=positive())

    def _scalar_log_prob(self, X, F, Y):
        r = (Y - F) / self.scale
        return -r - 2.0 * tf.math.softplus(-r) - tf.math.log(self.scale)

    def _conditional_mean(self, X, F):
        return tf.identity(F)

    def _conditional_variance(self, X, F):
        return tf.fill(tf.shape(F), (np.pi * self.scale) ** 2 / 3.0)


def loss_of(likelihood, Y):
    return QuadratureLoss(
        likelihood,
        Y,
        lower=lambda: -1.0 / likelihood.scale,
        upper=lambda: 1.0 / likelihood.scale,
        start=lambda alpha: Y + 2.0 * likelihood.scale * tf.atanh(0.999 * likelihood.scale * alpha),
    )


declare_site_loss(LogisticNoise, loss_of)

outliers = Y + 4.0 * (rng.uniform(size=Y.shape) < 0.05) * rng.standard_normal(Y.shape)
sites = gd.models.CVIGP((X, outliers), gpflow.kernels.Matern52(), LogisticNoise(0.3))
conjugate = gd.optimizers.ConjugateComputation().run(sites)
dual = gd.models.LCLGP((X, outliers), sites.kernel, LogisticNoise(0.3))
lagrangian = gd.optimizers.LinearlyConstrainedLagrangian(tolerance=1e-8).run(dual)
print(conjugate)
print(lagrangian)

# %%
figure, (left, middle, right) = plt.subplots(1, 3, figsize=(15, 3.8), layout="constrained")
left.plot(ranks, [best - bounds[rank] for rank in ranks], ".-")
left.set(xlabel="rank", ylabel="nats below the coupled basis")
for axis, data, moments in ((middle, Y, (mean, variance)), (right, outliers, sites.predict_f(grid))):
    width = 2.0 * np.sqrt(moments[1][:, 0])
    axis.plot(X, data, "k.", markersize=3)
    axis.plot(grid, moments[0], color="C0")
    axis.fill_between(grid[:, 0], moments[0][:, 0] - width, moments[0][:, 0] + width, alpha=0.2)
middle.set(title="the basis, trained by fit")
right.set(title="logistic noise", ylim=(-3, 6))
figure.savefig(OUTPUT / "11_your_own.png", dpi=120)

# %% [markdown]
# ## Does it hold?

# %%
assert abs(divergence - written_out) < 1e-9
assert "LowRankBasis has no closed-form optimum" in refusal
assert all(bound < best + 1e-6 for bound in bounds.values()) and best < exact
assert bounds[ranks[-1]] > bounds[ranks[0]]
assert abs(conjugate.elbo - lagrangian.elbo) < 1e-3
assert float(tf.reduce_mean((sites.predict_f(X)[0] - F) ** 2)) < 0.1
