"""A process with two virtual CPUs, set up before TensorFlow starts:
`python -m tests.replicas.virtual FILE NAME...`.
"""

from __future__ import annotations

import os
import sys

import numpy as np
import tensorflow as tf

from tests import round_off


def main(path: str, names: list[str]) -> None:
    """Every case by one process and by two replicas, and every probe; arrays by "name/one or
    two/quantity" into the file.
    """
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    from tests.replicas.cases import CASES, run
    from tests.replicas.probes import PROBES

    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    found: dict[str, np.ndarray] = {}
    for name in names:
        if name in CASES:
            for number, chosen in (("one", None), ("two", strategy)):
                found |= {
                    f"{name}/{number}/{key}": value for key, value in run(name, chosen).items()
                }
        else:
            found |= {f"{name}/{key}": value for key, value in PROBES[name](strategy).items()}
    np.savez(path, **found)


if __name__ == "__main__":
    if round_off.VARIABLE in os.environ:  # the data that the test's own process has
        round_off.pytest_configure()
    main(sys.argv[1], sys.argv[2:])
