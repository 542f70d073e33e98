"""A process with two virtual CPUs, which are set up before TensorFlow starts."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tests.replicas.cases import CASES, run
from tests.replicas.probes import PROBES


def main(path: str, *names: str) -> None:
    """Every case by one process and by two replicas, and every probe; arrays by "name/one or
    two/quantity" into the file.
    """
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
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
