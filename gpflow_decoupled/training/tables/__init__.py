"""Data frames as matrices of numbers.

`column` has the rule for each kind of column, `encoding` applies the rules by scikit-learn's
`ColumnTransformer`, `table` remembers columns, target and classes by name. Read `table` first.
"""

from .column import Column
from .table import Table, is_frame, is_labelled

__all__ = ["Column", "Table", "is_frame", "is_labelled"]
