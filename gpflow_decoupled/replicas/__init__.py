"""Replicas of `tf.distribute`: all that the package knows about them. With one replica nothing changes, to the last bit.

Methods say what is summed and leave the rest to this package. `sums` is for the code of a training step, which each replica
runs on its own rows of a batch. `group` is for the code around a step, which each worker process runs. `checks` refuses what
would be wrong without a message: strategies that work in another way, and variables that the strategy does not mirror.
"""

from .checks import check_strategy, refuse_elsewhere
from .group import Group
from .sums import Message, agreed, count, counted, fold_in_rank, of_first, rank, share, total

__all__ = [
    "Group", "Message", "agreed", "check_strategy", "count", "counted", "fold_in_rank", "of_first", "rank", "refuse_elsewhere",
    "share", "total",
]  # fmt: skip
