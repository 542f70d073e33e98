"""Replicas of `tf.distribute`; with one replica nothing changes, to the last bit.

`sums` serves the code of a training step, which each replica runs on its rows of a batch; `group`
the code around a step, which each worker process runs. `row_sums` adds up passes over data of any
size, `datasets` finds the shard of a worker, and `checks` refuses what would fail silently.
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
