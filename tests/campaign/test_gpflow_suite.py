"""GPflow's tests with models of this package, in a process of their own."""

from __future__ import annotations

import subprocess
import sys
from inspect import signature
from pathlib import Path

import pytest

import gpflow_decoupled as gd
from tests.campaign.gpflow_suite import STAND_INS, difference, where_tests_are

ROOT = Path(__file__).parents[2]


def test_gpflow_ships_its_tests() -> None:
    assert (where_tests_are() / "models" / "test_methods.py").is_file()


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", STAND_INS)
def test_what_fails_is_a_known_difference(name: str) -> None:
    words = [sys.executable, "-m", "tests.campaign.gpflow_suite", name]
    found = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert found.returncode == 0, found.stdout + found.stderr


def test_other_failures_are_none() -> None:
    assert difference("VGP", "models/test_vgp.py::test_update_vgp_data") is not None
    assert difference("SVGP", "models/test_vgp.py::test_update_vgp_data") is None
    assert difference("GPR", "models/test_methods.py::test_predict_f") is None


def test_no_base_with_the_arguments_of_gpflow_is_left_out() -> None:
    """Of an SVGP: those of q_mu and q_sqrt; a model or basis that is added must be tried."""
    public = {name: getattr(gd.bases, name) for name in gd.bases.__all__}
    takes = {
        name
        for name, kind in public.items()
        if isinstance(kind, type) and {"q_mu", "q_sqrt"} <= set(signature(kind).parameters)
    }
    assert takes - set(STAND_INS) == {"SolveBasis"}, "which does not start as an SVGP"
