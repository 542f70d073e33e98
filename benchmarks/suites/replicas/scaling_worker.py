"""One of several workers that measures its steps: `python scaling_worker.py M G ROWS REPEATS SEED`,
ROWS as "512,2048".

Batches of each size follow each other in one run of `fit`, so that a step is compiled once. It is
run as a script, by its path, with TF_CONFIG in its environment if there are several workers."""

from __future__ import annotations

__all__: list[str] = []

import json
import os
import sys
import time

import gpflow
import numpy as np
import tensorflow as tf

import gpflow_decoupled as gd
from gpflow_decoupled import replicas

_DIMENSION = 8


def main(
    num_beta: int, num_gamma: int, rows: list[int], repeats: int, seed: int
) -> dict[str, object]:
    """Seconds of the processor for each batch, and the bytes of each message of a step."""
    several = "TF_CONFIG" in os.environ
    strategy = (
        tf.distribute.MultiWorkerMirroredStrategy() if several else None
    )  # before any operation
    group, rng = replicas.Group(strategy), np.random.default_rng(seed)
    # one step more of each size, which compiles or finds memory, and is left out
    sizes = [size for size in rows for _ in range(repeats + 1)]
    with group.scope():
        points = rng.uniform(-1.0, 1.0, (num_beta + num_gamma, _DIMENSION))
        kernel = gpflow.kernels.Matern52(lengthscales=[1.0] * _DIMENSION)
        data = {"num_data": sum(sizes) * group.workers}
        model = gd.models.ODVGP(
            kernel, gpflow.likelihoods.Gaussian(0.1), points[num_beta:], points[:num_beta], **data
        )

    def shard(context: tf.distribute.InputContext) -> tf.data.Dataset:
        def batches() -> object:
            own = np.random.default_rng([seed, context.input_pipeline_id])
            for size in sizes:
                X = own.uniform(-1.0, 1.0, (size, _DIMENSION))
                yield (
                    X,
                    np.sin(3.0 * X.sum(1, keepdims=True)) + 0.3 * own.standard_normal((size, 1)),
                )

        signature = (
            tf.TensorSpec([None, _DIMENSION], tf.float64),
            tf.TensorSpec([None, 1], tf.float64),
        )
        return tf.data.Dataset.from_generator(batches, output_signature=signature)

    times: list[float] = []
    calls = gd.training.Callbacks([lambda *_: times.append(time.process_time())], every=1)
    data = shard(tf.distribute.InputContext()) if strategy is None else shard
    with replicas.counted() as messages:
        gd.fit(model, data, steps=len(sizes), callbacks=calls, progress=False, strategy=strategy)
    steps = np.diff([np.nan, *times])
    kept = [place % (repeats + 1) > 0 for place in range(len(sizes))]
    return {
        "rows": [size for size, keep in zip(sizes, kept) if keep],
        "seconds": [float(step) for step, keep in zip(steps, kept) if keep],
        "messages": [one.size for one in messages if one.size > 0],
    }


if __name__ == "__main__":
    beta, gamma, sizes, *others = sys.argv[1:]
    print(
        json.dumps(
            main(int(beta), int(gamma), [int(size) for size in sizes.split(",")], *map(int, others))
        )
    )
