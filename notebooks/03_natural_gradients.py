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
# parameters: with natural parameters $\theta$ and expectation parameters $\mu$ of $q(u)$ and a step size $\rho$,
#
# $$\theta \leftarrow \theta + \rho\,\nabla_\mu \mathcal L.$$
#
# Here they come in closed form, (D46), from two numbers per observation.

# %%
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

# %% tags=["remove-cell"]
import os
from pathlib import Path

FAST = os.environ.get("NOTEBOOK_FAST", "") == "1"  # the tests run a smaller one
OUTPUT = Path("notebook_output")
OUTPUT.mkdir(exist_ok=True)

# %%
N, STEPS, ROBUST_STEPS = 1000, 200, 300

# %% tags=["remove-cell"]
if FAST:
    N, STEPS, ROBUST_STEPS = 300, 40, 50

# %%
rng = np.random.default_rng(2)
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
    after = float(model.elbo(data))
    print(f"{type(model).__name__}: {before:.2f} -> {after:.4f}, best {best:.4f}")

# %% tags=["remove-cell"]
assert all(abs(float(model.elbo(data)) - best) < 1e-2 for model in (ours, theirs))

# %% [markdown]
# It is also the step of GPflow's own `NaturalGradient`, to round-off, for any likelihood and on minibatches:

# %%
labels = (rng.uniform(size=F.shape) < 1 / (1 + np.exp(-2 * F))).astype(float)
batch = (X[:100], labels[:100])
bernoulli = gpflow.likelihoods.Bernoulli()
one, other = (gpflow.models.SVGP(kernel(), bernoulli, Z, num_data=N) for _ in range(2))
loss = other.training_loss_closure(batch, compile=False)
for _ in range(3):
    NaturalGradient(gamma=0.1).minimize(one, batch)
    generic = gpflow.optimizers.NaturalGradient(gamma=0.1)
    generic.minimize(loss, [(other.q_mu, other.q_sqrt)])
difference = float(np.abs(one.q_mu - other.q_mu).max())
print(f"after three steps q_mu differs by {difference:.1e}")

# %% tags=["remove-cell"]
assert difference < 1e-8

# %% [markdown]
# ## Against Adam
#
# Bernoulli likelihood, fixed hyperparameters, all data: the gap to the best bound against steps. Adam has the same
# objective and its best learning rate of three.


# %% tags=["remove-input"]
def model_for_labels():
    model = BasisGP(
        kernel(), gpflow.likelihoods.Bernoulli(), CoupledBasis(Z), num_data=N
    )
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


# %% tags=["remove-input"]
traces = {}
for rho in (0.3, 1.0):
    model, rule = model_for_labels(), NaturalGradient(gamma=rho)
    traces[f"natural, {rho}"] = run(
        model, lambda m=model, r=rule: r.minimize(m, (X, labels)).ok
    )
for rate in (0.003, 0.03, 0.3):
    model, rule = model_for_labels(), tf_keras.optimizers.Adam(rate)
    loss = model.training_loss_closure((X, labels), compile=False)
    rule.build(model.trainable_variables)

    def step(m=model, r=rule, f=loss):
        r.minimize(f, m.trainable_variables)

    traces[f"Adam, {rate}"] = run(model, step)

# %% tags=["thumbnail", "remove-input"]
summit = max(max(trace) for trace in traces.values())
figure, axis = plt.subplots(figsize=(8, 4), layout="constrained")
for name, trace in traces.items():
    gap = np.maximum(summit - np.array(trace), 1e-9)
    axis.semilogy(gap, "--" if "Adam" in name else "-", label=name)
axis.set(xlabel="steps", ylabel="gap to the best bound (nats)")
axis.legend(bbox_to_anchor=(1.0, 1.0), loc="upper left", frameon=False)

# %% tags=["remove-input"]
gaps = {name: summit - np.array(trace) for name, trace in traces.items()}
best_adam = min(float(gap[-1]) for name, gap in gaps.items() if "Adam" in name)
needed = int(np.argmax(gaps["natural, 1.0"] <= best_adam)) + 1
print(f"the best Adam is {best_adam:.2e} nats short after {STEPS} steps")
print(f"natural gradients are there after {needed}")

# %% tags=["remove-cell"]
assert gaps["natural, 1.0"][-1] <= best_adam and needed <= STEPS // 4

# %% [markdown]
# ## The mean points
#
# An *orthogonal* model has further points gamma for its mean alone, with coefficients that q(u) does not have. Their natural
# gradient needs the residual kernel at gamma, (D41); by default `fit` moves them by Adam in *whitened* coordinates, in which
# their prior is a standard normal. `mean="newton"` solves for them and for q(u)'s mean at once, (D49): with Gaussian noise one
# step is the optimum again.

# %%
gamma = gd.inducing.select(X, 60, kernel(), given=Z)
model = ODVGP(kernel(), gpflow.likelihoods.Gaussian(0.04), gamma, Z, num_data=N)
best = float(optimal_parameters(model, data).elbo)
NaturalGradient(gamma=1.0, mean="newton", cg_iterations=200).minimize(model, data)
gap = best - float(model.elbo(data))
print(f"gap after one Newton step: {gap:.1e} of {best:.2f} nats")

# %% tags=["remove-cell"]
assert -1e-3 < gap < 0.1  # the closed form has jitter of its own

# %% [markdown]
# ## Likelihoods that are not log-concave
#
# Far from an outlier a Student-t likelihood is convex: the observation has a negative precision, and the precision of q(u)
# may not stay positive definite. `negative_precision` says what happens then: "damp" halves the step until it does, and once
# more; "clip" drops the negative part; "raise" refuses. Where many observations are outliers, as here, "clip" climbs steadily.

# %%
outliers = Y.copy()
outliers[::10] += 8.0 * rng.choice([-1, 1], outliers[::10].shape)


def robust():
    likelihood = gpflow.likelihoods.StudentT(scale=0.2, df=1.5)
    return BasisGP(kernel(), likelihood, CoupledBasis(Z), num_data=N)


# %%
ends = {}
for policy in ("damp", "clip", "raise"):
    model, rule = robust(), NaturalGradient(gamma=0.3, negative_precision=policy)
    shortened = clipped = 0
    try:
        for _ in range(30):
            report = rule.minimize(model, (X, outliers))
            shortened += int(report.shortened)
            clipped += int(report.clipped)
        ends[policy] = float(model.elbo((X, outliers)))
        print(
            f"{policy}: bound {ends[policy]:.1f}; {shortened} steps shortened, "
            f"{clipped} precisions clipped"
        )
    except NumericalError as error:
        print(f"{policy}: {error}")

# %%
model = robust()
result = gd.fit(model, (X, outliers), steps=ROBUST_STEPS, negative_precision="clip")
print(result)


# %% [markdown]
# The mean with a band of two standard deviations; the outliers are outside the picture:


# %% tags=["remove-input"]
figure, axis = plt.subplots(figsize=(9, 4), layout="constrained")
gd.wrappers.plot_posterior_1d(model, (X, outliers), axis)
axis.set_ylim(-3, 3)
error = float(np.sqrt(np.mean((model.predict_f(X)[0] - F) ** 2)))
print(f"one observation in ten is off by 8; the mean is off by {error:.3f}")

# %% tags=["remove-cell"]
assert {"damp", "clip"} <= set(ends) and ends["clip"] > float(
    robust().elbo((X, outliers))
)
assert error < (0.5 if FAST else 0.1)
for number in plt.get_fignums():  # of a script; a notebook has shown and closed them
    plt.figure(number).savefig(OUTPUT / f"03_{number}.png", bbox_inches="tight")
