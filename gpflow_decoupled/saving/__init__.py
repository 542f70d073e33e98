"""A trained model in one file: `save` and `load`.

The file is a zip archive without compression. `model.json` describes the model as a tree of
objects, each with its class and attributes, and gives the versions of the libraries;
`arrays/0.npy`, `arrays/1.npy`, ... are the numbers. It holds no code, and nothing is unpickled.

Read `model_file.py` first (the two functions), then `describe.py` (object to JSON) and `rebuild.py`
(JSON to object). `names.py` has the classes and functions that a file may name, `archive.py` the
zip archive, `replace.py` replaces a file by a complete one.
"""

from .model_file import load, save

__all__ = ["load", "save"]


def __dir__() -> list[str]:
    return sorted(__all__)
