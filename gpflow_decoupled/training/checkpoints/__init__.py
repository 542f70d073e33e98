"""Checkpoints from which a killed run continues on the same trace.

`option.py` has the user's option, `run.py` the contents of a state, `folder.py` the files,
`lock.py` the lock that keeps two runs out of one folder.
"""

from .option import Checkpoints
from .run import RunCheckpoint

__all__ = ["Checkpoints", "RunCheckpoint"]
