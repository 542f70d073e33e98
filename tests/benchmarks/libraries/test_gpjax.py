"""The protocol between the benchmarks and GPJax's worker, with a worker that does not need
GPJax.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.harness.data import load
from benchmarks.libraries import gpjax
from benchmarks.libraries.models import Settings, parse, points
from benchmarks.libraries.training import installed, missing, train

FAKE = """
import json, sys
from dataclasses import asdict
from pathlib import Path
import numpy as np
from benchmarks.harness.records import Recorder

folder = Path(sys.argv[1])
request = json.loads((folder / "request.json").read_text())
arrays = dict(np.load(folder / "request.npz"))
Path(sys.argv[0]).with_suffix(".json").write_text(
    json.dumps({**request, "shapes": {name: array.shape for name, array in arrays.items()}})
)
means = []

def evaluate():
    means.append(np.full([len(arrays["X_test"]), 1], float(len(means))))
    return {"elbo": -100.0 * len(means)}

recorder = Recorder(request["targets"], lambda: 0, lambda state: None, request["unit"])
while not recorder.done:
    recorder()
snapshots = recorder.finish(evaluate)
np.savez(folder / "answer.npz", mean=np.stack(means), variance=4.0 * np.ones_like(means))
print("a library says hello")
answer = {"compile_seconds": 1.5, "ms_per_step": recorder.ms_per_step, "versions": {"gpjax": "1.0", "jax": "0.1"}}
print(json.dumps({**answer, "snapshots": [asdict(one) for one in snapshots]}))
"""  # noqa: E501


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "worker.py"
    path.write_text(FAKE)
    monkeypatch.setattr(gpjax, "_WORKER", path)
    monkeypatch.setenv("GPJAX_PYTHON", sys.executable)
    return path


@pytest.mark.parametrize("name", ["gpjax-7", "gpjax-7-adam"])
def test_request_and_answer(name: str, worker: Path) -> None:
    """The worker gets data, points and options; predictions at every target become metrics of the
    test rows.
    """
    spec, data = parse(name), load("diabetes")
    settings = Settings(
        batch_size=32, learning_rate=0.02, natural_gradient=0.3, noise=0.5, seed=3, unit="steps"
    )
    record = train(spec, data, [2, 5], settings)
    request = json.loads(worker.with_suffix(".json").read_text())
    assert request.pop("shapes") == {
        "X_train": list(data.X_train.shape),
        "Y_train": [len(data.X_train), 1],
        "X_test": list(data.X_test.shape),
        "beta": list(points(spec, data, settings)[0].shape),
    }
    assert request == {
        "targets": [2, 5],
        "unit": "steps",
        "batch_size": 32,
        "learning_rate": 0.02,
        "natural_gradient": 0.3 if spec.natural else None,
        "noise": 0.5,
        "seed": 3,
    }
    assert (record.task, record.model, record.library, record.compile_seconds) == (
        "diabetes",
        name,
        "gpjax",
        1.5,
    )
    assert record.note == "gpjax 1.0, jax 0.1"
    assert [(one.target, one.step, one.metrics["elbo"]) for one in record.snapshots] == [
        (2, 2, -100.0),
        (5, 5, -200.0),
    ]
    for mean, one in enumerate(record.snapshots):
        assert one.metrics["rmse"] == pytest.approx(np.sqrt(np.mean((data.Y_test - mean) ** 2)))
        density = -0.5 * np.log(8.0 * np.pi) - np.mean((data.Y_test - mean) ** 2) / 8.0
        assert one.metrics["log_density"] == pytest.approx(density)


def test_a_worker_that_fails_says_why(worker: Path) -> None:
    worker.write_text("import no_such_module")
    with pytest.raises(RuntimeError, match="No module named 'no_such_module'"):
        train(parse("gpjax-7"), load("diabetes"), [1.0], Settings())


def test_left_out_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """No Python is named, or one that is not there: the models are left out, and asking for one
    says the fix.
    """
    monkeypatch.delenv("GPJAX_PYTHON", raising=False)
    assert "none is named" in missing("gpjax") and "--gpjax-python" in missing("gpjax")
    with pytest.warns(
        UserWarning, match=r"Models are left out\. GPJax runs in an environment of its own"
    ):
        assert installed(["coupled-3", "gpjax-3"]) == ["coupled-3"]
    with pytest.raises(RuntimeError, match=r"'gpjax-3' cannot be trained\. GPJax .* GPJAX_PYTHON"):
        train(parse("gpjax-3"), load("diabetes"), [1.0], Settings())
    monkeypatch.setenv("GPJAX_PYTHON", "/no/such/python")
    assert "there is no /no/such/python" in missing("gpjax")
    monkeypatch.setenv("GPJAX_PYTHON", sys.executable)
    assert not missing("gpjax")


@pytest.mark.skipif(
    "GPJAX_PYTHON" not in os.environ, reason="GPJAX_PYTHON names no Python that has GPJax"
)
@pytest.mark.parametrize("name", ["gpjax-20", "gpjax-20-adam"])
def test_gpjax_learns(name: str) -> None:
    settings = Settings(batch_size=128, learning_rate=0.03)
    record = train(parse(name), load("diabetes"), [1e-6, 3.0], settings)
    first, last = (snapshot.metrics for snapshot in record.snapshots)
    assert record.snapshots[-1].step > 10
    assert last["rmse"] < first["rmse"] - 0.1 and last["elbo"] > first["elbo"]
    assert all(np.isfinite(value) for value in last.values())
