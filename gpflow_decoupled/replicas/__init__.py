"""Replicas of `tf.distribute`: all that the package knows about them. With one replica nothing
changes, to the last bit.

Methods say what is summed and leave the rest to this package. `sums` is for the code of a training
step, which each replica runs on its own rows of a batch. `group` is for the code around a step,
which each worker process runs. `row_sums` adds up passes over data of any size, and `datasets`
finds the shard of a worker. `checks` refuses what would be wrong without a message: strategies that
work in another way, and variables that the strategy does not mirror; flags that TensorFlow would
not read it applies.
"""

from .checks import (
    apply_trainable,
    check_strategy,
    group_of,
    named_variables,
    refuse_elsewhere,
    refuse_other_workers,
)
from .datasets import dataset_of, starts_passes
from .group import Group
from .row_sums import RowSums
from .sums import Message, agreed, count, counted, fold_in_rank, of_first, rank, share, total

__all__ = [
    "Group", "Message", "RowSums", "agreed", "apply_trainable", "check_strategy", "count",
    "counted", "dataset_of", "fold_in_rank", "group_of", "named_variables", "of_first", "rank",
    "refuse_elsewhere", "refuse_other_workers", "share", "starts_passes", "total",
]  # fmt: skip
