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
# `SGPR` and `GPRFITC` are GPflow's. Only the first is a lower bound of $\log p(y)$. Two more are compared at the end: SVGP,
# the bound of VFE as a sum over observations, and the bound of the *orthogonal* *basis*, the form of the posterior whose mean
# has further points.
#
# Bauer, van der Wilk and Rasmussen (2016) compared FITC and VFE. This notebook checks what they saw, claim by claim.

# %%
import gpflow
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
from gpflow.models import GPR, GPRFITC, SGPR, SVGP

from gpflow_decoupled.inducing import select
from gpflow_decoupled.models import DTC, ODVGP
from gpflow_decoupled.optimizers import NaturalGradient, collapsed_elbo

# %% tags=["remove-cell"]
import os
from pathlib import Path

FAST = os.environ.get("NOTEBOOK_FAST", "") == "1"  # the tests run a smaller one
OUTPUT = Path("notebook_output")
OUTPUT.mkdir(exist_ok=True)
EVALUATIONS, PLACES, STARTS, STEPS = (200, 40, 2, 25) if FAST else (2000, 240, 8, 200)
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
# Two more quantities say how a fit differs from the full GP. The first is the divergence of its predictive density of $y$ from
# that of the full GP, $\operatorname{KL}\bigl(p_\text{full}(y \mid x)\,\|\,p(y \mid x)\bigr)$, as a mean over a grid. The
# second is the number of inducing inputs that lie on top of a neighbour, within a twentieth of a lengthscale.


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

# %%
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

# %% tags=["thumbnail"]
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

# %%
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

# %%
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

# %%
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
# ## Local optima
#
# Bauer et al. found FITC easier to optimise. Here both start from several random sets of eight inducing inputs; and VFE
# starts once from the solution of FITC, kernel and noise included. On these data more of the starts of VFE agree, and FITC's
# solution is a start like others.

# %%
ends, best = {}, {}
for name in ("VFE", "FITC"):
    starts = [fits[name, few]]
    for seed in range(1, STARTS):
        Z = select(X, few, method="random", seed=seed)
        starts.append(TYPES[name]((X, Y), kernel(), Z, noise_variance=0.1))
        train(starts[-1])
    ends[name] = [value(model) for model in starts]
    best[name] = starts[int(np.argmax(ends[name]))]
    print(f"{name:4s} {np.round(np.sort(ends[name])[::-1], 2)}")

# %%
Z = best["FITC"].inducing_variable.Z.numpy()
from_fitc = SGPR((X, Y), kernel(), Z, noise_variance=noise(best["FITC"]))
values = gpflow.utilities.read_values(best["FITC"].kernel)
gpflow.utilities.multiple_assign(from_fitc.kernel, values)
as_given = value(from_fitc)
ends["VFE from FITC"] = [train(from_fitc)]
print("VFE from the solution of FITC:")
print(f"{as_given:.2f} at the start, {ends['VFE from FITC'][0]:.2f} in the end")

# %% [markdown]
# ## As a sum over observations
#
# SVGP keeps the mean and the covariance of $q(u)$ as parameters, so that its bound is a sum over observations,
#
# $$\sum_n \mathbb E_{q(f_n)} \log p(y_n \mid f_n) - \operatorname{KL}\bigl(q(u)\,\|\,p(u)\bigr),$$
#
# and minibatches give unbiased estimates of it. For Gaussian noise one natural-gradient step of size 1 on all data makes it
# the bound of VFE:

# %%
vfe = fits["VFE", few]
Z, data = vfe.inducing_variable.Z.numpy(), (tf.constant(X), tf.constant(Y))
svgp = SVGP(vfe.kernel, vfe.likelihood, Z, num_data=len(X))
NaturalGradient(gamma=1.0).minimize(svgp, data)
one_step = float(svgp.elbo(data))
print(f"VFE {value(vfe):.4f}, SVGP after one step {one_step:.4f}")

# %% [markdown]
# Steps on minibatches of 50 rows, with sizes that fall, go the same way with noise:

# %%
svgp.q_mu.assign(np.zeros_like(svgp.q_mu))
svgp.q_sqrt.assign(np.eye(few)[None])
trace, order = [], np.random.default_rng(0)
for step in range(STEPS):
    rows = order.choice(len(X), 50, replace=False)
    rule = NaturalGradient(gamma=1.0 / (1.0 + 0.3 * step))
    rule.minimize(svgp, (X[rows], Y[rows]))
    trace.append(float(svgp.elbo(data)))
print(f"on minibatches {trace[-1]:.3f}")

# %% [markdown]
# ## More points for the mean
#
# The orthogonal basis keeps the eight points of the covariance and adds forty to the mean. Its bound lies between those of VFE
# with the eight and with all 48 points:

# %%
gamma = np.linspace(0.05, 5.95, 40)[:, None]
orthogonal = ODVGP(vfe.kernel, vfe.likelihood, gamma, Z, mean_scaling="none")
more_mean = float(collapsed_elbo(orthogonal, data))
print(f"VFE {value(vfe):.3f}, orthogonal {more_mean:.3f}, log p(y) {evidence:.3f}")

# %%
figure, axis = plt.subplots(figsize=(9, 3.4), layout="constrained")
axis.plot(range(1, len(trace) + 1), trace, label="SVGP, minibatches")
axis.axhline(value(vfe), color="C0", ls="--", label="VFE")
axis.axhline(more_mean, color="C3", ls="--", label="orthogonal")
axis.axhline(evidence, color="k", lw=1, label="log p(y)")
axis.set(xlabel="step", ylabel="bound, nats", ylim=(value(vfe) - 25.0, evidence + 5.0))
axis.legend(bbox_to_anchor=(1.0, 1.0), loc="upper left", frameon=False)

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
assert as_given < ends["VFE from FITC"][0] <= evidence
assert np.ptp(ends["FITC"]) > 1.0
assert abs(one_step - value(vfe)) < 1e-3 and value(vfe) < more_mean <= evidence
for number in plt.get_fignums():  # of a script; a notebook has shown and closed them
    plt.figure(number).savefig(OUTPUT / f"09_{number}.png", bbox_inches="tight")
