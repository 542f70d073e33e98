"""Data frames as matrices of numbers.

`column` has the rule for each kind of column, `seasons` those of dates, `encoding` applies the
rules by scikit-learn's `ColumnTransformer`, `table` remembers columns, target and classes by name.
Read `table` first.
"""

from .column import Column
from .seasons import Season, periods
from .table import Table, is_frame, is_labelled

__all__ = ["Column", "Season", "Table", "is_frame", "is_labelled", "periods"]
