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
# How often will a classifier err on new data? A few bounds answer from the training data alone, with probability 1 - delta
# over samples. For one of finitely many classifiers there is Hoeffding's inequality with a union bound. PAC-Bayes bounds
# (McAllester 1999, Seeger 2002) hold for all posteriors Q at once, also over a continuum of classifiers, and pay KL[Q || P]
# in the place of the logarithm of their number.

# %%
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from gpflow_decoupled.certificates import (
    certify_gaussian,
    hoeffding,
    laplace_weights,
    maurer,
    mcallester,
    seeger,
)

FAST = os.environ.get("NOTEBOOK_FAST", "") == "1"
OUTPUT = Path("notebook_output")
OUTPUT.mkdir(exist_ok=True)
RULES = {
    "Hoeffding": hoeffding,
    "McAllester": mcallester,
    "Seeger": seeger,
    "Maurer": maurer,
}
rng = np.random.default_rng(0)
delta = 0.05

# %% [markdown]
# ## A finite class
#
# K = 1,000 linear classifiers are drawn before any data are seen. Of a sample of n, the one with the fewest errors is taken.
# Its prior probability is 1/K, so that log K is its KL[Q || P], and all four bounds apply to it. Hoeffding's is below
# McAllester's, which is also paid for all other Q. Seeger's and Maurer's keep the binomial tail, which is narrow where errors
# are rare; they win at small error rates.

# %%
K = 1000
directions = rng.standard_normal((K, 2))
TRUTH = np.array([1.0, -0.5])


def sample(num: int, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Inputs [num, 2] and labels [num, 1], a share `noise` of which is turned around."""
    X = rng.standard_normal((num, 2))
    flipped = rng.uniform(size=num) < noise
    return X, ((X @ TRUTH > 0.0) ^ flipped).astype(int)[:, None]


sizes = np.unique(
    np.geomspace(30, 3000 if FAST else 30000, 8 if FAST else 16).astype(int)
)
figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), sharey=True)
curves: dict[float, dict[str, np.ndarray]] = {}
for axis, noise in zip(axes, (0.0, 0.25)):
    X, Y = sample(sizes[-1], noise)
    wrong = (X @ directions.T > 0.0) != (Y == 1)
    errors = np.array([wrong[:n].mean(0).min() for n in sizes])
    chosen = [int(wrong[:n].mean(0).argmin()) for n in sizes]
    angle = np.arccos(
        directions[chosen]
        @ TRUTH
        / np.linalg.norm(directions[chosen], axis=1)
        / np.linalg.norm(TRUTH)
    )
    risk = (
        noise + (1.0 - 2.0 * noise) * angle / np.pi
    )  # of a linear classifier under isotropic inputs
    curves[noise] = {
        name: rule(errors, np.log(K), sizes, delta) for name, rule in RULES.items()
    }
    for name, bound in curves[noise].items():
        axis.plot(sizes, bound, label=name)
        assert np.all(bound >= risk), "each holds with probability 0.95"
    axis.plot(sizes, risk, "k-", lw=1, label="risk")
    axis.plot(sizes, errors, "k:", lw=1, label="error on the sample")
    axis.set(
        xscale="log",
        xlabel="n",
        title=f"{100 * noise:.0f} % of the labels turned around",
        ylim=(0.0, 1.0),
    )
axes[0].set_ylabel("error rate")
axes[1].legend(frameon=False, fontsize=8)
figure.savefig(OUTPUT / "certificates_finite_class.png", dpi=120, bbox_inches="tight")
for noise, bounds in curves.items():
    print(
        f"noise {noise:.2f}, n = {sizes[-1]}: "
        + ", ".join(f"{name} {b[-1]:.4f}" for name, b in bounds.items())
    )

# %% [markdown]
# ## A continuum: a Laplace posterior
#
# All linear classifiers at once, with a Gaussian prior of the weights. `laplace_weights` is the Gaussian at the mode of a
# Bayesian logistic regression, and `certify_gaussian` certifies any Gaussian posterior of weights, for example that of
# scikit-learn's logistic regression with its inverse Hessian. A union bound over infinitely many classifiers has no value;
# KL[Q || P] has, and it grows with log n only.

# %%
prior = np.zeros(3), 25.0 * np.eye(3)
X, Y = sample(sizes[-1], 0.25)
X = np.hstack([X, np.ones((len(X), 1))])
new, labels = sample(20000, 0.25)
new = np.hstack([new, np.ones((len(new), 1))])
rows = []
for n in sizes:
    posterior = laplace_weights((X[:n], Y[:n]), prior)
    certificate = certify_gaussian(
        (X[:n], Y[:n]), posterior, prior, delta, hyperparameters="fixed"
    )
    held_out = certify_gaussian(
        (new, labels), posterior, prior, delta, hyperparameters="fixed"
    ).gibbs_error
    rows.append(
        (
            certificate.gibbs_error,
            certificate.kl,
            certificate.seeger,
            certificate.mcallester,
            held_out,
        )
    )
error, kl, by_seeger, by_mcallester, held_out = np.array(rows).T
print(certificate)

figure, axis = plt.subplots(figsize=(5, 3.2))
axis.plot(sizes, by_mcallester, label="McAllester")
axis.plot(sizes, by_seeger, label="Seeger")
axis.plot(sizes, held_out, "k-", lw=1, label="Gibbs error on new data")
axis.plot(sizes, error, "k:", lw=1, label="Gibbs error on the sample")
axis.set(xscale="log", xlabel="n", ylabel="error rate", ylim=(0.0, 1.0))
axis.legend(frameon=False, fontsize=8)
figure.savefig(OUTPUT / "certificates_laplace.png", dpi=120, bbox_inches="tight")

# %%
assert all(np.all(c["Hoeffding"] < c["McAllester"]) for c in curves.values())
assert np.all(
    curves[0.0]["Seeger"][sizes > 100] < curves[0.0]["Hoeffding"][sizes > 100]
)
assert np.all(by_seeger < by_mcallester) and np.all(held_out < by_seeger)
assert np.all(np.diff(kl) < 6.0) and by_seeger[-1] - held_out[-1] < 0.1
