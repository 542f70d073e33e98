"""Ctrl-C in finalizers: Python drops exceptions of finalizers."""

# Ctrl-C raises `KeyboardInterrupt` in whatever function runs. In a `__del__` method, a callback of
# `weakref` or `gc`, or a callback of a library in C, Python prints "Exception ignored in" and goes
# on, so that the run goes on too. Within `noted` each Ctrl-C leaves a mark, and loops ask for it.

from __future__ import annotations

__all__ = ["noted", "raise_swallowed"]

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_PRESSED = threading.Event()
"""Set by Ctrl-C; of the process, as its handlers of signals are."""


@contextmanager
def noted() -> Iterator[None]:
    """Mark each Ctrl-C within the block, for `raise_swallowed`; it is raised as usual."""
    # Without effect outside of the main thread, where Python handles no signals, and for processes
    # that handle SIGINT themselves.
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _mark_and_raise)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _PRESSED.clear()


def raise_swallowed() -> None:
    """Raise `KeyboardInterrupt`, once, if Ctrl-C was pressed and its exception did not arrive."""
    if _PRESSED.is_set():
        _PRESSED.clear()
        raise KeyboardInterrupt


def _mark_and_raise(number: int, frame: FrameType | None) -> None:
    _PRESSED.set()
    signal.default_int_handler(number, frame)
