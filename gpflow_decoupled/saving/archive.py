"""The zip archive of a model."""

from __future__ import annotations

__all__ = ["Names", "name_of", "read_archive", "replaced", "write_archive"]

import json
import math
import os
import socket
import stat
import sys
import uuid
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, cast

import gpflow.likelihoods.utils
import numpy as np
import tensorflow as tf

from ..errors import DataError
from ..probability import tfb, tfd

# ---
# The classes and functions that a file may name.


_PACKAGES = (
    "gpflow.base", "gpflow.functions", "gpflow.inducing_variables", "gpflow.kernels",
    "gpflow.likelihoods", "gpflow.models", "gpflow.quadrature", "gpflow_decoupled.bases",
    "gpflow_decoupled.covariances.latents", "gpflow_decoupled.covariances.mixed",
    "gpflow_decoupled.distributions",
    "gpflow_decoupled.expectations", "gpflow_decoupled.inducing",
    "gpflow_decoupled.likelihoods", "gpflow_decoupled.models",
    "gpflow_decoupled.training.columns", "gpflow_decoupled.training.standardization",
    "gpflow_decoupled.training.standardized", "gpflow_decoupled.training.tables",
    "gpflow_decoupled.training.units", "gpflow_decoupled.training.views",
)  # fmt: skip
"""Whose classes, defined there, may be made and filled with attributes."""
_MADE: tuple[type, ...] = (
    tfb.Ascending, tfb.Chain, tfb.Exp, tfb.FillTriangular, tfb.Identity, tfb.Invert, tfb.Log,
    tfb.Reciprocal, tfb.Scale, tfb.Shift, tfb.Sigmoid, tfb.Softplus, tfb.Square, tfb.Tanh,
    tfd.Bernoulli, tfd.Beta, tfd.Categorical, tfd.Cauchy, tfd.Exponential, tfd.Gamma,
    tfd.GeneralizedNormal, tfd.Gumbel, tfd.HalfCauchy, tfd.HalfNormal, tfd.Independent,
    tfd.InverseGamma, tfd.Laplace, tfd.LogNormal, tfd.Logistic, tfd.MixtureSameFamily,
    tfd.MultivariateNormalDiag, tfd.MultivariateNormalDiagPlusLowRank,
    tfd.MultivariateNormalFullCovariance, tfd.MultivariateNormalTriL, tfd.Normal, tfd.Poisson,
    tfd.SinhArcsinh, tfd.StudentT, tfd.Uniform, tfd.VonMises,
)  # fmt: skip
"""Bijectors and distributions of models, whose constructors take no more memory than their
arguments; of others a short file can ask for any.
"""
_FUNCTIONS: dict[str, Callable] = {
    "inv_probit": gpflow.likelihoods.utils.inv_probit,
    "exp": tf.exp,
    "sigmoid": tf.sigmoid,
    "softplus": tf.nn.softplus,
    "square": tf.square,
    "tanh": tf.tanh,
}
"""With which likelihoods and transforms are made."""


def name_of(thing: type | Callable) -> str:
    """A name of a class or function that `Names.find` finds again."""
    for name, function in _FUNCTIONS.items():
        if thing is function:
            return name
    name, module = getattr(thing, "__qualname__", "<unnamed>"), getattr(thing, "__module__", "")
    if "<" in name:
        raise DataError(
            f"{module}.{name} has no name that another process knows: define it in a module, not"
            " in another function; or save the numbers alone, by"
            " gpflow.utilities.parameter_dict(model)"
        )
    return f"{module}:{name}"


class Names:
    """Looks names up: in the packages that models are made of, and among a caller's classes."""

    # No module is imported for a name in a file. `own` has the caller's trusted classes and
    # functions.

    def __init__(self, own: Iterable[type | Callable]) -> None:
        known: tuple[type | Callable, ...] = (*_MADE, *own)
        self._own = {name_of(one): one for one in known}

    def function(self, name: object) -> Callable:
        """The function of a name; raises `DataError` for an unknown one."""
        if isinstance(name, str):
            found = _FUNCTIONS.get(name, self._own.get(name))
            if callable(found) and not isinstance(found, type):
                return found
        raise self._unknown(name)

    def kind(self, name: object, base: type = object) -> type:
        """The class of a name, derived from `base`; raises `DataError` for others."""
        found = self._own.get(name) if isinstance(name, str) else None
        if found is None and isinstance(name, str):
            module, _, part = name.partition(":")
            if part.isidentifier() and module not in sys.modules:
                module = _moved_to(module, part)
            if any(module == one or module.startswith(f"{one}.") for one in _PACKAGES):
                found = getattr(sys.modules.get(module), part, None)
                found = found if getattr(found, "__module__", None) == module else None
        if isinstance(found, type) and issubclass(found, base):
            return found
        raise self._unknown(name)

    @staticmethod
    def _unknown(name: object) -> DataError:
        short = str(name).partition(":")[2] or str(name)
        return DataError(
            f"it needs {str(name).replace(':', '.')[:200]}, which is no usual part of GPflow's"
            " models or of this package's: if you use it or it is your own, import it and call"
            f" load(path, classes=[{short[:100]}]). If you do not know it, do not trust the file"
        )


def _moved_to(module: str, part: str) -> str:
    """Where a class of a module of this package that is gone is now, if only one has its name."""
    package = ".".join(module.split(".")[:2]) + "."
    if not package.startswith(f"{__name__.partition('.')[0]}."):
        return module
    found = {
        name
        for name, one in list(sys.modules.items())
        if name.startswith(package) and getattr(getattr(one, part, None), "__module__", "") == name
    }
    return found.pop() if len(found) == 1 else module


# ---
# Files that are complete at every moment.


@contextmanager
def replaced(path: Path) -> Iterator[IO[bytes]]:
    """Open a new file that replaces `path` when the block ends without an error."""
    # Until then the file has a unique name. A symbolic link and permissions stay. The file is on
    # the disk before it is renamed. Files left by killed processes of this machine are removed.
    target = Path(os.path.realpath(path))
    _remove_abandoned(target)
    name = f"{_prefix(target)}{os.getpid()}.{uuid.uuid4().hex}.partial"
    partial = target.with_name(name)
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    try:
        with os.fdopen(os.open(partial, flags, 0o666), "w+b") as file:
            with suppress(FileNotFoundError):
                os.chmod(partial, stat.S_IMODE(os.stat(target).st_mode))
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


def _prefix(target: Path) -> str:
    return f".{target.name}.{socket.gethostname()}."


def _remove_abandoned(target: Path) -> None:
    if os.name != "posix":  # elsewhere os.kill(pid, 0) ends a process
        return
    prefix = _prefix(target)
    with suppress(OSError):
        for other in target.parent.iterdir():
            if other.name.startswith(prefix) and other.name.endswith(".partial"):
                pid = other.name[len(prefix) :].partition(".")[0]
                if pid.isdigit() and not _is_running(int(pid)):
                    other.unlink(missing_ok=True)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        # another user's, or not to be found out: keep its file
        return True
    return True


def _sync_folder(folder: Path) -> None:
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


# ---


_JSON = "model.json"
_OLD = "model.pickle"
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The date of all members, so that a model gives the same file twice."""


def write_archive(file: IO[bytes], tree: Any, arrays: Sequence[np.ndarray]) -> None:
    """Write JSON, and arrays [...] of any shapes; one that is contiguous is not copied."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(zipfile.ZipInfo(_JSON, _EPOCH), json.dumps(tree, allow_nan=False))
        for index, array in enumerate(arrays):
            info = zipfile.ZipInfo(_member(index), _EPOCH)
            with archive.open(info, "w", force_zip64=True) as member:
                np.lib.format.write_array(
                    member, np.asarray(array, order="C"), version=(1, 0), allow_pickle=False
                )


def read_archive(file: IO[bytes]) -> tuple[Any, list[np.ndarray]]:
    """Read an archive of `write_archive`."""
    # Members are not compressed, so a file needs no more memory than its length.
    length = os.fstat(file.fileno()).st_size
    with zipfile.ZipFile(file) as archive:
        members = {info.filename: info for info in archive.infolist()}
        if _OLD in members:
            raise DataError(
                "it is a file of an earlier version, in Python's pickle format, which may run code:"
                " load it with the version that wrote it, and save the model again with this one"
            )
        if any(info.compress_type != zipfile.ZIP_STORED for info in members.values()):
            raise DataError("its members are compressed, and gpflow_decoupled.save compresses none")
        if sum(info.file_size for info in members.values()) > length:
            raise DataError("its members are longer than the file")
        tree = json.loads(archive.read(_JSON))
        if set(members) != {_JSON, *(_member(index) for index in range(len(members) - 1))}:
            raise DataError("its members are not those that gpflow_decoupled.save writes")
        arrays = []
        for index in range(len(members) - 1):
            info = members[_member(index)]
            with archive.open(info) as member:
                arrays.append(_read_array(member, info.file_size))
    return tree, arrays


def _member(index: int) -> str:
    return f"arrays/{index}.npy"


def _read_array(member: Any, size: int) -> np.ndarray:
    if np.lib.format.read_magic(member) != (1, 0):
        raise DataError("an array has another format")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(member)
    if dtype.kind not in "biufc" or dtype.fields is not None or dtype.subdtype is not None:
        raise DataError(f"an array is of {dtype}, and files of models hold numbers")
    # read_array_header has checked that the shape is one of integers
    count = math.prod(shape)
    if fortran or min(shape, default=0) < 0 or count * dtype.itemsize != size - member.tell():
        raise DataError("the length of an array differs from the length of its member")
    array = np.empty(shape, dtype)
    if count:
        view, done = memoryview(cast(Any, array.reshape(-1).view(np.uint8))), 0
        while done < len(view):
            read = member.readinto(view[done:])
            if not read:
                raise DataError("an array ends early")
            done += read
    if member.read(1):  # at its end, the check sum of the member is compared
        raise DataError("an array is longer than its header says")
    return array
