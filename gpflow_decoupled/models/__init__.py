"""GPflow models: a kernel, a likelihood, a mean function, and a basis for q(f).

Models on inducing points take data in their methods, others own them. Read `basis_gp`, `full_gp`
and `conjugate` first. Inducing points: `decoupled`, `sparse_conjugate`, `dtc`, `streams`. All data:
`state_space`, `lcl`, `affine_independent`, `neighbours`. Others: `linear` (with `linear_parts`),
`gmrf`, `factor_graph` (with `factors`). Shared: `checks`, the `data_term` by `expectations`,
`monte_carlo` or `residual_bound`, `basis_predictions`, the interval `evidence`, and `families`.
`with_neighbours` turns a model with a mean on all data into one of neighbours.
"""

from .affine_independent.gp import AffineIndependentGP
from .basis_gp import BasisGP
from .conjugate import CVIGP
from .decoupled import DVGP, HDVGP, ODVGP, SOLVEGP
from .dtc import DTC
from .evidence import Evidence
from .factor_graph import FactorGraph
from .factors import Factor, SampledFactor, prior_factor
from .full_gp import FullGP
from .gmrf import GMRF
from .lcl import LCLGP
from .linear.affine_glm import AffineIndependentGLM
from .linear.glm import CVIGLM, weights_posterior
from .linear.lcl_glm import LCLGLM
from .linear.weights_posterior import WeightsPosterior
from .monte_carlo import MonteCarlo
from .neighbours import NNGP, LeaveOneOut, SolvedMean
from .sparse_conjugate import SparseCVIGP
from .state_space import StateSpaceGP
from .streams import StreamMemory, StreamUpdate
from .with_neighbours import with_neighbours

__all__ = [
    "AffineIndependentGLM", "AffineIndependentGP", "BasisGP", "CVIGLM", "CVIGP", "DTC", "DVGP",
    "Evidence", "Factor", "FactorGraph", "FullGP", "GMRF", "HDVGP", "LCLGLM", "LCLGP",
    "LeaveOneOut", "MonteCarlo", "NNGP", "ODVGP", "SOLVEGP", "SampledFactor", "SolvedMean",
    "SparseCVIGP", "StateSpaceGP", "StreamMemory", "StreamUpdate", "WeightsPosterior",
    "prior_factor", "weights_posterior", "with_neighbours",
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted(__all__)
