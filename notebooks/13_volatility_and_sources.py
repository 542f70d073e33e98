# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Stochastic volatility, and independent sources
#
# Two models with affine-independent posteriors, $w = A\,v + b$ with independent $v_d$ that are not normal
# ([notebook 6](06_skewed_posteriors.ipynb)): a time series whose variance changes, and sources that are heard as a mixture.
# In each the answer is known, from a long run of a sampler and from quadrature.

# %%
import gpflow
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import stats
from scipy.special import logsumexp

from gpflow_decoupled.models import AffineIndependentGLM, AffineIndependentGP
from gpflow_decoupled.optimizers import AffineIndependentAscent

tfd = tfp.distributions
CHAINS, STEPS, INSTANTS, ANGLES, CELLS = 200, 3000, 30, 7, 401

# %% tags=["remove-cell"]
import os
from pathlib import Path

FAST = os.environ.get("NOTEBOOK_FAST", "") == "1"  # the tests run a smaller one
OUTPUT = Path("notebook_output")
OUTPUT.mkdir(exist_ok=True)
if FAST:
    CHAINS, STEPS, INSTANTS, ANGLES, CELLS = 100, 600, 6, 2, 201

# %% [markdown]
# ## Stochastic volatility
#
# The returns $y_t$ of a share have mean zero, and a variance that is high in some weeks and low in others. Its logarithm
# $f_t$ is a Gaussian process in time,
#
# $$y_t \mid f_t \sim \mathcal N(0,\, e^{f_t}), \qquad f \sim \mathcal N(0, K), \qquad
# \log p(y_t \mid f_t) = -\tfrac12 \bigl[\log 2\pi + f_t + y_t^2\, e^{-f_t}\bigr].$$
#
# With an exponential kernel $f_t$ is an autoregression of order one, the usual model of volatility. The log likelihood is
# concave in $f_t$, but far from a parabola. Log density and moments of $y$ given $f$ make a likelihood:


# %%
class StochasticVolatility(gpflow.likelihoods.ScalarLikelihood):
    """y ~ N(0, exp(f))."""

    def _scalar_log_prob(self, X, F, Y):
        return -0.5 * (np.log(2.0 * np.pi) + F + Y**2 * tf.exp(-F))

    def _conditional_mean(self, X, F):
        return tf.zeros_like(F)

    def _conditional_variance(self, X, F):
        return tf.exp(F)


# %% [markdown]
# Eighty days are drawn from the model. The log variance has correlation $e^{-1/4} = 0.78$ from one day to the next: few
# returns speak for each $f_t$.

# %%
T = 80
days = np.arange(T, dtype=float)[:, None]


def kernel(variance, memory):
    """The covariance of an autoregression of order one."""
    return gpflow.kernels.Matern12(variance, lengthscales=memory)


def simulate(variance, memory):
    """A root of the prior covariance, the log variances [T] and the returns [T]."""
    rng = np.random.default_rng(3)
    covariance = kernel(variance, memory)(days).numpy()
    root = np.linalg.cholesky(covariance + 1e-6 * np.eye(T))
    f = root @ rng.standard_normal(T)
    return root, f, np.exp(0.5 * f) * rng.standard_normal(T)


root, f_true, y = simulate(3.0, 4.0)

# %% [markdown]
# ### The two approximations
#
# `AffineIndependentAscent` finds the best Gaussian first, and goes on from there with skew-normal $v_d$. Expectations are
# integrals on a grid of 256 points; the run checks with twice as many that these are enough.

# %%
styles = {"normal": ("Gaussian", "C1", "--"), "skew_normal": ("skew-normal", "C0", "-")}


def approximations(variance, memory, y):
    """Model and record of the run, for each of the two kinds of posterior."""
    found = {}
    for base in styles:
        data, prior = (days, y[:, None]), kernel(variance, memory)
        model = AffineIndependentGP(
            data, prior, StochasticVolatility(), base=base, points=256
        )
        found[base] = model, AffineIndependentAscent(tolerance=1e-4).run(model)
    return found


fitted = approximations(3.0, 4.0, y)
for base, (_, run) in fitted.items():
    print(f"{base:11s} {run}")

# %% [markdown]
# ### The evidence
#
# Importance sampling from the approximation estimates the evidence, $Z = \mathbb E_q\, p(y, f) / q(f)$.


# %% tags=["remove-input"]
def log_likelihood(f):
    """log p(y | f) [S] at f [S, T]."""
    return -0.5 * np.sum(np.log(2.0 * np.pi) + f + y**2 * np.exp(-f), axis=1)


def log_evidence(model, draws=50_000):
    """log Z by importance sampling, and its standard error."""
    base, shapes = model.basis.base, model.basis.shapes
    v = base.sample(draws, shapes, seed=1)
    at = model.projections(days)
    f = v.numpy() @ at.alpha.numpy().T + at.beta.numpy()
    log_q = tf.reduce_sum(base.log_prob(v, shapes), axis=1).numpy()
    log_q -= np.linalg.slogdet(at.alpha.numpy())[1]
    z = np.linalg.solve(root, f.T)
    log_prior = stats.norm.logpdf(z).sum(0) - np.log(np.diag(root)).sum()
    log_weights = log_prior + log_likelihood(f) - log_q
    weights = np.exp(log_weights - log_weights.max())
    error = np.std(weights) / np.mean(weights) / np.sqrt(draws)
    return logsumexp(log_weights) - np.log(draws), error


# %% tags=["remove-input"]
evidence, evidence_error = log_evidence(fitted["skew_normal"][0])
for base, (_, run) in fitted.items():
    print(f"{base:11s} bound {run.elbo:9.4f}, {evidence - run.elbo:.3f} below log Z")
print(f"log Z             {evidence:9.4f} +- {evidence_error:.4f}")

# %% [markdown]
# ### The exact posterior
#
# By elliptical slice sampling (Murray, Adams and MacKay 2010), many chains at once.


# %% tags=["remove-input"]
def slice_step(f, rng):
    """One step of every chain f [C, T]."""
    other = rng.standard_normal(f.shape) @ root.T
    level = log_likelihood(f) + np.log(rng.uniform(size=len(f)))
    angle = rng.uniform(0.0, 2.0 * np.pi, len(f))
    low, high, new = angle - 2.0 * np.pi, angle.copy(), f.copy()
    rest = np.arange(len(f))
    while len(rest):
        at = angle[rest, None]
        new[rest] = f[rest] * np.cos(at) + other[rest] * np.sin(at)
        rest = rest[log_likelihood(new[rest]) < level[rest]]
        below = angle[rest] < 0.0
        low[rest[below]] = angle[rest[below]]
        high[rest[~below]] = angle[rest[~below]]
        angle[rest] = rng.uniform(low[rest], high[rest])
    return new


# %% tags=["remove-input"]
rng = np.random.default_rng(0)
state, kept = rng.standard_normal((CHAINS, T)) @ root.T, []
for step in range(STEPS):
    state = slice_step(state, rng)
    if step >= STEPS // 3 and step % 10 == 0:
        kept.append(state)
kept = np.array(kept)
draws = kept.reshape(-1, T)
error = kept.mean(0).std(0) / np.sqrt(CHAINS) / draws.std(0)
print(f"{len(draws)} draws; standard error of a mean: {error.max():.3f} deviations")

# %% tags=["thumbnail", "remove-input"]
figure, axis = plt.subplots(figsize=(9.5, 3.6), layout="constrained")
axis.bar(days[:, 0], np.abs(y), color="0.8", label="size of the return")
levels = 0.05, 0.5, 0.95
low, middle, high = np.exp(0.5 * np.quantile(draws, levels, axis=0))
axis.fill_between(days[:, 0], low, high, color="C2", alpha=0.3, label="sampler")
for base, (label, colour, dashes) in styles.items():
    quantiles = fitted[base][0].predict_f_quantiles(days, levels)
    low, middle, high = np.exp(0.5 * quantiles.T)
    axis.plot(days, middle, color=colour, linestyle=dashes, label=label)
    axis.plot(days, np.stack([low, high], 1), color=colour, linestyle=dashes, lw=0.8)
axis.plot(days, np.exp(0.5 * f_true), "k:", linewidth=1, label="truth")
axis.set(xlabel="day", ylabel="volatility", yscale="log", ylim=(0.02, 30.0))
axis.legend(frameon=False, ncols=5, loc="upper center")

# %% [markdown]
# Median and 90 % interval of the volatility. At this scale both approximations are good; what they miss is in the tails.
# Of the exact posterior 5 % should be below the interval of a day, and 5 % above it. The average over all days:

# %% tags=["remove-input"]
outside, distances = {}, {}
edges = np.linspace(-12.0, 8.0, 101)
centres, width = 0.5 * (edges[1:] + edges[:-1]), edges[1] - edges[0]
heights = [np.histogram(draws[:, t], edges, density=True)[0] for t in range(T)]
curves = {
    base: model.predict_f_density(days, centres).numpy()
    for base, (model, _) in fitted.items()
}
for base, (model, _) in fitted.items():
    low, high = model.predict_f_quantiles(days, (0.05, 0.95)).T
    outside[base] = np.mean(draws < low), np.mean(draws > high)
    distances[base] = 0.5 * width * np.abs(curves[base] - heights).sum(1)
    below, above = outside[base]
    print(f"{base:11s} below {below:.2%}, above {above:.2%}", end="; ")
    print(f"mean total variation {np.mean(distances[base]):.3f}")

# %% tags=["remove-input"]
figure, axes = plt.subplots(1, 3, figsize=(11, 3.2), sharey=True, layout="constrained")
order = np.argsort(distances["normal"])
for axis, t in zip(axes, (order[-1], order[3 * T // 4], order[T // 4])):
    axis.stairs(heights[t], edges, fill=True, color="0.8", label="sampler")
    for base, (label, colour, dashes) in styles.items():
        axis.plot(centres, curves[base][t], color=colour, linestyle=dashes, label=label)
    middle = np.mean(draws[:, t])
    axis.set(title=f"day {t}", xlabel="log variance", xlim=(middle - 4.0, middle + 4.0))
axes[0].set_ylabel("density")
handles = axes[0].get_legend_handles_labels()
figure.legend(*handles, frameon=False, loc="outside lower center", ncols=3)

# %% [markdown]
# The day on which the Gaussian is worst, and days at the third and the first quarter.
#
# If the variance changes slowly, with correlation $e^{-1/20} = 0.95$, many returns speak for each $f_t$, and the Gaussian is
# nearly enough:

# %% tags=["remove-input"]
slow = approximations(1.0, 20.0, simulate(1.0, 20.0)[-1])["skew_normal"][1]
fast = fitted["skew_normal"][1]
print(f"gain over the Gaussian: {fast.gain:.3f} nats; slow variance {slow.gain:.3f}")

# %% [markdown]
# ## Independent sources
#
# *Independent component analysis* explains what several microphones record as a mixture of sources that are independent
# and not Gaussian. At each instant
#
# $$x = W s + \epsilon, \qquad p(s) = \prod_i \operatorname{Laplace}(s_i;\, 0,\, \tau), \qquad
# \epsilon \sim \mathcal N(0, \sigma^2 I).$$
#
# With two microphones and two sources of variance 1, $W$ is a rotation by an unknown angle once the records have been
# decorrelated. Under a Gaussian prior of the sources every angle would have the same evidence.

# %%
tau, sigma, angle_true = np.sqrt(0.5), 0.4, 0.4


def mixing(angle):
    """The rotation by an angle."""
    cosine, sine = np.cos(angle), np.sin(angle)
    return np.array([[cosine, -sine], [sine, cosine]])


rng = np.random.default_rng(1)
sources = rng.laplace(0.0, tau, (INSTANTS, 2))
noise = sigma * rng.standard_normal((INSTANTS, 2))
records = sources @ mixing(angle_true).T + noise

# %% [markdown]
# The sources are the weights of a linear model with Laplace priors, and the rows of $W$ its inputs, a block for each instant.
# Since $W$ is a rotation, $|x - W s| = |W^T x - s|$, and the posterior has a factor for each source: a Gaussian times a kink
# at zero. Mixtures of two normals can have such a shape.


# %%
def unmix(angle):
    """The model of all sources for one angle, and the record of its run."""
    inputs = np.kron(np.eye(INSTANTS), mixing(angle))
    model = AffineIndependentGLM(
        (inputs, records.reshape(-1, 1)),
        gpflow.likelihoods.Gaussian(sigma**2),
        prior=tfd.Laplace(np.float64(0.0), np.float64(tau)),
        intercept=False,
        base="normal_mixture",
    )
    return model, AffineIndependentAscent(tolerance=1e-3).run(model)


# %% [markdown]
# ### Which angle?
#
# Evidence and marginals of the sources are exact by quadrature, an integral over two variables for each instant. The first
# stage of each run gives the Gaussian bound.

# %% tags=["remove-input"]
line = np.linspace(-7.0, 7.0, CELLS)
cell = line[1] - line[0]
plane = np.stack(np.meshgrid(line, line, indexing="ij"), -1).reshape(-1, 2)
log_prior_plane = stats.laplace(0.0, tau).logpdf(plane).sum(1)


def exact_posterior(angle, record):
    """log Z of one instant, and the marginal densities [2, CELLS] of its sources."""
    rest = record - plane @ mixing(angle).T
    log_joint = log_prior_plane + stats.norm(0.0, sigma).logpdf(rest).sum(1)
    log_z = logsumexp(log_joint) + 2.0 * np.log(cell)
    density = np.exp(log_joint - log_z).reshape(CELLS, CELLS)
    return log_z, cell * np.array([density.sum(1), density.sum(0)])


# %% tags=["remove-input"]
angles = angle_true + np.linspace(-0.25, 0.25, ANGLES) * np.pi
unmixed = [unmix(angle) for angle in angles]
log_z = [sum(exact_posterior(a, x)[0] for x in records) for a in angles]
gaussian = [run.gaussian_elbo for _, run in unmixed]
affine = [run.elbo for _, run in unmixed]
print("angle    Gaussian  affine-independent      log Z")
for row in zip(angles, gaussian, affine, log_z):
    print("{:5.2f}  {:10.3f}  {:18.3f} {:10.3f}".format(*row))

# %% tags=["remove-input"]
best = int(np.argmax(log_z))
model = unmixed[best][0]
exact = np.array([exact_posterior(angles[best], x)[1] for x in records])
exact = exact.reshape(-1, CELLS)
found = model.predict_f_density(np.eye(2 * INSTANTS), line).numpy()
mean = cell * exact @ line
error = np.abs(cell * found @ line - mean)
source_distance = 0.5 * cell * np.abs(found - exact).sum(1)
print(f"means of sources: largest error {error.max():.4f}")
print(f"marginals: mean total variation {source_distance.mean():.4f}")


# %% [markdown]
# Evidence and bounds against the angle, the true one dotted, and the source whose marginal is least Gaussian:


# %% tags=["remove-input"]
figure, axes = plt.subplots(1, 2, figsize=(11, 3.4), layout="constrained")
axes[0].plot(angles, log_z, "k.-", label="log Z")
axes[0].plot(angles, affine, "C0.-", label="affine-independent")
axes[0].plot(angles, gaussian, "C1.--", label="Gaussian")
axes[0].axvline(angle_true, color="k", linestyle=":", linewidth=1)
axes[0].set(xlabel="angle", ylabel="nats")
axes[0].legend(frameon=False)
moments = cell * exact @ line, cell * exact @ line**2
normal = stats.norm(moments[0], np.sqrt(moments[1] - moments[0] ** 2))
n = int(np.argmax(np.abs(normal.pdf(line[:, None]).T - exact).sum(1)))
axes[1].fill_between(line, exact[n], color="0.8", label="exact")
axes[1].plot(line, found[n], "C0", label="affine-independent")
axes[1].plot(line, normal.pdf(line[:, None])[:, n], "C1--", label="same moments")
axes[1].set(xlabel=f"source {n % 2 + 1} at instant {n // 2}", ylabel="density")
axes[1].set(xlim=(-1.5, 2.0), ylim=(0.0, None))
axes[1].legend(frameon=False)

# %% [markdown]
# ## In short
#
# - Volatility: the skew-normal posterior gains most of what the best Gaussian lacks, and its tails are nearly those of the
#   sampler. The sooner the variance changes, the more there is to gain.
# - Sources: the evidence as a function of the angle is the same curve for all three, up to a constant. For the angle the best
#   Gaussian is enough; for the posterior of a source it is not.

# %% tags=["remove-cell"]
for number in plt.get_fignums():  # of a script; a notebook has shown and closed them
    plt.figure(number).savefig(OUTPUT / f"13_{number}.png", bbox_inches="tight")
gaussian_run, skewed_run = (fitted[base][1] for base in styles)
assert gaussian_run.elbo < skewed_run.elbo < evidence + 3.0 * evidence_error
assert evidence - skewed_run.elbo < 0.5 * (evidence - gaussian_run.elbo)
assert np.mean(distances["skew_normal"]) < np.mean(distances["normal"])
uneven = {base: abs(above - 0.05) for base, (_, above) in outside.items()}
assert uneven["skew_normal"] < uneven["normal"]
assert slow.gain < fast.gain
gaps = np.array(log_z)[:, None] - np.stack([gaussian, affine], 1)
assert np.all(gaps > 0.0) and np.all(gaps[:, 1] < 0.6 * gaps[:, 0])
assert np.ptp(gaps[:, 0]) < 0.25 * max(np.ptp(log_z), 0.2)
