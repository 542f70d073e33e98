# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Mean fields on factor graphs
#
# A posterior over several variables of several kinds is approximated by a product, each factor in an exponential family of
# its own. Every factor of the model sends every one of its variables a *message*, the gradient of its expected log density
# in the expectation parameters $\mu_i$; the natural parameter of a variable is the sum of its messages,
#
# $$\eta_i = \sum_{a \ni i} \nabla_{\mu_i}\,\mathbb E_q \log \psi_a$$
#
# (Khan & Lin 2017, section 5; (C32)).
# For conjugate factors this is variational message passing, on minibatches stochastic variational inference, and nothing
# changes where a factor is not conjugate.

# %%
import math

import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
from scipy import stats
from scipy.integrate import trapezoid

from gpflow_decoupled.distributions.families import (
    Categorical,
    Dirichlet,
    Gamma,
    Gaussian,
)
from gpflow_decoupled.models import Factor, FactorGraph, SampledFactor, prior_factor
from gpflow_decoupled.optimizers import MeanFieldCVI

# %% tags=["remove-cell"]
import os
from pathlib import Path

FAST = os.environ.get("NOTEBOOK_FAST", "") == "1"  # the tests run a smaller one
OUTPUT = Path("notebook_output")
OUTPUT.mkdir(exist_ok=True)

# %%
rng = np.random.default_rng(7)
DRAWN_STEPS, N, PASSES, PARTS = 200, 3000, 15, 30

# %% tags=["remove-cell"]
if FAST:
    DRAWN_STEPS, N, PASSES, PARTS = 60, 300, 8, 6

# %% [markdown]
# ## A rate
#
# Counts with a Gamma prior on their rate. A factor is a function of beliefs: `rate.expectation` is (E log z, E z), and the
# expected log density of counts is linear in both. So the message is exact, and one sweep ends at the posterior.

# %%
counts = rng.poisson(2.0, 8)


def poisson(rate, y):
    log_rate, mean_rate = rate.expectation
    return tf.reduce_sum(y * log_rate - mean_rate - tf.math.lgamma(y + 1.0))


conjugate = FactorGraph(
    {"rate": Gamma().belief(1.0, 1.0)},
    {
        "prior": prior_factor("rate", Gamma().belief(2.0, 1.0)),
        "counts": Factor("rate", poisson, data=counts),
    },
)
result = MeanFieldCVI().run(conjugate)
shape, rate = (float(part) for part in Gamma.shape_and_rate(conjugate["rate"].natural))
print(result)
print(
    f"shape {shape:.12g} of {2 + counts.sum()}, rate {rate:.12g} of {1 + len(counts)}"
)

# %% [markdown]
# ## A rate with another prior
#
# Let the logarithm of the rate be normal. E log p(z) has a part that is a function of mu, and a variance psi'(a), which is a
# function of the natural parameter. Or one gives the log density alone: then draws from the Gamma are differentiated (C36),
# and the bound of a step is an estimate that may lie above the evidence.

# %%
center, variance = 0.0, 0.1
constant = -0.5 * math.log(2.0 * math.pi * variance)


def log_normal(rate):
    a = rate.natural[0] + 1.0
    square = tf.square(rate.expectation[0] - center) + tf.math.polygamma(
        tf.ones_like(a), a
    )
    return constant - rate.expectation[0] - 0.5 * square / variance


def log_normal_density(z):
    return (
        constant - tf.math.log(z) - 0.5 * tf.square(tf.math.log(z) - center) / variance
    )


def with_prior(factor):
    factors = {"prior": factor, "counts": Factor("rate", poisson, data=counts)}
    return FactorGraph({"rate": Gamma().belief(1.0, 1.0)}, factors)


# %%
explicit = with_prior(Factor("rate", log_normal))
exact_run = MeanFieldCVI().run(explicit, tolerance=1e-20)
sampled = with_prior(SampledFactor("rate", log_normal_density, samples=10))
rule = MeanFieldCVI(lambda step: 1.0 / (2.0 + 0.2 * step))
sampled_run = rule.run(sampled, steps=DRAWN_STEPS, tolerance=0.0)
print(exact_run)
print(sampled_run)

# %% [markdown]
# One dimension leaves a sum over a grid possible, for the exact posterior and the evidence:

# %% tags=["remove-input"]
z = np.linspace(0.3, 4.0, 2000)
log_joint = counts.sum() * np.log(z) - len(counts) * z
log_joint += stats.lognorm(variance**0.5).logpdf(z)
log_joint -= sum(math.lgamma(y + 1.0) for y in counts)
evidence = float(np.log(trapezoid(np.exp(log_joint), z)))
print(f"log evidence {evidence:.5f}, bound {exact_run.elbo:.5f}")

# %% tags=["thumbnail", "remove-input"]
fig, axes = plt.subplots(1, 2, figsize=(10, 3.2), layout="constrained")
axes[0].plot(z, np.exp(log_joint - evidence), "k", label="posterior")
for graph, style, label in (
    (explicit, "C0--", "best Gamma"),
    (sampled, "C1:", "from draws"),
):
    density = np.exp(Gamma().log_prob(tf.constant(z), graph["rate"].natural))
    axes[0].plot(z, density, style, label=label)
axes[0].set_xlabel("rate")
axes[0].legend(frameon=False)
drawn, found = sampled_run.history, exact_run.history
axes[1].plot(drawn["step"], drawn["elbo"], "C1", lw=0.7, label="estimates, from draws")
axes[1].plot(found["step"], found["elbo"], "C0o-", ms=3, label="explicit")
axes[1].axhline(evidence, color="k", lw=0.8, label="log evidence")
axes[1].set_xlabel("step")
axes[1].set_ylabel("bound (nats)")
axes[1].legend(bbox_to_anchor=(1.0, 1.0), loc="upper left", frameon=False)

# %% [markdown]
# ## An unknown mean and an unknown precision
#
# The prior of the mean depends on the precision, and the exact posterior is known: it is not a product. The best product has
# the same two means.

# %%
x = rng.normal(1.0, 0.8, 6)
prior_mean, prior_scale, a, b = 0.0, 0.5, 2.0, 1.0


def normal(mean, precision, weight, y):
    m, square = mean.expectation[0][0], mean.expectation[1][0, 0]
    log_t, t = precision.expectation
    residual = tf.square(y) - 2.0 * y * m + square
    return tf.reduce_sum(
        0.5 * (log_t + tf.math.log(weight / (2.0 * math.pi)) - weight * t * residual)
    )


# %%
both = ("mean", "precision")
prior = tf.constant(prior_scale, tf.float64), tf.constant(prior_mean, tf.float64)
graph = FactorGraph(
    {"mean": Gaussian().belief([0.0], [[1.0]]), "precision": Gamma().belief(1.0, 1.0)},
    {
        "prior of the mean": Factor(both, lambda m, t: normal(m, t, *prior)),
        "prior of the precision": prior_factor("precision", Gamma().belief(a, b)),
        "data": Factor(both, normal, data=(np.ones_like(x), x)),
    },
)
result = MeanFieldCVI().run(graph, tolerance=1e-24)
print(result)

# %% tags=["remove-input"]
n, scale = len(x), prior_scale + len(x)
exact_mean = (prior_scale * prior_mean + x.sum()) / scale
spread = ((x - x.mean()) ** 2).sum() + prior_scale * n / scale * (
    x.mean() - prior_mean
) ** 2
exact_precision = (a + 0.5 * n) / (b + 0.5 * spread)
found_mean = float(graph["mean"].expectation[0][0])
found_precision = float(graph["precision"].expectation[1])
print(f"mean {found_mean:.10f} of {exact_mean:.10f}")
print(f"precision {found_precision:.10f} of {exact_precision:.10f}")

# %% tags=["remove-input"]
M, T = np.meshgrid(np.linspace(-0.5, 2.2, 150), np.linspace(0.05, 5.0, 150))
posterior = stats.gamma(a + 0.5 * n, scale=1.0 / (b + 0.5 * spread)).pdf(T)
posterior *= stats.norm(exact_mean, (scale * T) ** -0.5).pdf(M)
variance_of_mean = float(graph["mean"].distribution.variance()[0])
product = stats.norm(found_mean, variance_of_mean**0.5).pdf(M) * np.exp(
    Gamma().log_prob(tf.constant(T), graph["precision"].natural)
)
fig, ax = plt.subplots(figsize=(6, 4), layout="constrained")
ax.contour(M, T, posterior, colors="k", linewidths=0.8)
ax.contour(M, T, product, colors="C0", linestyles="--")
ax.plot(exact_mean, exact_precision, "k+", ms=10)
ax.set_xlabel("mean")
ax.set_ylabel("precision")
ax.set_title("posterior (black), best product (blue)")

# %% [markdown]
# ## A mixture, on minibatches
#
# An assignment for each observation, means and weights for all. A name in `local=` has a row an observation, and moves with
# the rows of its minibatch. `update="local"` keeps a message for each part of the data and needs no decaying step:
# its fixed point is that of all data. `update="global"` keeps one message and is stochastic variational inference.

# %%
K = 3
true_means = np.array([-3.0, 0.0, 2.5])
points = true_means[rng.choice(K, N, p=[0.2, 0.5, 0.3])] + 0.8 * rng.normal(size=N)


# %%
def component(z, means, x):
    m, square = means.expectation[0][:, 0], means.expectation[1][:, 0, 0]
    residual = (tf.square(x)[:, None] - 2.0 * x[:, None] * m + square) / 0.64
    log_density = -0.5 * residual - 0.5 * math.log(2.0 * math.pi * 0.64)
    return tf.reduce_sum(z.expectation[0] * log_density)


def choice(z, weights):
    return tf.reduce_sum(z.expectation[0] * weights.expectation[0])


# %%
def mixture():
    unit = np.ones((K, 1, 1))
    beliefs = {
        "z": Categorical().belief(np.zeros((N, K))),
        "means": Gaussian().belief(np.linspace(-1.0, 1.0, K)[:, None], unit),
        "weights": Dirichlet().belief(np.ones(K)),
    }
    prior_of_means = Gaussian().belief(np.zeros((K, 1)), 9.0 * unit)
    factors = {
        "component": Factor(("z", "means"), component, data=points, local="z"),
        "choice": Factor(("z", "weights"), choice, local="z"),
        "prior of the means": prior_factor("means", prior_of_means),
        "prior of the weights": prior_factor("weights", Dirichlet().belief(np.ones(K))),
    }
    return FactorGraph(beliefs, factors)


# %%
batch = N // PARTS
whole = mixture()
runs = {"all data": MeanFieldCVI().run(whole, steps=PASSES)}
for update, rho in (("local", 1.0), ("global", lambda step: (1.0 + step) ** -0.6)):
    model = mixture()
    rule = MeanFieldCVI(rho, update=update)
    runs[update] = rule.run(model, steps=PASSES * PARTS, batch_size=batch)
for name, run in runs.items():
    print(f"{name}: {run}")
means = np.sort(whole["means"].expectation[0][:, 0])
print("means", np.round(means, 2), "of", true_means)


# %% [markdown]
# The bounds against passes over the data:


# %% tags=["remove-input"]
fig, ax = plt.subplots(figsize=(9, 3.5), layout="constrained")
for name, run in runs.items():
    known = np.isfinite(run.history["elbo"])
    bound = run.history["elbo"][known]
    ax.plot(np.arange(1, len(bound) + 1), bound, "o-", ms=3, label=name)
ax.set_xlabel("passes over the data")
ax.set_ylabel("bound (nats)")
ax.legend(bbox_to_anchor=(1.0, 1.0), loc="upper left", frameon=False)

# %% tags=["remove-cell"]
assert np.allclose([shape, rate], [2 + counts.sum(), 1 + len(counts)], rtol=1e-12)
assert evidence - 0.05 < exact_run.elbo < evidence
assert np.all(np.diff(exact_run.history["elbo"]) > -1e-9) and np.all(
    np.diff(result.history["elbo"]) > -1e-9
)
assert np.allclose(
    sampled["rate"].expectation[1], explicit["rate"].expectation[1], rtol=0.1
)
assert np.allclose(
    [found_mean, found_precision], [exact_mean, exact_precision], rtol=1e-9
)
assert np.all(np.diff(runs["all data"].history["elbo"]) > -1e-9)
assert (
    runs["local"].elbo > runs["all data"].elbo - 0.5
    and runs["global"].elbo > runs["all data"].elbo - 20.0
)
assert np.max(np.abs(means - true_means)) < 0.4
for number in plt.get_fignums():  # of a script; a notebook has shown and closed them
    plt.figure(number).savefig(OUTPUT / f"07_{number}.png", bbox_inches="tight")
