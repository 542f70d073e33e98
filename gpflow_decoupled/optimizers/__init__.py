"""How q moves."""

from .affine_ascent import AffineIndependentAscent, BaseChoice, best_base
from .affine_result import AffineResult
from .challis_barber import Cholesky
from .conjugate_computation import ConjugateComputation
from .conjugate_result import ConjugateResult
from .constraint_subset import ConstraintSubset
from .exact import Optimum, collapsed_elbo, optimal_parameters
from .jaakkola_jordan import JaakkolaJordan
from .lagrangian import LinearlyConstrainedLagrangian
from .lagrangian_result import LagrangianResult
from .mean_field import MeanFieldCVI
from .natural_gradient import NaturalGradient, StepReport
from .opper import Opper
from .sweep import sweep

__all__ = [
    "AffineIndependentAscent",
    "AffineResult",
    "BaseChoice",
    "Cholesky",
    "ConjugateComputation",
    "ConjugateResult",
    "ConstraintSubset",
    "JaakkolaJordan",
    "LagrangianResult",
    "LinearlyConstrainedLagrangian",
    "MeanFieldCVI",
    "NaturalGradient",
    "Opper",
    "Optimum",
    "StepReport",
    "best_base",
    "collapsed_elbo",
    "optimal_parameters",
    "sweep",
]
