"""How q moves."""

from .affine_independent.best_base import BaseChoice, best_base
from .affine_independent.jaakkola_jordan import JaakkolaJordan
from .affine_independent.optimizer import AffineIndependentAscent
from .affine_independent.result import AffineResult
from .conjugate.optimizer import ConjugateComputation
from .conjugate.result import ConjugateResult
from .conjugate.sweep import sweep
from .exact import Optimum, collapsed_elbo, optimal_parameters
from .lagrangian.constraint_subset import ConstraintSubset
from .lagrangian.direct.cholesky_kl import CholeskyKL
from .lagrangian.direct.opper_archambeau import OpperArchambeau
from .lagrangian.optimizer import LinearlyConstrainedLagrangian
from .lagrangian.result import LagrangianResult
from .mean_field.optimizer import MeanFieldCVI
from .natural_gradient.optimizer import NaturalGradient, StepReport

__all__ = [
    "AffineIndependentAscent",
    "AffineResult",
    "BaseChoice",
    "CholeskyKL",
    "ConjugateComputation",
    "ConjugateResult",
    "ConstraintSubset",
    "JaakkolaJordan",
    "LagrangianResult",
    "LinearlyConstrainedLagrangian",
    "MeanFieldCVI",
    "NaturalGradient",
    "OpperArchambeau",
    "Optimum",
    "StepReport",
    "best_base",
    "collapsed_elbo",
    "optimal_parameters",
    "sweep",
]
