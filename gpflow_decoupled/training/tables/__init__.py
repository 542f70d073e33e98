"""Data frames as matrices of numbers.

`column` has the rule of a column, `seasons` rules of dates, `table` remembers columns, target and
classes. Read `table` first.
"""

from .column import Column
from .seasons import Season, periods
from .table import Table, is_frame, is_labelled, is_truth

__all__ = ["Column", "Season", "Table", "is_frame", "is_labelled", "is_truth", "periods"]
