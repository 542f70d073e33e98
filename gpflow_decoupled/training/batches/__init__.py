"""Where the minibatches of a run come from.

`make.py` chooses by what a user passed: arrays in memory (`arrays.py`), arrays on disk
(`on_disk.py`), a `tf.data.Dataset` (`datasets.py`), or a function that starts passes
(`functions.py`). `order.py` says which rows a
minibatch has, and `protocol.py` is the contract with the loop.
"""

from .arrays import ArrayBatches, checksum
from .datasets import DatasetBatches
from .functions import FunctionBatches, Passes
from .make import Data, make_batches
from .on_disk import DiskBatches
from .order import DEFAULT_BATCH, RowOrder
from .protocol import Batch, Batches, Trackable

__all__ = [
    "DEFAULT_BATCH", "ArrayBatches", "Batch", "Batches", "Data", "DatasetBatches", "DiskBatches",
    "FunctionBatches", "Passes", "RowOrder", "Trackable", "checksum", "make_batches",
]  # fmt: skip
