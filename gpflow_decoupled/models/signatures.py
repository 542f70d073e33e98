"""Signatures of constructors that hand options on to the class above."""

from __future__ import annotations

__all__ = ["shows_options_of"]

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

_Init = TypeVar("_Init", bound=Callable[..., None])


def shows_options_of(parent: type) -> Callable[[_Init], _Init]:
    """List the keyword arguments of `parent` in place of `**options`, for `help` and editors.

    :param parent: the class whose constructor takes what stands behind `**options`.
    """

    def decorated(init: _Init) -> _Init:
        own = inspect.signature(init)
        named = [one for one in own.parameters.values() if one.kind is not one.VAR_KEYWORD]
        handed_on = [
            one
            for name, one in inspect.signature(parent).parameters.items()
            if one.kind is one.KEYWORD_ONLY and name not in own.parameters
        ]
        shown: Any = init
        shown.__signature__ = own.replace(parameters=[*named, *handed_on])
        return init

    return decorated
