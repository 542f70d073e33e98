"""Copies of a model at set times, without a model."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from benchmarks.harness import records
from benchmarks.harness.records import Recorder, times_up_to


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
    recorder = Recorder(
        [2.0, 3.5, 3.6, 99.0], lambda: state["value"], lambda value: state.update(value=value)
    )
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
    assert records.Record(**json.loads(json.dumps(asdict(record)))) == record
    assert record.processor_ms == pytest.approx(250.0 * snapshots[-1].cpu_seconds)


def test_a_run_that_failed_has_no_metrics_after_its_last_copy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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
