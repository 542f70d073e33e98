"""Ctrl-C in the middle of a computation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def interrupt_call(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, at: int) -> list[int]:
    """Make the call of `owner.name` with this number, from 1, a Ctrl-C; the list grows by one entry
    per call.
    """
    function, calls = getattr(owner, name), list[int]()

    def counted(*arguments: Any, **options: Any) -> Any:
        calls.append(len(calls) + 1)
        if len(calls) == at:
            raise KeyboardInterrupt
        return function(*arguments, **options)

    monkeypatch.setattr(owner, name, counted)
    return calls


def interrupt_after(step: int) -> Callable[[int, dict, Any], None]:
    """A callback of `fit` that is a Ctrl-C after a step."""

    def end(number: int, metrics: dict, model: Any) -> None:
        if number == step:
            raise KeyboardInterrupt

    return end
