"""Training: `fit`, the objects that its options are made of, and its result.

`fit.py` looks up the route of the model, checks the options and starts the loop. `routes/` has one module for each family of
models. `step.py` says what a step is, `loop.py` repeats it; `batches`, `schedules`, `evaluation`, `checkpoints`, `progress`
and `failure` are what the loop does besides, each with the option that belongs to it; `states.py` has what it goes back to,
and `result.py` is the record. `scales/` warns of data on another scale than the model, and finds values to start from,
and `standardized/` trains and predicts in the units of the data. Read `fit.py`, `step.py`, `loop.py`, then one route.
"""

from .checkpoints import Checkpoints
from .evaluation import Evaluation, held_out_metrics
from .fit import fit
from .progress import Callbacks, TensorBoard
from .result import FitResult
from .routes.route import MeanSolver
from .scales import Start, initialize
from .schedules import Schedule
from .standardized import Standardization, Standardized

__all__ = [
    "Callbacks",
    "Checkpoints",
    "Evaluation",
    "FitResult",
    "MeanSolver",
    "Schedule",
    "Standardization",
    "Standardized",
    "Start",
    "TensorBoard",
    "fit",
    "held_out_metrics",
    "initialize",
]


def __dir__() -> list[str]:
    return sorted(__all__)
