"""Two runs with checkpoints, one inside the other, that this process does not survive: for
`test_checkpoints`.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import gpflow_decoupled as gd
from tests import round_off
from tests.training.problems import grouped, orthogonal, sine

STEPS, KILLED_AT = 14, 11


def run(kind: str, folder: Path | None, callback: Any = None) -> np.ndarray:
    """The trace of a run of 14 steps that saves every 5."""
    data = sine()
    if kind == "dataset":
        tf.random.set_seed(0)  # the global seed enters that of a shuffled dataset
        data = tf.data.Dataset.from_tensor_slices(data).shuffle(60, seed=1).batch(25)
    model = orthogonal(num_data=60, mean_subsample=4)
    options = {
        "steps": STEPS,
        "refresh_every": 4,
        "report_every": KILLED_AT,
        "progress": False,
        "compile": False,
    }
    if kind == "arrays":
        options["batch_size"] = 25
    if folder is not None:
        options |= {"checkpoint": folder / kind, "checkpoint_every": 5}
    if callback is not None:
        options["callbacks"] = [callback]
    result = gd.fit(model, data, **grouped(**options))
    held_out = float(np.mean(model.predict_log_density(sine(seed=1))))
    return np.append(result.history["elbo"], [held_out, result.refreshes, result.steps])


def main(action: str, folder: Path) -> None:
    """ "start": both runs, killed in the middle of the inner one. "resume": both, to the end,
    traces into the folder.
    """
    if action == "start":
        kill = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # noqa: E731
        run("arrays", folder, lambda *_: run("dataset", folder, kill))
    else:
        np.savez(
            folder / "traces.npz", **{kind: run(kind, folder) for kind in ("arrays", "dataset")}
        )


if __name__ == "__main__":
    if round_off.VARIABLE in os.environ:  # the data that the test's own process has
        round_off.pytest_configure()
    main(sys.argv[1], Path(sys.argv[2]))
