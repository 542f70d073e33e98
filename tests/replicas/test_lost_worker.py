"""A worker that is killed ends the run on the others within a minute; started again, all go on to
the same trace.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("kind", "steps"), [("", 12), (" neighbours", 3), (" sites", 3), (" labels", 3)]
)
def test_killed_worker_ends_the_run_which_goes_on_to_the_same_trace(
    start_workers: Callable[[Path, list[str]], list[int]],
    tmp_path: Path,
    kind: str,
    steps: int,
) -> None:
    codes = start_workers(tmp_path / "first", [f"killed{kind}"])
    assert codes == [0, -9], (tmp_path / "first" / "output-0.txt").read_text()[-2000:]
    with np.load(tmp_path / "first" / "found-0.npz") as left:
        assert str(left["message"]).startswith(
            "WorkerError: Another of 2 workers has ended or cannot be reached"
        )
        assert left["seconds"] < 60
    assert start_workers(tmp_path / "second", [f"resumed{kind}"]) == [0, 0]
    for number in (0, 1):
        with np.load(tmp_path / "second" / f"found-{number}.npz") as found:
            assert found[f"resumed{kind}/same"] and found[f"resumed{kind}/steps"] == steps
