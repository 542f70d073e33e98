"""Nearest-neighbour GPs (Vecchia approximations), `NNGP`.

Read `nngp.py` first: the model and its verbs. `likelihood.py` has the conditionals of rows of the
data, of which the likelihood and leave-one-out are made, `posterior.py` predictions; both use
`conditionals.py`, which puts kernel and noise into the linear algebra of `linalg.neighbours`.
`ordering.py` looks for neighbours, `groups.py` says which outputs share them and what the noise is,
`observed.py` has the outputs less the mean function, `exact.py` the density of a few rows,
`evidence.py` the interval for the evidence of all, here and in other models with Gaussian noise,
`checks.py` what is refused.
"""

from .likelihood import LeaveOneOut
from .nngp import NNGP
from .posterior import NeighboursPosterior

__all__ = ["NNGP", "LeaveOneOut", "NeighboursPosterior"]
