"""The campaign's own arithmetic, and a part of the campaign itself: nothing is wrong."""

from __future__ import annotations

import json
import math
import multiprocessing
import time

import gpflow
import numpy as np
import pytest
from scipy.stats import multivariate_normal

from gpflow_decoupled.errors import DataError
from tests.campaign.__main__ import main
from tests.campaign.evidence import gaussian_evidence, quadrature_evidence
from tests.campaign.outcome import HELD, REFUSED, WRONG, Case, Outcome
from tests.campaign.problems import draw_problem
from tests.campaign.runner import Record, attempt, markdown
from tests.campaign.trial import complaint_about
from tests.campaign.trials import NAMES, kills, part

SOME = {
    "problems": 16,
    "climbs": 8,
    "invariants": 10,
    "evidence_bounds": 10,
    "kills": 4,
    "many_fits": 1,
    "threads": 2,
}
"""Cases of each part that the test runs, under ten minutes in all."""


def _gram(rows: int, seed: int) -> np.ndarray:
    root = np.random.default_rng(seed).normal(size=(rows, rows))
    return root @ root.T + 0.1 * np.eye(rows)


def test_evidence_of_gaussian_noise() -> None:
    K, y = _gram(6, 0), np.random.default_rng(1).normal(size=6)
    value, error = gaussian_evidence(K, y, 0.3, 2.2e-16)
    assert value == pytest.approx(
        multivariate_normal(np.zeros(6), K + 0.3 * np.eye(6)).logpdf(y), rel=1e-12
    )
    assert error < 1e-10
    singular, uncertain = gaussian_evidence(np.ones((6, 6)), y, 1e-18, 2.2e-16)
    assert not error > uncertain, "round-off decides what noise of 1e-18 means"
    assert np.isfinite(singular)


@pytest.mark.exhaustive
@pytest.mark.parametrize("rows", [1, 2, 3])
def test_evidence_by_quadrature(rows: int) -> None:
    K, mean = _gram(rows, rows), np.linspace(-0.5, 0.5, rows)
    y = np.linspace(0.3, -0.3, rows)
    value, error = quadrature_evidence(
        K,
        mean,
        lambda f: np.sum(-0.5 * (y - f) ** 2 / 0.5 - 0.5 * math.log(2.0 * math.pi * 0.5), axis=1),
    )
    expected = multivariate_normal(mean, K + 0.5 * np.eye(rows)).logpdf(y)
    assert (
        value == pytest.approx(expected, abs=1e-6) and error < 1e-2
    )  # the error is that of half the nodes
    far = quadrature_evidence(K, mean, lambda f: np.sum(-50.0 * (f - 1e3) ** 2, axis=1))
    assert math.isinf(far[1]), "the integrand is beyond the grid"


def test_what_counts_as_a_refusal() -> None:
    assert complaint_about(DataError("Y has shape (5,); use Y[:, None].")) == ""
    assert "no error of the package" in complaint_about(TypeError("use a matrix"))
    assert "does not say what to change" in complaint_about(
        DataError("The array is not what was hoped for.")
    )
    assert "says too little" in complaint_about(DataError("bad"))


def test_a_run_that_does_not_end_is_no_run_that_was_killed(monkeypatch) -> None:
    """The case says that its time was over, and names no signal of the campaign itself."""
    fork = multiprocessing.get_context("fork")
    monkeypatch.setattr(multiprocessing, "get_context", lambda method: fork)
    monkeypatch.setattr(kills, "execute", lambda *run: time.sleep(60.0))
    monkeypatch.setattr(kills, "SECONDS", 0.01)
    complaints = kills.run(Case("kills", 0, 0)).complaints
    assert all("had not ended after 0 s" in complaint for complaint in complaints)
    assert "the resumed run" in complaints[-1]


def test_cases_are_the_same_wherever_they_run() -> None:
    first, second = (draw_problem(Case("problems", 3, 0).generator()) for _ in range(2))
    assert first.title == second.title and np.array_equal(first.data[1], second.data[1])
    assert draw_problem(Case("problems", 3, 1).generator()).title != first.title
    with first.config():
        one, other = first.build(), second.build()
        for name, value in gpflow.utilities.parameter_dict(one).items():
            np.testing.assert_array_equal(
                value, gpflow.utilities.parameter_dict(other)[name], err_msg=name
            )


def test_outcomes_and_their_table() -> None:
    assert Outcome("a").verdict == HELD
    assert Outcome("a", refusal="DataError: no").verdict == REFUSED
    assert Outcome("a", ["bad"], "DataError: no").verdict == WRONG
    rows = [("a", HELD, []), ("b", REFUSED, []), ("c", WRONG, ["is off"])]
    records = [
        Record(
            "threads",
            n,
            0,
            verdict,
            title,
            complaints,
            "",
            Case("threads", n, 0).command,
            1.0,
            {"MB": n},
        )
        for n, (title, verdict, complaints) in enumerate(rows)
    ]
    text = markdown(records)
    assert "| 3 | 1 | 1 | 1 |" in text and "| MB | 3 | 1 | 2 |" in text
    assert "- `python -m tests.campaign --part threads --case 2`: c\n  - is off" in text


def test_a_case_that_breaks_the_campaign_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(case: Case) -> Outcome:
        raise KeyError("a mistake of the campaign")

    monkeypatch.setattr(
        "tests.campaign.runner.part",
        lambda name: type("Broken", (), {"run": staticmethod(broken), "seconds": 9}),
    )
    record = attempt("problems", 4, 7)
    assert (
        record.verdict == WRONG
        and record.command == "python -m tests.campaign --part problems --case 4 --seed 7"
    )


def test_there_is_a_row_for_each_part() -> None:
    assert [part(name).name for name in NAMES] == list(NAMES) == list(SOME)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", SOME)
def test_nothing_is_wrong(name: str, tmp_path, capsys: pytest.CaptureFixture) -> None:
    code = main(
        ["--part", name, "--cases", str(SOME[name]), "--workers", "1", "--output", str(tmp_path)]
    )
    said = capsys.readouterr().out
    assert code == 0, said
    assert len(json.loads((tmp_path / "report.json").read_text())) == SOME[name]
    resumed = main(
        ["--part", name, "--cases", str(SOME[name]), "--resume", "--output", str(tmp_path)]
    )
    assert resumed == 0 and len((tmp_path / "journal.jsonl").read_text().splitlines()) == SOME[name]
