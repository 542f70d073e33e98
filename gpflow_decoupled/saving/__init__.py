"""A trained model in one file: `save` and `load`.

The file is a zip archive without compression: `model.json`, the model as a tree of objects with
class and attributes, and versions; and `arrays/0.npy`, `arrays/1.npy`, ... It holds no code, and
nothing is unpickled.

Read `model_file` first (the two functions), then `describe` (object to JSON) and `rebuild` (JSON to
object). `names` has the classes and functions that a file may name, `archive` the zip archive,
`replace` writes complete files.
"""

from .model_file import load, save

__all__ = ["load", "save"]


def __dir__() -> list[str]:
    return sorted(__all__)
