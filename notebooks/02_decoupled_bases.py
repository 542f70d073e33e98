# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # The bases compared
#
# A basis says what q(f) is. Here all of them meet the same problem, small enough for the exact answer, with fixed
# hyperparameters and the best q that each allows, so that nothing is left to luck or to training. Numbers like (D31) refer
# to `NOTATION.md`.

# %%
import os
from pathlib import Path

import gpflow
import matplotlib.pyplot as plt
import numpy as np

import gpflow_decoupled as gd
from gpflow_decoupled.bases import CoupledBasis
from gpflow_decoupled.models import DVGP, HDVGP, ODVGP, SOLVEGP, BasisGP
from gpflow_decoupled.optimizers import collapsed_elbo, optimal_parameters

FAST = os.environ.get("NOTEBOOK_FAST", "") == "1"
OUTPUT = Path("notebook_output")
OUTPUT.mkdir(exist_ok=True)

# %%
rng = np.random.default_rng(1)
N = 200 if FAST else 600
X = np.sort(rng.uniform(0, 10, (N, 1)), axis=0)
Y = np.sin(X) + 0.5 * np.sin(5 * X) + 0.3 * rng.standard_normal(X.shape)
NOISE = 0.09


def kernel():
    return gpflow.kernels.Matern52(lengthscales=1.0)


def likelihood():
    return gpflow.likelihoods.Gaussian(NOISE)


beta = gd.inducing.select(X, 16, kernel())
gamma = gd.inducing.select(X, 20, kernel(), given=beta)
both = np.concatenate([beta, gamma])

# %% [markdown]
# ## What each can represent
#
# `optimal_parameters` computes the best q in closed form; `assign` writes it into the model, which then predicts as usual.

# %%
models = {
    "coupled (16)": BasisGP(kernel(), likelihood(), CoupledBasis(beta)),
    "decoupled (36 + 16)": DVGP(kernel(), likelihood(), both, beta),
    "hybrid (20 + 16)": HDVGP(kernel(), likelihood(), gamma, beta),
    "orthogonal (20 + 16)": ODVGP(kernel(), likelihood(), gamma, beta),
    "SOLVE (20, 16)": SOLVEGP(kernel(), likelihood(), gamma, beta),
    "coupled (36)": BasisGP(kernel(), likelihood(), CoupledBasis(both)),
}
bounds = {}
for name, model in models.items():
    optimum = optimal_parameters(model, (X, Y))
    optimum.assign(model)
    model.num_data = N
    bounds[name] = float(optimum.elbo)
    assert abs(bounds[name] - float(model.elbo((X, Y)))) < 1e-3 * N, "the formula and the model are one"
exact = gpflow.models.GPR((X, Y), kernel(), noise_variance=NOISE)
bounds["log evidence"] = float(exact.log_marginal_likelihood())
for name, value in bounds.items():
    print(f"{name:22s} {value:10.3f}")

# %%
figure, axes = plt.subplots(2, 3, figsize=(15, 6), layout="constrained", sharex=True, sharey=True)
grid = np.linspace(0, 10, 400)[:, None]
for axis, (name, model) in zip(axes.flat, models.items()):
    gd.wrappers.plot_posterior_1d(model, (X, Y), axis)
    axis.plot(grid, exact.predict_f(grid)[0], "k:", lw=1)  # the exact mean
    axis.set_title(f"{name}: {bounds[name]:.1f} nats")
    axis.get_legend().remove()
figure.savefig(OUTPUT / "02_bases.png")

# %% [markdown]
# Sixteen points are too few for the fast wave: the coupled mean misses it. The decoupled means follow it, at the same
# covariance. Decoupled, hybrid and orthogonal are three sets of coordinates for one family of functions here, so their best
# bounds agree; they differ in how easily that optimum is found.
#
# ## The chain of bounds
#
# In (D31) log-determinant and trace come from beta, the data fit from beta and gamma together. So the bounds are ordered,
# whatever the points are:
#
#     SGPR(beta) <= orthogonal <= SOLVE <= SGPR(beta and gamma) <= log p(y)

# %%
chain = [
    bounds[name] for name in ("coupled (16)", "orthogonal (20 + 16)", "SOLVE (20, 16)", "coupled (36)", "log evidence")
]
assert all(low < high for low, high in zip(chain, chain[1:])), chain
sgpr = gpflow.models.SGPR((X, Y), kernel(), beta, noise_variance=NOISE)
assert abs(chain[0] - float(sgpr.elbo())) < 1e-3 * N
same = [bounds[name] for name in ("decoupled (36 + 16)", "hybrid (20 + 16)", "orthogonal (20 + 16)")]
assert max(same) - min(same) < 1e-3 * N, same

# %% [markdown]
# ## Limits
#
# With no mean coefficients, orthogonal is coupled. With all data as mean points its mean is that of the exact GP, though its
# covariance still has sixteen points. The quadratic term of the bound is then that of CGLB (Artemev et al. 2021), (D32); the
# log-determinant term of CGLB is tighter, and the whole bound is not that of a q of this form.

# %%
orthogonal = models["orthogonal (20 + 16)"]
orthogonal.basis.a_gamma.assign(np.zeros_like(orthogonal.basis.a_gamma))
coupled = models["coupled (16)"]
coupled.basis.q_mu.assign(orthogonal.basis.q_mu)
coupled.basis.q_sqrt.assign(orthogonal.basis.q_sqrt)
difference = np.abs(orthogonal.predict_f(grid)[0] - coupled.predict_f(grid)[0]).max()
print(f"no coefficients: means differ by {difference:.1e}")
assert difference < 1e-8

rest = X[~np.isin(X[:, 0], beta[:, 0])]
everything = ODVGP(kernel(), likelihood(), rest, beta)
optimal_parameters(everything, (X, Y)).assign(everything)
difference = np.abs(everything.predict_f(grid)[0] - exact.predict_f(grid)[0]).max()
print(f"gamma = X: the mean differs from the exact GP's by {difference:.1e}")
assert difference < 1e-3

# %% [markdown]
# ## How the bound grows
#
# More mean points help at once and then no more: what is left is the covariance's share, which only more of beta can lower.

# %%
counts = [1, 2, 5, 10, 20, 40, 80] if not FAST else [1, 10, 40]
order = gd.inducing.select(X, counts[-1], kernel(), given=beta)  # the first M are the choice for M
growth = [float(collapsed_elbo(ODVGP(kernel(), likelihood(), order[:M], beta), (X, Y))) for M in counts]
figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
axis.semilogx(counts, growth, "o-", label="orthogonal, 16 covariance points")
for name, style in (("coupled (16)", "--"), ("log evidence", ":")):
    axis.axhline(bounds[name], color="k", ls=style, label=name)
axis.set(xlabel="mean points", ylabel="bound (nats)")
axis.legend(frameon=False)
figure.savefig(OUTPUT / "02_growth.png")
assert all(low <= high + 1e-6 for low, high in zip(growth, growth[1:])), growth
assert bounds["coupled (16)"] < growth[0] and growth[-1] < bounds["log evidence"]
