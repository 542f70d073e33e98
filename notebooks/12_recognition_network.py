# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # A recognition network, and the variance of its gradients
#
# **The idea.** Stochastic gradient variational Bayes has one network for the posteriors of all observations,
# $q(z \mid x) = \mathcal N(m(x), s(x)^2)$, and draws $z$ to estimate the gradient of the bound. Two estimates are unbiased:
# the score function's, $\mathbb E[f(z)\, \nabla \log q(z \mid x)]$, which takes any $f$, and the reparameterised one,
# $\mathbb E[\nabla f(m + s\,\epsilon)]$, which takes a differentiable $f$ and is said to vary less. Here everything is
# Gaussian, and the variances of the estimates are known in closed form.
#
# **The model.** One latent variable for each observation,
#
# $$z \sim \mathcal N(0, 1), \qquad x \mid z \sim \mathcal N(w z, \sigma^2).$$
#
# With $z = m + s\,\epsilon$ the integrand of the bound is a parabola in $\epsilon \sim \mathcal N(0, 1)$,
#
# $$f = \log p(x, z) - \log q(z \mid x) = a + b\,\epsilon + c\,\epsilon^2,$$
#
# $$b = s \left(\frac{w (x - w m)}{\sigma^2} - m\right), \qquad
# c = \frac12 \left(1 - s^2 \left(1 + \frac{w^2}{\sigma^2}\right)\right).$$
#
# The bound is $\mathbb E f = a + c$, its derivative is $b / s$ in $m$ and $2 c$ in $\log s$.

# %%
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf

num, steps = 400_000, 2000  # draws of a gradient, steps of training
W, SIGMA = 1.5, 0.5
EXACT_S = SIGMA / np.sqrt(W**2 + SIGMA**2)


def coefficients(x, m, s):
    """a, b, c of f = a + b eps + c eps^2."""
    rest = x - W * m
    a = np.log(s) - 0.5 * m**2 - 0.5 * rest**2 / SIGMA**2
    a = a - 0.5 * np.log(2.0 * np.pi * SIGMA**2)
    b = s * (W * rest / SIGMA**2 - m)
    c = 0.5 * (1.0 - s**2 * (1.0 + W**2 / SIGMA**2))
    return a, b, c


# %% tags=["remove-cell"]
import os
from pathlib import Path

FAST = os.environ.get("NOTEBOOK_FAST", "") == "1"  # the tests run a smaller one
OUTPUT = Path("notebook_output")
OUTPUT.mkdir(exist_ok=True)
if FAST:
    num, steps = 50_000, 300

# %% [markdown]
# ## Closed forms of the variances
#
# With one draw each. In the score function's estimate a constant may be subtracted from $f$, since
# $\mathbb E[\nabla \log q] = 0$; the best one for $m$ removes $a + 3 c$. The reparameterised gradient has a part through
# $\nabla \log q$ at fixed $z$, whose mean is zero as well; without it ("path only", Roeder et al. 2017) the estimate has no
# variance at the exact posterior.
#
# | estimate | variance in $m$ | variance in $\log s$ |
# |---|---|---|
# | score function | $(a^2 + 2 b^2 + 15 c^2 + 6 a c) / s^2$ | $2 a^2 + 10 b^2 + 74 c^2 + 20 a c$ |
# | the same for $f + k$ | with $a + k$ for $a$ | with $a + k$ for $a$ |
# | reparameterised | $(2 c - 1)^2 / s^2$ | $b^2 + 2 (2 c - 1)^2$ |
# | path only | $4 c^2 / s^2$ | $b^2 + 8 c^2$ |

# %% tags=["remove-input"]
NAMES = (
    "score function",
    "score function, best constant",
    "reparameterised",
    "reparameterised, path only",
)


def exact_variances(x, m, s):
    """The variances [2] in m and in log s of each estimate from one draw."""
    a, b, c = coefficients(np.float64(x), np.float64(m), np.float64(s))

    def score(a):
        of_m = (a**2 + 2.0 * b**2 + 15.0 * c**2 + 6.0 * a * c) / s**2
        return np.array([of_m, 2 * a**2 + 10 * b**2 + 74 * c**2 + 20 * a * c])

    def path(slope):
        return np.array([slope**2 / s**2, b**2 + 2.0 * slope**2])

    estimates = score(a), score(-3.0 * c), path(2.0 * c - 1.0), path(2.0 * c)
    return dict(zip(NAMES, estimates))


# %% [markdown]
# ## The estimates
#
# They need the two log densities alone:


# %%
def log_joint(x, z):
    """log p(x, z) [N, 1], with its normalisation."""
    constant = tf.math.log(tf.constant((2.0 * np.pi * SIGMA) ** 2, z.dtype))
    return -0.5 * z**2 - 0.5 * ((x - W * z) / SIGMA) ** 2 - 0.5 * constant


def log_normal(z, m, log_s):
    """log q(z | x) [N, 1]."""
    return -0.5 * ((z - m) / tf.exp(log_s)) ** 2 - log_s - 0.5 * np.log(2.0 * np.pi)


# %% [markdown]
# Automatic differentiation gives each estimate as the derivative of a number per draw. For the score function that number is
# $f(z) \log q(z)$ with $z$ and $f(z)$ held fixed; for the others it is $f(m + s\,\epsilon)$, where "path only" holds the $m$
# and $s$ in $\log q$ fixed.


# %%
def surrogate(name, x, m, log_s, eps):
    """A number [N, 1] per draw whose derivative is the named estimate."""
    z = m + tf.exp(log_s) * eps
    if name.startswith("score"):
        fixed = tf.stop_gradient(z)
        log_q = log_normal(fixed, m, log_s)
        f = tf.stop_gradient(log_joint(x, fixed) - log_q)
        if "constant" in name:  # a + 3 c, from its closed form
            a, _, c = coefficients(x.numpy(), m.numpy(), np.exp(log_s.numpy()))
            f -= a + 3.0 * c
        return f * log_q
    at = m, log_s
    if "path" in name:
        at = tf.stop_gradient(m), tf.stop_gradient(log_s)
    return log_joint(x, z) - log_normal(z, *at)


# %% tags=["remove-input"]
def draws_of_gradient(name, x, m, s):
    """Estimates [num, 2] of the gradient in m and log s, from a draw each."""
    eps = tf.constant(np.random.default_rng(0).standard_normal((num, 1)))
    full = [tf.constant(np.full((num, 1), value)) for value in (x, m, np.log(s))]
    with tf.GradientTape() as tape:
        tape.watch(full)
        value = tf.reduce_sum(surrogate(name, *full, eps))
    return np.hstack([part.numpy() for part in tape.gradient(value, full[1:])])


# %% [markdown]
# ## They are unbiased, and their variances are those of the table
#
# Far from the posterior, near it, and at it, where $m = w x / (w^2 + \sigma^2)$ and $s^2 = \sigma^2 / (w^2 + \sigma^2)$:

# %% tags=["remove-input"]
x = 2.0
exact_m = W * x / (W**2 + SIGMA**2)
PLACES = {
    "far": (exact_m - 1.0, 1.0),
    "near": (exact_m + 0.1, 1.2 * EXACT_S),
    "optimum": (exact_m, EXACT_S),
}
table = {place: exact_variances(x, *at) for place, at in PLACES.items()}
print(f"{'variance':39s}   in m    in log s")
for place, variances in table.items():
    for name, (of_m, of_log_s) in variances.items():
        print(f"{place:9s}{name:29s}{of_m:10.3g}{of_log_s:10.3g}")

# %% [markdown]
# Of 400,000 draws the mean agrees with the exact gradient, up to a few standard errors, and the variance with the table:

# %% tags=["remove-input"]
worst_bias, worst_ratio = 0.0, 0.0
for place, (m, s) in PLACES.items():
    _, b, c = coefficients(x, m, s)
    truth = np.array([b / s, 2.0 * c])
    for name, variance in table[place].items():
        gradients = draws_of_gradient(name, x, m, s)
        errors = np.abs(gradients.mean(0) - truth) / np.sqrt(variance / num + 1e-24)
        worst_bias = max(worst_bias, float(errors.max()))
        known = variance > 1e-12
        ratio = np.abs(gradients.var(0)[known] / variance[known] - 1.0)
        worst_ratio = max(worst_ratio, float(ratio.max(initial=0.0)))
print(f"largest bias {worst_bias:.1f} standard errors")
print(f"variances within {100 * worst_ratio:.1f} %")

# %% [markdown]
# Reparameterised gradients do not always vary less: at the optimum a score-function estimate with its best constant has no
# variance, since $f$ does not depend on $z$ there, and the usual reparameterised one has.
#
# ## More than one latent variable
#
# With $D$ independent observations in one draw, the score function multiplies the noise of all $D$ integrands, $b^2 + 2 c^2$
# each, by the derivative of one: $V_D = V_1 + (D - 1)\,(b^2 + 2 c^2) / s^2$. The reparameterised estimate sees only its own
# integrand.

# %% tags=["thumbnail", "remove-input"]
dims = np.array([1, 2, 4, 8, 16, 32, 64, 128])
m, s = PLACES["near"]
_, b, c = coefficients(x, m, s)
growing = table["near"][NAMES[1]][0] + (dims - 1) * (b**2 + 2.0 * c**2) / s**2
constant = np.full(len(dims), table["near"][NAMES[2]][0])

figure, axis = plt.subplots(figsize=(7, 3.6), layout="constrained")
axis.loglog(dims, growing, "C1o-", markersize=4, label=NAMES[1])
axis.loglog(dims, constant, "C2o-", markersize=4, label=NAMES[2])
axis.set(xlabel="latent variables D", ylabel="variance of a gradient in m")
axis.legend(frameon=False)

# %% tags=["remove-cell"]
figure.savefig(OUTPUT / "recognition_variances.png", dpi=120, bbox_inches="tight")

# %% [markdown]
# ## The network
#
# $m(x)$ and $\log s(x)$ are the outputs of a network with one hidden layer and a linear path beside it. The marginal
# likelihood is known, $x \sim \mathcal N(0, w^2 + \sigma^2)$, and no bound can be above it.

# %% tags=["remove-input"]
generator = np.random.default_rng(1)
train = W * generator.standard_normal((200, 1))
train = train + SIGMA * generator.standard_normal((200, 1))
data = tf.constant(train)
marginal = W**2 + SIGMA**2
densities = -0.5 * np.log(2.0 * np.pi * marginal) - 0.5 * train**2 / marginal
evidence = float(np.mean(densities))  # per observation


def network(hidden=16):
    """Weights of a network from x to (m, log s)."""
    start = np.random.default_rng(2)
    shapes = ((1, hidden), (hidden,), (hidden, 2), (2,), (1, 2))
    return [tf.Variable(0.3 * start.standard_normal(shape)) for shape in shapes]


def recognise(weights, x):
    """m(x) and log s(x), [N, 1] each."""
    out = tf.tanh(x @ weights[0] + weights[1]) @ weights[2]
    out = out + weights[3] + x @ weights[4]
    return out[:, :1], out[:, 1:]


# %% [markdown]
# Each step draws once for every observation, and Adam follows the gradient with a learning rate of 0.01. The four estimates
# start from the same weights and see the same draws; the exact bound $a + c$ is recorded along the way.


# %% tags=["remove-input"]
def adam(weights, gradients, means, squares, step):
    """One step uphill of all weights, after that of the running means."""
    for w, g, u, v in zip(weights, gradients, means, squares):
        u += 0.1 * (g.numpy() - u)
        v += 0.001 * (g.numpy() ** 2 - v)
        size = np.sqrt(v / (1.0 - 0.999**step)) + 1e-8
        w.assign_add(0.01 * u / (1.0 - 0.9**step) / size)


def train_network(name):
    """Weights, and the exact bound per observation before each step, [steps]."""
    weights, noise, path = network(), np.random.default_rng(3), []
    means, squares = ([np.zeros(w.shape) for w in weights] for _ in range(2))
    for step in range(1, steps + 1):
        eps = tf.constant(noise.standard_normal(train.shape))
        with tf.GradientTape() as tape:
            m, log_s = recognise(weights, data)
            value = tf.reduce_mean(surrogate(name, data, m, log_s, eps))
        adam(weights, tape.gradient(value, weights), means, squares, step)
        a, _, c = coefficients(train, m.numpy(), np.exp(log_s.numpy()))
        path.append(float(np.mean(a + c)))
    return weights, np.array(path)


# %% tags=["remove-input"]
gaps = {}
print(f"gap to the evidence after {steps} steps, nats per observation")
for name in NAMES:
    weights, path = train_network(name)
    gaps[name] = evidence - path
    print(f"{name:31s}{np.mean(gaps[name][-50:]):.2e}")
m, log_s = recognise(weights, data)  # of the last one, path only
off = np.max(np.abs(m.numpy() - W * train / (W**2 + SIGMA**2)))
print(f"{name}: m(x) off by at most {off:.3f}")

# %% tags=["remove-input"]
figure, axis = plt.subplots(figsize=(7, 3.6), layout="constrained")
for name, gap in gaps.items():
    axis.semilogy(gap, linewidth=1, label=name)
axis.set(xlabel="steps", ylabel="nats below the evidence")
axis.legend(frameon=False)

# %% tags=["remove-cell"]
figure.savefig(OUTPUT / "recognition_network.png", dpi=120, bbox_inches="tight")

# %% tags=["remove-cell"]
last = {name: float(np.mean(gap[-50:])) for name, gap in gaps.items()}
assert worst_bias < 5.0 and worst_ratio < (0.3 if FAST else 0.1)
for place in ("far", "near"):
    assert table[place][NAMES[2]][0] < table[place][NAMES[0]][0]
assert table["optimum"][NAMES[1]].max() < 1e-12 < table["optimum"][NAMES[2]].min()
assert all(np.min(gap) > -1e-9 for gap in gaps.values()), "the bound is one"
assert last[NAMES[2]] < last[NAMES[0]] and last[NAMES[3]] < 0.05
