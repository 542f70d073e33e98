"""Ctrl-C in finalizers: Python drops exceptions of finalizers."""

from __future__ import annotations

__all__ = ["all_or_nothing", "noted", "one_at_a_time", "raise_swallowed"]

import functools
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

import tensorflow as tf

# Ctrl-C raises `KeyboardInterrupt` in whatever function runs. In a `__del__` method, a callback of
# `weakref` or `gc`, or a callback of a library in C, Python prints "Exception ignored in" and goes
# on, so that the run goes on too. Within `noted` each Ctrl-C leaves a mark, and loops ask for it.


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


# ---
# Changes of a model all or nothing, and by one thread at a time.


_Method = TypeVar("_Method", bound=Callable[..., Any])
_LOCKS: WeakKeyDictionary[object, Any] = WeakKeyDictionary()
"""Of the objects whose methods run; not attributes, which copies and files would meet."""
_OF_LOCKS = threading.Lock()


@contextmanager
def all_or_nothing(
    variables: Sequence[tf.Variable], owners: Sequence[object] = ()
) -> Iterator[None]:
    """Restore the variables, and the attributes of the owners, if the block raises anything.

    Modules that an owner holds are owners too, also those that it does not show as submodules.
    """
    before = [(variable, variable.read_value()) for variable in variables]
    found, parts = list(owners), list[tuple[object, dict[str, Any]]]()
    while found:
        owner = found.pop()
        if not any(owner is one for one, _ in parts):
            parts.append((owner, dict(vars(owner))))
            found += [part for part in vars(owner).values() if isinstance(part, tf.Module)]
    try:
        yield
    except BaseException:  # an interrupt, too
        for variable, value in before:
            variable.assign(value)
        for owner, attributes in parts:
            for name in set(vars(owner)) - set(attributes):
                if not name.startswith("_self_"):  # what TensorFlow tracks
                    delattr(owner, name)
            for name, part in attributes.items():
                if vars(owner).get(name) is not part:
                    setattr(owner, name, part)
        raise


def one_at_a_time(method: _Method) -> _Method:
    """Make threads that call a method of one object wait for each other."""

    @functools.wraps(method)
    def alone(self: object, *arguments: Any, **options: Any) -> Any:
        with _OF_LOCKS:
            lock = _LOCKS.setdefault(self, threading.RLock())
        with lock:
            return method(self, *arguments, **options)

    return cast(_Method, alone)
