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
# A *basis* says what q(f) is. In the *coupled* one mean and covariance share the points beta. In the decoupled, the hybrid and
# the *orthogonal* one the mean has further points, and in that of SOLVE-GP the covariance has them, too. Here all of them meet
# the same problem, with fixed hyperparameters and the best q that each allows.

# %%
import gpflow
import matplotlib.pyplot as plt
import numpy as np

import gpflow_decoupled as gd
from gpflow_decoupled.bases import CoupledBasis
from gpflow_decoupled.models import DVGP, HDVGP, ODVGP, SOLVEGP, BasisGP
from gpflow_decoupled.optimizers import collapsed_elbo, optimal_parameters

# %% tags=["remove-cell"]
import os
from pathlib import Path

FAST = os.environ.get("NOTEBOOK_FAST", "") == "1"  # the tests run a smaller one
OUTPUT = Path("notebook_output")
OUTPUT.mkdir(exist_ok=True)

# %%
rng = np.random.default_rng(1)
N, NOISE = 600, 0.09

# %% tags=["remove-cell"]
if FAST:
    N = 200

# %%
X = np.sort(rng.uniform(0, 10, (N, 1)), axis=0)
Y = np.sin(X) + 0.5 * np.sin(5 * X) + 0.3 * rng.standard_normal(X.shape)


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
exact = gpflow.models.GPR((X, Y), kernel(), noise_variance=NOISE)
bounds["log evidence"] = float(exact.log_marginal_likelihood())
for name, value in bounds.items():
    print(f"{name:22s} {value:10.3f}")

# %% tags=["remove-cell"]
for name, model in models.items():  # the formula and the model are one
    assert abs(bounds[name] - float(model.elbo((X, Y)))) < 1e-3 * N, name


# %% [markdown]
# Means, with bands of two standard deviations, beside the exact mean, which is dotted. Ticks are points, beta below and
# those of the mean alone above:


# %% tags=["thumbnail", "remove-input"]
figure, axes = plt.subplots(
    2, 3, figsize=(12, 5.5), layout="constrained", sharex=True, sharey=True
)
grid = np.linspace(0, 10, 400)[:, None]
for axis, (name, model) in zip(axes.flat, models.items()):
    gd.wrappers.plot_posterior_1d(model, (X, Y), axis)
    axis.plot(grid, exact.predict_f(grid)[0], "k:", lw=1)  # the exact mean
    axis.set_title(f"{name}: {bounds[name]:.1f} nats")
    axis.get_legend().remove()

# %% [markdown]
# Sixteen points are too few for the fast wave: the coupled mean misses it. The decoupled means follow it, at the same
# covariance. Decoupled, hybrid and orthogonal are three sets of coordinates for one family of functions here, so their best
# bounds agree; they differ in how easily that optimum is found.
#
# ## The chain of bounds
#
# In the bound of the orthogonal basis, (D31), the log-determinant and the trace come from beta, the data fit from beta and
# gamma together. So the bounds are ordered, whatever the points are:
#
# $$\mathcal L_\text{SGPR}(\beta) \le \mathcal L_\text{orthogonal} \le \mathcal L_\text{SOLVE}
# \le \mathcal L_\text{SGPR}(\beta\cup\gamma) \le \log p(y).$$

# %%
order = (
    "coupled (16)",
    "orthogonal (20 + 16)",
    "SOLVE (20, 16)",
    "coupled (36)",
    "log evidence",
)
chain = [bounds[name] for name in order]
print(" <= ".join(f"{bound:.1f}" for bound in chain))

# %% tags=["remove-cell"]
assert all(low < high for low, high in zip(chain, chain[1:])), chain
sgpr = gpflow.models.SGPR((X, Y), kernel(), beta, noise_variance=NOISE)
assert abs(chain[0] - float(sgpr.elbo())) < 1e-3 * N
same = [
    bounds[name]
    for name in ("decoupled (36 + 16)", "hybrid (20 + 16)", "orthogonal (20 + 16)")
]
assert max(same) - min(same) < 1e-3 * N, same

# %% [markdown]
# ## Limits
#
# With no mean coefficients, orthogonal is coupled. With all data as mean points its mean is that of the exact GP, though its
# covariance still has sixteen points.

# %% tags=["remove-input"]
orthogonal = models["orthogonal (20 + 16)"]
orthogonal.basis.a_gamma.assign(np.zeros_like(orthogonal.basis.a_gamma))
coupled = models["coupled (16)"]
coupled.basis.q_mu.assign(orthogonal.basis.q_mu)
coupled.basis.q_sqrt.assign(orthogonal.basis.q_sqrt)
difference = np.abs(orthogonal.predict_f(grid)[0] - coupled.predict_f(grid)[0]).max()
print(f"no coefficients: means differ by {difference:.1e}")

# %% tags=["remove-cell"]
assert difference < 1e-8

# %% tags=["remove-input"]
rest = X[~np.isin(X[:, 0], beta[:, 0])]
everything = ODVGP(kernel(), likelihood(), rest, beta)
optimal_parameters(everything, (X, Y)).assign(everything)
difference = np.abs(everything.predict_f(grid)[0] - exact.predict_f(grid)[0]).max()
print(f"gamma = X: the mean differs from the exact GP's by {difference:.1e}")

# %% tags=["remove-cell"]
assert difference < 1e-3

# %% [markdown]
# ## How the bound grows
#
# More mean points help at once and then no more: what is left is the covariance's share, which only more of beta can lower.

# %% tags=["remove-input"]
counts = [1, 2, 5, 10, 20, 40, 80]

# %% tags=["remove-cell"]
if FAST:
    counts = [1, 10, 40]

# %% tags=["remove-input"]
more = gd.inducing.select(
    X, counts[-1], kernel(), given=beta
)  # the first M serve for M
growth = []
for M in counts:
    larger = ODVGP(kernel(), likelihood(), more[:M], beta)
    growth.append(float(collapsed_elbo(larger, (X, Y))))
figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
axis.semilogx(counts, growth, "o-", label="orthogonal, 16 covariance points")
for name, style in (("coupled (16)", "--"), ("log evidence", ":")):
    axis.axhline(bounds[name], color="k", ls=style, label=name)
axis.set(xlabel="mean points", ylabel="bound (nats)")
axis.legend(bbox_to_anchor=(1.0, 1.0), loc="upper left", frameon=False)

# %% tags=["remove-cell"]
assert all(low <= high + 1e-6 for low, high in zip(growth, growth[1:])), growth
assert bounds["coupled (16)"] < growth[0] and growth[-1] < bounds["log evidence"]
for number in plt.get_fignums():  # of a script; a notebook has shown and closed them
    plt.figure(number).savefig(OUTPUT / f"02_{number}.png", bbox_inches="tight")
