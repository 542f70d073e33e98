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
# From arrays to a trained model with plots: a regression, then a classification. Runs as a script, or as a notebook with
# jupytext. Pictures go to the folder `notebook_output`. `NOTEBOOK_FAST=1` runs it at a reduced size.

# %%
import os
from pathlib import Path

import gpflow
import matplotlib.pyplot as plt
import numpy as np

import gpflow_decoupled as gd

FAST = os.environ.get("NOTEBOOK_FAST", "") == "1"
STEPS = 150 if FAST else 1000
OUTPUT = Path("notebook_output")
OUTPUT.mkdir(exist_ok=True)

# %% [markdown]
# ## Data
#
# A function with a gap in the middle where nothing was observed, a slow wave, and a fast one that fades away.

# %%
rng = np.random.default_rng(0)
N = 500 if FAST else 5000
NOISE = 0.2


def truth(x):
    return np.sin(0.8 * x) + 0.7 * np.exp(-0.3 * x) * np.sin(6.0 * x)


X = np.concatenate([rng.uniform(0, 4, (N // 2, 1)), rng.uniform(6, 10, (N // 2, 1))])
Y = truth(X) + NOISE * rng.standard_normal(X.shape)

# %% [markdown]
# ## Points and model
#
# `beta` carries mean and covariance, `gamma` adds freedom to the mean alone. `select` picks rows of X, one after the other,
# where the kernel is least certain; `given=beta` says what is there already.

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
gpflow.utilities.print_summary(model.kernel)

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(13, 4), layout="constrained")
gd.wrappers.plot_posterior_1d(model, (X, Y), left)
gd.wrappers.plot_history(result, right)
figure.savefig(OUTPUT / "01_regression.png")

# %% [markdown]
# The band is wide in the gap and beyond the data, where the model does not know. Predictions of many points go through a
# posterior that keeps its factorisations:

# %%
posterior = model.posterior()
mean, variance = posterior.predict_f(X_test)
print("first predictions:", np.round(mean[:3, 0], 3), "+-", np.round(2 * np.sqrt(variance[:3, 0]), 3))

# %% [markdown]
# ## Classification
#
# Only the likelihood changes. Labels are 0 and 1; `predict_y` gives the probability of 1.

# %%
p = 1.0 / (1.0 + np.exp(-3.0 * truth(X)))
labels = (rng.uniform(size=p.shape) < p).astype(float)
kernel = gpflow.kernels.Matern52(lengthscales=0.5)
classifier = gd.models.ODVGP(kernel, gpflow.likelihoods.Bernoulli(), gamma, beta)
print(gd.fit(classifier, (X, labels), steps=STEPS))

# %%
grid = np.linspace(0, 10, 300)[:, None]
probability, _ = classifier.predict_y(grid)
figure, axis = plt.subplots(figsize=(8, 3.5), layout="constrained")
axis.plot(grid, 1.0 / (1.0 + np.exp(-3.0 * truth(grid))), "k--", label="true probability")
axis.plot(grid, probability, label="predicted")
axis.plot(X[::10], labels[::10], "|", color="0.5", label="labels")
axis.legend(frameon=False)
figure.savefig(OUTPUT / "01_classification.png")

# %% [markdown]
# ## Does it hold?
#
# The error on held-out data is close to that of the noise alone, the truth lies in the band about as often as the band says,
# and the gap is less certain than the rest. The classifier's probabilities are close to those that made the labels.

# %%
rmse = float(np.sqrt(np.mean((mean - Y_test) ** 2)))
inside = float(np.mean(np.abs(mean - truth(X_test)) < 2 * np.sqrt(variance)))
in_gap = float(np.sqrt(model.predict_f(np.array([[5.0]]))[1][0, 0]))
observed = ((grid < 4) | (grid > 6))[:, 0]
error = np.abs(probability - 1.0 / (1.0 + np.exp(-3.0 * truth(grid))))[observed].mean()
print(f"RMSE {rmse:.3f} at noise {NOISE}; truth within the band: {inside:.0%}; probabilities off by {error:.3f}")
assert rmse < (1.4 if FAST else 1.1) * NOISE
assert FAST or inside > 0.8
assert in_gap > 3 * float(np.median(np.sqrt(variance)))
assert error < (0.12 if FAST else 0.05)
