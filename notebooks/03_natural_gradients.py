# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Natural gradients
#
# An optimizer says how q moves. Natural gradients follow the geometry of distributions rather than that of their
# parameters; here they come in closed form, (D46), from two numbers per observation. This notebook compares them with Adam,
# takes the optimum in a single step where the likelihood allows it, and shows what happens with likelihoods that are not
# log-concave, for which a full step may leave no valid covariance.

# %%
import os
from pathlib import Path

import gpflow
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
from gpflow.keras import tf_keras

import gpflow_decoupled as gd
from gpflow_decoupled.bases import CoupledBasis
from gpflow_decoupled.errors import NumericalError
from gpflow_decoupled.models import ODVGP, BasisGP
from gpflow_decoupled.optimizers import NaturalGradient, optimal_parameters

FAST = os.environ.get("NOTEBOOK_FAST", "") == "1"
OUTPUT = Path("notebook_output")
OUTPUT.mkdir(exist_ok=True)

rng = np.random.default_rng(2)
N = 300 if FAST else 1000
X = rng.uniform(0, 10, (N, 1))
F = np.sin(X) + 0.5 * np.sin(4 * X)
Y = F + 0.2 * rng.standard_normal(X.shape)


def kernel():
    return gpflow.kernels.Matern32(lengthscales=1.0)


Z = gd.inducing.select(X, 25, kernel())

# %% [markdown]
# ## One step is the optimum
#
# With Gaussian noise, all data and step size 1 a natural-gradient step lands on the best q, from anywhere. The same holds
# for a plain `gpflow.models.SVGP`: the optimizer takes both.

# %%
data = (X, Y)
ours = BasisGP(kernel(), gpflow.likelihoods.Gaussian(0.04), CoupledBasis(Z), num_data=N)
theirs = gpflow.models.SVGP(kernel(), gpflow.likelihoods.Gaussian(0.04), Z, num_data=N)
best = float(optimal_parameters(ours, data).elbo)
for model in (ours, theirs):
    before = float(model.elbo(data))
    NaturalGradient(gamma=1.0).minimize(model, data)
    print(f"{type(model).__name__}: {before:.2f} -> {float(model.elbo(data)):.4f}, best {best:.4f}")
    assert abs(float(model.elbo(data)) - best) < 1e-2

# %% [markdown]
# It is also the step of GPflow's own `NaturalGradient`, to round-off, for any likelihood and on minibatches:

# %%
labels = (rng.uniform(size=F.shape) < 1 / (1 + np.exp(-2 * F))).astype(float)
batch = (X[:100], labels[:100])
pair = [gpflow.models.SVGP(kernel(), gpflow.likelihoods.Bernoulli(), Z, num_data=N) for _ in range(2)]
for _ in range(3):
    NaturalGradient(gamma=0.1).minimize(pair[0], batch)
    generic = gpflow.optimizers.NaturalGradient(gamma=0.1)
    generic.minimize(pair[1].training_loss_closure(batch, compile=False), [(pair[1].q_mu, pair[1].q_sqrt)])
difference = float(np.abs(pair[0].q_mu - pair[1].q_mu).max())
print(f"after three steps q_mu differs by {difference:.1e}")
assert difference < 1e-8

# %% [markdown]
# ## Against Adam
#
# Bernoulli likelihood, fixed hyperparameters, all data: the gap to the best bound against steps. Adam has the same
# objective and its best learning rate of three.

# %%
STEPS = 40 if FAST else 200


def model_for_labels():
    model = BasisGP(kernel(), gpflow.likelihoods.Bernoulli(), CoupledBasis(Z), num_data=N)
    for part in (model.kernel, model.basis.beta):
        gpflow.utilities.set_trainable(part, False)
    return model


def run(model, step):
    step, bound = tf.function(step), tf.function(lambda: model.elbo((X, labels)))
    trace = []
    for _ in range(STEPS):
        step()
        trace.append(float(bound()))
    return trace


traces = {}
for rho in (0.3, 1.0):
    model, rule = model_for_labels(), NaturalGradient(gamma=rho)
    traces[f"natural, {rho}"] = run(model, lambda m=model, r=rule: r.minimize(m, (X, labels)).ok)
for rate in (0.003, 0.03, 0.3):
    model, rule = model_for_labels(), tf_keras.optimizers.Adam(rate)
    loss = model.training_loss_closure((X, labels), compile=False)
    rule.build(model.trainable_variables)
    traces[f"Adam, {rate}"] = run(model, lambda m=model, r=rule, f=loss: r.minimize(f, m.trainable_variables))

# %%
summit = max(max(trace) for trace in traces.values())
figure, axis = plt.subplots(figsize=(8, 4), layout="constrained")
for name, trace in traces.items():
    axis.semilogy(np.maximum(summit - np.array(trace), 1e-9), "--" if "Adam" in name else "-", label=name)
axis.set(xlabel="steps", ylabel="gap to the best bound (nats)")
axis.legend(frameon=False)
figure.savefig(OUTPUT / "03_against_adam.png")
gaps = {name: summit - np.array(trace) for name, trace in traces.items()}
best_adam = min(float(gap[-1]) for name, gap in gaps.items() if "Adam" in name)
needed = int(np.argmax(gaps["natural, 1.0"] <= best_adam)) + 1
print(f"the best Adam is {best_adam:.2e} nats short after {STEPS} steps; natural gradients are there after {needed}")
assert gaps["natural, 1.0"][-1] <= best_adam and needed <= STEPS // 4

# %% [markdown]
# ## The mean points
#
# An orthogonal model has mean coefficients besides q(u). Their natural gradient needs the residual kernel at gamma, (D41);
# `fit` uses Adam in whitened coordinates by default. `mean="newton"` solves for them and for q(u)'s mean at once, (D49): with
# Gaussian noise one step is the optimum again.

# %%
gamma = gd.inducing.select(X, 60, kernel(), given=Z)
model = ODVGP(kernel(), gpflow.likelihoods.Gaussian(0.04), gamma, Z, num_data=N)
best = float(optimal_parameters(model, data).elbo)
NaturalGradient(gamma=1.0, mean="newton", cg_iterations=200).minimize(model, data)
gap = best - float(model.elbo(data))
print(f"gap after one Newton step: {gap:.1e} of {best:.2f} nats")
assert -1e-3 < gap < 0.1  # the closed form has jitter of its own

# %% [markdown]
# ## Likelihoods that are not log-concave
#
# Far from an outlier a Student-t likelihood is convex: the observation has a negative precision, and the precision of q(u)
# may not stay positive definite. `negative_precision` says what happens then: "damp" halves the step until it does, and
# once more; "clip" drops the negative part; "raise" refuses. What was done is reported. Where many observations are outliers,
# as here, "clip" climbs steadily, while a step that is only feasible need not be a good one.

# %%
outliers = Y.copy()
outliers[::10] += 8.0 * rng.choice([-1, 1], outliers[::10].shape)


def robust():
    return BasisGP(kernel(), gpflow.likelihoods.StudentT(scale=0.2, df=1.5), CoupledBasis(Z), num_data=N)


ends = {}
for policy in ("damp", "clip", "raise"):
    model, rule = robust(), NaturalGradient(gamma=0.3, negative_precision=policy)
    shortened = clipped = 0
    try:
        for _ in range(30):
            report = rule.minimize(model, (X, outliers))
            shortened, clipped = shortened + int(report.shortened), clipped + int(report.clipped)
        ends[policy] = float(model.elbo((X, outliers)))
        print(f"{policy}: bound {ends[policy]:.1f}; {shortened} steps shortened, {clipped} precisions clipped")
    except NumericalError as error:
        print(f"{policy}: {error}")

# %%
figure, axis = plt.subplots(figsize=(8, 4), layout="constrained")
model = robust()
print(gd.fit(model, (X, outliers), steps=50 if FAST else 300, negative_precision="clip"))
gd.wrappers.plot_posterior_1d(model, (X, outliers), axis)
axis.set_ylim(-3, 3)
figure.savefig(OUTPUT / "03_outliers.png")
error = float(np.sqrt(np.mean((model.predict_f(X)[0] - F) ** 2)))
print(f"one observation in ten is off by 8; the mean is off by {error:.3f}")
assert {"damp", "clip"} <= set(ends) and ends["clip"] > float(robust().elbo((X, outliers)))
assert error < (0.5 if FAST else 0.1)
