"""A trained model in one file: `save` and `load`.

The file is a zip archive of `model.json` and `arrays/0.npy`, ..., without code; nothing is
unpickled. Read `model_file` first, then `describe` (object to JSON) and `rebuild` (back); `names`
has the classes that a file may name, `archive` the zip archive, `replace` writes complete files.
"""

from .model_file import load, save

__all__ = ["load", "save"]


def __dir__() -> list[str]:
    return sorted(__all__)
