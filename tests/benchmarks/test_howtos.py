"""The clock of the how-tos runs their code as printed, block by block."""

from __future__ import annotations

from benchmarks.howtos import blocks, run

PAGE = """# Title

```python
import math

x = 3
```

```python
>>> x
3
```

## Rivals

```python
y = math.sqrt(x + 1)
for _ in range(2_000_000):
    pass
```
"""


def test_blocks_have_sections_and_lines() -> None:
    found = blocks(PAGE)
    assert [block.section for block in found] == ["", "Rivals"]
    assert [block.statements for block in found] == [1, 2]


def test_blocks_share_names_and_are_timed() -> None:
    (first, quick), (second, slow) = run(PAGE)
    assert (first.section, second.section) == ("", "Rivals")
    assert 0.0 <= quick < slow < 5.0
