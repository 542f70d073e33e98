"""One of several workers that share out products with a kernel matrix:
`python product_worker.py N REPEATS SEED`.

It is run as a script, by its path, with TF_CONFIG in its environment if there are several workers.
"""

from __future__ import annotations

__all__: list[str] = []

import json
import os
import sys
import time
from collections.abc import Callable

import gpflow
import numpy as np
import tensorflow as tf

from gpflow_decoupled.covariances.products import kernel_product
from gpflow_decoupled.replicas import Group

_DIMENSION = 8


def main(rows: int, repeats: int, seed: int) -> dict[str, list[float]]:
    """Seconds of the processor of a product in each precision and of a product with its
    gradient.
    """
    several = "TF_CONFIG" in os.environ
    group = Group(
        tf.distribute.MultiWorkerMirroredStrategy() if several else None
    )  # before any operation
    rng = np.random.default_rng(seed)
    X, V = (
        tf.constant(rng.uniform(-1.0, 1.0, (rows, _DIMENSION))),
        tf.constant(rng.standard_normal((rows, 1))),
    )
    kernel = gpflow.kernels.Matern52(lengthscales=[1.0] * _DIMENSION)

    def product(dtype: tf.DType) -> tf.Tensor:
        return kernel_product(kernel, X, None, V, dtype=dtype, group=group)

    def with_gradient() -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            value = tf.reduce_sum(tf.square(product(tf.float32)))
        return tape.gradient(value, kernel.trainable_variables)

    tasks: dict[str, Callable[[], object]] = {
        "product, float32": lambda: product(tf.float32),
        "product, float64": lambda: product(tf.float64),
        "product and gradient, float32": with_gradient,
    }
    found = {}
    for name, task in tasks.items():
        task()  # compiles
        times = []
        for _ in range(repeats):
            began = time.process_time()
            task()
            times.append(time.process_time() - began)
        found[name] = times
    return found


if __name__ == "__main__":
    print(json.dumps(main(*map(int, sys.argv[1:]))))
