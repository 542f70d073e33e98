# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Skewed and heavy-tailed posteriors
#
# **The idea.** A Gaussian approximation is symmetric and has light tails. Posteriors of classifiers and of sparse models have
# neither property. Challis and Barber (2012) keep what makes a Gaussian convenient, an affine map of independent variables,
# and give up that those are normal:
#
# $$w = A\,v + b, \qquad q(v) = \prod_d q_d(v_d),$$
#
# where each $q_d$ is skew-normal, or generalised normal, a family with the Laplace and the Gaussian distribution in it.
#
# [The mathematics](../mathematics/affine.md) has the bound. Here it meets the best Gaussian, on problems that are small
# enough for the exact posterior.

# %%
import warnings

import gpflow
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import stats
from scipy.special import log_expit, logsumexp

from gpflow_decoupled.likelihoods import BernoulliLogit, Laplace
from gpflow_decoupled.models import AffineIndependentGLM, AffineIndependentGP
from gpflow_decoupled.optimizers import AffineIndependentAscent

tfd = tfp.distributions

# %% tags=["remove-cell"]
import os
from pathlib import Path

FAST = os.environ.get("NOTEBOOK_FAST", "") == "1"  # the tests run a smaller one
OUTPUT = Path("notebook_output")
OUTPUT.mkdir(exist_ok=True)
POINTS, DRAWS, PLACES = (401, 200_000, 25) if FAST else (801, 1_000_000, 120)
warnings.filterwarnings("ignore", message="There is one observation")  # as in the paper
warnings.filterwarnings("ignore", message=".* is constant")

# %% [markdown]
# ## Two weights
#
# The problems of the paper's Figures 1 to 3 have two weights, so that a grid gives the exact posterior and $\log Z$, from the
# log joint density $\log p(y, w)$.
#
# **A sparse prior.** One observation $y = x^T w + \epsilon$, and a Laplace prior, whose posterior has ridges along the axes:
#
# $$p(y, w) = \mathcal N(y;\, x^T w,\, 0.05)\,\prod_d \operatorname{Laplace}(w_d;\, 0,\, 0.16).$$


# %%
def sparse():
    X, Y = np.array([[0.1, 1.0]]), np.array([[1.0]])
    prior = tfd.Laplace(np.float64(0.0), np.float64(0.16))
    options = {"prior": prior, "base": "generalized_normal"}

    def log_joint(w):
        log_likelihood = stats.norm(Y.T, 0.05**0.5).logpdf(w @ X.T).sum(1)
        return log_likelihood + stats.laplace(0.0, 0.16).logpdf(w).sum(1)

    return (X, Y), gpflow.likelihoods.Gaussian(0.05), options, log_joint


# %% [markdown]
# **Steep labels.** Four labels of a logistic regression with a steep sigmoid $\sigma$ cut the posterior off on one side:
#
# $$p(y, w) = \prod_n \sigma\bigl((2 y_n - 1)\, x_n^T w\bigr)\;\mathcal N(w;\, 0,\, 10\, I).$$


# %%
def logistic():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((4, 2))
    w = np.sqrt(10.0) * rng.standard_normal(2)
    Y = (rng.uniform(size=4) < 1.0 / (1.0 + np.exp(-5.0 * X @ w))).astype(float)
    X, Y = 5.0 * X, Y[:, None]  # the slope of the sigmoid
    prior = tfd.MultivariateNormalDiag(np.zeros(2), np.sqrt(10.0) * np.ones(2))

    def log_joint(w):
        log_likelihood = log_expit((2.0 * Y.T - 1.0) * (w @ X.T)).sum(1)
        return log_likelihood + stats.norm(0.0, 10.0**0.5).logpdf(w).sum(1)

    return (X, Y), BernoulliLogit(), {"prior": prior}, log_joint


# %% [markdown]
# **Laplace noise.** Two observations with heavy-tailed noise, and a standard normal prior:
#
# $$p(y, w) = \prod_n \operatorname{Laplace}(y_n;\, x_n^T w,\, 0.158)\;\mathcal N(w;\, 0,\, I).$$


# %%
def robust():
    X, Y = np.array([[1.0, 0.3], [-0.4, 1.0]]), np.array([[1.2], [-1.6]])

    def log_joint(w):
        log_likelihood = stats.laplace(Y.T, 0.1581).logpdf(w @ X.T).sum(1)
        return log_likelihood + stats.norm(0.0, 1.0).logpdf(w).sum(1)

    return (X, Y), Laplace(0.1581), {"base": "generalized_normal"}, log_joint


# %% [markdown]
# ### The two approximations
#
# `AffineIndependentGLM` is the linear model. `AffineIndependentAscent` finds the best Gaussian first and goes on from there,
# so that its bound never ends below. With `base="normal"` the Gaussian is all that is left.

# %%
problems = {"sparse prior": sparse, "steep labels": logistic, "Laplace noise": robust}
models, runs = {}, {}
for name, problem in problems.items():
    data, likelihood, options, _ = problem()
    gaussian = {**options, "base": "normal"}
    models[name] = [
        AffineIndependentGLM(data, likelihood, intercept=False, **one)
        for one in (gaussian, options)
    ]
    runs[name] = [AffineIndependentAscent().run(model) for model in models[name]]
    print(f"{name:14s} {runs[name][1]}")

# %% [markdown]
# ### The exact posterior


# %% tags=["remove-input"]
def grid(low, high, points):
    """Lines and cells of a grid in two dimensions, and the area of a cell."""
    lines = [np.linspace(low[d], high[d], points) for d in range(2)]
    cells = np.stack(np.meshgrid(*lines), -1).reshape(-1, 2)
    return lines, cells, np.prod([line[1] - line[0] for line in lines])


def density(model, w):
    """The density of q at weights w [S, 2]."""
    weights = model.projections(np.eye(2))
    A, b = weights.alpha.numpy(), weights.beta.numpy()
    v = tf.constant(np.linalg.solve(A, (w - b).T).T)
    log_q = tf.reduce_sum(model.basis.base.log_prob(v, model.basis.shapes), axis=1)
    return np.exp(log_q.numpy() - np.log(abs(np.linalg.det(A))))


# %% [markdown]
# The distance is the total variation, between 0 and 1, $\operatorname{TV}(q, p) = \tfrac12 \int |q(w) - p(w \mid y)|\, dw$.

# %% tags=["remove-input"]
reach = {"sparse prior": 2.5, "steep labels": 20.0, "Laplace noise": 4.5}
bounds, distances, windows = {}, {}, {}
for name, problem in problems.items():
    log_joint = problem()[-1]
    corner = np.full(2, reach[name])
    _, cells, area = grid(-corner, corner, POINTS)
    log_evidence = logsumexp(log_joint(cells)) + np.log(area)
    posterior = np.exp(log_joint(cells) - log_evidence)
    bounds[name] = runs[name][0].elbo, runs[name][1].elbo, log_evidence
    distances[name] = [
        0.5 * np.sum(np.abs(density(model, cells) - posterior)) * area
        for model in models[name]
    ]
    mean = area * posterior @ cells
    width = np.sqrt(area * posterior @ (cells - mean) ** 2)
    windows[name] = mean - 3.6 * width, mean + 3.6 * width

# %% tags=["remove-input"]
print("                        Gaussian  affine-independent      log Z")
for name in problems:
    low, high, log_evidence = bounds[name]
    print(f"{name:14s} bound   {low:8.4f}  {high:18.4f}  {log_evidence:9.4f}")
    low, high = distances[name]
    print(f"{'':14s} TV      {low:8.4f}  {high:18.4f}")


# %% [markdown]
# Contours of the three densities over the two weights:


# %% tags=["thumbnail", "remove-input"]
figure, axes = plt.subplots(3, 3, figsize=(9.5, 8.5), layout="constrained")
titles = "posterior", "Gaussian", "affine-independent"
for row, (name, problem) in zip(axes, problems.items()):
    lines, cells, _ = grid(*windows[name], 161)
    truth = np.exp(problem()[-1](cells) - bounds[name][-1])
    shown = truth, *(density(model, cells) for model in models[name])
    levels = np.max(truth) * np.array([0.01, 0.03, 0.1, 0.25, 0.5, 0.8])
    for axis, title, values in zip(row, titles, shown):
        values = values.reshape(161, 161)
        axis.contour(*lines, values, levels=levels, cmap="viridis", linewidths=1.2)
        axis.set_title(f"{name}: {title}", fontsize=10)

# %% [markdown]
# ## A Gaussian process classifier
#
# `AffineIndependentGP` does the same for the latent function of a classifier,
#
# $$p(y, f) = \prod_n \sigma\bigl((2 y_n - 1)\, f_n\bigr)\;\mathcal N(f;\, 0,\, K).$$
#
# Where neighbouring labels agree and the prior is broad, $f$ is bounded on one side by the labels and runs out on the other.
# `predict_f_density` has the density of any projection.

# %%
inputs = np.array([0.5, 1.0, 1.4, 3.6, 4.2, 4.6, 7.0, 7.4])[:, None]
labels = np.array([1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 1.0])[:, None]


def kernel():
    return gpflow.kernels.Matern52(16.0, lengthscales=1.5)


processes = {
    base: AffineIndependentGP((inputs, labels), kernel(), BernoulliLogit(), base=base)
    for base in ("normal", "skew_normal")
}
process_runs = {
    base: AffineIndependentAscent().run(model) for base, model in processes.items()
}

# %% [markdown]
# Eight latent values are too many for a grid. The truth is now a million draws from the prior, weighted by their likelihood.

# %% tags=["remove-input"]
styles = {"normal": ("Gaussian", "C1", "--"), "skew_normal": ("skew-normal", "C0", "-")}
rng = np.random.default_rng(6)
root = np.linalg.cholesky(kernel()(inputs).numpy() + 1e-9 * np.eye(len(inputs)))
latent = rng.standard_normal((DRAWS, len(inputs))) @ root.T
log_likelihood = np.sum(log_expit((2.0 * labels.T - 1.0) * latent), axis=1)
process_evidence = logsumexp(log_likelihood) - np.log(len(latent))
importance = np.exp(log_likelihood - logsumexp(log_likelihood))
evidence_error = np.sqrt(np.sum(importance**2))  # of log Z, about
for base, run in process_runs.items():
    print(f"{base:11s} bound {run.elbo:.4f}")
print(f"log Z             {process_evidence:.4f} +- {evidence_error:.4f}")

# %% tags=["remove-input"]
values, edges = np.linspace(-15.0, 15.0, 301), np.linspace(-15.0, 15.0, 76)
centres, bin_width = 0.5 * (edges[1:] + edges[:-1]), edges[1] - edges[0]
heights = [
    np.histogram(latent[:, n], edges, weights=importance, density=True)[0]
    for n in range(len(inputs))
]
marginals = {
    base: model.predict_f_density(inputs, values).numpy()
    for base, model in processes.items()
}
site_distances = {base: [] for base in processes}
for base, densities in marginals.items():
    for n, truth in enumerate(heights):
        gap = np.abs(np.interp(centres, values, densities[n]) - truth)
        site_distances[base].append(0.5 * bin_width * np.sum(gap))
    print(f"{base:11s} mean total variation {np.mean(site_distances[base]):.3f}")


# %% [markdown]
# The densities of $f$ at four of the inputs:


# %% tags=["remove-input"]
figure, axes = plt.subplots(1, 4, figsize=(11, 3.2), sharey=True, layout="constrained")
for axis, n in zip(axes, (0, 2, 4, 7)):
    axis.stairs(heights[n], edges, fill=True, color="0.8", label="weighted draws")
    for base, (label, colour, dashes) in styles.items():
        density_of_f = marginals[base][n]
        axis.plot(values, density_of_f, color=colour, linestyle=dashes, label=label)
    axis.set_xlim((-5, 13) if labels[n, 0] else (-13, 5))
    axis.set(title=f"f({inputs[n, 0]:g}), label {labels[n, 0]:.0f}", xlabel="value")
axes[0].set_ylabel("density")
handles = axes[0].get_legend_handles_labels()
figure.legend(*handles, frameon=False, loc="outside lower center", ncols=3)

# %% [markdown]
# ### Intervals and class probabilities
#
# Quantiles and class probabilities come from the same densities. The 90 % interval of the skewed posterior is not symmetric
# about its median; the class probabilities hardly differ.

# %% tags=["remove-input"]
places = np.linspace(-1.0, 9.0, PLACES)[:, None]
figure, axes = plt.subplots(1, 2, figsize=(11, 3.4), layout="constrained")
for base, (label, colour, dashes) in styles.items():
    style = {"color": colour, "linestyle": dashes}
    quantiles = processes[base].predict_f_quantiles(places, (0.05, 0.5, 0.95))
    lower, median, upper = quantiles.T
    axes[0].plot(places, median, linewidth=2, label=f"{label}: median, 90 %", **style)
    axes[0].plot(places, np.stack([lower, upper], 1), linewidth=1, **style)
    probability, _ = processes[base].predict_y(places)
    axes[1].plot(places, probability, label=label, **style)
axes[0].set(xlabel="x", ylabel="f(x)")
axes[1].plot(inputs, labels, "k.", label="labels")
axes[1].set(xlabel="x", ylabel="probability of label 1", ylim=(-0.05, 1.05))
handles = axes[0].get_legend_handles_labels()
figure.legend(*handles, frameon=False, loc="outside lower center", ncols=2)

# %% [markdown]
# ## In short
#
# On every problem here the affine-independent bound lies between the Gaussian one and $\log Z$, and its posterior is nearer to
# the exact one. It costs more: one gradient needs a transform for each observation. Use it where there are few observations
# and the shape of the posterior matters; [what to use when](../choosing.md) compares it with the other models.

# %% tags=["remove-cell"]
assert all(lower <= middle <= evidence for lower, middle, evidence in bounds.values())
assert all(skewed < symmetric for symmetric, skewed in distances.values())
process_bounds = [process_runs[base].elbo for base in styles]
assert process_bounds[0] <= process_bounds[1] <= process_evidence + 3.0 * evidence_error
assert np.mean(site_distances["skew_normal"]) < np.mean(site_distances["normal"])
for number in plt.get_fignums():  # of a script; a notebook has shown and closed them
    plt.figure(number).savefig(OUTPUT / f"06_{number}.png", bbox_inches="tight")
