"""GPflow's tests with models of this package: those on predictions, in a process of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from campaign.gpflow_suite import where_tests_are

ROOT = Path(__file__).parents[2]


def test_gpflow_ships_its_tests() -> None:
    assert (where_tests_are() / "models" / "test_methods.py").is_file()


@pytest.mark.exhaustive
def test_methods_of_models() -> None:
    words = [sys.executable, "-m", "campaign.gpflow_suite", "-k", "test_methods"]
    found = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "'failed': 0" in found.stdout and "'passed': 0" not in found.stdout
