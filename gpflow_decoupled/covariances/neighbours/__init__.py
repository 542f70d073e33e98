"""Nearest neighbours among the rows of data, and the small covariance matrices between them.

Read `index.py` first: which rows are near, by distance in inputs divided by the lengthscales or,
for kernels that have no distance, by prior correlation. `earlier.py` searches among the rows
before a given one in an ordering, which the likelihood of neighbours needs. `grams.py` has the
covariances of many neighbourhoods at once, with their gradient written out. `conditioned.py` puts
both together: variances of observations given their earlier neighbours, which bound log|K + D|.
`inverse_factor.py` has a sparse factor of (K + D)^-1 from the same neighbours.
"""

from .conditioned import Conditioning, conditional_variances, ordered_neighbours
from .earlier import earlier_neighbours
from .grams import neighbourhood_grams
from .index import RowIndex, row_index
from .inverse_factor import InverseFactor, inverse_factor

__all__ = [
    "Conditioning", "InverseFactor", "RowIndex", "conditional_variances", "earlier_neighbours",
    "inverse_factor", "neighbourhood_grams", "ordered_neighbours", "row_index",
]  # fmt: skip
