"""Where the minibatches of a run come from.

`make.py` chooses by what a user passed: arrays in memory (`arrays.py`), arrays on disk
(`on_disk.py`), a `tf.data.Dataset` (`datasets.py`), or a function that starts passes
(`functions.py`). `protocol.py` says what the loop needs of all of them.
"""

from .arrays import ArrayBatches, checksum
from .datasets import DatasetBatches
from .functions import FunctionBatches, Passes
from .make import make_batches
from .on_disk import DiskBatches
from .order import DEFAULT_BATCH, RowOrder
from .protocol import Batch, Batches

__all__ = [
    "DEFAULT_BATCH", "ArrayBatches", "Batch", "Batches", "DatasetBatches", "DiskBatches",
    "FunctionBatches", "Passes", "RowOrder", "checksum", "make_batches",
]  # fmt: skip
