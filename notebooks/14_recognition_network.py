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
# Stochastic gradient variational Bayes has one network for the posteriors of all observations, q(z | x) = N(m(x), s(x)^2),
# and draws z to estimate the gradient of the bound. Two estimates are unbiased: the score function's, E[f(z) d log q(z | x)],
# which takes any f, and the reparameterised one, E[d f(m + s eps)], which takes a differentiable f. It is said that the
# second varies less. Here everything is Gaussian, so that bound, gradients and the variances of the estimates are known in
# closed form, and the sentence can be checked, with its limits.
#
# Model: z ~ N(0, 1), x | z ~ N(w z, sigma^2). With z = m + s eps the integrand of the bound is
#
#     f = log p(x, z) - log q(z | x) = a + b eps + c eps^2,
#     b = s (w (x - w m) / sigma^2 - m),   c = (1 - s^2 (1 + w^2 / sigma^2)) / 2,
#
# the bound is E f = a + c, its derivative is b / s in m and 2 c in log s, and both vanish at the exact posterior.

# %%
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf

FAST = os.environ.get("NOTEBOOK_FAST", "") == "1"
OUTPUT = Path("notebook_output")
OUTPUT.mkdir(exist_ok=True)
W, SIGMA = 1.5, 0.5
EXACT_S = SIGMA / np.sqrt(W**2 + SIGMA**2)
NAMES = (
    "score function",
    "score function, best constant",
    "reparameterised",
    "reparameterised, path only",
)


def coefficients(
    x: np.ndarray, m: np.ndarray, s: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """a, b, c of f = a + b eps + c eps^2."""
    rest = x - W * m
    a = (
        np.log(s)
        - 0.5 * m**2
        - 0.5 * rest**2 / SIGMA**2
        - 0.5 * np.log(2.0 * np.pi * SIGMA**2)
    )
    return (
        a,
        s * (W * rest / SIGMA**2 - m),
        0.5 * (1.0 - s**2 * (1.0 + W**2 / SIGMA**2)),
    )


# %% [markdown]
# ## Closed forms of the variances
#
# With one draw each, from the moments of eps. In the score function's estimate a constant may be subtracted from f, since
# E[d log q] = 0; the best one for m removes a + 3 c. The reparameterised gradient has a part through d log q at fixed z, whose
# mean is zero as well; without it ("path only", Roeder et al. 2017) the estimate has no variance at the exact posterior.
#
# | estimate | variance in m | variance in log s |
# |---|---|---|
# | score function | (a^2 + 2 b^2 + 15 c^2 + 6 a c) / s^2 | 2 a^2 + 10 b^2 + 74 c^2 + 20 a c |
# | the same for f + k | with a + k for a | with a + k for a |
# | reparameterised | (2 c - 1)^2 / s^2 | b^2 + 2 (2 c - 1)^2 |
# | path only | 4 c^2 / s^2 | b^2 + 8 c^2 |

# %%


def exact_variances(x: float, m: float, s: float) -> dict[str, np.ndarray]:
    """The variances [2] in m and in log s of each estimate from one draw."""
    a, b, c = coefficients(np.float64(x), np.float64(m), np.float64(s))

    def score(level: float) -> np.ndarray:
        return np.array(
            [
                (level**2 + 2.0 * b**2 + 15.0 * c**2 + 6.0 * level * c) / s**2,
                2.0 * level**2 + 10.0 * b**2 + 74.0 * c**2 + 20.0 * level * c,
            ]
        )

    path = [
        np.array([(2.0 * c - k) ** 2 / s**2, b**2 + 2.0 * (2.0 * c - k) ** 2])
        for k in (1.0, 0.0)
    ]
    return dict(zip(NAMES, (score(a), score(-3.0 * c), *path)))


def log_joint(x: tf.Tensor, z: tf.Tensor) -> tf.Tensor:
    """log p(x, z) [N, 1], with its normalisation."""
    return (
        -0.5 * z**2
        - 0.5 * ((x - W * z) / SIGMA) ** 2
        - 0.5 * tf.math.log(tf.constant((2.0 * np.pi * SIGMA) ** 2, z.dtype))
    )


def log_normal(z: tf.Tensor, m: tf.Tensor, log_s: tf.Tensor) -> tf.Tensor:
    return -0.5 * ((z - m) / tf.exp(log_s)) ** 2 - log_s - 0.5 * np.log(2.0 * np.pi)


def surrogate(
    name: str, x: tf.Tensor, m: tf.Tensor, log_s: tf.Tensor, eps: tf.Tensor
) -> tf.Tensor:
    """A number [N, 1] per draw whose derivative, by automatic differentiation, is the named estimate of the gradient."""
    z = m + tf.exp(log_s) * eps
    if name.startswith("score"):
        fixed = tf.stop_gradient(z)
        log_q = log_normal(fixed, m, log_s)
        f = tf.stop_gradient(log_joint(x, fixed) - log_q)
        if "constant" in name:  # a + 3 c, from its closed form
            a, _, c = coefficients(x.numpy(), m.numpy(), np.exp(log_s.numpy()))
            f -= a + 3.0 * c
        return f * log_q
    at = (
        (tf.stop_gradient(m), tf.stop_gradient(log_s)) if "path" in name else (m, log_s)
    )
    return log_joint(x, z) - log_normal(z, *at)


def draws_of_gradient(name: str, x: float, m: float, s: float, num: int) -> np.ndarray:
    """`num` estimates [num, 2] of the gradient in m and log s, from a draw each."""
    eps = tf.constant(np.random.default_rng(0).standard_normal((num, 1)))
    mean, log_s, data = (
        tf.constant(np.full((num, 1), value)) for value in (m, np.log(s), x)
    )
    with tf.GradientTape() as tape:
        tape.watch((mean, log_s))
        value = tf.reduce_sum(surrogate(name, data, mean, log_s, eps))
    return np.hstack([part.numpy() for part in tape.gradient(value, (mean, log_s))])


# %% [markdown]
# ## They are unbiased, and their variances are those of the table
#
# Far from the posterior, near it, and at it.

# %%
x = 2.0
exact_m = W * x / (W**2 + SIGMA**2)
PLACES = {
    "far": (exact_m - 1.0, 1.0),
    "near": (exact_m + 0.1, 1.2 * EXACT_S),
    "at the optimum": (exact_m, EXACT_S),
}
num = 50_000 if FAST else 400_000
worst_bias, worst_ratio, table = 0.0, 0.0, {}
for place, (m, s) in PLACES.items():
    _, b, c = coefficients(np.float64(x), np.float64(m), np.float64(s))
    truth = np.array([b / s, 2.0 * c])
    table[place] = exact_variances(x, m, s)
    for name in NAMES:
        gradients = draws_of_gradient(name, x, m, s, num)
        variance = table[place][name]
        errors = np.abs(gradients.mean(0) - truth) / np.sqrt(variance / num + 1e-24)
        worst_bias = max(worst_bias, float(errors.max()))
        known = variance > 1e-12
        ratio = np.abs(gradients.var(0)[known] / variance[known] - 1.0)
        worst_ratio = max(worst_ratio, float(ratio.max(initial=0.0)))
        print(
            f"{place:15s}{name:31s}variance in m {variance[0]:9.3g}, in log s {variance[1]:9.3g}"
        )
print(
    f"largest bias {worst_bias:.1f} standard errors; variances within {100 * worst_ratio:.1f} %"
)

# %% [markdown]
# Reparameterised gradients do not always vary less: at the optimum a score-function estimate with its best constant has no
# variance, since f does not depend on z there, and the usual reparameterised one has. What decides is how much f varies under
# q, times how strongly the estimate weighs it.
#
# ## More than one latent variable
#
# With D independent observations in one draw, the score function multiplies the noise of all D integrands by the derivative of
# one: its variance grows with D, with the best constant too. The reparameterised estimate sees only its own.

# %%
dims = np.array([1, 2, 4, 8, 16, 32, 64, 128])
m, s = PLACES["near"]
a, b, c = (
    float(part) for part in coefficients(np.float64(x), np.float64(m), np.float64(s))
)
others = (dims - 1) * (b**2 + 2.0 * c**2)  # variance of the other integrands
growing = exact_variances(x, m, s)[NAMES[1]][0] + others / s**2
constant = np.full(len(dims), exact_variances(x, m, s)[NAMES[2]][0])

figure, axes = plt.subplots(1, 2, figsize=(9, 3.2))
axes[0].plot(dims, growing, "o-", ms=3, label="score function, best constant")
axes[0].plot(dims, constant, "o-", ms=3, label="reparameterised")
axes[0].set(
    xscale="log",
    yscale="log",
    xlabel="latent variables D",
    ylabel="variance of one gradient in m",
)
axes[0].legend(frameon=False, fontsize=8)

# %% [markdown]
# ## The network
#
# m(x) and log s(x) of a network with one hidden layer, trained from one draw per observation and step.

# %%
generator = np.random.default_rng(1)
train = W * generator.standard_normal((200, 1)) + SIGMA * generator.standard_normal(
    (200, 1)
)
data = tf.constant(train)
evidence = float(
    np.mean(
        -0.5 * np.log(2.0 * np.pi * (W**2 + SIGMA**2))
        - 0.5 * train**2 / (W**2 + SIGMA**2)
    )
)


def network(hidden: int = 16) -> list[tf.Variable]:
    """Weights of a network from x to (m, log s)."""
    start = np.random.default_rng(2)
    shapes = ((1, hidden), (hidden,), (hidden, 2), (2,), (1, 2))
    return [tf.Variable(0.3 * start.standard_normal(shape)) for shape in shapes]


def recognise(weights: list[tf.Variable], x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """m(x) and log s(x), [N, 1] each."""
    out = (
        tf.tanh(x @ weights[0] + weights[1]) @ weights[2] + weights[3] + x @ weights[4]
    )
    return out[:, :1], out[:, 1:]


def train_network(
    name: str, steps: int, rate: float = 0.01
) -> tuple[list[tf.Variable], np.ndarray]:
    """Adam on one draw per observation; the exact bound per observation after each step, [steps]."""
    weights, noise, path = network(), np.random.default_rng(3), []
    first, second = ([np.zeros(w.shape) for w in weights] for _ in range(2))
    for step in range(1, steps + 1):
        eps = tf.constant(noise.standard_normal(train.shape))
        with tf.GradientTape() as tape:
            m, log_s = recognise(weights, data)
            value = tf.reduce_mean(surrogate(name, data, m, log_s, eps))
        for w, g, f, v in zip(weights, tape.gradient(value, weights), first, second):
            f += 0.1 * (g.numpy() - f)
            v += 0.001 * (g.numpy() ** 2 - v)
            w.assign_add(
                rate
                * (f / (1.0 - 0.9**step))
                / (np.sqrt(v / (1.0 - 0.999**step)) + 1e-8)
            )
        a, _, c = coefficients(train, m.numpy(), np.exp(log_s.numpy()))
        path.append(float(np.mean(a + c)))
    return weights, np.array(path)


steps = 300 if FAST else 2000
gaps = {}
for name in NAMES:
    weights, path = train_network(name, steps)
    gaps[name] = evidence - path
    axes[1].plot(gaps[name], lw=1, label=name)
    print(
        f"{name:31s}gap to the evidence after {steps} steps: {np.mean(gaps[name][-50:]):.2e} nats an observation"
    )
m, log_s = recognise(weights, data)  # of the last one, path only
axes[1].set(yscale="log", xlabel="steps", ylabel="nats below the evidence")
axes[1].legend(frameon=False, fontsize=8)
figure.savefig(OUTPUT / "recognition_network.png", dpi=120, bbox_inches="tight")
print(
    f"m(x) off by at most {np.max(np.abs(m.numpy() - W * train / (W**2 + SIGMA**2))):.3f}, exact s {EXACT_S:.3f}"
)

# %%
last = {name: float(np.mean(gap[-50:])) for name, gap in gaps.items()}
assert worst_bias < 5.0 and worst_ratio < (0.3 if FAST else 0.1)
assert all(
    table[place][NAMES[2]][0] < table[place][NAMES[0]][0] for place in ("far", "near")
)
assert (
    table["at the optimum"][NAMES[1]].max()
    < 1e-12
    < table["at the optimum"][NAMES[2]].min()
)
assert all(np.min(gap) > -1e-9 for gap in gaps.values()), "the bound is one"
assert last[NAMES[2]] < last[NAMES[0]] and last[NAMES[3]] < 0.05
