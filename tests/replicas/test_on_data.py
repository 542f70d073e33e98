"""A mean on all data whose products are shared out is that of one process, and the same on all
replicas.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.replicas.cases import ROWS
from tests.replicas.on_data import ON_DATA
from tests.replicas.test_virtual_devices import part

Arrays = dict[str, np.ndarray]
SHORT = ("solve",)
"""What the short run takes, on two virtual devices."""
MARKED = [
    f"on data {name}"
    if name in SHORT
    else pytest.param(f"on data {name}", marks=pytest.mark.exhaustive)
    for name in ON_DATA
]
ALL = [pytest.param(f"on data {name}", marks=pytest.mark.exhaustive) for name in ON_DATA]


def check_same_mean(found: Arrays, probe: str) -> None:
    """One process and several replicas end at the same Parameters, bound and certified gap."""
    one, two, tolerance = (
        part(found, f"{probe}/one"),
        part(found, f"{probe}/two"),
        ON_DATA[probe[8:]].tolerance,
    )
    paths = [key for key in one if key.startswith("value ")]
    assert any("coefficients" in path and len(one[path]) >= ROWS for path in paths)
    for path in paths:
        scale = np.max(np.abs(one[path]))
        np.testing.assert_allclose(
            two[path], one[path], rtol=tolerance, atol=tolerance * scale, err_msg=path
        )
    for name in ("elbo", "bound"):
        np.testing.assert_allclose(two[name], one[name], rtol=tolerance, err_msg=name)
    # a gap is a small difference of products, round-off included
    assert "products" not in one or one["products"] == two["products"]
    for name in {"gap", "gaps"} & set(one):
        np.testing.assert_allclose(two[name], one[name], rtol=1e-4, atol=1e-10, err_msg=name)
    assert len(one["elbo"]) == len(two["elbo"]) and 0.0 <= one["gap"] < 1e-6
    assert two["equal"]


@pytest.mark.exhaustive
@pytest.mark.parametrize("probe", MARKED)
def test_two_replicas_find_the_mean_of_one_process(virtual: Arrays, probe: str) -> None:
    check_same_mean(virtual, probe)
    if probe == "on data solve":
        assert virtual[f"{probe}/two/messages"].tolist() == [], (
            "what one process has is added up in it"
        )


@pytest.mark.parametrize("probe", ALL)
def test_two_workers_find_the_mean_of_one_process(workers: list[Arrays], probe: str) -> None:
    for found in workers:
        check_same_mean(found, probe)
    first, second = (part(found, f"{probe}/two") for found in workers)
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert np.array_equal(value, second[name]), name
    sent = [size for size in first["messages"].tolist() if size > 0]
    if probe == "on data solve":
        assert sent == [8 * ROWS] * int(first["products"]), "a message for each product"
    if probe == "on data fit gaussian":  # the gradient of a product by V [N, 1] and X [N, 1]
        assert sent.count(2 * 8 * ROWS) > 1 and sent.count(8 * ROWS) > sent.count(2 * 8 * ROWS)


@pytest.mark.parametrize("probe", [pytest.param("on data faults", marks=pytest.mark.exhaustive)])
def test_what_is_wrong_on_one_worker_ends_the_solve_on_all(
    workers: list[Arrays], probe: str
) -> None:
    first, second = (part(found, probe) for found in workers)
    assert str(second["memory"]) == "MemoryError: none left in the third product"
    assert (
        str(first["memory"])
        == f"WorkerError: Worker 1 has failed and ends the run on all. {second['memory']}"
    )
    assert str(second["interrupt"]).startswith(
        "KeyboardInterrupt"
    ) and "Worker 1 has failed" in str(first["interrupt"])
    start = "DataError: The workers [1] were started with another value of"
    for found in (first, second):
        assert str(found["data"]).startswith(f"{start} the data than the first one")
        assert str(found["settings"]).startswith(f"{start} the settings than the first one")
        assert str(found["kernel"]).startswith(
            f"{start} parameter .kernel.lengthscales than the first one"
        )
        assert str(found["reason"]) == "converged", "the first one's clock decides"
        assert str(found["no time"]) == "time is up" and found["products"] <= 3
        assert found["resumed"], "a run goes on from a checkpoint to the same state"
        assert found["steps"] >= 1
    assert first["steps"] == second["steps"] and first["products"] == second["products"]
