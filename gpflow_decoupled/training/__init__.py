"""Training: `fit`, the objects that its options are made of, and its result.

`fit.py` looks up the route of the model, checks the options and starts the loop. `routes/` has one
module for each family of models. `steps/` says what a step is, `advance.py` takes one, or several
in one call, and undoes what fails, and `loop.py` repeats that. `batches`, `schedules`,
`evaluation`, `checkpoints` and `progress` are what the loop does besides, each with the option that
belongs to it, and `plan.py` has them all; `states.py` has what a run goes back to, and `result.py`
is its record. `beginning.py` asks `diagnostics` before the first step, and `standardized/` trains
and predicts in the units of the data. Read `fit.py`,
`steps/step.py`, `advance.py`, `loop.py`, then one route.
"""

from ..diagnostics import Start, initialize
from .checkpoints import Checkpoints
from .evaluation import Evaluation, held_out_metrics
from .fit import fit
from .progress import Callbacks, TensorBoard
from .result import FitResult
from .routes.route import MeanSolver
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
