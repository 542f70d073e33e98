"""For tools that still ask for this file; the metadata are in pyproject.toml."""

from setuptools import setup

setup()
