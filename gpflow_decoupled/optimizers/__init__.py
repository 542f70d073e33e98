"""Optimizers for the variational posterior q(f).

All work at fixed hyperparameters; `gpflow_decoupled.fit` trains both.

| call | effect | models: optimizers |
|---|---|---|
| `minimize(model, data)` | one step on all data or a batch | sparse: `NaturalGradient` |
| `minimize(model)` | one step on the model's data | `CVIGP`: `ConjugateComputation` |
| | | `FactorGraph`: `MeanFieldCVI` |
| `run(model)` | steps until q(f) has converged | `CVIGP`: `ConjugateComputation`, |
| | | `ExpectationPropagation`, `LaplaceApproximation`, `JaakkolaJordan` |
| | | `FactorGraph`: `MeanFieldCVI` |
| | | `LCLGP`: `LinearlyConstrainedLagrangian`, `ConstraintSubset`, |
| | | `OpperArchambeau`, `CholeskyKL` |
| | | `AffineIndependentGP`: `AffineIndependentAscent`, |
| | | `JaakkolaJordan`, `MixtureAscent` |
| `sweep(model, data)` | the same, by passes over data of any size | sparse: `NaturalGradient` |
| `run(model, data)` | the best q(f) for all data | `gamma="data"`: `ConjugateGradients`, |
| | | `StochasticDualDescent` |
| `optimal_parameters(model, data)` | the best q(f) in closed form | sparse, Gaussian noise |
| `run(number)` | a round on the hyperparameters | `NNGP`, Gaussian noise: `NeighbourRounds` |
| | | `NNGP`, classes: `LabelRounds` |
| | and sites | `NNGP`, other likelihoods: `SiteRounds` |
| `run()` | the sites, by passes over the rows | `NNGP`, other likelihoods: `SiteSweeps` |
| `fit(model)`, `fit(model, data)` | trains q(f) and hyperparameters | all |

`minimize` works inside `tf.function`; `run` and `sweep` shorten steps that lower the bound, and
return a result. Packages: `natural_gradient`, `conjugate`, `mean_field`, `lagrangian`,
`affine_independent`, `mixture`, `approximations`, `data_mean`, `neighbours`. They share `steps`,
`ascent`, `results`, `log_climb` (over `log_coordinates` of a `log_objective`), `start`,
`gaussian_optimum`, `array_evidence`, `best_sites` and `adam`.
"""

from .affine_independent.affine_ascent import AffineIndependentAscent
from .affine_independent.affine_result import AffineResult
from .affine_independent.jaakkola_jordan import JaakkolaJordan
from .approximations.evidence_result import EvidenceResult
from .approximations.expectation_propagation import ExpectationPropagation
from .approximations.laplace_approximation import LaplaceApproximation
from .conjugate.conjugate_computation import ConjugateComputation
from .conjugate.conjugate_result import ConjugateResult
from .conjugate.sweep import sweep
from .data_mean.mean_conjugate_gradients import ConjugateGradients
from .data_mean.mean_dual_descent import StochasticDualDescent
from .data_mean.mean_result import MeanResult
from .gaussian_optimum import Optimum, collapsed_elbo, optimal_parameters
from .lagrangian.cholesky_kl import CholeskyKL
from .lagrangian.constraint_subset import ConstraintSubset
from .lagrangian.lagrangian_result import LagrangianResult
from .lagrangian.linearly_constrained import LinearlyConstrainedLagrangian
from .lagrangian.opper_archambeau import OpperArchambeau
from .mean_field.mean_field_cvi import MeanFieldCVI
from .mixture.mixture_ascent import MixtureAscent
from .mixture.mixture_posterior import MixturePosterior
from .mixture.mixture_result import MixtureResult
from .natural_gradient.natural_gradient import NaturalGradient
from .neighbours import LabelRounds, NeighbourRounds, SiteRounds, SiteSweeps
from .steps import StepReport

__all__ = [
    "AffineIndependentAscent",
    "AffineResult",
    "CholeskyKL",
    "ConjugateComputation",
    "ConjugateGradients",
    "ConjugateResult",
    "ConstraintSubset",
    "EvidenceResult",
    "ExpectationPropagation",
    "JaakkolaJordan",
    "LabelRounds",
    "LagrangianResult",
    "LaplaceApproximation",
    "LinearlyConstrainedLagrangian",
    "MeanFieldCVI",
    "MeanResult",
    "MixtureAscent",
    "MixturePosterior",
    "MixtureResult",
    "NaturalGradient",
    "NeighbourRounds",
    "OpperArchambeau",
    "Optimum",
    "SiteRounds",
    "SiteSweeps",
    "StepReport",
    "StochasticDualDescent",
    "collapsed_elbo",
    "optimal_parameters",
    "sweep",
]


def __dir__() -> list[str]:
    return sorted(__all__)
