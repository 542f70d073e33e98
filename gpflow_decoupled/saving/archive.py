"""The zip archive of a model."""

from __future__ import annotations

__all__ = ["read_archive", "write_archive"]

import json
import math
import os
import zipfile
from collections.abc import Sequence
from typing import IO, Any, cast

import numpy as np

from ..errors import DataError

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
