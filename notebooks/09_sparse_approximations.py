# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Sparse approximations side by side
#
# **The idea.** A Gaussian process regression on $N$ observations needs the Cholesky factor of $K + \sigma^2 I$, at a cost of
# $N^3$. Sparse methods let $M$ *inducing inputs* stand for the observations. They replace the kernel matrix $K = K_{ff}$ by
#
# $$Q = K_{fu}\,K_{uu}^{-1}\,K_{uf},$$
#
# of rank $M$, and differ in what they do with the rest, $K - Q$:
#
# | method | what is maximised | here |
# |---|---|---|
# | VFE (Titsias 2009) | $\log\mathcal N(y; 0, Q + \sigma^2 I) - \frac{1}{2\sigma^2}\operatorname{tr}(K - Q)$ | `SGPR` |
# | DTC (Seeger et al. 2003) | $\log\mathcal N(y; 0, Q + \sigma^2 I)$ | `DTC` |
# | FITC (Snelson 2006) | $\log\mathcal N(y; 0, Q + \operatorname{diag}(K - Q) + \sigma^2 I)$ | `GPRFITC` |
#
# `SGPR` and `GPRFITC` are GPflow's. Only the first is a lower bound of $\log p(y)$. Bauer, van der Wilk and Rasmussen (2016)
# compared FITC and VFE; this notebook checks what they saw. [Notebook 2](02_decoupled_bases.ipynb) compares the models of
# this package.

# %%
import gpflow
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
from gpflow.models import GPR, GPRFITC, SGPR

from gpflow_decoupled.inducing import select
from gpflow_decoupled.models import DTC

EVALUATIONS, PLACES = 2000, 240

# %% tags=["remove-cell"]
import os
from pathlib import Path

FAST = os.environ.get("NOTEBOOK_FAST", "") == "1"  # the tests run a smaller one
OUTPUT = Path("notebook_output")
OUTPUT.mkdir(exist_ok=True)
if FAST:
    EVALUATIONS, PLACES = 200, 40
snelson = Path(os.environ.get("GPFLOW_DECOUPLED_DATA", "no folder")) / "snelson.npz"

# %% [markdown]
# ## Data
#
# Two hundred observations of a draw from a Gaussian process with a squared exponential kernel, like the data of Snelson that
# the papers use. (Run as a script, the notebook takes his own, if the variable `GPFLOW_DECOUPLED_DATA` names a folder that has
# `snelson.npz`.)

# %%
rng = np.random.default_rng(0)
X = rng.uniform(0.0, 6.0, (200, 1))
K = gpflow.kernels.SquaredExponential(0.8, 0.6)(X).numpy() + 1e-8 * np.eye(200)
Y = np.linalg.cholesky(K) @ rng.standard_normal((200, 1))
Y += np.sqrt(0.08) * rng.standard_normal((200, 1))
grid = np.linspace(-1.0, 7.0, 200)[:, None]

# %% tags=["remove-cell"]
if snelson.is_file():
    with np.load(snelson) as arrays:
        X, Y = arrays["X"], arrays["Y"]

# %% [markdown]
# ## Training, and the exact answer
#
# Kernel, noise variance and inducing inputs are learned together by L-BFGS, for every method alike. The full GP on these data
# is affordable, and is what the others should come to.


# %%
def kernel():
    return gpflow.kernels.SquaredExponential()


def value(model):
    return float(model.maximum_log_likelihood_objective())


def noise(model):
    return float(model.likelihood.variance.numpy())


def train(model):
    """Maximise the model's objective; what it ends at, in nats."""
    scipy, options = gpflow.optimizers.Scipy(), {"maxiter": EVALUATIONS}
    scipy.minimize(model.training_loss, model.trainable_variables, options=options)
    return value(model)


# %%
full = GPR((X, Y), kernel(), noise_variance=0.1)
evidence = train(full)
print(f"full GP: log p(y) {evidence:.2f} nats, noise variance {noise(full):.4f}")

# %% [markdown]
# Two more quantities say how a fit differs from the full GP: the divergence of its predictive density of $y$,
# $\operatorname{KL}\bigl(p_\text{full}(y \mid x)\,\|\,p(y \mid x)\bigr)$, as a mean over a grid, and the number of inducing
# inputs that lie on top of a neighbour, within a twentieth of a lengthscale.


# %%
def distance(model):
    m, v = (moment.numpy() for moment in model.predict_y(grid))
    m_full, v_full = (moment.numpy() for moment in full.predict_y(grid))
    ratio = (v_full + (m - m_full) ** 2) / v
    return float(np.mean(0.5 * (np.log(v / v_full) + ratio - 1.0)))


def clumped(model):
    gaps = np.diff(np.sort(model.inducing_variable.Z.numpy()[:, 0]))
    return int(np.sum(gaps < 0.05 * model.kernel.lengthscales.numpy()))


# %% [markdown]
# ## What more inducing inputs do
#
# Each method starts from the same random rows of the data as inducing inputs.

# %%
TYPES = {"VFE": SGPR, "FITC": GPRFITC, "DTC": DTC}
COLOURS = {"full GP": "k", "VFE": "C0", "FITC": "C1", "DTC": "C2"}
numbers = [4, 8, 15, 30]

# %% tags=["remove-cell"]
if FAST:
    numbers = [4, 8, 15]

# %%
fits = {}
print("           objective less log p(y)   noise ratio     KL   clumped")
for name, model_type in TYPES.items():
    for M in numbers:
        Z = select(X, M, method="random", seed=0)
        model = fits[name, M] = model_type((X, Y), kernel(), Z, noise_variance=0.1)
        gap = train(model) - evidence
        print(
            f"{name:4s} {M:3d}  {gap:18.3f}  {noise(model) / noise(full):16.3f}"
            f"  {distance(model):9.1e}  {clumped(model):4d}"
        )


# %% [markdown]
# The table as a picture:


# %% tags=["remove-input"]
figure, axes = plt.subplots(2, 2, figsize=(9, 5.6), layout="constrained")
drawn = {
    "objective less log p(y), nats": lambda model: value(model) - evidence,
    "noise variance": noise,
    "KL from the full GP, nats": distance,
    "clumped inducing inputs": clumped,
}
for axis, (label, quantity) in zip(axes.flat, drawn.items()):
    for name in TYPES:
        heights = [quantity(fits[name, M]) for M in numbers]
        axis.plot(numbers, heights, "o-", ms=3, color=COLOURS[name], label=name)
    axis.set(xlabel="inducing inputs", title=label)
axes[0, 0].set_ylim(-40.0, 15.0)
axes[0, 0].axhline(0.0, color="k", lw=1)
axes[0, 1].axhline(noise(full), color="k", lw=1, label="full GP")
axes[1, 0].set_yscale("log")
handles = axes[0, 1].get_legend_handles_labels()
figure.legend(*handles, frameon=False, loc="outside lower center", ncols=4)

# %% [markdown]
# * **VFE** explains what few points cannot by more noise. Its objective approaches $\log p(y)$ from below, and its
#   posterior is soon that of the full GP.
# * **FITC** has a noise that depends on the input, $\sigma^2 + (K - Q)_{nn}$, so that $\sigma^2$ is left too small. Its
#   objective overshoots $\log p(y)$, and points that it has no use for end on top of others.
# * **DTC** overshoots too, and its predictions stay far from the full GP's.
#
# The predictions with eight points show it; dashed is the full GP, and ticks are inducing inputs:

# %% tags=["thumbnail", "remove-input"]
few = 8
figure, axes = plt.subplots(1, 3, figsize=(11, 3.3), sharey=True, layout="constrained")
for axis, name in zip(axes, TYPES):
    for label, model in {"full GP": full, name: fits[name, few]}.items():
        mean, variance = (part.numpy()[:, 0] for part in model.predict_y(grid))
        style = {"color": COLOURS[label], "ls": "--" if label == "full GP" else "-"}
        axis.plot(grid, mean, lw=1.5, **style)
        for sign in (-2.0, 2.0):
            axis.plot(grid, mean + sign * np.sqrt(variance), lw=0.8, **style)
    points = fits[name, few].inducing_variable.Z.numpy()
    ticks = {"color": "k", "ms": 10, "transform": axis.get_xaxis_transform()}
    axis.plot(points, np.full_like(points, 0.03), "|", **ticks)
    axis.plot(X, Y, ".", color="0.7", ms=2, zorder=0)
    axis.set(title=f"{name}, {few} inducing inputs", xlabel="x")

# %% [markdown]
# ## One more inducing input
#
# What does a ninth point bring, place by place, at the full GP's hyperparameters? Adding a point makes $Q$ larger and $K - Q$
# smaller, in the order of positive semidefinite matrices. VFE can only gain by that. FITC loses at many places: the
# noise $(K - Q)_{nn}$ that it gives up was of use. On top of another point nothing changes, so that clumping avoids the loss.

# %% tags=["remove-input"]
eight = select(X, 8, method="kmeans", seed=0)
places = np.linspace(0.0, 6.0, PLACES)
gains = {}
for name in ("VFE", "FITC"):
    options = {"noise_variance": noise(full)}
    with_eight = value(TYPES[name]((X, Y), full.kernel, eight, **options))
    nine = TYPES[name]((X, Y), full.kernel, np.vstack([eight, [[0.0]]]), **options)
    with_nine = tf.function(nine.maximum_log_likelihood_objective)
    gains[name] = []
    for place in places:
        nine.inducing_variable.Z.assign(np.vstack([eight, [[place]]]))
        gains[name].append(float(with_nine()) - with_eight)
    print(f"{name:4s} {min(gains[name]):+.3f} to {max(gains[name]):+.3f} nats")

# %% tags=["remove-input"]
figure, axes = plt.subplots(1, 2, figsize=(11, 3), layout="constrained")
for axis, name in zip(axes, gains):
    axis.plot(places, gains[name], color=COLOURS[name], label="gain")
    axis.axhline(0.0, color="k", lw=0.8)
    axis.plot(eight, np.zeros_like(eight), "k|", ms=10, label="the eight")
    axis.set(title=f"{name}: gain by a ninth point", xlabel="its place", ylabel="nats")
axes[0].legend(frameon=False, loc="upper right")

# %% [markdown]
# ## Is the exact posterior kept?
#
# With fifteen points VFE has nearly the full GP's posterior. FITC and DTC are started there, where their objectives are close
# to $\log p(y)$. They do not stay: the objectives rise above $\log p(y)$, and the posterior is lost. (With thirty points, and
# from $Z = X$, they stay, since so many inputs are a plateau.)

# %% tags=["remove-input"]
solution = fits["VFE", 15]
recovery = {}
for name in ("FITC", "DTC"):
    Z = solution.inducing_variable.Z.numpy()
    model = TYPES[name]((X, Y), kernel(), Z, noise_variance=noise(solution))
    values = gpflow.utilities.read_values(solution.kernel)
    gpflow.utilities.multiple_assign(model.kernel, values)
    before = value(model) - evidence, distance(model)
    recovery[name] = train(model) - evidence, distance(model)
    for when, (gap, divergence) in {"before": before, "after": recovery[name]}.items():
        print(f"{name:4s} {when:6s}: {gap:+.3f} nats of log p(y), KL {divergence:.1e}")
    print(f"{'':12s} {noise(model) / noise(full):.3f} times the noise")

# %% [markdown]
# ## In short
#
# VFE is a bound: more points never hurt, and with enough of them it is the full GP. FITC and DTC maximise something else,
# whose maximum is not there. Every variational model of this package inherits the first property.

# %% tags=["remove-cell"]
first, last = numbers[0], numbers[-1]
vfe_values = [value(fits["VFE", M]) for M in numbers]
assert np.all(np.diff(vfe_values) > -0.01)  # a bound, that more inputs improve
assert max(vfe_values) <= evidence + 1e-3
assert max(value(fits["FITC", M]) for M in numbers) > evidence + 0.5
assert noise(fits["FITC", few]) < 0.9 * noise(full)
assert noise(fits["VFE", first]) > 1.1 * noise(full)
assert clumped(fits["FITC", last]) > clumped(fits["VFE", last])
others = min(distance(fits["FITC", last]), distance(fits["DTC", last]))
assert distance(fits["VFE", last]) < 0.1 * others
assert min(gains["VFE"]) > -1e-3 and min(gains["FITC"]) < -0.1
assert min(gap for gap, _ in recovery.values()) > 1.0
assert min(divergence for _, divergence in recovery.values()) > 10.0 * distance(
    solution
)
for number in plt.get_fignums():  # of a script; a notebook has shown and closed them
    plt.figure(number).savefig(OUTPUT / f"09_{number}.png", bbox_inches="tight")
