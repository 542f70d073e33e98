"""Sources of minibatches.

`make` chooses by the data: `arrays` in memory (with the order of rows) or `on_disk`, `datasets`, or
`functions` that start passes. `base` is the contract.
"""

from .arrays import DEFAULT_BATCH, ArrayBatches, RowOrder, checksum
from .base import Batch, Batches, Trackable
from .datasets import DatasetBatches
from .functions import FunctionBatches, Passes
from .make import Data, make_batches
from .on_disk import DiskBatches

__all__ = [
    "DEFAULT_BATCH", "ArrayBatches", "Batch", "Batches", "Data", "DatasetBatches", "DiskBatches",
    "FunctionBatches", "Passes", "RowOrder", "Trackable", "checksum", "make_batches",
]  # fmt: skip
