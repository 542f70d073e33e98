"""Models of data in any units: `Standardized` brings X and Y to mean 0 and variance 1, trains, and
predicts in their units.

`transform.py` is the shift and scale of one array, `model.py` the model around them. Read
`transform.py` first.
"""

from .model import Standardized
from .transform import Standardization

__all__ = ["Standardization", "Standardized"]
