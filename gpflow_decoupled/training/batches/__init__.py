"""Sources of minibatches.

`make` chooses by the data: `arrays` in memory or `on_disk`, `datasets`, or `functions` that start
passes. `order` picks the rows; `base` is the contract.
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
