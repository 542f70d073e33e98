"""How q moves."""
from .natural_gradient import NaturalGradient, StepReport

__all__ = ["NaturalGradient", "StepReport"]
