# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Big data
#
# A million observations that are never in memory together: a file of rows, read as a stream of shuffled minibatches.

# %%
import shutil

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
N, D, NOISE = 1_000_000, 3, 0.2
STEPS, BETA, GAMMA = 300, 60, 150

# %% tags=["remove-cell"]
if FAST:
    N, STEPS, BETA, GAMMA = 20_000, 20, 20, 40

# %% [markdown]
# ## The file
#
# Each row is three inputs and an output, written block by block to the folder `OUTPUT`. In your case this would be an export
# of a database; any `tf.data.Dataset` of pairs will do.

# %%
FILE = OUTPUT / "10_rows.bin"


def truth(x):
    return np.sin(2.0 * x[:, 0]) + np.cos(2.0 * x[:, 1]) * x[:, 2]


def rows(count, rng):
    x = rng.uniform(-2.0, 2.0, (count, D))
    return np.column_stack([x, truth(x) + NOISE * rng.standard_normal(count)])


rng = np.random.default_rng(0)
with open(FILE, "wb") as file:
    for _ in range(N // 10_000):
        file.write(rows(10_000, rng).tobytes())
held_out = rows(2000, rng)
evaluation = held_out[:, :D], held_out[:, D:]
print(f"{FILE.stat().st_size / 1e6:.0f} MB, {N:,} rows")

# %% [markdown]
# ## The stream
#
# `shuffle` keeps that many rows; the file's order should not matter beyond it.


# %%
def stream():
    records = tf.data.FixedLengthRecordDataset(str(FILE), 8 * (D + 1))
    batches = records.shuffle(10_000, seed=1).batch(1024, drop_remainder=True)

    def pair(text):
        row = tf.io.decode_raw(text, tf.float64)
        row = tf.ensure_shape(row, [1024, D + 1])
        return row[:, :D], row[:, D:]

    return batches.map(pair).prefetch(2)


# %% [markdown]
# ## The model
#
# Points are chosen from the first rows; `num_data` scales the bound of a minibatch to the whole file.

# %%
first = np.fromfile(FILE, count=5000 * (D + 1)).reshape(-1, D + 1)[:, :D]


def new_model():
    kernel = gpflow.kernels.Matern52(lengthscales=[1.0] * D)
    beta = gd.inducing.select(first, BETA, kernel)
    gamma = gd.inducing.select(first, GAMMA, kernel, given=beta)
    likelihood = gpflow.likelihoods.Gaussian(0.1)
    return gd.models.ODVGP(kernel, likelihood, gamma, beta, num_data=N)


# %% [markdown]
# ## A run that is killed
#
# Something fails halfway, here on purpose. The checkpoint of a moment before is in the folder.


# %%
class PowerCut(Exception):
    """What may happen to a long run."""


def pull_the_plug(step, metrics, model):
    if step >= STEPS // 2:
        raise PowerCut


FOLDER = OUTPUT / "10_checkpoints"
shutil.rmtree(FOLDER, ignore_errors=True)
settings = {
    "steps": STEPS,
    "evaluation": gd.training.Evaluation(evaluation, every=STEPS // 4),
    "checkpoint": gd.training.Checkpoints(FOLDER, every=STEPS // 4),
}

# %% tags=["remove-cell"]
settings["compile"] = not FAST  # a short run is over before it is compiled

# %%
interrupted = False
try:
    gd.fit(new_model(), stream(), callbacks=[pull_the_plug], **settings)
except PowerCut:
    interrupted = True
saved = sorted(int(path.stem.split("-")[1]) for path in FOLDER.glob("run-*.json"))
print(f"interrupted: {interrupted}; checkpoints of steps {saved}")

# %% [markdown]
# ## ... and goes on
#
# The same call with a new model: parameters, optimizers, the place in the stream and the history come from the folder.

# %%
model = new_model()
result = gd.fit(model, stream(), **settings)
print(result)
print("held-out RMSE on the way:", np.round(result.history["rmse"], 3))

# %% [markdown]
# ## Full passes
#
# At fixed hyperparameters one pass over all rows finds the best q(u) for Gaussian noise and the mean coefficients as they
# are. The file is mapped, not loaded: one block is in memory at a time.

# %%
mapped = np.memmap(FILE, dtype=np.float64, mode="r").reshape(-1, D + 1)
before = gd.training.held_out_metrics(model, evaluation)
swept = gd.optimizers.sweep(model, (mapped[:, :D], mapped[:, D:]), passes=3)
after = gd.training.held_out_metrics(model, evaluation)
print(swept)
print(
    f"log density a row: {before['log_density']:.4f} before, "
    f"{after['log_density']:.4f} after"
)


# %% [markdown]
# The history of the run, and what was learned along the first input, with two standard deviations:


# %% tags=["thumbnail", "remove-input"]
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.6), layout="constrained")
gd.wrappers.plot_history(result, left)
x = np.zeros((200, D))
x[:, 0] = np.linspace(-2.0, 2.0, 200)
mean, variance = model.predict_f(x)
width = 2.0 * np.sqrt(variance[:, 0])
right.plot(x[:, 0], truth(x), "k--", label="truth")
right.plot(x[:, 0], mean, label="mean")
right.fill_between(x[:, 0], mean[:, 0] - width, mean[:, 0] + width, alpha=0.2)
right.set(xlabel="first input, the others at zero")
right.legend(frameon=False)

# %% tags=["remove-input"]
print(
    f"{result.steps} steps; bounds of the passes {np.round(swept.history['elbo'], 1)}"
)
print(f"RMSE {after['rmse']:.4f} at noise {NOISE}")

# %% tags=["remove-cell"]
bounds = swept.history["elbo"]
FILE.unlink()
shutil.rmtree(FOLDER)
assert (
    interrupted
    and result.steps == STEPS
    and np.array_equal(result.history["step"], np.arange(1, STEPS + 1))
)
assert np.all(np.diff(bounds) >= -1e-9 * np.abs(bounds[:-1]))
assert after["rmse"] < (3.0 if FAST else 1.1) * NOISE
for number in plt.get_fignums():  # of a script; a notebook has shown and closed them
    plt.figure(number).savefig(OUTPUT / f"10_{number}.png", bbox_inches="tight")
