# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # From GPflow to here
#
# A script written for GPflow needs one line changed. This notebook changes it three times, for `SVGP`, `SGPR` and `VGP`, and
# compares what comes out: the same to round-off where the model is the same, a higher bound where it can do more.

# %%
import gpflow
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf

import gpflow_decoupled as gd

# %% tags=["remove-cell"]
import os
from pathlib import Path

FAST = os.environ.get("NOTEBOOK_FAST", "") == "1"  # the tests run a smaller one
OUTPUT = Path("notebook_output")
OUTPUT.mkdir(exist_ok=True)

# %%
N, STEPS = 2000, 600

# %% tags=["remove-cell"]
if FAST:
    N, STEPS = 150, 30

# %%
rng = np.random.default_rng(12)
X = rng.uniform(0.0, 10.0, (N, 1))
F = np.sin(X) + 0.4 * np.sin(7.0 * X)
Y = F + 0.2 * rng.standard_normal(X.shape)
labels = (rng.uniform(size=F.shape) < 1.0 / (1.0 + np.exp(-3.0 * F))).astype(float)
grid = np.linspace(0.0, 10.0, 300)[:, None]


def kernel():
    return gpflow.kernels.Matern52(lengthscales=0.6)


# %% [markdown]
# ## SVGP
#
# The line that changes:

# %%
Z = gd.inducing.select(X, 15, kernel())
before = gpflow.models.SVGP(kernel(), gpflow.likelihoods.Bernoulli(), Z, num_data=N)
after = gd.models.SparseCVIGP(kernel(), gpflow.likelihoods.Bernoulli(), Z, num_data=N)

# %% [markdown]
# GPflow's natural gradients work on both, and ours too, in closed form: they are the same step.

# %%
batch = (X[:100], labels[:100])
generic = gpflow.optimizers.NaturalGradient(gamma=0.3)
closed_form = gd.optimizers.NaturalGradient(gamma=0.3)
for _ in range(3):
    generic.minimize(
        lambda: before.training_loss(batch), [(before.q_mu, before.q_sqrt)]
    )
    closed_form.minimize(after, batch)

# %%
svgp_gap = abs(float(before.elbo(batch) - after.elbo(batch)))
predictions = [model.predict_y(grid)[0] for model in (before, after)]
prediction_gap = float(np.max(np.abs(predictions[0] - predictions[1])))
print(f"after three steps bounds differ by {svgp_gap:.1e} nats")
print(f"predictions by {prediction_gap:.1e}")

# %% [markdown]
# ## SGPR
#
# The form of q(f) is called its *basis*; in the *coupled* one mean and covariance share their points. The bound of `SGPR` is
# that of the coupled basis at the best q,
#
# $$\log\mathcal N(y;\,0,\,Q + \sigma^2 I) - \frac{1}{2\sigma^2}\operatorname{tr}(K - Q), \qquad
# Q = K_{fu}K_{uu}^{-1}K_{uf};$$
#
# `optimal_parameters` has that q. An *orthogonal* basis with the same points
# beta, and further points gamma for the mean alone, has a higher bound.

# %%
sgpr = gpflow.models.SGPR((X, Y), kernel(), Z, noise_variance=0.04)
noise = gpflow.likelihoods.Gaussian(0.04)
coupled = gd.models.BasisGP(kernel(), noise, gd.bases.CoupledBasis(Z), num_data=N)
gamma = gd.inducing.select(X, 45, kernel(), given=Z)
orthogonal = gd.models.ODVGP(kernel(), noise, gamma, Z, num_data=N)
bounds = {
    "SGPR": float(sgpr.maximum_log_likelihood_objective()),
    "coupled": float(gd.optimizers.collapsed_elbo(coupled, (X, Y))),
    "orthogonal": float(gd.optimizers.collapsed_elbo(orthogonal, (X, Y))),
}
for name, bound in bounds.items():
    print(f"{name:10s} {bound:10.3f}")

# %% [markdown]
# ## VGP, and GPR
#
# `CVIGP` has two numbers per observation in the place of a mean and a full covariance. It ends at VGP's bound; with Gaussian
# noise it is GPR.

# %%
few = slice(0, 150)
vgp = gpflow.models.VGP((X[few], labels[few]), kernel(), gpflow.likelihoods.Bernoulli())
for _ in range(20):
    rule = gpflow.optimizers.NaturalGradient(gamma=0.5)
    rule.minimize(vgp.training_loss, [(vgp.q_mu, vgp.q_sqrt)])
sites = gd.models.CVIGP((X[few], labels[few]), kernel(), gpflow.likelihoods.Bernoulli())
print(gd.optimizers.ConjugateComputation().run(sites))
vgp_gap = abs(float(vgp.elbo() - sites.elbo()))
print(f"VGP and CVIGP differ by {vgp_gap:.1e} nats")

# %%
gpr = gpflow.models.GPR((X[few], Y[few]), kernel(), noise_variance=0.04)
gaussian = gd.models.CVIGP((X[few], Y[few]), kernel(), noise)
gd.optimizers.ConjugateComputation().run(gaussian)
gpr_gap = abs(float(gpr.log_marginal_likelihood() - gaussian.elbo()))
print(f"GPR and CVIGP differ by {gpr_gap:.1e} nats")

# %% [markdown]
# ## The training loop
#
# GPflow's loop goes on working. `fit` is one line, and takes the GPflow model as well.

# %%
by_hand = gd.models.ODVGP(
    kernel(), gpflow.likelihoods.Gaussian(0.1), gamma, Z, num_data=N
)
adam = tf.keras.optimizers.Adam(0.02)
closure = by_hand.training_loss_closure((X, Y), compile=STEPS > 100)
variables = by_hand.trainable_variables
adam.build(variables)
for _ in range(5):
    with tf.GradientTape() as tape:
        loss = closure()
    adam.apply_gradients(zip(tape.gradient(loss, variables), variables))

# %%
svgp = gpflow.models.SVGP(kernel(), gpflow.likelihoods.Gaussian(0.1), Z)
decoupled = gd.models.ODVGP(kernel(), gpflow.likelihoods.Gaussian(0.1), gamma, Z)
results = {}
for name, model in (("SVGP", svgp), ("ODVGP", decoupled)):
    results[name] = gd.fit(
        model, (X, Y), steps=STEPS, progress=False, compile=STEPS > 100
    )
    print(f"{name:6s} {results[name]}")

# %% tags=["thumbnail"]
figure, axes = plt.subplots(1, 2, figsize=(11, 3.4), sharey=True, layout="constrained")
for axis, (name, model) in zip(axes, (("SVGP", svgp), ("ODVGP", decoupled))):
    mean, variance = model.predict_f(grid)
    width = 2.0 * np.sqrt(variance[:, 0])
    axis.plot(X[::10], Y[::10], "k.", markersize=2)
    axis.plot(grid, mean, color="C0")
    lower, upper = mean[:, 0] - width, mean[:, 0] + width
    axis.fill_between(grid[:, 0], lower, upper, alpha=0.2)
    axis.set(title=f"{name}, {len(Z)} points of the covariance")

# %% [markdown]
# At the same points of the covariance, more points of the mean give a higher bound:

# %%
ends = {"SVGP": float(svgp.elbo((X, Y))), "ODVGP": float(decoupled.elbo((X, Y)))}
for name, bound in ends.items():
    print(f"{name:6s} {bound:8.1f} nats")

# %% tags=["remove-cell"]
assert svgp_gap < 1e-6 and prediction_gap < 1e-8
assert abs(bounds["SGPR"] - bounds["coupled"]) < 1e-6 * abs(bounds["SGPR"])
assert bounds["orthogonal"] > bounds["coupled"]
assert vgp_gap < 1e-3 and gpr_gap < 1e-6
assert FAST or ends["ODVGP"] > ends["SVGP"]
for number in plt.get_fignums():  # of a script; a notebook has shown and closed them
    plt.figure(number).savefig(OUTPUT / f"12_{number}.png", bbox_inches="tight")
