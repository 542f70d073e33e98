"""A sweep on several replicas ends at the q of one process, with one message of sums for each pass
over the data.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.replicas.cases import BETA
from tests.replicas.sweeps import SWEEPS
from tests.replicas.test_virtual_devices import part

Arrays = dict[str, np.ndarray]
NAMES = [f"sweep {name}" for name in SWEEPS]


def check_same_sweep(found: Arrays, one: str, two: str) -> None:
    """Both end at the same q, by the same steps."""
    alone, shared = part(found, one), part(found, two)
    for key in ("q_mu", "covariance", "elbo", "bound"):
        np.testing.assert_allclose(shared[key], alone[key], rtol=1e-9, atol=1e-9, err_msg=key)
    assert alone["shortened"] == shared["shortened"] and np.max(np.abs(alone["q_mu"])) > 0.1
    assert len(alone["elbo"]) > 1 and alone["elbo"][-2] > alone["elbo"][0] - 1e-9
    assert shared["equal"]


@pytest.mark.exhaustive
@pytest.mark.parametrize("probe", NAMES)
def test_two_replicas_sweep_as_one_process_does(virtual: Arrays, probe: str) -> None:
    check_same_sweep(virtual, f"{probe}/one", f"{probe}/two")
    if probe == "sweep halved":
        assert virtual[f"{probe}/one/shortened"] > 0
    if (
        probe == "sweep SparseCVIGP"
    ):  # expectations, theta*, a triangle of P*, and how many were clipped
        M = len(BETA)
        assert virtual[f"{probe}/two/messages"].tolist() == [8 * (2 + M + M * (M + 1) // 2)]


@pytest.mark.exhaustive
@pytest.mark.parametrize("probe", ["sweep", "sweep compiled"])
def test_two_workers_sweep_as_one_process_does(workers: list[Arrays], probe: str) -> None:
    """From the same arrays, of which each reads its own blocks, and from a shard for each."""
    first, second = (part(found, probe) for found in workers)
    for found in (first, second):
        for kind in ("arrays", "shards"):
            check_same_sweep(found, "one", kind)
    for key in first:
        if not key.startswith(("read", "refused", "rows")):
            assert np.array_equal(first[key], second[key], equal_nan=True), key
    assert [found["read"].tolist() for found in (first, second)] == [[33], [28]], (
        "rows of X that a pass has read"
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize("probe", ["sweep"])
def test_what_is_wrong_on_one_worker_ends_the_sweep_on_all(
    workers: list[Arrays], probe: str
) -> None:
    first, second = (part(found, probe) for found in workers)
    told = "WorkerError: Worker 1 has failed and ends the run on all. "
    assert str(second["refused labels"]).startswith("DataError: ") and "7" in str(
        second["refused labels"]
    )
    assert str(first["refused labels"]) == f"{told}{second['refused labels']}"
    start = "DataError: The workers [1] were started with another value of"
    for found in (first, second):
        assert str(found["refused block"]).startswith(f"{start} the settings than the first one")
        assert str(found["refused kernel"]).startswith(
            f"{start} parameter .kernel.lengthscales than the first one"
        )
        assert str(found["refused rows"]).startswith(
            f"{start} the number of rows than the first one"
        )
        assert str(found["refused dataset"]).startswith(
            "DataError: Each of 2 workers would read all of this dataset"
        )
