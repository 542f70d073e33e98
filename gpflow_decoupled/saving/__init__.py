"""A trained model in one file: `save` and `load`.

The file is a zip archive of `model.json` and `arrays/0.npy`, ..., without code; nothing is
unpickled. Read `model_file` first, then `structure` (object to JSON and back) and `archive`, with
the names that a file may contain.
"""

from .model_file import load, save

__all__ = ["load", "save"]


def __dir__() -> list[str]:
    return sorted(__all__)
