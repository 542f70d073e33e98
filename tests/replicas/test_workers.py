"""Two worker processes do what one process does, stay the same to the last bit, and end
together.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.replicas.cases import CASES
from tests.replicas.test_virtual_devices import check_same_run, part

Both = list[dict[str, np.ndarray]]
COMPILED = ("gaussian", "bernoulli")


@pytest.mark.parametrize(
    "case",
    ["eager", *(pytest.param(name, marks=pytest.mark.exhaustive) for name in COMPILED)],
)
def test_two_workers_do_what_one_process_does(workers: Both, case: str) -> None:
    for found in workers:
        check_same_run(found, case)
    first, second = (part(found, f"{case}/two") for found in workers)
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert np.array_equal(value, second[name]), name
    sizes = first["messages"].tolist()
    steps = 1 if case in COMPILED else CASES[case].steps  # a graph is traced once
    assert sizes[:2] == [-1, -1], "two groups"
    assert len(sizes) == 2 + 4 * steps and (sizes[2], sizes[5]) == (8, 16), (
        "four messages of a step"
    )


@pytest.mark.parametrize("probe", ["group"])
def test_what_workers_tell_each_other(workers: Both, probe: str) -> None:
    for number, found in enumerate(part(one, probe) for one in workers):
        assert found["place"].tolist() == [2, 2, number, number == 0]
        assert (
            found["gathered"].tolist() == [3.0, 4.0]
            and found["first"] == 3.0
            and found["together"] == 3.0 + number
        )
        assert found["rows"].tolist() == [[3.0, -3.0], [4.0, -4.0]] and found[
            "of first"
        ].tolist() == [3.0, 6.0]
        assert found["unlike"].tolist() == [1] and found["alike"].tolist() == []
        assert found["over rows"].all() and found["one row"].all() and len(found["over rows"]) == 3
        assert found["asked"].tolist() == [7, 4 - number, 1, 1], (
            "all rows, its share of them, and one row on both"
        )
    failed, first_fails = (
        [str(part(one, probe)[name]) for one in workers] for name in ("failed", "first fails")
    )
    cause = "the labels of worker 1 are bad"
    assert failed == [
        f"WorkerError: Worker 1 has failed and ends the run on all. ValueError: {cause}",
        f"ValueError: {cause}",
    ]
    assert first_fails[0] == "KeyError: 'no such key'"
    assert (
        first_fails[1]
        == "WorkerError: Worker 0 has failed and ends the run on all. KeyError: 'no such key'"
    )


@pytest.mark.parametrize("probe", ["other data"])
def test_workers_with_other_data_or_options_are_refused(workers: Both, probe: str) -> None:
    for found in (part(one, probe) for one in workers):
        start = "DataError: The workers [1] were started with another value of"
        assert str(found["data"]).startswith(f"{start} checksum of the data than the first one")
        assert str(found["steps"]).startswith(f"{start} steps than the first one")
        assert str(found["options"]).startswith(
            f"{start} the names of the settings than the first one"
        )
        assert str(found["start"]).startswith(
            f"{start} the value of parameter .kernel.lengthscales than the first one"
        )
        assert found["unchanged"]


@pytest.mark.exhaustive
@pytest.mark.parametrize("probe", ["clock"])
def test_the_first_workers_clock_ends_a_run(workers: Both, probe: str) -> None:
    first, second = (part(one, probe) for one in workers)
    assert first["steps"] == second["steps"] >= 1
    assert np.array_equal(first["last"], second["last"]) and np.array_equal(first["q"], second["q"])


@pytest.mark.exhaustive
@pytest.mark.parametrize("probe", ["checkpoint"])
def test_one_writes_and_all_read(workers: Both, probe: str) -> None:
    for number, found in enumerate(part(one, probe) for one in workers):
        assert found["same"]
        states = [name for name in found["files"] if name.startswith("run-")]
        assert states == ["run-6.json", "run-7.json"]
        reason = (
            "CheckpointError"
            if number == 1
            else "WorkerError: Worker 1 has failed and ends the run on all. CheckpointError"
        )
        assert str(found["refused"]).startswith(
            f"{reason}: checkpoint="
        ) and "not the same folder" in str(found["refused"])


@pytest.mark.parametrize("probe", [pytest.param("dataset", marks=pytest.mark.exhaustive)])
def test_each_worker_reads_its_shard(workers: Both, probe: str) -> None:
    """Both shards together are the batches of one process, sizes that change by worker and step
    included.
    """
    for found in (part(one, probe) for one in workers):
        names = [name[4:] for name in found if name.startswith("one ")]
        assert len(names) > 5
        for name in names:
            for other in ("two", "resumed"):
                np.testing.assert_allclose(
                    found[f"{other} {name}"], found[f"one {name}"], rtol=1e-9, atol=1e-9
                )
        np.testing.assert_allclose(found["elbo"][1:], found["elbo"][[0, 0]], rtol=1e-9)
        np.testing.assert_allclose(found["scores"], 0.0, atol=1e-10)
        assert {"place-0-8.index", "place-1-8.index", "place-0-9.index", "place-1-9.index"} <= set(
            found["files"]
        )
        assert not any(name.startswith(("place-0-6", "place-1-6")) for name in found["files"]), (
            "states that are no longer kept"
        )
        assert str(found["plain"]).startswith(
            "DataError: Each of 2 workers would read all of this dataset"
        )


@pytest.mark.parametrize("probe", ["bad labels"])
def test_bad_labels_on_one_worker_end_the_run_on_all(workers: Both, probe: str) -> None:
    first, second = (str(part(one, probe)["message"]) for one in workers)
    assert second.startswith("DataError: ") and "7" in second
    assert first == f"WorkerError: Worker 1 has failed and ends the run on all. {second}"
