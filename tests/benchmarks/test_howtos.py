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


def test_a_block_that_needs_what_is_not_installed_is_left_out() -> None:
    page = "```python\nimport no_such_library_here\n```\n\n```python\nx = 1\n```\n"
    assert [isinstance(found, float) for _, found in run(page)] == [False, True]
    assert next(run(page))[1] == "no_such_library_here"
