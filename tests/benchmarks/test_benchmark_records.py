"""The clock, the copies, the declarations and the report, without a model."""

from __future__ import annotations

import json
import resource
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from benchmarks import records
from benchmarks.measuring import interleave, peak_megabytes, slopes
from benchmarks.models import Spec, parse
from benchmarks.records import Recorder, times_up_to
from benchmarks.report import Figure, Panel, Report, Series, Table, write


class Clock:
    """Stands for the module `time`: a second passes when it is told."""

    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now

    process_time = perf_counter


def test_recorder_copies_when_a_target_is_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, state = Clock(), {"value": 0}
    monkeypatch.setattr(records, "time", clock)
    recorder = Recorder([2.0, 3.5, 3.6, 99.0], lambda: state["value"], lambda value: state.update(value=value))
    recorder.start()
    for step in range(1, 6):
        clock.now += 1.0
        state["value"] = 10 * step
        recorder()
    assert not recorder.done
    assert recorder.ms_per_step == pytest.approx(1000.0)
    clock.now += 1000.0  # what comes after the last step is not a step's time
    snapshots = recorder.finish(lambda: {"seen": state["value"]})
    assert [snapshot.metrics["seen"] for snapshot in snapshots] == [20, 40, 40, 50]
    assert [snapshot.step for snapshot in snapshots] == [2, 4, 4, 5]
    assert [snapshot.seconds for snapshot in snapshots] == [2.0, 4.0, 4.0, 5.0]
    record = records.Record("task", "model", "library", 0.0, 1000.0, snapshots)
    assert record.at(3.5).step == 4
    own = records.Snapshot(2.0, 2.2, 2.2, 3, final=True)
    assert records.Record("task", "model", "library", 0.0, 1000.0, [*snapshots, own]).at(2.0) is own


def test_recorder_by_steps_and_back_from_json() -> None:
    recorder = Recorder([2, 3, 9], lambda: recorder.step, lambda value: None, unit="steps")
    for _ in range(4):
        recorder()
    snapshots = recorder.finish(lambda: {"mae": 1.0})
    assert [(snapshot.target, snapshot.step) for snapshot in snapshots] == [(2, 2), (3, 3), (9, 4)]
    record = records.Record("task", "model", "library", 0.0, 1.0, snapshots)
    assert records.Record.read(json.loads(json.dumps(asdict(record)))) == record
    assert record.processor_ms == pytest.approx(250.0 * snapshots[-1].cpu_seconds)


def test_a_run_that_failed_has_no_metrics_after_its_last_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, state = Clock(), {"value": 1}
    monkeypatch.setattr(records, "time", clock)
    recorder = Recorder([0.5, 9.0], lambda: state["value"], lambda value: state.update(value=value))
    recorder.start()
    clock.now += 1.0
    recorder()
    state["value"] = float("nan")
    snapshots = recorder.finish(lambda: {"seen": state["value"]}, failed=True)
    assert [snapshot.metrics for snapshot in snapshots] == [{"seen": 1}, {}]


def test_times_include_the_budgets() -> None:
    times = times_up_to([60.0, 180.0])
    assert times == sorted(set(times))
    assert {60.0, 180.0} <= set(times)
    assert times[-1] == 180.0


def test_names_of_models() -> None:
    assert parse("orthogonal-300+1000") == Spec("orthogonal", 300, 1000)
    assert parse("hybrid-300+1000-adam") == Spec("hybrid", 300, 1000, natural=False)
    peers = ("gpflow-5-adam", "gpytorch-3", "gpytorch-3+4", "gpjax-3")
    for name in ("coupled-300", "coupled-3-adam", *peers, "solve-3+4-adam"):
        assert parse(name).name == name
    for name in ("coupled-300+10", "orthogonal-300", "nobody-3", "coupled", "gpytorch-3-adam"):
        with pytest.raises(ValueError, match=f"Model '{name.replace('+', '[+]')}'"):
            parse(name)


def test_slopes_and_memory() -> None:
    sizes = np.array([10, 100, 1000])
    np.testing.assert_allclose(slopes(sizes, 2.0 * sizes), 1.0)
    np.testing.assert_allclose(slopes(sizes, 1e-3 * sizes**2), 2.0)
    unit = 2**10 if sys.platform == "linux" else 2**20  # of ru_maxrss, which may include the parent's peak
    kernel = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
    assert 0.2 * kernel < peak_megabytes() < 1.05 * kernel


def test_timing_is_interleaved() -> None:
    calls: list[str] = []
    times = interleave({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, rounds=3, seconds=0.0)
    assert {label: len(values) for label, values in times.items()} == {"a": 3, "b": 3}
    assert "".join(calls[4:]) == "ababab"


def test_report(tmp_path: Path) -> None:
    series = [Series("ours", [1, 2], [3, 4], spread=[0.1, 0.2]), Series("peer", [1, 2], [5, 6], dashed=True)]
    figure = Figure("picture", "What it shows.", [Panel("panel", "seconds (s)", "RMSE", series, log="xy")])
    table = Table("numbers", ["model", "RMSE"], [["ours", "0.1"]])
    command = "python -m benchmarks run --suite made"
    path = write(tmp_path, Report("made", "Made", command, {"x": [1.0, float("nan")]}, [table], [figure], ["Note."]))
    text = path.read_text()
    for part in (f"`{command}`", "| ours | 0.1 |", "![picture](picture.png)", "- Note.", "tensorflow"):
        assert part in text
    assert (tmp_path / "picture.png").stat().st_size > 5000
    page = (tmp_path / "made.html").read_text()
    for part in ("<h1>Made</h1>", "<td>0.1</td>", 'src="picture.png"', "<li>Note.</li>"):
        assert part in page
    content = json.loads((tmp_path / "made.json").read_text())
    assert content["results"] == {"x": [1.0, None]}
    assert content["command"] == command
