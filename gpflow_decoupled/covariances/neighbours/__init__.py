"""Nearest neighbours among the rows of data.

Read `index` first: which rows are near, by `distances` or a `tree`. `earlier` searches only rows
before a given one in an ordering. `grams` has the covariances of many neighbourhoods at once,
`conditioned` the variances given earlier neighbours, `inverse_factor` a sparse factor of
(K + D)^-1.
"""

from .conditioned import Conditioning, conditional_variances, ordered_neighbours
from .earlier import earlier_neighbours
from .grams import neighbourhood_grams
from .index import RowIndex, kept_index, row_index
from .inverse_factor import InverseFactor, inverse_factor

__all__ = [
    "Conditioning", "InverseFactor", "RowIndex", "conditional_variances", "earlier_neighbours",
    "inverse_factor", "kept_index", "neighbourhood_grams", "ordered_neighbours", "row_index",
]  # fmt: skip
