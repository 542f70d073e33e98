"""Nearest-neighbour GPs (Vecchia approximations): `NNGP`, for any likelihood.

Read `base` first, then `gaussian`, and `sites` for other likelihoods. `likelihood` has the terms of
rows of the data and `posterior` the predictions, both by `conditionals`, with variances by the
errors nearby, `spread`. `ordering` finds neighbours, `groups` outputs that share them, `observed`
subtracts the mean function, `evidence` bounds the evidence, `checks` refuses bad input.
`mean_of_rows` keeps a mean of all rows, solved for by `all_rows`; `factors` scale the f of classes.
"""

from .base import NNGP
from .gaussian import GaussianNNGP
from .likelihood import LeaveOneOut
from .mean_of_rows import SolvedMean
from .posterior import NeighboursPosterior
from .sites import SiteNNGP

__all__ = ["NNGP", "GaussianNNGP", "LeaveOneOut", "NeighboursPosterior", "SiteNNGP", "SolvedMean"]
