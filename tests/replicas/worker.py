"""One of two processes that train together."""

from __future__ import annotations

import json
import os

import numpy as np
import tensorflow as tf

from tests.replicas.cases import run
from tests.replicas.faults import FAULTS


def main(number: str, first: str, second: str, path: str, *names: str) -> None:
    """Every case by this process alone and by both workers, which listen at these ports; arrays by
    "name/one or two/quantity" into the file.
    """
    addresses = [f"localhost:{port}" for port in (first, second)]
    task = {"type": "worker", "index": int(number)}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": addresses}, "task": task})
    strategy = tf.distribute.MultiWorkerMirroredStrategy()  # before any operation
    found: dict[str, np.ndarray] = {}
    for name in names:
        if name in FAULTS:
            found |= {f"{name}/{key}": value for key, value in FAULTS[name](strategy, path).items()}
        else:
            for kind, chosen in (("one", None), ("two", strategy)):
                found |= {f"{name}/{kind}/{key}": value for key, value in run(name, chosen).items()}
    np.savez(path, **found)
