"""`fit` on data that are not in memory takes the steps that it takes on the same rows in memory."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import gpflow_decoupled as gd
from gpflow_decoupled.errors import DataError
from gpflow_decoupled.optimizers import sweep
from gpflow_decoupled.replicas import dataset_of
from gpflow_decoupled.training.batches import ArrayBatches, DiskBatches, FunctionBatches, RowOrder

from .problems import BETA, Data, orthogonal, parts, sine

SHORT = {"steps": 4, "compile": False, "progress": False}


class OnDisk:
    """An array as HDF5 has it: a shape, a dtype and slices; rows must be asked for in their
    order.
    """

    def __init__(self, array: np.ndarray) -> None:
        self._array, self.shape, self.dtype = array, array.shape, array.dtype
        self.most = 0

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, rows: Any) -> np.ndarray:
        assert isinstance(rows, slice) or np.all(np.diff(rows) > 0)
        found = self._array[rows]
        self.most = max(self.most, len(found))
        return found


def _mapped(folder: Path, data: Data) -> tuple[np.memmap, np.memmap]:
    for name, array in zip("XY", data):
        np.save(folder / f"{name}.npy", array)
    X, Y = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in "XY")
    return X, Y


def _batches(data: Data, size: int = 25) -> Iterator[Data]:
    X, Y = data
    return ((X[i : i + size], Y[i : i + size]) for i in range(0, len(X), size))


def _trace(data: Any, **options: Any) -> np.ndarray:
    model = orthogonal(num_data=60)
    return gd.fit(model, data, **{**SHORT, **options}).history["elbo"]


def test_arrays_on_disk_have_the_batches_of_arrays_in_memory(tmp_path: Path) -> None:
    X, Y = sine()
    memory = ArrayBatches(tf.constant(X), tf.constant(Y), 20, seed=3)
    for data in (_mapped(tmp_path, (X, Y)), (OnDisk(X), Y)):
        disk = DiskBatches(orthogonal(), data, RowOrder(60, 20, seed=3))
        assert disk.settings == memory.settings
        for step in (0, 1, 2, 3, 7):
            for one, two in zip(disk(step), memory(step)):
                np.testing.assert_array_equal(one, two)


@pytest.mark.exhaustive
def test_only_batches_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpflow_decoupled.training.batches._BLOCK", 16)
    X, Y = map(OnDisk, sine())
    np.testing.assert_array_equal(_trace((X, Y), batch_size=9), _trace(sine(), batch_size=9))
    assert X.most == Y.most == 16


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "kind", ["function", "memmap", "dataset from a function", "tensors", "lists"]
)
def test_fit_takes_what_sweep_takes(kind: str, tmp_path: Path) -> None:
    data = sine()
    spec = tf.TensorSpec([None, 1], tf.float64)
    sources: dict[str, Any] = {
        "memmap": lambda: _mapped(tmp_path, data),
        "function": lambda: lambda: _batches(data, 60),
        "dataset from a function": lambda: tf.data.Dataset.from_generator(
            lambda: _batches(data, 60), output_signature=(spec, spec)
        ),
        "tensors": lambda: tuple(map(tf.constant, data)),
        "lists": lambda: tuple(array.tolist() for array in data),
    }
    np.testing.assert_allclose(_trace(sources[kind]()), _trace(data), rtol=1e-10)
    model = gd.models.SparseCVIGP(*parts(), BETA, num_data=60)
    twin = gd.models.SparseCVIGP(*parts(), BETA, num_data=60)
    options = {"passes": 3, "compile": False}
    assert sweep(model, sources[kind](), **options).elbo == pytest.approx(
        sweep(twin, data, **options).elbo, rel=1e-10
    )


@pytest.mark.exhaustive
def test_a_function_is_called_once_a_pass_and_again() -> None:
    passes = 0

    def start() -> Iterator[Data]:
        nonlocal passes
        passes += 1
        return _batches(sine())

    assert len(_trace(start, steps=7)) == 7  # batches of 25, 25 and 10
    assert passes == 3


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["model", "standardised", "unusable data"])
def test_a_generator_is_closed_when_the_run_ends(kind: str) -> None:
    X, Y = sine()
    closed: list[bool] = []

    def start() -> Iterator[Data]:
        try:
            yield from _batches((X, Y), 20)
            yield X, np.full_like(Y, np.nan if kind == "unusable data" else 1.0)
        finally:
            closed.append(True)

    gc.collect()
    gc.disable()
    try:
        if kind == "standardised":
            model = gd.training.Standardized(lambda X, Y: orthogonal(num_data=60), (X, Y))
            gd.fit(model, start, **{**SHORT, "steps": 2})
        elif kind == "model":
            _trace(start, steps=2)
        else:
            with pytest.raises(DataError, match="is nan"):
                _trace(start)
        assert closed
    finally:
        gc.enable()


@pytest.mark.exhaustive
def test_a_run_on_a_function_goes_on_where_it_was(tmp_path: Path) -> None:
    whole = _trace(lambda: _batches(sine()), steps=5)
    _trace(
        lambda: _batches(sine()), steps=2, checkpoint=tmp_path
    )  # the next batch is the third of a pass
    assert _trace(lambda: _batches(sine()), steps=5, checkpoint=tmp_path)[-3:] == pytest.approx(
        whole[-3:], rel=1e-9
    )


@pytest.mark.exhaustive
def test_a_standardized_model_takes_a_function_in_units() -> None:
    X, Y = sine()
    data = 100.0 * X, 5.0 + 30.0 * Y
    model, twin = (
        gd.Standardized(lambda X, Y: gd.models.SparseCVIGP(*parts(), X[:5], num_data=60), data)
        for _ in range(2)
    )
    one, two = gd.fit(model, lambda: _batches(data, 60), **SHORT), gd.fit(twin, data, **SHORT)
    np.testing.assert_allclose(one.history["elbo"], two.history["elbo"], rtol=1e-9)


@pytest.mark.filterwarnings("ignore:X.* is constant")
def test_what_is_wrong_is_refused_before_the_first_step(tmp_path: Path) -> None:
    X, Y = sine()
    spoilt = Y.copy()
    spoilt[41] = np.nan
    with pytest.raises(
        DataError, match=r"In the rows from 0 on, which count as 0, 1, ... here: Y\[41, 0\] is nan"
    ):
        _trace((OnDisk(X), OnDisk(spoilt)), batch_size=9)
    with pytest.raises(DataError, match="num_data=60 and the data have 59 rows"):
        _trace((OnDisk(X[:59]), OnDisk(Y[:59])), batch_size=9)
    with pytest.raises(DataError, match=r"X is float32 and the model float64"):
        _trace((OnDisk(X.astype(np.float32)), Y), batch_size=9)
    with pytest.raises(
        DataError, match="A function does not tell the size of the data in rows: pass num_data=N"
    ):
        gd.fit(orthogonal(), lambda: _batches((X, Y)), **SHORT)
    with pytest.raises(DataError, match=r"batch_size=9 is for arrays; a function brings its own"):
        _trace(lambda: _batches((X, Y)), batch_size=9)
    with pytest.raises(DataError, match="returned a float; it must return an iterator of batches"):
        _trace(lambda: 1.0)
    with pytest.raises(
        DataError, match='gamma="data" needs all data in memory, and a function is a stream'
    ):
        gd.fit(gd.models.ODVGP(*parts(), "data", BETA), lambda: _batches((X, Y)), **SHORT)
    with pytest.raises(DataError, match="A function of one argument is for several workers"):
        _trace(lambda context: _batches((X, Y)))


def test_each_of_several_workers_needs_batches_of_its_own() -> None:
    def passes() -> Iterator[Data]:
        return _batches(sine())

    alone, one, two = (
        SimpleNamespace(workers=n, strategy=s)
        for n, s in ((1, None), (1, "mirrored"), (2, "several"))
    )
    assert dataset_of(passes, alone) is passes and dataset_of(passes, one) is passes  # type: ignore[arg-type]
    with pytest.raises(
        DataError, match="Each of 2 workers would read all batches of this function"
    ):
        dataset_of(passes, two)  # type: ignore[arg-type]


@pytest.mark.exhaustive
def test_wrong_batches_end_a_run() -> None:
    X, Y = sine()
    with pytest.raises(DataError, match=r"This pass had 50 rows and num_data is 60"):
        _trace(lambda: _batches((X[:50], Y[:50])))
    with pytest.raises(
        DataError, match="gave no batches: it must return a new iterator at each call"
    ):
        once = _batches((X, Y))
        _trace(lambda: once)
    with pytest.raises(DataError, match=r"Y\[0, 0\] is inf"):
        _trace(lambda: iter([(X, Y), (X, np.full_like(Y, np.inf))]), steps=2)


@pytest.mark.exhaustive
def test_constant_columns_on_disk_are_named() -> None:
    X, Y = sine()
    with pytest.warns(UserWarning, match=r"X\[:, 0\] is constant"):
        _trace((OnDisk(0.0 * X + 1.0), OnDisk(Y)), batch_size=9, steps=1)
    assert FunctionBatches(orthogonal(num_data=60), lambda: _batches((X, Y))).whole is None
