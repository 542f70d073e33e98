"""Nearest neighbours among the rows of data, and the small covariance matrices between them.

Read `index` first: which rows are near, by distance in scaled inputs or by prior correlation.
`earlier` searches among the rows before a given one in an ordering, for the likelihood of
neighbours. `grams` has the covariances of many neighbourhoods at once, `conditioned` variances of
observations given their earlier neighbours, which bound log|K + D|, and `inverse_factor` a sparse
factor of (K + D)^-1.
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
