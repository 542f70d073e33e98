"""Nearest-neighbour GPs (Vecchia approximations): `NNGP`, for any likelihood.

Read `gaussian` first: the members of all kinds, and Gaussian noise. `labels` puts that on other
observations, by numbers that stand for classes; `sites` by the sites of other likelihoods. Both
use `conditionals` of rows given their neighbours, found by `groups` of outputs. `posterior` has
GPflow's posteriors, `mean_of_rows` a mean of all rows, `evidence` the log evidence.
"""

from .gaussian import NNGP, GaussianNNGP
from .labels import LabelNNGP
from .likelihood import LeaveOneOut
from .mean_of_rows import SolvedMean
from .posterior import NeighboursPosterior
from .sites import SiteNNGP, SiteUpdate

__all__ = [
    "NNGP", "GaussianNNGP", "LabelNNGP", "LeaveOneOut", "NeighboursPosterior", "SiteNNGP",
    "SiteUpdate", "SolvedMean",
]  # fmt: skip
