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
# From arrays to a trained model with plots, in seconds: a regression, then a classification.

# %%
import time

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
N, NOISE = 1500, 0.2

# %% tags=["remove-cell"]
if FAST:
    N = 500

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
X_test = rng.uniform(0, 4, (500, 1))
Y_test = truth(X_test) + NOISE * rng.standard_normal(X_test.shape)

# %% [markdown]
# ## Model
#
# `build` scales the data, chooses a model by their number, and prints its choice: up to 2,000 rows the exact Gaussian
# process, beyond that one in which each observation is conditioned on its nearest neighbours.

# %%
model = gd.build(X, Y)

# %% [markdown]
# ## Training

# %%
began = time.process_time()
result = gd.fit(model)
print(f"{result.reason}, after {time.process_time() - began:.0f} processor seconds")

# %% [markdown]
# How many rows are enough? The error on held-out data falls to that of the noise, the dashed line:


# %%
def held_out_error(model):
    predicted, _ = model.predict_y(X_test)
    return float(np.sqrt(np.mean((predicted - Y_test) ** 2)))


order, sizes, errors = np.random.default_rng(1).permutation(N), [20, 60, 200], []
for size in sizes:
    rows = order[:size]
    small = gd.build(X[rows], Y[rows], verbose=False)
    gd.fit(small, progress=False)
    errors.append(held_out_error(small))
sizes, errors = [*sizes, N], [*errors, held_out_error(model)]

# %% tags=["thumbnail", "remove-input"]
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.6), layout="constrained")
gd.wrappers.plot_posterior_1d(model, (X, Y), left)
right.plot(sizes, errors, "o-")
right.axhline(NOISE, color="0.5", linestyle="--")
right.set(xscale="log", xlabel="rows", ylabel="RMSE on held-out data")

# %% [markdown]
# The band is wide in the gap and beyond the data, where the model does not know. `predict_f` is about the function,
# `predict_y` about new observations:

# %%
mean, variance = (np.asarray(part) for part in model.predict_f(X_test))
for row in range(3):
    width = 2 * variance[row, 0] ** 0.5
    print(f"f({X_test[row, 0]:.2f}) = {mean[row, 0]:.3f} +- {width:.3f}")

# %% [markdown]
# ## Classification
#
# The third argument is the kind of the target. Labels are 0 and 1; `predict_y` gives the probability of 1.


# %%
def probability_of_one(x):
    return 1.0 / (1.0 + np.exp(-3.0 * truth(x)))


some = rng.choice(N, 500, replace=False)
labels = (rng.uniform(size=(500, 1)) < probability_of_one(X[some])).astype(float)
classifier = gd.build(X[some], labels, "bernoulli")
print(gd.fit(classifier).reason)


# %% [markdown]
# Predicted probabilities beside the true ones; ticks are the labels:


# %% tags=["remove-input"]
grid = np.linspace(0, 10, 300)[:, None]
probability = np.asarray(classifier.predict_y(grid)[0])
figure, axis = plt.subplots(figsize=(8, 3.5), layout="constrained")
axis.plot(grid, probability_of_one(grid), "k--", label="true probability")
axis.plot(grid, probability, label="predicted")
axis.plot(X[some], labels, "|", color="0.5", label="labels")
axis.set(xlabel="x", ylabel="probability of 1")
axis.legend(bbox_to_anchor=(1.0, 1.0), loc="upper left", frameon=False)

# %% [markdown]
# ## How good is it?
#
# The error is that of the noise, the truth lies in the band at most held-out inputs, and the gap is less certain than the
# rest. Five hundred labels tell less than 1,500 values; still the classifier's probabilities are close to the true ones.

# %% tags=["remove-input"]
rmse = float(np.sqrt(np.mean((mean - Y_test) ** 2)))
inside = float(np.mean(np.abs(mean - truth(X_test)) < 2 * np.sqrt(variance)))
in_gap = float(np.sqrt(model.predict_f(np.array([[5.0]]))[1][0, 0]))
observed = ((grid < 4) | (grid > 6))[:, 0]
error = np.abs(probability - probability_of_one(grid))[observed].mean()
print(f"RMSE {rmse:.3f} at noise {NOISE}; truth within the band: {inside:.0%}")
print(f"probabilities off by {error:.3f}")

# %% tags=["remove-cell"]
assert rmse < 1.1 * NOISE
assert inside > 0.8
assert in_gap > 3 * float(np.median(np.sqrt(variance)))
assert error < 0.12
assert errors[-1] < errors[0]
for number in plt.get_fignums():  # of a script; a notebook has shown and closed them
    plt.figure(number).savefig(OUTPUT / f"01_{number}.png", bbox_inches="tight")
