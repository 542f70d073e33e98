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
# A *basis* says what the approximate posterior is. The *coupled* one, in which mean and covariance share M inducing points,
# has M (M + 1) / 2 numbers for the covariance of q(u). Here is one with M (r + 1): a diagonal and r columns. It is defined
# once, by three functions of a kernel, and then the bound, `fit` and the cached posterior work with it. After that comes a
# likelihood that neither GPflow nor this package has, for all methods.

# %%
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

# %% tags=["remove-cell"]
import os
from pathlib import Path

FAST = os.environ.get("NOTEBOOK_FAST", "") == "1"  # the tests run a smaller one
OUTPUT = Path("notebook_output")
OUTPUT.mkdir(exist_ok=True)

# %%
N, M, RANKS, EVALUATIONS, STEPS = 200, 16, [1, 2, 4, 8, 12], 400, 800

# %% tags=["remove-cell"]
if FAST:
    N, M, RANKS, EVALUATIONS, STEPS = 60, 8, [1, 4], 60, 20

# %%
rng = np.random.default_rng(11)
X = np.sort(rng.uniform(0.0, 6.0, (N, 1)), axis=0)
F = np.sin(2.0 * X) + 0.5 * X
Y = F + 0.3 * rng.standard_normal(X.shape)
grid = np.linspace(-0.5, 6.5, 200)[:, None]


# %% [markdown]
# ## The basis
#
# In *whitened* coordinates, in which the prior of $u$ is a standard normal, $q(u)$ has mean $m$ and covariance
# $S = \operatorname{diag}(d^2) + U U^T$. `factor` does what is done
# once per step, `features` gives mean and variances as sums of squares, `prior_kl` the divergence. With
# $E = I + U^T \operatorname{diag}(d^{-2})\, U$,
#
# $$\operatorname{KL} = \tfrac12 \Bigl[m^T m + \sum_i d_i^2 + \sum_{ij} U_{ij}^2 - M - 2\sum_i\log d_i - \log\det E\Bigr].$$


# %%
class LowRankState(NamedTuple):
    chol: tf.Tensor
    mean: tf.Tensor
    deviation: tf.Tensor
    columns: tf.Tensor
    ok: tf.Tensor
    tangent: tf.Tensor | None = None


# %% [markdown]
# The Parameters, and by name the matrices that are factorised, for the message of an error:


# %%
class LowRankParameters(InducingBasis):
    state_type = LowRankState
    num_latent_gps = 1

    def __init__(self, beta, rank):
        super().__init__()
        self.beta = as_inducing(beta, "beta")
        size = count_points(self.beta)
        start = 0.1 * np.random.default_rng(0).standard_normal((size, rank))
        self.m = gpflow.Parameter(np.zeros((size, 1)))
        self.d = gpflow.Parameter(np.ones((size, 1)), transform=positive())
        self.U = gpflow.Parameter(start)

    def matrices(self, kernel):
        return {"K_beta": gram_to_factor(kernel, self.beta)}


# %% [markdown]
# And the three functions:


# %%
class LowRankBasis(LowRankParameters):
    """One latent function; q(u) whitened, with the covariance diag(d^2) + U U^T."""

    def factor(self, kernel, *, rows=None, with_kl=True):
        chol, ok, tangent = whitener(gram_to_factor(kernel, self.beta))
        m, d, U = (tf.convert_to_tensor(part) for part in (self.m, self.d, self.U))
        return LowRankState(chol, m, d, U, ok, tangent)

    def features(self, state, kernel, X):
        A = whiten(state.chol, state.tangent, gram_to_data(kernel, self.beta, X))
        mean = tf.matmul(A[0], state.mean, transpose_a=True)
        columns = tf.matmul(state.columns, A, transpose_a=True)
        return Features(mean, (A,), (state.deviation * A, columns))

    def prior_kl(self, state):
        m, d, U = state.mean, state.deviation, state.columns
        E = tf.eye(U.shape[1], dtype=U.dtype)
        E += tf.matmul(U / d, U / d, transpose_a=True)
        log_dets = tf.reduce_sum(tf.math.log(d)) + tf.reduce_sum(
            tf.math.log(tf.linalg.diag_part(cholesky(E).chol))
        )
        squares = tf.reduce_sum(m**2) + tf.reduce_sum(d**2) + tf.reduce_sum(U**2)
        return 0.5 * (squares - float(M)) - log_dets


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
gpr = gpflow.models.GPR((X, Y), kernel, noise_variance=0.09)
exact = float(gpr.log_marginal_likelihood())
coupled = gd.models.BasisGP(kernel, likelihood, gd.bases.CoupledBasis(beta), num_data=N)
best = float(gd.optimizers.collapsed_elbo(coupled, (X, Y)))
gpflow.set_trainable(kernel, False)
gpflow.set_trainable(likelihood, False)
print(f"coupled {best:.3f}, log evidence {exact:.3f}")

# %%
bounds, models = {}, {}
scipy, options = gpflow.optimizers.Scipy(), {"maxiter": EVALUATIONS}
for rank in RANKS:
    model = gd.models.BasisGP(kernel, likelihood, LowRankBasis(beta, rank), num_data=N)
    gpflow.set_trainable(model.basis.beta, False)
    loss = model.training_loss_closure((X, Y))
    scipy.minimize(loss, model.trainable_variables, options=options)
    models[rank], bounds[rank] = model, float(model.elbo((X, Y)))
    print(f"rank {rank:2d}: bound {bounds[rank]:9.3f}")

# %% [markdown]
# This basis has no closed-form optimum of its own, and so `collapsed_elbo` refuses it.

# %%
try:
    gd.optimizers.collapsed_elbo(models[RANKS[0]], (X, Y))
except gd.errors.ModelError as error:
    refusal = str(error)
print(refusal)

# %% [markdown]
# `fit` trains the model too, with a kernel to learn. `natural_gradient=None` trains q by Adam, since this basis defines no
# part that has natural parameters.

# %%
learned = gd.models.BasisGP(
    gpflow.kernels.Matern52(), gpflow.likelihoods.Gaussian(0.5), LowRankBasis(beta, 4)
)
result = gd.fit(
    learned, (X, Y), steps=STEPS, natural_gradient=None, compile=STEPS > 100
)
print(result)
mean, variance = learned.posterior().predict_f(grid)

# %% [markdown]
# ## The likelihood
#
# Logistic noise has tails like those of Laplace noise, and is smooth: with $r = (y - f) / s$
#
# $$\log p(y \mid f) = -r - 2\log(1 + e^{-r}) - \log s.$$
#
# Its density is enough for conjugate computation and for
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


# %%
def loss_of(likelihood, Y):
    def start(alpha):
        return Y + 2.0 * likelihood.scale * tf.atanh(0.999 * likelihood.scale * alpha)

    return QuadratureLoss(
        likelihood,
        Y,
        lower=lambda: -1.0 / likelihood.scale,
        upper=lambda: 1.0 / likelihood.scale,
        start=start,
    )


declare_site_loss(LogisticNoise, loss_of)

# %%
outliers = Y + 4.0 * (rng.uniform(size=Y.shape) < 0.05) * rng.standard_normal(Y.shape)
sites = gd.models.CVIGP((X, outliers), gpflow.kernels.Matern52(), LogisticNoise(0.3))
conjugate = gd.optimizers.ConjugateComputation().run(sites)
dual = gd.models.LCLGP((X, outliers), sites.kernel, LogisticNoise(0.3))
lagrangian = gd.optimizers.LinearlyConstrainedLagrangian(tolerance=1e-8).run(dual)
print(conjugate)
print(lagrangian)

# %% tags=["thumbnail"]
figure, (left, middle, right) = plt.subplots(
    1, 3, figsize=(12, 3.4), layout="constrained"
)
left.plot(RANKS, [best - bounds[rank] for rank in RANKS], ".-")
left.set(xlabel="rank", ylabel="nats below the coupled basis")
drawn = (middle, Y, (mean, variance)), (right, outliers, sites.predict_f(grid))
for axis, data, moments in drawn:
    width = 2.0 * np.sqrt(moments[1][:, 0])
    axis.plot(X, data, "k.", markersize=3)
    axis.plot(grid, moments[0], color="C0")
    middle_line = moments[0][:, 0]
    axis.fill_between(grid[:, 0], middle_line - width, middle_line + width, alpha=0.2)
middle.set(title="the basis, trained by fit")
right.set(title="logistic noise", ylim=(-3, 6))

# %% tags=["remove-cell"]
assert abs(divergence - written_out) < 1e-9
assert "LowRankBasis has no closed-form optimum" in refusal
assert all(bound < best + 1e-6 for bound in bounds.values()) and best < exact
assert bounds[RANKS[-1]] > bounds[RANKS[0]]
assert abs(conjugate.elbo - lagrangian.elbo) < 1e-3
assert float(tf.reduce_mean((sites.predict_f(X)[0] - F) ** 2)) < 0.1
for number in plt.get_fignums():  # of a script; a notebook has shown and closed them
    plt.figure(number).savefig(OUTPUT / f"11_{number}.png", bbox_inches="tight")
