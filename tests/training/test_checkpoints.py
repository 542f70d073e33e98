"""A run that is killed goes on to the same trace; a folder of another run is refused; damage is survived."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_decoupled as gd
from gpflow_decoupled.errors import DataError
from tests.training.killed_run import run
from tests.training.problems import GAMMA, MODELS, grouped, orthogonal, sine, unchanged, values

ROOT = Path(__file__).parents[2]


def _process(action: str, folder: Path) -> int:
    command = [sys.executable, "-m", "tests.training.killed_run", action, str(folder)]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1"}, timeout=300).returncode


@pytest.mark.exhaustive
def test_killed_run_goes_on_to_the_same_trace(tmp_path: Path) -> None:
    assert _process("start", tmp_path) == -signal.SIGKILL
    assert {path.name for path in (tmp_path / "arrays").glob("run-*")} == {"run-5.json", "run-10.json"}
    assert _process("resume", tmp_path) == 0
    with np.load(tmp_path / "traces.npz") as traces:
        for kind in ("arrays", "dataset"):
            np.testing.assert_allclose(traces[kind], run(kind, None), rtol=1e-10, err_msg=kind)


def _fit(folder: Path, steps: int = 3, model=None, data=None, **options):
    model = orthogonal() if model is None else model
    settings = {
        "batch_size": 20,
        "checkpoint_every": 2,
        "learning_rate": 0.01,
        "anneal": 0.5,
        "progress": False,
        "compile": False,
        **options,
    }
    options = grouped(checkpoint=folder, **settings)
    return gd.fit(model, sine() if data is None else data, steps=steps, **options)


def _fixed_gamma():
    model = orthogonal()
    gpflow.set_trainable(model.basis.gamma, False)
    return model


def _matern():
    likelihood = gpflow.likelihoods.Gaussian(0.1)
    return gd.models.ODVGP(gpflow.kernels.Matern52(lengthscales=0.3), likelihood, GAMMA, [[0.1], [0.9]])


OTHER = {
    "seed": ({"seed": 1}, "seed=0, and this run has 1"),
    "batch": ({"batch_size": 30}, "batch_size=20, and this run has 30"),
    "data": ({"data": sine(seed=1)}, r"checksum of the data=\d+, and this run has \d+"),
    "size of the data": ({"data": sine(61)}, "num_data=60, and this run has 61"),
    "rate": ({"learning_rate": 0.02}, r"learning_rate=0\.01, and this run has 0\.02"),
    "mean rate": ({"mean_learning_rate": 0.1}, r"mean_learning_rate=0\.03, and this run has 0\.1"),
    "solver": ({"mean_solver": "natural", "mean_learning_rate": 0.03}, "mean_solver=None.* has 'natural'"),
    "policy": ({"negative_precision": "clip"}, "negative_precision='damp', and this run has 'clip'"),
    "refreshes": ({"refresh_every": 7}, "refresh_every=100, and this run has 7"),
    "annealing": ({"anneal": 0.0}, "anneal=0.5, and this run has 0.0"),
    "basis": ({"model": MODELS["HDVGP"]}, "basis='OrthogonalBasis', and this run has 'HybridBasis'"),
    "kernel": ({"model": _matern}, "kernel='SquaredExponential', and this run has 'Matern52'"),
    "flags": (
        {"model": _fixed_gamma},
        r"parameter \.basis\.kernel_mean\.points\.Z='\[8, 1\] trainable'.*\[8, 1\] fixed",
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A run of 3 steps."""
    folder = tmp_path_factory.mktemp("checkpoints") / "not" / "there yet"
    _fit(folder)
    return folder


@pytest.mark.costly(keep=2)
@pytest.mark.parametrize("changes, message", OTHER.values(), ids=OTHER)
def test_other_settings_are_refused(changes: dict, message: str, folder: Path) -> None:
    options = {**changes, "model": changes["model"]() if "model" in changes else orthogonal()}
    before = values(options["model"])
    with pytest.raises(DataError, match=f"was written with {message}.*use the same value, or another folder"):
        _fit(folder, **options)
    assert unchanged(before, options["model"])


def test_finished_run_is_read_back_and_extended(folder: Path, tmp_path: Path) -> None:
    model = orthogonal()
    again = _fit(folder, model=model)
    assert (again.steps, again.reason) == (3, "steps done")
    reference = orthogonal()
    expected = _fit(tmp_path / "other", model=reference)
    assert np.array_equal(again.history["elbo"], expected.history["elbo"])
    assert unchanged(values(reference), model)
    extended = _fit(tmp_path / "other", steps=5, model=orthogonal())
    assert extended.steps == 5
    assert np.array_equal(extended.history["elbo"][:3], expected.history["elbo"])


def _remove(pattern: str, folder: Path) -> None:
    files = list(folder.glob(pattern))
    assert files
    for file in files:
        file.unlink()


def _cut(pattern: str, folder: Path) -> None:
    for file in folder.glob(pattern):
        file.write_bytes(file.read_bytes()[:20])


DAMAGE = {
    "no record": lambda folder: _remove("run-5.json", folder),
    "record cut": lambda folder: _cut("run-5.json", folder),
    "no history": lambda folder: _remove("history-5.npz", folder),
    "history cut": lambda folder: _cut("history-5.npz", folder),
    "no tensors": lambda folder: _remove("ckpt-5.data*", folder),
    "no index": lambda folder: _remove("ckpt-5.index", folder),
}


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damaged_state_gives_way_to_the_one_before(damage, tmp_path: Path) -> None:
    options = {"checkpoint_every": 4, "anneal": 0.0, "natural_gradient": None}
    expected = _fit(tmp_path, steps=5, **options)
    damage(tmp_path)
    with pytest.warns(UserWarning, match="goes on from step 4: a later state is damaged .step 5"):
        result = _fit(tmp_path, steps=5, **options)
    assert np.array_equal(result.history["elbo"], expected.history["elbo"])


def test_kill_during_a_save_leaves_the_state_before(tmp_path: Path) -> None:
    expected = _fit(tmp_path, steps=4, anneal=0.0)
    (tmp_path / "run-6.json").write_text("{}")  # the record is written first, then ...
    (tmp_path / "history-6.npz.part").write_bytes(b"half of it")
    result = _fit(tmp_path, steps=6, anneal=0.0)
    assert np.array_equal(result.history["elbo"][:4], expected.history["elbo"])
    assert {path.name for path in tmp_path.glob("*-6.*")} == {
        "run-6.json",
        "history-6.npz",
        "ckpt-6.index",
        "ckpt-6.data-00000-of-00001",
    }
    assert len(list(tmp_path.glob("run-*.json"))) == 2


def test_folder_without_a_readable_state_says_what_to_do(tmp_path: Path) -> None:
    _fit(tmp_path)
    _remove("run-*.json", tmp_path)
    model = orthogonal()
    before = values(model)
    with pytest.raises(
        DataError, match=r"No state in .* can be read \(step 3: .*\); empty the folder .*or use another"
    ):
        _fit(tmp_path, model=model)
    assert unchanged(before, model)


def test_early_stop_is_remembered(tmp_path: Path) -> None:
    X, Y = sine()
    options = {"patience": 1, "evaluate_every": 1, "evaluation": (X, -Y), "anneal": 0.0}
    for _ in range(2):
        result = _fit(tmp_path, steps=9, **options)
        assert (result.reason, result.steps) == ("no improvement in 1 evaluations", 2)
    assert _fit(tmp_path, steps=9, **{**options, "patience": 2}).steps == 3


def test_svgp_and_batched_arrays_are_resumed(tmp_path: Path) -> None:
    options = grouped(batch_size=20, anneal=0.0, learning_rate=0.01, progress=False, compile=False)
    expected = gd.fit(MODELS["SVGP"](), sine(), steps=4, **options)
    for steps in (2, 4):
        result = _fit(tmp_path, steps=steps, model=MODELS["SVGP"](), anneal=0.0)
    np.testing.assert_allclose(result.history["elbo"], expected.history["elbo"], rtol=1e-12)


def test_state_that_breaks_off_while_it_is_read_changes_nothing(tmp_path: Path, monkeypatch) -> None:
    _fit(tmp_path)
    restore = tf.train.Checkpoint.restore

    def breaks_off(self, path: str):
        restore(self, path)
        raise tf.errors.DataLossError(None, None, "broken off")

    monkeypatch.setattr(tf.train.Checkpoint, "restore", breaks_off)
    model = orthogonal()
    before = values(model)
    with pytest.raises(DataError, match=r"No state in .* can be read \(step 3: broken off\)"):
        _fit(tmp_path, model=model)
    assert unchanged(before, model)
