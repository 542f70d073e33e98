# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Conjugate computation
#
# At every optimum of the bound the Gaussian posterior is the prior times one Gaussian *site* an observation,
#
# $$q(f) \propto p(f)\,\prod_n \mathcal N(f_n;\, \tilde y_n,\, 1/\tau_n).$$
#
# Conjugate-computation VI (Khan & Lin 2017) moves the sites themselves, (C13): two numbers per observation, and each step
# is a conjugate regression ([the mathematics](../mathematics/conjugate.md)).

# %%
import time

import gpflow
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf

import gpflow_decoupled as gd
from gpflow_decoupled.models import CVIGP
from gpflow_decoupled.optimizers import ConjugateComputation

# %% tags=["remove-cell"]
import os
from pathlib import Path

FAST = os.environ.get("NOTEBOOK_FAST", "") == "1"  # the tests run a smaller one
OUTPUT = Path("notebook_output")
OUTPUT.mkdir(exist_ok=True)

# %%
N, ROUNDS, STEPS = 300, 5, 400

# %% tags=["remove-cell"]
if FAST:
    N, ROUNDS, STEPS = 80, 2, 50

# %%
rng = np.random.default_rng(4)
X = rng.uniform(-3, 3, (N, 1))
F = 3.0 * np.sin(2.0 * X)
Y = (rng.uniform(size=X.shape) < 1.0 / (1.0 + np.exp(-F))).astype(float)


def bernoulli():
    return gpflow.likelihoods.Bernoulli(invlink=tf.sigmoid)


# %% [markdown]
# ## A full GP, in a few steps
#
# `CVIGP` owns its data, as `gpflow.models.VGP` does. `VGP` with natural gradients ends at the same bound.

# %%
model = CVIGP((X, Y), gpflow.kernels.Matern52(), bernoulli())
result = ConjugateComputation().run(model)
print(result)

vgp = gpflow.models.VGP((X, Y), model.kernel, bernoulli())
began = time.perf_counter()
for _ in range(6 * ROUNDS):
    rule = gpflow.optimizers.NaturalGradient(gamma=0.5)
    rule.minimize(vgp.training_loss, [(vgp.q_mu, vgp.q_sqrt)])
seconds = time.perf_counter() - began
print(f"VGP: ELBO {float(vgp.elbo()):.4f} in {seconds:.1f} s, not compiled")

# %% [markdown]
# The bound can be written in two ways that share no code: expectations less divergence, and the evidence of the conjugate
# model with what the sites stand for exchanged:

# %% tags=["remove-input"]
print(f"{float(model.elbo()):.12f}  {float(model.elbo_of_sites()):.12f}")

# %% [markdown]
# ## The kernel
#
# At fixed sites the bound is a bound for every kernel, and for Gaussian noise it is the evidence. So `fit` moves sites and
# kernel in one pass; or alternate by hand, with any optimizer for the kernel:

# %%
alternated = CVIGP((X, Y), gpflow.kernels.Matern52(), bernoulli())
scipy = gpflow.optimizers.Scipy()
for _ in range(ROUNDS):
    ConjugateComputation().run(alternated)
    scipy.minimize(alternated.training_loss, alternated.trainable_variables)
interleaved = CVIGP((X, Y), gpflow.kernels.Matern52(), bernoulli())
fitted = gd.fit(interleaved, steps=STEPS, progress=False)
print(f"alternated {float(alternated.elbo()):.3f}")
print(f"interleaved {float(interleaved.elbo()):.3f}: {fitted}")

# %% [markdown]
# ## Minibatches and streams
#
# A minibatch moves its own sites, and only observations that were visited so far enter the posterior. New data join with
# sites of zero.

# %% tags=["thumbnail"]
parts = np.array_split(np.argsort(X[:, 0]), 4)
stream = CVIGP((X[parts[0]], Y[parts[0]]), model.kernel, bernoulli())
figure, axes = plt.subplots(1, 4, figsize=(11, 2.4), sharey=True, layout="constrained")
grid = np.linspace(-3.5, 3.5, 200)[:, None]
for axis, part in zip(axes, parts):
    if part is not parts[0]:
        stream.update((X[part], Y[part]))
    steps = 2 * -(-stream.basis.num_data // 20)  # two passes
    ConjugateComputation(0.7).run(stream, batch_size=20, steps=steps)
    probability, _ = stream.predict_y(grid)
    axis.plot(grid, probability, color="C0")
    axis.plot(stream.data[0], stream.data[1], "|", color="0.3", alpha=0.5)
    axis.set_title(f"{stream.basis.num_data} observations")
axes[0].set_ylabel("probability of 1")
print(f"stream {float(stream.elbo()):.4f}, all at once {float(model.elbo()):.4f}")

# %% [markdown]
# ## Negative sites
#
# For a Student-t likelihood an outlier raises the variance: its site has a negative precision. That is a valid posterior
# as long as the whole precision is positive definite, and "damp" keeps it so; "clip" forbids negative sites, which ends at
# another, lower bound.

# %%
targets = np.sin(2.0 * X) + 0.1 * rng.standard_normal(X.shape)
outliers = rng.uniform(size=N) < 0.1
targets[outliers] += rng.normal(0.0, 3.0, (outliers.sum(), 1))
for policy in ("damp", "clip"):
    student_t = gpflow.likelihoods.StudentT(scale=0.1)
    robust = CVIGP((X, targets), gpflow.kernels.Matern52(), student_t)
    ended = ConjugateComputation(0.5, negative_precision=policy).run(robust)
    negative = int(np.sum(robust.basis.tau.numpy() < 0))
    print(f"{policy}: {ended}")
    print(f"{negative} negative sites, {outliers.sum()} outliers")


# %% [markdown]
# The posterior with clipped sites, mean and two standard deviations:


# %% tags=["remove-input"]
mean, variance = (moment.numpy()[:, 0] for moment in robust.predict_f(grid))
width = 2.0 * np.sqrt(variance)
figure, axis = plt.subplots(figsize=(9, 3.2), layout="constrained")
axis.plot(X, targets, ".", color="0.6")
axis.plot(grid, mean, color="C0")
axis.fill_between(grid[:, 0], mean - width, mean + width, alpha=0.2)
axis.set_ylim(-3, 3)
axis.set(title="Student-t noise, sites clipped", xlabel="x")

# %% tags=["remove-cell"]
assert result.converged
assert abs(float(model.elbo() - model.elbo_of_sites())) < 1e-8
assert abs(float(stream.elbo() - model.elbo())) < (5.0 if FAST else 0.1)
assert float(interleaved.elbo()) > float(model.elbo())
assert negative == 0
for number in plt.get_fignums():  # of a script; a notebook has shown and closed them
    plt.figure(number).savefig(OUTPUT / f"04_{number}.png", bbox_inches="tight")
