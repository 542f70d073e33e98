"""Data frames as matrices of numbers.

`column.py` has the rule for each kind of column, `encoding.py` applies the rules by scikit-learn's
`ColumnTransformer`, and `table.py` remembers columns, target and classes by name. Read `table.py`
first.
"""

from .column import Column
from .table import Table, is_frame, is_labelled

__all__ = ["Column", "Table", "is_frame", "is_labelled"]
