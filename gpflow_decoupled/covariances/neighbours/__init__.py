"""Nearest neighbours among the rows of data, and the small covariance matrices between them.

Read `index.py` first: which rows are near, by distance in inputs divided by the lengthscales or,
for kernels that have no distance, by prior correlation. `earlier.py` searches among the rows
before a given one in an ordering, which the likelihood of neighbours needs. `grams.py` has the
covariances of many neighbourhoods at once, with their gradient written out.
"""

from .earlier import earlier_neighbours
from .grams import neighbourhood_grams
from .index import RowIndex, row_index

__all__ = ["RowIndex", "earlier_neighbours", "neighbourhood_grams", "row_index"]
