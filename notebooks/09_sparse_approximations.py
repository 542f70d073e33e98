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
# M inducing inputs stand for N observations in several ways. With Q = K_fu K_u^-1 K_uf,
#
# * **VFE** (Titsias 2009; GPflow's `SGPR`) is a bound of log p(y): log N(y; 0, Q + s^2 I) - tr(K - Q) / (2 s^2);
# * **DTC**, or projected process (Seeger, Williams & Lawrence 2003; our `DTC`), leaves out the trace;
# * **FITC** (Snelson & Ghahramani 2006; GPflow's `GPRFITC`) puts diag(K - Q) into the noise instead;
# * **SVGP** keeps q(u) as parameters: the bound of VFE, but a sum over observations, for natural gradients on minibatches;
# * the **orthogonal** bound is VFE's covariance with a mean on more points.
#
# Bauer, van der Wilk & Rasmussen (2016) compared FITC and VFE; what they saw is checked here, claim by claim, on data like
# those of Snelson: his own, if `GPFLOW_DECOUPLED_DATA` names a folder with `snelson.npz`.

# %%
import os
from pathlib import Path

import gpflow
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
from gpflow.models import GPR, GPRFITC, SGPR, SVGP

from gpflow_decoupled.inducing import select
from gpflow_decoupled.models import DTC, ODVGP
from gpflow_decoupled.optimizers import NaturalGradient, collapsed_elbo

FAST = os.environ.get("NOTEBOOK_FAST", "") == "1"
OUTPUT = Path("notebook_output")
OUTPUT.mkdir(exist_ok=True)
snelson = Path(os.environ.get("GPFLOW_DECOUPLED_DATA", "no folder")) / "snelson.npz"
if snelson.is_file():
    with np.load(snelson) as arrays:
        X, Y = arrays["X"], arrays["Y"]
else:
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 6.0, (200, 1))
    covariance = gpflow.kernels.SquaredExponential(0.8, 0.6)(X).numpy() + 1e-8 * np.eye(
        200
    )
    Y = np.linalg.cholesky(covariance) @ rng.standard_normal((200, 1)) + np.sqrt(
        0.08
    ) * rng.standard_normal((200, 1))
grid = np.linspace(-1.0, 7.0, 200)[:, None]
TYPES = {"VFE": SGPR, "FITC": GPRFITC, "DTC": DTC}
COLOURS = {"full GP": "k", "VFE": "C0", "FITC": "C1", "DTC": "C2"}


def kernel():
    return gpflow.kernels.SquaredExponential()


def train(model):
    """Kernel, noise and inducing inputs by L-BFGS; what was maximised, in nats."""
    options = {"maxiter": 200 if FAST else 2000}
    return -float(
        gpflow.optimizers.Scipy()
        .minimize(model.training_loss, model.trainable_variables, options=options)
        .fun
    )


def value(model):
    return float(model.maximum_log_likelihood_objective())


def noise(model):
    return float(model.likelihood.variance.numpy())


def distance(model):
    """Mean KL in nats, from the full GP's predictive density of y on the grid to the model's."""
    (m, v), (m_full, v_full) = (
        [part.numpy() for part in one.predict_y(grid)] for one in (model, full)
    )
    return float(
        np.mean(0.5 * (np.log(v / v_full) + (v_full + (m - m_full) ** 2) / v - 1.0))
    )


def clumped(model):
    """Inducing inputs that lie within a twentieth of a lengthscale of their neighbour."""
    gaps = np.diff(np.sort(model.inducing_variable.Z.numpy()[:, 0]))
    return int(np.sum(gaps < 0.05 * model.kernel.lengthscales.numpy()))


full = GPR((X, Y), kernel(), noise_variance=0.1)
evidence = train(full)
print(f"full GP: log p(y) {evidence:.2f} nats, noise variance {noise(full):.4f}")

# %% [markdown]
# ## Noise variance, and what more inducing inputs do
#
# Everything is learned, from random rows as inducing inputs. VFE explains what few points cannot by more noise, FITC by noise
# that depends on the input, so that s^2 is left too small. VFE approaches log p(y) from below and has the exact posterior
# soon. FITC overshoots, and puts points that it has no use for on top of others. DTC overshoots too, and its predictions
# stay far from the full GP's.

# %%
numbers = (4, 8, 15) if FAST else (4, 6, 8, 10, 15, 20, 30)
fits = {}
for name, model_type in TYPES.items():
    for M in numbers:
        Z = select(X, M, method="random", seed=0)
        model = fits[name, M] = model_type((X, Y), kernel(), Z, noise_variance=0.1)
        print(
            f"{name:4s} M = {M:2d}: objective {train(model) - evidence:+9.3f} nats of log p(y), noise "
            f"{noise(model) / noise(full):.3f} times, KL {distance(model):.1e}, clumped {clumped(model)}"
        )

figure, axes = plt.subplots(1, 4, figsize=(14, 3.2), layout="constrained")
drawn = {
    "objective less log p(y), nats": lambda model: value(model) - evidence,
    "noise variance": noise,
    "KL from the full GP, nats": distance,
    "clumped inducing inputs": clumped,
}
for axis, (label, quantity) in zip(axes, drawn.items()):
    for name in TYPES:
        axis.plot(
            numbers,
            [quantity(fits[name, M]) for M in numbers],
            "o-",
            ms=3,
            color=COLOURS[name],
            label=name,
        )
    axis.set(xlabel="inducing inputs", title=label)
axes[0].set_ylim(-40.0, 15.0)
axes[0].axhline(0.0, color="k", lw=1)
axes[1].axhline(noise(full), color="k", lw=1, label="full GP")
axes[1].legend(frameon=False)
axes[2].set_yscale("log")
figure.savefig(OUTPUT / "sparse_numbers.png", dpi=120)

figure, axes = plt.subplots(1, 3, figsize=(13, 3.4), sharey=True, layout="constrained")
few = numbers[1]
for axis, name in zip(axes, TYPES):
    for label, model in {"full GP": full, name: fits[name, few]}.items():
        mean, variance = (part.numpy()[:, 0] for part in model.predict_y(grid))
        for sign in (-2.0, 0.0, 2.0):
            style = {
                "color": COLOURS[label],
                "lw": 1.5 if sign == 0.0 else 0.8,
                "ls": "--" if label == "full GP" else "-",
            }
            axis.plot(
                grid,
                mean + sign * np.sqrt(variance),
                label=label if sign == 0.0 else None,
                **style,
            )
    points = fits[name, few].inducing_variable.Z.numpy()
    axis.plot(
        points,
        np.full_like(points, 0.03),
        "|",
        color="k",
        ms=10,
        transform=axis.get_xaxis_transform(),
    )
    axis.plot(X, Y, ".", color="0.7", ms=2, zorder=0)
    axis.set(title=f"{name}, {few} inducing inputs", xlabel="x")
    axis.legend(frameon=False, fontsize=8)
figure.savefig(OUTPUT / "sparse_predictions.png", dpi=120)

# %% [markdown]
# ## One more inducing input
#
# At the full GP's hyperparameters, with eight points by k-means: what does a ninth one bring, place by place? VFE never
# loses, as Q grows. FITC loses at many places: the heteroscedastic noise that it gives up was of use. On top of another point
# nothing changes, so that clumping avoids the loss.

# %%
eight = select(X, 8, method="kmeans", seed=0)
places = np.linspace(0.0, 6.0, 40 if FAST else 240)
gains = {}
for name in ("VFE", "FITC"):
    eight_points = TYPES[name]((X, Y), full.kernel, eight, noise_variance=noise(full))
    nine = TYPES[name](
        (X, Y), full.kernel, np.vstack([eight, [[0.0]]]), noise_variance=noise(full)
    )
    with_nine = tf.function(nine.maximum_log_likelihood_objective)
    gains[name] = []
    for place in places:
        nine.inducing_variable.Z.assign(np.vstack([eight, [[place]]]))
        gains[name].append(float(with_nine()) - value(eight_points))
    print(
        f"{name}: gain between {min(gains[name]):+.3f} and {max(gains[name]):+.3f} nats"
    )
figure, axes = plt.subplots(1, 2, figsize=(10, 3), layout="constrained")
for axis, name in zip(axes, gains):
    axis.plot(places, gains[name], color=COLOURS[name])
    axis.axhline(0.0, color="k", lw=0.8)
    axis.plot(eight, np.zeros_like(eight), "k|", ms=10, label="the eight")
    axis.set(
        title=f"{name}: gain by a ninth inducing input",
        xlabel="its place",
        ylabel="nats",
    )
    axis.legend(frameon=False)
figure.savefig(OUTPUT / "sparse_ninth.png", dpi=120)

# %% [markdown]
# ## Is the exact posterior kept?
#
# With enough points VFE has the full GP's posterior. From there, FITC and DTC start at log p(y) and leave: their objectives
# rise above it, and the posterior is lost. (From Z = X they stay: so many inputs are a plateau.)

# %%
recovery = {}
solution = fits["VFE", numbers[-1]]
for name in ("FITC", "DTC"):
    Z = solution.inducing_variable.Z.numpy()
    model = TYPES[name]((X, Y), kernel(), Z, noise_variance=noise(solution))
    gpflow.utilities.multiple_assign(
        model.kernel, gpflow.utilities.read_values(solution.kernel)
    )
    before = value(model) - evidence, distance(model)
    recovery[name] = train(model) - evidence, distance(model)
    print(
        f"{name:4s} {before[0]:+.3f} nats, KL {before[1]:.1e} before; {recovery[name][0]:+.3f} and {recovery[name][1]:.1e} "
        f"after, with {noise(model) / noise(full):.3f} times the noise, {clumped(model)} clumped"
    )

# %% [markdown]
# ## Local optima
#
# From several random starts, and VFE from the solution of FITC, kernel and noise included. Bauer et al. found FITC easier to
# optimise. On these data VFE takes fewer iterations, more of its starts agree, and FITC's solution is a start like others.

# %%
ends, best = {}, {}
for name in ("VFE", "FITC"):
    starts = [fits[name, few]]
    for seed in range(1, 2 if FAST else 20):
        Z = select(X, few, method="random", seed=seed)
        starts.append(TYPES[name]((X, Y), kernel(), Z, noise_variance=0.1))
        train(starts[-1])
    ends[name] = [value(model) for model in starts]
    best[name] = starts[int(np.argmax(ends[name]))]
    print(f"{name}: {np.round(np.sort(ends[name])[::-1], 2).tolist()}")
from_fitc = SGPR(
    (X, Y),
    kernel(),
    best["FITC"].inducing_variable.Z.numpy(),
    noise_variance=noise(best["FITC"]),
)
gpflow.utilities.multiple_assign(
    from_fitc.kernel, gpflow.utilities.read_values(best["FITC"].kernel)
)
as_given = value(from_fitc)
ends["VFE from FITC"] = [train(from_fitc)]
print(
    f"VFE from the solution of FITC: {as_given:.2f} there, {ends['VFE from FITC'][0]:.2f} in the end"
)

# %% [markdown]
# ## Without collapsing, and with more points for the mean
#
# For Gaussian noise one full natural-gradient step makes SVGP's bound that of VFE; steps on minibatches go the same way with
# noise. At the same covariance points, a mean on 40 more inputs raises the bound.

# %%
vfe = fits["VFE", few]
Z, data = vfe.inducing_variable.Z.numpy(), (tf.constant(X), tf.constant(Y))
svgp = SVGP(vfe.kernel, vfe.likelihood, Z, num_data=len(X))
rule = NaturalGradient(gamma=1.0)
rule.minimize(svgp, data)
one_step = float(svgp.elbo(data))
svgp.q_mu.assign(np.zeros_like(svgp.q_mu))
svgp.q_sqrt.assign(np.eye(few)[None])
trace, order = [], np.random.default_rng(0)
for step in range(25 if FAST else 200):
    rows = order.choice(len(X), 50, replace=False)
    NaturalGradient(gamma=1.0 / (1.0 + 0.3 * step)).minimize(svgp, (X[rows], Y[rows]))
    trace.append(float(svgp.elbo(data)))
orthogonal = ODVGP(
    vfe.kernel,
    vfe.likelihood,
    np.linspace(0.05, 5.95, 40)[:, None],
    Z,
    mean_scaling="none",
)
more_mean = float(collapsed_elbo(orthogonal, data))
print(
    f"VFE {value(vfe):.4f}; SVGP after one step {one_step:.4f}, on minibatches {trace[-1]:.3f}; more mean {more_mean:.3f}"
)
figure, axis = plt.subplots(figsize=(6, 3), layout="constrained")
axis.plot(
    range(1, len(trace) + 1), trace, label="SVGP, natural gradients, 50 rows per step"
)
axis.axhline(value(vfe), color="C0", ls="--", label="VFE")
axis.axhline(more_mean, color="C3", ls="--", label="orthogonal, 40 mean points more")
axis.axhline(value(full), color="k", lw=1, label="log p(y)")
axis.set(
    xlabel="step", ylabel="ELBO, nats", ylim=(value(vfe) - 25.0, value(full) + 5.0)
)
axis.legend(frameon=False, fontsize=8)
figure.savefig(OUTPUT / "sparse_svgp.png", dpi=120)

# %% [markdown]
# ## What was claimed

# %%
first, last = numbers[0], numbers[-1]
vfe_values = [value(fits["VFE", M]) for M in numbers]
assert (
    np.all(np.diff(vfe_values) > -0.01) and max(vfe_values) <= evidence + 1e-3
)  # a bound, that more inputs improve
assert (
    max(value(fits["FITC", M]) for M in numbers) > evidence + 0.5
)  # FITC over-estimates log p(y) ...
assert noise(fits["FITC", few]) < 0.9 * noise(full) and noise(
    fits["VFE", first]
) > 1.1 * noise(full)  # ... not the noise
assert clumped(fits["FITC", last]) > clumped(fits["VFE", last])
assert distance(fits["VFE", last]) < 0.1 * min(
    distance(fits["FITC", last]), distance(fits["DTC", last])
)
assert min(gains["VFE"]) > -1e-3 and min(gains["FITC"]) < -0.1
assert min(recovery.values())[0] > 1.0 and min(
    kl for _, kl in recovery.values()
) > 10.0 * distance(solution)
assert as_given < ends["VFE from FITC"][0] <= evidence and np.ptp(ends["FITC"]) > 1.0
assert abs(one_step - value(vfe)) < 1e-3 and value(vfe) < more_mean <= evidence
