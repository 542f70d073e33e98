"""What a training step is: `step.py` has what the loop needs of one, `several.py` takes many small
ones in one call.
"""

from .several import SeveralSteps
from .step import Several, Step, StepOutput, StepSizes, Trackable, all_finite

__all__ = ["Several", "SeveralSteps", "Step", "StepOutput", "StepSizes", "Trackable", "all_finite"]
