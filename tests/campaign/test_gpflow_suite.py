"""GPflow's tests with models of this package, in a process of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from campaign.gpflow_suite import difference, where_tests_are

ROOT = Path(__file__).parents[2]


def test_gpflow_ships_its_tests() -> None:
    assert (where_tests_are() / "models" / "test_methods.py").is_file()


@pytest.mark.exhaustive
def test_what_fails_is_a_known_difference() -> None:
    words = [sys.executable, "-m", "campaign.gpflow_suite"]
    found = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=1800)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "'passed': 0" not in found.stdout


def test_other_failures_are_none() -> None:
    assert difference("models/test_vgp.py::test_update_vgp_data") is not None
    assert difference("models/test_methods.py::test_predict_f") is None
