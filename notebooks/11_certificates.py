# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Certificates
#
# **The idea.** How often will a classifier err on new data? A few bounds answer from the training data alone, with probability
# $1 - \delta$ over samples. For one of finitely many classifiers there is Hoeffding's inequality with a union bound. PAC-Bayes
# bounds (McAllester 1999, Seeger 2002) hold for all posteriors $Q$ at once, also over a continuum of classifiers, and pay
# $\mathrm{KL}[Q \,\|\, P]$ in the place of the logarithm of their number.
#
# [The mathematics](../mathematics/certificates.md) has the bounds.

# %%
import matplotlib.pyplot as plt
import numpy as np

from gpflow_decoupled import certificates as pac

bounds = {
    "Hoeffding": pac.hoeffding,
    "McAllester": pac.mcallester,
    "Seeger": pac.seeger,
    "Maurer": pac.maurer,
}
delta = 0.05
sizes = np.unique(np.geomspace(30, 30000, 16).astype(int))

# %% tags=["remove-cell"]
import os
from pathlib import Path

FAST = os.environ.get("NOTEBOOK_FAST", "") == "1"  # the tests run a smaller one
OUTPUT = Path("notebook_output")
OUTPUT.mkdir(exist_ok=True)
if FAST:
    sizes = np.unique(np.geomspace(30, 3000, 8).astype(int))

# %% [markdown]
# ## A finite class
#
# $K = 1000$ linear classifiers are drawn before any data are seen. The labels are those of one more linear classifier, and a
# share of them, the noise, is flipped.

# %%
rng = np.random.default_rng(0)
K = 1000
directions = rng.standard_normal((K, 2))
truth = np.array([1.0, -0.5])


def sample(num, noise):
    """Inputs [num, 2] and labels [num, 1], a share `noise` of which is flipped."""
    X = rng.standard_normal((num, 2))
    flipped = rng.uniform(size=num) < noise
    return X, ((X @ truth > 0.0) ^ flipped).astype(int)[:, None]


# %% [markdown]
# Of a sample of $n$, the classifier with the fewest errors is taken. Its prior probability is $1 / K$, so that $\log K$ is its
# $\mathrm{KL}[Q \,\|\, P]$, and all four bounds, `bounds[name](errors, np.log(K), n, delta)`, apply to it. Its risk is known
# here, from its angle to the truth.

# %% tags=["remove-input"]
errors, risks, curves = {}, {}, {}
for noise in (0.0, 0.25):
    X, Y = sample(sizes[-1], noise)
    wrong = (X @ directions.T > 0.0) != (Y == 1)
    errors[noise] = np.array([wrong[:n].mean(0).min() for n in sizes])
    chosen = directions[[int(wrong[:n].mean(0).argmin()) for n in sizes]]
    cosine = chosen @ truth / np.linalg.norm(chosen, axis=1) / np.linalg.norm(truth)
    risks[noise] = noise + (1.0 - 2.0 * noise) * np.arccos(cosine) / np.pi
    curves[noise] = {
        name: bound(errors[noise], np.log(K), sizes, delta)
        for name, bound in bounds.items()
    }
    print(f"noise {noise:.2f}, n = {sizes[-1]}: risk {risks[noise][-1]:.4f}")
    for name, curve in curves[noise].items():
        print(f"    {name:11s}{curve[-1]:.4f}")


# %% [markdown]
# The bounds against the size of the sample:


# %% tags=["thumbnail", "remove-input"]
figure, axes = plt.subplots(1, 2, figsize=(11, 3.6), sharey=True, layout="constrained")
for axis, noise in zip(axes, curves):
    for name, curve in curves[noise].items():
        axis.plot(sizes, curve, label=name)
    axis.plot(sizes, risks[noise], "k-", linewidth=1, label="risk")
    axis.plot(sizes, errors[noise], "k:", linewidth=1, label="error on the sample")
    axis.set(xscale="log", xlabel="n", ylim=(0.0, 1.0))
    axis.set_title(f"{100 * noise:.0f} % of the labels flipped")
axes[0].set_ylabel("error rate")
handles = axes[0].get_legend_handles_labels()
figure.legend(*handles, frameon=False, loc="outside lower center", ncols=6)

# %% tags=["remove-cell"]
figure.savefig(OUTPUT / "certificates_finite_class.png", dpi=120, bbox_inches="tight")

# %% [markdown]
# Hoeffding's bound is below McAllester's, which is also paid for all other $Q$. Seeger's and Maurer's keep the binomial tail,
# and win at small error rates.
#
# ## A continuum: a Laplace posterior
#
# Now all linear classifiers at once, with a Gaussian prior of the weights, $P = \mathcal N(0, 25\,I)$. A union bound over
# infinitely many classifiers has no value; $\mathrm{KL}[Q \,\|\, P]$ has, and it grows with $\log n$ only.
#
# `laplace_weights` is the Gaussian $Q$ at the mode of a Bayesian logistic regression, and `certify_gaussian` certifies any
# Gaussian posterior of weights, for example that of scikit-learn's logistic regression with its inverse Hessian. The bounded
# error rate is that of the Gibbs classifier, which draws new weights from $Q$ for every input.

# %%
prior = np.zeros(3), 25.0 * np.eye(3)


def with_intercept(data):
    """The data with a column of ones."""
    X, Y = data
    return np.hstack([X, np.ones((len(X), 1))]), Y


def certify(data, posterior):
    """The certificate of weights whose prior was fixed before the data were seen."""
    return pac.certify_gaussian(data, posterior, prior, delta, hyperparameters="fixed")


# %% [markdown]
# The same posterior on 20,000 new observations shows how far the bound is from what it bounds.

# %%
X, Y = with_intercept(sample(sizes[-1], 0.25))
new = with_intercept(sample(20000, 0.25))
rows = []
for n in sizes:
    posterior = pac.laplace_weights((X[:n], Y[:n]), prior)
    found = certify((X[:n], Y[:n]), posterior)
    new_error = certify(new, posterior).gibbs_error
    rows.append(
        (found.gibbs_error, found.kl, found.seeger, found.mcallester, new_error)
    )
error, kl, by_seeger, by_mcallester, held_out = np.array(rows).T
print(found)


# %% [markdown]
# Bounds and error rates against the size of the sample:


# %% tags=["remove-input"]
figure, axis = plt.subplots(figsize=(7, 3.6), layout="constrained")
axis.plot(sizes, by_mcallester, "C1", label="McAllester")
axis.plot(sizes, by_seeger, "C2", label="Seeger")
axis.plot(sizes, held_out, "k-", linewidth=1, label="Gibbs error on new data")
axis.plot(sizes, error, "k:", linewidth=1, label="Gibbs error on the sample")
axis.set(xscale="log", xlabel="n", ylabel="error rate", ylim=(0.0, 1.0))
axis.legend(frameon=False)

# %% tags=["remove-cell"]
figure.savefig(OUTPUT / "certificates_laplace.png", dpi=120, bbox_inches="tight")

# %% tags=["remove-cell"]
for noise, found_curves in curves.items():
    for curve in found_curves.values():
        assert np.all(curve >= risks[noise]), "each holds with probability 0.95"
assert all(np.all(c["Hoeffding"] < c["McAllester"]) for c in curves.values())
large = sizes > 100
assert np.all(curves[0.0]["Seeger"][large] < curves[0.0]["Hoeffding"][large])
assert np.all(by_seeger < by_mcallester) and np.all(held_out < by_seeger)
assert np.all(np.diff(kl) < 6.0) and by_seeger[-1] - held_out[-1] < 0.1
