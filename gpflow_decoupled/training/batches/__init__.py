"""Sources of a run's minibatches.

`make` chooses by the data: arrays in memory (`arrays`) or on disk (`on_disk`), a `tf.data.Dataset`
(`datasets`), or a function that starts passes (`functions`). `order` picks the rows; `base` has the
contract with the loop.
"""

from .arrays import ArrayBatches, checksum
from .base import Batch, Batches, Trackable
from .datasets import DatasetBatches
from .functions import FunctionBatches, Passes
from .make import Data, make_batches
from .on_disk import DiskBatches
from .order import DEFAULT_BATCH, RowOrder

__all__ = [
    "DEFAULT_BATCH", "ArrayBatches", "Batch", "Batches", "Data", "DatasetBatches", "DiskBatches",
    "FunctionBatches", "Passes", "RowOrder", "Trackable", "checksum", "make_batches",
]  # fmt: skip
