"""GPflow models: a kernel, a likelihood, a mean function, and a basis for q(f).

Models on inducing points take data in their methods; others own their data. Read `basis_gp` and
`full_gp` first. Inducing points: `decoupled`, with `streams` and the tighter `residual_bound`. All
data: the constructors of `full_gp`, `affine_independent` and `neighbours`. Others: `linear`,
`gmrf`, `factor_graph`. `checks` refuses bad input, `evidence` is the interval of the
log evidence, and `families` says what trains each model.
"""

from .affine_independent import AffineIndependentGP
from .basis_gp import BasisGP
from .checks import MonteCarlo
from .decoupled import DTC, DVGP, HDVGP, ODVGP, SOLVEGP, SparseCVIGP
from .evidence import Evidence
from .factor_graph import Factor, FactorGraph, SampledFactor, prior_factor
from .full_gp import CVIGP, LCLGP, FullGP, StateSpaceGP
from .gmrf import GMRF
from .linear import (
    CVIGLM,
    LCLGLM,
    AffineIndependentGLM,
    WeightsPosterior,
    weights_posterior,
)
from .neighbours import NNGP, LeaveOneOut, SolvedMean
from .stream_posterior import StreamMemory
from .streams import StreamUpdate
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
