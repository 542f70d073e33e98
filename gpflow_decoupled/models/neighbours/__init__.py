"""Nearest-neighbour GPs (Vecchia approximations), `NNGP`.

Read `nngp` first. `likelihood` has the conditionals of rows of the data, for likelihood and
leave-one-out, `posterior` predictions; both use `conditionals`, kernel and noise in the linear
algebra of `linalg.neighbours`. `ordering` finds neighbours, `groups` says which outputs share them,
`observed` subtracts the mean function, `exact` is the density of a few rows, `evidence` an interval
for all, also of other models with Gaussian noise; `checks` refuses bad input,
`site_nngp` the model for other likelihoods, whose sites are the observations of an `NNGP`.
"""

from .likelihood import LeaveOneOut
from .nngp import NNGP
from .posterior import NeighboursPosterior
from .site_nngp import NeighbourCVIGP

__all__ = ["NNGP", "LeaveOneOut", "NeighbourCVIGP", "NeighboursPosterior"]
