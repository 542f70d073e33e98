"""Replicas of `tf.distribute`; with one replica nothing changes, to the last bit.

`sums` is for a training step, which each replica runs; `group` for code around it; `row_sums` adds
up passes and refuses silent failures.
"""

from .group import Group, dataset_of, starts_passes
from .row_sums import (
    RowSums,
    apply_trainable,
    check_strategy,
    group_of,
    named_variables,
    parameter_digests,
    refuse_elsewhere,
    refuse_other_workers,
)
from .sums import Message, agreed, count, counted, fold_in_rank, of_first, rank, share, total

__all__ = [
    "Group", "Message", "RowSums", "agreed", "apply_trainable", "check_strategy", "count",
    "counted", "dataset_of", "fold_in_rank", "group_of", "named_variables", "of_first",
    "parameter_digests", "rank", "refuse_elsewhere", "refuse_other_workers", "share",
    "starts_passes", "total",
]  # fmt: skip
