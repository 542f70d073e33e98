"""One of two processes that train together:
`python -m tests.replicas.worker NUMBER PORT PORT FILE NAME...`.
"""

from __future__ import annotations

import json
import os
import sys

import numpy as np
import tensorflow as tf

from tests import round_off


def main(number: int, ports: list[str], path: str, names: list[str]) -> None:
    """Every case by this process alone and by both workers; arrays by "name/one or two/quantity"
    into the file.
    """
    addresses = [f"localhost:{port}" for port in ports]
    task = {"type": "worker", "index": number}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": addresses}, "task": task})
    strategy = tf.distribute.MultiWorkerMirroredStrategy()  # before any operation
    from tests.replicas.cases import run
    from tests.replicas.faults import FAULTS

    found: dict[str, np.ndarray] = {}
    for name in names:
        if name in FAULTS:
            found |= {f"{name}/{key}": value for key, value in FAULTS[name](strategy, path).items()}
        else:
            for kind, chosen in (("one", None), ("two", strategy)):
                found |= {f"{name}/{kind}/{key}": value for key, value in run(name, chosen).items()}
    np.savez(path, **found)


if __name__ == "__main__":
    if round_off.VARIABLE in os.environ:  # the data that the test's own process has
        round_off.pytest_configure()
    main(int(sys.argv[1]), sys.argv[2:4], sys.argv[4], sys.argv[5:])
