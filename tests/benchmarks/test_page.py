"""Reports in pages of the documentation."""

from __future__ import annotations

import pytest

from benchmarks.page import BEGIN, END, generated, put

REPORT = """# One regression

`python -m benchmarks run --suite sparse --threads 1 --data /home/someone/data`

measured 2026-11-26, python 3.11.7, cores 2.

## Points

| M | nats |
| --- | --- |
| 4 | -69.3 |

![sparse](sparse.png)

Dashed: no bounds.

- A note.
"""


def test_a_report_becomes_a_section() -> None:
    text = generated(REPORT)
    assert text.startswith("## One regression\n") and "\n### Points\n" in text
    command = "python -m benchmarks run --suite sparse --threads 1 --data DIR"
    assert f"```shell\n{command}\n```" in text
    assert "*Measured 2026-11-26, python 3.11.7, cores 2.*" in text
    assert "| 4 | -69.3 |" in text and text.endswith("- A note.")
    assert "sparse.png" not in text and "Dashed" not in text and "someone" not in text


def test_long_commands_are_wrapped() -> None:
    command = "python -m benchmarks run " + " ".join(f"--option-{i} {i}" for i in range(20))
    lines = generated(f"`{command}`").splitlines()[1:-1]
    assert max(map(len, lines)) <= 88 and all(line.endswith(" \\") for line in lines[:-1])
    assert " ".join(line.removesuffix("\\").strip() for line in lines) == command


def test_only_the_generated_part_changes() -> None:
    page = f"# Page\n\n{BEGIN}\n\nold\n\n{END}\n\nBy hand.\n"
    new = put(page, [REPORT, REPORT])
    assert new.startswith("# Page\n") and new.endswith("By hand.\n")
    assert "old" not in new and new.count("## One regression") == 2
    assert put(new, [REPORT, REPORT]) == new


def test_a_page_without_the_part_is_refused() -> None:
    with pytest.raises(ValueError, match="needs the lines"):
        put("# Page\n", [REPORT])
