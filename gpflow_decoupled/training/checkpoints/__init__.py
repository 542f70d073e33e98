"""Checkpoints from which a killed run continues on the same trace.

`option` has the user's option, `states` the states of a run, `run` the contents of one, `folder`
the files, `lock` keeps two runs out of one folder.
"""

from .option import Checkpoints
from .states import States

__all__ = ["Checkpoints", "States"]
