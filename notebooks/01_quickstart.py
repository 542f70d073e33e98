# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Quick start
#
# From arrays to a trained model with plots: a regression, then a classification.

# %%
import gpflow
import matplotlib.pyplot as plt
import numpy as np

import gpflow_decoupled as gd

# %% tags=["remove-cell"]
import os
from pathlib import Path

FAST = os.environ.get("NOTEBOOK_FAST", "") == "1"  # the tests run a smaller one
OUTPUT = Path("notebook_output")
OUTPUT.mkdir(exist_ok=True)

# %%
N, STEPS, NOISE = 5000, 1000, 0.2

# %% tags=["remove-cell"]
if FAST:
    N, STEPS = 500, 150

# %% [markdown]
# ## Data
#
# $N$ observations $y_n = f(x_n) + \epsilon_n$ of a slow wave and a fast one that fades away,
#
# $$f(x) = \sin(0.8\,x) + 0.7\,e^{-0.3\,x}\sin(6\,x), \qquad \epsilon_n \sim \mathcal N(0, 0.2^2),$$
#
# with a gap in the middle where nothing was observed.

# %%
rng = np.random.default_rng(0)


def truth(x):
    return np.sin(0.8 * x) + 0.7 * np.exp(-0.3 * x) * np.sin(6.0 * x)


X = np.concatenate([rng.uniform(0, 4, (N // 2, 1)), rng.uniform(6, 10, (N // 2, 1))])
Y = truth(X) + NOISE * rng.standard_normal(X.shape)

# %% [markdown]
# ## Points and model
#
# A sparse Gaussian process reads the data at a few *inducing points*. Here there are two sets of them: `beta` carries the mean
# and the covariance of the posterior, and costs $M_\beta^3$ a step; `gamma` adds freedom to the mean alone, at a cost that is
# linear in $M_\gamma$. `select` picks rows of X, one after the other, where the kernel is least certain; `given=beta` says
# which points are there already.

# %%
kernel = gpflow.kernels.Matern52(lengthscales=0.5)
beta = gd.inducing.select(X, 15, kernel)
gamma = gd.inducing.select(X, 60, kernel, given=beta)
model = gd.models.ODVGP(kernel, gpflow.likelihoods.Gaussian(0.1), gamma, beta)

# %% [markdown]
# ## Training
#
# Held-out data are scored along the way. `result` is the record of the run.

# %%
X_test = rng.uniform(0, 4, (500, 1))
Y_test = truth(X_test) + NOISE * rng.standard_normal(X_test.shape)
evaluation = gd.training.Evaluation((X_test, Y_test), every=STEPS // 5)
result = gd.fit(model, (X, Y), steps=STEPS, evaluation=evaluation)
print(result)
print(
    f"lengthscale {model.kernel.lengthscales.numpy():.3f}, "
    f"noise {model.likelihood.variance.numpy() ** 0.5:.3f}"
)

# %% tags=["thumbnail"]
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.6), layout="constrained")
gd.wrappers.plot_posterior_1d(model, (X, Y), left)
gd.wrappers.plot_history(result, right)

# %% [markdown]
# The band is wide in the gap and beyond the data, where the model does not know. Predictions of many points go through a
# posterior that keeps its factorisations:

# %%
posterior = model.posterior()
mean, variance = posterior.predict_f(X_test)
for row in range(3):
    width = 2 * variance[row, 0] ** 0.5
    print(f"f({X_test[row, 0]:.2f}) = {mean[row, 0]:.3f} +- {width:.3f}")

# %% [markdown]
# ## Classification
#
# Only the likelihood changes. Labels are 0 and 1; `predict_y` gives the probability of 1.


# %%
def probability_of_one(x):
    return 1.0 / (1.0 + np.exp(-3.0 * truth(x)))


p = probability_of_one(X)
labels = (rng.uniform(size=p.shape) < p).astype(float)
kernel = gpflow.kernels.Matern52(lengthscales=0.5)
classifier = gd.models.ODVGP(kernel, gpflow.likelihoods.Bernoulli(), gamma, beta)
print(gd.fit(classifier, (X, labels), steps=STEPS))

# %%
grid = np.linspace(0, 10, 300)[:, None]
probability, _ = classifier.predict_y(grid)
figure, axis = plt.subplots(figsize=(8, 3.5), layout="constrained")
axis.plot(grid, probability_of_one(grid), "k--", label="true probability")
axis.plot(grid, probability, label="predicted")
axis.plot(X[::10], labels[::10], "|", color="0.5", label="labels")
axis.set(xlabel="x", ylabel="probability of 1")
axis.legend(bbox_to_anchor=(1.0, 1.0), loc="upper left", frameon=False)

# %% [markdown]
# ## How good is it?
#
# The error on held-out data is close to that of the noise alone, the truth lies in the band about as often as the band says,
# and the gap is less certain than the rest. The classifier's probabilities are close to those that made the labels.

# %%
rmse = float(np.sqrt(np.mean((mean - Y_test) ** 2)))
inside = float(np.mean(np.abs(mean - truth(X_test)) < 2 * np.sqrt(variance)))
in_gap = float(np.sqrt(model.predict_f(np.array([[5.0]]))[1][0, 0]))
observed = ((grid < 4) | (grid > 6))[:, 0]
error = np.abs(probability - probability_of_one(grid))[observed].mean()
print(f"RMSE {rmse:.3f} at noise {NOISE}; truth within the band: {inside:.0%}")
print(f"probabilities off by {error:.3f}")

# %% tags=["remove-cell"]
assert rmse < (1.4 if FAST else 1.1) * NOISE
assert FAST or inside > 0.8
assert in_gap > 3 * float(np.median(np.sqrt(variance)))
assert error < (0.12 if FAST else 0.05)
for number in plt.get_fignums():  # of a script; a notebook has shown and closed them
    plt.figure(number).savefig(OUTPUT / f"01_{number}.png", bbox_inches="tight")
