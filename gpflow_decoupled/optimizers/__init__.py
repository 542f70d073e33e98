"""How q moves."""

from .conjugate_computation import ConjugateComputation
from .conjugate_result import ConjugateResult
from .exact import Optimum, collapsed_elbo, optimal_parameters
from .lagrangian import LinearlyConstrainedLagrangian
from .lagrangian_result import LagrangianResult
from .natural_gradient import NaturalGradient, StepReport
from .sweep import sweep

__all__ = [
    "ConjugateComputation",
    "ConjugateResult",
    "LagrangianResult",
    "LinearlyConstrainedLagrangian",
    "NaturalGradient",
    "Optimum",
    "StepReport",
    "collapsed_elbo",
    "optimal_parameters",
    "sweep",
]
