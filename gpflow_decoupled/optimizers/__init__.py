"""How q moves."""

from .challis_barber import Cholesky
from .conjugate_computation import ConjugateComputation
from .conjugate_result import ConjugateResult
from .exact import Optimum, collapsed_elbo, optimal_parameters
from .lagrangian import LinearlyConstrainedLagrangian
from .lagrangian_result import LagrangianResult
from .natural_gradient import NaturalGradient, StepReport
from .opper import Opper
from .sweep import sweep

__all__ = [
    "Cholesky",
    "ConjugateComputation",
    "ConjugateResult",
    "LagrangianResult",
    "LinearlyConstrainedLagrangian",
    "NaturalGradient",
    "Opper",
    "Optimum",
    "StepReport",
    "collapsed_elbo",
    "optimal_parameters",
    "sweep",
]
