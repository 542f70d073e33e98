"""Nearest-neighbour GPs (Vecchia approximations): `NNGP`, and `NeighbourCVIGP` for any likelihood.

Read `nngp` first. `likelihood` has the terms of rows of the data and `posterior` the predictions,
both by `conditionals`. `ordering` finds neighbours, `groups` says which outputs share them,
`observed` subtracts the mean function, `evidence` is that of some rows or of all, `checks` refuses
bad input, `own_rows` bad held-out data. `site_nngp` puts an `NNGP` on the sites of other
likelihoods.
"""

from .likelihood import LeaveOneOut
from .nngp import NNGP
from .posterior import NeighboursPosterior
from .site_nngp import NeighbourCVIGP

__all__ = ["NNGP", "LeaveOneOut", "NeighbourCVIGP", "NeighboursPosterior"]
