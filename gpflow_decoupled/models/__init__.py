"""GPflow models: a kernel, a likelihood, a mean function, and a basis for the approximate posterior
q.

| class | what q is | what trains it |
|---|---|---|
| `BasisGP` | any `bases.InducingBasis` | `fit`; `optimizers.NaturalGradient` for q alone |
| `ODVGP`, `HDVGP`, `DVGP`, `SOLVEGP` | a `BasisGP` with that basis, made in one line | as `BasisGP` |
| `SparseCVIGP` | the prior on inducing variables times one Gaussian site | `fit`; `optimizers.sweep` for q alone |
| `CVIGP` | the prior times one Gaussian site per observation | `fit`; `optimizers.ConjugateComputation` for q alone |
| `LCLGP` | the same, by the multipliers of a Lagrangian | `fit`; `optimizers.LinearlyConstrainedLagrangian` for q alone |
| `NNGP` | exact for Gaussian noise, given the nearest neighbours | `gpflow.optimizers.Scipy` |
| `AffineIndependentGP` | an affine map of independent variables | `fit`; `optimizers.AffineIndependentAscent` for q alone |
| `CVIGLM`, `LCLGLM`, `AffineIndependentGLM` | functions: a linear model as one of the above | as the model they return |
| `FactorGraph` | independent exponential families | `fit`, or `optimizers.MeanFieldCVI` |
| `DTC` | GPflow's `SGPR` with another objective | `gpflow.optimizers.Scipy` |

Models on inducing points take data in their methods, as `gpflow.models.SVGP`; those on all data own
them, as `gpflow.models.VGP`. Read `basis_gp.py` first, then `full_gp.py` and `conjugate.py`;
`checks/` has the validation of data, `expectations.py` and `monte_carlo.py` the data term of the
bound, `basis_predictions.py` the predictions; `decoupled.py` has `ODVGP` and its kin,
`sparse_conjugate.py` and `dtc.py` two more models on inducing points, `lcl.py` and
`affine_independent/` two more on all data, `linear/` (with `linear_parts.py`) the linear models,
`factor_graph.py` with `factors.py` joint densities as products of factors, `neighbours/` the
nearest-neighbour GP, `streams/` what `update` does for models on inducing points, `families.py` the error messages for the wrong model.
"""  # noqa: E501

from .affine_independent.gp import AffineIndependentGP
from .basis_gp import BasisGP
from .conjugate import CVIGP
from .decoupled import DVGP, HDVGP, ODVGP, SOLVEGP
from .dtc import DTC
from .factor_graph import FactorGraph
from .factors import Factor, SampledFactor, prior_factor
from .full_gp import FullGP
from .lcl import LCLGP
from .linear.affine_glm import AffineIndependentGLM
from .linear.glm import CVIGLM, weights_posterior
from .linear.lcl_glm import LCLGLM
from .linear.weights_posterior import WeightsPosterior
from .monte_carlo import MonteCarlo
from .neighbours import NNGP, LeaveOneOut
from .sparse_conjugate import SparseCVIGP
from .streams import StreamMemory, StreamUpdate

__all__ = [
    "AffineIndependentGLM", "AffineIndependentGP", "BasisGP", "CVIGLM", "CVIGP", "DTC", "DVGP",
    "Factor", "FactorGraph", "FullGP", "HDVGP", "LCLGLM", "LCLGP", "LeaveOneOut", "MonteCarlo",
    "NNGP", "ODVGP", "SOLVEGP", "SampledFactor", "SparseCVIGP", "StreamMemory", "StreamUpdate",
    "WeightsPosterior", "prior_factor", "weights_posterior",
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted(__all__)
