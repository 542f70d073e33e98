"""One of the workers that sweep over a file of rows:
`python memory_worker.py FILE ROWS COLUMNS BLOCK POINTS LIMIT`.

With TF_CONFIG in its environment it reads its shard of the file block by block, and the kernel of
the system allows its data LIMIT MiB; without, it has all rows in memory and no limit. It is run as
a script, by its path."""

from __future__ import annotations

__all__: list[str] = []

import json
import os
import resource
import sys
from pathlib import Path

if (
    "TF_CONFIG" in os.environ
):  # before anything is imported; writable memory counts, the program and its libraries do not
    resource.setrlimit(resource.RLIMIT_DATA, (int(sys.argv[6]) * 2**20,) * 2)

import gpflow
import numpy as np
import tensorflow as tf

import gpflow_decoupled as gd
from benchmarks.harness.measuring import peak_megabytes
from gpflow_decoupled.replicas import Group


def main(file: str, rows: int, columns: int, block: int, points: int) -> dict[str, object]:
    """The bound and q after the sweep, the peak of this process, and whether all rows would have
    fitted into its memory.
    """
    several = "TF_CONFIG" in os.environ
    strategy = (
        tf.distribute.MultiWorkerMirroredStrategy() if several else None
    )  # before any operation
    group = Group(strategy)
    first = np.fromfile(file, count=points * columns).reshape(points, columns)
    with group.scope():
        kernel = gpflow.kernels.SquaredExponential(lengthscales=[30.0] * (columns - 1))
        model = gd.models.SparseCVIGP(
            kernel, gpflow.likelihoods.Gaussian(0.2), first[:, :-1], num_data=rows
        )
    if several:
        data = lambda context: _shard(context, file, rows, columns, block)  # noqa: E731
    else:
        whole = np.fromfile(file).reshape(rows, columns)
        data = whole[:, :-1], whole[:, -1:]
    result = gd.optimizers.sweep(model, data, block=block, passes=3, strategy=strategy)
    peak = peak_megabytes()
    return {
        "elbo": result.elbo,
        "q_mu": model.basis.q_mu.numpy().ravel().tolist(),
        "peak": peak,
        "all_fits": _fits(rows * columns),
        "shard_fits": _fits(rows * columns // group.workers),
    }


def _shard(
    context: tf.distribute.InputContext, file: str, rows: int, columns: int, block: int
) -> tf.data.Dataset:
    """X [block, D] and Y [block, 1] of one worker's part of the file."""
    own, width = rows // context.num_input_pipelines, 8 * columns
    before = context.input_pipeline_id * own * width
    after = Path(file).stat().st_size - before - own * width
    records = tf.data.FixedLengthRecordDataset(
        file, block * width, header_bytes=before, footer_bytes=after
    )

    def pair(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        table = tf.reshape(tf.io.decode_raw(record, tf.float64), [block, columns])
        return table[:, :-1], table[:, -1:]

    return records.map(pair)


def _fits(numbers: int) -> bool:
    """Whether so many more numbers of eight bytes find memory."""
    try:
        return len(np.empty(numbers)) == numbers
    except MemoryError:
        return False


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], *map(int, sys.argv[2:6]))))
