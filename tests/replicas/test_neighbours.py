"""Workers that share the rows of an `NNGP` end where one process does."""

from __future__ import annotations

import numpy as np
import pytest

from tests.replicas.test_virtual_devices import part

Arrays = dict[str, np.ndarray]


@pytest.mark.exhaustive
@pytest.mark.parametrize("probe", ["neighbours", "neighbours few"])
def test_two_workers_train_neighbours_as_one_process(workers: list[Arrays], probe: str) -> None:
    first, second = (part(found, f"{probe}/two") for found in workers)
    for name in (set(first) | set(second)) - {"searched"}:
        assert np.array_equal(first[name], second[name]), name
    alone = part(workers[0], f"{probe}/one")
    assert len(alone["elbo"]) == 2 and alone["elbo"][1] != alone["elbo"][0]
    for name in set(alone) - {"searched"}:
        np.testing.assert_allclose(first[name], alone[name], rtol=1e-9, atol=1e-9, err_msg=name)
    for number, found in enumerate((first, second)):
        shared = (alone["searched"] + 1 - number) // 2
        np.testing.assert_allclose(found["searched"], shared, err_msg="rows searched by each")


@pytest.mark.exhaustive
@pytest.mark.parametrize("probe", ["neighbours sites"])
def test_two_workers_find_sites_as_one_process(workers: list[Arrays], probe: str) -> None:
    first, second = (part(found, f"{probe}/two") for found in workers)
    alone = part(workers[0], f"{probe}/one")
    assert len(alone["elbo"]) == 2 and np.abs(alone["nu"]).min() > 0.0
    for name in set(alone) - {"searched"}:
        assert np.array_equal(first[name], second[name]), name
        np.testing.assert_allclose(first[name], alone[name], rtol=1e-9, atol=1e-9, err_msg=name)
    assert np.sum(first["searched"]) < 0.6 * np.sum(alone["searched"])


@pytest.mark.exhaustive
@pytest.mark.parametrize("probe", ["neighbours labels"])
def test_two_workers_learn_classes_as_one_process(workers: list[Arrays], probe: str) -> None:
    first, second = (part(found, f"{probe}/two") for found in workers)
    alone = part(workers[0], f"{probe}/one")
    assert len(alone["elbo"]) >= 2 and alone["elbo"][1] != alone["elbo"][0]
    for name in set(alone) - {"searched"}:
        assert np.array_equal(first[name], second[name]), name
        np.testing.assert_allclose(first[name], alone[name], rtol=1e-9, atol=1e-9, err_msg=name)
    assert 0 < np.sum(first["searched"]) < 0.7 * np.sum(alone["searched"])


@pytest.mark.exhaustive
@pytest.mark.parametrize("probe", ["neighbours faults", "site faults"])
def test_what_is_wrong_on_one_worker_ends_the_climb_on_all(
    workers: list[Arrays], probe: str
) -> None:
    first, second = (part(found, probe) for found in workers)
    failed = {"neighbours_of", "log_likelihood", "moved_sites", "left_out"} & set(first)
    assert len(failed) >= 2
    for name in failed:
        assert str(second[name]) == "MemoryError: none left in the third call"
        told = f"WorkerError: Worker 1 has failed and ends the run on all. {second[name]}"
        assert str(first[name]) == told
    for found in (first, second):
        start = "DataError: The workers [1] were started with another value of"
        assert str(found["data"]).startswith(f"{start} checksum of the data than the first one")
        what = "the number of rows" if probe == "neighbours faults" else "parameter .noise.variance"
        assert str(found["rows"]).startswith(f"{start} {what} than the first one")
    assert first["steps"] == second["steps"] >= 1, "the first one's clock decides"
    for name in first:
        assert not name.startswith("value") or np.array_equal(first[name], second[name]), name
