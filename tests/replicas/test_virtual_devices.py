"""Two replicas in one process do what one process does, to round-off, and stay the same to the last
bit.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.replicas.cases import BATCH, BETA, CASES, GAMMA, STEPS

SHORT = ("gaussian",)
"""What the short run takes."""
MARKED = [
    name if name in SHORT else pytest.param(name, marks=pytest.mark.exhaustive) for name in CASES
]


def part(found: dict[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    """What one case or probe found."""
    return {
        key[len(name) + 1 :]: value for key, value in found.items() if key.startswith(f"{name}/")
    }


def check_same_run(found: dict[str, np.ndarray], case: str) -> None:
    """One process and several replicas end at the same Parameters."""
    one, two, tolerance = (
        part(found, f"{case}/one"),
        part(found, f"{case}/two"),
        CASES[case].tolerance,
    )
    paths = [key for key in one if key.startswith("value ")]
    assert len(paths) > 4 and any("q_mu" in path or "coefficients" in path for path in paths)
    for path in paths:
        np.testing.assert_allclose(
            two[path], one[path], rtol=tolerance, atol=tolerance, err_msg=path
        )
    np.testing.assert_allclose(
        two["elbo"], one["elbo"], rtol=1e-3 * tolerance, atol=1e3 * tolerance
    )
    np.testing.assert_allclose(
        two["bound"], one["bound"], rtol=1e-3 * tolerance, atol=1e3 * tolerance
    )
    assert len(one["elbo"]) <= STEPS and one["elbo"][-1] > one["elbo"][0]
    assert (one["shortened"], one["clipped"]) == (two["shortened"], two["clipped"])
    assert two["equal"]


@pytest.mark.parametrize("case", MARKED)
def test_two_replicas_do_what_one_process_does(virtual: dict[str, np.ndarray], case: str) -> None:
    check_same_run(virtual, case)
    if case in ("clip", "keras 3"):
        assert (virtual[f"{case}/two/clipped"] > 0) == (case == "clip")
    if case in ("damp", "natural mean"):
        assert virtual[f"{case}/two/shortened"] > 0


@pytest.mark.parametrize("case", ["gaussian"])
def test_messages_of_a_step(virtual: dict[str, np.ndarray], case: str) -> None:
    """The rows of the batch; where q goes, with a triangle of P*; the gradients; and whether all
    are well.
    """
    M, G = len(BETA), len(GAMMA)
    hyperparameters = 3  # variance, lengthscale, noise
    of_q, gradients = 1 + M * (M + 1) // 2 + M, G + G + M + hyperparameters  # bound, P*, theta*
    assert virtual[f"{case}/two/messages"].tolist() == [8, 8 * of_q, 8 * gradients, 16]
    assert BATCH % 2 == 1, "shards of different sizes"


@pytest.mark.parametrize("probe", ["sums"])
def test_sums_are_those_of_numpy(virtual: dict[str, np.ndarray], probe: str) -> None:
    rng, found = np.random.default_rng(3), part(virtual, probe)
    parts = [rng.normal(size=shape) for shape in ((), (3,), (2, 5, 5), (1, 4, 4), (2, 3))]
    parts = [x + np.swapaxes(x, -1, -2) if x.ndim == 3 else x for x in parts]
    for replica in (0, 1):
        for name, x in zip(("scalar", "vector", "five", "four", "matrix"), parts):
            np.testing.assert_allclose(found[f"{name} {replica}"], x + 3.0 * x, rtol=1e-14)
            assert np.array_equal(found[f"{name} 0"], found[f"{name} 1"])
        np.testing.assert_allclose(found[f"share {replica}"], parts[1], rtol=1e-15)
        assert (
            found[f"first {replica}"] == [5]
            and not found[f"ok {replica}"]
            and found[f"number {replica}"] == 6
        )
    triangles = 2 * 15 + 10
    assert found["sizes"].tolist() == [16, 24, 8 * (1 + 3 + triangles + 6), 8]


@pytest.mark.parametrize("probe", ["rows"])
def test_each_row_goes_to_one_replica(virtual: dict[str, np.ndarray], probe: str) -> None:
    found = part(virtual, probe)
    assert found["first"].tolist() == [0, 2, 4, 6] and found["second"].tolist() == [1, 3, 5]
    assert found["labels"].tolist() == [10, 12, 14, 16] and found["seed"].tolist() == [3, 4]


@pytest.mark.parametrize("probe", ["draws"])
def test_each_replica_draws_its_own_numbers(virtual: dict[str, np.ndarray], probe: str) -> None:
    """2,000 antithetic draws an entry: the chance of a variance further off than 0.25 is below 1e-6
    (1,000 squares).
    """
    first, second = part(virtual, probe)["first"], part(virtual, probe)["second"]
    assert first.shape == second.shape == (2000, 3, 1)
    assert np.abs(np.corrcoef(first.ravel(), second.ravel())[0, 1]) < 0.1
    for drawn in (first, second):
        np.testing.assert_allclose(np.mean(drawn, axis=0), 0.0, atol=1e-12)
        np.testing.assert_allclose(np.var(drawn, axis=0), 1.0, atol=0.25)


@pytest.mark.exhaustive
@pytest.mark.parametrize("probe", ["minimize"])
def test_a_natural_gradient_in_the_users_own_run(
    virtual: dict[str, np.ndarray], probe: str
) -> None:
    found = part(virtual, probe)
    assert np.max(np.abs(found["one"])) > 0.1
    np.testing.assert_allclose(found["two"], found["one"], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("probe", ["drift"])
def test_a_copy_that_drifts_is_brought_back(virtual: dict[str, np.ndarray], probe: str) -> None:
    found = part(virtual, probe)
    assert found["repaired"].tolist() == [True, False] and found["warnings"] == 1
    assert np.array_equal(found["copies"][0], found["copies"][1])


REFUSED = {
    "no strategy": (
        "DataError: This runs in the scope of a MirroredStrategy with 2 replicas, which was not"
        " passed"
    ),
    "outside": (
        "DataError: ODVGP.kernel.variance was created outside of the scope of this strategy: build"
        " the whole model"
    ),
    "elsewhere": (
        "DataError: Adam (iteration:0) was created outside of the scope of this strategy: create"
        " the optimizer"
    ),
    "clipping": (
        "UnknownOptionError: clipnorm of a Keras 3 optimizer acts on the gradients of each replica"
    ),
    "newton": 'UnknownOptionError: mean_solver="newton" solves by conjugate gradients',
    "data": 'DataError: gamma="data" needs all data in memory',
    "descent": "UnknownOptionError: StochasticDualDescent takes many short steps",
    "descent alone": "UnknownOptionError: StochasticDualDescent takes many short steps",
    "outside alone": (
        "DataError: This runs in the scope of a MirroredStrategy with 2 replicas, which was not"
        " passed"
    ),
    "batch": "DataError: A batch of 1 rows cannot be shared out to 2 replicas",
    "CVIGP": "ModelError: CVIGP does not work under a tf.distribute strategy of 2 replicas",
    "bound": "ModelError: The bound is not added up over the 2 replicas of strategy.run",
    "newton step": 'UnknownOptionError: mean="newton" solves by conjugate gradients',
}


@pytest.mark.parametrize("probe", ["refusals"])
def test_what_would_be_wrong_is_refused(virtual: dict[str, np.ndarray], probe: str) -> None:
    found = part(virtual, probe)
    assert found["unchanged"] and found["unused"] == 0
    for name, message in REFUSED.items():
        assert str(found[name]).startswith(message), (name, str(found[name]))
    assert set(found) == {*REFUSED, "unchanged", "unused"}
