# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Neighbours
#
# **The idea.** The density of $N$ observations is a product of conditionals, each observation given all earlier ones. A
# *nearest-neighbour* GP (Vecchia 1988) keeps the $m$ nearest of the earlier ones,
#
# $$\log p(y) \approx \sum_i \log \mathcal N\bigl(y_i;\; b_i^\top y_{c(i)},\; \tau_i\bigr), \qquad
# b_i = \hat K_{cc}^{-1}\, \hat K_{ci}, \qquad \tau_i = \hat K_{ii} - \hat K_{ic}\, b_i,$$
#
# with $\hat K = K + \sigma^2 I$. This notebook looks at the three steps: neighbours, learning, and whether the intervals hold.
# [Neighbours](../neighbours.md) has the rest: new rows, labels, figures of twelve data sets, and where the method does not
# help.

# %%
import gpflow
import matplotlib.pyplot as plt
import numpy as np

import gpflow_decoupled as gd

N, STEPS, POINTS, NOISE = 6000, 500, 100, 0.05

# %% tags=["remove-cell"]
import os
from pathlib import Path

FAST = os.environ.get("NOTEBOOK_FAST", "") == "1"  # the tests run a smaller one
OUTPUT = Path("notebook_output")
OUTPUT.mkdir(exist_ok=True)
if FAST:
    N, STEPS, POINTS = 600, 50, 15

# %% [markdown]
# ## Data
#
# A function of two inputs that is smoother along one than along the other, with a standard deviation of the noise of 0.05.
# A hundred *inducing points*, the inputs through which a sparse GP sees its data, would be ten along each axis.

# %%
rng = np.random.default_rng(0)


def truth(x):
    wave = np.sin(3.0 * x[:, :1]) * np.cos(9.0 * x[:, 1:])
    return wave + 0.5 * np.abs(np.sin(5.0 * x[:, 1:]))


X = rng.uniform(0.0, 4.0, (N, 2))
y = truth(X) + NOISE * rng.standard_normal((N, 1))
X_test = rng.uniform(0.0, 4.0, (1000, 2))
y_test = truth(X_test) + NOISE * rng.standard_normal((1000, 1))

# %% [markdown]
# ## Who is near whom
#
# Rows are put into a random order, so that early rows have far neighbours and late ones near ones. Distance is that of the
# kernel: inputs divided by the lengthscales. After training, the neighbours of a row stretch along the smooth direction.

# %%
model = gd.models.NNGP(
    (X, y),
    gpflow.kernels.Matern32(lengthscales=[1.0, 1.0]),
    gpflow.likelihoods.Gaussian(0.1),
    num_neighbours=30,
    prediction_neighbours=100,
)
places = [N // 50, N - 1]  # an early row in the order, and the last one
rows = model.order[places]
before = model.neighbours_of(rows).numpy()[0]
result = gd.fit(model, progress=False)
after = model.neighbours_of(rows).numpy()[0]

# %% tags=["thumbnail", "remove-input"]
figure, axes = plt.subplots(1, 2, figsize=(9, 4.2), layout="constrained", sharey=True)
for axis, near, when in zip(axes, (before, after), ("before", "after")):
    axis.plot(*X.T, ",", color="0.6")
    for place, row, mine, colour in zip(places, rows, near, ("C0", "C1")):
        mine = mine[mine >= 0]
        axis.plot(*X[mine].T, ".", color=colour, label=f"of row {place} of the order")
        axis.plot(*X[row], "k+", markersize=12)
    axis.set(title=f"30 nearest rows, {when} training", xlabel="$x_1$")
axes[0].set_ylabel("$x_2$")
axes[1].legend(fontsize="small")

# %% tags=["remove-cell"]
figure.savefig(OUTPUT / "neighbours.png")

# %% [markdown]
# ## What was learned
#
# A step of `fit` is a climb by L-BFGS. The *leave-one-out* score, the mean log density of observations that are predicted
# from all others, judges each.

# %%
print(result)
print("leave-one-out, nats a row:", np.round(result.history["leave_one_out"], 3))
print("lengthscales", np.round(model.kernel.lengthscales.numpy(), 2))
print(f"noise {model.likelihood.variance.numpy() ** 0.5:.4f}, true {NOISE}")

# %% [markdown]
# A model on inducing points sees the same data through a hundred of them. What the points cannot follow counts as noise.

# %%
sparse = gd.build(X, y, num_inducing=POINTS, num_mean_points=0, verbose=False)
gd.fit(sparse, (X, y), steps=STEPS, progress=False)


def scores(model):
    mean, variance = (np.asarray(part) for part in model.predict_y(X_test))
    errors = (y_test - mean) / np.sqrt(variance)
    density = np.mean(-0.5 * (np.log(2.0 * np.pi * variance) + errors**2))
    rmse = np.sqrt(np.mean((mean - truth(X_test)) ** 2))
    return rmse, density, np.mean(np.abs(errors) < 1.96), errors


best = np.mean(
    -0.5 * (np.log(2.0 * np.pi * NOISE**2) + ((y_test - truth(X_test)) / NOISE) ** 2)
)
print("                   error of f   log density   in 95 %")
for name, one in (("neighbours", model), (f"{POINTS} points", sparse)):
    rmse, density, covered, _ = scores(one)
    print(f"{name:18s} {rmse:10.4f} {density:13.3f} {covered:9.3f}")
print(f"{'the true function':18s} {0.0:10.4f} {best:13.3f}")

# %% [markdown]
# ## Do the intervals hold?
#
# `leave_one_out` predicts training rows, each from its nearest other rows: held-out data for nothing. Errors in units of their
# predicted standard deviations should be standard normal.

# %% tags=["remove-input"]
some = rng.choice(N, min(1000, N), replace=False)
left_out = model.leave_one_out(some)
errors = ((y[some] - left_out.mean) / np.sqrt(left_out.variance))[:, 0]
grid = np.linspace(-4.0, 4.0, 200)
figure, axis = plt.subplots(figsize=(6, 3.4), layout="constrained")
options = {"bins": 40, "range": (-4.0, 4.0), "density": True, "histtype": "step"}
axis.hist(errors, label="left-out rows", **options)
axis.hist(scores(model)[3][:, 0], label="test rows", **options)
axis.plot(
    grid, np.exp(-0.5 * grid**2) / np.sqrt(2.0 * np.pi), "k", label="standard normal"
)
axis.set(xlabel="error / standard deviation")
axis.legend()
print(f"leave-one-out log density {left_out.log_density.mean():.3f}")

# %% tags=["remove-cell"]
rmse, density, covered, _ = scores(model)
assert rmse < 0.8 * scores(sparse)[0]
assert covered > 0.9 and density > best - (1.5 if FAST else 0.2)
assert FAST or NOISE / 2 < model.likelihood.variance.numpy() ** 0.5 < 2 * NOISE
