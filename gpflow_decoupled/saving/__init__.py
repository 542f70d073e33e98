"""A trained model in one file: `save` and `load`.

The file is a zip archive without compression. `model.json` describes the model as a tree of
objects, each with the name of its class and its attributes, and gives the versions of the
libraries; `arrays/0.npy`, `arrays/1.npy`, ... are the numbers. Nothing in it is code, and nothing
is unpickled.

Read `model_file.py` first (the two functions), then `describe.py` (object to JSON) and `rebuild.py`
(JSON to object). `names.py` says which classes and functions a file may name, `archive.py` reads
and writes the zip archive, and `replace.py` puts a complete file in the place of another one.
"""

from .model_file import load, save

__all__ = ["load", "save"]


def __dir__() -> list[str]:
    return sorted(__all__)
