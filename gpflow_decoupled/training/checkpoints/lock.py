"""One run at a time in a folder."""

from __future__ import annotations

__all__ = ["locked"]

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ...errors import CheckpointError
from ...user_warnings import warn_user

try:
    import fcntl
except ImportError:  # pragma: no cover  (Windows)
    fcntl = None  # type: ignore[assignment]

NAME = "lock"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder, which is created if missing.

    The operating system's lock ends with the process; without such locks there is a warning.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / NAME, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise CheckpointError(
            f"checkpoint={str(folder)!r} cannot be used as a folder ({error.strerror}); use one"
            " that can be written."
        ) from error
    try:
        _take(handle, folder)
        yield
    finally:
        os.close(handle)  # gives the lock back


def _take(handle: int, folder: Path) -> None:
    reason = "this system has none"
    if fcntl is not None:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError as error:
            raise CheckpointError(
                f"Another run uses the folder {folder}, and two would overwrite each other's"
                " states; wait until it ends, or use another folder."
            ) from error
        except OSError as error:  # a file system without locks
            reason = str(error.strerror)
    warn_user(
        f"The folder {folder} cannot be locked ({reason}); see to it that no other run uses it."
    )
