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
return a result. Packages: `data_mean`, `lagrangian`, `neighbours`; other methods are modules.
They share `ascent` (the loop, steps and results), `log_climb` (L-BFGS), `start`,
`natural_steps`, `data_passes`, `gaussian_optimum` and `best_sites`.
"""

from .affine_independent import AffineIndependentAscent
from .affine_start import AffineResult
from .ascent import ConjugateResult, EvidenceResult, StepReport
from .conjugate_computation import ConjugateComputation
from .data_mean.mean_optimizer import ConjugateGradients, MeanResult, StochasticDualDescent
from .expectation_propagation import ExpectationPropagation
from .gaussian_optimum import Optimum, collapsed_elbo, optimal_parameters
from .jaakkola_jordan import JaakkolaJordan
from .lagrangian.constraint_subset import ConstraintSubset
from .lagrangian.linearly_constrained import LagrangianResult, LinearlyConstrainedLagrangian
from .lagrangian.rivals import CholeskyKL, OpperArchambeau
from .laplace_approximation import LaplaceApproximation
from .mean_field import MeanFieldCVI
from .mixture import MixtureAscent, MixturePosterior, MixtureResult
from .natural_gradient import NaturalGradient
from .neighbours import LabelRounds, NeighbourRounds, SiteRounds, SiteSweeps
from .sweep import sweep

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
