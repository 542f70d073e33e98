"""README.md is short and tells the truth: its Python runs, its commands and files exist, its links
lead to what there is.
"""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

import gpflow_decoupled
from gpflow_decoupled.building import inside

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
MODELS = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[str]:
    """The code blocks of a language, in order."""
    return [text for kind, text in FENCE.findall(README) if kind == language]


def test_python_runs_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    monkeypatch.chdir(tmp_path)
    quick_start, session = blocks("python")
    names: dict = {}
    monkeypatch.setattr(inside, "EXACT_ROWS", 500)
    smaller = quick_start.replace("5000", "1000")  # still neighbours, in a tenth of the time
    shorter = smaller.replace("gd.fit(model)", "gd.fit(model, steps=1, progress=False)")
    exec(shorter, names)
    assert names["mean"].shape == names["variance"].shape == (200, 1)
    assert names["result"].steps == 1 and len(names["X"]) == 1000, (
        "the quick start of README.md is not what this test replaces"
    )
    assert isinstance(names["model"].model, gpflow_decoupled.models.NNGP)
    assert (tmp_path / "posterior.png").stat().st_size > 10_000
    test = doctest.DocTestParser().get_doctest(
        session.replace("5000", "1000").replace("4999", "999"), names, "README.md", "README.md", 0
    )
    assert len(test.examples) >= 2
    said: list[str] = []
    wrapped = doctest.DocTestRunner(
        optionflags=doctest.NORMALIZE_WHITESPACE
    )  # a message may go on in a second line
    outcome = wrapped.run(test, out=said.append)
    assert outcome.failed == 0, "".join(said)


def test_it_is_short() -> None:
    """What it says is read before anything else; everything more is in the documentation."""
    assert len(README.split()) <= 700


def test_quick_start_is_short() -> None:
    code = [line for line in blocks("python")[0].splitlines() if line.strip()]
    imports = [line for line in code if line.startswith("import")]
    assert len(code) - len(imports) <= 12 and "tf.function" not in blocks("python")[0]


def test_make_targets_exist() -> None:
    named = set(
        re.findall(
            r"\bmake ([a-z-]+)", "\n".join([*blocks("bash"), *re.findall(r"`([^`]+)`", README)])
        )
    )
    targets = set(
        re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    )
    assert {"demo", "test"} <= named
    assert named <= targets


def test_links_to_files_exist() -> None:
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", README) if not link.startswith("http")]
    assert links
    assert [link for link in links if not (ROOT / link).is_file()] == []


@pytest.mark.parametrize("module", ["models", "bases", "optimizers"])
def test_tables_name_everything_public(module: str) -> None:
    rows = "\n".join(line for line in MODELS.splitlines() if line.startswith("|"))
    parts = {
        "Basis",
        "ConjugateResult",
        "Evidence",
        "Features",
        "FullGP",
        "GaussianPart",
        "InducingBasis",
        "LagrangianResult",
        "OptimalParameters",
        "Optimum",
        "Regression",
        "StepReport",
        "WeightsPosterior",
    }  # what the others are made of
    public = set(getattr(gpflow_decoupled, module).__all__) - parts
    assert {name for name in public if not re.search(rf"\b{name}\b", rows)} == set()


def test_every_result_has_its_command() -> None:
    """The numbers of README.md and of the summary on the page that it links to."""
    results = README.split("## What you get\n")[1].split("\n## ")[0]
    benchmarks = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    bullets = results.split("\n- ")[1:]
    assert len(bullets) == 3 and "(docs/benchmarks.md)" in results
    sections = dict(section.split("\n", 1) for section in benchmarks.split("\n## ")[1:])
    questions = re.findall(r"^\| \[(.+?)\]\(#", sections["In short"], re.MULTILINE)
    assert len(questions) >= 10
    assert [
        question
        for question in questions
        if not re.search(r"^python -m (benchmarks run|demo)\b", sections[question], re.MULTILINE)
    ] == []
    assert [
        bullet
        for bullet in bullets
        if not re.search(r"`(python -m benchmarks run|make demo)", bullet)
    ] == []
