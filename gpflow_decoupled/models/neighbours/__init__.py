"""Nearest-neighbour GPs (Vecchia approximations): `NNGP`, for any likelihood.

Read `base` first, then `gaussian` for Gaussian noise. `latent` puts that on other observations, by
numbers that stand for classes in `labels`, whose log densities are in `label_densities`, and by the
sites of other likelihoods in `sites`. `likelihood` has the terms of rows of the data and
`posterior` the predictions, both by `conditionals`, with variances by the errors nearby, `spread`.
`ordering` finds neighbours, `earlier_neighbours` keeps them, `groups` says which outputs share
them, `copies` makes one observation of rows with the same input, `observed` subtracts the mean
function, `evidence` is that of some rows or of all, `row_checks` refuses bad input. `mean_of_rows`
keeps a mean of all rows, which `all_rows` solves for, `factors` scale the f of classes.
"""

from .base import NNGP
from .gaussian import GaussianNNGP
from .labels import LabelNNGP
from .likelihood import LeaveOneOut
from .mean_of_rows import SolvedMean
from .posterior import NeighboursPosterior
from .sites import SiteNNGP, SiteUpdate

__all__ = [
    "NNGP", "GaussianNNGP", "LabelNNGP", "LeaveOneOut", "NeighboursPosterior", "SiteNNGP",
    "SiteUpdate", "SolvedMean",
]  # fmt: skip
