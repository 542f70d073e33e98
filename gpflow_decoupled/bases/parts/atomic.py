"""Changes of a model all or nothing, and by one thread at a time."""

from __future__ import annotations

__all__ = ["all_or_nothing", "one_at_a_time"]

import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

import tensorflow as tf

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
