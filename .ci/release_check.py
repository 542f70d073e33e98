"""Builds wheel and sdist, checks them, and runs README.md's quick start from the wheel.

    python .ci/release_check.py --constraint packaging/constraints.txt

The wheel is built from the sdist, so that a file that the sdist lacks is missed here, and runs
outside of the checkout. Needs the network for pip.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CHECK = """
import pathlib, sys
import gpflow_decoupled
place = pathlib.Path(gpflow_decoupled.__file__)
assert pathlib.Path(sys.prefix) in place.parents, f"{place} is not that of the wheel"
assert (place.parent / "py.typed").is_file(), "the wheel has no py.typed"
exec(compile(pathlib.Path("quick_start.py").read_text(), "README.md", "exec"))
assert mean.shape == (200, 1) and pathlib.Path("posterior.png").stat().st_size > 10_000
gpflow_decoupled.save(model, "model.zip")
loaded = gpflow_decoupled.load("model.zip")
assert (loaded.predict_y(X[:5])[0].numpy() == model.predict_y(X[:5])[0].numpy()).all()
print(gpflow_decoupled.__version__, "works in", place.parent)
"""


def main() -> None:
    """Every step ends the run if it fails."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--constraint",
        default="packaging/constraints.txt",
        help="versions that the wheel is installed with",
    )
    constraint = ROOT / parser.parse_args().constraint
    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    shutil.rmtree(
        ROOT / "build", ignore_errors=True
    )  # setuptools packs what an older build has left there
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        tools, user = environment(place / "tools"), environment(place / "user")
        run(tools, "-m", "pip", "install", "--quiet", "build", "twine", cwd=place)
        run(tools, "-m", "build", "--outdir", str(dist), str(ROOT), cwd=place)
        built = sorted(map(str, dist.iterdir()))
        run(tools, "-m", "twine", "check", "--strict", *built, cwd=place)
        (wheel,) = (name for name in built if name.endswith(".whl"))
        run(
            user,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--constraint",
            str(constraint),
            f"{wheel}[demo]",
            cwd=place,
        )
        readme = (ROOT / "README.md").read_text(encoding="utf-8")
        (quick_start,) = re.findall(
            r"## Quick start\n\n```python\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL
        )
        (place / "quick_start.py").write_text(quick_start, encoding="utf-8")
        run(user, "-c", CHECK, cwd=place)


def environment(folder: Path) -> Path:
    """The interpreter of a new virtual environment."""
    venv.create(folder, with_pip=True)
    return folder / ("Scripts" if os.name == "nt" else "bin") / "python"


def run(python: Path, *arguments: str, cwd: Path) -> None:
    """Run a command of an environment, without the checkout on its path."""
    settings = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(python), *arguments], cwd=cwd, env={**settings, "MPLBACKEND": "Agg"}, check=False
    )
    if done.returncode:
        sys.exit(
            f"{python.parent.parent.name}: python {' '.join(arguments)[:100]}"
            f" ended with {done.returncode}"
        )


if __name__ == "__main__":
    main()
