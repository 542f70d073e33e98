"""The modules that `import gpflow_decoupled` loads."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

PROGRAM = """
import json, sys
import gpflow
before = set(sys.modules)
import gpflow_decoupled
print(json.dumps(sorted(set(sys.modules) - before)))
"""


@pytest.fixture(scope="module")
def added() -> list[str]:
    """Modules that the package adds to those of GPflow, in a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.exhaustive
def test_no_optional_package_is_imported(added: list[str]) -> None:
    """scikit-learn, Matplotlib, pandas and their like are imported by those who use them."""
    assert {name.split(".")[0] for name in added} <= {"gpflow", "gpflow_decoupled", "scipy", "tqdm"}


@pytest.mark.exhaustive
def test_few_modules_are_imported_that_gpflow_has_not_loaded(added: list[str]) -> None:
    foreign = [name for name in added if name.split(".")[0] != "gpflow_decoupled"]
    assert len(foreign) <= 40, foreign
    assert len(added) > len(foreign)
