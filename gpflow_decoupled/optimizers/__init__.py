"""How q moves."""

from .affine_independent.jaakkola_jordan import JaakkolaJordan
from .affine_independent.optimizer import AffineIndependentAscent, BaseChoice, best_base
from .affine_independent.result import AffineResult
from .conjugate.optimizer import ConjugateComputation
from .conjugate.result import ConjugateResult
from .conjugate.sweep import sweep
from .lagrangian.challis_barber import Cholesky
from .lagrangian.constraint_subset import ConstraintSubset
from .lagrangian.opper import Opper
from .lagrangian.optimizer import LinearlyConstrainedLagrangian
from .lagrangian.result import LagrangianResult
from .mean_field.optimizer import MeanFieldCVI
from .natural_gradient.optimizer import NaturalGradient, StepReport
from .optimum import Optimum, collapsed_elbo, optimal_parameters

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
