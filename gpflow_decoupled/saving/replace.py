"""Files that are complete at every moment."""

from __future__ import annotations

__all__ = ["replaced"]

import os
import socket
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO


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
