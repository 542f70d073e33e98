"""Everything in `benchmarks/`, at its tiny size, from the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.harness import report
from benchmarks.harness.command_line import execute
from benchmarks.suites import SUITES
from benchmarks.suites.ci import TINY, tiny
from benchmarks.suites.rivals.linear import METHODS as LINEAR
from benchmarks.suites.rivals.stochastic import METHODS as STOCHASTIC

pytestmark = pytest.mark.exhaustive  # it runs every suite, in minutes
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("benchmarks")
    environment = {
        key: value for key, value in os.environ.items() if key != "GPFLOW_DECOUPLED_DATA"
    }
    command = [sys.executable, "-m", "benchmarks", "run", "--suite", "ci", "--out", str(folder)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return folder


TABLE_ALONE = {"labels"}
"""Suites without a picture."""


def load(folder: Path, name: str) -> tuple[dict, str]:
    text = (folder / f"{name}.md").read_text()
    assert f"`python -m benchmarks run --suite {name}" in text
    assert str(folder) not in text
    assert name in TABLE_ALONE or (folder / f"{name}.png").stat().st_size > 10_000
    return json.loads((folder / f"{name}.json").read_text()), text


@pytest.mark.exhaustive
def test_page_of_all(results: Path) -> None:
    """It opens with what was run, and has every report in it."""
    page = (results / "ci.html").read_text()
    seconds = {
        one["suite"]: one["seconds"]
        for one in json.loads((results / "ci.json").read_text())["results"]
    }
    assert set(seconds) == set(TINY) == set(SUITES) - {"ci"}
    for name in seconds:
        assert (
            f'<a id="{name}"></a>' in page
            and f"--suite {name} " in page
            and (name in TABLE_ALONE or f'src="{name}.png"' in page)
        )
    assert page.count("<h1>") == 1


def test_a_finished_run_goes_on_without_work(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No suite ignores --resume: no piece is worked on, and the journals stay as they were."""

    def worked(_: int) -> None:
        raise AssertionError("a piece was written to a journal")

    monkeypatch.setattr(os, "fsync", worked)
    monkeypatch.setattr(report, "draw", lambda figure, folder: folder / f"{figure.name}.png")
    monkeypatch.delenv("GPFLOW_DECOUPLED_DATA", raising=False)
    before = {path: path.read_text() for path in results.glob("*.jsonl")}
    assert {path.stem for path, text in before.items() if text} == set(SUITES)
    for name in TINY:
        execute(tiny(name, results, resume=True))
    execute(["run", "--suite", "ci", "--out", str(results), "--resume"])
    assert {path: path.read_text() for path in results.glob("*.jsonl")} == before


def test_steps(results: Path) -> None:
    """Speed in pairs, a process a number of mean points, and every size of the latents beside
    GPflow.
    """
    content, text = load(results, "steps")
    parts = {
        part: [one for one in content["results"] if one["part"] == part]
        for part in ("speed", "memory", "scaling", "products", "solves")
    }
    assert len({(one["kind"], one["label"]) for one in parts["speed"]}) == len(parts["speed"]) == 6
    for one in parts["speed"]:
        assert one["ms"] > 0.0
        assert (one["ratio"] == 1.0) == (one["label"] == "GPflow float64")
    assert [one["num_gamma"] for one in parts["memory"]] == [100, 200]
    assert all(
        one["peak_mb"] > 100.0 and one["step_mb"] > 0.0 and one["ms"] > 0.0
        for one in parts["memory"]
    )
    assert [one["dtype"] for one in parts["products"]] == ["float32", "float64"]
    for one in parts["products"]:
        assert min(one["seconds"], one["gradient_seconds"], one["share"]) > 0.0
    (solved,) = parts["solves"]
    assert (
        solved["num_rows"] == 400
        and solved["gap"] <= 0.1
        and min(solved["products"], solved["solve_mb"]) > 0
    )
    scaling = {
        model: [one["L"] for one in parts["scaling"] if one["model"] == model]
        for model in ("coupled", "GPflow")
    }
    assert scaling == {"coupled": [1, 2], "GPflow": [1, 2]} and len(parts["scaling"]) == 4
    assert all(one["ms"] > 0.0 and one["step_mb"] is None for one in parts["scaling"])
    assert "## Scaling in L: 1, 2" in text and "## Scaling in D" not in text


def test_regression(results: Path) -> None:
    """Both models in both parts, each to the end of its budget; equal steps beat a constant."""
    content, text = load(results, "regression")
    runs = {
        (one["part"], one["model"]): one["snapshots"]
        for one in content["results"]
        if "model" in one
    }
    few, near, many, again = (one for one in content["results"] if one["part"] == "intervals")
    assert near["neighbours"] == 20 and near["noise"] == few["noise"]
    assert abs(near["metrics"]["rmse"] - few["metrics"]["rmse"]) < 1e-3, "with neighbours too"
    assert many["noise"] == few["noise"] != again["noise"] and again["again"] and again["gap"] < 1.0
    assert (few["points"], many["points"]) == (10, 30) and few["gap"] < 1.0 and many["gap"] < 1.0
    assert abs(many["metrics"]["rmse"] - few["metrics"]["rmse"]) < 1e-2, (
        "the mean is on all data with both"
    )
    assert "## Intervals of a mean on all data" in text
    models = "coupled-20-adam", "gpflow-20"
    assert set(runs) == {
        (part, model) for part in ("table", "curves", "seconds") for model in models
    }
    for (part, model), snapshots in runs.items():
        assert f"| {model} |" in text
        assert (
            (snapshots[-1]["target"] == 1.0) if part == "seconds" else (snapshots[-1]["step"] == 60)
        )
        metrics = snapshots[-1]["metrics"]
        assert (
            0.0 < metrics["mae"] < metrics["rmse"] < (1.5 if part == "seconds" else 1.0)
        )  # a second may be one step
        assert -3.0 < metrics["log_density"] < 0.0
    curve = runs["curves", "gpflow-20"]
    assert [one["step"] for one in curve] == sorted({one["step"] for one in curve}) and len(
        curve
    ) > 10
    assert curve[0]["step"] == 10 and curve[0]["metrics"]["elbo"] < curve[-1]["metrics"]["elbo"]
    assert "## Table 1 in small" in text and "(regression_seconds.png)" in text


def test_replicas(results: Path) -> None:
    """Two processes send four messages a step, and the shards of two workers give the bound of
    one.
    """
    content, text = load(results, "replicas")
    steps = [one for one in content["results"] if one["part"] == "scaling"]
    assert [(one["processes"], one["rows"]) for one in steps] == [
        (1, 64),
        (1, 128),
        (2, 64),
        (2, 128),
    ]
    assert [one["messages"] for one in steps] == [0, 0, 4, 4] and all(
        one["seconds"] > 0.0 for one in steps
    )
    points, parameters = (
        20,
        8 * (20 + 30) + 30 + 8 + 2,
    )  # inducing points, mean coefficients, kernel, noise
    assert steps[-1]["size"] == 8 * (points * (points + 1) // 2 + points + parameters) + 32
    alone, *workers = [one for one in content["results"] if one["part"] == "memory"]
    assert len(workers) == 2 and alone["limit"] is None
    for one in workers:
        assert one["elbo"] == pytest.approx(alone["elbo"], rel=1e-9)
        np.testing.assert_allclose(one["q_mu"], alone["q_mu"], rtol=1e-7, atol=1e-9)
    assert {one["num_data"] for one in content["results"] if one["part"] == "neighbours"} == {300}
    for title in ("efficiency, M = 20", "efficiency of a round"):
        assert f"## Predicted {title}" in text
    assert "## A file that no worker can hold" in text


def test_classification(results: Path) -> None:
    """Two data sets, one of ten classes; predictions are better than the commonest class, and the
    ranks are there.
    """
    content, text = load(results, "classification")
    outcomes = {(one["task"], one["model"]): one for one in content["results"]}
    assert len(outcomes) == len(content["results"]) == 8
    assert {task: one["num_classes"] for (task, _), one in outcomes.items()} == {
        "breast_cancer_sklearn": 2,
        "digits": 10,
    }
    for (task, model), one in outcomes.items():
        assert f"## {task}: {one['num_data']:,} training rows" in text and f"| {model} |" in text
        assert 0.0 < one["accuracy"] <= 1.0 and one["log_loss"] > 0.0 and one["seconds"] > 0.0
        assert model == "network" or (
            one["accuracy"] > 0.75 and one["log_loss"] < 1.3
        )  # it is given seconds, not steps
    assert "## 2 data sets" in text and "3.42 (0.31) OrthNat" in text


def test_full_gp(results: Path) -> None:
    """Ours gets to the best ELBO of all; all predictions are better than chance."""
    content, text = load(results, "full_gp")
    outcomes = {one["label"]: one for one in content["results"]}
    assert len(outcomes) == 6
    best = max(max(one["elbo"]) for one in outcomes.values() if one["elbo"])
    for label, one in outcomes.items():
        assert label in text
        assert one["num_data"] == 120
        assert 0.0 < one["log_loss"] < 0.6
        assert one["seconds"] == sorted(one["seconds"])
        if "CVIGP" in label:
            assert one["elbo"][-1] == pytest.approx(best, abs=1e-4)
    assert not outcomes["scikit-learn, Laplace"]["elbo"]


def test_labels(results: Path) -> None:
    """Both classifiers are better than chance, and the one that maximises a bound has one."""
    content, text = load(results, "labels")
    rows = {one["method"]: one for one in content["results"]}
    assert set(rows) == {"build", "scikit-learn"} and "hyperparameters learned" in text
    assert rows["build"]["bound"] < 0.0 and rows["scikit-learn"]["bound"] is None
    assert all(0.0 < one["log_loss"] < np.log(2.0) for one in rows.values())


def test_rivals(results: Path) -> None:
    """What maximises the bound ends at one q; EP and Laplace have lower bounds, and EP's evidence
    is nearer.
    """
    content, text = load(results, "rivals")
    traces = {one["label"]: one for one in content["results"] if one["part"] == "traces"}
    assert len(traces) == 6 and all(label in text for label in traces)
    best = max(one["elbo"] for one in traces.values())
    for one in traces.values():
        assert one["seconds"] == sorted(one["seconds"]) and one["elbo"] <= best
        assert one["estimate"] or one["values"][-1] == pytest.approx(
            best, abs=0.2
        )  # L-BFGS stops early
    rows = {one["method"]: one for one in content["results"] if one["part"] == "marginals"}
    errors = {
        method: abs((one["estimate"] or one["elbo"]) - one["evidence"])
        for method, one in rows.items()
    }
    assert errors["EP"] < errors["CVI"] + 1e-3 and errors["EP"] < errors["Laplace"]
    for method in ("LCL", "Opper"):
        np.testing.assert_allclose(
            rows[method]["mean_errors"], rows["CVI"]["mean_errors"], atol=2e-2
        )
    runs = {one["method"]: one for one in content["results"] if one["part"] == "stochastic"}
    assert list(runs) == list(STOCHASTIC)
    for name, one in runs.items():
        assert STOCHASTIC[name].label in text and one["seconds"] == sorted(one["seconds"])
        assert one["bounds"][0] < one["bounds"][-1] <= best + 1e-6 or name == "cvi"
        assert one["batch"] == (20 if STOCHASTIC[name].batches else 60)
    assert runs["cvi"]["bounds"][-1] == pytest.approx(best, abs=1e-6)
    assert (results / "rivals_stochastic.png").stat().st_size > 10_000
    runs = {one["method"]: one for one in content["results"] if one["part"] == "linear"}
    assert list(runs) == list(LINEAR)
    best = max(one["bounds"][-1] for one in runs.values())
    for name in ("cvi", "pg-svi"):
        assert (
            runs[name]["bounds"][-1] == pytest.approx(best, abs=1e-5)
            and runs[name]["num_data"] == 1800
        )
    assert (results / "rivals_linear.png").stat().st_size > 10_000


def test_glm(results: Path) -> None:
    """Sweeps and sites end at the optimum, which L-BFGS does not pass; blocks on disk take less
    memory than all rows.
    """
    content, text = load(results, "glm")
    traces = {(one["task"], one["method"]): one for one in content["results"]}
    assert len(traces) == len(content["results"]) == 4
    for task in ("generated", "generated_wide"):
        ours, peer = (traces[task, method] for method in ("conjugate computation", "L-BFGS"))
        assert (
            f"## {task}: {ours['num_data']:,} observations, {ours['num_weights']:,} weights" in text
        )
        assert max(peer["elbo"]) <= ours["elbo"][-1] + 1e-5 * abs(ours["elbo"][-1])
        assert "converged" in ours["note"] and ours["seconds"] == sorted(ours["seconds"])
        for trace in (ours["elbo"], peer["elbo"]):
            assert np.all(np.diff(trace) >= -1e-9 * abs(trace[-1])), (
                "a bound fell by more than round-off"
            )
    assert [traces[task, "L-BFGS"]["num_weights"] for task in ("generated", "generated_wide")] == [
        6,
        51,
    ]
    assert traces["generated", "conjugate computation"]["data_mb"] > 0.0


def test_lagrangian(results: Path) -> None:
    """All parts; with the terms of curvature no outer iteration loses, and the three posteriors
    agree.
    """
    content, text = load(results, "lagrangian")
    rows = content["results"]
    assert {one["part"] for one in rows} == {"cost", "starts", "held-out"}
    assert all(one["falls"] == 0 for one in rows if one.get("variant") == "curvature")
    densities = [one["log_density"] for one in rows if one["part"] == "held-out"]
    assert len(densities) == 3 and np.ptp(densities) < 0.2
    assert "GPflow VGP" in text


def test_affine(results: Path) -> None:
    """Bounds rise from the local one over the Gaussian to the affine-independent one, which is
    nearer to NUTS too; frequency sums are exact where lattices are not."""
    content, text = load(results, "affine")
    parts = {
        part: [one for one in content["results"] if one["part"] == part]
        for part in ("gain", "kernel", "routes", "hmc")
    }
    (gain,) = parts["gain"]
    assert gain["local"] < gain["gaussian"] <= gain["affine"]
    assert gain["affine_test"] < 0.0 and gain["gaussian_test"] < 0.0
    fits = {one["shapes"]: one for one in parts["kernel"]}
    assert fits["learned"]["affine"] > max(
        fits["learned"]["gaussian"], fits["fixed at 1.5"]["affine"]
    )
    routes = {(one["route"], one["size"]): one["error"] for one in parts["routes"]}
    assert (
        max(routes["frequency_sum", 64], routes["spectral", 1024]) < 1e-7 < routes["lattice", 256]
    )
    (posterior,) = parts["hmc"]
    assert (
        np.mean(posterior["affine"]) < np.mean(posterior["gaussian"])
        and posterior["worst_r_hat"] < 1.2
    )
    assert all(
        heading in text
        for heading in ("R3, frequency sum", "## Gain", "## Sparse robust", "## Against")
    )


def test_evidence(results: Path) -> None:
    """Lower bounds are below the exact evidence and in their order, certain upper ones above."""
    content, text = load(results, "evidence")
    short = {row["bound"]: row["short"] for row in content["results"] if row["part"] == "bounds"}
    upper = short.pop("interval, 5 neighbours: certain upper")
    del short["interval, 5 neighbours: estimated upper"]
    assert min(short.values()) > -1e-8 > upper and len(short) == 8
    for where in ("collapsed", "exact mean"):
        names = [f"{name}, {where}" for name in ("Titsias 2025", "CGLB", "ELBO")]
        assert short[names[0]] < short[names[1]] < short[names[2]]
    assert short["CGLB, exact mean"] < short["CGLB, collapsed"]
    assert "## Nats per row short of the evidence" in text
    solves = [row for row in content["results"] if row["part"] == "solves"]
    assert {row["preconditioner"] for row in solves} == {"points", "neighbours"}
    assert max(row["gap"] for row in solves) <= 0.1
    learned = {row["way"]: row for row in content["results"] if row["part"] == "learning"}
    assert set(learned) == {"exact", "tight", "rounds-diagonal", "solved-5"}
    assert all(row["bound"] <= row["evidence"] + 1e-8 for row in learned.values())
    assert learned["exact"]["bound"] > learned["tight"]["bound"]


def test_sparse(results: Path) -> None:
    """The bound is below the exact evidence; FITC's objective is not."""
    content, text = load(results, "sparse")
    exact, *rows = content["results"]
    assert exact["part"] == "exact" and [one["method"] for one in rows] == ["VFE", "FITC"]
    bound, objective = (one["objective"] for one in rows)
    assert bound < exact["objective"] + 1e-6 and bound < objective
    for one in rows:
        assert one["part"] == "numbers" and one["num"] == 4 and one["seconds"] > 0.0
        assert one["excess"] == pytest.approx(one["objective"] - exact["objective"])
    assert "As inducing inputs are added" in text


def test_rows(results: Path) -> None:
    """The exact GP ends at the evidence that the other libraries find, or above it."""
    content, text = load(results, "rows")
    found = [one for one in content["results"] if one["part"] != "series"]
    rows = {(one["num_data"], one["library"]): one for one in found}
    assert len(rows) == len(found) == 6 and "## No options" in text
    for size in (40, 60):
        ours = rows[size, "build"]
        for library in ("GPflow GPR", "scikit-learn"):
            assert ours["evidence"] > rows[size, library]["evidence"] - 0.1
        assert 0.0 < ours["rmse"] < 2.0 and 0.5 < ours["coverage"] <= 1.0
    series = [one for one in content["results"] if one["part"] == "series"]
    assert series and all(np.isfinite(one["log_density"]) for one in series)
