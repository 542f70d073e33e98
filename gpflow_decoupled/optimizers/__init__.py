"""How q moves."""

from .exact import Optimum, collapsed_elbo, optimal_parameters
from .natural_gradient import NaturalGradient, StepReport

__all__ = ["NaturalGradient", "Optimum", "StepReport", "collapsed_elbo", "optimal_parameters"]
