"""Checkpoints from which a killed run continues on the same trace.

`option` has the user's option, `run` the contents of a state, `folder` the files, `lock` keeps two
runs out of one folder.
"""

from .option import Checkpoints
from .run import RunCheckpoint

__all__ = ["Checkpoints", "RunCheckpoint"]
