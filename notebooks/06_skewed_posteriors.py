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
# A Gaussian q is symmetric and has light tails; posteriors of classifiers and of sparse models are neither. Challis & Barber
# (2012) take weights w = A v + b, an affine map of independent variables v that are not normal: skew-normal, or generalised
# normal between Laplace and Gaussian. The bound on log Z stays computable, because every observation sees one projection of
# w, a sum of independent variables, whose characteristic function is a product.

# %%
import os
import warnings
from pathlib import Path

import gpflow
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from scipy.special import log_expit, logsumexp

from gpflow_decoupled.likelihoods import BernoulliLogit, Laplace
from gpflow_decoupled.models import AffineIndependentGLM, AffineIndependentGP
from gpflow_decoupled.optimizers import AffineIndependentAscent

tfd = tfp.distributions
FAST = os.environ.get("NOTEBOOK_FAST", "") == "1"
OUTPUT = Path("notebook_output")
OUTPUT.mkdir(exist_ok=True)
warnings.filterwarnings("ignore", message="There is one observation")  # as in the paper
warnings.filterwarnings("ignore", message=".* is constant")

# %% [markdown]
# ## Two weights
#
# The three problems of the paper's Figures 1 to 3: linear regression with a sparse prior, logistic regression with steep
# labels, and regression with Laplace noise. Two weights let a grid do what is exact: the posterior, and log Z.


# %%
def sparse():
    X, Y = np.array([[0.1, 1.0]]), np.array([[1.0]])
    prior = tfd.Laplace(np.float64(0.0), np.float64(0.16))
    options = {"prior": prior, "base": "generalized_normal"}

    def log_joint(w):
        noise = -0.5 * np.sum((w @ X.T - Y.T) ** 2, axis=1) / 0.05 - 0.5 * np.log(
            2.0 * np.pi * 0.05
        )
        return noise - np.sum(np.abs(w), axis=1) / 0.16 - 2.0 * np.log(0.32)

    return (X, Y), gpflow.likelihoods.Gaussian(0.05), options, log_joint


def logistic():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((4, 2))
    w = np.sqrt(10.0) * rng.standard_normal(2)
    Y = (rng.uniform(size=4) < 1.0 / (1.0 + np.exp(-5.0 * X @ w))).astype(float)[
        :, None
    ]
    X = 5.0 * X  # the slope of the sigmoid
    options = {
        "prior": tfd.MultivariateNormalDiag(np.zeros(2), np.sqrt(10.0) * np.ones(2))
    }

    def log_joint(w):
        likelihood = np.sum(log_expit((2.0 * Y.T - 1.0) * (w @ X.T)), axis=1)
        return likelihood - 0.05 * np.sum(w**2, axis=1) - np.log(2.0 * np.pi * 10.0)

    return (X, Y), BernoulliLogit(), options, log_joint


def robust():
    X, Y = np.array([[1.0, 0.3], [-0.4, 1.0]]), np.array([[1.2], [-1.6]])

    def log_joint(w):
        likelihood = np.sum(
            -np.abs(w @ X.T - Y.T) / 0.1581 - np.log(2.0 * 0.1581), axis=1
        )
        return likelihood - 0.5 * np.sum(w**2, axis=1) - np.log(2.0 * np.pi)

    return (X, Y), Laplace(0.1581), {"base": "generalized_normal"}, log_joint


def plane(low, high, points):
    """Cells of a grid in two dimensions [points^2, 2], and the area of one."""
    axes = [np.linspace(low[d], high[d], points) for d in range(2)]
    return (
        axes,
        np.stack(np.meshgrid(*axes), -1).reshape(-1, 2),
        np.prod([axis[1] - axis[0] for axis in axes]),
    )


def density_of_weights(model, w):
    """The density of q at weights w [S, 2]: that of v, and the determinant of the map."""
    weights = model.projections(np.eye(2))  # row d is weight d as a sum of the v
    matrix, centre = weights.alpha.numpy(), weights.beta.numpy()
    v = np.linalg.solve(matrix, (w - centre).T).T
    log_q = tf.reduce_sum(
        model.basis.base.log_prob(tf.constant(v), model.basis.shapes), axis=1
    ).numpy()
    return np.exp(log_q - np.log(abs(np.linalg.det(matrix))))


# %%
toys = {
    "sparse prior": (sparse, 2.5),
    "steep labels": (logistic, 20.0),
    "Laplace noise": (robust, 4.5),
}
bounds, distances = {}, {}
figure, axes = plt.subplots(3, 3, figsize=(10.5, 9.5), layout="constrained")
for row, (name, (problem, reach)) in zip(axes, toys.items()):
    data, likelihood, options, log_joint = problem()
    _, wide, area = plane(
        [-reach, -reach], [reach, reach], 401 if FAST else 801
    )  # more than what is drawn, for log Z
    joint = log_joint(wide)
    log_evidence = logsumexp(joint) + np.log(area)
    weight = np.exp(joint - logsumexp(joint))
    mean = weight @ wide
    width = np.sqrt(weight @ (wide - mean) ** 2)
    lines, cells, _ = plane(mean - 3.6 * width, mean + 3.6 * width, 161)
    truth = np.exp(log_joint(cells) - log_evidence)

    model = AffineIndependentGLM(data, likelihood, intercept=False, **options)
    result = AffineIndependentAscent().run(model)
    gaussian = AffineIndependentGLM(
        data, likelihood, intercept=False, **{**options, "base": "normal"}
    )
    AffineIndependentAscent().run(gaussian)
    bounds[name] = result.gaussian_elbo, result.elbo, log_evidence
    densities = {
        f"{name}: log Z {log_evidence:.3f}": truth,
        f"Gaussian: bound {result.gaussian_elbo:.3f}": density_of_weights(
            gaussian, cells
        ),
        f"affine-independent: bound {result.elbo:.3f}": density_of_weights(
            model, cells
        ),
    }
    levels = np.max(truth) * np.array([0.01, 0.03, 0.1, 0.25, 0.5, 0.8])
    for axis, (title, values) in zip(row, densities.items()):
        axis.contour(
            *lines,
            values.reshape(161, 161),
            levels=levels,
            cmap="viridis",
            linewidths=1.2,
        )
        axis.set_title(title, fontsize=10)
    distances[name] = [
        0.5
        * np.sum(np.abs(density_of_weights(one, wide) - np.exp(joint - log_evidence)))
        * area
        for one in (gaussian, model)
    ]
    print(
        f"{name:14s} Gaussian {bounds[name][0]:.4f} <= affine-independent {bounds[name][1]:.4f} <= {log_evidence:.4f};"
        f" total variation {distances[name][0]:.3f}, {distances[name][1]:.3f}"
    )
figure.savefig(OUTPUT / "skewed_contours.png", dpi=120)

# %% [markdown]
# ## Logistic regression
#
# Few steep labels leave weights that are bounded on one side only, by the labels, and on the other by the prior alone.
# `predict_f_density` gives densities of any projection; the density of a weight is that at a row of the identity. Three
# weights leave a grid possible.

# %%
rng = np.random.default_rng(6)
D, N = 3, 6
X = 3.0 * rng.standard_normal((N, D))
true_w = np.array([2.0, -1.5, 1.0])
Y = (X @ true_w > 0.0).astype(float)[:, None]
prior = tfd.MultivariateNormalDiag(np.zeros(D), np.sqrt(5.0) * np.ones(D))
models = {
    base: AffineIndependentGLM(
        (X, Y), BernoulliLogit(), prior=prior, intercept=False, base=base
    )
    for base in ("normal", "skew_normal")
}
runs = {base: AffineIndependentAscent().run(one) for base, one in models.items()}
line_of_w = np.linspace(-11.0, 11.0, 111)
volume = np.stack(np.meshgrid(*[line_of_w] * D, indexing="ij"), -1).reshape(-1, D)
step = line_of_w[1] - line_of_w[0]
joint = np.sum(log_expit((2.0 * Y.T - 1.0) * (volume @ X.T)), axis=1)
joint += -0.1 * np.sum(volume**2, axis=1) - 0.5 * D * np.log(2.0 * np.pi * 5.0)
logistic_evidence = logsumexp(joint) + D * np.log(step)
cube = np.exp(joint - logistic_evidence).reshape([len(line_of_w)] * D)
print(
    f"Gaussian {runs['normal'].elbo:.4f}, skew-normal {runs['skew_normal'].elbo:.4f}, log Z {logistic_evidence:.4f}"
)
print(runs["skew_normal"])

styles = {"normal": ("Gaussian", "C1", "--"), "skew_normal": ("skew-normal", "C0", "-")}
weight_distances = {base: [] for base in models}
figure, axes = plt.subplots(1, D, figsize=(11, 3), sharey=True, layout="constrained")
for d, axis in enumerate(axes):
    exact = np.sum(
        cube, axis=tuple(other for other in range(D) if other != d)
    ) * step ** (D - 1)
    axis.fill_between(line_of_w, exact, color="0.8", label="posterior")
    for base, (label, colour, line) in styles.items():
        density = (
            models[base].predict_f_density(np.eye(D)[d : d + 1], line_of_w).numpy()[0]
        )
        axis.plot(line_of_w, density, color=colour, linestyle=line, label=label)
        weight_distances[base].append(0.5 * np.sum(np.abs(density - exact)) * step)
    axis.set(title=f"weight {d + 1}", xlabel="value", xlim=(-7, 6))
axes[0].set_ylabel("density")
axes[0].set_ylim(0.0, None)
axes[0].legend(frameon=False, fontsize=8)
figure.savefig(OUTPUT / "skewed_weights.png", dpi=120)
print(
    "total variation, weight by weight:",
    {base: np.round(one, 3).tolist() for base, one in weight_distances.items()},
)

# %% [markdown]
# ## A Gaussian process classifier
#
# `AffineIndependentGP` does the same for a latent function. Where labels agree and the prior is broad, f is bounded below by
# the labels and runs out to the right. Draws from the prior, weighted by the likelihood, are the truth here.

# %%
inputs = np.array([0.5, 1.0, 1.4, 3.6, 4.2, 4.6, 7.0, 7.4])[:, None]
labels = np.array([1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 1.0])[:, None]


def kernel():
    return gpflow.kernels.Matern52(16.0, lengthscales=1.5)


processes = {
    base: AffineIndependentGP((inputs, labels), kernel(), BernoulliLogit(), base=base)
    for base in models
}
process_runs = {
    base: AffineIndependentAscent().run(one) for base, one in processes.items()
}
root = np.linalg.cholesky(kernel()(inputs).numpy() + 1e-9 * np.eye(len(inputs)))
latent = rng.standard_normal((200_000 if FAST else 2_000_000, len(inputs))) @ root.T
log_likelihood = np.sum(log_expit((2.0 * labels.T - 1.0) * latent), axis=1)
process_evidence = logsumexp(log_likelihood) - np.log(len(latent))
importance = np.exp(log_likelihood - logsumexp(log_likelihood))
evidence_error = np.sqrt(np.sum(importance**2))  # of log Z, about
print(
    f"Gaussian {process_runs['normal'].elbo:.4f}, skew-normal {process_runs['skew_normal'].elbo:.4f}, "
    f"log Z {process_evidence:.4f} +- {evidence_error:.4f}"
)

values, edges = np.linspace(-15.0, 15.0, 301), np.linspace(-15.0, 15.0, 76)
site_distances = {base: [] for base in processes}
shown = (0, 2, 4, 7)
figure, axes = plt.subplots(
    1, len(shown), figsize=(12, 3.3), sharey=True, layout="constrained"
)
marginals = {
    base: one.predict_f_density(inputs, values).numpy()
    for base, one in processes.items()
}
for n in range(len(inputs)):
    heights, _ = np.histogram(latent[:, n], edges, weights=importance, density=True)
    for base in processes:
        middle = np.interp(0.5 * (edges[1:] + edges[:-1]), values, marginals[base][n])
        site_distances[base].append(
            0.5 * np.sum(np.abs(middle - heights)) * (edges[1] - edges[0])
        )
    if n in shown:
        axis = axes[shown.index(n)]
        axis.stairs(heights, edges, fill=True, color="0.8", label="weighted samples")
        for base, (label, colour, line) in styles.items():
            axis.plot(
                values, marginals[base][n], color=colour, linestyle=line, label=label
            )
        axis.set_xlim((-5, 13) if labels[n, 0] else (-13, 5))
        axis.set(title=f"f({inputs[n, 0]:g}), label {labels[n, 0]:.0f}", xlabel="value")
axes[0].set_ylabel("density")
figure.legend(
    *axes[0].get_legend_handles_labels(),
    frameon=False,
    loc="outside lower center",
    ncols=3,
)
figure.savefig(OUTPUT / "skewed_process.png", dpi=120)
print(
    "total variation, site by site:",
    {base: np.round(one, 3).tolist() for base, one in site_distances.items()},
)

# %% [markdown]
# Quantiles and class probabilities come from the same densities; the band of the skewed posterior is not symmetric.
# Class probabilities hardly differ here.

# %%
places = np.linspace(-1.0, 9.0, 25 if FAST else 120)[:, None]
figure, axes = plt.subplots(1, 2, figsize=(11, 3.2), layout="constrained")
for base, (label, colour, line) in styles.items():
    lower, median, upper = (
        processes[base].predict_f_quantiles(places, (0.05, 0.5, 0.95)).T
    )
    axes[0].plot(
        places,
        median,
        color=colour,
        linestyle=line,
        linewidth=2,
        label=f"{label}: median, 90 %",
    )
    axes[0].plot(
        places, np.stack([lower, upper], 1), color=colour, linestyle=line, linewidth=1
    )
    probability, _ = processes[base].predict_y(places)
    axes[1].plot(places, probability, color=colour, linestyle=line, label=label)
axes[0].set(xlabel="x", ylabel="f(x)")
axes[1].plot(inputs, labels, "k.", label="labels")
axes[1].set(xlabel="x", ylabel="probability of label 1", ylim=(-0.05, 1.05))
for axis in axes:
    axis.legend(frameon=False, fontsize=8)
figure.savefig(OUTPUT / "skewed_bands.png", dpi=120)

# %%
assert all(lower <= middle <= evidence for lower, middle, evidence in bounds.values())
assert all(skewed < symmetric for symmetric, skewed in distances.values())
assert runs["normal"].elbo <= runs["skew_normal"].elbo <= logistic_evidence
assert np.mean(weight_distances["skew_normal"]) < np.mean(weight_distances["normal"])
assert (
    process_runs["normal"].elbo
    <= process_runs["skew_normal"].elbo
    <= process_evidence + 3.0 * evidence_error
)
assert np.mean(site_distances["skew_normal"]) < np.mean(site_distances["normal"])
