"""A run that is killed goes on to the same trace; a folder of another run is refused; damage is
survived.
"""

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
from gpflow_decoupled.errors import CheckpointError, DataError
from tests.training.killed_run import run
from tests.training.problems import (
    BETA,
    GAMMA,
    MODELS,
    grouped,
    orthogonal,
    parts,
    sine,
    unchanged,
    values,
)

ROOT = Path(__file__).parents[2]


def _process(action: str, folder: Path) -> int:
    command = [sys.executable, "-m", "tests.training.killed_run", action, str(folder)]
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1"}, timeout=300
    ).returncode


@pytest.mark.exhaustive
def test_killed_run_goes_on_to_the_same_trace(tmp_path: Path) -> None:
    assert _process("start", tmp_path) == -signal.SIGKILL
    assert {path.name for path in (tmp_path / "arrays").glob("run-*")} == {
        "run-5.json",
        "run-10.json",
    }
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
    return gd.models.ODVGP(
        gpflow.kernels.Matern52(lengthscales=0.3), likelihood, GAMMA, [[0.1], [0.9]]
    )


OTHER = {
    "seed": ({"seed": 1}, "seed=0, and this run has 1"),
    "batch": ({"batch_size": 30}, "batch_size=20, and this run has 30"),
    "data": ({"data": sine(seed=1)}, r"checksum of the data=\d+, and this run has \d+"),
    "size of the data": ({"data": sine(61)}, "num_data=60, and this run has 61"),
    "rate": ({"learning_rate": 0.02}, r"learning_rate=0\.01, and this run has 0\.02"),
    "mean rate": ({"mean_learning_rate": 0.1}, r"mean_learning_rate=0\.03, and this run has 0\.1"),
    "solver": (
        {"mean_solver": "natural", "mean_learning_rate": 0.03},
        "mean_solver=None.* has 'natural'",
    ),
    "policy": (
        {"negative_precision": "clip"},
        "negative_precision='damp', and this run has 'clip'",
    ),
    "precision": ({"precision": "mixed"}, "precision='full', and this run has 'mixed'"),
    "refreshes": ({"refresh_every": 7}, "refresh_every=100, and this run has 7"),
    "annealing": ({"anneal": 0.0}, "anneal=0.5, and this run has 0.0"),
    "basis": (
        {"model": MODELS["HDVGP"]},
        "basis='OrthogonalBasis', and this run has 'HybridBasis'",
    ),
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


@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("changes, message", OTHER.values(), ids=OTHER)
def test_other_settings_are_refused(changes: dict, message: str, folder: Path) -> None:
    options = {**changes, "model": changes["model"]() if "model" in changes else orthogonal()}
    before = values(options["model"])
    with pytest.raises(
        DataError, match=f"was written with {message}.*use the same value, or another folder"
    ):
        _fit(folder, **options)
    assert unchanged(before, options["model"])


@pytest.mark.exhaustive
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


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore:The bound still rises:UserWarning")
def test_a_climb_that_a_limit_of_steps_has_ended_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpflow_decoupled.training.routes.minibatches._LEAST_EVALUATIONS", 6)

    def fit(steps: int, folder: str) -> gd.training.FitResult:
        model = gd.models.BasisGP(*parts(), gd.bases.CoupledBasis(BETA))
        options = {"optimizer": "lbfgs", "batch_size": 20, "progress": False}
        return gd.fit(model, sine(), steps=steps, checkpoint=tmp_path / folder, **options)

    short = fit(4, "one")
    assert not short.converged and fit(4, "one").steps == short.steps, (
        "nothing is left for the same limit"
    )
    longer, fresh = fit(40, "one"), fit(40, "two")
    assert longer.steps > short.steps
    assert longer.elbo > fresh.elbo - 1.0


@pytest.mark.exhaustive
def test_a_mean_on_all_data_that_a_limit_of_seconds_has_ended_goes_on(tmp_path: Path) -> None:
    def fit(seconds: float) -> gd.training.FitResult:
        model = gd.models.ODVGP(*parts(), "data", BETA)
        return gd.fit(
            model, sine(), seconds=seconds, checkpoint=tmp_path, progress=False, compile=False
        )

    short = fit(0.2)
    assert short.reason == "time is up" and fit(3.0).steps > short.steps


def _remove(pattern: str, folder: Path) -> None:
    files = list(folder.glob(pattern))
    assert files
    for file in files:
        file.unlink()


def _cut(pattern: str, folder: Path) -> None:
    for file in folder.glob(pattern):
        file.write_bytes(file.read_bytes()[:20])


def _flip_seed(folder: Path) -> None:
    """One bit of the record: 0 becomes 2."""
    record = folder / "run-5.json"
    assert '"seed": 0' in record.read_text()
    record.write_text(record.read_text().replace('"seed": 0', '"seed": 2'))


DAMAGE = {
    "a bit of the record": _flip_seed,
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


PARTS = ("run-5.json", "history-5.npz", "ckpt-5.index", "ckpt-5.data-00000-of-00001")


@pytest.mark.exhaustive
@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_a_truncated_file_gives_way_to_the_state_before(share: float, tmp_path: Path) -> None:
    options = {"checkpoint_every": 4, "anneal": 0.0, "natural_gradient": None}
    expected = _fit(tmp_path, steps=5, **options)
    for name in PARTS:
        whole = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(whole[: int(share * len(whole))])
        with pytest.warns(
            UserWarning, match="goes on from step 4: a later state is damaged .step 5"
        ):
            result = _fit(tmp_path, steps=5, **options)
        assert np.array_equal(result.history["elbo"], expected.history["elbo"]), name
        assert (tmp_path / name).read_bytes() != whole[: int(share * len(whole))], (
            "the state is written again"
        )


INDEX = {
    "missing": lambda index: index.unlink(),
    "empty": lambda index: index.write_bytes(b""),
    "garbled": lambda index: index.write_bytes(b"\xff\x00 no index"),
    "cut at a line": lambda index: index.write_text(
        "".join(index.read_text().splitlines(True)[:-1])
    ),
    "cut in a line": lambda index: index.write_text(index.read_text()[:-8]),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("damage", INDEX.values(), ids=INDEX)
def test_without_its_index_a_folder_goes_on_from_its_latest_state(damage, tmp_path: Path) -> None:
    expected = _fit(tmp_path, steps=5, anneal=0.0)
    damage(tmp_path / "checkpoint")
    with pytest.warns(
        UserWarning, match=r"index .* is missing or damaged; the states \[4, 5\] are found"
    ):
        again = _fit(tmp_path, steps=5, model=orthogonal(), anneal=0.0)
    assert np.array_equal(again.history["elbo"], expected.history["elbo"])
    with pytest.warns(UserWarning, match="missing or damaged"):
        assert _fit(tmp_path, steps=7, anneal=0.0).steps == 7
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "ckpt-7")
    assert _fit(tmp_path, steps=7, anneal=0.0).steps == 7, "with an index again, and no warning"


@pytest.mark.exhaustive
def test_a_first_state_that_broke_off_is_no_state(tmp_path: Path) -> None:
    """Nothing is lost with it: the folder is used, though it has no other."""
    (tmp_path / "ckpt-0_temp").mkdir()
    (tmp_path / "ckpt-0.data-00000-of-00001").write_bytes(b"half")
    with pytest.warns(UserWarning, match="index .* is missing or damaged"):
        result = _fit(tmp_path)
    assert np.array_equal(result.history["elbo"], _fit(tmp_path / "other").history["elbo"])
    assert not list(tmp_path.glob("*_temp"))


_HOLD = """
import sys
from pathlib import Path
from gpflow_decoupled.training.checkpoints import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.exhaustive
def test_a_second_process_is_refused_until_the_first_is_dead(tmp_path: Path) -> None:
    model = orthogonal()
    before = values(model)
    command = [sys.executable, "-c", _HOLD, str(tmp_path)]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None and other.stdout.readline() == b"held\n"
        with pytest.raises(
            CheckpointError, match=f"Another run uses the folder {tmp_path}.*or use another folder"
        ):
            _fit(tmp_path, model=model)
        assert unchanged(before, model)
        other.kill()
    assert _fit(tmp_path, model=model).steps == 3


@pytest.mark.exhaustive
def test_a_run_inside_a_run_is_refused_in_the_same_folder(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="Another run uses the folder"):
        _fit(tmp_path, callbacks=[lambda *_: _fit(tmp_path)], report_every=1)
    assert _fit(tmp_path).steps == 3


@pytest.mark.exhaustive
def test_a_folder_that_cannot_be_locked_is_warned_of(tmp_path: Path, monkeypatch) -> None:
    from gpflow_decoupled.training import checkpoints as lock

    monkeypatch.setattr(lock, "fcntl", None)
    with pytest.warns(
        UserWarning,
        match="cannot be locked .this system has none.; see to it that no other run uses it",
    ):
        assert _fit(tmp_path).steps == 3


@pytest.mark.parametrize("below", [(), ("run",)], ids=["itself", "above it"])
def test_a_file_is_no_folder(below: tuple, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    folder = tmp_path.joinpath("file", *below)
    model = orthogonal()
    before = values(model)
    with pytest.raises(
        CheckpointError, match=f"checkpoint='{folder}' cannot be used as a folder .*one that can be"
    ):
        _fit(folder, model=model)
    assert unchanged(before, model) and (tmp_path / "file").read_text() == "mine"


@pytest.mark.exhaustive
@pytest.mark.parametrize("limit", [100, 2500])
def test_a_full_disk_is_named_and_the_folder_resumes(limit: int, tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")  # no file may grow beyond the limit
    expected = _fit(tmp_path, steps=4, anneal=0.0)
    model, soft_and_hard = orthogonal(), resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(step: int, *_) -> None:
        if step == 5:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, soft_and_hard[1]))

    try:
        with pytest.raises(
            CheckpointError, match="The state of step 6 cannot be written to checkpoint="
        ) as info:
            _fit(tmp_path, steps=9, model=model, anneal=0.0, callbacks=[fill], report_every=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, soft_and_hard)
    assert info.value.result.steps == 6 and np.isfinite(model.elbo(sine()))
    names = {path.name for path in tmp_path.iterdir()}
    assert not [name for name in names if "_temp" in name or "part" in name or "-6." in name]
    again = _fit(tmp_path, steps=9, anneal=0.0)
    assert np.array_equal(again.history["elbo"][:4], expected.history["elbo"]) and again.steps == 9


@pytest.mark.exhaustive
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


@pytest.mark.exhaustive
def test_files_of_others_in_the_folder_stay(tmp_path: Path) -> None:
    (tmp_path / "movie.part").mkdir()
    theirs = ["movie.part/frame", "thesis.pdf.part", "run-2024.log", "history-7.csv", "ckpt-1.txt"]
    for name in theirs:
        (tmp_path / name).write_text("mine")
    _fit(tmp_path, steps=6)
    assert [name for name in theirs if not (tmp_path / name).is_file()] == []


@pytest.mark.exhaustive
def test_folder_without_a_readable_state_says_what_to_do(tmp_path: Path) -> None:
    _fit(tmp_path)
    _remove("run-*.json", tmp_path)
    model = orthogonal()
    before = values(model)
    with pytest.raises(
        DataError,
        match=r"No state in .* can be read \(step 3: .*\); empty the folder .*or use another",
    ):
        _fit(tmp_path, model=model)
    assert unchanged(before, model)


@pytest.mark.exhaustive
def test_early_stop_is_remembered(tmp_path: Path) -> None:
    X, Y = sine()
    options = {"patience": 1, "evaluate_every": 1, "evaluation": (X, -Y), "anneal": 0.0}
    for _ in range(2):
        result = _fit(tmp_path, steps=9, **options)
        assert (result.reason, result.steps) == ("no improvement in 1 evaluations", 2)
    assert _fit(tmp_path, steps=9, **{**options, "patience": 2}).steps == 3


@pytest.mark.exhaustive
def test_svgp_and_batched_arrays_are_resumed(tmp_path: Path) -> None:
    options = grouped(batch_size=20, anneal=0.0, learning_rate=0.01, progress=False, compile=False)
    expected = gd.fit(MODELS["SVGP"](), sine(), steps=4, **options)
    for steps in (2, 4):
        result = _fit(tmp_path, steps=steps, model=MODELS["SVGP"](), anneal=0.0)
    np.testing.assert_allclose(result.history["elbo"], expected.history["elbo"], rtol=1e-12)


@pytest.mark.exhaustive
def test_state_that_breaks_off_while_it_is_read_changes_nothing(
    tmp_path: Path, monkeypatch
) -> None:
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


@pytest.mark.exhaustive
def test_numbers_of_numpy_are_numbers(tmp_path: Path) -> None:
    _fit(
        tmp_path,
        batch_size=np.int64(20),
        seed=np.int64(1),
        refresh_every=np.int64(10),
        learning_rate=np.float64(0.01),
    )
    assert _fit(tmp_path, batch_size=20, seed=1, refresh_every=10, steps=4).steps == 4
